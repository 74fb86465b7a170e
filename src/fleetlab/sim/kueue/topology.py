"""Topology-aware scheduling: the pods of a set in as few, and as close, domains of nodes as possible.

Domains are the values of labels of nodes, from wide to narrow. Where a level is required or preferred, the domain with
the least room that is enough is taken (BestFit); pods that may lie anywhere fill the domains with the least room first
(LeastFreeCapacity). The profile that does both is Kueue's TASProfileMixed, its default since release 0.15.
"""

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import dataclass, field

from fleetlab.core.kueue import PODS
from fleetlab.core.kueue_workload import TopologyRequest
from fleetlab.sim.kueue.domains import MIXED, DoesNotFit, Forest, Placement, PlacementResult, Seats, TopologyNeed
from fleetlab.sim.kueue.topology_search import Search


@dataclass
class Forests:
    """The domains of all flavors that have a topology."""

    by_flavor: dict[str, Forest] = field(default_factory=dict)
    profile: str = MIXED

    def use(self, placement: Placement, sign: int = 1) -> None:
        """Take the room of pods."""
        for seats in placement:
            leaf = self.by_flavor[seats.flavor].levels[-1].get(seats.domain)
            if leaf is not None:
                for name, amount in {**seats.requests, PODS: 1}.items():
                    leaf.used[name] = leaf.used.get(name, 0) + sign * amount * seats.count

    def release(self, placement: Placement) -> None:
        """Give the room of pods back."""
        self.use(placement, -1)

    def fits(self, placement: Placement) -> bool:
        """Whether there is still room for pods where they were placed."""
        self.use(placement)
        leaves = [self.by_flavor[seats.flavor].levels[-1].get(seats.domain) for seats in placement]
        fits = all(leaf and all(leaf.used[k] <= leaf.capacity.get(k, 0) for k in leaf.used) for leaf in leaves)
        self.release(placement)
        return fits

    def place(self, needs: Sequence[TopologyNeed], *, empty: bool = False) -> PlacementResult:
        """Place all sets of a workload, one after the other; `empty`: as if nobody else were there."""
        placed: list[Seats] = []
        try:
            for need in needs:
                request = need.pod_set.topology or TopologyRequest(unconstrained=True)
                seats = Search.of(self.by_flavor[need.flavor], need, request, self.profile).run(empty=empty)
                if not empty:
                    self.use(seats)
                placed += seats
        except DoesNotFit as e:
            return PlacementResult(None, str(e))
        finally:
            if not empty:
                self.release(tuple(placed))
        return PlacementResult(tuple(placed))
