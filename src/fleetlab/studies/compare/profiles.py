"""Another configuration of a scheduler, and in which settings it differs."""

from __future__ import annotations

from collections.abc import Iterator, Mapping
from dataclasses import dataclass
from pathlib import Path
from typing import Any

from fleetlab.core import PolicyError
from fleetlab.core.kubernetes import KubeScheduler
from fleetlab.core.schedulers import Scheduler
from fleetlab.traces.kubernetes import scheduler_config
from fleetlab.traces.schedulers import read_scheduler
from fleetlab.traces.slurm.conf_change import NOT_SET, Setting


@dataclass(frozen=True, slots=True)
class ProfileChange:
    """A scheduler with another configuration, by the name of its file."""

    name: str
    scheduler: Scheduler
    settings: tuple[Setting, ...]
    notes: tuple[str, ...] = ()


def change_profile(own: Scheduler, entry: Path | str) -> ProfileChange:
    """Read another configuration of a scheduler, which must be of its kind."""
    path = Path(entry)
    other = read_scheduler(path)
    if isinstance(own, KubeScheduler) and isinstance(other, KubeScheduler):
        other = scheduler_config.read_scheduler(path, own=own)  # what the file does not say stays as it is
    if type(other) is not type(own):
        msg = f"{path.name}: configures {other.title}, but the scenario has {own.title}"
        raise PolicyError(msg, hint="compare configurations of one scheduler")
    return ProfileChange(path.name, other, tuple(_differences(own, other)))


def _differences(own: Scheduler, other: Scheduler) -> Iterator[Setting]:
    was, becomes = (dict(_flat(_written(one))) for one in (own, other))
    for name in dict.fromkeys((*was, *becomes)):
        if was.get(name) != becomes.get(name):
            yield Setting(name, was.get(name, NOT_SET), becomes.get(name, NOT_SET))


def _written(scheduler: Scheduler) -> dict[str, Any]:
    """All settings as plain values, the weights of plugins also where they are the default."""
    weights = {"weights": dict(scheduler.weights)} if isinstance(scheduler, KubeScheduler) else {}
    return scheduler.to_values() | weights


def _flat(values: Mapping[str, Any], before: str = "") -> Iterator[tuple[str, str]]:
    for name, value in values.items():
        if isinstance(value, Mapping):
            yield from _flat(value, f"{before}{name}.")
        elif isinstance(value, (list, tuple)) and value and all(isinstance(v, Mapping) and "name" in v for v in value):
            yield from _flat({_titled(v): _rest(v) for v in value}, f"{before}{name}.")
        else:
            yield f"{before}{name}", str(value)


def _titled(one: Mapping[str, Any]) -> str:
    return "/".join(one[key] for key in ("namespace", "name") if one.get(key))


def _rest(one: Mapping[str, Any]) -> dict[str, Any]:
    return {key: value for key, value in one.items() if key not in ("namespace", "name")}
