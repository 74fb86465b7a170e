"""What happens to nodes, from a TOML file: the same words as the nouns of `events`."""

from __future__ import annotations

import tomllib
from dataclasses import fields
from pathlib import Path
from typing import Any

from fleetlab.core import WorkloadError
from fleetlab.sim.events import Drain, Elastic, Event, Faults, Outage, Recovery, Spot

NOUNS: dict[str, type[Any]] = {"faults": Faults, "outage": Outage, "drain": Drain, "spot": Spot, "elastic": Elastic}
HINT = "[[faults]] on a line, then mtbf = 2592000 and mttr = 3600; and [recovery] with every, save, restart"


def from_toml(path: Path | str) -> tuple[list[Event], Recovery | None]:
    """Read `[[faults]]`, `[[outage]]`, `[[drain]]`, `[[spot]]` and `[[elastic]]` entries, and `[recovery]`."""
    path = Path(path)
    try:
        told = tomllib.loads(path.read_text("utf-8"))
    except OSError as e:
        msg = f"cannot read the events file: {path}: {e.strerror}"
        raise WorkloadError(msg, hint=HINT) from None
    except (ValueError, RecursionError) as e:
        msg = f"{path.name}: not TOML: {e}"
        raise WorkloadError(msg, hint=HINT) from None
    if unknown := [name for name in told if name not in (*NOUNS, "recovery")]:
        msg = f"{path.name}: no such event: `{unknown[0]}`"
        raise WorkloadError(msg, hint=f"there are {', '.join(f'[[{n}]]' for n in NOUNS)} and [recovery]")
    events = [_made(NOUNS[name], entry, path.name) for name in NOUNS for entry in _entries(told, name, path.name)]
    recovery = _made(Recovery, told["recovery"], path.name) if "recovery" in told else None
    return events, recovery


def _entries(told: dict[str, Any], name: str, source: str) -> list[Any]:
    entries = told.get(name, [])
    if not isinstance(entries, list):
        msg = f"{source}: `{name}` stands in double brackets: [[{name}]]"
        raise WorkloadError(msg, hint=HINT)
    return entries


def _made(noun: type[Any], entry: Any, source: str) -> Any:  # noqa: ANN401  TOML may hold anything until it is checked
    known = {f.name: f for f in fields(noun)}
    if not isinstance(entry, dict) or (unknown := [key for key in entry if key not in known]):
        what = f"`{unknown[0]}`" if isinstance(entry, dict) else repr(entry)
        msg = f"{source}: no such key of {noun.__name__.lower()}: {what}"
        raise WorkloadError(msg, hint=f"there are {', '.join(known)}")
    for key, value in entry.items():
        wanted = list if key == "nodes" else str if key == "pool" else (int, float)
        if not isinstance(value, wanted) or isinstance(value, bool):
            msg = f"{source}: `{key}` of {noun.__name__.lower()} cannot be: {value!r}"
            raise WorkloadError(msg, hint="times are seconds, as numbers; pools and nodes are names in quotes")
    try:
        return noun(**entry)
    except TypeError as e:
        msg = f"{source}: {noun.__name__.lower()} is not complete: {str(e).split('missing ')[-1]}"
        raise WorkloadError(msg, hint=f"it takes {', '.join(known)}") from None
