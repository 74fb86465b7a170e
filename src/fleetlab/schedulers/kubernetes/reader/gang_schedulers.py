"""Volcano's and KAI's own objects, as a site has them in YAML or JSON: queues, and the scheduler's configuration.

Read are Queues of scheduling.volcano.sh and of scheduling.run.ai, the ConfigMap with volcano-scheduler.conf, and KAI's
SchedulingShard; a file may hold several documents, or lists as `kubectl get … -o json` gives them.
"""

from __future__ import annotations

import re
from collections.abc import Callable, Iterable, Iterator, Mapping
from dataclasses import replace
from pathlib import Path
from typing import Any, TypeVar

from fleetlab.core import TraceError
from fleetlab.core.schedulers import Scheduler
from fleetlab.schedulers.kai.config import Kai, KaiQueue, Quota
from fleetlab.schedulers.kubernetes.config import CPU, GPU
from fleetlab.schedulers.kubernetes.reader.objects import (
    MalformedObject,
    Object,
    documents,
    elements,
    kinds_in,
    members,
    moment,
    quantity,
    title_of,
    whole,
    words,
)
from fleetlab.schedulers.volcano.config import Plugin, Volcano, VolcanoQueue

HINT = "Queues of Volcano or KAI, as `kubectl get queues -o yaml` prints them"
T = TypeVar("T")
Q = TypeVar("Q", VolcanoQueue, KaiQueue)
VOLCANO, KAI = "scheduling.volcano.sh", "scheduling.run.ai"
MEGABYTE = 10**6
RESOURCES = ("cpu", "memory", "gpu")  # that a queue of KAI has a part of
SECONDS = {"ms": 1e-3, "s": 1.0, "m": 60.0, "h": 3600.0, "d": 86400.0, "w": 604800.0}


def recognizes(path: Path, name: str) -> bool:
    """Whether a file has Queues of this scheduler; of neither, or of both, Volcano's reader says what is wrong."""
    if "Queue" not in kinds_in(path):
        return False
    text = path.read_text("utf-8", errors="replace")
    return (KAI in text and VOLCANO not in text) == (name == Kai.name)


def read_gang_scheduler(path: Path, own: Scheduler | None = None) -> Volcano | Kai:
    """Read the scheduler that a file's objects configure; the rest is as in a site's `own`, if it is of that kind."""
    try:
        found = gang_scheduler_of(documents(path.read_text("utf-8"), path.name, HINT), own)
    except MalformedObject as e:
        msg = f"{path.name}: {e}"
        raise TraceError(msg, hint=HINT) from None
    except (OSError, UnicodeDecodeError) as e:
        msg = f"{path.name}: cannot be read: {e}"
        raise TraceError(msg, hint=HINT) from None
    if found is None:
        msg = f"{path.name}: has no queues of Volcano or KAI"
        raise TraceError(msg, hint=HINT)
    return found


def gang_scheduler_of(objects: Iterable[Object], own: Scheduler | None = None) -> Volcano | Kai | None:
    """Build the scheduler that objects configure; None if there are no queues, nor settings for a site's `own`.

    A Queue takes the place of one of the same name, and one with `$patch: delete` is deleted.
    """
    listed = list(objects)
    queues = [one for one in listed if one.get("kind") == "Queue"]
    groups = {_group(one) for one in queues}
    if len(groups) > 1:
        msg = f"queues of several schedulers: {', '.join(sorted(groups))}"
        raise MalformedObject(msg)
    if groups == {VOLCANO} or (not queues and isinstance(own, Volcano)):
        volcano = own if isinstance(own, Volcano) else Volcano(())
        settings = _volcano_settings(listed)
        return replace(volcano, queues=_merged(volcano.queues, queues, volcano_queue), **settings) if listed else None
    if groups == {KAI} or (not queues and isinstance(own, Kai)):
        kai = own if isinstance(own, Kai) else Kai(())
        return replace(kai, queues=_merged(kai.queues, queues, kai_queue), **_kai_settings(listed)) if listed else None
    return None


def _merged(own: Iterable[Q], queues: list[Object], read: Callable[[Object], Q]) -> tuple[Q, ...]:
    found = {one.name: one for one in own}
    for one, item in zip(_each(queues, read), queues, strict=True):
        if item.get("$patch") == "delete":
            found.pop(one.name, None)
        else:
            found[one.name] = one
    return tuple(found.values())


def _each(queues: Iterable[Object], read: Callable[[Object], T]) -> Iterator[T]:
    for one in queues:
        try:
            yield read(one)
        except MalformedObject as e:
            msg = f"{title_of(one)}: {e}"
            raise MalformedObject(msg) from None


def _group(item: Object) -> str:
    group = words(item.get("apiVersion"), "apiVersion").split("/", maxsplit=1)[0]
    if group not in (VOLCANO, KAI):
        msg = f"`apiVersion` of a Queue is not of Volcano or KAI: {group or 'missing'}"
        raise MalformedObject(msg)
    return group


# -- Volcano -----------------------------------------------------------------------------------------------------------


def volcano_queue(item: Object) -> VolcanoQueue:
    """Read a Queue of scheduling.volcano.sh/v1beta1."""
    spec = members(item.get("spec"), "spec")
    status = members(item.get("status"), "status")
    return VolcanoQueue(
        _name(item),
        weight=_weight(spec),
        capability=_amounts(spec.get("capability"), "spec.capability"),
        deserved=_amounts(spec.get("deserved"), "spec.deserved"),
        guarantee=_amounts(members(spec.get("guarantee"), "spec.guarantee").get("resource"), "spec.guarantee.resource"),
        reclaimable=spec.get("reclaimable") is not False,
        parent=words(spec.get("parent"), "spec.parent"),
        priority=whole(spec.get("priority"), "spec.priority"),
        is_open=words(status.get("state"), "status.state") in ("", "Open"),
        dequeue=_dequeue(words(spec.get("dequeueStrategy"), "spec.dequeueStrategy")),
    )


def _weight(spec: Object) -> int:
    if spec.get("weight") is None:
        return 1
    if (weight := whole(spec["weight"], "spec.weight")) < 1:
        msg = f"`spec.weight` is below 1: {weight}"
        raise MalformedObject(msg)
    return weight


def _dequeue(name: str) -> str:
    return {"fifo": "fifo", "priorityfifo": "priorityFIFO"}.get(name.lower(), "traverse")


def _name(item: Object) -> str:
    name = words(members(item.get("metadata"), "metadata").get("name"), "metadata.name")
    if not name:
        msg = "a Queue without a name"
        raise MalformedObject(msg)
    return name


def _amounts(value: object, where: str) -> dict[str, float]:
    """Amounts as schedulers count: CPU in thousandths of a core, all else as it is."""
    found = {name: quantity(amount, f"{where}.{name}") for name, amount in members(value, where).items()}
    return {name: float(amount * 1000 if name == CPU else amount) for name, amount in found.items()}


def _volcano_settings(objects: Iterable[Object]) -> dict[str, Any]:
    for one in objects:
        data = members(one.get("data"), "data") if one.get("kind") == "ConfigMap" else one
        text = next((v for k, v in data.items() if k.endswith(".conf") and isinstance(v, str)), None)
        conf = next(documents(text, "volcano-scheduler.conf", HINT)) if text else one
        if "tiers" in conf or "actions" in conf:
            return _conf(conf)
    return {}


def _conf(conf: Object) -> dict[str, Any]:
    found: dict[str, Any] = {}
    if actions := words(conf.get("actions"), "actions"):
        found["actions"] = tuple(name.strip() for name in actions.split(",") if name.strip())
    if "tiers" in conf:
        tiers = [members(one, "tiers") for one in elements(conf["tiers"], "tiers")]
        found["tiers"] = tuple(
            tuple(_plugin(members(one, "plugins")) for one in elements(tier.get("plugins"), "plugins"))
            for tier in tiers
        )
    return found


def _plugin(item: Object) -> Plugin:
    """A plugin; `enable…: false` takes it out of an extension point, `enableHierarchy: true` makes queues a tree."""
    flags = {match[1]: value for key, value in item.items() if (match := re.fullmatch(r"enabled?([A-Z]\w*)", key))}
    off = frozenset(name[0].lower() + name[1:] for name, value in flags.items() if value is False)
    arguments = {str(k): v for k, v in members(item.get("arguments"), "arguments").items()}
    return Plugin(words(item.get("name"), "name"), arguments, off, hierarchy=flags.get("Hierarchy") is True)


# -- KAI ---------------------------------------------------------------------------------------------------------------


def kai_queue(item: Object) -> KaiQueue:
    """Read a Queue of scheduling.run.ai/v2; memory is in megabytes there, and what is not given is 0."""
    spec = members(item.get("spec"), "spec")
    resources = members(spec.get("resources"), "spec.resources")
    units = {CPU: ("cpu", 1.0), "memory": ("memory", float(MEGABYTE)), GPU: ("gpu", 1.0)}
    created = moment(members(item.get("metadata"), "metadata").get("creationTimestamp"), "creationTimestamp")
    for name in resources:
        if name not in RESOURCES:
            msg = f"`spec.resources` has no {name}: {', '.join(RESOURCES)}"
            raise MalformedObject(msg)
    return KaiQueue(
        _name(item),
        words(spec.get("parentQueue"), "spec.parentQueue"),
        100 if spec.get("priority") is None else whole(spec.get("priority"), "spec.priority"),
        {name: _quota(members(resources.get(short), short), unit) for name, (short, unit) in units.items()},
        created or 0.0,
        _seconds(spec.get("preemptMinRuntime")),
        _seconds(spec.get("reclaimMinRuntime")),
    )


def _quota(given: Mapping[str, Any], unit: float) -> Quota:
    quota, limit, weight = (_number(given, key) for key in ("quota", "limit", "overQuotaWeight"))
    for key, value in (("quota", quota), ("limit", limit), ("overQuotaWeight", weight)):
        if value < 0 and not (value == -1 and key != "overQuotaWeight"):
            msg = f"`{key}` is below 0: {value:g}; -1 is without bound, for a quota or a limit"
            raise MalformedObject(msg)
    return Quota(max(-1.0, quota * unit), max(-1.0, limit * unit), weight)


def _number(given: Mapping[str, Any], key: str) -> float:
    value = given.get(key, 0)
    if isinstance(value, bool) or not isinstance(value, (int, float)):
        msg = f"`{key}` is not a number: {value}"
        raise MalformedObject(msg)
    return float(value)


def _kai_settings(objects: Iterable[Object]) -> dict[str, Any]:
    shard = next((one for one in objects if one.get("kind") == "SchedulingShard"), {})
    spec = members(shard.get("spec"), "spec")
    params = members(members(spec.get("usageDBConfig"), "usageDBConfig").get("usageParams"), "usageParams")
    found: dict[str, Any] = {}
    if "kValue" in spec:
        found["k_value"] = _number(spec, "kValue")
    if (half := _seconds(params.get("halfLifePeriod"))) is not None:
        found["half_life"] = half
    if (window := _seconds(params.get("windowSize"))) is not None:
        found["window"] = window
    args = members(spec.get("args"), "spec.args")
    for key, name in (("preemptMinRuntime", "preempt_min_runtime"), ("reclaimMinRuntime", "reclaim_min_runtime")):
        if (least := _seconds(args.get(key))) is not None:
            found[name] = least
    if args.get("maxNumberConsolidationPreemptees") is not None:
        key = "maxNumberConsolidationPreemptees"
        found["consolidation_preemptees"] = whole(args[key], f"spec.args.{key}")
    return found


def _seconds(value: object) -> float | None:
    if value is None:
        return None
    text = str(value)
    if not re.fullmatch(r"(\d+(\.\d+)?(ms|[smhdw]))+", text):
        msg = f"not a duration: {text[:40]}"
        raise MalformedObject(msg)
    return sum(float(n) * SECONDS[unit] for n, _, unit in re.findall(r"(\d+(\.\d+)?)(ms|[smhdw])", text))
