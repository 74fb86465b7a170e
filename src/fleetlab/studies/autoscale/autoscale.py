"""How many nodes to have ready, by forecasts? Replayed beside other ways to scale, at the same P95 wait."""

from __future__ import annotations

import math
from collections.abc import Callable, Mapping, Sequence
from dataclasses import dataclass
from importlib.util import find_spec

import numpy as np
import polars as pl

from fleetlab._student import student
from fleetlab.core import Cluster, Estimate, Figure, Provenance, Result, Workload, WorkloadError, say
from fleetlab.core.durations import HINT, in_seconds
from fleetlab.forecast import Forecaster
from fleetlab.forecast.catalogue import BY_NAME, FAMILIES, NEEDS
from fleetlab.studies._blocks import Blocks
from fleetlab.studies.autoscale import _ready
from fleetlab.studies.autoscale._demand import Asked, Floats, Ints, asked
from fleetlab.studies.autoscale._replay import POOL, Fared, Ground

Progress = Callable[[str, int, float], None]
DAY = 86_400.0
WAIT = 60.0  # s: the goal unless told
LEARN, COUNT = 4, 2  # days at least
MODELS = ("last", "seasonal", "holt_winters", "ridge")
RISKS = (0.95, 0.9, 0.8, 0.7, 0.6, 0.5, 0.4, 0.3, 0.25, 0.2, 0.15, 0.1, 0.07, 0.05, 0.03, 0.02, 0.01, 0.005)
IDLES = (300.0, 600.0, 1200.0, 3600.0)  # seconds after which a reactive pool lets a node go
HOLDS = (0.0, 900.0, 1800.0, 3600.0)  # seconds for which a node stays after the last step that asked for it
STEPS = 40  # by which nodes may be added on top of a forecast or of what is to come
FINE = 0.005  # of the peak: such a step, and one node at least
POLICIES = ("reactive", "static", "forecast", "oracle")


@dataclass(frozen=True, eq=False, repr=False)
class Autoscaling(Result):
    """What each way to scale needs for the same P95 wait."""

    provenance: Provenance
    findings: tuple[str, ...]
    estimates: tuple[Estimate, ...]
    frames: Mapping[str, pl.DataFrame]
    charts: Mapping[str, Figure]
    notes: tuple[str, ...] = ()

    def __repr__(self) -> str:
        return f"<Autoscaling {say(self.estimates[0]) if self.estimates else 'nothing meets the goal'}>"


def autoscale(
    workload: Workload,
    nodes: Cluster,
    *,
    wait: str | float | None = None,
    risk: float | None = None,
    every: str | float = 300.0,
    boot: str | float = 300.0,
    learn: str | float | None = None,
    models: Sequence[str | Forecaster] = MODELS,
    seed: int = 0,
    progress: Progress | None = None,
) -> Autoscaling:
    """How many nodes to have ready each step for a P95 wait of at most `wait` (60 s), and does forecasting save any?

    `nodes` are of one kind, as many as there may be. Every `every` seconds a way to scale says how many should be ready
    once a node has had `boot` seconds to start. Forecasts learn for `learn` seconds (a third of the log unless told,
    and four days at least), and the days after that count. Times are seconds, or such as 5m, 2h, 4d. Beside them:
    `reactive` (nodes are booted when somebody waits), `static` (always the same number) and `oracle` (which knows what
    comes). Each is set so that it needs the fewest node-hours at which the P95 wait is met. A chosen `risk` that a step
    asks for more nodes than are ready takes the place of `wait`: the goal is then the P95 wait that the forecast has at
    that risk.
    """
    _known(wait, risk, seed)
    goal, step, starts = _time("wait", WAIT if wait is None else wait), _time("every", every, 1.0), _time("boot", boot)
    told = _models(models)
    demand = asked(workload, nodes, every=step)
    ground = _ground(demand, nodes, starts, None if learn is None else _time("learn", learn, 1.0))
    progress, done = progress or (lambda *_: None), []

    def tick(fared: Fared) -> Fared:
        done.append(fared)
        progress("replays", len(done), 1 - 0.95 ** len(done))  # how many there will be is not known
        return fared

    seen = _forecasts(ground, told)
    chosen = None if risk is None else tick(_at(ground, seen, risk))
    goal = goal if chosen is None else chosen.p95
    found = {name: _WAYS[name](ground, seen, goal, tick) for name in POLICIES if chosen is None or name != "forecast"}
    found = {name: found.get(name, chosen) for name in POLICIES}
    settings = {
        "wait": goal, "risk": risk, "every": step, "boot": starts, "learn": ground.first * step,
        "cluster": nodes.source, "models": [m.name for m in told],
    }  # fmt: skip
    return _told(found, done, ground, goal, Provenance("autoscale", workload.source, settings, seed))


def _time(name: str, told: str | float, least: float = 0.0) -> float:
    seconds = in_seconds(told)
    if not least <= seconds < math.inf:
        msg = f"`{name}` is not a time of at least {least:g} s: {told}"
        raise WorkloadError(msg, hint=HINT)
    return seconds


def _known(wait: str | float | None, risk: float | None, seed: int) -> None:
    if risk is not None and not 0 < risk < 1:
        msg = f"a risk is between 0 and 1: {risk}"
        raise WorkloadError(msg, hint="--risk 0.05: in one step of twenty more is asked for than is ready")
    if risk is not None and wait is not None:
        msg = "a risk takes the place of a wait: the goal is then the wait that comes of it"
        raise WorkloadError(msg, hint="--wait or --risk, not both")
    if seed < 0:
        msg = f"a seed is a whole number from 0: {seed}"
        raise WorkloadError(msg, hint="--seed 0")


def _models(words: Sequence[str | Forecaster]) -> list[Forecaster]:
    if not words:
        msg = "there is no model to forecast with"
        raise WorkloadError(msg, hint=f"some of {', '.join((*FAMILIES, *BY_NAME))}")
    found = [model for word in words for model in (_named(word) if isinstance(word, str) else (word,))]
    return list({model.name: model for model in found}.values())


def _named(word: str) -> Sequence[Forecaster]:
    """Those of a family, or one."""
    return [_model(model.name) for model in FAMILIES[word]] if word in FAMILIES else [_model(word)]


def _model(word: str) -> Forecaster:
    if word not in BY_NAME:
        msg = f"no model or family by that name: `{word}`"
        raise WorkloadError(msg, hint=f"there are {', '.join((*FAMILIES, *BY_NAME))}")
    if word in NEEDS and find_spec(NEEDS[word][0]) is None:
        library, extra = NEEDS[word]
        msg = f"the model `{word}` needs a library that is not installed: {library}"
        raise WorkloadError(msg, hint=f"pip install 'fleetlab[{extra}]', or leave it out of --models")
    return BY_NAME[word]


def _ground(demand: Asked, nodes: Cluster, boot: float, learn: float | None) -> Ground:
    """All nodes in one pool, and the days that count."""
    first = round((max(demand.end / 3, LEARN * DAY) if learn is None else learn) / demand.every)
    days = int((demand.end - first * demand.every) // DAY)
    if first < LEARN * round(DAY / demand.every) or days < COUNT:
        msg = f"{demand.workload.source}: too short: {demand.end / DAY:.3g} days"
        said = f"{msg}, with {first * demand.every / DAY:.3g} to learn from"
        hint = f"forecasts learn from --learn {LEARN}d at least, and {COUNT} days after that at least must count"
        raise WorkloadError(said, hint=hint)
    known = first - first // 2 - 2 * math.ceil(boot / demand.every)
    if known < _ready.LEAST:  # else all nodes would be on for want of a margin, and count as forecast
        msg = f"when days begin to count, too few forecasts are over to take a margin from: {max(0, known)}"
        raise WorkloadError(msg, hint=f"{_ready.LEAST} are needed: a shorter --every or --boot, or a longer --learn")
    spare = min(len(nodes), demand.most + STEPS * _step(demand))
    frame = nodes.frame.head(spare).with_columns(pool=pl.lit(POOL))
    return Ground(demand, Cluster.of(frame, source=nodes.source), first, days, boot)


def _forecasts(ground: Ground, models: Sequence[Forecaster]) -> list[_ready.Forecasts]:
    """Models learn from the first half of the days that do not count, so that their misses in the other are known."""
    lead = math.ceil(ground.boot / ground.asked.every)
    return _ready.forecasts(models, ground.asked, lead=lead, learn=ground.first // 2)


def _step(demand: Asked) -> int:
    return max(1, round(FINE * demand.most))


# -- the ways to scale ---------------------------------------------------------------------------------------------


def cheapest(settings: Sequence[int], run: Callable[[int], Fared], wait: float) -> Fared | None:
    """The first of the settings, each more generous than the one before, that meets the goal; by halving."""
    low, high, met = 0, len(settings) - 1, None
    while low <= high:
        middle = (low + high) // 2
        fared = run(settings[middle])
        if fared.p95 <= wait:
            met, high = fared, middle - 1
        else:
            low = middle + 1
    return met


Way = Callable[[Ground, Sequence[_ready.Forecasts], float, Callable[[Fared], Fared]], Fared | None]


def _static(ground: Ground, _: Sequence[_ready.Forecasts], wait: float, tick: Callable[[Fared], Fared]) -> Fared | None:
    steps = len(ground.asked.level)

    def run(n: int) -> Fared:
        return tick(ground.scheduled("static", f"{n} nodes", np.full(steps, n)))

    return cheapest(range(1, len(ground.cluster) + 1), run, wait)


def _reactive(
    ground: Ground, _: Sequence[_ready.Forecasts], wait: float, tick: Callable[[Fared], Fared]
) -> Fared | None:
    met = [
        cheapest(range(len(ground.cluster) + 1), lambda n, idle=idle: tick(ground.reactive(n, idle)), wait)  # type: ignore[misc]
        for idle in IDLES
    ]
    return _least(met)


def _forecast(
    ground: Ground, seen: Sequence[_ready.Forecasts], wait: float, tick: Callable[[Fared], Fared]
) -> Fared | None:
    """Risks from high to low, then nodes on top of the lowest; each with several times for which a node stays."""
    step = _step(ground.asked)
    settings = [(risk, 0) for risk in RISKS] + [(RISKS[-1], j * step) for j in range(1, STEPS + 1)]
    met = [
        cheapest(range(len(settings)), lambda j, hold=hold: tick(_at(ground, seen, *settings[j], hold)), wait)  # type: ignore[misc]
        for hold in HOLDS
    ]
    return _least(met)


def _least(met: Sequence[Fared | None]) -> Fared | None:
    """Who needs the fewest node-hours."""
    return min((m for m in met if m), key=lambda m: float(m.node_hours.sum()), default=None)


def _at(ground: Ground, seen: Sequence[_ready.Forecasts], risk: float, extra: int = 0, hold: float = 0.0) -> Fared:
    """As many nodes as are exceeded with that risk, and so many more; whoever is switched on stays for a while."""
    model = _ready.best(seen, risk, ground.first)
    more = (f" and {extra} nodes" if extra else "") + (f", kept {hold:g} s" if hold else "")
    ready = _ready.held(_whole(ground, model.upper(risk) + extra), math.ceil(hold / ground.asked.every))
    return ground.scheduled("forecast", f"risk {risk:g}{more}, {model.name}", ready)


def _oracle(ground: Ground, _: Sequence[_ready.Forecasts], wait: float, tick: Callable[[Fared], Fared]) -> Fared | None:
    """What comes in each step, and a few nodes more or less: not all packs well, and some may wait."""

    def run(extra: int) -> Fared:
        ready = _whole(ground, ground.asked.level + extra)
        return tick(ground.scheduled("oracle", f"{extra:+d} nodes", ready))

    step = _step(ground.asked)
    return cheapest([j * step for j in range(-STEPS // 4, STEPS + 1)], run, wait)


_WAYS: dict[str, Way] = {"reactive": _reactive, "static": _static, "forecast": _forecast, "oracle": _oracle}


def _whole(ground: Ground, level: Floats) -> Ints:
    """Whole nodes, at least one; all of them in steps of which nothing is known."""
    most = len(ground.cluster)
    return np.clip(np.ceil(np.where(np.isnan(level), most, level) - 1e-9), 1, most).astype(np.int64)


# -- what is told --------------------------------------------------------------------------------------------------


def _told(
    found: Mapping[str, Fared | None], tried: Sequence[Fared], ground: Ground, wait: float, provenance: Provenance
) -> Autoscaling:
    met = {name: fared for name, fared in found.items() if fared is not None}
    table = pl.DataFrame([_row(f, provenance.seed or 0) for f in met.values()])
    against = _against(met)
    frames = {
        "at the goal": table,
        "forecast against": against,
        "tried": pl.DataFrame([_tried(f) for f in tried]),
        "by day": _by_day(met),
        "ready": _by_step(met, ground),
    }
    lacking = [f"{name}: no setting that was tried meets the goal" for name in POLICIES if name not in met]
    most, there = ground.asked.most, len(ground.cluster)
    left = [f"{ground.asked.left_out:,} jobs ask for no GPU, never fit or run for an unknown time: left out"]
    short = [f"at the peak jobs ask for {most:,} nodes, and there are {there:,}: some wait whatever is done"]
    notes = (
        f"{ground.days} days count, after {ground.first * ground.asked.every / DAY:.3g} days to learn from",
        f"a node counts from when it is switched on: each boot adds {ground.boot:g} s in which nobody can use it",
        "a node that is switched off counts until its last job ends",
        "settings are chosen on the days that count, for every way alike",
        *(left if ground.asked.left_out else ()),
        *(short if most > there else ()),
        *lacking,
    )
    said = tuple(_sentences(against, met, wait))
    return Autoscaling(provenance, said, tuple(_estimates(against, met)), frames, _figures(frames, ground, wait), notes)


def _mean(values: Floats) -> tuple[float, float, float]:
    """A mean over days, with Student's interval."""
    value = float(values.mean())
    half = student(len(values) - 1, 0.95) * float(values.std(ddof=1)) / math.sqrt(len(values))
    return value, value - half, value + half


def _row(f: Fared, seed: int) -> dict[str, object]:
    hours, idle = (tuple(map(_at_least_0, _mean(values))) for values in (f.node_hours, f.idle))
    p95 = tuple(np.maximum(0.0, Blocks.cut(f.submit, seed=seed).quantile(f.wait, 0.95)).tolist())
    row: dict[str, object] = {"policy": f.policy, "setting": f.setting}
    for name, told in (("P95 wait", p95), ("node-hours a day", hours), ("idle GPU-hours a day", idle)):
        row |= dict(zip((name, f"{name}, low", f"{name}, high"), told, strict=True))
    row |= dict(zip(("boots a day", "boots, low", "boots, high"), map(_at_least_0, _mean(f.boots)), strict=True))
    return row | {"mean wait": float(f.wait.mean()), "waited": float((f.wait > 0).mean())}


def _at_least_0(value: float) -> float:
    return max(0.0, value)


def _tried(f: Fared) -> dict[str, object]:
    hours = float(f.node_hours.mean())
    return {"policy": f.policy, "setting": f.setting, "P95 wait": f.p95, "node-hours a day": hours}


AGAINST = {
    "against": pl.String,
    "node-hours a day": pl.Float64,
    "low": pl.Float64,
    "high": pl.Float64,
    "percent": pl.Float64,
    "verdict": pl.String,
}


def _against(met: Mapping[str, Fared]) -> pl.DataFrame:
    """Node-hours of forecasts less those of each other way, day by day."""
    rows = []
    for name in POLICIES:
        if name != "forecast" and name in met and "forecast" in met:
            value, low, high = _mean(met["forecast"].node_hours - met[name].node_hours)
            verdict = "fewer" if high < 0 else "more" if low > 0 else "not sure"
            rows.append((name, value, low, high, 100 * value / float(met[name].node_hours.mean()), verdict))
    return pl.DataFrame(rows, schema=AGAINST, orient="row")


def _by_day(met: Mapping[str, Fared]) -> pl.DataFrame:
    days = len(next(iter(met.values())).node_hours) if met else 0
    return pl.DataFrame({"day": list(range(1, days + 1)), **{name: f.node_hours for name, f in met.items()}})


def _by_step(met: Mapping[str, Fared], ground: Ground) -> pl.DataFrame:
    """Nodes that jobs ask for in each step that counts, and those that each way has ready for it."""
    begin = np.arange(len(ground.asked.level)) * ground.asked.every
    first, last = np.searchsorted(begin, ground.edges[[0, -1]]).tolist()
    ready = {name: f.ready[first:last] for name, f in met.items() if f.ready is not None}
    return pl.DataFrame({
        "from": begin[first:last], "asked for": ground.asked.level[first:last], **ready,
    })  # fmt: skip


def _sentences(against: pl.DataFrame, met: Mapping[str, Fared], wait: float) -> list[str]:
    goal = f"At a P95 wait of at most {wait:g} s"
    if "forecast" not in met:
        return [f"No setting of the forecasts that was tried has a P95 wait of at most {wait:g} s."]
    said = []
    for row in against.iter_rows(named=True):
        words = {"fewer": "need fewer node-hours than", "more": "need more node-hours than"}
        what = words.get(row["verdict"], "are not surely better or worse in node-hours than")
        low, high = row["low"], row["high"]
        said.append(
            f"{goal}, forecasts {what} `{row['against']}`: {row['node-hours a day']:+,.4g} a day "
            f"({low:+,.4g} to {high:+,.4g}), {row['percent']:+.3g} %."
        )
    return said


def _estimates(against: pl.DataFrame, met: Mapping[str, Fared]) -> list[Estimate]:
    found = [
        Estimate(f"node-hours a day, forecast less {r['against']}", r["node-hours a day"], r["low"], r["high"], "h")
        for r in against.iter_rows(named=True)
    ]
    return found + [Estimate(f"node-hours a day, {name}", *_mean(f.node_hours), "h") for name, f in met.items()]


def _figures(frames: Mapping[str, pl.DataFrame], ground: Ground, wait: float) -> dict[str, Figure]:
    tried = frames["tried"]
    curve = tried.select(x="node-hours a day", y="P95 wait", series="policy").sort("series", "x")
    alt = f"P95 wait against node-hours a day of {tried.height} settings; the goal is {wait:g} s"
    days = np.arange(len(ground.asked.level)) * ground.asked.every / DAY
    level = pl.DataFrame({"x": days, "y": ground.asked.level})
    return {
        "settings": Figure("Waits and node-hours", "line", curve, "node-hours a day", "P95 wait, s", alt),
        "demand": Figure(
            "What jobs ask for", "step", level, "days", "nodes", f"at most {ground.asked.most:,} nodes at once"
        ),
    }
