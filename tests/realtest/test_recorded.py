"""The recorded runs say what their page says."""

import json
from pathlib import Path

import pytest
from realtest.archives import recorded_runs
from realtest.report import PAGE, with_tables
from realtest.spread import load, tables

import fleetlab

ROOT = Path(__file__).parents[2]
FOLDER = recorded_runs("slurm")
RUNS = sorted(path.parent for path in FOLDER.glob("*/run.json"))


def test_the_tables_of_the_page_are_those_of_the_runs():
    page = (ROOT / PAGE).read_text("utf-8")
    assert with_tables(page, tables(FOLDER)) == page


@pytest.mark.parametrize("run", RUNS, ids=lambda run: run.name)
def test_submissions_were_in_time(run):
    late = json.loads((run / "run.json").read_text())["late"]
    assert late["p99"] < 0.2
    assert late["longest"] < 0.5


@pytest.mark.parametrize("run", [run for run in RUNS if run.name.endswith("-1")], ids=lambda run: run.name)
def test_a_recorded_run_reads_without_a_reject_and_with_every_start(run):
    trace = fleetlab.read(run, "slurm")
    assert trace.rejects.height == 0
    assert trace.workload.frame["start"].is_not_null().sum() == load(run).attempts
