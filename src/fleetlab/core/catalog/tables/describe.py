"""Tables of `describe`: distributions, shares and rankings, by section."""

from __future__ import annotations

from fleetlab.core.catalog.tables.table import described

# A distribution: one row a class of jobs.
CURVE = "count | mean ± | at 0, % | P25 | P50 ± | P75 | P90 ± | P95 | P99 | largest"
DELAYS = f"{CURVE} | 10 longest, % of sum"
SURVIVAL = "count | ended | still running | P25 ± | P50 ± | P75 ± | P90 ± | restricted mean ±"
QUARTILES = "count | Q1 | P50 | low | high | Q3"
WITHIN = "vs others | within role | within low | within high"
TAGGED = (
    "jobs | jobs, % | instances | instances, % | GPUs | GPU hours | GPU hours, % | ended | runtime P50, s? | runtime "
    "P90, s? | wait P50, s? | wait P90, s? | failed, % of ended? | median GPU utilization, %?"
)
SHARE = "% | low | high"
OVER_LIMIT = "of | instances | request over limit | low | high | in total | share below"
DESCRIBE = described(
    "describe",
    {
        "distances": (
            "a curve that both traces have, with `against`",
            "figure | series | KS distance, points | KS low | KS high | at | Wasserstein | unit | median | other "
            "median | difference ±",
        ),
        "published": (
            "a published curve of this trace",
            "figure | series | points | within | KS distance, points | sampling error, points | source",
        ),
        "per hour": ("jobs or an amount submitted", "what | mean | low | high | sd | P5 | P50 | P95 | largest"),
        "burstiness": ("a measure of arrivals", "what | window, s | value | low | high"),
        "by hour of day": (
            "an hour of the day",
            f"hour | {QUARTILES} | Q1 published? | P50 published? | Q3 published?",
        ),
        "by weekday": ("a weekday", "day | days | jobs | low | high"),
        "by GPUs per instance": (
            "a class of requests",
            "GPUs per instance | jobs | instances | GPUs | jobs, % | instances, % | GPUs, %",
        ),
        "GPU jobs by request": ("a class of requests", "request | jobs | % | published, %?"),
        "GPU jobs by type": ("a GPU type", "type | jobs | % | published, %?"),
        "fractional GPUs": ("a fraction of a GPU, the most common first", "GPUs per instance | jobs | %"),
        "usage above request": ("a resource", f"of | weighted by | {SHARE} | published, %?"),
        "utilization below 50 %": ("a resource", f"of | weighted by | {SHARE}"),
        "gangs": ("a share", f"what | {SHARE}"),
        "users": (
            "an amount that users have",
            "weighted by | users | top 5 %, % | low | high | Gini ± | top user, %",
        ),
        "priorities": ("a priority", "priority | jobs | %"),
        "placement constraints": ("a share", "what | %"),
        "nodes": ("a type of nodes", "type | nodes | GPUs | CPUs | memory"),
        "allocation and utilization": (
            "a type of nodes and a resource, over the hours of the trace",
            "type | of | how | mean, % | mean low | mean high | P50 ± | P90 ± | published, %?",
        ),
        "CPUs per GPU": (
            "nodes with as many GPUs",
            "nodes | offered | requested, mean of instances | low | high | requested, in total | offered, published? | "
            "requested, published?",
        ),
        "utilization by node size": (
            "nodes with as many GPUs, and a resource",
            "nodes | of | from | quantile over | count | mean of P50, % | P50 low | P50 high | mean of P90, % | P90 "
            "low | P90 high | P50, published? | P90, published?",
        ),
        "node metrics": (
            "a type of nodes and a metric",
            "type | metric | unit | rows | mean | P50 ± | P90 ± | P95 | P50, published?",
        ),
        "requested GPUs by hour of day": ("an hour of the day", f"hour | {QUARTILES} | GPUs"),
        "allocated GPUs": ("with or without sharing", "GPUs | mean | low | high | largest"),
        "predictions": (
            "a way to predict runtimes from earlier jobs",
            "by | predicted, % | within 5 % ± | within 5 %, published? | within 25 % ± | within 25 %, published? | "
            "within 50 % ±",
        ),
        "status of parents": (
            "how parents and jobs ended",
            "status | parents | jobs | parents, % | jobs, % | jobs, %, published?",
        ),
        "jobs by workload tag": ("a tag", f"workload tag | {TAGGED}"),
        "jobs by role": ("a role", f"role | {TAGGED}"),
        "jobs by framework": ("a framework", f"framework | {TAGGED}"),
        "placement rules": ("a placement rule", "rule | instances | % | {role}, %?"),
        "request over limit": ("a resource", OVER_LIMIT),
        "request over limit by role": ("a role and a resource", f"role | {OVER_LIMIT}"),
        "requests by role": (
            "a role and a resource",
            "role | of | unit | instances | mean | low | high | P10 | P50 | P90 | P95 | largest | mean, published?",
        ),
        "requests and delay": (
            "a resource",
            "request | instances | rank correlation | low | high | within role | within low | within high",
        ),
        "container metrics": (
            "a metric of containers",
            "metric | unit | samples | containers | mean | low | high | at 0, % | P50 | P90 | P99",
        ),
        "missing": ("what the trace does not have", "section | what | why"),
        "runtime by {class} and role, Kaplan–Meier": ("a role and a class", f"role | {{class}} | {SURVIVAL}"),
        "{runtime or JCT}, Kaplan–Meier": (
            "a class of jobs, those that have not ended included; seconds",
            f"{{class}} | {SURVIVAL}",
        ),
        "delay by {class} and role": ("a role and a class of instances; seconds", f"role | {{class}} | {DELAYS}"),
        "delay by rule": ("a placement rule; seconds", f"rule | {DELAYS} | {{role}}, %? | {WITHIN}"),
        "delay by {resource} request": (
            "a class of requests; seconds",
            f"{{resource}} request, {{unit}} | {DELAYS} | {{role}}, %? | {WITHIN}",
        ),
        "delay by {class}": ("a class of instances; seconds", f"{{class}} | {DELAYS}"),
        "{distribution}": (
            "a class of jobs: a distribution such as `runtime`, `wait by GPU type` or `CPUs per job`, in its own unit",
            f"{{class}} | {CURVE}",
        ),
    },
    {
        "figure": "figure that the curve is in",
        "series": "name of the curve",
        "KS distance, points": ("widest gap between the distribution functions", "percentage points"),
        "KS low": ("lower end of its 95 % interval, for independent values", "percentage points"),
        "KS high": ("upper end of its 95 % interval, for independent values", "percentage points"),
        "at": "the value at which the gap is widest",
        "Wasserstein": "area between the distribution functions, in the figure's unit",
        "median": "median of this trace",
        "other median": "median of the other trace",
        "difference": "the first less the second",
        "points": "points read off the publication",
        "within": "how many of them the curve meets, as well as they could be read",
        "sampling error, points": ("gap that a sample of this size may have by chance", "percentage points"),
        "count": "values in this row",
        "mean": "mean of the values",
        "at 0, %": ("part of the values that is 0", "%"),
        "sd": "standard deviation; null: less than one whole hour",
        "window, s": ("length of the windows in which arrivals are counted; null: it is of inter-arrival times", "s"),
        "value": "the measure: 1 for Poisson arrivals",
        "hour": "hour of the day, by the clock of the log",
        "Q1": "a quarter of the values are at most so large",
        "Q3": "three quarters of the values are at most so large",
        **{f"{q} published": f"published value of `{q}`" for q in ("Q1", "P50", "Q3")},
        "day": "weekday",
        "days": "whole days of it in the trace",
        "by weekday: jobs": "mean of the jobs submitted on such a day",
        **{f"{c}, %": (f"part of all {c}", "%") for c in ("jobs", "instances", "GPUs", "GPU hours", "parents")},
        "%": ("part of all", "%"),
        "request": "class of the request, or the resource",
        "type": "GPU type; `CPU only`: none; `all`: all nodes",
        "published, %": ("published value; null: none was published", "%"),
        "fractional GPUs: GPUs per instance": "fraction of a GPU",
        "of": "resource; in a distribution, whose values they are",
        "weighted by": "what is counted: jobs, instances, time, GPU time",
        "usage above request: %": ("part that uses more than it requests", "%"),
        "utilization below 50 %: %": ("part that uses less than half of its request", "%"),
        "users": "number of users",
        "top 5 %, %": ("part that the 5 % of users with most have", "%"),
        "Gini": "Gini coefficient over users: 0 if all have as much, near 1 if one has all",
        "top user, %": ("part of the one with most", "%"),
        "priority": "priority of the jobs",
        "nodes: GPUs": "GPUs of these nodes",
        "CPUs": ("CPU cores of these nodes", "cores"),
        "memory": ("memory of these nodes", "GiB"),
        "how": "allocated, or used",
        "mean, %": ("mean over the hours, of what there is", "%"),
        "CPUs per GPU: nodes": "nodes with as many GPUs, or all",
        "utilization by node size: nodes": "nodes with as many GPUs",
        "offered": ("CPU cores per GPU of the nodes", "cores"),
        "requested": ("CPU cores per GPU that instances ask for", "cores"),
        "requested, mean of instances": (
            "CPU cores per GPU that the average instance asks for; null: no such jobs",
            "cores",
        ),
        "requested, in total": ("CPU cores per GPU of all instances together; null: no such jobs", "cores"),
        "from": "measured by the nodes, or summed over their workers",
        "quantile over": "nodes in each hour, or hours of each node",
        "mean of P50, %": ("mean of the medians", "%"),
        "mean of P90, %": ("mean of the 90th percentiles", "%"),
        "metric": "name of the metric in the log",
        "rows": "rows of the log",
        "requested GPUs by hour of day: GPUs": "with sharing (as requested), or without (whole GPUs)",
        "allocated GPUs: GPUs": "with sharing (as requested), or without (whole GPUs)",
        "by": "what jobs must have in common",
        "predicted, %": ("part of the jobs that have an earlier job to predict from", "%"),
        **{
            f"within {p} %": (f"part of the instances predicted within {p} % of their runtime", "%")
            for p in (5, 25, 50)
        },
        "status": "how it ended",
        "parents": "parents, which the log groups several jobs by; in a distribution, by number of jobs",
        "workload tag": "tag in the log, or that there is none",
        "role": "role of the instances in their service or job",
        "framework": "framework, by the names of roles",
        "GPU hours": ("GPU time of those that ended", "h"),
        "ended": "how many have ended",
        **{
            f"{c} P{p}, s": (f"{p} % of the {c}s are at most so long; null: none is known", "s")
            for c in ("runtime", "wait")
            for p in (50, 90)
        },
        "failed, % of ended": ("part that failed; null: none has ended", "%"),
        "median GPU utilization, %": ("median of GPU used over requested; null: not measured", "%"),
        "rule": "most instances of an application on one node, or none",
        "{role}, %": ("part of the instances of this row that have this role", "%"),
        "request over limit": "mean of the request over the limit",
        "in total": "sum of the requests over the sum of the limits",
        "share below": "part of the instances whose request is below their limit",
        "rank correlation": "Spearman's, of request and delay, over all instances",
        "within role": "the same inside roles; in a table of delays, mean delay less that of others inside roles, in "
        "seconds; "
        "null: roles do not have several",
        "within low": "lower end of the 95 % interval of `within role`",
        "within high": "upper end of the 95 % interval of `within role`",
        "vs others": ("mean delay of this class less that of all others; null: there are none", "s"),
        "samples": "samples of the metric",
        "containers": "containers that have samples",
        "section": "section of the description",
        "still running": "how many have not: they count for as long as they were seen",
        "restricted mean": ("mean up to the longest time seen; null: nothing has ended", "s"),
        "10 longest, % of sum": ("part of the sum of delays that the ten longest make", "%"),
        "{class}": "class of jobs or instances; the name of this column says by what",
        "{resource} request, {unit}": "class of the request",
    },
)
RESULTS = (DESCRIBE,)
