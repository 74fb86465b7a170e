"""Write a site's Slurm: what slurm.conf, gres.conf and the accounting database would say of a cluster and its rules."""

from __future__ import annotations

import math
from collections.abc import Iterator, Mapping

from fleetlab.core.cluster import Cluster
from fleetlab.core.queues import JobLimits, Limits, Qos, Queue
from fleetlab.schedulers.slurm.config import BackfillLoop, MainLoop, Partition, Priority, Slurm
from fleetlab.schedulers.slurm.reader.conf_keys import BACKFILL, BACKFILL_FLAGS, MAIN, MAIN_FLAGS

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


def scheduling_lines(slurm: Slurm) -> str:
    """Return those of them that are not of nodes."""
    partitions = (_partition(p, None) for p in slurm.partitions)
    lines = [*_scheduling(slurm), *_priority(slurm.priority), *_preemption(slurm), *partitions]
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
    if not slurm.requeue:
        yield "JobRequeue=0"
    yield from _words(
        CompleteWait=f"{slurm.complete_wait:.0f}" if slurm.complete_wait else None,
        OverTimeLimit=_minutes(slurm.over_time) if slurm.over_time else None,
        AccountingStorageEnforce=",".join(slurm.enforce),
        EnforcePartLimits=None if slurm.enforce_partitions == "no" else slurm.enforce_partitions.upper(),
    )


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
    flags = (",GANG" if slurm.gang else "") + (",WITHIN" if slurm.within else "")
    yield f"PreemptMode={slurm.preempt_mode.upper()}{flags}"
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


def _partition(partition: Partition, cluster: Cluster | None) -> str:
    rows = () if cluster is None else cluster.frame.select("node", "partitions").iter_rows()
    nodes = [n for n, names in rows if partition.name in names]
    words = {
        "PartitionName": partition.name,
        "Nodes": None if cluster is None else ",".join(nodes),
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
    modes = [*([qos.preempt_mode] if qos.preempt_mode else []), *(["within"] if qos.within else [])]
    yield from _words(
        priority=qos.priority,
        preempt=",".join(qos.preempts),
        preemptmode=",".join(modes),
        gracetime=f"{qos.grace:.0f}" if qos.grace else None,
        preemptexempttime=None if qos.exempt is None else _clock(qos.exempt),
        flags=",".join(qos.flags),
        usagefactor=None if qos.usage_factor == 1 else qos.usage_factor,
    )
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
    yield from _words(priority=queue.priority or None, qos=",".join(queue.qos), defaultqos=queue.default_qos or None)
    yield from _limits(queue.limits, "grp", "grptres")
    yield from _limits(queue.per_user, "max", "maxtres")
    yield from _job(queue.job)


def _limits(limits: Limits, counts: str, resources: str, whose: str = "") -> Iterator[str]:
    """Say a set of limits; `counts` and `resources` begin their names, `whose` ends them: grptres, maxtrespu."""
    wall = limits.wall_minutes
    yield from _words(
        **{
            f"{counts}jobs{whose}": limits.jobs,
            f"{counts}submitjobs{whose}": limits.submitted,
            f"{resources}{whose}": _tres(limits.resources),
            f"{resources}mins": _tres(limits.minutes),
            f"{resources}runmins{whose}": _tres(limits.running_minutes),
            f"{counts}wall": None if wall is None else f"{wall:.0f}",
        }
    )


def _job(job: JobLimits) -> Iterator[str]:
    yield from _words(
        maxtresperjob=_tres(job.resources),
        mintresperjob=_tres(job.at_least),
        maxtrespernode=_tres(job.per_node),
        maxtresmins=_tres(job.minutes),
        maxwall=None if job.wall is None else _minutes(job.wall),
    )


# -- words of Slurm ----------------------------------------------------------------------------------------------------


def _words(**values: object) -> Iterator[str]:
    """Write what is set: neither None nor an empty text."""
    return (f"{name}={value}" for name, value in values.items() if value not in (None, ""))


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
