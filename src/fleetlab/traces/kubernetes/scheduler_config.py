"""A KubeSchedulerConfiguration as a site has it, in YAML or JSON: weights, arguments of plugins, backoff.

Read of the first profile, or of the one that is named; of its plugins only those that score.
"""

from __future__ import annotations

import json
import re
from collections.abc import Mapping
from pathlib import Path

from fleetlab.core import TraceError
from fleetlab.core.kubernetes import SCORES, KubeScheduler, Shape
from fleetlab.core.names import lookup
from fleetlab.traces.kubernetes.objects import MalformedObject, Object, elements, members, whole, words

HINT = "what kube-scheduler is given with --config: a KubeSchedulerConfiguration"
VERSION = "kubescheduler.config.k8s.io/v1beta1"
LATER = (
    "scores of Kubernetes 1.23 and later are others; written as v1beta1, NodeResourcesMostAllocated or "
    "RequestedToCapacityRatio among plugins.score.enabled stand for a scoringStrategy"
)
# Plugins that score, beside those of the default profile.
OTHERS = ("NodeResourcesMostAllocated", "RequestedToCapacityRatio", "NodeLabel", "ServiceAffinity")
DEFAULT = KubeScheduler()
KIND = re.compile(r"""(?:^kind|"kind")\s*:\s*["']?KubeSchedulerConfiguration\b""", re.MULTILINE)


def read_scheduler(path: Path, name: str | None = None) -> KubeScheduler:
    """Read a profile from a file; the first if none is named."""
    try:
        text = path.read_text("utf-8")
    except (OSError, UnicodeDecodeError) as e:
        msg = f"{path.name}: cannot be read: {e}"
        raise TraceError(msg, hint=HINT) from None
    return scheduler_in(text, path.name, name)


def scheduler_in(text: str, file: str, name: str | None = None) -> KubeScheduler:
    """Read a profile from the text of a file."""
    try:
        return scheduler_of(members(_document(text, file), file), name)
    except MalformedObject as e:
        msg = f"{file}: {e}"
        raise TraceError(msg, hint=HINT) from None


def is_scheduler(beginning: str) -> bool:
    """Return whether a file configures kube-scheduler, by its beginning."""
    return bool(KIND.search(beginning))


def _document(text: str, file: str) -> object:
    if text.lstrip().startswith("{"):
        try:
            return json.loads(text)
        except ValueError as e:
            raise MalformedObject(str(e)) from None
    try:
        import yaml
    except ImportError:
        msg = f"{file}: YAML needs PyYAML"
        raise TraceError(msg, hint="pip install 'fleetlab[k8s]', or write it as JSON") from None
    try:
        return yaml.safe_load(text)
    except yaml.YAMLError as e:
        raise MalformedObject(str(e).replace("\n", " ")) from None


def scheduler_of(config: Object, name: str | None = None) -> KubeScheduler:
    """Read a profile; Malformed says what is wrong with it."""
    if config.get("kind") != "KubeSchedulerConfiguration":
        msg = "not a KubeSchedulerConfiguration"
        raise MalformedObject(msg)
    version = words(config.get("apiVersion"), "apiVersion")
    if version and version != VERSION:
        msg = f"apiVersion {version} is not modeled, only {VERSION}: {LATER}"
        raise MalformedObject(msg)
    profile = _profile(config, name)
    plugins = members(members(profile.get("plugins"), "plugins").get("score"), "plugins.score")
    arguments = dict(_arguments(profile))
    return KubeScheduler(
        weights=_weights(plugins),
        resources={plugin: found for plugin, given in arguments.items() if (found := _resources(given))},
        shape=_shape(arguments.get("RequestedToCapacityRatio", {})),
        percentage=whole(config.get("percentageOfNodesToScore"), "percentageOfNodesToScore"),
        initial_backoff=_seconds(config, "podInitialBackoffSeconds", DEFAULT.initial_backoff),
        max_backoff=_seconds(config, "podMaxBackoffSeconds", DEFAULT.max_backoff),
        hard_affinity=_hard_affinity(arguments.get("InterPodAffinity", {})),
    )


def _profile(config: Object, name: str | None) -> Object:
    profiles = [members(one, "profiles") for one in elements(config.get("profiles"), "profiles")] or [{}]
    names = [words(one.get("schedulerName"), "schedulerName") or "default-scheduler" for one in profiles]
    if name is not None and name not in names:
        msg = f"no profile named {name}: {', '.join(names)}"
        raise MalformedObject(msg)
    return profiles[names.index(name) if name is not None else 0]


def _weights(plugins: Object) -> Mapping[str, int]:
    """The default plugins without those that are disabled, then those that are enabled."""
    off = [words(members(one, "disabled").get("name"), "name") for one in elements(plugins.get("disabled"), "disabled")]
    weights = {} if "*" in off else {name: weight for name, weight in SCORES.items() if name not in off}
    for one in elements(plugins.get("enabled"), "enabled"):
        plugin = members(one, "enabled")
        name = words(plugin.get("name"), "name")
        lookup("score plugin of Kubernetes 1.20", name, (*SCORES, *OTHERS), error=TraceError)
        weights[name] = whole(plugin.get("weight"), "weight") or 1
    return weights


def _arguments(profile: Object) -> list[tuple[str, Object]]:
    given = [members(one, "pluginConfig") for one in elements(profile.get("pluginConfig"), "pluginConfig")]
    found = [(words(one.get("name"), "pluginConfig.name"), members(one.get("args"), "args")) for one in given]
    for plugin, arguments in found:
        if "scoringStrategy" in arguments:
            msg = f"scoringStrategy of {plugin} is of v1beta2 and later: {LATER}"
            raise MalformedObject(msg)
    return found


def _resources(arguments: Object) -> dict[str, int]:
    listed = [members(one, "resources") for one in elements(arguments.get("resources"), "resources")]
    return {
        words(one.get("name"), "resources.name"): whole(one.get("weight"), "resources.weight") or 1 for one in listed
    }


def _hard_affinity(arguments: Object) -> int:
    key = "hardPodAffinityWeight"
    return whole(arguments[key], key) if arguments.get(key) is not None else DEFAULT.hard_affinity


def _shape(arguments: Object) -> Shape:
    listed = [members(one, "shape") for one in elements(arguments.get("shape"), "shape")]
    points = [(whole(one.get("utilization"), "utilization"), whole(one.get("score"), "score")) for one in listed]
    return Shape(tuple(points)) if points else DEFAULT.shape


def _seconds(config: Object, key: str, otherwise: float) -> float:
    return float(whole(config[key], key)) if config.get(key) is not None else otherwise
