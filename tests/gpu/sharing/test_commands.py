"""`fleetlab share …`: answers on stdout, talk on stderr, mistakes as an error, a hint and status 2."""

import json
import os
import subprocess
import sys
from pathlib import Path

import pytest

import fleetlab
from fleetlab.cli import app
from fleetlab.gpu.devices.console import BenchError

pytestmark = pytest.mark.usefixtures("own")


def say(*words):
    app(["share", *words], exit_on_error=False, print_error=False, result_action="return_value")


def tables(capsys):
    return json.loads(capsys.readouterr().out)["tables"]


@pytest.mark.usefixtures("smi")
def test_status_tells_the_card_and_its_modes(capsys):
    say("status", "--json")
    found = tables(capsys)
    assert found["gpus"][0]["name"] == "NVIDIA H200"
    assert [m["name"] for m in found["modes"]] == ["exclusive", "time-slicing", "mps", "green-contexts", "mig"]


def test_status_without_a_card_is_an_answer_and_no_error(capsys, monkeypatch):
    monkeypatch.setenv("PATH", "/nonexistent")
    say("status")
    said = capsys.readouterr().out
    assert said.startswith("gpus 0\n")
    assert "no NVIDIA GPU" in said


def test_a_start_prints_what_a_shell_can_take_over(mps):
    command = [sys.executable, "-m", "fleetlab.cli", "share"]
    shell = f'eval "$({" ".join(command)} start mps --percent 50)" && echo $CUDA_MPS_PIPE_DIRECTORY'
    done = subprocess.run(["sh", "-c", shell], capture_output=True, text=True, timeout=100)
    assert done.stdout.strip() == fleetlab_pipe()
    ended = subprocess.run([*command, "stop", "mps"], capture_output=True, text=True, timeout=100)
    assert (ended.returncode, ended.stderr) == (0, "MPS is stopped\n")


def fleetlab_pipe():
    return str(Path(os.environ["XDG_RUNTIME_DIR"], "fleetlab", "mps", "pipe"))


@pytest.mark.usefixtures("mps")
def test_a_start_for_machines_is_one_object(capsys):
    say("start", "mps", "--json")
    rows = {row["name"]: row["value"] for row in tables(capsys)["environment"]}
    say("stop", "mps")
    assert rows["CUDA_MPS_PIPE_DIRECTORY"] == fleetlab_pipe()


def test_a_command_ends_with_its_own_status():
    words = ["share", "run", "time-slicing", "--", sys.executable, "-c", "print('--json'); raise SystemExit(3)"]
    done = subprocess.run([sys.executable, "-m", "fleetlab.cli", *words], capture_output=True, text=True, timeout=100)
    assert (done.returncode, done.stdout, done.stderr) == (3, "--json\n", "")


def test_layouts_of_a_card_are_listed_with_what_they_leave(capsys):
    say("mig", "layouts", "--model", "H200", "--json")
    rows = {row["layout"]: row for row in tables(capsys)["H200-141"]}
    assert len(rows) == 38
    assert rows["2x3g.71gb"] == {
        "layout": "2x3g.71gb",
        "instances": 2,
        "ways": 1,
        "sms": 120,
        "compute_left": 1,
        "memory_left": 0,
    }


def test_profiles_of_a_known_card_need_no_card(capsys, monkeypatch):
    monkeypatch.setenv("PATH", "/nonexistent")
    say("mig", "profiles", "--model", "A100-80", "--json")
    rows = tables(capsys)["A100-80"]
    assert [(r["profile"], r["sms"], r["most"]) for r in rows][2:4] == [("1g.20gb", 14, 4), ("2g.20gb", 28, 3)]


@pytest.mark.usefixtures("smi")
def test_a_layout_is_checked_on_the_card_that_is_here(capsys):
    say("mig", "check", "7x1g.18gb")
    said = capsys.readouterr().out
    assert "NVIDIA H200" in said
    assert "unused: 0 of 7 compute slices, 1 of 8 memory slices" in said


def test_applying_only_shows_unless_one_insists(smi, capsys, monkeypatch):
    monkeypatch.setattr(os, "geteuid", lambda: 1000)
    say("mig", "apply", "7x1g.18gb")
    said = capsys.readouterr().out
    places = ",".join(f"1g.18gb:{k}" for k in range(7))
    assert f"\n  nvidia-smi mig -i 0 -cgi {places} -C\n" in said
    assert "would be refused now: only root can change MIG" in said
    assert smi.changes == []


def test_a_layout_is_made_and_undone_if_one_insists(smi, capsys, monkeypatch):
    monkeypatch.setattr(os, "geteuid", lambda: 0)
    say("mig", "apply", "2x3g.71gb", "--really", "--json")
    assert [row["profile"] for row in tables(capsys)["devices"]] == ["3g.71gb", "3g.71gb"]
    say("mig", "undo")
    assert "nvidia-smi mig -i 0 -dgi -gi 1,2" in capsys.readouterr().out
    assert len(smi["instances"]) == 2
    say("mig", "undo", "--really")
    assert (smi["instances"], smi["mig"]) == ([], "Disabled")


@pytest.mark.parametrize(
    ("words", "error"),
    [
        (["start", "time-slicing"], "cannot start the mode `time-slicing`"),
        (["stop", "mig"], "cannot stop the mode `mig`"),
        (["stop", "mps"], "fleetlab started no MPS daemon"),
        (["start", "mps"], "MPS is not available"),
        (["run", "mps"], "no command to run"),
        (["run", "exclusive", "--", "x"], "no such command: `x`"),
        (["mig", "check", "8x1g.18gb", "--model", "H200"], "at most 7"),
        (["mig", "check", "1g.5gb", "--model", "H200"], "H200-141 has no profile `1g.5gb`"),
        (["mig", "layouts"], "no GPU model given: no NVIDIA GPU"),
        (["mig", "layouts", "--model", "A100"], "ambiguous GPU model"),
        (["mig", "apply", "7x1g.18gb", "--model", "H200", "--really"], "--model names a GPU model"),
        (["mig", "apply", "7x1g.18gb"], "no GPU model given"),
        (["mig", "undo"], "fleetlab created no layout on GPU 0"),
    ],
)
def test_a_mistake_is_told_with_a_hint(words, error, monkeypatch):
    monkeypatch.setenv("PATH", "/nonexistent")
    with pytest.raises((fleetlab.DeviceError, BenchError)) as e:
        say(*words)
    assert error in str(e.value)
    assert e.value.hint


def test_a_driver_in_trouble_ends_in_an_error_and_status_2(smi):
    smi.set(garbage=True)
    for words in (["status"], ["mig", "apply", "7x1g.18gb"]):
        done = subprocess.run(
            [sys.executable, "-m", "fleetlab.cli", "share", *words], capture_output=True, text=True, timeout=100
        )
        assert done.returncode == 2
        assert done.stderr.startswith("error: unexpected output of nvidia-smi")
        assert "\nhint: " in done.stderr


@pytest.mark.parametrize("command", ["status", "start", "stop", "run", "mig profiles", "mig check", "mig apply"])
def test_every_command_has_examples(command, capsys):
    say(*command.split(), "--help")
    assert f"fleetlab share {command}" in capsys.readouterr().out.split("Examples:")[1]
