"""Pod groups in time under Volcano and KAI: by hand, and laws that always hold."""

import math
from collections import Counter
from functools import partial

import numpy as np
import pytest
from hypothesis import given, settings
from hypothesis import strategies as st

from fleetlab.core.catalog.reasons import MOST_EVICTIONS
from fleetlab.schedulers.gangs.loop import Timing
from fleetlab.schedulers.gangs.pod_groups import PodGroup
from fleetlab.schedulers.gangs.tasks import Job, Ties
from fleetlab.schedulers.kai import play as kai
from fleetlab.schedulers.kai.config import GPU, Kai, KaiQueue, Quota
from fleetlab.schedulers.kai.session import Space
from fleetlab.schedulers.kai.shares import Usage
from fleetlab.schedulers.kai.solver import Rehearsal, Shortage
from fleetlab.schedulers.kubernetes.config import SchedulingNode, SchedulingPod
from fleetlab.schedulers.volcano import play as volcano
from fleetlab.schedulers.volcano.config import Plugin, Volcano, VolcanoQueue

NO_GRACE = Timing(period=1.0, grace=0.0)
# One tier: in tiers, conformance alone would give up whoever is not of the cluster itself, before proportion is asked.
RECLAIMING = (
    (
        Plugin("priority"),
        Plugin("gang", disabled=frozenset({"preemptable", "reclaimable"})),
        Plugin("conformance"),
        Plugin("drf", disabled=frozenset({"preemptable"})),
        Plugin("predicates"),
        Plugin("proportion"),
    ),
)
ALL = ("enqueue", "allocate", "backfill", "preempt", "reclaim")


def nodes(*gpus):
    return [SchedulingNode(f"n{k}", {"pods": 110, GPU: n}) for k, n in enumerate(gpus)]


def group(name, queue, gpus, pods=1, **words):
    made = tuple(SchedulingPod(f"{name}/{k}", requests={GPU: gpus}) for k in range(pods))
    least = words.pop("least", pods)
    return PodGroup(name, queue, made, least, min_resources={GPU: gpus * least}, **words)


def volcano_site(gpus, queues, actions=ALL, tiers=RECLAIMING, timing=NO_GRACE):
    return partial(volcano.loop_of, nodes(*gpus), Volcano(tuple(queues), actions, tiers), timing=timing)


def kai_site(gpus, queues, timing=NO_GRACE, **words):
    return partial(kai.loop_of, nodes(*gpus), Kai(tuple(queues), **words), timing=timing)


def play(site, groups, submit, run):
    return site(seed=1).play(groups, submit, run)


def kai_queue(name, deserved, weight=1.0, limit=-1.0, **words):
    return KaiQueue(name, quotas={GPU: Quota(deserved, limit, weight)}, **words)


# -- by hand -----------------------------------------------------------------------------------------------------------


def test_a_gang_waits_until_all_of_it_fits():
    groups = [group("a", "q", 4), group("b", "q", 4, pods=2)]
    found = play(volcano_site([4, 4], [VolcanoQueue("q")]), groups, [0.0, 1.0], [10.0, 5.0])
    assert (found.start, found.end) == ([0.0, 10.0], [10.0, 15.0])


def test_the_scheduler_decides_once_a_second():
    found = play(kai_site([4], [kai_queue("q", 4)]), [group("a", "q", 4)], [0.3], [10.0])
    assert found.start == [1.0]


def test_a_queue_gets_back_what_it_deserves_by_reclaim_in_volcano():
    queues = [VolcanoQueue("a"), VolcanoQueue("b")]
    groups = [group(f"a{k}", "a", 1) for k in range(4)] + [group(f"b{k}", "b", 1) for k in range(2)]
    timing = Timing(period=1.0, grace=5.0)
    found = play(volcano_site([4], queues, timing=timing), groups, [0.0] * 4 + [10.0] * 2, [100.0] * 4 + [50.0] * 2)
    assert found.start[4:] == [15.0, 15.0]
    assert sum(found.evictions[:4]) == 2


def test_a_queue_gets_back_its_quota_by_reclaim_in_kai():
    queues = [kai_queue("a", 2), kai_queue("b", 2)]
    groups = [group(f"a{k}", "a", 1) for k in range(4)] + [group(f"b{k}", "b", 1) for k in range(2)]
    timing = Timing(period=1.0, grace=5.0)
    found = play(kai_site([4], queues, timing), groups, [0.0] * 4 + [10.0] * 2, [100.0] * 4 + [50.0] * 2)
    assert found.start[4:] == [15.0, 15.0]
    assert sum(found.evictions[:4]) == 2


def test_an_evicted_group_begins_anew_and_runs_its_whole_time():
    queues = [kai_queue("a", 0), kai_queue("b", 4)]
    groups = [group("low", "a", 4), group("high", "b", 4)]
    found = play(kai_site([4], queues), groups, [0.0, 10.0], [100.0, 20.0])
    assert (found.lost[0], found.end) == (10.0, [130.0, 30.0])


def test_the_time_in_which_an_evicted_group_leaves_is_lost_too():
    """It runs to 10 s and leaves at 15 s; the other runs to 35 s, and 100 s of its own follow."""
    queues = [kai_queue("a", 0), kai_queue("b", 4)]
    groups = [group("low", "a", 4), group("high", "b", 4)]
    timing = Timing(period=1.0, grace=5.0)
    found = play(kai_site([4], queues, timing), groups, [0.0, 10.0], [100.0, 20.0])
    assert (found.lost[0], found.end) == (15.0, [135.0, 35.0])


def test_a_group_that_ends_while_it_would_be_leaving_is_done():
    queues = [kai_queue("a", 0), kai_queue("b", 4)]
    timing = Timing(period=1.0, grace=30.0)
    found = play(
        kai_site([4], queues, timing), [group("low", "a", 4), group("high", "b", 4)], [0.0, 10.0], [15.0, 20.0]
    )
    assert (found.end, found.evictions) == ([15.0, 35.0], [0, 0])


def test_a_group_is_not_reclaimed_from_before_its_least_run_time():
    queues = [kai_queue("a", 0, reclaim_min_runtime=60.0), kai_queue("b", 4)]
    groups = [group("low", "a", 4), group("high", "b", 4)]
    found = play(kai_site([4], queues), groups, [0.0, 10.0], [100.0, 20.0])
    assert (found.start[1], found.end) == (60.0, [180.0, 80.0])


def test_an_elastic_group_gives_up_what_it_does_not_need_at_any_time():
    """Two of its four pods are reclaimed from at once; none of the two that it needs, before its least run time."""
    queues = [kai_queue("a", 0, reclaim_min_runtime=60.0), kai_queue("b", 4)]
    groups = [group("elastic", "a", 1, pods=4, least=2), group("b1", "b", 2), group("b2", "b", 2)]
    found = play(kai_site([4], queues), groups, [0.0, 10.0, 10.0], [200.0, 100.0, 100.0])
    assert sorted(found.start[1:]) == [10.0, 60.0]


def test_a_group_that_is_evicted_again_and_again_is_taken_out_and_others_end():
    """Without a plugin that says who may be reclaimed from, two queues take the same node from each other."""
    queues = [VolcanoQueue("a"), VolcanoQueue("b")]
    groups = [group("a", "a", 3), group("b", "b", 3), group("c", "a", 1)]
    site = volcano_site(
        [4], queues, tiers=((Plugin("gang", disabled=frozenset({"reclaimable"})), Plugin("conformance")),)
    )
    found = play(site, groups, [0.0, 0.0, 0.0], [50.0, 50.0, 5000.0])
    assert found.withdrawn
    assert found.evictions[min(found.withdrawn)] == MOST_EVICTIONS
    assert not any(math.isinf(end) for k, end in enumerate(found.end) if k not in found.withdrawn)


def test_what_ran_while_nobody_waited_counts_as_usage():
    """Queue a alone ran for half of the window: its fair share is 1 of 4 GPUs, and that of b 3."""
    queues = [kai_queue("a", 0), kai_queue("b", 0)]
    groups = [group("a0", "a", 4), group("a1", "a", 4), group("b0", "b", 4)]
    site = kai_site([4], queues, k_value=1.0, window=2000.0)
    found = play(site, groups, [0.0, 1000.0, 1000.0], [1000.0, 100.0, 100.0])
    assert found.start == [0.0, 1100.0, 1000.0]


def test_an_elastic_group_gives_up_what_it_does_not_need():
    queues = [kai_queue("a", 2), kai_queue("b", 2)]
    groups = [group("elastic", "a", 1, pods=4, least=1), group("other", "b", 1, pods=2)]
    found = play(kai_site([4], queues), groups, [0.0, 10.0], [100.0, 20.0])
    assert found.evictions == [0, 0]
    assert (found.end[0], found.start[1]) == (100.0, 10.0)


def test_sla_admits_a_group_when_it_has_waited_long_enough():
    tiers = ((Plugin("sla", {"sla-waiting-time": "1m"}), Plugin("gang")), (Plugin("proportion"),))
    site = volcano_site([4], [VolcanoQueue("q", capability={GPU: 1})], ("enqueue", "allocate"), tiers)
    early, late = site(seed=1), site(seed=1)
    early.play([group("a", "q", 2)], [0.0], [10.0], until=59.0)
    late.play([group("a", "q", 2)], [0.0], [10.0], until=61.0)
    assert (early.jobs[0].admitted, late.jobs[0].admitted) == (False, True)


def test_usage_in_the_past_lets_two_queues_take_turns():
    """KAI's guide to time-aware fairness: one of two queues of equal weight holds the whole cluster at a time."""
    queues = [kai_queue("a", 0), kai_queue("b", 0)]
    groups = [group(f"{q}{k}", q, 16) for k in range(4) for q in ("a", "b")]
    submit = [0.0 if one.queue == "a" else 1.0 for one in groups]
    site = kai_site([16], queues, k_value=1.0, window=7200.0, half_life=600.0)
    found = play(site, groups, submit, [600.0] * 8)
    order = [groups[k].queue for k in sorted(range(8), key=lambda k: found.end[k])]
    assert Counter(order[:4]) == {"a": 2, "b": 2}


@pytest.mark.parametrize(("half_life", "expected"), [(None, 0.24), (3600.0, pytest.approx(0.1875, abs=0.001))])
def test_usage_is_a_part_of_what_the_cluster_had(half_life, expected):
    """The guide's example: 24 GPU hours of a cluster of 10 GPUs in 10 hours are 0.24.

    With a half-life of an hour, 8 GPUs from 3 hours ago until now would be 0.8 x (1 - 1/8) / (1 - 1/1024); those from 6
    until 3 hours ago an eighth of that: here 8 GPUs ran from the 4th to the 7th of 10 hours.
    """
    site = Kai((kai_queue("q", 0),), half_life=half_life, window=36000.0)
    usage = Usage(site, {GPU: 10.0})
    usage.spans.append((14400.0, 25200.0, {"q": {GPU: 8.0}}))
    found = usage.at(36000.0)["q"][GPU]
    if half_life:
        weight = (0.5**3 - 0.5**6) / (1 - 0.5**10)
        assert found == pytest.approx(0.8 * weight)
    else:
        assert found == expected


# -- laws --------------------------------------------------------------------------------------------------------------

GROUPS = st.lists(
    st.tuples(st.integers(0, 2), st.integers(1, 4), st.integers(1, 3), st.integers(0, 40), st.integers(1, 30)),
    min_size=1,
    max_size=5,
)  # queue, GPUs a pod, pods, submitted, run time


LONG = 400.0  # seconds: all that is drawn could run one after the other


def made(given):
    groups = [group(f"g{k}", f"q{q}", gpus, pods) for k, (q, gpus, pods, _, _) in enumerate(given)]
    return groups, [float(s) for *_, s, _ in given], [float(r) for *_, r in given]


def volcano_plays(given, actions=ALL):
    queues = [VolcanoQueue(f"q{k}", weight=k + 1, capability={GPU: 6} if k == 1 else {}) for k in range(3)]
    groups, submit, run = made(given)
    loop = volcano_site([4, 4], queues, actions)(seed=3)
    return groups, run, loop.play(groups, submit, run, until=LONG)


def kai_plays(given, **words):
    queues = [kai_queue("q0", 2), kai_queue("q1", 1, limit=6), kai_queue("q2", 0, weight=2)]
    groups, submit, run = made(given)
    return groups, run, kai_site([4, 4], queues, **words)(seed=3).play(groups, submit, run, until=LONG)


BOTH = pytest.mark.parametrize("plays", [volcano_plays, kai_plays])


def stays_of(found):
    """The group of each pod on a node, and the pod there."""
    return [(run.job, stay) for run in found.runs for stay in run.stays]


def held(found, of):
    """What was held at each time something began, by a key of a group and a stay."""
    for at in sorted({stay.begin for _, stay in stays_of(found)}):
        sums = Counter()
        for group, stay in stays_of(found):
            if stay.begin <= at < stay.end:
                sums[of(group, stay)] += stay.count
        yield sums


@BOTH
@settings(max_examples=12, deadline=None)
@given(given_=GROUPS)
def test_no_node_holds_more_than_it_has(plays, given_):
    _, _, found = plays(given_)
    assert all(n <= 4 for sums in held(found, lambda _, stay: stay.node) for n in sums.values())


@BOTH
@settings(max_examples=12, deadline=None)
@given(given_=GROUPS)
def test_no_queue_holds_more_than_its_limit(plays, given_):
    groups, _, found = plays(given_)
    assert all(sums["q1"] <= 6 for sums in held(found, lambda k, _: groups[k].queue))


@BOTH
@settings(max_examples=12, deadline=None)
@given(given_=GROUPS)
def test_a_gang_is_there_whole_or_not_at_all(plays, given_):
    groups, _, found = plays(given_)
    there = Counter((k, stay.begin, stay.end) for k, stay in stays_of(found))
    assert all(count == len(groups[k].pods) for (k, _, _), count in there.items())


def need(one):
    return sum(pod.requests[GPU] for pod in one.pods)


def fits(one):
    """Whether a group fits on two empty nodes of four GPUs."""
    return len(one.pods) <= 2 * (4 // one.pods[0].requests[GPU])


@settings(max_examples=12, deadline=None)
@given(given_=GROUPS, size=st.sampled_from([(1, 1), (1, 2), (2, 1)]), submit=st.integers(0, 40))
def test_in_kai_a_group_within_its_queues_quota_ends_and_is_never_evicted(given_, size, submit):
    """Where nobody is moved to make room: a group that is moved begins anew, and that may happen again and again."""
    others = [(1 + one[0] % 2, *one[1:]) for one in given_]
    _, _, found = kai_plays(
        [(0, *size, submit, 20), *others], actions=("allocate", "reclaim", "preempt"), consolidating_reclaim=False
    )
    assert not math.isinf(found.end[0])
    assert found.evictions[0] == 0


@settings(max_examples=12, deadline=None)
@given(given_=GROUPS)
def test_in_volcano_every_group_within_its_queues_share_of_the_weights_ends(given_):
    """More is not promised: of two gangs over what their queues deserve neither starts, though both would fit.

    Nor is it with enqueue: a group that is admitted and can never start keeps others of its queue from being admitted.
    """
    groups, _, found = volcano_plays(given_, ALL[1:])
    shares = {f"q{k}": 8 * (k + 1) / 6 for k in range(3)}
    small = [k for k, one in enumerate(groups) if need(one) <= shares[one.queue] and fits(one)]
    assert not any(math.isinf(found.end[k]) for k in small)


def test_in_volcano_two_gangs_over_their_queues_shares_wait_for_ever():
    groups, submit, run = made([(0, 1, 3, 0, 1), (1, 2, 3, 0, 1)])
    queues = [VolcanoQueue("q0", weight=1), VolcanoQueue("q1", weight=2)]
    found = play(volcano_site([4, 4], queues), groups, submit, run)
    assert found.start == [math.inf, math.inf]  # 8 GPUs, of which they deserve 2.67 and 5.33, and need 3 and 6


@BOTH
@settings(max_examples=12, deadline=None)
@given(given_=GROUPS)
def test_a_group_that_ends_has_run_its_whole_time(plays, given_):
    _, run, found = plays(given_)
    ended = [k for k, end in enumerate(found.end) if not math.isinf(end)]
    begin = {one.job: one.begin for one in found.runs}  # of the last run
    assert all(found.end[k] - begin[k] == run[k] for k in ended)


@BOTH
def test_the_same_seed_gives_the_same_schedule(plays):
    given_ = [(k % 3, 1 + k % 4, 1 + k % 3, 3 * k, 20) for k in range(8)]
    assert plays(given_)[2] == plays(given_)[2]


@settings(max_examples=15, deadline=None)
@given(given_=GROUPS, limit=st.sampled_from([-1.0, 6.0]), moves=st.booleans())
def test_kai_leaves_out_only_searches_that_fail(given_, limit, moves):
    """The same schedule where every set of victims is tried on the board, pod by pod."""
    queues = [kai_queue("q0", 2), kai_queue("q1", 1, limit=limit), kai_queue("q2", 0, weight=2)]
    groups, submit, run = made(given_)
    site = kai_site([4, 4, 4], queues, consolidating_reclaim=moves)
    quick = site(seed=3).play(groups, submit, run, until=LONG)
    with pytest.MonkeyPatch.context() as every:
        every.setattr(Rehearsal, "may_work", lambda self, victims: True)
        every.setattr(Shortage, "is_met", lambda self, given: True)
        every.setattr(Space, "may_fit", lambda self, job: True)
        assert quick == site(seed=3).play(groups, submit, run, until=LONG)


def test_a_pod_gets_each_of_several_equal_nodes_as_often():
    """400 of 1,600 draws are expected; they lie within four standard deviations, 69."""
    drawn = np.random.default_rng(1)
    task = Job(group("a", "q", 1)).tasks[0]
    picks = Counter(Ties(drawn).pick(task, np.arange(4)) for _ in range(1600))
    assert all(abs(picks[node] - 400) <= 69 for node in range(4))


def test_a_pods_node_does_not_depend_on_how_often_it_was_tried():
    ties, task = Ties(np.random.default_rng(1)), Job(group("a", "q", 1)).tasks[0]
    assert ties.pick(task, np.arange(1000)) == ties.pick(task, np.arange(1000))
