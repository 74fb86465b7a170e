"""Whether the tuned policy is better than the baselines, week by week, in weeks that it was not chosen on.

Differences are taken within a week and have Student's interval over weeks. *Better than every baseline* needs each
difference to be significant by itself: an intersection-union test needs no correction (Berger 1982). The intervals of
the table hold simultaneously (Bonferroni).
"""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from dataclasses import dataclass

import numpy as np
import polars as pl

from fleetlab.core import Estimate, say
from fleetlab.stats import Statistic, bonferroni, change, mean_of_runs
from fleetlab.studies.tune.baselines import Baseline, Means, best, mean

WORDS = {"lower": "better", "higher": "worse"}  # of a metric that should be low


@dataclass(frozen=True, slots=True, eq=False)
class Verdict:
    """The means of the held-out weeks."""

    tuned: Means
    held_out: Mapping[str, Means]  # of the baselines, by name
    baselines: Sequence[Baseline]
    train: float  # mean of the tuned policy over the weeks it was chosen on

    @property
    def best(self) -> Baseline:
        """The best baseline in training: what one would use without a search."""
        return best(self.baselines)

    def difference(self, name: str) -> Statistic:
        """Return the mean difference of the tuned policy from a baseline, within a week."""
        return mean_of_runs([value - self.held_out[name][week] for week, value in self.tuned.items()])

    @property
    def not_beaten(self) -> list[str]:
        """The baselines without preemption that it is not significantly better than, the best in these weeks first."""
        names = [b.name for b in self.baselines if not b.preempts]
        some = [name for name in names if not self.difference(name).interval().high < 0]
        return sorted(some, key=lambda name: mean(self.held_out[name]))

    @property
    def better(self) -> bool:
        """Whether it is significantly better than every baseline without preemption."""
        return not self.not_beaten


def table(verdict: Verdict) -> pl.DataFrame:
    """Return a row per policy, best first; the intervals of differences hold simultaneously."""
    confidence = bonferroni(len(verdict.baselines))
    rows: list[dict[str, object]] = [
        {"policy": "tuned", "preempts": False, "training": verdict.train, "held out": mean(verdict.tuned)}
    ]
    for baseline in verdict.baselines:
        value, low, high = verdict.difference(baseline.name).interval(confidence)
        word = change(value, low, high)
        rows.append({
            "policy": baseline.name, "preempts": baseline.preempts,
            "training": mean(baseline.train) if baseline.train else None,
            "held out": mean(verdict.held_out[baseline.name]),
            "difference": value, "low": low, "high": high, "tuned is": WORDS.get(word, word),
        })  # fmt: skip
    kinds = dict.fromkeys(("training", "difference", "low", "high"), pl.Float64())
    frame = pl.DataFrame(rows, schema_overrides=kinds, infer_schema_length=None)
    return frame.with_columns(pl.col("tuned is").fill_null("")).sort("held out", maintain_order=True)


def findings(verdict: Verdict, metric: str, unit: str) -> tuple[str, ...]:
    """Return the verdict, what became of the gain in training, and preemptive baselines that are better."""
    first = verdict.best.name
    value, low, high = verdict.difference(first).interval()
    amount = f"{metric}{say(Estimate('', value, low, high, unit))} against {first}, the best in training"
    if verdict.better:
        line = f"the tuned policy is better than every baseline: on held-out weeks {amount}"
    elif verdict.tuned == {week: verdict.held_out[first][week] for week in verdict.tuned}:
        line = f"no policy is better than the best baseline, {first}: on held-out weeks the tuned one is the same"
    elif high < 0:
        others = ", ".join(verdict.not_beaten)
        line = (
            f"the tuned policy is better than {first}, but not significantly than {others}: on held-out weeks {amount}"
        )
    else:
        worse = "worse" if low > 0 else "not significantly better"
        line = (
            f"no policy is better than the best baseline, {first}: on held-out weeks the tuned one is {worse}, {amount}"
        )
    return (line, *_gain(verdict), *_preemptive(verdict))


def _gain(verdict: Verdict) -> list[str]:
    before = mean(verdict.best.train)
    gain = 1 - verdict.train / before if before else 0.0
    if gain <= 0:
        return ["in training no trial is better either"]
    reference = mean(verdict.held_out[verdict.best.name])
    kept = -verdict.difference(verdict.best.name).value / reference if reference else 0.0
    lower = f"{kept:.1%} lower" if kept >= 0 else f"{-kept:.1%} higher"
    return [f"in training, where it was chosen, it is {gain:.1%} lower; on held-out weeks {lower}"]


def _preemptive(verdict: Verdict) -> list[str]:
    names = [b.name for b in verdict.baselines if b.preempts and verdict.difference(b.name).interval().low > 0]
    return [f"better still: {', '.join(names)}; they preempt running jobs, at no cost here"] if names else []


def weekly(verdict: Verdict) -> pl.DataFrame:
    """Return the tuned policy beside the best baseline, week by week."""
    beside = verdict.held_out[verdict.best.name]
    weeks = np.array(list(verdict.tuned))
    tuned, other = (np.array([means[int(w)] for w in weeks]) for means in (verdict.tuned, beside))
    return pl.DataFrame({"week": weeks + 1, "tuned": tuned, verdict.best.name: other, "difference": tuned - other})
