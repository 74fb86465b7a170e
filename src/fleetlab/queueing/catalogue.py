"""Every model by name: its parameters, how good it is, where it holds, where it comes from; and its solution."""

from __future__ import annotations

import inspect
import math
import tomllib
from collections.abc import Callable, Iterable, Mapping, Sequence
from dataclasses import dataclass
from importlib.resources import files
from typing import Any, NamedTuple, get_args

import polars as pl

from fleetlab.core import Estimate, Provenance, Result, WorkloadError, say
from fleetlab.core.names import lookup
from fleetlab.core.result import FieldsResult
from fleetlab.queueing.distributions import KNOWN, Service, law
from fleetlab.queueing.formulas import mg1, mmc, multiserver
from fleetlab.queueing.formulas.mmc import FormulaOutput


class Range(NamedTuple):
    """What a parameter means, and between which numbers it lies."""

    meaning: str
    low: float = 0.0
    high: float = math.inf
    at_low: bool = False  # may it be as low as that?
    at_high: bool = False


PARAMETERS = {
    "lam": Range("arrival rate, jobs/s"),
    "mu": Range("service rate of one server, jobs/s"),
    "c": Range("servers", 1, 1_000_000, at_low=True, at_high=True),
    "a": Range("offered load: arrival rate times mean service time", at_low=True),
    "b": Range("servers per job, by class", 1, 1_000_000, at_low=True, at_high=True),
    "n": Range("servers per job, by class", 1, 1_000_000, at_low=True, at_high=True),
    "p": Range("probability of each class", 0, 1, at_high=True),
    "ca2": Range("CV² of inter-arrival times", at_low=True),
    "cs2": Range("CV² of service times", at_low=True),
    "chance": Range("allowed probability of waiting", 0, 1),
    "period": Range("period of the rates, s"),
    "speed": Range("throughput of a GPU with 1, 2, … jobs on it, relative to one job alone"),
    "service": Range(f"service time distribution: {KNOWN}"),
}


def read_parameters(formula: Callable[..., Any], arguments: Mapping[str, Any], name: str) -> dict[str, Any]:
    """Every parameter of the formula, each what it must be."""
    takes = inspect.signature(formula, eval_str=True).parameters
    takes_text = f"{name} takes {', '.join(takes)}"
    if unknown := [word for word in arguments if word not in takes]:
        raise WorkloadError(f"{name} has no parameter: `{unknown[0]}`", hint=takes_text)
    if missing := [word for word in takes if arguments.get(word) is None]:
        raise WorkloadError(f"{name} needs: `{missing[0]}`, {PARAMETERS[missing[0]].meaning}", hint=takes_text)
    return {word: _read(word, arguments[word], takes[word].annotation) for word in takes}


def _read(word: str, argument: object, kind: object) -> object:
    if kind in _ONE:
        return _ONE[kind](word, argument)
    one = _ONE[get_args(kind)[0]]
    several = (
        argument.split(",") if isinstance(argument, str) else argument if isinstance(argument, Iterable) else [argument]
    )
    values = tuple(one(word, value) for value in several)
    if not values:
        msg = f"`{word}` needs at least one value: {PARAMETERS[word].meaning}"
        raise WorkloadError(msg, hint="one per class, comma-separated")
    return values


def _number(word: str, argument: object) -> float:
    meaning, low, high, at_low, at_high = PARAMETERS[word]
    try:
        value = math.nan if isinstance(argument, bool) else float(argument)  # type: ignore[arg-type]
    except (TypeError, ValueError):
        value = math.nan
    if low < value < high or (at_low and value == low) or (at_high and value == high):
        return value
    ends = f"{low:g} or more" if at_low else f"above {low:g}"
    ends += "" if high == math.inf else f", {high:g} at most" if at_high else f", below {high:g}"
    raise WorkloadError(f"`{word}` is a number, {ends}, not: {argument}", hint=f"{word}: {meaning}")


def _whole(word: str, argument: object) -> int:
    value = _number(word, argument)
    if value != int(value):
        raise WorkloadError(f"`{word}` is a whole number, not: {argument}", hint=f"{word}: {PARAMETERS[word].meaning}")
    return int(value)


def _law(_word: str, argument: object) -> Service:
    return law(argument)


_ONE: dict[object, Callable[[str, object], object]] = {float: _number, int: _whole, Service: _law}


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
    formula_of = _named(model)
    values = read_parameters(formula_of.formula, parameters, formula_of.name)
    settings = {word: value if isinstance(value, int | float | str) else str(value) for word, value in values.items()}
    return QueueSolution(formula_of, formula_of.formula(**values), Provenance("solve", formula_of.name, settings))


def models() -> FieldsResult:
    """The models that `solve` knows: what each takes, and where it holds; and what the parameters mean."""
    rows = [(m.name, ", ".join(m.takes), m.kind, m.holds, m.source) for m in MODELS.values()]
    means = [(word, values.meaning) for word, values in PARAMETERS.items()]
    frames = {
        "models": pl.DataFrame(rows, schema=["model", "takes", "kind", "holds", "source"], orient="row"),
        "parameters": pl.DataFrame(means, schema=["parameter", "meaning"], orient="row"),
    }
    return FieldsResult(Provenance("solve", "models"), (), (Estimate.exact("models", len(MODELS)),), frames)


def _named(model: str) -> QueueModel:
    """By name, whatever its case; `∞` is as good as `inf`."""
    short = {_plain(name): candidate for name, candidate in MODELS.items()}
    if candidate := short.get(_plain(str(model))):
        return candidate
    return MODELS[lookup("queueing model", model, MODELS, error=WorkloadError, hint=LISTED)]


def _plain(name: str) -> str:
    words = name.lower().replace("∞", "inf").replace("ö", "o").replace("ä", "ae").replace("–", "-")
    return " ".join(words.replace("_", "/").split())


@dataclass(frozen=True, slots=True)
class QueueModel:
    """A formula and what must be known of it; `kind` is exact, approximate, asymptotic or bound."""

    name: str
    formula: Callable[..., FormulaOutput]
    kind: str
    holds: str
    source: str

    @property
    def takes(self) -> tuple[str, ...]:
        """Its parameters, as the theory names them."""
        return tuple(inspect.signature(self.formula).parameters)


FAMILIES = {"mg1": mg1, "mmc": mmc, "multiserver": multiserver}


def _model(name: str, about: dict[str, str]) -> QueueModel:
    family, _, formula = about["formula"].partition(".")
    return QueueModel(name, getattr(FAMILIES[family], formula), about["kind"], about["holds"], about["source"])


_RECORDS = tomllib.loads(files("fleetlab.queueing").joinpath("models.toml").read_text("utf-8"))
MODELS = {name: _model(name, about) for name, about in _RECORDS.items()}
