"""The contract of schedulers: what each declares and does, and how it is found by name or by the files it reads.

A scheduler is a frozen record of its settings. Those of this project lie in a folder each, above this package; a
further one comes with a package of its own, as an entry point of the group `fleetlab.schedulers`.
"""

from __future__ import annotations

import math
from collections.abc import Iterable, Iterator, Mapping, Sequence
from dataclasses import dataclass, field
from enum import StrEnum
from functools import cache
from pathlib import Path
from typing import TYPE_CHECKING, Any, ClassVar, Self

from fleetlab.core.errors import PolicyError, TraceError
from fleetlab.core.names import clip, lookup
from fleetlab.core.plugins import others, registered
from fleetlab.core.queues import DAY, Qos, QueueTree
from fleetlab.core.records import from_values, to_values

if TYPE_CHECKING:
    from importlib.metadata import EntryPoint

    import polars as pl

    from fleetlab.core.cluster import Cluster
    from fleetlab.core.events import Event
    from fleetlab.core.progress import Progress
    from fleetlab.core.resample import Floats
    from fleetlab.core.scenario import Scenario
    from fleetlab.core.trace import Trace

GROUP = "fleetlab.schedulers"  # of entry points
NOT_SET = "not set"


class Feature(StrEnum):
    """What of a scenario a scheduler may honor; what it does not is refused, rounded up or taken from the log."""

    NODE_EVENTS = "node events"
    CHECKPOINTS = "checkpoints"
    RUNNING_JOBS = "running jobs at the start"
    FRACTIONS = "fractions of a GPU"  # without it, such a job holds the whole GPU
    GANGS = "gangs"  # without it, the instances of a job start and end on their own
    DEPENDENCIES = "dependencies"  # without it, a job is eligible when the log saw its dependencies met
    CONSTRAINTS = "constraints"  # on features of nodes
    TIME_LIMITS = "time limits"  # it plans by them
    LIMITS = "limits"  # of accounts and classes of service


@dataclass(frozen=True, slots=True)
class Accounts:
    """What a site's accounts and classes of service are, and how fast their usage decays."""

    tree: QueueTree = field(default_factory=QueueTree)
    qos: tuple[Qos, ...] = ()
    half_life: float = 7 * DAY  # s; 0: usage does not decay


@dataclass(frozen=True, slots=True)
class Setting:
    """One setting that differs between two configurations, as text."""

    name: str
    was: str
    becomes: str


@dataclass(frozen=True, slots=True)
class ConfigChange:
    """Another configuration of a scheduler, and in which settings it differs."""

    name: str
    scheduler: Scheduler
    settings: tuple[Setting, ...]
    notes: tuple[str, ...] = ()
    cluster: Cluster | None = None  # None: the same one


@dataclass(frozen=True, slots=True)
class SettingChange:
    """A change of settings for a diagnosis: what to do, what it requires, and which wait reasons it removes."""

    name: str
    title: str
    action: str
    requires: str
    removes: tuple[str, ...]
    scheduler: Scheduler  # with the change
    columns: tuple[pl.Expr, ...] = ()  # of jobs that change with it
    line: str = ""  # of its configuration that says the change; empty: more than a line


@dataclass(frozen=True, slots=True)
class QueueQuota:
    """What a queue has of one resource, by the names that its scheduler gives the amounts."""

    queue: str
    parent: str  # the queue or cohort above; empty: none
    flavor: str  # empty: the scheduler has none
    resource: str
    amounts: Mapping[str, float | None]  # CPU in cores, memory in bytes; None: no limit


class Scheduler:
    """Decides when and where jobs start, by rules of its own in place of an order and a backfill.

    A subclass is a frozen dataclass whose fields are its settings. `simulate` is what it must define; the other methods
    have defaults that a scheduler without configuration files needs not change.

    Attributes
    ----------
    name
        What it is called in options and files, such as `slurm`.
    title
        What it is called in sentences.
    schedules
        `jobs`, or `pods`.
    honors
        What of a scenario it honors beside jobs and nodes.
    has_defaults
        Whether its name alone is a configuration.
    files
        What of its configuration `read` takes, in words; empty: none.
    takes_lines
        Whether `compare_config` takes lines of a configuration too.
    draws
        What of a schedule is drawn at random, in a sentence; empty: nothing.
    lead
        Seconds in which it places all jobs that run when a simulation begins.
    recorded_runs
        File of simulated mean waits beside those of recorded real runs, which intervals are widened by; None: none.

    Examples
    --------
    >>> from dataclasses import dataclass
    >>> @dataclass(frozen=True)
    ... class Later(Scheduler):
    ...     name = "later"
    ...     title = "Later"
    ...     pause: float = 60.0
    >>> Later.from_values({"pause": 5.0})
    Later(pause=5.0)
    """

    __slots__ = ()

    name: ClassVar[str]
    title: ClassVar[str]
    schedules: ClassVar[str] = "jobs"
    honors: ClassVar[frozenset[Feature]] = frozenset()
    has_defaults: ClassVar[bool] = True
    files: ClassVar[str] = ""
    takes_lines: ClassVar[bool] = False
    draws: ClassVar[str] = ""
    lead: ClassVar[float] = 1.0
    recorded_runs: ClassVar[Path | None] = None

    # -- as files and words ------------------------------------------------------------------------------------------

    @classmethod
    def from_values(cls, values: Mapping[str, Any]) -> Self:
        """Build one from plain tables.

        Parameters
        ----------
        values
            Settings by name, as `to_values` gives them.

        Returns
        -------
        Scheduler
            The scheduler.

        Raises
        ------
        PolicyError
            If a setting is unknown or cannot be.

        Examples
        --------
        >>> scheduler_named("kai").from_values({"k_value": 0.5}).k_value
        0.5
        """
        return from_values(cls, values, f"configuration of {cls.title}")

    def to_values(self) -> dict[str, Any]:
        """Return its settings as plain tables.

        Returns
        -------
        dict
            Settings that differ from the defaults.

        Examples
        --------
        >>> scheduler_named("kai")().to_values()
        {}
        """
        return to_values(self)

    @classmethod
    def recognizes(cls, path: Path) -> bool:
        """Tell whether a file configures this scheduler.

        Parameters
        ----------
        path
            The file, or a folder.

        Returns
        -------
        bool
            Whether `read` takes it.

        Examples
        --------
        >>> Scheduler.recognizes(Path("slurm.conf"))
        False
        """
        return False

    @classmethod
    def read(cls, path: Path) -> Scheduler:
        """Read a configuration.

        Parameters
        ----------
        path
            The file, or a folder.

        Returns
        -------
        Scheduler
            The scheduler that it configures.

        Raises
        ------
        TraceError
            If it cannot be read.

        Examples
        --------
        >>> scheduler_named("slurm").read(Path("nowhere.conf"))  # doctest: +ELLIPSIS
        Traceback (most recent call last):
        fleetlab.core.errors.TraceError: ...
        """
        msg = f"{path}: {cls.title} has no configuration in files"
        raise TraceError(msg, hint=f"scheduler={cls.name}, or a table of its settings")

    # -- at a site ---------------------------------------------------------------------------------------------------

    def at(self, own: Scheduler) -> Scheduler:
        """Return the scheduler with what it takes over of the one that the trace's site has.

        Parameters
        ----------
        own
            The scheduler of the site.

        Returns
        -------
        Scheduler
            This one, where it takes nothing over.

        Examples
        --------
        >>> kai = scheduler_named("kai")()
        >>> kai.at(scheduler_named("slurm")()) == kai
        True
        """
        return self

    def accounts(self) -> Accounts | None:
        """Return its accounts and classes of service, which policies of the user see.

        Returns
        -------
        Accounts or None
            None where it has no such things.

        Examples
        --------
        >>> scheduler_named("kai")().accounts() is None
        True
        """
        return None

    def prepare(self, trace: Trace) -> Trace:
        """Return a trace of its log as jobs were submitted, without what only the log shows.

        Parameters
        ----------
        trace
            A trace whose scheduler this is.

        Returns
        -------
        Trace
            The trace itself where a row is a submission.

        Examples
        --------
        >>> import fleetlab
        >>> trace = fleetlab.synthesize(jobs=200)
        >>> scheduler_named("kai")().prepare(trace) is trace
        True
        """
        return trace

    def node_events(self, trace: Trace) -> tuple[Event, ...]:
        """Return what happened to nodes, where its log tells.

        Parameters
        ----------
        trace
            A trace whose scheduler this is.

        Returns
        -------
        tuple of Event
            The events.

        Examples
        --------
        >>> import fleetlab
        >>> scheduler_named("slurm")().node_events(fleetlab.synthesize(jobs=200))
        ()
        """
        return ()

    def as_of(self, at: float, first: float, cycles: Floats | None) -> Scheduler:
        """Return the scheduler on a clock on which `at` is second 0.

        Parameters
        ----------
        at
            The moment, in seconds of the trace.
        first
            The first submission, on the new clock.
        cycles
            When it is seen to have started jobs, in seconds of the trace; None: the log does not tell.

        Returns
        -------
        Scheduler
            This one, where no setting is a time.

        Examples
        --------
        >>> kai = scheduler_named("kai")()
        >>> kai.as_of(10.0, 0.0, None) == kai
        True
        """
        return self

    # -- what verbs ask ----------------------------------------------------------------------------------------------

    def simulate(
        self,
        scenario: Scenario,
        world: Any,  # noqa: ANN401
        *,
        progress: Progress | None = None,
        draws: int | None = None,
    ) -> Any:  # noqa: ANN401
        """Simulate the jobs and nodes of a scenario.

        Parameters
        ----------
        scenario
            The scenario: its cluster, `node_events`, `until` and seed.
        world
            Its jobs and nodes as arrays, a `fleetlab.sim.world.World`.
        progress
            Called as the simulation advances.
        draws
            How often what is drawn at random is drawn; None: as usual.

        Returns
        -------
        Schedule
            A `fleetlab.sim.schedule.Schedule`: when each job started and ended, and where it ran.

        Examples
        --------
        >>> import fleetlab
        >>> fleetlab.simulate("builtin:200", scheduler="kai").provenance.settings["scheduler"]
        {'kind': 'kai'}
        """
        msg = f"{type(self).__name__} does not define `simulate`"
        raise NotImplementedError(msg)

    def notes(self, scenario: Scenario, cluster: Cluster) -> list[str]:
        """Return what of its configuration does not hold in a simulation, or otherwise than one may think.

        Parameters
        ----------
        scenario
            The scenario that is simulated.
        cluster
            Its nodes.

        Returns
        -------
        list of str
            A sentence each.

        Examples
        --------
        >>> import fleetlab
        >>> s = fleetlab.Scenario.of("builtin:200", scheduler="kai")
        >>> s.scheduler.notes(s, s.cluster)
        []
        """
        return []

    @classmethod
    def not_simulated(cls) -> str:
        """Return the note of runs in which the rules of a policy replace it.

        Returns
        -------
        str
            A sentence.

        Examples
        --------
        >>> scheduler_named("kai").not_simulated()
        'KAI is not simulated'
        """
        return f"{cls.title} is not simulated"

    def explain_job(
        self,
        scenario: Scenario,
        world: Any,  # noqa: ANN401
        job: int,
    ) -> tuple[str, ...]:
        """Return what its log tells of one job, and what it waited for there.

        Parameters
        ----------
        scenario
            A scenario of a trace whose scheduler this is.
        world
            Its jobs and nodes as arrays, a `fleetlab.sim.world.World`.
        job
            The number of the job in the scenario.

        Returns
        -------
        tuple of str
            A sentence each; empty where the log tells no more than when it started.

        Examples
        --------
        >>> scheduler_named("kai")().explain_job(None, None, 0)
        ()
        """
        return ()

    def what_ifs(self, jobs: pl.DataFrame | None = None) -> tuple[SettingChange, ...]:
        """Return changes of its settings that a diagnosis tries.

        Parameters
        ----------
        jobs
            The jobs, of which some may wait in queues of their own; None: changes that are aimed at no queue.

        Returns
        -------
        tuple of SettingChange
            Changes; one that leaves scheduler and jobs as they are is not simulated.

        Examples
        --------
        >>> [change.name for change in scheduler_named("slurm")().what_ifs()]
        ['limits', 'loops', 'bf_max_job_array_resv', 'bf_max_job_test', 'epilog', 'reservations']
        """
        return ()

    def refuses(self, job: Mapping[str, Any]) -> str:
        """Return why a job with these columns would never start, as far as its request alone tells it.

        Parameters
        ----------
        job
            Columns of a workload, by name.

        Returns
        -------
        str
            The rule; empty: none is known.

        Examples
        --------
        >>> scheduler_named("slurm")().refuses({"partitions": ["gpu"], "limit": 60.0})
        ''
        """
        return ""

    def ranks_by(self) -> str:
        """Return what decides who is first, in words.

        Returns
        -------
        str
            Such as `age and fair share`; empty: it has no priorities.

        Examples
        --------
        >>> scheduler_named("slurm")().ranks_by()
        ''
        """
        return ""

    def variants(self, cycles: Floats | None, quotas: Sequence[float | Mapping[str, float]]) -> tuple[Scheduler, ...]:
        """Return configurations near this one, which a log of it may tell from this one.

        Parameters
        ----------
        cycles
            When it is seen to have started jobs, in seconds of the trace; None: the log does not tell.
        quotas
            GPUs that no user, or none of some users, is seen to exceed while jobs wait.

        Returns
        -------
        tuple of Scheduler
            Each with one setting changed, or a few that belong together.

        Examples
        --------
        >>> scheduler_named("kai")().variants(None, [])
        ()
        """
        return ()

    def teams(self, frame: pl.DataFrame) -> pl.Series | None:
        """Return whose each job is by its configuration.

        Parameters
        ----------
        frame
            Jobs.

        Returns
        -------
        polars.Series or None
            A name for each job; None: their queue tells it.

        Examples
        --------
        >>> import polars as pl
        >>> scheduler_named("slurm")().teams(pl.DataFrame()) is None
        True
        """
        return None

    def quotas(self) -> tuple[QueueQuota, ...]:
        """Return what each of its queues has of each resource.

        Returns
        -------
        tuple of QueueQuota
            One for each queue, flavor and resource; empty: it has no queues with quota.

        Examples
        --------
        >>> scheduler_named("kai")().quotas()[0].amounts
        {'quota': 0.0, 'limit': None, 'overQuotaWeight': 1.0}
        """
        return ()

    def with_quotas(self, edits: Iterable[QueueQuota]) -> Scheduler:
        """Return it with other amounts.

        Parameters
        ----------
        edits
            Rows of `quotas` with the amounts that change.

        Returns
        -------
        Scheduler
            The scheduler, of which all else stays.

        Raises
        ------
        PolicyError
            If there is no such queue, resource or amount.

        Examples
        --------
        >>> from dataclasses import replace
        >>> kai = scheduler_named("kai")()
        >>> kai.with_quotas([replace(kai.quotas()[0], amounts={"quota": 8})]).quotas()[0].amounts["quota"]
        8.0
        """
        edited = list(edits)
        rows = {(row.queue, row.flavor, row.resource): row for row in self.quotas()}
        for edit in edited:
            row = rows.get((edit.queue, edit.flavor, edit.resource))
            if row is None:
                where = f" in {edit.flavor}" if edit.flavor else ""
                msg = f"{self.title} has no quota of {edit.resource}{where} for a queue {edit.queue}"
                raise PolicyError(msg, hint=f"there are queues {clip(', '.join(sorted({q for q, _, _ in rows})))}")
            for name, amount in edit.amounts.items():
                lookup(f"amount of {edit.queue}", name, list(row.amounts))
                if amount is not None and not 0 <= amount < math.inf:
                    msg = f"{name} of {edit.queue} is not a number from 0 on: {amount}"
                    raise PolicyError(msg, hint="None is no limit")
        return self.replace_quotas(edited)

    def replace_quotas(self, edits: Sequence[QueueQuota]) -> Scheduler:
        """Return it with amounts that `with_quotas` has checked.

        Parameters
        ----------
        edits
            Rows that are there, with amounts that are there.

        Returns
        -------
        Scheduler
            The scheduler, of which all else stays.

        Examples
        --------
        >>> scheduler_named("slurm")().replace_quotas([]).title
        'Slurm'
        """
        return self

    def settings(self) -> dict[str, Any]:
        """Return its settings as comparisons show them.

        Returns
        -------
        dict
            Plain values.

        Examples
        --------
        >>> scheduler_named("kubernetes")().settings()["weights"]["ImageLocality"]
        1
        """
        return self.to_values()

    def config_lines(self, cluster: Cluster) -> str:
        """Return its settings as lines that `compare_config` takes.

        Parameters
        ----------
        cluster
            The nodes.

        Returns
        -------
        str
            Lines of a configuration; empty where it is not made of lines.

        Examples
        --------
        >>> import fleetlab
        >>> scheduler_named("slurm")().config_lines(fleetlab.Cluster.uniform(2, 8)).splitlines()[0]
        'SchedulerType=sched/backfill'
        """
        return ""

    def compare_config(self, entry: Path | str, cluster: Cluster) -> ConfigChange:
        """Read another configuration of this scheduler, and tell in which settings it differs.

        Parameters
        ----------
        entry
            A file, or lines of one where it `takes_lines`.
        cluster
            The nodes.

        Returns
        -------
        ConfigChange
            The other configuration.

        Raises
        ------
        PolicyError
            If the file configures another scheduler.
        TraceError
            If it cannot be read.

        Examples
        --------
        >>> scheduler_named("kai")().compare_config("nowhere.yaml", None)  # doctest: +ELLIPSIS
        Traceback (most recent call last):
        fleetlab.core.errors.TraceError: no such file: nowhere.yaml
        hint: ...
        """
        return compare_settings(self, read_scheduler(Path(entry)), Path(entry).name)


# -- by name, by values, by file ---------------------------------------------------------------------------------------


@cache
def schedulers() -> dict[str, type[Scheduler]]:
    """Return every scheduler by its name: those of this project, then those of other packages."""
    own: dict[str, type[Scheduler]] = {kind.name: kind for kind in registered("schedulers")}
    return own | {name: brought(point) for name, point in others(GROUP).items() if name not in own}


def brought(point: EntryPoint) -> type[Scheduler]:
    """Return the scheduler that another package brings, or say what is wrong with that package."""
    try:
        kind = point.load()
    except (ImportError, AttributeError) as e:
        what = f"cannot be loaded: {e}"
    else:
        if isinstance(kind, type) and issubclass(kind, Scheduler) and kind.name == point.name:
            return kind
        what = f"is no Scheduler with the name `{point.name}`"
    msg = f"the entry point `{point.name} = {point.value}` of an installed package {what}"
    raise PolicyError(msg, hint="mend or remove that package; docs/contribute/scheduler.md says what it needs")


def kind_of(values: Mapping[str, Any]) -> str:
    """Return the name of the scheduler of plain tables; before there were several, none was written down."""
    return str(values.get("kind") or next(iter(schedulers())))


def scheduler_named(name: str) -> type[Scheduler]:
    """Return a scheduler by its name.

    >>> scheduler_named("kai").title
    'KAI'
    """
    return schedulers()[lookup("scheduler", name, list(schedulers()))]


def names_alone() -> tuple[str, ...]:
    """Return the names that are a configuration by themselves."""
    return tuple(name for name, kind in schedulers().items() if kind.has_defaults)


def scheduler_values(scheduler: Scheduler) -> dict[str, Any]:
    """Return a scheduler as plain tables."""
    return {"kind": scheduler.name} | scheduler.to_values()


def scheduler_of(values: Mapping[str, Any]) -> Scheduler:
    """Build a scheduler from plain tables; undo `scheduler_values`."""
    from fleetlab.core.site_change import SiteChange

    kind = SiteChange if values.get("kind") == SiteChange.name else scheduler_named(kind_of(values))
    return kind.from_values({name: value for name, value in values.items() if name != "kind"})


def read_scheduler(path: Path) -> Scheduler:
    """Read the configuration of the scheduler that recognizes a file."""
    files = "; ".join(kind.files for kind in schedulers().values() if kind.files)
    if not path.exists():
        msg = f"no such file: {path}"
        raise TraceError(msg, hint=f"site, {', '.join(names_alone())}; MODULE:NAME of your own; or a file: {files}")
    for kind in schedulers().values():
        if kind.recognizes(path):
            return kind.read(path)
    msg = f"{path.name}: configures no scheduler"
    raise TraceError(msg, hint=f"{files}; or a file of a scheduler that an installed package names")


# -- two configurations of one scheduler -------------------------------------------------------------------------------


def compare_settings(own: Scheduler, other: Scheduler, name: str) -> ConfigChange:
    """Return another configuration with the settings in which it differs, which must be of the same scheduler."""
    if type(other) is not type(own):
        msg = f"{name}: configures {other.title}, but the scenario has {own.title}"
        raise PolicyError(msg, hint="compare configurations of one scheduler")
    was, becomes = (dict(_flat(one.settings())) for one in (own, other))
    names = [name for name in dict.fromkeys((*was, *becomes)) if was.get(name) != becomes.get(name)]
    changed = (Setting(name, was.get(name, NOT_SET), becomes.get(name, NOT_SET)) for name in names)
    return ConfigChange(name, other, tuple(changed))


def _flat(values: Mapping[str, Any], before: str = "") -> Iterator[tuple[str, str]]:
    for name, value in values.items():
        if isinstance(value, Mapping):
            yield from _flat(value, f"{before}{name}.")
        elif isinstance(value, (list, tuple)) and value and all(isinstance(v, Mapping) and "name" in v for v in value):
            yield from _flat({_title_of(v): _rest(v) for v in value}, f"{before}{name}.")
        else:
            yield f"{before}{name}", str(value)


def _title_of(one: Mapping[str, Any]) -> str:
    return "/".join(one[key] for key in ("namespace", "name") if one.get(key))


def _rest(one: Mapping[str, Any]) -> dict[str, Any]:
    return {key: value for key, value in one.items() if key not in ("namespace", "name")}
