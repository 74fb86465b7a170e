"""A room: what is in a trace, as the papers describe theirs; tables and figures, and what the trace does not tell."""

from __future__ import annotations

from collections.abc import Callable, Sequence
from difflib import get_close_matches

from fleetlab.core import Provenance, Trace, WorkloadError
from fleetlab.describe import published
from fleetlab.describe.profile import Profile
from fleetlab.describe.section import Section
from fleetlab.describe.sections.arrivals import time
from fleetlab.describe.sections.machines import machines
from fleetlab.describe.sections.recurrence import recurrence
from fleetlab.describe.sections.requests import space
from fleetlab.describe.sections.run_times import run
from fleetlab.describe.sections.services import service
from fleetlab.describe.sections.sharing import sharing
from fleetlab.describe.trace_view import Seen

Progress = Callable[[str, int, float], None]

SECTIONS: dict[str, Callable[[Seen, Section], None]] = {
    "time": time,
    "run": run,
    "space": space,
    "machines": machines,
    "sharing": sharing,
    "recurrence": recurrence,
    "service": service,
}


def silent(_what: str, _done: int, _share: float) -> None:
    """Tell nobody."""


def describe(
    trace: Trace,
    *,
    against: Trace | None = None,
    only: Sequence[str] = (),
    seed: int = 0,
    progress: Progress = silent,
) -> Profile:
    """Describe a trace: when jobs come, how long they run and wait, what they ask for, use and share.

    `against` is another trace to hold it against, figure by figure; `only` names sections; `seed` is of the draws that
    intervals come from.

    >>> import fleetlab
    >>> found = describe(fleetlab.synthesize("pai2020", jobs=300), only=["recurrence"])
    >>> list(found.figures())
    ['runs of a group', 'prediction error']
    """
    names = _wanted(only)
    other = None if against is None else _profile(against, names, seed, progress, "the other trace")
    return _profile(trace, names, seed, progress, "the trace", other)


def _wanted(only: Sequence[str]) -> list[str]:
    for name in only:
        if name not in SECTIONS:
            near = get_close_matches(name, SECTIONS, 1)
            msg = f"no section by that name: `{name}`" + (f"; did you mean {near[0]}?" if near else "")
            raise WorkloadError(msg, hint=f"there are {', '.join(SECTIONS)}")
    return [name for name in SECTIONS if name in only or not only]


def _profile(
    trace: Trace, names: Sequence[str], seed: int, progress: Progress, what: str, other: Profile | None = None
) -> Profile:
    w = trace.workload
    if not len(w) and not trace.series:
        msg = f"nothing to describe: the trace has no job: {w.source}"
        raise WorkloadError(msg, hint="`fleetlab show TRACE` says what it has, and which rows were turned away")
    seen, made = Seen(trace, seed), []
    for k, name in enumerate(names):
        progress(f"{name} of {what}", k, k / len(names))
        section = Section(name, like_pai=published.like_pai(w.source))
        if len(w) or name == "service":
            SECTIONS[name](seen, section)
        else:
            section.lacks("jobs", "the trace has none")
        made.append(section)
    progress(f"{names[-1]} of {what}", len(names), 1.0)
    settings = {"only": list(names), "against": None if other is None else other.provenance.source}
    return Profile(tuple(made), Provenance("describe", w.source, settings, seed), len(w), trace.notes, other)
