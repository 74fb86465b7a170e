"""Limits of every kind: of classes, accounts and partitions, on minutes, jobs, submissions and types of GPU."""

from __future__ import annotations

import random
from dataclasses import replace

from fleetlab.core.queues import JobLimits, Limits, Qos, QueueTree
from fleetlab.schedulers.slurm.config import Partition, Priority, Slurm, Weights
from realtest.jobs import Job
from realtest.settings import ACCOUNTS, HOUR, PLAIN, Setting, cluster_of

RUNNING_MINUTES, MINUTES, TYPED = 48, 40, 6  # of GPUs
TIMEOUT_S = 200

QOS = (
    Qos("normal"),
    Qos("ahead", limits=Limits(running_minutes={"gpu": RUNNING_MINUTES})),
    Qos("spent", limits=Limits(minutes={"gpu": MINUTES})),
    Qos("one", job=JobLimits(resources={"gpu": 4}, wall=240.0), per_user=Limits(running_minutes={"cpu": 12})),
    Qos("few", per_user=Limits(jobs=3, submitted=6)),
    Qos("typed", limits=Limits(resources={"gpu:v100": TYPED})),
    Qos("deny", flags=("DenyOnLimit",), job=JobLimits(resources={"gpu": 2}, at_least={"gpu": 2})),
    Qos("part", limits=Limits(resources={"gpu": 24}), per_user=Limits(jobs=2)),  # of the partition `short`
    Qos("over", flags=("OverPartQOS",), per_user=Limits(jobs=4)),
)
PARTITIONS = (
    Partition("gpu", default=True, max_time=HOUR, default_time=300.0),
    Partition("short", max_time=120.0, default_time=60.0, qos="part"),
    Partition("vip", max_time=HOUR, default_time=300.0, allow_qos=("over", "normal"), deny_accounts=("ops",)),
)
ACCOUNT_LIMITS = {
    "lang": {"limits": Limits(running_minutes={"gpu": 150})},
    "ops": {"limits": Limits(resources={"cpu": 4}), "job": JobLimits(wall=300.0)},
    "train": {"per_user": Limits(jobs=6)},
}
SITE: Slurm = replace(
    PLAIN,
    partitions=PARTITIONS,
    qos=QOS,
    queues=QueueTree(replace(queue, **ACCOUNT_LIMITS.get(name, {})) for name, queue in ACCOUNTS.items()),
    enforce=("associations", "limits", "qos", "safe"),
    priority=Priority(multifactor=True, weights=Weights(age=1000), max_age=86_400.0, half_life=60.0, calc_period=60.0),
)


def choose(job: Job, draws: random.Random) -> Job:
    """Give most jobs a class or a partition with a limit; few are so large that they wait for ever or are refused."""
    at, late = draws.random(), draws.random()
    size = job.nodes * job.gpus
    if late < 0.04:
        job = replace(job, script=f"sleep {TIMEOUT_S}", limit=1)
    minutes = size * job.limit
    for until, fits, words in (
        (0.15, minutes <= RUNNING_MINUTES, ("-qahead",)),
        (0.27, minutes <= MINUTES, ("-qspent",)),
        (0.37, size <= 4 or late > 0.95, ("-qone",)),
        (0.50, True, ("-qfew",)),
        (0.62, job.nodes == 1 and job.gpus <= TYPED, ("-qtyped", f"--gpus-per-node=v100:{job.gpus}")),
        (0.65, True, ("-qdeny",)),
        (0.78, job.limit <= 2 or late > 0.8, ("-pshort",)),
        (0.84, job.limit <= 2, ("-pshort", "-qover")),
        (0.92, job.user not in ("gus", "hal") or late > 0.9, ("-pvip", "-qover" if late < 0.5 else "-qnormal")),
        (0.93, True, ("-pvip", "-qfew")),
    ):
        if at < until:
            return job.adding(*words, kind=" ".join(words[:2])) if fits else job
    return job


LIMITS = Setting(
    "limits",
    "limits on minutes, on jobs running and submitted, on one job, on GPUs of one type, of a partition's QOS; safe",
    SITE,
    choose,
    cluster=lambda nodes: cluster_of(
        {"n": (nodes - 3, "a100", ("gpu", "short", "vip")), "v": (3, "v100", ("gpu", "vip"))}
    ),
)
