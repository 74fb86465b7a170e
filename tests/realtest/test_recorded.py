"""The recorded runs say what their page says."""

from pathlib import Path

import pytest
from realtest.report import PAGE, with_tables
from realtest.spread import load, tables

import fleetlab

ROOT = Path(__file__).parents[2]
FOLDER = ROOT / PAGE.parent
RUNS = sorted(path.parent for path in FOLDER.glob("*/run.json"))


def test_the_tables_of_the_page_are_those_of_the_runs():
    page = (ROOT / PAGE).read_text("utf-8")
    assert with_tables(page, tables(FOLDER)) == page


@pytest.mark.parametrize("run", RUNS, ids=lambda run: run.name)
def test_no_submission_was_late(run):
    assert load(run).late < 0.3


@pytest.mark.parametrize("run", [run for run in RUNS if run.name.endswith("-1")], ids=lambda run: run.name)
def test_a_recorded_run_reads_without_a_reject_and_with_every_start(run):
    trace = fleetlab.read(run, "slurm")
    assert trace.rejects.height == 0
    assert trace.workload.frame["start"].is_not_null().sum() == load(run).attempts
