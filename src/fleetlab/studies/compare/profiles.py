"""Another configuration of kube-scheduler, and in which settings it differs."""

from __future__ import annotations

from collections.abc import Iterator, Mapping
from dataclasses import dataclass
from pathlib import Path
from typing import Any

from fleetlab.core import PolicyError
from fleetlab.core.kubernetes import KubeScheduler
from fleetlab.traces.schedulers import read_scheduler
from fleetlab.traces.slurm.conf_change import NOT_SET, Setting


@dataclass(frozen=True, slots=True)
class ProfileChange:
    """kube-scheduler with another configuration, by the name of its file."""

    name: str
    profile: KubeScheduler
    settings: tuple[Setting, ...]
    notes: tuple[str, ...] = ()


def change_profile(own: KubeScheduler, conf: Path | str) -> ProfileChange:
    """Read another configuration of kube-scheduler."""
    path = Path(conf)
    other = read_scheduler(path)
    if not isinstance(other, KubeScheduler):
        msg = f"{path.name}: configures {other.title}, but the scenario has {own.title}"
        raise PolicyError(msg, hint="compare configurations of one scheduler")
    return ProfileChange(path.name, other, tuple(_differences(own, other)))


def _differences(own: KubeScheduler, other: KubeScheduler) -> Iterator[Setting]:
    was, becomes = (dict(_flat(_written(one))) for one in (own, other))
    for name in dict.fromkeys((*was, *becomes)):
        if was.get(name) != becomes.get(name):
            yield Setting(name, was.get(name, NOT_SET), becomes.get(name, NOT_SET))


def _written(profile: KubeScheduler) -> dict[str, Any]:
    """All settings as plain values, the weights of plugins also where they are the default."""
    return profile.to_values() | {"weights": dict(profile.weights)}


def _flat(values: Mapping[str, Any], before: str = "") -> Iterator[tuple[str, str]]:
    for name, value in values.items():
        if isinstance(value, Mapping):
            yield from _flat(value, f"{before}{name}.")
        else:
            yield f"{before}{name}", str(value)
