"""A KubeSchedulerConfiguration as a site has it, in YAML or JSON: weights, arguments of plugins, backoff.

Read of the first profile, or of the one that is named; of its plugins only those that score. Beside it, a file may have
ResourceQuotas, LimitRanges and PriorityClasses, applied to those of the site, and PodDisruptionBudgets in their place.
"""

from __future__ import annotations

import re
from collections.abc import Mapping
from dataclasses import replace
from pathlib import Path

from fleetlab.core import TraceError
from fleetlab.core.names import lookup
from fleetlab.schedulers.kubernetes.config import (
    FIRST,
    LATER,
    LATER_SCORES,
    LEAST,
    MOST,
    RATIO,
    SCORES,
    KubeScheduler,
    Shape,
)
from fleetlab.schedulers.kubernetes.reader.default_spread import default_spread
from fleetlab.schedulers.kubernetes.reader.objects import (
    MalformedObject,
    Object,
    documents,
    elements,
    members,
    title_of,
    whole,
    words,
)
from fleetlab.schedulers.kubernetes.reader.scheduling import node_preferences, node_requirements
from fleetlab.schedulers.kubernetes.reader.site_rules import READERS, SiteRules

# -- what a KubeSchedulerConfiguration has since v1beta2: plugins at many points at once, and strategies ---------------

# Plugins that score nothing; one may be named where a configuration is about many points.
SILENT = (
    "SchedulingGates", "PrioritySort", "NodeUnschedulable", "NodeName", "NodePorts", "VolumeRestrictions", "EBSLimits",
    "GCEPDLimits", "NodeVolumeLimits", "AzureDiskLimits", "VolumeBinding", "VolumeZone", "DefaultPreemption",
    "DefaultBinder", "DynamicResources",
)  # fmt: skip
KNOWN = (*LATER_SCORES, *SILENT)
# Plugins of v1beta1, and what they are since.
STRATEGIES = {"NodeResourcesLeastAllocated": LEAST, "NodeResourcesMostAllocated": MOST, RATIO: RATIO}


def later_weights(plugins: Object, defaults: Mapping[str, int]) -> Mapping[str, int]:
    """The weights of the plugins that score: the default ones, changed for many points, then for scoring alone."""
    many, many_off = _set(plugins, "multiPoint")
    own, own_off = _set(plugins, "score")
    weights = {} if "*" in many_off else {name: w for name, w in defaults.items() if name not in many_off}
    weights |= {name: weight for name, weight in many.items() if name in LATER_SCORES}
    if "*" in own_off:
        weights = {}
    kept = {name: weight for name, weight in weights.items() if name not in own_off}
    return kept | {name: weight for name, weight in own.items() if name in LATER_SCORES}


def _set(plugins: Object, point: str) -> tuple[dict[str, int], list[str]]:
    """The plugins that are enabled at a point, with their weights, and those that are disabled."""
    given = members(plugins.get(point), f"plugins.{point}")
    off = [words(members(one, "disabled").get("name"), "name") for one in elements(given.get("disabled"), "disabled")]
    enabled: dict[str, int] = {}
    for one in elements(given.get("enabled"), "enabled"):
        plugin = members(one, "enabled")
        name = words(plugin.get("name"), "name")
        if name in STRATEGIES:
            now = f"`scoringStrategy.type: {STRATEGIES[name]}` in the arguments of NodeResourcesFit"
            msg = f"{name} is no plugin since v1beta2: it is {now}"
            raise MalformedObject(msg)
        lookup("plugin of kube-scheduler", name, KNOWN, error=TraceError)
        enabled[name] = whole(plugin.get("weight"), "weight") or 1
    return enabled, off


def fit_arguments(profile: KubeScheduler, arguments: Object) -> KubeScheduler:
    """Return a profile with the scoring strategy of NodeResourcesFit."""
    given = members(arguments.get("scoringStrategy"), "scoringStrategy")
    strategy = words(given.get("type"), "scoringStrategy.type") or LEAST
    if strategy not in (LEAST, MOST, RATIO):
        msg = f"`scoringStrategy.type` is none of {LEAST}, {MOST}, {RATIO}: {strategy}"
        raise MalformedObject(msg)
    shape = members(given.get("requestedToCapacityRatio"), "requestedToCapacityRatio").get("shape")
    weights = _resources(given)
    return replace(
        profile,
        strategy=strategy,
        shape=_shape(shape) if strategy == RATIO else profile.shape,
        resources=dict(profile.resources) | ({"NodeResourcesFit": weights} if weights else {}),
    )


def _resources(given: Object) -> dict[str, int]:
    where = "scoringStrategy.resources"
    weights = {}
    for item in elements(given.get("resources"), where):
        one = members(item, where)
        # None given is 1; the scheduler takes 1 to 100.
        weight = 1 if one.get("weight") is None else whole(one.get("weight"), f"{where}.weight")
        if not 1 <= weight <= 100:
            msg = f"`{where}.weight` is not from 1 to 100: {weight}"
            raise MalformedObject(msg)
        weights[words(one.get("name"), f"{where}.name")] = weight
    return weights


def _shape(value: object) -> Shape:
    where = "scoringStrategy.requestedToCapacityRatio.shape"
    listed = [members(one, where) for one in elements(value, where)]
    if not listed:
        msg = f"no `{where}`"
        raise MalformedObject(msg)
    return Shape(tuple((whole(one.get("utilization"), where), whole(one.get("score"), where)) for one in listed))


HINT = (
    "what kube-scheduler is given with --config: a KubeSchedulerConfiguration; or ResourceQuotas, LimitRanges and "
    "PodDisruptionBudgets, as kubectl applies them"
)
GROUP = "kubescheduler.config.k8s.io/"
# By version: the release whose rules it has, and the default weights of its plugins.
SECOND = dict(LATER_SCORES) | {"TaintToleration": 1, "NodeAffinity": 1, "InterPodAffinity": 1}
VERSIONS: dict[str, tuple[str, Mapping[str, int]]] = {
    "v1beta1": (FIRST, SCORES),
    "v1beta2": (LATER, SECOND),
    "v1beta3": (LATER, LATER_SCORES),
    "v1": (LATER, LATER_SCORES),
}
KIND_NAME = "KubeSchedulerConfiguration"
LIKE_LATER = "in v1beta1, NodeResourcesMostAllocated or RequestedToCapacityRatio among plugins.score.enabled do that"
# Plugins that score, beside those of the default profile.
OTHERS = ("NodeResourcesMostAllocated", "RequestedToCapacityRatio", "NodeLabel", "ServiceAffinity")
DEFAULT = KubeScheduler()
KIND = re.compile(r"""(?:^kind|"kind")\s*:\s*["']?KubeSchedulerConfiguration\b""", re.MULTILINE)


def read_scheduler(path: Path, name: str | None = None, own: KubeScheduler | None = None) -> KubeScheduler:
    """Read a profile from a file; the first if none is named. A file of rules alone changes those of `own`."""
    try:
        text = path.read_text("utf-8")
    except (OSError, UnicodeDecodeError) as e:
        msg = f"{path.name}: cannot be read: {e}"
        raise TraceError(msg, hint=HINT) from None
    return scheduler_in(text, path.name, name, own)


def scheduler_in(text: str, file: str, name: str | None = None, own: KubeScheduler | None = None) -> KubeScheduler:
    """Read a profile from the text of a file."""
    profile, rules, item = own or DEFAULT, SiteRules(), dict[str, object]()
    try:
        for item in documents(text, file, HINT):
            if item.get("kind") == KIND_NAME:
                profile = replace(scheduler_of(item, name), admission=profile.admission, budgets=profile.budgets)
            elif item.get("kind") in READERS:
                rules.store(item, title_of(item))
            else:
                msg = f"neither a {KIND_NAME} nor a rule of namespaces"
                raise MalformedObject(msg)
        if not item:
            msg = f"not a {KIND_NAME}"
            raise MalformedObject(msg)
    except MalformedObject as e:
        named = "" if item.get("kind") in (KIND_NAME, None) else f", {title_of(item)}"
        msg = f"{file}{named}: {e}"
        raise TraceError(msg, hint=HINT) from None
    return rules.on(profile)


def is_scheduler(beginning: str) -> bool:
    """Return whether a file configures kube-scheduler, by its beginning."""
    return bool(KIND.search(beginning))


def scheduler_of(config: Object, name: str | None = None) -> KubeScheduler:
    """Read a profile; Malformed says what is wrong with it."""
    if config.get("kind") != KIND_NAME:
        msg = f"not a {KIND_NAME}"
        raise MalformedObject(msg)
    version = words(config.get("apiVersion"), "apiVersion") or f"{GROUP}v1beta1"
    if version.removeprefix(GROUP) not in VERSIONS:
        msg = f"apiVersion {version} is not modeled, only {', '.join(GROUP + one for one in VERSIONS)}"
        raise MalformedObject(msg)
    release, defaults = VERSIONS[version.removeprefix(GROUP)]
    profile = _profile(config, name)
    arguments, plugins = dict(_arguments(profile, release)), members(profile.get("plugins"), "plugins")
    added = members(arguments.get("NodeAffinity", {}).get("addedAffinity"), "addedAffinity")
    key = "percentageOfNodesToScore"
    own_spread = default_spread(arguments.get("PodTopologySpread", {}), release)
    shared = KubeScheduler(
        weights=_weights(plugins, defaults) if release == FIRST else later_weights(plugins, defaults),
        resources={plugin: found for plugin, given in arguments.items() if (found := resources(given))},
        shape=shape_of(arguments.get("RequestedToCapacityRatio", {})),
        percentage=whole(config.get(key) if profile.get(key) is None else profile.get(key), key),
        initial_backoff=_seconds(config, "podInitialBackoffSeconds", DEFAULT.initial_backoff),
        max_backoff=_seconds(config, "podMaxBackoffSeconds", DEFAULT.max_backoff),
        hard_affinity=_hard_affinity(arguments.get("InterPodAffinity", {})),
        ignore_preferred=arguments.get("InterPodAffinity", {}).get("ignorePreferredTermsOfExistingPods") is True,
        release=release,
        added_required=tuple(node_requirements(added)),
        added_preferred=tuple(node_preferences(added)),
        system_spread=own_spread is None,
        default_spread=own_spread or (),
    )
    return shared if release == FIRST else fit_arguments(shared, arguments.get("NodeResourcesFit", {}))


def _profile(config: Object, name: str | None) -> Object:
    profiles = [members(one, "profiles") for one in elements(config.get("profiles"), "profiles")] or [{}]
    names = [words(one.get("schedulerName"), "schedulerName") or "default-scheduler" for one in profiles]
    if name is not None and name not in names:
        msg = f"no profile named {name}: {', '.join(names)}"
        raise MalformedObject(msg)
    return profiles[names.index(name) if name is not None else 0]


def _weights(plugins: Object, defaults: Mapping[str, int]) -> Mapping[str, int]:
    """The default plugins without those that are disabled, then those that are enabled."""
    score = members(plugins.get("score"), "plugins.score")
    off = [words(members(one, "disabled").get("name"), "name") for one in elements(score.get("disabled"), "disabled")]
    weights = {} if "*" in off else {name: weight for name, weight in defaults.items() if name not in off}
    for one in elements(score.get("enabled"), "enabled"):
        plugin = members(one, "enabled")
        name = words(plugin.get("name"), "name")
        lookup("score plugin of Kubernetes 1.20", name, (*SCORES, *OTHERS), error=TraceError)
        weights[name] = whole(plugin.get("weight"), "weight") or 1
    return weights


def _arguments(profile: Object, release: str) -> list[tuple[str, Object]]:
    given = [members(one, "pluginConfig") for one in elements(profile.get("pluginConfig"), "pluginConfig")]
    found = [(words(one.get("name"), "pluginConfig.name"), members(one.get("args"), "args")) for one in given]
    for plugin, arguments in found:
        if "scoringStrategy" in arguments and release == FIRST:
            msg = f"scoringStrategy of {plugin} is of v1beta2 and later: {LIKE_LATER}"
            raise MalformedObject(msg)
    return found


def resources(arguments: Object) -> dict[str, int]:
    """Read the weights of resources."""
    listed = [members(one, "resources") for one in elements(arguments.get("resources"), "resources")]
    return {
        words(one.get("name"), "resources.name"): whole(one.get("weight"), "resources.weight") or 1 for one in listed
    }


def _hard_affinity(arguments: Object) -> int:
    key = "hardPodAffinityWeight"
    return whole(arguments[key], key) if arguments.get(key) is not None else DEFAULT.hard_affinity


def shape_of(arguments: Object) -> Shape:
    """Read the bent line of RequestedToCapacityRatio."""
    listed = [members(one, "shape") for one in elements(arguments.get("shape"), "shape")]
    points = [(whole(one.get("utilization"), "utilization"), whole(one.get("score"), "score")) for one in listed]
    return Shape(tuple(points)) if points else DEFAULT.shape


def _seconds(config: Object, key: str, otherwise: float) -> float:
    return float(whole(config[key], key)) if config.get(key) is not None else otherwise
