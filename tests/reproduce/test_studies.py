"""The studies: what comes out, and that a difference is seen."""

import gzip
import json
import re
import shutil

import pytest
from realtest.archives import gpu_sharing

import fleetlab
from fleetlab.core import Provenance
from fleetlab.core.progress import silent
from fleetlab.reproduce import nsdi22
from fleetlab.reproduce.result import Reproduction, paged
from fleetlab.stats import mean_of_runs
from fleetlab.studies.validate import published

CELLS = gpu_sharing()


@pytest.fixture(scope="module")
def sharing():
    return fleetlab.reproduce("gpu-sharing", data=CELLS)


def verdicts(result, **where):
    frame = result.frame
    for column, value in where.items():
        frame = frame.filter(frame[column].str.starts_with(value))
    return set(frame["verdict"])


def test_the_page_on_sharing_follows_from_the_raw_cells(sharing):
    assert sharing.passed
    rows = sharing.frame.filter(sharing.frame["rule"] == "measured")
    assert rows.height > 450
    assert set(rows["verdict"]) == {"reproduced"}


def slower(source, folder, tenant):
    """Copy the cells of the study, with one tenant 10 % slower beside others."""
    shutil.copytree(source, folder)
    for path in (folder / "h200").glob("pairs-*/cells.jsonl.gz"):
        path.chmod(0o644)
        cells = [json.loads(line) for line in gzip.decompress(path.read_bytes()).splitlines()]
        for one in (t for c in cells if len(c.get("tenants") or []) == 2 for t in c["tenants"]):
            if one["tenant"] == tenant:
                one["rate"] *= 0.9
        path.write_bytes(gzip.compress("\n".join(map(json.dumps, cells)).encode() + b"\n"))


def test_cells_that_say_something_else_are_unexplained_and_end_in_status_1(command, tmp_path):
    slower(CELLS, tmp_path / "cells", "llm-decode")
    done = command("reproduce", "gpu-sharing", "--data", tmp_path / "cells", "--json")
    assert done.returncode == 1
    rows = json.loads(done.stdout)["tables"]["published numbers"]
    wrong = [r["what"] for r in rows if r["verdict"] == "different, unexplained"]
    assert wrong
    assert all("llm-decode" in what or "launch" in what or "STP" in what for what in wrong)


def test_cells_of_another_run_are_compared_within_a_tenth_and_explained(tmp_path):
    shutil.copytree(CELLS / "h200" / "pairs-mps", tmp_path / "mine")
    own = fleetlab.reproduce("gpu-sharing", data=tmp_path)
    assert own.passed
    assert "reproduced" in verdicts(own, rule="card")
    assert verdicts(own, item="pairs, time slicing") == {"not possible"}


def test_a_second_card_of_the_same_model_is_not_taken_for_the_first():
    late = fleetlab.reproduce("gpu-sharing", data=CELLS / "h200-late")
    assert late.passed
    assert {"reproduced", "different"} <= verdicts(late, item="serving")
    assert set(late.frame["on"]) == {"own cells", ""}


@pytest.fixture(scope="module")
def described():
    """What is described of the built-in trace; its policies take half a minute more."""
    made = nsdi22.described(None, quick=True, seed=0, progress=silent)
    return Reproduction.of("nsdi22", made, Provenance("reproduce", made.source))


def test_the_built_in_trace_differs_from_no_published_number_without_a_reason(described):
    assert described.passed


def test_nothing_described_of_the_built_in_trace_counts_as_reproduced(described):
    rows = described.frame.filter(described.frame["rule"].is_in(["curve", "hours", "allocated"]))
    assert "reproduced" not in set(rows["verdict"])


def test_what_needs_the_whole_trace_says_so(described):
    rows = described.frame.filter(described.frame["what"].str.starts_with("jobs per user"))
    assert rows["verdict"].to_list() == ["not possible"]
    assert "--quick" in rows["why"][0]


def test_published_tables_are_described_themselves(fixtures):
    made = nsdi22.described(fixtures / "pai2020" / "good", quick=True, seed=0, progress=silent)
    rows = Reproduction.of("nsdi22", made, Provenance("reproduce", made.source)).frame
    assert set(rows["on"]) == {"log", ""}
    assert "fitted" not in set(rows["verdict"])
    assert rows.filter(rows["what"] == "machines")["ours"].to_list() == ["3"]


def test_a_header_is_not_taken_for_its_table(data_folder, fixtures):
    shutil.copy(fixtures / "pai2020" / "good" / "pai_machine_spec.csv", data_folder)
    made = nsdi22.described(data_folder, quick=True, seed=0, progress=silent)
    rows = Reproduction.of("nsdi22", made, Provenance("reproduce", made.source)).frame
    assert rows.filter(rows["what"] == "machines").select("ours", "on").row(0) == ("3", "log")
    assert "built-in" in set(rows["on"])


@pytest.fixture
def data_folder(tmp_path):
    """A folder as `fetch` leaves it: headers beside tables, here without tables."""
    for name in ("pai_task_table", "pai_machine_spec"):
        (tmp_path / f"{name}.header").write_text("a,b\n")
    return tmp_path


def test_without_a_name_the_studies_are_listed(command):
    done = command("reproduce")
    assert not done.returncode
    assert all(name in done.stdout for name in ("nsdi22", "fgd-atc23", "dlrm2025", "gpu-sharing"))


@pytest.mark.parametrize(
    ("words", "said", "hint"),
    [
        (["nsdi"], "no study to reproduce by that name: `nsdi`", "nsdi22"),
        (["fgd-atc23"], "openb_pod_list_default.csv is needed", "fleetlab fetch openb2023"),
        (["dlrm2025", "--data", "."], "disaggregated_DLRM_trace.csv is needed", "fleetlab fetch dlrm2025"),
        (["dlrm2025", "--data", "nowhere"], "no folder of data: nowhere", "public traces"),
        (["gpu-sharing"], "raw cells are needed", "fleetlab bench all"),
        (["gpu-sharing", "--data", "."], "no results of a suite", "bench suite"),
        (["nsdi22", "--measure", "5"], "--measure is for gpu-sharing only", "--measure 30"),
    ],
)
def test_a_mistake_is_said_with_what_to_do(command, tmp_path, monkeypatch, words, said, hint):
    monkeypatch.chdir(tmp_path)
    done = command("reproduce", *words)
    assert done.returncode == 2
    assert said in done.stderr
    assert hint in done.stderr


def test_published_cells_are_not_measured_over(command):
    done = command("reproduce", "gpu-sharing", "--measure", "5", "--data", CELLS)
    assert done.returncode == 2
    assert "has the published cells" in done.stderr


def test_the_page_has_the_table_and_the_figures(command, tmp_path):
    done = command("reproduce", "gpu-sharing", "--data", CELLS, "--out", tmp_path / "page.html")
    assert not done.returncode
    page = (tmp_path / "page.html").read_text("utf-8")
    assert "<svg" in page
    assert page.count("beside bert-train: progress") >= 18  # three modes by six tenants


def test_the_tables_of_a_page_have_every_row(sharing):
    parts = paged(sharing).tables()
    assert sum(part.height for name, part in parts.items() if name != "rules") == sharing.frame.height
    assert max(part.height for part in parts.values()) <= 200  # what a page shows of a table


@pytest.mark.data
def test_the_analysis_of_2025_has_no_difference_without_a_reason(data):
    found = fleetlab.reproduce("dlrm2025", data=data, quick=True)
    assert found.passed
    assert found.count["reproduced"] >= 35
    assert verdicts(found, item="placement", what="mean delay") == {"reproduced"}
    assert verdicts(found, item="efficiency") == {"reproduced"}


@pytest.mark.data
@pytest.mark.validate
def test_the_packing_table_is_reproduced_and_so_are_its_curves(data):
    found = fleetlab.reproduce("fgd-atc23", data=data)
    assert found.passed
    assert verdicts(found, item="packing table") == {"reproduced"}
    assert verdicts(found, item="curve") == {"reproduced"}


@pytest.mark.parametrize("metric", published.PUBLISHED)
def test_an_interval_of_two_runs_that_differ_widely_has_nothing_that_is_not_possible(metric):
    least, most = published.PUBLISHED[metric].range
    value, low, high = mean_of_runs([max(least, 0.0) + 0.05, min(most, 9.0) - 0.05], (least, most)).interval()
    assert least < low < value < high < most


@pytest.mark.validate
def test_a_quick_run_of_the_paper_of_2022_ends_in_status_0_without_an_impossible_interval(command):
    done = command("reproduce", "nsdi22", "--quick", "--json")
    rows = json.loads(done.stdout)["tables"]["published numbers"]
    assert not done.returncode
    limits = [
        x for r in rows if r["rule"] == "simulated" for x in re.findall(r"[−\d.]+(?= to)|(?<=to )[−\d.]+", r["ours"])
    ]
    assert len(limits) == 18
    assert all(0 < float(x) < 2 for x in limits)
    assert {r["verdict"] for r in rows if "reduction of all waits" in r["what"]} == {"not decided"}


@pytest.mark.data
@pytest.mark.validate
def test_the_paper_of_2022_has_no_difference_without_a_reason(data):
    found = fleetlab.reproduce("nsdi22", data=data)
    assert found.passed
    assert verdicts(found, item="table 1") == {"reproduced"}
    assert verdicts(found, item="demo", what="mean JCT") == {"reproduced"}
