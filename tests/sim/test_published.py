"""What papers say of scheduling on PAI, on the built-in trace: `docs/measurements/published.md` has it at full size."""

from functools import cache

import numpy as np
import polars as pl
import pytest

import fleetlab
from fleetlab import Cluster, Workload
from fleetlab.traces.synthesize import synthesize

pytestmark = pytest.mark.slow

SEEDS = (0, 1, pytest.param(2, marks=pytest.mark.validate))
CORES = 23_220  # CPU milli a GPU, as the authors' own simulator has it
ANY = pl.lit([], dtype=pl.List(pl.String))
HISTORY = {"user": [["user"], []], "group": [["user", "group"], ["user"], []]}


def pool(gpus):
    # The authors have one pool without cards: a share is a part of the pool. A scalar resource of one node is that.
    node = {"node": "pool", "gpus": 0, "cpu_milli": CORES * gpus, "memory_mib": 0, "rdma_milli": 1000 * gpus}
    return Cluster.of(pl.DataFrame([node]), source="one pool")


@cache  # several tests look at the same jobs
def made(jobs, seed):
    return synthesize("pai2020", jobs=jobs, seed=seed)


def known(jobs, seed):
    return made(jobs, seed).workload.frame.filter(pl.col("runtime").is_not_null())


def told(frame, finest_first):
    """The mean of those that the log saw end before a job came: of its own kind, or the next wider one."""
    found = pl.Series([None] * frame.height, dtype=pl.Float64)
    asks = frame.with_row_index("row").sort("submit")
    ended = frame.sort("end")
    for keys in finest_first:
        mean = pl.col("runtime").cum_sum() / pl.int_range(1, pl.len() + 1)
        seen = ended.select("end", *keys, mean=mean.over(keys) if keys else mean)
        by = {"by": keys} if keys else {}
        asked = asks.select("row", "submit", *keys)
        last = asked.join_asof(seen, left_on="submit", right_on="end", check_sortedness=False, **by)
        found = found.fill_null(last.sort("row")["mean"])
    return found.fill_null(0.0)


def burst(frame):
    # Their default: a thousand jobs every minute, in the order of the log.
    submit = pl.Series(np.arange(frame.height) // 1000 * 60.0)
    return Workload.of(
        frame.with_columns(submit=submit, rdma_milli="gpu_milli", gpu_milli=0, memory_mib=0, gpu_types=ANY)
        .select("submit", "runtime", "instances", "cpu_milli", "rdma_milli"),
        source="a burst",
    )  # fmt: skip


def completion(workload, gpus, **rules):
    result = fleetlab.simulate(workload, pool(gpus), backfill="greedy", **rules)
    return float((result.played.end - result.world.submit).mean())


@pytest.fixture(scope="module", params=SEEDS)
def demo(request):
    """Mean JCT by order, for 20,000 jobs on 6,500 GPUs: the run that the authors' simulator comes with."""
    frame = known(110_000, request.param)
    columns = {name: told(frame, keys) for name, keys in HISTORY.items()}
    frame = frame.with_columns(**{f"by {k}": v for k, v in columns.items()})
    frame = frame.sample(20_000, seed=request.param).sort("submit")
    jobs = burst(frame)
    found = {name: completion(jobs, 6500, order="sjf", estimate=frame[f"by {name}"]) for name in columns}
    return {
        "fifo": completion(jobs, 6500), **found, "oracle": completion(jobs, 6500, order="sjf"),
        "runtime": float(frame["runtime"].mean()),
    }  # fmt: skip


def test_shorter_first_helps_the_more_the_better_it_knows(demo):
    assert demo["fifo"] > demo["user"] > demo["group"] > demo["oracle"]


def test_the_demo_of_the_authors_simulator_comes_out(demo):
    theirs = {"fifo": 1.572, "user": 1.246, "group": 1.205, "oracle": 1.189}  # mean JCT over mean runtime
    assert {name: demo[name] / demo["runtime"] for name in theirs} == pytest.approx(theirs, rel=0.12)


@pytest.mark.parametrize("seed", SEEDS)
def test_where_capacity_is_tight_shortest_first_cuts_completion_by_two_thirds(seed):
    jobs = burst(known(110_000, seed).sample(70_000, seed=seed).sort("submit"))
    cut = 1 - completion(jobs, 3000, order="sjf") / completion(jobs, 3000)
    assert 0.6 < cut < 0.8


def waits(seed, placement):
    """Mean wait of GPU jobs, and of those of them that need a V100."""
    trace = made(30_000, seed)
    result = fleetlab.simulate(trace.workload.at_load(2.0), trace.cluster, placement=placement)
    jobs = result.jobs.filter(pl.col("gpu_milli") > 0)
    return jobs["wait"].mean(), jobs.filter(pl.col("gpu_types").list.first().str.starts_with("V100"))["wait"].mean()


@pytest.mark.parametrize("seed", SEEDS)
def test_keeping_v100s_for_those_who_need_them_cuts_their_wait_by_more_than_half(seed):
    balanced, kept = waits(seed, "worst_fit"), waits(seed, "reserve_and_pack")
    assert 1 - kept[1] / balanced[1] > 0.5
    assert 1 - kept[0] / balanced[0] > 0.4


@pytest.mark.parametrize("seed", SEEDS)
def test_sharing_saves_two_fifths_of_the_gpus_in_use(seed):
    trace = made(30_000, seed)
    nodes = trace.cluster.frame
    # So many nodes that nobody waits: else the cluster, and not the jobs, would say how many are in use.
    copies = [nodes.with_columns(node=pl.col("node") + f"/{k}") for k in range(3)]
    cluster = Cluster.of(pl.concat(copies), source="three of each")
    span = float(trace.workload.frame["submit"].max())

    def used(sharing):
        line = fleetlab.simulate(trace.workload, cluster, sharing=sharing).timeline(every=900.0)
        later = line.filter((pl.col("gpu_type") == "all") & pl.col("time").is_between(span / 4, span))
        return later["used"].mean()

    assert 0.35 < 1 - used("fractional") / used("exclusive") < 0.5
