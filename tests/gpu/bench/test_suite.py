"""Whole plans on the CPU with real workers, and those that were broken off."""

import json
import shutil
from dataclasses import replace

import pytest

from fleetlab.gpu.bench.run import RunFolder, SuiteRun
from fleetlab.gpu.devices.console import BenchError

from .conftest import alone, pair, plan, put_works, run

pytestmark = pytest.mark.usefixtures("works")
TWO = plan([alone("steady"), pair("steady", "steady")], steady={})


@pytest.fixture(scope="module")
def measured(tmp_path_factory):
    """The folder of a run of two cells, what was skipped, and the cells: run once for all."""
    folder = tmp_path_factory.mktemp("measured")
    with pytest.MonkeyPatch.context() as patch:
        put_works(folder, patch)
        skipped, cells, _ = run(TWO, folder / "out")
    return folder / "out", skipped, cells


def test_each_cell_is_a_line_and_the_manifest_says_how_it_came_to_be(measured):
    out, skipped, cells = measured
    assert [c["status"] for c in cells] == ["ok", "ok"]
    assert [len(c["tenants"]) for c in cells] == [1, 2]
    assert all(0 < t["rate"] <= 500 for c in cells for t in c["tenants"])
    assert all(t["late"] == 0 for c in cells for t in c["tenants"])
    assert cells[1]["tenants"][0]["pid"] != cells[1]["tenants"][1]["pid"]
    about = json.loads((out / "manifest.json").read_text())
    assert about["finished"]
    assert about["rehearsal"]
    assert about["order"] == ["all/0/steady", "all/0/steady+steady"]
    assert not skipped


def test_what_was_measured_is_not_measured_again(tmp_path, measured):
    shutil.copytree(measured[0], tmp_path / "out")
    first = (tmp_path / "out/cells.jsonl").read_text().splitlines()[0]
    (tmp_path / "out/cells.jsonl").write_text(first + '\n{"cell": "all/0/steady+st')  # killed while it wrote
    _, told, _ = run(TWO, tmp_path / "out")
    assert told[0] == json.loads(first)
    assert [c["cell"] for c in told] == ["all/0/steady", "all/0/steady+steady"]


def test_a_failed_cell_is_tried_again(tmp_path):
    mark = {"mark": str(tmp_path / "dead")}
    first = plan([alone("doomed")], doomed=mark)
    assert [c["status"] for c in run(first, tmp_path / "out")[1]] == ["failed"]
    assert [c["status"] for c in run(first, tmp_path / "out")[1]] == ["failed", "ok"]


def test_a_folder_of_another_plan_is_left_alone(measured):
    before = (measured[0] / "cells.jsonl").read_text()
    with pytest.raises(BenchError, match="contains another run: plan small, not other"):
        run(replace(plan([alone("steady")], steady={}), name="other"), measured[0])
    assert (measured[0] / "cells.jsonl").read_text() == before


def test_cells_without_time_are_skipped_and_said(tmp_path):
    many = plan([alone("steady", block) for block in range(5)], steady={})
    skipped, said = SuiteRun(many, tmp_path / "out", limit=10, rehearse=True, progress=lambda _: None).run(), []
    assert len(skipped) == 5
    assert json.loads((tmp_path / "out/manifest.json").read_text())["skipped"] == skipped
    assert not said
    assert RunFolder(tmp_path / "out").finished() == set()


def test_requests_are_the_same_in_every_cell_of_a_block_and_others_in_the_next(tmp_path):
    cells = [cell for block in (0, 1) for cell in (alone("steady", block), pair("steady", "steady", block))]
    drawn = plan(cells, steady={})
    served = replace(drawn, tenants={"steady": replace(drawn.tenants["steady"], poisson=200.0)}, window=0.5)
    _, told, _ = run(served, tmp_path / "out")
    first, beside, second, beside_second = ([t["offered"] for t in cell["tenants"]] for cell in told)
    assert first == beside[:1] != second == beside_second[:1]


def test_a_plan_with_an_unknown_tenant_is_refused():
    with pytest.raises(BenchError, match="unknown tenant: ghost"):
        plan([alone("ghost")], steady={})
