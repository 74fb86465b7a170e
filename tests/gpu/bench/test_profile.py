"""From cells to a profile: who is compared with whom, how sure that is, and what is predicted."""

import json
import math
from itertools import combinations_with_replacement, product

import numpy as np
import pytest
from benchmarks.profile_models import check

import fleetlab
from fleetlab.gpu.bench.profile import profile
from fleetlab.gpu.bench.profile.build import CLASSES, tied
from fleetlab.gpu.bench.profile.models import SpeedTable
from fleetlab.gpu.bench.profile.observations import Colocation, Observations, RateSample

RATES = {"a": 100.0, "b": 40.0, "c": 8.0, "d": 1000.0}
MINDS = {"a": 0.4, "b": 1.0, "c": 1.5, "d": 0.2}  # how much a step of it waits for a neighbor
PRESSES = {"a": 0.5, "b": 1.0, "c": 0.3, "d": 2.0}
CLIENT = {"a": 0.95, "b": 0.9, "c": 0.8, "d": 1.0}  # speed alone as a client of MPS


def beside(one, other):
    return 1 / (1 / CLIENT[one] + MINDS[one] * PRESSES[other])


def cell(mode, seats, speeds, *, block=0, busy=1.0, util=None, status="ok", sms=132):
    tenants = []
    for seat, speed in zip(seats, speeds, strict=True):
        name = seat.partition("@")[0].partition("!")[0]
        rate = RATES[name] * speed
        about = {"seat": seat, "tenant": name, "rate": rate, "rates": [rate] * 10, "busy": busy, "sms": sms}
        tenants.append(about | {"starved": 0.0, "cpu": 0.1, "late": 0.0, "unit": "item", "p50": "none"})
    gpu = {} if util is None else {"util": util, "memory_util": 50.0}
    about = {"cell": f"{mode}/{block}/{'+'.join(seats)}", "stage": mode, "mode": mode, "block": block}
    return about | {"status": status, "tenants": tenants, "gpu": gpu, "failures": []}


def folder(path, cells, *, card="NVIDIA H200", tenants=None):
    path.mkdir(parents=True, exist_ok=True)
    about = {"plan": "p", "seed": 0, "window": 5, "settle": 1, "card": {"name": card}, "rehearsal": False}
    about |= {"skipped": [], "tenants": tenants or {name: {"work": name} for name in RATES}}
    (path / "manifest.json").write_text(json.dumps(about))
    (path / "cells.jsonl").write_text("".join(json.dumps(c) + "\n" for c in cells))
    return path


def alone(names=RATES, **how):
    return [cell("time-slicing", [name], [1.0], **how) for name in names]


def pairs(names=RATES, *, but=(), blocks=2):
    found = []
    for block in range(blocks):
        found += [cell("mps", [name], [CLIENT[name]], block=block) for name in names]
        for one, other in combinations_with_replacement(names, 2):
            if {one, other} not in but:
                found.append(cell("mps", [one, other], [beside(one, other), beside(other, one)], block=block))
    return found


def test_speeds_are_against_alone_without_mps(tmp_path):
    made = profile([folder(tmp_path / "x", alone() + pairs())])
    assert made.speed("mps", "c").value == pytest.approx(0.8)
    assert made.speed("mps", "c", "d").value == pytest.approx(beside("c", "d"))
    assert made.speed("exclusive", "c").value == 1.0
    assert made.device == "NVIDIA H200"
    assert set(made.frame["kind"]) == {"measured"}


def test_a_part_of_the_sms_is_a_mode_of_its_own(tmp_path):
    capped = [cell("mps", ["a@50"], [0.6]), cell("mps", ["a@50", "a@50"], [0.5, 0.5])]
    made = profile([folder(tmp_path / "x", alone("a") + capped)])
    assert (made.speed("mps-50", "a").value, made.speed("mps-50", "a", "a").value) == pytest.approx((0.6, 0.5))


def test_copies_in_one_cell_are_one_sample(tmp_path):
    made = profile([folder(tmp_path / "x", [*alone("a"), cell("time-slicing", ["a", "a"], [0.4, 0.6])])])
    assert made.speed("time-slicing", "a", "a").value == pytest.approx(0.5)


def test_of_runs_alone_the_middle_one_counts(tmp_path):
    """One of three was disturbed, and took twice as long."""
    runs = [cell("time-slicing", ["a"], [speed], block=k) for k, speed in enumerate((1.0, 0.5, 1.0))]
    made = profile([folder(tmp_path / "x", [*runs, cell("time-slicing", ["a", "a"], [0.4, 0.4])])])
    assert made.speed("time-slicing", "a", "a").value == pytest.approx(0.4)


@pytest.mark.parametrize("known", ["folder above", "folders"])
def test_folders_may_be_named_one_by_one_or_by_what_holds_them(known, tmp_path):
    each = [folder(tmp_path / "one", alone()), folder(tmp_path / "two", pairs())]
    made = profile([tmp_path] if known == "folder above" else each)
    assert made.speed("mps", "a", "b").value == pytest.approx(beside("a", "b"))


# --- what cannot be compared -----------------------------------------------------------------------------------------


def test_cells_that_say_nothing_of_speeds_are_left_out_and_counted(tmp_path):
    odd = [
        cell("mps", ["a", "b@50"], [0.1, 0.1]),
        cell("mps", ["a!1", "b!0"], [0.1, 0.1]),
        cell("mps", ["a", "a"], [0.1, 0.1], block=7, status="failed"),
    ]
    made = profile([folder(tmp_path / "x", alone() + pairs() + odd)])
    assert made.speed("mps", "a", "b").value == pytest.approx(beside("a", "b"))
    assert any("3 cells ignored" in note for note in made.notes)


def test_what_a_timetable_sends_has_no_speed(tmp_path):
    tenants = {name: {"work": name} for name in RATES} | {"d": {"work": "d", "poisson": 100}}
    made = profile([folder(tmp_path / "x", alone() + pairs(), tenants=tenants)])
    assert "d" not in set(made.frame["workload"])


def test_two_cards_make_no_profile(tmp_path):
    folders = [folder(tmp_path / "x", alone()), folder(tmp_path / "y", pairs(), card="NVIDIA A100")]
    with pytest.raises(fleetlab.DeviceError, match="two GPUs in one profile"):
        profile(folders)


def test_one_name_for_two_works_is_refused(tmp_path):
    other = {name: {"work": name, "batch": 8} for name in RATES}
    folders = [folder(tmp_path / "x", alone()), folder(tmp_path / "y", pairs(), tenants=other)]
    with pytest.raises(fleetlab.DeviceError, match="is another workload elsewhere"):
        profile(folders)


@pytest.mark.parametrize(
    ("cells", "works", "said"),
    [
        (pairs(), (), "not measured alone without MPS: a, b, c, d"),
        (alone(), (), "no pairs were measured"),
        (alone() + pairs(), ("a", "zebra"), "not measured beside others: zebra"),
    ],
    ids=["no reference", "no pairs", "no such work"],
)
def test_what_no_profile_can_be_made_of_says_why(cells, works, said, tmp_path):
    with pytest.raises(fleetlab.DeviceError, match=said):
        profile([folder(tmp_path / "x", cells)], workloads=works)


def test_no_folder_is_no_profile():
    with pytest.raises(fleetlab.DeviceError, match="no folders to make a profile from"):
        profile([])


# --- what is predicted ------------------------------------------------------------------------------------------------


def test_a_pair_that_was_not_measured_is_foretold_and_marked(tmp_path):
    made = profile([folder(tmp_path / "x", alone() + pairs(but=[{"b", "d"}]))])
    for one, other in (("b", "d"), ("d", "b")):
        told = made.speed("mps", one, other)
        assert told.value == pytest.approx(beside(one, other), rel=0.03)
        assert told.low <= told.value <= told.high
    guessed = made.frame.filter(made.frame["kind"] == "predicted")
    assert set(zip(guessed["workload"], guessed["neighbour"], strict=True)) == {("b", "d"), ("d", "b")}


def test_islands_of_pairs_say_nothing_of_each_other():
    """Two works that met and two others that met: how one of the first bears one of the second is anybody's guess."""
    speeds = {(x, y): 0.5 for island in ("ab", "cd") for x in island for y in island}
    found = tied(SpeedTable(speeds, {}, {}))
    assert found == set(speeds)


def test_one_pair_across_ties_one_side_of_each():
    speeds = {(x, y): 0.5 for island in ("ab", "cd") for x in island for y in island} | {("a", "c"): 0.5}
    assert tied(SpeedTable(speeds, {}, {})) == {(x, y) for x in "abcd" for y in "abcd"}


def test_classes_are_means_over_works_and_hold_their_intervals(tmp_path):
    cells = [
        cell("time-slicing", ["a"], [1.0], busy=0.2, util=99),
        cell("time-slicing", ["b"], [1.0], busy=1.0, util=100),
        cell("time-slicing", ["c"], [1.0], busy=1.0, util=80),
        cell("time-slicing", ["a", "b"], [0.9, 0.8]),
        cell("time-slicing", ["a", "c"], [0.4, 0.2]),
    ]
    made = profile([folder(tmp_path / "x", cells)], classes=True)
    assert made.speed("time-slicing", "light", "heavy").value == pytest.approx(math.sqrt(0.9 * 0.4))
    heavy = made.speed("time-slicing", "heavy", "light")
    assert (heavy.value, heavy.low, heavy.high) == pytest.approx((math.sqrt(0.8 * 0.2), 0.2, 0.8))


def test_a_workload_that_is_kept_is_a_class_of_its_own(tmp_path):
    cells = [
        cell("time-slicing", ["a"], [1.0], busy=0.2, util=20),
        cell("time-slicing", ["b"], [1.0], busy=0.2, util=20),
        cell("time-slicing", ["a", "b"], [0.9, 0.8]),
        cell("time-slicing", ["a", "a"], [0.7, 0.7]),
        cell("time-slicing", ["b", "b"], [0.6, 0.6]),
    ]
    made = profile([folder(tmp_path / "x", cells)], classes=True, keep=["b"])
    assert made.speed("time-slicing", "b", "light").value == pytest.approx(0.8)
    assert made.speed("time-slicing", "light", "light").value == pytest.approx(0.7)
    with pytest.raises(fleetlab.DeviceError, match="not in the profile: other"):
        profile([tmp_path / "x"], classes=True, keep=["other"])


def test_classes_have_every_pair_that_the_simulator_asks_for(tmp_path):
    works = {"a": 0.2, "b": 0.5, "c": 1.0, "d": 0.9}
    cells = [cell("time-slicing", [name], [1.0], busy=busy, util=100 * busy) for name, busy in works.items()]
    made = profile([folder(tmp_path / "x", cells + pairs(but=[{"a", "b"}]))], classes=True)
    assert {made.speed("mps", one, other).value > 0 for one, other in product(CLASSES, (None, *CLASSES))} == {True}
    both = made.frame.filter((made.frame["mode"] == "mps") & (made.frame["kind"] == "predicted"))
    assert set(zip(both["workload"], both["neighbour"], strict=True)) == {("light", "medium"), ("medium", "light")}


def test_a_card_that_waits_for_its_host_is_not_busy(tmp_path):
    """Steps are under way all the time, but the GPU is at work for a fifth of it."""
    cells = [cell("time-slicing", ["a"], [1.0], busy=1.0, util=20), cell("time-slicing", ["a", "a"], [0.9, 0.9])]
    made = profile([folder(tmp_path / "x", cells)], classes=True)
    assert set(made.frame["workload"]) == {"light"}


# --- how sure --------------------------------------------------------------------------------------------------------


def test_limits_hold_the_truth_as_often_as_they_say():
    """Two blocks of each pair with noise of 5 %, three runs alone: 95 % of intervals hold the true speed."""
    rng, inside, total = np.random.default_rng(1), 0, 0
    for _ in range(60):
        rates = {Colocation("time-slicing", "a", ()): [RateSample(x, 0.0) for x in rng.normal(0, 0.05, 2)]}
        truth = dict(zip("bcdefgh", rng.uniform(-1, 0, 7), strict=True))
        for other, log in truth.items():
            rates[Colocation("mps", "a", (other,))] = [RateSample(x, 0.0) for x in log + rng.normal(0, 0.05, 2)]
        seen = Observations("card", {}, rates)
        for other, log in truth.items():
            found = seen.speed(Colocation("mps", "a", (other,)))
            inside, total = inside + (found.low <= math.exp(log) <= found.high), total + 1
    assert inside / total > 0.93


def test_what_was_measured_once_is_as_sure_as_its_tenths_were_steady():
    steady, shaky = (
        Observations(
            "card",
            {},
            {
                Colocation("time-slicing", "a", ()): [RateSample(0.0, w)],
                Colocation("mps", "a", ("b",)): [RateSample(-1.0, w)],
            },
        )
        for w in (0.001, 0.02)
    )
    met = Colocation("mps", "a", ("b",))
    assert 1 < steady.speed(met).high / steady.speed(met).low < shaky.speed(met).high / shaky.speed(met).low


def test_a_check_finds_a_world_that_is_as_the_model_says(tmp_path):
    found = check([folder(tmp_path / "x", alone() + pairs())])
    errors = {(r["held_out"], r["model"]): r["mae"] for r in found.tables()["errors"].iter_rows(named=True)}
    assert errors["a pair", "waits"] < 0.01 < errors["a pair", "log-additive"] < errors["a pair", "mean of all"]


def test_too_few_pairs_cannot_be_checked(tmp_path):
    with pytest.raises(fleetlab.DeviceError, match="too few pairs"):
        check([folder(tmp_path / "x", alone("ab") + pairs("ab"))])


# --- the command -----------------------------------------------------------------------------------------------------


def fleet(*words):
    from fleetlab.cli import main

    with pytest.raises(SystemExit) as left:
        main([*map(str, words)])
    return left.value.code


def test_the_command_saves_what_the_simulator_takes(tmp_path, capsys):
    out = tmp_path / "mine.json"
    assert not fleet("bench", "profile", folder(tmp_path / "x", alone() + pairs()), "--out", out)
    assert fleetlab.Speed.load(out).speed("mps", "a", "b").value == pytest.approx(beside("a", "b"))
    assert "mean speed, mps" in capsys.readouterr().out


def test_a_wrong_folder_leaves_nothing_behind(tmp_path, capsys):
    out = tmp_path / "mine.json"
    assert fleet("bench", "profile", tmp_path / "nowhere", "--out", out) == 2
    assert "error: " in capsys.readouterr().err
    assert not out.exists()
