"""What is on the nodes: the scheduler's cache, with an array over all nodes for each resource."""

from __future__ import annotations

from collections.abc import Iterable, Iterator, Sequence
from contextlib import contextmanager
from typing import Any

import numpy as np
import numpy.typing as npt

from fleetlab.schedulers.kubernetes.config import (
    ASSUMED,
    PodTerm,
    SchedulingNode,
    SchedulingPod,
    Selector,
    Taint,
    Toleration,
)
from fleetlab.sim.kernel.service import IN_SERVICE, OUT

Ints = npt.NDArray[np.int64]
Bools = npt.NDArray[np.bool_]
FIRM = ("NoSchedule", "NoExecute")
CORDON = Taint("node.kubernetes.io/unschedulable", "", "NoSchedule")
CORDONED = "node(s) were unschedulable"
UNREACHABLE = "node(s) had taint {node.kubernetes.io/unreachable: }, that the pod didn't tolerate"


class Cache:
    """Nodes and the pods on them; a pod counts from when it is assumed until it is gone."""

    def __init__(self, nodes: Sequence[SchedulingNode]) -> None:
        self.nodes = tuple(nodes)
        self.number = {node.name: k for k, node in enumerate(self.nodes)}
        names = {name for node in self.nodes for name in node.allocatable}
        self.allocatable = {name: self._each(name) for name in sorted(names | ASSUMED.keys())}
        self.requested = {name: np.zeros(len(self.nodes), np.int64) for name in self.allocatable}
        self.scored = {name: np.zeros(len(self.nodes), np.int64) for name in ASSUMED}
        self.count = np.zeros(len(self.nodes), np.int64)
        self.pods: list[dict[str, SchedulingPod]] = [{} for _ in self.nodes]
        self.terminating: set[str] = set()
        self.started: dict[str, float] = {}  # when a pod began to run, in whole seconds, by its name
        self.nominated: dict[str, tuple[SchedulingPod, int]] = {}  # waits for room on a node, by its name
        self.open = np.ones(len(self.nodes), np.bool_)
        self.closed: dict[int, str] = {}  # why nodes take no pods, whatever these tolerate
        self._node_of: dict[str, int] = {}
        self._counts: dict[tuple[str, Selector], Ints] = {}
        self._matched: dict[tuple[PodTerm, ...], Ints] = {}
        self._terms: dict[tuple[str, int, PodTerm], Ints] = {}  # of the pods on nodes, and how many have it there
        self._first_taint: dict[Any, list[str | None]] = {}
        self._selected: dict[Any, Bools] = {}
        self._untolerated: dict[Any, Ints] = {}
        self._values: dict[str, tuple[Ints, list[str]]] = {}

    def _each(self, name: str) -> Ints:
        return np.array([node.allocatable.get(name, 0) for node in self.nodes], np.int64)

    def __contains__(self, name: str) -> bool:
        return name in self._node_of

    def node_of(self, name: str) -> int:
        """The node that a pod is on."""
        return self._node_of[name]

    def set_service(self, node: int, state: int) -> None:
        """Let a node take pods, or not, as it is in service, drained or out."""
        self.open[node] = state == IN_SERVICE
        self.closed.pop(node, None)
        if state != IN_SERVICE:
            self.closed[node] = UNREACHABLE if state == OUT else CORDONED

    def add(self, pod: SchedulingPod, node: int) -> None:
        """Put a pod on a node."""
        self.pods[node][pod.name] = pod
        self._node_of[pod.name] = node
        self._change(pod, node, 1)

    def remove(self, name: str) -> SchedulingPod:
        """Take a pod off its node."""
        node = self._node_of.pop(name)
        pod = self.pods[node].pop(name)
        self._change(pod, node, -1)
        self.terminating.discard(name)
        return pod

    def terminate(self, name: str) -> None:
        """Note that a pod was asked to go: it holds its resources, and spreading no longer counts it."""
        if name in self._node_of and name not in self.terminating:
            self._recount(self.pods[self._node_of[name]][name], self._node_of[name], -1)
            self.terminating.add(name)

    @contextmanager
    def without(self, names: Iterable[str]) -> Iterator[None]:
        """Look at the nodes as if these pods had gone."""
        taken = [(self._node_of[name], name in self.terminating, self.remove(name)) for name in names]
        try:
            yield
        finally:
            for node, was_terminating, pod in taken:
                self.add(pod, node)
                if was_terminating:
                    self.terminate(pod.name)

    @contextmanager
    def with_pods(self, pods: Sequence[SchedulingPod], node: int) -> Iterator[None]:
        """Look at a node as if these pods were on it."""
        for pod in pods:
            self.add(pod, node)
        try:
            yield
        finally:
            for pod in pods:
                self.remove(pod.name)

    def _change(self, pod: SchedulingPod, node: int, sign: int) -> None:
        for name, amount in pod.requests.items():
            if name not in self.requested:  # no node has it, but it is added up all the same
                self.allocatable[name] = np.zeros(len(self.nodes), np.int64)
                self.requested[name] = np.zeros(len(self.nodes), np.int64)
            self.requested[name][node] += sign * amount
        for name, amount in pod.scored.items():
            self.scored[name][node] += sign * amount
        self.count[node] += sign
        for term_set, counts in self._matched.items():
            counts[node] += sign * _matches_all(term_set, pod)
        for key in _terms_of(pod):
            if key not in self._terms:
                self._terms[key] = np.zeros(len(self.nodes), np.int64)
            self._terms[key][node] += sign
        if pod.name not in self.terminating:
            self._recount(pod, node, sign)

    def _recount(self, pod: SchedulingPod, node: int, sign: int) -> None:
        for (namespace, selector), counts in self._counts.items():
            if namespace == pod.namespace and selector.matches(pod.labels):
                counts[node] += sign

    def matching(self, namespace: str, selector: Selector) -> Ints:
        """How many pods of a selector are on each node; those that were asked to go are not counted."""
        if (namespace, selector) not in self._counts:
            self._counts[namespace, selector] = np.array(
                [
                    sum(
                        pod.namespace == namespace and pod.name not in self.terminating and selector.matches(pod.labels)
                        for pod in pods.values()
                    )
                    for pods in self.pods
                ],
                np.int64,
            )
        return self._counts[namespace, selector]

    def matched(self, terms: tuple[PodTerm, ...]) -> Ints:
        """How many pods on each node match all of these terms."""
        if terms not in self._matched:
            found = [sum(_matches_all(terms, pod) for pod in pods.values()) for pods in self.pods]
            self._matched[terms] = np.array(found, np.int64)
        return self._matched[terms]

    def terms(self, pod: SchedulingPod) -> Iterator[tuple[str, int, PodTerm, Ints]]:
        """Terms of pods on nodes that match a pod: whose, their weight, themselves, and how many have them there."""
        for (kind, weight, term), counts in self._terms.items():
            if counts.any() and term.matches(pod):
                yield kind, weight, term, counts

    def first_untolerated(self, tolerations: tuple[Toleration, ...]) -> list[str | None]:
        """What kube-scheduler says of the first firm taint of each node that is not tolerated; None: there is none."""
        if tolerations not in self._first_taint:
            self._first_taint[tolerations] = [_taint_reason(node, tolerations) for node in self.nodes]
        found = self._first_taint[tolerations]
        return [self.closed.get(k, why) for k, why in enumerate(found)] if self.closed else found

    def selected(self, pod: SchedulingPod) -> Bools:
        """Which nodes meet a pod's node selector and required node affinity."""
        key = (pod.selector, pod.required)
        if key not in self._selected:
            self._selected[key] = np.array([_is_selected(pod, node) for node in self.nodes], np.bool_)
        return self._selected[key]

    def preferred(self, selector: Selector) -> Bools:
        """Which nodes a preferred term matches; one without conditions matches none."""
        if selector not in self._selected:
            found = [bool(selector) and selector.matches(node.labels, node.name) for node in self.nodes]
            self._selected[selector] = np.array(found, np.bool_)
        return self._selected[selector]

    def untolerated(self, tolerations: tuple[Toleration, ...], effects: tuple[str, ...]) -> Ints:
        """How many taints of some effects each node has that are not tolerated; a cordon is one."""
        key = (tolerations, effects)
        if key not in self._untolerated:
            self._untolerated[key] = np.array(
                [
                    sum(
                        taint.effect in effects and not any(one.covers(taint) for one in tolerations)
                        for taint in (*node.taints, *([CORDON] if node.cordoned else []))
                    )
                    for node in self.nodes
                ],
                np.int64,
            )
        return self._untolerated[key]

    def values(self, key: str) -> tuple[Ints, list[str]]:
        """The number of each node's value of a label, -1 where it has none, and the values."""
        if key not in self._values:
            names = sorted({node.labels[key] for node in self.nodes if key in node.labels})
            number = {value: k for k, value in enumerate(names)}
            of = [number[node.labels[key]] if key in node.labels else -1 for node in self.nodes]
            self._values[key] = np.array(of, np.int64), names
        return self._values[key]


def _is_selected(pod: SchedulingPod, node: SchedulingNode) -> bool:
    if not pod.selector.matches(node.labels, node.name):
        return False
    return not pod.required or any(term and term.matches(node.labels, node.name) for term in pod.required)


def _matches_all(terms: tuple[PodTerm, ...], pod: SchedulingPod) -> bool:
    return all(term.matches(pod) for term in terms)


def _terms_of(pod: SchedulingPod) -> Iterator[tuple[str, int, PodTerm]]:
    yield from (("affinity", 0, term) for term in pod.affinity)
    yield from (("anti_affinity", 0, term) for term in pod.anti_affinity)
    yield from (("preferred_affinity", weight, term) for weight, term in pod.preferred_affinity)


def _taint_reason(node: SchedulingNode, tolerations: tuple[Toleration, ...]) -> str | None:
    if node.cordoned and not any(one.covers(CORDON) for one in tolerations):
        return CORDONED
    for taint in node.taints:
        if taint.effect in FIRM and not any(one.covers(taint) for one in tolerations):
            return f"node(s) had taint {{{taint.key}: {taint.value}}}, that the pod didn't tolerate"
    return None
