"""What a scheduler of one's own sees, and what it may do: nothing that a scheduler could not know is here."""

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import dataclass
from functools import cached_property
from typing import TYPE_CHECKING, NamedTuple, Protocol

import numpy as np
from numpy.typing import NDArray

from fleetlab.sim.layout import Floats, Ints

if TYPE_CHECKING:
    from fleetlab.sim.kernel.decide import DecideLoop

Bools = NDArray[np.bool_]
ANYWHERE: tuple[int, ...] = ()  # where the placement puts it


@dataclass(frozen=True, slots=True, eq=False, repr=False)
class Job:
    """A job that has arrived: what it asks for, and how long it is estimated to run."""

    id: int  # its place in the order of arrival
    submit: float  # seconds
    estimate: float  # estimated runtime, s
    instances: int  # gang size
    cpu_milli: int  # of each instance, as the other requests
    memory_mib: int
    gpu_milli: int  # below 1000 a fraction of one GPU, else 1000 times whole ones
    priority: int
    user: str
    group: str
    queue: str
    app: str
    qos: str
    limit: float  # time limit, s; infinity: none

    def __repr__(self) -> str:
        return f"<Job {self.id}>"

    @property
    def gpus(self) -> float:
        """GPUs of all its instances."""
        return self.instances * self.gpu_milli / 1000


@dataclass(frozen=True, slots=True, eq=False, repr=False)
class Running:
    """A job that runs, since when and where."""

    job: Job
    since: float  # of this run
    nodes: tuple[int, ...]  # of each instance
    done: float  # seconds of work done before this run, at the speed of all its instances
    loads: float  # work that is not done at the begin of this run, in which it saves and restarts, s

    def __repr__(self) -> str:
        return f"<Running {self.job.id}>"

    @property
    def id(self) -> int:
        """The number of its job."""
        return self.job.id

    def progress(self, now: float) -> float:
        """Return the seconds of work it has done, at the speed of all its instances."""
        return self.done + max(0.0, (now - self.since) * len(self.nodes) / self.job.instances - self.loads)

    def remaining(self, now: float) -> float:
        """Return the estimated seconds of work left, at the speed of all its instances."""
        return max(0.0, self.job.estimate - self.progress(now))


@dataclass(frozen=True, slots=True, eq=False)
class Ended:
    """A job that has ended: now its runtime is known."""

    job: Job
    start: float  # of its first run
    end: float
    runtime: float  # seconds of work


class Nodes(NamedTuple):
    """Nodes, in the order of the cluster; columns that cannot be written."""

    name: tuple[str, ...]
    up: Ints  # 1: takes jobs; 0: down or drained
    free_cpu: Ints  # milli
    free_memory: Ints  # MiB
    free_gpu: Ints  # milli, on all its GPUs
    idle: Ints  # GPUs that nobody holds any of
    most: Ints  # the most that is free on one GPU, milli
    gpus: Ints
    gpu_type: Ints  # 0 the weakest type of the cluster, 1 the next; -1 without GPUs


# -- actions -----------------------------------------------------------------------------------------------------------


@dataclass(frozen=True, slots=True)
class Start:
    """Start a waiting job.

    Parameters
    ----------
    job
        The job, or its number.
    nodes
        The node of each instance; none: where the placement of the scenario puts them.
    instances
        With how many of its instances it starts (default: all); it runs as much more slowly.

    Examples
    --------
    >>> Start(3, nodes=[0, 0])
    Start(job=3, nodes=[0, 0], instances=None)
    """

    job: Job | int
    nodes: Sequence[int] = ANYWHERE
    instances: int | None = None


@dataclass(frozen=True, slots=True)
class Preempt:
    """Let a running job wait again; what it has done is saved, at the cost that `recovery` says.

    Parameters
    ----------
    job
        The job, as a number, a `Job` or a `Running`.

    Examples
    --------
    >>> Preempt(3)
    Preempt(job=3)
    """

    job: Job | Running | int


@dataclass(frozen=True, slots=True)
class Migrate:
    """Move a running job to other nodes, at the cost of a preemption and a restart.

    Parameters
    ----------
    job
        The job, as a number, a `Job` or a `Running`.
    nodes
        The node of each instance.

    Examples
    --------
    >>> Migrate(3, nodes=[1])
    Migrate(job=3, nodes=[1])
    """

    job: Job | Running | int
    nodes: Sequence[int]


@dataclass(frozen=True, slots=True)
class Resize:
    """Let a running job go on with another number of its instances, as much faster or more slowly.

    It costs what a preemption and a restart do, in seconds, whatever the number.

    Parameters
    ----------
    job
        The job, as a number, a `Job` or a `Running`.
    instances
        From 1 to as many as it asks for.
    nodes
        The node of each instance; none: where it is, and where the placement of the scenario puts more.

    Examples
    --------
    >>> Resize(3, instances=2)
    Resize(job=3, instances=2, nodes=())
    """

    job: Job | Running | int
    instances: int
    nodes: Sequence[int] = ()


@dataclass(frozen=True, slots=True)
class Reserve:
    """Keep nodes for a waiting job from a time on: until it starts, no job starts there that is estimated to be longer.

    Parameters
    ----------
    job
        The job, or its number. A new reservation takes the place of its last one.
    nodes
        The nodes that are kept; none: lift the reservation.
    at
        From when on, s. The scheduler is asked then.

    Examples
    --------
    >>> Reserve(3, nodes=[0, 1], at=3600.0)
    Reserve(job=3, nodes=[0, 1], at=3600.0)
    """

    job: Job | int
    nodes: Sequence[int]
    at: float = 0.0


@dataclass(frozen=True, slots=True)
class WakeAt:
    """Ask the scheduler at a time, whatever happens until then.

    Parameters
    ----------
    time
        Seconds, later than now.

    Examples
    --------
    >>> WakeAt(60.0)
    WakeAt(time=60.0)
    """

    time: float


Action = Start | Preempt | Migrate | Resize | Reserve | WakeAt


class Decides(Protocol):
    """A scheduler of one's own: any object with this method, which may keep what it learns."""

    def decide(self, view: View) -> Sequence[Action]:
        """Return what to do now, in this order."""
        ...


# -- the view ----------------------------------------------------------------------------------------------------------


class View:
    """The moment at which a scheduler decides.

    `try_start` and `try_preempt` tell whether something fits beside what was tried before in the same decision. What
    they return is an action; nothing happens until `decide` returns it. A view is of one moment: keep what is read from
    it, and not the view itself.
    """

    def __init__(self, loop: DecideLoop, now: float) -> None:
        self._loop, self._state = loop, loop.state
        self.now = now

    @cached_property
    def waiting(self) -> tuple[Job, ...]:
        """Jobs that wait, in the order of their arrival."""
        return self._loop.waiting

    @cached_property
    def running(self) -> tuple[Running, ...]:
        """Jobs that run, in the order in which they started."""
        return self._loop.running

    @cached_property
    def arrived(self) -> tuple[Job, ...]:
        """Jobs that have arrived since the last decision."""
        return tuple(self._loop.arrived)

    @cached_property
    def ended(self) -> tuple[Ended, ...]:
        """Jobs that have ended since the last decision."""
        return tuple(self._loop.ended)

    @cached_property
    def nodes(self) -> Nodes:
        """Nodes, as they are before anything is tried."""
        return self._loop.nodes()

    def __repr__(self) -> str:
        return f"<View at {self.now:g} s: {len(self.waiting)} jobs wait, {len(self.running)} run>"

    def able(self, job: Job | Running) -> Bools:
        """Return which nodes hold one instance of a job, beside what was tried."""
        return self._loop.able(job)

    def try_start(self, job: Job, nodes: Sequence[int] = ANYWHERE, instances: int | None = None) -> Start | None:
        """Return the start of a waiting job on these nodes, or where the placement puts it; None: it does not fit."""
        if nodes is ANYWHERE and instances is None and type(job) is Job:  # in a long queue, what most calls are
            state, k = self._state, job.id
            if state.unfit[state.shape[k]] <= job.instances and not state.stale and self._loop.waits(k):
                return None
        self.nodes  # noqa: B018  as they are before it is tried
        return self._loop.try_start(Start(job, nodes, instances))

    def try_preempt(self, job: Running | Job) -> Preempt:
        """Return the preemption of a running job; what it holds is free for what is tried next."""
        self.nodes  # noqa: B018  as they are before it is tried
        return self._loop.try_preempt(Preempt(job))


def read_only(column: Ints | Floats) -> Ints:
    """Return a copy that cannot be written."""
    view: Ints = np.array(column)
    view.flags.writeable = False
    return view
