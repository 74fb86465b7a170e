"""Logs of other systems, as sites export them, are read without a map or with one."""

from dataclasses import dataclass, field
from pathlib import Path

import polars as pl
import pytest

import fleetlab
from fleetlab.core.data import open_trace
from fleetlab.traces.table.values import node_names

FOLDER = Path(__file__).parents[1] / "fixtures" / "foreign"
DAY = "submit,start,end\n2026-11-12T10:00:00Z,2026-11-12T10:00:30Z,2026-11-12T11:00:00Z\n"


@dataclass(frozen=True)
class Export:
    """What a file says of its first job, and what must be mapped."""

    gpus: list[float]  # of each job, over all its instances
    wait: float = 30.0
    runtime: float = 16_200.0
    map: dict[str, str] = field(default_factory=dict)
    first: dict[str, object] = field(default_factory=dict)  # other columns of the first job
    nodes: int | None = None  # that jobs ran on, where the file names them


EXPORTS = {
    "xdmod": Export([8, 4, 0], first={"cpu_milli": 32_000, "user": "ann", "queue": "gpu"}),
    "runai": Export([8, 0.5, 4], first={"memory_mib": 524_288, "app": "nlp"}, nodes=2),
    "skypilot": Export([8, 4, 16], first={"gpu_types": ["A100"], "user": "ann"}),
    "kuberay": Export([32, 2, 4], map={"instances": "WORKERS", "gpu_milli": "`GPUS PER WORKER`*1000"},
                      first={"instances": 4, "app": "nlp"}),
    "lsf": Export([8, 4, 16], first={"gpu_types": ["NVIDIAA100"], "limit": 28_800.0, "status": "completed"}, nodes=2),
    "pbs": Export([8, 4, 16], first={"limit": 28_800.0, "user": "ann@login"}, nodes=4),
    "sge": Export([8, 4, 0], first={"user": "ann", "queue": "gpu.q"}, nodes=3),
    "htcondor": Export([8, 4, 1], first={"memory_mib": 524_288, "cpu_milli": 64_000}, nodes=2),
    "batch": Export([8, 4, 1], first={"queue": "p4d-queue", "memory_mib": 1_000_000}),
    "spreadsheet": Export([8, 4, 1], wait=60.0, first={"gpu_types": ["A100"], "memory_mib": 524_288, "user": "Ann"}),
}  # fmt: skip


@pytest.mark.parametrize("name", EXPORTS)
def test_an_export_of_another_system_is_read(name):
    export = EXPORTS[name]
    trace = fleetlab.read(FOLDER / f"{name}.csv", "csv", map=export.map or None)
    jobs = trace.workload.frame
    assert trace.rejects.is_empty(), trace.rejects
    assert (jobs["gpu_milli"] * jobs["instances"] / 1000).to_list() == export.gpus
    first = jobs.row(0, named=True)
    assert first["start"] - first["submit"] == export.wait
    assert first["runtime"] == export.runtime
    assert {key: first[key] for key in export.first} == export.first
    if export.nodes is not None:
        assert trace.placements.collect()["node"].n_unique() == export.nodes


def test_a_log_stands_in_the_place_of_a_trace_and_says_how_it_was_read():
    trace = open_trace(str(FOLDER / "pbs.csv"))
    assert trace.notes[0].startswith("read as: fleetlab read csv ")
    assert trace.notes[1].startswith("cluster guessed: 4 nodes with 28 GPUs that jobs ran on")
    assert fleetlab.simulate(trace).completed.height == 3


def test_without_names_of_nodes_as_many_are_guessed_as_ran_at_once(tmp_path):
    rows = [f"2026-11-12T10:00:{k:02}Z,2026-11-12T10:01:00Z,2026-11-12T11:00:00Z,8" for k in range(5)]
    (tmp_path / "jobs.csv").write_text("submit,start,end,gpus\n" + "\n".join(rows))
    trace = open_trace(str(tmp_path / "jobs.csv"))
    assert (len(trace.cluster), trace.cluster.gpus) == (5, 40)
    assert "as many as jobs held at once" in trace.notes[1]


def test_jobs_of_more_gpus_than_a_node_has_are_split_and_the_command_says_so(tmp_path):
    (tmp_path / "jobs.csv").write_text(DAY.replace("end\n", "end,gpus\n").replace("11:00:00Z\n", "11:00:00Z,16\n"))
    trace = open_trace(str(tmp_path / "jobs.csv"))
    assert "--map gpus_per_node=8" in trace.notes[0]
    assert trace.workload.frame["instances"].to_list() == [2]


@pytest.mark.parametrize(
    ("cell", "gpus", "models"),
    [("8xA100", 8, ["A100"]), ("A100:8", 8, ["A100"]), ("gpu:a100:8", 8, ["a100"]), ("gpu:2", 2, []), ("4", 4, [])],
)
def test_gpus_are_read_as_people_write_them(tmp_path, cell, gpus, models):
    (tmp_path / "jobs.csv").write_text(f"submit,gpus\n2026-11-12T10:00:00+01:00,{cell}\n")
    jobs = fleetlab.read(tmp_path / "jobs.csv", "csv").workload.frame
    assert (jobs["gpu_milli"][0] / 1000, jobs["gpu_types"][0].to_list()) == (gpus, models)


@pytest.mark.parametrize("mapped", [{}, {"job": "id"}])
def test_a_duplicate_is_rejected_whether_its_id_is_guessed_or_mapped(tmp_path, mapped):
    row = "a,2026-11-12T10:00:00Z,1\n"
    (tmp_path / "jobs.csv").write_text(f"id,submit,gpus\n{row}{row}a,2026-11-13T10:00:00Z,1\n")
    trace = fleetlab.read(tmp_path / "jobs.csv", "csv", map=mapped or None)
    assert len(trace.workload) == 2
    assert trace.rejects["reason"].to_list() == ["duplicate job: a"]


def test_steps_of_slurm_jobs_are_no_jobs_in_a_table(tmp_path):
    rows = ["7", "7.batch", "7.extern", "7.0", "8_3", "8_3.batch"]
    text = "JobID|Submit|AllocTRES\n" + "".join(f"{id}|2026-11-12T10:00:00|gres/gpu:a100=4,cpu=8\n" for id in rows)
    (tmp_path / "sacct.csv").write_text(text)
    trace = fleetlab.read(tmp_path / "sacct.csv", "csv")
    assert len(trace.workload) == 2
    assert trace.rejects["reason"].str.starts_with("a step of a job").all()


def test_node_lists_of_all_systems_are_unfolded():
    assert node_names("c[1-2],gpu[08-09]-ib") == ["c1", "c2", "gpu08-ib", "gpu09-ib"]
    assert node_names("None") == ["None"]


def test_every_commands_takes_a_log(command, tmp_path, monkeypatch):
    monkeypatch.chdir(tmp_path)
    done = command("diagnose", FOLDER / "sge.csv", "--replicas", "1", "--changes", "nodes")
    assert done.returncode == 0, done.stderr
    assert "read as: fleetlab read csv" in done.stderr
    cluster = tmp_path / "sge-cluster.toml"
    assert f"--cluster {cluster.name}" in done.stderr
    assert fleetlab.Cluster.from_toml(cluster).gpus == open_trace(str(FOLDER / "sge.csv")).cluster.gpus
    assert pl.Series(done.stdout.splitlines()).str.len_chars().max() <= 100
