"""What a job is colored by: its user, queue and size, as a small number each; and how much of a GPU it uses."""

from __future__ import annotations

from dataclasses import dataclass

import numpy as np
import polars as pl
from numpy.typing import NDArray

from fleetlab.core import Scenario
from fleetlab.sim.layout import WHOLE, Floats, Ints
from fleetlab.sim.world import World

NAMED = 8  # as many colors as everybody can tell apart; the rest is one category
OTHERS = "all others"
NOBODY = "(not told)"
SIZES = ((1000, "1 GPU"), (4000, "2 to 4 GPUs"), (8000, "5 to 8 GPUs"), (64_000, "9 to 64 GPUs"))
SIZE_LABELS = ("part of a GPU", *(label for _, label in SIZES), "more than 64 GPUs")


@dataclass(frozen=True, slots=True, eq=False)
class Coloring:
    """Categories of jobs: 0 is none, `labels[0]` is category 1."""

    labels: tuple[str, ...]
    of_job: NDArray[np.uint8]  # [jobs]


def colorings(world: World) -> dict[str, Coloring]:
    """Return what jobs can be told apart by; users and queues that need most GPU time come first.

    What they need is the same under every policy, so that a color means the same in two runs.
    """
    seconds = world.gpu_milli * world.runtime
    found = {"user": _largest(world.users, world.user, seconds)}
    queue = world.frame["queue"]
    if queue.n_unique() > 1:
        queue = queue.cast(pl.String).fill_null("")
        names = queue.unique(maintain_order=True)
        codes = queue.replace_strict(names, pl.int_range(len(names), eager=True), return_dtype=pl.Int64)
        found["queue"] = _largest(names.to_list(), codes.to_numpy(), seconds)
    elif len(world.queues) > 1:
        found["queue"] = _largest([", ".join(parts) for parts in world.queues], world.queue, seconds)
    return found | {"size": _sizes(world.gpu_milli)}


def _largest(names: list[str], code: Ints, seconds: Floats) -> Coloring:
    """Number the names with the most GPU time from 1 on; all others are one category."""
    totals = np.bincount(code, seconds, minlength=len(names))
    ranked = sorted(np.flatnonzero(totals > 0).tolist(), key=lambda k: (-totals[k], names[k]))
    kept = ranked[:NAMED]
    number = np.full(len(names), len(kept) + 1, dtype=np.uint8)
    number[kept] = np.arange(1, len(kept) + 1)
    labels = (*(names[k] or NOBODY for k in kept), *([OTHERS] if len(ranked) > len(kept) else []))
    return Coloring(labels, number[code])


def _sizes(gpu_milli: Ints) -> Coloring:
    bounds = np.array([bound for bound, _ in SIZES])
    at = np.searchsorted(bounds, gpu_milli, side="left") + 1
    whole = np.where(gpu_milli < WHOLE, 0, at)
    return Coloring(SIZE_LABELS, (whole + 1).astype(np.uint8))


def used_milli(world: World, scenario: Scenario | None) -> Floats | None:
    """Return how much of each of its GPUs a job used in the log, in milli; None where the log does not tell."""
    usage = None if scenario is None else scenario.trace.usage
    if scenario is None or usage is None or not {"job", "gpu_milli"} <= set(usage.collect_schema().names()):
        return None
    weight = pl.col("instances") if "instances" in usage.collect_schema().names() else pl.lit(1)
    mean = (pl.col("gpu_milli") * weight).sum() / weight.sum()
    by_job = scenario.by_job(usage.select("job", "gpu_milli", instances=weight)).group_by("job").agg(gpu=mean).collect()
    used = world.frame.select("job").join(by_job, on="job", how="left", maintain_order="left")["gpu"]
    gpus = np.maximum(world.shapes.gpus[world.shape], 1)
    found: Floats = used.fill_null(0.0).fill_nan(0.0).to_numpy() / gpus
    return np.minimum(found, float(WHOLE))
