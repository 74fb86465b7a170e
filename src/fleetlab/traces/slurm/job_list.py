"""The job list that Helios and Acme share: one row a job, with the words of Slurm's accounting.

`gpu_num` and `cpu_num` are of the whole job. Where its nodes hold the same number of GPUs each, an instance is a node's
part; where they cannot, an instance is one GPU. `duration`, `queue` and `gpu_time` follow from the times (and in one
of the published files do not), so they are not read.
"""

from __future__ import annotations

import polars as pl

from fleetlab.traces.input.intake import Rule
from fleetlab.traces.slurm.states import STATUS

COLUMNS: dict[str, type[pl.DataType]] = {
    "job_id": pl.String,
    "user": pl.String,
    # Written as 8 or as 8.0, as pandas does where a column has gaps.
    "gpu_num": pl.Float64,
    "cpu_num": pl.Float64,
    "node_num": pl.Float64,
    "state": pl.String,
    "submit_time": pl.String,
    "start_time": pl.String,
    "end_time": pl.String,
}

NO_TIME = ["None", "Unknown", "NaT", "nan", "NaN"]
TIMES = ("submit", "start", "end")
MOST = {"gpu_num": 1_000_000, "node_num": 1_000_000, "cpu_num": 1_000_000_000}


def null_missing_times(records: pl.DataFrame) -> pl.DataFrame:
    """Where a stamp is a word for no time, let there be nothing; a state is its first word."""
    stamps = [pl.when(pl.col(f"{t}_time").is_in(NO_TIME).not_()).then(pl.col(f"{t}_time")) for t in TIMES]
    # Slurm writes «CANCELLED by 1001».
    return records.with_columns(*stamps, state=pl.col("state").str.strip_chars().str.split(" ").list.first())


def _read_as_time() -> list[Rule]:
    return [
        (f"`{t}_time` is not a time", pl.col(f"{t}_time").is_not_null() & pl.col(t).is_null(), f"{t}_time")
        for t in TIMES
    ]


RULES: list[Rule] = [
    ("no job_id", pl.col("job_id").is_null()),
    ("duplicate job_id", ~pl.col("job_id").is_first_distinct(), "job_id"),
    ("`gpu_num` is missing", pl.col("gpu_num").is_null()),
    *[(f"`{c}` is not a whole number", (pl.col(c).is_finite() & (pl.col(c) % 1 == 0)).not_(), c) for c in MOST],
    *[(f"`{c}` is negative", pl.col(c) < 0, c) for c in MOST],
    *[(f"`{c}` is more than any cluster has", pl.col(c) > most, c) for c, most in MOST.items()],
    ("unknown state", pl.col("state").is_in(list(STATUS)).fill_null(value=False).not_(), "state"),
    *_read_as_time(),
    ("no submit_time", pl.col("submit").is_null()),
    ("started before it was submitted", pl.col("start") < pl.col("submit"), "start_time"),
    ("ended before it was started", pl.col("end") < pl.col("start"), "end_time"),
    ("ended before it was submitted", pl.col("end") < pl.col("submit"), "end_time"),
]


def jobs(records: pl.DataFrame) -> pl.DataFrame:
    """The columns of a workload that both have, times still as they are; `job_id` is kept for `names`."""
    counts = records.with_columns(pl.col(c).cast(pl.Int64) for c in MOST)
    gang = counts.with_columns(instances=_instances(), status=pl.col("state").replace_strict(STATUS))
    ended = pl.col("status").is_in(["running", "waiting"]).not_()
    end = pl.when(ended).then(pl.col("end"))
    return gang.with_columns(
        cpu_milli=pl.col("cpu_num").fill_null(0) * 1000 // pl.col("instances"),
        gpu_milli=pl.col("gpu_num") * 1000 // pl.col("instances"),
        runtime=end - pl.col("start"),
        start=pl.when(pl.col("status") != "waiting").then(pl.col("start")),
        end=end,
    )


def _instances() -> pl.Expr:
    gpus, nodes = pl.col("gpu_num"), pl.col("node_num")
    even = (nodes > 0) & (gpus % nodes == 0)
    return pl.when(even).then(nodes).otherwise(pl.max_horizontal(gpus, 1))


def missing_notes(frame: pl.DataFrame) -> list[str]:
    """What to say of jobs whose row did not say all."""
    unsaid = frame["cpu_num"].null_count()
    return [f"jobs without a number of CPUs, set to 0: {unsaid:,}"] if unsaid else []
