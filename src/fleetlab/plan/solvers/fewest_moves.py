"""Plans that move as few as possible: who is where now, who must go, and where the others fit."""

from __future__ import annotations

import numpy as np
import polars as pl

from fleetlab.core import WorkloadError
from fleetlab.plan.problem import WHOLE, Ints, NodeState, Problem
from fleetlab.plan.solvers import exact
from fleetlab.plan.solvers.exact import CurrentPlacement, there
from fleetlab.plan.solvers.greedy import PartialPlan, best_fit, on_node, relocate, spread

COLUMNS = "job and node, and where they are known instance (its number in the job) and gpus (a bit for each GPU)"
TRIED = 200  # nodes that are tried to free one


def here_of(p: Problem, current: pl.DataFrame) -> CurrentPlacement:
    """Where instances are now, by their rows; on a node that is not there any more: -1."""
    table = _table(current)
    rows = p.rows.with_row_index("row")
    places = table.join(rows, on=["job", "instance"], how="left", maintain_order="left")
    if (unmatched := places.filter(pl.col("row").is_null())).height:
        msg = f"the current placement has an instance that is not in the demand: job {unmatched['job'][0]}"
        raise WorkloadError(msg, hint="its jobs and the numbers of instances in them are those of the demand")
    if (twice := places.filter(pl.col("row").is_duplicated())).height:
        msg = f"the current placement has an instance twice: job {twice['job'][0]}"
        raise WorkloadError(msg, hint="one row an instance; without a column `instance` they are numbered in turn")
    names = pl.DataFrame({"node": p.names, "at": np.arange(p.nodes)})
    places = places.join(names, on="node", how="left", maintain_order="left").sort("row")
    return _with_gpus(
        p,
        CurrentPlacement(
            *(places[c].fill_null(-1).cast(pl.Int64).to_numpy().copy() for c in ("row", "kind", "at", "gpus"))
        ),
    )


def notes(p: Problem, current: pl.DataFrame, here: CurrentPlacement) -> list[str]:
    """What a current placement leaves open, or says that cannot be."""
    lines = []
    if p.gpus[here.kind].any() and ("gpus" not in current.columns or current["gpus"].null_count()):
        lines.append(
            "GPUs missing from the current placement were assigned as tightly as possible: moves count from there"
        )
    if unplaceable := int((here.node < 0).sum()):
        lines.append(f"{unplaceable:,} instances are on an unknown node or GPU: they move")
    return lines


def _table(current: pl.DataFrame) -> pl.DataFrame:
    if missing := {"job", "node"} - set(current.columns):
        raise WorkloadError(f"a current placement needs the column: `{sorted(missing)[0]}`", hint=f"it has {COLUMNS}")
    if "instance" not in current.columns:
        current = current.with_columns(instance=pl.int_range(pl.len()).over("job"))
    if "gpus" not in current.columns:
        current = current.with_columns(gpus=pl.lit(None))
    kinds = {"job": pl.Int64, "instance": pl.Int64, "node": pl.String, "gpus": pl.Int64}
    try:
        if cut := [name for name in kinds if current[name].dtype.is_float() and (current[name] % 1 != 0).any()]:
            msg = f"not a current placement: not integers in the column: `{cut[0]}`"
            raise WorkloadError(msg, hint=f"it has {COLUMNS}")
        return current.select(pl.col(name).cast(kind) for name, kind in kinds.items())
    except pl.exceptions.PolarsError as e:
        raise WorkloadError(f"not a current placement: {str(e).splitlines()[0]}", hint=f"it has {COLUMNS}") from None


def _with_gpus(p: Problem, here: CurrentPlacement) -> CurrentPlacement:
    """Where a placement does not tell GPUs, give them: as tight as can be; who finds none cannot be where it is said.

    GPUs alone count here. Who must go because a node holds too much of something else is not decided by that.
    """
    unknown = here.gpus < 0
    here.gpus[unknown & (p.gpus[here.kind] == 0)] = 0
    # Are the GPUs those of the node, and as many as are asked for? If not, nobody can be so placed
    number = np.array([g.bit_count() for g in here.gpus.tolist()], dtype=np.int64)
    here.node[~np.asarray((number == p.gpus[here.kind]) & (here.gpus >> p.cards[p.of[here.node]] == 0)) & ~unknown] = -1
    here.node[(here.gpus < 0) & ~p.may[here.kind, p.of[here.node]]] = -1
    for n in np.unique(here.node[(here.gpus < 0) & (here.node >= 0)]).tolist():
        mine = np.flatnonzero(here.node == n)
        places, untold = mine[here.gpus[mine] >= 0], mine[here.gpus[mine] < 0]
        gpus_of = _seated(p, here, places, untold, n)
        if len(gpus_of) < len(untold) and there():
            gpus_of = exact.seated(p, here, places, untold, n) or gpus_of
        here.gpus[list(gpus_of)] = list(gpus_of.values())
    here.node[here.gpus < 0] = -1
    here.gpus[here.gpus < 0] = 0
    return here


def _seated(p: Problem, here: CurrentPlacement, places: Ints, untold: Ints, n: int) -> dict[int, int]:
    """GPUs of a node for those of whom none are told, the largest first; not all may find some."""
    free = np.full(int(p.cards[p.of[n]]), WHOLE)
    memory = np.full(len(free), p.memory[p.of[n]])
    gpus_of: dict[int, int] = {}
    size = p.gpus * p.milli
    for i in [*places.tolist(), *sorted(untold.tolist(), key=lambda i: (-size[here.kind[i]], i))]:
        k = here.kind[i]
        fits = np.flatnonzero((free >= p.milli[k]) & (memory >= p.vram[k]))
        some = fits[np.argsort(free[fits], kind="stable")][: p.gpus[k]] if here.gpus[i] < 0 else _cards(here.gpus[i])
        if here.gpus[i] < 0 and len(some) == p.gpus[k]:
            gpus_of[i] = sum(1 << int(g) for g in some)
        if len(some) == p.gpus[k]:
            free[some] -= p.milli[k]
            memory[some] -= p.vram[k]
    return gpus_of


def _cards(bits: np.int64) -> Ints:
    return np.array([g for g in range(int(bits).bit_length()) if int(bits) >> g & 1], dtype=np.int64)


def least_moves(p: Problem, here: CurrentPlacement, *, seed: int) -> tuple[PartialPlan, float]:
    """A plan that leaves alone whom it can, and how many must move at least."""
    placing, scratch = PartialPlan.empty(p), NodeState(p)
    forced = int((here.node < 0).sum())
    for n in np.unique(here.node[here.node >= 0]).tolist():
        staying, must = _stayers(scratch, here, np.flatnonzero(here.node == n), n, seed=seed)
        forced += must
        for i in staying:
            placing.put(int(here.kind[i]), n, int(here.gpus[i]))
    for k in np.argsort(-np.where(np.isfinite(p.size()), p.size(), 0.0), kind="stable").tolist():
        spread(placing, k, best_fit)
        while placing.unplaced[k] and free_a_node(placing, k):
            pass
    return placing, float(forced)


def _stayers(nodes: NodeState, here: CurrentPlacement, mine: Ints, n: int, *, seed: int) -> tuple[list[int], int]:
    """Who of those on a node may stay, and how many must go at least."""
    p, staying = nodes.problem, []
    # The smallest first: so that as many as possible stay, where that is not all.
    for i in sorted(mine.tolist(), key=lambda i: (p.part[here.kind[i], p.of[n]], i)):
        if nodes.holds(int(here.kind[i]), n, int(here.gpus[i])):
            nodes.put(int(here.kind[i]), n, int(here.gpus[i]))
            staying.append(i)
    leaving = len(mine) - len(staying)
    if leaving <= 1 or not there():
        return staying, min(leaving, 1)
    return exact.stayers(p, here, mine, n, seed=seed) or (staying, 1)


def free_a_node(placing: PartialPlan, k: int) -> bool:
    """Move a few away from some node so that one of kind `k` fits there; False if no node can be so freed."""
    p, members = placing.nodes.problem, on_node(placing)
    nodes = np.flatnonzero(p.may[k, p.of])
    short = np.maximum(p.ask[k] - placing.nodes.free[nodes], 0) / np.maximum(p.have[p.of[nodes]], 1)
    for n in nodes[np.argsort(short.max(axis=1), kind="stable")][:TRIED].tolist():
        others = np.arange(p.nodes) != n
        for count in range(1, min(4, len(members.get(n, []))) + 1):
            who = sorted(members[n], key=lambda i: (p.part[placing.kind[i], p.of[n]], i))
            for some in (who[:count], who[-count:]):
                trial = placing.copy()
                if relocate(trial, some, others) is not None and trial.nodes.copies_that_fit(k, np.array([n]))[0]:
                    placing.nodes, placing.node, placing.gpus = trial.nodes, trial.node, trial.gpus
                    placing.put(k, n)
                    return True
    return False
