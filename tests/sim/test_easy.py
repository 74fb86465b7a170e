"""EASY backfilling against the textbook: the first that waits is given a time, and nobody may put it off."""

import random

import numba
import numpy as np
import polars as pl
import pytest
from hypothesis import given, settings
from hypothesis import strategies as st

from fleetlab import Cluster, Workload, simulate
from fleetlab.sim import layout, nodes

CORES = 8
NODE = Cluster.of(
    pl.DataFrame({"node": ["n"], "gpus": [0], "cpu_milli": [CORES], "memory_mib": [1]}), source="one node of cores"
)
RANKS = {
    "fifo": lambda _: 0,
    "sjf": lambda t: t["runtime"],
    "priority": lambda t: -t["priority"],
    "smallest": lambda t: 0,  # no job has a GPU: all are of one size
}


def textbook(jobs, rank):
    """Starts by Lifka's rule: jobs of one resource, whose run times are known, in the order of their ranks."""
    start, running, now = {}, [], 0
    while len(start) < len(jobs):
        came = [t["submit"] for t in jobs]
        now = min([t for t in came if t > now] + [end for end, _ in running if end > now], default=now) if start else 0
        running = [(end, need) for end, need in running if end > now]
        waiting = [k for k, t in enumerate(jobs) if t["submit"] <= now and k not in start]
        waiting.sort(key=lambda k: (rank(jobs[k]), k))
        free, shadow, extra = CORES - sum(need for _, need in running), None, 0
        for k in waiting:
            need, end = jobs[k]["cpu_milli"], now + jobs[k]["runtime"]
            if need <= free and (shadow is None or end <= shadow or need <= extra):
                start[k], free = now, free - need
                extra -= need if shadow is not None and end > shadow else 0
                running.append((end, need))
            elif shadow is None:
                there = free
                for end, held in sorted(running):  # until the first of those that wait can run
                    there += held
                    if there >= need:
                        shadow = end
                        extra = free + sum(held for end, held in running if end <= shadow) - need
                        break
    return [start[k] for k in range(len(jobs))]


def played(jobs, order):
    frame = pl.DataFrame(jobs).with_columns(pl.col("submit", "runtime").cast(pl.Float64), memory_mib=pl.lit(1) * 0)
    return simulate(Workload.of(frame, source="drawn"), NODE, order=order, backfill="easy").jobs["start"].to_list()


JOB = st.fixed_dictionaries({
    "runtime": st.integers(1, 12), "cpu_milli": st.integers(1, CORES), "priority": st.integers(0, 3),
})  # fmt: skip


@pytest.mark.parametrize("order", RANKS)
@settings(max_examples=60, deadline=None, derandomize=True)
@given(jobs=st.lists(JOB, min_size=1, max_size=14), gaps=st.lists(st.integers(0, 4), min_size=14, max_size=14))
def test_everybody_starts_when_the_textbook_says(order, jobs, gaps):
    jobs = [job | {"submit": sum(gaps[1 : k + 1])} for k, job in enumerate(jobs)]
    assert played(jobs, order) == textbook(jobs, RANKS[order])


def test_one_who_comes_late_and_is_first_is_the_head_though_others_like_it_wait():
    # The third does not fit, as the second does not, and is before it: the fourth, which is long, may not put it off.
    four = [(0, 8, 1000, 0), (1, 7, 4000, 0), (2, 2, 4000, 2), (3, 1000, 1000, 1)]
    frame = pl.DataFrame(four, schema=["submit", "runtime", "gpu_milli", "priority"], orient="row")
    work = Workload.of(frame.with_columns(pl.col("submit", "runtime").cast(pl.Float64)), source="four")
    run = simulate(work, Cluster.uniform(1, 4), order="priority", backfill="easy")
    assert run.jobs["start"].to_list() == [0, 1010, 8, 10]


@numba.njit
def both_ways(shapes, table, gpus, apps, at):
    """What room is left for the first shape beside the second: as EASY computes it, and by taking that."""
    of, shape, node = shapes[0], shapes[1], table[0]
    quick = nodes.node_slots_after(of, shape, node, gpus, apps, at)
    bits = nodes.take(shape, node, gpus, apps, at)
    left = nodes.node_slots(of, node, gpus, apps)
    nodes.give_back(shape, node, gpus, apps, bits)
    return quick, left


@numba.njit
def has_room(shapes, table, gpus, apps):
    of, shape, node = shapes[0], shapes[1], table[0]
    nodes.recount(node, gpus)
    return nodes.node_slots(of, node, gpus, apps) > 0 and nodes.holds(shape, node, gpus, apps)


def draw(rng, shape):
    shape.gpus, shape.milli = rng.choice([(0, 0), (1, 250), (1, 400), (1, 700), (1, 1000), (3, 1000)])
    shape.per_node, shape.app = rng.choice([0, 0, 1, 2, 3]), rng.randint(0, 1)
    shape.types, shape.exclusive = 1, rng.random() < 0.1
    shape.gpu_memory = rng.choice([0, 0, 3]) if shape.gpus else 0
    shape.amounts[:] = rng.choices([0, 0, 1, 3], k=len(layout.AMOUNTS))


def test_slots_beside_an_instance_is_what_is_left_when_it_is_there():
    rng, tried = random.Random(1), 0
    for _ in range(8000):
        count = rng.randint(0, 4)
        node = layout.table(1, layout.NODE, up=1, end_gpu=count, gpu_type=int(count > 0), node_class=1)
        node[0].free[:] = rng.choices(range(12), k=len(layout.AMOUNTS))
        gpus = layout.table(4, layout.GPU, free=rng.choices([0, 250, 500, 750, 1000, 1000], k=4))
        gpus.free_memory = [10 if free == layout.WHOLE else rng.randint(0, 10) for free in gpus.free]
        apps = np.array([[rng.randint(0, 2)], [rng.randint(0, 2)]])
        shapes = layout.table(2, layout.SHAPE)
        for shape in shapes:
            draw(rng, shape)
        if not has_room(shapes, node, gpus, apps):
            continue
        able = [g for g in range(count) if gpus[g].free >= shape.milli and gpus[g].free_memory >= shape.gpu_memory]
        for at in able if 0 < shape.milli < layout.WHOLE else [-1]:
            quick, left = both_ways(shapes, node, gpus, apps, at)
            assert quick == left
            tried += 1
    assert tried > 1000
