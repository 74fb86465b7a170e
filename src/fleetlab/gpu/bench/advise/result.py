"""Advice on a mix as a result, and when it flips.

The same work at another pace or in other numbers is measured, or predicted from pairs.
"""

from __future__ import annotations

import math
from collections.abc import Iterator
from dataclasses import dataclass, replace
from itertools import product
from pathlib import Path
from typing import Any, TypedDict, Unpack

import polars as pl

from fleetlab.core import DeviceError, Estimate, Figure, Provenance, Result
from fleetlab.core.names import lookup
from fleetlab.gpu.bench.advise.goals import (
    GOALS,
    SCHEMA,
    AdviceGoal,
    cost_rows,
    neighbor_rows,
    neighbor_sentences,
    shown_unit,
)
from fleetlab.gpu.bench.advise.goodput import GoodputValues, answer_rows, answer_sentences, goodput_values
from fleetlab.gpu.bench.advise.isolation import Advice, guarantee_rows, isolation, probe_rows
from fleetlab.gpu.bench.advise.mix import MEASURED, MixRequest, busy_alone, changed, job_classes, mix_modes, resolve_mix
from fleetlab.gpu.bench.advise.settings import LIMITS, PREDICTED, predict_mig, setting_rows
from fleetlab.gpu.bench.analysis.choice import MARGIN, ModeChoice, choice_table, choose_mode
from fleetlab.gpu.bench.analysis.findings import Findings, collect_findings
from fleetlab.gpu.bench.analysis.measure import collect_suites
from fleetlab.gpu.bench.analysis.result import REHEARSAL
from fleetlab.gpu.bench.analysis.scale import TailGoal
from fleetlab.gpu.bench.analysis.values import CUT_OFF, GoalValues, MeasureValues, ServedValues, is_apart
from fleetlab.gpu.bench.analysis.wording import capital, join_words, mode_name, mode_notes, mode_order, number
from fleetlab.gpu.bench.llm.requests import parse_goals
from fleetlab.gpu.bench.profile.models import SpeedTable, growing_waits
from fleetlab.gpu.bench.results.cells import mix_name, suites, table
from fleetlab.gpu.bench.results.suite import check_price

MOST = 4  # tenants more than in the mix for which speeds are predicted


def neighbors(
    f: Findings, goal: AdviceGoal, request: MixRequest, margin: float
) -> Iterator[tuple[MixRequest, str, ModeChoice]]:
    """Measured mixes of the same work at another pace or in other numbers; of several mixes each by itself."""
    for mix, names in {m.mix: m.names for m in f.gathered.cells}.items():
        # One tenant does not share, so no mode is better for it.
        if len(names) > 1 and (what := _what_changes(f, request, mix, names)):
            other = MixRequest(mix, (mix,), len(names), MEASURED, names, limits=request.limits)
            try:
                choice = choose_mode(goal.values(f, other), margin)
            except DeviceError:  # not measured for this goal
                continue
            if choice is not None:
                yield other, what, choice


def _what_changes(f: Findings, request: MixRequest, mix: str, names: tuple[str, ...]) -> str | None:
    if len(request.mixes) > 1:
        return f"{mix} by itself" if mix in request.mixes else None
    return None if mix in request.mixes else changed(f.gathered, request.names, names)


def flip_rows(f: Findings, goal: AdviceGoal, request: MixRequest, here: ModeChoice) -> list[dict[str, Any]]:
    """One row per neighbor: its best mode, and whether that is another than the advice; None if that is not known."""
    rows = []
    for other, what, choice in neighbors(f, goal, request, here.margin):
        flips = _flips(here, choice)
        gain = choice.lead.value if choice.lead else None
        about = {"mix": other.text, "changed": what, "best": choice.best, "verdict": choice.verdict, "margin": gain}
        rows.append(about | {"flips": flips, "kind": "measured", "tenants": other.tenants})
    rows += list(_other_goals(f, goal, request, here))
    rows += list(_predicted(f, goal, request, here))
    return sorted(rows, key=lambda row: (FIRST[row["flips"]], row["kind"], row["tenants"], row["mix"]))


def _other_goals(f: Findings, goal: AdviceGoal, request: MixRequest, here: ModeChoice) -> Iterator[dict[str, Any]]:
    """The same requests with goals half as long, and twice as long."""
    if goal.name != "goodput":
        return
    limits = goodput_values(f, request.mixes[0], request.limits).by[here.best].windows.goals
    for factor in (0.5, 2.0):
        other = {name: factor * seconds for name, seconds in limits.items() if name in ("ttft", "tpot")}
        choice = choose_mode(goal.values(f, replace(request, limits=other)), here.margin)
        if choice is not None:
            what = f"goals of {1000 * other['ttft']:g} ms and {1000 * other['tpot']:g} ms per token"
            about = {"mix": request.mixes[0], "changed": what, "best": choice.best, "verdict": choice.verdict}
            about |= {"margin": choice.lead and choice.lead.value, "flips": _flips(here, choice)}  # type: ignore[dict-item]
            yield about | {"kind": "measured", "tenants": request.tenants}


FIRST = {True: 0, False: 1, None: 2}


def _flips(here: ModeChoice, choice: ModeChoice) -> bool | None:
    """Whether a mode outside of the advice is best; not known if the advised mode was not measured there."""
    if here.best not in choice.modes:
        return None
    return choice.best not in here.level and not set(choice.level) & set(here.level)


def _predicted(f: Findings, goal: AdviceGoal, request: MixRequest, here: ModeChoice) -> Iterator[dict[str, Any]]:
    """More copies of each tenant, from its speed beside each: waits add up, and grow in company.

    Under time slicing and MPS without limits, for throughput, the slowest tenant and cost.
    """
    if goal.name not in ("throughput", "worst", "cost") or request.basis != MEASURED:
        return
    tables = {mode: made for mode in ("time-slicing", "mps") if (made := _table(f, mode, request.names))}
    measured = {tuple(sorted(f.mixes.names[mix])) for mix in f.mixes.stp.mixes()}
    if len(tables) < 2:
        return
    for copied, more in product(dict.fromkeys(request.names), range(1, MOST + 1)):
        names = tuple(sorted((*request.names, *[copied] * more)))
        if names in measured:
            continue
        total = {mode: _total(table, names, goal.name) for mode, table in tables.items()}
        ranked = sorted(total, key=lambda mode: -total[mode])
        gain = total[ranked[0]] / total[ranked[1]] - 1
        # Modes with limits are not predicted, so whether advice for one of them flips is not known.
        flips = ranked[0] not in here.level and gain > here.margin if here.best in tables else None
        about = {"mix": mix_name(list(names)), "changed": f"{len(names)} tenants instead of {request.tenants}"}
        about |= {"best": ranked[0], "verdict": "predicted", "margin": gain}  # type: ignore[dict-item]
        yield about | {"flips": flips, "kind": "predicted", "tenants": len(names)}


def _table(f: Findings, mode: str, names: tuple[str, ...]) -> SpeedTable | None:
    """Speeds of these tenants beside each other in a mode; None if a pair is missing."""
    works = dict.fromkeys(names)
    pairs = {(a, b): f"{a} | {b}" for a in works for b in works}
    if any(mode not in f.mixes.progress.modes(pair) for pair in pairs.values()):
        return None
    speed = {pair: f.mixes.progress.mean(mode, name).value for pair, name in pairs.items()}
    busy = {name: busy_alone(f.gathered, name) for name in works}
    return SpeedTable(speed, {name: _alone(f, mode, name) for name in works}, busy)


def _alone(f: Findings, mode: str, name: str) -> float:
    """Speed alone in a mode, relative to alone without MPS; 1 if it was not measured."""
    cells = [m.tenants[0] for m in f.gathered.cells if m.mode == mode and m.names == (name,)]
    progress = [t.progress for t in cells if t.progress]
    return sum(progress) / len(progress) if progress else 1.0


def _total(table: SpeedTable, names: tuple[str, ...], goal: str) -> float:
    among = growing_waits(table)
    speeds = []
    for k, name in enumerate(names):
        speeds.append(among(name, names[:k] + names[k + 1 :]))
    return min(speeds) if goal == "worst" else sum(speeds)


def flip_sentences(rows: list[dict[str, Any]], *, mixes: bool = False, known: bool = True) -> Iterator[str]:
    """Flips in words: each that was measured, and the first that is predicted for a mode; else that none is known.

    The cases are other mixes than that of the advice, or, if it is of several mixes, each of these. Where it is not
    `known` which mode is best, there is no advice that could flip, and the cases are told by themselves.
    """
    predicted = set()
    for row in rows:
        if row["flips"] and (row["kind"] == "measured" or row["best"] not in predicted):
            predicted |= {row["best"]} if row["kind"] == "predicted" else set()
            how = " (predicted from pairs)" if row["kind"] == "predicted" else ""
            lead = row["margin"]
            than = "the only one that keeps up" if lead is None else f"{100 * lead:.0f} % better there than the next"
            better = than if row["mix"] in row["changed"] else f"{row['mix']}, {than}"
            best = mode_name(row["best"])
            flips = f"It flips to {best}" if known else f"{capital(best)} is best"
            yield f"{flips} with {row['changed']}{how}: {better}."
    if not any(row["flips"] for row in rows):
        yield _no_flip(rows, MIXES if mixes else CASES, known=known)


CASES = "case of the same work at another pace, in other numbers or with other goals"
MIXES = "case, which are these mixes one by one"


def _no_flip(rows: list[dict[str, Any]], cases: str, *, known: bool) -> str:
    """Cases in which the advised mode, or the one that is ahead, was not compared say nothing."""
    when, mode = ("When it flips", "advised mode") if known else ("Which is best in other cases", "mode that is ahead")
    unknown = sum(row["flips"] is None for row in rows)
    looked = len(rows) - unknown
    if not rows:
        return f"{when} is not measured: the folder has no {cases}."
    if not looked:
        return f"{when} is not known: in {_all(unknown, cases)} the {mode} was neither measured nor predicted."
    why = f"not known, because the {mode} is not among those compared"
    more = f"; {unknown} more {'is' if unknown == 1 else 'are'} {why}" if unknown else ""
    if not known:
        return f"One of these modes is among the best in {_all(looked, cases)} as well{more}."
    any_of = {1: "the one", 2: "either of the 2"}.get(looked, f"any of the {looked}")
    return f"It does not flip in {any_of} {_cases(looked, cases)}{more}."


def _cases(n: int, cases: str) -> str:
    return cases if n == 1 else cases.replace("case", "cases")


def _all(n: int, cases: str) -> str:
    return {1: "the one ", 2: "both "}.get(n, f"all {n} ") + _cases(n, cases)


# --- the advice as a result -------------------------------------------------------------------------------------------


ISOLATION = "isolation"
GOAL_NAMES = (*GOALS, ISOLATION)


@dataclass(frozen=True, slots=True, repr=False)
class BenchAdvice(Result):
    """The mode to choose, and why."""

    mode: str
    verdict: str  # better, no difference, not known, or by guarantee
    answers: tuple[str, ...]
    unit: str
    frames: dict[str, pl.DataFrame]
    provenance: Provenance
    notes: tuple[str, ...] = ()

    def summary(self) -> list[Estimate]:
        """The goal by mode."""
        rows = self.frames["choice"].filter(pl.col("value").is_not_null()).iter_rows(named=True)
        return [Estimate(_name(r), r["value"], *_ends(r), self.unit) for r in rows]

    @property
    def findings(self) -> tuple[str, ...]:
        """The decision, what it rests on, and when it flips."""
        return self.answers

    def figures(self) -> dict[str, Figure]:
        """The goal by mode, with intervals."""
        rows = self.frames["choice"].filter(pl.col("value").is_not_null())
        if rows.is_empty():
            return {}
        names = [_name(row) for row in rows.iter_rows(named=True)]
        ends = [_ends(row) for row in rows.iter_rows(named=True)]
        points = pl.DataFrame(
            {"x": names, "y": rows["value"], "low": [e[0] for e in ends], "high": [e[1] for e in ends]}
        )
        goal = str(self.provenance.settings["goal"])
        return {goal: Figure(f"{goal} by mode", "dots", points, "mode", self.unit, self.answers[0])}


def _name(row: dict[str, Any]) -> str:
    return mode_name(row["mode"]) + (", predicted" if row["verdict"] == PREDICTED else "")


def _ends(row: dict[str, Any]) -> tuple[float, float]:
    """The limits of a 95 % interval; those of a prediction are none."""
    low, high = (None, None) if row["verdict"] == PREDICTED else (row["value_low"], row["value_high"])
    return (math.nan if low is None else low, math.nan if high is None else high)


class AdviceOptions(TypedDict, total=False):
    """Options that have a default."""

    price: float | None  # of a GPU hour
    margin: float  # modes that differ by less are equivalent, if two one-sided tests say so
    goodput: str | None  # goals of servers of language models in ms, as `ttft:200,tpot:25`; else their own
    speed: str | None  # a speed profile of the simulation, by name or file, whose classes the mix names
    speed_classes: str | None  # classes of jobs, as the simulation takes them: `app:bert=light,other=heavy`


def advise(folder: Path | str, *, mix: str, goal: str = "throughput", **options: Unpack[AdviceOptions]) -> BenchAdvice:
    """Advise on a mix of tenants that were measured in a folder of suites.

    `mix` names tenants, measured commands or classes of jobs, such as `train, 2 serve`; `goal` is throughput, worst,
    p99, goodput, answer, cost, energy or isolation. The other options are those of `AdviceOptions`.
    """
    folder = Path(folder)
    lookup("goal", goal, GOAL_NAMES, error=DeviceError)
    price, margin = options.get("price"), options.get("margin", MARGIN)
    check_price(price)
    if not 0 < margin < 1:
        msg = f"not a margin of equivalence: {margin}"
        raise DeviceError(msg, hint="a relative difference above 0 and below 1, such as 0.05")
    f = collect_findings(collect_suites(suites(folder)), price=price, goal=TailGoal())
    goals = options.get("goodput")
    request = resolve_mix(f, mix, job_classes(options.get("speed"), options.get("speed_classes")))
    request = replace(request, limits=parse_goals(goals, ("ttft", "tpot")) if goals else None)
    settings = {"card": f.gathered.gpu_name, "mix": mix, "goal": goal, "price": price, "margin": margin}
    settings |= {name: str(value) for name, value in options.items() if name not in settings and value}
    provenance = Provenance("bench advise", folder.name, settings)
    probed = list(probe_rows(folder))
    advice = isolation(f, request, probed) if goal == ISOLATION else _measured(f, request, goal, margin)
    choice, answers, frames, unit = advice
    mode, verdict = choice
    frames |= {
        "settings": table(setting_rows(f, mode, request.names)),
        "costs": table(cost_rows(f, request, price)),
        "guarantees": table(guarantee_rows(sorted({*mix_modes(f, request), "mig"}, key=mode_order))),
    }
    if probed:
        frames["isolation"] = table(probed)
    head = (REHEARSAL,) if f.gathered.rehearsal else ()
    predicted = PREDICTED in frames["choice"].get_column("verdict", default=pl.Series([""]))
    modes = {*mix_modes(f, request), *(row["mode"] for row in probed)}
    notes = (*mode_notes(modes), *_notes(f, request, predicted=predicted))
    sentences = (*head, answers[0], *([request.about] if request.about else []), *answers[1:], *_stand_for(request))
    return BenchAdvice(mode, verdict, sentences, unit, frames, provenance, notes)


def _measured(f: Findings, request: MixRequest, name: str, margin: float) -> Advice:
    goal = GOALS[name]
    values = goal.values(f, request)
    choice = choose_mode(values, margin)
    if choice is None:
        raise _no_choice(values, request, name)
    unit = shown_unit(goal, values)
    flips = flip_rows(f, goal, request, choice)
    one = request.mixes[0] if len(request.mixes) == 1 else ""  # only one mix has rows for single tenants
    rows = answer_rows(f, one) if name == "answer" else []
    others = list(neighbor_rows(f, one, name, choice.modes)) if name in BESIDE else []
    mig = predict_mig(f, request, name)
    basis = f"{_basis(request, values)} on {f.gathered.gpu_name}"
    answers = [
        f"{request.text}, {unit.partition(', ')[2] or name}: {choice.sentence()}.",  # a tenant's name keeps its case
        f"{capital(goal.what)} ({unit}): {_listed(choice)}. Basis: {basis}.",
        *choice.left_out(),
        *([mig.sentence(choice, unit)] if mig else []),
        *(values.sentences(choice.best) if isinstance(values, GoodputValues) else []),
        *answer_sentences(rows),
        *neighbor_sentences(others),
        *flip_sentences(flips, mixes=len(request.mixes) > 1, known=choice.advises),
    ]
    frames = {
        "choice": choice_table(choice, [mig.row()] if mig and mig.value else []),
        "answers": table(rows),
        "beside": table(others, SCHEMA),
    }
    frames |= {"flips": table(flips, FLIPS)}
    return (choice.best, choice.verdict), answers, frames, unit


def _no_choice(values: GoalValues, request: MixRequest, goal: str) -> DeviceError:
    """Why no two modes can be compared."""
    if values.falls_behind and not values.not_compared:
        each = "; ".join(f"{mode_name(mode)} {why}" for mode, why in values.falls_behind.items())
        msg = f"the server keeps up in no mode: {request.text}: {each}"
        hint = "ask for a mix with fewer requests per second, or give it a GPU without neighbors"
        return DeviceError(msg, hint=f"{_goodput(values)}{hint}")
    why = "; ".join(f"{mode_name(mode)}: {why}" for mode, why in (values.falls_behind | values.not_compared).items())
    msg = f"{goal} is not known in two modes: {request.text}" + (f"; {why}" if why else "")
    needs = "a P99 needs at least 299 requests, and" if isinstance(values, ServedValues) else "it needs"
    hint = f"measure both in one plan; {needs} a generator that is on time"
    if any(CUT_OFF in why for why in values.not_compared.values()):
        hint += ", and a window in which 99 % of the requests end: `--window` makes it longer"
    if isinstance(values, GoodputValues):
        hint += ", and a window ten times as long as a request: `fleetlab bench suite llm --window 60`"
    return DeviceError(msg, hint=f"{_goodput(values)}{hint}")


def _goodput(values: GoalValues) -> str:
    """What compares servers of language models also where requests are unfinished when the window ends."""
    models = isinstance(values, ServedValues) and any("llm" in one for s in values.served.values() for one in s.sent)
    return "--goal goodput compares servers of language models; " if models else ""


def _basis(request: MixRequest, values: GoalValues) -> str:
    """Which mixes answer, and how many of them have all of the compared modes."""
    same = len(values.mixes) if isinstance(values, MeasureValues) else len(request.mixes)
    return request.basis + (
        "" if same == len(request.mixes) else f", {same} of which were measured in all of these modes"
    )


BESIDE = ("p99", "goodput", "answer")  # goals that are about some of the tenants


def _stand_for(request: MixRequest) -> list[str]:
    """Which measured works stand for the classes that were asked for."""
    parts = [f"{word}: {join_words(list(works))}" for word, works in request.classes.items()]
    return [f"Measured works that stand for each class, {'; '.join(parts)}."] if parts else []


FLIPS = {"mix": pl.String, "changed": pl.String, "best": pl.String, "verdict": pl.String, "flips": pl.Boolean}


def _listed(choice: ModeChoice) -> str:
    return join_words([f"{mode_name(mode)} {number(choice.values[mode])}" for mode in choice.modes])


def _notes(f: Findings, request: MixRequest, *, predicted: bool) -> Iterator[str]:
    yield from f.gathered.notes
    yield "`margin`: by how much the value of the best mode is higher, or lower where that is better"
    yield "`no difference` only by two one-sided tests at 5 % each; `better` where the 95 % interval excludes 0"
    yield "`more_blocks`: of each mode, in one plan; they decide in 80 % of cases, if the difference is as it seems"
    if any(not is_apart(m.mode) for m in f.gathered.cells):
        yield "tenants of one process (streams, green contexts) are not compared: they need one program"
    yield "progress is relative to the median rate of the tenant alone on the whole GPU without MPS"
    if set(request.names) & set(f.gathered.alone.rates):
        yield f.mixes.noise.note(f.gathered, request.names)
    yield from [LIMITS] if predicted else []
    yield "`predicted` flips: waits beside each neighbor add up, and grow in company; not measured"
