"""A job as Kueue admits it: sets of pods that are all alike, with what each asks for."""

from __future__ import annotations

from collections.abc import Mapping
from dataclasses import dataclass, field
from functools import cached_property

from fleetlab.schedulers.kubernetes.config import Selector, Toleration

POD_SET = "kueue.x-k8s.io/podset-"  # how the annotations begin by which pods say where they are to lie


@dataclass(frozen=True)
class TopologyRequest:
    """How close the pods of a set must, or should, lie; slices are parts that must each lie within one domain."""

    required: str | None = None
    preferred: str | None = None
    unconstrained: bool = False
    slice_required: str | None = None
    slice_size: int | None = None

    @classmethod
    def of_annotations(cls, given: Mapping[str, str]) -> TopologyRequest | None:
        """What the annotations of a pod ask for; None: nothing."""
        size = given.get(f"{POD_SET}slice-size", "")
        found = cls(
            given.get(f"{POD_SET}required-topology") or None,
            given.get(f"{POD_SET}preferred-topology") or None,
            given.get(f"{POD_SET}unconstrained-topology") == "true",
            given.get(f"{POD_SET}slice-required-topology") or None,
            int(size) if size.isascii() and size.isdecimal() and len(size) < 10 else None,
        )
        return None if found == cls() else found


@dataclass(frozen=True)
class Parallelism:
    """How many pods of a Job run at once: what it asks for, the least that will do, and how many must complete."""

    count: int
    least: int | None = None  # None: all of them
    completions: int | None = None  # None: nothing says how its work is divided

    def stretch(self, pods: int) -> float:
        """How many times as long it runs with so many pods at once.

        Completions are of equal length, and come in waves of as many pods. Of other jobs nothing says how their
        runtime depends on the number of pods: they are supposed to take the same pod-time.

        >>> Parallelism(8, completions=8).stretch(6), Parallelism(8, completions=24).stretch(6)
        (2.0, 1.3333333333333333)
        >>> Parallelism(8).stretch(4)
        2.0
        """
        if self.completions is None:
            return self.count / pods
        return -(-self.completions // pods) / -(-self.completions // self.count)


@dataclass(frozen=True)
class PodSet:
    """Pods that are all alike."""

    name: str = "main"
    count: int = 1
    requests: Mapping[str, int] = field(default_factory=dict)  # of each pod
    min_count: int | None = None  # fewer pods will do
    selector: Selector = field(default_factory=Selector)
    required: tuple[Selector, ...] = ()  # of which a node must match one, if there are any
    tolerations: tuple[Toleration, ...] = ()
    topology: TopologyRequest | None = None
    on_node: Mapping[str, int] = field(default_factory=dict)  # what a pod takes there; empty: its requests
    completions: int | None = None  # of a Job: how many pods must complete

    @property
    def taken(self) -> Mapping[str, int]:
        """What a pod takes of its node, whether quota covers it or not."""
        return self.on_node or self.requests

    def stretch(self, pods: int) -> float:
        """How many times as long it runs with so many of its pods."""
        return Parallelism(self.count, self.min_count, self.completions).stretch(pods)


@dataclass(frozen=True)
class KueueWorkload:
    """A job as Kueue admits it: all of it or, where `min_count` says so, part of it."""

    name: str  # namespace/name
    cluster_queue: str
    pod_sets: tuple[PodSet, ...]
    priority: int = 0
    created: float = 0.0
    uid: str = ""  # by which workloads that are otherwise equal are ordered; empty: by name

    @cached_property
    def shape(self) -> str:
        """What it asks for, as a text: workloads with the same ask for the same."""
        return repr(self.pod_sets)

    @property
    def tie(self) -> str:
        """What decides between workloads that are otherwise equal."""
        return self.uid or self.name

    @property
    def shrinks(self) -> bool:
        """Whether fewer pods will do."""
        return any(one.min_count is not None for one in self.pod_sets)
