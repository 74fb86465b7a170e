"""The first screen: a real queue, its reasons, what would fix it, and what the real scheduler measured of that."""

from dataclasses import replace

import polars as pl
import pytest

from fleetlab.commands.demo import _next as next_steps
from fleetlab.commands.demo import lines
from fleetlab.core.data import open_trace
from fleetlab.studies.demo import _fixes as fixes
from fleetlab.studies.demo import demo


@pytest.fixture(scope="module")
def sample():
    return demo("sample")


def test_the_first_fix_is_a_line_of_configuration_that_halves_the_wait(sample):
    first = sample.fixes[0]
    assert first.line.startswith("SchedulerParameters=")
    assert first.mean_wait < sample.mean_wait / 2


def test_the_line_is_the_one_that_the_real_slurm_was_measured_with(sample):
    changed = open_trace("sample:changed").scheduler
    proposed = sample.scenario.scheduler.compare_config(sample.fixes[0].line, sample.scenario.cluster).scheduler
    assert (proposed.main, proposed.backfill) == (changed.main, changed.backfill)
    assert sample.measured == pytest.approx(sample.fixes[0].mean_wait, rel=0.1)


def test_two_fixes_at_once_help_more_than_each_and_come_last(sample):
    *alone, both = sample.fixes
    assert both.parts == [fix.change for fix in alone]
    assert both.mean_wait < min(fix.mean_wait for fix in alone)


def test_numbers_rest_on_paired_replicas(sample):
    assert all(f.replicas >= 5 for f in sample.records)
    assert all(f.verdict == "better" for f in sample.records)


def test_the_screen_is_one_screen_with_bars_and_the_line_to_copy(sample):
    text = [*lines(sample), *next_steps("sample")]
    assert len(text) <= 40
    assert max(map(len, text)) <= 100
    assert any(sample.fixes[0].line == line.strip() for line in text)
    assert any("real Slurm" in line for line in text)


def test_the_commands_to_type_next_name_the_log_that_was_given():
    text = list(next_steps("/data/our cluster/of a long name/sacct.txt"))
    assert max(map(len, text)) <= 100
    assert any(line.strip() == "fleetlab explain '/data/our cluster/of a long name/sacct.txt'" for line in text)


def test_several_changes_at_once_are_no_fix_where_one_of_them_does_the_same(sample):
    changes = sample.frames["changes"]
    both, waits = pl.col("change").str.contains("+", literal=True), pl.col("mean wait")
    same = changes.with_columns(
        pl.when(both).then(changes.filter(~both)["mean wait"].min()).otherwise(waits).alias("mean wait")
    )
    assert all(len(fix.parts) == 1 for fix in fixes(replace(sample, frames=sample.frames | {"changes": same})))
