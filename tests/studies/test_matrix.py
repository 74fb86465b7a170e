"""Every verb that simulates, under every scheduler, wherever it runs: the same numbers, of the same run.

A cell of the matrix is a verb on a small site of one scheduler. It runs in this process, in a process of its own, and,
for one verb of each kind, on a Ray cluster. Where a verb cannot work with a scheduler, it says so in one sentence.
"""

import json
import shlex
import tempfile
from importlib.util import find_spec
from pathlib import Path

import polars as pl
import pytest

import fleetlab
from fleetlab import FleetlabError, Prices, SavedResult, Scenario
from fleetlab.core import as_json
from fleetlab.core.durations import brief
from fleetlab.core.events import Outage, Recovery
from fleetlab.studies.runner import Call, run_calls

from .worlds import SCHEDULERS, TEAMS, jobs, nodes, site

JOB = "job-20"
RECORDED = "mean wait, recorded"
GOAL = 450.0  # s of mean wait: three nodes or fewer meet it
CHANGES = ["nothing", "nodes", "gangs"]  # of a diagnosis
SPARSE = 20_000.0  # s between jobs: a week of them, from which demand can be forecast
REFUSED = {
    *(("autoscale", name) for name in SCHEDULERS if name != "event"),
    *(("tune", name) for name in SCHEDULERS if name != "event"),
    ("checkpoints", "slurm"),
}  # fmt: skip


def as_configured(scenario):
    """The policies that are compared: first what the site has."""
    return ["fifo" if scenario.trace.scheduler is None else "scheduler=site", "sjf"]


def swept(scenario):
    with tempfile.TemporaryDirectory() as folder:
        return fleetlab.sweep([scenario], seeds=[0], resample="none", store=folder, workers=1)


def as_site(scenario, **words):
    """Simulate by the scheduler of the site, which words of a policy would replace."""
    site_words = {} if scenario.trace.scheduler is None else {"scheduler": "site"}
    return fleetlab.simulate(scenario, **site_words, **words)


def page(scenario):
    from fleetlab.web.runs import RunRecord, check_size, save

    run = fleetlab.simulate(check_size(scenario))
    with tempfile.TemporaryDirectory() as folder:
        save(run, Path(folder) / "run")
        record = RunRecord.load(Path(folder) / "run")
        estimates = record.measure(Prices()).estimates
    return SavedResult(run.provenance, (), tuple(estimates.values()), {}, {}, tuple(record.facts["notes"]))


VERBS = {
    "simulate": fleetlab.simulate,
    "compare": lambda s, workers=0, **more: fleetlab.compare(s, policies=as_configured(s), workers=workers, **more),
    "diagnose": lambda s, workers=0, **more: fleetlab.diagnose(s, changes=CHANGES, workers=workers, **more),
    "capacity": lambda s, workers=0: fleetlab.capacity(s, slo=f"mean wait < {GOAL}", workers=workers, replicas=1),
    "audit": fleetlab.audit,
    "calibrate": fleetlab.calibrate,
    "eta": lambda s: fleetlab.eta(s, job=JOB, replays=3, calibrate=0),
    "explain": lambda s: fleetlab.explain(s, job=JOB),
    "sweep": swept,
    "tune": lambda s: fleetlab.tune(s, trials=2, days=0.005, warm=0.001),
    "autoscale": lambda s: fleetlab.autoscale(s, risk=0.5, learn="4d", models=["last"]),
    "page": page,
    "node events": lambda s: as_site(s, events=[Outage(100, 400, [s.cluster.frame["node"][0]])]),
    "checkpoints": lambda s: as_site(s, recovery=Recovery(every=60, save=5, restart=10)),
}
# Verbs that start processes themselves: each of them, and each scheduler, at least once.
IN_PROCESSES = [
    ("compare", "event"), ("compare", "kueue"), ("compare", "volcano"), ("diagnose", "slurm"), ("diagnose", "kai"),
    ("capacity", "slurm"), ("capacity", "kueue"), ("capacity", "kubernetes"),
]  # fmt: skip


def answer(scenario, verb, workers=None, **more):
    """What a verb says, without how long it took: a JSON object, or the sentence of a refusal."""
    try:
        result = VERBS[verb](scenario, **({} if workers is None else {"workers": workers}), **more)
    except FleetlabError as e:
        return {"refusal": str(e), "hint": e.hint}
    said = json.loads(as_json(result))
    summary = [] if verb == "sweep" else said["summary"]  # of a sweep: how much work it was
    return {"findings": said["findings"], "notes": said["notes"], "summary": summary, "tables": said["tables"]}


def scenario_of(verb, name):
    return Scenario.of(site(name, SPARSE) if verb == "autoscale" else site(name))


CELLS = [(verb, name) for verb in VERBS for name in SCHEDULERS]
OUTSIDE = [(verb, name) for verb, name in CELLS if verb != "sweep"]  # which is always in other processes


@pytest.fixture(scope="module")
def here():
    """Each cell in this process."""
    return {cell: answer(scenario_of(*cell), cell[0]) for cell in CELLS}


@pytest.fixture(scope="module")
def in_another_process():
    """Each cell in one other process."""
    calls = [Call(scenario_of(*cell), {"verb": cell[0]}) for cell in OUTSIDE]
    return dict(zip(OUTSIDE, run_calls(answer, calls, workers=1, done=lambda _: None), strict=True))


def metric(said, name):
    return next(row["value"] for row in said["summary"] if row["metric"] == name)


@pytest.mark.slow
@pytest.mark.parametrize(("verb", "name"), OUTSIDE)
def test_a_verb_says_the_same_in_a_process_of_its_own(verb, name, here, in_another_process):
    assert in_another_process[verb, name] == here[verb, name]


@pytest.mark.parametrize(("verb", "name"), CELLS)
def test_a_verb_works_under_a_scheduler_or_refuses_in_one_sentence(verb, name, here):
    said = here[verb, name]
    assert ("refusal" in said) == ((verb, name) in REFUSED)
    if "refusal" in said:
        assert "\n" not in said["refusal"]
        assert said["hint"]


@pytest.mark.slow
@pytest.mark.parametrize(("verb", "name"), IN_PROCESSES)
def test_a_verb_that_starts_processes_says_the_same_with_and_without(verb, name, here):
    assert answer(scenario_of(verb, name), verb, workers=1) == here[verb, name]


@pytest.mark.slow
@pytest.mark.ray
@pytest.mark.skipif(find_spec("ray") is None, reason="Ray is not installed")
def test_verbs_say_the_same_on_a_ray_cluster(here, monkeypatch):
    """One cluster, for a study of each kind: what differs, the search of a size, and any call of a verb."""
    monkeypatch.setenv("RAY_USAGE_STATS_ENABLED", "0")
    cells = [("compare", "kueue"), ("diagnose", "slurm"), ("eta", "volcano"), ("sweep", "kai"), ("page", "kubernetes")]
    calls = [Call(scenario_of(*cell), {"verb": cell[0]}) for cell in cells]
    assert run_calls(answer, calls, workers="ray", done=lambda _: None) == [here[cell] for cell in cells]


# -- one baseline ----------------------------------------------------------------------------------------------------


@pytest.mark.parametrize("name", SCHEDULERS)
def test_every_verb_begins_with_the_same_run(name, here):
    """The mean wait of the site as it is configured, in each table and sentence that has it."""
    mean = metric(here["simulate", name], "mean wait")
    assert mean > 0
    scenario = scenario_of("compare", name)  # of the log as it is: replicas are of nudged ones
    one_run = {"compare": answer(scenario, "compare", replicas=1), "diagnose": answer(scenario, "diagnose", replicas=1)}
    said = {verb: here[verb, name] for verb in VERBS} | one_run
    policies = said["compare"]["tables"]["policies"]
    changes = said["diagnose"]["tables"]["changes"]
    curve = {row["nodes"]: row for row in said["capacity"]["tables"]["curve"]}
    assert policies[0]["mean wait"] == pytest.approx(mean)
    assert [row["mean wait"] - row["mean wait change"] for row in policies] == pytest.approx([mean] * 2)
    assert metric(said["diagnose"], "mean wait") == pytest.approx(mean)
    assert said["diagnose"]["tables"]["waterfall"][0]["mean wait"] == pytest.approx(mean)
    assert [r["mean wait"] - r["mean wait change"] for r in changes if not r["not completed"]] == pytest.approx(
        [mean] * sum(not r["not completed"] for r in changes)
    )
    assert next(r for r in changes if r["change"] == "nothing")["mean wait change"] == 0
    assert curve[3]["mean wait"] == pytest.approx(mean)
    assert metric(said["audit"], "mean wait, simulated") == pytest.approx(mean)
    assert said["sweep"]["tables"]["scenarios"][0]["mean"] == pytest.approx(mean)
    assert metric(said["page"], "mean wait") == pytest.approx(mean)


@pytest.mark.parametrize("name", SCHEDULERS)
def test_all_numbers_of_an_answer_from_replicas_begin_with_one_mean(name, here):
    """Sentences, tables and findings of a diagnosis, a comparison and a size: over three replicas, never of one run."""
    scenario, few = scenario_of("diagnose", name), {"replicas": 3, "workers": 0}
    diagnosis = fleetlab.diagnose(scenario, changes=CHANGES, **few)
    comparison = fleetlab.compare(scenario, policies=as_configured(scenario), **few)
    size = fleetlab.capacity(scenario, slo=f"mean wait < {GOAL}", scope="log", **few)
    mean, tables, count = diagnosis.summary()[0].value, diagnosis.tables(), len(scenario.workload)
    assert mean != pytest.approx(metric(here["simulate", name], "mean wait"), rel=1e-6)
    assert diagnosis.findings[0].startswith(f"Recorded mean wait {brief(metric(here['audit', name], RECORDED))}, "
                                            f"simulated {brief(mean)}.")  # fmt: skip
    assert all(f"from {brief(mean)} to " in line for line in diagnosis.findings if line.startswith("Mean wait"))
    of_all = [f for f in diagnosis.records if "do not complete" not in f.population]
    assert [f.before for f in of_all] == pytest.approx([mean] * len(of_all))
    assert tables["waterfall"]["mean wait"][0] == pytest.approx(mean)
    for table in ("waiting", "held by"):
        assert tables[table]["total wait"].sum() == pytest.approx(mean * count)
    for table in ("by GPU type", "by queue", "by hour of the day", "worst hours"):
        assert tables[table].select(pl.col("jobs").dot("mean wait")).item() == pytest.approx(mean * count)
    assert comparison.tables()["policies"]["mean wait"][0] == pytest.approx(mean)
    assert [f.before for f in comparison.records if f.metric == "mean wait"] == pytest.approx([mean])
    assert dict(size.tables()["curve"].select("nodes", "mean wait").iter_rows())[3] == pytest.approx(mean)


@pytest.mark.parametrize("name", SCHEDULERS)
def test_every_change_of_a_diagnosis_is_simulated_again_to_the_last_digit(name):
    """As the options that it prints, given to `simulate`, and as the scenario that it returns."""
    base = scenario_of("diagnose", name)
    found = fleetlab.diagnose(base, replicas=1, workers=0)
    rows = found.tables()["changes"].filter(pl.col("not completed") == 0).rows(named=True)
    assert any(row["setting"] for row in rows)
    for row in rows:
        if row["change"] == "gangs" and not row["setting"]:
            continue  # a job waits for its last instance, which are jobs of their own then
        assert mean_wait(fleetlab.simulate(found.scenario(row["change"]), min_coverage=0.0)) == row["mean wait"], row
        if row["setting"]:
            words = shlex.split(row["setting"])
            options = {word.removeprefix("--"): value for word, value in zip(words[::2], words[1::2], strict=True)}
            assert mean_wait(fleetlab.simulate(base, **options)) == row["mean wait"], row


def mean_wait(run):
    return run.completed.sort("job")["wait"].to_numpy().mean()


@pytest.mark.parametrize("name", SCHEDULERS)
def test_explain_tells_of_a_job_what_the_simulation_has(name, here):
    row = next(r for r in fleetlab.simulate(site(name)).jobs.rows(named=True) if r["job"] == 20)
    assert metric(here["explain", name], "wait") == pytest.approx(row["wait"])


def test_the_sites_are_those_of_their_schedulers():
    """Each of them schedules in its own way: a verb that forgets the scheduler of a trace gets another number."""
    means = {fleetlab.simulate(site(name)).jobs["wait"].mean() for name in SCHEDULERS}
    assert len(means) == len(SCHEDULERS)
    assert set(jobs().frame["group"].cast(str).unique()) == set(TEAMS)
    assert len(nodes()) == 3
