"""Why a workload waits: what is missing in each flavor, who holds it, and why nobody is preempted for it.

The state is that of one moment: of a list that was just made, or what a trace tells of any moment before.
"""

from __future__ import annotations

from collections import Counter
from collections.abc import Iterable, Iterator
from dataclasses import dataclass, replace
from typing import Any

import polars as pl

from fleetlab.core import Scenario
from fleetlab.core.durations import clock_text, duration, plural
from fleetlab.schedulers.kubernetes.specs import ADMISSIONS
from fleetlab.schedulers.kueue.candidates import Need, allowed
from fleetlab.schedulers.kueue.config import NEVER, FlavorResource, Kueue
from fleetlab.schedulers.kueue.cycle import Cycle, Entry, Head
from fleetlab.schedulers.kueue.play import with_flavor_names
from fleetlab.schedulers.kueue.state import Admitted, QuotaNode, Snapshot
from fleetlab.schedulers.kueue.submissions import flavor_nodes, queues_of, workloads_of
from fleetlab.schedulers.kueue.workload import KueueWorkload
from fleetlab.sim.world import World

NAMED = 3  # queues and workloads by name

# -- in one state ------------------------------------------------------------------------------------------------------


def why(state: Snapshot, one: KueueWorkload, pending: Iterable[KueueWorkload]) -> list[str]:
    """Why a workload waits in a state, in sentences."""
    queue = state.queue(one.cluster_queue)
    if queue.stop_policy != "None":
        return [f"ClusterQueue {queue.name} is stopped: stopPolicy {queue.stop_policy}."]
    entry = Cycle(state, 0.0).nominate(Head(one, one.created))
    return [*_room(state, one, entry), *_help(state, one, entry), *_ahead(queue.strategy, one, pending)]


def _room(state: Snapshot, one: KueueWorkload, entry: Entry) -> Iterator[str]:
    """What each flavor lacks, and who holds it."""
    node = state.nodes[one.cluster_queue]
    wanted: Counter[str] = Counter()
    for pods in one.pod_sets:
        wanted.update({resource: amount * pods.count for resource, amount in pods.requests.items()})
    for resource, amount in wanted.items():
        group = state.queue(one.cluster_queue).group_of(resource)
        if group is None:
            yield f"ClusterQueue {one.cluster_queue} has no quota for {resource}."
            continue
        for flavor in group.flavors:
            yield _of_flavor(node, flavor, resource, amount)
            if node.available((flavor, resource)) < amount <= node.potential((flavor, resource)):
                yield from _holders(state, node, (flavor, resource), amount)
    yield from (f"Kueue would say: {reason}." for reason in entry.reasons)


def _idle(node: QuotaNode, at: FlavorResource) -> int:
    """What its whole tree does not use."""
    return node.root.subtree.get(at, 0) - node.root.usage[at]


def _of_flavor(node: QuotaNode, flavor: str, resource: str, amount: int) -> str:
    at = (flavor, resource)
    quota, used, free = node.quota(at), node.usage[at], max(0, node.available(at))
    limit = "no borrowing limit" if quota.borrowing_limit is None else f"borrowing limit {quota.borrowing_limit:,}"
    held = f"{node.name} uses {used:,} of its nominal {quota.nominal:,} ({limit})"
    if amount > node.potential(at):
        return f"{flavor}: it asks for {amount:,} {resource}, and could never get more than {node.potential(at):,}."
    if amount <= free:
        return f"{flavor}: {free:,} {resource} are available for its {amount:,}; {held}."
    idle = free if node.parent is None else _idle(node, at)
    elsewhere = f", though {idle:,} are free in its cohort" if node.parent is not None and idle >= amount else ""
    return f"{flavor}: it asks for {amount:,} {resource}, and {free:,} are available{elsewhere}: {held}."


def _holders(state: Snapshot, node: QuotaNode, at: FlavorResource, amount: int) -> Iterator[str]:
    """Who holds a flavor, by queue: how much of it is nominal, and which workloads hold most.

    Where the cohort has enough, it is a limit of the queue that keeps it waiting, and only its own workloads matter.
    """
    alone = node.parent is None or _idle(node, at) >= amount
    queues = [each for each in ([node] if alone else node.root.queues()) if each.usage[at] > 0]
    for each in sorted(queues, key=lambda each: (-each.usage[at], each.name))[:NAMED]:
        used, nominal = each.usage[at], each.quota(at).nominal
        borrowed = f", {used - nominal:,} borrowed" if used > nominal else ""
        mine = [one for one in state.admitted[each.name].values() if one.usage.get(at, 0)]
        most = sorted(mine, key=lambda one: (-one.usage[at], one.name))
        named = ", ".join(f"{one.name} {one.usage[at]:,}" for one in most[:NAMED])
        others = f" and {plural(len(most) - NAMED, 'other')}" if len(most) > NAMED else ""
        yield f"{at[0]} is held by {each.name}: {used:,} (nominal {nominal:,}{borrowed}), by {named}{others}."


def _help(state: Snapshot, one: KueueWorkload, entry: Entry) -> list[str]:
    """Who would go for it, or why nobody does."""
    if entry.assignment.mode.name == "FIT":
        return ["It fits: Kueue admits it in its next cycle."]
    if entry.targets:
        names = ", ".join(f"{each.one.name} ({each.reason})" for each in entry.targets)
        return [f"It would be admitted by preempting {names}."]
    reasons = Counter(_why_stays(state, one, each) for each in _others(state, one))
    if not reasons:
        return ["Nobody may be preempted for it: it waits until others end."]
    said = "; ".join(f"{plural(count, 'workload')}: {reason}" for reason, count in reasons.most_common())
    return ["Nobody may be preempted for it: it waits until others end.", f"Why not: {said}."]


def _others(state: Snapshot, one: KueueWorkload) -> Iterator[Admitted]:
    """Who holds anything that it could use."""
    node = state.nodes[one.cluster_queue]
    wanted = {resource for pods in one.pod_sets for resource, amount in pods.requests.items() if amount}
    for each in node.root.queues() if node.parent is not None else [node]:
        for other in state.admitted[each.name].values():
            if any(at[1] in wanted and at in node.quotas for at in other.usage):
                yield other


def _why_stays(state: Snapshot, one: KueueWorkload, other: Admitted) -> str:
    """Why a workload is not preempted for another."""
    rules, queue = state.queue(one.cluster_queue).preemption, other.workload.cluster_queue
    need = Need(one, {}, frozenset(other.usage), one.created)
    own = queue == one.cluster_queue
    name, policy = (
        ("withinClusterQueue", rules.within_cluster_queue)
        if own
        else ("reclaimWithinCohort", rules.reclaim_within_cohort)
    )
    if not own and state.nodes[queue].within_nominal(other.usage):
        return f"within the nominal quota of {queue}"
    if policy == NEVER:
        return f"{name} of {one.cluster_queue} is Never"
    if not allowed(policy, need, other):
        return f"{name} is {policy}, and priority {other.priority} is not below {one.priority}"
    return "allowed, but even all such together do not make enough room, or it would have to borrow"


def _ahead(strategy: str, one: KueueWorkload, pending: Iterable[KueueWorkload]) -> list[str]:
    mine = (-one.priority, one.created, one.tie)
    others = [each for each in pending if each.cluster_queue == one.cluster_queue]
    ahead = sum((-each.priority, each.created, each.tie) < mine for each in others)
    rule = "and under StrictFIFO it waits for all of them" if strategy == "StrictFIFO" else (
        "which it may pass where they do not fit")  # fmt: skip
    return [f"{ahead} of its ClusterQueue {'is' if ahead == 1 else 'are'} ahead of it, {rule}."] if ahead else []


# -- in a trace --------------------------------------------------------------------------------------------------------


@dataclass(frozen=True)
class Logged:
    """What the log tells of one job; seconds of the trace."""

    workload: KueueWorkload
    row: dict[str, Any]  # of the series `admissions`, with `submit`, `start`, `end` and `status`

    def holds_quota(self, at: float) -> bool:
        """Whether it had quota at a moment."""
        given, end = self.row["admitted"], self.row["end"]
        return given is not None and given <= at and (end is None or at < end)

    def waits(self, at: float) -> bool:
        """Whether it waited for quota."""
        row = self.row
        given = row["admitted"] if row["admitted"] is not None else row["start"]
        return row["submit"] <= at and row["status"] != "cancelled" and (given is None or at < given)


def explain_job(site: Kueue, scenario: Scenario, world: World, job: int) -> tuple[str, ...]:
    """Return how far Kueue came with a job, and why it waited: at its submission or, if it waits, when the log ends."""
    if ADMISSIONS not in scenario.trace.series:
        return ()
    admissions = scenario.by_job(scenario.trace.series[ADMISSIONS]).filter(pl.col("job") == job).collect()
    found = _logged(site, scenario, world)
    own = found.get(admissions["workload"][0]) if admissions.height else None
    if own is None:
        return ()
    every = list(found.values())
    times = [one.row[name] for one in every for name in ("submit", "admitted", "start", "end")]
    last = max(time for time in times if time is not None)
    at = last if own.row["admitted"] is None and own.row["start"] is None else own.row["submit"]
    if own.row["checks"] or not own.waits(at):
        return tuple(_recorded(own.row, last, scenario))
    state = Snapshot.of(_without_topology(with_flavor_names(site)), _admitted(site, every, at, own))
    said = why(state, own.workload, [one.workload for one in every if one is not own and one.waits(at)])
    moment = clock_text(at, scenario.trace.workload.epoch, scenario.trace.workload.zone)
    return (*_recorded(own.row, last, scenario), f"As the log has it at {moment}: {said[0]}", *said[1:])


def _recorded(row: dict[str, Any], last: float, scenario: Scenario) -> Iterator[str]:
    """Say how its recorded wait came about: until it had quota, was admitted, and had its pods started."""
    evicted = f"; it was evicted {plural(row['evictions'], 'time')}" if row["evictions"] else ""
    why = f" ({row['evicted_by']})" if row["evictions"] and row["evicted_by"] else ""
    if not row["active"]:
        yield f"In the log, it is deactivated (`active: false`){evicted}{why}."
        return
    if row["admitted"] is None:
        what = f"until it passes {row['checks']}" if row["checks"] else "for quota"
        yield f"In the log, it has waited {duration(last - row['submit'])} {what} when the log ends{evicted}{why}."
        if row["requeue"] is not None:
            when = clock_text(row["requeue"], scenario.trace.workload.epoch, scenario.trace.workload.zone)
            yield f"Kueue queues it again at {when}: its pods were not ready in time."
        return
    reserved = row["admitted"] if row["reserved"] is None else row["reserved"]
    checks = row["admitted"] - reserved
    where = f"in flavor {row['flavor']} of {row['cluster_queue']}"
    parts = [f"{duration(reserved - row['submit'])} until quota was reserved {where}"]
    if checks > 0:
        parts.append(f"{duration(checks)} for admission checks")
    if row["start"] is not None:
        parts.append(f"{duration(max(0.0, row['start'] - row['admitted']))} until its pods had nodes")
    yield f"Of its recorded wait: {', '.join(parts)}{evicted}{why}."


def _logged(site: Kueue, scenario: Scenario, world: World) -> dict[str, Logged]:
    """The Workloads of the log by name, as Kueue saw them."""
    frame = scenario.trace.workload.frame.select(
        pl.col("job") - scenario.first_row, "submit", "start", "end", status=pl.col("status").cast(pl.String)
    )
    table = scenario.by_job(scenario.trace.series[ADMISSIONS]).collect().join(frame, on="job")
    rows = {row["job"]: row for row in table.iter_rows(named=True)}
    workloads = workloads_of(world, site, flavor_nodes(site, scenario.cluster), queues_of(site, world.frame))
    found: dict[str, Logged] = {}
    for one, job in zip(workloads, world.frame["job"].to_list(), strict=True):
        if (row := rows.get(job)) is not None:
            first = found.get(row["workload"])  # its other sets of pods are jobs of their own
            sets = one.pod_sets if first is None else (*first.workload.pod_sets, *one.pod_sets)
            named = replace(one, name=row["workload"], created=row["submit"], uid=f"{job:012d}", pod_sets=sets)
            found[row["workload"]] = Logged(named, row)
    return found


def _admitted(site: Kueue, every: list[Logged], at: float, own: Logged) -> Iterator[Admitted]:
    for one in every:
        if one is own or not one.holds_quota(at):
            continue
        queue = (
            site.cluster_queues.get(one.row["cluster_queue"] or "") or site.cluster_queues[one.workload.cluster_queue]
        )
        usage: Counter[FlavorResource] = Counter()
        for pods in one.workload.pod_sets:
            for resource, amount in pods.requests.items():
                group = queue.group_of(resource)
                if group is not None:
                    named = [name for name in (one.row["flavor"] or "").split(",") if name in group.flavors]
                    usage[(named or list(group.flavors))[0], resource] += amount * pods.count
        workload = replace(one.workload, cluster_queue=queue.name)
        yield Admitted(workload, dict(usage), one.row["admitted"], one.row["submit"])


def _without_topology(site: Kueue) -> Kueue:
    flavors = {name: replace(flavor, topology=None) for name, flavor in site.flavors.items()}
    return replace(site, flavors=flavors, topologies={})
