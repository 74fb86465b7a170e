"""A scenario compared with the baseline: what changes, by how much, and with which interval.

Both simulate the same jobs, so differences are paired by blocks of time, and fairness by users (`fleetlab.stats`).
"""

from __future__ import annotations

import math
from collections.abc import Mapping, Sequence
from typing import Any, Literal

import polars as pl

from fleetlab.core import Estimate, Provenance, SavedResult
from fleetlab.core.addresses import query_pairs
from fleetlab.core.catalog import REASONS
from fleetlab.core.durations import between_text, plural
from fleetlab.core.result import amount_and_interval
from fleetlab.stats import LEAST, POSITIVE, Interval, paired_difference
from fleetlab.studies.requests import NEVER_RUN, left_out
from fleetlab.web.link import Link, words_query
from fleetlab.web.messages import AllocationRow, MetricRow, Quantity, ReasonRow, RecordedWait, RunComparison
from fleetlab.web.runs import completed_by_both, decode, unpack

METRICS: dict[str, Literal["lower", "higher"] | None] = {
    NEVER_RUN: "lower",
    "mean wait": "lower",
    "P50 wait": "lower",
    "P90 wait": "lower",
    "P99 wait": "lower",
    "mean JCT": "lower",
    "P90 JCT": "lower",
    "mean bounded slowdown": "lower",
    "GPU allocation while jobs arrive": None,
    "Jain index of users' mean bounded slowdown": "higher",
    "GPU-hours allocated per day": None,
    "energy per day": None,
    "cost per day": None,
}
FAR = 20.0  # a number so many times smaller than its neighbor is shown in a unit of its own
Outcome = Mapping[str, Any]


def compare_runs(link: Link, base: Outcome, now: Outcome, html: str) -> RunComparison:
    """Return everything that the page shows of two outcomes."""
    rows = [row for metric in METRICS if (row := _row(metric, base, now)) is not None]
    reasons = _reasons(base, now)
    chance = _only_fewer_nodes(link, base, now)
    if chance:  # what jobs gain then is no improvement
        rows = [row | {"better": None} if row["verdict"] == row["better"] else row for row in rows]
    findings = [*_cannot_run(rows[0], base, now), *_findings(rows, reasons)]
    if chance and any(row["metric"] == "mean wait" and row["verdict"] == "lower" for row in rows):
        findings.append(OTHER_SCHEDULE)
    return {
        "link": link.query(),
        "title": link.now.title,
        "base_title": link.base.title,
        "population": _population(link, base, now),
        "submitted": _submitted(link, now),
        "headline": _headline(link, rows[0], findings, _submitted(link, now)),
        "findings": findings,
        "rows": rows,
        "wait_reasons": reasons,
        "allocation": _allocation(base, now),
        "notes": _notes(now),
        "seconds": float(now["seconds"]),
        "cpu_seconds": float(now["cpu_seconds"]),
        "recorded": _recorded(link, base),
        "html": html,
    }


def _summary(outcome: Outcome) -> dict[str, Estimate]:
    """Return the estimates by metric."""
    return {row["metric"]: Estimate.from_json(row) for row in (*outcome["exact"], *outcome["result"]["summary"])}


def _row(metric: str, base: Outcome, now: Outcome) -> MetricRow | None:
    before, after = _summary(base).get(metric), _summary(now).get(metric)
    if before is None or after is None:
        return None
    by = 0.0 if math.isclose(after.value, before.value) else after.value - before.value
    pair = [o["replicates"].get(metric) for o in (base, now)]
    interval = _paired(*pair)._replace(value=by) if all(pair) else Interval(by, by, by)
    change = Estimate(metric, *interval, after.unit)
    most = max(abs(before.value), abs(after.value))
    better, verdict = METRICS[metric], "same" if base is now else interval.change()
    # Jobs that can no longer run do not compete any more: what the others gain is no improvement.
    bought = verdict == better and _refused(now) > _refused(base)
    return {
        "metric": metric,
        "unit": after.unit,
        "better": None if bought else better,
        "base": _quantity(before, most),
        "now": _quantity(after, most),
        "change": _quantity(change._replace(unit="points" if after.unit == "%" else after.unit), most, signed=True),
        "verdict": verdict,
    }


def _refused(outcome: Outcome) -> float:
    return _summary(outcome)[NEVER_RUN].value


def _paired(before: Mapping[str, Any], after: Mapping[str, Any]) -> Interval:
    return paired_difference(decode(before), decode(after)).interval()


def _quantity(e: Estimate, most: float, *, signed: bool = False) -> Quantity:
    """Return a number in the unit of `most`; one that is far smaller has its own."""
    value, interval = amount_and_interval(e, most if abs(e.value) > most / FAR else e.value)
    text = "–" if math.isnan(e.value) else f"{value} ({interval})" if interval else value
    text = f"+{text}" if signed and e.value > 0 else text
    return {"value": _known(e.value), "low": _known(e.low), "high": _known(e.high), "text": text}


def _known(value: float) -> float | None:
    return float(value) if math.isfinite(value) else None


def _reasons(base: Outcome, now: Outcome) -> list[ReasonRow]:
    """Return the reasons that any wait is charged to, the largest first."""
    rows: list[tuple[float, ReasonRow]] = []
    for reason in REASONS:
        pair = [o["reasons"].get(reason.name) for o in (base, now)]
        if not any(pair):
            continue
        # No wait for this reason is 0 in every replicate.
        before, after = (one or _zero(other) for one, other in zip(pair, pair[::-1], strict=True))
        sides = [Estimate("", *decode(values).interval(POSITIVE), "s") for values in (before, after)]
        most = max(e.value for e in sides)
        row: ReasonRow = {
            "reason": reason.name,
            "meaning": reason.meaning,
            "base": _quantity(sides[0], most),
            "now": _quantity(sides[1], most),
            "change": _quantity(Estimate("", *_paired(before, after), "s"), most, signed=True),
        }
        rows.append((most, row))
    return [row for _, row in sorted(rows, key=lambda pair: -pair[0])]


def _zero(other: Mapping[str, Any]) -> dict[str, Any]:
    return {**other, "values": [0.0] * len(other["values"])}


def _allocation(base: Outcome, now: Outcome) -> list[AllocationRow]:
    if "allocation" not in now["result"]["tables"]:
        return []  # not made yet
    sides = [{r["GPU type"]: r for r in o["result"]["tables"].get("allocation", ())} for o in (base, now)]
    known = {*sides[0], *sides[1]}
    names = sorted(known, key=lambda name: -max(side[name]["GPU-hours"] for side in sides if name in side))
    return [
        {
            "gpu_type": name,
            "base_nodes": base["nodes"].get(name, 0),
            "nodes": now["nodes"].get(name, 0),
            "base": sides[0].get(name, {}).get("while jobs arrive"),
            "now": sides[1].get(name, {}).get("while jobs arrive"),
        }
        for name in names
    ]


# --- text --------------------------------------------------------------------------------------------------------

OTHER_SCHEDULE = (
    "Fewer nodes do not make jobs wait less: with them other jobs start first, and one schedule is not another. "
    "Take it as chance, or try another seed and load."
)
VERBS = {"lower": "falls", "higher": "rises"}


def _submitted(link: Link, now: Outcome) -> str:
    """Say when the jobs that are measured were submitted; nothing where all are."""
    if link.between is None:
        return ""
    return f"the {plural(now['jobs'], 'job')} submitted {between_text(*link.between, *now['clock'])}"


def _population(link: Link, base: Outcome, now: Outcome) -> str:
    """Say of which jobs the numbers are."""
    both, jobs = int(completed_by_both(base, now).sum()), now["jobs"]
    only = [int(unpack(outcome["completed"], jobs).sum()) - both for outcome in (base, now)]
    covered = now["result"]["coverage"]["line"]
    of = f"{covered} Waits, JCT, slowdown and fairness are of the {both:,} of {jobs:,} jobs that completed"
    if selected := _submitted(link, now):
        of = f"{covered} Of {selected}, {both:,} completed"
    sides = (
        f" on both sides; {only[0]:,} completed only in the baseline, {only[1]:,} only in the scenario"
        if any(only)
        else ""
    )
    rest = ": waits, JCT, slowdown and fairness are of these, GPU allocation and rates of that time" if selected else ""
    return f"{of}{sides}{rest}."


def _cannot_run(row: MetricRow, base: Outcome, now: Outcome) -> list[str]:
    """Say how many jobs the cluster can never run: they are in no mean."""
    if not (row["base"]["value"] or row["now"]["value"]):
        return []
    share = f"{100 * now['gpu_time_that_cannot_run']:.2g} % of the known GPU time"
    beside = "" if base is now else f"; {row['base']['text']} in the baseline"
    return [f"{row['now']['text']} of {now['jobs']:,} jobs ({share}) cannot run{beside}."]


def _headline(link: Link, cannot_run: MetricRow, findings: Sequence[str], selected: str) -> str:
    """Return what was changed and what it does, in one sentence: jobs that can no longer run come first."""
    more = (cannot_run["now"]["value"] or 0.0) > (cannot_run["base"]["value"] or 0.0)
    sentence = next((line for line in findings if more or "cannot run" not in line), findings[0])
    sentence = f"{sentence} {OTHER_SCHEDULE}" if OTHER_SCHEDULE in findings else sentence
    if selected:
        sentence = f"of {selected}, {_inside(sentence)}"
        sentence = sentence if change_of(link) else f"{sentence[0].upper()}{sentence[1:]}"
    what = change_of(link)
    return f"{what}: {_inside(sentence)}" if what else sentence


def _inside(sentence: str) -> str:
    """Return a sentence as the rest of another: its first word in lower case, unless that is an acronym.

    >>> _inside("Mean wait falls."), _inside("GPU allocation rises."), _inside("P90 wait falls.")
    ('mean wait falls.', 'GPU allocation rises.', 'P90 wait falls.')
    """
    first = sentence.partition(" ")[0]
    return (
        sentence if any(c.isupper() or c.isdigit() for c in first[1:]) else f"{first.lower()}{sentence[len(first) :]}"
    )


def change_of(link: Link) -> str:
    """Return the words of the scenario that the baseline has otherwise.

    >>> change_of(Link.of("load=1.3&nodes=T4+%2B20"))
    'Nodes T4 +20, load 1.3'
    """
    text = ", ".join(f"{name} {value}" for name, value in _changed_words(link).items())
    return text[:1].upper() + text[1:]


def _changed_words(link: Link) -> dict[str, str]:
    now, base = (dict(query_pairs(words_query(s))) for s in (link.now, link.base))
    return {name: now.get(name, "by default") for name in now | base if now.get(name) != base.get(name)}


def _only_fewer_nodes(link: Link, base: Outcome, now: Outcome) -> bool:
    """Return whether nothing was changed but that nodes were taken away."""
    types = {*base["nodes"], *now["nodes"]}
    less = [base["nodes"].get(name, 0) - now["nodes"].get(name, 0) for name in types]
    return set(_changed_words(link)) == {"nodes"} and min(less, default=0) >= 0 and max(less, default=0) > 0


def _recorded(link: Link, base: Outcome) -> RecordedWait | None:
    """Return the mean wait in the log beside that of the baseline, where the log has waits."""
    jobs, recorded, simulated = (base["waits"][name] for name in ("jobs", "recorded", "simulated"))
    if not recorded:  # of a log without starts they are those of the submissions
        return None
    most = max(recorded, simulated)
    why = [f"the scheduler of the log had other rules than {link.base.title}", "the simulation has no start-up latency"]
    if left := left_out(base["refused"]):
        why.append(f"of the {base['jobs']:,} jobs of the log, {', '.join(left)}")
    return {
        "jobs": jobs,
        "recorded": _quantity(Estimate.exact("", recorded, "s"), most),
        "simulated": _quantity(Estimate.exact("", simulated, "s"), most),
        "why": f"Why they differ: {'; '.join(why)}. `fleetlab calibrate` says what closes the gap.",
    }


def _notes(now: Outcome) -> list[str]:
    notes = list(now["result"]["notes"])
    if len(now["replicates"].get("mean wait", {"values": [0]})["values"]) == 1:
        notes.insert(0, f"too few jobs for intervals: at least {LEAST} are needed")
    return notes


def _findings(rows: Sequence[MetricRow], reasons: Sequence[ReasonRow]) -> list[str]:
    by = {row["metric"]: row for row in rows}
    findings = [_finding(by[m]) for m in ("mean wait", "mean JCT", "GPU allocation while jobs arrive") if m in by]
    if reasons:
        most = max(reasons, key=lambda row: row["now"]["value"] or 0.0)
        mean = most["now"]["text"].partition(" (")[0]
        findings.append(f"The most wait is due to {most['reason']} ({most['meaning']}): {mean} per job.")
    else:
        findings.append("No job waits." if "mean wait" in by else "No job completed.")
    return findings


def _finding(row: MetricRow) -> str:
    name = row["metric"][0].upper() + row["metric"][1:]
    if row["verdict"] == "same":
        return f"{name} is {row['now']['text']}, as in the baseline."
    ends = " to ".join(row[side]["text"].partition(" (")[0] for side in ("base", "now"))
    if row["verdict"] == "unknown":
        return f"{name} changes from {ends}; there are too few jobs for an interval."
    change, _, interval = row["change"]["text"].partition(" (")
    interval = f"95 % CI {interval.rstrip(')')} {change.rpartition(' ')[2]}" if interval else ""
    detail = f"{_percent(row)}difference {change}, {interval}"
    if row["verdict"] in VERBS:
        return f"{name} {VERBS[row['verdict']]} from {ends} ({detail})."
    return f"No significant change of {row['metric']}: from {ends} ({detail})."


def _percent(row: MetricRow) -> str:
    before, by = row["base"]["value"], row["change"]["value"]
    if not before or not by or row["unit"] == "%" or abs(by / before) >= 100:
        return ""
    percent = 100 * by / before
    return (f"{percent:+.0f} %; " if abs(percent) >= 10 else f"{percent:+.2g} %; ").replace("-", "−")


def as_result(answer: RunComparison, provenance: Provenance) -> SavedResult:
    """Return a comparison as a result that a report can draw: its findings, and the paired differences."""
    frame = pl.DataFrame(
        [
            {"metric": row["metric"], "unit": row["unit"], "baseline": row["base"]["value"], "now": row["now"]["value"]}
            | {"difference": row["change"]["value"], "low": row["change"]["low"], "high": row["change"]["high"]}
            for row in answer["rows"]
        ],
        infer_schema_length=None,
    )
    notes = [answer["population"], "differences are paired by blocks of time"]
    if (waits := answer["recorded"]) is not None:
        sides = (
            f"{waits['recorded']['text']} recorded in the log, {waits['simulated']['text']} in the simulated baseline"
        )
        notes.append(f"Mean wait of {waits['jobs']:,} jobs: {sides}. {waits['why']}")
    return SavedResult(
        provenance=provenance,
        findings=tuple(answer["findings"]),
        estimates=(),
        frames={"difference from the baseline": frame},
        charts={},
        notes=tuple(notes),
    )
