"""What is gathered by kubectl, with a program that stands for it."""

import json
import os
import shutil
import subprocess
import sys

import pytest

import fleetlab

POD = {
    "kind": "Pod",
    "metadata": {"name": "train", "creationTimestamp": "2026-11-17T09:00:00Z"},
    "spec": {"nodeName": "a", "containers": [{"resources": {"requests": {"nvidia.com/gpu": "2"}}}]},
    "status": {"phase": "Running", "startTime": "2026-11-17T09:00:05Z"},
}
NODE = {"kind": "Node", "metadata": {"name": "a"}, "status": {"allocatable": {"cpu": "64", "nvidia.com/gpu": "8"}}}
EVENT = {"involvedObject": {"kind": "Pod", "name": "train"}, "kind": "Event", "metadata": {"name": "train.1"}}
CONFIG = "apiVersion: kubescheduler.config.k8s.io/v1beta1\nkind: KubeSchedulerConfiguration\nprofiles: []\n"
KUBECTL = """#!/bin/sh
echo "$*" >> "$DATA/asked"
case "$*" in
*api-resources*) printf 'pods\\nnodes\\nworkloads.kueue.x-k8s.io\\n' ;;
*configmap*) cat "$DATA/configmap.json" ;;
*resourcequotas*) echo 'Error from server (Forbidden): resourcequotas is forbidden: User "x" cannot list' >&2; exit 1 ;;
*) for word in "$@"; do [ -f "$DATA/$word.json" ] && exec cat "$DATA/$word.json"; done; echo '{"items": []}' ;;
esac
"""


@pytest.fixture
def site(tmp_path, monkeypatch):
    """A PATH with a kubectl that prints a small cluster, and says what it was asked."""
    data = tmp_path / "data"
    data.mkdir()
    for name, items in (("pods", [POD]), ("nodes", [NODE]), ("events", [EVENT])):
        (data / f"{name}.json").write_text(json.dumps({"kind": "List", "items": items}))
    (data / "configmap.json").write_text(json.dumps({"data": {"config.yaml": CONFIG, "other": "x"}}))
    commands = tmp_path / "bin"
    commands.mkdir()
    (commands / "kubectl").write_text(KUBECTL)
    (commands / "kubectl").chmod(0o755)
    for name in ("sh", "cat"):
        (commands / name).symlink_to(shutil.which(name))
    monkeypatch.setenv("DATA", str(data))
    monkeypatch.setenv("PATH", str(commands))
    return data


def collect(*words, out):
    command = [sys.executable, "-m", "fleetlab", "collect", "kubernetes", "--out", str(out), *words]
    return subprocess.run(command, capture_output=True, text=True, check=False, env=dict(os.environ))


def test_what_is_gathered_reads_as_a_trace_with_the_scheduler_of_the_site(site, tmp_path):
    pytest.importorskip("yaml")
    done = collect("--scheduler-config", "kube-system/scheduler", out=tmp_path / "out")
    assert done.returncode == 0, done.stderr
    trace = fleetlab.read(tmp_path / "out", "kubernetes")
    assert len(trace.workload) == 1
    assert trace.rejects.height == 0
    assert trace.scheduler is not None


def test_kubectl_is_only_asked_to_read(site, tmp_path):
    collect("--scheduler-config", "kube-system/scheduler", "--context", "prod", out=tmp_path / "out")
    asked = (site / "asked").read_text().splitlines()
    assert {line.split()[2] for line in asked} == {"get", "api-resources"}
    assert all(line.startswith("--context prod ") for line in asked)


def test_what_may_not_be_read_is_said_and_left_out(site, tmp_path):
    done = collect(out=tmp_path / "out")
    assert "left out: resourcequotas: Error from server (Forbidden)" in done.stderr
    assert not (tmp_path / "out" / "resourcequotas.json").exists()


def test_objects_of_kueue_are_gathered_where_the_cluster_has_them(site, tmp_path):
    collect(out=tmp_path / "out")
    written = {path.stem for path in (tmp_path / "out").glob("*.kueue.x-k8s.io.json")}
    assert written == {"workloads.kueue.x-k8s.io"}


def test_without_kubectl_there_is_an_error_with_a_hint(tmp_path, monkeypatch):
    monkeypatch.setenv("PATH", str(tmp_path))
    done = collect(out=tmp_path / "out")
    assert done.returncode == 2
    assert "error: kubectl is not installed" in done.stderr
    assert not (tmp_path / "out").exists()


@pytest.mark.parametrize(
    ("said", "error"),
    [
        ('{"items": []}', "error: no job log: no pods: the cluster lists none"),
        (None, "error: no job log: no pods: Error from server (Forbidden): pods is forbidden"),
    ],
)
def test_without_pods_it_fails_and_keeps_the_rest(site, tmp_path, said, error):
    (site / "pods.json").unlink()
    if said:
        (site / "pods.json").write_text(said)
    else:
        kubectl = tmp_path / "bin" / "kubectl"
        forbidden = "*'get pods '*) echo 'Error from server (Forbidden): pods is forbidden' >&2; exit 1 ;;"
        kubectl.write_text(kubectl.read_text().replace("*configmap*)", f"{forbidden}\n*configmap*)"))
    done = collect(out=tmp_path / "out")
    assert done.returncode == 2
    assert error in done.stderr
    assert "hint: `kubectl get pods -A` must list them" in done.stderr
    assert "gathered in" not in done.stderr + done.stdout
    assert (tmp_path / "out" / "nodes.json").exists()


def test_a_config_map_without_a_configuration_is_refused(site, tmp_path):
    (site / "configmap.json").write_text(json.dumps({"data": {"other": "x"}}))
    done = collect("--scheduler-config", "kube-system/scheduler", out=tmp_path / "out")
    assert done.returncode == 2
    assert "has no KubeSchedulerConfiguration: other" in done.stderr
