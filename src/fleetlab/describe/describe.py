"""A room: what is in a trace, as the papers describe theirs; tables and figures, and what is not in the trace."""

from __future__ import annotations

from collections.abc import Callable, Sequence

from fleetlab.core import Provenance, Trace, WorkloadError
from fleetlab.core.names import lookup
from fleetlab.core.progress import Progress, silent
from fleetlab.describe import published
from fleetlab.describe.profile import Profile
from fleetlab.describe.section import Section
from fleetlab.describe.sections.arrivals import arrivals
from fleetlab.describe.sections.machines import machines
from fleetlab.describe.sections.parents import parents
from fleetlab.describe.sections.recurrence import recurrence
from fleetlab.describe.sections.requests import requests
from fleetlab.describe.sections.run_times import run_times
from fleetlab.describe.sections.services import services
from fleetlab.describe.sections.sharing import sharing
from fleetlab.describe.sections.tags import tags
from fleetlab.describe.trace_view import TraceView

SECTIONS: dict[str, Callable[[TraceView, Section], None]] = {
    "arrivals": arrivals,
    "runtimes": run_times,
    "requests": requests,
    "machines": machines,
    "sharing": sharing,
    "recurrence": recurrence,
    "parents": parents,
    "tags": tags,
    "services": services,
}


def describe(
    trace: Trace,
    *,
    against: Trace | None = None,
    only: Sequence[str] = (),
    seed: int = 0,
    progress: Progress = silent,
) -> Profile:
    """Describe a trace: when jobs come, how long they run and wait, what they ask for, use and share.

    Parameters
    ----------
    trace
        The trace.
    against
        Another trace to compare it with, figure by figure.
    only
        Names of sections (default: all).
    seed
        Random seed of the resampling that intervals come from (default: 0).
    progress
        Called as sections are done.

    Returns
    -------
    Profile
        Numbers with intervals, tables and figures by section, beside published curves.

    Raises
    ------
    WorkloadError
        If there is no section by that name.

    Examples
    --------
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
        lookup("section", name, SECTIONS, error=WorkloadError)
    return [name for name in SECTIONS if name in only or not only]


def _profile(
    trace: Trace, names: Sequence[str], seed: int, progress: Progress, what: str, other: Profile | None = None
) -> Profile:
    w = trace.workload
    if not len(w) and not trace.series:
        msg = f"the trace has no jobs: {w.source}"
        raise WorkloadError(msg, hint="`fleetlab show TRACE` lists its tables and rejected rows")
    view, made = TraceView(trace, seed), []
    for k, name in enumerate(names):
        progress(f"{name} of {what}", k, k / len(names))
        section = Section(name, trace=published.trace_of(w.source))
        if len(w) or name == "services":
            SECTIONS[name](view, section)
        else:
            section.absent("jobs", "the trace has none")
        made.append(section)
    progress(f"{names[-1]} of {what}", len(names), 1.0)
    settings = {"only": list(names), "against": None if other is None else other.provenance.source}
    return Profile(tuple(made), Provenance("describe", w.source, settings, seed), len(w), trace.notes, other)
