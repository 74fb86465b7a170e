"""Jobs by user, and by what users say of them: workload tag, role and framework."""

from __future__ import annotations

from collections.abc import Callable

import numpy as np
import polars as pl

from fleetlab.core import Figure
from fleetlab.describe import published
from fleetlab.describe.curves import Bools, ecdf, share
from fleetlab.describe.section import Section
from fleetlab.describe.trace_view import TOP, WHOLE, TraceView
from fleetlab.stats import SHARE, Floats, Interval, bootstrap_units, no_interval

RESAMPLES = 400
FEWEST = 20  # users: with fewer, no interval
POINTS = 200
WEIGHED = ("jobs", "instances", "GPU time")


def users(view: TraceView, section: Section) -> None:
    """Jobs a user, the share of the busiest, Gini's number, and the concentration curve."""
    by_user = _by_user(view)
    if not by_user.height:
        section.absent("users", "not in the log")
        return
    curve = ecdf("users", by_user["jobs"].to_numpy())
    section.distributions(
        "jobs per user", [curve] if curve else [], title="Jobs per user", unit="jobs", x="jobs of a user",
        y="share of users, %",
    )  # fmt: skip
    rows, frames = [], []
    for name in WEIGHED:
        amounts = np.sort(by_user[name].to_numpy())[::-1]
        if amounts.sum() > 0:
            rows.append(_row(name, amounts, view.seed))
            frames.append(_concentration(name, amounts))
    section.tables["users"] = pl.DataFrame(rows, infer_schema_length=None)
    _say(section, rows, by_user.height)
    alt = f"the top 5 % of users submit {rows[0]['top 5 %, %']:.0f} % of the jobs"
    section.figures["skew of users"] = Figure(
        "Share of the top users (concentration curve)", "line", pl.concat(frames), "top users, %", "share, %", alt
    )


def _by_user(view: TraceView) -> pl.DataFrame:
    """What each user has; added up in the order of the jobs, so that the last bits are the same every time."""
    named = view.frame["user"].is_not_null().to_numpy()
    _, of = np.unique(view.frame["user"].to_physical().fill_null(0).to_numpy()[named], return_inverse=True)
    many = view.instances[named]
    time = many * view.milli[named] / WHOLE * np.nan_to_num(view.runtime[named])
    sums = zip(WEIGHED, (np.ones(len(of)), many, time), strict=True)
    return pl.DataFrame({name: np.bincount(of, weights=w).astype(np.float64) for name, w in sums})


def _row(name: str, amounts: Floats, seed: int) -> dict[str, object]:
    """Intervals are over users: they hold for others like them."""
    count = len(amounts)
    top, unequal = (_interval(of, amounts, seed) for of in (top_share, gini))
    row: dict[str, object] = {"weighted by": name, "users": count}
    row |= dict(zip(("top 5 %, %", "low", "high"), (100 * x for x in top), strict=True))
    row |= dict(zip(("Gini", "Gini low", "Gini high"), unequal, strict=True))
    return row | {"top user, %": 100 * float(amounts[0] / amounts.sum())}


def _interval(of: Callable[[Floats], float], amounts: Floats, seed: int) -> Interval:
    if len(amounts) < FEWEST:
        return no_interval(of(amounts))

    def ranked(some: Floats) -> float:
        return of(np.sort(some)[::-1]) if some.any() else np.nan

    return bootstrap_units(amounts, ranked, seed=seed, resamples=RESAMPLES, within=SHARE)


def top_share(ranked: Floats) -> float:
    """The share of the top 5 %, from amounts in falling order.

    >>> top_share(np.array([5.0] + [1.0] * 19))
    0.20833333333333334
    """
    top = max(1, round(TOP * len(ranked)))
    return float(ranked[:top].sum() / ranked.sum())


def gini(ranked: Floats) -> float:
    """Gini's number, from amounts in falling order: 0 if all have as much, near 1 if one has all.

    >>> gini(np.ones(4)), gini(np.array([1.0, 0.0, 0.0, 0.0]))
    (0.0, 0.75)
    """
    count = len(ranked)
    places = np.arange(count, 0, -1)
    return float(2 * (places @ ranked) / (count * ranked.sum()) - (count + 1) / count)


def _concentration(name: str, ranked: Floats) -> pl.DataFrame:
    sums = np.concatenate(([0.0], np.cumsum(ranked))) / ranked.sum()
    at = np.unique(np.geomspace(1, len(sums), POINTS).astype(np.int64) - 1)
    x = 100 * at / (len(sums) - 1)
    return pl.DataFrame({"x": x, "y": 100 * sums[at]}).with_columns(series=pl.lit(name))


def _say(section: Section, rows: list[dict[str, object]], count: int) -> None:
    instances = rows[min(1, len(rows) - 1)]
    interval = Interval(*(float(instances[k]) for k in ("top 5 %, %", "low", "high")))  # type: ignore[arg-type]
    section.say(f"{instances['weighted by']} of the top 5 % of users", interval, "%")
    paper = f" (published: {published.numbers('users')['instances of the top 5 % of users']:.0f} %)"
    section.findings.append(
        f"The top 5 % of {count:,} users have {interval[0]:.3g} % of the {instances['weighted by']}"
        f"{paper if section.like_pai else ''}."
    )


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
    columns = [c for c in ranked.columns if c not in first and ranked[c].null_count() < ranked.height]
    return ranked.select(*first, *columns)


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
