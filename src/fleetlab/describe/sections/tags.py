"""Jobs by workload tag, by role in their parent, and by framework."""

from __future__ import annotations

import numpy as np
import polars as pl

from fleetlab.describe import published
from fleetlab.describe.ecdf import Bools, share
from fleetlab.describe.section import Section
from fleetlab.describe.trace_view import WHOLE, TraceView
from fleetlab.stats import Floats

MOST_TAGS = 200
NO_TAG = "none"
# Frameworks that a role names; `worker`, `ps` and others are roles of any framework.
FRAMEWORKS = {
    "tensorflow": "TensorFlow",
    "tfclient": "TensorFlow",
    "pytorch": "PyTorch",
    "aligraph": "Graph-Learn",
    "graphlearn": "Graph-Learn",
    "openmpi": "Open MPI",
    "tvm": "TVM",
    "blade": "Blade",
    "jupyter": "Jupyter",
    "xgboost": "XGBoost",
    "mxnet": "MXNet",
    "caffe": "Caffe",
}
UNNAMED = "not named"


def tags(view: TraceView, section: Section) -> None:
    """Put together jobs by tag, role and framework, where the log has them."""
    if view.role is not None:
        section.absent("workload tags", "a trace of services: its applications are in `services`")
        return
    tag, role = view.frame["app"].cast(pl.String), _roles(view)
    if tag.null_count() == len(tag):
        section.absent("workload tags", "not in the log")
    else:
        section.tables["jobs by workload tag"] = _table(view, "workload tag", tag.fill_null(NO_TAG))
        _say_tagged(view, section, tag)
    if role is None:
        section.absent("roles and frameworks", "the log does not name the roles of jobs in their parent")
        return
    section.tables["jobs by role"] = _table(view, "role", role.fill_null(NO_TAG))
    section.tables["jobs by framework"] = _table(view, "framework", frameworks(role))


def _roles(view: TraceView) -> pl.Series | None:
    names = view.trace.names
    if names is None or "role" not in names.collect_schema().names():
        return None
    roles = names.select("job", pl.col("role").cast(pl.String)).collect()
    return view.frame.select("job").join(roles, on="job", how="left", maintain_order="left")["role"]


def frameworks(role: pl.Series) -> pl.Series:
    """The framework that the name of a role names.

    >>> frameworks(pl.Series(["tensorflow", "PyTorchWorker", "ps"])).to_list()
    ['TensorFlow', 'PyTorch', 'not named']
    """
    lower = pl.col("role").str.to_lowercase()
    named = [pl.when(lower.str.contains(part, literal=True)).then(pl.lit(name)) for part, name in FRAMEWORKS.items()]
    return pl.DataFrame({"role": role}).select(pl.coalesce(*named, pl.lit(UNNAMED)).alias("framework"))["framework"]


def _say_tagged(view: TraceView, section: Section, tag: pl.Series) -> None:
    tagged = tag.is_not_null().to_numpy()
    interval = share(tagged, view.instances, view.blocks)
    section.say("instances with a workload tag", interval, "%")
    paper = published.numbers("workload tags").get("instances with a tag") if section.like_pai else None
    beside = f" (published: {paper:.0f} %)" if paper is not None else ""
    section.findings.append(
        f"{interval.value:.3g} % of the instances have a workload tag{beside}; tags: {tag.drop_nulls().n_unique():,}."
    )


def _table(view: TraceView, of: str, names: pl.Series) -> pl.DataFrame:
    """Jobs, instances and GPUs of each, how long they run and wait, how they end, and what they use of their GPUs."""
    frame = pl.DataFrame(
        {of: names, "instances": view.instances, "GPUs": view.instances * view.milli / WHOLE,
         "runtime": view.runtime, "wait": view.wait, "failed": _failed(view), "utilization": _utilization(view)},
    ).fill_nan(None)  # fmt: skip
    frame = frame.with_columns((pl.col("GPUs") * pl.col("runtime") / 3600).alias("GPU hours"))
    sums = [pl.col(c).sum() for c in ("instances", "GPUs", "GPU hours")]
    tails = [
        pl.col(c).quantile(q, "linear").alias(f"{c} P{q * 100:.0f}, s") for c in ("runtime", "wait") for q in (0.5, 0.9)
    ]
    table = frame.group_by(of).agg(
        pl.len().alias("jobs"), *sums, pl.col("runtime").count().alias("ended"), *tails,
        (100 * pl.col("failed").mean()).alias("failed, % of ended"),
        pl.col("utilization").median().alias("median GPU utilization, %"),
    )  # fmt: skip
    parts = [(100 * pl.col(c) / pl.col(c).sum()).alias(f"{c}, %") for c in ("jobs", "instances", "GPU hours")]
    first = [of, "jobs", "jobs, %", "instances", "instances, %", "GPUs", "GPU hours", "GPU hours, %"]
    ranked = table.with_columns(parts).sort("jobs", of, descending=[True, False]).head(MOST_TAGS)
    kept = [c for c in ranked.columns if c not in first and ranked[c].null_count() < ranked.height]
    return ranked.select(*first, *kept)


def _failed(view: TraceView) -> pl.Series:
    """Whether a job failed; null where it did not end."""
    status = view.frame["status"].cast(pl.String)
    ended = ~status.is_in(["running", "waiting"])
    return pl.DataFrame({"status": status, "ended": ended}).select(
        pl.when("ended").then((pl.col("status") == "failed").cast(pl.Float64)).alias("failed")
    )["failed"]


def _utilization(view: TraceView) -> Floats:
    """GPU used over requested, in percent."""
    used = view.used
    if used is None or "gpu_milli" not in used.columns:
        return np.full(len(view.submit), np.nan)
    of = used["gpu_milli"].cast(pl.Float64).fill_null(np.nan).to_numpy()
    there: Bools = view.milli > 0
    return np.asarray(np.divide(100 * of, view.milli, out=np.full(len(of), np.nan), where=there))
