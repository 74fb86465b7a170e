"""`fleetlab tune`, as a person types it."""

import json
import subprocess
import sys

import pytest


@pytest.fixture
def saved(mixed, tmp_path, monkeypatch):
    monkeypatch.chdir(tmp_path)
    mixed.save(tmp_path / "trace")
    return tmp_path


@pytest.mark.slow
def test_a_policy_is_found_said_written_and_can_be_played(saved, command):
    words = ("trace", "--days", "1", "--trials", "14", "--against", "fifo,sjf", "--out", "out")
    done = command("tune", *words, "--json")
    assert done.returncode == 0, done.stderr
    result = json.loads((saved / "out" / "tuned.json").read_text("utf-8"))
    assert result["provenance"]["verb"] == "tune"
    assert "baseline" in result["findings"][0]
    assert json.loads(done.stdout)["tables"] == result["tables"]
    use = (saved / "out" / "tuned.py").read_text("utf-8").split("fleetlab simulate TRACE ")[1].split('."""')[0].split()
    played = subprocess.run(
        [sys.executable, "-m", "fleetlab.cli", "simulate", "../trace", *use], cwd=saved / "out", capture_output=True
    )
    assert played.returncode == 0, played.stderr


@pytest.mark.parametrize(
    ("words", "error"),
    [(["nowhere"], "no saved trace"), (["trace"], "too few weeks"), (["trace", "--goal", "x"], "goal")],
)
def test_a_mistake_ends_in_an_error_and_a_hint(saved, words, error, command):
    done = command("tune", *words)
    assert done.returncode == 2
    assert done.stderr.startswith("error: ")
    assert error in done.stderr.lower()
    assert "Traceback" not in done.stderr
