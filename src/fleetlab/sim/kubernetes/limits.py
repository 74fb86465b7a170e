"""LimitRanger: what a container gets that does not say what it needs, and which pods are refused for what they say."""

from __future__ import annotations

from collections.abc import Iterable, Iterator
from dataclasses import replace

from fleetlab.core.admission import Amounts, Container, CreatedPod, LimitItem, LimitRange

CONTAINER, POD = "Container", "Pod"
INVALID = "request above limit"


def with_defaults(pod: CreatedPod, ranges: Iterable[LimitRange]) -> CreatedPod:
    """Return a pod whose containers have the limits and requests that the ranges of its namespace give by default."""
    for one in ranges:
        items = [item for item in one.items if item.kind == CONTAINER]
        limits = {name: amount for item in items for name, amount in item.default.items()}
        requests = {name: amount for item in items for name, amount in item.default_request.items()}
        pod = replace(pod, containers=tuple(_filled(each, requests, limits) for each in pod.containers))
    return pod


def _filled(one: Container, requests: Amounts, limits: Amounts) -> Container:
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
