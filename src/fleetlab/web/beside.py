"""A scenario beside the baseline: what moved, by how much, and how sure that is.

Both play the same jobs. Each number is taken in the same twenty blocks of them, and the interval of a change is that
of the mean of twenty differences (Student's t with 19 degrees of freedom): a busy hour is in both and cancels. What is
not known in blocks, such as allocation, is compared as if the runs were independent, which is too wide rather than too
narrow.
"""

from __future__ import annotations

import math
from collections.abc import Mapping, Sequence
from statistics import stdev
from typing import Any, Literal

from fleetlab._student import student
from fleetlab.core import Estimate
from fleetlab.report.words import number
from fleetlab.web.answers import Answer, Held, Number, Part, Reason, Row
from fleetlab.web.choices import REASONS
from fleetlab.web.scenario import Link

SHOWN: dict[str, Literal["less", "more"] | None] = {
    "mean wait": "less",
    "P50 wait": "less",
    "P90 wait": "less",
    "P99 wait": "less",
    "mean JCT": "less",
    "P90 JCT": "less",
    "mean bounded slowdown": "less",
    "GPU allocation while jobs arrive": None,
    "Jain fairness over users": "more",
}
LONG = ((3 * 3600.0, "h", 3600.0), (300.0, "min", 60.0))  # from how many seconds on, the unit, and its seconds
FAR = 20.0  # so many times smaller, a number is said in a unit of its own
SURE = 0.95
DAY = 86_400.0
Outcome = Mapping[str, Any]


def answer(link: Link, base: Outcome, now: Outcome, html: str) -> Answer:
    """Everything that the page shows of it."""
    rows = [row for metric in SHOWN if (row := _row(metric, base, now)) is not None]
    ledger = _ledger(base, now)
    return {
        "link": link.query(),
        "title": link.now.title,
        "base_title": link.base.title,
        "findings": _findings(rows, ledger),
        "rows": rows,
        "ledger": ledger,
        "types": _types(base, now),
        "notes": _notes(base, now),
        "seconds": float(now["seconds"]),
        "cpu_seconds": float(now["cpu_seconds"]),
        "part": _part(now),
        "html": html,
    }


def paired(base: Sequence[float | None], now: Sequence[float | None]) -> float:
    """Half the width of the interval of a change, from a value of each in the same blocks; nan: there is none.

    >>> paired([1.0, 2.0, 3.0], [2.0, 3.0, 4.0])
    0.0
    >>> round(paired([0.0, 0.0, 0.0], [1.0, 2.0, 3.0]), 3)
    2.484
    """
    apart = [b - a for a, b in zip(base, now, strict=False) if a is not None and b is not None]
    if len(apart) < 2 or len(apart) < len(base) or len(base) != len(now):
        return math.nan
    return student(len(apart) - 1, SURE) * stdev(apart) / math.sqrt(len(apart))


def _summary(outcome: Outcome) -> dict[str, Estimate]:
    """By metric; JSON has no NaN, so what was none is null."""

    def of(row: Mapping[str, Any]) -> Estimate:
        value, low, high = (math.nan if row[k] is None else row[k] for k in ("value", "low", "high"))
        return Estimate(row["metric"], value, low, high, row["unit"])

    return {row["metric"]: of(row) for row in outcome["result"]["summary"]}


def _row(metric: str, base: Outcome, now: Outcome) -> Row | None:
    before, after = _summary(base).get(metric), _summary(now).get(metric)
    if before is None or after is None:
        return None
    if metric in base["blocks"]:
        half = paired(base["blocks"][metric], now["blocks"][metric])
    else:
        half = math.hypot(*((e.high - e.low) / 2 for e in (before, after)))
    by = after.value - before.value
    change = Estimate(metric, by, by - half, by + half, after.unit)
    most = max(abs(before.value), abs(after.value))
    return {
        "metric": metric,
        "unit": after.unit,
        "better": SHOWN[metric],
        "base": _number(before, most),
        "now": _number(after, most),
        "change": _number(change._replace(unit="points" if after.unit == "%" else after.unit), most, signed=True),
        "verdict": _verdict(change, same=base is now),
    }


def _verdict(change: Estimate, *, same: bool) -> Literal["less", "more", "unclear", "same", "unknown"]:
    if same or change.value == change.low == change.high == 0:
        return "same"
    if not math.isfinite(change.high - change.low):
        return "unknown"
    return "less" if change.high < 0 else "more" if change.low > 0 else "unclear"


def _number(e: Estimate, most: float, *, signed: bool = False) -> Number:
    """With words in the unit in which `most` is said; a number that is far smaller has its own."""
    unit, per = _unit(e.unit, most if abs(e.value) > most / FAR else abs(e.value))
    words = number(Estimate("", e.value / per, e.low / per, e.high / per, unit))
    if signed:
        words = ("+" if e.value > 0 else "") + words.replace("-", "−")
    return {"value": _known(e.value), "low": _known(e.low), "high": _known(e.high), "words": words}


def _unit(unit: str, value: float) -> tuple[str, float]:
    """Seconds as people say them: minutes and hours where there are many."""
    if unit == "s":
        for least, name, per in LONG:
            if value >= least:
                return name, per
    return unit, 1.0


def _known(value: float) -> float | None:
    return float(value) if math.isfinite(value) else None


def _ledger(base: Outcome, now: Outcome) -> list[Reason]:
    """By reason, the largest first; those that nobody waits for are left out."""
    found: list[tuple[float, Reason]] = []
    for reason, meaning in REASONS.items():
        before, after = (o["ledger"][reason] for o in (base, now))
        if not max(before["mean"], after["mean"]):
            continue
        by, half = after["mean"] - before["mean"], paired(before["blocks"], after["blocks"])
        most = max(before["mean"], after["mean"])
        row: Reason = {
            "reason": reason,
            "meaning": meaning,
            "base": _number(_alone(before), most),
            "now": _number(_alone(after), most),
            "change": _number(Estimate("", by, by - half, by + half, "s"), most, signed=True),
        }
        found.append((most, row))
    return [row for _, row in sorted(found, key=lambda pair: -pair[0])]


def _alone(part: Mapping[str, Any]) -> Estimate:
    """A mean over jobs, from that of each block."""
    mean = part["mean"]
    half = paired([0.0] * len(part["blocks"]), part["blocks"])
    return Estimate("", mean, max(0.0, mean - half) if math.isfinite(half) else math.nan, mean + half, "s")


def _types(base: Outcome, now: Outcome) -> list[Held]:
    if "allocation" not in now["result"]["tables"]:
        return []  # not made yet
    held = [{r["gpu_type"]: r for r in o["result"]["tables"].get("allocation", ())} for o in (base, now)]
    names = sorted({*held[0], *held[1]}, key=lambda name: -max(h[name]["hours"] for h in held if name in h))
    return [
        {
            "gpu_type": name,
            "base_nodes": base["nodes"].get(name, 0),
            "nodes": now["nodes"].get(name, 0),
            "base": held[0].get(name, {}).get("while jobs arrive"),
            "now": held[1].get(name, {}).get("while jobs arrive"),
        }
        for name in names
    ]


def _notes(base: Outcome, now: Outcome) -> list[str]:
    said = [row["note"] for row in now["result"]["tables"].get("notes", [])]
    if base["refused"] != now["refused"]:
        more = now["refused"] - base["refused"]
        verb = "more" if more > 0 else "fewer"
        said.insert(
            0, f"{abs(more):,} {verb} jobs than in the baseline can never run: numbers are not of the same jobs"
        )
    if not now["blocks"].get("mean wait"):
        said.insert(0, "too few jobs for intervals: 200 is the least")
    return said


def _part(now: Outcome) -> Part | None:
    """Which of the jobs were played, where it was not all."""
    jobs, of_jobs = now["jobs"]
    if jobs == of_jobs:
        return None
    days, of_days = (seconds / DAY for seconds in now["came"])
    unit, per = ("days", 1.0) if of_days >= 2 else ("hours", 24.0)
    said = f"the first {days * per:.2g} of {of_days * per:.2g} {unit}, {jobs:,} of {of_jobs:,} jobs"
    return {"jobs": jobs, "of_jobs": of_jobs, "days": days, "of_days": of_days, "words": said}


# --- in words ----------------------------------------------------------------------------------------------------

MOVES = {"less": "falls", "more": "rises"}


def _findings(rows: Sequence[Row], ledger: Sequence[Reason]) -> list[str]:
    by = {row["metric"]: row for row in rows}
    said = [_moved(by[m]) for m in ("mean wait", "mean JCT", "GPU allocation while jobs arrive") if m in by]
    if ledger:
        most = max(ledger, key=lambda reason: reason["now"]["value"] or 0.0)
        said.append(f"Most waiting is charged to {most['reason']} ({most['meaning']}): {most['now']['words']} a job.")
    else:
        said.append("Nobody waits.")
    return said


def _moved(row: Row) -> str:
    name, change = row["metric"], row["change"]["words"]
    if row["verdict"] == "same":
        return f"{_capital(name)} is {row['now']['words']}, as in the baseline."
    ends = " to ".join(row[side]["words"].partition(" (")[0] for side in ("base", "now"))
    if row["verdict"] in MOVES:
        return f"{_capital(name)} {MOVES[row['verdict']]} from {ends}: {change}{_share(row)}."
    if row["verdict"] == "unclear":
        return f"No clear change of {name}: {change}, from {ends}."
    return f"{_capital(name)} goes from {ends}; there are too few jobs to say how sure that is."


def _capital(name: str) -> str:
    return name[0].upper() + name[1:]


def _share(row: Row) -> str:
    before, by = row["base"]["value"], row["change"]["value"]
    if not before or not by or row["unit"] == "%" or abs(by / before) >= 100:
        return ""
    return f", {100 * by / before:+.0f} %".replace("-", "−")
