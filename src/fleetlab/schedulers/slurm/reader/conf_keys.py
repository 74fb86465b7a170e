"""What may stand in a changed configuration, and which form its value has: keys of slurm.conf and words of sacctmgr."""

from __future__ import annotations

import re
from collections.abc import Iterable, Mapping
from difflib import get_close_matches
from typing import Any, NamedTuple

from fleetlab.core import TraceError
from fleetlab.core.names import clip, lookup
from fleetlab.schedulers.slurm.config import BackfillLoop, MainLoop
from fleetlab.schedulers.slurm.reader.accounts import SAME

# -- schedulerParameters of slurm.conf as the settings of the two loops; names and defaults as in ----------------------

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
WHOLE_NUMBER = frozenset(
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
            numbers[field] = int(text) if field in WHOLE_NUMBER else int(text) * times
    return numbers


class Form(NamedTuple):
    """The form of a value, without case, and how to say it."""

    pattern: str
    takes: str


NUMBER = Form(r"\d+(\.\d+)?", "a number, not below 0")
WHOLE = Form(r"\d+", "a whole number, not below 0")
COUNT = Form(r"-1|\d+|unlimited|infinite", "a whole number, -1 for none")
TIME = Form(
    r"-1|unlimited|infinite|none|[\d:-]+|\d+ *(usec|sec|min)", "a time: minutes, h:m:s, days-hours or UNLIMITED"
)
YES = Form(r"yes|no|true|false|on|off|1|0", "YES or NO")
TRES = Form(r"([\w/:.-]+=-?\d+(\.\d+)?[kmgtp]?(,(?!$)|$))*", "resources: cpu=64,gres/gpu=8")
ANY = Form(r".*", "anything")
MODE = Form(r"(off|requeue|cancel|suspend|gang|within|,)+", "OFF, REQUEUE, CANCEL or SUSPEND, with GANG or not")

KEYS: dict[str, Form] = {
    "AccountingStorageEnforce": ANY,
    "CompleteWait": TIME,
    "DependencyParameters": ANY,
    "JobRequeue": YES,
    "EnforcePartLimits": Form(r"no|any|all|yes|true|false", "NO, ANY or ALL"),
    "KillWait": TIME,
    "OverTimeLimit": TIME,
    "PreemptExemptTime": TIME,
    "PreemptMode": MODE,
    "PreemptType": Form("preempt/(none|qos|partition_prio)", "preempt/none, preempt/qos or preempt/partition_prio"),
    "PriorityCalcPeriod": TIME,
    "PriorityDecayHalfLife": TIME,
    "PriorityFavorSmall": YES,
    "PriorityFlags": ANY,
    "PriorityMaxAge": TIME,
    "PriorityType": Form("priority/(basic|multifactor)", "priority/basic or priority/multifactor"),
    **{f"PriorityWeight{of}": NUMBER for of in ("Age", "Assoc", "Fairshare", "JobSize", "Partition", "QOS")},
    "PriorityWeightTRES": TRES,
    "SchedulerParameters": ANY,
    "SchedulerType": Form("sched/(backfill|builtin)", "sched/backfill or sched/builtin"),
    "SelectType": Form("select/(cons_tres|cons_res|linear)", "select/cons_tres, select/cons_res or select/linear"),
    "SelectTypeParameters": ANY,
}
PARTITION: dict[str, Form] = {
    "Nodes": ANY,
    "Default": YES,
    "State": Form("up|down|drain|inactive", "UP, DOWN, DRAIN or INACTIVE"),
    **dict.fromkeys(("MaxTime", "DefaultTime", "OverTimeLimit", "GraceTime"), TIME),
    **dict.fromkeys(("Priority", "PriorityTier", "PriorityJobFactor", "MinNodes"), WHOLE),
    "MaxNodes": COUNT,
    "OverSubscribe": Form(r"exclusive|no|yes(:\d+)?|force(:\d+)?", "NO, YES, FORCE:4 or EXCLUSIVE"),
    "PreemptMode": MODE,
    "TRESBillingWeights": TRES,
    **dict.fromkeys(("QOS", "AllowAccounts", "DenyAccounts", "AllowQos", "DenyQos", "AllowGroups", "Hidden"), ANY),
}
_OF_ALL = {"GrpTRES": TRES, "GrpTRESMins": TRES, "GrpTRESRunMins": TRES, "GrpJobs": COUNT, "GrpSubmit": COUNT,
           "GrpWall": TIME, "MaxTRES": TRES, "MaxTRESPerNode": TRES, "MaxTRESMins": TRES, "MaxWall": TIME,
           "Priority": WHOLE}  # fmt: skip
QOS: dict[str, Form] = _OF_ALL | {
    **dict.fromkeys(("MaxTRESPU", "MaxTRESPA", "MaxTRESRunMinsPU", "MaxTRESRunMinsPA", "MinTRES"), TRES),
    **dict.fromkeys(("MaxJobsPU", "MaxSubmitPU", "MaxJobsPA", "MaxSubmitPA"), COUNT),
    **dict.fromkeys(("GraceTime", "PreemptExemptTime"), TIME),
    **dict.fromkeys(("Preempt", "PreemptMode", "Flags"), ANY),
    "UsageFactor": NUMBER,
}
ACCOUNT: dict[str, Form] = _OF_ALL | {
    "User": ANY, "Shares": Form(r"\d+|parent", "a whole number, or parent"), "MaxJobs": COUNT, "MaxSubmit": COUNT,
}  # fmt: skip
# What a line may begin with that names one of several, and what may follow.
LINES = {"PartitionName": PARTITION, "QOS": QOS, "Account": ACCOUNT}
ALSO = {"fairshare": "shares"}  # another name of it on a line of an account
NUMBERS = {name: Form("-1|" + WHOLE.pattern, WHOLE.takes) for name in (*MAIN, *BACKFILL)}
CLOSE = 0.9  # how alike two names are of which one may be meant by the other
PARAMETERS = NUMBERS | dict.fromkeys((*MAIN_FLAGS, *BACKFILL_FLAGS, "bf_one_resv_per_job"), YES)


def spelled(key: str, known: Iterable[str]) -> str | None:
    """Return how a key is written, by its letters without case or by another name that sacctmgr has for it."""
    same = {name.lower(): name for name in known}
    return same.get(key.lower()) or same.get(listed(key.lower()))


def listed(key: str) -> str:
    """Return what a word of sacctmgr is called in its listings.

    >>> listed("maxtresperuser"), listed("fairshare")
    ('maxtrespu', 'shares')
    """
    return SAME.get(key, ALSO.get(key, key))


def check_value(where: str, name: str, value: str, form: Form) -> None:
    """Refuse a value that has another form."""
    if not re.fullmatch(form.pattern, value.strip(), re.IGNORECASE):
        msg = f"{where}: not a value of {name}: `{clip(value)}`"
        raise TraceError(msg, hint=f"{name} takes {form.takes}")


def check_pairs(where: str, pairs: Mapping[str, str], known: Mapping[str, Form]) -> list[str]:
    """Refuse values of another form; return the keys that are not known."""
    unknown = []
    for key, value in pairs.items():
        name = spelled(key, known)
        if name is None:
            unknown.append(key)
        else:
            check_value(where, name, value, known[name])
    return unknown


def check_parameters(where: str, text: str) -> list[str]:
    """Refuse entries of SchedulerParameters whose values have another form; return those that may be misspelled."""
    given = settings(text)
    for name, value in given.items():
        if name in NUMBERS:
            check_value(where, name, value, NUMBERS[name])
    return [name for name in given if with_closest(name) != name]


def with_closest(key: str) -> str:
    """Return a key that is not known with the one that may be meant, where one is that close.

    >>> with_closest("bf_intervall"), with_closest("ClusterName")
    ('bf_intervall (bf_interval?)', 'ClusterName')
    """
    names = {name.lower(): name for name in (*KEYS, *PARAMETERS)}
    close = [] if key.lower() in names else get_close_matches(key.lower(), names, 1, CLOSE)
    return f"{key} ({names[close[0]]}?)" if close else key


def known_key(key: str, known: Iterable[str]) -> str:
    """Refuse a key that is not known, with the closest one that is."""
    names = list(known)
    return spelled(key, names) or lookup("setting", key, names, error=TraceError)
