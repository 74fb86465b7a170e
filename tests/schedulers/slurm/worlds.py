"""Small random sites: overlapping partitions, classes of service, accounts, arrays, dependencies, reservations."""

from dataclasses import dataclass

import numpy as np
import polars as pl
from hypothesis import strategies as st

from fleetlab.core import Cluster, Scenario, Workload
from fleetlab.core.events import Drain, Outage
from fleetlab.core.queues import Limits, Qos, Queue, QueueTree
from fleetlab.schedulers.slurm.config import BackfillLoop, MainLoop, Partition, Priority, Reservation, Slurm, Weights
from fleetlab.sim.schedule import Schedule, Segments
from fleetlab.sim.simulate import play_scenario, world_of
from fleetlab.sim.world import World

GPUS = 4  # of each node
OVERLAPPING = (("a",), ("a", "b"), ("b", "c"), ("c",))
QUEUES = QueueTree(
    [Queue("root"), Queue("vision", "root", limits=Limits(resources={"gpu": 10})), Queue("speech", "root", shares=3.0),
     Queue("vision/ann", "vision", user="ann"), Queue("vision/bob", "vision", user="bob", limits=Limits(jobs=2)),
     Queue("speech/cid", "speech", user="cid")]
)  # fmt: skip
ACCOUNT = {"ann": "vision", "bob": "vision", "cid": "speech"}
ALL_QOS = (
    Qos("normal", priority=1),
    Qos("few", limits=Limits(jobs=3), per_user=Limits(resources={"gpu": 6})),
    Qos("high", priority=10, preempts=("normal",)),
)
FAIR = Priority(
    multifactor=True, weights=Weights(age=100.0, fair_share=1000.0, job_size=50.0, qos=500.0), calc_period=60.0
)


@dataclass(frozen=True)
class Small:
    """A scenario under Slurm, and what it was made of."""

    workload: Workload
    cluster: Cluster
    site: Slurm
    events: tuple[Drain | Outage, ...]

    def scenario(self, seed: int = 0) -> Scenario:
        """Return it as verbs take it."""
        words = {"events": self.events} if self.events else {}
        return Scenario.of(self.workload, self.cluster, scheduler=self.site, seed=seed, **words)

    def play(self, seed: int = 0) -> tuple[World, Schedule]:
        """Play it."""
        s = self.scenario(seed)
        world = world_of(s)
        return world, play_scenario(s, world)


def cluster(partitions=OVERLAPPING) -> Cluster:
    """Return four nodes of four GPUs; one of another type."""
    count = len(partitions)
    frame = pl.DataFrame(
        {"node": [f"n{k}" for k in range(count)], "gpu_type": ["a100"] * (count - 1) + ["v100"], "gpus": GPUS,
         "cpu_milli": 16_000, "memory_mib": 64_000, "gpu_memory_mib": 80_000}
    ).with_columns(pl.Series("partitions", [list(names) for names in partitions], pl.List(pl.String)))  # fmt: skip
    return Cluster.of(frame, source="small")


def job(draw, k: int, *, gpu_types: bool, reserved: bool) -> dict[str, object]:
    """Draw one job."""
    user = draw(st.sampled_from(sorted(ACCOUNT)))
    runtime = draw(st.integers(1, 200))
    kind = draw(st.sampled_from(["whole", "whole", "spread", "exclusive"]))
    gpus = draw(st.integers(0, GPUS))
    parts = draw(st.sampled_from([["a"], ["b"], ["c"], ["a", "b"], ["b", "c"]]))
    return {
        "submit": float(draw(st.integers(0, 300))) if k else 0.0, "runtime": float(runtime),
        "limit": 60.0 * -(-runtime // 60) * draw(st.integers(1, 3)), "user": user, "queue": ACCOUNT[user],
        "gpu_milli": 1000 * gpus, "cpu_milli": 1000 * draw(st.integers(1, 8)),
        "instances": 2 if kind == "spread" else 1, "distinct_nodes": True, "exclusive": kind == "exclusive",
        "partitions": parts, "qos": draw(st.sampled_from([q.name for q in ALL_QOS])),
        "gpu_types": ["a100"] if gpus and gpu_types and draw(st.booleans()) else [],
        "reservation": "kept" if reserved and parts == ["a"] and kind != "spread" and draw(st.booleans()) else None,
        "array": 1 if draw(st.integers(0, 3)) == 0 else None, "array_limit": 2,
        "status": draw(st.sampled_from(["completed", "completed", "failed"])),
    }  # fmt: skip


def linked(draw, rows: list[dict[str, object]], *, gangs: bool) -> None:
    """Let some jobs depend on earlier ones, and two be one heterogeneous job."""
    rows.sort(key=lambda row: row["submit"])
    for k, row in enumerate(rows):
        row["array_limit"] = 2 if row["array"] else 0
        waits = k and draw(st.integers(0, 4)) == 0
        row["depends_on"] = [draw(st.integers(0, k - 1))] if waits else []
        row["dependency"] = [draw(st.sampled_from(["after", "afterany", "afterok", "afternotok"]))] if waits else []
        row["gang"] = None
    if gangs and len(rows) > 2:
        for row in rows[1:3]:  # one submission, one user; what it asks for must be free at once
            row |= {"gang": 1, "array": None, "array_limit": 0, "depends_on": [], "dependency": [], "reservation": None,
                    "submit": rows[1]["submit"], "partitions": ["b"], "user": "cid", "queue": "speech", "qos": "few",
                    "instances": 1, "gpu_milli": 1000, "gpu_types": [], "limit": 600.0}  # fmt: skip


@st.composite
def worlds(draw, *, preempts: bool = True, most: int = 14) -> Small:
    """Draw a small site with any of Slurm's rules."""
    reserved = draw(st.booleans())
    rows = [job(draw, k, gpu_types=True, reserved=reserved) for k in range(draw(st.integers(1, most)))]
    linked(draw, rows, gangs=draw(st.booleans()))
    for row in rows:
        # A job that fits nowhere would wait for ever.
        if row["gpu_types"] and row["partitions"] == ["c"] and row["instances"] == 2:
            row["gpu_types"] = []
    frame = pl.DataFrame(rows, schema_overrides={"reservation": pl.String, "array": pl.Int64, "gang": pl.Int64})
    kept = (Reservation("kept", float(draw(st.integers(50, 150))), 900.0, ("n0",)),) if reserved else ()
    preempt = draw(st.sampled_from(["none", "qos", "partition"])) if preempts else "none"
    site = Slurm(
        partitions=(Partition("a", tier=2), Partition("b", default=True), Partition("c", max_time=1200.0)),
        qos=ALL_QOS, queues=QUEUES, priority=draw(st.sampled_from([Priority(), FAIR])), reservations=kept,
        enforce=("associations", "limits", "qos"), preempt=preempt,
        preempt_mode="off" if preempt == "none" else draw(st.sampled_from(["requeue", "cancel"])),
        main=MainLoop(delay=draw(st.sampled_from([0.0, 3.0]))), epilog=draw(st.sampled_from([0.0, 5.0])),
        backfill=BackfillLoop(
            interval=draw(st.sampled_from([1.0, 30.0])), resolution=draw(st.sampled_from([1.0, 60.0]))
        ),
        select_flags=draw(st.sampled_from([(), ("CR_LLN",)])),
    )  # fmt: skip
    begin = float(draw(st.integers(0, 300)))
    event = draw(st.sampled_from([(), (Drain(begin, begin + 200.0, ["n1"]),), (Outage(begin, begin + 200.0, ["n1"]),)]))
    return Small(Workload.of(frame, source="small"), cluster(), site, event)


# -- what a schedule is made of --------------------------------------------------------------------------------------


@dataclass(frozen=True)
class Run:
    """A job on its nodes from one time to another."""

    job: int
    begin: float
    end: float
    nodes: tuple[int, ...]  # of each instance


def runs_of(world: World, played: Schedule) -> list[Run]:
    """Return all runs, in order of begin."""
    found: Segments = played.runs(world.first)
    runs = []
    for k, t in enumerate(found.job.tolist()):
        first = int(found.first[k])
        nodes = tuple(found.where[first : first + int(world.instances[t])].tolist())
        runs.append(Run(t, float(found.begin[k]), float(found.end[k]), nodes))
    return sorted(runs, key=lambda run: run.begin)


def moments(runs: list[Run]) -> np.ndarray:
    """Return when jobs start: what is held rises at no other moment."""
    return np.unique([run.begin for run in runs])
