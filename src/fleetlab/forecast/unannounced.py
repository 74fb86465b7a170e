"""The share of requests from apps without a request or release in the hour before.

No series tells it before it comes. The error that is left to one who knows everything else, and of this the mean, is
a floor for any model that sees the past alone.
"""

from __future__ import annotations

import numpy as np
import polars as pl

from fleetlab.core.catalog import RESOURCES
from fleetlab.forecast.backtest import HELD_OUT
from fleetlab.forecast.demand import DemandEvents
from fleetlab.forecast.panel import Bools, Ints
from fleetlab.stats import divide

QUIET = 3600.0  # seconds without a request or a release of the same app


def unannounced(demand: DemandEvents, every: float) -> pl.DataFrame:
    """For each resource the share of requests in the tail that nothing announced, and the NRMSE left by them alone."""
    if demand.apps is None:
        return pl.DataFrame()
    everyone = np.ones(len(demand.requested), dtype=bool)
    blue = demand.added(demand.requested, every, _quiet_before(demand, demand.apps, every))
    came = demand.added(demand.requested, every, everyone)
    cut = round((1 - HELD_OUT) * len(came))
    left = blue[cut:] - blue[:cut].mean(axis=0)
    rows = {
        "resource": list(RESOURCES.names),
        "share of requests": divide(blue[cut:].sum(axis=0), came[cut:].sum(axis=0)),
        "NRMSE if all else were known": divide(np.sqrt((left**2).mean(axis=0)), came[cut:].mean(axis=0)),
    }
    return pl.DataFrame(rows).filter(pl.Series(came[cut:].any(axis=0)))


def _quiet_before(demand: DemandEvents, apps: Ints, every: float) -> Bools:
    """Has nobody asked for or let go of an instance of the same app in the hour before the step that a job came in?"""
    quiet = np.zeros(len(demand.requested), dtype=bool)
    for app in np.unique(apps):
        mine = np.flatnonzero(apps == app)
        requested, until = demand.requested[mine] // every, demand.until[mine]
        signs = np.unique(np.concatenate((requested[~np.isnan(requested)], until[np.isfinite(until)] // every)))
        before = np.concatenate(([-np.inf], signs))[np.searchsorted(signs, requested)]
        quiet[mine] = (requested - before) * every > QUIET
    return quiet
