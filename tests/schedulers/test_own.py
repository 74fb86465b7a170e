"""A scheduler of one's own in plain Python: what it sees, what it may do, and that nothing is allocated twice."""

import dataclasses
import random
import re

import numpy as np
import polars as pl
import pytest

import fleetlab
from fleetlab import Migrate, PolicyError, Preempt, Reserve, Resize, Start, WakeAt
from fleetlab.core.events import Drain, Elastic, Outage, Recovery
from fleetlab.sim.kernel.cluster import ClusterState
from fleetlab.sim.layout import NodeView, writable
from fleetlab.sim.simulate import world_of

NODES = fleetlab.Cluster.uniform(2, 4)


class Greedy:
    """Every job that fits, in the order of arrival."""

    def decide(self, view):
        return [action for job in view.waiting if (action := view.try_start(job))]


class Does:
    """What it is told for a time; then as Greedy."""

    def __init__(self, script, every=0.0):
        self.script, self.every, self.seen = script, every, []

    def decide(self, view):
        self.seen.append(view.now)
        if view.now in self.script:
            return self.script[view.now](view)
        return Greedy().decide(view)


def workload(*rows):
    names = ("submit", "runtime", "instances", "gpu_milli")
    jobs = pl.DataFrame([dict(zip(names, row, strict=True)) for row in rows])
    return fleetlab.Workload.of(jobs.with_columns(user=pl.lit("ann")), source="drawn")


def simulate(jobs, scheduler, **words):
    return fleetlab.simulate(jobs, words.pop("cluster", NODES), scheduler=scheduler, warm_up="none", **words)


def drawn(seed, count=60):
    rng = random.Random(seed)
    sizes = [0, 300, 500, 1000, 2000, 4000]
    rows = [(rng.randrange(400), rng.randrange(90), rng.choice([1, 1, 2, 3]), rng.choice(sizes)) for _ in range(count)]
    return workload((0, 30, 1, 1000), *sorted(rows))


def audit(result):
    """Replay the schedule; nothing is allocated twice, and the reasons of every wait add up to it."""
    jobs = result.jobs
    result.timeline()
    waited = result.ledger.select(pl.exclude("job")).sum_horizontal() if "job" in result.ledger.columns else None
    if waited is not None:
        assert np.allclose(waited.to_numpy(), jobs["wait"].fill_null(0.0).to_numpy())


@pytest.mark.parametrize("seed", range(3))
def test_greedy_in_python_is_greedy_backfill(seed):
    mine, theirs = simulate(drawn(seed), Greedy()), simulate(drawn(seed), "event", backfill="greedy")
    assert mine.jobs.equals(theirs.jobs)
    assert (mine.played.got == theirs.played.got).all()


@pytest.mark.parametrize("recovery", [None, Recovery(every=20, save=2, restart=3)])
def test_node_events_fail_and_requeue_as_event_driven_ones_do(recovery):
    events = [Outage(nodes=["node-0"], begin=60, end=200), Drain(nodes=["node-1"], begin=150, end=300)]
    words = {"events": events} | ({} if recovery is None else {"recovery": recovery})
    names = NODES.frame["node"].to_list()
    words["events"] = [dataclasses.replace(e, nodes=[names[k]]) for k, e in enumerate(events)]
    mine, theirs = simulate(drawn(5), Greedy(), **words), simulate(drawn(5), "event", **words)
    assert mine.jobs.equals(theirs.jobs)
    assert mine.jobs["failures"].sum() > 0
    audit(mine)


def test_until_leaves_jobs_running_and_waiting():
    mine, theirs = (simulate(drawn(1), one, until=150.0) for one in (Greedy(), "event"))
    assert mine.jobs.equals(theirs.jobs)
    assert set(mine.jobs["status"]) > {"done"}


def test_learnt_estimates_are_those_of_finished_jobs():
    mine, theirs = (simulate(drawn(2), one, estimate="user") for one in (Greedy(), "event"))
    assert mine.jobs.equals(theirs.jobs)


class Random:
    """Anything that may be done, at random: starts, preemptions, migrations, other sizes."""

    def __init__(self, seed):
        self.rng = random.Random(seed)

    def decide(self, view):
        actions, sizes = [], []
        for run in view.running:
            if self.rng.random() < 0.1:
                actions.append(view.try_preempt(run))
            elif self.rng.random() < 0.1:
                sizes.append(Resize(run, self.rng.randint(1, len(run.nodes))))
        for job in view.waiting:
            if self.rng.random() < 0.8:
                start = view.try_start(job, instances=self.rng.randint(1, job.instances))
                actions += [start] if start else []
        actions += sizes
        return [*actions, WakeAt((view.now // 5 + 1) * 5)] if view.running or view.waiting else actions


@pytest.mark.parametrize("seed", range(4))
def test_whatever_it_does_sums_hold(seed):
    words = {"recovery": Recovery(every=20, save=2, restart=3)} if seed % 2 else {}
    result = simulate(drawn(seed), Random(seed), **words)
    audit(result)
    assert (result.jobs["status"] == "done").all()
    assert result.jobs.equals(simulate(drawn(seed), Random(seed), **words).jobs)


JOBS = workload((0, 100, 1, 4000), (1, 100, 2, 2000), (2, 50, 1, 1000))
BAD = {
    "too much on one node": lambda v: [Start(v.waiting[0], nodes=[0]), Start(v.waiting[1], nodes=[0, 0])],
    "no such node": lambda v: [Start(v.waiting[0], nodes=[7])],
    "not its number of nodes": lambda v: [Start(v.waiting[1], nodes=[0])],
    "more instances than it has": lambda v: [Start(v.waiting[0], instances=2)],
    "no such job": lambda v: [Start(17)],
    "twice": lambda v: [Start(v.waiting[0]), Start(v.waiting[0])],
    "not running": lambda v: [Preempt(v.waiting[0])],
    "a size of 0": lambda v: [Start(v.waiting[1]), Resize(v.waiting[1], 0)],
    "a time that is over": lambda v: [WakeAt(v.now)],
    "on what another has reserved": lambda v: [Reserve(v.waiting[1], [0, 1], at=50.0), Start(v.waiting[0])],
}


@pytest.mark.parametrize("what", BAD)
def test_a_bad_action_is_named(what):
    with pytest.raises(PolicyError, match="scheduler `Does` cannot do"):
        simulate(JOBS, Does({2.0: BAD[what], 0.0: lambda v: [], 1.0: lambda v: []}))


class NoView:
    def decide(self):
        return []


class NeedsArguments(Greedy):
    def __init__(self, jobs):
        self.jobs = jobs


class Soon(Greedy):
    every = "soon"


class Open(Greedy):
    def __init__(self):
        self.rows = iter(()), (row for row in ())


MISTAKES = {
    "a function": (lambda view: [], "not a scheduler: <function", "def decide"),
    "a class without decide": (dict, "not a scheduler: <class 'dict'>", "def decide"),
    "a number": (3, "not a scheduler: 3", "def decide"),
    "a class that needs arguments": (NeedsArguments, "cannot be built without arguments", r"NeedsArguments\(…\)"),
    "decide without the view": (NoView(), "`decide` is called with one argument, the view", r"test_own.py, line \d+"),
    "rounds that are no time": (Soon(), "`every` is a number of seconds from 0 up, not: 'soon'", "every = 60.0"),
    "what cannot be copied": (Open(), "cannot be copied: cannot pickle 'generator' object", "__deepcopy__"),
}
IN_DECIDE = {
    "its own error": (lambda v: 1 / 0, "raises ZeroDivisionError in `decide` at 0 s: division by zero"),
    "an error while it yields": (lambda v: (v.jobs for _ in "a"), "raises AttributeError in `decide` at 0 s: 'View'"),
    "nothing": (lambda v: None, "returns no actions, but None"),
    "one action": (lambda v: Start(0), "returns no actions, but Start"),
    "what did not fit": (lambda v: [None], "something that is no action: None"),
    "a node by name": (lambda v: [Start(0, nodes=["node-0"])], "not a list of numbers: \\['node-0'\\]"),
    "a node alone": (lambda v: [Start(0, nodes=1)], "not a list of numbers: 1"),
    "half a node": (lambda v: [Start(0, nodes=[0.5])], "not a list of numbers: \\[0.5\\]"),
    "instances by name": (lambda v: [Start(0, instances="all")], "not a number of instances: 'all'"),
    "a time by name": (lambda v: [WakeAt("later")], "not a time: 'later'"),
    "a reservation without a time": (lambda v: [Reserve(0, [0], at=None)], "not a time: None"),
    "the same job twice": (lambda v: [Start(0), Start(0)], "the job runs already"),
}


@pytest.mark.parametrize("what", MISTAKES)
def test_what_is_no_scheduler_is_refused_with_a_hint(what):
    scheduler, says, hint = MISTAKES[what]
    with pytest.raises(PolicyError, match=says) as refusal:
        simulate(JOBS, scheduler)
    assert re.search(hint, refusal.value.hint)


@pytest.mark.parametrize("what", IN_DECIDE)
def test_a_mistake_in_decide_is_an_error_that_names_the_line(what):
    does, says = IN_DECIDE[what]
    with pytest.raises(PolicyError, match=f"scheduler `Does` .*{says}") as refusal:
        simulate(JOBS, Does({0.0: does}))
    assert re.search(r"test_own.py, line \d+", refusal.value.hint)


def test_what_did_not_fit_is_named_as_what_try_start_returns():
    with pytest.raises(PolicyError) as refusal:
        simulate(JOBS, Does({0.0: lambda v: [None]}))
    assert "view.try_start" in refusal.value.hint


def test_a_preemption_that_is_tried_and_not_returned_is_named():
    def forgets(view):
        view.try_preempt(view.running[0])
        return [view.try_start(view.waiting[0], nodes=[0, 0])]

    jobs = workload((0, 100, 1, 4000), (1, 100, 2, 2000))
    script = {0.0: lambda v: [Start(0, nodes=[0])], 1.0: forgets}
    with pytest.raises(PolicyError, match="does not fit") as refusal:
        simulate(jobs, Does(script))
    assert "`view.try_preempt` was tried for <Job 0>" in refusal.value.hint


def test_a_start_on_a_node_that_is_down_says_so():
    outage = fleetlab.Outage(0.5, 30.0, [NODES.frame["node"][0]])
    with pytest.raises(PolicyError, match="which takes no jobs"):
        simulate(JOBS, Does({0.0: lambda v: [], 0.5: lambda v: [Start(0, nodes=[0])]}), events=[outage])


def test_a_decision_that_the_user_stops_is_named():
    def stopped(view):
        raise KeyboardInterrupt

    with pytest.raises(KeyboardInterrupt, match=r"`Does` was in `decide` at 0 s: see test_own.py, line \d+"):
        simulate(JOBS, Does({0.0: stopped}))


def test_it_is_called_what_the_user_calls_it():
    assert fleetlab.Scenario.of(JOBS, NODES, scheduler=Greedy()).scheduler.title == "Greedy"


NOT_POLICIES = {"a class": Greedy, "an object": Greedy(), "a lambda": lambda s, job, now: 0.0, "a number": 3}


@pytest.mark.parametrize("entry", [*NOT_POLICIES.values(), None], ids=[*NOT_POLICIES, "nothing"])
def test_what_is_no_policy_is_not_compared(entry):
    with pytest.raises(PolicyError, match="not a policy to compare: ") as refusal:
        fleetlab.compare(JOBS, NODES, policies=["fifo", entry])
    assert refusal.value.hint.startswith('policies=["fifo", {"')


def test_what_is_no_action_is_refused():
    with pytest.raises(PolicyError, match="no action: 3"):
        simulate(JOBS, Does({0.0: lambda v: [3]}))
    with pytest.raises(PolicyError, match="returns no actions"):
        simulate(JOBS, Does({0.0: lambda v: None}))


def test_a_preempted_job_waits_again_and_goes_on_where_it_was():
    script = {
        0.0: lambda v: [Start(0, nodes=[1])],
        10.0: lambda v: [Preempt(0), Start(1, nodes=[1])],
        30.0: lambda v: [Start(0, nodes=[0])],
    }
    result = simulate(workload((0, 100, 1, 4000), (10, 20, 1, 4000)), Does(script))
    assert result.jobs.select("start", "end", "preemptions").rows() == [(0.0, 120.0, 1), (10.0, 30.0, 0)]
    audit(result)


def test_a_migration_costs_a_save_and_a_restart():
    script = {0.0: lambda v: [WakeAt(40.0), Start(0, [0])], 40.0: lambda v: [Migrate(0, [1])]}
    result = simulate(workload((0, 100, 1, 1000)), Does(script), recovery=Recovery(every=0, save=5, restart=10))
    assert result.jobs.select("end", "lost").row(0) == (115.0, 15.0)
    assert result.played.segments.where.tolist() == [0, 1]


def test_a_job_with_half_of_its_instances_is_half_as_fast():
    result = simulate(workload((0, 100, 4, 1000)), Does({
        0.0: lambda v: [WakeAt(50.0), Start(0, nodes=[0, 1], instances=2)], 50.0: lambda v: [Resize(0, 4)],
    }))  # fmt: skip
    assert result.jobs["end"].to_list() == [50.0 + 75.0]
    assert np.diff(result.played.segments.first).tolist() == [2, 4]
    assert sorted(result.played.segments.where[2:].tolist())[:1] == [0]
    audit(result)


def test_a_resize_costs_as_many_seconds_with_fewer_instances():
    script = {0.0: lambda v: [Start(0), WakeAt(20.0)], 20.0: lambda v: [Resize(0, 1)]}
    result = simulate(workload((0, 100, 4, 1000)), Does(script), recovery=Recovery(every=0, save=5.0, restart=7.0))
    assert result.jobs["end"].to_list() == [20.0 + 12.0 + 4 * 80.0]
    audit(result)


def test_a_resize_to_the_size_it_has_changes_nothing():
    jobs, words = workload((0, 100, 2, 1000)), {"recovery": Recovery(every=0, save=5, restart=10)}
    same = {10.0: lambda v: [Resize(0, 2)], 20.0: lambda v: [Resize(0, 2, nodes=v.running[0].nodes)]}
    script = {0.0: lambda v: [Start(0, nodes=[0, 1]), WakeAt(10.0), WakeAt(20.0)]}
    result = simulate(jobs, Does(script | same), **words)
    assert result.jobs.select("end", "lost").row(0) == (100.0, 0.0)
    assert result.played.segments is None


def test_a_resize_to_the_same_size_on_other_nodes_moves_it():
    script = {0.0: lambda v: [Start(0, nodes=[0, 1]), WakeAt(10.0)], 10.0: lambda v: [Resize(0, 2, nodes=[1, 1])]}
    result = simulate(workload((0, 100, 2, 1000)), Does(script))
    assert result.played.segments.where.tolist() == [0, 1, 1, 1]


class Loops:
    """Starts the first job with one instance, and then does the same for ever."""

    def __init__(self, does):
        self.does = does

    def decide(self, view):
        starts = [Start(view.waiting[0], instances=1)] if view.waiting and not view.running else []
        return starts + self.does(view)


def to_and_fro(view):
    return [*(Resize(run, 3 - len(run.nodes)) for run in view.running), WakeAt(view.now + 10.0)]


LOOPS = {
    "timers closer and closer": (lambda v: [WakeAt(v.now + 1e-6)], r"within 1 s .* does WakeAt"),
    "sizes that it never runs in": (to_and_fro, r"interrupts runs that have done no work .* does Resize"),
}


@pytest.mark.parametrize("which", LOOPS)
def test_a_scheduler_that_is_asked_without_end_is_refused(monkeypatch, which):
    monkeypatch.setattr("fleetlab.sim.kernel.decide.MOST_IDLE", 500)
    does, says = LOOPS[which]
    with pytest.raises(PolicyError, match=says):
        simulate(workload((0, 100, 2, 1000)), Loops(does), recovery=Recovery(every=0, save=5, restart=10))


@pytest.mark.parametrize("also", [[], [Reserve(0, [0], at=0.0)]], ids=["timers", "reservations"])
def test_timers_alone_do_not_go_on_for_ever(monkeypatch, also):
    monkeypatch.setattr("fleetlab.sim.kernel.decide.MOST_IDLE", 500)

    class Waits:
        def decide(self, view):
            return [*also, WakeAt(view.now + 60.0)]

    with pytest.raises(PolicyError, match=r"while no job runs or comes, and starts none: at .* does .*WakeAt"):
        simulate(JOBS, Waits())


def test_actions_may_be_yielded():
    class Yields:
        def decide(self, view):
            for job in view.waiting:
                if start := view.try_start(job):
                    yield start

    assert simulate(drawn(3), Yields()).jobs.equals(simulate(drawn(3), Greedy()).jobs)


def test_a_reservation_keeps_nodes_from_longer_jobs():
    seen = {}

    def at_2(view):
        seen["long"] = view.try_start(view.waiting[1], nodes=[0])
        seen["short"] = view.try_start(view.waiting[2], nodes=[0])
        return [seen["short"]]

    def at_1(view):
        return [Reserve(view.waiting[0], nodes=[0], at=60.0)]

    jobs = workload((0, 30, 1, 0), (1, 100, 1, 4000), (2, 100, 1, 1000), (2, 40, 1, 1000))
    scheduler = Does({1.0: at_1, 2.0: at_2})
    simulate(jobs, Keeps(scheduler))
    assert seen["long"] is None
    assert seen["short"] is not None
    assert 60.0 in scheduler.seen


class Keeps:
    """The same object in every simulation, which an object is copied for otherwise."""

    def __init__(self, inner):
        self.inner = inner

    def __deepcopy__(self, memo):
        return self

    def decide(self, view):
        return self.inner.decide(view)


def test_it_is_asked_in_rounds():
    scheduler = Does({}, every=30.0)
    kept = Keeps(scheduler)
    kept.every = 30.0
    result = simulate(workload((0, 100, 1, 1000), (10, 20, 1, 1000)), kept)
    assert result.jobs["start"].to_list() == [0.0, 30.0]
    assert scheduler.seen == [0.0, 30.0, 60.0, 90.0]


def test_what_it_learns_in_one_simulation_does_not_change_the_next():
    class Counts(Greedy):
        asked = 0

        def decide(self, view):
            self.asked += 1
            return super().decide(view) if self.asked > 3 else [WakeAt(view.now + 1.0)]

    scheduler = Counts()
    assert simulate(drawn(1), scheduler).jobs.equals(simulate(drawn(1), scheduler).jobs)
    assert scheduler.asked == 0


class Spy(Greedy):
    """Keeps all that a view has."""

    def __init__(self):
        self.seen = []

    def decide(self, view):
        for job in (*view.waiting, *view.arrived, *(run.job for run in view.running)):
            assert job.submit <= view.now
        known = [(job.id, job.estimate, job.instances, job.user) for job in view.waiting]
        runs = [(run.id, run.since, run.nodes, run.progress(view.now), run.remaining(view.now)) for run in view.running]
        self.seen.append((view.now, known, runs, len(view.ended), [column.tolist() for column in view.nodes[1:]]))
        return super().decide(view)


def test_a_view_has_nothing_of_jobs_to_come_and_no_run_times():
    seen = []
    for last in ((350, 10, 1, 1000), (500, 90, 3, 4000)):
        spy = Spy()
        base = drawn(4).frame.filter(pl.col("submit") < 300).select("submit", "runtime", "instances", "gpu_milli")
        simulate(workload(*base.rows(), last), Keeps(spy), estimate="user")
        seen.append([entry for entry in spy.seen if entry[0] < 350])
    assert seen[0] == seen[1]
    assert len(seen[0]) > 50


def test_a_job_without_gpus_left_over_is_left_waiting():
    class Never:
        def decide(self, view):
            return []

    result = simulate(JOBS, Never())
    assert result.jobs["start"].is_null().all()


def test_elastic_pools_are_refused():
    with pytest.raises(fleetlab.WorkloadError, match="without elastic pools"):
        simulate(JOBS, Greedy(), events=[Elastic(pool=NODES.frame["pool"][0], least=1)])


@pytest.mark.parametrize("seed", range(3))
def test_what_does_not_fit_is_remembered_only_as_long_as_it_is_so(monkeypatch, seed):
    monkeypatch.setattr("fleetlab.sim.kernel.cluster.FREED", 4)  # a short log of what was freed: it runs over
    rng, jobs = random.Random(seed), fleetlab.Scenario.of(drawn(seed), fleetlab.Cluster.uniform(3, 4), warm_up="none")
    world = world_of(jobs)
    state, marks, refused = ClusterState(world), [], 0
    for _ in range(400):
        count = int(world.instances[k := rng.randrange(len(world.submit))])
        what = rng.random()
        if what < 0.2 and state.held:
            state.release(rng.choice([*state.held]))
        elif what < 0.3:
            marks.append(state.mark())
        elif what < 0.4 and marks:
            state.discard(marks.pop())
        elif what < 0.5:
            state.set_up(rng.randrange(3), up=rng.random() < 0.7)
        elif k not in state.held:
            refused += state.allocate(k, count) is not None
        state.refit()
        anew = ClusterState(world)
        anew.view = NodeView(*map(writable, state.view))
        for j in rng.sample(range(len(world.submit)), 5):
            fit = anew.allocate(j, 50)  # None: all do
            assert (50 if fit is None else fit) < state.unfit[state.shape[j]]
    assert refused > 20
