"""Write a site's Slurm: what slurm.conf, gres.conf and the accounting database would say of a cluster and its rules."""

from __future__ import annotations

import math
from collections.abc import Iterator, Mapping

from fleetlab.core.cluster import Cluster
from fleetlab.core.queues import JobLimits, Limits, Queue
from fleetlab.core.slurm import BackfillLoop, MainLoop, Partition, Priority, Qos, Slurm
from fleetlab.traces.slurm.scheduler_parameters import BACKFILL, BACKFILL_FLAGS, MAIN, MAIN_FLAGS

DEPENDENCY = ("disable_remote_singleton", "kill_invalid_depend")  # parameters with a line of their own
OLD_NAME = "max_job_bf"  # of bf_max_job_test
TRES = {"gpu": "gres/gpu", "memory": "mem"}
MILLI = 1000


def slurm_conf(cluster: Cluster, slurm: Slurm, node_words: Mapping[str, str] | None = None) -> str:
    """Return the lines of slurm.conf that say how jobs are scheduled; `node_words` go at the end of a node's line."""
    words = node_words or {}
    lines = [
        *_scheduling(slurm),
        *_priority(slurm.priority),
        *_preemption(slurm),
        *_nodes(cluster, words),
        *(_partition(p, cluster) for p in slurm.partitions),
    ]
    return "\n".join(lines) + "\n"


def gres_conf(cluster: Cluster, device: str = "/dev/nvidia") -> str:
    """Return gres.conf: the GPUs of each node by type, as device files numbered from 0."""
    lines = ["AutoDetect=off"]
    for node, gpu_type, gpus in cluster.frame.select("node", "gpu_type", "gpus").iter_rows():
        if gpus:
            numbers = f"[0-{gpus - 1}]" if gpus > 1 else "0"
            lines.append(f"NodeName={node} Name=gpu Type={gpu_type} File={device}{numbers}")
    return "\n".join(lines) + "\n"


def accounts(slurm: Slurm) -> list[list[str]]:
    """Return the words after `sacctmgr -i` that make the classes of service, then the accounts and their users."""
    named = [["add", "qos", q.name] for q in slurm.qos if q.name != "normal"]
    # A class may name others that it preempts: all are there before any is described.
    described = [["modify", "qos", q.name, "set", *words] for q in slurm.qos if (words := list(qos_words(q)))]
    users = [q for q in slurm.queues.values() if q.user is not None]
    return [*named, *described, *(w for q in slurm.queues.values() if q.user is None for w in _account(q))] + [
        ["add", "user", str(q.user), f"account={q.parent}", *queue_words(q)] for q in users
    ]


# -- the loops ---------------------------------------------------------------------------------------------------------


def scheduler_parameters(slurm: Slurm) -> list[str]:
    """Return the entries of SchedulerParameters that differ from their defaults."""
    found: list[str] = []
    loops: list[tuple[MainLoop | BackfillLoop, Mapping[str, tuple[str, float]], Mapping[str, str]]] = [
        (slurm.main, MAIN, MAIN_FLAGS),
        (slurm.backfill, BACKFILL, {**BACKFILL_FLAGS, "bf_one_resv_per_job": "one_reservation"}),
    ]
    for loop, names, flags in loops:
        default = type(loop)()
        for name, (field, seconds) in names.items():
            value = getattr(loop, field)
            if value != getattr(default, field) and name != OLD_NAME:
                found.append(f"{name}={round(value / seconds)}")
        found += [name for name, field in flags.items() if getattr(loop, field)]
    return [*found, *(word for word in slurm.parameters if word not in DEPENDENCY)]


def _scheduling(slurm: Slurm) -> Iterator[str]:
    yield f"SchedulerType=sched/{'backfill' if slurm.backfill.on else 'builtin'}"
    if parameters := scheduler_parameters(slurm):
        yield f"SchedulerParameters={','.join(parameters)}"
    if dependency := [word for word in slurm.parameters if word in DEPENDENCY]:
        yield f"DependencyParameters={','.join(dependency)}"
    yield f"SelectType=select/{slurm.select}"
    if slurm.select_flags:
        yield f"SelectTypeParameters={','.join(slurm.select_flags)}"
    yield f"KillWait={slurm.kill_wait:.0f}"
    if slurm.complete_wait:
        yield f"CompleteWait={slurm.complete_wait:.0f}"
    if slurm.over_time:
        yield f"OverTimeLimit={_minutes(slurm.over_time)}"
    if slurm.enforce:
        yield f"AccountingStorageEnforce={','.join(slurm.enforce)}"
    if slurm.enforce_partitions != "no":
        yield f"EnforcePartLimits={slurm.enforce_partitions.upper()}"


def _priority(priority: Priority) -> Iterator[str]:
    yield f"PriorityType=priority/{'multifactor' if priority.multifactor else 'basic'}"
    if not priority.multifactor:
        return
    weights = priority.weights
    for name, weight in {
        "Age": weights.age,
        "Assoc": weights.association,
        "Fairshare": weights.fair_share,
        "JobSize": weights.job_size,
        "Partition": weights.partition,
        "QOS": weights.qos,
    }.items():
        if weight:
            yield f"PriorityWeight{name}={weight:.0f}"
    if weights.tres:
        yield f"PriorityWeightTRES={_tres(weights.tres)}"
    yield f"PriorityMaxAge={_clock(priority.max_age)}"
    yield f"PriorityDecayHalfLife={_clock(priority.half_life)}"
    yield f"PriorityCalcPeriod={_minutes(priority.calc_period)}"
    if priority.flags:
        yield f"PriorityFlags={','.join(priority.flags)}"
    if priority.favor_small:
        yield "PriorityFavorSmall=YES"


def _preemption(slurm: Slurm) -> Iterator[str]:
    if slurm.preempt == "none":
        return
    yield f"PreemptType=preempt/{'partition_prio' if slurm.preempt == 'partition' else slurm.preempt}"
    yield f"PreemptMode={slurm.preempt_mode.upper()}{',GANG' if slurm.gang else ''}"
    if slurm.exempt:
        yield f"PreemptExemptTime={_clock(slurm.exempt)}"


# -- nodes and partitions ----------------------------------------------------------------------------------------------


def _nodes(cluster: Cluster, words: Mapping[str, str]) -> Iterator[str]:
    for row in cluster.frame.iter_rows(named=True):
        line = f"NodeName={row['node']} CPUs={row['cpu_milli'] // MILLI} RealMemory={row['memory_mib']}"
        if row["gpus"]:
            line += f" Gres=gpu:{row['gpu_type']}:{row['gpus']}"
        if row["features"]:
            line += f" Feature={','.join(row['features'])}"
        if row["weight"] != 1:
            line += f" Weight={row['weight']}"
        yield " ".join([line, words.get(row["node"], "")]).rstrip()


def _partition(partition: Partition, cluster: Cluster) -> str:
    nodes = [n for n, names in cluster.frame.select("node", "partitions").iter_rows() if partition.name in names]
    words = {
        "PartitionName": partition.name,
        "Nodes": ",".join(nodes),
        "Default": "YES" if partition.default else "NO",
        "State": partition.state.upper(),
        "MaxTime": _limit(partition.max_time),
        "DefaultTime": None if partition.default_time is None else _limit(partition.default_time),
        "PriorityTier": partition.tier,
        "PriorityJobFactor": partition.factor,
        "MaxNodes": None if math.isinf(partition.max_nodes) else f"{partition.max_nodes:.0f}",
        "MinNodes": partition.min_nodes or None,
        "QOS": partition.qos,
        "OverSubscribe": _oversubscribe(partition.oversubscribe),
        "PreemptMode": None if partition.preempt_mode is None else partition.preempt_mode.upper(),
        "GraceTime": f"{partition.grace:.0f}" if partition.grace else None,
        "AllowAccounts": ",".join(partition.allow_accounts) or None,
        "DenyAccounts": ",".join(partition.deny_accounts) or None,
        "AllowQos": ",".join(partition.allow_qos) or None,
        "DenyQos": ",".join(partition.deny_qos) or None,
        "TRESBillingWeights": _tres(partition.billing) or None,
        "OverTimeLimit": None if partition.over_time is None else _minutes(partition.over_time),
    }
    return " ".join(f"{name}={value}" for name, value in words.items() if value is not None)


def _oversubscribe(jobs: int) -> str | None:
    return {0: "EXCLUSIVE", 1: None}.get(jobs, f"FORCE:{jobs}")


# -- accounts ----------------------------------------------------------------------------------------------------------


def qos_words(qos: Qos) -> Iterator[str]:
    """Say a class of service in words of sacctmgr."""
    yield f"priority={qos.priority}"
    if qos.preempts:
        yield f"preempt={','.join(qos.preempts)}"
    if qos.preempt_mode:
        yield f"preemptmode={qos.preempt_mode}"
    if qos.grace:
        yield f"gracetime={qos.grace:.0f}"
    if qos.exempt is not None:
        yield f"preemptexempttime={_clock(qos.exempt)}"
    if qos.flags:
        yield f"flags={','.join(qos.flags)}"
    if qos.usage_factor != 1:
        yield f"usagefactor={qos.usage_factor}"
    yield from _limits(qos.limits, "grp", "grptres")
    yield from _limits(qos.per_user, "max", "maxtres", "pu")
    yield from _limits(qos.per_account, "max", "maxtres", "pa")
    yield from _job(qos.job)


def _account(queue: Queue) -> Iterator[list[str]]:
    if queue.parent is not None:  # the root is there from the beginning
        yield ["add", "account", queue.name, f"parent={queue.parent}", *queue_words(queue)]


def queue_words(queue: Queue) -> Iterator[str]:
    """Say an account, or a user in one, in words of sacctmgr."""
    yield f"fairshare={'parent' if queue.shares is None else f'{queue.shares:.0f}'}"
    if queue.priority:
        yield f"priority={queue.priority}"
    if queue.qos:
        yield f"qos={','.join(queue.qos)}"
    if queue.default_qos:
        yield f"defaultqos={queue.default_qos}"
    yield from _limits(queue.limits, "grp", "grptres")
    yield from _limits(queue.per_user, "max", "maxtres")
    yield from _job(queue.job)


def _limits(limits: Limits, counts: str, resources: str, whose: str = "") -> Iterator[str]:
    """Say a set of limits; `counts` and `resources` begin their names, `whose` ends them: grptres, maxtrespu."""
    if limits.jobs is not None:
        yield f"{counts}jobs{whose}={limits.jobs}"
    if limits.submitted is not None:
        yield f"{counts}submitjobs{whose}={limits.submitted}"
    if limits.resources:
        yield f"{resources}{whose}={_tres(limits.resources)}"
    if limits.minutes:
        yield f"{resources}mins={_tres(limits.minutes)}"
    if limits.running_minutes:
        yield f"{resources}runmins{whose}={_tres(limits.running_minutes)}"
    if limits.wall_minutes is not None:
        yield f"{counts}wall={limits.wall_minutes:.0f}"


def _job(job: JobLimits) -> Iterator[str]:
    if job.resources:
        yield f"maxtresperjob={_tres(job.resources)}"
    if job.at_least:
        yield f"mintresperjob={_tres(job.at_least)}"
    if job.per_node:
        yield f"maxtrespernode={_tres(job.per_node)}"
    if job.minutes:
        yield f"maxtresmins={_tres(job.minutes)}"
    if job.wall is not None:
        yield f"maxwall={_minutes(job.wall)}"


# -- words of Slurm ----------------------------------------------------------------------------------------------------


def _tres(amounts: Mapping[str, float]) -> str:
    """Name resources as Slurm does: `gpu:a100` is `gres/gpu:a100`."""
    kinds = ((*name.split(":", 1), "") for name in amounts)
    names = [TRES.get(kind, kind) + (f":{type_}" if type_ else "") for kind, type_, *_ in kinds]
    return ",".join(f"{name}={amount:g}" for name, amount in zip(names, amounts.values(), strict=True))


def _minutes(seconds: float) -> int:
    return max(1, round(seconds / 60)) if seconds else 0


def _limit(seconds: float) -> str:
    return "UNLIMITED" if math.isinf(seconds) else _clock(seconds)


def _clock(seconds: float) -> str:
    """Return days-hours:minutes:seconds.

    >>> _clock(90061)
    '1-01:01:01'
    """
    days, rest = divmod(round(seconds), 86_400)
    return f"{days}-{rest // 3600:02d}:{rest // 60 % 60:02d}:{rest % 60:02d}"
