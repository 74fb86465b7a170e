"""How a site runs Slurm: partitions, classes of service, accounts, priorities and the settings of its two loops.

Defaults are those of slurm.conf(5) 22.05. Times are in seconds.
"""

from __future__ import annotations

import math
from collections.abc import Mapping, Sequence
from dataclasses import dataclass, field
from pathlib import Path
from typing import TYPE_CHECKING, Any, ClassVar

from fleetlab.core.durations import duration
from fleetlab.core.queues import DAY, Qos, QueueTree
from fleetlab.core.schedulers import Accounts, ConfigChange, Feature, Scheduler, SettingChange

if TYPE_CHECKING:
    import polars as pl

    from fleetlab.core.cluster import Cluster
    from fleetlab.core.events import Event
    from fleetlab.core.progress import Progress
    from fleetlab.core.resample import Floats
    from fleetlab.core.scenario import Scenario
    from fleetlab.core.trace import Trace
    from fleetlab.sim.schedule import Schedule
    from fleetlab.sim.world import World


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
    known: float | None = None  # when it was made; None: it was always there


@dataclass(frozen=True, slots=True)
class Slurm(Scheduler):
    """A site's Slurm: what slurm.conf and the accounting database say."""

    name: ClassVar[str] = "slurm"
    title: ClassVar[str] = "Slurm"
    honors: ClassVar[frozenset[Feature]] = frozenset(Feature) - {Feature.CHECKPOINTS}
    has_defaults: ClassVar[bool] = False
    files: ClassVar[str] = "a slurm.conf"
    takes_lines: ClassVar[bool] = True
    draws: ClassVar[str] = (
        "Slurm's order within a second is drawn, and the schedule closest to the median of several is taken: another "
        "request may also change which one that is"
    )
    lead: ClassVar[float] = 64.0
    recorded_runs: ClassVar[Path | None] = Path(__file__).with_name("recorded_runs.toml")

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
    def recognizes(cls, path: Path) -> bool:
        """Whether every line may be a name, `=`, and a value; a folder may have files of Slurm."""
        from fleetlab.schedulers.slurm.site import recognizes

        return recognizes(path)

    @classmethod
    def read(cls, path: Path) -> Slurm:
        """Read a slurm.conf, or a folder with the files of a site."""
        from fleetlab.schedulers.slurm.reader.conf import read_conf

        return read_conf(path)

    def accounts(self) -> Accounts:
        """Return the accounts and classes of service of the accounting database."""
        return Accounts(self.queues, self.qos, self.priority.half_life)

    def prepare(self, trace: Trace) -> Trace:
        """Return a trace with one row for each job, as far as others ended its runs."""
        from fleetlab.schedulers.slurm.reader.attempts import folded

        return folded(trace)

    def node_events(self, trace: Trace) -> tuple[Event, ...]:
        """Return what `sacctmgr show event` listed."""
        from fleetlab.schedulers.slurm.reader.events import node_events

        return node_events(trace)

    def as_of(self, at: float, first: float, cycles: Floats | None) -> Slurm:
        """Return it on a clock on which `at` is second 0; its backfill loop goes on from the last of `cycles`."""
        from fleetlab.schedulers.slurm.site import as_of

        return as_of(self, at, first, cycles)

    def simulate(
        self, scenario: Scenario, world: World, *, progress: Progress | None = None, draws: int | None = None
    ) -> Schedule:
        """Simulate by its compiled loops; `draws` is how many orders within a second are tried."""
        from fleetlab.schedulers.slurm.site import simulate

        return simulate(self, scenario, world, progress, draws)

    def notes(self, scenario: Scenario, cluster: Cluster) -> list[str]:
        """Return which partitions have no nodes."""
        from fleetlab.schedulers.slurm.site import notes

        return notes(self, cluster)

    @classmethod
    def not_simulated(cls) -> str:
        """Return what does not hold in its place."""
        return (
            "the site's Slurm is not simulated: dependencies are met when the log saw it, and limits, array throttles, "
            "states of partitions and reservations of the site do not hold"
        )

    def what_ifs(self, jobs: pl.DataFrame | None = None) -> tuple[SettingChange, ...]:
        """Return changes of its limits, loops, epilog and advance reservations."""
        from fleetlab.schedulers.slurm.site import what_ifs

        return what_ifs(self)

    def refuses(self, job: Mapping[str, Any]) -> str:
        """Return the MaxTime of its partitions that its time limit is above."""
        parts = [self.partition(name) for name in job.get("partitions") or ()]
        limit = job.get("limit") or 0.0
        if not parts or any(limit <= part.max_time for part in parts):
            return ""
        longest = max(parts, key=lambda part: part.max_time)
        return f"its time limit of {duration(limit)} is above MaxTime of {longest.name}, {duration(longest.max_time)}"

    def ranks_by(self) -> str:
        """Return the factors of the multifactor priority with their weights, the largest first."""
        if not self.priority.multifactor:
            return ""
        own = self.priority.weights
        weights = {"fair share": own.fair_share, "age": own.age, "job size": own.job_size, "QOS": own.qos}
        named = sorted({**weights, "partition": own.partition}.items(), key=lambda item: -item[1])
        return ", ".join(f"{name} (weight {weight:,.0f})" for name, weight in named if weight)

    def variants(self, cycles: Floats | None, quotas: Sequence[float | Mapping[str, float]]) -> tuple[Scheduler, ...]:
        """Return it with other intervals and phases of its loops, another epilog, and limits of GPUs."""
        from fleetlab.schedulers.slurm.site import variants

        return variants(self, cycles, quotas)

    def config_lines(self, cluster: Cluster) -> str:
        """Return the lines of slurm.conf that say how jobs are scheduled; nodes stay those of the trace."""
        from fleetlab.schedulers.slurm.reader.conf_writer import scheduling_lines

        return scheduling_lines(self)

    def compare_config(self, entry: Path | str, cluster: Cluster) -> ConfigChange:
        """Change the lines of a file, or lines given as text; all else stays."""
        from fleetlab.schedulers.slurm.reader.conf_change import change_conf

        return change_conf(self, cluster, entry)

    def partition(self, name: str) -> Partition:
        """Return a partition by name, or one with defaults."""
        return next((p for p in self.partitions if p.name == name), Partition(name))
