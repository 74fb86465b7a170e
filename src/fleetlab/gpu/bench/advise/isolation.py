"""What modes guarantee to a tenant, by documentation and as probes found, and the mode that isolates the most.

Sources: docs.nvidia.com/deploy/mps (memory protection, limits, error containment), docs.nvidia.com/datacenter/tesla/
mig-user-guide (isolation of instances), the GPU operator's guide to time slicing (no memory or fault isolation).
"""

from __future__ import annotations

from collections.abc import Iterator, Sequence
from dataclasses import dataclass
from pathlib import Path
from typing import Any, NamedTuple

import polars as pl

from fleetlab.core import DeviceError
from fleetlab.core.files import folder_at
from fleetlab.gpu.bench.advise.goals import GOALS
from fleetlab.gpu.bench.advise.mix import MixRequest, mix_modes
from fleetlab.gpu.bench.advise.settings import (
    PREDICTED,
    MigAssignment,
    goal_value,
    has_profiles,
    layout_sentence,
    mig_layout,
)
from fleetlab.gpu.bench.analysis.findings import Findings
from fleetlab.gpu.bench.analysis.wording import capital, join_words, mode_name, mode_order, number
from fleetlab.gpu.bench.histogram import interval_columns
from fleetlab.gpu.bench.results.programs import KEPT, LOST, PARTLY, MeasuredGuarantee, measured_guarantees, read_probes
from fleetlab.stats import Interval

YES, NO = "yes", "no"
CAPPED = "no: only with a memory limit for each client, a setting of its own"


class Guarantee(NamedTuple):
    """One guarantee: what holds in each mode; `limits` is MPS with limits for each tenant."""

    name: str
    time_slicing: str
    mps: str
    limits: str
    mig: str


GUARANTEES = (
    Guarantee("memory of others cannot be read or written", YES, YES, YES, YES),
    Guarantee("others cannot take its memory", NO, CAPPED, CAPPED, YES),
    Guarantee("others cannot take its SMs", NO, NO, "no: a limit caps each, it reserves nothing", YES),
    Guarantee("others cannot take its memory bandwidth and cache", NO, NO, NO, YES),
    Guarantee("an error of another does not end it", "not guaranteed", NO, NO, YES),
)


def column(mode: str) -> str:
    """The column of a measured mode: `mps@50` is MPS with limits."""
    if mode.startswith("mig"):
        return "mig"
    if mode.startswith("mps"):
        return "limits" if any(mark in mode for mark in "@~") else "mps"
    return "time_slicing"


def _holds(one: Guarantee, mode: str) -> str:
    """Whether a mode gives a guarantee; `mps~4096` is MPS with a memory limit."""
    answer = str(getattr(one, column(mode)))
    return "yes, with its memory limit" if answer == CAPPED and "~" in mode else answer


def guaranteed(mode: str) -> int:
    """How many of them a mode gives."""
    return sum(_holds(one, mode).startswith(YES) for one in GUARANTEES)


WORST = (KEPT, PARTLY, LOST)  # verdicts, the worst last
LIMITED = "mps-limited"  # mode of the probes in which each tenant has half of the SMs and a memory limit
ONE_PROCESS = ("streams", "green")


def probe_rows(folder: Path) -> Iterator[dict[str, Any]]:
    """What `bench isolation` found in a folder: one row per mode and guarantee, of several runs the worst."""
    runs: dict[tuple[str, str], list[MeasuredGuarantee]] = {}
    for path in sorted(folder_at(folder).rglob("probes.jsonl*")):
        about, cells = read_probes(path.parent)
        limits = f"mps@50~{about['memory_mib']}" if about.get("memory_mib") else "mps@50"
        for one in measured_guarantees(cells):
            mode = limits if one.mode == LIMITED else one.mode
            runs.setdefault((mode, one.guarantee), []).append(one)
    for (mode, guarantee), each in runs.items():
        verdict = max((one.verdict for one in each), key=WORST.index)
        says = "; in another run: ".join(dict.fromkeys(one.says for one in each if one.verdict == verdict))
        yield {"mode": mode, "guarantee": guarantee, "verdict": verdict, "found": says, "runs": len(each)}


class ProbeScore(NamedTuple):
    """How many guarantees the probes of a mode found kept, and kept in part, and the setting that was probed."""

    kept: int
    partly: int
    setting: str


@dataclass(frozen=True, slots=True)
class ProbeScores:
    """What probes found of modes of processes, over the guarantees that were probed in all of them."""

    of: tuple[str, ...]  # these guarantees
    scores: dict[str, ProbeScore]  # by mode

    def order(self, mode: str) -> tuple[float, ...]:
        """Sort key: most guarantees first, among equals most of what the probes found kept, then kept in part."""
        score = self.scores.get(mode)
        return (-guaranteed(mode), *((-score.kept, -score.partly) if score else (0.0, 0.0)))


def probe_scores(rows: Sequence[dict[str, Any]], modes: Sequence[str]) -> ProbeScores:
    """Scores of the modes that were probed, with this or another limit.

    Probes of MPS with limits had a memory limit: of a mode without one they do not show the memory cap.
    """
    probed = {mode: here for mode in modes if (here := _probed(rows, mode))}
    of = tuple(
        dict.fromkeys(name for here in probed.values() for name in here if all(name in p for p in probed.values()))
    )
    scores = {}
    for mode, here in probed.items():
        verdicts = [here[name]["verdict"] for name in of]
        setting = next(iter(here.values()))["mode"]
        scores[mode] = ProbeScore(verdicts.count(KEPT), verdicts.count(PARTLY), setting)
    return ProbeScores(of, scores)


def _probed(rows: Sequence[dict[str, Any]], mode: str) -> dict[str, dict[str, Any]]:
    """Rows of the probes that stand for a mode, by guarantee; of several runs the worst."""
    here = [row for row in rows if row["mode"] not in ONE_PROCESS and column(row["mode"]) == column(mode)]
    if "~" not in mode:
        here = [row for row in here if not (row["guarantee"] == "memory cap" and "~" in row["mode"])]
    worst = sorted(here, key=lambda row: WORST.index(row["verdict"]))
    return {row["guarantee"]: row for row in worst}


def guarantee_rows(modes: list[str]) -> Iterator[dict[str, Any]]:
    """One row per guarantee, one column per mode."""
    for one in GUARANTEES:
        yield {"guarantee": one.name} | {mode: _holds(one, mode) for mode in modes}


# --- the mode that isolates tenants the most -------------------------------------------------------------------------


Probed = Sequence[dict[str, Any]]  # rows of the probes: mode, guarantee, verdict, and what was found
Advice = tuple[tuple[str, str], list[str], dict[str, pl.DataFrame], str]  # mode and verdict, sentences, tables, unit


def isolation(f: Findings, request: MixRequest, probed: Probed) -> Advice:
    """By guarantee; the progress of the slowest tenant says what a neighbor took, as measured."""
    measured, layout = mix_modes(f, request), mig_layout(f, request.names) if len(request.mixes) == 1 else None
    # A GPU of which no profiles are known may have MIG; one whose profiles do not hold the mix has no use of it.
    apart = [] if isinstance(layout, str) and has_profiles(f.gathered.gpu_name) else ["mig"]
    scores = probe_scores(probed, measured)
    modes = sorted({*measured, *apart}, key=lambda mode: (*scores.order(mode), mode_order(mode)))
    slowest = _slowest(f, request)
    if isinstance(layout, MigAssignment) and (speed := goal_value(layout, "worst")):
        slowest = {"mig": speed} | slowest
    best = modes[0]
    head = f"{mode_name(best)} guarantees {guaranteed(best)} of {len(GUARANTEES)}; it is "
    # What faults of a tenant did to its neighbor, in modes of processes
    faults = [row for row in probed if row["guarantee"] == "fault isolation" and row["mode"] not in ONE_PROCESS]
    sentences = [capital(f"{mode_name(row['mode'])}: {row['found']}") for row in faults]
    answers = [
        f"{request.text}, isolation: {head}{'measured' if best in measured else 'not measured'} here.",
        *([layout_sentence(layout, request.names)] if layout and (best == "mig" or not apart) else []),
        *_of_measured([mode for mode in modes if mode in measured], scores),
        *(_left(slowest) if slowest else []),
        "Guarantees are NVIDIA's, by documentation; a measurement shows what neighbors did, not what they could do.",
        *([f"Faults of a tenant in the probes of this folder. {'. '.join(sentences)}."] if sentences else []),
    ]
    frame = pl.DataFrame([_row(mode, slowest, scores) for mode in modes], infer_schema_length=None)
    return (best, "by guarantee"), answers, {"choice": frame}, GOALS["worst"].unit


def _slowest(f: Findings, request: MixRequest) -> dict[str, Interval]:
    """Progress of the slowest tenant by mode; nothing if it was not measured."""
    try:
        values = GOALS["worst"].values(f, request)
    except DeviceError:
        return {}
    return {mode: values.value(mode) for mode in values.modes}


def _row(mode: str, known: dict[str, Interval], scores: ProbeScores) -> dict[str, Any]:
    score = scores.scores.get(mode)
    row: dict[str, Any] = {"mode": mode, "guarantees": guaranteed(mode)}
    row |= {"verdict": PREDICTED if mode == "mig" and mode in known else ""}
    if scores.scores:
        row |= {"probes_kept": score and score.kept, "probes": len(scores.of) if score else None}
        row |= {"probed_as": score.setting if score else None}
    return row | interval_columns("value", known.get(mode))


def _of_measured(modes: list[str], scores: ProbeScores) -> list[str]:
    """Which of the measured modes guarantee the most; among equals the order of what the probes found kept."""
    most = guaranteed(modes[0])
    first = [mode for mode in modes if guaranteed(mode) == most]
    if len(first) == 1:
        return [f"Of the measured modes {mode_name(first[0])} guarantees the most, {most} of {len(GUARANTEES)}."]
    sentence = f"{join_words([mode_name(mode) for mode in first])} guarantee the most, {most} of {len(GUARANTEES)} each"
    probed = [mode for mode in first if mode in scores.scores]
    if len(probed) < 2:
        return [f"Of the measured modes {sentence}."]
    parts = [f"{mode_name(mode)} kept {scores.scores[mode].kept}" for mode in probed]
    top = [mode for mode in probed if scores.order(mode) == scores.order(probed[0])]
    ahead = (
        f"{mode_name(top[0])} comes first" if len(top) == 1 else f"{join_words(list(map(mode_name, top)))} are equal"
    )
    of = f"of {len(scores.of)} that were probed in all of them ({', '.join(scores.of)})"
    by_probes = f"By the probes of this folder {ahead}: {of}, {join_words(parts)}."
    return [f"Of the measured modes {sentence}.", by_probes, *_other_settings(probed, scores)]


def _other_settings(modes: list[str], scores: ProbeScores) -> list[str]:
    """Modes that were probed with other limits than theirs."""
    other = {mode: scores.scores[mode].setting for mode in modes if scores.scores[mode].setting != mode}
    parts = [f"{mode_name(mode)} itself was not probed, {mode_name(setting)} was" for mode, setting in other.items()]
    return [capital(f"{'; '.join(parts)}.")] if parts else []


def _left(known: dict[str, Interval]) -> list[str]:
    parts = [f"{number(x)} under {mode_name(mode)}" for mode, x in known.items() if mode != "mig"]
    if not parts:
        return []
    return [f"The slowest tenant kept of its speed alone {join_words(parts)}."]
