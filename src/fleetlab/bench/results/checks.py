"""Validity checks of a suite: what was checked, and what failed."""

from __future__ import annotations

from collections.abc import Callable, Iterable, Sequence
from typing import Any

from fleetlab.bench.results.cells import Cell, group_cells, is_open_loop
from fleetlab.bench.results.latency import MAX_LAG, falls_behind, lag_p99
from fleetlab.devices.nvml import THROTTLE_REASONS
from fleetlab.sharing.modes import MIG

MAX_DRIFT, MAX_CPU = 0.03, 0.8
Checks = Iterable[tuple[str, float, bool]]  # what, value, and whether it failed


def rows_checks(about: dict[str, Any], cells: Sequence[Cell]) -> Iterable[dict[str, Any]]:
    """One row per check; `worst` is the worst case."""
    all_checks: dict[str, Checks] = {
        f"solo rate within {100 * MAX_DRIFT:g} % in every block": _solo_drift(cells),
        "clients attached to MPS": _attached(cells, "mps"),
        "tenants on their MIG instances": _attached(cells, MIG),
        "no throttling by power or temperature": _throttled(cells),
        f"generator lag below {1000 * MAX_LAG:g} ms at P99": _lags(cells),
        f"CPU utilization below {100 * MAX_CPU:g} %": _cpu(cells, about.get("machine", {}).get("cores")),
    }
    formats: dict[str, Callable[[float], str]] = {
        f"solo rate within {100 * MAX_DRIFT:g} % in every block": lambda far: f"{100 * far:.1f} %",
        f"generator lag below {1000 * MAX_LAG:g} ms at P99": lambda far: f"{1000 * far:.3g} ms",
        f"CPU utilization below {100 * MAX_CPU:g} %": lambda far: f"{100 * far:.0f} %",
    }
    for name, checks in all_checks.items():
        yield _row(name, list(checks), formats.get(name, lambda _: ""))


def _row(name: str, checks: list[tuple[str, float, bool]], say: Callable[[float], str]) -> dict[str, Any]:
    broken = [check for check in checks if check[2]]
    what, far, _ = max(broken or checks, key=lambda check: check[1], default=("", 0.0, False))
    return {
        "check": name,
        "checked": len(checks),
        "failed": len(broken),
        "passed": None if not checks else not broken,
        "worst": f"{what} {say(far)}".strip() if checks and (broken or say(far)) else "",
    }


def _solo_drift(cells: Sequence[Cell]) -> Checks:
    """Each tenant alone in every block of a stage, against its mean: drift that may affect the cells in between."""
    alone = (c for c in cells if len(c["tenants"]) == 1 and not is_open_loop(c["tenants"][0]))
    for (stage, seat), blocks in group_cells((c["stage"], c["tenants"][0]["seat"], c) for c in alone).items():
        rates = [c["tenants"][0]["rate"] for c in blocks]
        middle = sum(rates) / len(rates)
        if len(rates) > 1 and middle > 0:
            far = max(abs(rate / middle - 1) for rate in rates)
            yield f"{stage}/{seat}", far, far > MAX_DRIFT


def _attached(cells: Sequence[Cell], mode: str) -> Checks:
    for c in cells:
        if c["mode"].startswith(mode) and c["tenants"] and all("attached" in t for t in c["tenants"]):
            apart = sum(not t["attached"] for t in c["tenants"])
            yield c["cell"], apart, apart > 0


def _throttled(cells: Sequence[Cell]) -> Checks:
    for c in cells:
        if c["gpu"]:
            yield c["cell"], c["gpu"].get("watts", 0.0), bool(c["gpu"]["reasons"] & THROTTLE_REASONS)


def _lags(cells: Sequence[Cell]) -> Checks:
    """Of servers that keep up: one that falls behind delays the generator in its process."""
    for c in cells:
        sent = [t for t in c["tenants"] if is_open_loop(t) and not falls_behind(t, c.get("window") or 0.0)]
        if (lag := lag_p99(sent)) is not None:
            yield c["cell"], lag, lag >= MAX_LAG


def _cpu(cells: Sequence[Cell], cores: int | None) -> Checks:
    """All tenants, relative to all cores; nothing if the number of cores is unknown."""
    for c in cells if cores else ():
        if c["tenants"]:
            used = sum(t.get("cpu", 0.0) for t in c["tenants"]) / (cores or 1)
            yield c["cell"], used, used >= MAX_CPU
