"""How jobs that share a GPU slow each other, by a slowdown profile."""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from dataclasses import dataclass

import numpy as np
import polars as pl

from fleetlab.core import Speed, WorkloadError
from fleetlab.core.names import lookup
from fleetlab.core.words import OTHER_JOBS
from fleetlab.sim.layout import WHOLE, Floats, Ints
from fleetlab.sim.world import World

LIGHT, MEDIUM = 370, 750  # GPU milli: a job that requests less is light, or medium; the others are heavy


@dataclass(frozen=True, slots=True, eq=False)
class Speeds:
    """How fast classes of work run on a GPU they share."""

    alone: Floats  # [classes]
    pair: Floats  # [classes, classes]: the part of its speed that one of the first keeps beside one of the second
    of: Ints  # [jobs]: the class of each


BY_REQUEST = ("light", "medium", "heavy")  # classes that the request of a job tells


def speeds_of(
    profile: Speed, mode: str, world: World, *,
    classes: Sequence[str] | pl.Series | None = None, rules: Mapping[str, str] | None = None,
) -> Speeds:  # fmt: skip
    """How jobs of a world slow each other by a profile, in one of its modes.

    Next to several neighbours a job is slowed by each in turn: its speed alone times, for each of them, the part of
    that speed it keeps next to that one. `classes` names the class of each job of the workload, or `rules` those of
    its apps, users, groups and queues: the first that applies, then `other`. Where the profile has the classes light,
    medium and heavy, others may be left out: a job is taken to keep as much of a GPU busy as it asks for.
    """
    rows = profile.frame.filter(pl.col("mode").cast(pl.String) == mode)
    names = sorted(set(rows["workload"]))
    if not names:
        has = ", ".join(profile.frame["mode"].cast(pl.String).unique(maintain_order=True))
        msg = f"no mode of that name in the speed profile of {profile.device}: `{mode}`"
        raise WorkloadError(msg, hint=f"it has {has}")
    alone = np.array([profile.speed(mode, a).value for a in names])
    if mode == "exclusive":
        pair = np.ones((len(names), len(names)))
    else:
        pair = np.array([[profile.speed(mode, a, b).value for b in names] for a in names]) / alone[:, None]
    of = _classes(names, world, classes) if rules is None else _by_rules(names, world, rules)
    if mode == "mig":  # a profile tells the speed on a slice; who has whole cards is on none: a class of its own
        alone, pair = np.append(alone, 1.0), np.pad(pair, (0, 1), constant_values=1.0)
        of = np.where(world.shapes.milli[world.shape] == WHOLE, len(names), of)
    return Speeds(alone, pair, of)


def _by_request(names: list[str], world: World) -> Ints:
    light, medium, heavy = (names.index(name) for name in BY_REQUEST)
    requested = world.requested
    return np.select([requested < LIGHT, requested < MEDIUM], [light, medium], heavy).astype(np.int64)


def _by_rules(names: list[str], world: World, rules: Mapping[str, str]) -> Ints:
    """The class of each job by the first rule that applies to it, else by its request."""
    for of in rules.values():
        lookup("class of the speed profile", of, names, error=WorkloadError)
    of_job = np.full(world.frame.height, -1, dtype=np.int64)
    for rule, of in rules.items():
        column, _, value = rule.partition(":")
        if rule != OTHER_JOBS:
            has = (world.frame[column].cast(pl.String) == value).fill_null(value=False).to_numpy()
            if not has.any():
                values = sorted(world.frame[column].cast(pl.String).drop_nulls().unique())
                hint = f"the {column}s of the jobs: {', '.join(values[:9])}" + (", …" if len(values) > 9 else "")
                lookup(column, value, values, error=WorkloadError, hint=hint)
            of_job[has & (of_job < 0)] = names.index(of)
    if (missing := of_job < 0).any():
        if OTHER_JOBS in rules:
            of_job[missing] = names.index(rules[OTHER_JOBS])
        elif set(BY_REQUEST) <= set(names):
            of_job[missing] = _by_request(names, world)[missing]
        else:
            msg = f"{missing.sum()} jobs are of no class of the speed profile"
            raise WorkloadError(msg, hint=f"speed_classes='…,other=CLASS'; classes are {', '.join(names)}")
    return of_job


def _classes(names: list[str], world: World, classes: Sequence[str] | pl.Series | None) -> Ints:
    if classes is None:
        if not set(BY_REQUEST) <= set(names):
            msg = f"the classes of the profile do not say which job is of which: {', '.join(names)}"
            raise WorkloadError(msg, hint=f"speed_classes='app:NAME={names[0]},other={names[-1]}'")
        return _by_request(names, world)
    given = pl.Series(classes, dtype=pl.String)
    jobs = world.frame["job"]
    if len(given) <= (jobs.max() or 0) or (unknown := set(given.gather(jobs)) - set(names)):  # type: ignore[operator]
        what = f"{len(given)} names" if len(given) <= (jobs.max() or 0) else f"`{unknown.pop()}`"  # type: ignore[operator]
        msg = f"`classes` is not a class of the profile for each job: {what}"
        raise WorkloadError(msg, hint=f"there are {', '.join(names)}")
    return given.gather(jobs).replace_strict(names, list(range(len(names))), return_dtype=pl.Int64).to_numpy().copy()
