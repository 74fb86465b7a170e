"""A diagnosis of a site's Slurm: the planted cause is named first, and the change that removes it helps."""

import polars as pl
import pytest

import fleetlab
from fleetlab.core import Cluster, Workload
from fleetlab.core.queues import Limits, Qos
from fleetlab.schedulers.slurm.config import BackfillLoop, MainLoop, Partition, Reservation, Slurm

QUICK = {"main": MainLoop(delay=0.0), "backfill": BackfillLoop(interval=1.0, resolution=1.0)}
NAMES = pl.List(pl.String)


def nodes(*partitions, count=4, gpus=4, **columns):
    """So many nodes of each partition."""
    named = [name for name in partitions or ("gpu",) for _ in range(count)]
    frame = pl.DataFrame({"node": [f"n{k}" for k in range(len(named))], "gpu_type": "a100", "gpus": gpus, **columns})
    frame = frame.with_columns(
        cpu_milli=64_000, memory_mib=512_000, partitions=pl.Series([[name] for name in named], dtype=NAMES)
    )
    return Cluster.of(frame, source="planted")


def stream(count=60, every=10.0, **columns):
    """Jobs of one GPU and half a minute at equal intervals."""
    plain = {"runtime": 30.0, "limit": 60.0, "gpu_milli": 1000, "cpu_milli": 1000, "user": "ann", "queue": "vision"}
    frame = pl.DataFrame({"submit": [every * k for k in range(count)]}).with_columns(
        **{name: pl.lit(value) if not isinstance(value, list) else pl.Series(value) for name, value in plain.items()}
    )
    return Workload.of(
        frame.with_columns(**{name: pl.Series(name, [value] * count if not isinstance(value, list) else value)
                              for name, value in columns.items()}), source="planted"
    )  # fmt: skip


PLANTED = {
    "limit": (
        stream(qos="few"), nodes(),
        {"qos": (Qos("few", per_user=Limits(resources={"gpu": 2})),), "enforce": ("limits",)}, "limits",
    ),
    # One job of all GPUs of its node: others are passed only by backfill, which looks once a minute.
    "scheduler": (stream(every=12.0), nodes(), {"main": MainLoop(delay=45.0), "backfill": BackfillLoop(interval=60.0)},
                  "loops"),
    "completing": (stream(every=20.0, gpu_milli=4000), nodes(count=2), {"epilog": 40.0}, "epilog"),
    "advance_reservation": (
        stream(gpu_milli=2000), nodes(count=2),
        {"reservations": (Reservation("r", 0.0, 900.0, ("n0",)),)}, "reservations",
    ),
    "partition": (
        stream(every=6.0, partitions=[["small"] if k % 2 else ["large"] for k in range(60)]),
        nodes("small", "large", gpus=pl.Series([2, 8]), count=1),
        {"partitions": (Partition("small"), Partition("large"))}, "partitions",
    ),
}  # fmt: skip


@pytest.mark.parametrize("reason", PLANTED)
def test_a_planted_cause_is_named_first_and_its_change_helps(reason):
    jobs, cluster, site, change = PLANTED[reason]
    found = fleetlab.diagnose(jobs, cluster, scheduler=Slurm(**(QUICK | site)), changes=[change], workers=0)
    assert found.frames["waiting"]["reason"][0] == reason
    assert f"`{reason}`" in found.findings[0]
    assert found.best_change == change
    assert "is aimed at the main reason" in " ".join(found.findings)


def test_a_change_under_which_jobs_never_run_is_no_improvement():
    """Jobs that need two nodes never run where each GPU type is one large node: the others then wait less."""
    gangs = [2 if k % 10 == 0 else 1 for k in range(60)]
    work = stream(every=6.0, instances=gangs, distinct_nodes=True, gpu_milli=4000)
    found = fleetlab.diagnose(work, nodes(count=2), scheduler=Slurm(**QUICK), changes=["fragmentation"], workers=0)
    row = found.frames["changes"].row(0, named=True)
    assert (row["not completed"], row["verdict"]) == (6, "fewer jobs run")
    assert row["mean wait change"] < 0
    assert found.best_change is None
    assert found.frames["actions"].is_empty()
    assert found.frames["waterfall"]["step"].to_list() == ["baseline"]
