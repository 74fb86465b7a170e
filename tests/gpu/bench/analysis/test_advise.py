"""Advice follows the numbers: which mode, whether it is shown, what would show it, and when it flips."""

import gzip
import json
import math
from pathlib import Path

import polars as pl
import pytest
from realtest.archives import gpu_sharing

from fleetlab.core import DeviceError, Provenance, Speed
from fleetlab.gpu.bench.advise import advise
from fleetlab.gpu.bench.advise.isolation import guaranteed
from fleetlab.gpu.bench.advise.result import flip_sentences
from fleetlab.gpu.bench.analysis.result import analyze
from fleetlab.gpu.bench.profile import predict_slices
from fleetlab.gpu.sharing.mig.layouts import layout_name, mig_gpu, parse_layout, place

H200 = gpu_sharing() / "h200"
PAIR = ("serve", "train")


def modes(slicing, mps, *, pair=PAIR):
    return {"time-slicing": {pair: slicing}, "mps": {pair: mps}}


@pytest.mark.parametrize(
    ("goal", "best"), [("throughput", "mps"), ("worst", "time-slicing"), ("cost", "mps"), ("energy", "mps")]
)
def test_each_goal_has_its_own_answer(tmp_path, made, goal, best):
    """MPS does 1.2 GPUs' work and leaves one tenant 0.3; turns do 0.9 and leave each 0.45."""
    found = advise(made.pairs(tmp_path, modes((0.45, 0.45), (0.3, 0.9))), mix="train, serve", goal=goal)
    assert (found.mode, found.verdict) == (best, "better")


def test_tail_latency_is_that_of_the_inference_tenant(tmp_path, made):
    tails = {("time-slicing", *PAIR): (0.002, None), ("mps", *PAIR): (0.006, None)}
    folder = made.pairs(tmp_path, modes((0.45, 0.45), (0.3, 0.9)), tails=tails)
    found = advise(folder, mix="serve, train", goal="p99")
    assert found.mode == "time-slicing"
    assert found.tables()["choice"]["margin"].to_list()[1] == pytest.approx(2 / 3, rel=1e-2)


def test_no_difference_needs_a_test_that_shows_it(tmp_path, made):
    near = advise(made.pairs(tmp_path / "near", modes((0.45, 0.45), (0.452, 0.452)), blocks=4), mix="train, serve")
    assert near.verdict == "no difference"
    assert "two one-sided tests" in near.findings[0]
    noisy = made.pairs(tmp_path / "noisy", modes((0.45, 0.45), (0.452, 0.452)), blocks=4, wobble=0.15)
    assert advise(noisy, mix="train, serve").verdict == "not known"


def test_what_is_not_known_is_told_with_the_blocks_that_decide(tmp_path, made):
    folder = made.pairs(tmp_path, modes((0.45, 0.45), (0.5, 0.5)), blocks=4, wobble=0.12)
    found = advise(folder, mix="train, serve")
    needed = found.tables()["choice"]["more_blocks"].to_list()[1]
    assert found.verdict == "not known"
    assert f"{needed} more blocks of each in one plan would decide" in found.findings[0]
    assert 1 < needed < 60


def test_one_block_more_is_one(tmp_path, made):
    folder = made.pairs(tmp_path, modes((0.45, 0.45), (0.55, 0.55)), blocks=2, wobble=0.04)
    found = advise(folder, mix="train, serve")
    assert "; 1 more block of each in one plan would decide" in found.findings[0]


def test_mixes_that_differ_are_named_and_no_blocks_are_asked_for(tmp_path, made):
    """Of three mixes of training and inference MPS is better in two, and time slicing in one, each beyond its noise."""
    pairs = {("answer", "train"): 0.6, ("answer", "learn"): 0.6, ("serve", "learn"): 0.3}
    both = {"time-slicing": dict.fromkeys(pairs, (0.45, 0.45)), "mps": {pair: (p, p) for pair, p in pairs.items()}}
    found = advise(made.pairs(tmp_path, both), mix="train, serve")
    assert found.verdict == "not known"
    better = "MPS is better in 2 (answer + train, answer + learn)"
    assert f"the 3 mixes differ: {better}, time slicing is better in 1 (learn + serve)" in found.findings[0]
    assert "more_blocks" not in found.tables()["choice"].columns


def test_single_blocks_decide_nothing(tmp_path, made):
    found = advise(made.pairs(tmp_path, modes((0.3, 0.3), (0.6, 0.6)), blocks=1), mix="train, serve")
    assert found.verdict == "not known"


def test_a_wider_margin_makes_modes_equivalent(tmp_path, made):
    folder = made.pairs(tmp_path, modes((0.45, 0.45), (0.49, 0.49)), blocks=4)
    assert advise(folder, mix="train, serve").verdict == "better"
    assert advise(folder, mix="train, serve", margin=0.15).verdict == "no difference"


def test_a_mix_comes_before_its_kind(tmp_path, made):
    """Two other mixes of training and inference say MPS; this one says time slicing."""
    others = {("answer", "train"): (0.8, 0.8), ("answer", "learn"): (0.8, 0.8)}
    both = {"time-slicing": {PAIR: (0.6, 0.6)} | dict.fromkeys(others, (0.4, 0.4)), "mps": {PAIR: (0.4, 0.4)} | others}
    found = advise(made.pairs(tmp_path, both), mix="train, serve")
    assert found.mode == "time-slicing"


def test_a_mix_that_was_not_measured_is_answered_by_its_kind_and_says_so(tmp_path, made):
    both = {
        "time-slicing": {("answer", "train"): (0.4, 0.4), ("serve", "learn"): (0.4, 0.4)},
        "mps": {("answer", "train"): (0.6, 0.6), ("serve", "learn"): (0.62, 0.62)},
    }
    found = advise(made.pairs(tmp_path, both), mix="train, serve")
    assert found.mode == "mps"
    others = "2 other mixes of its kind, training + inference: answer + train, learn + serve"
    assert found.findings[1] == f"This mix was not measured in two modes. The answer is that of {others}."
    assert found.tables()["costs"].is_empty()


def test_the_same_work_under_other_names_is_the_same_mix(tmp_path, made):
    """`learn` and `twin` are one training; the mix of one of them answers for the other, and says so."""
    folder = made.pairs(tmp_path, modes((0.45, 0.45), (0.6, 0.6), pair=("serve", "learn")))
    for manifest in folder.rglob("manifest.json"):
        about = json.loads(manifest.read_text())
        about["tenants"]["twin"] = about["tenants"]["learn"]
        manifest.write_text(json.dumps(about))
    lines = (folder / "mps" / "cells.jsonl").read_text()
    alone = made.cell([made.tenant("twin", 1000)], mode="mps", block=9)
    (folder / "mps" / "cells.jsonl").write_text(lines + json.dumps(alone) + "\n")
    found = advise(folder, mix="twin, serve")
    assert (found.mode, found.verdict) == ("mps", "better")
    assert found.findings[1].startswith("Measured as learn + serve: the same work with the same settings")


def test_requests_with_an_arrival_rate_are_not_answered_by_mixes_of_closed_loops():
    with pytest.raises(DeviceError, match=r"requests with an arrival rate \(serve-200\) are not answered") as caught:
        advise(H200, mix="bert-train, serve-200", goal="p99")
    assert "resnet-train + serve-200" in caught.value.hint


def test_the_server_of_another_plan_with_the_same_settings_answers_on_the_h200():
    found = advise(H200.parent, mix="train, serve", goal="p99")
    assert found.findings[1].startswith("Measured as resnet-train + serve-200")
    assert found.mode == "mps@50"


def test_a_mode_that_only_a_part_of_the_mixes_has_is_compared_over_these(tmp_path, made):
    """MPS at 50 % was measured in one mix of three, in which it is better."""
    pairs = [("answer", "train"), ("answer", "learn"), ("serve", "learn")]
    by = {"time-slicing": dict.fromkeys(pairs, (0.45, 0.45)), "mps": dict.fromkeys(pairs, (0.55, 0.55))}
    folder = made.pairs(tmp_path, by | {"mps@50": {pairs[0]: (0.66, 0.66)}})
    found = advise(folder, mix="train, serve")
    said = "MPS at 50 % was measured in 1 of these 3 mixes only; there it is better than MPS, by 20"
    assert found.mode == "mps"
    assert any(sentence.startswith(said) for sentence in found.findings)


def test_other_numbers_of_the_same_tenants_do_not_answer(tmp_path, made):
    """Two have half of a GPU each, and eight an eighth; the hint tells what was measured."""
    cells = []
    for mode, each in (("time-slicing", {2: 0.4, 4: 0.2}), ("mps", {2: 0.6, 4: 0.4, 8: 0.3})):
        cells.append(made.cell([made.tenant("serve", 100)], mode=mode))
        cells += [made.cell([made.tenant("serve", 100 * speed)] * n, mode=mode) for n, speed in each.items()]
    folder = made.suite(tmp_path, cells)
    for mix in ("3 serve", "8 serve"):
        with pytest.raises(DeviceError, match=f"not measured in two modes: {mix}") as refused:
            advise(folder, mix=mix)
        others = ("2 serve, 4 serve, 8 serve", "2 serve, 4 serve")[mix == "8 serve"]
        assert f"time slicing: 2 serve, 4 serve; MPS: {others};" in refused.value.hint
        assert ("only under MPS" in str(refused.value)) == (mix == "8 serve")


def test_one_tenant_shares_nothing(tmp_path, made):
    with pytest.raises(DeviceError, match="one tenant shares nothing: train"):
        advise(made.pairs(tmp_path, {"mps": {("serve", "train"): (0.6, 0.6)}}), mix="train")


@pytest.mark.parametrize("words", ["2 serve", "2x serve", "2 x serve", "2*serve", "serve x2", "serve*2", "serve × 2"])
def test_a_number_of_tenants_has_several_spellings(tmp_path, made, words):
    folder = made.pairs(tmp_path, modes((0.45, 0.45), (0.6, 0.6), pair=("serve", "serve")))
    assert advise(folder, mix=words).mode == "mps"


def test_a_name_with_an_x_and_a_number_is_a_name(tmp_path, made):
    folder = made.pairs(tmp_path, modes((0.45, 0.45), (0.6, 0.6), pair=("net x2", "train")))
    assert advise(folder, mix="net x2, train").mode == "mps"


def test_marks_in_the_names_of_modes_are_explained_once():
    notes = [note for note in advise(H200, mix="resnet-train, serve-400", goal="p99").notes if note.startswith("modes")]
    assert [note.partition(":")[0] for note in notes] == ["modes, `@50`", "modes, `!1`"]


def test_copies_with_requests_on_a_schedule_have_one_tail(tmp_path, made):
    """Each mode has four servers; their requests take 1 ms, one in fifty 20 or 5 ms."""
    cells = []
    for mode, slow in (("time-slicing", 0.02), ("mps", 0.005)):
        steps = ([0.001] * 49 + [slow]) * 20
        cells.append(made.cell([made.tenant("serve", 200, step=steps, offered=1000)] * 4, mode=mode))
    found = advise(made.suite(tmp_path, cells), mix="4 serve", goal="p99")
    assert (found.mode, found.verdict) == ("mps", "better")
    assert found.tables()["choice"]["value"].to_list() == pytest.approx([5.0, 20.0], rel=2e-3)


def test_a_class_of_a_log_is_answered_by_the_tenants_of_that_class(tmp_path, made):
    cells = []
    for mode, speed in (("time-slicing", 0.7), ("mps", 0.9)):
        for block in range(2):
            for name, busy in (("a", 0.2), ("b", 1.0)):
                cells.append(made.cell([made.tenant(name, 100, busy=busy)], mode=mode, block=block, util=100 * busy))
            cells.append(
                made.cell([made.tenant("a", 100 * speed), made.tenant("b", 100 * speed)], mode=mode, block=block)
            )
    found = advise(made.suite(tmp_path, cells), mix="light, heavy")
    assert found.mode == "mps"
    assert found.tables()["choice"]["value"].to_list() == pytest.approx([1.8, 1.4])


def by_class(made, path):
    """`a` and `b` use little of the GPU, `c` all of it; the pairs with `a` gain from MPS, those with `b` lose."""
    cells = []
    for mode, speeds in (("time-slicing", {"a": 0.7, "b": 0.7}), ("mps", {"a": 0.9, "b": 0.6})):
        for block in range(2):
            for name, busy in (("a", 0.2), ("b", 0.2), ("c", 1.0)):
                cells.append(made.cell([made.tenant(name, 100, busy=busy)], mode=mode, block=block, util=100 * busy))
            for name, speed in speeds.items():
                both = [made.tenant(name, 100 * speed), made.tenant("c", 100 * speed)]
                cells.append(made.cell(both, mode=mode, block=block))
    return made.suite(path / "measured", cells)


def speed_profile(path, **settings):
    """As `bench profile` writes it; speeds do not matter here."""
    rows = [{"mode": "mps", "workload": name, "neighbour": None, "speed": 1.0, "low": 1.0, "high": 1.0, "kind": None}
            for name in ("light", "heavy", "b")]  # fmt: skip
    provenance = Provenance("bench profile", "H0", settings)
    return Speed.of(pl.DataFrame(rows), device="H0", provenance=provenance).save(path / "mine.json")


def test_a_class_is_told_with_the_measured_works_that_stand_for_it(tmp_path, made):
    found = advise(by_class(made, tmp_path), mix="light, heavy")
    assert found.findings[-1] == "Measured works that stand for each class, light: a and b; heavy: c."


def test_classes_of_a_speed_profile_are_those_of_the_simulation(tmp_path, made):
    """The profile keeps `b` as a class of its own, so that light is `a` alone, and MPS is better for it."""
    folder = by_class(made, tmp_path)
    profile = speed_profile(tmp_path, busy={"a": 0.2, "b": 0.2, "c": 1.0}, classes=True, keep=["b"])
    light, own = (advise(folder, mix=f"{name}, heavy", speed=str(profile)) for name in ("light", "b"))
    assert (light.mode, own.mode) == ("mps", "time-slicing")


def test_jobs_of_a_log_are_named_by_the_rules_of_the_simulation(tmp_path, made):
    profile = speed_profile(tmp_path, busy={"a": 0.2, "b": 0.2, "c": 1.0}, classes=True, keep=["b"])
    words = {"speed": str(profile), "speed_classes": "app:bert=light,other=heavy"}
    found = advise(by_class(made, tmp_path), mix="app:bert, other", **words)
    assert found.mode == "mps"
    assert found.findings[-1] == "Measured works that stand for each class, app:bert: a; other: c."


def test_a_class_that_the_profile_does_not_have_or_that_was_not_measured_is_told(tmp_path, made):
    folder = by_class(made, tmp_path)
    profile = str(speed_profile(tmp_path, busy={"x": 0.2, "c": 1.0}, classes=True))
    with pytest.raises(DeviceError, match="no work of this class was measured here: light") as caught:
        advise(folder, mix="light, heavy", speed=profile)
    assert caught.value.hint.endswith("it stands for x")
    with pytest.raises(DeviceError, match="no class of the speed profile by that name: `app:bert=lite`"):
        advise(folder, mix="app:bert, heavy", speed=profile, speed_classes="app:bert=lite")


def test_a_measured_command_is_found_by_its_text(tmp_path, made):
    folder = made.pairs(tmp_path, modes((0.45, 0.45), (0.6, 0.6), pair=("mine", "train")))
    for manifest in folder.rglob("manifest.json"):
        about = json.loads(manifest.read_text())
        about["tenants"]["mine"] = {"work": "command", "command": "python my_train.py"}
        manifest.write_text(json.dumps(about))
    assert advise(folder, mix="python my_train.py, train").mode == "mps"
    with pytest.raises(DeviceError, match=r"not measured: `python other\.py`") as caught:
        advise(folder, mix="python other.py, train")
    assert 'command = "python other.py"' in caught.value.hint


def test_advice_flips_with_the_number_of_copies(tmp_path, made):
    """Two are better by turns, eight together: 0.45 each against 0.4, and 0.05 against 0.2."""
    cells = []
    for mode, each in (("time-slicing", {2: 0.45, 8: 0.05}), ("mps", {2: 0.4, 8: 0.2})):
        for block in range(2):
            cells.append(made.cell([made.tenant("serve", 100)], mode=mode, block=block))
            for n, speed in each.items():
                rates = [made.tenant("serve", 100 * speed * (1 + 0.001 * block))] * n
                cells.append(made.cell(rates, mode=mode, block=block))
    found = advise(made.suite(tmp_path, cells), mix="2 serve")
    assert found.mode == "time-slicing"
    flips = found.tables()["flips"].filter(pl.col("flips"))
    assert flips.select("mix", "best").rows() == [("8 serve", "mps")]
    assert "It flips to MPS with 8 tenants instead of 2" in " ".join(found.findings)


def test_advice_flips_with_the_pace_of_a_tenant(tmp_path, made):
    """The same training with pauses is another tenant of the same work."""
    tenants = {name: {"work": "x-train"} | rest for name, rest in (("busy", {}), ("idle", {"rest": 0.1}))}
    cells = []
    for mode, each in (("time-slicing", {"busy": 0.5, "idle": 0.8}), ("mps", {"busy": 0.6, "idle": 0.7})):
        for block in range(2):
            for name, speed in each.items():
                busy = 0.2 if name == "idle" else 1.0
                cells.append(made.cell([made.tenant(name, 100, busy=busy)], mode=mode, block=block, util=100 * busy))
                rates = [made.tenant(name, 100 * speed * (1 + 0.001 * block))] * 2
                cells.append(made.cell(rates, mode=mode, block=block))
    found = advise(made.suite(tmp_path, cells, tenants=tenants), mix="busy, busy")
    (flip,) = found.tables()["flips"].filter(pl.col("flips")).iter_rows(named=True)
    assert flip["best"] == "time-slicing"
    assert "busy 20 % of the time" in flip["changed"]


def test_costs_are_those_of_an_item_of_each_tenant(tmp_path, made):
    """1.2 GPUs' work: an item takes 1/1200 of a GPU second where it took 1/1000 alone, at 300 W."""
    folder = made.pairs(tmp_path, modes((0.45, 0.45), (0.6, 0.6)))
    costs = advise(folder, mix="train, serve", goal="cost", price=3.6).tables()["costs"]
    one = costs.filter((pl.col("mode") == "mps") & (pl.col("tenant") == "serve")).row(0, named=True)
    assert one["gpu_s_per_1000"] == pytest.approx(1 / 1.2, rel=1e-3)
    assert one["joules_an_item"] == pytest.approx(300 / 1200, rel=1e-3)
    assert one["cost_per_1000"] == pytest.approx(3.6 / 3600 / 1.2, rel=1e-3)


def test_joules_of_an_item_change_by_what_the_goal_energy_says():
    """One quantity, in two places: the energy relative to alone, and joules alone and shared, with their limits."""
    found = advise(H200, mix="resnet-train, resnet-infer", goal="energy").tables()
    goal = {row["mode"]: row for row in found["choice"].iter_rows(named=True)}
    costs = {(row["mode"], row["tenant"]): row for row in found["costs"].iter_rows(named=True)}
    for (mode, tenant), row in costs.items():
        if mode != "alone":
            for end in ("", "_low", "_high"):
                ratio = row[f"joules_an_item{end}"] / costs["alone", tenant]["joules_an_item"]
                assert ratio == pytest.approx(goal[mode][f"value{end}"])


def test_costs_stay_above_nothing_where_the_noise_is_large(tmp_path, made):
    cells = []
    for mode in ("time-slicing", "mps"):
        for block, rate in enumerate((100.0, 3000.0)):
            cells += [made.cell([made.tenant("serve", rate)], mode=mode, block=block)]
            cells += [made.cell([made.tenant("serve", rate / 2)] * 2, mode=mode, block=block)]
    costs = advise(made.suite(tmp_path, cells), mix="2 serve").tables()["costs"]
    ends = costs.select("gpu_s_per_1000_low", "gpu_s_per_1000", "gpu_s_per_1000_high").rows()
    assert all(0 < low <= value <= high for low, value, high in ends)


def test_limits_and_replicas_are_those_that_were_measured(tmp_path, made):
    both = {"time-slicing": {PAIR: (0.4, 0.4)}, "mps@50": {PAIR: (0.6, 0.6)}}
    settings = advise(made.pairs(tmp_path, both), mix="train, serve").tables()["settings"]
    told = {(row["for"], row["setting"]): row["value"] for row in settings.iter_rows(named=True)}
    assert told["GPU", "sharing.mps.resources[].replicas"] == "2"
    assert told["serve", "CUDA_MPS_ACTIVE_THREAD_PERCENTAGE"] == "50"


@pytest.mark.parametrize("mode", ["mps", "mps@70"])
def test_replicas_are_not_advised_where_the_device_plugin_gives_another_mode(tmp_path, made, mode):
    """It limits each of two clients to 50 %."""
    both = {"time-slicing": {PAIR: (0.4, 0.4)}, mode: {PAIR: (0.6, 0.6)}}
    settings = advise(made.pairs(tmp_path, both), mix="train, serve").tables()["settings"]
    (row,) = settings.filter(pl.col("setting") == "sharing.mps.resources[].replicas").iter_rows(named=True)
    assert row["value"] == "none"
    assert "would limit each to 50 %" in row["why"]


def test_flips_of_a_mode_that_is_not_predicted_are_not_known():
    found = advise(H200, mix="resnet-train, resnet-infer", goal="worst")
    flips = found.tables()["flips"]
    assert flips["flips"].null_count() == flips.height > 0
    assert {"2 resnet-infer + resnet-train", "resnet-infer + 2 resnet-train"} <= set(flips["mix"])
    assert "When it flips is not known" in found.findings[-1]


def test_a_limit_of_sms_guarantees_no_memory():
    assert guaranteed("mps@50") == guaranteed("mps") == guaranteed("time-slicing") < guaranteed("mps~4096")


def test_servers_of_language_models_are_pointed_to_their_goal():
    with pytest.raises(DeviceError, match="answers its arrival rate in every mode in which it keeps up") as caught:
        advise(H200.parent / "h200-llm", mix="llm-serve, llm-serve")
    assert "goodput" in caught.value.hint


def test_a_file_is_not_a_folder():
    with pytest.raises(DeviceError, match="not a folder"):
        advise(Path(__file__), mix="train")


def test_isolation_is_advised_by_guarantee_and_not_by_measurement(tmp_path, made):
    found = advise(made.pairs(tmp_path, modes((0.45, 0.45), (0.6, 0.6))), mix="train, serve", goal="isolation")
    assert (found.mode, found.verdict) == ("mig", "by guarantee")
    assert "not measured here" in found.findings[0]


def test_probes_of_isolation_in_the_folder_are_told_beside_the_guarantees(tmp_path, made):
    folder = made.pairs(tmp_path, modes((0.45, 0.45), (0.6, 0.6)))
    (folder / "isolation").mkdir()
    (folder / "isolation" / "manifest.json").write_text("{}")
    cells = [
        {"cell": f"{mode}/information/exit", "mode": mode, "probe": "information", "kind": "exit", "status": "ok"}
        | {"found_share": share, "read_mib": 2048}
        for mode, share in (("time-slicing", 0.0), ("mps-limited", 0.7))
    ]
    (folder / "isolation" / "probes.jsonl").write_text("".join(json.dumps(cell) + "\n" for cell in cells))
    found = advise(folder, mix="train, serve", goal="isolation")
    assert found.tables()["isolation"]["verdict"].to_list() == ["kept", "lost"]


def test_modes_that_guarantee_the_same_are_ranked_by_the_probes_of_the_h200():
    """By documentation all three guarantee one of five; of five that were probed in all, 4, 2 and 2 were kept."""
    found = advise(H200.parent, mix="resnet-train, resnet-infer", goal="isolation")
    assert found.tables()["choice"]["mode"].to_list() == ["mig", "time-slicing", "mps@50", "mps"]
    (said,) = [s for s in found.findings if s.startswith("By the probes of this folder time slicing comes first")]
    assert "of 5 that were probed in all of them (fault isolation, " in said
    assert said.endswith("time slicing kept 4, MPS at 50 % kept 2 and MPS kept 2.")
    assert found.tables()["choice"]["probes"].to_list() == [None, 5, 5, 5]


def test_the_setting_that_was_probed_is_named_where_it_is_another():
    found = advise(H200.parent, mix="4 llm-serve", goal="isolation")
    assert "MPS at 25 % itself was not probed, MPS at 50 % with 16,384 MiB each was." in found.findings
    (row,) = found.tables()["choice"].filter(mode="mps@25").iter_rows(named=True)
    assert row["probed_as"] == "mps@50~16384"


def test_the_faults_that_are_told_are_those_that_the_probes_of_the_h200_recorded():
    lines = gzip.decompress((H200.parent / "h200-isolation" / "probes.jsonl.gz").read_bytes()).decode().splitlines()
    faults = [cell for cell in map(json.loads, lines) if cell["probe"] == "faults" and cell["mode"] == "mps"]
    died = [cell["kind"] for cell in faults if not cell["neighbor"]["survived"]]
    lived = [cell["kind"] for cell in faults if cell["neighbor"]["survived"]]
    found = advise(H200.parent, mix="resnet-train, resnet-infer", goal="isolation")
    said = f"MPS: the neighbor died of: {', '.join(died)}; it survived: {', '.join(lived)}"
    assert (died, lived) == (["kill", "illegal-access"], ["hang", "assert"])
    assert said in found.findings[-1]


def test_the_memory_cap_that_probes_found_is_that_of_a_memory_limit():
    found = advise(H200.parent, mix="resnet-train, resnet-infer", goal="isolation")
    (kept,) = found.tables()["isolation"].filter(guarantee="memory cap", verdict="kept").iter_rows(named=True)
    assert kept["mode"] == "mps@50~16384"


# --- a layout of MIG --------------------------------------------------------------------------------------------------


def test_a_mig_layout_has_a_profile_for_each_tenant_and_fits():
    """The training is slower on a part of the SMs than single images, so it gets the larger instance."""
    found = advise(H200, mix="resnet-train, resnet-infer", goal="isolation")
    settings = {(row["for"], row["setting"]): row for row in found.tables()["settings"].iter_rows(named=True)}
    assert settings["resnet-train", "MIG profile"]["value"] == "4g.71gb"
    assert settings["resnet-infer", "MIG profile"]["value"] == "3g.71gb"
    layout = settings["GPU", "MIG layout"]["value"]
    assert layout_name(place(mig_gpu("H200"), parse_layout(layout))) == layout == "4g.71gb,3g.71gb"
    assert "predicted, not measured" in settings["GPU", "MIG layout"]["why"]


def test_the_predicted_speed_of_an_instance_is_that_of_bench_mig():
    slices = predict_slices([H200 / name for name in ("solo", "pairs-ts", "sm-curve")]).tables()["slices"]
    (row,) = slices.filter(workload="resnet-train", profile="4g.71gb").iter_rows(named=True)
    (found,) = [s for s in advise(H200, mix="resnet-train, resnet-infer", goal="isolation").findings if "4g" in s]
    assert f"4g.71gb for resnet-train ({row['speed']:.2f}, " in found


@pytest.mark.parametrize(
    ("goal", "of"), [("throughput", sum), ("worst", min), ("cost", lambda speeds: 1 / sum(speeds))]
)
def test_mig_is_predicted_beside_the_measured_modes_and_not_chosen(goal, of):
    """On 3g and 4g: the speeds that `bench mig` predicts, and what a goal makes of them."""
    slices = predict_slices([H200 / name for name in ("solo", "pairs-ts", "sm-curve")]).tables()["slices"]
    found = advise(H200, mix="resnet-train, resnet-infer", goal=goal)
    (row,) = found.tables()["choice"].filter(verdict="predicted").iter_rows(named=True)
    at = {"resnet-train": "4g.71gb", "resnet-infer": "3g.71gb"}
    speeds = [slices.filter(workload=work, profile=profile)["speed"].item() for work, profile in at.items()]
    assert row["value"] == pytest.approx(of(speeds), rel=0.02)
    assert row["mode"] == "mig:4g.71gb,3g.71gb"
    assert found.mode == "mps@50"


def test_what_is_not_predicted_of_mig_is_told():
    found = advise(H200, mix="resnet-train, serve-800", goal="p99")
    (said,) = [s for s in found.findings if s.startswith("MIG was not measured")]
    assert "tail latency on its instances is not predicted; `fleetlab bench suite PLAN --allow-mig` measures it" in said
    assert "predicted" not in found.tables()["choice"]["verdict"]


def test_memory_decides_which_instance_holds_a_tenant(tmp_path, made):
    """15,000 MiB and a context fit on the 19.5 GiB of three slices, but not on the 9.62 of two."""
    cells = []
    for mode in ("time-slicing", "mps"):
        serve, train = made.tenant("serve", 50.0), made.tenant("train", 50.0)
        small, large = serve | {"memory_mib": 3000}, train | {"memory_mib": 15_000}
        cells.append(made.cell([small, small, large], mode=mode))
    found = advise(made.suite(tmp_path, cells, card="NVIDIA A100-SXM4-40GB"), mix="train, 2 serve", goal="isolation")
    rows = found.tables()["settings"].filter(setting="MIG profile")
    assert rows.select("for", "value").rows() == [("serve", "2g.10gb"), ("serve", "2g.10gb"), ("train", "3g.20gb")]


def test_classes_have_no_layout_of_instances():
    """What a class holds in memory is not known."""
    found = advise(H200, mix="light, medium", goal="isolation")
    (row,) = found.tables()["settings"].iter_rows(named=True)
    assert (found.mode, row["value"]) == ("mig", "none")
    assert not any("g.71gb" in sentence for sentence in found.findings)


def test_more_tenants_than_instances_are_not_advised_to_use_mig():
    found = advise(H200.parent / "h200-notebook", mix="8 notebook", goal="isolation")
    assert found.mode == "time-slicing"
    assert any("at most 7 instances, for 8 tenants" in sentence for sentence in found.findings)


@pytest.mark.parametrize(
    ("words", "why"),
    [
        ({"mix": "trian, serve"}, "did you mean train"),
        ({"mix": " , "}, "no tenant is named"),
        ({"mix": "train", "goal": "speed"}, "no goal by that name"),
        ({"mix": "train, serve", "margin": 2.0}, "not a margin"),
        ({"mix": "train, serve", "price": -1.0}, "not a price"),
        ({"mix": "train, train, train"}, "not measured in two modes"),
    ],
)
def test_what_cannot_be_answered_is_told(tmp_path, made, words, why):
    folder = made.pairs(tmp_path, modes((0.45, 0.45), (0.6, 0.6)))
    with pytest.raises(DeviceError, match=why):
        advise(folder, **words)


def test_too_few_requests_have_no_p99_and_say_so(tmp_path, made):
    cells = [
        made.cell([made.tenant("serve", 10, step=[0.01] * 30, offered=30), made.tenant("train", 50)], mode=mode)
        for mode in ("time-slicing", "mps")
    ]
    with pytest.raises(DeviceError, match="p99 is not known in two modes") as caught:
        advise(made.suite(tmp_path, cells), mix="train, serve", goal="p99")
    assert "299 requests" in caught.value.hint


# --- the measured H200 ------------------------------------------------------------------------------------------------


@pytest.mark.parametrize(
    ("mix", "goal", "best"),
    [("resnet-train, resnet-infer", "worst", "mps@50"), ("resnet-train, resnet-train", "throughput", "mps")],
)
def test_the_h200_is_advised_as_its_tables_say(mix, goal, best):
    found = advise(H200, mix=mix, goal=goal)
    assert (found.mode, found.verdict) == (best, "better")


def test_a_tail_whose_requests_wait_in_unknown_groups_has_no_interval_and_decides_nothing():
    """The first run on the H200 did not record how requests wait in groups."""
    found = advise(H200, mix="resnet-train, serve-200", goal="p99")
    assert (found.mode, found.verdict) == ("mps@50", "not known")
    assert found.tables()["choice"]["value_low"].is_nan().all()
    assert "the P99 has no interval" in found.findings[0]


def flip(**about):
    row = {"mix": "a + b", "changed": "a + b by itself", "best": "mps", "margin": 0.2, "kind": "measured"}
    return row | {"flips": True, **about}


def test_a_mix_by_itself_is_named_once_in_a_flip():
    assert list(flip_sentences([flip()], mixes=True)) == [
        "It flips to MPS with a + b by itself: 20 % better there than the next."
    ]


def test_two_cases_are_both():
    (said,) = flip_sentences([flip(flips=None), flip(flips=None)])
    assert said.startswith("When it flips is not known: in both cases of the same work")


@pytest.mark.parametrize(
    ("known", "cases", "said"),
    [
        (True, 1, "It does not flip in the one case of the same work"),
        (True, 2, "It does not flip in either of the 2 cases of the same work"),
        (True, 3, "It does not flip in any of the 3 cases of the same work"),
        (False, 2, "One of these modes is among the best in both cases of the same work"),
        (False, 0, "Which is best in other cases is not measured: the folder has no case of the same work"),
    ],
)
def test_only_what_is_known_can_flip(known, cases, said):
    (found,) = flip_sentences([flip(flips=False)] * cases, known=known)
    assert found.startswith(said)


def test_where_the_best_is_not_known_another_mode_is_best_elsewhere():
    (found,) = flip_sentences([flip()], known=False)
    assert found == "MPS is best with a + b by itself: 20 % better there than the next."


def test_a_neighbor_of_requests_keeps_its_speed_within_an_interval(tmp_path, made):
    """Blocks at 0.5 and 1 % to each side: the mean has a standard error of 0.01, and Student's t of one is 12.706."""
    cells = []
    for mode, speed in (("time-slicing", 0.4), ("mps", 0.5)):
        for block, off in enumerate((0.01, -0.01)):
            served = made.tenant("serve", 200, step=[0.01] * 1000, offered=1000)
            train = made.tenant("train", 100 * speed * math.exp(off))
            cells += [made.cell([served, train], mode=mode, block=block)]
            cells += [made.cell([made.tenant("train", 100.0)], mode=mode, block=block)]
    found = advise(made.suite(tmp_path, cells), mix="train, serve", goal="p99")
    (row,) = found.tables()["beside"].filter(mode="mps").iter_rows(named=True)
    half = math.exp(12.706 * 0.01)
    expected = (0.5, 0.5 / half, 0.5 * half)
    assert (row["value"], row["value_low"], row["value_high"]) == pytest.approx(expected, rel=1e-4)
    assert "0.500 (0.440 to 0.568) under MPS" in " ".join(found.findings)


def test_two_runs_of_a_probe_are_one_row():
    rows = advise(H200.parent, mix="resnet-train, resnet-infer", goal="isolation").tables()["isolation"]
    assert rows.select("mode", "guarantee").is_unique().all()
    (twice,) = rows.filter(mode="mps@50~16384", guarantee="confidentiality").iter_rows(named=True)
    assert (twice["runs"], twice["verdict"]) == (2, "kept")


@pytest.mark.parametrize(
    ("mix", "goal"),
    [
        ("resnet-train, resnet-infer", "cost"),
        ("llm-serve, resnet-train", "goodput"),
        ("4 notebook, resnet-train", "answer"),
        ("light, heavy", "throughput"),
    ],
)
def test_mixes_of_the_help_were_measured(mix, goal, command):
    said = " ".join(command("bench", "advise", "--help").stdout.replace("\\\n", " ").split())
    assert f'--mix "{mix}" --goal {goal}' in said
    assert advise(H200.parent, mix=mix, goal=goal).mode


def test_later_runs_of_the_same_cells_tell_how_requests_wait_in_groups():
    """MPS at 50 % is ahead of the three others beyond the noise, by two later runs: so wide is it between runs."""
    found = advise(H200.parent, mix="resnet-train, serve-200", goal="p99")
    verdicts = dict(found.tables()["choice"].select("mode", "verdict").rows())
    assert verdicts == {"mps@50": "best", "time-slicing": "worse", "mps": "worse", "mps!1": "worse"}
    assert "MPS at 50 %, 40 % (6 to 61 %) shorter than with time slicing" in found.findings[0]


def test_requests_in_groups_widen_the_interval_of_a_tail(tmp_path, made):
    """1,000 requests in groups of 40 are worth 25: too few for an upper limit of P99."""
    widths = []
    for group in (1.0, 2.0, 40.0):
        cells = []
        for mode, slow in (("time-slicing", 0.02), ("mps", 0.01)):
            steps = [slow * (1 + k / 1000) for k in range(1000)]
            asked = made.tenant("serve", 200, step=steps, offered=1000, group=group)
            cells.append(made.cell([asked, made.tenant("train", 50)], mode=mode))
        found = advise(made.suite(tmp_path / str(group), cells), mix="train, serve", goal="p99")
        row = found.tables()["choice"].row(0, named=True)
        widths.append(row["value_high"] - row["value_low"])
    assert 0 < widths[0] < widths[1] < widths[2] == float("inf")


def test_the_page_has_the_advice_first(tmp_path, command):
    words = ["bench", "advise", str(H200), "--mix", "resnet-train, resnet-infer", "--goal", "worst", "--price", "3.5"]
    done = command(*words, "--out", str(tmp_path / "advice.html"))
    assert done.returncode == 0
    assert "MPS at 50 %, by" in done.stdout.splitlines()[0]
    assert "MPS at 50 %, by" in (tmp_path / "advice.html").read_text()


def test_one_tenant_alone_is_no_flip():
    """`serve-200` is `resnet-infer` on a schedule, and was measured alone too."""
    found = advise(H200, mix="resnet-infer, resnet-infer", goal="p99")
    assert "P95 of steps" in found.findings[0]
    assert not [n for n in found.tables()["flips"].to_dicts() if n["tenants"] < 2]


def test_servers_of_language_models_have_no_limit_of_step_times():
    found = analyze(H200.parent / "h200-llm")
    assert "does not meet the latency limit" not in " ".join(found.findings)
    (said,) = [s for s in found.findings if s.startswith("llm-serve beside bert-train")]
    assert "0 under time slicing" in said
