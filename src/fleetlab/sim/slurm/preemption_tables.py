"""Who preempts whom, and how: from a site's classes of service."""

from __future__ import annotations

import numpy as np

from fleetlab.core.slurm import Slurm as Site
from fleetlab.sim.layout import Floats, Ints
from fleetlab.sim.slurm import state

MODES = {None: state.OFF, "off": state.OFF, "requeue": state.REQUEUE, "cancel": state.CANCEL, "suspend": state.SUSPEND}
MOST_WEIGHT = 0xFFFF  # of a class of service, when jobs to preempt are chosen


def preempts(site: Site) -> Ints:
    """Return which class may preempt which: 1, or WITHIN for those that do so among themselves."""
    names = [q.name for q in site.qos]
    within = [state.WITHIN if q.within or site.within else 0 for q in site.qos]
    table_ = [[within[k] if q.name == other else int(other in q.preempts) for other in names]
              for k, q in enumerate(site.qos)]  # fmt: skip
    return np.array(table_, dtype=np.int64).reshape(len(names), len(names))


def modes(site: Site) -> Ints:
    """Return how jobs of each class are preempted; the last is for jobs without one."""
    known = [MODES[site.preempt_mode if q.preempt_mode in (None, "cluster") else q.preempt_mode] for q in site.qos]
    return np.array([*known, MODES[site.preempt_mode]], dtype=np.int64)


def ranks(site: Site) -> Ints:
    """Return how deep each class of service is below those that preempt it."""
    below = {q.name: {other.name for other in site.qos if q.name in other.preempts} for q in site.qos}
    rank = dict.fromkeys(below, 0)
    for _ in site.qos:
        rank = {name: max([0, *(rank[other] + 1 for other in above if other in rank)]) for name, above in below.items()}
        rank = {name: min(value, len(rank)) for name, value in rank.items()}
    return np.array([*rank.values(), 0], dtype=np.int64)


def weights(site: Site) -> Ints:
    """Return the priority of each class, by which jobs to preempt are chosen."""
    return np.array([*(min(q.priority, MOST_WEIGHT) for q in site.qos), 0], dtype=np.int64)


def exempt_times(site: Site) -> Floats:
    """Return how long jobs of a class are not preempted: its own time before the cluster's."""
    return np.array([*(site.exempt if q.exempt is None else q.exempt for q in site.qos), site.exempt])


def grace_times(site: Site) -> Floats:
    """Return how long jobs of a class stay when they have been told to go."""
    return np.array([*(q.grace for q in site.qos), 0.0])
