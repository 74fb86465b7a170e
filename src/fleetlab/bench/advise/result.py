"""Advice for one mix and one goal, as a result: one page."""

from __future__ import annotations

import math
from collections.abc import Iterator
from dataclasses import dataclass, replace
from pathlib import Path
from typing import Any, TypedDict, Unpack

import polars as pl

from fleetlab.bench.advise.answers import answer_rows, answer_sentences
from fleetlab.bench.advise.classes import job_classes
from fleetlab.bench.advise.costs import cost_rows
from fleetlab.bench.advise.flips import flip_rows, flip_sentences
from fleetlab.bench.advise.goals import GOALS, shown_unit
from fleetlab.bench.advise.goodput import GoodputValues
from fleetlab.bench.advise.guarantees import guarantee_rows, probe_rows
from fleetlab.bench.advise.isolation import Made, isolation
from fleetlab.bench.advise.mig_prediction import LIMITS, PREDICTED, predict_mig
from fleetlab.bench.advise.mix import AskedMix, asked_mix, mix_modes
from fleetlab.bench.advise.neighbors import SCHEMA, neighbor_rows, neighbor_sentences
from fleetlab.bench.advise.settings import setting_rows
from fleetlab.bench.analysis.choice import MARGIN, ModeChoice, choice_table, choose_mode
from fleetlab.bench.analysis.findings import Findings, collect_findings
from fleetlab.bench.analysis.folders import suites
from fleetlab.bench.analysis.modes import mode_name, mode_notes, mode_order
from fleetlab.bench.analysis.result import REHEARSAL
from fleetlab.bench.analysis.scale import TailGoal
from fleetlab.bench.analysis.suite_data import collect_suites
from fleetlab.bench.analysis.values import CUT_OFF, GoalValues, MeasureValues, ServedValues, is_apart
from fleetlab.bench.analysis.wording import capital, join_words, number
from fleetlab.bench.llm.goals import parse_goals
from fleetlab.bench.results.cells import table
from fleetlab.core import DeviceError, Estimate, Figure, Provenance, Result
from fleetlab.core.names import lookup

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


class AdviceWords(TypedDict, total=False):
    """Words that have a default."""

    price: float | None  # of a GPU hour
    margin: float  # modes that differ by less are equivalent, if two one-sided tests say so
    goodput: str | None  # goals of servers of language models in ms, as `ttft:200,tpot:25`; else their own
    speed: str | None  # a speed profile of the simulation, by name or file, whose classes the mix names
    speed_classes: str | None  # classes of jobs, as the simulation takes them: `app:bert=light,other=heavy`


def _check(price: float | None, margin: float) -> None:
    if not 0 < margin < 1:
        msg = f"not a margin of equivalence: {margin}"
        raise DeviceError(msg, hint="a relative difference above 0 and below 1, such as 0.05")
    if price is not None and not (math.isfinite(price) and price >= 0):
        msg = f"not a price of a GPU hour: {price}"
        raise DeviceError(msg, hint="a number of at least 0, such as --price 3.5")


def advise(
    folder: Path | str,
    *,
    mix: str,
    goal: str = "throughput",
    **words: Unpack[AdviceWords],
) -> BenchAdvice:
    """Advise on a mix of tenants that were measured in a folder of suites.

    `mix` names tenants, measured commands or classes of jobs, such as `train, 2 serve`; `goal` is throughput, worst,
    p99, goodput, answer, cost, energy or isolation. The other words are those of `AdviceWords`.
    """
    folder = Path(folder)
    lookup("goal", goal, GOAL_NAMES, error=DeviceError)
    price, margin = words.get("price"), words.get("margin", MARGIN)
    _check(price, margin)
    f = collect_findings(collect_suites(suites(folder)), price=price, goal=TailGoal())
    goals = words.get("goodput")
    asked = asked_mix(f, mix, job_classes(words.get("speed"), words.get("speed_classes")))
    asked = replace(asked, limits=parse_goals(goals, ("ttft", "tpot")) if goals else None)
    settings = {"card": f.gathered.gpu_name, "mix": mix, "goal": goal, "price": price, "margin": margin}
    settings |= {name: str(word) for name, word in words.items() if name not in settings and word}
    provenance = Provenance("bench advise", folder.name, settings)
    probed = list(probe_rows(folder))
    made = isolation(f, asked, probed) if goal == ISOLATION else _measured(f, asked, goal, margin)
    choice, answers, frames, unit = made
    mode, verdict = choice
    frames |= {
        "settings": table(setting_rows(f, mode, asked.names)),
        "costs": table(cost_rows(f, asked, price)),
        "guarantees": table(guarantee_rows(sorted({*mix_modes(f, asked), "mig"}, key=mode_order))),
    }
    if probed:
        frames["isolation"] = table(probed)
    head = (REHEARSAL,) if f.gathered.rehearsal else ()
    predicted = PREDICTED in frames["choice"].get_column("verdict", default=pl.Series([""]))
    modes = {*mix_modes(f, asked), *(row["mode"] for row in probed)}
    notes = (*mode_notes(modes), *_notes(f, asked, predicted=predicted))
    said = (*head, answers[0], *([asked.about] if asked.about else []), *answers[1:], *_stand_for(asked))
    return BenchAdvice(mode, verdict, said, unit, frames, provenance, notes)


def _measured(f: Findings, asked: AskedMix, name: str, margin: float) -> Made:
    goal = GOALS[name]
    values = goal.values(f, asked)
    choice = choose_mode(values, margin)
    if choice is None:
        raise _no_choice(values, asked, name)
    unit = shown_unit(goal, values)
    flips = flip_rows(f, goal, asked, choice)
    one = asked.mixes[0] if len(asked.mixes) == 1 else ""  # only one mix has rows for single tenants
    rows = answer_rows(f, one) if name == "answer" else []
    others = list(neighbor_rows(f, one, name, choice.modes)) if name in BESIDE else []
    mig = predict_mig(f, asked, name)
    answers = [
        f"{asked.words}, {unit.partition(', ')[2] or name}: {choice.sentence()}.",  # a name of a tenant keeps its case
        f"{capital(goal.what)} ({unit}): {_listed(choice)}. Basis: {_basis(asked, values)} on {f.gathered.gpu_name}.",
        *choice.left_out(),
        *([mig.sentence(choice, unit)] if mig else []),
        *(values.sentences(choice.best) if isinstance(values, GoodputValues) else []),
        *answer_sentences(rows),
        *neighbor_sentences(others),
        *flip_sentences(flips, mixes=len(asked.mixes) > 1, known=choice.advises),
    ]
    frames = {
        "choice": choice_table(choice, [mig.row()] if mig and mig.value else []),
        "answers": table(rows),
        "beside": table(others, SCHEMA),
    }
    frames |= {"flips": table(flips, FLIPS)}
    return (choice.best, choice.verdict), answers, frames, unit


def _no_choice(values: GoalValues, asked: AskedMix, goal: str) -> DeviceError:
    """Why no two modes can be compared."""
    if values.falls_behind and not values.not_compared:
        each = "; ".join(f"{mode_name(mode)} {why}" for mode, why in values.falls_behind.items())
        msg = f"the server keeps up in no mode: {asked.words}: {each}"
        hint = "ask for a mix with fewer requests per second, or give it a GPU without neighbors"
        return DeviceError(msg, hint=f"{_goodput(values)}{hint}")
    why = "; ".join(f"{mode_name(mode)}: {why}" for mode, why in (values.falls_behind | values.not_compared).items())
    msg = f"{goal} is not known in two modes: {asked.words}" + (f"; {why}" if why else "")
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


def _basis(asked: AskedMix, values: GoalValues) -> str:
    """Which mixes answer, and how many of them have all of the compared modes."""
    same = len(values.mixes) if isinstance(values, MeasureValues) else len(asked.mixes)
    return asked.basis + ("" if same == len(asked.mixes) else f", {same} of which were measured in all of these modes")


BESIDE = ("p99", "goodput", "answer")  # goals that are about some of the tenants


def _stand_for(asked: AskedMix) -> list[str]:
    """Which measured works stand for the classes that were asked for."""
    parts = [f"{word}: {join_words(list(works))}" for word, works in asked.classes.items()]
    return [f"Measured works that stand for each class, {'; '.join(parts)}."] if parts else []


FLIPS = {"mix": pl.String, "changed": pl.String, "best": pl.String, "verdict": pl.String, "flips": pl.Boolean}


def _listed(choice: ModeChoice) -> str:
    return join_words([f"{mode_name(mode)} {number(choice.values[mode])}" for mode in choice.modes])


def _notes(f: Findings, asked: AskedMix, *, predicted: bool) -> Iterator[str]:
    yield from f.gathered.notes
    yield "`margin`: by how much the value of the best mode is higher, or lower where that is better"
    yield "`no difference` only by two one-sided tests at 5 % each; `better` where the 95 % interval excludes 0"
    yield "`more_blocks`: of each mode, in one plan; they decide in 80 % of cases, if the difference is as it seems"
    if any(not is_apart(m.mode) for m in f.gathered.meetings):
        yield "tenants of one process (streams, green contexts) are not compared: they need one program"
    yield "progress is relative to the median rate of the tenant alone on the whole GPU without MPS"
    if set(asked.names) & set(f.gathered.alone):
        yield f.mixes.noise.note(f.gathered, asked.names)
    yield from [LIMITS] if predicted else []
    yield "`predicted` flips: waits beside each neighbor add up, and grow in company; not measured"
