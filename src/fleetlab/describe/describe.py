"""What is in a trace, as the papers describe theirs; tables and figures, and what is not in the trace."""

from __future__ import annotations

from collections.abc import Callable, Sequence

from fleetlab.core import Provenance, Trace, WorkloadError
from fleetlab.core.names import lookup
from fleetlab.core.progress import Progress, silent
from fleetlab.describe import published
from fleetlab.describe.section import Profile, Section
from fleetlab.describe.sections.arrivals import arrivals
from fleetlab.describe.sections.machines import machines, sharing
from fleetlab.describe.sections.parents import parents, recurrence
from fleetlab.describe.sections.requests import requests
from fleetlab.describe.sections.run_times import run_times
from fleetlab.describe.sections.services import services
from fleetlab.describe.sections.users import tags
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
    trace: Trace, *, against: Trace | None = None, only: Sequence[str] = (), seed: int = 0, progress: Progress = silent
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
    >>> profile = describe(fleetlab.synthesize("pai2020", jobs=300), only=["recurrence"])
    >>> list(profile.figures())
    ['runs of a group', 'prediction error']
    """
    names = _section_names(only)
    other = None if against is None else _profile(against, names, seed, progress, "the other trace")
    return _profile(trace, names, seed, progress, "the trace", other)


def _section_names(only: Sequence[str]) -> list[str]:
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
    view, sections = TraceView(trace, seed), []
    for k, name in enumerate(names):
        progress(f"{name} of {what}", k, k / len(names))
        section = Section(name, trace=published.trace_of(w.source))
        if len(w) or name == "services":
            SECTIONS[name](view, section)
        else:
            section.absent("jobs", "the trace has none")
        sections.append(section)
    progress(f"{names[-1]} of {what}", len(names), 1.0)
    settings = {"only": list(names), "against": None if other is None else other.provenance.source}
    return Profile(tuple(sections), Provenance.of_jobs("describe", w, settings, seed), len(w), trace.notes, other)
