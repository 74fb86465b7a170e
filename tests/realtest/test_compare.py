"""Our schedule beside a recorded one."""

import polars as pl
import pytest
from realtest.compare import row, starts, table

JOBS = pl.DataFrame(
    {
        "real": [10.0, 20.0, 40.0, 5.0],
        "simulated": [10.0, 23.0, 60.0, 5.0],
        "real_wait": [10.0, 20.0, 40.0, 5.0],
        "simulated_wait": [10.0, 23.0, 60.0, 5.0],
    }
)


def test_a_line_says_how_far_starts_are_apart():
    assert row("x", JOBS).startswith("| x | 4 | 18.8 | 1.307 |")
    assert "| 50% | 75% | 5.8 |" in row("x", JOBS)


def test_jobs_that_started_in_both_are_matched(fixtures):
    jobs = starts(fixtures / "slurm" / "good", backfill="conservative")
    assert jobs.height > 0
    assert jobs["real_wait"].null_count() == 0
    assert jobs.select((pl.col("simulated") - pl.col("real")).sum()).item() == pytest.approx(
        jobs.select((pl.col("simulated_wait") - pl.col("real_wait")).sum()).item()
    )


def test_each_run_has_a_line(fixtures):
    assert "| good |" in table([fixtures / "slurm" / "good"], backfill="conservative")
