"""What lies in a folder: half of it, two GPUs, a rehearsal, nothing."""

import gzip
import json
import math

import pytest

import fleetlab
from fleetlab.gpu.bench.analysis import analyze


def two(made, **more):
    alone, both = [made.tenant("train", 100)], [made.tenant("train", 50)] * 2
    return [made.cell(who, block=b, opens=10.0 * k + b, **more) for b in (0, 1) for k, who in enumerate((alone, both))]


def test_an_empty_folder_is_an_error(tmp_path):
    with pytest.raises(fleetlab.DeviceError, match="no results of a suite"):
        analyze(tmp_path)


def test_a_folder_that_is_not_there_is_an_error(tmp_path):
    with pytest.raises(fleetlab.DeviceError, match="no such folder"):
        analyze(tmp_path / "nowhere")


def test_a_last_line_that_was_cut_off_is_left_out_and_said(tmp_path, made):
    path = made.suite(tmp_path / "s", two(made))
    text = (path / "cells.jsonl").read_text()
    (path / "cells.jsonl").write_text(text + text.splitlines()[0][:90])
    found = analyze(tmp_path)
    assert found.summary()[-2].value == 4
    assert "s: its truncated last line is ignored" in found.notes


def test_a_suite_that_cannot_be_read_does_not_spoil_the_others(tmp_path, made):
    made.suite(tmp_path / "good", two(made))
    made.suite(tmp_path / "bad", two(made)).joinpath("manifest.json").unlink()
    made.suite(tmp_path / "worse", two(made)).joinpath("manifest.json").write_text("[1, 2")
    found = analyze(tmp_path)
    assert found.tables()["mixes"].height == 1
    assert [note.partition(",")[0] for note in found.notes[:2]] == ["bad: ignored", "worse: ignored"]


def test_nothing_that_can_be_read_is_an_error_that_says_why(tmp_path, made):
    made.suite(tmp_path, two(made)).joinpath("manifest.json").unlink()
    with pytest.raises(fleetlab.DeviceError, match=r"no results of a suite: .*manifest\.json"):
        analyze(tmp_path)


def test_two_kinds_of_cards_are_not_compared(tmp_path, made):
    made.suite(tmp_path / "a", two(made), card="H0")
    made.suite(tmp_path / "b", two(made), card="A1")
    with pytest.raises(fleetlab.DeviceError, match="different GPUs in one folder: H0 in a; A1 in b"):
        analyze(tmp_path)


def test_a_rehearsal_is_not_put_beside_a_card(tmp_path, made):
    made.suite(tmp_path / "a", two(made))
    made.suite(tmp_path / "b", two(made), rehearsal=True, card=None)
    with pytest.raises(fleetlab.DeviceError, match="different GPUs"):
        analyze(tmp_path)


def test_a_rehearsal_is_said_loudly(tmp_path, made):
    found = analyze(made.suite(tmp_path, two(made, watts=None), rehearsal=True, card=None))
    assert found.findings[0] == "A REHEARSAL ON THE CPU: THESE RESULTS ARE MEANINGLESS"
    assert "THESE RESULTS ARE MEANINGLESS" in found.notes[0]


def test_the_length_of_a_turn_is_read_where_it_was_watched(tmp_path, made):
    path = made.suite(tmp_path, two(made))
    assert "length of a time slice: not measured" in str(analyze(path).answers()[3]).lower()
    seen = {"running": 0.9, "gap_ms": [1, 2, 2.5, 3, 3, 4], "slice_ms": [1, 1.2, 1.25, 1.3, 1.5, 2]}
    (path / "slices.json").write_text(json.dumps({"device": "cuda", "time-slicing": {"2": seen}}))
    assert "a time slice takes 1.25 ms (quartiles 1.20 to 1.30)" in str(analyze(path).answers()[3])
    assert "10.0 % of the time is unused" in str(analyze(path).answers()[3])
    (path / "slices.json").write_text(json.dumps({"device": "cpu", "time-slicing": {"2": seen}}))
    assert "length of a time slice: not measured" in str(analyze(path).answers()[3]).lower()


def test_gates_that_did_not_hold_are_said(tmp_path, made):
    cells = two(made)
    cells[1]["gpu"]["reasons"] = 0x4
    found = analyze(made.suite(tmp_path, cells))
    assert any("no throttling" in note for note in found.notes)
    assert found.tables()["checks"].height == 6


def test_packed_cells_count_like_plain_ones(tmp_path, made):
    path = made.suite(tmp_path, two(made))
    plain = analyze(path).tables()["mixes"]
    (path / "cells.jsonl.gz").write_bytes(gzip.compress((path / "cells.jsonl").read_bytes()))
    (path / "cells.jsonl").unlink()
    assert analyze(path).tables()["mixes"].equals(plain, null_equal=True)


@pytest.mark.parametrize("settings", [{"price": -1.0}, {"price": math.nan}, {"slo_factor": 0.5}, {"slo_ms": 0.0}])
def test_settings_that_cannot_be_are_refused(tmp_path, made, settings):
    path = made.suite(tmp_path, two(made))
    with pytest.raises(fleetlab.DeviceError, match="not a "):
        analyze(path, **settings)
