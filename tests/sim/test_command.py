"""`fleetlab simulate` and the file of events: the command is the function, and mistakes end in an error and a hint."""

import json

import polars as pl
import pytest

import fleetlab
from fleetlab import Trace, Workload, WorkloadError, cli
from fleetlab.core.events import from_toml
from fleetlab.sim import jit


def run(capsys, *words):
    """What the command says on both streams, and its status."""
    status = 0
    try:
        cli.main([*map(str, words), "--full"])
    except SystemExit as e:
        status = int(e.code or 0)
    said = capsys.readouterr()
    return said.out, said.err, status


@pytest.fixture
def trace(tmp_path):
    """Three jobs for one GPU, of which the last is short, and asked for long."""
    work = Workload.of(
        pl.DataFrame(
            {"submit": [0.0, 1.0, 2.0], "runtime": [10.0, 8.0, 2.0], "gpu_milli": [1000] * 3, "user": ["a", "b", "b"]}
        ),
        source="three",
    )
    asked = pl.DataFrame({"job": [0, 1, 2], "seconds": [10.0, 8.0, 90.0]}).lazy()
    made = Trace(
        work,
        cluster=fleetlab.Cluster.uniform(1, 1),
        provenance=fleetlab.Provenance("make", "three"),
        series={"requested": asked},
    )
    return made.save(tmp_path / "trace")


def test_the_first_line_says_what_was_simulated(capsys, trace):
    out, _, _ = run(capsys, "simulate", trace, "--load", "0.5")
    covered, first = out.splitlines()[:2]
    assert covered.startswith("The log is too short: jobs that run longer than its 4 s hold 90 % of the GPU-hours")
    assert covered.endswith("Simulated all 3 jobs in the log (0.005556 GPU-hours).")
    assert first == "fifo/greedy/best_fit, load 0.5, 1 node, 1 GPU: 3 of 3 jobs, submitted within 4 s"
    assert "makespan (first submission to last end) 20 s" in out
    assert "- the cluster starts empty: waits early in the run are too low" in out


@pytest.mark.parametrize(
    ("words", "error"),
    [((), "TRACE is missing"), (("--nodes=-100%",), "no node would be left: `-100%`"),
     (("--estimate", "walltime"), "`requested` is in traces with walltime limits")],
)  # fmt: skip
def test_what_is_missing_is_named(capsys, trace, words, error):
    _, err, status = run(capsys, "simulate", *([trace, *words] if words else []))
    assert (error in err, status) == (True, 2)


def test_an_estimate_may_be_a_series_of_the_trace(capsys, trace):
    waits = {}
    for estimate in ("oracle", "requested"):
        out, _, _ = run(capsys, "simulate", trace, "--order", "sjf", "--estimate", estimate, "--json")
        waits[estimate] = json.loads(out)["summary"][0]["value"]
    # Known to be short, the last goes second; believed to be long, it goes last.
    assert waits == {"oracle": pytest.approx((0 + 11 + 8) / 3), "requested": pytest.approx((0 + 9 + 16) / 3)}


def test_compare_takes_the_same_series(capsys, trace):
    policies = "sjf,sjf/greedy/best_fit/requested"
    out, _, _ = run(capsys, "compare", trace, "--policies", policies, "--replicas", "1", "--json")
    waits = [e["value"] for e in json.loads(out)["summary"] if e["metric"].startswith("mean wait")]
    assert waits == [pytest.approx((0 + 11 + 8) / 3), pytest.approx((0 + 9 + 16) / 3)]


@pytest.mark.parametrize("name", ["schedule.csv", "schedule.parquet"])
def test_the_schedule_is_written_with_where_each_ran_and_why_it_waited(capsys, tmp_path, name):
    # Of four jobs for two nodes of one GPU the second is a gang, the third waits for it, and the last fits nowhere.
    asks = {"submit": [0.0, 10.0, 11.0, 12.0], "runtime": [5.0, 6.0, 1.0, 1.0], "instances": [1, 2, 1, 1]}
    work = Workload.of(pl.DataFrame({**asks, "gpu_milli": [1000, 1000, 1000, 4000]}), source="four")
    cluster, made_by = fleetlab.Cluster.uniform(2, 1), fleetlab.Provenance("make", "four")
    names = pl.DataFrame({"job": [2, 0, 3, 1], "name": ["c", "a", "d", "b"]}).lazy()
    folder = Trace(work, cluster=cluster, provenance=made_by, names=names).save(tmp_path / "four")
    out, err, status = run(capsys, "simulate", folder, "--out", tmp_path / name)
    assert out.splitlines()[0].startswith("Simulated 3 of 4 jobs in the log, 81.8 % of its ")
    assert (status, f"written to {tmp_path / name}" in err) == (0, True)
    found = pl.read_csv(tmp_path / name) if name.endswith("csv") else pl.read_parquet(tmp_path / name)
    assert found.select("job", "start", "wait", "status").rows() == [
        (0, 0.0, 0.0, "done"), (1, 10.0, 0.0, "done"), (2, 16.0, 5.0, "done"), (3, None, None, "left out")
    ]  # fmt: skip
    assert found["name"].to_list() == ["a", "b", "c", "d"]
    assert found["left_out"].to_list() == [None, None, None, "an instance fits on no node"]
    reasons = found.select(pl.sum_horizontal(pl.col("^wait_.*$")))[:3].to_series()
    assert (reasons.to_list(), found["wait_gpu"][2]) == (found["wait"][:3].to_list(), 5.0)
    nodes = found["nodes"].str.split(";") if name.endswith("csv") else found["nodes"]
    assert sorted(nodes[1]) == ["node-0", "node-1"]
    assert [None if n is None else len(n) for n in nodes] == [1, 2, 1, None]


def test_where_nothing_can_be_written_is_said_before_anything_is_played(capsys, trace, tmp_path):
    for out, error in (("no/file.csv", "no such folder"), ("file.txt", "as .csv, .parquet"), ("trace.csv", "not a ")):
        (tmp_path / "trace.csv").mkdir(exist_ok=True)
        _, err, status = run(capsys, "simulate", trace, "--order", "no such order", "--out", tmp_path / out)
        assert (status, error in err, "hint: " in err) == (2, True, True), err


def test_an_order_of_ones_own_is_named_by_its_module(capsys, trace, tmp_path, monkeypatch):
    (tmp_path / "late_first.py").write_text("def late(s, job, now):\n    return -s.submit[job]\n")
    monkeypatch.chdir(tmp_path)
    out, _, status = run(capsys, "simulate", trace, "--order", "late_first:late", "--json")
    assert (status, json.loads(out)["summary"][0]["value"]) == (0, pytest.approx((0 + 11 + 8) / 3))


def test_events_come_from_a_file(capsys, trace, tmp_path):
    (tmp_path / "e.toml").write_text(
        '[[outage]]\nbegin = 4.0\nend = 5.0\nnodes = ["node-0"]\n[recovery]\nrestart = 1\n'
    )
    out, _, status = run(capsys, "simulate", trace, "--events", tmp_path / "e.toml", "--json")
    found = {e["metric"]: e["value"] for e in json.loads(out)["summary"]}
    # The first begins again from nothing at 5 and ends at 15 (nothing was saved that could be loaded).
    assert status == 0
    assert found["mean JCT"] == pytest.approx((15 + 22 + 23) / 3)


@pytest.mark.parametrize(
    ("words", "error"),
    [
        (["--order", "sjff"], "no order by that name: `sjff`; did you mean sjf?"),
        (["--backfill", "eazy"], "no backfill by that name: `eazy`; did you mean easy?"),
        (["--placement", "here"], "no placement by that name: `here`"),
        (["--estimate", "guess"], "no estimate by that name: `guess`"),
        (["--sharing", "mpz"], "no sharing mode by that name: `mpz`; did you mean mps?"),
        (["--order", "nowhere:mine"], "no module by that name: `nowhere`"),
        (["--events", "none.toml"], "cannot read the events file: none.toml"),
        (["--speed", "profile.json"], "a speed profile has no effect with sharing `fractional`"),
        (["--speed", "profile.json", "--sharing", "mps"], "profile.json"),
        (["--quota", "-1"], "a quota is a number from 0 to"),
        (["--preemption", "--backfill", "easy"], "preemption cannot be combined with backfill easy"),
    ],
)
def test_a_mistake_ends_in_an_error_and_a_hint(capsys, trace, words, error):
    _, err, status = run(capsys, "simulate", trace, *words)
    assert (status, error in err, "hint: " in err) == (2, True, True), err


@pytest.mark.parametrize(
    ("text", "error"),
    [
        ("[[fault]]\n", "no such event: `fault`"),
        ("[faults]\nmtbf = 1\n", "needs double brackets"),
        ("[[faults]]\nmtbf = 1.0\nmttf = 2.0\n", "no such key of faults: `mttf`"),
        ("[[faults]]\nmtbf = 'long'\nmttr = 1\n", "invalid `mtbf` of faults: 'long'"),
        ("[[faults]]\nmtbf = 5.0\n", "faults is not complete"),
        ("[[faults]]\nmtbf = -5.0\nmttr = 1.0\n", "mtbf"),
        ("mtbf", "not TOML"),
    ],
)
def test_a_file_of_events_that_cannot_be_says_why(tmp_path, text, error):
    (tmp_path / "e.toml").write_text(text)
    with pytest.raises(WorkloadError, match=error.replace("[", r"\[")):
        from_toml(tmp_path / "e.toml")


def test_until_stops_the_clock(capsys, trace):
    out, _, _ = run(capsys, "simulate", trace, "--until", "12")
    assert "when the simulation stops: means and quantiles are of the jobs that completed" in out


def test_compiled_code_is_kept_by_the_text_of_all_files_it_came_from():
    files = {path.stem for path in jit.sources("sim.engine.greedy")}
    assert {"greedy", "fit", "index", "layout", "nodes", "placements", "jit"} <= files
    assert "preemption" not in files


def test_compiled_code_of_a_scheduler_is_kept_by_its_files_and_those_of_the_simulator():
    files = {str(path.relative_to(jit.ROOT.parent)) for path in jit.sources("schedulers.slurm.loop")}
    assert {"schedulers/slurm/loop.py", "schedulers/slurm/select.py", "sim/heap.py", "sim/layout.py"} <= files


@pytest.mark.parametrize(
    ("words", "said"),
    [
        (["--load", "0"], "hint: --load 1.2 raises the arrival rate by 20 %"),
        (["--quota", "-1"], "hint: --quota 16 for every user, or --quota ada=16,queue:vision=8"),
        (
            ["--order", "srpt", "--backfill", "easy"],
            "hint: --backfill none or --backfill greedy, or an order that does",
        ),
        (["--order", "load"], "no order by that name: `load`"),
        (["--seed", "x"], "hint: --seed 1"),
        (["--until", "soon"], "error: --until is a time from 0 s up, not: 'soon'"),
    ],
)
def test_a_message_spells_options_as_the_command_line_does(capsys, trace, words, said):
    _, err, _ = run(capsys, "simulate", trace, *words)
    assert said in err


def test_another_model_of_gpu_is_never_meant(capsys, tmp_path):
    nodes = fleetlab.Cluster.uniform(1, 8, gpu_type="V100")
    jobs = fleetlab.Workload.of(pl.DataFrame({"submit": [0.0], "runtime": [1.0]}), source="one")
    fleetlab.Trace(jobs, fleetlab.Provenance("make", "one"), nodes).save(tmp_path / "one")
    for name, meant in (("A100", False), ("v100", True), ("V-100", True)):
        _, err, _ = run(capsys, "simulate", tmp_path / "one", "--nodes", f"{name} 2")
        assert ("did you mean V100?" in err) == meant


def test_preemptions_are_counted_where_jobs_may_be_preempted(capsys, trace):
    out, _, _ = run(capsys, "simulate", trace, "--order", "srpt")
    assert any(line.startswith("preemptions ") for line in out.splitlines())
    out, _, _ = run(capsys, "simulate", trace)
    assert "preemptions" not in out
