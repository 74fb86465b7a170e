"""The result of a policy search: the policy, and how it compares with the baselines on held-out weeks."""

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import dataclass
from pathlib import Path
from typing import Any

import numpy as np
import polars as pl

from fleetlab.core import Estimate, Figure, Provenance, Result, as_json
from fleetlab.core.coverage import Coverage
from fleetlab.core.files import atomic_write
from fleetlab.core.words import Opaque
from fleetlab.stats import POSITIVE, mean_of_runs
from fleetlab.studies.tune import terms
from fleetlab.studies.tune.baselines import Means, mean
from fleetlab.studies.tune.search import PolicyTrial
from fleetlab.studies.tune.terms import WEIGHTED, Params
from fleetlab.studies.tune.verdict import Verdict, findings, table, weekly

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
        cls, verdict: Verdict, trials: Sequence[PolicyTrial], chosen: PolicyTrial, goal: str, provenance: Provenance,
        notes: Sequence[str],
    ) -> Tuning:  # fmt: skip
        """Build the tables and figures."""
        (metric, unit), first = GOALS[goal], verdict.best.name
        frames = {
            "policies": table(verdict),
            "weeks": weekly(verdict),
            "weights": _weights(chosen.params),
            "trials": _trials(trials),
        }
        estimates = (
            Estimate(f"{metric}, tuned − {first}, held-out weeks", *verdict.difference(first).interval(), unit),
            _mean(verdict.tuned, f"{metric}, tuned, held-out weeks", unit),
            _mean(verdict.held_out[first], f"{metric}, {first}, held-out weeks", unit),
            Estimate.exact("held-out weeks", len(verdict.tuned)),
            Estimate.exact("trials", len(trials)),
        )
        figures = _figures(frames["policies"], frames["trials"], mean(verdict.best.train), first, metric, unit)
        lines = findings(verdict, metric, unit)
        return cls(provenance, chosen.params, verdict.better, estimates, frames, figures, lines, tuple(notes))

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
        return f'"""Made by `fleetlab tune`; to use it in this folder: {use}."""\n\n{terms.text(self.params)}'

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


def _mean(means: Means, metric: str, unit: str) -> Estimate:
    return Estimate(metric, *mean_of_runs(list(means.values()), POSITIVE).interval(), unit)


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
