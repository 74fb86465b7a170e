"""Kueue in time: small cases by hand, and laws that hold for whatever comes."""

import math
from collections import Counter
from itertools import pairwise

import pytest
from hypothesis import given, reject, settings
from hypothesis import strategies as st

from fleetlab.schedulers.kubernetes.config import SchedulingNode
from fleetlab.schedulers.kueue.config import FairSharing, Kueue, ResourceFlavor, ResourceGroup, ResourceQuota, Topology
from fleetlab.schedulers.kueue.loop import KueueSite, play
from fleetlab.schedulers.kueue.workload import KueueWorkload, PodSet, TopologyRequest

from .cases import ANY, GPU, LOWER, NEVER, NEWER, cohort, cq

H100 = ("h100", GPU)


def gpus(nominal, borrowing=None, lending=None, flavor="h100"):
    return ResourceGroup((GPU,), {flavor: {GPU: ResourceQuota(nominal, borrowing, lending)}})


def job(name, queue, count, priority=0, pods=1, least=None):
    return KueueWorkload(name, queue, (PodSet("main", pods, {GPU: count}, least),), priority)


def site_of(*objects, **words):
    return KueueSite(Kueue.of(*objects), **words)


def test_a_workload_waits_for_quota_and_starts_when_it_is_given_back():
    played = play(site_of(cq("a", None, gpus(8))), [job("x", "a", 8), job("y", "a", 4)], [0, 1], [10, 5], 1)
    assert (played.start, played.end) == ([0, 10], [10, 15])


def test_under_best_effort_fifo_a_smaller_workload_passes_one_that_does_not_fit():
    jobs = [job("x", "a", 6), job("large", "a", 8), job("small", "a", 2)]
    played = play(site_of(cq("a", None, gpus(8))), jobs, [0, 1, 2], [10, 10, 3], 1)
    assert played.start == [0, 10, 2]


def test_a_run_that_is_preempted_when_an_earlier_one_would_have_ended_is_not_taken_for_done():
    urgent = [job(f"u{k}", "a", 8, priority=1) for k in range(2)]
    site = site_of(cq("a", None, gpus(8), within=LOWER), grace=30.0)
    played = play(site, [job("low", "a", 8), *urgent], [0, 10, 70], [100, 20, 20], 1)
    # It runs from 0 to 40 and from 60 to 100, when its first run would have ended, and begins anew at 120.
    assert (played.end[0], played.evictions[0]) == (220, 2)


def test_a_check_that_an_evicted_workload_waited_for_does_not_begin_its_next_run():
    queues = [cq("a", "c", gpus(8), reclaim=ANY), cq("b", "c", gpus(0), admission_checks=("provision",))]
    site = site_of(*queues, check_seconds={"provision": 100.0}, grace=5.0)
    played = play(site, [job("guest", "b", 8), job("owner", "a", 8)], [0, 10], [50, 20], 1)
    # The guest is asked to go at 10 and has quota again at 35; its check then takes 100 s again.
    assert played.start == [135, 15]


def test_under_strict_fifo_nobody_passes_the_first():
    jobs = [job("x", "a", 6), job("large", "a", 8), job("small", "a", 2)]
    played = play(site_of(cq("a", None, gpus(8), strategy="StrictFIFO")), jobs, [0, 1, 2], [10, 10, 3], 1)
    assert played.start == [0, 10, 20]


def test_quota_that_others_do_not_use_is_borrowed_up_to_the_limit():
    queues = [cq("a", "c", gpus(4, 2)), cq("b", "c", gpus(8))]
    played = play(site_of(*queues), [job(name, "a", 2) for name in "wxyz"], [0] * 4, [10] * 4, 1)
    assert sorted(played.start) == [0, 0, 0, 10]


def test_an_owner_takes_its_quota_back_once_the_pods_of_the_borrower_are_gone():
    queues = [cq("a", "c", gpus(8), reclaim=ANY), cq("b", "c", gpus(0))]
    played = play(site_of(*queues, grace=30.0), [job("guest", "b", 8), job("owner", "a", 8)], [0, 5], [100, 50], 1)
    assert played.start[1] == 35
    assert (played.evictions, played.end) == ([1, 0], [185, 85])


def test_a_victim_that_ends_by_itself_before_it_must_go_is_not_cut_short():
    queues = [cq("a", "c", gpus(8), reclaim=ANY), cq("b", "c", gpus(0))]
    played = play(site_of(*queues, grace=30.0), [job("guest", "b", 8), job("owner", "a", 8)], [0, 5], [20, 50], 1)
    assert (played.end, played.evictions) == ([20, 70], [0, 0])


def test_a_preempted_workload_keeps_its_place_in_the_queue():
    """By workload.Ordering.GetQueueOrderTimestamp: only pods that were not ready, and failed checks, change it."""
    queue = cq("a", None, gpus(8), within=LOWER)
    jobs = [job("victim", "a", 8), job("later", "a", 8), job("urgent", "a", 8, priority=5)]
    played = play(site_of(queue, grace=0.0), jobs, [0, 1, 2], [100, 10, 10], 1)
    assert played.end == [112, 122, 12]


def test_a_newer_workload_of_the_same_priority_makes_room_for_an_older_one():
    queues = [cq("a", "c", gpus(4), within=NEWER), cq("b", "c", gpus(4), reclaim=ANY)]
    jobs = [job("wide", "a", 8), job("narrow", "a", 4), job("owner", "b", 4)]
    played = play(site_of(*queues, grace=0.0), jobs, [0, 1, 2], [100, 50, 10], 1)
    assert played.evictions[0] >= 1
    assert played.end[2] == 12


def test_an_admission_check_holds_quota_before_the_pods_begin():
    queue = cq("a", None, gpus(8), admission_checks=("provision",))
    site = site_of(queue, check_seconds={"provision": 60.0})
    played = play(site, [job("x", "a", 8), job("y", "a", 8)], [0, 0], [10, 10], 1)
    assert sorted(played.start) == [60, 130]


def test_fewer_pods_begin_where_fewer_will_do():
    played = play(site_of(cq("a", None, gpus(4))), [job("x", "a", 1, pods=8, least=2)], [0], [10], 1)
    assert (played.start, played.runs[0].count) == ([0], 4)


def test_a_workload_larger_than_all_quota_never_starts_and_the_simulation_ends():
    played = play(site_of(cq("a", None, gpus(4))), [job("x", "a", 8), job("y", "a", 4)], [0, 1], [10, 10], 1)
    assert played.start == [math.inf, 1]


def test_a_stopped_queue_admits_nobody():
    played = play(site_of(cq("a", None, gpus(4), stop_policy="Hold")), [job("x", "a", 1)], [0], [10], 1)
    assert played.start == [math.inf]


HOST = "kubernetes.io/hostname"
NODES = [SchedulingNode(name, {GPU: 8, "pods": 110}, {HOST: name, "rack": name[0]}) for name in ("a1", "a2", "b1")]
RACKS = [ResourceFlavor("h100", topology="racks"), Topology("racks", ("rack", HOST))]


def test_with_a_topology_a_workload_waits_for_nodes_that_lie_close_enough():
    close = KueueWorkload("close", "q", (PodSet("main", 2, {GPU: 8}, topology=TopologyRequest(required="rack")),))
    one = KueueWorkload("one", "q", (PodSet("main", 1, {GPU: 4}, topology=TopologyRequest(required=HOST)),))
    site = site_of(cq("q", None, gpus(24)), *RACKS, nodes=NODES)
    played = play(site, [one, close], [0, 1], [10, 5], 1)
    assert played.runs[0].placement[0].domain == ("a", "a1")  # the first of equal nodes
    assert played.start == [0, 10]


def test_pods_without_a_request_go_where_least_is_free():
    anywhere = [KueueWorkload(f"w{k}", "q", (PodSet("main", 1, {GPU: 2}),)) for k in range(4)]
    site = site_of(cq("q", None, gpus(24)), *RACKS, nodes=NODES)
    played = play(site, anywhere, [0, 1, 2, 3], [10] * 4, 1)
    assert {run.placement[0].domain for run in played.runs} == {("a", "a1")}


# -- laws --------------------------------------------------------------------------------------------------------------

POLICY = st.sampled_from([NEVER, LOWER, NEWER, ANY])


@st.composite
def sites(draw):
    """A tree of two cohorts with three ClusterQueues, with limits, policies and fair sharing or not."""
    limit = st.none() | st.integers(0, 6)
    queues = [
        cq(
            name, parent, gpus(draw(st.integers(0, 8)), draw(limit), draw(limit)),
            within=draw(st.sampled_from([NEVER, LOWER, NEWER])), reclaim=draw(POLICY),
            borrow=draw(st.none() | st.integers(-1, 1)), weight=draw(st.sampled_from([0.0, 1.0, 2.0])),
            strategy=draw(st.sampled_from(["StrictFIFO", "BestEffortFIFO"])),
        )
        for name, parent in (("a", "left"), ("b", "left"), ("c", "root"))
    ]  # fmt: skip
    own = cohort("left", "root")
    above = own.__class__("left", "root", (gpus(draw(st.integers(0, 4)), draw(limit), draw(limit)),))
    sharing = FairSharing(enable=draw(st.booleans()), preempt_within_nominal=draw(st.booleans()))
    return Kueue.of(*queues, above, cohort("root"), sharing)


@st.composite
def loads(draw):
    rows = draw(
        st.lists(
            st.tuples(
                st.sampled_from("abc"), st.integers(1, 6), st.integers(-1, 1), st.integers(0, 60), st.integers(1, 40)
            ),
            min_size=1, max_size=14,
        )
    )  # fmt: skip
    jobs = [job(f"w{k}", queue, count, rank) for k, (queue, count, rank, _, _) in enumerate(rows)]
    return jobs, [float(row[3]) for row in rows], [float(row[4]) for row in rows]


def usage_over_time(kueue, played, jobs):
    """What each ClusterQueue holds, whenever that changes."""
    for moment in sorted({run.admitted for run in played.runs}):
        held = Counter()
        for run in played.runs:
            if run.admitted <= moment < run.end:
                held[jobs[run.workload].cluster_queue] += run.usage[H100]
        yield held


def ended(*words):
    """Laws are of simulations that end: policies can be drawn by which workloads preempt each other without end."""
    played = play(*words)
    return reject() if played.withdrawn else played


@settings(max_examples=60, deadline=None)
@given(sites(), loads(), st.floats(0, 20))
def test_no_more_is_used_than_there_is_and_no_more_borrowed_than_the_limit(kueue, load, grace):
    jobs, submit, run = load
    played = ended(KueueSite(kueue, grace=grace), jobs, submit, run, 1)
    quotas = {name: queue.groups[0].flavors["h100"][GPU] for name, queue in kueue.cluster_queues.items()}
    extra = kueue.cohorts["left"].groups[0].flavors["h100"][GPU].nominal
    for held in usage_over_time(kueue, played, jobs):
        assert held.total() <= sum(quota.nominal for quota in quotas.values()) + extra
        for name, quota in quotas.items():
            if quota.borrowing_limit is not None:
                assert held[name] <= quota.nominal + quota.borrowing_limit
        for name, quota in quotas.items():
            kept = 0 if quota.lending_limit is None else max(0, quota.nominal - quota.lending_limit)
            others = sum(each.nominal for each in quotas.values()) + extra - kept
            assert held.total() - min(held[name], kept) <= others  # what is not lent is nobody else's


@settings(max_examples=60, deadline=None)
@given(sites(), loads(), st.floats(0, 20))
def test_every_workload_ends_once_or_never_and_runs_in_one_place_at_a_time(kueue, load, grace):
    jobs, submit, run = load
    played = ended(KueueSite(kueue, grace=grace), jobs, submit, run, 1)
    for k in range(len(jobs)):
        mine = sorted((one for one in played.runs if one.workload == k), key=lambda one: one.admitted)
        assert all(a.end <= b.admitted for a, b in pairwise(mine))
        assert all(one.admitted >= submit[k] for one in mine)
        whole = [one for one in mine if one.end - one.begin == pytest.approx(run[k])]
        if played.end[k] < math.inf:
            assert played.end[k] == mine[-1].end
            assert mine[-1] in whole
        assert played.evictions[k] >= len(mine) - 1


@settings(max_examples=60, deadline=None)
@given(loads(), st.integers(1, 8), st.booleans(), st.floats(0, 20))
def test_nominal_quota_is_always_given_back_to_its_owner(load, nominal, fair, grace):
    """With reclaimWithinCohort Any, and one workload at a time, whatever others borrow."""
    jobs, submit, run = load
    guests = [KueueWorkload(one.name, "guest", one.pod_sets, one.priority) for one in jobs]
    queues = [cq("owner", "c", gpus(nominal), reclaim=ANY), cq("guest", "c", gpus(4)), FairSharing(enable=fair)]
    owner = [job(f"mine{k}", "owner", nominal, priority=-5) for k in range(3)]
    at = [7.0 + 100 * k for k in range(3)]
    site = site_of(*queues, grace=grace)
    played = ended(site, [*guests, *owner], [*submit, *at], [*run, 20.0, 20.0, 20.0], 1)
    waits = [start - when for start, when in zip(played.start[-3:], at, strict=True)]
    assert all(wait <= grace + 1e-9 for wait in waits)


@settings(max_examples=30, deadline=None)
@given(sites(), loads(), st.integers(0, 3))
def test_the_same_seed_gives_the_same_schedule(kueue, load, seed):
    jobs, submit, run = load
    twice = [ended(KueueSite(kueue, grace=5.0), jobs, submit, run, seed) for _ in range(2)]
    assert (twice[0].start, twice[0].end) == (twice[1].start, twice[1].end)
