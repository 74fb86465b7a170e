"""Speeds under sharing: the profile that ships, and those that are measured."""

import json

import polars as pl
import pytest

from fleetlab.core import FleetlabError, Provenance, Speed, WorkloadError
from fleetlab.core.speed import MODES

ABOUT = Provenance("bench", "hand", {"repeats": 3}, seed=1)
ROW = {"mode": "mps", "workload": "heavy", "neighbour": "light", "speed": 0.8, "low": 0.7, "high": 0.9}


def of(*rows: dict[str, object]) -> Speed:
    return Speed.of(pl.DataFrame(rows or [ROW], strict=False), device="card", provenance=ABOUT, notes=("by hand",))


def test_what_is_published_has_no_mps():
    assert set(Speed.named("published").frame["mode"]) == set(MODES) - {"mps"}


def test_a_profile_of_before_kinds_is_read(tmp_path):
    path = of().save(tmp_path / "profile.json")
    about = json.loads(path.read_text())
    for row in about["speeds"]:
        del row["kind"]
    path.write_text(json.dumps(about))
    assert Speed.load(path).frame["kind"].to_list() == [None]


@pytest.mark.parametrize("mode", ["mps-50", "mig-1g.18gb", "mig-1g.18gb+me"])
def test_a_part_of_a_card_has_a_mode_of_its_own(mode):
    assert of(ROW | {"mode": mode}).speed(mode, "heavy", "light").value == 0.8


def test_a_profile_comes_back_as_it_went(tmp_path):
    went = of(ROW, ROW | {"neighbour": None})
    back = Speed.load(went.save(tmp_path / "profile.json"))
    assert back.frame.equals(went.frame)
    assert (back.device, back.provenance, back.notes) == (went.device, went.provenance, went.notes)


def test_a_speed_alone_is_not_one_next_to_another():
    profile = of(ROW, ROW | {"neighbour": None, "speed": 1.0, "low": 1.0, "high": 1.0})
    assert (profile.speed("mps", "heavy").value, profile.speed("mps", "heavy", "light").value) == (1.0, 0.8)


@pytest.mark.parametrize("asked", [("mig", "heavy"), ("mps", "other"), ("mps", "heavy", "other"), ("words", "heavy")])
def test_a_speed_that_was_not_measured_is_refused(asked):
    with pytest.raises(WorkloadError, match="no speed in the profile"):
        of().speed(*asked)


@pytest.mark.parametrize(
    "wrong",
    [
        {"mode": "magic"},
        {"mode": None},
        {"mode": "mps-"},
        {"mode": "time-slicing-50"},
        {"mode": "mps 50"},
        {"kind": "believed"},
        {"workload": None},
        {"speed": 0.95},
        {"speed": float("nan")},
        {"speed": None},
        {"speed": "fast"},
        {"low": 0.0},
        {"low": -0.1},
        {"high": float("inf")},
        {"low": 0.85},
        {"speed": [0.8]},
    ],
    ids=str,
)
def test_a_speed_that_cannot_be_is_refused(wrong):
    with pytest.raises(WorkloadError):
        of(ROW | wrong)


def test_a_speed_given_twice_is_refused():
    with pytest.raises(WorkloadError, match="given twice"):
        of(ROW, ROW)


def test_a_profile_without_its_columns_is_refused():
    with pytest.raises(WorkloadError, match="not a speed profile"):
        of({"mode": "mps"})


@pytest.mark.parametrize(
    "text",
    ["", "5", "[]", "{}", "null", "nonsense", "[" * 100_000, '{"speeds": []}', b"\xff"],
    ids=lambda x: str(x)[:12],
)
def test_a_file_that_is_no_profile_is_refused(text, tmp_path):
    path = tmp_path / "profile.json"
    path.write_bytes(text if isinstance(text, bytes) else text.encode())
    with pytest.raises(WorkloadError):
        Speed.load(path)


@pytest.mark.parametrize("speed", ["1" + "0" * 400, '"fast"', "[1]", "{}", "null", "true", "NaN"])
def test_a_profile_with_a_wrong_speed_in_it_is_refused(speed, tmp_path):
    path = of().save(tmp_path / "profile.json")
    path.write_text(path.read_text().replace("0.8", speed))
    with pytest.raises(WorkloadError):
        Speed.load(path)


@pytest.mark.parametrize("key", ["device", "provenance", "notes", "speeds"])
def test_a_profile_needs_every_part(key, tmp_path):
    path = of().save(tmp_path / "profile.json")
    path.write_text(json.dumps({k: v for k, v in json.loads(path.read_text()).items() if k != key}))
    with pytest.raises(WorkloadError, match="not a speed profile"):
        Speed.load(path)


def test_a_profile_that_cannot_be_written_is_said_and_leaves_nothing(tmp_path):
    (tmp_path / "folder").mkdir()
    with pytest.raises(FleetlabError, match="cannot save the speed profile"):
        of().save(tmp_path / "folder")
    assert [p.name for p in tmp_path.iterdir()] == ["folder"]


def test_its_summary_is_the_mean_next_to_another():
    [mean] = of(ROW, ROW | {"neighbour": "heavy", "speed": 0.6, "low": 0.5}, ROW | {"neighbour": None}).summary()
    assert (mean.metric, round(mean.value, 9)) == ("mean speed, mps", 0.7)
