"""Simulate a scheduler of one's own: it is asked at every event, or every so many seconds, and its actions are done.

At one moment nodes go down and come up, jobs end, jobs arrive, and timers ring, in this order; then the scheduler is
asked once. Its actions are done in their order, and one that cannot be is an error that names it.
"""

from __future__ import annotations

import math
from collections.abc import Callable, Iterable, Sequence
from operator import index
from pathlib import Path
from traceback import extract_tb
from typing import Any, NoReturn

import numpy as np
import polars as pl
from numpy.typing import NDArray

from fleetlab.core import Cluster, FleetlabError, PolicyError
from fleetlab.core.durations import plural
from fleetlab.core.events import Event, Recovery
from fleetlab.core.progress import Progress, silent
from fleetlab.sim.events import BACK, DRAIN, RECLAIM
from fleetlab.sim.kernel.cluster import ClusterState, JobAllocation
from fleetlab.sim.kernel.events import EventQueue
from fleetlab.sim.kernel.run_log import RunLog
from fleetlab.sim.kernel.service import IN_SERVICE, NodeService
from fleetlab.sim.kernel.view import (
    Action,
    Decides,
    Ended,
    Job,
    Migrate,
    Nodes,
    Preempt,
    Reserve,
    Resize,
    Running,
    Start,
    View,
    WakeAt,
    read_only,
)
from fleetlab.sim.kernel.work import Checkpoints, JobWork, on_tick
from fleetlab.sim.layout import TICK, Ints
from fleetlab.sim.schedule import Schedule
from fleetlab.sim.world import World

NODE, END, ARRIVE, WAKE = range(4)  # kinds of events, in the order in which they happen at one moment
REPORT = 500  # decisions between two reports of progress
MOST_IDLE = 100_000  # decisions in a row in which nothing happens and nothing is started
SHORT = 1.0  # seconds: so many decisions within it are a loop without end, though jobs run
FREE = ("up", "free_cpu", "free_memory", "free_gpu", "idle_gpus", "largest_free")  # as `Nodes` has them


def simulate_decisions(
    world: World, scheduler: Decides, cluster: Cluster, *, events: Sequence[Event] = (),
    recovery: Recovery | None = None, placement: str = "best_fit", seed: int = 0, until: float | None = None,
    progress: Progress | None = None,
) -> Schedule:  # fmt: skip
    """Simulate a world by a scheduler of one's own."""
    loop = DecideLoop(
        world, scheduler, cluster, events=events, recovery=recovery or Recovery(), placement=placement, seed=seed
    )
    return loop.simulate(math.inf if until is None else float(until), progress or silent)


class DecideLoop:
    """The state of a simulation."""

    def __init__(
        self, world: World, scheduler: Decides, cluster: Cluster, *, events: Sequence[Event], recovery: Recovery,
        placement: str, seed: int,
    ) -> None:  # fmt: skip
        self.world, self.scheduler = world, scheduler
        self.state, self.log = ClusterState(world, placement=placement, seed=seed), RunLog()
        self.now, self._every = 0.0, on_tick(float(getattr(scheduler, "every", 0.0)))
        self._rules = Checkpoints.of(recovery)
        self._done = 0
        self._changed = False  # whether anything but timers happened now
        self._actions: list[Action] = []  # of the last decision
        self._fruitless = 0  # decisions in a row which interrupt runs that have done no work
        self._interrupted = self._kept = False  # by this decision: a run; one that has done work
        self._freed: list[int] = []  # jobs of which a preemption was tried in this decision
        self._learners = [(0, 0.0)] * (world.learners + 1)  # how many have finished, and their mean runtime
        self._requests = _requests(world)
        self._jobs: dict[int, Job] = {}
        self._waiting: dict[int, Job] = {}
        self._in_order = True  # whether those are in the order of arrival: not, once a run was interrupted
        self._running: dict[int, Running] = {}
        self._work = [JobWork(float(work)) for work in world.runtime]
        self._tags = [0] * len(self._work)  # of runs: an end with another tag is of one that was cut short
        self._first_start = [math.nan] * len(self._work)
        self._places = world.places()
        self.arrived: list[Job] = []
        self.ended: list[Ended] = []
        self._reserved: dict[int, tuple[Ints, float]] = {}
        self._end = np.full(len(world.submit), np.nan)
        self._names = tuple(cluster.frame["node"].to_list())
        nodes = self.state.view.nodes
        self._free = [np.asarray(nodes[name]) for name in FREE]
        gpus = nodes.end_gpu - nodes.first_gpu
        self._fixed = read_only(gpus), read_only(np.where(gpus > 0, world.capacity.tier, -1))
        self._service = NodeService(
            world, cluster, events, title="a scheduler of one's own", save=recovery.save, seed=seed
        )
        arrivals = [(at, ARRIVE, k, 0) for k, at in enumerate(world.submit.tolist())]
        self.events = EventQueue(arrivals + self._service.events(NODE))
        self._coming = len(world.submit) + len(self._service)  # events other than timers

    # -- the clock ---------------------------------------------------------------------------------------------------

    def simulate(self, until: float, progress: Progress = silent) -> Schedule:
        """Run until all jobs are done, nothing can happen any more, or a time has come."""
        count, decisions, idle, ask = len(self.world.submit), 0, 0, math.inf
        since, repeats = -math.inf, 0  # decisions since a time at which something happened, or `SHORT` after that
        while self._done < count:
            time = min(self.events.next_time, ask)
            if time == math.inf or time > until:
                break
            self.now = time
            if self._happen():
                ask = min(ask, self._round(time))
            if self._changed:
                idle, since, repeats, self._fruitless = 0, time, 0, 0
            if time > since + SHORT:
                since, repeats = time, 0
            if ask > time:
                continue
            acted = self._decide()
            rests = not self._running and not self._coming
            repeats, idle = repeats + 1, idle + 1 if rests else 0
            if max(repeats, idle, self._fruitless) > MOST_IDLE:
                self._refuse_loop(repeats=repeats, idle=idle)
            ask = self._round(time + TICK) if self._every and (acted or not rests) else math.inf
            decisions += 1
            if decisions % REPORT == 0:
                progress("simulating jobs", self._done, self._done / count)
        return self._schedule(until)

    def _refuse_loop(self, *, repeats: int, idle: int) -> NoReturn:
        """Refuse a scheduler that is asked without end, and say what it does."""
        does = ", ".join(map(str, self._actions[:3])) + (" …" if len(self._actions) > 3 else "") or "nothing"
        if idle > MOST_IDLE:
            why, hint = "while no job runs or comes, and starts none", "leave out WakeAt where nothing has changed"
        elif repeats > MOST_IDLE:
            why, hint = f"within {SHORT:g} s in which nothing happens", "let WakeAt take a later time"
        else:
            why = "and each time interrupts runs that have done no work since they began"
            hint = "let a job run for longer than `save` and `restart` take before it is moved or resized"
        msg = f"{self._name} is asked {MOST_IDLE:,} times in a row {why}: at {self.now:g} s it does {does}"
        raise PolicyError(msg, hint=hint)

    def _round(self, time: float) -> float:
        """When the scheduler decides about what happens at a time."""
        return math.ceil(time / self._every) * self._every if self._every else time

    def _happen(self) -> bool:
        """Let happen what happens now; return whether there was anything, timers included."""
        happened = self._changed = False
        for kind, number, tag in self.events.pop_until(self.now):
            if kind == END and tag != self._tags[number]:
                continue
            if kind == ARRIVE and number in self._places:  # it runs already: there is nothing to decide
                self._coming -= 1
                self._run_on(number)
                continue
            happened = True
            if kind != WAKE:
                self._changed = True
                self._coming -= 1
            if kind == NODE:
                self._strike(number)
            elif kind == END:
                self._finish(number)
            elif kind == ARRIVE:
                self._arrive(number)
        return happened

    def _arrive(self, k: int) -> None:
        self._jobs[k] = self._waiting[k] = job = self._job(k)
        self.arrived.append(job)

    def _run_on(self, k: int) -> None:
        """Let a job run where it is when the simulation begins."""
        self._jobs[k], place = self._job(k), self._places[k]
        self.state.hold(k, JobAllocation(tuple(place.node.tolist()), tuple(place.gpus.tolist())))
        self._begin(k)

    def _job(self, k: int) -> Job:
        of, estimate = int(self.world.learner[k]), float(self.world.estimate[k])
        if of >= 0:
            estimate = self._learners[of if self._learners[of][0] else -1][1]
        return Job(k, float(self.world.submitted[k]), estimate, *self._requests[k])

    # -- runs --------------------------------------------------------------------------------------------------------

    def _begin(self, k: int) -> None:
        """Let a job run where it has been allocated."""
        job, work, where = self._jobs[k], self._work[k], self.state.held[k]
        self._waiting.pop(k, None)
        self._reserved.pop(k, None)
        if math.isnan(self._first_start[k]):
            self._first_start[k] = self.now
        seconds = work.begin(self.now, self._rules, len(where.nodes) / job.instances)
        done = float(self.world.runtime[k]) - work.work
        self._running[k] = Running(job, self.now, where.nodes, done, work.overhead)
        self.log.begin(k, self.now, where)
        self.events.push(self.now + seconds, END, k, self._tags[k])
        self._coming += 1

    def _wait_again(self, k: int) -> None:
        self._waiting[k] = self._jobs[k]
        self._in_order = False

    def _leave(self, k: int) -> None:
        self.state.release(k)
        self.log.end(k, self.now)
        del self._running[k]

    def _finish(self, k: int) -> None:
        job, runtime = self._jobs[k], float(self.world.runtime[k])
        self._leave(k)
        self._work[k].finish(self._rules)
        self._end[k] = self.now
        self._done += 1
        self.ended.append(Ended(job, self._first_start[k], self.now, runtime))
        if self.world.learner[k] >= 0:
            for of in (int(self.world.learner[k]), -1):
                count, average = self._learners[of]
                self._learners[of] = count + 1, average + (runtime - average) / (count + 1)

    def _interrupt(self, k: int, *, saved: bool) -> None:
        """End a run early: work is kept up to now if it is saved, else up to the last checkpoint."""
        work = self._work[k]
        before = work.work
        work.interrupt(self.now, self._rules, saved=saved)
        self._interrupted, self._kept = True, self._kept or work.work < before
        self._tags[k] += 1
        self._coming -= 1
        self._leave(k)

    # -- nodes -------------------------------------------------------------------------------------------------------

    def _strike(self, number: int) -> None:
        node, what = self._service.apply_event(number, self.now)
        if what not in (BACK, DRAIN):
            for k in [k for k, run in self._running.items() if node in run.nodes]:
                self._interrupt(k, saved=what == RECLAIM)
                self._work[k].failures += 1
                self._wait_again(k)
        self.state.set_up(node, up=self._service.state[node] == IN_SERVICE)

    # -- decisions ---------------------------------------------------------------------------------------------------

    def _decide(self) -> bool:
        """Ask the scheduler and do what it says; return whether that was anything but timers."""
        if not self._in_order:
            self._waiting, self._in_order = dict(sorted(self._waiting.items())), True
        if self.state.stale:
            self.state.refit()
        mark = self.state.mark()
        self._freed = []
        self._actions = self._ask()
        self.state.discard(mark)
        self.arrived, self.ended = [], []
        acted, self._interrupted, self._kept = False, False, False
        for action in self._actions:
            if not isinstance(action, Action):
                msg = f"{self._name} returns something that is no action: {action!r}"
                what = "Start, Preempt, Migrate, Resize, Reserve and WakeAt, of the package `fleetlab`"
                if action is None:
                    what = "not None, which `view.try_start(job)` returns where a job does not fit"
                raise PolicyError(msg, hint=f"{self._where}: actions are {what}")
            self._do(action)
            acted = acted or not isinstance(action, WakeAt)
        self.state.commit()
        if self._interrupted:
            self._fruitless = 0 if self._kept else self._fruitless + 1
        return acted

    def _ask(self) -> list[Action]:
        """Return what the scheduler says; an error in its own code is one that names the line."""
        try:
            actions = self.scheduler.decide(View(self, self.now))
            if isinstance(actions, Iterable):
                return list(actions)  # one that yields them tries and decides until here
        except FleetlabError:
            raise
        except KeyboardInterrupt as error:
            where = line_of(error, self.scheduler.decide)
            msg = f"{self._name} was in `decide` at {self.now:g} s: see {where}"
            raise KeyboardInterrupt(msg) from error
        except Exception as error:
            msg = f"{self._name} raises {type(error).__name__} in `decide` at {self.now:g} s: {error}"
            raise PolicyError(msg, hint=f"see {line_of(error, self.scheduler.decide)}") from error
        msg = f"{self._name} returns no actions, but {actions!r}"
        hint = "return a list of actions, such as [fleetlab.Start(job)], or an empty one"
        raise PolicyError(msg, hint=f"{self._where}: {hint}")

    @property
    def waiting(self) -> tuple[Job, ...]:
        """Jobs that wait, in the order of arrival."""
        return tuple(self._waiting.values())

    @property
    def running(self) -> tuple[Running, ...]:
        """Jobs that run, in the order of their starts."""
        return tuple(self._running.values())

    def waits(self, k: int) -> bool:
        """Whether a job waits, also after what was tried."""
        return k in self._waiting and k not in self.state.held

    def nodes(self) -> Nodes:
        """Return what is up and free now."""
        return Nodes._make((self._names, *(read_only(column) for column in self._free), *self._fixed))

    def able(self, job: Job | Running) -> NDArray[np.bool_]:
        """Return which nodes hold one instance of a job now."""
        return self.state.able(job.id)

    def try_start(self, action: Start) -> Start | None:
        """Allocate what a start needs, until the decision ends; None: it does not fit."""
        k, count, nodes = self._start_of(action)
        barred = self._barred(k)
        if nodes and (len(nodes) != count or (barred is not None and barred[nodes].any())):
            return None
        if self.state.allocate(k, count, nodes, barred) is not None:
            return None
        names = self.state.held[k].nodes
        return Start(action.job, names, action.instances)

    def try_preempt(self, action: Preempt) -> Preempt:
        """Free what a job holds, until the decision ends."""
        k = self._running_row(action, action.job)
        self.state.release(k)
        self._freed.append(k)
        return action

    def _do(self, action: Action) -> None:
        if isinstance(action, Start):
            k, count, nodes = self._start_of(action)
            self._allocate(action, k, count, nodes)
            self._begin(k)
        elif isinstance(action, Preempt):
            k = self._running_row(action, action.job)
            self._interrupt(k, saved=True)
            self._work[k].preemptions += 1
            self._wait_again(k)
        elif isinstance(action, Migrate | Resize):
            self._move(action)
        elif isinstance(action, Reserve):
            k, nodes = self._waiting_row(action, action.job), self._nodes(action, action.nodes)
            self._reserved.pop(k, None)
            if nodes:
                at = self._time(action, action.at)
                self._reserved[k] = np.unique(nodes), at
                self._wake(max(self.now, at))
        else:
            time = self._time(action, action.time)
            if not self.now < time < math.inf:
                self._refuse(action, f"it is {self.now:g} s already", "WakeAt takes a time after now")
            self._wake(on_tick(time))

    def _wake(self, time: float) -> None:
        if time > self.now:
            self.events.push(time, WAKE, 0)

    def _move(self, action: Migrate | Resize) -> None:
        """Let a running job go on elsewhere, or with another number of instances."""
        k = self._running_row(action, action.job)
        job, before, nodes = self._jobs[k], list(self._running[k].nodes), self._nodes(action, action.nodes)
        count = len(before) if isinstance(action, Migrate) else self._count(action, action.instances)
        if not 1 <= count <= job.instances:
            what = f"the job has {plural(job.instances, 'instance')}"
            self._refuse(action, what, "give it from 1 to as many as it asks for")
        if isinstance(action, Resize) and count == len(before) and nodes in ([], before):
            return  # it has that size already, on these nodes
        self._interrupt(k, saved=True)
        if not nodes:  # where it is; where the placement says for those that it has not had
            self._allocate(action, k, min(count, len(before)), before[:count])
            nodes = before[:count] + self._more(action, k, count - len(before))
            self.state.release(k)
        self._allocate(action, k, count, nodes)
        self._work[k].preemptions += isinstance(action, Migrate)
        self._begin(k)

    def _more(self, action: Action, k: int, count: int) -> list[int]:
        """Where the placement puts so many instances more beside those of a job."""
        if count <= 0:
            return []
        mark, own = self.state.mark(), self.state.held.pop(k)
        self._allocate(action, k, count, ())
        more = list(self.state.held[k].nodes)
        self.state.discard(mark)
        self.state.held[k] = own
        return more

    def _allocate(self, action: Action, k: int, count: int, nodes: Sequence[int]) -> None:
        """Allocate what an action needs, or refuse it."""
        if nodes and len(nodes) != count:
            self._refuse(action, f"{len(nodes)} nodes for {count} instances", "name the node of each instance")
        barred = self._barred(k)
        if barred is not None and any(barred[node] for node in nodes):
            self._refuse(action, "another job has reserved one of these nodes", "`try_start` knows reservations")
        failed = self.state.allocate(k, count, nodes, barred)
        if failed is not None:
            where = f"on node `{self._names[nodes[failed]]}`" if nodes else "on any node"
            down = ", which takes no jobs," if nodes and self._service.state[nodes[failed]] != IN_SERVICE else ""
            what = f"instance {failed + 1} of {count} does not fit {where}{down} at {self.now:g} s"
            hint = "`view.try_start(job)` returns None where a job does not fit"
            still = [k for k in self._freed if k in self._running and self._running[k].since < self.now]
            if still:
                hint = f"`view.try_preempt` was tried for {self._jobs[still[0]]}: return that action before this one"
            self._refuse(action, what, hint)

    def _barred(self, k: int) -> NDArray[np.bool_] | None:
        """Return the nodes that others have reserved before this job is estimated to end; None: no others are."""
        if not self._reserved:
            return None
        barred = np.zeros(len(self._names), dtype=np.bool_)
        for other, (nodes, at) in self._reserved.items():
            if other != k and self.now + self._jobs[k].estimate > at:
                barred[nodes] = True
        return barred

    # -- what actions name ---------------------------------------------------------------------------------------------

    @property
    def _name(self) -> str:
        return f"scheduler `{type(self.scheduler).__name__}`"

    @property
    def _where(self) -> str:
        return f"`{type(self.scheduler).__name__}.decide` ({line_of(None, self.scheduler.decide)})"

    def _refuse(self, action: Action, why: str, hint: str) -> NoReturn:
        msg = f"{self._name} cannot do {action}: {why}"
        raise PolicyError(msg, hint=f"{self._where}: {hint}")

    def _row_of(self, action: Action, job: Job | Running | int) -> int:
        number = job if isinstance(job, int | np.integer) else getattr(job, "id", None)
        if number not in self._jobs:
            self._refuse(action, "no job of that number has arrived", "`view.waiting` and `view.running` have the jobs")
        return int(number)

    def _waiting_row(self, action: Action, job: Job | Running | int) -> int:
        k = self._row_of(action, job)
        if k in self.state.held or not (k in self._waiting or k in self._running):
            why = "the job runs already" if k in self.state.held else "the job has ended"
            self._refuse(action, why, "`view.waiting` has the jobs that wait, and each is started once")
        return k

    def _running_row(self, action: Action, job: Job | Running | int) -> int:
        k = self._row_of(action, job)
        if k not in self.state.held:
            self._refuse(action, "the job does not run", "`view.running` has the jobs that run")
        return k

    def _nodes(self, action: Action, nodes: Sequence[int]) -> list[int]:
        hint = "nodes are a list of numbers from 0 on, places in the columns of `view.nodes`"
        try:
            numbers = [index(node) for node in nodes]
        except TypeError:
            self._refuse(action, f"not a list of numbers: {nodes!r}", hint)
        if not all(0 <= node < len(self._names) for node in numbers):
            self._refuse(action, f"there are {len(self._names)} nodes", hint)
        return numbers

    def _count(self, action: Action, value: int) -> int:
        try:
            return index(value)
        except TypeError:
            self._refuse(action, f"not a number of instances: {value!r}", "give a whole number")

    def _time(self, action: Action, value: float) -> float:
        try:
            return float(value)
        except (TypeError, ValueError):
            self._refuse(action, f"not a time: {value!r}", "give seconds, such as `view.now + 60`")

    def _start_of(self, action: Start) -> tuple[int, int, list[int]]:
        k = self._waiting_row(action, action.job)
        count = self._jobs[k].instances if action.instances is None else self._count(action, action.instances)
        if not 1 <= count <= self._jobs[k].instances:
            what = f"the job has {plural(self._jobs[k].instances, 'instance')}"
            self._refuse(action, what, "start it with 1 to as many as it asks for")
        return k, count, self._nodes(action, action.nodes)

    # -- the schedule --------------------------------------------------------------------------------------------------

    def _schedule(self, until: float) -> Schedule:
        over = self._done == len(self._work)
        stopped = self.now if over or until == math.inf else until
        return self.log.finish(self.world, self._work, self._rules, end=self._end, until=stopped, service=self._service)


def line_of(error: BaseException | None, function: Callable[..., Any]) -> str:
    """Return the file and line of a function; of an error, the last line of it in the same file."""
    code = getattr(function, "__code__", None)
    if code is None:
        return type(function).__name__
    frames = [] if error is None else [f for f in extract_tb(error.__traceback__) if f.filename == code.co_filename]
    return f"{Path(code.co_filename).name}, line {frames[-1].lineno if frames else code.co_firstlineno}"


def _requests(world: World) -> list[tuple[Any, ...]]:
    """Return what jobs ask for, and whose they are, in the order of the fields of `Job`."""
    frame, shapes = world.frame, world.shapes[world.shape]
    names = (frame[name].cast(pl.String).fill_null("") for name in ("user", "group", "queue", "app", "qos"))
    amounts = (world.instances, shapes.cpu, shapes.memory, shapes.milli * shapes.gpus, world.priority)
    limit = frame["limit"].cast(pl.Float64).fill_null(math.inf)
    return list(zip(*(column.tolist() for column in amounts), *names, limit.to_list(), strict=True))
