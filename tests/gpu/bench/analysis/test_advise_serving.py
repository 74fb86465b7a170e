"""Advice on servers with an arrival rate: one that falls behind has no P99, and is told with its rates."""

import json
import math

import polars as pl
import pytest
from realtest.archives import gpu_sharing

from fleetlab.core import DeviceError
from fleetlab.gpu.bench.advise import advise
from fleetlab.gpu.bench.analysis import analyze
from fleetlab.gpu.bench.results.cells import read_records, read_suite
from fleetlab.gpu.bench.results.suite import suite_result

H200 = gpu_sharing()
OFFERED = 1000  # requests in a window of 5 s


def served(made, mode, answered, *, slow=0.005, block=0, lag=1e-5):
    """A training, and a server that is offered 200 requests a second; `mps@50` limits both."""
    mode, _, limit = mode.partition("@")
    share = f"@{limit}" if limit else ""
    steps = ([0.001] * 49 + [slow]) * 20
    server = made.tenant(f"serve{share}", answered, step=steps, offered=OFFERED, lag=lag)
    return made.cell([server, made.tenant(f"train{share}", 50)], mode=mode, stage=f"{mode}{share}", block=block)


@pytest.mark.parametrize(("part", "key"), [("llm", "seconds"), ("llm", "goals"), ("times", "counts"), (None, "rate")])
def test_a_cell_of_which_a_field_was_removed_is_named_with_the_field(tmp_path, part, key):
    recorded = read_suite(H200 / "h200-long/llm")
    about, cells, _ = read_records(recorded.path)
    tenant = next(t for c in cells for t in c.get("tenants", ()) if "llm" in t)
    del (tenant if part is None else tenant[part])[key]
    (tmp_path / "manifest.json").write_text(json.dumps(about))
    (tmp_path / "cells.jsonl").write_text("".join(json.dumps(c) + "\n" for c in cells))
    for read in (lambda: advise(tmp_path, mix="llm-serve, resnet-train", goal="goodput"), lambda: analyze(tmp_path)):
        with pytest.raises(DeviceError, match=f"a cell without {key}") as e:
            read()
        assert e.value.hint


def test_a_mode_in_which_the_server_falls_behind_is_no_choice_and_is_named(tmp_path, made):
    cells = [served(made, "time-slicing", 200, slow=0.02), served(made, "mps@50", 200), served(made, "mps", 120, lag=2)]
    found = advise(made.suite(tmp_path, cells), mix="train, serve", goal="p99")
    rows = {row["mode"]: row for row in found.tables()["choice"].iter_rows(named=True)}
    assert found.mode == "mps@50"
    assert rows["mps"]["verdict"] == "falls behind: 120 of 200 requests/s"
    assert rows["mps"]["value"] is None
    assert "MPS falls behind: 120 of 200 requests/s" in " ".join(found.findings)


def test_the_only_mode_that_keeps_up_is_the_advice(tmp_path, made):
    cells = [served(made, "time-slicing", 140, lag=2), served(made, "mps", 200)]
    found = advise(made.suite(tmp_path, cells), mix="train, serve", goal="p99")
    assert (found.mode, found.verdict) == ("mps", "better")
    assert "MPS, the only mode in which the server keeps up" in found.findings[0]


def test_a_late_generator_beside_the_only_mode_that_keeps_up_leaves_it_unknown(tmp_path, made):
    cells = [served(made, "time-slicing", 140, lag=2), served(made, "mps", 200), served(made, "mps@50", 200, lag=0.01)]
    found = advise(made.suite(tmp_path, cells), mix="train, serve", goal="p99")
    assert found.verdict == "not known"
    assert "Not compared: MPS at 50 % (its generator of requests was late)." in found.findings


def test_a_block_in_which_it_falls_behind_is_not_left_out_for_its_late_generator(tmp_path, made):
    """The generator waits in the server's process: the better block alone would be a choice of the data."""
    cells = [served(made, "time-slicing", 200, slow=0.02), served(made, "mps", 200, block=0)]
    cells.append(served(made, "mps", 150, block=1, lag=1))
    found = advise(made.suite(tmp_path, cells), mix="train, serve", goal="p99")
    assert (found.mode, found.verdict) == ("time-slicing", "better")


def test_a_server_that_keeps_up_in_no_mode_is_told_with_its_rates(tmp_path, made):
    cells = [served(made, "time-slicing", 140, lag=2), served(made, "mps", 120, lag=2)]
    with pytest.raises(DeviceError, match="keeps up in no mode") as caught:
        advise(made.suite(tmp_path, cells), mix="train, serve", goal="p99")
    assert "time slicing falls behind: 140 of 200 requests/s; MPS falls behind: 120 of 200" in str(caught.value)


@pytest.mark.parametrize("goal", ["throughput", "cost", "worst"])
def test_a_goal_that_servers_do_not_have_is_refused_with_the_modes_in_which_they_fall_behind(tmp_path, made, goal):
    cells = [served(made, "time-slicing", 200), served(made, "mps", 120, lag=2)]
    with pytest.raises(DeviceError, match="in every mode in which it keeps up: train, serve; under MPS it falls") as e:
        advise(made.suite(tmp_path, cells), mix="train, serve", goal=goal)
    assert str(e.value).endswith("falls behind: 120 of 200 requests/s")


def test_servers_that_keep_up_in_all_modes_are_not_told_to_fall_behind(tmp_path, made):
    cells = [served(made, "time-slicing", 200), served(made, "mps", 200)]
    with pytest.raises(DeviceError, match=r"in which it keeps up: train, serve(\nhint: |$)"):
        advise(made.suite(tmp_path, cells), mix="train, serve")


def test_a_server_of_the_h200_at_800_requests_per_second_keeps_up_in_one_mode():
    found = advise(H200 / "h200", mix="resnet-train, serve-800", goal="p99")
    assert (found.mode, found.verdict) == ("mps@50", "better")
    behind = found.tables()["choice"].filter(pl.col("verdict").str.starts_with("falls behind"))
    assert set(behind["mode"]) == {"time-slicing", "mps", "mps!1"}


def runs(made, path, slow):
    """One suite per run: the P99 under time slicing and under MPS in each."""
    for k, (apart, mps) in enumerate(slow):
        made.suite(path / str(k), [served(made, "time-slicing", 200, slow=apart), served(made, "mps", 200, slow=mps)])
    return path


def test_the_interval_of_a_p99_holds_those_of_its_runs(tmp_path, made):
    """The P99 under MPS is a quarter, a half and an eighth: the requests of each run agree among themselves."""
    folder = runs(made, tmp_path, [(0.04, 0.01), (0.04, 0.02), (0.04, 0.005)])
    row = advise(folder, mix="train, serve", goal="p99").tables()["choice"].row(1, named=True)
    assert row["mode"] == "time-slicing"
    assert row["margin_low"] < 0.5 < 0.875 < row["margin_high"]


def test_the_interval_between_runs_is_students_with_the_variance_pooled_over_modes(tmp_path, made):
    """Logs of 10, 20 and 5 ms, and thrice 40 ms: 2 ln(2)^2 over 4 degrees of freedom, a third of it for each mode."""
    folder = runs(made, tmp_path, [(0.04, 0.01), (0.04, 0.02), (0.04, 0.005)])
    row = advise(folder, mix="train, serve", goal="p99").tables()["choice"].row(1, named=True)
    half = 2.776 * math.sqrt(2 * math.log(2) ** 2 / 4 * (1 / 3 + 1 / 3))
    reach = math.log((1 - row["margin"]) / (1 - row["margin_high"]))
    assert reach == pytest.approx(half, rel=0.01)


def test_runs_that_agree_do_not_widen_the_interval_of_a_p99(tmp_path, made):
    agree, once = (runs(made, tmp_path / str(n), [(0.04, 0.01)] * n) for n in (3, 1))
    wide = [
        advise(folder, mix="train, serve", goal="p99").tables()["choice"]["margin_low"][1] for folder in (agree, once)
    ]
    assert wide[0] >= wide[1] - 1e-9


def test_what_is_shown_comes_before_what_is_not_known(tmp_path, made):
    """How requests wait in groups was not recorded under MPS, so that its P99 has no interval."""
    cells = [
        served(made, mode, 200, slow=slow) for mode, slow in (("time-slicing", 0.02), ("mps@50", 0.005), ("mps", 0.01))
    ]
    del cells[2]["tenants"][0]["clumps"]
    found = advise(made.suite(tmp_path, cells), mix="train, serve", goal="p99")
    shown, _, unknown = found.findings[0].partition("; not known against ")
    assert shown.startswith("train, serve, P99 of requests: MPS at 50 %, 75.0 % (")
    assert unknown.startswith("MPS: it is ahead, but the P99 has no interval")


def test_the_analysis_tells_servers_that_fall_behind_from_late_generators(tmp_path, made):
    cells = [served(made, "time-slicing", 200, lag=0.01), served(made, "mps", 120, lag=2)]
    found = analyze(made.suite(tmp_path, cells))
    (behind,) = [note for note in found.notes if "does not keep up" in note]
    (late,) = [note for note in found.notes if "P99 lag was above 1 ms" in note]
    assert "under MPS falls behind: 120 of 200 requests/s" in behind
    assert late.endswith("serve beside train under time slicing")


def test_a_server_that_falls_behind_is_not_a_failed_check_of_the_generator(tmp_path, made):
    shown = suite_result(made.suite(tmp_path, [served(made, "mps", 120, lag=2)])).tables()
    assert shown["serving"]["keeps_up"].to_list() == [False]
    assert shown["checks"].filter(pl.col("check").str.contains("generator lag"))["failed"].to_list() == [0]
