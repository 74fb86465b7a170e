"""Tables of the story of a job, of the size of a cluster, and of when a job starts."""

from __future__ import annotations

from fleetlab.core.catalog.tables.table import described

OTHERS = "job | name | user | GPUs"
EXPLAIN = described(
    "explain",
    {
        "jobs": (
            "a job, the longest wait first (with `longest`, or where a name fits several)",
            "job | name? | user? | group? | submit | GPUs | wait | recorded wait? | runtime | main reason",
        ),
        "segments": ("a time in which it waited for one reason", "from | until | wait | reason | meaning"),
        "by reason": ("a wait reason", "reason | wait"),
        "holders": (
            "a run of a job that held what it needed",
            f"{OTHERS} | held by | wait | GPU-hours | from | until",
        ),
        "heads": ("a job that was first in its queue", f"{OTHERS} | wait | from | until"),
        "overtakers": (
            "a run of a job that came later and began before it",
            f"{OTHERS} | submit | start | until | how | GPU-hours",
        ),
        "placement": ("a node and a run of the job", "from | until | node | instances | GPUs"),
        "neighbors": (
            "a job that had some of the same GPUs",
            "job | name | user | GPUs shared | together, s | share of run",
        ),
        "what would have started it sooner": (
            "another request of this job, simulated",
            "change | kind | start | wait | wait change | verdict",
        ),
    },
    {
        "recorded wait": ("wait that the log recorded; null: it has no start", "s"),
        "main reason": "the largest wait reason; null: it did not wait",
        "job": "number of the job; null: it ran before the window that is simulated",
        "held by": "kind of [holder](names.md#holders)",
        "holders: wait": ("how long of the wait it held that", "s"),
        "heads: wait": ("how long of the wait it was first", "s"),
        "GPU-hours": ("GPU time that it held meanwhile", "h"),
        "start": ("when it started; null: not within the simulated time", "s"),
        "how": "behind it in the queue (backfilled), ahead of it by the order, or submitted after it",
        "instances": "instances of the job on this node",
        "placement: GPUs": "numbers of the GPUs of the node",
        "placement: until": ("when the run ended; null: it still runs", "s"),
        "GPUs shared": "GPUs that both held a part of",
        "together, s": ("how long both were there", "s"),
        "share of run": "the same as a part of the run",
        "change": "what the request would be",
        "kind": "what is changed: type, GPUs, instances, partition, limit and the like",
        "wait change": ("difference to the wait as it was; null: no start is known", "s"),
        "verdict": "sooner, the same, later, later than simulated, or why it cannot run",
    },
)
CAPACITY = described(
    "capacity",
    {
        "curve": (
            "a size of the cluster",
            "nodes | GPUs | {metric} | low | high | meets the goal | jobs that never run",
        ),
        "nodes": ("a pool", "pool | GPU type | GPUs per node | now | needed"),
    },
    {
        "{metric}": "the metric of the goal, such as `P90 wait`, in its own unit",
        "meets the goal": "whether the goal is met, and whether the whole interval does",
        "jobs that never run": "jobs that such a cluster cannot run",
        "GPUs per node": "GPUs of each",
        "now": "nodes there are",
        "needed": "nodes of the smallest cluster that meets the goal",
    },
)
ETA = described(
    "eta",
    {
        "start": ("a quantile of the start", "quantile | start in, s | start"),
        "chances": ("a time from now on", "within | chance, % | low, % | high, %"),
        "waits for": ("a wait reason", "reason | wait, s | share, % | meaning"),
        "queue": ("a job that waits", "job | GPUs | waits, s | median, s | P10, s | P90, s | within 1 h, %"),
        "state": ("jobs or GPUs at the instant", "what | jobs | GPUs"),
        "coverage": (
            "a kind of jobs and a way to answer, when answers are judged",
            "asked about | by | asks | {interval} covers, % | {interval} low | {interval} high | {interval} width, s",
        ),
        "pinball loss": ("a way to answer", "by | {quantile}, s | mean, s"),
        "where": (
            "a kind of asks, beside a simple answer",
            "asks | count | beside | loss, s | its loss, s | difference, s | low, s | high, s | verdict",
        ),
    },
    {
        "quantile": "part of the replays in which it starts by then",
        "start in, s": ("time until the start; infinite: it starts in too few replays", "s"),
        "start": "the start, on the clock of the log; null: it starts in too few replays",
        "within": "a time from now on",
        "chance, %": ("part of the replays in which it starts within that", "%"),
        "low, %": ("lower end of the 95 % interval of the chance", "%"),
        "high, %": ("upper end of the 95 % interval of the chance", "%"),
        "wait, s": ("mean wait for this reason over the replays", "s"),
        "share, %": ("part of the whole wait", "%"),
        "queue: job": "the job; `from before`: it waits since before the trace",
        "waits, s": ("how long it has waited", "s"),
        "median, s": ("half of the replays start it within that; infinite: fewer do", "s"),
        "P10, s": ("10 % of the replays start it within that", "s"),
        "P90, s": ("90 % of the replays start it within that; infinite: fewer do", "s"),
        "within 1 h, %": ("part of the replays that start it within an hour", "%"),
        "what": "what is counted at the instant",
        "jobs": "jobs that it is true of; null: it is of GPUs alone",
        "asked about": "jobs that wait, or jobs that start at once",
        "by": "the way to answer: replay, calibrated replay, waits of its class, time limits",
        "asks": "how many jobs are asked about",
        "where: asks": "which asks: by the forecast wait, or by the GPUs",
        "{interval} covers, %": ("how often the true wait is inside this interval", "%"),
        "{interval}": "the interval that is promised, such as 80 %",
        "{interval} width, s": ("median width of the interval", "s"),
        "{quantile}, s": ("mean pinball loss at this quantile", "s"),
        "mean, s": ("mean of those losses", "s"),
        "count": "how many asks",
        "beside": "the simple answer that it is compared with",
        "loss, s": ("mean pinball loss of the calibrated replay", "s"),
        "its loss, s": ("that of the simple answer", "s"),
        "difference, s": ("the first less the second: below 0 the replay is better", "s"),
        "low, s": ("lower end of the 95 % interval of the difference", "s"),
        "high, s": ("upper end of the 95 % interval of the difference", "s"),
        "where: verdict": "better, worse, or no better: whether that interval excludes 0",
    },
)
RESULTS = (EXPLAIN, CAPACITY, ETA)
