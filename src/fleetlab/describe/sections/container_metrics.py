"""Container metrics over time: duty cycles, memory, queues and latencies."""

from __future__ import annotations

from collections.abc import Sequence

import numpy as np
import polars as pl

from fleetlab.core import Figure, Trace
from fleetlab.core.durations import number
from fleetlab.describe.ecdf import Ecdf, ecdf
from fleetlab.describe.section import Section
from fleetlab.describe.trace_view import TraceView
from fleetlab.stats import BlockBootstrap

SAMPLES = {"time", "container", "value"}
DUTY, MEMORY = "pod_gpu_duty_cycle", "pod_gpu_memory_used_bytes"
UNITS = {DUTY: "%", MEMORY: "bytes", "pod_memory_util": "share", "qps": "requests/s", "queue_size": "requests"}
TIMED = ("_latency", "_rt", "model_predict", "pipeline_inference")  # in ms
POINTS = 300


def names(trace: Trace) -> list[str]:
    """The series that have samples by container."""
    return [name for name, lazy in trace.series.items() if set(lazy.collect_schema().names()) >= SAMPLES]


def unit(name: str) -> str:
    """What a series is measured in, where it is one that is known."""
    return UNITS.get(name, "ms" if name.endswith(TIMED) else "")


def metrics(view: TraceView, section: Section) -> None:
    """One row a metric; curves of duty cycles and latencies."""
    metric_names = names(view.trace)
    if not metric_names:
        section.absent("duty cycles and latencies of containers", "the trace has no container metrics")
        return
    samples = {name: view.trace.series[name].select(sorted(SAMPLES)).collect() for name in metric_names}
    span = max((float(s["time"].max() or 0.0) for s in samples.values()), default=0.0)  # type: ignore[arg-type]
    curves = {name: c for name, s in samples.items() for c in _curve(name, s, span)}
    section.tables["container metrics"] = pl.DataFrame(
        [_row(name, c, samples[name]) for name, c in curves.items()], infer_schema_length=None
    )
    timed = [c for name, c in curves.items() if unit(name) == "ms"]
    section.distributions(
        "latencies of containers", timed, title="Container latencies", unit="ms", x="latency, ms",
        y="share of samples, %", tabled=False,
    )  # fmt: skip
    if DUTY in curves:
        _duty(section, samples[DUTY], curves[DUTY], span)
    if MEMORY in curves:
        section.say("mean GPU memory per container", curves[MEMORY].mean.scaled(1 / 2**30), "GiB")


def _curve(name: str, samples: pl.DataFrame, span: float) -> list[Ecdf]:
    blocks = BlockBootstrap.of_times(samples["time"].to_numpy(), span)
    made = ecdf(name, samples["value"].fill_null(np.nan).to_numpy(), blocks=blocks)
    return [made] if made is not None else []


def _row(name: str, c: Ecdf, samples: pl.DataFrame) -> dict[str, object]:
    row: dict[str, object] = {"metric": name, "unit": unit(name), "samples": c.count}
    row |= {"containers": samples["container"].drop_nulls().n_unique()}
    row |= dict(zip(("mean", "low", "high"), c.mean, strict=True)) | {"at 0, %": 100 * c.zero}
    return row | {f"P{p}": c.quantiles[p][0] for p in (50, 90, 99)}


def _duty(section: Section, samples: pl.DataFrame, c: Ecdf, span: float) -> None:
    """How busy GPUs are: over samples, over containers, over time."""
    means = (
        samples.drop_nulls("container")
        .group_by("container", maintain_order=True)
        .agg(pl.col("value").mean())
        .sort("container")
    )
    each = ecdf("means of containers", means["value"].to_numpy()) if means.height else None
    curves: Sequence[Ecdf] = [c] if each is None else [c, each]
    section.distributions(
        "duty cycle", curves, title="GPU duty cycle", unit="%", x="duty cycle, %", y="share, %", log_x=False
    )
    every = max(span / POINTS, 1.0)
    hour = (pl.col("time") / every).floor() * every / 3600
    frame = samples.group_by(hour.alias("x"), maintain_order=True).agg(pl.col("value").mean().alias("y")).sort("x")
    busy = frame["y"].to_numpy()
    section.figures["duty cycle over time"] = Figure(
        "GPU duty cycle, mean of containers", "line", frame, "hour", "duty cycle, %",
        f"the mean duty cycle lies between {number(busy.min())} and {number(busy.max())} %",
    )  # fmt: skip
    section.say("GPU duty cycle", c.mean, "%")
    section.findings.append(f"Mean GPU duty cycle is {number(c.mean[0])} %; {100 * c.zero:.3g} % of the samples are 0.")
