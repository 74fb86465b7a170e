"""The pages of docs/reproduce have the tables that the command makes, and their notebooks run."""

import json
import os
from pathlib import Path

import pytest
from benchmarks.notebooks import executed
from benchmarks.reproduce import PAGES, STUDIES, all_numbers, counts, markdown, rows_of, section
from realtest.archives import GPU_SHARING

import fleetlab

ROOT = Path(__file__).parents[2]
NOTEBOOKS = ROOT / "docs" / "notebooks" / "reproduce"


def page(name):
    return (ROOT / PAGES / f"{name}.md").read_text("utf-8")


def written(result):
    rows = result.tables()["published numbers"].to_dicts()
    return f"{counts(rows)}\n\n{markdown(rows)}"


def test_the_table_of_sharing_is_what_the_command_makes():
    made = fleetlab.reproduce("gpu-sharing", data=GPU_SHARING)
    assert section(page("gpu-sharing"), "published numbers") == written(made)


@pytest.mark.data
def test_the_table_of_2025_is_what_the_command_makes_but_for_the_network(data):
    made = fleetlab.reproduce("dlrm2025", data=data, quick=True).tables()["published numbers"].to_dicts()
    ours = markdown([row for row in made if "LSTM" not in row["what"]]).splitlines()
    there = [line for line in section(page("dlrm2025"), "published numbers").splitlines() if "LSTM" not in line]
    assert ours == there[2:]


@pytest.mark.data
@pytest.mark.validate
@pytest.mark.parametrize("name", ["fgd-atc23", "nsdi22"])
def test_a_long_table_is_what_the_command_makes(data, name):
    assert section(page(name), "published numbers") == written(fleetlab.reproduce(name, data=data))


def test_the_page_of_all_numbers_has_every_row_of_the_studies():
    assert section(page("README"), "all numbers") == all_numbers({name: page(name) for name in STUDIES})


@pytest.mark.parametrize("name", STUDIES)
def test_no_page_has_a_difference_without_a_reason(name):
    rows = rows_of(page(name))
    assert len(rows) > 50
    assert {row["verdict"] for row in rows} <= {"reproduced", "fitted", "different", "not decided", "not possible"}
    assert all(row["why"] for row in rows if row["verdict"] in ("different", "not decided", "not possible"))


def shown(notebook):
    """What a reader sees as text: how frames are styled as HTML is theirs."""
    found = (one for cell in notebook["cells"] if cell["cell_type"] == "code" for one in cell["outputs"])
    return [one.get("text") or one["data"]["text/plain"] for one in found]


def run_in(folder, name):
    before = Path.cwd()
    os.chdir(folder)
    try:
        return executed(NOTEBOOKS / f"{name}.ipynb")
    finally:
        os.chdir(before)


def test_the_notebook_of_sharing_shows_what_it_has_kept():
    kept = json.loads((NOTEBOOKS / "gpu-sharing.ipynb").read_text("utf-8"))
    assert shown(run_in(NOTEBOOKS, "gpu-sharing")) == shown(kept)


@pytest.mark.data
@pytest.mark.parametrize("name", ["dlrm2025", pytest.param("fgd-atc23", marks=pytest.mark.validate)])
def test_a_notebook_of_a_public_trace_shows_what_it_has_kept(data, tmp_path, name):
    (tmp_path / "traces").symlink_to(data)
    kept = json.loads((NOTEBOOKS / f"{name}.ipynb").read_text("utf-8"))
    assert shown(run_in(tmp_path, name)) == shown(kept)


@pytest.mark.validate
def test_the_notebook_of_2022_shows_what_it_has_kept():
    kept = json.loads((NOTEBOOKS / "nsdi22.ipynb").read_text("utf-8"))
    assert shown(run_in(NOTEBOOKS, "nsdi22")) == shown(kept)
