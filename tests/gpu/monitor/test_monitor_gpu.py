"""A real GPU, watched; only what a measuring machine has is imported."""

import json
import subprocess
import sys

import pytest

from fleetlab.gpu.devices.console import BenchError
from fleetlab.gpu.monitor.sources import open_source

pytestmark = pytest.mark.gpu


@pytest.fixture
def cards():
    try:
        found = open_source("nvml")
    except BenchError as e:
        pytest.skip(str(e))
    yield found
    found.close()


def test_a_real_card_says_its_numbers(cards):
    row = cards.look()[0]
    known = row["used_mib"] + row["free_mib"] + (row["reserved_mib"] or 0)
    assert 0 <= row["util"] <= 100, row
    assert known == pytest.approx(row["total_mib"], rel=0.02), row
    assert 0 < row["celsius"] < 110, row
    assert row["watts"] > 0, row
    assert row["sm_mhz"] > 0, row
    assert all(isinstance(word, str) for word in row["events"]), row
    assert isinstance(row["processes"], list), row
    assert cards.gpus[0].uuid.startswith("GPU-"), cards.gpus[0]


BUSY = """
import torch
a = torch.randn(4096, 4096, device="cuda", dtype=torch.bfloat16)
print("on", flush=True)
while True:
    for _ in range(50): a @ a
    torch.cuda.synchronize()
"""


def test_a_busy_card_uses_energy_and_names_who_keeps_it_busy(cards, tmp_path):
    with subprocess.Popen([sys.executable, "-c", BUSY], stdout=subprocess.PIPE) as worker:
        try:
            assert worker.stdout.readline() == b"on\n"
            words = [sys.executable, "-m", "fleetlab.gpu.monitor", "--every", "0.2", "--seconds", "4", "--quiet"]
            subprocess.run([*words, "--out", str(tmp_path)], check=True, timeout=60)
        finally:
            worker.kill()
    rows = [json.loads(line) for line in (tmp_path / "samples.jsonl").read_text().splitlines()]
    rows = [row for row in rows if row["gpu"] == 0]
    assert max(row["util"] for row in rows) > 50, [row["util"] for row in rows]
    assert rows[-1]["joules"] - rows[0]["joules"] > 100, [row["joules"] for row in rows]
    assert any(row["processes"] for row in rows), rows[-1]
