"""`defragment`: moves that free whole nodes or GPUs, in order, with their cost.

Moves are made one after the other, and each goes to where it fits at that moment: at every step the placement is
right. A move stops an instance and starts it elsewhere; it takes the time to copy its memory, and to start.
"""

from __future__ import annotations

import math
from dataclasses import dataclass, replace

import numpy as np
import polars as pl

from fleetlab.core import Cluster, Estimate, Figure, Provenance, Result, Workload, WorkloadError, say
from fleetlab.core.progress import Progress, silent
from fleetlab.plan.checker import check
from fleetlab.plan.problem import WHOLE, Bools, Floats, Ints, NodeState, Problem, problem
from fleetlab.plan.solvers import fewest_moves, greedy
from fleetlab.plan.solvers.exact import CurrentPlacement
from fleetlab.plan.solvers.greedy import PartialPlan, Score, best_fit, on_node, relocate

Step = tuple[int, int, int, int, int]  # who, from which node and GPUs, to which node and GPUs
Freed = tuple[str, list[Step]]
FREES = ("node", "gpu")
BARRED = 10 * WHOLE  # taken off a GPU while nobody may go there
MOVES = {"step": pl.Int64, "job": pl.Int64, "instance": pl.Int64, "from": pl.String, "from_gpus": pl.Int64}
MOVES |= {"to": pl.String, "to_gpus": pl.Int64, "minutes": pl.Float64, "frees": pl.String}


@dataclass(frozen=True, eq=False, repr=False)
class Defragmentation(Result):
    """Moves in their order, and what each of them makes free."""

    provenance: Provenance
    moves: pl.DataFrame
    placements: pl.DataFrame  # after all of them
    freed: int
    before: int  # free before
    most: int  # could be free at most, whatever the moves
    notes: tuple[str, ...] = ()

    def __repr__(self) -> str:
        return f"<Defragmentation {say(self.summary()[0])}, {say(self.summary()[1])}>"

    @property
    def _what(self) -> str:
        return "nodes" if self.provenance.settings["free"] == "node" else "GPUs"

    def summary(self) -> list[Estimate]:
        """What becomes free, and what that costs."""
        return [
            Estimate.exact(f"{self._what} freed", self.freed),
            Estimate.exact("moves", self.moves.height),
            Estimate.exact("migration time", round(float(self.moves["minutes"].sum()), 2), "min"),
            Estimate.exact(f"{self._what} free before", self.before),
            Estimate.exact(f"{self._what} that could be free, at most", self.most),
        ]

    @property
    def findings(self) -> tuple[str, ...]:
        """What was found, in words."""
        what, now = self._what, self.before + self.freed
        if not self.freed:
            return (f"No direct moves free {what}: {self.before:,} are free, at most {self.most:,} could be.",)
        first = f"{self.moves.height:,} moves free {self.freed:,} {what}; then {now:,} are free."
        return first, f"Upper bound over all moves: {self.most:,}."

    def tables(self) -> dict[str, pl.DataFrame]:
        """In words; what each free node or GPU costs; the moves in their order; who is where after them."""
        return {"freed": self._freed(), "moves": self.moves, "placements": self.placements}

    def _freed(self) -> pl.DataFrame:
        each = self.moves.group_by("frees", maintain_order=True)
        return each.agg(pl.len().cast(pl.Int64).alias("moves"), pl.col("minutes").sum())

    def figures(self) -> dict[str, Figure]:
        """What is free after so many minutes of moving."""
        if not self.freed:
            return {}
        each = self._freed()
        frame = pl.DataFrame({"x": [0.0, *each["minutes"].cum_sum()], "y": list(range(self.freed + 1))})
        alt = f"{self.freed:,} {self._what} freed in {float(each['minutes'].sum()):.3g} minutes of migration"
        return {
            "freed": Figure(f"{self._what} freed", "step", frame, "migration time, min", f"{self._what} freed", alt)
        }


def defragment(
    demand: Workload,
    nodes: Cluster,
    current: pl.DataFrame,
    *,
    free: str = "node",
    most: int | None = None,
    mib_per_second: float = 1000.0,
    restart: float = 60.0,
    progress: Progress = silent,
) -> Defragmentation:
    """Which moves free a whole node or GPU, in which order, and what do they cost? The cheapest first.

    Instances move to nodes that are in use, and to GPUs of which some is held.

    Parameters
    ----------
    demand
        The jobs that are placed now.
    nodes
        The nodes that they are on.
    current
        Who is where: a table of job, instance, node and gpus, as the placements of a `Plan`.
    free
        What to free: `node` or `gpu` (default: node).
    most
        How many to free (default: as many as possible).
    mib_per_second
        How fast the memory of an instance is moved (default: 1000).
    restart
        Seconds that a move takes besides (default: 60).
    progress
        Called as moves are found.

    Returns
    -------
    Defragmentation
        The moves in order, what each costs, and how many nodes or GPUs are freed.

    Raises
    ------
    WorkloadError
        If `current` does not fit the demand or the nodes.

    Examples
    --------
    >>> import fleetlab
    >>> half = Workload.of(pl.DataFrame({"submit": 0.0, "instances": [2], "gpu_milli": [500]}), source="by hand")
    >>> apart = fleetlab.plan(half, Cluster.uniform(2, 1), objective="balance").placements
    >>> fleetlab.defragment(half, Cluster.uniform(2, 1), apart).freed
    1
    """
    _check_options(free, most, mib_per_second, restart)
    p = problem(demand, nodes)
    here = fewest_moves.here_of(p, current)
    placing = _as_it_is(p, here, demand, nodes)
    before = rows(p, here, placing)
    minutes = (demand.frame.select("job", memory=pl.col("memory_mib") + pl.col("gpu_memory_mib"))
               .select("job", minutes=(restart + pl.col("memory") / mib_per_second) / 60))  # fmt: skip
    work = _Freeing(p, placing, _costs(p, minutes), free)
    start = work.idle()
    steps = work.all(math.inf if most is None else most, progress)
    moves = _moves_table(p, here, steps, minutes)
    after = rows(p, here, placing)
    _audit(demand, nodes, before, moves)
    settings = {"free": free, "most": most, "mib_per_second": mib_per_second, "restart": restart}
    provenance = Provenance.of_jobs("defragment", demand, {**settings, "cluster": nodes.source}, cluster=nodes)
    return Defragmentation(provenance, moves, after, work.idle() - start, start, _at_most(p, free))


def _check_options(free: str, most: int | None, mib_per_second: float, restart: float) -> None:
    if free not in FREES:
        raise WorkloadError(f"`free` is node or gpu, not: `{free}`", hint="--free node, or --free gpu")
    if most is not None and most < 1:
        msg = f"`most` is 1 or more, not: {most}"
        raise WorkloadError(msg, hint="--most 3 frees up to three (default: as many as possible)")
    if not (0 < mib_per_second < math.inf and 0 <= restart < math.inf):
        msg = f"mib_per_second and restart must be positive numbers: {mib_per_second} MiB/s, {restart} s"
        raise WorkloadError(msg, hint="for example --mib-per-second 1000 --restart 60")


def _as_it_is(p: Problem, here: CurrentPlacement, demand: Workload, nodes: Cluster) -> PartialPlan:
    """The placement that is there, which must be whole and right."""
    if len(here.row) != demand.instances or (here.node < 0).any():
        msg = f"the current placement covers {int((here.node >= 0).sum()):,} of {demand.instances:,} instances"
        raise WorkloadError(msg, hint="`fleetlab plan --objective moves` places all instances first")
    placing = PartialPlan.empty(p)
    for k, n, g in zip(here.kind.tolist(), here.node.tolist(), here.gpus.tolist(), strict=True):
        placing.put(k, n, g)
    if wrong := check(demand, nodes, rows(p, here, placing)):
        msg = f"the current placement is invalid: {wrong[0]}"
        raise WorkloadError(msg, hint="`fleetlab plan --objective moves` repairs it with the fewest moves")
    return placing


def rows(p: Problem, here: CurrentPlacement, placing: PartialPlan) -> pl.DataFrame:
    """Who is where; those placed are in the order of `here`."""
    who = p.rows.select("job", "instance")[here.row]
    return who.with_columns(node=p.names.gather(placing.node), gpus=pl.Series(placing.gpus, dtype=pl.Int64))


def _costs(p: Problem, minutes: pl.DataFrame) -> dict[int, float]:
    """What it takes to move one of each kind."""
    first = p.rows.with_row_index("row")[p.first[:-1]].join(minutes, on="job", how="left", maintain_order="left")
    return dict(enumerate(first["minutes"].to_list()))


@dataclass(slots=True)
class _Freeing:
    """What is to be freed, in a placement that moves change."""

    p: Problem
    placing: PartialPlan
    cost: dict[int, float]
    free: str

    def idle(self) -> int:
        """How many nodes, or GPUs, nobody holds anything of."""
        nodes = self.placing.nodes
        if self.free == "node":
            return int((nodes.number == 0).sum())
        return int((nodes.gpu == WHOLE).sum())

    def all(self, most: float, progress: Progress) -> list[Freed]:
        """Free one after the other, the cheapest first; who failed is tried again as long as others free capacity."""
        freed_parts: list[Freed] = []
        before = -1
        while before < len(freed_parts) < most:
            before = len(freed_parts)
            for name, n, g in self._candidates():
                if len(freed_parts) < most and (freed := self._try(n, g)):
                    freed_parts.append((name, freed))
                    progress(
                        "freed", len(freed_parts), 1 - 0.99 ** len(freed_parts)
                    )  # how many there will be is not known
        return freed_parts

    def _candidates(self) -> list[tuple[str, int, int]]:
        """What could be freed: its name, node and GPU; what costs least first."""
        cost_of_node, some = on_node(self.placing), []
        for n in cost_of_node:
            for g in [-1] if self.free == "node" else range(int(self.p.cards[self.p.of[n]])):
                who = _in_the_way(self.placing, cost_of_node[n], g)
                if g < 0 or (who and 0 < self.placing.nodes.gpu[n, g] < WHOLE):
                    name = str(self.p.names[n]) + (f" GPU {g}" if g >= 0 else "")
                    some.append((sum(self.cost[self.placing.kind[i]] for i in who), n, g, name))
        return [(name, n, g) for _, n, g, name in sorted(some)]

    def _heaviest(self) -> Score:
        """To the nodes that would cost most to free: others may still become free themselves."""
        cost = np.array([self.cost[k] for k in self.placing.kind])
        cost_of_node = np.bincount(self.placing.node, weights=cost, minlength=self.p.nodes)

        def score(nodes: NodeState, k: int, at: Ints) -> Floats:
            fit = best_fit(nodes, k, at)
            return -cost_of_node[at] + 1e-9 * fit if self.free == "node" else fit

        return score

    def _try(self, n: int, g: int) -> list[Step] | None:
        """Move those who are in the way; nothing if one of them finds no place."""
        nodes = self.placing.nodes
        who = _in_the_way(self.placing, [i for i, at in enumerate(self.placing.node) if at == n], g)
        if not who:
            return None
        was = {i: (self.placing.node[i], self.placing.gpus[i]) for i in who}
        to, barred = nodes.number > 0, np.zeros(nodes.gpu.shape, dtype=bool)
        if g < 0:
            to[n] = False
        else:  # idle GPUs stay idle
            barred = nodes.gpu == WHOLE
            barred[n, g] = True
        nodes.gpu[barred] -= BARRED
        moved = relocate(self.placing, who, to, score=self._heaviest())
        nodes.gpu[barred] += BARRED
        return None if moved is None else [(i, *was[i], n2, bits) for i, n2, bits in moved]


def _in_the_way(placing: PartialPlan, who: list[int], g: int) -> list[int]:
    return who if g < 0 else [i for i in who if placing.gpus[i] >> g & 1]


def _moves_table(p: Problem, here: CurrentPlacement, freed: list[Freed], minutes: pl.DataFrame) -> pl.DataFrame:
    """The moves as a table."""
    flat = [(name, *step) for name, steps in freed for step in steps]
    who = p.rows.select("job", "instance")[here.row[[i for _, i, *_ in flat]]]
    table = who.with_columns(
        step=pl.int_range(1, pl.len() + 1),
        **{"from": p.names.gather([n for _, _, n, *_ in flat]), "to": p.names.gather([n for *_, n, _ in flat])},
        from_gpus=pl.Series([g for _, _, _, g, *_ in flat], dtype=pl.Int64),
        to_gpus=pl.Series([g for *_, g in flat], dtype=pl.Int64),
        frees=pl.Series([name for name, *_ in flat], dtype=pl.String),
    )
    table = table.join(minutes, on="job", how="left", maintain_order="left")
    return table.select(pl.col(name).cast(kind) for name, kind in MOVES.items())


def _at_most(p: Problem, free: str) -> int:
    """What could be free, whatever the moves."""
    if free == "node":
        return p.nodes - math.ceil(greedy.simple(p) - 1e-6)
    everybody: Bools = np.ones(p.kinds, dtype=bool)
    return int(p.cards @ p.there) - math.ceil(greedy.gpus_needed(p, everybody) - 1e-6)


def _audit(demand: Workload, nodes: Cluster, before: pl.DataFrame, moves: pl.DataFrame) -> None:
    """Walk through the moves and check, after each, the node that somebody came to: no other can have become wrong."""
    at = {(t, i): (n, g) for t, i, n, g in before.select("job", "instance", "node", "gpus").iter_rows()}
    on: dict[str, set[tuple[int, int]]] = {}
    for who, (n, _) in at.items():
        on.setdefault(n, set()).add(who)
    for job, instance, node, gpus in moves.select("job", "instance", "to", "to_gpus").iter_rows():
        on[at[job, instance][0]].discard((job, instance))
        at[job, instance] = (node, gpus)
        on.setdefault(node, set()).add((job, instance))
        here = [(*who, *at[who]) for who in on[node]]
        table = pl.DataFrame(here, schema=["job", "instance", "node", "gpus"], orient="row")
        if wrong := check(_only(demand, table), nodes, table, whole=False):
            raise AssertionError(f"a move that is wrong: {wrong[:3]}")


def _only(demand: Workload, table: pl.DataFrame) -> Workload:
    return replace(demand, frame=demand.frame.filter(pl.col("job").is_in(table["job"].unique().to_list())))
