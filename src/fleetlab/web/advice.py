"""What to do about waiting, cheapest first: changes of a diagnosis, nodes that meet a goal, a calibrated model."""

from __future__ import annotations

import json
from collections.abc import Mapping
from typing import Any

from fleetlab.core import Estimate, FleetlabError, as_json
from fleetlab.core.catalog import HOLDERS
from fleetlab.core.durations import number_text
from fleetlab.core.names import lookup
from fleetlab.core.progress import Progress, silent
from fleetlab.core.result import Result, amount_and_interval
from fleetlab.core.scenario import Scenario
from fleetlab.core.site_change import SiteChange
from fleetlab.report.draw import ready
from fleetlab.report.figures import figure
from fleetlab.report.markup import tag
from fleetlab.stats import BETTER, NOT_DECIDED, WORSE
from fleetlab.studies.calibrate import calibrate
from fleetlab.studies.capacity import capacity
from fleetlab.studies.diagnose import diagnose
from fleetlab.studies.diagnose.changes import NODES, what_if
from fleetlab.studies.diagnose.effects import MEAN
from fleetlab.studies.explain import Candidates, Explanation, explain
from fleetlab.studies.explain.job import NUMBER, find_jobs, names_of
from fleetlab.web.link import changed_words
from fleetlab.web.messages import GOAL, STUDIES, Advice, AdviceRow, FoundJob, JobStory, Quantity

# From what costs nothing to what is bought.
MODEL, SETTING, JOBS, PARTS, BOUGHT = range(5)
COSTS = {
    MODEL: "nothing: the simulation changes, not the cluster",
    SETTING: "no hardware: a setting",
    JOBS: "no hardware: what jobs request changes",
    PARTS: "other hardware, which has no price here",
}
TIERS = {
    "types": JOBS,
    "partitions": JOBS,
    "gangs": JOBS,
    "cpu": PARTS,
    "memory": PARTS,
    "fragmentation": PARTS,
    NODES: BOUGHT,
}
AS_WORDS = ("backfill", "sjf", "sharing", NODES)  # changes that the controls of the page can make
MEETS = "meets the goal"


def advise(scenario: Scenario, study: str, goal: str = GOAL, progress: Progress = silent) -> Advice:
    """Return what one study recommends for a scenario; it runs in this process alone."""
    lookup("study", study, STUDIES, error=FleetlabError)
    if study == "capacity":
        result: Result = capacity(scenario, slo=goal, workers=0, progress=progress)
        rows = [_needed(result, goal)]
    elif study == "calibrate":
        calibration = calibrate(scenario, progress=progress)
        result, rows = calibration, _calibrated(scenario, calibration.scenario)
    else:
        result = diagnose(scenario, workers=0, progress=progress)
        changes = result.frames["changes"].rows(named=True)
        most = max((abs(row[MEAN[0]]) for row in changes if row[MEAN[0]] is not None), default=0.0)  # one unit for all
        rows = [_change(row, scenario, most) for row in changes]
    covered = [result.coverage.line] if result.coverage is not None else []
    return {
        "study": study,
        "findings": [*covered, *result.findings],
        "rows": sorted((row for row in rows if row["verdict"] != WORSE), key=_rank),
        "notes": list(result.notes),
    }


def _rank(row: AdviceRow) -> tuple[bool, int, float, float]:
    """Return what to sort by: what helps for certain first, then the cheapest, then what helps most."""
    return row["verdict"] == NOT_DECIDED, row["tier"], row["cost"], row["effect"]["value"] or 0.0


def _change(row: Mapping[str, Any], scenario: Scenario, most: float) -> AdviceRow:
    """Return a change of a diagnosis."""
    kind = row["change"].partition(":")[0]
    tier, cost = TIERS.get(kind, SETTING), row["added cost"] or 0.0
    hours = f"{number_text(round(row['added GPU-hours']))} GPU-h more while jobs arrive"
    unit = scenario.prices.unit if scenario.prices is not None else "GPU-h"
    price = hours if unit == "GPU-h" else f"{number_text(round(cost))} {unit} ({hours})"
    by, low, high = (row[name] for name in MEAN)
    changed = what_if(row["change"], scenario).apply(scenario) if kind in AS_WORDS else _setting(scenario, kind)
    helps = row["verdict"] == BETTER or (row["verdict"] == NOT_DECIDED and by is not None and by < 0)
    return {
        "action": row["action"],
        "verdict": row["verdict"] if helps else WORSE,
        "effect": _effect(by, low, high, most),
        "requires": row["requires"],
        "tier": tier,
        "cost": float(cost),
        "cost_text": COSTS.get(tier, price),
        "words": changed_words(scenario, changed) or None,
    }


def _setting(scenario: Scenario, kind: str) -> Scenario:
    """Return the scenario with a change of its scheduler's settings, where lines of a configuration say it."""
    own = scenario.scheduler
    line = next((c.line for c in own.what_ifs() if c.name == kind), "") if own is not None else ""
    return scenario.replace(scheduler=SiteChange(line)) if line and scenario.policy.scheduler is None else scenario


def _effect(by: float | None, low: float | None, high: float | None, most: float) -> Quantity:
    """Return a change of the mean wait, in the unit of the largest."""
    if by is None:
        return {"value": None, "low": None, "high": None, "text": "–"}
    estimate = Estimate("", by, by if low is None else low, by if high is None else high, "s")
    value, interval = amount_and_interval(estimate, most)
    return {"value": by, "low": low, "high": high, "text": f"{value} ({interval})" if interval else value}


def _needed(result: Result, goal: str) -> AdviceRow:
    """Return the nodes that meet a goal: the first estimate of a capacity search."""
    nodes, *others = result.summary()
    now = next(estimate for estimate in others if estimate.metric.endswith("nodes now"))
    more = nodes.value - now.value
    action = f"have {nodes.value:,.0f} nodes instead of {now.value:,.0f}"
    return {
        "action": action,
        "verdict": MEETS,
        "effect": {"value": None, "low": None, "high": None, "text": goal},
        "requires": f"{more:,.0f} nodes more" if more > 0 else f"{-more:,.0f} nodes fewer would do",
        "tier": BOUGHT if more > 0 else SETTING,
        "cost": max(0.0, more),
        "cost_text": f"{more:,.0f} nodes" if more > 0 else "nothing: there are enough",
        "words": None,
    }


def _calibrated(given: Scenario, fitted: Scenario | None) -> list[AdviceRow]:
    """Return the model that fits the log better, where there is one."""
    words = {} if fitted is None else changed_words(given, fitted)
    if not words:
        return []
    return [
        {
            "action": f"simulate with {', '.join(words)} as fitted to the log",
            "verdict": "closer to the log",
            "effect": {"value": None, "low": None, "high": None, "text": "as in the findings of calibrate"},
            "requires": "nothing",
            "tier": MODEL,
            "cost": 0.0,
            "cost_text": COSTS[MODEL],
            "words": words,
        }
    ]


# -- one job ---------------------------------------------------------------------------------------------------------


def explain_job(scenario: Scenario, job: str, *, what_if: bool = False, progress: Progress = silent) -> JobStory:
    """Explain the job that some words mean, or list the jobs; without words, those that waited longest."""
    scenario = scenario.replace(min_coverage=0.0)  # as all runs of the page
    result = explain(scenario, job=job, what_if=what_if, progress=progress)
    covered = [result.coverage.line] if result.coverage is not None else []
    return {
        "job": job,
        "found": _candidates(result, scenario) if isinstance(result, Candidates) else [],
        "findings": [*covered, *result.findings],
        "strip": _strip(result) if isinstance(result, Explanation) else "",
        "meanings": dict(HOLDERS.meanings()),
        "result": json.loads(as_json(result)),
    }


def _candidates(result: Candidates, scenario: Scenario) -> list[FoundJob]:
    names = names_of(scenario)

    def words(job: int, name: str | None) -> str:
        """Return what means this job alone: its name stays when the window changes, its number does not."""
        return name if name and find_jobs(scenario, name, names) == [job] else f"{NUMBER}{job}"

    def candidate(row: dict[str, Any]) -> FoundJob:
        return {
            "words": words(row["job"], row.get("name")), "job": row["job"], "name": row.get("name"),
            "user": row.get("user"), "group": row.get("group"), "gpus": row["GPUs"], "wait": row["wait"],
            "recorded": row.get("recorded wait"), "reason": row["main reason"] or "",
        }  # fmt: skip

    return [candidate(row) for row in result.frames["jobs"].iter_rows(named=True)]


def _strip(result: Explanation) -> str:
    """Draw the strip of a job's life, as a report does."""
    drawn = result.figures().get("strip")
    if drawn is None:
        return ""
    how = f"explain · {result.provenance.source}"
    return str(figure(ready(drawn), tag("h3", drawn.title), how, key="life"))
