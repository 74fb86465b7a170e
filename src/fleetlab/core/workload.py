"""The workload: one row a job, checked once and never changed after."""

from __future__ import annotations

import math
from dataclasses import dataclass, replace
from typing import TYPE_CHECKING
from zoneinfo import ZoneInfo

import numpy as np
import polars as pl
from numpy.typing import NDArray

from fleetlab.core import columns as column_types
from fleetlab.core import resample
from fleetlab.core.catalog import REQUESTS
from fleetlab.core.cells import Framed, as_polars, noun_cell
from fleetlab.core.errors import WorkloadError

if TYPE_CHECKING:
    import pandas

STATUS = pl.Enum(["completed", "failed", "cancelled", "running", "waiting"])

SCHEMA: dict[str, pl.DataType] = {
    "job": pl.Int64(),
    "parent": pl.Int64(),
    "user": pl.Categorical(),
    "group": pl.Categorical(),
    "app": pl.Categorical(),
    "submit": pl.Float64(),
    "eligible": pl.Float64(),
    "runtime": pl.Float64(),
    "runtime_at_least": pl.Float64(),
    "instances": pl.Int32(),
    **{name: pl.Int32() if name == "gpu_milli" else pl.Int64() for name in REQUESTS},
    "gpu_types": pl.List(pl.String()),
    "partitions": pl.List(pl.String()),
    "constraint": pl.String(),
    "reservation": pl.String(),
    "max_per_node": pl.Int32(),
    "distinct_nodes": pl.Boolean(),
    "exclusive": pl.Boolean(),
    "requeue": pl.Boolean(),
    "queue": pl.Categorical(),
    "qos": pl.Categorical(),
    "priority": pl.Int32(),
    "nice": pl.Int32(),
    "limit": pl.Float64(),
    "depends_on": pl.List(pl.Int64()),
    "dependency": pl.List(pl.String()),
    "gang": pl.Int64(),
    "array": pl.Int64(),
    "array_limit": pl.Int32(),
    "status": STATUS,
    "start": pl.Float64(),
    "end": pl.Float64(),
    "initial": pl.Boolean(),
}


LOST_ENDS = 0.1  # of the running jobs: more would have run longer than any other, so their ends are lost
ENOUGH = 20  # running jobs, to say so
SYNTHETIC = "synthesize:"  # how the source of a generated workload begins
OWNERS = ("user", "group")
DELAY = pl.coalesce("eligible", "submit") - pl.col("submit")  # null: at once
NO_TYPES = pl.lit([], dtype=pl.List(pl.String()))

# What a log that does not say is taken to mean. `parent` is absent here: without one, each job is its own parent.
DEFAULTS: dict[str, pl.Expr] = {
    "user": pl.lit(None),
    "group": pl.lit(None),
    "app": pl.lit(None),
    "eligible": pl.lit(None),
    "runtime": pl.lit(None),
    "instances": pl.lit(1),
    **dict.fromkeys(REQUESTS, pl.lit(0)),
    "gpu_types": NO_TYPES,
    "partitions": NO_TYPES,
    **dict.fromkeys(("constraint", "reservation", "requeue", "queue", "qos", "limit", "gang", "array"), pl.lit(None)),
    "max_per_node": pl.lit(0),
    "distinct_nodes": pl.lit(value=False),
    "exclusive": pl.lit(value=False),
    "priority": pl.lit(0),
    "nice": pl.lit(0),
    "depends_on": pl.lit([], dtype=pl.List(pl.Int64())),
    "dependency": NO_TYPES,
    "array_limit": pl.lit(0),
    "status": pl.lit("completed"),
    "start": pl.lit(None),
    "end": pl.lit(None),
    "initial": pl.lit(value=False),
}

TIMES = ("submit", "eligible", "runtime", "runtime_at_least", "limit", "start", "end")
NULL_ALLOWED = {
    *("user", "group", "app", "eligible", "runtime", "runtime_at_least", "start", "end"),
    *("constraint", "reservation", "requeue", "queue", "qos", "limit", "gang", "array"),
}
# What a dependency waits for: that the other job has started (or did so many minutes ago: after+5), has ended, has
# ended well, or has not; with a question mark, one of all those of the job is enough.
DEPENDENCY = r"^(after(\+\d{1,9})?|afterany|afterok|afternotok)\??$"


def _gpu_demand() -> pl.Expr:
    return (pl.col("gpu_milli") < 1000) | (pl.col("gpu_milli") % 1000 == 0)


# Each law: what to say of a row that breaks it, and the expression that holds for every good row.
LAWS: list[tuple[str, str, pl.Expr]] = [
    *[(name, "is not finite", pl.col(name).is_finite()) for name in TIMES],
    *[(name, "is negative", pl.col(name) >= 0) for name in ("submit", "runtime", "runtime_at_least")],
    ("end", "is before its start", pl.col("end") >= pl.col("start")),
    ("eligible", "is before its submission", pl.col("eligible") >= pl.col("submit")),
    ("submit", "is not 0, though the job was there when the log began", ~pl.col("initial") | (pl.col("submit") == 0)),
    ("instances", "is below 1", pl.col("instances") >= 1),
    *[(name, "is negative", pl.col(name) >= 0) for name in (*REQUESTS, "max_per_node", "array_limit", "limit")],
    ("gpu_milli", "is neither a share of one GPU nor a multiple of 1000", _gpu_demand()),
    ("gpu_types", "names a type that is missing", pl.col("gpu_types").list.eval(pl.element().is_not_null()).list.all()),
    (
        "dependency",
        "is not a rule for each job that it depends on",
        (pl.col("dependency").list.len() == pl.col("depends_on").list.len())
        & pl.col("dependency").list.eval(pl.element().str.contains(DEPENDENCY)).list.all(),
    ),
]


@dataclass(frozen=True, slots=True)
class Workload(Framed):
    """Jobs in arrival order, checked once and never changed after.

    Parameters
    ----------
    frame
        One row a job. A job may not start before it is `eligible`: after its begin time and hold (null: at once); and
        not before the jobs that it `depends_on` have ended as the rule in `dependency` says. Without those, `eligible`
        holds what the log saw of them. It runs on nodes in one of its `partitions` (none named: any) whose features
        meet its `constraint`, an expression of names with &, | and parentheses. Jobs of one `gang` start together; of
        one `array`, at most `array_limit` run at once (0: all). `distinct_nodes` puts each instance on a node of its
        own, `exclusive` takes whole nodes. A job that loses a node, or is preempted, runs again if `requeue` says so,
        else it has ended (null: the scheduler decides). A job that is `initial` was there when the log began, submitted
        at a time that it does not tell: running, or pending where the log saw it start. `runtime_at_least` is how long
        a job of unknown runtime was seen to run.
    source
        Where the jobs are from, for provenance.
    epoch
        The Unix time of second 0, where the log tells it.
    zone
        The clock people there lived by: with `epoch` it gives an hour of the day and a weekday to every `submit`.
    notes
        What to know of them.

    Examples
    --------
    >>> Workload.of(pl.DataFrame({"submit": [0.0, 5.0], "gpu_milli": [500, 8000]}), source="by hand").instances
    2
    """

    frame: pl.DataFrame
    source: str
    epoch: float | None = None
    zone: str | None = None
    notes: tuple[str, ...] = ()

    @classmethod
    def of(
        cls,
        frame: pl.DataFrame | pandas.DataFrame,
        *,
        source: str,
        epoch: float | None = None,
        zone: str | None = None,
        notes: tuple[str, ...] = (),
    ) -> Workload:
        """Build one: cast to the schema, order by (submit, source order), number the jobs, refuse what cannot be.

        Parameters
        ----------
        frame
            One row a job, of Polars or pandas, whose index is left out. Only `submit` must be there; other columns take
            their defaults. Times are seconds from the first submission; `gpu_milli` is per instance, 1000 for a whole
            GPU.
        source
            Where the jobs are from, for provenance and errors.
        epoch
            The Unix time of second 0.
        zone
            The time zone, such as Europe/Berlin.
        notes
            What to know of them.

        Returns
        -------
        Workload
            The jobs, checked.

        Raises
        ------
        WorkloadError
            If a column is unknown, or a job cannot be: a negative time, an end before its start and so on.

        Examples
        --------
        >>> w = Workload.of(pl.DataFrame({"submit": [0.0, 5.0], "gpu_milli": [500, 8000]}), source="by hand")
        >>> w
        <Workload 2 jobs, 2 instances, by hand>
        """
        frame = as_polars(frame)
        _check_columns(frame, source)
        _clock(epoch, zone, source)
        has_initial = "initial" in frame.columns
        frame = column_types.cast(_filled(frame), SCHEMA, source=source, noun="workload")
        if not has_initial:
            frame = frame.with_columns(initial=older(frame))
        if "runtime_at_least" not in frame.columns:
            frame = frame.with_columns(runtime_at_least=censored(frame))
        if "job" not in frame.columns:
            frame = frame.with_columns(job=pl.int_range(pl.len(), dtype=pl.Int64))
        frame = numbered(frame.sort(pl.col("initial").not_(), "submit", maintain_order=True)).select(list(SCHEMA))
        _obeys(frame, source)
        return cls(frame, source, epoch, zone, notes)

    def __len__(self) -> int:
        return self.frame.height

    def _repr_html_(self) -> str:
        columns = [column for column in self.frame.columns if self.frame[column].null_count() < self.frame.height]
        return noun_cell(repr(self).strip("<>"), {"jobs": self.frame.select(columns)})

    def __repr__(self) -> str:
        return f"<Workload {len(self):,} jobs, {self.instances:,} instances, {self.source}>"

    @property
    def names_owners(self) -> bool:
        """Whether any job names its user or group, from whose finished jobs runtimes can be estimated."""
        return any(self.frame[name].null_count() < len(self) for name in OWNERS)

    @property
    def instances(self) -> int:
        """How many instances all jobs have together."""
        return int(self.frame["instances"].cast(pl.Int64).sum())  # polars adds up in the column's own width

    # -- parts and variations ----------------------------------------------------------------------------------------

    @property
    def instance_rows(self) -> NDArray[np.int64]:
        """The row of each instance of all jobs, in order."""
        return np.repeat(np.arange(len(self)), self.frame["instances"].to_numpy())

    def split_instances(self) -> Workload:
        """Return every instance as a job of its own; those of one job keep its `parent`, and nothing else ties them.

        Returns
        -------
        Workload
            As many jobs as there are instances.

        Examples
        --------
        >>> len(Workload.of(pl.DataFrame({"submit": [0.0], "instances": [3]}), source="by hand").split_instances())
        3
        """
        if self.instances == len(self):
            return self
        frame = self.frame[self.instance_rows].with_columns(instances=pl.lit(1, dtype=SCHEMA["instances"]))
        return replace(self, frame=numbered(frame), source=f"{self.source}, instances apart")

    def head(self, jobs: int) -> Workload:
        """Return the first jobs alone.

        Parameters
        ----------
        jobs
            How many.

        Returns
        -------
        Workload
            The first jobs.

        Examples
        --------
        >>> Workload.of(pl.DataFrame({"submit": [0.0, 5.0]}), source="by hand").head(1)
        <Workload 1 jobs, 1 instances, by hand, first 1 jobs>
        """
        if jobs >= len(self):
            return self
        return replace(self, frame=self.frame.head(jobs), source=f"{self.source}, first {jobs:,} jobs")

    @property
    def synthetic(self) -> bool:
        """Whether it was generated: no row of it is real."""
        return self.source.startswith(SYNTHETIC)

    def window(self, begin: float, end: float) -> Workload:
        """Return the jobs submitted in a window of time; times count from its begin.

        Parameters
        ----------
        begin, end
            From when to before when, in seconds.

        Returns
        -------
        Workload
            Those jobs.

        Examples
        --------
        >>> w = Workload.of(pl.DataFrame({"submit": [0.0, 5.0, 9.0]}), source="by hand")
        >>> w.window(4.0, 9.0).frame["submit"].to_list()
        [1.0]
        """
        submit = pl.col("submit")
        # Jobs that were there when the log began came before a window that begins later.
        inside = (submit >= begin) & (submit < end) & (~pl.col("initial") if begin else pl.lit(value=True))
        frame = self.frame.filter(inside).with_columns(pl.col("submit", "eligible", "start", "end") - begin)
        frame = numbered(frame)
        epoch = None if self.epoch is None else self.epoch + begin
        return replace(self, frame=frame, source=f"{self.source}, {begin:g} to {end:g} s", epoch=epoch)

    def at_load(self, load: float) -> Workload:
        """Return the same jobs at another arrival rate; their order, sizes and runtimes stay.

        Parameters
        ----------
        load
            What the arrival rate is multiplied by.

        Returns
        -------
        Workload
            The jobs, submitted closer together or further apart.

        Raises
        ------
        WorkloadError
            If the load is not a number above 0.

        Examples
        --------
        >>> w = Workload.of(pl.DataFrame({"submit": [0.0, 6.0]}), source="by hand")
        >>> w.at_load(1.5).frame["submit"].to_list()
        [0.0, 4.0]
        """
        if load == 1:
            return self
        if not 0 < load < math.inf:
            msg = f"a load is a number above 0: {load}"
            raise WorkloadError(msg, hint="at_load(1.2) raises the arrival rate by 20 %")
        unknown = pl.lit(None, dtype=pl.Float64)
        pending = pl.when(pl.col("initial") & (pl.col("start") > 0)).then(pl.col("start") / load)
        submit = pl.col("submit") / load
        frame = self.frame.with_columns(submit=submit, eligible=submit + DELAY, start=pending, end=unknown)
        return replace(self, frame=frame, source=f"{self.source}, load {load:g}")

    def resampled(self, seed: int) -> Workload:
        """Return other arrivals of the same kind: blocks of a quarter of a day, each drawn from the same hours.

        Parameters
        ----------
        seed
            Random seed.

        Returns
        -------
        Workload
            About as many jobs.

        Examples
        --------
        >>> w = Workload.of(pl.DataFrame({"submit": [0.0, 6.0]}), source="by hand")
        >>> w.resampled(1).source
        'by hand, resampled with seed 1'
        """
        return self.take(*self.resampled_rows(seed), f"resampled with seed {seed}")

    def resampled_rows(self, seed: int) -> tuple[NDArray[np.int64], NDArray[np.float64]]:
        """Return the rows of other arrivals and when they come; jobs there when the log began stay as they are.

        Parameters
        ----------
        seed
            Random seed.

        Returns
        -------
        tuple of two arrays
            The rows, and the seconds at which their jobs are submitted.

        Examples
        --------
        >>> w = Workload.of(pl.DataFrame({"submit": [0.0, 6.0]}), source="by hand")
        >>> rows, submit = w.resampled_rows(1)
        >>> len(rows) == len(submit)
        True
        """
        there = int(self.frame["initial"].sum())
        rows, submit = resample.blocks(self.frame["submit"].to_numpy()[there:], seed)
        return np.append(np.arange(there), rows + there), np.append(np.zeros(there), submit)

    def grown(self, growth: float, seed: int) -> Workload:
        """Return so many times the jobs: whole user-days are added on other days (or left out), at the same hours.

        Parameters
        ----------
        growth
            How many times the jobs.
        seed
            Random seed.

        Returns
        -------
        Workload
            About so many times the jobs.

        Examples
        --------
        >>> w = Workload.of(pl.DataFrame({"submit": [0.0, 90_000.0], "user": ["a", "b"]}), source="by hand")
        >>> len(w.grown(2.0, seed=1))
        4
        """
        if growth == 1:
            return self
        return self.take(*resample.user_days(self.frame, growth, seed), f"{growth:g} times the jobs")

    def take(self, rows: NDArray[np.int64], submit: NDArray[np.float64], what: str) -> Workload:
        """Return the jobs of these rows, submitted at these times, the first at second 0.

        Parameters
        ----------
        rows
            Which rows; one may be there several times.
        submit
            The seconds at which they are submitted, in ascending order.
        what
            What was done, for provenance.

        Returns
        -------
        Workload
            Those jobs, not started yet.

        Examples
        --------
        >>> w = Workload.of(pl.DataFrame({"submit": [0.0, 6.0]}), source="by hand")
        >>> w.take(np.array([1, 1]), np.array([3.0, 4.0]), "twice the second").frame["submit"].to_list()
        [0.0, 1.0]
        """
        first = float(submit[0]) if len(submit) else 0.0
        when, initial = pl.Series(submit - first), pl.col("initial") & pl.Series(submit == first)
        pending = pl.when(initial & (pl.col("start") > 0)).then("start")  # others start as a policy decides
        frame = self.frame.drop(self.frame.columns[0], "end", "depends_on", "dependency")[rows]
        frame = frame.with_columns(submit=when, eligible=when + DELAY, initial=initial, start=pending)
        epoch = None if self.epoch is None else self.epoch + first
        return Workload.of(frame, source=f"{self.source}, {what}", epoch=epoch, zone=self.zone, notes=self.notes)


def numbered(frame: pl.DataFrame) -> pl.DataFrame:
    """Number the jobs by their rows, also where others depend on them; dependencies on other jobs are dropped."""
    jobs = frame.with_columns(job=pl.int_range(pl.len(), dtype=pl.Int64))
    if not frame["depends_on"].list.len().max():
        return jobs
    links = jobs.select("job", "depends_on", "dependency").explode("depends_on", "dependency").drop_nulls()
    renamed = pl.DataFrame({"depends_on": frame["job"], "now": jobs["job"]})
    links = links.join(renamed, on="depends_on", maintain_order="left")
    lists = links.group_by("job", maintain_order=True).agg(pl.col("now").alias("depends_on"), "dependency")
    jobs = jobs.drop("depends_on", "dependency").join(lists, on="job", how="left", maintain_order="left")
    return jobs.with_columns(pl.col("depends_on", "dependency").fill_null([])).select(frame.columns)


def _check_columns(frame: pl.DataFrame, source: str) -> None:
    if unknown := [c for c in frame.columns if c not in SCHEMA]:
        raise WorkloadError(f"{source}: no such column in a workload: {unknown}", hint=f"there are {', '.join(SCHEMA)}")
    if "submit" not in frame.columns:
        msg = f"{source}: a workload needs the column: `submit`"
        raise WorkloadError(msg, hint="seconds from the first submission, as a number")


def _filled(frame: pl.DataFrame) -> pl.DataFrame:
    frame = frame.with_columns(**{k: v for k, v in DEFAULTS.items() if k not in frame.columns})
    if "parent" not in frame.columns:
        frame = frame.with_columns(parent=pl.int_range(pl.len(), dtype=pl.Int64))
    return frame


def older(frame: pl.DataFrame) -> pl.Expr:
    """Which jobs were there when the log began: it has starts, but not theirs, though they ran from its begin on."""
    some = pl.lit(frame["start"].null_count() < frame.height)
    ran = pl.col("end").is_not_null() | (pl.col("status").cast(pl.String) == "running")
    return some & ran & pl.col("start").is_null() & pl.col("runtime").is_null() & (pl.col("submit") == 0)


def censored(frame: pl.DataFrame) -> pl.Expr:
    """How long jobs of unknown runtime were seen to run: those that run when the log ends, its last known moment.

    Where many of them would have run longer than any job that ended, their ends were not logged: null.
    """
    last = frame.select(pl.max_horizontal(pl.col("submit", "start", "end").max())).item()
    running = (pl.col("status") == "running") & pl.col("runtime").is_null()
    began = pl.when("initial").then(pl.coalesce("start", 0.0)).otherwise("start")
    ran = pl.when(running & began.is_not_null()).then(pl.max_horizontal(pl.lit(last) - began, 0.0))
    longest = pl.col("runtime").max()
    came = frame.filter(~pl.col("initial")).select(ran=ran, older=ran > longest).drop_nulls()
    ends_missing = came.height >= ENOUGH and came["older"].sum() > LOST_ENDS * came.height
    return pl.lit(None, dtype=pl.Float64) if ends_missing else ran


def _clock(epoch: float | None, zone: str | None, source: str) -> None:
    if epoch is not None and not math.isfinite(epoch):
        msg = f"{source}: the Unix time of second 0 is not finite: {epoch}"
        raise WorkloadError(msg, hint="leave `epoch` out where the log does not tell it")
    try:
        ZoneInfo(zone or "UTC")
    except (OSError, ValueError, KeyError):  # a folder of zones, a path, a name that is none
        msg = f"{source}: no time zone by that name: `{zone}`"
        raise WorkloadError(msg, hint="an IANA name, such as Asia/Shanghai or UTC") from None


def _obeys(frame: pl.DataFrame, source: str) -> None:
    for name in SCHEMA:
        if name not in NULL_ALLOWED and frame[name].null_count():
            msg = f"{source}: column `{name}` has missing values: {frame[name].null_count()}"
            raise WorkloadError(msg, hint="give every job a value, or leave the column out to take its default")
    broken = frame.select([law.not_().sum().alias(str(k)) for k, (_, _, law) in enumerate(LAWS)]).row(0)
    for count, (name, what, law) in zip(broken, LAWS, strict=True):
        if count:
            first = frame.filter(law.not_()).row(0, named=True)
            msg = f"{source}: `{name}` {what} in {count:,} jobs, first in job {first['job']}: {first[name]}"
            raise WorkloadError(
                msg, hint="a reader puts such rows into `rejects`; a table made by hand must not have them"
            )
    if frame.height and frame["submit"][0] != 0:
        msg = f"{source}: times do not count from the first submission, which is at: {frame['submit'][0]}"
        raise WorkloadError(msg, hint="subtract the earliest `submit` from submit, start and end")
