"""Objects of Kueue, in the names of v1beta1 and v1beta2."""

import json

import pytest

import fleetlab
from fleetlab.core import PolicyError, Scenario, TraceError
from fleetlab.schedulers.kubernetes.reader.kueue import kueue_object, read_kueue
from fleetlab.schedulers.kubernetes.reader.objects import MalformedObject
from fleetlab.schedulers.kueue.config import MAY_STOP, TRY_NEXT, Kueue, ResourceQuota

GPU = "nvidia.com/gpu"


def thing(kind, name="x", version="v1beta1", namespace=None, **spec):
    about = {"name": name} | ({"namespace": namespace} if namespace else {})
    return {"apiVersion": f"kueue.x-k8s.io/{version}", "kind": kind, "metadata": about, "spec": spec}


def groups(**quota):
    resources = [{"name": GPU, "nominalQuota": "8", **quota}, {"name": "cpu", "nominalQuota": "500m"}]
    return [{"coveredResources": [GPU, "cpu"], "flavors": [{"name": "h100", "resources": resources}]}]


def test_the_names_of_both_versions_say_the_same():
    policies = {
        "withinClusterQueue": "LowerPriority",
        "borrowWithinCohort": {"policy": "LowerPriority", "maxPriorityThreshold": 7},
    }
    old = thing(
        "ClusterQueue",
        cohort="lab",
        preemption=policies,
        resourceGroups=groups(borrowingLimit=2),
        admissionChecks=["dws"],
        flavorFungibility={"whenCanBorrow": "TryNextFlavor", "whenCanPreempt": "Preempt"},
        fairSharing={"weight": "500m"},
    )
    new = thing(
        "ClusterQueue",
        version="v1beta2",
        cohortName="lab",
        preemption=policies,
        resourceGroups=groups(borrowingLimit=2),
        admissionChecksStrategy={"admissionChecks": [{"name": "dws"}]},
        fairSharing={"weight": "0.5"},
        flavorFungibility={"whenCanBorrow": "TryNextFlavor", "whenCanPreempt": "MayStopSearch"},
    )
    assert kueue_object(old) == kueue_object(new)


def test_a_cluster_queue_is_read_whole():
    found = kueue_object(
        thing("ClusterQueue", cohort="lab", resourceGroups=groups(borrowingLimit="2", lendingLimit="3"))
    )
    assert dict(found.groups[0].quotas()) == {
        ("h100", GPU): ResourceQuota(8, 2, 3),
        ("h100", "cpu"): ResourceQuota(500),
    }
    assert (found.fungibility.when_can_borrow, found.fungibility.when_can_preempt) == (MAY_STOP, TRY_NEXT)
    assert (found.strategy, found.weight, found.stop_policy) == ("BestEffortFIFO", 1.0, "None")


def test_cohorts_flavors_topologies_and_priorities_are_read():
    assert kueue_object(thing("Cohort", parentName="org")).parent == "org"
    flavor = thing(
        "ResourceFlavor",
        nodeLabels={"gpu": "h100"},
        topologyName="racks",
        nodeTaints=[{"key": "spot", "effect": "NoSchedule"}],
    )
    found = kueue_object(flavor)
    assert (found.labels, found.topology, found.taints[0].key) == ({"gpu": "h100"}, "racks", "spot")
    assert kueue_object(thing("Topology", levels=[{"nodeLabel": "rack"}, {"nodeLabel": "host"}])).levels == (
        "rack",
        "host",
    )
    assert kueue_object(thing("WorkloadPriorityClass") | {"value": 1000}).value == 1000
    assert kueue_object(thing("AdmissionCheck", controllerName="a.b/c")).controller == "a.b/c"


def test_fair_sharing_is_that_of_the_controllers_configuration():
    given = {"apiVersion": "config.kueue.x-k8s.io/v1beta1", "kind": "Configuration",
             "fairSharing": {"enable": True, "preemptionStrategies": ["LessThanInitialShare"]},
             "featureGates": {"FairSharingPreemptWithinNominal": False}}  # fmt: skip
    found = kueue_object(given)
    assert (found.enable, found.strategies, found.preempt_within_nominal) == (True, ("LessThanInitialShare",), False)


@pytest.mark.parametrize(
    ("item", "reason"),
    [
        (thing("ClusterQueue", name=""), "a ClusterQueue without a name"),
        (
            thing("ClusterQueue", queueingStrategy="Fast"),
            "`queueingStrategy` is none of StrictFIFO, BestEffortFIFO: Fast",
        ),
        (thing("ClusterQueue", resourceGroups=groups(borrowingLimit="-1")), "borrowingLimit"),
        (thing("ClusterQueue", preemption={"reclaimWithinCohort": "Always"}), "`reclaimWithinCohort` is none of"),
    ],
)
def test_what_kueue_would_refuse_is_refused(item, reason):
    with pytest.raises(MalformedObject, match=reason):
        kueue_object(item)


def test_others_objects_are_none_of_kueues():
    assert kueue_object({"apiVersion": "v1", "kind": "Pod"}) is None


def test_a_file_of_several_documents_is_read(tmp_path):
    text = "\n---\n".join(
        json.dumps(one)
        for one in (thing("ResourceFlavor", "h100"), thing("ClusterQueue", "a", resourceGroups=groups()))
    )
    (tmp_path / "queues.yaml").write_text(text)
    assert list(read_kueue(tmp_path / "queues.yaml").cluster_queues) == ["a"]


@pytest.mark.parametrize(
    ("text", "reason"),
    [
        ("kind: [", "not YAML"),
        (json.dumps(thing("ResourceFlavor", "h100")), "contains no ClusterQueue"),
        (
            json.dumps({"items": [thing("ClusterQueue", "a", stopPolicy="No")]}),
            "queues.yaml, ClusterQueue a: `stopPolicy`",
        ),
    ],
)
def test_a_bad_file_is_told_in_words(tmp_path, text, reason):
    (tmp_path / "queues.yaml").write_text(text)
    with pytest.raises(TraceError, match=reason):
        read_kueue(tmp_path / "queues.yaml")


def test_flavors_that_are_not_there_are_refused(tmp_path):
    objects = [thing("ResourceFlavor", "a100"), thing("ClusterQueue", "a", resourceGroups=groups())]
    (tmp_path / "queues.json").write_text(json.dumps({"items": objects}))
    with pytest.raises(PolicyError, match="no such ResourceFlavor: h100"):
        read_kueue(tmp_path / "queues.json")


# -- a trace with its site ---------------------------------------------------------------------------------------------


def pod(name, owner, phase="Succeeded"):
    about = {"name": name, "namespace": "cv", "uid": name, "creationTimestamp": "2026-05-01T10:00:00Z",
             "ownerReferences": [{"kind": "Job", "name": owner, "uid": owner, "controller": True}]}  # fmt: skip
    ended = {"state": {"terminated": {"finishedAt": "2026-05-01T10:10:00Z"}}}
    spec = {"nodeName": "n1", "containers": [{"resources": {"requests": {"cpu": "1", GPU: "2"}}}]}
    status = {"phase": phase, "startTime": "2026-05-01T10:00:10Z", "containerStatuses": [ended]}
    return {"apiVersion": "v1", "kind": "Pod", "metadata": about, "spec": spec, "status": status}


NODE = {"apiVersion": "v1", "kind": "Node", "metadata": {"name": "n1", "labels": {"tier": "gold"}},
        "status": {"allocatable": {"cpu": "64", "memory": "512Gi", GPU: "8", "pods": "110"},
                   "capacity": {"cpu": "64", "memory": "512Gi", GPU: "8", "pods": "110"}}}  # fmt: skip


@pytest.fixture
def folder(tmp_path):
    work = thing("Workload", "job-train", namespace="cv", queueName="main")
    work["metadata"]["ownerReferences"] = [{"kind": "Job", "name": "train", "uid": "train"}]
    objects = [
        thing("ResourceFlavor", "h100", nodeLabels={"tier": "gold"}),
        thing("ClusterQueue", "vision", resourceGroups=groups()),
        thing("LocalQueue", "main", namespace="cv", clusterQueue="vision"),
        thing("LocalQueue", "old", namespace="cv", clusterQueue="gone"),
        work,
    ]
    (tmp_path / "kueue.json").write_text(json.dumps({"kind": "List", "items": objects}))
    (tmp_path / "pods.json").write_text(
        json.dumps({"kind": "List", "items": [pod("p0", "train"), pod("p1", "train"), NODE]})
    )
    return tmp_path


def test_a_trace_carries_the_sites_kueue(folder):
    trace = fleetlab.read(folder, "kubernetes")
    assert isinstance(trace.scheduler, Kueue)
    assert list(trace.scheduler.local_queues) == ["cv/main"]
    assert any("lead to no ClusterQueue of the list: cv/old" in note for note in trace.notes)


def test_the_pods_of_a_workload_are_one_job_of_its_queue(folder):
    jobs = fleetlab.read(folder, "kubernetes").workload.frame
    assert jobs.select("queue", "user", "instances").rows() == [("main", "cv", 2)]


def test_labels_of_flavors_are_features_of_nodes(folder):
    assert "tier=gold" in fleetlab.read(folder, "kubernetes").cluster.frame["features"][0].to_list()


def test_such_a_trace_is_saved_loaded_and_simulated_by_its_own_kueue(folder, tmp_path):
    saved = fleetlab.read(folder, "kubernetes").save(tmp_path / "trace")
    scenario = Scenario.of(str(saved))
    assert scenario.scheduler.title == "Kueue"
    assert "Kueue as the site is configured" in str(fleetlab.simulate(scenario, min_coverage=0))


def test_every_object_is_counted(folder):
    rows = fleetlab.read(folder, "kubernetes").counts.rows_by_key("table")
    assert rows["Kueue objects"] == [(5, 5, 0)]


# -- fields that are not read --------------------------------------------------------------------------------------


def test_a_misspelt_field_of_a_file_is_refused_with_the_closest_name(tmp_path):
    one = thing("ClusterQueue", "a", resourceGroups=groups(), preemptoin={"withinClusterQueue": "LowerPriority"})
    (tmp_path / "queues.json").write_text(json.dumps({"items": [one]}))
    with pytest.raises(TraceError, match=r"unknown field `preemptoin` of ClusterQueue; did you mean preemption\?"):
        read_kueue(tmp_path / "queues.json")


def test_fields_of_a_list_that_are_unknown_or_not_simulated_are_noted_with_their_count(folder):
    spec = {"resourceGroups": groups(), "preemptoin": {"x": 1}, "namespaceSelector": {"matchLabels": {"team": "cv"}},
            "admissionChecksStrategy": {"admissionChecks": [{"name": "dws", "onFlavors": ["h100"]}]}}  # fmt: skip
    more = [thing("ClusterQueue", name, **spec) for name in ("b", "c")]
    (folder / "more.json").write_text(json.dumps({"kind": "List", "items": more}))
    notes = fleetlab.read(folder, "kubernetes").notes
    assert "unknown field `preemptoin` of ClusterQueue; did you mean preemption? (2 objects)" in notes
    assert "`namespaceSelector` of ClusterQueue is not simulated (2 objects)" in notes
    assert "`onFlavors` of ClusterQueue is not simulated (2 objects)" in notes


def test_fair_sharing_is_read_from_the_config_map_of_kueues_controller(folder):
    text = "apiVersion: config.kueue.x-k8s.io/v1beta2\nkind: Configuration\nfairSharing: {enable: true}\n"
    about = {"name": "kueue-manager-config", "namespace": "kueue-system"}
    config = {
        "apiVersion": "v1",
        "kind": "ConfigMap",
        "metadata": about,
        "data": {"controller_manager_config.yaml": text},
    }
    (folder / "kueue-config.json").write_text(json.dumps(config))
    trace = fleetlab.read(folder, "kubernetes")
    assert trace.scheduler.fair_sharing.enable
    assert trace.counts.rows_by_key("table")["Kueue objects"] == [(6, 6, 0)]
