"""What each column means in the tables of results.

`X low` and `X high` are the 95 % interval of `X`; `X change` is the difference to the baseline; `low` and `high` alone
are the interval of the column before them. Columns of durations are in seconds.
"""

from __future__ import annotations

from fleetlab.core.catalog.catalog import Catalog
from fleetlab.core.catalog.columns import Column

DERIVED = (" low", " high", " change")

RESULTS = Catalog(
    "column of results",
    tuple(
        Column(*column)
        for column in (
            ("jobs", "jobs in this row"),
            ("instances", "instances of the job, or in this row"),
            ("GPUs", "GPUs of the job, or in this row"),
            ("low", "lower end of the 95 % interval of the column before it"),
            ("high", "upper end of the 95 % interval of the column before it"),
            ("mean wait", "mean of the waits of the jobs in this row", "s"),
            ("median wait", "half of the jobs wait at most so long", "s"),
            ("P90 wait", "90 % of the jobs wait at most so long", "s"),
            ("P95 wait", "95 % of the jobs wait at most so long", "s"),
            ("P99 wait", "99 % of the jobs wait at most so long", "s"),
            ("total wait", "sum of the waits", "s"),
            ("share of jobs that wait", "jobs that do not start at once, of all"),
            ("mean JCT", "mean of the times from submission to end", "s"),
            ("mean bounded slowdown", "mean of JCT over runtime, with runtimes of at least 10 s"),
            ("GPUs per instance", "class of the request: no GPU, a fraction, one, more"),
            ("GPU type", "GPU type that jobs ask for, or that nodes have"),
            ("gang size", "class of the number of instances"),
            ("runtime", "runtime of the job, or its class", "s"),
            ("user", "who submitted the jobs"),
            ("class", "class of jobs: by request, runtime or gang"),
            ("reason", "wait reason, or why jobs are left out"),
            ("meaning", "what the reason, or the holder, means"),
            ("share", "part of the total"),
            ("jobs with this main reason", "jobs that wait longer for this reason than for any other"),
            ("gpu_type", "GPU type of the nodes"),
            ("GPU-hours", "GPU time of the nodes that are up", "h"),
            ("allocated", "GPU time given to jobs; of a packing, GPUs given to instances, of all"),
            ("while jobs arrive", "part allocated from the first submission to the last"),
            ("time", "instant", "s"),
            ("gpus", "GPUs of the cluster"),
            ("up", "GPUs on nodes that are up"),
            ("used", "GPUs that anyone holds some of"),
            ("fragmented", "free GPU that no waiting or typical job can use"),
            ("running", "jobs that run"),
            ("running_instances", "instances that run"),
            ("waiting", "jobs that wait"),
            ("waiting_instances", "instances that wait"),
            ("waiting_gpus", "GPUs that waiting jobs ask for"),
            ("policy", "order, backfill, and what else differs"),
            ("jobs that cannot run", "jobs that fit on no node, or all of whose instances never fit at once"),
            ("GPU allocation, %", "GPU time given to jobs, of the GPU time of nodes that are up"),
            ("preemptions", "how often jobs are preempted"),
            ("GPU-h per day", "GPU-hours of nodes that are up"),
            ("energy per day, kWh", "energy by the power model of the prices"),
            ("verdict", "whether a difference is significant: its corrected 95 % interval excludes 0"),
            ("action", "what one would do"),
            ("requires", "what that takes"),
            ("added GPU-hours", "GPU time of the added nodes while jobs arrive", "h"),
            ("added cost", "what those cost by the prices"),
            ("change", "name of the what-if"),
            ("title", "the what-if in words"),
            ("P(lower)", "probability that the mean wait is lower, by resampling"),
            ("not completed", "jobs that complete in the baseline, but not here"),
            ("main reason then", "the largest wait reason once the change is made"),
            ("step", "the what-if"),
            ("bar", "the mean wait as a bar: # what is left, - what is saved, + what is added"),
            ("held by", "who has allocated what waiting jobs are missing"),
            ("holds, share of all waiting", "part of all waiting time that is for what jobs of this user hold"),
            ("share of GPU time", "part of all allocated GPU time"),
            ("own share of waiting", "part of all waiting time that jobs of this user wait"),
            ("share of waiting", "part of all waiting time"),
            ("main reasons", "the largest wait reasons, with their share"),
            ("job", "the log's own id of the job, or its number"),
            ("submit", "submission", "s"),
            ("wait", "submission to start", "s"),
            ("problem", "a problem that papers describe"),
            ("measure", "how it is measured"),
            ("value", "the measured value"),
            ("unit", "its unit"),
            ("paper", "where it is described"),
            ("found here", "whether the trace has it"),
            ("nodes have", "CPU cores per GPU of the nodes"),
            ("requested", "CPU cores per GPU that the average instance asks for"),
            ("requested in total", "CPU cores per GPU of all jobs together"),
            ("from", "when it began"),
            ("until", "when it ended"),
            ("node", "name of the node"),
            ("nodes", "nodes of the cluster"),
            ("meets the goal", "whether the goal is met, and whether the whole interval does"),
            ("jobs that never run", "jobs that such a cluster cannot run"),
            ("pool", "pool of the nodes"),
            ("GPUs per node", "GPUs of each"),
            ("now", "nodes there are"),
            ("needed", "nodes of the smallest cluster that meets the goal"),
            ("quantile", "part of the replays in which it starts by then"),
            ("start in, s", "time until the start", "s"),
            ("start", "the start, on the clock of the log"),
            ("within", "a time from now on"),
            ("chance, %", "part of the replays in which it starts within that"),
            ("low, %", "lower end of the 95 % interval of the chance"),
            ("high, %", "upper end of the 95 % interval of the chance"),
            ("what", "what is counted at the instant"),
            ("placement", "placement policy"),
            ("seeds", "runs"),
            ("allocated_at_100", "part of all GPUs that is allocated once all demand of 100 % has come"),
            ("allocated_at_130", "the same at a demand of 130 %"),
            ("fragmented_at_100", "part of all GPUs that is free but fragmented at a demand of 100 %"),
            ("arrived", "demand that has come, of the capacity"),
            ("failed", "instances that fit nowhere"),
        )
    ),
)


def meaning(name: str) -> str | None:
    """Return what a column of a result means; of `X low`, `X high` and `X change`, what they are of.

    >>> meaning("mean wait change low")
    'lower end of the 95 % interval of: difference to the baseline of: mean of the waits of the jobs in this row'
    """
    if name in RESULTS:
        return RESULTS[name].meaning
    of = {
        " low": "lower end of the 95 % interval of",
        " high": "upper end of the 95 % interval of",
        " change": "difference to the baseline of",
    }
    for suffix in DERIVED:
        if name.endswith(suffix) and (rest := meaning(name.removesuffix(suffix))):
            return f"{of[suffix]}: {rest}"
    return None
