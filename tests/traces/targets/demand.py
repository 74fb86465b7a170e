"""Published numbers of jobs, requests, run times, waits and nodes, compared with a trace."""

from __future__ import annotations

from collections.abc import Iterator, Mapping

import numpy as np
import polars as pl

from fleetlab.core import Cluster, Trace
from fleetlab.traces.synthesize.joint_law import (
    DAY,
    FULL,
    LAWS,
    PRINTED,
    REQUESTS,
    TABLE,
    TYPES,
    Bools,
    Floats,
    cores,
    curve,
    gpus,
)
from fleetlab.traces.synthesize.requests import READ, request_class

from .columns import TraceColumns
from .target import BAR, CDF, SHARE, SOME, STATED, Target, WeightedSample, number, quantile, share

SECOND = 0.5  # run times and waits are whole seconds, a figure's axis is not: half of one
STATUS = ("completed", "failed", "cancelled", "running", "waiting")
GPUS = {"MISC": 2240, "P100": 1596, "T4": 994, "V100": 832, "V100M32": 1080}
POINTS = 0.05  # of what is held: what the source's round numbers and the jobs still running leave open
A_HAIR = 1.0001  # relative tolerance, so that round requests compare as equal


def demand(trace: Trace, view: TraceColumns) -> Iterator[Target]:
    """Measure machines, requests, run times, waits and use."""
    assert trace.cluster is not None
    yield from _machines(trace.cluster)
    for topic in (_counts, _types, _sizes, _requests, _gangs, _run_times, _allocation, _waits, _waiting_parts, _usage):
        yield from topic(view)


def curves(
    name: str, sample: WeightedSample, points: Mapping[str, float], *, needs: int = 0, grain: float = 0.0
) -> Iterator[Target]:
    """Hold each quantile of a sample against a published curve."""
    for percent in curve(points)[0]:
        yield quantile(f"{name}, P{percent:.0f}", sample, points, percent, source="figure", needs=needs, grain=grain)


def _machines(cluster: Cluster) -> Iterator[Target]:
    f = cluster.frame
    by_type = dict(f.group_by("gpu_type").agg(pl.col("gpus").sum()).iter_rows())
    facts = [
        ("nodes", 1897, f.height),
        ("GPUs", 6742, cluster.gpus),
        ("CPUs", 156_576, int(f["cpu_milli"].sum()) / 1000),
        ("memory of nodes, GB", 948_224, int(f["memory_mib"].sum()) / 1024),
        *[(f"GPUs, {name}", there, by_type[name]) for name, there in GPUS.items()],
    ]
    for name, published, achieved in facts:
        yield number(name, published, achieved, 0, how="counted: exactly", source="spec")


def _counts(v: TraceColumns) -> Iterator[Target]:
    counted = [(f"jobs, {s}", TABLE["status"].get(s), v.status == k) for k, s in enumerate(STATUS)]
    counted += [("jobs of one instance", TABLE["single"], v.instances == 1)]
    counted += [(f"jobs, GPU milli {m}", n, v.milli == int(m)) for m, n in TABLE["gpu_milli"].items()]
    for name, rows, which in counted:
        if rows is not None:
            yield share(name, rows / TABLE["rows"], float(which.mean()), len(which), how=SHARE, source="table")


def _types(v: TraceColumns) -> Iterator[Target]:
    milli, type = v.milli[v.gpu], v.type[v.gpu]
    of, n = request_class(milli), len(milli)
    for k, name in enumerate(REQUESTS):
        published, achieved = LAWS["request_share"][name], float((of == k).mean())
        yield share(f"GPU jobs, request {name}", published, achieved, n, how=BAR, source="figure")
    for k, name in enumerate(TYPES):
        published, achieved = LAWS["type_share"][name], float((type == k).mean())
        yield share(f"GPU jobs, {name}", published, achieved, n, how=BAR, source="figure")
    yield _mean("GPUs per instance, mean over GPU jobs", "gpus_per_instance_mean", milli / 1000, source="acme")
    name, median = "GPUs per instance, median over GPU jobs", float(np.median(milli)) / 1000
    yield number(name, PRINTED["gpus_per_instance_median"], median, 0, how="printed: exactly", source="acme")


def _mean(name: str, key: str, values: Floats, *, source: str) -> Target:
    error = float(values.std() / np.sqrt(max(1, len(values))))
    return number(name, PRINTED[key], float(values.mean()), 0.01, how=SHARE, source=source, error=error)


def _sizes(v: TraceColumns) -> Iterator[Target]:
    n = v.instances
    error = float(n.std() / np.sqrt(len(n)))
    published = PRINTED["instances"] / FULL
    yield number("instances per job", published, float(n.mean()), 0.01, how=SHARE, source="paper", error=error)
    sample = WeightedSample.of(n, n)
    for x, percent in zip(*curve(LAWS["size_below"]), strict=True):
        name = f"instances in jobs of fewer than {x:.0f}"
        yield share(name, percent / 100, sample.below(x - 0.5), sample.count, how=CDF, source="figure")


def _requests(v: TraceColumns) -> Iterator[Target]:
    yield from _request_curves("gpu", v.milli / 1000, "GPUs", v, v.gpu)
    yield from _request_curves("cpu", v.cpu / 1000, "CPUs", v, None)
    yield from _request_curves("memory", v.memory / READ, "GiB", v, None)


def _request_curves(what: str, amount: Floats, word: str, v: TraceColumns, where: Bools | None) -> Iterator[Target]:
    each, whole = WeightedSample.of(amount, v.instances, where), WeightedSample.of(amount * v.instances, None, where)
    curves = (
        ("instances requesting up to {:g} {}", each, LAWS[f"{what}_request_cdf"]),
        ("jobs requesting up to {:g} {} in total", whole, LAWS["job_total_cdf"][what]),
    )
    for name, sample, points in curves:
        for x, percent in zip(*curve(points), strict=True):
            achieved = sample.below(x * A_HAIR)
            yield share(name.format(x, word), percent / 100, achieved, sample.count, how=CDF, source="figure")


def _run_times(v: TraceColumns) -> Iterator[Target]:
    gpu = WeightedSample.of(v.runtime, None, v.gpu)
    yield _mean("run time of GPU jobs, mean", "gpu_run_time_mean", gpu.values, source="acme")
    middle = gpu.quantile(0.5)
    error = abs(gpu.quantile(0.5 + gpu.error(0.5)) - middle)
    name, published = "run time of GPU jobs, median", PRINTED["gpu_run_time_median"]
    yield number(name, published, middle, 0.01, how=SHARE, source="acme", error=error)
    name, published = "run time of GPU jobs, longest", PRINTED["gpu_run_time_max"]
    yield number(name, published, gpu.quantile(1.0), 0.1, how="one job: a tenth", source="acme", needs=FULL)
    law = LAWS["run_time"]
    yield from curves("run time of jobs", WeightedSample.of(v.runtime), law["job"], grain=SECOND)
    yield from curves("run time of instances", WeightedSample.of(v.runtime, v.instances), law["instance"], grain=SECOND)
    for k, name in enumerate(TYPES):
        done = WeightedSample.of(v.runtime, None, (v.type == k) & (v.status == STATUS.index("completed")))
        yield from curves(f"run time of completed jobs, {name}", done, law["type"][name], grain=SECOND)


def _allocation(v: TraceColumns) -> Iterator[Target]:
    """What jobs with a known run time hold on a mean day, of the GPUs and CPUs of their type."""
    seconds = np.nan_to_num(v.runtime) * v.instances / (v.days * DAY) * v.thinner
    how = "stated, and run times of running jobs are unknown: 5 points"
    kinds = (
        ("GPU allocation, {}", "gpus_allocated", v.milli, gpus),
        ("CPU allocation, {} nodes", "cpus_allocated", v.cpu, cores),
    )
    for name, key, requested, there in kinds:
        for type, published in PRINTED[key].items():
            part = float((seconds * requested)[v.type == TYPES.index(type)].sum()) / 1000 / there(type)
            room = published - POINTS, published + POINTS
            yield Target(name.format(type), published, part, *room, how, "summary", SOME)
    shared = float(seconds @ v.milli) / 1000
    alone = float(seconds @ np.where(v.milli > 0, np.maximum(v.milli, 1000), 0)) / 1000
    how = "read off a box plot of hours: 8 %"
    for name, achieved in (("with sharing", shared), ("without sharing", alone)):
        published = PRINTED["gpus_in_use"][name]
        yield number(f"allocated GPUs, {name}", published, achieved, 0.08, how=how, source="figure", needs=SOME)


def _gangs(v: TraceColumns) -> Iterator[Target]:
    """How much of the demand is of gangs, and of large ones."""
    requested = v.instances * v.milli / 1000
    demand, instances = WeightedSample.of(v.instances, requested, v.gpu), WeightedSample.of(requested, v.instances)
    name, published = "GPUs requested by gangs", PRINTED["gang_demand"]
    yield share(name, published, 1 - demand.below(1), demand.count, how=STATED, source="summary")
    name, published = "instances in jobs of more than 100 GPUs", PRINTED["instances_over_100_gpus"]
    yield share(name, published, 1 - instances.below(100), instances.count, how=STATED, source="summary")
    name, least, how = "GPUs of the largest job, at least", PRINTED["largest_job_gpus"], "stated as a bound: at least"
    yield Target(name, least, float(requested.max(initial=0.0)), least, np.inf, how, "summary", FULL)


def _waits(v: TraceColumns) -> Iterator[Target]:
    gpu = WeightedSample.of(v.wait, None, v.gpu)
    yield _mean("wait of GPU jobs, mean", "gpu_wait_mean", gpu.values, source="acme")
    name, published = "wait of GPU jobs, median", PRINTED["gpu_wait_median"]
    yield number(name, published, gpu.quantile(0.5), 0, how="printed: exactly", source="acme")
    of = np.where(v.gpu, request_class(v.milli), -1)
    for weight, word, key in ((None, "jobs", ""), (v.instances, "instances", "instance_")):
        for k, name in enumerate(TYPES):
            points = LAWS["wait"][f"{key}type"][name]
            yield from curves(
                f"wait of {word}, {name}", WeightedSample.of(v.wait, weight, v.type == k), points, grain=SECOND
            )
        for k, name in enumerate(REQUESTS):
            points, sample = LAWS["wait"][f"{key}request"][name], WeightedSample.of(v.wait, weight, of == k)
            yield from curves(f"wait of {word}, request {name}", sample, points, grain=SECOND)


def _waiting_parts(v: TraceColumns) -> Iterator[Target]:
    """Which part of JCT is waiting, for those that run up to the median of their kind, for others, for all."""
    part = 100 * v.wait / (v.wait + v.runtime)
    for weight, word, key in ((None, "jobs", "job"), (v.instances, "instances", "instance")):
        middle = WeightedSample.of(v.runtime, weight).quantile(0.5)
        for of, where in (("short ", v.runtime <= middle), ("long ", v.runtime > middle), ("", None)):
            sample = WeightedSample.of(part, weight, where)
            for x, percent in zip(*curve(LAWS["waiting_part"][key][of.strip() or "all"]), strict=True):
                name = f"{of}{word} that wait up to {x:.0f}% of JCT"
                achieved = sample.below(x * A_HAIR)
                yield share(name, percent / 100, achieved, sample.count, how=CDF, source="figure")


def _usage(v: TraceColumns) -> Iterator[Target]:
    requested = {"gpu": (v.milli, 1000.0, "GPUs"), "cpu": (v.cpu, 1000.0, "CPUs"), "memory": (v.memory, 1024.0, "GiB")}
    for what, (column, unit, word) in requested.items():
        there = np.isfinite(v.used[what]) & (column > 0)
        used, weight = WeightedSample.of(v.used[what] / unit, v.instances, there), v.instances[there]
        yield from curves(f"{word} used by instances", used, LAWS["usage"][what])
        over = (v.used[what] > column)[there]
        name, published = f"jobs using more {word} than requested", PRINTED["over_request_jobs"][what]
        yield share(name, published, float(over.mean()), len(over), how=SHARE, source="notebook")
        name, published = f"instances using more {word} than requested", PRINTED["over_request_instances"][what]
        yield share(name, published, float(over @ weight / weight.sum()), used.count, how=STATED, source="paper")
