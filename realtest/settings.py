"""The settings that a real Slurm runs under: its configuration, and what is different about the jobs."""

from __future__ import annotations

import random
from collections.abc import Callable
from dataclasses import dataclass, replace

import polars as pl

from fleetlab.core.cluster import Cluster
from fleetlab.core.queues import JobLimits, Limits, Qos, Queue, QueueTree
from fleetlab.schedulers.slurm.config import BackfillLoop, MainLoop, Partition, Priority, Slurm, Weights
from realtest.jobs import Act, Job, Replay, draw_jobs, span

NODES, GPUS = 20, 8
HOUR = 3600.0

ACCOUNTS = QueueTree(
    [
        Queue("root"),
        Queue("vision", "root", shares=60),
        Queue("train", "vision", shares=2),
        Queue("lang", "root", shares=30),
        Queue("ops", "root", shares=10),
        Queue("vision/ann", "vision", user="ann", shares=1),
        Queue("train/bob", "train", user="bob", shares=3),
        Queue("train/cyd", "train", user="cyd", shares=1),
        Queue("lang/dee", "lang", user="dee", shares=1),
        Queue("lang/eve", "lang", user="eve", shares=1),
        Queue("lang/fay", "lang", user="fay", shares=2),
        Queue("ops/gus", "ops", user="gus", shares=1),
        Queue("ops/hal", "ops", user="hal", shares=1),
    ]
)

ONE = (Partition("gpu", default=True, max_time=HOUR, default_time=300.0),)
# As close to a scheduler that acts at every event as the loops come.
EAGER_MAIN = MainLoop(delay=0.0)
EAGER_BACKFILL = BackfillLoop(interval=1.0, resolution=1.0, goes_on=True)
ENFORCE = ("associations", "limits", "qos")

PLAIN = Slurm(
    partitions=ONE,
    queues=ACCOUNTS,
    main=EAGER_MAIN,
    backfill=EAGER_BACKFILL,
    enforce=ENFORCE,
    kill_wait=5.0,
    select_flags=("CR_CPU_Memory",),
)
FAIR = Priority(
    multifactor=True,
    weights=Weights(age=1000, fair_share=10_000, job_size=500, partition=1000, qos=2000, tres={"cpu": 100, "gpu": 300}),
    max_age=600.0,
    half_life=300.0,
    calc_period=60.0,
)

Change = Callable[[Job, random.Random], Job]


@dataclass(frozen=True, slots=True)
class Setting:
    """A cluster, its Slurm, and how the jobs drawn for it are changed; the same draws underlie all settings."""

    name: str
    summary: str
    slurm: Slurm = PLAIN
    change: Change = lambda job, _: job
    more: Callable[[list[Job], random.Random], tuple[list[Job], list[Act]]] = lambda jobs, _: (jobs, [])
    cluster: Callable[[int], Cluster] = lambda nodes: cluster_of({"n": (nodes, "a100", ("gpu",))})
    load: float = 1.25
    seed: int = 18

    def replay(self, jobs: int, nodes: int = NODES) -> Replay:
        """Return what is submitted to how many nodes; the same each time."""
        drawn = draw_jobs(jobs, nodes * GPUS, self.load, self.seed)
        draws = random.Random(f"{self.name} {self.seed}")
        changed, acts = self.more([self.change(job, draws) for job in drawn], draws)
        return Replay(tuple(changed), tuple(acts))


def cluster_of(kinds: dict[str, tuple[int, str, tuple[str, ...]]], *, features: bool = False) -> Cluster:
    """Build nodes by the letter of their name: how many, which GPU, in which partitions."""
    rows = [
        {
            "node": f"{letter}{number:02d}",
            "gpu_type": gpu_type,
            "gpus": GPUS,
            "cpu_milli": 64_000,
            "memory_mib": 512_000,
            "partitions": list(partitions),
            "features": [gpu_type, "ib" if number % 2 else "eth"] if features else [],
        }
        for letter, (count, gpu_type, partitions) in kinds.items()
        for number in range(1, count + 1)
    ]
    return Cluster.of(pl.DataFrame(rows), source="realtest")


# -- partitions --------------------------------------------------------------------------------------------------------

PARTITIONS = (
    Partition("gpu", default=True, max_time=HOUR, default_time=300.0),
    Partition("large", max_time=HOUR, default_time=300.0, min_nodes=2),
    Partition("v100", max_time=HOUR, default_time=300.0),
    Partition("short", max_time=60.0, default_time=60.0, tier=10),
    Partition("all", max_time=HOUR, default_time=300.0),
)


def partitioned(nodes: int, *, features: bool = False) -> Cluster:
    """Most nodes for jobs of one node or of several, some of another GPU; two partitions lie across them."""
    v100, large = max(1, nodes * 3 // 20), max(4, nodes * 2 // 5)
    kinds = {
        "n": (nodes - v100 - large, "a100", ("gpu", "short", "all")),
        "x": (large, "a100", ("large", "all")),
        "v": (v100, "v100", ("v100", "short", "all")),
    }
    return cluster_of(kinds, features=features)


def choose_partition(job: Job, draws: random.Random) -> Job:
    """Send multi-node jobs to their own partition, some short ones to the short one, others here or there."""
    at = draws.random()
    if job.nodes > 1:
        return job.adding("-plarge", kind="large") if at < 0.8 else job.adding("-pall", kind="all")
    if job.limit == 1 and at < 0.2:
        return job.adding("-pshort", kind="short")
    for until, partition in ((0.4, "v100"), (0.5, "gpu,v100"), (0.57, "all")):
        if at < until:
            return job.adding(f"-p{partition}", kind=partition)
    return job.adding("-pgpu", kind="gpu")


# -- classes of service ------------------------------------------------------------------------------------------------

LIMITED = (
    Qos("normal"),
    Qos("gpus", per_user=Limits(resources={"gpu": 16})),
    Qos("few", per_user=Limits(jobs=4)),
    Qos("group", limits=Limits(resources={"gpu": 32})),
    Qos("count", limits=Limits(jobs=12), job=JobLimits(resources={"gpu": 8})),
)


def choose_qos(job: Job, draws: random.Random) -> Job:
    """Give most jobs a class with a limit that binds now and then; a job above the limit keeps the normal one."""
    at = draws.random()
    size = job.nodes * job.gpus
    for until, qos, most in ((0.3, "gpus", 16), (0.45, "few", 64), (0.6, "group", 32), (0.75, "count", 8)):
        if at < until:
            return job.adding(f"-q{qos}", kind=qos) if size <= most else job
    return job


PREEMPTING = (
    Qos("normal", priority=10, preempts=("scav", "free")),
    Qos("high", priority=100, preempts=("scav", "free")),
    Qos("scav", priority=0, preempt_mode="requeue"),
    Qos("free", priority=0, preempt_mode="cancel"),
)


def choose_preempted(job: Job, draws: random.Random) -> Job:
    """A quarter may be preempted and starts over, an eighth is cancelled then, a tenth is urgent."""
    at = draws.random()
    for until, qos in ((0.2, "scav"), (0.3, "free"), (0.4, "high")):
        if at < until:
            return job.adding(f"-q{qos}", "--requeue" if qos == "scav" else "--no-requeue", kind=qos)
    return job


GRACE = (
    Qos("normal", priority=10, preempts=("scav", "free")),
    Qos("high", priority=100, preempts=("scav", "free")),
    Qos("scav", priority=0, preempt_mode="requeue", grace=15.0),
    Qos("free", priority=0, preempt_mode="cancel", grace=5.0, exempt=10.0),
)


# -- jobs that use CPUs of others --------------------------------------------------------------------------------------

CPUS_OF_GPU = 16  # twice what a node has for each of its GPUs: CPUs run out first
TIERS = (
    Partition("low", default=True, max_time=HOUR, default_time=300.0, tier=1),
    Partition("high", max_time=HOUR, default_time=300.0, tier=10),
)


def need_cpus(job: Job) -> Job:
    """Let a job need so many CPUs that half of the GPUs stay free."""
    gpus = min(job.gpus, GPUS // 2)
    return replace(job, gpus=gpus).adding(f"--cpus-per-task={gpus * CPUS_OF_GPU}")


def choose_tier(job: Job, draws: random.Random) -> Job:
    """Let a quarter suspend others; those do a second of work at a time, which a suspension keeps from going on."""
    job = need_cpus(job)
    if draws.random() < 0.25:
        return job.adding("-phigh", kind="high")
    return replace(job, script=f"for i in $(seq {job.seconds}); do sleep 1; done", kind="low")


SHARING = (
    Partition("gpu", default=True, max_time=HOUR, default_time=300.0),
    Partition("whole", max_time=HOUR, default_time=300.0, oversubscribe=0),
    Partition("shared", max_time=HOUR, default_time=300.0, oversubscribe=2),
)


def sharing_nodes(nodes: int) -> Cluster:
    """Some nodes for each partition, and some for two of them."""
    fifth = nodes // 5
    kinds = {
        "n": (nodes - 4 * fifth, "a100", ("gpu",)),
        "s": (fifth, "a100", ("shared",)),
        "t": (fifth, "a100", ("gpu", "shared")),
        "w": (fifth, "a100", ("whole",)),
        "x": (fifth, "a100", ("gpu", "whole")),
    }
    return cluster_of(kinds)


def choose_sharing(job: Job, draws: random.Random) -> Job:
    """Send a third to CPUs that two jobs may use at a time, a fifth to nodes of their own."""
    job, at = need_cpus(job), draws.random()
    if at < 0.35:
        return job.adding("-pshared", kind="shared")
    return job.adding("-pwhole", kind="whole") if at < 0.5 else job.adding("-pgpu", kind="gpu")


CLASSES = (Qos("normal", priority=10), Qos("high", priority=100), Qos("low", priority=0))
SHARED = (
    Partition("gpu", default=True, max_time=HOUR, default_time=300.0, factor=10),
    Partition("prio", max_time=HOUR, default_time=300.0, factor=40),
)


def choose_fair(job: Job, draws: random.Random) -> Job:
    """Some jobs are of another class, in a partition with a larger factor, or nice."""
    at, nice = draws.random(), draws.random()
    words = []
    for until, word in ((0.1, "-qhigh"), (0.25, "-qlow"), (0.4, "-pprio")):
        if at < until:
            words.append(word)
            break
    if nice < 0.1:
        words.append(f"--nice={draws.choice([50, 500, 2000])}")
    return job.adding(*words, kind="".join(words) or "plain")


# -- dependencies ------------------------------------------------------------------------------------------------------


def depend(jobs: list[Job], draws: random.Random, share: float = 1.0) -> tuple[list[Job], list[Act]]:
    """Let jobs wait for earlier ones, for a time or for their name; some are arrays, some fail."""
    changed: list[Job] = []
    arrays: list[tuple[str, str]] = []
    for job in jobs:
        at = draws.random() / share
        earlier = [j for j in changed[-12:-1] if j.kind != "singleton"]
        if at < 0.18 and earlier:
            names = ":".join(f"{{{j.key}}}" for j in draws.sample(earlier, min(len(earlier), draws.choice([1, 1, 2]))))
            job = job.adding(f"--dependency=afterany:{names}", kind="afterany")
        elif at < 0.30 and earlier:
            job = job.adding(f"--dependency=afterok:{{{draws.choice(earlier).key}}}", kind="afterok")
        elif at < 0.33 and earlier:
            job = job.adding(f"--dependency=afternotok:{{{draws.choice(earlier).key}}}", kind="afternotok")
        elif at < 0.36 and earlier:
            job = job.adding(f"--dependency=after:{{{draws.choice(earlier).key}}}+1", kind="after")
        elif at < 0.42:
            job = job.adding("-J", f"only-{draws.choice('ab')}", "--dependency=singleton", kind="singleton")
        elif at < 0.47:
            job = job.adding(f"--begin=now+{draws.choice([20, 40, 75, 120])}", kind="begin")
        elif at < 0.51 and job.nodes == 1 and job.gpus <= 2:
            tasks = draws.choice([4, 6, 10])
            job = job.adding(f"--array=1-{tasks}%{draws.choice([2, 3])}", kind="array")
            arrays.append((job.key, f"1-{tasks}"))
        elif at < 0.53 and arrays and job.nodes == 1 and job.gpus <= 2:
            of, tasks_of = draws.choice(arrays[-3:])
            job = job.adding(f"--array={tasks_of}", f"--dependency=aftercorr:{{{of}}}", kind="aftercorr")
        elif at < 0.59:
            job = replace(job, script=f"sleep {job.seconds}; exit 1", kind="failing")
        changed.append(job)
    return changed, []


# -- what happens to nodes ---------------------------------------------------------------------------------------------


def update_node(at: float, node: str, state: str) -> Act:
    """Set a node's state at a time."""
    words = ("scontrol", "update", f"NodeName={node}", f"State={state}")
    return Act(round(at, 2), words if state == "RESUME" else (*words, "Reason=test"), state.lower())


def fail_nodes(jobs: list[Job], draws: random.Random) -> tuple[list[Job], list[Act]]:
    """Drain some nodes and return them, set others down with jobs on them, one twice, two together."""
    end = span(jobs)
    acts = []
    for node, state, begin, back in (
        ("n03", "DRAIN", 0.15, 0.50),
        ("n07", "DOWN", 0.25, 0.40),
        ("n11", "DOWN", 0.35, 0.60),
        ("n12", "DOWN", 0.35, 0.75),
        ("n15", "DRAIN", 0.45, 0.80),
        ("n07", "DOWN", 0.55, 0.65),
        ("n18", "DOWN", 0.70, 0.85),
        ("n04", "DRAIN", 0.72, 0.90),
    ):
        acts += [update_node(begin * end, node, state), update_node(back * end, node, "RESUME")]
    return [job.adding("--no-requeue" if draws.random() < 0.3 else "--requeue") for job in jobs], acts


def make_reservation(at: float, name: str, begin: float, seconds: float, *words: str) -> Act:
    """Reserve at a time, from `begin` seconds later."""
    when = f"StartTime=now+{round(begin)}" if begin else "StartTime=now"
    asked = ("scontrol", "create", "reservation", f"ReservationName={name}", when)
    return Act(round(at, 2), (*asked, f"EndTime=now+{round(begin + seconds)}", *words), "reservation")


def reserve(jobs: list[Job], draws: random.Random) -> tuple[list[Job], list[Act]]:
    """Keep nodes for users from when the run begins, for an account later, and for maintenance in between."""
    end = span(jobs)
    minute = max(60, round(end / 7))
    make = make_reservation
    acts = [
        make(0.0, "class", 0, 3 * minute, "Users=ann,bob", "Nodes=n01,n02"),
        make(0.0, "upkeep", 2.5 * minute, 1 * minute, "Users=root", "Nodes=n03,n04,n05,n06", "Flags=MAINT"),
        make(0.3 * end, "talk", minute, 2 * minute, "Accounts=lang", "Nodes=n07,n08,n09", "Flags=IGNORE_JOBS"),
        make(0.5 * end, "flex", 0.5 * minute, 2 * minute, "Users=eve", "Nodes=n10", "Flags=FLEX,IGNORE_JOBS"),
    ]
    changed = []
    for job in jobs:
        at = draws.random()
        if job.user in ("ann", "bob") and job.nodes == 1 and job.at < 2.5 * minute and at < 0.15:
            job = job.adding("--reservation=class", kind="class")
        elif job.user in ("dee", "eve", "fay") and job.nodes <= 3 and job.at > 0.32 * end and at < 0.25:
            job = job.adding("--reservation=talk", kind="talk") if job.at < 0.3 * end + 2.5 * minute else job
        changed.append(job)
    return changed, acts


SETTINGS = {
    setting.name: setting
    for setting in (
        Setting("plain", "one partition, first come first served, loops that run at once"),
        Setting(
            "defaults",
            "the same with Slurm's default loops (bf_interval=30, bf_resolution=60, batch_sched_delay=3)",
            replace(PLAIN, main=MainLoop(), backfill=BackfillLoop()),
        ),
        Setting(
            "partitions",
            "five partitions: three disjoint ones, one of a higher tier across two of them, one over all",
            replace(PLAIN, partitions=PARTITIONS),
            choose_partition,
            cluster=partitioned,
            load=1.1,
        ),
        Setting(
            "qos",
            "limits by QOS: GPUs and jobs a user, GPUs and jobs of the whole class",
            replace(PLAIN, qos=LIMITED),
            choose_qos,
        ),
        Setting(
            "fair",
            "multifactor priority with all weights, a half-life of five minutes, a tree of accounts",
            replace(PLAIN, priority=FAIR, qos=CLASSES, partitions=SHARED),
            choose_fair,
            cluster=lambda nodes: cluster_of({"n": (nodes, "a100", ("gpu", "prio"))}),
        ),
        Setting(
            "deps",
            "dependencies, begin times, arrays with throttles",
            replace(PLAIN, parameters=("kill_invalid_depend",)),
            more=depend,
            load=1.15,
        ),
        Setting(
            "preempt",
            "preemption by QOS: one class is requeued, one cancelled",
            replace(
                PLAIN,
                qos=PREEMPTING,
                preempt="qos",
                preempt_mode="requeue",
                priority=Priority(multifactor=True, weights=Weights(age=1000, qos=5000), max_age=86_400.0),
            ),
            choose_preempted,
        ),
        Setting(
            "grace",
            "preemption by QOS with grace times, of jobs that have run for a while",
            replace(
                PLAIN,
                qos=GRACE,
                preempt="qos",
                preempt_mode="requeue",
                exempt=20.0,
                priority=Priority(multifactor=True, weights=Weights(age=1000, qos=5000), max_age=86_400.0),
            ),
            choose_preempted,
        ),
        Setting(
            "suspend",
            "preemption by partition: jobs of the lower tier are suspended, and go on when CPUs are free",
            replace(PLAIN, partitions=TIERS, preempt="partition", preempt_mode="suspend", gang=True),
            choose_tier,
            cluster=lambda nodes: cluster_of({"n": (nodes, "a100", ("low", "high"))}),
            load=0.85,
        ),
        Setting(
            "share",
            "partitions that share CPUs (FORCE:2), that give nodes away whole, and one that does neither",
            replace(PLAIN, partitions=SHARING),
            choose_sharing,
            cluster=sharing_nodes,
            load=0.85,
        ),
        Setting("nodes", "nodes that are drained or fail while jobs run, and return", PLAIN, more=fail_nodes, load=1.1),
        Setting("reservations", "nodes kept for users, an account and maintenance", PLAIN, more=reserve, load=1.05),
        Setting("prolog", "a prolog and an epilog of 3 s", replace(PLAIN, prolog=3.0, epilog=3.0), load=1.0),
    )
}
