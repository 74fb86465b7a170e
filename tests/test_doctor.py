"""What can run on this machine: read off the machine, and said in words."""

import json
import platform

import pytest

from fleetlab.commands import doctor


def without(monkeypatch, *packages):
    """Hide packages, as if all others were installed."""
    monkeypatch.setattr(doctor, "_version", lambda package: "" if package in packages else "1.0")


def runs(command):
    """Whether a command can run here, and what it lacks."""
    found = doctor.examined().tables()["commands"]
    return found.filter(found["commands"].str.contains(rf"\b{command}\b")).select("runs", "lacks").row(0)


def test_the_command_names_versions_cores_and_the_extras_that_are_there(command):
    done = command("doctor", "--json")
    told = json.loads(done.stdout)
    machine = {row["what"]: row["value"] for row in told["tables"]["machine"]}
    assert machine["Python"] == platform.python_version()
    assert int(machine["cores"]) >= 1
    extras = {row["extra"]: row["missing"] for row in told["tables"]["extras"]}
    assert extras["web"] == ""  # what the tests need is installed


def test_a_missing_package_is_named_with_the_command_that_installs_it(monkeypatch):
    without(monkeypatch, "optuna")
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


def test_a_command_without_its_extra_cannot_run(monkeypatch):
    without(monkeypatch, "uvicorn")
    assert runs("web") == ("no", "extra web")


def test_a_command_that_does_less_without_its_extra_says_what_is_left(monkeypatch):
    without(monkeypatch, "ortools")
    assert runs("plan") == ("by heuristics, with simple bounds", "extra optimize")


def test_a_suite_is_rehearsed_where_there_is_no_gpu(monkeypatch, tmp_path):
    without(monkeypatch)
    monkeypatch.setenv("PATH", str(tmp_path))
    assert runs("suite") == ("rehearsed on the CPU", "an NVIDIA GPU")


def test_a_suite_cannot_be_rehearsed_without_torch(monkeypatch, tmp_path):
    without(monkeypatch, "torch")
    monkeypatch.setenv("PATH", str(tmp_path))
    assert runs("suite") == ("no", "extra bench, an NVIDIA GPU")


def test_a_cluster_cannot_be_collected_without_its_programs(monkeypatch, tmp_path):
    without(monkeypatch)
    monkeypatch.setenv("PATH", str(tmp_path))
    assert runs("collect kubernetes") == ("no", "kubectl")


def test_a_torch_for_cpus_beside_a_gpu_is_said(smi, monkeypatch):
    monkeypatch.setattr(doctor, "_version", lambda package: "2.13.0+cpu")
    assert "the installed torch is a build for CPUs: it sees no GPU" in doctor.examined().findings


def test_every_named_command_is_one_of_the_command_line():
    from fleetlab.cli import app

    named = {word for work in doctor.WORKS for part in work.commands.split(", ") for word in part.split()[:1]}
    assert {word for word in named if not word.startswith("--")} - set(app) == BENCH


BENCH = {"all", "isolation", "stress", "serve", "load"}  # of `bench`, which is named once
