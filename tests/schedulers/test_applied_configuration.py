"""Configurations apply to a site as by `kubectl apply`: what one does not name stays, the same changes nothing."""

import json

import pytest

import fleetlab
from fleetlab.core import PolicyError, TraceError
from fleetlab.core.schedulers import read_scheduler

from .kueue.sites import site

GPU = "nvidia.com/gpu"


def queue(name, api, **spec):
    return {"apiVersion": api, "kind": "Queue", "metadata": {"name": name}, "spec": spec}


VOLCANO, KAI = "scheduling.volcano.sh/v1beta1", "scheduling.run.ai/v2"
KUBE = "kubescheduler.config.k8s.io/v1"
OBJECTS = {
    "kueue": [one for one in site(count=0).objects if one["kind"] in ("ClusterQueue", "LocalQueue", "ResourceFlavor")],
    "volcano": [
        queue("default", VOLCANO), queue("vision", VOLCANO, weight=3, capability={GPU: "16"}),
        {"kind": "ConfigMap", "data": {"volcano-scheduler.conf": "actions: enqueue, allocate, reclaim"}},
    ],
    "kai": [
        queue("all", KAI), queue("vision", KAI, parentQueue="all", resources={"gpu": {"quota": 8, "limit": 16}}),
        queue("speech", KAI, parentQueue="all", resources={"gpu": {"quota": 8, "limit": -1}}),
        {"kind": "SchedulingShard", "spec": {"kValue": 0.5}},
    ],
    "kubernetes": [
        {"apiVersion": KUBE, "kind": "KubeSchedulerConfiguration", "percentageOfNodesToScore": 50},
        {"apiVersion": "v1", "kind": "ResourceQuota", "metadata": {"name": "q", "namespace": "cv"},
         "spec": {"hard": {"requests.nvidia.com/gpu": "8"}}},
    ],
}  # fmt: skip


def written(path, objects):
    path.write_text("\n---\n".join(map(json.dumps, objects)))
    return path


@pytest.mark.parametrize("name", OBJECTS)
def test_the_same_configuration_changes_nothing(name, tmp_path):
    own = read_scheduler(written(tmp_path / "own.yaml", OBJECTS[name]))
    change = own.compare_config(tmp_path / "own.yaml", None)
    assert (change.scheduler, change.settings) == (own, ())


@pytest.mark.parametrize("name", OBJECTS)
def test_each_object_alone_leaves_all_others_as_they_are(name, tmp_path):
    own = read_scheduler(written(tmp_path / "own.yaml", OBJECTS[name]))
    for one in OBJECTS[name]:
        assert own.compare_config(written(tmp_path / "one.yaml", [one]), None).scheduler == own


def test_the_same_lines_of_slurm_conf_change_nothing(tmp_path):
    (tmp_path / "slurm.conf").write_text("SchedulerType=sched/backfill\nSchedulerParameters=bf_interval=20\n")
    own = read_scheduler(tmp_path / "slurm.conf")
    trace = fleetlab.synthesize(jobs=200)
    change = own.compare_config(tmp_path / "slurm.conf", trace.cluster)
    assert (change.scheduler, change.settings) == (own, ())


def test_one_edited_queue_changes_that_alone(tmp_path):
    own = read_scheduler(written(tmp_path / "own.yaml", OBJECTS["kueue"]))
    edited = next(one for one in OBJECTS["kueue"] if one["metadata"]["name"] == "vision")
    text = json.dumps(edited).replace('"nominalQuota": "16"', '"nominalQuota": "24"')
    change = own.compare_config(written(tmp_path / "one.yaml", [json.loads(text)]), None)
    assert [(one.name, one.was, one.becomes) for one in change.settings] == [
        ("ClusterQueue vision: nominalQuota of nvidia.com/gpu in h100", "16", "24")
    ]
    assert list(change.scheduler.cluster_queues) == list(own.cluster_queues)


@pytest.mark.parametrize("name", ["kueue", "volcano", "kai"])
def test_deleting_is_explicit(name, tmp_path):
    own = read_scheduler(written(tmp_path / "own.yaml", OBJECTS[name]))
    mine = [one for one in OBJECTS[name] if one.get("metadata", {}).get("name") in ("vision", "main")]
    gone = [one | {"$patch": "delete"} for one in mine if one["metadata"].get("namespace", "vision") == "vision"]
    change = own.compare_config(written(tmp_path / "gone.yaml", gone), None)
    assert "vision" in str(own.quotas())
    assert "vision" not in str(change.scheduler.quotas())


def test_what_the_site_does_not_have_cannot_be_deleted(tmp_path):
    own = read_scheduler(written(tmp_path / "own.yaml", OBJECTS["kueue"]))
    gone = {"apiVersion": "kueue.x-k8s.io/v1beta2", "kind": "Cohort", "metadata": {"name": "x"}, "$patch": "delete"}
    with pytest.raises(PolicyError, match="cannot delete what the site does not have: Cohort x"):
        own.compare_config(written(tmp_path / "gone.yaml", [gone]), None)


@pytest.mark.parametrize("name", ["kueue", "volcano", "kai"])
def test_a_configuration_of_another_scheduler_is_refused(name, tmp_path):
    own = read_scheduler(written(tmp_path / "own.yaml", OBJECTS[name]))
    other = next(each for each in ("kai", "volcano") if each != name)
    with pytest.raises((PolicyError, TraceError), match=r"configures|contains no object of Kueue"):
        own.compare_config(written(tmp_path / "other.yaml", OBJECTS[other]), None)
