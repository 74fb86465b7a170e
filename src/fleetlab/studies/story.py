"""The main job in one go: what is in a trace, why its tasks wait, what five policies would do, and a page of it all."""

from __future__ import annotations

from collections.abc import Callable
from dataclasses import dataclass
from pathlib import Path

from fleetlab.describe import describe
from fleetlab.report import report
from fleetlab.studies.compare import FIVE, compare
from fleetlab.studies.diagnose import diagnose
from fleetlab.workload import Result, Trace, TraceError

FIVE_SENTENCES = 5
Tell = Callable[[str, int, float], None]


@dataclass(frozen=True, slots=True)
class Story:
    """Where the page is, and what was found."""

    page: Path
    sentences: tuple[str, ...]


def story(trace: Trace, *, out: Path, seed: int = 0, tell: Tell | None = None) -> Story:
    """Describe, diagnose and compare, and write the page `out`."""
    if trace.cluster is None:
        msg = f"the trace has no cluster: {trace.provenance.source}"
        raise TraceError(msg, hint="--cluster FILE.toml gives it one")
    tell = tell or (lambda *_: None)
    seen = describe(trace, seed=seed, tell=tell)
    why = diagnose(trace.workload, trace.cluster, usage=trace.usage, seed=seed, tell=tell)
    by = compare(trace.workload, trace.cluster, policies=FIVE, seed=seed, tell=tell)
    tell("page", 0, 0.0)
    found: dict[str, Result] = {"the trace": seen, "why tasks wait": why, "five policies": by}
    page = report(found, out, title="What happened, and why")
    tell("page", 1, 1.0)
    ends = (*why.findings[:2], by.sentences[0])
    # One of each section before a second of any: when they come, how long they run, what they ask for, and so on.
    firsts = [sentence for s in seen.sections for sentence in s.sentences[-1:]]
    rest = [sentence for sentence in seen.sentences if sentence not in firsts]
    told = (*[*firsts[::-1], *rest][: FIVE_SENTENCES - len(ends)][::-1], *ends)
    return Story(page, tuple(f"{said[0].upper()}{said[1:].rstrip('.')}." for said in told))
