"""Uncertainty: the only place that computes confidence intervals, tests and corrections for many comparisons.

Which function answers which question:

- one value a run, independent runs: `mean_of_runs`; several runs that each have an error: `pool`
- values of one run in order of time: `BlockBootstrap` (means, ratios, shares, quantiles), or `batch_means` where only a
  mean is needed
- two runs of the same jobs: `paired_difference` of the replicates of both
- replicas of a scenario, or of a pair: `over_replicas`, `verdict`, `is_decided`, `chances_of_first`
- a share that can only rise with a size: `isotonic`
- independent users, applications or measurements: `bootstrap_units`
- a share of independent trials: `wilson`
- a share of trials that follow each other: `share_of_windows`
- values of groups that vary alike, as logarithms: `Spread`, `pooled_variance`, `sum_variances`, `log_interval`
- how far groups are from zero beyond the noise of their repetitions: `spread_beyond_repeats`; in an interval: `widened`
- two means that may be equivalent: `Difference`
- several answers at once: `bonferroni`, `allowed_misses`, `spent_at_look`
"""

from fleetlab.stats.bootstrap import BLOCKS, BlockBootstrap, Replicates, bootstrap_units, divide, paired_difference
from fleetlab.stats.intervals import (
    ANY,
    CONFIDENCE,
    NORMAL,
    PERCENT,
    POSITIVE,
    SHARE,
    SLOWDOWN,
    Difference,
    Floats,
    Interval,
    Ints,
    Range,
    Statistic,
    allowed_misses,
    bonferroni,
    no_interval,
    spent_at_look,
    student_cdf,
    student_quantile,
)
from fleetlab.stats.means import (
    LEAST,
    batch_means,
    cluster_effect,
    control_variates,
    design_effect,
    effective_size,
    geometric_means,
    mean_of_runs,
    pool,
    variance_inflation,
    weighted_mean,
)
from fleetlab.stats.proportions import (
    binomial_tail,
    isotonic,
    log_share,
    quantile_low_rank,
    quantile_ranks,
    samples_needed,
    wilson,
)
from fleetlab.stats.replicas import (
    BETTER,
    LEAST_BLOCKS,
    MARGIN,
    NO_DIFFERENCE,
    NOT_DECIDED,
    WORSE,
    Verdict,
    chances_of_first,
    is_decided,
    over_replicas,
    verdict,
)
from fleetlab.stats.spread import (
    UNKNOWN_SPREAD,
    Spread,
    effective_share,
    geometric_mean_of,
    log_interval,
    mean_over_groups,
    pooled_variance,
    share_of_windows,
    spread_beyond_repeats,
    spread_of_distances,
    sum_variances,
    widened,
)

__all__ = [
    "ANY", "BETTER", "BLOCKS", "CONFIDENCE", "LEAST", "LEAST_BLOCKS", "MARGIN", "NORMAL", "NOT_DECIDED",
    "NO_DIFFERENCE", "PERCENT",
    "POSITIVE", "SHARE", "SLOWDOWN", "UNKNOWN_SPREAD", "WORSE", "BlockBootstrap", "Difference", "Floats",
    "Interval", "Ints", "Range", "Replicates", "Spread", "Statistic", "Verdict", "allowed_misses", "batch_means",
    "binomial_tail", "bonferroni", "bootstrap_units", "chances_of_first", "cluster_effect",
    "control_variates", "design_effect", "divide", "effective_share", "effective_size", "geometric_mean_of",
    "geometric_means", "is_decided", "isotonic", "log_interval", "log_share", "mean_of_runs", "mean_over_groups",
    "no_interval", "over_replicas", "paired_difference", "pool", "pooled_variance", "quantile_low_rank",
    "quantile_ranks", "samples_needed", "share_of_windows", "spent_at_look", "spread_beyond_repeats",
    "spread_of_distances", "student_cdf", "student_quantile", "sum_variances", "variance_inflation", "verdict",
    "weighted_mean", "widened", "wilson",
]  # fmt: skip
