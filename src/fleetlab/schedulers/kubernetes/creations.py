"""Pods as their owners create them: with what LimitRanges give and refuse, and which no quota could ever take."""

from __future__ import annotations

from collections.abc import Iterable, Iterator, Mapping
from dataclasses import dataclass, replace

import numpy as np

from fleetlab.core.catalog.reasons import ABOVE_NAMESPACE_QUOTA, OUTSIDE_LIMIT_RANGE, REFUSALS
from fleetlab.schedulers.kubernetes.admission import Admission, Amounts, Container, CreatedPod, LimitItem, LimitRange
from fleetlab.schedulers.kubernetes.config import ASSUMED, CPU, MEMORY, KubeScheduler, SchedulingPod
from fleetlab.schedulers.kubernetes.quota import Ledger
from fleetlab.schedulers.kubernetes.specs import Specs
from fleetlab.sim.layout import Ints
from fleetlab.sim.world import World

# -- limitRanger: what a container gets that does not say what it needs, and which pods are refused for ----------------

CONTAINER, POD = "Container", "Pod"
INVALID = "request above limit"


def with_defaults(pod: CreatedPod, ranges: Iterable[LimitRange]) -> CreatedPod:
    """Return a pod whose containers have the limits and requests that the ranges of its namespace give by default."""
    for one in ranges:
        items = [item for item in one.items if item.kind == CONTAINER]
        limits = {name: amount for item in items for name, amount in item.default.items()}
        requests = {name: amount for item in items for name, amount in item.default_request.items()}
        pod = replace(pod, containers=tuple(_with_defaults(each, requests, limits) for each in pod.containers))
    return pod


def _with_defaults(one: Container, requests: Amounts, limits: Amounts) -> Container:
    return replace(one, requests=dict(requests) | dict(one.requests), limits=dict(limits) | dict(one.limits))


def violations(pod: CreatedPod, ranges: Iterable[LimitRange]) -> list[tuple[str, str]]:
    """Return which bounds a pod breaks: what is wrong, of which resource; first whether it is a valid pod at all."""
    if invalid := [(INVALID, name) for one in pod.containers for name in _above_limit(one)]:
        return invalid
    return [
        found for one in ranges for item in one.items for each in _parts(pod, item) for found in _broken(each, item)
    ]


def _above_limit(one: Container) -> list[str]:
    """What a container requests more of than its limit, as where a default limit is below its own request."""
    return [name for name, amount in one.requests.items() if amount > one.limits.get(name, amount)]


def _parts(pod: CreatedPod, item: LimitItem) -> list[Container]:
    """What an item is about: each container, or all together."""
    if item.kind == CONTAINER:
        return list(pod.containers)
    return [_together(pod)] if item.kind == POD else []


def _together(pod: CreatedPod) -> Container:
    """Containers add up, what one of them does not say is not known; one that runs before counts where it is larger."""
    main = [one for one in pod.containers if not one.init]
    requests, limits = (_sums([getattr(one, what) for one in main]) for what in ("requests", "limits"))
    for one in pod.containers:
        if one.init:
            requests = {**requests, **{n: max(v, requests.get(n, v)) for n, v in one.requests.items()}}
            limits = {**limits, **{n: max(v, limits.get(n, v)) for n, v in one.limits.items()}}
    return Container(requests, limits)


def _sums(parts: list[Amounts]) -> dict[str, int]:
    names = {name for part in parts for name in part}
    return {name: sum(part[name] for part in parts) for name in names if all(name in part for part in parts)}


def _broken(one: Container, item: LimitItem) -> Iterator[tuple[str, str]]:
    for name, least in item.min.items():
        if name not in one.requests or one.requests[name] < least or one.limits.get(name, least) < least:
            yield "minimum", name
    for name, most in item.max.items():
        if name not in one.limits or one.limits[name] > most or one.requests.get(name, most) > most:
            yield "maximum", name
    for name, ratio in item.ratio.items():
        request, limit = one.requests.get(name, 0), one.limits.get(name, 0)
        if not request or not limit or limit / request * 1000 > ratio:
            yield "max limit to request ratio", name


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
