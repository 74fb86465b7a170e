"""SchedulerParameters of slurm.conf as the settings of the two loops; names and defaults as in slurm.conf(5)."""

from __future__ import annotations

from collections.abc import Mapping
from typing import Any

from fleetlab.core.slurm import BackfillLoop, MainLoop

# By the name in slurm.conf: the field, and by what its number is multiplied to be in seconds.
MAIN: dict[str, tuple[str, float]] = {
    "default_queue_depth": ("depth", 1),
    "partition_job_depth": ("partition_depth", 1),
    "sched_interval": ("interval", 1),
    "sched_min_interval": ("min_interval", 1e-6),
    "batch_sched_delay": ("delay", 1),
    "sched_max_job_start": ("max_start", 1),
}
BACKFILL: dict[str, tuple[str, float]] = {
    "bf_interval": ("interval", 1),
    "bf_resolution": ("resolution", 1),
    "bf_window": ("window", 60),
    "bf_max_job_test": ("max_jobs", 1),
    "max_job_bf": ("max_jobs", 1),  # its name before 14.11
    "bf_max_job_user": ("max_jobs_user", 1),
    "bf_max_job_part": ("max_jobs_partition", 1),
    "bf_max_job_user_part": ("max_jobs_user_partition", 1),
    "bf_max_job_assoc": ("max_jobs_account", 1),
    "bf_max_job_start": ("max_start", 1),
    "bf_max_job_array_resv": ("max_tasks", 1),
    "bf_max_time": ("max_time", 1),
    "bf_yield_interval": ("yield_interval", 1e-6),
    "bf_yield_sleep": ("yield_sleep", 1e-6),
    "bf_min_age_reserve": ("min_age_reserve", 1),
    "bf_min_prio_reserve": ("min_priority_reserve", 1),
}
MAIN_FLAGS = {"defer": "defer", "assume_swap": "assume_swap"}
BACKFILL_FLAGS = {"bf_continue": "goes_on", "bf_busy_nodes": "busy_nodes"}
WHOLE = frozenset(
    {"depth", "partition_depth", "max_jobs", "max_tasks", "max_start", "min_priority_reserve"}
    | {"max_jobs_user", "max_jobs_partition", "max_jobs_user_partition", "max_jobs_account"}
)


def settings(text: str) -> dict[str, str]:
    """Return the entries of SchedulerParameters: a value for each, empty where it is a flag.

    >>> settings("bf_continue,bf_interval=60")
    {'bf_continue': '', 'bf_interval': '60'}
    """
    pairs = (part.strip().partition("=") for part in text.split(","))
    return {name.strip().lower(): value.strip() for name, _, value in pairs if name.strip() not in ("", "(null)")}


def main_loop(text: str) -> MainLoop:
    """Return the settings of the main loop."""
    given = settings(text)
    return MainLoop(**_numbers(given, MAIN), **{f: True for name, f in MAIN_FLAGS.items() if name in given})


def backfill_loop(text: str) -> BackfillLoop:
    """Return the settings of the backfill loop; an interval of -1 turns it off."""
    given = settings(text)
    off = given.get("bf_interval") == "-1"
    numbers = _numbers({k: v for k, v in given.items() if not (off and k == "bf_interval")}, BACKFILL)
    flags: dict[str, Any] = {f: True for name, f in BACKFILL_FLAGS.items() if name in given}
    if "bf_one_resv_per_job" in given:
        flags["one_reservation"] = 1
    return BackfillLoop(on=not off, **numbers, **flags)


def left_over(text: str) -> tuple[str, ...]:
    """Return the entries that no field holds, as they are written."""
    known = {*MAIN, *BACKFILL, *MAIN_FLAGS, *BACKFILL_FLAGS, "bf_one_resv_per_job"}
    return tuple(f"{k}={v}" if v else k for k, v in settings(text).items() if k not in known)


def not_numbers(text: str) -> tuple[str, ...]:
    """Return the entries that should be numbers and are not: their defaults hold.

    >>> not_numbers("bf_interval=soon,bf_window=60,defer")
    ('bf_interval=soon',)
    """
    given = settings(text)
    wrong = (name for name in (*MAIN, *BACKFILL) if name in given and not given[name].isdigit())
    return tuple(f"{name}={given[name]}" for name in wrong if (name, given[name]) != ("bf_interval", "-1"))


def _numbers(given: Mapping[str, str], fields: Mapping[str, tuple[str, float]]) -> dict[str, Any]:
    numbers: dict[str, Any] = {}
    for name, (field, times) in fields.items():
        text = given.get(name, "")
        if text.isdigit():
            numbers[field] = int(text) if field in WHOLE else int(text) * times
    return numbers
