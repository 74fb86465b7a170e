"""The mode that isolates tenants the most: by what modes guarantee, and among equals by what probes found."""

from __future__ import annotations

from collections.abc import Sequence
from typing import Any

import polars as pl

from fleetlab.bench.advise.goals import GOALS
from fleetlab.bench.advise.guarantees import GUARANTEES, ONE_PROCESS, ProbeScores, guaranteed, probe_scores
from fleetlab.bench.advise.mig_layout import MigAssignment, has_profiles, layout_sentence
from fleetlab.bench.advise.mig_prediction import PREDICTED, goal_value
from fleetlab.bench.advise.mix import AskedMix, mix_modes
from fleetlab.bench.advise.settings import mig_layout
from fleetlab.bench.analysis.findings import Findings
from fleetlab.bench.analysis.mixes import interval_columns
from fleetlab.bench.analysis.modes import mode_name, mode_order
from fleetlab.bench.analysis.wording import capital, join_words, number
from fleetlab.core import DeviceError
from fleetlab.stats import Interval

Probed = Sequence[dict[str, Any]]  # rows of the probes: mode, guarantee, verdict, and what was found
Made = tuple[tuple[str, str], list[str], dict[str, pl.DataFrame], str]  # mode and verdict, sentences, tables, unit


def isolation(f: Findings, asked: AskedMix, probed: Probed) -> Made:
    """By guarantee; the progress of the slowest tenant says what a neighbor took, as measured."""
    measured, layout = mix_modes(f, asked), mig_layout(f, asked.names) if len(asked.mixes) == 1 else None
    # A GPU of which no profiles are known may have MIG; one whose profiles do not hold the mix has no use of it.
    apart = [] if isinstance(layout, str) and has_profiles(f.gathered.gpu_name) else ["mig"]
    scores = probe_scores(probed, measured)
    modes = sorted({*measured, *apart}, key=lambda mode: (*scores.order(mode), mode_order(mode)))
    known = _slowest(f, asked)
    if isinstance(layout, MigAssignment) and (speed := goal_value(layout, "worst")):
        known = {"mig": speed} | known
    best = modes[0]
    said = f"{mode_name(best)} guarantees {guaranteed(best)} of {len(GUARANTEES)}; it is "
    answers = [
        f"{asked.words}, isolation: {said}{'measured' if best in measured else 'not measured'} here.",
        *([layout_sentence(layout, asked.names)] if layout and (best == "mig" or not apart) else []),
        *_of_measured([mode for mode in modes if mode in measured], scores),
        *(_left(known) if known else []),
        "Guarantees are NVIDIA's, by documentation; a measurement shows what neighbors did, not what they could do.",
        *_faults(probed),
    ]
    frame = pl.DataFrame([_row(mode, known, scores) for mode in modes], infer_schema_length=None)
    return (best, "by guarantee"), answers, {"choice": frame}, GOALS["worst"].unit


def _slowest(f: Findings, asked: AskedMix) -> dict[str, Interval]:
    """Progress of the slowest tenant by mode; nothing if it was not measured."""
    try:
        values = GOALS["worst"].values(f, asked)
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
    said = f"{join_words([mode_name(mode) for mode in first])} guarantee the most, {most} of {len(GUARANTEES)} each"
    probed = [mode for mode in first if mode in scores.scores]
    if len(probed) < 2:
        return [f"Of the measured modes {said}."]
    parts = [f"{mode_name(mode)} kept {scores.scores[mode].kept}" for mode in probed]
    top = [mode for mode in probed if scores.order(mode) == scores.order(probed[0])]
    ahead = (
        f"{mode_name(top[0])} comes first" if len(top) == 1 else f"{join_words(list(map(mode_name, top)))} are equal"
    )
    of = f"of {len(scores.of)} that were probed in all of them ({', '.join(scores.of)})"
    found = f"By the probes of this folder {ahead}: {of}, {join_words(parts)}."
    return [f"Of the measured modes {said}.", found, *_other_settings(probed, scores)]


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


def _faults(probed: Probed) -> list[str]:
    """What faults of a tenant did to its neighbor, in modes of processes."""
    faults = [row for row in probed if row["guarantee"] == "fault isolation" and row["mode"] not in ONE_PROCESS]
    said = [capital(f"{mode_name(row['mode'])}: {row['found']}") for row in faults]
    return [f"Faults of a tenant in the probes of this folder. {'. '.join(said)}."] if said else []
