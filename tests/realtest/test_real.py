"""A real Slurm on this host: SETTING=fair JOBS=1000 REPEAT=3 make realtest."""

import json
import os
import subprocess
from dataclasses import replace
from importlib.resources import files
from pathlib import Path

import pytest
from realtest.compare import closeness, is_met, table
from realtest.everything import ALL
from realtest.lab import Lab, missing
from realtest.run import run_setting
from realtest.settings import SETTINGS
from realtest.spread import load, tables

import fleetlab

pytestmark = pytest.mark.slurm
SETTING = os.environ.get("SETTING", "plain")
JOBS = int(os.environ.get("JOBS", "300"))
REPEAT = int(os.environ.get("REPEAT", "1"))
PORT = int(os.environ.get("PORT", "27817"))


@pytest.fixture(scope="module")
def lab(tmp_path_factory):
    """Where the daemons live while the tests run; or a word why they cannot."""
    if reason := missing():
        pytest.skip(f"no real Slurm here: {reason}")
    made = Lab(tmp_path_factory.mktemp("lab"), PORT)
    yield made
    made.down(everything=True)


@pytest.fixture(scope="module")
def runs(lab):
    """As many real runs of a setting as were asked for."""
    out = Path("build/realtest").resolve()
    folders = [out / f"{SETTING}-{number}" for number in range(1, REPEAT + 1)]
    for folder in folders:
        run_setting(ALL[SETTING], lab, folder, JOBS)
    print("\n" + tables(out))
    return folders


def test_every_submission_was_taken_in_time_and_is_in_the_log(runs):
    for folder in runs:
        rows = [json.loads(line) for line in (folder / "submitted.jsonl").read_text().splitlines()]
        assert [row for row in rows if "error" in row] == []
        assert max(row["late"] for row in rows) < 0.5
        assert sum("id" in row for row in rows) >= JOBS


def test_nothing_is_left_out_of_what_is_collected(runs):
    for folder in runs:
        said = (folder / "collect.log").read_text()
        left = [line for line in said.splitlines() if line.startswith("left out") and "sprio" not in line]
        assert left == []


def test_the_folder_reads_as_a_trace_with_every_start(runs):
    for folder in runs:
        trace = fleetlab.read(folder, "slurm")
        assert trace.rejects.height == 0
        assert trace.cluster is not None
        assert trace.workload.frame["start"].is_not_null().sum() == load(folder).attempts


def test_an_ordinary_user_can_collect(lab, tmp_path):
    lab.up(SETTINGS["plain"].cluster(2), replace(SETTINGS["plain"].slurm))
    tmp_path.chmod(0o777)
    for above in tmp_path.parents[:2]:
        above.chmod(0o755)
    script = tmp_path / "collect.sh"
    script.write_text((files("fleetlab.schedulers.slurm.reader") / "collect.sh").read_text())
    words = ["setpriv", "--reuid=ann", "--regid=ann", "--clear-groups", "sh", str(script), "--out", f"{tmp_path}/site"]
    said = subprocess.run(words, env=lab.environment, capture_output=True, text=True, check=False)
    gathered = {file.name for file in (tmp_path / "site").iterdir()}
    assert said.returncode == 0
    assert {"sacct.txt", "config.txt", "nodes.txt", "partitions.txt", "assoc.txt", "qos.txt", "slurm.conf"} <= gathered


def test_waits_of_the_simulated_site_are_those_of_the_real_one(runs):
    pytest.importorskip("fleetlab.schedulers.slurm", reason="no simulation of a site's own scheduler")
    found = [closeness(folder) for folder in runs]
    print("\n" + table(found))
    for (_, close, pairs), *_ in found:
        assert is_met(close, pairs)["mean_ratio"]
