"""Simulate a scenario."""

from __future__ import annotations

from typing import Unpack

from fleetlab import sim
from fleetlab.core import Cluster, Progress, Scenario, Words
from fleetlab.core.scenario import ScenarioLike


def simulate(
    source: ScenarioLike, cluster: Cluster | None = None, *, progress: Progress | None = None, **words: Unpack[Words]
) -> sim.SimResult:
    """Simulate a scenario."""
    s = Scenario.of(source, cluster, **words)
    p = s.policy
    return sim.simulate(
        s.workload, s.cluster, order=p.order, backfill=p.backfill, placement=p.placement, estimate=s.estimate,
        sharing=p.sharing, slowdown=s.speed, preempt=p.preemption, recovery=p.recovery, events=s.events,
        quota=p.quota, weights=p.weights, prices=s.prices, seed=s.seed, until=s.until, progress=progress,
    )  # fmt: skip
