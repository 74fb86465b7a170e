"""The page of the H200 has the tables that its raw cells give, and these are what `advise` says."""

import gzip
import json
import math
from collections import defaultdict
from pathlib import Path
from statistics import median

import polars as pl
import pytest
from benchmarks.sharing import __main__ as command
from realtest.archives import gpu_sharing

from fleetlab.gpu.bench.advise import advise

MEASURED = gpu_sharing()
PAGE = Path(__file__).parents[3] / "docs" / "measurements" / "sharing.md"


@pytest.fixture(scope="module")
def made():
    """The tables by name."""
    return dict(command.tables(MEASURED))


def test_the_page_has_the_tables_that_the_raw_cells_give(made):
    page = PAGE.read_text()
    assert command.filled(page, made) == page


def test_a_table_without_a_place_in_the_page_is_an_error():
    with pytest.raises(ValueError, match="no place for the table `other`"):
        command.filled("a page", {"other": "text"})


def by_hand(tenants):
    """Sum and least of the progress by mode, straight from the raw cells: rate over the median rate alone by turns."""
    alone, found = defaultdict(list), defaultdict(list)
    cells = [
        cell
        for path in sorted(MEASURED.glob("h200*/**/cells.jsonl.gz"))
        for cell in map(json.loads, gzip.decompress(path.read_bytes()).decode().splitlines())
        if cell["status"] == "ok" and cell["tenants"] and not any("lag" in t for t in cell["tenants"])
    ]
    for cell in cells:
        (first, *others) = cell["tenants"]
        if cell["mode"] == "time-slicing" and not others and first["seat"] == first["tenant"]:
            alone[first["tenant"]].append(first["rate"])
    for cell in cells:
        if sorted(t["tenant"] for t in cell["tenants"]) == sorted(tenants):
            speeds = [t["rate"] / median(alone[t["tenant"]]) for t in cell["tenants"]]
            limits = "".join(sorted({t["seat"].removeprefix(t["tenant"]) for t in cell["tenants"]}))
            found[cell["mode"] + limits].append((math.log(sum(speeds)), math.log(min(speeds))))
    return {mode: [math.exp(sum(x) / len(x)) for x in zip(*blocks, strict=True)] for mode, blocks in found.items()}


@pytest.mark.parametrize(
    ("tenants", "goal", "best"),
    [
        (["resnet-train", "bert-train"], "throughput", "mps"),
        (["resnet-train", "resnet-infer"], "worst", "mps@50"),
        (["bert-infer", "llm-decode", "resnet-infer"], "throughput", "mps"),
        (["resnet-infer"] * 4, "worst", "mps"),
    ],
)
def test_advice_has_the_numbers_of_the_raw_cells(tenants, goal, best):
    expected = {mode: values[goal == "worst"] for mode, values in by_hand(tenants).items()}
    found = advise(MEASURED, mix=", ".join(tenants), goal=goal)
    shown = dict(found.tables()["choice"].filter(pl.col("verdict") != "predicted").select("mode", "value").rows())
    assert found.mode == best == max(shown, key=shown.get)
    assert shown == pytest.approx({mode: expected[mode] for mode in shown}, rel=1e-6)


@pytest.mark.parametrize(("table", "mode"), [("time slicing", "time-slicing"), ("MPS", "mps"), ("MPS 50/50", "mps@50")])
def test_the_page_and_advice_have_one_number_for_two_equal_tenants(made, table, mode):
    """They differed by 5 % for single images, whose rate alone differs between runs."""
    values = dict(advise(MEASURED / "h200", mix="2 resnet-infer").tables()["choice"].select("mode", "value").rows())
    assert f"resnet-infer {values[mode]:.2f}" in made[table]
