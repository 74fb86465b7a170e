"""The packing study: how much of a cluster can be given away before pods no longer fit, by placement policy.

After the FGD paper (Weng et al., ATC'23): every pod of the list comes once, in random order, then pods are drawn with
replacement until the GPU demand that has arrived would pass 130 % of capacity. None departs; one that fits nowhere
fails and is gone. A job stands for its instances, which come one by one.
"""

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import dataclass, replace
from typing import Unpack

import numpy as np
import polars as pl
from numpy.typing import NDArray

from fleetlab.core import Cluster, Estimate, Progress, Provenance, Result, Scenario, Words, Workload, WorkloadError
from fleetlab.core.catalog import PLACEMENTS
from fleetlab.core.names import lookup
from fleetlab.core.scenario import ScenarioLike
from fleetlab.sim import packing_loop
from fleetlab.sim.layout import MAX_TYPES, REQUESTS, WHOLE, Ints
from fleetlab.sim.packing_loop import PackNodes, Pods, Usual
from fleetlab.stats import mean_of_runs

UPTO = 130  # percent of GPU capacity that arrives
COVER = 0.95  # of the pods, by the shapes that stand for the workload
# Half-widths of a 95 % interval in standard errors, for 2, 3, … seeds: Student's t.


@dataclass(frozen=True, slots=True)
class Packing(Result):
    """Curves of a packing study: allocated, fragmented and failed by arrived demand, for every place and seed."""

    curves: pl.DataFrame
    provenance: Provenance
    notes: tuple[str, ...] = ()

    def __repr__(self) -> str:
        best = max(self.summary(), key=lambda e: e.value)
        count = self.curves["placement"].n_unique()
        name = best.metric.removeprefix("allocated by ")
        return f"<Packing {count} placements, best {name}, {best.value:.2f} % allocated>"

    def summary(self) -> list[Estimate]:
        """Allocated GPU at 100 % arrived demand, with its interval over the seeds."""
        full = self.curves.filter(pl.col("arrived") == 100).partition_by("placement", as_dict=True, maintain_order=True)
        means = {str(name): mean_of_runs(part["allocated"].to_numpy(), (0.0, 100.0)) for (name,), part in full.items()}
        return [Estimate(f"allocated by {name}", *mean.interval(), "% of GPUs") for name, mean in means.items()]

    def tables(self) -> dict[str, pl.DataFrame]:
        """One row a place, and the mean curves."""
        means = self.curves.group_by("placement", "arrived", maintain_order=True).agg(
            pl.col("allocated", "fragmented", "failed").mean()
        )

        def at(column: str, arrived: int) -> pl.Expr:
            return pl.col(column).filter(pl.col("arrived") == arrived).mean().alias(f"{column}_at_{arrived}")

        ends = [at("allocated", 100), at("allocated", UPTO), at("fragmented", 100)]
        short = self.curves.group_by("placement", maintain_order=True).agg(
            pl.col("seed").n_unique().alias("seeds"), *ends
        )
        return {"summary": short, "curves": means}


def pack(
    scenario: ScenarioLike,
    cluster: Cluster | None = None,
    *,
    placements: Sequence[str] = ("fgd", "best_fit"),
    seeds: Sequence[int] = tuple(range(42, 52)),
    progress: Progress | None = None,
    **words: Unpack[Words],
) -> Packing:
    """Fill a cluster with jobs sampled from a trace until no more fit: GPU allocation and fragmentation by placement.

    Parameters
    ----------
    scenario
        What builds the scenario, as `Scenario.of` takes it; of the words only `nodes` has an effect.
    cluster
        The nodes, in place of those of the trace.
    **words
        Words of the scenario, such as `order="sjf"` or `load=1.2`.
    placements
        The placement policies to compare.
    seeds
        One run of each placement per seed.
    progress
        Called after each run.

    Returns
    -------
    Packing
        GPU allocation when the cluster is full, by placement, and the curves on the way.

    Raises
    ------
    PolicyError
        If a placement is not known.

    Examples
    --------
    >>> import fleetlab, polars as pl
    >>> jobs = fleetlab.Workload.of(pl.DataFrame({"submit": [0.0], "gpu_milli": [4000]}), source="by hand")
    >>> fleetlab.pack(jobs, fleetlab.Cluster.uniform(2, 8), placements=["best_fit"], seeds=[1])
    <Packing 1 placements, best best_fit, 100.00 % allocated>
    """
    s = Scenario.of(scenario, cluster, **words)
    if unused := sorted(set(s.changes()) - {"nodes"}):
        msg = f"pack fills an empty cluster, jobs do not wait and do not end: `{unused[0]}` has no effect"
        raise WorkloadError(msg, hint="leave it out; `simulate` takes it")
    for name in placements or [""]:
        lookup(PLACEMENTS.kind, name, PLACEMENTS.where("in_pack"))
    if not seeds:
        msg = "pack needs at least one seed"
        raise WorkloadError(msg, hint="the FGD paper has the seeds 42 to 51")
    study = _study(s.workload, s.cluster)
    runs = []
    for k, (name, seed) in enumerate((p, s) for p in placements for s in seeds):
        runs.append(study.run(name, seed))
        if progress:
            progress("filling the cluster under each placement", k + 1, (k + 1) / (len(placements) * len(seeds)))
    settings = s.words() | {"placements": list(placements), "seeds": list(seeds), "upto": UPTO}
    return Packing(pl.concat(runs), s.provenance("pack", settings), study.notes)


@dataclass
class _Study:
    """A workload and a cluster as the compiled loop takes them."""

    cluster: pl.DataFrame
    bits: dict[str, int]
    shape: Ints  # of each pod of the list
    pods: Pods
    usual: Usual
    notes: tuple[str, ...]

    def run(self, placement: str, seed: int) -> pl.DataFrame:
        rng = np.random.default_rng(seed)
        gpus = _ints(self.cluster["gpus"])
        capacity = int(gpus.sum()) * WHOLE
        stream = self._stream(rng, capacity)
        order = rng.permutation(len(gpus))
        marks = np.arange(UPTO + 1) * capacity // 100
        code = PLACEMENTS.index(placement)
        draws = rng.random((len(stream), 2))
        allocated, fragments, failed, _, _ = packing_loop.pack(
            code, stream, draws, order, self.pods, self.nodes(), self.usual, marks
        )
        return pl.DataFrame(
            {
                "placement": placement,
                "seed": seed,
                "arrived": np.arange(UPTO + 1),
                "allocated": allocated / capacity * 100,
                "fragmented": fragments / capacity * 100,
                "failed": failed,
            }
        )

    def _stream(self, rng: np.random.Generator, capacity: int) -> Ints:
        """Return the list once in random order, then random pods, up to the last that stays below the end."""
        stream = self.shape[rng.permutation(len(self.shape))]
        demand = self.pods.gpus * self.pods.milli
        while (arrived := np.cumsum(demand[stream]))[-1] <= capacity * UPTO // 100:
            # As many again as there are: a few small jobs on a large cluster must not be drawn one by one.
            stream = np.append(stream, self.shape[rng.integers(0, len(self.shape), len(stream))])
        return stream[: np.searchsorted(arrived, capacity * UPTO // 100, side="right")]

    def nodes(self) -> PackNodes:
        """All nodes empty."""
        c = self.cluster
        gpus = _ints(c["gpus"])
        return PackNodes(
            first=np.append(0, np.cumsum(gpus)),
            type=np.array([self.bits[t] for t in c["gpu_type"]], dtype=np.int64),
            cpu=_ints(c["cpu_milli"]),
            memory=_ints(c["memory_mib"]),
            gpu=np.full(int(gpus.sum()), WHOLE, dtype=np.int64),
            by_request=np.zeros((len(gpus), REQUESTS), dtype=np.int64),
            most_cpu=max(1, int(c["cpu_milli"].max())),  # type: ignore[arg-type]
            most_gpu=int(gpus.max()) * WHOLE,
        )


def _study(workload: Workload, cluster: Cluster) -> _Study:
    nodes = cluster.frame.filter(pl.col("gpus") > 0)
    if nodes.is_empty() or not (workload.frame["gpu_milli"] > 0).any():
        msg = f"{workload.source}: a packing study needs a cluster with GPUs and jobs that ask for some"
        raise WorkloadError(msg, hint="another trace, or --cluster FILE.toml")
    bits = {name: 1 << k for k, name in enumerate(sorted(set(nodes["gpu_type"])))}
    if len(bits) > MAX_TYPES:
        msg = f"{cluster.source}: more GPU types than a packing study holds: {len(bits)}"
        raise WorkloadError(msg, hint=f"at most {MAX_TYPES}: merge those that pods do not tell apart")
    shapes, shape = _shapes(workload, bits)
    pods = Pods(*(_ints(shapes[c]) for c in ("cpu_milli", "memory_mib", "milli", "gpus", "types")))
    without = len(cluster) - nodes.height
    notes = [f"{without:,} nodes without a GPU are left out, as in the FGD study"] if without else []
    packing = _Study(nodes, bits, shape, pods, _usual(shapes, shape), ())
    never = _nowhere(pods, packing.nodes())[shape]
    if never.any():
        asked = (pods.gpus * pods.milli)[shape]
        share = 100 * asked[never].sum() / asked.sum()
        notes.append(
            f"{never.sum():,} instances fit on no node, even an empty one, and count as arrived all the same: "
            f"{share:.3g} % of the GPUs that are asked for"
        )
    return replace(packing, notes=tuple(notes))


def _nowhere(pods: Pods, nodes: PackNodes) -> NDArray[np.bool_]:
    """Which shapes of pods no empty node holds."""
    never = np.ones(len(pods.cpu), dtype=np.bool_)
    for cpu, memory, gpus, bit in set(zip(nodes.cpu, nodes.memory, np.diff(nodes.first), nodes.type, strict=True)):
        suits = (pods.gpus == 0) | ((pods.types & bit > 0) & (pods.gpus <= gpus))
        never &= ~(suits & (pods.cpu <= cpu) & (pods.memory <= memory))
    return never


def _shapes(workload: Workload, bits: dict[str, int]) -> tuple[pl.DataFrame, Ints]:
    """The distinct shapes of pods, and the shape of every instance."""
    anything = sum(bits.values())
    names = workload.frame["gpu_types"]
    mask = {t: sum(bits.get(name, 0) for name in t) or (0 if t else anything) for t in {tuple(t) for t in names}}
    gpu = pl.col("gpu_milli")
    asked = workload.frame.select(
        "cpu_milli",
        "memory_mib",
        milli=pl.when(gpu >= WHOLE).then(WHOLE).otherwise(gpu),
        gpus=pl.when(gpu == 0).then(0).when(gpu < WHOLE).then(1).otherwise(gpu // WHOLE),
        types=pl.Series([mask[tuple(t)] for t in names], dtype=pl.Int64),
    )
    shapes = asked.unique(maintain_order=True).with_row_index("shape")
    mine = asked.join(shapes, on=asked.columns, how="left", maintain_order="left")["shape"]
    return shapes, np.repeat(_ints(mine), workload.frame["instances"].to_numpy())


def _usual(shapes: pl.DataFrame, shape: Ints) -> Usual:
    """The shapes that stand for the workload: most frequent first until they cover 95 % of the pods; memory aside."""
    count = pl.Series("count", np.bincount(shape, minlength=shapes.height))
    kinds = (
        shapes.with_columns(count)
        .group_by("cpu_milli", "milli", "gpus", "types", maintain_order=True)
        .agg(pl.col("count").sum())
        .sort("count", descending=True, maintain_order=True)
    )
    covered = kinds["count"].cum_sum() / kinds["count"].sum()
    kinds = kinds.head(int((covered < COVER).sum()) + 1)
    share = (kinds["count"] / kinds["count"].sum()).to_numpy()
    cpu, milli, gpus, types = (_ints(kinds[c]) for c in ("cpu_milli", "milli", "gpus", "types"))
    return Usual(cpu, milli, gpus, types, share)


def _ints(column: pl.Series) -> Ints:
    return column.to_numpy().astype(np.int64)
