"""`fleetlab share emit`, `read` and `lint`: the file on stdout, what is lost on stderr, mistakes as error and hint."""

import json
import subprocess
import sys

import pytest

import fleetlab
from fleetlab.cli import app
from fleetlab.gpu.devices.console import BenchError

SPEC = 'mode = "mps"\ngpu = "H200"\nreplicas = 4\npercent = 25\nmemory_mib = 35000\nname = "lab"\n'
ONE_REPLICA = "version: v1\nsharing: {timeSlicing: {resources: [{name: nvidia.com/gpu, replicas: 1}]}}\n"


def say(*words):
    app(["share", *map(str, words)], exit_on_error=False, print_error=False, result_action="return_value")


@pytest.fixture
def lab(written):
    return written(SPEC, "lab.toml")


def test_the_file_goes_to_stdout_and_the_losses_to_stderr(lab, capsys):
    say("emit", lab, "--to", "device-plugin")
    said = capsys.readouterr()
    assert said.out.splitlines()[-2:] == ["    - name: nvidia.com/gpu", "      replicas: 4"]
    assert "memory_mib: 35000 -> none; " in said.err
    assert "docs/isolation.md#fairness" in said.err


def test_a_file_is_written_whole_and_the_losses_go_to_stdout(lab, tmp_path, capsys):
    out = tmp_path / "claim.yaml"
    say("emit", lab, "--to", "dra", "--out", out)
    assert out.read_text("utf-8").startswith("# NVIDIA's DRA driver")
    said = capsys.readouterr().out
    assert "gpu: H200-141 -> none; the claim accepts any GPU of its device class" in said
    assert "apiVersion" not in said


def test_what_is_emitted_is_read_again(lab, tmp_path, capsys):
    pytest.importorskip("yaml")
    say("emit", lab, "--to", "dra", "--out", tmp_path / "claim.yaml")
    capsys.readouterr()
    say("read", tmp_path / "claim.yaml")
    said = capsys.readouterr()
    assert said.out == 'mode = "mps"\nname = "lab"\nreplicas = 4\npercent = 25\nmemory_mib = 35000\n'
    assert said.err == "claim.yaml: format dra\n"


def test_machines_get_one_object(lab, written, capsys):
    pytest.importorskip("yaml")
    say("emit", lab, "--to", "hami", "--json")
    found = json.loads(capsys.readouterr().out)
    assert [e["metric"] for e in found["summary"]] == ["parts lost", "guarantees lost"]
    assert [row["part"] for row in found["tables"]["lost"]] == ["mode", "gpu"]
    assert found["tables"]["file"][0]["text"].startswith("# HAMi")
    say("read", written(ONE_REPLICA.replace("1}", "3}")), "--json")
    assert json.loads(capsys.readouterr().out)["tables"]["spec"][0]["mode"] == "time-slicing"


def test_a_lint_with_an_error_ends_with_status_one(written, capsys):
    pytest.importorskip("yaml")
    with pytest.raises(SystemExit) as left:
        say("lint", written(ONE_REPLICA), "--json")
    assert left.value.code == 1
    assert json.loads(capsys.readouterr().out)["tables"]["findings"][0]["code"] == "DP01"


def test_a_lint_without_one_ends_well(lab, capsys):
    say("lint", lab)
    assert capsys.readouterr().out == "lab.toml, spec: errors 0, warnings 0, notes 0\n"


def test_what_a_stranger_wrote_cannot_move_the_cursor(written, capsys):
    pytest.importorskip("yaml")
    say("lint", written('version: v1\nsharing: {"\\e[2J": {}}\n'))
    assert "\x1b" not in capsys.readouterr().out


@pytest.mark.parametrize(
    ("words", "says"),
    [
        (["emit", "{lab}", "--to", "slurm"], "unknown format: `slurm`"),
        (["emit", "{lab}", "--to", "mig-parted"], "mig-parted cannot express it"),
        (["emit", "nowhere.toml", "--to", "env"], "cannot read nowhere.toml: No such file"),
        (["emit", "{lab}", "--to", "env", "--out", "/nonexistent/x"], "cannot write /nonexistent/x: No such file"),
        (["read", "{huge}"], "larger than any such file: 104,857,600 bytes"),
        (["read", "/dev/zero"], "larger than any such file"),
        (["read", "{binary}"], "not text"),
        (["lint", "{lab}", "--model", "K80"], "unknown GPU model: `K80`"),
    ],
    ids=lambda v: " ".join(v) if isinstance(v, list) else "",
)
def test_a_mistake_is_an_error_with_a_hint(words, says, lab, tmp_path):
    huge, binary = tmp_path / "huge.yaml", tmp_path / "binary.yaml"
    with huge.open("wb") as f:
        f.truncate(100 * 1024 * 1024)
    binary.write_bytes(b"\xff\xfe\x00")
    with pytest.raises((fleetlab.DeviceError, BenchError)) as caught:
        say(*(word.format(lab=lab, huge=huge, binary=binary) for word in words))
    assert says in str(caught.value)
    assert caught.value.hint


def test_without_a_reader_of_yaml_the_hint_names_the_extra(written):
    code = (
        "import sys; sys.modules['yaml'] = None\n"
        "from fleetlab.cli import main\n"
        f"main(['share', 'read', {str(written(ONE_REPLICA))!r}])"
    )
    done = subprocess.run([sys.executable, "-c", code], capture_output=True, text=True, timeout=100)
    assert done.returncode == 2
    assert "reading YAML needs PyYAML" in done.stderr
    assert "pip install 'fleetlab[k8s]'" in done.stderr


def test_a_spec_is_emitted_without_a_reader_of_yaml(lab):
    code = (
        "import sys; sys.modules['yaml'] = None\n"
        "from fleetlab.cli import main\n"
        f"main(['share', 'emit', {str(lab)!r}, '--to', 'kueue'])"
    )
    done = subprocess.run([sys.executable, "-c", code], capture_output=True, text=True, timeout=100)
    assert done.returncode == 0, done.stderr
    assert "kind: ClusterQueue" in done.stdout
