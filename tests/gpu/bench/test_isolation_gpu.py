"""Probes of isolation on a real GPU; without illegal accesses."""

import json
import shutil

import pytest
import torch

from fleetlab.gpu.bench.isolation.run import run_isolation
from fleetlab.gpu.bench.options import IsolationOptions

pytestmark = [pytest.mark.gpu, pytest.mark.skipif(not torch.cuda.is_available(), reason="no NVIDIA GPU here")]


def probe(out, **more):
    run_isolation(IsolationOptions(out=out, **more), progress=lambda _: None)
    return {(c["mode"], c["kind"]): c for c in map(json.loads, (out / "probes.jsonl").read_text().splitlines())}


def test_a_process_survives_what_another_does_by_time_slicing(tmp_path):
    cells = probe(tmp_path, modes="time-slicing", probes="faults")
    assert [c["status"] for c in cells.values()] == ["ok"] * 3, cells
    ended = {c["kind"]: (c["neighbor"]["survived"], c["newcomer"]["good"]) for c in cells.values()}
    assert all(map(all, ended.values())), ended


@pytest.mark.skipif(shutil.which("nvidia-cuda-mps-control") is None, reason="no MPS here")
def test_a_limit_of_mps_holds_the_tenant_that_allocates(tmp_path):
    cell = probe(tmp_path, modes="mps-limited", probes="memory", memory_mib=8192)["mps-limited", "all"]
    assert cell["attached"], cell
    assert cell["aggressor"]["refused"], cell["aggressor"]
    assert cell["aggressor"]["held_mib"] <= 8192, cell["aggressor"]
    assert cell["neighbor"]["during"]["refused"] == 0, cell["neighbor"]
