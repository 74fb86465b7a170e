"""Queues: quotas that are guaranteed, lent and borrowed, limits, shares, and who gives back to whom."""

import numpy as np
import polars as pl
import pytest
from hypothesis import assume, given, settings
from hypothesis import strategies as st

import fleetlab
from fleetlab import Cluster, PolicyError, Scenario, Trace, TraceError, Workload, WorkloadError
from fleetlab.core.queue_rules import Queues
from fleetlab.core.queues import Limits, Qos, Queue, QueueTree
from fleetlab.schedulers.slurm.config import Slurm

from .test_ledger import CLUSTER, Moment, read_again

ROOT = {"name": "all"}


def jobs(**columns):
    size = max(len(values) for values in columns.values())
    usual = {"submit": [0.0] * size, "runtime": [10.0] * size, "gpu_milli": [1000] * size}
    return Workload.of(pl.DataFrame(usual | columns), source="by hand")


def leaf(name, guaranteed=None, **fields):
    return {"name": name, "parent": "all"} | ({"guaranteed": guaranteed} if guaranteed else {}) | fields


def starts(workload, queues, gpus=4, **words):
    run = fleetlab.simulate(workload, Cluster.uniform(1, gpus, cpu_milli=96_000), queues=queues, **words)
    return run.jobs["start"].to_list()


# -- quotas by hand ----------------------------------------------------------------------------------------------------


def test_a_queue_borrows_what_others_leave_and_no_more_than_they_have():
    work = jobs(queue=["a"] * 5)
    queues = [ROOT, leaf("a", {"gpu": 1}), leaf("b", {"gpu": 2})]
    assert starts(work, queues, gpus=5) == [0, 0, 0, 10, 10]


def test_the_example_of_kueues_guide_comes_out():
    # Cluster Queue, Cohort, Borrowing example: team-a has 9 CPUs, team-b 12; alone, team-a may use 21, or with a
    # borrowing limit of 1 ten of them.
    work = jobs(queue=["team-a"] * 22, gpu_milli=[0] * 22, cpu_milli=[1000] * 22)
    team_b = leaf("team-b", {"cpu": 12})
    assert starts(work, [ROOT, leaf("team-a", {"cpu": 9}), team_b]) == [0] * 21 + [10]
    assert (
        starts(work, [ROOT, leaf("team-a", {"cpu": 9}, borrowing={"cpu": 1}), team_b])
        == [0] * 10 + [10] * 10 + [20] * 2
    )


def test_a_queue_lends_no_more_than_its_lending_limit():
    work = jobs(queue=["a"] * 4)
    assert starts(work, [ROOT, leaf("a"), leaf("b", {"gpu": 4}, lending={"gpu": 3})]) == [0, 0, 0, 10]


def test_what_a_queue_does_not_lend_is_there_for_its_own_jobs():
    work = jobs(queue=["a"] * 4 + ["b"], submit=[0.0] * 4 + [1.0])
    assert starts(work, [ROOT, leaf("a"), leaf("b", {"gpu": 4}, lending={"gpu": 3})]) == [0, 0, 0, 10, 1]


def test_an_inner_queue_bounds_those_below_it_together():
    tree = [
        {"name": "all", "guaranteed": {"gpu": 8}},
        leaf("org", {"gpu": 2}, borrowing={"gpu": 1}),
        {"name": "x", "parent": "org"},
        {"name": "y", "parent": "org"},
        leaf("other"),
    ]
    assert starts(jobs(queue=["x", "x", "y", "y", "other"]), tree, gpus=8) == [0, 0, 0, 10, 0]


def test_queues_without_a_common_root_share_nothing():
    queues = [{"name": "a", "guaranteed": {"gpu": 1}}, {"name": "b", "guaranteed": {"gpu": 3}}]
    assert starts(jobs(queue=["a", "a", "b"]), queues) == [0, 10, 0]


def test_a_resource_that_nobody_guarantees_is_not_bounded():
    work = jobs(queue=["a"] * 2, cpu_milli=[4000] * 2)
    assert starts(work, [ROOT, leaf("a", {"gpu": 2})]) == [0, 0]


def test_a_quota_of_a_gpu_type_counts_jobs_that_name_it():
    work = jobs(queue=["a"] * 3, gpu_types=[["T4"], ["T4"], []])
    run = fleetlab.simulate(work, Cluster.uniform(1, 4, gpu_type="T4"), queues=[ROOT, leaf("a", {"gpu:T4": 1})])
    assert run.jobs["start"].to_list() == [0, 10, 0]


def test_jobs_in_no_queue_have_no_quota():
    assert starts(jobs(queue=[None, None, "a", "a"]), [ROOT, leaf("a", {"gpu": 1})]) == [0, 0, 0, 10]


@pytest.mark.parametrize("column", ["user", "group", "app"])
def test_another_column_may_name_the_queue(column):
    queues = {"column": column, "queue": [ROOT, leaf("a", {"gpu": 1})]}
    assert starts(jobs(**{column: ["a", "a"]}), queues) == [0, 10]


# -- limits by hand ----------------------------------------------------------------------------------------------------


@pytest.mark.parametrize(
    "queue",
    [
        {"limits": {"jobs": 1}},
        {"limits": {"resources": {"gpu": 1}}},
        {"limits": {"resources": {"node": 1}}},
        {"per_user": {"resources": {"gpu": 1.5}}},
        {"limits": {"minutes": {"gpu": 0.05}}},  # three GPU-seconds: used up when the first job has begun to run
    ],
    ids=str,
)
def test_a_job_at_a_limit_waits_and_those_behind_it_pass(queue):
    work = jobs(queue=["a", "a", "b"], user=["u"] * 3, submit=[0.0, 4.0, 4.0])
    began = starts(work, [ROOT, leaf("a", **queue), leaf("b")])
    assert began == ([0, None, 4] if "minutes" in str(queue) else [0, 10, 4])


def test_a_limit_of_users_counts_each_by_himself():
    work = jobs(queue=["a"] * 4, user=["u", "u", "v", "v"])
    assert starts(work, [ROOT, leaf("a", per_user={"jobs": 1})]) == [0, 10, 0, 10]


def test_a_limit_of_a_queue_holds_for_those_below_it():
    tree = [{"name": "all", "limits": {"resources": {"gpu": 3}}}, leaf("a"), leaf("b")]
    assert starts(jobs(queue=["a", "a", "b", "b"]), tree) == [0, 0, 0, 10]


def test_a_user_of_an_account_may_have_a_queue_of_his_own():
    tree = QueueTree([Queue("lab"), Queue("lab/ada", "lab", user="ada", limits=Limits(jobs=1))])
    assert starts(jobs(queue=["lab"] * 3, user=["ada", "ada", "bob"]), tree) == [0, 10, 0]


def test_a_class_of_service_limits_all_its_jobs_and_those_of_a_user_or_account():
    work = jobs(queue=["a", "a", "b", "b"], user=["u", "v", "u", "v"], qos=["q"] * 4)
    tree = QueueTree([Queue("a"), Queue("b")])
    one = Limits(jobs=1)
    assert starts(work, Queues(tree, (Qos("q", limits=one),))) == [0, 10, 20, 30]
    assert starts(work, Queues(tree, (Qos("q", per_user=one),))) == [0, 0, 10, 10]
    assert starts(work, Queues(tree, (Qos("q", per_account=one),))) == [0, 10, 0, 10]


def test_the_default_class_of_service_of_a_queue_holds_for_jobs_that_name_none():
    work = jobs(queue=["a", "a", "a"], qos=[None, None, "other"])
    queues = Queues(QueueTree([Queue("a", default_qos="q")]), (Qos("q", limits=Limits(jobs=1)),))
    assert starts(work, queues) == [0, 10, 0]


def test_a_job_above_the_submitted_jobs_of_its_queue_waits_outside():
    # With two submitted at once, the short one is outside until the first has ended, though it would fit and go first.
    work = jobs(queue=["a"] * 3, gpu_milli=[3000, 3000, 1000], runtime=[10.0, 10.0, 1.0])
    queues = [ROOT, leaf("a", limits={"submitted": 2})]
    run = fleetlab.simulate(work, Cluster.uniform(1, 4), queues=queues, order="smallest")
    assert run.jobs["start"].to_list() == [0, 10, 10]
    assert run.ledger["quota"].to_list() == [0, 0, 10]


def test_minutes_count_what_ran_before():
    # Two GPUs for ten seconds are a third of a GPU-minute; the third job may still start, the fourth no more.
    work = jobs(queue=["a"] * 4, submit=[0.0, 0.0, 20.0, 40.0])
    assert starts(work, [ROOT, leaf("a", limits={"minutes": {"gpu": 0.5}})]) == [0, 0, 20, None]


@pytest.mark.parametrize(
    ("fields", "reason"),
    [
        ({"guaranteed": {"gpu": 2}}, "requests more than its queue, account or QOS may ever have"),
        ({"limits": {"resources": {"gpu": 2}}}, "requests more than its queue, account or QOS may ever have"),
        ({"limits": {"submitted": 0}}, "requests more than its queue, account or QOS may ever have"),
        ({"per_user": {"jobs": 0}}, "requests more than its queue, account or QOS may ever have"),
        ({"job": {"resources": {"gpu": 2}}}, "is larger, smaller or longer than a job of its queue or QOS may be"),
        ({"job": {"at_least": {"gpu": 4}}}, "is larger, smaller or longer than a job of its queue or QOS may be"),
        ({"job": {"wall": 60.0}}, "is larger, smaller or longer than a job of its queue or QOS may be"),
    ],
    ids=str,
)
def test_a_job_that_could_never_run_is_left_out_with_a_reason(fields, reason):
    work = jobs(queue=["a", None], gpu_milli=[3000, 1000], limit=[90.0, None])
    run = fleetlab.simulate(work, Cluster.uniform(1, 4), queues=[ROOT, leaf("a", **fields)], min_coverage=0)
    assert dict(run.refused.select("job", "reason").iter_rows()) == {0: reason}


# -- which job is next -------------------------------------------------------------------------------------------------


def test_jobs_within_their_guarantee_go_before_jobs_that_borrow():
    work = jobs(queue=["x"] * 3 + ["a"] * 3 + ["b"], gpu_milli=[1000] * 7, submit=[0.0] * 3 + [1.0] * 3 + [2.0])
    queues = [{"name": "all", "guaranteed": {"gpu": 1}}, leaf("x"), leaf("a", {"gpu": 1}), leaf("b", {"gpu": 1})]
    assert starts(work, queues, gpus=3) == [0, 0, 0, 10, 10, 20, 10]


def test_siblings_have_what_their_shares_say():
    size = 40
    work = jobs(queue=["a"] * size + ["b"] * size)
    queues = {"share": "used", "queue": [ROOT, leaf("a", shares=3), leaf("b", shares=1)]}
    began = np.array(starts(work, queues, gpus=8))
    assert [(began[:size] == 0).sum(), (began[size:] == 0).sum()] == [6, 2]


def test_shares_are_compared_level_by_level():
    # Two organizations share alike, however many teams each has.
    tree = [ROOT, leaf("org"), {"name": "x", "parent": "org"}, {"name": "y", "parent": "org"}, leaf("z")]
    work = jobs(queue=["x"] * 8 + ["y"] * 8 + ["z"] * 8)
    began = starts(work, {"share": "used", "queue": tree}, gpus=8)
    assert [began[:8].count(0), began[8:16].count(0), began[16:].count(0)] == [2, 2, 4]


def test_what_is_borrowed_can_be_shared_by_weight():
    tree = [{"name": "all", "guaranteed": {"gpu": 4}}, leaf("a", {"gpu": 2}), leaf("b", {"gpu": 2}, shares=3)]
    began = starts(jobs(queue=["a"] * 8 + ["b"] * 8), {"share": "borrowed", "queue": tree}, gpus=8)
    assert [began[:8].count(0), began[8:].count(0)] == [3, 5]


@pytest.mark.parametrize(("strict", "expected"), [(False, [0, 11, 1, 3]), (True, [0, 10, 20, 3])])
def test_jobs_wait_behind_the_first_of_a_strict_queue(strict, expected):
    # Kueue, Cluster Queue, Queueing strategy: BestEffortFIFO and StrictFIFO.
    work = jobs(queue=["a", "a", "a", "b"], gpu_milli=[2000, 3000, 1000, 1000], submit=[0.0, 1.0, 1.0, 3.0])
    queues = {"strict": strict, "queue": [ROOT, leaf("a", {"gpu": 3}), leaf("b", {"gpu": 1}, lending={"gpu": 0})]}
    assert starts(work, queues) == expected


# -- who gives back ----------------------------------------------------------------------------------------------------

TWO = [ROOT, leaf("a", {"gpu": 1}), leaf("b", {"gpu": 3})]


def spans(workload, queues, gpus=4, **words):
    run = fleetlab.simulate(workload, Cluster.uniform(1, gpus), queues=queues, **words)
    return list(zip(run.jobs["start"], run.jobs["end"], strict=True)), run.played.preemptions.tolist()


def test_a_queue_within_its_guarantee_takes_back_what_is_borrowed():
    work = jobs(queue=["a"] * 4 + ["b"] * 2, submit=[0.0, 0.0, 0.0, 2.0, 5.0, 5.0])
    ran, preempted = spans(work, {"reclaim": "any", "queue": TWO})
    # Those that started last give back: job 3, then job 2.
    assert preempted == [0, 0, 1, 1, 0, 0]
    assert ran == [(0, 10), (0, 10), (0, 15), (2, 17), (5, 15), (5, 15)]


def test_nobody_gives_back_what_is_guaranteed():
    work = jobs(queue=["a", "b"], gpu_milli=[1000, 4000], submit=[0.0, 5.0])
    ran, preempted = spans(work, {"reclaim": "any", "queue": TWO})
    assert (ran, preempted) == ([(0, 10), (10, 20)], [0, 0])


@pytest.mark.parametrize(("priority", "start"), [(0, 10), (1, 5)])
def test_lower_reclaims_from_lower_priorities_alone(priority, start):
    work = jobs(queue=["a"] * 4 + ["b"], submit=[0.0] * 4 + [5.0], priority=[0] * 4 + [priority])
    ran, _ = spans(work, {"reclaim": "lower", "queue": TWO})
    assert ran[4][0] == start


def test_the_lowest_priority_gives_back_first_and_no_more_than_needed():
    work = jobs(
        queue=["a"] * 3 + ["b"], gpu_milli=[1000, 2000, 1000, 2000], submit=[0.0, 0.0, 1.0, 5.0], priority=[2, 1, 0, 0]
    )
    _, preempted = spans(work, {"reclaim": "any", "queue": TWO})
    assert preempted == [0, 1, 0, 0]  # job 2 was chosen first, and goes on: without job 1 it need not give back


@pytest.mark.parametrize(("within", "preempted"), [("never", [0, 0]), ("lower", [0, 1]), ("newer", [0, 1])])
def test_a_job_preempts_lower_priorities_of_its_own_queue(within, preempted):
    work = jobs(queue=["a"] * 3, priority=[1, 0, 1], submit=[0.0, 0.0, 5.0])
    queues = {"within": within, "queue": [{"name": "a", "guaranteed": {"gpu": 2}}]}
    assert spans(work, queues)[1] == [*preempted, 0]


def test_newer_jobs_of_the_same_priority_give_way_to_one_that_was_preempted():
    work = jobs(queue=["a"] * 2 + ["b"], submit=[0.0, 1.0, 1.0], runtime=[10.0, 20.0, 2.0])
    tree = [ROOT, leaf("a", {"gpu": 1}), leaf("b", {"gpu": 1})]
    ran, preempted = spans(work, {"reclaim": "any", "within": "newer", "queue": tree}, gpus=2)
    assert (ran, preempted) == ([(0, 10), (3, 23), (1, 3)], [0, 0, 0])


def test_who_borrows_may_preempt_lower_priorities_that_borrow_if_the_rules_say_so():
    tree = [{"name": "all", "guaranteed": {"gpu": 1}}, leaf("a"), leaf("b")]
    work = jobs(queue=["a", "b"], submit=[0.0, 5.0], priority=[0, 1])
    assert spans(work, {"reclaim": "any", "queue": tree}, gpus=1)[1] == [0, 0]
    assert spans(work, {"borrow": "lower", "queue": tree}, gpus=1)[1] == [1, 0]


def test_organizations_take_back_from_each_other():
    tree = [ROOT, leaf("o", {"gpu": 2}), leaf("p", {"gpu": 2})]
    tree += [{"name": "x", "parent": "o"}, {"name": "y", "parent": "p"}]
    work = jobs(queue=["x"] * 4 + ["y"] * 3, submit=[0.0] * 4 + [5.0] * 3)
    _, preempted = spans(work, {"reclaim": "any", "queue": tree})
    assert preempted == [0, 0, 1, 1, 0, 0, 0]


def test_a_queue_may_have_a_rule_of_its_own():
    tree = [ROOT, leaf("a", {"gpu": 1}), leaf("b", {"gpu": 2}, reclaim="any"), leaf("c", {"gpu": 1})]
    work = jobs(queue=["a"] * 4 + ["b", "c"], submit=[0.0] * 4 + [5.0, 5.0])
    assert spans(work, tree)[0][4:] == [(5, 15), (10, 20)]


def test_preempted_jobs_lose_what_the_recovery_says():
    work = jobs(queue=["a"] * 2 + ["b"], submit=[0.0, 0.0, 5.0])
    tree = [ROOT, leaf("a", {"gpu": 1}), leaf("b", {"gpu": 1})]
    recovery = {"every": 0, "save": 1, "restart": 2}
    ran, _ = spans(work, {"reclaim": "any", "queue": tree}, gpus=2, recovery=recovery)
    assert ran[1][1] == 10 + 5 + 1 + 2


# -- presets -----------------------------------------------------------------------------------------------------------


def test_philly_preempts_above_nine_tenths_of_the_gpus():
    queues = {
        "rules": "philly",
        "queue": [{"name": "a", "guaranteed": {"gpu": 2}}, {"name": "b", "guaranteed": {"gpu": 8}}],
    }
    fits_not = jobs(queue=["a"] * 9 + ["b"], gpu_milli=[1000] * 9 + [2000], submit=[0.0] * 9 + [5.0])
    assert spans(fits_not, queues, gpus=10)[0][9] == (10, 20)  # nine of ten are in use: none is preempted
    full = jobs(queue=["a"] * 10 + ["b"], gpu_milli=[1000] * 10 + [2000], submit=[0.0] * 10 + [5.0])
    assert spans(full, queues, gpus=10)[0][10] == (5, 15)


def test_philly_lends_whatever_is_idle():
    queues = {
        "rules": "philly",
        "queue": [{"name": "a", "guaranteed": {"gpu": 1}}, {"name": "b", "guaranteed": {"gpu": 1}}],
    }
    assert starts(jobs(queue=["a"] * 4), queues) == [0] * 4


def test_philly_serves_the_virtual_cluster_that_has_least_of_its_quota():
    queues = {
        "rules": "philly",
        "queue": [{"name": "a", "guaranteed": {"gpu": 6}}, {"name": "b", "guaranteed": {"gpu": 2}}],
    }
    began = starts(jobs(queue=["a"] * 8 + ["b"] * 8), queues, gpus=8)
    assert [began[:8].count(0), began[8:].count(0)] == [6, 2]


def test_slurm_passes_over_jobs_at_a_limit_and_reclaims_nothing():
    queues = {"rules": "limits", "queue": [ROOT, leaf("a", limits={"resources": {"gpu": 2}}), leaf("b")]}
    work = jobs(queue=["a"] * 3 + ["b"] * 3, submit=[0.0] * 3 + [5.0] * 3)
    assert starts(work, queues, backfill="easy") == [0, 0, 10, 5, 5, 10]


@pytest.mark.parametrize("words", [{"backfill": "easy"}, {"backfill": "conservative"}, {"preemption": True}], ids=str)
def test_queues_that_decide_who_is_next_need_a_backfill_without_reservations(words):
    with pytest.raises(PolicyError, match="queues that decide which job is next cannot be combined with"):
        starts(jobs(queue=["a"]), {"reclaim": "any", "queue": TWO}, **words)


# -- where queues are from ---------------------------------------------------------------------------------------------


@pytest.fixture
def trace():
    work = jobs(queue=["a", "a"])
    return Trace(work, fleetlab.Provenance("test", "two"), Cluster.uniform(1, 2), queues=Queues.of(TWO))


def test_a_trace_that_tells_its_queues_is_simulated_with_them(trace, tmp_path):
    tree = Queues.of([{"name": "a", "guaranteed": {"gpu": 1}}])
    told = Trace(trace.workload, trace.provenance, trace.cluster, queues=tree)
    told.save(tmp_path / "log")
    assert fleetlab.simulate(tmp_path / "log").jobs["start"].to_list() == [0, 10]


def test_the_rules_of_a_traces_queues_can_be_others(trace):
    assert Scenario.of(trace, queues="philly").queues == Queues(Queues.of(TWO).tree, rules="philly")


def test_the_accounts_of_a_slurm_are_queues_of_the_event_driven_rules():
    site = Slurm(queues=QueueTree([Queue("a", limits=Limits(jobs=1))]), qos=(Qos("q", limits=Limits(jobs=1)),))
    work = jobs(queue=["a", "a", "b", "b"], qos=[None, None, "q", "q"])
    log = Trace(work, fleetlab.Provenance("test", "slurm"), Cluster.uniform(1, 4), scheduler=site)
    assert fleetlab.simulate(log, queues="limits").jobs["start"].to_list() == [0, 10, 0, 10]


def test_slurms_own_loops_take_no_other_queues(trace):
    with pytest.raises(PolicyError, match="Slurm takes queues from its own configuration"):
        fleetlab.simulate(trace, scheduler=Slurm(), queues=TWO)


def test_queues_are_read_from_files(tmp_path):
    text = 'rules = "philly"\n[[queue]]\nname = "a"\nguaranteed = { gpu = 1 }\n'
    (tmp_path / "queues.toml").write_text(text)
    (tmp_path / "queues.json").write_text('{"rules": "philly", "queue": [{"name": "a", "guaranteed": {"gpu": 1}}]}')
    assert Queues.of(tmp_path / "queues.toml") == Queues.of(str(tmp_path / "queues.json"))


@pytest.mark.parametrize(
    ("queues", "message"),
    [
        ("quotass", "no queue rule by that name: `quotass`; did you mean quotas?"),
        ("site", "the trace does not tell the quotas of its queues"),
        ("philly", "the trace does not tell the quotas of its queues"),
        ("nowhere.toml", "cannot read the queues"),
        ([{"name": "b"}], "no job is in one of the queues: the column `queue` names a"),
        ([{"name": "a", "guaranteed": {"gpus": 1}}], "a quota or limit of `gpus`, which is no resource"),
        ([{"name": "a", "parent": "b"}], "not a tree of queues"),
        ([{"name": "a", "guarantee": {}}], "did you mean guaranteed?"),
        ([{"name": "a", "guaranteed": {"gpu": -4}}], "queue `a`: `guaranteed` of gpu is negative"),
        ([{"name": "a"}, {"name": "a"}], "more than one queue is called `a`"),
        ({"reclaim": "all", "queue": []}, "no value of `reclaim` by that name"),
        ([{"name": "a", "within": "any"}], "no value of `within` by that name"),
        ({"column": "job", "queue": []}, "no column of queues by that name"),
    ],
    ids=str,
)
def test_a_mistake_in_queues_is_said(queues, message):
    with pytest.raises((PolicyError, WorkloadError, TraceError)) as raised:
        starts(jobs(queue=["a"]), queues)
    assert message in str(raised.value)


# -- laws --------------------------------------------------------------------------------------------------------------

AMOUNT = st.sampled_from([None, None, 0, 1, 2, 3])
QUEUE = st.fixed_dictionaries(
    {"guaranteed": AMOUNT, "borrowing": AMOUNT, "lending": AMOUNT, "shares": st.sampled_from([None, 0, 1, 2])}
)
PARENTS = {"all": None, "org": "all", "a": "org", "b": "org", "c": "all"}
LIMITS = st.sampled_from(
    [{}, {}, {"jobs": 2}, {"resources": {"gpu": 2}}, {"minutes": {"gpu": 0.2}}, {"resources": {"cpu": 3}, "jobs": 3}]
)


@st.composite
def trees(draw):
    """Return some queues with quotas of GPUs, limits and rules."""
    queues = []
    for name, parent in PARENTS.items():
        stated = {key: {"gpu": v} for key, v in draw(QUEUE).items() if key != "shares" and v is not None}
        more = {"parent": parent} if parent else {}
        queues.append({"name": name, "shares": draw(QUEUE)["shares"], "limits": draw(LIMITS)} | stated | more)
        queues[-1] |= {"per_user": draw(LIMITS)}
    rules = {
        "rules": draw(st.sampled_from(["kueue", "kueue", "slurm"])),
        "reclaim": draw(st.sampled_from(["never", "lower", "any", "any"])),
        "within": draw(st.sampled_from(["never", "lower", "newer"])),
        "borrow": draw(st.sampled_from(["never", "lower"])),
        "share": draw(st.sampled_from(["none", "used", "guaranteed", "borrowed"])),
        "strict": draw(st.booleans()),
    }
    return rules | {"queue": queues}


JOB = st.fixed_dictionaries(
    {
        "submit": st.integers(0, 9).map(float),
        "runtime": st.integers(0, 8).map(float),
        "gpu_milli": st.sampled_from([0, 500, 1000, 1000, 2000]),
        "cpu_milli": st.sampled_from([0, 1000, 2000]),
        "instances": st.sampled_from([1, 1, 2]),
        "priority": st.integers(0, 2),
        "queue": st.sampled_from([None, "a", "a", "b", "c", "c", "org"]),
        "user": st.sampled_from(["u", "v"]),
    }
)


class Book:
    """What queues hold at one instant, by the definitions of Kueue's documentation, resource by resource."""

    def __init__(self, tree, running, time):
        self.tree, self.running, self.time = {q["name"]: q for q in tree["queue"]}, running, time
        self.children = {name: [k for k, q in self.tree.items() if q.get("parent") == name] for name in self.tree}
        self.bounded = any("guaranteed" in q for q in self.tree.values())

    def of(self, name, key):
        return self.tree[name].get(key, {}).get("gpu")

    def quota(self, name):
        return (self.of(name, "guaranteed") or 0) + sum(self.quota(k) - self.kept(k) for k in self.children[name])

    def kept(self, name):
        lending = self.of(name, "lending")
        return 0 if lending is None or name == "all" else max(0, self.quota(name) - lending)

    def used(self, name):
        own = sum(gpus(job) for job, _, live in self.running if live and job["queue"] == name)
        return own + sum(max(0, self.used(k) - self.kept(k)) for k in self.children[name])

    def available(self, name):
        quota, used, kept = self.quota(name), self.used(name), self.kept(name)
        if name == "all":
            return quota - used
        above = self.available(self.tree[name]["parent"])
        if (limit := self.of(name, "borrowing")) is not None:
            above = min(above, quota - kept - max(0, used - kept) + limit)
        return max(0, kept - used) + above

    def path(self, name):
        return [] if name is None else [name, *self.path(self.tree[name].get("parent"))]

    def below(self, name):
        return {name}.union(*(self.below(k) for k in self.children[name]))

    def exceeds(self, limits, mine, spent, job):
        """Return whether one more job would exceed limits of jobs that hold `mine` and have held `spent`."""
        held = limits.get("resources", {})
        asks = {"gpu": gpus, "cpu": cores}
        return (
            ("jobs" in limits and len(mine) + 1 > limits["jobs"])
            or any(asks[r](job) and sum(map(asks[r], mine)) + asks[r](job) > most for r, most in held.items())
            or (gpus(job) > 0 and "minutes" in limits and spent >= limits["minutes"]["gpu"] * 60)
        )

    def bars(self, job):
        if job["queue"] is None:
            return False
        if self.bounded and gpus(job) > 0 and gpus(job) > self.available(job["queue"]):
            return True
        for name in self.path(job["queue"]):
            for key in ("limits", "per_user"):
                mine = [row for row in self.running if row[0]["queue"] in self.below(name)]
                mine = [row for row in mine if key == "limits" or row[0]["user"] == job["user"]]
                now = [other for other, _, live in mine if live]
                if self.exceeds(self.tree[name].get(key, {}), now, sum(seconds for _, seconds, _ in mine), job):
                    return True
        return False


def gpus(job):
    return job["gpu_milli"] * job["instances"] / 1000


def cores(job):
    return job["cpu_milli"] * job["instances"] / 1000


def book(result, tree, time):
    """Return what queues hold at an instant, and what each job has held so far."""
    runs, frame = result.played.runs(result.world.first), result.world.frame
    rows = []
    for k, j in enumerate(runs.job):
        job, begin, end = frame.row(int(j), named=True), runs.begin[k], runs.end[k]
        if begin <= time:
            rows.append((job, gpus(job) * (min(end, time) - begin), bool(time < end)))
    return Book(tree, rows, time)


def at(tree):
    """Return how a schedule is read again where queues keep jobs from starting."""

    class QueueMoment(Moment):
        def __init__(self, result, closed, quota, time):
            super().__init__(result, closed, quota, time)
            self.book = book(result, tree, time)

        def reason(self, j, blocked):
            return "quota" if self.book.bars(self.jobs.row(j, named=True)) else super().reason(j, blocked)

    return QueueMoment


def played(tree, rows, **words):
    zero = min(row["submit"] for row in rows)
    work = Workload.of(pl.DataFrame([row | {"submit": row["submit"] - zero} for row in rows]), source="small")
    assume(work.frame["queue"].drop_nulls().len() > 0)
    return fleetlab.simulate(work, CLUSTER, queues=tree, min_coverage=0, **words)


def instants(result):
    runs = result.played.runs(result.world.first)
    return sorted({*runs.begin.tolist(), *runs.end[runs.end <= result.played.stopped].tolist()})


@pytest.mark.parametrize("backfill", ["none", "greedy"])
@settings(max_examples=60, derandomize=True)
@given(tree=trees(), rows=st.lists(JOB, min_size=1, max_size=16), order=st.sampled_from(["fifo", "sjf", "priority"]))
def test_no_queue_holds_more_than_it_may(backfill, tree, rows, order):
    result = played(tree, rows, backfill=backfill, order=order)
    for time in instants(result):
        now = book(result, tree, time)
        if now.bounded:
            # Above its quota no more than it may borrow, and all together no more than what is there to lend.
            assert all(now.available(name) >= 0 for name in PARENTS)
            assert now.used("all") <= now.quota("all")
        for name in PARENTS:
            mine = [job for job, _, live in now.running if live and job["queue"] in now.below(name)]
            limits = now.tree[name]["limits"]
            assert len(mine) <= limits.get("jobs", len(mine))
            assert sum(map(gpus, mine)) <= limits.get("resources", {}).get("gpu", 99)


@pytest.mark.parametrize("backfill", ["none", "greedy", "easy", "conservative"])
@settings(max_examples=60, derandomize=True)
@given(
    tree=trees(),
    rows=st.lists(JOB, min_size=1, max_size=16),
    order=st.sampled_from(["fifo", "sjf", "fair", "priority"]),
    until=st.sampled_from([None, None, 7.0]),
)
def test_each_second_has_the_reason_that_the_schedule_shows(backfill, tree, rows, order, until):
    if backfill in {"easy", "conservative"}:  # with limits and quotas, where the queues decide nothing else
        tree = {"rules": "limits", "queue": tree["queue"]}
    result = played(tree, rows, backfill=backfill, order=order, until=until)
    behind = backfill == "none" or tree.get("strict", False)
    blocked = "reservation" if backfill in {"easy", "conservative"} else "head_of_line" if behind else "scheduler"
    reasons, _, _ = read_again(result, [], None, blocked, at(tree))
    np.testing.assert_array_equal(result.ledger.drop("job").to_numpy(), reasons)
    np.testing.assert_array_equal(reasons.sum(axis=1), result.jobs["wait"].to_numpy())
    assert result.ledger["scheduler"].sum() == 0  # where no rule keeps it, a job that fits and may start does so


@settings(max_examples=60, derandomize=True)
@given(tree=trees(), rows=st.lists(JOB, min_size=1, max_size=16))
def test_preempted_jobs_lose_no_work_and_nothing_else_is_lost(tree, rows):
    result = played(tree, rows)
    world, runs, schedule = result.world, result.played.runs(result.world.first), result.played
    done = ~np.isnan(schedule.end)
    ran = np.bincount(runs.job, np.minimum(runs.end, schedule.stopped) - runs.begin, len(world.submit))
    assert np.array_equal(ran[done], world.runtime[done])
    assert np.array_equal(np.bincount(runs.job, minlength=len(done))[done], schedule.preemptions[done] + 1)


ONE_GPU = st.fixed_dictionaries(
    {
        "submit": st.integers(0, 20).map(float),
        "runtime": st.integers(1, 9).map(float),
        "priority": st.integers(0, 2),
        "queue": st.sampled_from(["owner", "x", "x", "y"]),
    }
)


def one_gpu_each(rows):
    first = pl.col("submit") - pl.col("submit").min()
    return Workload.of(pl.DataFrame(rows).with_columns(gpu_milli=1000, submit=first), source="one GPU each")


def most_at_once(rows):
    times = [row["submit"] for row in rows]
    return max((sum(r["submit"] <= t < r["submit"] + r["runtime"] for r in rows) for t in times), default=0)


@pytest.mark.parametrize("rules", ["kueue", "philly"])
@pytest.mark.parametrize("order", ["fifo", "sjf", "priority"])
@settings(max_examples=40, derandomize=True)
@given(rows=st.lists(ONE_GPU, min_size=1, max_size=30), guaranteed=st.integers(1, 4))
def test_a_queue_that_stays_within_its_guarantee_never_waits(rules, order, rows, guaranteed):
    assume(most_at_once([row for row in rows if row["queue"] == "owner"]) <= guaranteed)
    tree = [ROOT, leaf("owner", {"gpu": guaranteed}), leaf("x", {"gpu": 4 - guaranteed}), leaf("y")]
    work = one_gpu_each(rows)
    queues = {"rules": rules, "reclaim": "any", "queue": tree}
    run = fleetlab.simulate(work, Cluster.uniform(2, 2), queues=queues, order=order)
    waits = run.jobs.join(run.scenario.workload.frame.select("job", "queue"), on="job")
    assert waits.filter(pl.col("queue").cast(pl.String) == "owner")["wait"].sum() == 0


@pytest.mark.parametrize("share", ["none", "used", "guaranteed", "borrowed"])
@settings(max_examples=30, derandomize=True)
@given(
    rows=st.lists(ONE_GPU, min_size=1, max_size=30),
    quotas=st.tuples(*[st.integers(0, 2)] * 3),
    reclaim=st.sampled_from(["never", "any"]),
)
def test_no_gpu_is_idle_while_a_job_waits_that_may_borrow(share, rows, quotas, reclaim):
    tree = [{"name": "all", "guaranteed": {"gpu": 6}}]  # with what the others have, more than the cluster
    tree += [leaf(name, {"gpu": gpus}) for name, gpus in zip(("owner", "x", "y"), quotas, strict=True)]
    work = one_gpu_each(rows)
    queues = {"share": share, "reclaim": reclaim, "queue": tree}
    run = fleetlab.simulate(work, Cluster.uniform(1, 3), queues=queues)
    assert run.ledger["gpu"].sum() == run.jobs["wait"].sum()
