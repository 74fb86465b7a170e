"""Replay a workload on a cluster: when and where does each job run, and why did it wait?"""

from __future__ import annotations

from collections.abc import Callable, Mapping, Sequence
from difflib import get_close_matches
from typing import Any

import numpy as np
import polars as pl

from fleetlab.core import Cluster, PolicyError, Provenance, Slowdown, Workload, WorkloadError
from fleetlab.core.events import Event, Recovery
from fleetlab.core.prices import Prices
from fleetlab.sim._nodes import WHOLE, Floats
from fleetlab.sim._played import Played, Progress
from fleetlab.sim._tables import World, world
from fleetlab.sim.check import check_order, check_placement
from fleetlab.sim.load import load
from fleetlab.sim.orders import BY_NAME, SETS
from fleetlab.sim.policy import Policy, state_of
from fleetlab.sim.policy import order as Order
from fleetlab.sim.policy import placement as Place
from fleetlab.sim.result import SimResult

BACKFILLS = ("none", "greedy", "easy", "conservative")
SHARING = ("fractional", "exclusive", "time-slicing", "mps", "mig")
PART = {"exclusive": WHOLE, "mig": WHOLE // 2}  # milli: what a share is rounded up to; by MIG cards are cut in two


def simulate(
    workload: Workload,
    cluster: Cluster,
    *,
    order: str | Order | Callable[..., float] = "fifo",
    backfill: str = "greedy",
    placement: str | Place | Callable[..., float] = "best_fit",
    estimate: str | Sequence[float] | pl.Series = "oracle",
    sharing: str = "fractional",
    slowdown: Slowdown | None = None,
    preempt: bool = False,
    recovery: Recovery | None = None,
    events: Sequence[Event] = (),
    quota: float | Mapping[str, float] | None = None,
    weights: Sequence[float] = (),
    prices: Prices | None = None,
    seed: int = 0,
    until: float | None = None,
    progress: Progress | None = None,
) -> SimResult:
    """Replay a workload on a cluster: when and where does each job run, and why did it wait?

    `order` ranks the jobs that wait, by an `estimate` of their run time where it needs one. `backfill` says what may
    start when the first job does not fit, `placement` which node it gets. `sharing` is `fractional` (a fraction of a
    GPU runs at full speed), `exclusive` (fractions are rounded up to whole GPUs), or a mode of a `slowdown` profile, by
    which jobs on one GPU slow each other; under `mig` a fraction up to a half gets half a GPU, a larger one all of it.
    With `preempt` a job may preempt running jobs that rank after it, at the cost that `recovery` states. `events` are
    node failures, drains, spot reclaims and elastic pools. `quota` is the number of GPUs a user may hold at once.
    `weights` are numbers that your own policies read as `s.weights`, without compiling again. `until` stops the clock.
    `progress` is called as the run advances.
    """
    _known("backfill", backfill, BACKFILLS)
    _known("sharing", sharing, SHARING)
    own = _weights(weights)
    who, where = _order(order, own), _place(placement, own)
    _known_end(until)
    allowed = _quota(quota, workload)
    found = world(workload, cluster, estimate=estimate, part=PART.get(sharing, 1), allowed=allowed)
    limits = None if allowed is None else np.array([allowed.get(name, -1) for name in found.users], dtype=np.int64)
    # Checkpoints cost time whether anything breaks or not, and the quick loop knows none.
    plain = sharing in ("fractional", "exclusive") and not (preempt or events or recovery or quota is not None)
    played = _quickly(found, who, backfill, where, own, seed, until) if plain else None
    if played is None:
        from fleetlab.sim import full
        from fleetlab.sim._compile import telling

        mode = sharing if sharing not in ("fractional", "exclusive") else None
        speeds = full.speeds_of(slowdown or Slowdown.default(), mode, found) if mode else None
        with telling():
            played = full.play(
                found, order=who, backfill=backfill, placement=where, preempt=preempt, quota=limits, weights=own,
                speeds=speeds, recovery=recovery, events=events, cluster=cluster, seed=seed, until=until,
                progress=progress,
            )  # fmt: skip
    settings = {
        "order": str(who), "backfill": backfill, "placement": str(where), "sharing": sharing,
        "estimate": estimate if isinstance(estimate, str) else "a column", "cluster": cluster.source,
        **_told(preempt=preempt or None, slowdown=slowdown and slowdown.device, recovery=recovery, quota=quota,
                events=list(events) or None, until=until, weights=list(weights) or None),
    }  # fmt: skip
    return SimResult.of(found, played, cluster, Provenance("simulate", workload.source, settings, seed), prices=prices)


def _told(**settings: Any) -> dict[str, Any]:  # noqa: ANN401
    """Settings that were given, in words."""
    plain = (str, int, float, bool)
    return {k: v if isinstance(v, plain) else repr(v) for k, v in settings.items() if v is not None}


def _quickly(
    found: World,
    order: str | Order,
    backfill: str,
    placement: str | Place,
    weights: Floats,
    seed: int,
    until: float | None,
) -> Played | None:
    """Play it with the quick loop, where that knows the rules."""
    from fleetlab.sim import quick
    from fleetlab.sim._compile import telling

    if backfill not in quick.BACKFILLS or not isinstance(placement, str):
        return None
    if backfill == "easy" and placement == "random":
        return None  # a reservation by lot is more than it knows
    if isinstance(order, str):
        if order not in quick.ORDERS:
            return None
        rank: str | Floats = order
    elif order.moves or found.learners:
        return None
    else:
        rank = _fixed(order, found, weights)
    with telling():
        return quick.play(found, order=rank, backfill=backfill, placement=placement, seed=seed, until=until)


def _fixed(order: Order, found: World, weights: Floats) -> Floats:
    """The rank of each job by an order that does not change its mind."""
    jobs, keys = np.arange(len(found.submit)), np.empty(len(found.submit))
    blank = np.zeros(len(jobs))
    usage = np.zeros(max(1, len(found.users)))
    state = state_of(
        found, found.N.copy(), estimate=found.estimate.copy(), attained=blank, remaining=blank, usage=usage,
        weights=weights,
    )  # fmt: skip
    if len(jobs) and not order.compiled()(state, jobs, len(jobs), 0.0, keys):
        raise order.refusal(state, jobs, 0.0)
    return keys


def _order(told: str | Order | Callable[..., float], weights: Floats) -> str | Order:
    if isinstance(told, str):
        # Built-in ones are known to the loops by name.
        if told in BY_NAME or told in SETS:
            return told
        told = load(told, "order")  # type: ignore[assignment]
    if isinstance(told, Policy) and BY_NAME.get(told.name) is told:
        return told.name
    mine = told if isinstance(told, Order) else Order(told)  # type: ignore[arg-type]
    check_order(mine, weights=weights)
    return mine


def _place(told: str | Place | Callable[..., float], weights: Floats) -> str | Place:
    if isinstance(told, str):
        told = load(told, "placement")  # type: ignore[assignment]
        if isinstance(told, str):
            return told
    mine = told if isinstance(told, Place) else Place(told)
    check_placement(mine, weights=weights)
    return mine


def _weights(told: Sequence[float]) -> Floats:
    weights = np.array(told, dtype=np.float64)
    if weights.ndim != 1 or not np.isfinite(weights).all():
        msg = f"weights are finite numbers, one after the other: {list(told)}"
        raise PolicyError(msg, hint="weights=(1.0, 0.5), which a policy reads as s.weights[0] and s.weights[1]")
    return weights


def _quota(quota: float | Mapping[str, float] | None, workload: Workload) -> dict[str, int] | None:
    """GPU milli that users may hold at once; who is not named may hold any number."""
    if quota is None:
        return None
    users = workload.frame["user"].cast(pl.String).fill_null("").unique().sort().to_list()
    told = dict.fromkeys(users, quota) if isinstance(quota, int | float) else dict(quota)
    if unknown := [name for name in told if name not in users]:
        msg = f"a quota for a user of whom there is no job: `{unknown[0]}`"
        raise WorkloadError(msg, hint=f"users are {', '.join(users[:5])}{'…' if len(users) > 5 else ''}")
    if bad := [v for v in told.values() if not 0 <= v < 1e12]:
        msg = f"a quota is a number of GPUs, not below 0: {bad[0]}"
        raise WorkloadError(msg, hint="quota=16 for everybody, or quota={'ada': 16}")
    return {name: round(value * WHOLE) for name, value in told.items()}


def _known_end(until: float | None) -> None:
    if until is not None and not until >= 0:
        msg = f"the clock stops at a second, not before 0: {until}"
        raise WorkloadError(msg, hint="until=86400 stops it after a day")


def _known(word: str, told: str, known: tuple[str, ...]) -> None:
    if told not in known:
        near = get_close_matches(str(told), known, 1)
        msg = f"no {word} by that name: `{told}`" + (f"; did you mean {near[0]}?" if near else "")
        raise PolicyError(msg, hint=f"there are {', '.join(known)}")
