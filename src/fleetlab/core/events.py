"""Events: what happens to nodes during a run; and checkpoints, which decide what jobs lose by it.

simulate(workload, cluster, events=[Faults(mtbf=30 * 86400, mttr=3600)], recovery=Recovery(every=600, save=10))
"""

from __future__ import annotations

import math
from collections.abc import Mapping, Sequence
from dataclasses import asdict, dataclass, fields
from pathlib import Path
from typing import Any

from fleetlab.core import toml
from fleetlab.core.errors import WorkloadError
from fleetlab.core.names import lookup


@dataclass(frozen=True, slots=True)
class Recovery:
    """Checkpoints: what a job keeps when it loses its nodes, and what that costs.

    A preempted job writes one more checkpoint before it stops.

    Parameters
    ----------
    every
        A running job writes a checkpoint after so many seconds of work; 0: none, and a failed job starts over.
    save
        Seconds that writing one takes.
    restart
        Seconds that restarting from one takes.

    Examples
    --------
    >>> Recovery(every=600, save=10, restart=30)
    Recovery(every=600, save=10, restart=30)
    """

    every: float = 0.0
    save: float = 0.0
    restart: float = 0.0

    def __post_init__(self) -> None:
        _must("Recovery", every=self.every, save=self.save, restart=self.restart)


@dataclass(frozen=True, slots=True)
class Faults:
    """Random node failures; both times are exponential and independent between nodes.

    Parameters
    ----------
    mtbf
        Mean time between failures of a node, in seconds.
    mttr
        Mean time that a node is down, in seconds.
    pool
        The pool whose nodes fail (default: all nodes).

    Examples
    --------
    >>> Faults(mtbf=30 * 86_400, mttr=3600)
    Faults(mtbf=2592000, mttr=3600, pool=None)
    """

    mtbf: float
    mttr: float
    pool: str | None = None

    def __post_init__(self) -> None:
        _must("Faults", above=("mtbf",), mtbf=self.mtbf, mttr=self.mttr)


@dataclass(frozen=True, slots=True)
class Outage:
    """Nodes are down for a time; jobs on them fail.

    Parameters
    ----------
    begin, end
        From when to when, in seconds from the first submission.
    nodes
        The names of the nodes; or give a pool.
    pool
        The pool.

    Examples
    --------
    >>> Outage(3600, 7200, pool="default")
    Outage(begin=3600, end=7200, nodes=(), pool='default')
    """

    begin: float
    end: float
    nodes: Sequence[str] = ()
    pool: str | None = None

    def __post_init__(self) -> None:
        _must_last("Outage", self.begin, self.end, self.nodes, self.pool)


@dataclass(frozen=True, slots=True)
class Drain:
    """Nodes accept no new jobs for a time; running jobs may finish.

    Parameters
    ----------
    begin, end
        From when to when, in seconds from the first submission.
    nodes
        The names of the nodes; or give a pool.
    pool
        The pool.

    Examples
    --------
    >>> Drain(3600, 7200, nodes=["node-0"])
    Drain(begin=3600, end=7200, nodes=['node-0'], pool=None)
    """

    begin: float
    end: float
    nodes: Sequence[str] = ()
    pool: str | None = None

    def __post_init__(self) -> None:
        _must_last("Drain", self.begin, self.end, self.nodes, self.pool)


@dataclass(frozen=True, slots=True)
class Spot:
    """Spot nodes: each node of a pool is reclaimed from time to time, and comes back later.

    Parameters
    ----------
    pool
        The pool.
    every
        Mean time between two reclaims of a node, in seconds; the times are exponential.
    away
        Seconds until it is back.
    notice
        Seconds between the notice and the reclaim: jobs write a checkpoint where that takes no longer.

    Examples
    --------
    >>> Spot("default", every=86_400, away=600)
    Spot(pool='default', every=86400, away=600, notice=0.0)
    """

    pool: str
    every: float
    away: float
    notice: float = 0.0

    def __post_init__(self) -> None:
        _must("Spot", above=("every",), every=self.every, away=self.away, notice=self.notice)


@dataclass(frozen=True, slots=True)
class Elastic:
    """Autoscaling: a pool that grows while jobs wait and shrinks when nodes are idle.

    All but `least` of its nodes start switched off. While jobs wait that such a node could run, as many nodes are
    booted as those jobs need.

    Parameters
    ----------
    pool
        The pool.
    least
        Nodes that always stay up.
    boot
        Seconds that a node needs to boot.
    every
        Seconds between two decisions.
    idle
        A node that has been idle for so many seconds is switched off, while no job waits that it could run.

    Examples
    --------
    >>> Elastic("default", least=2)
    Elastic(pool='default', least=2, boot=300.0, every=60.0, idle=600.0)
    """

    pool: str
    least: int = 0
    boot: float = 300.0
    every: float = 60.0
    idle: float = 600.0

    def __post_init__(self) -> None:
        _must("Elastic", above=("every",), least=self.least, boot=self.boot, every=self.every, idle=self.idle)


Event = Faults | Outage | Drain | Spot | Elastic


def _must(noun: str, *, above: tuple[str, ...] = (), **values: float) -> None:
    for name, value in values.items():
        if not isinstance(value, int | float) or isinstance(value, bool) or not math.isfinite(value) or value < 0:
            raise WorkloadError(f"{noun}: `{name}` is not a number of at least 0: {value!r}", hint="times are seconds")
        if name in above and value == 0:
            raise WorkloadError(f"{noun}: `{name}` is 0", hint="a mean time between events must be above 0")


def _must_last(noun: str, begin: float, end: float, nodes: Sequence[str], pool: str | None) -> None:
    _must(noun, begin=begin, end=end)
    if end < begin:
        msg = f"{noun}: `end` is before `begin`: {end:g} < {begin:g}"
        raise WorkloadError(msg, hint="seconds from the first submission")
    if isinstance(nodes, str):
        raise WorkloadError(f"{noun}: `nodes` is a list of names, not: {nodes!r}", hint=f"nodes=[{nodes!r}]")
    if bool(nodes) == (pool is not None):
        msg = f"{noun}: give either `nodes` or `pool`"
        raise WorkloadError(msg, hint=f'{noun}(3600, 7200, nodes=["node-0"]) or {noun}(3600, 7200, pool="default")')


# -- files and plain values ------------------------------------------------------------------------------------------

EVENTS: dict[str, type[Any]] = {"faults": Faults, "outage": Outage, "drain": Drain, "spot": Spot, "elastic": Elastic}
HINT = "[[faults]] on a line, then mtbf = 2592000 and mttr = 3600; and [recovery] with every, save, restart"


def from_toml(path: Path | str) -> tuple[tuple[Event, ...], Recovery | None]:
    """Read `[[faults]]`, `[[outage]]`, `[[drain]]`, `[[spot]]` and `[[elastic]]` entries, and `[recovery]`."""
    path = Path(path)
    tables = toml.load(path, "the events file", HINT)
    if unknown := [name for name in tables if name not in (*EVENTS, "recovery")]:
        msg = f"{path.name}: no such event: `{unknown[0]}`"
        raise WorkloadError(msg, hint=f"choose from {', '.join(f'[[{n}]]' for n in EVENTS)} and [recovery]")
    events = tuple(
        from_values(EVENTS[name], entry, path.name) for name in EVENTS for entry in _entries(tables, name, path.name)
    )
    return events, from_values(Recovery, tables["recovery"], path.name) if "recovery" in tables else None


def _entries(tables: dict[str, Any], name: str, source: str) -> list[Any]:
    entries = tables.get(name, [])
    if not isinstance(entries, list):
        raise WorkloadError(f"{source}: `{name}` needs double brackets: [[{name}]]", hint=HINT)
    return entries


def from_values(noun: type[Any], entry: Any, source: str) -> Any:  # noqa: ANN401  anything until it is checked
    """Build an event or a recovery from a table of its fields."""
    by_name, kind = {f.name: f for f in fields(noun)}, noun.__name__.lower()
    if not isinstance(entry, Mapping) or (unknown := [key for key in entry if key not in by_name]):
        what = f"`{unknown[0]}`" if isinstance(entry, Mapping) else repr(entry)
        raise WorkloadError(f"{source}: no such key of {kind}: {what}", hint=f"choose from {', '.join(by_name)}")
    for key, value in entry.items():
        expected = (list, tuple) if key == "nodes" else str if key == "pool" else (int, float)
        if not isinstance(value, expected) or isinstance(value, bool):
            msg = f"{source}: invalid `{key}` of {kind}: {value!r}"
            raise WorkloadError(msg, hint="times are seconds, as numbers; pools and nodes are names in quotes")
    try:
        return noun(**entry)
    except TypeError as e:
        msg = f"{source}: {kind} is not complete: {str(e).split('missing ')[-1]}"
        raise WorkloadError(msg, hint=f"it takes {', '.join(by_name)}") from None


def to_values(event: Event) -> dict[str, Any]:
    """Return an event as plain values: its kind under `event`, and the fields that differ from their defaults.

    >>> to_values(Faults(86400, 60))
    {'event': 'faults', 'mtbf': 86400, 'mttr': 60}
    """
    values = {k: list(v) if isinstance(v, tuple | list) else v for k, v in asdict(event).items()}
    return {"event": type(event).__name__.lower()} | {k: v for k, v in values.items() if v not in (None, [])}


def from_list(entries: Sequence[Any], source: str = "events") -> tuple[Event, ...]:
    """Take events as objects, or as the plain values of `to_values`."""
    events: list[Event] = []
    for entry in entries:
        if isinstance(entry, Mapping):
            kind = lookup("event", str(entry.get("event")), EVENTS, error=WorkloadError)
            events.append(from_values(EVENTS[kind], {k: v for k, v in entry.items() if k != "event"}, source))
        elif isinstance(entry, Event):
            events.append(entry)
        else:
            msg = f"{source}: not an event: {entry!r}"
            raise WorkloadError(msg, hint=f"choose from {', '.join(noun.__name__ for noun in EVENTS.values())}")
    return tuple(events)
