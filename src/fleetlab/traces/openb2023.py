"""Alibaba's 2023 GPU-sharing trace (`openb`): pods and nodes, from the FGD paper (ATC'23).

A pod asks for `num_gpu` GPUs with `gpu_milli` of each; a share is only ever of one. Pods that were created but never
scheduled have no `scheduled_time`. Some lists (`multigpu…`) have requests alone: a bag of pods, all
submitted at 0.
"""

from __future__ import annotations

from pathlib import Path

import polars as pl

from fleetlab.core import Cluster, Trace, TraceError, Workload
from fleetlab.traces.input.files import SourceFile, sources
from fleetlab.traces.input.format import Format, finish, relative_to_first
from fleetlab.traces.input.intake import Intake, Rule, TableSchema

PODS = TableSchema.of(
    "pods",
    "name cpu_milli:i memory_mib:i num_gpu:i gpu_milli:i gpu_spec qos pod_phase creation_time:f deletion_time:f "
    "scheduled_time:f",
    optional="gpu_spec qos pod_phase creation_time deletion_time scheduled_time",
)
NODES = TableSchema.of("nodes", "sn cpu_milli:i memory_mib:i gpu:i model")

PHASES = ["Succeeded", "Failed", "Running", "Pending"]
# Latency-sensitive pods go before best-effort ones.
PRIORITY = {"Guaranteed": 3, "LS": 2, "Burstable": 1, "BE": 0}

MOST_GPUS = 1024  # of one node: beyond that a number is a slip

POD_RULES: list[Rule] = [
    ("no name", pl.col("name").is_null()),
    ("duplicate name", pl.col("name").is_duplicated() & ~pl.col("name").is_first_distinct(), "name"),
    *[(f"`{c}` is missing", pl.col(c).is_null()) for c in ("cpu_milli", "memory_mib", "num_gpu", "gpu_milli")],
    *[
        (f"`{c}` is negative", pl.col(c) < 0, c)
        for c in ("cpu_milli", "memory_mib", "num_gpu", "gpu_milli", "creation_time")
    ],
    *[
        (f"`{c}` is not finite", pl.col(c).is_finite().not_(), c)
        for c in ("creation_time", "scheduled_time", "deletion_time")
    ],
    ("a fraction of more than one GPU", (pl.col("num_gpu") > 1) & (pl.col("gpu_milli") != 1000), "gpu_milli"),
    ("more than one GPU of each GPU", pl.col("gpu_milli") > 1000, "gpu_milli"),
    ("more GPUs than any node has", pl.col("num_gpu") > MOST_GPUS, "num_gpu"),
    ("scheduled before it was created", pl.col("scheduled_time") < pl.col("creation_time"), "scheduled_time"),
    ("deleted before it was scheduled", pl.col("deletion_time") < pl.col("scheduled_time"), "deletion_time"),
    ("deleted before it was created", pl.col("deletion_time") < pl.col("creation_time"), "deletion_time"),
    ("unknown phase", pl.col("pod_phase").is_in(PHASES).not_(), "pod_phase"),
]
NODE_RULES: list[Rule] = [
    ("no name", pl.col("sn").is_null()),
    ("duplicate name", pl.col("sn").is_duplicated() & ~pl.col("sn").is_first_distinct(), "sn"),
    *[
        (f"`{c}` is missing or negative", (pl.col(c) < 0).fill_null(value=True), c)
        for c in ("cpu_milli", "memory_mib", "gpu")
    ],
    ("more GPUs than any node has", pl.col("gpu") > MOST_GPUS, "gpu"),
    ("GPUs of no model", (pl.col("gpu") > 0) & pl.col("model").is_null()),
]


def read(path: Path, intake: Intake) -> Trace:
    """Read a pod list and, beside it or in the same folder, the node list."""
    pods, nodes = _files(path)
    cluster = _cluster(nodes, intake) if nodes else None
    frame = intake.validate(intake.table(pods, PODS), "pods", pods.name, POD_RULES)
    jobs, zero = relative_to_first(_jobs(frame))
    workload = Workload.of(jobs.drop("name"), source=f"openb2023:{pods.stem}")
    intake.keep("pods", len(workload))
    timed = "creation_time" in frame.columns and frame["creation_time"].is_not_null().any()
    return finish(
        intake,
        workload,
        cluster=cluster,
        names=jobs.select(job=pl.int_range(pl.len(), dtype=pl.Int64), name="name").lazy(),
        notes=() if timed else ("the list has no times: all pods are submitted at 0",),
        settings={"zero": zero},
    )


def _files(path: Path) -> tuple[SourceFile, SourceFile | None]:
    there = sources(path if path.is_dir() else path.parent)
    nodes = [s for s in there if "node_list" in s.stem]
    # With and without the nodes that have no GPU: the whole cluster, if it is there.
    nodes.sort(key=lambda s: "all" not in s.stem)
    pods = [s for s in there if "pod_list" in s.stem] if path.is_dir() else [SourceFile(path)]
    if len(pods) > 1:
        pods = [s for s in pods if s.stem.endswith("default")] or pods[:0]
    if len(pods) != 1:
        msg = f"not one pod list, which would be openb_pod_list_….csv, in: {path}"
        raise TraceError(msg, hint="name the pod list itself; the node list is found beside it")
    return pods[0], nodes[0] if nodes else None


def _cluster(source: SourceFile, intake: Intake) -> Cluster:
    frame = intake.validate(intake.table(source, NODES), "nodes", source.name, NODE_RULES)
    cluster = Cluster.of(
        frame.select(
            node="sn",
            pool=pl.col("model").fill_null("CPU"),
            gpu_type="model",
            gpus="gpu",
            cpu_milli="cpu_milli",
            memory_mib="memory_mib",
        ),
        source="openb2023",
    )
    intake.keep("nodes", len(cluster))
    return cluster


def _jobs(pods: pl.DataFrame) -> pl.DataFrame:
    # Every pod of the log has a deletion time; for pods that were alive when it was taken, that moment stands there.
    alive = (pl.col("pod_phase") == "Running") & (pl.col("deletion_time") == pl.col("deletion_time").max())
    end = pl.when(~alive.fill_null(value=False)).then(pl.col("deletion_time"))
    return pods.select(
        "name",
        submit=pl.col("creation_time").fill_null(0.0),
        runtime=end - pl.col("scheduled_time"),
        cpu_milli="cpu_milli",
        memory_mib="memory_mib",
        gpu_milli=pl.col("num_gpu") * pl.col("gpu_milli"),
        gpu_types=pl.col("gpu_spec").fill_null("").str.split("|").list.filter(pl.element() != ""),
        priority=pl.col("qos").replace_strict(PRIORITY, default=0, return_dtype=pl.Int32),
        status=pl.when(alive).then(pl.lit("running")).otherwise(_ended()),
        start="scheduled_time",
        end=end,
    )


def _ended() -> pl.Expr:
    return (
        pl.when(pl.col("pod_phase") == "Failed").then(pl.lit("failed"))
        # A pod that was deleted before it could be scheduled.
        .when((pl.col("pod_phase") == "Pending") & pl.col("deletion_time").is_not_null()).then(pl.lit("cancelled"))
        .when(pl.col("pod_phase") == "Pending").then(pl.lit("waiting"))
        .otherwise(pl.lit("completed"))
    )  # fmt: skip


FORMAT = Format.of("openb2023", read)
