"""The story of one job on the page: the jobs that some words mean, or the strip, tables and sentences of one."""

from __future__ import annotations

import json
from typing import Any

from fleetlab.core import as_json
from fleetlab.core.catalog import HOLDERS
from fleetlab.core.progress import Progress, silent
from fleetlab.core.scenario import Scenario
from fleetlab.report.draw import ready
from fleetlab.report.figures import figure
from fleetlab.report.markup import tag
from fleetlab.studies.explain import Candidates, Explanation, explain
from fleetlab.studies.explain.search import NUMBER, find_jobs, names_of
from fleetlab.web.messages import FoundJob, JobStory

LISTED = 20  # jobs that a search lists


def tell(scenario: Scenario, job: str, *, what_if: bool = False, progress: Progress = silent) -> JobStory:
    """Tell the story of the job that some words mean, or list the jobs; without words, the longest waits."""
    scenario = scenario.replace(min_coverage=0.0)  # as all runs of the page
    longest = 0 if job.strip() else LISTED
    result = explain(scenario, job=job, longest=longest, what_if=what_if, progress=progress)
    covered = [result.coverage.line] if result.coverage is not None else []
    return {
        "job": job,
        "found": _found(result, scenario) if isinstance(result, Candidates) else [],
        "findings": [*covered, *result.findings],
        "strip": _strip(result) if isinstance(result, Explanation) else "",
        "meanings": dict(HOLDERS.meanings()),
        "result": json.loads(as_json(result)),
    }


def _found(result: Candidates, scenario: Scenario) -> list[FoundJob]:
    names = names_of(scenario)

    def words(job: int, name: str | None) -> str:
        """Return what means this job alone: its name stays when the window changes, its number does not."""
        return name if name and find_jobs(scenario, name, names) == [job] else f"{NUMBER}{job}"

    def found(row: dict[str, Any]) -> FoundJob:
        return {
            "words": words(row["job"], row.get("name")), "job": row["job"], "name": row.get("name"),
            "user": row.get("user"), "group": row.get("group"), "gpus": row["GPUs"], "wait": row["wait"],
            "recorded": row.get("recorded wait"), "reason": row["main reason"] or "",
        }  # fmt: skip

    return [found(row) for row in result.frames["jobs"].iter_rows(named=True)]


def _strip(result: Explanation) -> str:
    """Draw the strip of a job's life, as a report does."""
    drawn = result.figures().get("strip")
    if drawn is None:
        return ""
    how = f"explain · {result.provenance.source}"
    return str(figure(ready(drawn), tag("h3", drawn.title), how, key="life"))
