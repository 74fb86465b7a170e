"""Schedules stay bit for bit what they were: hashes recorded in `schedules.json` before the engine was rearranged.

Those of `easy` and `conservative` were recorded again when reservations began to count; `test_by_the_book` holds them.
All were when the built-in trace changed, from the engine that had just reproduced every one of the old trace.
"""

import hashlib
import json
from functools import cache
from pathlib import Path

import numpy as np
import polars as pl
import pytest

import fleetlab
from fleetlab import Cluster, Drain, Elastic, Faults, Recovery, Spot, Workload
from fleetlab.traces import synthesize

RECORDED = json.loads((Path(__file__).parent / "schedules.json").read_text("utf-8"))
# Jobs, and how much faster they arrive than in the built-in trace; few jobs have a tenth of the nodes.
FULL, BUSY, SMALL, TINY = (20_000, 1.0), (20_000, 1.5), (2_000, 6.0), (500, 12.0)
SAVING = Recovery(every=600, save=10, restart=30)
POOLS = [
    Elastic(pool="MISC", least=1, boot=120, every=60, idle=600),
    Spot(pool="T4", every=20000, away=3000, notice=30),
    Drain(3000, 9000, pool="P100"),
]


@fleetlab.order
def patient(s, job, now):
    return s.estimate[job] - (now - s.submit[job]) * 0.5 * (1 + s.instances[job])


@fleetlab.placement
def tight(s, job, node):
    return s.free_gpu[node] + 0.001 * s.free_cpu[node]


CASES = {
    "fifo/greedy/best_fit": (FULL, {}),
    "fifo/greedy/best_fit until": (BUSY, {"until": 200_000.0}),
    "fifo/none/best_fit": (FULL, {"backfill": "none"}),
    "sjf/none/best_fit/user": (FULL, {"order": "sjf", "backfill": "none", "estimate": "user"}),
    "fifo/none/fgd": (FULL, {"backfill": "none", "placement": "fgd"}),
    "sjf/greedy/best_fit": (BUSY, {"order": "sjf"}),
    "sjf/greedy/best_fit/user+gpu": (BUSY, {"order": "sjf", "estimate": "user+gpu"}),
    "fifo/easy/best_fit": (BUSY, {"backfill": "easy"}),
    "sjf/easy/best_fit/group": (BUSY, {"order": "sjf", "backfill": "easy", "estimate": "group"}),
    "fifo/easy/worst_fit": (BUSY, {"backfill": "easy", "placement": "worst_fit"}),
    "fifo/easy/fgd until": (BUSY, {"backfill": "easy", "placement": "fgd", "until": 150_000.0}),
    "fifo/greedy/fgd": (BUSY, {"placement": "fgd"}),
    "fifo/greedy/worst_fit": (BUSY, {"placement": "worst_fit"}),
    "largest/greedy/gpu_packing": (BUSY, {"order": "largest", "placement": "gpu_packing"}),
    "fifo/greedy/random seed 3": (BUSY, {"placement": "random", "seed": 3}),
    "aging/greedy/dot_product": (BUSY, {"order": "aging", "placement": "dot_product"}),
    "fifo/greedy/reserve_and_pack": (BUSY, {"placement": "reserve_and_pack"}),
    "smallest/greedy/gpu_clustering": (BUSY, {"order": "smallest", "placement": "gpu_clustering"}),
    "fifo/greedy exclusive": (FULL, {"sharing": "exclusive"}),
    "fifo/conservative/best_fit": (TINY, {"backfill": "conservative"}),
    "sjf/conservative/spread/user": (
        TINY,
        {"order": "sjf", "backfill": "conservative", "estimate": "user", "placement": "spread"},
    ),
    "fifo/easy/random": (SMALL, {"backfill": "easy", "placement": "random", "seed": 2}),
    "fair/greedy/best_fit": (SMALL, {"order": "fair"}),
    "fair/none/best_fit": (SMALL, {"order": "fair", "backfill": "none"}),
    "las/greedy preemption": (SMALL, {"order": "las", "preemption": True}),
    "las/none preemption": (
        SMALL,
        {"order": "las", "preemption": True, "backfill": "none", "recovery": Recovery(every=300, save=5, restart=20)},
    ),
    "srpt/greedy": (SMALL, {"order": "srpt"}),
    "server_filling/greedy": (SMALL, {"order": "server_filling"}),
    "server_filling_srpt/greedy": (SMALL, {"order": "server_filling_srpt", "estimate": "user"}),
    "fifo/greedy mps": (SMALL, {"sharing": "mps"}),
    "fifo/easy time-slicing": (SMALL, {"sharing": "time-slicing", "backfill": "easy"}),
    "fifo/greedy mig": (SMALL, {"sharing": "mig"}),
    "fifo/easy quota 16": (SMALL, {"backfill": "easy", "quota": 16}),
    "fifo/greedy quota 4 fgd": (SMALL, {"quota": 4, "placement": "fgd"}),
    "fifo/none faults recovery": (
        SMALL,
        {"backfill": "none", "events": [Faults(mtbf=5 * 86400, mttr=3600)], "recovery": SAVING, "seed": 5},
    ),
    "fifo/greedy faults preempt until": (
        SMALL,
        {
            "order": "priority",
            "preemption": True,
            "events": [Faults(mtbf=2 * 86400, mttr=3600)],
            "seed": 5,
            "until": 20_000.0,
        },
    ),
    "own order greedy": (SMALL, {"order": patient}),
    "own placement easy": (SMALL, {"placement": tight, "backfill": "easy"}),
    "elastic": (SMALL, {"events": POOLS, "recovery": SAVING}),
}


@cache
def world(jobs, faster):
    trace = synthesize("pai2020", jobs=jobs, constrained=1.0)  # every GPU job on one type only: more of them wait
    frame = trace.workload.frame.with_columns(pl.col("submit") / faster).drop("parent", "start", "end")
    limited = pl.when(pl.col("job") % 17 == 0).then(2).otherwise(0).cast(pl.Int32)
    nodes = trace.cluster.frame[:: 10 if jobs < 5_000 else 1]
    return Workload.of(frame.with_columns(max_per_node=limited), source="x"), Cluster.of(nodes, source="part")


def digest(*columns):
    sha = hashlib.sha256()
    for column in columns:
        sha.update(np.ascontiguousarray(column).tobytes())
    return sha.hexdigest()[:16]


def test_every_recorded_schedule_is_checked():
    assert set(CASES) == set(RECORDED)


@pytest.mark.parametrize("name", CASES)
def test_a_schedule_is_what_was_recorded(name):
    size, words = CASES[name]
    # As they were recorded: from an empty cluster, without the jobs of unknown runtime.
    p = fleetlab.simulate(*world(*size), warm_up="none", censored="drop", **words).played
    assert len(p.start) == RECORDED[name]["jobs"]
    assert digest(p.start, p.end, p.where, p.got) == RECORDED[name]["schedule"]
