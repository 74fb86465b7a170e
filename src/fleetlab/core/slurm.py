"""How a site runs Slurm: partitions, classes of service, accounts, priorities and the settings of its two loops.

Defaults are those of slurm.conf(5) 22.05. Times are in seconds.
"""

from __future__ import annotations

import math
from collections.abc import Mapping
from dataclasses import dataclass, field
from typing import Any, ClassVar

from fleetlab.core.queues import JobLimits, Limits, QueueTree
from fleetlab.core.records import from_values, to_values

DAY = 86_400.0


@dataclass(frozen=True, slots=True)
class Partition:
    """A set of nodes with a queue of its own; which nodes are in it stands in the cluster (`partitions`)."""

    name: str
    default: bool = False
    tier: int = 1  # PriorityTier: jobs of a higher tier are looked at first, and may preempt
    factor: int = 1  # PriorityJobFactor
    state: str = "up"  # up, down (jobs wait), drain (none may be submitted), inactive
    max_time: float = math.inf
    default_time: float | None = None  # None: max_time
    max_nodes: float = math.inf
    min_nodes: int = 0
    qos: str | None = None  # whose limits hold for all jobs in the partition
    oversubscribe: int = 1  # jobs that may run on one resource at a time; 0: a node is given to one job alone
    preempt_mode: str | None = None  # off, requeue, cancel, suspend; None: the cluster's
    grace: float = 0.0
    allow_accounts: tuple[str, ...] = ()  # empty: all
    deny_accounts: tuple[str, ...] = ()
    allow_qos: tuple[str, ...] = ()
    deny_qos: tuple[str, ...] = ()
    billing: Mapping[str, float] = field(default_factory=dict)  # TRESBillingWeights
    over_time: float | None = None  # OverTimeLimit


@dataclass(frozen=True, slots=True)
class Qos:
    """A class of service: a priority, limits, and whom it may preempt."""

    name: str
    priority: int = 0
    preempts: tuple[str, ...] = ()
    preempt_mode: str | None = None
    within: bool = False  # jobs of higher priority preempt others of the same class
    grace: float = 0.0
    exempt: float | None = None  # PreemptExemptTime
    flags: tuple[str, ...] = ()
    usage_factor: float = 1.0
    limits: Limits = field(default_factory=Limits)  # of all its jobs
    per_user: Limits = field(default_factory=Limits)
    per_account: Limits = field(default_factory=Limits)
    job: JobLimits = field(default_factory=JobLimits)


@dataclass(frozen=True, slots=True)
class Weights:
    """PriorityWeight*: what the factors of a job, each from 0 to 1, are multiplied by."""

    age: float = 0.0
    association: float = 0.0
    fair_share: float = 0.0
    job_size: float = 0.0
    partition: float = 0.0
    qos: float = 0.0
    tres: Mapping[str, float] = field(default_factory=dict)


@dataclass(frozen=True, slots=True)
class Priority:
    """PriorityType and what goes with it."""

    multifactor: bool = False  # else priority/basic: first come, first served
    weights: Weights = field(default_factory=Weights)
    max_age: float = 7 * DAY
    half_life: float = 7 * DAY  # PriorityDecayHalfLife; 0: usage does not decay
    calc_period: float = 300.0
    flags: tuple[
        str, ...
    ] = ()  # ACCRUE_ALWAYS, CALCULATE_RUNNING, DEPTH_OBLIVIOUS, NO_FAIR_TREE, SMALL_RELATIVE_TO_TIME, …
    favor_small: bool = False


@dataclass(frozen=True, slots=True)
class MainLoop:
    """The loop that runs when a job is submitted or ends, strictly in order within each partition."""

    depth: int = 100  # default_queue_depth: jobs looked at when an event woke it
    partition_depth: int = 0  # partition_job_depth; 0: no limit
    interval: float = 60.0  # sched_interval: it looks at the whole queue
    min_interval: float = 2e-6  # sched_min_interval
    delay: float = 3.0  # batch_sched_delay
    defer: bool = False  # not at submission
    max_start: int = 0  # sched_max_job_start
    assume_swap: bool = False


@dataclass(frozen=True, slots=True)
class BackfillLoop:
    """The loop that plans a start for the jobs in the queue, and starts those that delay none before them."""

    on: bool = True  # SchedulerType=sched/backfill
    interval: float = 30.0  # bf_interval
    resolution: float = 60.0  # bf_resolution
    window: float = DAY  # bf_window: further ahead nothing is planned
    max_jobs: int = 500  # bf_max_job_test
    max_jobs_user: int = 0  # bf_max_job_user; 0: no limit
    max_jobs_partition: int = 0  # bf_max_job_part
    max_jobs_user_partition: int = 0  # bf_max_job_user_part
    max_jobs_account: int = 0  # bf_max_job_assoc
    max_start: int = 0  # bf_max_job_start
    max_tasks: int = 20  # bf_max_job_array_resv: tasks of one array that are planned
    max_time: float | None = None  # bf_max_time; None: bf_interval
    goes_on: bool = False  # bf_continue: after a pause it continues where it was
    yield_interval: float = 2.0  # bf_yield_interval
    yield_sleep: float = 0.5  # bf_yield_sleep
    min_age_reserve: float = 0.0  # bf_min_age_reserve
    min_priority_reserve: int = 0  # bf_min_prio_reserve
    one_reservation: int = 0  # bf_one_resv_per_job
    busy_nodes: bool = False  # bf_busy_nodes


@dataclass(frozen=True, slots=True)
class Reservation:
    """Nodes kept for some from one time to another."""

    name: str
    begin: float
    end: float
    nodes: tuple[str, ...]
    users: tuple[str, ...] = ()
    accounts: tuple[str, ...] = ()
    flags: tuple[str, ...] = ()


@dataclass(frozen=True, slots=True)
class Slurm:
    """A site's Slurm: what slurm.conf and the accounting database say."""

    kind: ClassVar[str] = "slurm"
    title: ClassVar[str] = "Slurm"
    apart: ClassVar[bool] = False
    whole_gpus: ClassVar[bool] = False  # True: requests for a part of a GPU are rounded up, with a note

    partitions: tuple[Partition, ...] = ()
    qos: tuple[Qos, ...] = ()
    queues: QueueTree = field(default_factory=QueueTree)  # accounts and their users
    priority: Priority = field(default_factory=Priority)
    main: MainLoop = field(default_factory=MainLoop)
    backfill: BackfillLoop = field(default_factory=BackfillLoop)
    enforce: tuple[str, ...] = ()  # AccountingStorageEnforce: associations, limits, qos, safe
    enforce_partitions: str = "no"  # EnforcePartLimits: no (such jobs wait), any, all
    preempt: str = "none"  # none, qos, partition
    preempt_mode: str = "off"  # off, requeue, cancel, suspend; gang is a flag of its own
    gang: bool = False
    within: bool = False  # as of a class of service, for all of them
    exempt: float = 0.0  # PreemptExemptTime
    requeue: bool = True  # JobRequeue: of jobs that do not say
    reservations: tuple[Reservation, ...] = ()
    prolog: float = 0.0  # s that a job holds its nodes before it runs
    epilog: float = 0.0  # s that a node completes after it ran
    complete_wait: float = 0.0  # CompleteWait
    kill_wait: float = 30.0
    over_time: float = 0.0  # OverTimeLimit
    select: str = "cons_tres"
    select_flags: tuple[str, ...] = ()  # CR_CPU_Memory, CR_LLN, CR_PACK_NODES, …
    parameters: tuple[str, ...] = ()  # entries of SchedulerParameters that no field above holds
    version: str = ""
    boot: float | None = None  # when slurmctld started: its loops and its passes over usage count from then

    @classmethod
    def from_values(cls, values: Mapping[str, Any]) -> Slurm:
        """Build one from plain tables, as `to_values` gives them."""
        return from_values(cls, values, "Slurm configuration")

    def to_values(self) -> dict[str, Any]:
        """Return plain tables of what differs from the defaults."""
        return to_values(self)

    def partition(self, name: str) -> Partition:
        """Return a partition by name, or one with defaults."""
        return next((p for p in self.partitions if p.name == name), Partition(name))
