"""All at once: partitions, fair share, limits, preemption, dependencies, arrays, failing nodes, reservations."""

from __future__ import annotations

import random
from dataclasses import replace

from fleetlab.core.queues import Limits, Qos
from fleetlab.schedulers.slurm.config import BackfillLoop, MainLoop, Slurm
from realtest.jobs import Act, Job, span
from realtest.limits import LIMITS
from realtest.settings import (
    FAIR,
    PARTITIONS,
    PLAIN,
    SETTINGS,
    Setting,
    choose_partition,
    depend,
    make_reservation,
    partitioned,
    update_node,
)

CLASSES = (
    Qos("normal", priority=10, preempts=("scav",)),
    Qos("high", priority=100, preempts=("scav",), per_user=Limits(resources={"gpu": 24})),
    Qos("scav", priority=0, preempt_mode="requeue"),
    Qos("few", priority=10, per_user=Limits(jobs=6)),
)
FACTORS = {"gpu": 10, "large": 20, "v100": 10, "short": 30, "all": 1}
SITE: Slurm = replace(
    PLAIN,
    partitions=tuple(replace(p, factor=FACTORS[p.name]) for p in PARTITIONS),
    qos=CLASSES,
    priority=FAIR,
    preempt="qos",
    preempt_mode="requeue",
    prolog=1.0,
    epilog=1.0,
    main=MainLoop(),
    backfill=BackfillLoop(goes_on=True),
    parameters=("kill_invalid_depend",),
)
TIMEOUT_S = 200


def choose(job: Job, draws: random.Random) -> Job:
    """Choose a partition and a class."""
    job = choose_partition(job, draws)
    at = draws.random()
    for until, qos in ((0.12, "scav"), (0.2, "high"), (0.35, "few")):
        if at < until:
            return job.adding(f"-q{qos}", "--requeue", kind=f"{job.kind} {qos}")
    return job


def mix(jobs: list[Job], draws: random.Random) -> tuple[list[Job], list[Act]]:
    """Let a third of the jobs depend on others, change the shapes of some, and let nodes and people do what they do."""
    changed, acts = depend(jobs, draws, share=0.5)
    changed = [_odd(job, draws) if "--dependency" not in str(job.words) else job for job in changed]
    for job in changed:
        acts += _meddle(job, draws)
    end = span(jobs)
    for node, state, begin, back in (
        ("n03", "DRAIN", 0.15, 0.45),
        ("n07", "DOWN", 0.30, 0.50),
        ("v02", "DOWN", 0.55, 0.70),
        ("x02", "DRAIN", 0.60, 0.85),
    ):
        acts += [update_node(begin * end, node, state), update_node(back * end, node, "RESUME")]
    acts += [
        make_reservation(0.0, "class", 60, 120, "Users=ann,bob", "Nodes=n01,n02"),
        make_reservation(0.5 * end, "upkeep", 60, 60, "Users=root", "Nodes=n04,n05", "Flags=MAINT,IGNORE_JOBS"),
    ]
    return changed, acts


def _odd(job: Job, draws: random.Random) -> Job:
    """Ask for nodes and GPUs in another way, run longer than the limit, or be held."""
    at = draws.random()
    one, small = job.nodes == 1, job.nodes == 1 and job.gpus <= 4
    if at < 0.03:
        return replace(job, seconds=TIMEOUT_S, limit=1, kind=f"{job.kind} timeout")
    if at < 0.06 and small:
        return job.adding(f"-C{draws.choice(['ib', 'eth'])}", kind=f"{job.kind} constraint")
    if at < 0.08 and one:
        return job.adding("--exclusive", kind=f"{job.kind} exclusive")
    if at < 0.12 and job.nodes > 1:
        total = job.nodes * job.gpus - draws.choice([1, 3, 5])
        return replace(job, gpus=0).adding(f"-N{job.nodes}", f"--gpus={total}", kind=f"{job.kind} uneven")
    if at < 0.16 and one:
        return job.adding(f"--cpus-per-task={draws.choice([4, 8, 16])}", "--mem=64G", kind=f"{job.kind} memory")
    if at < 0.18 and small:
        return replace(job, gpus=0).adding("-n3", "--gpus-per-task=2", kind=f"{job.kind} per-task")
    if at < 0.20:
        return job.adding("-H", kind=f"{job.kind} held")
    if at < 0.22 and one:
        return job.adding("-J", "two words|and, more", kind=f"{job.kind} name")
    return job


def _meddle(job: Job, draws: random.Random) -> list[Act]:
    """Release what is held; cancel a few, waiting or not; requeue a few."""
    at = draws.random()
    if "-H" in job.words:
        return [
            Act(round(job.at + draws.choice([10, 30, 60]), 2), ("scontrol", "release", f"{{{job.key}}}"), "release")
        ]
    if at < 0.02:
        return [Act(round(job.at + draws.choice([5, 20, 40]), 2), ("scancel", f"{{{job.key}}}"), "cancel")]
    return []


EVERYTHING = Setting(
    "everything",
    "all of it at once, with Slurm's default loops, a prolog and an epilog of 1 s",
    SITE,
    choose,
    mix,
    lambda nodes: partitioned(nodes, features=True),
    load=1.1,
)
ALL = {**SETTINGS, LIMITS.name: LIMITS, EVERYTHING.name: EVERYTHING}
