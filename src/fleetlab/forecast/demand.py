"""Demand of a trace as series side by side on one clock, and what a model of them must be able to do."""

from __future__ import annotations

from collections.abc import Iterator
from dataclasses import dataclass
from typing import Literal, Protocol, Self, get_args

import numpy as np
import polars as pl
from numpy.typing import NDArray

from fleetlab.core import Trace, Workload, WorkloadError
from fleetlab.core.catalog import RESOURCES
from fleetlab.core.censoring import IMPUTED, run_times
from fleetlab.core.coverage import Coverage

Floats = NDArray[np.float64]
Ints = NDArray[np.int64]
Bools = NDArray[np.bool_]

DAY = 86_400.0


@dataclass(frozen=True, slots=True, eq=False)
class Panel:
    """What is forecast, and what else is known of the same steps."""

    values: Floats  # [steps, series]
    beside: Floats  # [steps, kinds * series]: for each kind of flow (asked for, let go) one column a series
    names: tuple[str, ...]
    every: float  # seconds in a step

    def __len__(self) -> int:
        return len(self.values)

    @property
    def width(self) -> int:
        """How many series there are."""
        return int(self.values.shape[1])

    @property
    def day(self) -> int:
        """Steps in a day, at least one."""
        return max(1, round(DAY / self.every))

    def until(self, step: int) -> Panel:
        """All before a step, as a copy: whoever learns from it cannot reach the rest."""
        return Panel(self.values[:step].copy(), self.beside[:step].copy(), self.names, self.every)


class Forecaster(Protocol):
    """A model: settings in the constructor, learning in `fit`, and no look ahead.

    Intervals are not its business: they are made the same way for every model, from its own past misses (`conformal`).
    """

    name: str

    def fit(self, past: Panel, *, horizon: int, seed: int) -> Self:
        """Learn from the past, all of it and nothing else; scales too are learnt here."""

    def predict(self, seen: Panel, at: Ints, *, horizon: int) -> Floats:
        """What is expected at each origin of `at`, as [origins, horizon, series].

        The forecast of origin `t` is of the steps `t`, `t + 1`, …; it may use the steps before `t` of `seen`, no other.
        """


def targets(values: Floats, at: Ints, horizon: int) -> Floats:
    """What came in the steps from each origin on: [origins, horizon, series].

    >>> targets(np.arange(5.0)[:, None], np.array([1, 3]), 2)[:, :, 0]
    array([[1., 2.],
           [3., 4.]])
    """
    return np.asarray(values[at[:, None] + np.arange(horizon)])


Target = Literal["requests", "level"]
By = Literal["role", "app", "gpu_type"]

COLUMN = {"role": "group", "app": "app", "gpu_type": "gpu_types"}  # readers put a log's roles into `group`
MOST = 6  # parts by themselves; what is left of them together
ALL, OTHERS, NONE = "all", "others", "not named"
RAN = ["completed", "failed", "running"]


@dataclass(frozen=True, slots=True, eq=False)
class DemandEvents:
    """Jobs as far as demand goes: when they asked, from when to when they held something, and what."""

    requested: Floats  # [jobs] nan: before the trace began
    begin: Floats  # [jobs] -inf: before the trace began; nan: never, or not known
    until: Floats  # [jobs] inf: still at its end
    amounts: Floats  # [jobs, resources], of all instances together
    part: Ints  # [jobs]
    parts: tuple[str, ...]
    apps: Ints | None  # [jobs]
    span: float  # to the last submission: later a log may show how jobs end, but not all that comes
    notes: tuple[str, ...]
    coverage: Coverage

    @classmethod
    def of(cls, trace: Trace, *, by: By | None = None) -> DemandEvents:
        """What a trace says of it."""
        w = trace.workload
        if not len(w):
            msg = f"{w.source}: no jobs to forecast from"
            raise WorkloadError(msg, hint="`fleetlab show` lists what is in a trace")
        requested, begin, until = _times(w)
        # GPU memory is told for each GPU of an instance, as the simulator takes it.
        times = {"gpu_memory_mib": pl.max_horizontal(pl.col("gpu_milli") // 1000, 1)}
        every = [
            pl.col(c).cast(pl.Float64) * pl.col("instances") * times.get(c, 1) / size
            for c, size in ((r.request, r.scale) for r in RESOURCES)
        ]
        amounts = w.frame.select(e.alias(str(k)) for k, e in enumerate(every)).to_numpy()
        part, parts = _parts(w, by)
        apps = None if w.frame["app"].null_count() == len(w) else _numbered(w.frame["app"].cast(pl.String))[0]
        return cls(
            requested,
            begin,
            until,
            amounts,
            part,
            parts,
            apps,
            float(w.frame["submit"][-1]),
            _notes(w, requested, begin, until),
            _coverage(w, begin, until),
        )

    def panels(self, target: Target, every: float) -> Iterator[tuple[str, Panel]]:
        """A panel for each part, with those resources of which it has some."""
        for k, name in enumerate(self.parts):
            mine = self.part == k
            flows = {
                "asked": self.added(self.requested, every, mine),
                "released": self.added(self.until, every, mine),
                "held": self.level(every, mine),
            }
            values = flows["asked" if target == "requests" else "held"]
            beside = ("released",) if target == "requests" else ("asked", "released")
            some = np.asarray(values.any(axis=0))
            names = tuple(r for r, has in zip(RESOURCES.names, some, strict=True) if has)
            if names:
                yield name, Panel(values[:, some], np.hstack([flows[b][:, some] for b in beside]), names, every)

    def steps(self, every: float) -> int:
        """How many whole steps there are."""
        return int(self.span // every)

    def added(self, when: Floats, every: float, mine: Bools) -> Floats:
        """What comes in each step, of what comes in one: a moment between two steps belongs to the later."""
        steps = self.steps(every)
        inside = mine & np.isfinite(when) & (when < steps * every)
        at = np.minimum((when[inside] // every).astype(np.int64), steps - 1)
        filled = np.zeros((steps, self.amounts.shape[1]))
        np.add.at(filled, at, self.amounts[inside])
        return filled

    def level(self, every: float, mine: Bools) -> Floats:
        """What is held at the end of each step: what was held before, and came, less what went."""
        with_times = mine & ~np.isnan(self.begin) & ~np.isnan(self.until)
        before = self.amounts[with_times & np.isneginf(self.begin)].sum(axis=0)
        moved = self.added(self.begin, every, with_times) - self.added(self.until, every, with_times)
        return np.asarray(
            np.maximum(before + np.cumsum(moved, axis=0), 0.0)
        )  # sums of fractions may fall short of zero


def _times(w: Workload) -> tuple[Floats, Floats, Floats]:
    """When each job asked, began to hold, and let go."""
    ran = pl.col("status").cast(pl.String).is_in(RAN)
    # A job that the log did not see begin is submitted at 0 and has no start; a log without any starts tells nothing.
    any_start = pl.lit(w.frame["start"].null_count() < len(w))
    older = pl.col("initial") & pl.col("start").is_null()
    begin = (
        pl.when(older).then(-np.inf)
        .when(any_start).then(pl.when(ran | pl.col("end").is_not_null()).then("start"))
        .when(ran).then("submit")
    )  # fmt: skip
    running = pl.col("status").cast(pl.String) == "running"
    finite = pl.when(begin.is_finite()).then(begin)
    # One whose end is lost, which is not to say that it runs on, lasts as long as jobs like it.
    filled = run_times(w, "hold", 0)
    estimated = pl.when(filled.origin == IMPUTED).then(filled.log)
    until = pl.coalesce("end", finite + pl.coalesce("runtime", estimated), pl.when(running).then(np.inf))
    times = w.frame.select(
        requested=pl.when(~older).then("submit"), begin=begin, until=pl.when(begin.is_not_null()).then(until)
    )
    requested, began, ended = (times[c].cast(pl.Float64).fill_null(np.nan).to_numpy() for c in times.columns)
    return requested, began, ended


def _coverage(w: Workload, begin: Floats, until: Floats) -> Coverage:
    """Return which jobs are in the level of demand."""
    unknown = w.frame.select("job", reason=pl.lit("never started, or unknown when")).filter(
        pl.Series(np.isnan(begin) | np.isnan(until))
    )
    return Coverage.of(run_times(w, "hold", 0), unknown, "counted")


def _parts(w: Workload, by: By | None) -> tuple[Ints, tuple[str, ...]]:
    """Which part each job is of; the largest by themselves, by how many instances they have."""
    if by is None:
        return np.zeros(len(w), dtype=np.int64), (ALL,)
    if by not in get_args(By):
        raise WorkloadError(f"cannot split demand by: `{by}`", hint=f"there are {', '.join(get_args(By))}")
    column = pl.col(COLUMN[by])
    name = column.list.join("|").replace("", None) if by == "gpu_type" else column.cast(pl.String)
    named = w.frame.select(name.alias("part"), "instances")
    if named["part"].null_count() == len(w):
        raise WorkloadError(f"{w.source}: no job names its {by}", hint="omit --by, or use another column")
    named = named.with_columns(pl.col("part").fill_null(NONE))
    size = (
        named.group_by("part")
        .agg(pl.col("instances").cast(pl.Int64).sum())
        .sort("instances", "part", descending=[True, False])
    )
    largest = size["part"].to_list() if size.height <= MOST + 1 else [*size["part"].head(MOST), OTHERS]
    where = {name: k for k, name in enumerate(largest)}
    part = [where.get(name, len(largest) - 1) for name in named["part"]]
    return np.array(part, dtype=np.int64), tuple(largest)


def _numbered(names: pl.Series) -> tuple[Ints, list[str]]:
    filled = names.fill_null("")
    listed = sorted(set(filled))
    where = {name: k for k, name in enumerate(listed)}
    return np.array([where[name] for name in filled], dtype=np.int64), listed


def _notes(w: Workload, requested: Floats, begin: Floats, until: Floats) -> tuple[str, ...]:
    older, alive = int(np.isnan(requested).sum()), int(np.isposinf(until).sum())
    ran = w.frame["status"].cast(pl.String).is_in(RAN).to_numpy()
    unknown = int((ran & (np.isnan(begin) | np.isnan(until))).sum())
    notes = []
    if older:
        notes.append(f"{older:,} jobs are older than the trace: allocated from its start, not counted as requests")
    if alive:
        notes.append(f"{alive:,} jobs still run at its end: allocated until then")
    if unknown:
        notes.append(f"{unknown:,} jobs that ran have no known start or end: not in the level")
    if w.frame["start"].null_count() == len(w):
        notes.append("no job has a start: the level counts from submission, ignoring waits")
    return tuple(notes)
