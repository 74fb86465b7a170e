"""Every published number that the built-in trace is held against, by topic."""

from __future__ import annotations

from collections.abc import Iterator
from dataclasses import dataclass

import numpy as np
import polars as pl

from fleetlab.traces.synthesize._arrivals import FIRST_WEEKDAY
from fleetlab.traces.synthesize._joint import Bools, Floats, Ints
from fleetlab.traces.synthesize._laws import A_DAY, CPU_ONLY, FULL, LAWS, PRINTED, REQUESTS, TABLE, TYPES, curve
from fleetlab.traces.synthesize._measure import BAR, CDF, ERRORS, SHARE, TOLD, Sample, Target, number, quantile, share
from fleetlab.traces.synthesize._requests import READ, request_class
from fleetlab.workload import Trace

MONTH = int(28 * A_DAY)  # tasks in four weeks: fewer days have no quartiles to speak of
SECOND = 0.5  # run times and waits are whole seconds, a figure's axis is not: half of one
OFTEN = 5  # runs of a group before it is asked to predict


@dataclass(frozen=True, slots=True)
class View:
    """The columns of a trace, as arrays."""

    submit: Floats
    instances: Floats
    milli: Ints
    cpu: Ints
    memory: Ints
    type: Ints
    service: Floats
    wait: Floats
    status: Ints  # completed, failed, cancelled, running, waiting
    user: Ints
    group: Ints
    used: dict[str, Floats]
    days: float

    @classmethod
    def of(cls, trace: Trace) -> View:
        """Take a trace apart."""
        f = trace.workload.frame
        assert trace.usage is not None
        used = f.select("task").join(
            trace.usage.drop("instances").collect(), on="task", how="left", maintain_order="left"
        )
        first = f["gpu_types"].list.first()
        code = first.replace_strict(list(TYPES), list(range(len(TYPES))), default=CPU_ONLY, return_dtype=pl.Int64)
        wait = f["start"] - f["submit"]
        return cls(
            f["submit"].to_numpy(),
            f["instances"].cast(pl.Float64).to_numpy(),
            f["gpu_milli"].cast(pl.Int64).to_numpy(),
            f["cpu_milli"].to_numpy(),
            f["memory_mib"].to_numpy(),
            code.to_numpy(),
            f["service"].fill_null(np.nan).to_numpy(),
            wait.fill_null(np.nan).to_numpy(),
            f["status"].to_physical().cast(pl.Int64).to_numpy(),
            f["user"].rank("dense").cast(pl.Int64).to_numpy() - 1,
            f["group"].rank("dense").cast(pl.Int64).to_numpy() - 1,
            {
                w: used[c].fill_null(np.nan).to_numpy()
                for w, c in (("cpu", "cpu_milli"), ("gpu", "gpu_milli"), ("memory", "memory_mib"))
            },
            float(trace.provenance.settings["days"] or max(len(f) / A_DAY, 1 / 24)),
        )

    @property
    def gpu(self) -> Bools:
        """Which tasks ask for a GPU."""
        return self.milli > 0


def targets(trace: Trace) -> Iterator[Target]:
    """Measure them all."""
    view = View.of(trace)
    yield from _machines(trace)
    for topic in (_counts, _sizes, _requests, _run_times, _waits, _usage, _users, _groups, _prediction, _arrivals):
        yield from topic(view)


def _machines(trace: Trace) -> Iterator[Target]:
    assert trace.cluster is not None
    f = trace.cluster.frame
    exact = {"how": "counted: exactly", "source": "spec"}
    yield number("nodes", 1897, f.height, 0, **exact)
    yield number("GPUs", 6742, trace.cluster.gpus, 0, **exact)
    yield number("CPUs", 156_576, f["cpu_milli"].sum() / 1000, 0, **exact)
    yield number("memory of nodes, GB", 948_224, f["memory_mib"].sum() / 1024, 0, **exact)
    for name, gpus in (("MISC", 2240), ("P100", 1596), ("T4", 994), ("V100", 832), ("V100M32", 1080)):
        yield number(f"GPUs, {name}", gpus, f.filter(pl.col("gpu_type") == name)["gpus"].sum(), 0, **exact)


def _counts(v: View) -> Iterator[Target]:
    n, rows = len(v.milli), TABLE["rows"]
    gpu = v.gpu
    for k, name in enumerate(("completed", "failed", "cancelled", "running", "waiting")):
        if name in TABLE["status"]:
            yield share(
                f"tasks, {name}",
                TABLE["status"][name] / rows,
                float((v.status == k).mean()),
                n,
                how=SHARE,
                source="table",
            )
    yield share(
        "tasks of one instance", TABLE["single"] / rows, float((v.instances == 1).mean()), n, how=SHARE, source="table"
    )
    for milli, count in TABLE["gpu_milli"].items():
        yield share(
            f"tasks, GPU milli {milli}",
            count / rows,
            float((v.milli == int(milli)).mean()),
            n,
            how=SHARE,
            source="table",
        )
    of = request_class(v.milli[gpu])
    for k, name in enumerate(REQUESTS):
        yield share(
            f"GPU tasks, request {name}",
            LAWS["request_share"][name],
            float((of == k).mean()),
            gpu.sum(),
            how=BAR,
            source="figure",
        )
    for k, name in enumerate(TYPES):
        yield share(
            f"GPU tasks, {name}",
            LAWS["type_share"][name],
            float((v.type[gpu] == k).mean()),
            gpu.sum(),
            how=BAR,
            source="figure",
        )
    mean = v.milli[gpu].mean() / 1000
    error = float(v.milli[gpu].std() / 1000 / np.sqrt(max(1, gpu.sum())))
    yield number(
        "GPUs an instance, mean over GPU tasks",
        PRINTED["gpus_per_instance_mean"],
        mean,
        0.01,
        how=SHARE,
        source="acme",
        error=error,
    )
    yield number(
        "GPUs an instance, median over GPU tasks",
        PRINTED["gpus_per_instance_median"],
        float(np.median(v.milli[gpu])) / 1000,
        0,
        how="printed: exactly",
        source="acme",
    )


def _sizes(v: View) -> Iterator[Target]:
    n = v.instances
    yield number(
        "instances a task",
        PRINTED["instances"] / FULL,
        n.mean(),
        0.01,
        how=SHARE,
        source="paper",
        error=float(n.std() / np.sqrt(len(n))),
    )
    sample = Sample.of(n, n)
    for x, percent in zip(*curve(LAWS["size_below"]), strict=True):
        yield share(
            f"instances in tasks of fewer than {x:.0f}",
            percent / 100,
            sample.below(x - 0.5),
            sample.count,
            how=CDF,
            source="figure",
        )


def _requests(v: View) -> Iterator[Target]:
    asked = {"gpu": (v.milli, 1000.0, "GPUs"), "cpu": (v.cpu, 1000.0, "CPUs"), "memory": (v.memory, READ, "GiB")}
    for what, (column, unit, word) in asked.items():
        where = v.gpu if what == "gpu" else None
        each = Sample.of(column / unit, v.instances, where)
        for x, percent in zip(*curve(LAWS[f"{what}_request_cdf"]), strict=True):
            yield share(
                f"instances asking for up to {x:g} {word}",
                percent / 100,
                each.below(x * 1.0001),
                each.count,
                how=CDF,
                source="figure",
            )
        whole = Sample.of(column * v.instances / unit, None, where)
        for x, percent in zip(*curve(LAWS["task_total_cdf"][what]), strict=True):
            yield share(
                f"tasks asking for up to {x:g} {word} in all",
                percent / 100,
                whole.below(x * 1.0001),
                whole.count,
                how=CDF,
                source="figure",
            )


def _curve(
    name: str, sample: Sample, points: dict[str, float], *, needs: int = 0, grain: float = 0.0
) -> Iterator[Target]:
    for percent, value in zip(*curve(points), strict=True):
        yield quantile(f"{name}, P{percent:.0f}", sample, percent, value, source="figure", needs=needs, grain=grain)


def _run_times(v: View) -> Iterator[Target]:
    gpu = Sample.of(v.service, None, v.gpu)
    error = float(gpu.values.std() / np.sqrt(max(gpu.count, 1))) if len(gpu.values) else 0.0
    yield number(
        "run time of GPU tasks, mean",
        PRINTED["gpu_run_time_mean"],
        float(gpu.values.mean()),
        0.01,
        how=SHARE,
        source="acme",
        error=error,
    )
    slip = abs(gpu.quantile(0.5 + gpu.error(0.5)) - gpu.quantile(0.5))
    yield number(
        "run time of GPU tasks, median",
        PRINTED["gpu_run_time_median"],
        gpu.quantile(0.5),
        0.01,
        how=SHARE,
        source="acme",
        error=slip,
    )
    yield number(
        "run time of GPU tasks, longest",
        PRINTED["gpu_run_time_max"],
        gpu.quantile(1.0),
        0.1,
        how="one task: a tenth",
        source="acme",
        needs=FULL,
    )
    yield from _curve("run time of tasks", Sample.of(v.service), LAWS["run_time"]["task"], grain=SECOND)
    yield from _curve(
        "run time of instances", Sample.of(v.service, v.instances), LAWS["run_time"]["instance"], grain=SECOND
    )
    for k, name in enumerate(TYPES):
        yield from _curve(
            f"run time of completed tasks, {name}",
            Sample.of(v.service, None, (v.type == k) & (v.status == 0)),
            LAWS["run_time"]["type"][name],
            grain=SECOND,
        )


def _waits(v: View) -> Iterator[Target]:
    gpu = Sample.of(v.wait, None, v.gpu)
    error = float(gpu.values.std() / np.sqrt(max(gpu.count, 1))) if len(gpu.values) else 0.0
    yield number(
        "wait of GPU tasks, mean",
        PRINTED["gpu_wait_mean"],
        float(gpu.values.mean()),
        0.01,
        how=SHARE,
        source="acme",
        error=error,
    )
    yield number(
        "wait of GPU tasks, median",
        PRINTED["gpu_wait_median"],
        gpu.quantile(0.5),
        0,
        how="printed: exactly",
        source="acme",
    )
    of = request_class(v.milli)
    for k, name in enumerate(TYPES):
        yield from _curve(
            f"wait of tasks, {name}", Sample.of(v.wait, None, v.type == k), LAWS["wait"]["type"][name], grain=SECOND
        )
    for k, name in enumerate(REQUESTS):
        yield from _curve(
            f"wait of tasks, request {name}",
            Sample.of(v.wait, None, v.gpu & (of == k)),
            LAWS["wait"]["request"][name],
            grain=SECOND,
        )
    for k, name in enumerate(TYPES):
        yield from _curve(
            f"wait of instances, {name}",
            Sample.of(v.wait, v.instances, v.type == k),
            LAWS["wait"]["instance_type"][name],
            grain=SECOND,
        )
    for k, name in enumerate(REQUESTS):
        yield from _curve(
            f"wait of instances, request {name}",
            Sample.of(v.wait, v.instances, v.gpu & (of == k)),
            LAWS["wait"]["instance_request"][name],
            grain=SECOND,
        )


def _usage(v: View) -> Iterator[Target]:
    asked = {"gpu": (v.milli, 1000.0, "GPUs"), "cpu": (v.cpu, 1000.0, "CPUs"), "memory": (v.memory, 1024.0, "GiB")}
    for what, (column, unit, word) in asked.items():
        used = v.used[what]
        there = np.isfinite(used) & (column > 0)
        yield from _curve(f"{word} used by instances", Sample.of(used / unit, v.instances, there), LAWS["usage"][what])
        over = (used > column)[there]
        yield share(
            f"tasks using more {word} than asked",
            PRINTED["over_request_tasks"][what],
            float(over.mean()),
            len(over),
            how=SHARE,
            source="notebook",
        )
        weight = v.instances[there]
        count = weight.sum() ** 2 / (weight**2).sum()
        yield share(
            f"instances using more {word} than asked",
            PRINTED["over_request_instances"][what],
            float((over * weight).sum() / weight.sum()),
            count,
            how=TOLD,
            source="paper",
        )


def _users(v: View) -> Iterator[Target]:
    tasks = np.bincount(v.user)
    held = np.sort(np.bincount(v.user, weights=v.instances))[::-1]
    top = max(1, round(0.05 * len(held)))
    yield number(
        "users", PRINTED["users"], len(tasks), 0.02, how="told as «over 1,300»: 2 %", source="paper", needs=FULL
    )
    yield number(
        "instances of the top 5 % of users",
        PRINTED["top_users_instances"],
        held[:top].sum() / held.sum(),
        0,
        how=TOLD,
        source="paper",
        error=0.02 / ERRORS,
        needs=FULL,
    )
    yield number(
        "instances of the user at P50",
        PRINTED["bottom_half_user_instances"],
        float(np.median(held)),
        0.15,
        how="told as a bound: 15 %",
        source="paper",
        needs=FULL,
    )
    yield number(
        "instances of the user at P95",
        PRINTED["top_user_instances"],
        float(np.percentile(held, 95)),
        0.15,
        how="told as a bound: 15 %",
        source="paper",
        needs=FULL,
    )
    yield from _curve("tasks of a user", Sample.of(tasks.astype(float)), LAWS["user_tasks"], needs=FULL)


def _groups(v: View) -> Iterator[Target]:
    size = np.bincount(v.group)
    runs = Sample.of(size.astype(float), size.astype(float))
    n = len(v.group)
    yield share(
        "tasks that run 5 times or more",
        PRINTED["tasks_run_5_times"],
        1 - runs.below(4),
        n,
        how=CDF,
        source="paper",
        needs=500,
    )
    for x, percent in zip(*curve(LAWS["recurrence_cdf"]), strict=True):
        # A part of the trace has only its part of the largest groups.
        needs = int(np.ceil(x / 22_000 * FULL * 1.3)) if x < 22_000 else FULL
        yield share(
            f"tasks that run up to {x:.0f} times",
            percent / 100,
            runs.below(x),
            n / 10,
            how=CDF,
            source="figure",
            needs=needs,
        )


def _prediction(v: View) -> Iterator[Target]:
    for within, key, source in ((0.05, "group_within_5", "figure"), (0.25, "group_within_25", "paper")):
        good, count = _predicted(v, v.group, within)
        name = f"instances whose run time their group's mean so far predicts within {within:.0%}"
        yield share(name, LAWS["prediction"][key], good, count, how=TOLD, source=source, needs=50_000)
    good, _ = _predicted(v, v.user, 0.05)
    most = LAWS["prediction"]["user_within_5"]
    name = "instances whose run time their user's mean so far predicts within 5%"
    yield Target(
        name, most, good, 0.0, most + 0.02, "no better than published: users are not modelled further", "figure", 50_000
    )


def _predicted(v: View, by: Ints, within: float) -> tuple[float, float]:
    """Predict each run time by the mean of those submitted before it by the same group or user."""
    known = np.flatnonzero(np.isfinite(v.service))
    order = known[np.argsort(by[known], kind="stable")]
    key, service = by[order], v.service[order]
    first = np.flatnonzero(np.append(True, key[1:] != key[:-1]))
    place = np.arange(len(key)) - np.repeat(first, np.diff(np.append(first, len(key))))
    upto = np.cumsum(service)
    before = upto - service - np.repeat((upto - service)[first], np.diff(np.append(first, len(key))))
    runs = np.bincount(v.group)[v.group[order]]
    asked = (place > 0) & (runs >= OFTEN)
    guess = before[asked] / place[asked]
    weight = v.instances[order][asked]
    good = np.abs(guess - service[asked]) <= within * service[asked]
    # Steady or not is a trait of a group: the sample is one of groups, however many tasks they have.
    of_group = np.bincount(v.group[order][asked], weights=weight)
    return float((good * weight).sum() / weight.sum()), float(weight.sum() ** 2 / (of_group**2).sum())


def _arrivals(v: View) -> Iterator[Target]:
    hours = int(v.days * 24)
    rate = A_DAY / (len(v.submit) / v.days)  # a denser or thinner trace keeps the rhythm
    count = np.bincount((v.submit // 3600).astype(int), minlength=hours)[: hours // 24 * 24].reshape(-1, 24) * rate
    days = max(1, len(count))
    weekend = (FIRST_WEEKDAY + np.arange(days)) % 7 >= 5
    if weekend.any() and len(count):
        ratio = count[weekend].sum(axis=1).mean() / count[~weekend].sum(axis=1).mean()
        yield number(
            "tasks of a weekend day over a weekday",
            PRINTED["weekend_over_weekday"],
            ratio,
            0,
            how="of one week: 0.05",
            source="figure",
            error=0.05 / ERRORS,
            needs=MONTH,
        )
    for hour in range(24):
        for q, level in (("q1", 25), ("median", 50), ("q3", 75)):
            published = LAWS["hour"][q][hour]
            spread = np.log(LAWS["hour"]["q3"][hour] / LAWS["hour"]["q1"][hour]) / 1.349
            # The error of a quantile of so many days, each with its own noise.
            error = published * spread * 1.36 / np.sqrt(days) / ERRORS
            achieved = float(np.percentile(count[:, hour], level)) if len(count) else float("nan")
            yield number(
                f"tasks from {hour} to {hour + 1} h, {q} of days",
                published,
                achieved,
                0.08,
                how="read off a box plot: 8 %",
                source="figure",
                error=error,
                needs=MONTH,
            )
    done = v.submit[v.gpu & (v.status == 0)]
    for window, published in zip(*curve(LAWS["dispersion"]), strict=True):
        seen = np.bincount((done // window).astype(int))
        yield number(
            f"completed GPU tasks in {window:.0f} s, variance over mean",
            published,
            float(seen.var() / max(seen.mean(), 1e-12)),
            0.25,
            how="of a sample, scaled up: a quarter",
            source="sample",
            needs=50_000,
        )
