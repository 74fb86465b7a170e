import json

import pytest
import torch
from benchmarks.sharing.one_process import lanes, measure

from fleetlab.gpu.bench.results.suite import suite_result
from fleetlab.gpu.devices.console import BenchError

CPU = torch.device("cpu")


def test_two_of_one_process_are_measured_alone_and_together_in_each_way(tmp_path):
    measure((("launch", "gemm"),), tmp_path, device="cpu", tiny=True, settle=0.05, window=0.15, progress=lambda _: None)
    cells = [json.loads(line) for line in (tmp_path / "cells.jsonl").read_text().splitlines()]
    assert [c["status"] for c in cells] == ["ok"] * 9
    assert [len(c["tenants"]) for c in cells] == [1, 1, 2] * 3
    assert cells[-1]["cell"] == "together/0/green/launch@64sms+gemm@64sms"
    told = suite_result(tmp_path)
    # On all SMs alone is what a part of them is compared with.
    parts = told.frames["progress"].filter(told.frames["progress"]["tenant"] == "launch@64sms")
    assert "" in parts["beside"].to_list()


def test_a_tenant_that_falls_is_a_record_and_the_other_pairs_go_on(tmp_path, works, monkeypatch):
    monkeypatch.syspath_prepend(str(works.parent))
    said = []
    measure(
        (("launch", "mine:Hungry"), ("launch", "gemm")),
        tmp_path / "out",
        ways=("streams",),
        device="cpu",
        tiny=True,
        settle=0.05,
        window=0.1,
        progress=said.append,
    )
    cells = [json.loads(line) for line in (tmp_path / "out" / "cells.jsonl").read_text().splitlines()]
    assert [c["status"] for c in cells] == ["failed", "ok", "ok", "ok"]
    assert "OutOfMemoryError" in cells[0]["failures"][0]["detail"]


def test_a_way_that_is_none_is_refused():
    with pytest.raises(BenchError, match="unknown method"):
        lanes("wishes", device=CPU)


@pytest.mark.skipif(torch.cuda.is_available(), reason="there is a GPU")
def test_without_a_card_it_says_so(tmp_path):
    with pytest.raises(BenchError, match="no NVIDIA GPU"):
        measure((("launch", "gemm"),), tmp_path / "out")
    assert not (tmp_path / "out").exists()
