"""What Volcano and KAI have in common as schedulers: queues of which those with none below take jobs, and gangs."""

from __future__ import annotations

from collections.abc import Callable, Iterable, Sequence
from dataclasses import dataclass
from pathlib import Path
from typing import TYPE_CHECKING, Any, ClassVar

from fleetlab.core.durations import plural
from fleetlab.core.errors import PolicyError
from fleetlab.core.names import clip
from fleetlab.core.schedulers import ConfigChange, Feature, Scheduler, compare_settings
from fleetlab.core.schedulers import read_scheduler as read_any

if TYPE_CHECKING:
    import polars as pl

    from fleetlab.core.cluster import Cluster
    from fleetlab.core.progress import Progress
    from fleetlab.core.scenario import Scenario
    from fleetlab.schedulers.gangs.loop import Loop
    from fleetlab.schedulers.gangs.pod_groups import Amounts, PodGroup
    from fleetlab.schedulers.kubernetes.config import SchedulingNode
    from fleetlab.sim.schedule import Schedule
    from fleetlab.sim.world import World

COLUMNS = ("queue", "group", "user")  # of a job: the first that names a queue says where it waits
DEFAULTS = ("default", "default-queue")


@dataclass(frozen=True)
class GangScheduler(Scheduler):
    """A scheduler of pod groups by queues; a subclass says how it decides, and what can never start."""

    schedules: ClassVar[str] = "pods"
    # The instances of a job are a gang.
    honors: ClassVar[frozenset[Feature]] = frozenset(
        {Feature.GANGS, Feature.NODE_EVENTS, Feature.CHECKPOINTS, Feature.RUNNING_JOBS}
    )

    queues: tuple[Any, ...] = ()

    @classmethod
    def recognizes(cls, path: Path) -> bool:
        """Whether a file has Queues of it."""
        from fleetlab.schedulers.kubernetes.reader.gang_schedulers import recognizes

        return recognizes(path, cls.name)

    @classmethod
    def read(cls, path: Path) -> Scheduler:
        """Read a file of Queues, and of its own configuration."""
        from fleetlab.schedulers.kubernetes.reader.gang_schedulers import read_gang_scheduler

        return read_gang_scheduler(path)

    def compare_config(self, entry: Path | str, cluster: Cluster) -> ConfigChange:
        """Read a file of Queues or settings, which are applied to these."""
        from fleetlab.schedulers.kubernetes.reader.gang_schedulers import read_gang_scheduler

        path = Path(entry)
        return compare_settings(self, read_gang_scheduler(path, self) if path.exists() else read_any(path), path.name)

    def simulate(
        self, scenario: Scenario, world: World, *, progress: Progress | None = None, draws: int | None = None
    ) -> Schedule:
        """Simulate cycle by cycle; a job is a pod group."""
        from fleetlab.schedulers.gangs.world import play

        return play(world, self, scenario, progress)

    def loop(self, nodes: Sequence[SchedulingNode], seed: int) -> Loop:
        """Return a simulation that has not begun."""
        raise NotImplementedError

    def refusals(self, total: Amounts) -> Callable[[PodGroup], str]:
        """Return what says why a group can never start on a cluster with so much of each resource; empty: it can."""
        raise NotImplementedError

    def limited_gpus(self) -> dict[str, float]:
        """Return the most GPUs that each queue may hold; below 0: it has no limit."""
        raise NotImplementedError

    def teams(self, frame: pl.DataFrame) -> pl.Series:
        """Return the queue that each job waits in."""
        import polars as pl

        return pl.Series("team", [name or "none" for name in self.queues_of(frame)], dtype=pl.String)

    @property
    def leaves(self) -> list[str]:
        """The queues that take jobs: those with none below."""
        parents = {queue.parent for queue in self.queues}
        return [queue.name for queue in self.queues if queue.name not in parents]

    def queues_of(self, frame: pl.DataFrame) -> list[str]:
        """Return the queue of each job: the first that its columns name, or the default; empty: there is none."""
        leaves = self.leaves
        default = next((name for name in DEFAULTS if name in leaves), leaves[0] if len(leaves) == 1 else "")
        columns = [frame[name].cast(str).to_list() for name in COLUMNS]
        names = set(leaves)
        return [next((name for name in named if name in names), default) for named in zip(*columns, strict=True)]

    def check_tree(self, *, root: str = "") -> None:
        """Refuse queues of which two have one name, or of which a parent is missing or below itself."""
        parents = {queue.name: queue.parent for queue in self.queues}
        if len(parents) < len(self.queues):
            msg = "several queues have the same name"
            raise PolicyError(msg, hint="give each Queue a name of its own")
        for name in parents:
            path = [name]
            while (above := parents[path[-1]]) not in ("", root):
                if above not in parents:
                    msg = f"queue {path[-1]} has a parent that is not there: {above}"
                    raise PolicyError(msg, hint="list the parent as a Queue too, or leave it out")
                if above in path:
                    msg = f"the parents of queue {name} run in a circle: {' under '.join([*path, above])}"
                    raise PolicyError(msg, hint="a queue cannot be below itself")
                path.append(above)


# -- what a reader must know of queues ---------------------------------------------------------------------------------


def unused(kind: str, queues: Sequence[str], used: Iterable[str | None]) -> list[str]:
    """Say which queues no job comes to."""
    there = set(used)
    others = [name for name in queues if name not in there]
    return [f"no job comes to {plural(len(others), kind)}: {clip(', '.join(others))}"] if others else []


def oversold(what: str, amounts: Sequence[float], gpus: int) -> list[str]:
    """Say where queues are granted more GPUs than the cluster has."""
    total = sum(amount for amount in amounts if amount > 0)
    if total <= gpus:
        return []
    return [f"{what} adds up to {total:,g} GPUs, and the cluster has {gpus:,}: not all of it can be had at once"]
