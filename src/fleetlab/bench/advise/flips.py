"""When advice flips: the same work at another pace or in other numbers, as measured, or predicted from pairs."""

from __future__ import annotations

from collections.abc import Iterator
from dataclasses import replace
from itertools import product
from typing import Any

from fleetlab.bench.advise.goals import AdviceGoal
from fleetlab.bench.advise.goodput import goodput_values
from fleetlab.bench.advise.mix import MEASURED, AskedMix, busy_alone, changed
from fleetlab.bench.analysis.choice import ModeChoice, choose_mode
from fleetlab.bench.analysis.findings import Findings
from fleetlab.bench.analysis.modes import mode_name
from fleetlab.bench.analysis.wording import capital
from fleetlab.bench.profile.groups import growing_waits
from fleetlab.bench.profile.pairs import SpeedTable
from fleetlab.bench.results.cells import mix_name
from fleetlab.core import DeviceError

MOST = 4  # tenants more than in the mix for which speeds are predicted


def neighbors(
    f: Findings, goal: AdviceGoal, asked: AskedMix, margin: float
) -> Iterator[tuple[AskedMix, str, ModeChoice]]:
    """Measured mixes of the same work at another pace or in other numbers; of several mixes each by itself."""
    for mix, names in {m.mix: m.names for m in f.gathered.meetings}.items():
        # One tenant does not share, so no mode is better for it.
        if len(names) > 1 and (what := _what_changes(f, asked, mix, names)):
            other = AskedMix(mix, (mix,), len(names), MEASURED, names, limits=asked.limits)
            try:
                made = choose_mode(goal.values(f, other), margin)
            except DeviceError:  # not measured for this goal
                continue
            if made is not None:
                yield other, what, made


def _what_changes(f: Findings, asked: AskedMix, mix: str, names: tuple[str, ...]) -> str | None:
    if len(asked.mixes) > 1:
        return f"{mix} by itself" if mix in asked.mixes else None
    return None if mix in asked.mixes else changed(f.gathered, asked.names, names)


def flip_rows(f: Findings, goal: AdviceGoal, asked: AskedMix, here: ModeChoice) -> list[dict[str, Any]]:
    """One row per neighbor: its best mode, and whether that is another than the advice; None if that is not known."""
    rows = []
    for other, what, made in neighbors(f, goal, asked, here.margin):
        flips = _flips(here, made)
        gain = made.lead.value if made.lead else None
        about = {"mix": other.words, "changed": what, "best": made.best, "verdict": made.verdict, "margin": gain}
        rows.append(about | {"flips": flips, "kind": "measured", "tenants": other.tenants})
    rows += list(_other_goals(f, goal, asked, here))
    rows += list(_predicted(f, goal, asked, here))
    return sorted(rows, key=lambda row: (FIRST[row["flips"]], row["kind"], row["tenants"], row["mix"]))


def _other_goals(f: Findings, goal: AdviceGoal, asked: AskedMix, here: ModeChoice) -> Iterator[dict[str, Any]]:
    """The same requests with goals half as long, and twice as long."""
    if goal.name != "goodput":
        return
    limits = goodput_values(f, asked.mixes[0], asked.limits).by[here.best].windows.goals
    for factor in (0.5, 2.0):
        other = {name: factor * seconds for name, seconds in limits.items() if name in ("ttft", "tpot")}
        made = choose_mode(goal.values(f, replace(asked, limits=other)), here.margin)
        if made is not None:
            what = f"goals of {1000 * other['ttft']:g} ms and {1000 * other['tpot']:g} ms per token"
            about = {"mix": asked.mixes[0], "changed": what, "best": made.best, "verdict": made.verdict}
            about |= {"margin": made.lead and made.lead.value, "flips": _flips(here, made)}  # type: ignore[dict-item]
            yield about | {"kind": "measured", "tenants": asked.tenants}


FIRST = {True: 0, False: 1, None: 2}


def _flips(here: ModeChoice, made: ModeChoice) -> bool | None:
    """Whether a mode outside of the advice is best; not known if the advised mode was not measured there."""
    if here.best not in made.modes:
        return None
    return made.best not in here.level and not set(made.level) & set(here.level)


def _predicted(f: Findings, goal: AdviceGoal, asked: AskedMix, here: ModeChoice) -> Iterator[dict[str, Any]]:
    """More copies of each tenant, from its speed beside each: waits add up, and grow in company.

    Under time slicing and MPS without limits, for throughput, the slowest tenant and cost.
    """
    if goal.name not in ("throughput", "worst", "cost") or asked.basis != MEASURED:
        return
    tables = {mode: made for mode in ("time-slicing", "mps") if (made := _table(f, mode, asked.names))}
    known = {tuple(sorted(f.mixes.names[mix])) for mix in f.mixes.stp.mixes()}
    if len(tables) < 2:
        return
    for copied, more in product(dict.fromkeys(asked.names), range(1, MOST + 1)):
        names = tuple(sorted((*asked.names, *[copied] * more)))
        if names in known:
            continue
        total = {mode: _total(table, names, goal.name) for mode, table in tables.items()}
        ranked = sorted(total, key=lambda mode: -total[mode])
        gain = total[ranked[0]] / total[ranked[1]] - 1
        # Modes with limits are not predicted, so whether advice for one of them flips is not known.
        flips = ranked[0] not in here.level and gain > here.margin if here.best in tables else None
        about = {"mix": mix_name(list(names)), "changed": f"{len(names)} tenants instead of {asked.tenants}"}
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
    cells = [m.tenants[0] for m in f.gathered.meetings if m.mode == mode and m.names == (name,)]
    made = [t.progress for t in cells if t.progress]
    return sum(made) / len(made) if made else 1.0


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
