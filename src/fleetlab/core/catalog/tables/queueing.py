"""Tables of queueing models."""

from __future__ import annotations

from fleetlab.core.catalog.tables.table import described

MODEL = described(
    "model",
    {
        "model": (
            "a class of a pool",
            "pool | class | jobs | load | utilization | wait | low | high | P90 wait | model | violated",
        ),
        "pools": (
            "a pool",
            "pool | servers | jobs | jobs per hour | load | low | high | utilization | peak hour load | CPU "
            "utilization | wait ± | P90 wait | P90 low | P90 high",
        ),
        "violated": ("an assumption that does not hold", "pool | class | assumption | figure | meaning"),
        "arrivals": (
            "a pool and a window of time",
            "pool | window | dispersion | low | high | around daily pattern | around low | around high",
        ),
        "runtimes": (
            "a class of a pool",
            "pool | class | jobs | mean | low | high | scv | P50 | P90 | P99 | KS exponential | p exponential | KS "
            "lognormal | p lognormal",
        ),
        "day": ("a pool and an hour of the day", "pool | hour | jobs per hour | load"),
    },
    {
        "class": "class of requests, or all",
        "load": "offered load: GPUs that would be busy on average if nobody waited; null: no runtime is known",
        "utilization": "offered load over the GPUs of the pool; null: it has none",
        "wait": ("predicted mean wait; null: no model holds; infinite: the pool is overloaded", "s"),
        "P90 wait": ("90 % of the jobs are predicted to wait at most so long; null: the model does not tell", "s"),
        "model": "the queueing model that was used",
        "violated": "assumptions of it that do not hold",
        "servers": "GPUs, or CPU cores of nodes without GPUs",
        "jobs per hour": "mean arrival rate",
        "peak hour load": "offered load of the busiest hour of the day; null: the trace has no clock",
        "CPU utilization": "offered load of CPU cores over those of the pool",
        "P90 low": ("lower end of the 95 % interval of `P90 wait`", "s"),
        "P90 high": ("upper end of the 95 % interval of `P90 wait`", "s"),
        "assumption": "name of the assumption",
        "figure": "the number that tells",
        "meaning": "what it does to the prediction",
        "window": ("length of the windows in which arrivals are counted", "s"),
        "dispersion": "variance over mean of the counts: 1 for Poisson arrivals",
        "around daily pattern": "the same, around the mean of each hour of the day",
        "around low": "lower end of the 95 % interval of `around daily pattern`",
        "around high": "upper end of the 95 % interval of `around daily pattern`",
        "mean": ("mean runtime", "s"),
        "scv": "squared coefficient of variation: 1 for exponential runtimes",
        **{f"P{p}": (f"{p} % of the runtimes are at most so long", "s") for p in (50, 90, 99)},
        **{f"KS {law}": f"Kolmogorov and Smirnov's distance to the {law} law" for law in ("exponential", "lognormal")},
        **{f"p {law}": f"probability of such a distance if the law were {law}" for law in ("exponential", "lognormal")},
        "hour": "hour of the day",
        "day: load": "offered load in that hour",
    },
)
SOLVE = described(
    "solve",
    {
        "classes": (
            "a class of customers",
            "class | offered? | servers? | blocking? | lam? | load? | wait? | response?",
        ),
        "over time": ("an instant", "time | lam | load | probability of waiting? | mean wait?"),
        "models": ("a model, without `MODEL`", "model | takes | kind | holds | source"),
        "parameters": ("a parameter, without `MODEL`", "parameter | meaning"),
    },
    {
        "class": "number of the class, the highest priority first",
        "offered": "offered load of the class, in servers",
        "servers": "servers that each customer takes",
        "blocking": "probability that a customer is turned away",
        "lam": ("arrival rate", "1/s"),
        "load": "offered load, in servers",
        "wait": ("mean wait", "s"),
        "response": ("mean time from arrival to end", "s"),
        "time": ("instant", "s"),
        "probability of waiting": "probability that an arrival at that instant waits",
        "mean wait": ("mean wait of an arrival at that instant", "s"),
        "takes": "parameters",
        "kind": "exact, bound, approximation or asymptotic",
        "holds": "where it holds",
        "parameter": "name of the parameter",
    },
)
RESULTS = (MODEL, SOLVE)
