"""The result of `plan_ahead`: nodes of each kind for the median and an upper quantile of the demand."""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from dataclasses import dataclass, replace

import numpy as np
import polars as pl

from fleetlab.core import Cluster, Estimate, Figure, Progress, Provenance, Workload, WorkloadError
from fleetlab.core.durations import duration, number_text, plural
from fleetlab.core.result import FieldsResult
from fleetlab.forecast import InstancesAhead
from fleetlab.plan import Plan, plan
from fleetlab.plan.problem import NodeState, Problem, problem
from fleetlab.studies.autoscale.pools import NodeKind, node_kinds
from fleetlab.studies.sentences import unmet_requests

# -- one demand on the nodes -------------------------------------------------------------------------------------------


@dataclass(frozen=True, slots=True)
class Search:
    """How plans are made: what to minimize, and for how long each may look."""

    objective: str
    prices: Mapping[str, float] | None
    seconds: float
    seed: int
    progress: Progress

    def plan(self, demand: Workload, nodes: Cluster) -> Plan:
        """Place a demand."""
        return plan(
            demand, nodes, objective=self.objective, prices=self.prices, seconds=self.seconds, seed=self.seed,
            progress=self.progress,
        )  # fmt: skip


@dataclass(frozen=True, slots=True, eq=False)
class Case:
    """A demand, its plan on the nodes that there are, and on as many as it takes where those are too few."""

    name: str
    demand: Workload
    misfits: pl.DataFrame  # jobs of which no node can hold an instance
    there: Plan | None  # None: there is nothing to place
    enough: Plan | None  # the same plan, where all fit
    nodes: tuple[int, ...]  # of each kind that it needs

    @property
    def unplaced(self) -> int:
        """Return the instances without a place on the nodes that there are."""
        return self.demand.instances - (0 if self.there is None else self.there.placements.height)


def kinds_of(nodes: Cluster) -> list[NodeKind]:
    """Return the kinds of nodes; pools are told apart, as they may have prices of their own."""
    return node_kinds(nodes, but=("node",))


def check_kinds(demand: Workload, nodes: Cluster) -> None:
    """Refuse a kind of node on which no instance fits: an amount may be missing or mistyped."""
    p = problem(demand, nodes)
    used = set(nodes.frame["node"].filter(pl.Series(np.asarray(p.may.any(axis=0))[p.of])))
    for kind in kinds_of(nodes):
        if kind.nodes.frame["node"][0] not in used:
            msg = f"{nodes.source}: no instance fits on nodes of kind `{kind.name}`"
            raise WorkloadError(msg, hint="check the amounts of its [[node]] entry (0 where left out), or leave it out")


def place(name: str, demand: Workload, nodes: Cluster, search: Search) -> Case:
    """Place a demand on the nodes; where they are too few, on more of each kind."""
    if not demand.instances:
        return Case(name, demand, demand.frame, None, None, (0,) * len(kinds_of(nodes)))
    p = problem(demand, nodes)
    nowhere = p.rows.filter(pl.col("kind").is_in(np.flatnonzero(~p.may.any(axis=1))))["job"].unique()
    misfits = demand.frame.filter(pl.col("job").is_in(nowhere.to_list()))
    fitting = replace(demand, frame=demand.frame.filter(~pl.col("job").is_in(nowhere.to_list())))
    there = search.plan(fitting, nodes)
    enough = there if there.feasible else search.plan(fitting, enlarged(fitting, nodes))
    return Case(name, demand, misfits, there, enough, _in_use(enough, nodes))


def enlarged(demand: Workload, nodes: Cluster) -> Cluster:
    """Return the nodes with enough more of each kind to hold the demand."""
    p = problem(demand, nodes)
    more = _enough(p)
    frames = [nodes.frame]
    for number, kind in enumerate(kinds_of(nodes)):
        node = int(np.flatnonzero((nodes.frame["node"] == kind.nodes.frame["node"][0]).to_numpy())[0])
        names = [f"{_prefix(number)}{i}" for i in range(more[p.of[node]])]
        row = kind.nodes.frame.head(1).drop("node")
        frames.append(pl.DataFrame({"node": names}, schema={"node": pl.String}).join(row, how="cross"))
    return Cluster.of(pl.concat([f.select(nodes.frame.columns) for f in frames]), source=nodes.source)


def _enough(p: Problem) -> list[int]:
    """Return how many nodes of each class hold all instances, each kind of instance on nodes of its own."""
    empty, first = NodeState(p), np.array([int(np.flatnonzero(p.of == c)[0]) for c in range(len(p.have))])
    more = [0] * len(first)
    for k in range(p.kinds):
        slots = empty.copies_that_fit(k, first)
        best = int(np.argmax(np.where(slots > 0, slots / np.maximum(p.weight, 1e-9), 0.0)))
        more[best] += -(-int(p.count[k]) // int(slots[best]))
    return more


def _prefix(number: int) -> str:
    return f"more nodes of kind {number}: "


def _in_use(result: Plan, nodes: Cluster) -> tuple[int, ...]:
    """Return how many nodes of each kind a plan uses, those that were added too."""
    used = result.loads["node"]
    return tuple(
        int((used.is_in(kind.nodes.frame["node"].to_list()) | used.str.starts_with(_prefix(number))).sum())
        for number, kind in enumerate(kinds_of(nodes))
    )


# -- the result --------------------------------------------------------------------------------------------------------

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
        nodes = _nodes_table(cases, cluster)
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


def _nodes_table(cases: Sequence[Case], cluster: Cluster) -> pl.DataFrame:
    kinds = kinds_of(cluster)
    counts = {case.name: list(case.nodes) for case in cases}
    frame = pl.DataFrame({"kind": [k.name for k in kinds], "there": [len(k.nodes) for k in kinds], **counts})
    more = {f"more, {case.name}": pl.col(case.name) - pl.col(NOW) for case in cases[1:]}
    last = cases[-1].name
    return frame.with_columns(**more, missing=(pl.col(last) - pl.col("there")).clip(lower_bound=0))


def _plan(case: Case) -> dict[str, object]:
    enough = case.enough
    return {
        "demand": case.name, "instances": case.demand.instances, "do not fit": case.unplaced,
        "nodes needed": sum(case.nodes), "value": None if enough is None else enough.value,
        "bound": None if enough is None else enough.bound, "search": None if enough is None else enough.ended,
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
