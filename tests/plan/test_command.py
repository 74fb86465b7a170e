"""`fleetlab plan` and `fleetlab defragment`, as a user calls them."""

import inspect
import json
import signal
import subprocess
import sys
import time
from pathlib import Path

import numpy as np
import polars as pl
import pytest

import fleetlab
from fleetlab import Cluster, Provenance, Trace, Workload, cli
from fleetlab.commands.plan import _show
from fleetlab.plan import demand

DEMAND = "[[instance]]\ncount = 6\ncpu_milli = 400\n\n[[instance]]\ncount = 2\ngpu_milli = 500\ncpu_milli = 100\n"
NODES = '[[node]]\ncount = 6\npool = "p"\ngpu_type = "T4"\ngpus = 1\ncpu_milli = 1000\nmemory_mib = 10\n'


@pytest.fixture
def here(tmp_path, monkeypatch):
    monkeypatch.chdir(tmp_path)
    (tmp_path / "demand.toml").write_text(DEMAND, "utf-8")
    (tmp_path / "nodes.toml").write_text(NODES, "utf-8")
    return tmp_path


def run(*words):
    try:
        cli.main([*map(str, words)])
    except SystemExit as left:
        return left.code or 0
    return 0


def test_a_plan_is_told_in_words_and_written_down(here, capsys):
    assert run("plan", "demand.toml", "--nodes", "nodes.toml", "--out", "placement.csv") == 0
    said = capsys.readouterr().out
    assert "8 instances are placed: nodes in use 3." in said
    assert "This is optimal (proved)." in said
    assert pl.read_csv("placement.csv").columns == ["job", "instance", "node", "gpus"]


def test_what_was_written_can_be_moved_and_defragmented(here, capsys):
    run("plan", "demand.toml", "--nodes", "nodes.toml", "--objective", "balance", "--out", "wide.csv")
    assert run("defragment", "demand.toml", "--nodes", "nodes.toml", "--current", "wide.csv", "--out", "tight.csv") == 0
    assert pl.read_csv("tight.csv")["node"].n_unique() == 3
    capsys.readouterr()
    assert run("plan", "demand.toml", "--nodes", "nodes.toml", "--objective", "moves", "--current", "tight.csv") == 0
    assert "moved instances 0" in capsys.readouterr().out


def test_a_node_whose_name_is_a_number_keeps_it(here, capsys):
    (here / "current.csv").write_text("job,node\n" + "0,007\n" * 6, "utf-8")
    frame = Cluster.uniform(2, 1, cpu_milli=3000).frame.with_columns(node=pl.Series(["007", "08"]))
    jobs = {"submit": [0.0], "instances": [6], "cpu_milli": [400], "runtime": [9.0]}
    work = Workload.of(pl.DataFrame(jobs), source="x")
    Trace(work, Provenance("made", "x"), cluster=Cluster.of(frame, source="x")).save(here / "named")
    assert run("plan", "named", "--objective", "moves", "--current", "current.csv") == 0
    assert "moved instances 0" in capsys.readouterr().out


@pytest.mark.parametrize("own", ["", 'node = "mine"\n'])
def test_a_pool_that_shrinks_to_one_node_keeps_who_is_there(here, capsys, own):
    (here / "nodes.toml").write_text(NODES.replace("count = 6", f"count = 6\n{own}") + "[[node]]\ncpu_milli = 9\n")
    assert run("plan", "demand.toml", "--nodes", "nodes.toml", "--out", "now.csv") == 0
    now = pl.read_csv("now.csv").filter(pl.col("node") == pl.col("node").min())
    now.write_csv("now.csv")
    (here / "one.toml").write_text(
        f'[[node]]\n{own}count = 1\npool = "p"\ngpu_type = "T4"\ngpus = 1\ncpu_milli = 9000\nmemory_mib = 10\n'
    )
    capsys.readouterr()
    assert run("plan", "demand.toml", "--nodes", "one.toml", "--objective", "moves", "--current", "now.csv") == 0
    assert "moved instances 0" in capsys.readouterr().out


def test_who_is_on_a_pool_that_goes_moves_though_another_takes_its_place_in_the_file(here, capsys):
    old, new = (f'[[node]]\ncount = 3\npool = "{pool}"\ngpus = 1\ngpu_type = "T4"\ncpu_milli = 1000\n' for pool in "on")
    (here / "both.toml").write_text(old + new)
    (here / "new.toml").write_text(new)
    run("plan", "demand.toml", "--nodes", "both.toml", "--objective", "balance", "--out", "now.csv")
    gone = pl.read_csv("now.csv")["node"].str.starts_with("o-").sum()
    capsys.readouterr()
    run("plan", "demand.toml", "--nodes", "new.toml", "--objective", "moves", "--current", "now.csv")
    assert gone > 0
    assert f"moved instances {gone}" in capsys.readouterr().out


def test_a_blank_line_of_a_placement_is_nobody(here, capsys):
    run("plan", "demand.toml", "--nodes", "nodes.toml", "--out", "now.csv")
    text = (here / "now.csv").read_text("utf-8")
    (here / "now.csv").write_text(text.replace("\n", "\n\n") + ",,,\n", "utf-8")
    capsys.readouterr()
    assert run("plan", "demand.toml", "--nodes", "nodes.toml", "--objective", "moves", "--current", "now.csv") == 0
    assert "moved instances 0" in capsys.readouterr().out


@pytest.mark.parametrize("out", ["none/p.csv", "nodes.toml/p.csv", "."])
def test_a_file_that_cannot_be_written_is_named_before_the_search(here, capsys, out):
    # The demand is not there either: that nobody says so shows what is looked at first.
    assert run("plan", "none.toml", "--nodes", "nodes.toml", "--out", out) == 2
    error = capsys.readouterr().err
    assert out in error
    assert "demand" not in error


def test_a_plan_is_told_though_its_file_cannot_be_written_after_all(here, capsys):
    found = fleetlab.plan(demand("demand.toml"), Cluster.from_toml("nodes.toml"))
    with pytest.raises(OSError, match=r"none/p\.csv"):
        _show(found, Path("none/p.csv"), json=False, only=("nodes",))
    assert "8 instances are placed" in capsys.readouterr().out


def test_ctrl_c_ends_a_search_at_once(here):
    kinds = np.random.default_rng(1).integers(50, 700, (300, 2)).tolist()
    (here / "hard.toml").write_text("".join(f"[[instance]]\ncpu_milli={a}\nmemory_mib={b}\n" for a, b in kinds))
    (here / "many.toml").write_text("[[node]]\ncount = 300\ncpu_milli = 1000\nmemory_mib = 1000\n")
    words = ("plan", "hard.toml", "--nodes", "many.toml", "--seconds", "200", "--json")
    with subprocess.Popen([sys.executable, "-m", "fleetlab.cli", *words], stderr=subprocess.PIPE, text=True) as done:
        time.sleep(4)  # in the solver, most likely; wherever it is, it must end
        done.send_signal(signal.SIGINT)
        assert done.communicate(timeout=60)[1].endswith("stopped\n")
    assert done.returncode == 130


def test_json_is_one_object_with_the_plan(here, capsys):
    words = ("--objective", "cost", "--price", "p=2.5", "--seed", "3", "--json")
    assert run("plan", "demand.toml", "--nodes", "nodes.toml", *words) == 0
    told = json.loads(capsys.readouterr().out)
    assert told["summary"][0] == {"metric": "cost of nodes in use", "value": 7.5, "low": 7.5, "high": 7.5, "unit": ""}
    assert len(told["tables"]["placements"]) == 8
    assert told["provenance"]["settings"]["prices"] == {"p": 2.5}


def test_who_does_not_fit_ends_with_status_1(here, capsys):
    (here / "nodes.toml").write_text(NODES.replace("count = 6", "count = 2"), "utf-8")
    assert run("plan", "demand.toml", "--nodes", "nodes.toml") == 1
    assert "request 2,600 cpu_milli, all nodes have 2,000 in total" in capsys.readouterr().out


def test_those_alive_in_a_trace_are_placed_on_its_nodes(here, capsys):
    assert run("plan", "builtin:300", "--at", "2h", "--seconds", "1", "--json") == 0
    assert json.loads(capsys.readouterr().out)["provenance"]["source"].endswith("at 7200 s")


@pytest.mark.parametrize(
    ("words", "said"),
    [
        (("plan", "demand.toml"), "--nodes FILE.toml"),
        (("plan", "none.toml", "--nodes", "nodes.toml"), "cannot read the demand"),
        (("plan", "demand.toml", "--nodes", "none.toml"), "cannot read the cluster file"),
        (("plan", "demand.toml", "--nodes", "nodes.toml", "--price", "p:3"), "--price takes POOL=NUMBER"),
        (("plan", "demand.toml", "--nodes", "nodes.toml", "--objective", "cost", "--price", "q=3"), "pools: p\n"),
        (("plan", "demand.toml", "--nodes", "nodes.toml", "--objective", "moves", "--current", "x.csv"), "placement"),
        (("defragment", "demand.toml", "--nodes", "nodes.toml", "--current", "nodes.toml"), "needs the column"),
        (("plan", "builtin:300", "--at", "never"), "not a time"),
        (("plan", "demand.toml", "--nodes", "nodes.toml", "--at", "2h"), "--at is for a trace"),
        (("plan", "demand.toml", "--nodes", "nodes.toml", "--current", "nodes.toml"), "does not use a current"),
    ],
)
def test_a_mistake_ends_with_words_and_status_2(here, capsys, words, said):
    assert run(*words) == 2
    error = capsys.readouterr().err
    assert error.startswith("error: ")
    assert "hint: " in error
    assert said in error


@pytest.mark.parametrize("verb", ["plan", "defragment"])
def test_a_command_takes_what_its_verb_takes(verb):
    others = {"at", "out", "json", "forecast", "options"}
    said = set(inspect.signature(cli.app[verb].default_command).parameters) - others
    assert said == set(inspect.signature(getattr(fleetlab, verb)).parameters) - {"progress"}


@pytest.mark.parametrize("verb", ["plan", "defragment"])
def test_help_has_examples(verb, command):
    assert f"fleetlab {verb} demand.toml" in command(verb, "--help").stdout.split("Examples:")[1]
