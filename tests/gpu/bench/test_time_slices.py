import json
import subprocess
import sys
from pathlib import Path

import numpy as np
import pytest
from benchmarks.sharing.time_slices import measure_slices, summarize_gaps


def test_slices_gaps_and_what_is_nobodys_by_hand():
    # Two that take turns for 10 ms: slices of 2 ms, 0.5 ms lost at each switch.
    ms = 1_000_000
    one = np.array([[2 * ms, 5 * ms], [7 * ms, 10 * ms]])
    two = np.array([[0, int(2.5 * ms)], [int(4.5 * ms), int(7.5 * ms)]])
    told = summarize_gaps([one, two], 0.010)
    assert told["gaps"] == 4
    assert told["slice_ms"][2] == pytest.approx(2)
    assert told["gap_ms"][0] == pytest.approx(2.5)
    assert told["gap_ms"][-1] == pytest.approx(3)
    assert told["running"] == pytest.approx(2 - 6 / 10 - 5.5 / 10)


def test_one_who_is_never_away_has_no_gaps():
    assert summarize_gaps([np.empty((0, 2), np.int64)], 1.0)["running"] == 1


def test_two_on_one_core_see_each_others_slices():
    told = measure_slices(modes=("time-slicing",), seconds=0.4, device="cpu")["time-slicing"]
    # Alone one may lose its core to others of this machine; two on one core must lose at least half of the time.
    assert told["2"]["running"] <= 1.05
    assert told["2"]["gap_ms"][-1] > 1


@pytest.mark.skipif(Path("/dev/nvidia0").exists(), reason="there is a GPU")
def test_without_a_card_it_says_so(tmp_path):
    words = [
        sys.executable,
        "-m",
        "benchmarks.sharing.time_slices",
        "--modes",
        "mps",
        "--out",
        str(tmp_path / "s.json"),
    ]
    ended = subprocess.run(words, capture_output=True, text=True, check=False)
    assert ended.returncode == 2
    assert ended.stderr.startswith("error: ")
    assert "hint: " in ended.stderr
    assert not (tmp_path / "s.json").exists()


def test_what_was_seen_is_written(tmp_path):
    words = ["--modes", "time-slicing", "--device", "cpu", "--seconds", "0.1", "--out", str(tmp_path / "s.json")]
    subprocess.run([sys.executable, "-m", "benchmarks.sharing.time_slices", *words], check=True, capture_output=True)
    assert set(json.loads((tmp_path / "s.json").read_text())["time-slicing"]) == {"1", "2"}
