"""The queue of kube-scheduler by hand: who starts when, on a node of one or two GPUs."""

import math

import pytest

from fleetlab.schedulers.kubernetes.config import KubeScheduler, SchedulingNode, SchedulingPod
from fleetlab.schedulers.kubernetes.loop import Site, play
from fleetlab.schedulers.kubernetes.queue import Queue, Waiting

GPU = "nvidia.com/gpu"


def pods_of(*gpus, priority=()):
    ranks = dict(enumerate(priority))
    return [SchedulingPod(f"p{k}", requests={GPU: n}, priority=ranks.get(k, 0)) for k, n in enumerate(gpus)]


def site_of(gpus=1, nodes=1, **words):
    has = {"cpu": 64_000, "memory": 2**38, "pods": 110, GPU: gpus}
    return Site([SchedulingNode(f"n{k}", has) for k in range(nodes)], **words)


def test_a_pod_starts_when_it_comes_if_it_fits():
    placed = play(site_of(), pods_of(1), [3.5], [2.0], seed=1)
    assert (placed.start, placed.end) == ([3.5], [5.5])


def test_a_pod_that_waited_longer_than_its_backoff_starts_when_another_ends():
    placed = play(site_of(), pods_of(1, 1), [0.0, 1.0], [10.0, 5.0], seed=1)
    assert placed.start[1] == 10.0


def test_a_pod_that_still_backs_off_starts_at_the_next_whole_second_after():
    placed = play(site_of(), pods_of(1, 1), [0.0, 9.4], [10.0, 5.0], seed=1)
    assert placed.start[1] == 12.0  # tried twice at 9.4, backs off for 2 s, looked at in whole seconds


def test_a_smaller_pod_that_comes_later_goes_first_where_a_larger_one_does_not_fit():
    placed = play(site_of(gpus=2), pods_of(1, 2, 1), [0.0, 1.0, 2.0], [10.0, 5.0, 20.0], seed=1)
    assert placed.start == [0.0, 22.0, 2.0]


def test_higher_priority_goes_first_of_those_that_wait():
    placed = play(site_of(), pods_of(1, 1, 1, priority=(9, 1, 5)), [0.0, 1.0, 2.0], [10.0, 5.0, 5.0], seed=1)
    assert placed.start == [0.0, 15.0, 10.0]


def test_a_preemptor_starts_when_its_victim_has_left():
    site = site_of(grace=4.0)
    placed = play(site, pods_of(1, 1, priority=(0, 7)), [0.0, 3.0], [100.0, 5.0], seed=1)
    assert (placed.preempted[0], placed.end[0], placed.start[1]) == (3.0, 7.0, 7.0)


def test_a_nominated_pod_keeps_its_room_from_others_of_lower_priority():
    site = site_of(grace=4.0)
    placed = play(site, pods_of(1, 1, 1, priority=(0, 7, 3)), [0.0, 3.0, 6.9], [100.0, 5.0, 5.0], seed=1)
    assert placed.start[1:] == [7.0, 13.0]  # tried twice at 6.9 and at 9.0: it then backs off for 4 s


def test_a_pod_that_fits_nowhere_never_starts_and_the_simulation_ends():
    placed = play(site_of(), pods_of(2, 1), [0.0, 0.0], [1.0, 1.0], seed=1)
    assert placed.start == [math.inf, 0.0]


def test_every_attempt_takes_a_cycle():
    placed = play(site_of(gpus=8, cycle=0.25), pods_of(1, 1, 1), [0.0, 0.0, 0.0], [9.0, 9.0, 9.0], seed=1)
    assert placed.start == [0.0, 0.25, 0.5]


@pytest.mark.parametrize(("attempts", "seconds"), [(1, 1), (2, 2), (3, 4), (4, 8), (5, 10), (30, 10)])
def test_backoff_doubles_up_to_its_limit(attempts, seconds):
    queue = Queue(KubeScheduler())
    assert queue.backoff_end(Waiting(0, 0, 100.0, attempts)) == 100.0 + seconds


def test_a_pod_that_was_left_for_a_minute_is_tried_again_at_the_next_half_minute():
    queue = Queue(KubeScheduler())
    queue.failed(Waiting(0, 0, 0.0, attempts=1), 12.0)
    assert queue.next_tick(12.0) == 90.0


def test_who_has_backed_off_is_looked_at_in_whole_seconds_whatever_happens_between():
    """`second` fails twice at 9.4 s, and backs off until 11.4 s when `first` ends; `other` comes at 11.5 s."""
    nodes = [
        SchedulingNode(name, {"cpu": 1000, "nvidia.com/gpu": gpus, "pods": 9}) for name, gpus in (("a", 8), ("b", 0))
    ]
    pods = [
        SchedulingPod("first", requests={"nvidia.com/gpu": 8}),
        SchedulingPod("second", requests={"nvidia.com/gpu": 8}),
        SchedulingPod("other", requests={"cpu": 1000}),
    ]
    placed = play(Site(nodes), pods, submit=[0.0, 9.4, 11.5], run=[10.0, 5.0, 5.0], seed=1)
    assert placed.start == [0.0, 12.0, 11.5]
