"""Slices of a GPU, predicted: by hand, and against what others measured on A100s."""

from pathlib import Path

import polars as pl
import pytest
from benchmarks.mig_published import check_published, from_one, from_others, miso
from realtest.archives import gpu_sharing

import fleetlab
from fleetlab.gpu.bench.profile import predict_slices
from fleetlab.gpu.bench.profile.mig import ERROR_P90, GpuSlice, on_slice, stretch_curve

HALF, EIGHTH = GpuSlice("half", 0.5, 0.5), GpuSlice("eighth", 0.125, 0.125)


@pytest.fixture
def h200() -> Path:
    """What was measured on an H200, as the documents keep it."""
    return gpu_sharing() / "h200"


def test_a_step_takes_longer_with_fewer_sms_whatever_the_noise():
    found = stretch_curve({132: 100.0, 66: 60.0, 33: 70.0, 16: 20.0})
    assert found == pytest.approx({16 / 132: 5.0, 0.25: 100 / 65, 0.5: 100 / 65, 1.0: 1.0})


def test_a_slice_by_hand():
    """Half of the SMs stretch a step by 1.6; the memory, busy 0.3 of the time, takes 0.3 more on half of it."""
    found = on_slice({0.25: 2.8, 0.5: 1.6, 1.0: 1.0}, 0.3, HALF)
    assert found.value == pytest.approx(1 / 1.9)
    assert (found.low, found.high) == pytest.approx((1 / 1.9 / (1 + ERROR_P90), (1 + ERROR_P90) / 1.6))


def test_who_rests_minds_a_slice_less():
    stretch = {0.25: 4.0, 0.5: 2.0, 1.0: 1.0}
    assert on_slice(stretch, 0.0, HALF, busy=0.2).value == pytest.approx(1 / (0.8 + 0.2 * 2))


def test_nothing_is_stretched_more_than_its_means_are_cut():
    found = on_slice({0.125: 8.0, 1.0: 1.0}, 0.9, EIGHTH)
    assert found.value == pytest.approx(1 / 8)


def test_the_whole_card_is_the_whole_card():
    assert on_slice({0.5: 1.5, 1.0: 1.0}, 0.4, GpuSlice("all", 1.0, 1.0)).value == pytest.approx(1.0)


def test_between_two_numbers_of_sms_times_are_between():
    stretch = {0.25: 4.0, 1.0: 1.0}
    assert on_slice(stretch, 0.0, GpuSlice("half", 0.5, 1.0)).value == pytest.approx(0.5)
    assert on_slice(stretch, 0.0, GpuSlice("less", 0.125, 1.0)).value == pytest.approx(0.125)


def test_one_slice_gives_the_others_where_all_is_memory():
    """Three slices with the same SMs for their memory as the GPU: a step that waits for memory all the time."""
    thin = GpuSlice("thin", 0.9, 0.25)
    assert from_one(0.25, thin, 1.0, [GpuSlice("thinner", 0.9, 0.125)])["thinner"] == pytest.approx(0.125)


def test_one_slice_gives_itself():
    for speed, memory in ((0.5, 0.0), (0.35, 0.3), (0.9, 0.6), (0.26, 0.9)):
        known = GpuSlice("known", 2 / 7, 2 / 8)
        assert from_one(speed, known, memory, [known])["known"] == pytest.approx(speed)


def test_without_a_curve_there_is_nothing_to_foretell(h200):
    with pytest.raises(fleetlab.DeviceError, match="no workload was measured on fewer SMs"):
        predict_slices([h200 / "pairs-ts"])


def test_a_card_that_cannot_be_cut_is_said(h200):
    with pytest.raises(fleetlab.DeviceError, match="unknown GPU model with MIG"):
        predict_slices([h200], model="V100")


def test_every_prediction_says_that_it_is_one(h200):
    frame = predict_slices([h200]).tables()["slices"]
    assert set(frame["kind"]) == {"predicted"}
    assert (frame["low"] <= frame["speed"]).all()
    assert (frame["speed"] <= frame["high"]).all()
    assert (frame["high"] <= 1).all()
    whole = frame.filter(frame["profile"] == "7g.141gb")
    assert whole["speed"].to_list() == pytest.approx([1.0] * whole.height)


def test_the_largest_slice_of_an_a100_is_slower_than_the_card_without_mig(h200):
    frame = predict_slices([h200], model="A100-40").tables()["slices"].filter(pl.col("profile") == "7g.40gb")
    assert (frame["sms"] == 98 / 108).all()
    assert (frame["speed"] <= 1).all()
    assert frame["speed"].min() < 0.95


# --- against published tables ----------------------------------------------------------------------------------------


def test_a_folder_without_the_tables_is_said(tmp_path):
    with pytest.raises(fleetlab.DeviceError, match="cannot read the published table"):
        check_published(tmp_path)


@pytest.fixture(scope="module")
def tables():
    folder = Path(__file__).parents[4] / "shared" / "data" / "colocation"
    if not folder.is_dir():
        pytest.skip("no tables of papers beside the checkout")
    found = check_published(folder).tables()
    return {(r["table"], r["formula"]): r for r in found["tables"].iter_rows(named=True)}


@pytest.mark.data
def test_amdahl_on_misos_table_is_off_as_others_found(tables):
    found = tables["MISO", "Amdahl"]
    assert (found["speeds"], round(found["median"], 3), round(found["mean"], 3)) == (77, 0.053, 0.143)


@pytest.mark.data
def test_the_twin_is_within_five_percent_for_half_of_misos_settings(tables):
    assert tables["MISO", "SMs and memory"]["median"] <= 0.05


@pytest.mark.data
def test_nine_in_ten_are_within_what_the_limits_allow(tables):
    assert max(found["p90"] for (_, formula), found in tables.items() if "other" not in formula) <= ERROR_P90


@pytest.mark.data
def test_one_measured_slice_says_more_than_all_other_models(tables):
    for table in ("MISO", "ParvaGPU", "MIGProfiler"):
        assert tables[table, "Amdahl"]["median"] < tables[table, "mean of other models"]["median"]


@pytest.mark.data
def test_what_is_predicted_of_a_model_knows_nothing_of_it(data):
    """Its own speeds, whatever they are, do not change the prediction, only the error."""
    settings = miso(data / "colocation")
    first = settings[0].model
    wrong = [s._replace(speeds=dict.fromkeys(s.speeds, 0.5)) if s.model == first else s for s in settings]
    assert len({round((1 + m.error) * 0.5, 9) for m in from_others(wrong) if m.model == first and m.slices == 4}) == 1
    others = [m for m in from_others(settings) if m.model != first]
    assert others != [m for m in from_others(wrong) if m.model != first]
