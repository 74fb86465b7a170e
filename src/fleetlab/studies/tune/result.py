"""What a policy search found: the policy, how it did beside the built-in ones, and whether that is more than luck."""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from dataclasses import dataclass
from pathlib import Path
from typing import Any

import numpy as np
import polars as pl

from fleetlab.core import Estimate, Figure, Provenance, Result, as_json
from fleetlab.core.files import atomic_write
from fleetlab.studies._spread import over_runs
from fleetlab.studies.tune import _terms, _verdict
from fleetlab.studies.tune._rivals import mean
from fleetlab.studies.tune._search import Trial
from fleetlab.studies.tune._terms import Params
from fleetlab.studies.tune._verdict import Judged

POLICY = "tuned.py"
RESULT = "tuned.json"


@dataclass(frozen=True, slots=True, repr=False)
class Tuned(Result):
    """The best policy of a search on training weeks, judged on held-out weeks."""

    provenance: Provenance
    params: Params
    better: bool  # than every built-in policy that lets jobs run to their end, surely
    estimates: tuple[Estimate, ...]
    frames: Mapping[str, pl.DataFrame]
    charts: Mapping[str, Figure]
    findings: tuple[str, ...]
    notes: tuple[str, ...] = ()

    def __repr__(self) -> str:
        return f"<Tuned in {self.frames['trials'].height} trials: {self.findings[0]}>"

    @property
    def rules(self) -> dict[str, Any]:
        """The policy, as `simulate` takes it: order, place and weights; backfill and estimate are not part."""
        return _terms.rules_of(self.params)

    @property
    def text(self) -> str:
        """The policy as a file of one's own."""
        where = "tuned:place" if self.params["placement"] == _terms.WEIGHTED else self.params["placement"]
        rest = " ".join(f"--{word} {self.provenance.settings[word]}" for word in ("backfill", "estimate"))
        use = f"fleetlab simulate TRACE --order tuned:order --placement {where} {rest}"
        return f'"""Found by `fleetlab tune`; to use it here: {use}."""\n\n{_terms.text(self.params)}'

    def save(self, folder: Path) -> None:
        """Write the policy and this result into a folder."""
        folder.mkdir(parents=True, exist_ok=True)
        atomic_write(folder / POLICY, self.text)
        atomic_write(folder / RESULT, as_json(self))


def told(
    judged: Judged, trials: Sequence[Trial], chosen: Trial, what: str, unit: str, provenance: Provenance,
    notes: Sequence[str],
) -> Tuned:  # fmt: skip
    """Put what was played into words, tables and figures."""
    first = judged.best.name
    estimates = (
        judged.beyond(first).estimate(f"{what}, tuned less {first}, held-out weeks", unit),
        _over(judged.tuned, f"{what}, tuned, held-out weeks", unit),
        _over(judged.rivals[first], f"{what}, {first}, held-out weeks", unit),
        Estimate.exact("held-out weeks", len(judged.tuned)),
        Estimate.exact("trials", len(trials)),
    )
    policies = _verdict.table(judged)
    frames = {
        "policies": policies,
        "weeks": _verdict.weekly(judged),
        "weights": _weights(chosen.params),
        "trials": _trials(trials),
    }
    drawn = _figures(policies, frames["trials"], mean(judged.best.train), first, what, unit)
    said = _verdict.sentences(judged, what, unit)
    return Tuned(provenance, chosen.params, judged.better, estimates, frames, drawn, said, tuple(notes))


def _over(means: Mapping[int, float], metric: str, unit: str) -> Estimate:
    found = over_runs(list(means.values())).estimate(metric, unit)
    return found._replace(low=max(0.0, found.low))


def _weights(params: Params) -> pl.DataFrame:
    """The terms of the policy, and what a weight above 0 means; the built-in place, if it takes one."""
    weights = _terms.weights_of(params)
    rows: list[dict[str, Any]] = [
        {"term": term.name, "weight": weights[term.name], "above 0": term.says}
        for term in _terms.ALL
        if weights[term.name]
    ]
    where = params["placement"]
    placement = [] if where == _terms.WEIGHTED else [{"term": f"place {where}", "weight": None, "above 0": "built in"}]
    return pl.DataFrame([*rows, *placement], schema={"term": pl.String, "weight": pl.Float64, "above 0": pl.String})


def _trials(trials: Sequence[Trial]) -> pl.DataFrame:
    values = np.array([trial.value for trial in trials])
    rows = [
        {"trial": k + 1, "value": trial.value, "best so far": best, "placement": trial.params["placement"]}
        | _terms.weights_of(trial.params)
        for k, (trial, best) in enumerate(zip(trials, np.minimum.accumulate(values).tolist(), strict=True))
    ]
    return pl.DataFrame(rows, infer_schema_length=None)


def _figures(
    policies: pl.DataFrame, trials: pl.DataFrame, bar: float, first: str, what: str, unit: str
) -> dict[str, Figure]:
    rivals = policies.filter(pl.col("tuned less this").is_not_null())
    apart = rivals.select(x="policy", y="tuned less this", low="low", high="high")
    way = pl.concat(
        [
            trials.select(x="trial", y="best so far", series=pl.lit("best so far")),
            trials.select(x="trial", y=pl.lit(bar), series=pl.lit(first)),
        ]
    )
    said = f", {unit}" if unit else ""
    surely = int((rivals["tuned is"] == "better").sum())
    return {
        "differences on held-out weeks": Figure(
            "The tuned policy less each built-in one, held-out weeks", "dots", apart, "built-in policy",
            f"{what}: difference{said}",
            f"of {rivals.height} built-in policies the tuned one is surely better than {surely}",
        ),
        "search": Figure(
            "How the search went, training weeks", "step", way, "trial", f"{what}{said}",
            f"from {trials['best so far'][0]:.4g} in the first trial to {trials['best so far'][-1]:.4g}; "
            f"{first} has {bar:.4g}",
        ),
    }  # fmt: skip
