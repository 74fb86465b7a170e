"""Run a scenario."""

from __future__ import annotations

import polars as pl

from fleetlab.core import Scenario
from fleetlab.core.catalog import REASONS
from fleetlab.sim import SimResult, simulate


def run(scenario: Scenario) -> SimResult:
    """Simulate a scenario."""
    p = scenario.policy
    return simulate(
        scenario.workload, scenario.cluster, order=p.order, backfill=p.backfill, placement=p.placement,
        estimate=scenario.estimate, sharing=p.sharing, slowdown=scenario.speed, preempt=p.preemption,
        recovery=p.recovery, events=scenario.events, quota=p.quota, weights=p.weights, prices=scenario.prices,
        seed=scenario.seed, until=scenario.until,
    )  # fmt: skip


def wait_ledger(result: SimResult) -> pl.DataFrame:
    """Return the seconds that each job waited, by the reasons of the catalog."""
    ledger = result.ledger
    return ledger.rename(dict(zip(ledger.columns[1:], REASONS.names, strict=True)))
