"""What an analysis says of hand-made suites: the words follow the numbers, whichever way these go."""

import re

import polars as pl
import pytest
from realtest.archives import gpu_sharing

from fleetlab.gpu.bench.analysis import analyze

H200 = gpu_sharing() / "h200"
PAIRS = [("train", "train"), ("learn", "train"), ("learn", "learn")]


def said(found, k):
    """The answer to the k-th question."""
    return str(found.answers()[k - 1])


def row(frame, **by):
    found = frame.filter(*(pl.col(key) == value for key, value in by.items()))
    assert found.height == 1
    return found.row(0, named=True)


@pytest.mark.parametrize(
    ("slicing", "mps", "best", "words"),
    [(0.45, 0.54, "mps", "MPS had 20.0 %"), (0.54, 0.45, "time-slicing", "MPS had 16.7 %")],
)
def test_the_better_mode_is_told_whichever_it_is(tmp_path, made, slicing, mps, best, words):
    modes = {"time-slicing": dict.fromkeys(PAIRS, (slicing, slicing)), "mps": dict.fromkeys(PAIRS, (mps, mps))}
    found = analyze(made.pairs(tmp_path, modes))
    assert found.tables()["kinds"].filter(pl.col("goal") == "throughput")["best"].to_list() == [best]
    assert found.tables()["advice"]["best"].unique().to_list() == [best]
    assert words in said(found, 1)
    assert ("more" if best == "mps" else "less") in said(found, 1).rpartition("MPS did")[2]


@pytest.mark.parametrize(
    ("progress", "verdict", "words"),
    [
        (0.40, "holds", "lose 20"),
        (0.48, "does not hold", "lose 4"),
        (0.30, "does not hold", "lose 40"),
        (0.60, "does not hold", "gain 20"),
    ],
)
def test_the_overhead_of_time_slicing_is_compared_with_what_is_expected(tmp_path, made, progress, verdict, words):
    found = analyze(made.pairs(tmp_path, {"time-slicing": {("train", "train"): (progress, progress)}}))
    claim = row(found.tables()["expected"], mode="time-slicing", expected="10 to 30 %")
    assert claim["verdict"] == verdict
    assert claim["came"] == pytest.approx(1 - 2 * progress, abs=1e-3)
    assert words in said(found, 4)


def test_a_program_that_leaves_the_gpu_idle_does_not_saturate_it(tmp_path, made):
    """It only counts its steps, as one of one's own does; the GPU is in use 35 % of the time, and two have all."""
    cells = [made.cell([made.tenant("own", 100)], util=35.0, block=block) for block in range(2)]
    cells += [made.cell([made.tenant("own", 90)] * 2, util=70.0, block=block) for block in range(2)]
    cells += [made.cell([made.tenant("train", 100)], block=block) for block in range(2)]
    cells += [made.cell([made.tenant("train", 45)] * 2, block=block) for block in range(2)]
    found = analyze(made.suite(tmp_path, cells))
    assert found.tables()["mixes"].filter(mix="2 own")["kind"].to_list() == ["anything + part-time"]
    assert "over 1 tenant each of which saturates it alone" in said(found, 4)
    assert "own" not in said(found, 4)


def test_what_tenants_lose_and_gain_is_said_of_each(tmp_path, made):
    pairs = {("train", "train"): (0.4, 0.4), ("learn", "learn"): (0.6, 0.6)}
    text = said(analyze(made.pairs(tmp_path, {"time-slicing": pairs})), 4)
    assert "two train lose 20" in text
    assert "two learn gain 20" in text


def test_limits_that_reach_to_both_sides_decide_nothing(tmp_path, made):
    pairs = {("train", "train"): (0.47, 0.47), ("learn", "learn"): (0.43, 0.43)}
    found = analyze(made.pairs(tmp_path, {"time-slicing": pairs}))
    assert row(found.tables()["expected"], expected="10 to 30 %")["verdict"].startswith("undecided")


def test_utilisation_is_compared_with_what_is_expected(tmp_path, made):
    cells = []
    for block in range(2):
        cells += [made.cell([made.tenant("train", 100)], mode="mps", block=block)]
        cells += [made.cell([made.tenant("train", 55), made.tenant("train", 55)], mode="mps", block=block, util=70.0)]
    found = analyze(made.suite(tmp_path, cells))
    assert row(found.tables()["expected"], mode="mps", expected="above 85 %")["verdict"] == "does not hold"


def test_what_was_not_measured_is_said_to_be_so(tmp_path, made):
    found = analyze(made.suite(tmp_path, [made.cell([made.tenant("train", 100)])]))
    assert all("not measured" in str(answer).lower() for answer in found.answers())
    assert set(found.tables()["expected"]["verdict"]) == {"not measured"}
    assert found.tables()["advice"].is_empty()
    assert "not measured, no mix was measured in two modes" in found.findings[-2]


def test_mig_is_never_said_to_be_measured(tmp_path, made):
    modes = {mode: dict.fromkeys(PAIRS, (0.5, 0.5)) for mode in ("time-slicing", "mps")}
    found = analyze(made.pairs(tmp_path, modes))
    assert "MIG: not measured" in said(found, 3)
    assert set(found.tables()["expected"].filter(pl.col("mode") == "mig")["verdict"]) == {"not measured"}


def test_the_worst_off_tenant_is_named(tmp_path, made):
    modes = {
        "time-slicing": {("serve", "train"): (0.45, 0.45), ("train", "train"): (0.45, 0.45)},
        "mps": {("serve", "train"): (0.25, 0.9), ("train", "train"): (0.55, 0.55)},
    }
    found = analyze(made.pairs(tmp_path, modes))
    assert re.search(r"0\.25\d* \(.*?\) under MPS \(serve \+ train\)", said(found, 3))


def test_goals_may_have_different_winners(tmp_path, made):
    """MPS does more in total, its share is fairer, and turns keep the tail short."""
    pair = ("serve", "train")
    modes = {
        "time-slicing": {pair: (0.40, 0.40), ("serve", "serve"): (0.4, 0.4)},
        "mps": {pair: (0.30, 0.90), ("serve", "serve"): (0.5, 0.5)},
        "mps@50": {pair: (0.50, 0.50), ("serve", "serve"): (0.5, 0.5)},
    }
    tails = {("time-slicing", *pair): (0.002, None), ("mps", *pair): (0.006, None), ("mps@50", *pair): (0.004, None)}
    advice = (
        analyze(made.pairs(tmp_path, modes, tails=tails)).tables()["advice"].filter(pl.col("mix") == "serve + train")
    )
    assert dict(advice.select("goal", "best").iter_rows()) == {
        "throughput": "mps",
        "fair": "mps@50",
        "latency": "time-slicing",
    }
    assert row(advice, goal="latency")["margin"] == pytest.approx(0.5, rel=1e-2)


def test_costs_turn_round_with_the_numbers(tmp_path, made):
    modes = {"time-slicing": {("serve", "serve"): (0.4, 0.4)}, "mps": {("serve", "serve"): (0.8, 0.8)}}
    found = analyze(made.pairs(tmp_path, modes), price=3.6)
    one = row(found.tables()["costs"], tenant="serve", mode="mps", tenants=2)
    assert one["gpu_s_per_1000"] == pytest.approx(1000 / 1600, rel=1e-5)
    assert one["cost_per_1000"] == pytest.approx(3.6 / 3600 * 1000 / 1600, rel=1e-5)
    assert one["joules_an_item"] == pytest.approx(300 / 1600, rel=1e-5)
    assert "0 of 1 mix under time slicing and 1 of 1 mix under MPS" in said(found, 6)
    assert "1.250 GPU hours" in said(found, 6) or "1.25" in said(found, 6)


def test_without_a_price_there_is_no_money(tmp_path, made):
    modes = {"mps": {("serve", "serve"): (0.8, 0.8)}}
    found = analyze(made.pairs(tmp_path, modes))
    assert "money" not in said(found, 6)
    assert "cost_per_1000" not in found.tables()["costs"].columns


def test_energy_is_that_of_the_same_work_alone(tmp_path, made):
    """Alone each draws 200 W. Together 330 W for 1.5 GPUs' work, which alone would take 300."""
    cells = []
    for block in range(2):
        cells += [made.cell([made.tenant("train", 100)], block=block, watts=200.0)]
        cells += [made.cell([made.tenant("train", 75)] * 2, block=block, watts=330.0)]
    found = analyze(made.suite(tmp_path, cells))
    assert found.tables()["mixes"]["energy_times"].to_list() == pytest.approx([1.1])


def test_being_a_client_of_mps_is_not_free(tmp_path, made):
    """Alone under MPS a tenant makes 0.8 of what it makes without: that is its progress, not 1."""
    modes = {"time-slicing": {("train", "train"): (0.5, 0.5)}, "mps": {("train", "train"): (0.4, 0.4)}}
    found = analyze(made.pairs(tmp_path, modes, alone={("mps", "train"): 0.8}))
    assert row(found.tables()["mixes"], mode="mps")["stp"] == pytest.approx(0.8, rel=1e-3)


def test_a_tenant_that_only_mps_saw_alone_is_compared_with_that(tmp_path, made):
    found = analyze(made.pairs(tmp_path, {"mps": {("train", "train"): (0.4, 0.4)}}, alone={("mps", "train"): 0.8}))
    assert row(found.tables()["mixes"], mode="mps")["stp"] == pytest.approx(1.0, rel=1e-3)
    assert any("relative to alone under MPS: train" in note for note in found.notes)


def test_kinds_of_mixes_are_told_by_work_and_by_what_the_host_does(tmp_path, made):
    cells = [made.cell([made.tenant("train", 100)]), made.cell([made.tenant("serve", 100)])]
    cells += [made.cell([made.tenant("small", 100, starved=1.0)]), made.cell([made.tenant("rare", 100, busy=0.2)])]
    for names in (("train", "serve"), ("train", "small"), ("serve", "rare"), ("train", "train"), ("serve", "serve")):
        cells.append(made.cell([made.tenant(name, 50) for name in names]))
    found = analyze(made.suite(tmp_path, cells)).tables()["mixes"]
    assert dict(found.select("mix", "kind").iter_rows()) == {
        "serve + train": "training + inference",
        "small + train": "anything + launch-bound",
        "rare + serve": "anything + part-time",
        "2 train": "training + training",
        "2 serve": "inference + inference",
    }


def test_one_name_with_other_settings_is_two_tenants(tmp_path, made):
    for k, batch in enumerate((8, 64)):
        cells = [made.cell([made.tenant("serve", 100 * (k + 1))]), made.cell([made.tenant("serve", 60.0)] * 2)]
        made.suite(tmp_path / str(k), cells, tenants={"serve": {"work": "resnet-infer", "batch": batch}})
    found = analyze(tmp_path)
    stp = dict(found.tables()["mixes"].select("mix", "stp").iter_rows())
    assert stp == {"2 serve": pytest.approx(1.2), "2 serve (2)": pytest.approx(0.6)}
    assert any("other settings" in note for note in found.notes)


def test_one_work_under_two_names_is_counted_once(tmp_path, made):
    """The overhead is a mean over tenants: 20 % and 40 %, not 20, 20 and 40."""
    tenants = {"a": {"work": "x-train"}, "b": {"work": "x-train"}, "c": {"work": "y-train"}}
    cells = []
    for name, rate in (("a", 40), ("b", 40), ("c", 30)):
        for block in range(2):
            cells += [made.cell([made.tenant(name, 100)], block=block)]
            cells += [made.cell([made.tenant(name, rate)] * 2, block=block)]
    found = analyze(made.suite(tmp_path, cells, tenants=tenants))
    came = row(found.tables()["expected"], mode="time-slicing", expected="10 to 30 %")["came"]
    assert came == pytest.approx(1 - (0.8 * 0.6) ** 0.5)


def test_tenants_of_one_process_are_modes_of_their_own(tmp_path, made):
    both = ("one-process", "time-slicing")
    cells = [made.cell([made.tenant(name, 100)], mode=mode) for name in ("serve", "train") for mode in both]
    cells += [made.cell([made.tenant("serve!high", 70), made.tenant("train!low", 40)], mode="one-process")]
    cells += [made.cell([made.tenant("serve@64sms", 60), made.tenant("train@64sms", 60)], mode="one-process")]
    mixes = analyze(made.suite(tmp_path, cells)).tables()["mixes"]
    assert dict(mixes.select("mode", "stp").iter_rows()) == pytest.approx(
        {"one-process!high!low": 1.1, "one-process@64sms": 1.2}
    )
    assert set(mixes["mix"]) == {"serve + train"}


# --- more and more of the same ---------------------------------------------------------------------------------------


def crowd(made, mode, tails):
    """So many `serve`, each of whose steps takes so long."""
    return [
        made.cell([made.tenant("serve", 1000 / n, step=tail)] * n, mode=mode, block=block)
        for n, tail in tails.items()
        for block in range(2)
    ]


def test_breaking_points_are_where_the_tail_is(tmp_path, made):
    cells = crowd(made, "time-slicing", {1: 0.001, 2: 0.004, 4: 0.008}) + crowd(
        made, "mps", {1: 0.001, 2: 0.001, 4: 0.002}
    )
    found = analyze(made.suite(tmp_path, cells))
    assert (
        "time slicing serve keeps P95 within 3 times that of one tenant with up to 1 copy, and exceeds it with 2"
        in said(found, 2)
    )
    assert "MPS serve keeps P95 within 3 times that of one tenant with up to 4 copies, of at most 4 measured" in said(
        found, 2
    )
    looser = analyze(tmp_path, slo_factor=5)
    assert (
        "time slicing serve keeps P95 within 5 times that of one tenant with up to 2 copies, and exceeds it with 4"
        in said(looser, 2)
    )


def test_a_tail_may_be_limited_in_milliseconds(tmp_path, made):
    cells = crowd(made, "mps", {1: 0.010, 2: 0.012, 4: 0.040})
    found = analyze(made.suite(tmp_path, cells), slo_ms=15)
    assert found.tables()["scale"]["state"].to_list() == ["holds", "holds", "breaks"]
    assert "MPS serve keeps P95 within 15 ms with up to 2 copies, and exceeds it with 4: 39.99 ms" in said(found, 2)


def test_a_server_that_falls_behind_does_not_fit(tmp_path, made):
    asked = made.tenant("asked", 100, step=[0.001] * 600, offered=500)
    cells = [made.cell([asked]), made.cell([asked, asked | {"unsent": 3}])]
    found = analyze(made.suite(tmp_path, cells))
    assert found.tables()["scale"]["state"].to_list() == ["holds", "breaks"]
    assert "with up to 1 copy, and does not send all requests with 2" in said(found, 2)


def test_a_cell_that_failed_is_a_breaking_point(tmp_path, made):
    cells = [*crowd(made, "mps", {1: 0.001, 2: 0.001, 4: 0.001}), made.failed("8xserve")]
    found = analyze(made.suite(tmp_path, cells))
    assert "with up to 4 copies, and fails with 8: out-of-memory" in said(found, 2)
    assert "1 cell failed (out-of-memory)" in said(found, 3)


# --- open-loop requests ----------------------------------------------------------------------------------------------


def served(made, mode, tail, **more):
    """Background alone, and a server at 100 requests per second whose slow ones take `tail`."""
    steps = [0.001] * 900 + [tail] * 100
    one = made.tenant("serve", 100, step=steps, offered=500, **more)
    return [made.cell([made.tenant("train", 100)], mode=mode), made.cell([one, made.tenant("train", 60)], mode=mode)]


@pytest.mark.parametrize(("slicing", "mps", "best"), [(0.02, 0.005, "mps"), (0.005, 0.02, "time-slicing")])
def test_the_shortest_tail_wins_beside_a_background(tmp_path, made, slicing, mps, best):
    cells = served(made, "time-slicing", slicing) + served(made, "mps", mps)
    found = analyze(made.suite(tmp_path, cells))
    advice = row(found.tables()["advice"], mix="serve beside train")
    assert (advice["best"], advice["verdict"], advice["margin"]) == (best, "better", pytest.approx(0.75, rel=0.01))
    one = row(found.tables()["serving"], mode="mps")
    assert (one["p99_ms"], one["offered"]) == (pytest.approx(1000 * mps, rel=2e-3), pytest.approx(100))
    assert one["background_progress"] == pytest.approx(0.6)


def test_a_sender_that_fell_behind_decides_nothing(tmp_path, made):
    cells = served(made, "time-slicing", 0.02) + served(made, "mps", 0.005, lag=0.01)
    found = analyze(made.suite(tmp_path, cells))
    assert row(found.tables()["serving"], mode="mps")["valid"] is False
    assert "serve beside train" not in found.tables()["advice"]["mix"].to_list()
    assert any("above 1 ms" in note for note in found.notes)


# --- the curve, and a real GPU --------------------------------------------------------------------------------------


def test_a_curve_is_each_tenant_on_a_part_of_the_card(tmp_path, made):
    cells = [made.cell([made.tenant("train", 100)])]
    for percent, sms, rate in ((25, 32, 30), (50, 66, 60), (100, 132, 95)):
        cells.append(made.cell([made.tenant(f"train@{percent}", rate, sms=sms)], mode="mps"))
    curve = analyze(made.suite(tmp_path, cells)).tables()["curve"]
    assert dict(curve.select("sms", "progress").iter_rows()) == pytest.approx({32: 0.3, 66: 0.6, 132: 0.95})


def test_the_h200_says_what_its_page_says():
    """As read off the raw cells by another program, in docs/measurements/sharing.md."""
    found = analyze(H200)
    mixes = found.tables()["mixes"]
    assert row(mixes, mix="2 resnet-train", mode="mps")["stp"] == pytest.approx(1.09, abs=0.01)
    assert row(mixes, mix="2 resnet-train", mode="time-slicing")["stp"] == pytest.approx(0.90, abs=0.01)
    progress = row(found.tables()["progress"], mode="mps", tenant="resnet-infer", beside="resnet-train")
    assert progress["progress"] == pytest.approx(0.26, abs=0.02)
    assert re.search("time slicing resnet-infer keeps P95 .* with up to 1 copy, and exceeds it with 2", said(found, 2))
