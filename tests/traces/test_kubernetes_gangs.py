"""Pod groups of the controllers that make pods together, by their own labels."""

import json

import pytest

import fleetlab

NODE = {"kind": "Node", "metadata": {"name": "a"}, "status": {"allocatable": {"cpu": "64", "nvidia.com/gpu": "8"}}}


def pod(name, minute, labels, notes=None):
    at = f"2026-11-17T09:{minute:02}:00Z"
    return {
        "kind": "Pod",
        "metadata": {"name": name, "creationTimestamp": at, "labels": labels, "annotations": notes or {}},
        "spec": {"nodeName": "a", "containers": [{"resources": {"requests": {"nvidia.com/gpu": "1"}}}]},
        "status": {"phase": "Running", "startTime": at},
    }


def read(tmp_path, pods):
    (tmp_path / "list.json").write_text(json.dumps({"kind": "List", "items": [NODE, *pods]}))
    return fleetlab.read(tmp_path, "kubernetes").workload.frame["instances"].to_list()


INDEX = "batch.kubernetes.io/job-completion-index"


@pytest.mark.parametrize(
    "labels",
    [
        lambda k: {"jobset.sigs.k8s.io/jobset-name": "train", "jobset.sigs.k8s.io/job-index": "0", INDEX: str(k)},
        lambda k: {
            "training.kubeflow.org/job-name": "train",
            "training.kubeflow.org/replica-type": "worker",
            "training.kubeflow.org/replica-index": str(k),
        },
        lambda k: {"ray.io/cluster": "train-raycluster-x7", "ray.io/node-type": "worker"},
        lambda k: {
            "leaderworkerset.sigs.k8s.io/name": "serve",
            "leaderworkerset.sigs.k8s.io/group-key": "3e23",
            "leaderworkerset.sigs.k8s.io/worker-index": str(k),
        },
        lambda k: {"job-name": "train", "batch.kubernetes.io/job-name": "train", INDEX: str(k)},
    ],
    ids=["JobSet", "PyTorchJob", "RayJob", "LeaderWorkerSet", "Indexed Job"],
)
def test_the_pods_of_one_controller_are_one_gang(tmp_path, labels):
    assert read(tmp_path, [pod(f"p-{k}", 0, labels(k)) for k in range(4)]) == [4]


def test_two_groups_of_a_leader_worker_set_are_two_gangs(tmp_path):
    keys = ["3e23", "3e23", "77ab", "77ab"]
    labels = [{"leaderworkerset.sigs.k8s.io/group-key": key} for key in keys]
    assert read(tmp_path, [pod(f"p-{k}", 0, one) for k, one in enumerate(labels)]) == [2, 2]


def test_pods_that_take_the_place_of_failed_ones_are_another_try(tmp_path):
    labels = [{"jobset.sigs.k8s.io/jobset-name": "train", INDEX: str(k % 2)} for k in range(4)]
    assert read(tmp_path, [pod(f"p-{k}", 5 * (k // 2), one) for k, one in enumerate(labels)]) == [2, 2]


def test_pods_of_a_job_that_take_work_from_a_queue_are_no_gang(tmp_path):
    assert read(tmp_path, [pod(f"p-{k}", 0, {"job-name": "work"}) for k in range(3)]) == [1, 1, 1]
