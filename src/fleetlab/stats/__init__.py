"""Uncertainty: the only place that computes confidence intervals, tests and corrections for many comparisons.

Which function answers which question:

- one value a run, independent runs: `mean_of_runs`; several runs that each have an error: `pool`
- values of one run in order of time: `BlockBootstrap` (means, ratios, shares, quantiles), or `batch_means` where only a
  mean is needed
- two runs of the same jobs: `paired_difference` of the replicates of both
- independent users, applications or measurements: `bootstrap_units`
- a share of independent trials: `wilson`
- two means that may be equivalent: `Difference`
- several answers at once: `bonferroni`, `allowed_misses`, `spent_at_look`
"""

from fleetlab.stats.autocorrelation import cluster_effect, design_effect, variance_inflation
from fleetlab.stats.bootstrap import BLOCKS, BlockBootstrap, Replicates, bootstrap_units, divide, paired_difference
from fleetlab.stats.comparisons import allowed_misses, bonferroni, spent_at_look
from fleetlab.stats.equivalence import Difference
from fleetlab.stats.intervals import (
    ANY,
    CONFIDENCE,
    PERCENT,
    POSITIVE,
    SHARE,
    SLOWDOWN,
    Change,
    Floats,
    Interval,
    Ints,
    Range,
    Statistic,
    change,
    no_interval,
)
from fleetlab.stats.means import (
    LEAST,
    batch_means,
    control_variates,
    effective_size,
    geometric_means,
    mean_of_runs,
    pool,
    weighted_mean,
)
from fleetlab.stats.proportions import log_share, quantile_low_rank, quantile_ranks, samples_needed, wilson
from fleetlab.stats.student import NORMAL, student_cdf, student_quantile

__all__ = [
    "ANY",
    "BLOCKS",
    "CONFIDENCE",
    "LEAST",
    "NORMAL",
    "PERCENT",
    "POSITIVE",
    "SHARE",
    "SLOWDOWN",
    "BlockBootstrap",
    "Change",
    "Difference",
    "Floats",
    "Interval",
    "Ints",
    "Range",
    "Replicates",
    "Statistic",
    "allowed_misses",
    "batch_means",
    "bonferroni",
    "bootstrap_units",
    "change",
    "cluster_effect",
    "control_variates",
    "design_effect",
    "divide",
    "effective_size",
    "geometric_means",
    "log_share",
    "mean_of_runs",
    "no_interval",
    "paired_difference",
    "pool",
    "quantile_low_rank",
    "quantile_ranks",
    "samples_needed",
    "spent_at_look",
    "student_cdf",
    "student_quantile",
    "variance_inflation",
    "weighted_mean",
    "wilson",
]
