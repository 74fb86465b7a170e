"""What to do about waiting, cheapest first: changes of a diagnosis, nodes that meet a goal, a calibrated model."""

from __future__ import annotations

from collections.abc import Mapping
from typing import Any

from fleetlab.core import Estimate, FleetlabError
from fleetlab.core.addresses import query_pairs
from fleetlab.core.durations import number_text
from fleetlab.core.names import lookup
from fleetlab.core.progress import Progress, silent
from fleetlab.core.result import Result, amount_and_interval
from fleetlab.core.scenario import Scenario
from fleetlab.studies.calibrate import calibrate
from fleetlab.studies.capacity import capacity
from fleetlab.studies.diagnose import diagnose
from fleetlab.studies.diagnose.changes import NODES, what_if
from fleetlab.studies.diagnose.effects import HIGHER, LOWER, MEAN, NOT_SIGNIFICANT
from fleetlab.web.advice_words import GOAL, STUDIES
from fleetlab.web.link import words_query
from fleetlab.web.messages import Advice, AdviceRow, Quantity

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
        rows = [_change(row, scenario) for row in result.frames["changes"].iter_rows(named=True)]
    covered = [result.coverage.line] if result.coverage is not None else []
    return {
        "study": study,
        "findings": [*covered, *result.findings],
        "rows": sorted((row for row in rows if row["verdict"] != HIGHER), key=_rank),
        "notes": list(result.notes),
    }


def _rank(row: AdviceRow) -> tuple[bool, int, float, float]:
    """Return what to sort by: what helps for certain first, then the cheapest, then what helps most."""
    return row["verdict"] == NOT_SIGNIFICANT, row["tier"], row["cost"], row["effect"]["value"] or 0.0


def _change(row: Mapping[str, Any], scenario: Scenario) -> AdviceRow:
    """Return a change of a diagnosis."""
    kind = row["change"].partition(":")[0]
    tier, cost = TIERS.get(kind, SETTING), row["added cost"] or 0.0
    hours = f"{number_text(round(row['added GPU-hours']))} GPU-h more while jobs arrive"
    unit = scenario.prices.unit if scenario.prices is not None else "GPU-h"
    price = hours if unit == "GPU-h" else f"{number_text(round(cost))} {unit} ({hours})"
    by, low, high = (row[name] for name in MEAN)
    lowers = by is not None and by < 0
    return {
        "action": row["action"],
        "verdict": row["verdict"] if row["verdict"] == LOWER or lowers else HIGHER,
        "effect": _effect(by, low, high),
        "requires": row["requires"],
        "tier": tier,
        "cost": float(cost),
        "cost_text": COSTS.get(tier, price),
        "words": _words(scenario, what_if(row["change"], scenario).apply(scenario)) if kind in AS_WORDS else None,
    }


def _effect(by: float | None, low: float | None, high: float | None) -> Quantity:
    if by is None:
        return {"value": None, "low": None, "high": None, "text": "–"}
    known = low is not None and high is not None
    estimate = Estimate("", by, low if known else by, high if known else by, "s")  # type: ignore[arg-type]
    value, interval = amount_and_interval(estimate, by)
    return {"value": by, "low": low, "high": high, "text": f"{value} ({interval})" if known and interval else value}


def _words(before: Scenario, after: Scenario) -> dict[str, str] | None:
    """Return the words of a scenario that another has otherwise, as an address has them; None: there are none."""
    one, other = (dict(query_pairs(words_query(s))) for s in (before, after))
    changed = {name: other.get(name, "") for name in one | other if one.get(name) != other.get(name)}
    return changed or None


def _needed(result: Result, goal: str) -> AdviceRow:
    """Return the nodes that meet a goal: the first estimate of a capacity search."""
    nodes, _, now, *_ = result.summary()
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


def _calibrated(given: Scenario, found: Scenario | None) -> list[AdviceRow]:
    """Return the model that fits the log better, where there is one."""
    words = None if found is None else _words(given, found)
    if words is None:
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
