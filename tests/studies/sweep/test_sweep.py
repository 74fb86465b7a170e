"""A sweep as a whole: waits agree with theory, only missing cells are run, and cells are what `simulate` returns."""

import json
import os
import signal
import sys

import polars as pl
import pytest

import fleetlab
from fleetlab import Cluster, FleetlabError, Scenario, Study, cli, order, queueing
from fleetlab.studies.sweep.cell import CellInputs, run_cell
from fleetlab.studies.sweep.plan import SweepPlan

from .conftest import SERVERS, queue, records, saved, started, written

STUDY = """
trace = "trace"
load = [1.0, 1.6]
seeds = 3
order = ["fifo", "sjf"]

[compare]
against = { order = "fifo" }
"""


@pytest.fixture(scope="module")
def swept(tmp_path_factory):
    """A queue of 20,000 jobs at loads 0.5 and 0.8, first and shortest first, three seeds: swept once for all."""
    folder = tmp_path_factory.mktemp("swept")
    saved(folder / "trace", 20_000)
    found = fleetlab.sweep(written(folder, STUDY), store=folder / "runs")
    return folder, found


def test_cells_are_all_played_and_none_fails(swept):
    told = {e.metric: e.value for e in swept[1].summary()}
    assert (told["scenarios"], told["cells"], told["cells run now"], told["cells failed"]) == (4, 12, 12, 0)
    assert len(records(swept[0] / "runs")) == 12


def test_the_store_has_its_cells_as_one_table_too(swept):
    table = pl.read_parquet(swept[0] / "runs" / "cells.parquet")
    assert table.equals(fleetlab.runs(swept[0] / "runs").cells)
    assert len(table) == 12


@pytest.mark.parametrize("load", [1.0, 1.6])
def test_waits_are_what_erlang_c_says_at_each_load(swept, load):
    rows = swept[1].tables()["scenarios"].filter(load=load, order="fifo", metric="mean wait")
    # At the load that this log happens to have: 2 % more than was asked for is 15 % more waiting.
    jobs = queue(20_000).frame
    lam, mean = load * len(jobs) / jobs["submit"].max(), jobs["runtime"].mean()
    theory = queueing.solve("M/M/c", lam=lam, mu=1 / mean, c=SERVERS)["mean wait"]
    assert rows["mean"][0] == pytest.approx(theory, rel=0.12)


def test_pairs_have_the_same_jobs_so_their_difference_varies_less_than_either_would_alone(swept):
    cells = fleetlab.runs(swept[0] / "runs", where={"load": "1.6"}).cells.sort("seed")
    fifo, sjf = (cells.filter(order=order)["mean wait"] for order in ("fifo", "sjf"))
    assert (sjf - fifo).var() < 0.8 * (fifo.var() + sjf.var())


def test_shortest_first_waits_less_for_sure(swept):
    rows = swept[1].tables()["differences"].filter(metric="mean wait")
    assert rows["verdict"].to_list() == ["better", "better"]


def test_a_cell_is_what_simulate_says_bit_for_bit(swept):
    by_hand = fleetlab.simulate(
        queue(20_000).resampled(2).at_load(1.6), Cluster.uniform(1, SERVERS), order="sjf", seed=2
    )
    cells = fleetlab.runs(swept[0] / "runs", where={"order": "sjf", "load": "1.6", "seed": "2"}).cells
    assert cells["mean wait"].to_list() == [by_hand.summary()[0].value]
    assert cells["P99 slowdown"].to_list() == [{e.metric: e.value for e in by_hand.summary()}["P99 slowdown"]]


def test_the_same_study_again_plays_nothing_and_says_the_same(swept):
    folder, before = swept
    again = fleetlab.sweep(folder / "study.toml", store=folder / "runs")
    assert {e.metric: e.value for e in again.summary()}["cells run now"] == 0
    assert {n: f.rows() for n, f in again.tables().items()} == {n: f.rows() for n, f in before.tables().items()}


def test_figures_and_notes_say_what_they_are(swept):
    assert set(swept[1].figures()) == {"mean wait", "P90 wait", "mean wait, differences", "P90 wait, differences"}
    assert any("Bonferroni" in note for note in swept[1].notes)


# -- what a store has ------------------------------------------------------------------------------------------------


def test_runs_lists_filters_and_compares(swept):
    found = fleetlab.runs(swept[0] / "runs", where={"load": "1.6"}, against={"order": "fifo"}, metrics=["mean wait"])
    assert found.summary()[0].value == 6
    mine, theirs = found.tables()["differences"], swept[1].tables()["differences"]
    assert mine["difference"].to_list() == theirs.filter(load=1.6, metric="mean wait")["difference"].to_list()


@pytest.mark.parametrize("name", ["cells.csv", "cells.parquet"])
def test_every_cell_can_be_exported(swept, tmp_path, name):
    found = fleetlab.runs(swept[0] / "runs")
    found.export(tmp_path / name)
    again = (pl.read_csv if name.endswith("csv") else pl.read_parquet)(tmp_path / name)
    assert again["mean wait"].to_list() == found.cells["mean wait"].to_list()
    assert [p.name for p in tmp_path.iterdir()] == [name]


@pytest.mark.parametrize(
    ("told", "said"),
    [
        ({"where": {"colour": "red"}}, "no word by that name: `colour`"),
        ({"against": {"seed": "1"}}, "no word by that name: `seed`"),
        ({"against": {"order": "las"}}, "no two scenarios differ in these words alone"),
        ({"metrics": ["mean weight"]}, "no metric by that name"),
    ],
)
def test_what_a_store_cannot_tell_is_said(swept, told, said):
    with pytest.raises(FleetlabError, match=said):
        fleetlab.runs(swept[0] / "runs", **told)


def test_what_a_case_does_not_have_can_be_asked_for_too(swept):
    assert fleetlab.runs(swept[0] / "runs", where={"events": "none", "order": "sjf"}).cells.height == 6


def test_a_filter_that_nothing_passes_gives_nothing(swept):
    found = fleetlab.runs(swept[0] / "runs", where={"order": "largest"}, against={"order": "fifo"})
    assert (found.cells.height, list(found.tables())) == (0, ["cells"])


def test_the_commands_print_what_the_verbs_return(swept, capsys, tmp_path):
    folder = swept[0]
    with pytest.raises(SystemExit, match="0"):
        cli.main(["sweep", str(folder / "study.toml"), "--store", str(folder / "runs"), "--json"])
    told = json.loads(capsys.readouterr().out)
    assert len(told["tables"]["differences"]) == 4
    with pytest.raises(SystemExit, match="0"):
        cli.main(["runs", str(folder / "runs"), "--against", "order=fifo", "--out", str(tmp_path / "c.csv")])
    said = capsys.readouterr()
    assert "order fifo" in said.out
    assert "written to" in said.err


@pytest.mark.parametrize(
    ("words", "said"),
    [
        (["sweep", "nowhere.toml"], "cannot read the study"),
        (["runs", "nowhere"], "no run store in nowhere"),
        (["runs", "nowhere", "--where", "order"], "--where takes WORD=VALUE"),
        (["sweep", "nowhere.toml", "--engine", "spark"], "engine"),
    ],
)
def test_a_mistake_ends_in_an_error_and_a_hint(words, said, capsys):
    with pytest.raises(SystemExit) as e:
        cli.main(words)
    assert e.value.code == 2
    heard = capsys.readouterr().err
    assert said in heard
    assert "hint:" in heard


# -- what may go wrong in a cell -------------------------------------------------------------------------------------

OWN = """
from fleetlab import order
from beside import SIGN


@order
def mine(s, job, now):
    return SIGN * s.estimate[job]
"""


def test_policies_of_ones_own_and_events_go_with_the_workers(trace, tmp_path, monkeypatch):
    monkeypatch.chdir(tmp_path)
    monkeypatch.syspath_prepend(tmp_path)
    (tmp_path / "our_order.py").write_text(OWN)
    (tmp_path / "beside.py").write_text("SIGN = 1.0\n")
    (tmp_path / "faults.toml").write_text("[[faults]]\nmtbf = 20000\nmttr = 600\n")
    rules = [{"order": ["our_order:mine", "sjf"]}, {"order": "sjf", "events": "faults.toml"}]
    found = fleetlab.sweep(
        Study.of_words({"trace": "trace", "resample": "none", "scenario": rules}, folder=tmp_path),
        store="runs",
        workers=1,
    )
    rows = found.tables()["scenarios"].filter(metric="mean wait")
    mine, sjf, faults = rows["mean"].to_list()
    assert mine == sjf < faults
    assert "failed" not in found.tables()


SOMETIMES = """
import math
from fleetlab import order


@order
def mine(s, job, now):
    return math.nan if s.user[job] > 20 else s.submit[job]
"""


def test_a_cell_that_fails_by_itself_is_a_record_with_the_reason_and_is_not_played_again(trace, tmp_path, monkeypatch):
    monkeypatch.chdir(tmp_path)
    (tmp_path / "sometimes.py").write_text(SOMETIMES)
    study = Study.of_words({"trace": "trace", "seeds": 2, "order": ["fifo", "sometimes:mine"]}, folder=tmp_path)
    first, again = (fleetlab.sweep(study, store="runs", workers=1) for _ in range(2))
    failed = first.tables()["failed"]
    assert failed["cells"].sum() == 2
    assert failed["reason"].str.contains("returns NaN").all()
    assert first.tables()["scenarios"].filter(order="fifo")["seeds"].to_list() == [2, 2]
    assert first.tables()["scenarios"].filter(order="sometimes:mine")["seeds"].to_list() == [0, 0]
    assert {e.metric: e.value for e in again.summary()}["cells run now"] == 0


def test_a_sweep_with_failed_cells_ends_with_status_one(trace, tmp_path, monkeypatch, capsys):
    monkeypatch.chdir(tmp_path)
    (tmp_path / "sometimes.py").write_text(SOMETIMES)
    path = written(tmp_path, 'trace = "trace"\norder = "sometimes:mine"\n')
    with pytest.raises(SystemExit, match="1"):
        cli.main(["sweep", str(path), "--workers", "1"])
    assert "returns NaN" in capsys.readouterr().out


def test_a_trouble_of_the_machine_is_no_result_of_a_cell(trace, tmp_path):
    class Gone(dict):
        def __missing__(self, digest):
            raise FileNotFoundError(digest)

    study = Study.of(str(trace))
    plan = SweepPlan.of(study, lambda *_: None)
    with pytest.raises(FileNotFoundError):
        run_cell(plan.question(plan.cell(study.scenarios[0], 0)), CellInputs(Gone()))


PLAIN = """
from fleetlab import order


@order
def mine(s, job, now):
    return s.estimate[job]
"""


def test_cells_of_a_policy_before_and_after_a_change_are_not_taken_together(trace, tmp_path, monkeypatch):
    monkeypatch.chdir(tmp_path)
    words = {"trace": "trace", "load": 1.8, "seeds": 2, "order": ["fifo", "changing:mine"]}
    for text in (PLAIN, PLAIN.replace("return ", "return -")):
        (tmp_path / "changing.py").write_text(text)
        sys.modules.pop("changing", None)
        fleetlab.sweep(Study.of_words(words, folder=tmp_path), store="runs", workers=1)
    found = fleetlab.runs("runs", against={"order": "fifo"}, metrics=["mean wait"])
    rows = found.tables()["differences"]
    assert rows["seeds"].to_list() == [2, 2]
    assert rows["baseline"].to_list() == ["order fifo", "order fifo"]
    assert rows["difference"].min() < 0 < rows["difference"].max()  # the shortest first, and the longest


def test_scenarios_of_python_are_swept_and_functions_run_in_this_process(trace, tmp_path):
    sign = 1.0

    @order
    def shortest(s, job, now):
        return sign * s.estimate[job]

    base = Scenario.of(str(trace), load=1.8)
    found = fleetlab.sweep(
        base.vary(order=["fifo", shortest, "sjf"]), seeds=3, against={"order": "fifo"}, metrics=["mean wait"],
        store=tmp_path / "runs",
    )  # fmt: skip
    rows = found.tables()["differences"]
    assert rows["difference"][0] == rows["difference"][1] < 0
    assert fleetlab.runs(tmp_path / "runs").cells["engine"].unique().to_list() == ["inline"]
    assert any("in this process" in note for note in found.notes)
    named = fleetlab.sweep(base.vary(order=["fifo", "sjf"]), seeds=3, store=tmp_path / "runs")
    assert {e.metric: e.value for e in named.summary()}["cells run now"] == 0
    with pytest.raises(FleetlabError, match="Ray cannot run it"):
        fleetlab.sweep(base.replace(order=shortest), engine="ray", store=tmp_path / "runs")


def test_two_functions_of_one_factory_are_two_scenarios(trace, tmp_path):
    def by_submission(sign):
        @order
        def mine(s, job, now):
            return sign * s.submit[job]

        return mine

    axes = Scenario.of(str(trace)).vary(order=[by_submission(1.0), by_submission(-1.0)])
    cells = fleetlab.sweep(axes, store=tmp_path / "runs").tables()["scenarios"]
    assert cells["order"].n_unique() == 2


def test_a_number_of_workers_that_cannot_be_is_refused(study, tmp_path):
    with pytest.raises(FleetlabError, match="a number of workers"):
        fleetlab.sweep(study(), store=tmp_path / "runs", workers=0)
    with pytest.raises(FleetlabError, match="a number of workers"):
        fleetlab.sweep(study(), store=tmp_path / "runs", engine="ray", workers=0)
    with pytest.raises(FleetlabError, match="no engine by that name"):
        fleetlab.sweep(study(), store=tmp_path / "runs", engine="dask")


def test_ctrl_c_keeps_what_is_finished_and_ends_all_workers(trace, tmp_path):
    path = written(tmp_path, STUDY.replace("seeds = 3", "seeds = 200"))
    store = tmp_path / "runs"
    sweep = started("sweep", path, "--store", store)
    while len(records(store)) < 3 and sweep.poll() is None:
        signal.sigtimedwait([], 0.05)
    workers = children(sweep.pid)
    sweep.send_signal(signal.SIGINT)
    _, said = sweep.communicate(timeout=60)
    assert sweep.returncode == 130
    assert said.strip() == "stopped"
    assert workers
    assert not any(os.path.exists(f"/proc/{pid}") for pid in workers)  # noqa: PTH110
    assert 3 <= len(records(store)) < 800
    assert list((store / "claims").iterdir()) == []


def children(pid):
    with open(f"/proc/{pid}/task/{pid}/children") as f:  # noqa: PTH123
        return [int(word) for word in f.read().split()]
