"""A trace as the sections of a profile see it, with measured usage joined to requests."""

from __future__ import annotations

from collections.abc import Mapping
from dataclasses import dataclass
from functools import cached_property
from typing import Final

import numpy as np
import polars as pl

from fleetlab.core import Trace
from fleetlab.core.catalog import RESOURCES
from fleetlab.core.workload import LOST_ENDS
from fleetlab.describe.curves import Bools, Ecdf, ecdf
from fleetlab.stats import BlockBootstrap, Floats, Ints

# What it is called: its column, how many of it make one, and the unit of one.
AMOUNTS: Final = {
    "GPUs": ("gpu_milli", 1000.0, "GPUs"),
    "CPUs": ("cpu_milli", 1000.0, "CPUs"),
    "memory": ("memory_mib", 1024.0, "GiB"),
}


def _columns(usage: pl.LazyFrame) -> list[str]:
    there = usage.collect_schema().names()
    return [column for column, _, _ in AMOUNTS.values() if column in there and "job" in there]


def used_by_job(usage: pl.LazyFrame | None, jobs: pl.DataFrame) -> pl.DataFrame | None:
    """What an instance of each job used on average, in the order of the jobs; null where no sensor saw it."""
    if usage is None or not (columns := _columns(usage)):
        return None
    means = usage.group_by("job", maintain_order=True).agg(pl.col(columns).cast(pl.Float64).fill_nan(None).mean())
    return jobs.select("job").join(means.collect(), on="job", how="left", maintain_order="left")


def used_by_row(usage: pl.LazyFrame | None, jobs: pl.DataFrame) -> pl.DataFrame | None:
    """One row a sensor row, with what its job requested, and `weight`: the instances that it stands for."""
    if usage is None or not (columns := _columns(usage)):
        return None
    rows = usage.select("job", pl.col(columns).cast(pl.Float64).fill_nan(None)).collect()
    requested = jobs.select("job", "submit", "instances", pl.col(columns).name.prefix("asked_"))
    counts = rows.group_by("job").agg(pl.len().alias("rows"))
    joined = rows.join(requested, on="job", maintain_order="left").join(counts, on="job", maintain_order="left")
    return joined.with_columns(weight=pl.col("instances") / pl.col("rows")).drop("instances", "rows")


HOUR = 3600
WHOLE = 1000  # milli of one GPU
# Of a GPU, an instance: as the PAI paper cuts it.
REQUESTS = ("<0.25", "[0.25,0.5)", "[0.5,1)", "1", ">1")
CPU_ONLY, ANY = "CPU only", "any"
USER_CLASSES = ("top 5 %", "between", "bottom half")
TOP = 0.05  # of users
MOST_TYPES = 8  # of GPU types, the most requested; others are not drawn
OPEN = LOST_ENDS
# Columns that no section reads.
UNUSED = tuple(r.request for r in RESOURCES if r.name not in ("cpu", "memory", "gpu"))


@dataclass(frozen=True, eq=False)
class TraceView:
    """The jobs of a trace with what follows from their columns; arrays have one entry a job."""

    trace: Trace
    seed: int

    @cached_property
    def frame(self) -> pl.DataFrame:
        """The workload with `wait`, `request`, `type` and `older`."""
        f = self.trace.workload.frame
        wait = pl.col("start") - pl.col("submit")
        milli = pl.col("gpu_milli")
        request = (
            pl.when(milli == 0).then(pl.lit(CPU_ONLY)).when(milli < 250).then(pl.lit(REQUESTS[0]))
            .when(milli < 500).then(pl.lit(REQUESTS[1])).when(milli < WHOLE).then(pl.lit(REQUESTS[2]))
            .when(milli == WHOLE).then(pl.lit(REQUESTS[3])).otherwise(pl.lit(REQUESTS[4]))
        )  # fmt: skip
        return f.drop("parent", "priority", *UNUSED).with_columns(
            wait=pl.when((wait >= 0) & ~pl.col("initial")).then(wait),
            request=request.cast(pl.Enum([CPU_ONLY, *REQUESTS])),
            type=self._types(),
            older=self._older(),
        )

    @staticmethod
    def _older() -> pl.Expr:
        """Older than the log: its submission was not seen, so it stands at 0 and has no start."""
        has_run = pl.col("start").is_not_null() | pl.col("runtime").is_not_null()
        return (pl.col("submit") == 0) & has_run.not_() & pl.col("status").is_in(["waiting", "cancelled"]).not_()

    def _types(self) -> pl.Series:
        """The GPU type a job was given, where the log says; else the one it may use; else `any`, or several."""
        f, names = self.trace.workload.frame, self.trace.names
        requested = pl.col("gpu_types")
        name = pl.when(requested.list.len() == 0).then(pl.lit(ANY)).otherwise(requested.list.join("|"))
        types = f.select(pl.when(pl.col("gpu_milli") > 0).then(name).otherwise(pl.lit(CPU_ONLY)).alias("type"))
        if names is not None and "gpu_type" in names.collect_schema().names():
            assigned = f.select("job").join(
                names.select("job", "gpu_type").collect(), on="job", how="left", maintain_order="left"
            )
            on_gpu = (f["gpu_milli"] > 0) & assigned["gpu_type"].is_not_null()
            types = types.with_columns(pl.when(on_gpu).then(assigned["gpu_type"]).otherwise("type").alias("type"))
        return types["type"].cast(pl.Categorical)

    # -- columns as arrays -------------------------------------------------------------------------------------------

    def floats(self, column: str) -> Floats:
        """A column of numbers, not a number where it is unknown."""
        return self.frame[column].cast(pl.Float64).fill_null(np.nan).to_numpy()

    def is_(self, column: str, value: str) -> Bools:
        """Which jobs have this value."""
        return (self.frame[column] == value).fill_null(value=False).to_numpy()

    @cached_property
    def role(self) -> str | None:
        """What `group` means in a trace of services, where groups are not jobs that recur."""
        series = self.trace.series
        return "role" if "limits" in series else "kind" if "requests" in series else None

    @cached_property
    def gangs(self) -> bool:
        """Has any job more than one instance?"""
        return bool(self.instances.max(initial=1) > 1)

    @cached_property
    def submit(self) -> Floats:
        """Submission times, s."""
        return self.floats("submit")

    @cached_property
    def runtime(self) -> Floats:
        """Runtimes, s."""
        return self.floats("runtime")

    @cached_property
    def wait(self) -> Floats:
        """Waits, s."""
        return self.floats("wait")

    @cached_property
    def instances(self) -> Floats:
        """Instances of each job."""
        return self.floats("instances")

    @cached_property
    def milli(self) -> Floats:
        """GPU milli of an instance."""
        return self.floats("gpu_milli")

    @cached_property
    def gpu(self) -> Bools:
        """Which jobs ask for a GPU."""
        return self.milli > 0

    # -- time --------------------------------------------------------------------------------------------------------

    @cached_property
    def span(self) -> float:
        """Seconds from the first to the last submission."""
        return float(self.submit.max(initial=0.0))

    @cached_property
    def end(self) -> float:
        """The last moment that the log knows of."""
        times = [np.nanmax(x, initial=0.0) for x in (self.submit, self.floats("start"), self.floats("end"))]
        return float(max(times))

    @cached_property
    def blocks(self) -> BlockBootstrap:
        """The blocks of time that jobs were submitted in, from which intervals are resampled."""
        return self.blocks_at(self.submit)

    def blocks_at(self, times: Floats) -> BlockBootstrap:
        """The same blocks, for values at other times."""
        return BlockBootstrap.of_times(times, self.span)

    @cached_property
    def local(self) -> Floats:
        """Seconds since 1970 on the clock people lived by, or since the first submission where that is not known."""
        w = self.trace.workload
        if w.epoch is None:
            return self.submit
        moments = pl.from_epoch(((self.frame["submit"] + w.epoch) * 1e6).cast(pl.Int64), time_unit="us")
        local = moments.dt.replace_time_zone("UTC").dt.convert_time_zone(w.zone or "UTC").dt.replace_time_zone(None)
        return local.dt.epoch("us").to_numpy() / 1e6

    @cached_property
    def local_hour(self) -> Ints:
        """The same in whole hours."""
        return (self.local // HOUR).astype(np.int64)

    @property
    def clocked(self) -> bool:
        """Is the hour of the day known?"""
        return self.trace.workload.epoch is not None

    @cached_property
    def open_logs(self) -> float:
        """Of the running jobs, the share that would have to be older than any job that ended took."""
        running = self.is_("status", "running") & np.isfinite(self.floats("start"))
        longest = np.nanmax(self.runtime, initial=0.0)
        return float((self.end - self.floats("start")[running] > longest).mean()) if running.any() else 0.0

    @cached_property
    def held_until(self) -> Floats:
        """When a job released its resources: at its end, or at the end of the log if it still runs."""
        start, end = self.floats("start"), self.floats("end")
        end = np.where(np.isfinite(end), end, start + self.runtime)
        alive = self.is_("status", "running") & ~np.isfinite(end) & np.isfinite(start)
        return np.where(alive, self.end, end) if self.open_logs <= OPEN else end

    @cached_property
    def used(self) -> pl.DataFrame | None:
        """What an instance of each job used."""
        return used_by_job(self.trace.usage, self.frame)

    # -- classes -----------------------------------------------------------------------------------------------------

    @cached_property
    def types(self) -> list[str]:
        """GPU types by how many jobs ask for them."""
        requested = self.frame.filter(pl.col("gpu_milli") > 0)["type"].cast(pl.String)
        counted = requested.value_counts().sort("count", "type", descending=[True, False])
        return counted["type"].head(MOST_TYPES).to_list()

    def by(self, what: str) -> dict[str, Bools]:
        """Which jobs are of each class: by `request`, `type`, `length` or `user`."""
        return {"request": self._requests, "type": self._types_of_jobs, "length": self._lengths, "user": self._users}[
            what
        ]

    @cached_property
    def _requests(self) -> dict[str, Bools]:
        return {name: self.is_("request", name) for name in REQUESTS}

    @cached_property
    def _types_of_jobs(self) -> dict[str, Bools]:
        return {name: self.is_("type", name) for name in self.types}

    @cached_property
    def _lengths(self) -> dict[str, Bools]:
        return self.lengths()

    def lengths(self, weights: Floats | None = None) -> dict[str, Bools]:
        """Short ones run for the median runtime or less: of jobs, or by weight, as of instances."""
        order, finite = self._order(self.runtime), int(np.isfinite(self.runtime).sum())
        if not finite:
            return {name: np.zeros(len(self.runtime), dtype=bool) for name in ("short", "long")}
        sums = np.cumsum(np.ones(finite) if weights is None else weights[order[:finite]])
        middle = self.runtime[order[min(int(np.searchsorted(sums, sums[-1] / 2)), finite - 1)]]
        return {"short": self.runtime <= middle, "long": self.runtime > middle}

    @cached_property
    def _users(self) -> dict[str, Bools]:
        """By how many instances their user submitted."""
        named = self.frame.select("user", pl.col("instances").cast(pl.Int64)).drop_nulls("user")
        sums = named.group_by("user", maintain_order=True).agg(pl.col("instances").sum())
        ranked = sums.sort("instances", descending=True, maintain_order=True).with_columns(rank=pl.int_range(pl.len()))
        top, half = max(1, round(TOP * sums.height)), sums.height - sums.height // 2
        kind = pl.when(pl.col("rank") < top).then(0).when(pl.col("rank") < half).then(1).otherwise(2)
        of = self.frame.select("user").join(
            ranked.select("user", kind=kind), on="user", how="left", maintain_order="left"
        )
        codes = of["kind"].fill_null(-1).to_numpy()
        return {name: codes == k for k, name in enumerate(USER_CLASSES)}

    # -- curves ------------------------------------------------------------------------------------------------------

    @cached_property
    def _orders(self) -> dict[int, tuple[Floats, Ints]]:
        return {}

    def _order(self, values: Floats) -> Ints:
        """What sorts the values: runtimes and waits are sorted many times, so theirs is cached."""
        if values is not self.runtime and values is not self.wait:
            return np.argsort(values)
        if id(values) not in self._orders:
            self._orders[id(values)] = values, np.argsort(values)
        return self._orders[id(values)][1]

    def ecdf(
        self, series: str, values: Floats, *, weights: Floats | None = None, where: Bools | None = None
    ) -> list[Ecdf]:
        """The distribution of a value of jobs, or nothing if none has it."""
        return self.curves(values, {series: where}, weights=weights)

    def curves(
        self, values: Floats, classes: Mapping[str, Bools | None], *, weights: Floats | None = None
    ) -> list[Ecdf]:
        """The same, one for each class that has it."""
        order = self._order(values)
        curves = [
            ecdf(name, values, weights=weights, where=where, blocks=self.blocks, order=order)
            for name, where in classes.items()
        ]
        return [c for c in curves if c is not None]
