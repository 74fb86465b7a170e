"""A load or a search as a result with polars tables."""

from __future__ import annotations

import json
import math
from collections.abc import Iterator, Sequence
from pathlib import Path
from typing import Any

import polars as pl

from fleetlab.core import Estimate, Provenance
from fleetlab.core.result import FieldsResult
from fleetlab.gpu.devices.console import BenchError

OF = {"answers": "answers, with timeouts", "refusals": "refusals (429, 503)", "failures": "other failures"}


def load_result(about: dict[str, Any]) -> FieldsResult:
    """Make a result from `to_json` of a load or a search."""
    settings = dict(about["manifest"])
    provenance = Provenance("bench load", settings.pop("url"), settings, settings.pop("seed"))
    numbers, frames = (_search if about["kind"] == "search" else _load)(about)
    return FieldsResult(provenance, estimates=numbers, frames=frames, notes=tuple(about["notes"]))


def saved_load(folder: Path) -> FieldsResult | None:
    """Read the saved load or search of a folder, the later of the two; None if there is none."""
    there = [path for name in ("load.json", "search.json") if (path := folder / name).is_file()]
    if not there:
        return None
    path = max(there, key=lambda one: one.stat().st_mtime_ns)
    try:
        return load_result(json.loads(path.read_text("utf-8")))
    except (OSError, ValueError, KeyError, TypeError, AttributeError) as e:
        msg = f"{path}: not a saved load: {e}"
        raise BenchError(msg, hint="`fleetlab bench load URL --out FOLDER` makes one") from None


# --- a load ----------------------------------------------------------------------------------------------------------


def _load(about: dict[str, Any]) -> tuple[list[Estimate], dict[str, pl.DataFrame]]:
    rows = list(_percentiles(about))
    is_open, rates = about["loop"] == "open", about["rates"]
    numbers = [
        *([Estimate.exact("offered", rates["offered"], "/s")] if is_open else []),
        *(_estimate(name, rates[name], "/s") for name in ("answered", "goodput") if rates[name]),
        *(_tokens(about["tokens"]) if about.get("tokens") else _latencies(rows)),
        *(_estimate(name, about["shares"][name], "%", times=100) for name in ("refused", "failed")),
        *([Estimate.exact("generator lag, P99", 1000 * about["lag"]["p99"], "ms")] if is_open else []),
    ]
    frames = {
        "requests": _counts(about),
        "latency": pl.DataFrame(rows, schema=LATENCY),
        **({"tokens": pl.DataFrame(_token_rows(about["tokens"]), schema=TOKENS)} if about.get("tokens") else {}),
        "timeline": pl.DataFrame([_second(row) for row in about["timeline"]], schema=TIMELINE),
        "how": pl.DataFrame(_how(about), schema={"how": pl.String, "it_was": pl.String}, orient="row"),
    }
    return numbers, frames


QUANTILE = {"percentile": pl.String, "ms": pl.Float64, "low": pl.Float64, "high": pl.Float64, "why": pl.String}
LATENCY = {"of": pl.String, "requests": pl.Int64} | QUANTILE
TIMELINE = {"second": pl.Int64, "offered": pl.Int64, "answered": pl.Int64, "p50_ms": pl.Float64, "p99_ms": pl.Float64}


def _estimate(metric: str, values: Sequence[float], unit: str, *, times: float = 1.0) -> Estimate:
    value, low, high = (times * x for x in values)
    return Estimate(metric, value, low, high, unit)


def _percentiles(about: dict[str, Any]) -> list[dict[str, Any]]:
    rows = []
    for kind, values in about["percentiles"].items():
        n = sum(about["histograms"][kind]["counts"])
        for name, quantile in values.items():
            rows.append({"of": OF[kind], "requests": n, "percentile": name.upper(), **_in_ms(quantile)})
    return rows


def _latencies(rows: list[dict[str, Any]]) -> list[Estimate]:
    measured = [row for row in rows if row["of"] == OF["answers"] and row["ms"] is not None]
    return [Estimate(f"{row['percentile']} latency", row["ms"], row["low"], row["high"], "ms") for row in measured]


TOKENS = {"metric": pl.String, "n": pl.Int64} | QUANTILE


def _token_rows(about: dict[str, Any]) -> list[dict[str, Any]]:
    return [
        {"metric": name.upper(), "n": about["counts"][name], "percentile": p.upper(), **_in_ms(quantile)}
        for name, values in about["percentiles"].items()
        for p, quantile in values.items()
    ]


def _in_ms(quantile: Sequence[float] | str) -> dict[str, Any]:
    if isinstance(quantile, str):
        return {"ms": None, "low": None, "high": None, "why": quantile}
    value, low, high = (1000 * x for x in quantile)
    return {"ms": value, "low": low, "high": high, "why": None}


def _tokens(about: dict[str, Any]) -> Iterator[Estimate]:
    yield Estimate.exact("output tokens", about["per_s"]["output"], "/s")
    for row in _token_rows(about):
        if row["ms"] is not None and row["percentile"] in ("P50", "P99"):
            yield Estimate(f"{row['metric']} {row['percentile']}", row["ms"], row["low"], row["high"], "ms")
    if about["goodput"]:
        goals = ", ".join(f"{name.upper()} {1000 * goal:g} ms" for name, goal in about["goals"].items())
        yield _estimate(f"goodput within {goals}", about["goodput"], "/s")
        yield _estimate("requests within the goals", about["good"], "%", times=100)


def _counts(about: dict[str, Any]) -> pl.DataFrame:
    counts = {"scheduled": about["offered"], "sent": about["sent"]} | about["outcomes"]
    rows = [(name, n, 100 * n / about["offered"]) for name, n in counts.items()]
    return pl.DataFrame(rows, schema={"requests": pl.String, "count": pl.Int64, "percent": pl.Float64}, orient="row")


def _how(about: dict[str, Any]) -> list[tuple[str, str]]:
    lag = ", ".join(f"{name.upper()} {1000 * about['lag'][name]:.3g} ms" for name in ("p50", "p99", "max"))
    return [
        ("loop", about["loop"]),
        ("steady", {True: "yes", False: "no", None: "too few requests to tell"}[about["steady"]]),
        *([("generator lag", lag), ("valid", "yes" if about["valid"] else "no")] if about["loop"] == "open" else []),
        ("waited for a connection", f"{about['queued']:,} requests"),
    ]


def _second(row: dict[str, Any]) -> dict[str, Any]:
    times = {f"{name}_ms": None if row[name] is None else 1000 * row[name] for name in ("p50", "p99")}
    return {name: row[name] for name in ("second", "offered", "answered")} | times


# --- a search --------------------------------------------------------------------------------------------------------


def _search(about: dict[str, Any]) -> tuple[list[Estimate], dict[str, pl.DataFrame]]:
    passed = math.nan if about["passed"] is None else about["passed"]
    top = math.inf if about["failed"] is None else about["failed"]
    goal = about["goal"]
    metric = f"highest rate with P{goal['percentile']:g} below {1000 * goal['slo']:g} ms"
    trials = [_trial(trial) for trial in sorted(about["trials"], key=lambda t: t["rate"])]
    return [Estimate(metric, passed, passed, top, "/s")], {"trials": pl.DataFrame(trials, infer_schema_length=None)}


def _trial(trial: dict[str, Any]) -> dict[str, Any]:
    latency = _in_ms(trial["latency"])
    why = {"why": latency.pop("why")}
    lost = {"lost_percent": 100 * trial["lost"][0], "lag_ms": 1000 * trial["lag"], "stretches": trial["stretches"]}
    return {name: trial[name] for name in ("rate", "verdict", "requests")} | latency | lost | why
