"""What can run on this machine: read off the machine, and said in words."""

import json
import platform

import pytest

from fleetlab.commands import doctor


def test_the_command_names_versions_cores_and_the_extras_that_are_there(command):
    done = command("doctor", "--json")
    told = json.loads(done.stdout)
    machine = {row["what"]: row["value"] for row in told["tables"]["machine"]}
    assert machine["Python"] == platform.python_version()
    assert int(machine["cores"]) >= 1
    extras = {row["extra"]: row["missing"] for row in told["tables"]["extras"]}
    assert extras["web"] == ""  # what the tests need is installed


def test_a_missing_package_is_named_with_the_command_that_installs_it(monkeypatch):
    monkeypatch.setattr(doctor, "_has", lambda package: package != "optuna")
    found = doctor.examined()
    assert found.tables()["extras"].filter(extra="tune")["missing"].item() == "optuna"
    assert "`pip install 'fleetlab[tune]'` installs all that is missing" in found.findings


def test_every_extra_that_users_choose_is_listed():
    declared = set(doctor.metadata.metadata("fleetlab").get_all("Provides-Extra"))
    assert set(doctor.EXTRAS) == declared - {"test", "check", "docs", "dev"}


def test_a_gpu_makes_measurements_possible(smi):
    found = doctor.examined()
    assert found.tables()["GPUs"].height == 1
    assert any("can be measured on 1 GPU" in line for line in found.findings)


@pytest.mark.parametrize("name", doctor.PROGRAMS)
def test_programs_are_looked_for_where_the_shell_does(name, monkeypatch, tmp_path):
    (tmp_path / name).write_text("#!/bin/sh\n")
    (tmp_path / name).chmod(0o755)
    monkeypatch.setenv("PATH", str(tmp_path))
    programs = doctor.examined().tables()["programs"]
    assert programs.filter("found")["program"].to_list() == [name]
