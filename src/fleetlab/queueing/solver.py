"""`solve`: evaluate a queueing model by name."""

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import dataclass

import polars as pl

from fleetlab.core import Estimate, Provenance, Result, WorkloadError, say
from fleetlab.core.names import lookup
from fleetlab.queueing.catalogue import MODELS, QueueModel
from fleetlab.queueing.distributions import Service
from fleetlab.queueing.formulas.output import FormulaOutput
from fleetlab.queueing.parameters import PARAMETERS, read_parameters

NAN = float("nan")
VALIDITY = {
    "exact": "exact for: {}",
    "approximate": "approximation (no interval), good for: {}",
    "asymptotic": "asymptotic (no interval), good for: {}",
    "bound": "bound for: {}",
}
LISTED = "`fleetlab solve` without a name lists the models"
FIRST = ("mean wait", "mean response", "maximum throughput")  # the number that a line says


@dataclass(frozen=True, slots=True, repr=False)
class QueueSolution(Result):
    """What a model says: numbers by metric, tables, and how far to trust them."""

    model: QueueModel
    output: FormulaOutput
    provenance: Provenance

    def __repr__(self) -> str:
        named = {e.metric: e for e in self.summary()}
        first = next((named[m] for m in FIRST if m in named), self.summary()[0])
        return f"<QueueSolution {self.model.name}, {self.model.kind}, {say(first)}>"

    def __getitem__(self, metric: str) -> float:
        for e in self.output.summary:
            if e.metric == metric:
                return float(e.value)
        msg = f"{self.model.name} has no metric: `{metric}`"
        raise WorkloadError(msg, hint=f"metrics: {', '.join(e.metric for e in self.output.summary)}")

    def summary(self) -> list[Estimate]:
        """The numbers; those of an exact model have themselves for an interval, those of others have none."""
        if self.model.kind in ("exact", "bound"):
            return list(self.output.summary)
        return [e._replace(low=NAN, high=NAN) for e in self.output.summary]

    def tables(self) -> dict[str, pl.DataFrame]:
        """By class or over time, where the model tells them apart."""
        return dict(self.output.tables)

    @property
    def findings(self) -> tuple[str, ...]:
        """That there is no steady state, where there is none."""
        return tuple(f"{note[0].upper()}{note[1:]}." for note in self.output.notes if note.startswith("unstable"))

    @property
    def notes(self) -> tuple[str, ...]:
        """What must be known to read the numbers."""
        return (*self.output.notes, VALIDITY[self.model.kind].format(self.model.holds), f"source: {self.model.source}")


@dataclass(frozen=True, slots=True)
class Models(Result):
    """The models there are."""

    provenance: Provenance

    def summary(self) -> list[Estimate]:
        """How many there are."""
        return [Estimate.exact("models", len(MODELS))]

    def tables(self) -> dict[str, pl.DataFrame]:
        """What each takes, and where it holds; and what the parameters mean."""
        rows = [(m.name, ", ".join(m.takes), m.kind, m.holds, m.source) for m in MODELS.values()]
        means = [(word, values.meaning) for word, values in PARAMETERS.items()]
        return {
            "models": pl.DataFrame(rows, schema=["model", "takes", "kind", "holds", "source"], orient="row"),
            "parameters": pl.DataFrame(means, schema=["parameter", "meaning"], orient="row"),
        }


def solve(model: str, **parameters: float | str | Service | Sequence[float] | Sequence[Service]) -> QueueSolution:
    """What does queueing theory say? A model by its name, with its parameters as the theory writes them.

    Parameters
    ----------
    model
        Its name in Kendall's notation: `fleetlab.queueing.models()` lists the models, and what each takes.
    **parameters
        Its parameters. Rates are by the second, times in seconds.

    Returns
    -------
    QueueSolution
        The numbers by metric: `solution["mean wait"]`; and where the model holds.

    Raises
    ------
    WorkloadError
        If there is no model by that name, or a parameter is missing, unknown or out of range.

    Examples
    --------
    >>> solve("M/M/c", lam=7.2, mu=1, c=8)
    <QueueSolution M/M/c, exact, mean wait 0.8769 s>
    >>> solve("M/G/1 SRPT", lam=0.9, service="lognormal:1:10")["utilization"]
    0.9

    """
    known = _named(model)
    values = read_parameters(known.formula, parameters, known.name)
    settings = {word: value if isinstance(value, int | float | str) else str(value) for word, value in values.items()}
    return QueueSolution(known, known.formula(**values), Provenance("solve", known.name, settings))


def models() -> Models:
    """The models that `solve` knows."""
    return Models(Provenance("solve", "models"))


def _named(model: str) -> QueueModel:
    """By name, whatever its case; `∞` is as good as `inf`."""
    short = {_plain(name): known for name, known in MODELS.items()}
    if known := short.get(_plain(str(model))):
        return known
    return MODELS[lookup("queueing model", model, MODELS, error=WorkloadError, hint=LISTED)]


def _plain(name: str) -> str:
    words = name.lower().replace("∞", "inf").replace("ö", "o").replace("ä", "ae").replace("–", "-")
    return " ".join(words.replace("_", "/").split())
