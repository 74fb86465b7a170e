"""What was allocated when: integrals over time, and the cluster's state at chosen instants."""

from __future__ import annotations

from dataclasses import dataclass

import numpy as np
import polars as pl

from fleetlab.core import Cluster
from fleetlab.sim.accounts import Held
from fleetlab.sim.layout import WHOLE, Floats, Ints, NodeView, table
from fleetlab.sim.schedule import Schedule, Segments
from fleetlab.sim.schedule_check import FAULTS, SAMPLE, SCHEDULED_RUN, RunTable, UpChanges, allocated_between, replay
from fleetlab.sim.world import World

ALL = "all"  # in the column `gpu_type`: whatever the type


@dataclass(frozen=True, slots=True, eq=False)
class ClusterUsage:
    """What was there and what was held from each edge to the next, by GPU type; in its number × seconds."""

    types: list[str]
    edges: Floats
    there: Floats  # [edges - 1, types]: GPUs switched on
    allocated: Floats  # [edges - 1, types]: GPUs
    nodes: float  # switched on, in all
    cores: float  # allocated, in all

    def held(self) -> Held:
        """Over the whole run, as the accounts take it."""
        there, allocated = (dict(zip(self.types, x.sum(axis=0).tolist(), strict=True)) for x in self.both)
        return Held(there, allocated, self.nodes, self.cores)

    @property
    def both(self) -> tuple[Floats, Floats]:
        """Switched on, allocated."""
        return self.there, self.allocated


def usage(world: World, played: Schedule, cluster: Cluster, edges: Floats) -> ClusterUsage:
    """Integrate what is up and what is allocated between edges of time, exactly."""
    types, column = gpu_types_of(world, cluster)
    runs = run_table(world, played.runs(world.first))
    out = np.zeros((len(edges) - 1, len(types) + 1))
    allocated_between(runs, column, edges, out)
    up = _up(played, len(world.nodes), edges)
    gpus = gpus_of(world).astype(np.float64)
    of_type = [column == k for k in range(len(types))]
    there = np.stack([up[:, mine] @ gpus[mine] for mine in of_type], axis=1) if types else out[:, :0]
    seconds = np.clip(runs.runs.end, edges[0], edges[-1]) - np.clip(runs.runs.begin, edges[0], edges[-1])
    cores = float((seconds * runs.runs.instances * world.shapes.cpu[runs.runs.shape_id]).sum()) / 1000
    # Sums of fractions may exceed what is there by their last digit.
    allocated = np.minimum(out[:, : len(types)] / WHOLE, there)
    return ClusterUsage(types, edges, there, allocated, float(up.sum()), cores)


def timeline(world: World, played: Schedule, cluster: Cluster, times: Floats) -> pl.DataFrame:
    """The state of the cluster and of the queue at some instants; the schedule is audited on the way.

    Raises an AssertionError if anything is allocated twice, which no policy can bring about.
    """
    types, column = gpu_types_of(world, cluster)
    segments = played.runs(world.first)
    samples = np.zeros((len(times), len(types) + 1, len(SAMPLE)))
    _replay(world, played, cluster, segments, column, times, samples)
    by_type = samples[:, : len(types)] / WHOLE
    whole = np.concatenate([by_type, by_type.sum(axis=1, keepdims=True)], axis=1)
    gpus = [float(gpus_of(world)[column == k].sum()) for k in range(len(types))]
    names = [*types, ALL]
    frame = pl.DataFrame({"time": np.repeat(times, len(names)), "gpu_type": names * len(times)})
    frame = frame.with_columns(gpus=pl.Series([*gpus, sum(gpus)] * len(times)))
    for k, name in enumerate(SAMPLE):
        frame = frame.with_columns(pl.Series(name, whole[:, :, k].ravel()))
    queue = _queue(world, played, segments, times).with_columns(gpu_type=pl.lit(ALL))
    return frame.join(queue, on=["time", "gpu_type"], how="left", maintain_order="left")


def gpus_of(world: World) -> Ints:
    """Return the number of GPUs of each node."""
    return world.nodes.end_gpu - world.nodes.first_gpu  # type: ignore[no-any-return]


def gpu_types_of(world: World, cluster: Cluster) -> tuple[list[str], Ints]:
    """Return the GPU types by name, and which of them each node has; one more than there are: without GPUs."""
    types = sorted(set(cluster.frame["gpu_type"].drop_nulls()))
    column = {name: k for k, name in enumerate(types)}
    names = np.array([column.get(name, len(types)) for name in cluster.frame["gpu_type"]], dtype=np.int64)
    return types, np.where(gpus_of(world) > 0, names, len(types))


def run_table(world: World, segments: Segments) -> RunTable:
    """Return the runs as the audit takes them."""
    begin, end, job = segments.begin, segments.end, segments.job
    runs = table(
        len(job), SCHEDULED_RUN, job=job, user=world.user[job], shape_id=world.shape[job], begin=begin, end=end,
        first=segments.first[: len(job)], instances=segments.instances(world.instances),
    )  # fmt: skip
    takes_time = np.flatnonzero(end > begin)
    by_end = takes_time[np.argsort(end[takes_time], kind="stable")]
    return RunTable(runs, np.lexsort((end, begin)), by_end, segments.where, segments.got, world.shapes)


def _up(played: Schedule, nodes: int, edges: Floats) -> Floats:
    """Seconds for which each node was switched on, from each edge to the next."""
    if played.up is None:
        return np.repeat(np.diff(edges)[:, None], nodes, axis=1)
    up, seconds = played.up, np.zeros((len(edges) - 1, nodes))
    for j in range(len(seconds)):
        spent = np.minimum(up.end, edges[j + 1]) - np.maximum(up.begin, edges[j])
        np.add.at(seconds[j], up.node, np.maximum(spent, 0.0))
    return seconds


def _replay(
    world: World, played: Schedule, cluster: Cluster, segments: Segments, column: Ints, times: Floats, out: Floats
) -> None:
    state = NodeView(world.nodes.copy(), world.gpus.copy(), world.apps.copy())
    if played.up is not None:
        state.nodes.up = 0
    runs, switches = run_table(world, segments), _switches(played)
    fault, run, node, now = replay(runs, state, switches, times, column, world.typical, out)
    if fault:
        who = f"job {world.frame['job'][int(segments.job[run])]}" if run >= 0 else "some job"
        name = cluster.frame["node"][int(node)] if 0 <= node < len(state.nodes) else f"{node}, which is none"
        msg = f"{who} on node {name} at {now} s: {FAULTS[fault]}"
        raise AssertionError(msg)


def _switches(played: Schedule) -> UpChanges:
    """When nodes go down and come up: at one instant they go down first."""
    if played.up is None:
        nothing = np.zeros(0, dtype=np.int64)
        return UpChanges(np.zeros(0), nothing, nothing)
    up = played.up
    last = up.end < played.stopped
    when = np.concatenate((up.begin, up.end[last]))
    node = np.concatenate((up.node, up.node[last]))
    way = np.concatenate((np.ones_like(up.node), np.zeros_like(up.node[last])))
    order = np.lexsort((way, when))
    return UpChanges(when[order], node[order], way[order])


def _queue(world: World, played: Schedule, runs: Segments, times: Floats) -> pl.DataFrame:
    """Return the running and waiting jobs at each instant, after all events of that instant."""
    one, many = np.ones(len(world.submit)), world.instances.astype(np.float64)
    gpus = many * (world.shapes.milli[world.shape] * world.shapes.gpus[world.shape]) / WHOLE
    came = np.argsort(world.submitted, kind="stable")
    arrived = np.searchsorted(world.submitted[came], times, side="right")
    ended, begun, finished = (np.argsort(x, kind="stable") for x in (played.end, runs.begin, runs.end))
    done = np.searchsorted(played.end[ended], times, side="right")  # those not done are nan, and come last
    on, off = (np.searchsorted(x[by], times, side="right") for x, by in ((runs.begin, begun), (runs.end, finished)))
    columns: dict[str, Floats | Ints] = {"time": times}
    share = (
        runs.instances(world.instances) / many[runs.job]
    )  # below 1 where a part was admitted: the rest does not wait

    def run_at(of_run: Floats) -> Floats:
        came_to, went = (np.append(0.0, np.cumsum(of_run[by])) for by in (begun, finished))
        return np.asarray(came_to[on] - went[off])

    for name, weight in (("", one), ("_instances", many), ("_gpus", gpus)):
        count = [np.append(0.0, np.cumsum(w)) for w in (weight[came], weight[ended])]
        running = run_at(weight[runs.job])
        columns[f"running{name}"] = np.rint(run_at(weight[runs.job] * share)) if name == "_instances" else running
        columns[f"waiting{name}"] = count[0][arrived] - count[1][done] - running
    whole = ("running", "running_instances", "waiting", "waiting_instances")
    return pl.DataFrame(columns).select("time", pl.col(whole).cast(pl.Int64), "waiting_gpus")
