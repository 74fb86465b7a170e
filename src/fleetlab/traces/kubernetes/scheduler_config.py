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
from fleetlab.core.kubernetes import FIRST, LATER, LATER_SCORES, SCORES, KubeScheduler, Shape
from fleetlab.core.names import lookup
from fleetlab.traces.kubernetes.default_spread import default_spread
from fleetlab.traces.kubernetes.documents import documents, title_of
from fleetlab.traces.kubernetes.later_config import fit_arguments, later_weights
from fleetlab.traces.kubernetes.objects import MalformedObject, Object, elements, members, whole, words
from fleetlab.traces.kubernetes.scheduling import node_preferences, node_requirements
from fleetlab.traces.kubernetes.site_rules import READERS, SiteRules

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
