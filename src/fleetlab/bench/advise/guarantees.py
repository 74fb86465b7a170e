"""What each mode guarantees to a tenant, whatever its neighbors do: by NVIDIA's documentation, and as probes found.

Sources: docs.nvidia.com/deploy/mps (memory protection, limits, error containment), docs.nvidia.com/datacenter/tesla/
mig-user-guide (isolation of instances), the GPU operator's guide to time slicing (no memory or fault isolation).
"""

from __future__ import annotations

from collections.abc import Iterator, Sequence
from dataclasses import dataclass
from pathlib import Path
from typing import Any, NamedTuple

from fleetlab.bench.isolation.guarantees import KEPT, LOST, PARTLY, MeasuredGuarantee, measured_guarantees
from fleetlab.bench.isolation.result import read_probes

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
    said = str(getattr(one, column(mode)))
    return "yes, with its memory limit" if said == CAPPED and "~" in mode else said


def guaranteed(mode: str) -> int:
    """How many of them a mode gives."""
    return sum(_holds(one, mode).startswith(YES) for one in GUARANTEES)


WORST = (KEPT, PARTLY, LOST)  # verdicts, the worst last
LIMITED = "mps-limited"  # mode of the probes in which each tenant has half of the SMs and a memory limit
ONE_PROCESS = ("streams", "green")


def probe_rows(folder: Path) -> Iterator[dict[str, Any]]:
    """What `bench isolation` found in a folder: one row per mode and guarantee, of several runs the worst."""
    runs: dict[tuple[str, str], list[MeasuredGuarantee]] = {}
    for found in sorted(folder.rglob("probes.jsonl*")):
        about, cells = read_probes(found.parent)
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
