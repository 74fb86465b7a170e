"""What was allocated when: integrals over time, and the cluster's state at chosen instants."""

from __future__ import annotations

from dataclasses import dataclass

import numpy as np
import polars as pl

from fleetlab.core import Cluster
from fleetlab.sim import _timeline
from fleetlab.sim._nodes import CPU, FIRST, GPUS, LAST, MILLI, TYPE, UP, WHOLE, Floats, Ints
from fleetlab.sim._played import Played, Segments
from fleetlab.sim._tables import World
from fleetlab.sim.accounts import Held

ALL = "all"  # in the column `gpu_type`: whatever the type


@dataclass(frozen=True, slots=True, eq=False)
class Usage:
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


def usage(world: World, played: Played, cluster: Cluster, edges: Floats) -> Usage:
    """Integrate what is there and what is held between edges of time, exactly."""
    types, kind = _types(world, cluster)
    runs = played.runs(world.first)
    rows = _rows(world, runs)
    milli = world.S[:, MILLI] * world.S[:, GPUS]
    out = np.zeros((len(edges) - 1, len(types) + 1))
    _timeline.held(runs.begin, runs.end, rows, milli, runs.where, kind, edges, out)
    up = _up(played, len(world.N), edges)
    gpus = (world.N[:, LAST] - world.N[:, FIRST]).astype(np.float64)
    there = np.stack([up[:, kind == k] @ gpus[kind == k] for k in range(len(types))], axis=1) if types else out[:, :0]
    spent = np.minimum(runs.end, edges[-1]) - np.minimum(runs.begin, edges[-1])
    cores = float((spent * rows[:, 2] * world.S[rows[:, 0], CPU]).sum()) / 1000
    return Usage(types, edges, there, out[:, : len(types)] / WHOLE, float(up.sum()), cores)


def timeline(world: World, played: Played, cluster: Cluster, times: Floats) -> pl.DataFrame:
    """The state of the cluster and of the queue at some instants; the schedule is audited on the way.

    Raises an AssertionError if anything is held twice, which no policy can bring about.
    """
    types, kind = _types(world, cluster)
    runs = played.runs(world.first)
    found = _replay(world, played, cluster, runs, kind, times, np.zeros((len(times), len(types) + 1, 4)))
    found = found[:, : len(types)] / WHOLE
    whole = np.concatenate([found, found.sum(axis=1, keepdims=True)], axis=1)
    gpus = [float((world.N[kind == k, LAST] - world.N[kind == k, FIRST]).sum()) for k in range(len(types))]
    names = [*types, ALL]
    frame = pl.DataFrame({"time": np.repeat(times, len(names)), "gpu_type": names * len(times)})
    frame = frame.with_columns(gpus=pl.Series([*gpus, sum(gpus)] * len(times)))
    for k, name in enumerate(("up", "allocated", "used", "fragmented")):
        frame = frame.with_columns(pl.Series(name, whole[:, :, k].ravel()))
    queue = _queue(world, played, runs, times).with_columns(gpu_type=pl.lit(ALL))
    return frame.join(queue, on=["time", "gpu_type"], how="left", maintain_order="left")


def _types(world: World, cluster: Cluster) -> tuple[list[str], Ints]:
    """The GPU types by name, and of which of them each node is; one more than there are: without GPUs."""
    types = sorted(set(cluster.frame["gpu_type"].drop_nulls()))
    placement = {0: len(types)} | {1 << k: k for k in range(len(types))}
    return types, np.array([placement[bit] for bit in world.N[:, TYPE].tolist()], dtype=np.int64)


def _rows(world: World, runs: Segments) -> Ints:
    """Shape, first instance and number of instances of each run."""
    return np.column_stack((world.shape[runs.job], runs.first[: len(runs.job)], world.instances[runs.job]))


def _up(played: Played, nodes: int, edges: Floats) -> Floats:
    """Seconds for which each node was switched on, from each edge to the next."""
    if played.up is None:
        return np.repeat(np.diff(edges)[:, None], nodes, axis=1)
    up, found = played.up, np.zeros((len(edges) - 1, nodes))
    for j in range(len(found)):
        spent = np.minimum(up.end, edges[j + 1]) - np.maximum(up.begin, edges[j])
        np.add.at(found[j], up.node, np.maximum(spent, 0.0))
    return found


def _replay(
    world: World, played: Played, cluster: Cluster, runs: Segments, kind: Ints, times: Floats, out: Floats
) -> Floats:
    N, apps = world.N.copy(), world.apps.copy()
    when, what = _switches(played)
    if played.up is not None:
        N[:, UP] = 0
    lasting = np.flatnonzero(runs.end > runs.begin)
    by_end = lasting[np.argsort(runs.end[lasting], kind="stable")]
    by_begin = np.lexsort((runs.end, runs.begin))
    fault, run, node, now = _timeline.replay(
        runs.begin, runs.end, by_begin, by_end, _rows(world, runs), world.S, N, world.G.copy(), apps,
        runs.where, runs.got, when, what, times, kind, world.U, world.share, out,
    )  # fmt: skip
    if fault:
        who = f"job {world.frame['job'][int(runs.job[run])]}" if run >= 0 else "some job"
        name = cluster.frame["node"][int(node)] if 0 <= node < len(N) else f"{node}, which is none"
        msg = f"{who} on node {name} at {now} s: {_timeline.FAULTS[fault]}"
        raise AssertionError(msg)
    return out


def _switches(played: Played) -> tuple[Floats, Ints]:
    """When nodes go (0) and come (1): at one instant they go first."""
    if played.up is None:
        return np.zeros(0), np.zeros((0, 2), dtype=np.int64)
    up = played.up
    last = up.end < played.stopped
    when = np.concatenate((up.begin, up.end[last]))
    node = np.concatenate((up.node, up.node[last]))
    way = np.concatenate((np.ones_like(up.node), np.zeros_like(up.node[last])))
    order = np.lexsort((way, when))
    return when[order], np.column_stack((node, way))[order]


def _queue(world: World, played: Played, runs: Segments, times: Floats) -> pl.DataFrame:
    """Who runs and who waits at each instant, after all that happens in it."""
    one, many = np.ones(len(world.submit)), world.instances.astype(np.float64)
    asked = many * (world.S[world.shape, MILLI] * world.S[world.shape, GPUS]) / WHOLE
    arrived = np.searchsorted(world.submit, times, side="right")
    ended, begun, left = (np.argsort(x, kind="stable") for x in (played.end, runs.begin, runs.end))
    done = np.searchsorted(played.end[ended], times, side="right")  # those not done are nan, and come last
    on, off = (np.searchsorted(x[by], times, side="right") for x, by in ((runs.begin, begun), (runs.end, left)))
    columns: dict[str, Floats | Ints] = {"time": times}
    for name, weight in (("", one), ("_instances", many), ("_gpus", asked)):
        count = [np.append(0.0, np.cumsum(w)) for w in (weight, weight[ended])]
        of_run = weight[runs.job]
        running = np.append(0.0, np.cumsum(of_run[begun]))[on] - np.append(0.0, np.cumsum(of_run[left]))[off]
        columns |= {f"running{name}": running, f"waiting{name}": count[0][arrived] - count[1][done] - running}
    whole = ("running", "running_instances", "waiting", "waiting_instances")
    return pl.DataFrame(columns).select("time", pl.col(whole).cast(pl.Int64), "waiting_gpus")
