"""Pods as their owners create them: with what LimitRanges give and refuse, and which no quota could ever take."""

from __future__ import annotations

from collections.abc import Mapping
from dataclasses import dataclass, replace

import numpy as np

from fleetlab.core.admission import Admission, Container, CreatedPod
from fleetlab.core.catalog.reasons import ABOVE_NAMESPACE_QUOTA, OUTSIDE_LIMIT_RANGE, REFUSALS
from fleetlab.core.kubernetes import ASSUMED, CPU, MEMORY, KubeScheduler, SchedulingPod
from fleetlab.sim.kubernetes.limits import violations, with_defaults
from fleetlab.sim.kubernetes.quota import Ledger
from fleetlab.sim.kubernetes.specs import Specs
from fleetlab.sim.layout import Ints
from fleetlab.sim.world import World

FILLED = (CPU, MEMORY, "ephemeral-storage")  # of what a LimitRange gives, what nodes are asked for
OWN = "fleetlab/"  # how resources begin that only this simulation knows


@dataclass(frozen=True)
class Creations:
    """The pods as the scheduler sees them, as they were created, and why some never are: a place in REFUSALS."""

    pods: list[SchedulingPod]
    asked: list[CreatedPod]
    refused: Ints


def creations(world: World, rows: list[SchedulingPod], profile: KubeScheduler, specs: Specs) -> Creations:
    """Return the pods of a world; those of one spec, shape, namespace and priority are alike."""
    made: dict[object, tuple[SchedulingPod, CreatedPod, int]] = {}
    found = Creations([], [], np.zeros(len(rows), np.int64))
    for k, (row, job, shape) in enumerate(zip(rows, world.frame["job"].to_list(), world.shape.tolist(), strict=True)):
        spec = specs.of_job.get(job)
        alike = (spec, shape, row.namespace, row.priority, tuple(row.labels.items()))
        if alike not in made:
            made[alike] = _made(specs.on_pod(row, spec), None if spec is None else specs.pods[spec][1], profile)
        pod, asked, refused = made[alike]
        found.pods.append(replace(pod, name=row.name))
        found.asked.append(asked)
        found.refused[k] = refused
    return found


def _made(
    pod: SchedulingPod, asked: CreatedPod | None, profile: KubeScheduler
) -> tuple[SchedulingPod, CreatedPod, int]:
    rules = profile.admission
    before = asked or _of_row(pod, rules)
    ranges = [one for one in rules.limits if one.namespace == before.namespace]
    after = with_defaults(before, ranges)
    refused = OUTSIDE_LIMIT_RANGE if violations(after, ranges) else ""
    if not refused and Ledger(rules.quotas).charge(after):
        refused = ABOVE_NAMESPACE_QUOTA
    return profile.adds_to(_filled(pod, before, after)), after, REFUSALS.index(refused)


def _of_row(pod: SchedulingPod, rules: Admission) -> CreatedPod:
    """A pod of one container that is limited where it must be: in GPUs and the like."""
    requests = {name: amount for name, amount in pod.requests.items() if not name.startswith(OWN)}
    limits = {name: amount for name, amount in requests.items() if name not in FILLED}
    return CreatedPod(pod.namespace, (Container(requests, limits),), rules.class_of(pod.priority))


def _filled(pod: SchedulingPod, before: CreatedPod, after: CreatedPod) -> SchedulingPod:
    """The pod with what a LimitRange gave its containers."""
    if before == after:
        return pod
    was, becomes = _total(before, {}), _total(after, {})
    more = {name: becomes.get(name, 0) - was.get(name, 0) for name in FILLED if name in becomes}
    requests = dict(pod.requests) | {name: pod.requests.get(name, 0) + amount for name, amount in more.items()}
    scored = {name: amount for name, amount in _total(after, ASSUMED).items() if name in ASSUMED}
    return replace(pod, requests=requests, scored=scored)


def _total(pod: CreatedPod, assumed: Mapping[str, int]) -> dict[str, int]:
    """What containers request together, or what they are scored as where they request nothing."""
    total: dict[str, int] = {}
    for one in sorted(pod.containers, key=lambda one: one.init):
        for name, amount in {**assumed, **one.requests}.items():
            total[name] = max(total.get(name, 0), amount) if one.init else total.get(name, 0) + amount
    return total
