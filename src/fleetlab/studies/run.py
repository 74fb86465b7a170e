"""Run a scenario."""

from __future__ import annotations

import polars as pl

from fleetlab.core import Scenario
from fleetlab.core.catalog import REASONS
from fleetlab.sim import SimResult, simulate


def run(scenario: Scenario) -> SimResult:
    """Simulate a scenario."""
    return simulate(scenario)


def wait_ledger(result: SimResult) -> pl.DataFrame:
    """Return the seconds that each job waited, by the reasons of the catalog."""
    ledger = result.ledger
    return ledger.rename(dict(zip(ledger.columns[1:], REASONS.names, strict=True)))
