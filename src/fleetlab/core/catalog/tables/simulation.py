"""Tables of `simulate` and `pack`, and of `compare` and `diagnose`."""

from __future__ import annotations

from fleetlab.core.catalog.tables.table import described

CLASSES = "jobs | mean wait | low | high | P90 wait | mean JCT | mean bounded slowdown"
WAITS_BY = "jobs | share of waiting | mean wait | low | high | main reasons"
ACTION = "requires | added GPU-hours | added cost"
SIMULATE = described(
    "simulate",
    {
        "by GPUs per instance": ("a class of requests", f"GPUs per instance | {CLASSES}"),
        "by runtime": ("a class of runtimes", f"runtime | {CLASSES}"),
        "by GPU type": ("a GPU type", f"GPU type | {CLASSES}"),
        "by gang size": ("a class of gangs", f"gang size | {CLASSES}"),
        "by user": ("a user, those with most jobs first", f"user | {CLASSES}"),
        "by {queue or partitions}": (
            "a queue, or the partitions of jobs, where there are several",
            f"{{class}} | {CLASSES}",
        ),
        "waiting": ("a wait reason", "reason | total wait | share | jobs with this main reason | meaning"),
        "waiting by GPUs per instance": ("a class of requests", "GPUs per instance | total wait | {wait reason}?"),
        "allocation": ("a GPU type", "GPU type | GPU-hours | allocated | share | while jobs arrive"),
        "timeline": (
            "an instant",
            "time | gpus | up | allocated | used | fragmented | running | running_instances | waiting | "
            "waiting_instances | waiting_gpus",
        ),
        "left out": ("a reason why jobs are not simulated", "reason | jobs"),
    },
    {
        "{class}": "queue, or partitions, of the jobs",
        "jobs with this main reason": "jobs that wait longer for this reason than for any other",
        "{wait reason}": "part of the total wait of this row that is for this reason; null: nothing waits",
        "GPU-hours": ("GPU time of nodes that are up, over the whole run", "h"),
        "allocation: allocated": ("GPU time given to jobs", "h"),
        "allocation: share": "part of those GPU-hours that is allocated; null: no node was up",
        "while jobs arrive": "the same from the first submission to the last",
        "time": ("instant", "s"),
        "gpus": "GPUs of the cluster",
        "up": "GPUs on nodes that are up",
        "allocated": "GPUs given to jobs; a fraction counts as such",
        "used": "GPUs that anyone holds some of",
        "fragmented": "free GPUs that no waiting or typical job can use",
        "running": "jobs that run",
        "running_instances": "instances that run",
        "waiting": "jobs that wait",
        "waiting_instances": "instances that wait",
        "waiting_gpus": "GPUs that waiting jobs ask for",
        "left out: reason": "why: they fit on no node, or their rules cannot be met",
    },
)
PACK = described(
    "pack",
    {
        "summary": ("a placement", "placement | seeds | allocated_at_100 | allocated_at_130 | fragmented_at_100"),
        "curves": ("a placement and a demand", "placement | arrived | allocated | fragmented | failed"),
    },
    {
        "placement": "[placement](names.md#placements)",
        "allocated_at_100": ("GPUs that are allocated once as much is demanded as there is, of all", "%"),
        "allocated_at_130": ("the same at a demand of 130 %", "%"),
        "fragmented_at_100": ("GPUs that are free but fragmented at a demand of 100 %, of all", "%"),
        "arrived": ("demand that has come, of the capacity", "%"),
        "allocated": ("GPUs that are allocated, of all", "%"),
        "fragmented": ("GPUs that are free, and that no typical job can use, of all", "%"),
        "failed": "instances that fit nowhere",
    },
)
COMPARE = described(
    "compare",
    {
        "policies": (
            "a policy; the first is the baseline",
            "policy | mean wait ± | median wait | P90 wait ± | P95 wait | P99 wait | share of jobs that wait | mean "
            "JCT ± | mean bounded slowdown ± | mean wait change ± | mean JCT change ± | mean bounded slowdown change "
            "± | jobs that cannot run | GPU allocation, % | preemptions | GPU-h per day | energy per day, kWh | "
            "cost per day, {currency}?",
        ),
        "by class": (
            "a policy and a class of jobs",
            "policy | class | jobs | mean wait | mean wait change ± | verdict",
        ),
        "configurations": (
            "a configuration, with `--conf`; the first is the configured one",
            "configuration | mean wait ± | median wait | P90 wait ± | P95 wait | P99 wait | share of jobs that wait "
            "| mean JCT ± | mean bounded slowdown ± | mean wait change ± | mean JCT change ± | mean bounded slowdown "
            "change ± | jobs that cannot run | GPU allocation, % | preemptions | GPU-h per day | energy per day, kWh | "
            "cost per day, {currency}?",
        ),
        "changes": ("a setting that differs", "configuration | setting | was | becomes"),
        "by {team, partition, size or QOS}": (
            "a configuration and a class of jobs",
            "configuration | {class} | jobs | configured mean wait | mean wait | mean wait change ± | verdict",
        ),
        "left out": ("a reason why jobs are not simulated", "reason | jobs"),
    },
    {
        "jobs that cannot run": "jobs that fit on no node, or all of whose instances never fit at once",
        "GPU allocation, %": ("GPU time given to jobs, of the GPU time of nodes that are up", "%"),
        "preemptions": "how often jobs are preempted",
        "GPU-h per day": ("GPU-hours given to jobs, a day", "h"),
        "energy per day, kWh": ("energy by the power model of the prices, a day", "kWh"),
        "cost per day, {currency}": "cost by the prices, a day; left out without prices",
        "configuration": "the configuration as it is, or with the changes of a file",
        "setting": "name of the setting in the scheduler's configuration",
        "was": "its value as configured",
        "becomes": "its value in this configuration",
        "configured mean wait": ("mean wait under the configuration as it is", "s"),
        "{class}": "team, partition, size or QOS of the jobs",
        "left out: reason": "why: they fit on no node, or their rules cannot be met",
    },
)
DIAGNOSE = described(
    "diagnose",
    {
        "actions": ("what one could do, the most effective first", f"action | mean wait change ± | verdict | {ACTION}"),
        "changes": (
            "a what-if",
            f"change | title | verdict | mean wait | mean wait change ± | P90 wait | P90 wait change ± | P(lower) | "
            f"action | {ACTION} | not completed | main reason then",
        ),
        "waterfall": ("a what-if", "step | mean wait | mean wait change | bar"),
        "waiting": ("a wait reason", "reason | total wait | share | low | high | meaning"),
        "held by": ("a kind of holder", "held by | total wait | share | low | high | meaning"),
        "held by users": (
            "a user",
            "user | jobs | holds, share of all waiting | share of GPU time | own share of waiting",
        ),
        "by {class}": ("a class of jobs, or an hour of the day", f"{{class}} | {WAITS_BY}"),
        "worst hours": ("an hour", "hour begins ({clock}) | jobs | share of waiting | mean wait | main reasons"),
        "longest waits": (
            "a job",
            "job | name? | user | instances | GPUs per instance | GPU type | submit | runtime | wait | main reasons",
        ),
        "at limits": (
            "a class of service and an account",
            "QOS | queue | array with a limit | jobs | wait at limits | share of waiting",
        ),
        "blocking jobs": (
            "a job that blocked a queue, without backfill",
            "job | name? | user | instances | GPUs per instance | GPU type | submit | blocked | behind",
        ),
        "open problems": (
            "a problem that papers describe",
            "problem | measure | value | low | high | unit | paper | found here",
        ),
        "CPU by GPU type": ("a GPU type", "GPU type | GPUs | nodes have | jobs | requested | requested in total"),
    },
    {
        "action": "what one would do",
        "requires": "what that takes",
        "added GPU-hours": ("GPU time of the added nodes while jobs arrive; null: nothing is added", "h"),
        "added cost": "what those cost by the prices; null: nothing is added",
        "change": "name of the what-if",
        "title": "the what-if in words",
        "P(lower)": "probability that the mean wait is lower, by resampling; null: too few jobs to resample",
        "not completed": "jobs that complete in the baseline, but not here",
        "main reason then": "the largest wait reason once the change is made; null: nothing waits",
        "step": "the what-if",
        "bar": "the mean wait as a bar: # what is left, - what is saved, + what is added",
        "held by": "who has allocated what waiting jobs are missing: a [holder](names.md#holders)",
        "holds, share of all waiting": "part of all waiting time that is for what jobs of this user hold",
        "share of GPU time": "part of all allocated GPU time",
        "own share of waiting": "part of all waiting time that jobs of this user wait",
        "share of waiting": "part of all waiting time",
        "main reasons": "the largest wait reasons, with their share",
        "{class}": "the class of jobs, or the hour of the day with its time zone",
        "hour begins ({clock})": "begin of the hour, by the clock of the log, or from its first day on",
        "longest waits: instances": "instances of the job",
        "blocking jobs: instances": "instances of the job",
        "QOS": "quality of service of the jobs",
        "queue": "queue or account that the jobs are charged to",
        "array with a limit": "whether their job array limits how many run at once",
        "wait at limits": ("wait while a limit of users, accounts or arrays was reached", "s"),
        "blocked": ("how long it was at the head of the queue, and did not fit", "s"),
        "behind": ("how long jobs behind it waited meanwhile, summed", "s"),
        "problem": "a problem that papers describe",
        "measure": "how it is measured",
        "value": "the measured value",
        "paper": "where it is described",
        "found here": "whether the trace has it",
        "nodes have": ("CPU cores per GPU of the nodes", "cores"),
        "requested": ("CPU cores per GPU that the average instance asks for; null: no job asks for this type", "cores"),
        "requested in total": ("CPU cores per GPU of all jobs together; null: no job asks for this type", "cores"),
    },
)
RESULTS = (SIMULATE, PACK, COMPARE, DIAGNOSE)
