"""Measured MIG cells against predictions: made of what was predicted, so that every error is known."""

import json

import polars as pl
import pytest
from realtest.archives import gpu_sharing

import fleetlab
from fleetlab.gpu.bench.profile import check_slices, predict_slices
from fleetlab.gpu.bench.profile.observations import read_observations

H200 = gpu_sharing() / "h200"
CURVES = [H200 / "solo", H200 / "sm-curve"]
TENANTS = ("resnet-train", "bert-infer")


@pytest.fixture(scope="module")
def told():
    """Alone rates, and predictions by workload and profile."""
    alone = {name: read_observations(CURVES).alone(name).value for name in TENANTS}
    frame = predict_slices(CURVES).frames["slices"]
    return alone, {(row["workload"], row["profile"]): row for row in frame.iter_rows(named=True)}


def cell(mode, block, tenants, **more):
    names = "+".join(f"{name}#{k}" for name, k, _ in tenants)
    made = [
        {"seat": f"{name}#{k}", "tenant": name, "copy": 0, "rate": rate, "rates": [rate] * 10, "attached": True} | more
        for name, k, rate in tenants
    ]
    about = {"cell": f"{mode}/{block}/{names}", "stage": mode, "mode": mode, "block": block, "status": "ok"}
    return about | {"tenants": made, "gpu": {}, "window": 3.0}


@pytest.fixture
def measured(tmp_path):
    """Writes cells as a suite on the same H200 would have."""

    def write(*cells):
        folder = tmp_path / "mig"
        folder.mkdir(exist_ok=True)
        manifest = json.loads((H200 / "sm-curve" / "manifest.json").read_text())
        (folder / "manifest.json").write_text(json.dumps(manifest | {"plan": "mig"}))
        (folder / "cells.jsonl").write_text("".join(json.dumps(c) + "\n" for c in cells))
        return [*CURVES, folder]

    return write


def on(told, workload, profile, factor=1.0):
    """The rate at which the measured speed is `factor` times the predicted one."""
    alone, speeds = told
    return factor * speeds[workload, profile]["speed"] * alone[workload]


def test_an_error_is_predicted_over_measured(told, measured):
    rate = on(told, "bert-infer", "3g.71gb", 1.25)
    found = check_slices(measured(*(cell("mig:2x3g.71gb", b, [("bert-infer", 1, rate)]) for b in (0, 1)))).frames
    (row,) = found["slices"].iter_rows(named=True)
    assert (row["workload"], row["profile"]) == ("bert-infer", "3g.71gb")
    assert row["error"] == pytest.approx(1 / 1.25 - 1)
    assert found["profiles"]["median_error"].to_list() == pytest.approx([0.2])


@pytest.mark.parametrize(("factor", "inside"), [(1.0, True), (0.5, False)])
def test_a_speed_is_inside_its_limits_or_not(told, measured, factor, inside):
    rate = on(told, "resnet-train", "2g.35gb", factor)
    found = check_slices(measured(cell("mig:3x2g.35gb", 0, [("resnet-train", 0, rate)])))
    assert found.frames["slices"]["inside"].to_list() == [inside]
    assert next(e.value for e in found.estimates if "inside" in e.metric) == inside


def test_the_profile_of_a_tenant_is_its_place_in_the_layout(told, measured):
    cells = [cell("mig:3g,2x2g", 0, [("resnet-train", k, 100.0)]) for k in (0, 2)]
    assert check_slices(measured(*cells)).frames["slices"]["profile"].to_list() == ["2g.35gb", "3g.71gb"]


def test_a_neighbor_on_another_instance_is_told(told, measured):
    pair = [("resnet-train", 0, 90.0), ("bert-infer", 1, 200.0)]
    alone = [cell("mig:2x3g.71gb", 0, [one]) for one in (("resnet-train", 0, 100.0), ("bert-infer", 1, 200.0))]
    found = check_slices(measured(*alone, cell("mig:2x3g.71gb", 0, pair))).frames["neighbors"]
    assert dict(found.select("workload", "beside_others").rows()) == {"resnet-train": 0.9, "bert-infer": 1.0}


def test_a_tenant_that_was_not_proved_to_be_there_does_not_count(told, measured):
    cells = [cell("mig:2x3g.71gb", b, [("bert-infer", 0, 100.0)], attached=b > 0) for b in (0, 1)]
    found = check_slices(measured(*cells))
    assert any("1 cells ignored" in note for note in found.notes)
    assert found.frames["slices"].height == 1


def test_without_mig_cells_the_command_that_measures_them_is_told():
    with pytest.raises(fleetlab.DeviceError, match="no workload was measured on a MIG instance") as e:
        check_slices(CURVES)
    assert "fleetlab bench suite mig --allow-mig" in e.value.hint


def test_mig_cells_do_not_change_a_prediction(told, measured):
    folders = measured(cell("mig:2x3g.71gb", 0, [("bert-infer", 1, 1.0)]))
    assert predict_slices(folders).frames["slices"].equals(predict_slices(CURVES).frames["slices"])


def test_every_prediction_is_compared(told, measured):
    profiles = ("1g.18gb", "1g.35gb", "2g.35gb", "3g.71gb", "4g.71gb", "7g.141gb")
    cells = [cell(f"mig:{p}", 0, [(t, 0, on(told, t, p))]) for p in profiles for t in TENANTS]
    found = check_slices(measured(*cells)).frames
    assert found["slices"].height == 12
    assert found["slices"]["error"].to_list() == pytest.approx([0.0] * 12)
    assert found["workloads"].select(pl.col("inside").sum()).item() == 12
