"""Tables of sweeps, their store of runs, and autoscaling."""

from __future__ import annotations

from fleetlab.core.catalog.tables.table import Meanings, described

SCENARIOS = "{varied word} | metric | seeds | mean | low | high | sd | unit"
DIFFERENCES = "{varied word} | baseline | metric | seeds | baseline mean | difference | low | high | unit | verdict"
OF_SEEDS: Meanings = {
    "{varied word}": "a [word](words.md) that differs between scenarios",
    "mean": "mean over the seeds; null: no cell has it",
    "sd": "standard deviation of one seed; null: one seed alone",
    "baseline": "what the baseline has in place of these words",
    "baseline mean": "mean of the baseline over the same seeds",
    "difference": "mean of the paired differences over the seeds; null: fewer than two",
}
SWEEP = described(
    "sweep",
    {
        "scenarios": ("a scenario and a metric", SCENARIOS),
        "differences": ("a scenario, its baseline and a metric", DIFFERENCES),
        "failed": ("a reason why cells failed", "reason | cells | first | hint"),
    },
    {
        **OF_SEEDS,
        "reason": "the error",
        "cells": "how many failed so",
        "first": "key of the first of them",
        "hint": "what to do about it",
    },
)
RUNS = described(
    "runs",
    {
        "scenarios": ("a scenario and a metric", SCENARIOS),
        "differences": ("a scenario, its baseline and a metric", DIFFERENCES),
        "cells": (
            "a finished cell; `runs --out` writes this table",
            "key | {word or metric} | resample | source | version | code | files | engine | seed | seconds | failed | "
            "schedule",
        ),
    },
    {
        **OF_SEEDS,
        "key": "name of the cell: a digest of all that decides its result",
        "resample": "how arrivals are drawn anew: synthesize, blocks, or empty",
        "cells: source": "the trace that was simulated",
        "version": "version of fleetlab that ran it",
        "code": "digest of the code of the simulator",
        "files": "digests of the files that the words name",
        "engine": "how it was run: local, ray or in this process",
        "seconds": ("how long it took", "s"),
        "failed": "the error; null: it succeeded",
        "schedule": "digest of the whole schedule: equal schedules have equal digests",
        "{word or metric}": "each [word](words.md) of the scenario, and each metric in its own unit; null: the cell "
        "failed, or "
        "has no such jobs",
    },
)
AUTOSCALE = described(
    "autoscale",
    {
        "all kinds": ("a policy, where nodes are of several kinds", "policy | node-hours per day ±"),
        "policies": (
            "a policy at the setting that meets the goal",
            "kind? | policy | setting | P95 wait ± | node-hours per day ± | idle GPU-hours per day ± | boots per day "
            "± | mean wait | share of jobs that wait",
        ),
        "differences": (
            "a policy that forecasts are compared with",
            "kind? | baseline | node-hours per day | low | high | percent | verdict",
        ),
        "settings": ("a setting that was tried", "kind? | policy | setting | P95 wait | node-hours per day"),
        "days": ("a day", "kind? | day | {policy}"),
        "ready": ("a step", "kind? | begin | demand | {policy}"),
    },
    {
        "kind": "kind of nodes, where there are several",
        "policy": "reactive, static, forecast, or oracle: demand known in advance",
        "setting": "spare nodes, or the quantile of the forecast",
        "node-hours per day": ("hours of nodes that are up, a day", "h"),
        "idle GPU-hours per day": ("GPU-hours of them that nobody uses, a day", "h"),
        "boots per day": "how often a node is started, a day",
        "baseline": "the other policy",
        "differences: node-hours per day": ("forecast less that policy, mean over days", "h"),
        "percent": ("the same, of what that policy takes", "%"),
        "day": "number of the day",
        "days: {policy}": ("node-hours of this policy on this day; left out: it misses the goal", "h"),
        "begin": ("begin of the step", "s"),
        "demand": "nodes that the jobs of this step need",
        "{policy}": "nodes that this policy has ready for it",
    },
)
RESULTS = (SWEEP, RUNS, AUTOSCALE)
