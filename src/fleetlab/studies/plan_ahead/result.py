"""The result of `plan_ahead`: nodes of each kind for the median and an upper quantile of the demand."""

from __future__ import annotations

from collections.abc import Sequence

import polars as pl

from fleetlab.core import Cluster, Estimate, Figure, Provenance
from fleetlab.core.durations import duration, number_text, plural
from fleetlab.core.result import FieldsResult
from fleetlab.forecast import InstancesAhead
from fleetlab.studies.plan_ahead.cases import Case, kinds_of
from fleetlab.studies.requests import unmet_requests

NOW = "now"
MISFITS = "fits on no node"


def upper_name(quantile: float) -> str:
    """Return the name of a quantile in tables.

    >>> upper_name(0.9), upper_name(0.995)
    ('P90', 'P99.5')
    """
    return f"P{100 * quantile:.6g}"


class PlanAhead(FieldsResult):
    """The nodes that the demand to come needs."""

    @classmethod
    def of(
        cls, ahead: InstancesAhead, demand: pl.DataFrame, shapes: pl.DataFrame, cases: Sequence[Case],
        cluster: Cluster, provenance: Provenance,
    ) -> PlanAhead:  # fmt: skip
        """Build the tables and findings."""
        nodes = _nodes(cases, cluster)
        last = cases[-1].there
        frames = {
            "demand": demand,
            "nodes": nodes,
            "does not fit": _does_not_fit(cases),
            "plans": pl.DataFrame([_plan(case) for case in cases]),
            "shapes": shapes,
            "placements": pl.DataFrame() if last is None else last.placements,
        }
        estimates = [Estimate.exact(f"nodes needed, {case.name}", sum(case.nodes)) for case in cases]
        estimates += [Estimate.exact(f"instances that do not fit, {c.name}", c.unplaced) for c in cases if c.unplaced]
        findings = (_comes(ahead, demand), _needs(cases), *_by_kind(nodes, cases), *_short(cases), *_exceeded(ahead))
        notes = _notes(ahead, demand, cases, provenance)
        return cls(provenance, findings, estimates, frames, _figure(nodes, cases), notes, ahead.coverage)

    def __repr__(self) -> str:
        texts = [f"{e.metric.removeprefix('nodes needed, ')} {e.value:,}" for e in self.estimates[:3]]
        return f"<PlanAhead nodes needed: {', '.join(texts)}>"

    @property
    def feasible(self) -> bool:
        """Whether all instances of the upper quantile fit on the nodes that there are."""
        return not any(e.metric.startswith("instances that do not fit") for e in self.estimates)

    @property
    def placements(self) -> pl.DataFrame:
        """Where every instance of the upper quantile goes; new jobs have numbers above those of the log."""
        return self.frames["placements"]


def _nodes(cases: Sequence[Case], cluster: Cluster) -> pl.DataFrame:
    kinds = kinds_of(cluster)
    counts = {case.name: list(case.nodes) for case in cases}
    frame = pl.DataFrame({"kind": [k.name for k in kinds], "there": [len(k.nodes) for k in kinds], **counts})
    more = {f"more, {case.name}": pl.col(case.name) - pl.col(NOW) for case in cases[1:]}
    last = cases[-1].name
    return frame.with_columns(**more, missing=(pl.col(last) - pl.col("there")).clip(lower_bound=0))


def _plan(case: Case) -> dict[str, object]:
    found = case.enough
    return {
        "demand": case.name, "instances": case.demand.instances, "do not fit": case.unplaced,
        "nodes needed": sum(case.nodes), "value": None if found is None else found.value,
        "bound": None if found is None else found.bound, "search": None if found is None else found.ended,
    }  # fmt: skip


def _does_not_fit(cases: Sequence[Case]) -> pl.DataFrame:
    """Return who has no place on the nodes that there are, and why, for each demand."""
    frames = []
    for case in cases:
        if case.there is not None and case.there.unplaced.height:
            frames.append(case.there.unplaced.select(pl.lit(case.name).alias("demand"), pl.all()))
        if case.misfits.height:
            row = {
                "demand": case.name, "job": case.misfits["job"][0], "rule": "one node", "proved": True,
                "instances": int(case.misfits["instances"].cast(pl.Int64).sum()), "why": MISFITS,
            }  # fmt: skip
            frames.append(pl.DataFrame([row]))
    return pl.concat(frames, how="diagonal_relaxed") if frames else pl.DataFrame()


def _comes(ahead: InstancesAhead, demand: pl.DataFrame) -> str:
    upper = upper_name(ahead.quantile)
    median, high = (number_text(int(demand[f"new, {name}"].sum())) for name in ("median", upper))
    span, begin = duration(ahead.seconds), duration(ahead.now)
    what = "are requested" if ahead.target == "requests" else "are allocated at the peak beside those there now"
    by_part = "; ".join(
        f"{row['part']} {number_text(row['new, median'])} and {number_text(row[f'new, {upper}'])}"
        for row in demand.iter_rows(named=True)
    )
    parts = f" By {ahead.by}: {by_part}." if demand.height > 1 else ""
    return f"In the {span} after {begin} of the log, {median} instances {what} (median), {high} ({upper}).{parts}"


def _needs(cases: Sequence[Case]) -> str:
    now = sum(cases[0].nodes)
    texts = [f"{case.name} {sum(case.nodes):,} ({sum(case.nodes) - now:+,})" for case in cases[1:]]
    there = plural(cases[0].demand.instances, "instance")
    return f"{there} that run or wait now need {plural(now, 'node')}; with the demand to come: {', '.join(texts)}."


def _by_kind(nodes: pl.DataFrame, cases: Sequence[Case]) -> list[str]:
    if nodes.height == 1:
        return []
    return [
        f"Kind `{row['kind']}`: " + ", ".join(f"{case.name} {row[case.name]:,}" for case in cases)
        + f" of {row['there']:,} nodes."
        for row in nodes.iter_rows(named=True)
    ]  # fmt: skip


def _short(cases: Sequence[Case]) -> list[str]:
    lines = []
    for case in cases:
        misfits = int(case.misfits["instances"].cast(pl.Int64).sum())
        if case.unplaced > misfits:
            count = plural(case.unplaced - misfits, "instance")
            lines.append(f"Demand {case.name}: {count} do not fit on the nodes that there are.")
        if misfits:
            lines.append(f"Demand {case.name}: {plural(misfits, 'instance')} fit on no kind of node.")
    return lines


def _exceeded(ahead: InstancesAhead) -> list[str]:
    """Return the parts whose demand exceeded the quantile significantly more often than it should."""
    upper = upper_name(ahead.quantile)
    return [
        f"The {upper} of {one.part} may be too low: in the held-out period demand stayed below that of earlier errors "
        f"in {100 * one.below.value:.0f} % of the horizons (95 % CI {100 * one.below.low:.0f} to "
        f"{100 * one.below.high:.0f} %)."
        for one in ahead.parts
        if one.below.high < ahead.quantile
    ]


def _figure(nodes: pl.DataFrame, cases: Sequence[Case]) -> dict[str, Figure]:
    names = [case.name for case in cases]
    frame = nodes.unpivot(names, index="kind", variable_name="series", value_name="y").select(
        x="kind", y=pl.col("y").cast(pl.Float64), series="series"
    )
    alt = "; ".join(f"{case.name}: {sum(case.nodes):,} nodes" for case in cases)
    return {"nodes": Figure("Nodes needed", "bar", frame, "kind of node", "nodes", alt)}


def _notes(
    ahead: InstancesAhead, demand: pl.DataFrame, cases: Sequence[Case], provenance: Provenance
) -> tuple[str, ...]:
    upper, recent = upper_name(ahead.quantile), duration(provenance.settings["recent"])
    running, waiting = int(demand["running"].sum()), int(demand["waiting"].sum())
    stays = {
        "requests": "assumed: what runs stays to the end of the horizon, and all that comes is there at once",
        "level": "assumed: what runs stays where the level does not exceed it; levels are those at the ends of steps",
    }
    notes = [
        f"at {ahead.now:,.0f} s, the end of the last whole step, {plural(running, 'instance')} run and "
        f"{waiting:,} wait",
        stays[ahead.target],
        f"assumed: new instances have the shapes of the last {recent} of requests, in proportion",
        "assumed: nobody's node is known; all instances are placed anew",
        f"quantiles are those of the errors of {ahead.origins:,} past forecasts of the whole horizon; parts are "
        f"added up, as if all of them had their {upper} at once",
    ]  # fmt: skip
    lacks = [
        unmet_requests(case.misfits, case.enough.cluster.frame)
        for case in cases[-1:]
        if case.misfits.height and case.enough
    ]
    notes += [f"of what fits on no node: {text}" for text in lacks if text]
    of_search = dict.fromkeys(note for case in cases if case.enough is not None for note in case.enough.notes)
    return (*notes, *of_search, *ahead.notes)
