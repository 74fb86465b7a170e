"""The models by name and by family, and which of them can run here."""

from __future__ import annotations

from collections.abc import Sequence
from importlib.util import find_spec

from fleetlab.core import WorkloadError
from fleetlab.core.names import lookup
from fleetlab.forecast.demand import Forecaster, Panel
from fleetlab.forecast.models.neural import Network
from fleetlab.forecast.models.regression import Autoregression, Boosted, Ridge
from fleetlab.forecast.models.simple import (
    BETAS,
    DAMPINGS,
    TSB,
    Croston,
    Drift,
    HistoricalMean,
    HoltWinters,
    LastValue,
    RollingMean,
    SeasonalNaive,
    Smoothing,
    Theta,
)

ALL = "all"
ENSEMBLE = "ensemble"  # of the others: made from what they said
WINDOWS = (("mean_1h", 1.0), ("mean_3h", 3.0), ("mean_6h", 6.0), ("mean_24h", 24.0), ("mean_7d", 168.0))

FAMILIES: dict[str, tuple[Forecaster, ...]] = {
    "simple": (LastValue(), HistoricalMean(), Drift(), SeasonalNaive(), *(RollingMean(n, h) for n, h in WINDOWS)),
    "classic": (
        Smoothing(),
        Smoothing("holt", BETAS),
        Smoothing("damped", BETAS, DAMPINGS),
        HoltWinters(),
        Theta(),
        Autoregression(),
        Ridge(),
        Croston(),
        TSB(),
    ),
    "boosted": (Boosted(),),
    "neural": (
        Network("lstm", "lstm"),
        Network("stacked_lstm", "lstm", depth=2, depths=(2, 3)),
        Network("gru", "gru", depths=(1, 2)),
        Network("transformer", "transformer", depths=(1, 2)),
        Network("tcn", "tcn", depth=4, depths=(2, 3, 4)),
    ),
}
# Without the networks: on the real trace measured they take most of the time and do not help.
DEFAULT = ("simple", "classic", "boosted", ENSEMBLE)
BY_NAME: dict[str, Forecaster] = {model.name: model for family in FAMILIES.values() for model in family}
SIMPLE = tuple(model.name for model in FAMILIES["simple"])
DAILY = ("seasonal", "holt_winters")  # they need days to repeat
SPORADIC = ("croston", "tsb")  # they need steps without demand
NEEDS = {"boosted": ("lightgbm", "forecast"), **{model.name: ("torch", "bench") for model in FAMILIES["neural"]}}

SELDOM = 0.1  # of all steps without demand


def models_of(words: Sequence[str | Forecaster]) -> tuple[list[Forecaster], bool]:
    """The models that words mean, simple ones first and always, and whether they are put together too."""
    chosen: dict[str, Forecaster] = {model.name: model for model in FAMILIES["simple"]}
    for word in words:
        if not isinstance(word, str):
            chosen[word.name] = word
        elif word == ALL:
            chosen = BY_NAME | chosen
        elif word in FAMILIES:
            chosen |= {model.name: model for model in FAMILIES[word]}
        elif word in BY_NAME:
            chosen[word] = BY_NAME[word]
        else:
            lookup("model or family", word, (ALL, *FAMILIES, *BY_NAME, ENSEMBLE), error=WorkloadError)
    return list(chosen.values()), ALL in words or ENSEMBLE in words


def left_out(name: str, panel: Panel, first: int) -> str | None:
    """Why a model cannot learn from a panel's first steps here, if so; they are those with a whole horizon after."""
    if name in NEEDS and find_spec(NEEDS[name][0]) is None:
        library, extra = NEEDS[name]
        return f"{library} is not installed: pip install 'fleetlab[{extra}]'"
    if name in DAILY and (panel.day < 2 or first < 2 * panel.day):
        return "it needs two days to learn from besides the horizon, and two steps in a day"
    if name in SPORADIC and (panel.values == 0).mean(axis=0).max() < SELDOM:
        return "it is for intermittent demand, and here demand is never 0"
    return None
