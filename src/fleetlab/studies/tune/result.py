"""The result of a policy search: the policy, and how it compares with the baselines on weeks that it was not chosen on.

The baselines are every built-in order, and every placement with the best of them. Differences are taken within a week
and have Student's interval over weeks. *Better than every baseline* needs each difference to be significant by itself:
an intersection-union test needs no correction (Berger 1982). The intervals of the table hold simultaneously
(Bonferroni).
"""

from __future__ import annotations

from collections.abc import Callable, Mapping, Sequence
from dataclasses import dataclass, field
from pathlib import Path
from typing import Any

import numpy as np
import polars as pl

from fleetlab.core import Estimate, Figure, Policy, PolicyError, Progress, Provenance, Result, as_json, say
from fleetlab.core.catalog import BACKFILLS, ORDERS, PLACEMENTS
from fleetlab.core.coverage import Coverage
from fleetlab.core.files import atomic_write
from fleetlab.core.words import WORDS, Opaque, plain
from fleetlab.stats import BETTER, CONFIDENCE, NO_DIFFERENCE, POSITIVE, WORSE, Statistic, bonferroni, over_replicas
from fleetlab.stats import verdict as verdict_of
from fleetlab.studies.tune import terms
from fleetlab.studies.tune.search import PolicyTrial
from fleetlab.studies.tune.terms import WEIGHTED, Params

# -- baselines ---------------------------------------------------------------------------------------------------------

PLACEMENT = WORDS["placement"].default
PREEMPTIVE = ORDERS.where("preemptive")  # preemption costs nothing here
RESERVING = BACKFILLS.where("reserves")  # backfills that cannot be combined with preemption

Means = dict[int, float]  # by week


@dataclass(frozen=True, slots=True)
class Baseline:
    """A policy, and its means in the training weeks; a preemptive one is not simulated there."""

    order: Any
    placement: Any
    train: Means = field(default_factory=dict)

    @property
    def name(self) -> str:
        """ORDER/PLACEMENT."""
        return f"{plain(self.order)}/{plain(self.placement)}"

    @property
    def preempts(self) -> bool:
        """Whether it preempts running jobs."""
        return self.order in PREEMPTIVE


def orders(against: Sequence[str], backfill: str) -> list[str]:
    """Return the orders to compare with (default: all), of which at least one does not preempt."""
    for name in against:
        ORDERS.index(name)
    names = [name for name in ORDERS.names if name in against] if against else list(ORDERS.names)
    if all(name in PREEMPTIVE for name in names):
        msg = f"at least one order that does not preempt is needed: {', '.join(names)}"
        raise PolicyError(msg, hint="fifo, sjf, smallest, fair, or nothing for all of them")
    return [name for name in names if name not in PREEMPTIVE or backfill not in RESERVING]


def train(means: Callable[..., Means], names: Sequence[str], policy: Policy, progress: Progress) -> list[Baseline]:
    """Simulate every order, every placement with the best of them, and the policy of the scenario; preemptive last."""
    static = [name for name in names if name not in PREEMPTIVE]
    steps, baselines = len(static) + len(PLACEMENTS), list[Baseline]()

    def run(order: Any, placement: Any) -> None:  # noqa: ANN401
        progress("simulating the built-in policies", len(baselines), len(baselines) / steps)
        baselines.append(Baseline(order, placement, means(order=order, placement=placement)))

    for name in static:
        run(name, PLACEMENT)
    first = best(baselines).order
    for name in PLACEMENTS.names:
        if name != PLACEMENT:
            run(first, name)
    if not policy.preempts and (policy.order, policy.placement) not in {(b.order, b.placement) for b in baselines}:
        run(policy.order, policy.placement)
    progress("simulating the built-in policies", len(baselines), 1.0)
    return [*baselines, *(Baseline(name, PLACEMENT) for name in names if name in PREEMPTIVE)]


def best(baselines: Sequence[Baseline]) -> Baseline:
    """Return the best of those that were simulated in training; of equal ones the first."""
    return min((baseline for baseline in baselines if baseline.train), key=lambda baseline: mean(baseline.train))


def mean(weeks: Means) -> float:
    """Return the mean over weeks."""
    return sum(weeks.values()) / len(weeks)


# -- the verdict -------------------------------------------------------------------------------------------------------


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
        return over_replicas(self._differences(name), levels=self._levels(name))

    def word(self, name: str, confidence: float = CONFIDENCE) -> str:
        """Return whether the tuned policy is better than a baseline: weeks are paired replicas of each other."""
        level, levels = mean(self.held_out[name]), self._levels(name)
        return verdict_of(self._differences(name), level, levels=levels, confidence=confidence)

    def _levels(self, name: str) -> list[float]:
        return [self.held_out[name][week] for week in self.tuned]

    def _differences(self, name: str) -> list[float]:
        return [value - self.held_out[name][week] for week, value in self.tuned.items()]

    @property
    def not_beaten(self) -> list[str]:
        """The baselines without preemption that it is not significantly better than, the best in these weeks first."""
        names = [b.name for b in self.baselines if not b.preempts]
        some = [name for name in names if self.word(name) != BETTER]
        return sorted(some, key=lambda name: mean(self.held_out[name]))

    @property
    def better(self) -> bool:
        """Whether it is significantly better than every baseline without preemption."""
        return not self.not_beaten


def verdict_table(verdict: Verdict) -> pl.DataFrame:
    """Return a row per policy, best first; the intervals of differences hold simultaneously."""
    confidence = bonferroni(len(verdict.baselines))
    rows: list[dict[str, object]] = [
        {"policy": "tuned", "preempts": False, "training": verdict.train, "held out": mean(verdict.tuned)}
    ]
    for baseline in verdict.baselines:
        value, low, high = verdict.difference(baseline.name).interval(confidence)
        rows.append({
            "policy": baseline.name, "preempts": baseline.preempts,
            "training": mean(baseline.train) if baseline.train else None,
            "held out": mean(verdict.held_out[baseline.name]),
            "difference": value, "low": low, "high": high, "tuned is": verdict.word(baseline.name, confidence),
        })  # fmt: skip
    kinds = dict.fromkeys(("training", "difference", "low", "high"), pl.Float64())
    frame = pl.DataFrame(rows, schema_overrides=kinds, infer_schema_length=None)
    return frame.with_columns(pl.col("tuned is").fill_null("")).sort("held out", maintain_order=True)


def verdict_findings(verdict: Verdict, metric: str, unit: str) -> tuple[str, ...]:
    """Return the verdict, what became of the gain in training, and preemptive baselines that are better."""
    first = verdict.best.name
    value, low, high = verdict.difference(first).interval()
    amount = f"{metric}{say(Estimate('', value, low, high, unit))} against {first}, the best in training"
    if verdict.better:
        line = f"the tuned policy is better than every baseline: on held-out weeks {amount}"
    elif verdict.tuned == {week: verdict.held_out[first][week] for week in verdict.tuned}:
        line = f"no policy is better than the best baseline, {first}: on held-out weeks the tuned one is the same"
    elif verdict.word(first) == BETTER:
        others = ", ".join(verdict.not_beaten)
        line = (
            f"the tuned policy is better than {first}, but not significantly than {others}: on held-out weeks {amount}"
        )
    else:
        worse = {WORSE: "worse", NO_DIFFERENCE: "no different"}.get(verdict.word(first), "not significantly better")
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
    held_out_gain = -verdict.difference(verdict.best.name).value / reference if reference else 0.0
    lower = f"{held_out_gain:.1%} lower" if held_out_gain >= 0 else f"{-held_out_gain:.1%} higher"
    return [f"in training, where it was chosen, it is {gain:.1%} lower; on held-out weeks {lower}"]


def _preemptive(verdict: Verdict) -> list[str]:
    names = [b.name for b in verdict.baselines if b.preempts and verdict.word(b.name) == WORSE]
    return [f"better still: {', '.join(names)}; they preempt running jobs, at no cost here"] if names else []


def weekly(verdict: Verdict) -> pl.DataFrame:
    """Return the tuned policy beside the best baseline, week by week."""
    beside = verdict.held_out[verdict.best.name]
    weeks = np.array(list(verdict.tuned))
    tuned, other = (np.array([means[int(w)] for w in weeks]) for means in (verdict.tuned, beside))
    return pl.DataFrame({"week": weeks + 1, "tuned": tuned, verdict.best.name: other, "difference": tuned - other})


# -- the result --------------------------------------------------------------------------------------------------------

POLICY = "tuned.py"
RESULT = "tuned.json"
# What can be minimized, a column of the jobs of a run: the name of its mean, and the unit.
GOALS = {"wait": ("mean wait", "s"), "jct": ("mean JCT", "s"), "bounded_slowdown": ("mean bounded slowdown", "")}


@dataclass(frozen=True, slots=True, repr=False)
class Tuning(Result):
    """The best policy of a search on training weeks, compared with baselines on held-out weeks."""

    provenance: Provenance
    params: Params
    better: bool  # than every baseline without preemption, significantly
    estimates: tuple[Estimate, ...]
    frames: dict[str, pl.DataFrame]
    charts: dict[str, Figure]
    findings: tuple[str, ...]
    notes: tuple[str, ...] = ()
    coverage: Coverage | None = None

    @classmethod
    def of(
        cls, verdict: Verdict, trials: Sequence[PolicyTrial], trial: PolicyTrial, goal: str, provenance: Provenance,
        notes: Sequence[str],
    ) -> Tuning:  # fmt: skip
        """Build the tables and figures."""
        (metric, unit), first = GOALS[goal], verdict.best.name
        frames = {
            "policies": verdict_table(verdict),
            "weeks": weekly(verdict),
            "weights": _weights(trial.params),
            "trials": _trials(trials),
        }
        estimates = (
            Estimate(f"{metric}, tuned − {first}, held-out weeks", *verdict.difference(first).interval(), unit),
            _mean_estimate(verdict.tuned, f"{metric}, tuned, held-out weeks", unit),
            _mean_estimate(verdict.held_out[first], f"{metric}, {first}, held-out weeks", unit),
            Estimate.exact("held-out weeks", len(verdict.tuned)),
            Estimate.exact("trials", len(trials)),
        )
        figures = _figures(frames["policies"], frames["trials"], mean(verdict.best.train), first, metric, unit)
        lines = verdict_findings(verdict, metric, unit)
        return cls(provenance, trial.params, verdict.better, estimates, frames, figures, lines, tuple(notes))

    @property
    def words(self) -> dict[str, Any]:
        """The policy as words of a scenario: order, placement and weights."""
        return terms.words_of(self.params)

    @property
    def text(self) -> str:
        """The policy as a Python module."""
        where = "tuned:placement" if self.params["placement"] == WEIGHTED else self.params["placement"]
        settings = self.provenance.settings
        same = [word for word in ("backfill", "estimate") if not isinstance(settings[word], Opaque)]
        rest = " ".join(f"--{word} {settings[word]}" for word in same)
        use = f"fleetlab simulate TRACE --order tuned:order --placement {where} {rest}"
        return f'"""Made by `fleetlab tune`; to use it in this folder: {use}."""\n\n{terms.policy_text(self.params)}'

    def save(self, folder: Path) -> None:
        """Write the policy and this result into a folder.

        Parameters
        ----------
        folder
            The folder; it is made where it is not there.

        Examples
        --------
        >>> import fleetlab
        >>> from tempfile import TemporaryDirectory
        >>> trace = fleetlab.synthesize(jobs=200, days=4)
        >>> with TemporaryDirectory() as folder:
        ...     fleetlab.tune(trace, trials=2, days=1, warm=0, against=["fifo"]).save(Path(folder))
        ...     len(list(Path(folder).iterdir()))
        2
        """
        folder.mkdir(parents=True, exist_ok=True)
        atomic_write(folder / POLICY, self.text)
        atomic_write(folder / RESULT, as_json(self))


def _mean_estimate(means: Means, metric: str, unit: str) -> Estimate:
    values = list(means.values())
    return Estimate(metric, *over_replicas(values, POSITIVE, levels=values).interval(), unit)


def _weights(params: Params) -> pl.DataFrame:
    """Return the terms of the policy with their meanings, and its placement where that is a built-in one."""
    weights = terms.weights_of(params)
    rows: list[dict[str, Any]] = [
        {"term": term.name, "weight": weight, "meaning": term.above if weight > 0 else term.below}
        for term in terms.ALL
        if (weight := weights[term.name])
    ]
    where = params["placement"]
    built_in = [] if where == WEIGHTED else [{"term": f"placement {where}", "weight": None, "meaning": "built in"}]
    return pl.DataFrame([*rows, *built_in], schema={"term": pl.String, "weight": pl.Float64, "meaning": pl.String})


def _trials(trials: Sequence[PolicyTrial]) -> pl.DataFrame:
    values = np.array([trial.value for trial in trials])
    rows = [
        {"trial": k + 1, "value": trial.value, "best so far": best, "placement": trial.params["placement"]}
        | terms.weights_of(trial.params)
        for k, (trial, best) in enumerate(zip(trials, np.minimum.accumulate(values).tolist(), strict=True))
    ]
    return pl.DataFrame(rows, infer_schema_length=None)


def _figures(
    policies: pl.DataFrame, trials: pl.DataFrame, bar: float, first: str, metric: str, unit: str
) -> dict[str, Figure]:
    baselines = policies.filter(pl.col("difference").is_not_null())
    differences = baselines.select(x="policy", y="difference", low="low", high="high")
    best = pl.concat(
        [
            trials.select(x="trial", y="best so far", series=pl.lit("best so far")),
            trials.select(x="trial", y=pl.lit(bar), series=pl.lit(first)),
        ]
    )
    in_unit = f", {unit}" if unit else ""
    better = int((baselines["tuned is"] == "better").sum())
    return {
        "differences on held-out weeks": Figure(
            "Tuned policy minus each baseline, held-out weeks", "dots", differences, "baseline",
            f"{metric}: difference{in_unit}",
            f"the tuned policy is significantly better than {better} of {baselines.height} baselines",
        ),
        "search": Figure(
            "Best policy so far, training weeks", "step", best, "trial", f"{metric}{in_unit}",
            f"from {trials['best so far'][0]:.4g} in the first trial to {trials['best so far'][-1]:.4g}; "
            f"{first} has {bar:.4g}",
        ),
    }  # fmt: skip
