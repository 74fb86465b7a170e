"""Loss systems with multi-server jobs: the Kaufman–Roberts recursion, exact."""

from __future__ import annotations

import numpy as np

from fleetlab.core import Estimate, WorkloadError
from fleetlab.queueing.distributions import Floats
from fleetlab.queueing.formulas.output import FormulaOutput, alike, classes

LARGE = 1e200


def occupancy(c: int, a: Floats, b: tuple[int, ...]) -> Floats:
    """The chance that 0, 1, … c servers are taken by classes of `b` servers a job and `a` jobs offered at once."""
    q = np.zeros(c + 1)
    q[0] = 1.0
    pull = [(float(load * need), need) for load, need in zip(a, b, strict=True)]
    for j in range(1, c + 1):
        q[j] = sum(w * q[j - need] for w, need in pull if need <= j) / j
        if q[j] > LARGE:  # only ratios count
            q[: j + 1] /= LARGE
    return np.asarray(q / q.sum())


def kaufman_roberts(a: tuple[float, ...], b: tuple[int, ...], c: int) -> FormulaOutput:
    """Who does not find `b` of `c` servers free goes away; the law of runtimes does not matter."""
    alike(a=a, b=b)
    if max(b) > c:
        msg = f"a job of {max(b)} servers can never run on: {c}"
        raise WorkloadError(msg, hint="b is at most c, for each class")
    q = occupancy(c, np.array(a), b)
    away = [float(q[c - need + 1 :].sum()) for need in b]
    busy = float(np.dot(q, np.arange(c + 1)))
    metrics = [Estimate.exact(f"blocking probability of class {k + 1}", p) for k, p in enumerate(away)]
    metrics += [Estimate.exact("mean busy servers", busy), Estimate.exact("utilization", busy / c)]
    return FormulaOutput(metrics, classes(offered=a, servers=b, **{"blocking": away}))
