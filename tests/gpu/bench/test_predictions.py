"""Predictions that are made before a measurement, and what comes of them."""

import gzip
import json

import polars as pl
import pytest
from realtest.archives import gpu_sharing

from fleetlab.core import DeviceError
from fleetlab.core.display import display_columns
from fleetlab.gpu.bench.profile.predictions import (
    BAR,
    LEAST_SPREAD,
    PlanPrediction,
    compare_predictions,
    error_quantile,
    predict_plan,
)
from fleetlab.gpu.bench.run import make_plan

MEASURED = gpu_sharing()
SHIPPED = MEASURED / "h200-heldout" / "predictions.json"


def rows(plan, speeds, out):
    """Write a suite in which every tenant runs at the speed that `speeds` gives to a mix and a tenant."""
    out.mkdir()
    lines = []
    for cell in plan.cells:
        names = [seat.tenant for seat in cell.seats]
        tenants = [
            {"seat": n, "tenant": n, "copy": 0, "rate": 100 * speeds(cell.mode, names, n), "rates": [], "busy": 1.0}
            for n in names
        ]
        about = {"cell": cell.name, "stage": cell.stage, "mode": cell.mode, "block": 0, "status": "ok"}
        lines.append(json.dumps(about | {"tenants": tenants, "gpu": {}, "failures": [], "window": 2.0, "settle": 0.4}))
    (out / "cells.jsonl").write_text("\n".join(lines) + "\n")
    tenants = {name: {"work": t.work, **({"rest": t.rest} if t.rest else {})} for name, t in plan.tenants.items()}
    about = {"plan": plan.name, "tenants": tenants, "card": {"name": "NVIDIA H200"}, "stages": [], "skipped": []}
    (out / "manifest.json").write_text(json.dumps(about))
    return out


@pytest.fixture(scope="module")
def told():
    return {(r["mode"], r["mix"], r["workload"]): r["predicted"] for r in PlanPrediction.load(SHIPPED).frame.to_dicts()}


def test_every_mix_of_the_plan_was_predicted_with_an_interval_before_it_was_measured():
    frame = PlanPrediction.load(SHIPPED).frame
    cells = [c for c in make_plan("heldout").cells if len(c.seats) > 1]
    assert frame.height == sum(len({s.tenant for s in c.seats}) for c in cells)
    assert frame.filter((pl.col("low") > pl.col("predicted")) | (pl.col("high") < pl.col("predicted"))).is_empty()
    assert frame.filter((pl.col("low") <= 0) | (pl.col("predicted") > 1)).is_empty()


def test_a_measurement_that_is_off_by_a_known_amount_has_that_error(tmp_path, told):
    def off(mode, names, name):
        return 1.0 if len(names) == 1 else told[mode, "+".join(sorted(names)), name] - (0.02 if mode == "mps" else 0.0)

    folder = rows(make_plan("heldout"), off, tmp_path / "heldout")
    table = compare_predictions(SHIPPED, [folder]).frames["errors"]
    by = {(r["mode"], r["tenants"]): r for r in table.to_dicts()}
    assert by["mps", "all"]["mae"] == pytest.approx(0.02, abs=1e-3)
    assert by["mps", "3"]["bias"] == pytest.approx(0.02, abs=1e-3)
    assert by["time-slicing", "2"]["mae"] == pytest.approx(0, abs=1e-3)
    assert by["all", "all"]["speeds"] == len(told)


@pytest.fixture(scope="module")
def held_out():
    return compare_predictions(SHIPPED, [SHIPPED.parent])


def test_the_mixes_measured_after_their_prediction_are_within_the_bar(held_out):
    error, _, compared = held_out.summary()
    assert (error.value <= BAR, error.high <= BAR, compared.value) == (True, True, 94)


def test_the_least_width_of_intervals_follows_from_the_errors_on_held_out_mixes(held_out):
    speeds = held_out.frames["speeds"]
    off = speeds.with_columns(off=(pl.col("predicted") / pl.col("measured")).log().abs()).sort("off")
    errors = {k: error_quantile(off.filter(mode=k[0], size=k[1])["off"].to_list()) for k in LEAST_SPREAD}
    assert errors == pytest.approx(LEAST_SPREAD, abs=1e-3)


def test_a_new_prediction_under_mps_is_at_least_as_wide_as_the_errors_before(tmp_path):
    (tmp_path / "mine.toml").write_text(
        '[suite]\nmodes = ["time-slicing", "mps"]\nmixes = [["resnet-infer", "resnet-light"]]\n'
        '[tenant.resnet-infer]\nworkload = "resnet-infer"\n[tenant.resnet-light]\nworkload = "resnet-train"\n'
    )
    folders = sorted(path.parent for path in (MEASURED / "h200").glob("*/manifest.json"))
    frame = predict_plan(make_plan(str(tmp_path / "mine.toml")), folders).frame
    width = frame.select(pl.col("mode"), width=(pl.col("high") / pl.col("low")).log() / 2)
    assert width.filter(mode="mps")["width"].min() >= LEAST_SPREAD["mps", 2] - 1e-3
    assert width.filter(mode="time-slicing")["width"].max() < LEAST_SPREAD["mps", 2]


def test_the_heading_of_prediction_intervals_is_not_that_of_confidence_intervals(held_out):
    heads = {name: [c.name for c in display_columns(frame)] for name, frame in held_out.tables().items()}
    assert ("90 % PI" in heads["speeds"], "95 % CI" in heads["speeds"]) == (True, False)
    assert ("90 % PI" in heads["errors"], "95 % CI" in heads["errors"]) == (False, True)


def test_what_is_measured_already_is_not_predicted():
    with pytest.raises(DeviceError, match="already measured"):
        predict_plan(make_plan("pairs-mps"), [MEASURED / "h200" / "pairs-mps", MEASURED / "h200" / "solo"])


def test_a_held_out_part_of_the_measured_pairs_is_predicted_within_the_bar(tmp_path):
    source = MEASURED / "h200" / "classes"
    lines = [json.loads(x) for x in gzip.decompress((source / "cells.jsonl.gz").read_bytes()).decode().splitlines()]
    out = [{"resnet-light", "bert-medium"}, {"resnet-medium", "bert-light"}]
    kept = [x for x in lines if set(x["cell"].split("/")[2].split("+")) not in out]
    assert len(lines) - len(kept) == 4
    folder = tmp_path / "classes"
    folder.mkdir()
    (folder / "cells.jsonl").write_text("\n".join(map(json.dumps, kept)) + "\n")
    (folder / "manifest.json").write_bytes((source / "manifest.json").read_bytes())
    (tmp_path / "mine.toml").write_text(
        '[suite]\nmodes = ["time-slicing", "mps"]\n'
        'mixes = [["resnet-light", "bert-medium"], ["resnet-medium", "bert-light"]]\n'
        '[tenant.resnet-light]\nworkload = "resnet-train"\n[tenant.bert-medium]\nworkload = "bert-train"\n'
        '[tenant.resnet-medium]\nworkload = "resnet-train"\n[tenant.bert-light]\nworkload = "bert-train"\n'
    )
    predict_plan(make_plan(str(tmp_path / "mine.toml")), [folder]).save(tmp_path / "told.json")
    error = compare_predictions(tmp_path / "told.json", [source]).summary()[0]
    assert error.value < BAR


def test_a_file_that_holds_no_predictions_is_refused(tmp_path):
    (tmp_path / "bad.json").write_text('{"predictions": 3}')
    with pytest.raises(DeviceError, match="not a file of predictions"):
        compare_predictions(tmp_path / "bad.json", [MEASURED / "h200" / "solo"])
