"""A Kubernetes cluster's own lists."""

import copy
import gzip
import json
from fractions import Fraction

import pytest
from hypothesis import HealthCheck, given, settings
from hypothesis import strategies as st

import fleetlab
from fleetlab.core import TraceError
from fleetlab.schedulers.kubernetes.reader.nodes import NodeGpus, gpu_request, slice_of
from fleetlab.schedulers.kubernetes.reader.objects import MalformedObject, quantity

A100 = NodeGpus(memory=40_000, product="NVIDIA-A100-SXM4-40GB")


@pytest.fixture
def good(fixtures):
    return fleetlab.read(fixtures / "kubernetes" / "good", "kubernetes")


def pod(name="p", phase="Succeeded", **other):
    about = {"name": name, "namespace": "ml", "uid": name, "creationTimestamp": "2024-05-01T10:00:00Z"}
    ended = {"state": {"terminated": {"finishedAt": "2024-05-01T10:01:10Z"}}}
    status = {"phase": phase, "startTime": "2024-05-01T10:00:10Z", "containerStatuses": [ended]}
    spec = {"nodeName": "n1", "containers": [{"resources": {"requests": {"cpu": "1", "nvidia.com/gpu": "1"}}}]}
    return {"kind": "Pod", "metadata": about, "spec": spec | other, "status": status}


def requests(**resources):
    return {"containers": [{"resources": {"requests": resources}}]}


def listed(*items):
    return json.dumps({"apiVersion": "v1", "items": items, "kind": "List"})


@pytest.fixture
def read(tmp_path):
    """Write objects, or the text of a file, and read them."""

    def write(*items, name="all.json"):
        data = items[0] if isinstance(items[0], bytes) else listed(*items).encode()
        (tmp_path / name).write_bytes(data)
        return fleetlab.read(tmp_path / name, "kubernetes")

    return write


# -- pods ----------------------------------------------------------------------------------------------------------


def test_gpus_of_every_make_become_milli(good):
    names = dict(good.names.collect().iter_rows())
    frame = good.workload.frame.select("job", "gpu_milli", "gpu_memory_mib")
    assert {names[job]: (milli, memory) for job, milli, memory in frame.iter_rows() if milli} == {
        "ml/train": (4000, 0),
        "ml/web-5d8f7c9b6d-x2x7z": (250, 0),  # one of four shares
        "ml/three-shares": (750, 0),
        "ml/slice": (142, 9536),  # 1g.10gb
        "ml/on-single": (428, 19_073),  # 3g.20gb, which the device plugin calls a GPU there
        "ml/cores": (300, 8192),
        "ml/by-memory": (245, 8000),  # of 32,768
        "ml/fraction": (500, 0),
        "ml/pulling": (2000, 0),
        "ml/pushed-out": (1000, 0),
    }


def test_pods_of_a_group_that_ask_for_the_same_are_a_gang_and_the_others_jobs_of_its_job(good):
    frame = good.workload.frame.select("parent", "instances", "gpu_milli", "start", "runtime", "app")
    assert frame.rows()[:2] == [(0, 2, 4000, 120, 3540, "llm"), (0, 1, 0, 60, 3600, None)]


def test_sidecars_stay_initialisers_pass_and_overhead_is_added(good):
    # CPU: the initialiser's 1000 beside the sidecar's 200, and 10; memory: both containers' and 64 MiB.
    assert good.workload.frame.select("cpu_milli", "memory_mib").row(2) == (1210, 2077)


def test_what_runs_or_waits_has_no_end(good):
    frame = good.workload.frame.select("status", "start", "end")
    assert [row for row in frame.iter_rows() if row[2] is None] == [
        ("running", 185, None),
        ("waiting", None, None),
        ("running", 605, None),  # it pulls its images and holds its node
        ("running", 630, None),
    ]


def test_a_pod_that_was_pushed_out_is_cancelled_and_one_that_broke_is_failed(good):
    names = dict(good.names.collect().iter_rows())
    found = {names[job]: status for job, status in good.workload.frame.select("job", "status").iter_rows()}
    assert (found["ml/pushed-out"], found["ml/slice"]) == ("cancelled", "failed")


def test_a_static_pod_was_there_when_it_started_and_not_when_the_server_heard_of_it(good):
    frame = good.workload.frame.select("user", "submit", "start", "group")
    assert frame.row(10) == ("kube-system", 630, 630, None)


def test_who_made_it_is_named_without_what_changes_each_time(good):
    assert good.workload.frame["group"].to_list()[:3] == ["train", "train", "web"]


def test_types_of_gpu_are_called_as_the_nodes_that_have_them(good):
    assert good.workload.frame["gpu_types"].to_list()[8] == ["NVIDIA-H100-80GB-HBM3", "Tesla-T4"]


def test_each_pod_that_was_bound_is_a_placement(good):
    placed = good.placements.collect()
    assert placed.select("job", "worker", "node").rows()[:3] == [(0, 0, "a100"), (0, 1, "a100"), (1, 0, "cpu")]
    assert placed.height == 12


def test_nothing_is_lost(good):
    assert sorted(good.counts.rows()) == [("nodes", 6, 6, 0), ("pods", 13, 13, 0)]


def test_each_bad_object_is_turned_away_for_its_own_reason(fixtures):
    trace = fleetlab.read(fixtures / "kubernetes" / "bad", "kubernetes")
    requests = "spec.containers.resources.requests"
    assert trace.rejects.select("table", "line", "reason").rows() == [
        ("nodes", 25, "superseded by a later object of the same name: n1"),
        ("nodes", 27, "`status.allocatable.cpu` is not a quantity: lots (n3)"),
        ("nodes", 28, "`status.allocatable` is not an object: a list (n4)"),
        ("nodes", 29, "`gpus` is more than any node has: 1000000000 (n5)"),
        ("other objects", 20, "neither a pod nor a node: Service (web)"),
        ("other objects", 21, "neither a pod nor a node: nothing"),
        ("pods", 4, "superseded by a later object of the same name: ml/ok"),
        ("pods", 6, "`metadata.labels` is not an object: a list (ml/p3)"),
        ("pods", 7, "no `metadata.creationTimestamp`: ml/p4"),
        ("pods", 8, "`metadata.creationTimestamp` is not a time: yesterday (ml/p5)"),
        ("pods", 9, "`spec.containers` is not a list: many (ml/p6)"),
        ("pods", 10, f"`{requests}.cpu` is not a quantity: banana (ml/p7)"),
        ("pods", 11, f"`{requests}.cpu` is negative or larger than Kubernetes allows: -1 (ml/p8)"),
        ("pods", 12, f"`{requests}.memory` is negative or larger than Kubernetes allows: 1e999 (ml/p9)"),
        ("pods", 13, "`gpus` is more than any node has: 1000000000000 (ml/p10)"),
        ("pods", 14, "unknown phase: Exploded (ml/p11)"),
        ("pods", 15, "scheduled before it was created: by 60 s (ml/p12)"),
        ("pods", 16, "ended before it started: by 30 s (ml/p13)"),
        ("pods", 17, "`spec.priority` is not a whole number: high (ml/p14)"),
        ("pods", 18, "`metadata.ownerReferences` is not a list: an object (ml/p15)"),
        (
            "pods",
            19,
            "a placeholder that reserves a GPU for pods counted separately: kai-resource-reservation/gpu-reservation-1",
        ),
        ("pods", 22, "no `metadata.name`"),
        ("pods", 23, "`spec.nodeSelector.nvidia.com/gpu.product` is not a text: 7 (ml/p20)"),
        ("pods", 24, "`metadata.annotations.gpu-fraction` is not a quantity: half (ml/p21)"),
    ]


def test_a_pod_asking_for_shares_of_more_than_a_gpu_gets_whole_ones_and_it_is_said(read):
    trace = read(pod(**requests(**{"nvidia.com/gpu": "2", "nvidia.com/gpucores": "60"})))
    assert trace.workload.frame["gpu_milli"].to_list() == [2000]
    assert any("rounded up" in note for note in trace.notes)


HAMI = {"nvidia.com/gpumem": "20000", "nvidia.com/gpucores": "30"}
TWO_V100 = {
    "kind": "Node",
    "metadata": {"name": "n1", "labels": {"nvidia.com/gpu.memory": "32768"}},
    "status": {"allocatable": {"cpu": "64", "nvidia.com/gpu": "2"}},
}


@pytest.mark.parametrize("containers", [[{"nvidia.com/gpu": "2"} | HAMI], [{"nvidia.com/gpu": "1"} | HAMI] * 2])
def test_shares_of_two_gpus_are_two_whole_ones_with_the_memory_of_each(read, containers):
    trace = read(TWO_V100, pod(containers=[{"resources": {"limits": c}} for c in containers]))
    assert trace.workload.frame.select("gpu_milli", "gpu_memory_mib").rows() == [(2000, 20_000)]
    assert any("rounded up" in note for note in trace.notes)


def test_a_fraction_of_each_of_two_devices_is_two_whole_gpus_and_it_is_said(read):
    kai = pod(**requests(cpu="1"))
    kai["metadata"]["annotations"] = {"gpu-fraction": "0.4", "gpu-fraction-num-devices": "2"}
    trace = read(kai)
    assert trace.workload.frame["gpu_milli"].to_list() == [2000]
    assert any("rounded up" in note for note in trace.notes)


def test_a_share_by_memory_of_a_gpu_of_unknown_size_is_a_whole_one_and_it_is_said(read):
    trace = read(pod(**requests(**{"aliyun.com/gpu-mem": "4"})))
    assert trace.workload.frame.select("gpu_milli", "gpu_memory_mib").rows() == [(1000, 4096)]
    assert any("unknown size" in note and "would give" in note for note in trace.notes)
    assert trace.series["unsized"].collect()["job"].to_list() == [0]


def test_a_size_that_the_nodes_do_not_tell_either_is_not_said_to_be_theirs_to_tell(read):
    node = {"kind": "Node", "metadata": {"name": "n1"}, "status": {"allocatable": {"cpu": "8", "nvidia.com/gpu": "1"}}}
    notes = read(pod(**requests(**{"aliyun.com/gpu-mem": "4"})), node).notes
    assert any("unknown size" in note and "does not give it" in note for note in notes)


def test_nodes_that_take_no_new_pods_are_there_and_counted(read):
    def node(name, status="True", **spec):
        about = {"allocatable": {"cpu": "8"}, "conditions": [{"type": "Ready", "status": status}]}
        return {"kind": "Node", "metadata": {"name": name}, "spec": spec, "status": about}

    trace = read(pod(), node("n1"), node("n2", unschedulable=True), node("n3", status="Unknown"))
    assert len(trace.cluster) == 3
    assert "2 nodes were cordoned or not ready when the list was made: counted as available" in trace.notes


def affinity(*terms):
    required = {"nodeSelectorTerms": [{"matchExpressions": list(term)} for term in terms]}
    return {"affinity": {"nodeAffinity": {"requiredDuringSchedulingIgnoredDuringExecution": required}}}


@pytest.mark.parametrize(
    ("spec", "constraint"),
    [
        ({}, "!taint:team=a:NoSchedule"),
        ({"tolerations": [{"operator": "Exists"}]}, None),
        ({"tolerations": [{"key": "team", "value": "a"}], "nodeSelector": {"zone": "z1"}}, "zone=z1"),
        ({"tolerations": [{"key": "team", "value": "b"}]}, "!taint:team=a:NoSchedule"),
        ({"nodeSelector": {"zone": "z1", "disk": "ssd"}}, "zone=z1&disk=ssd&!taint:team=a:NoSchedule"),
        (
            affinity(
                [{"key": "zone", "operator": "In", "values": ["z1", "z2"]}, {"key": "old", "operator": "DoesNotExist"}]
            ),
            "((zone=z1|zone=z2)&!old)&!taint:team=a:NoSchedule",
        ),
        (
            affinity([{"key": "zone", "operator": "NotIn", "values": ["z1"]}], [{"key": "disk", "operator": "Exists"}]),
            "(!zone=z1|disk)&!taint:team=a:NoSchedule",
        ),
        ({"nodeSelector": {"kubernetes.io/hostname": "n1"}}, "!taint:team=a:NoSchedule"),
        ({"nodeSelector": {"nvidia.com/gpu.product": "T4"}}, "!taint:team=a:NoSchedule"),
    ],
)
def test_selectors_affinity_and_tolerations_are_a_constraint(read, spec, constraint):
    def node(name, labels, *taints):
        about = {"allocatable": {"cpu": "8", "nvidia.com/gpu": "1"}}
        return {
            "kind": "Node",
            "metadata": {"name": name, "labels": labels},
            "spec": {"taints": list(taints)},
            "status": about,
        }

    passing = {"key": "node.kubernetes.io/unschedulable", "effect": "NoSchedule"}
    team = {"key": "team", "value": "a", "effect": "NoSchedule"}
    trace = read(node("n1", {"zone": "z1", "unasked": "1"}, team), node("n2", {"zone": "z2"}, passing), pod(**spec))
    assert trace.workload.frame["constraint"].to_list() == [constraint]
    features = dict(trace.cluster.frame.select("node", "features").iter_rows())
    asks = "zone" in (constraint or "")
    zones = {"n1": ["zone", "zone=z1"], "n2": ["zone", "zone=z2"]} if asks else {"n1": [], "n2": []}
    assert features == {"n1": sorted([*zones["n1"], "taint:team=a:NoSchedule"]), "n2": zones["n2"]}
    pinned = "kubernetes.io/hostname" in str(spec)
    assert any("select a node by its name" in note for note in trace.notes) == pinned


def test_an_operator_that_does_not_exist_is_turned_away_and_not_passed_over(read):
    near = affinity([{"key": "zone", "operator": "Near", "values": ["z1"]}])
    (reason,) = read(pod("a"), pod("b", **near)).rejects["reason"]
    assert reason.startswith("`spec.affinity.operator` is none of In, NotIn, Exists, DoesNotExist, Gt, Lt: Near")


def test_the_queue_of_a_pod_is_a_label(read):
    queued = pod()
    queued["metadata"]["labels"] = {"kueue.x-k8s.io/queue-name": "research"}
    assert read(queued).workload.frame["queue"].to_list() == ["research"]


def test_devices_that_the_list_does_not_tell_are_named_in_the_notes(read):
    trace = read(pod(resourceClaims=[{"name": "gpu"}]))
    assert any("1 pods request devices by ResourceClaim" in note for note in trace.notes)


def device_claim(kind, name, **request):
    devices = {"devices": {"requests": [{"name": "gpu", **request}]}}
    spec = {"spec": devices} if kind == "ResourceClaimTemplate" else devices
    return {"kind": kind, "metadata": {"name": name, "namespace": "ml"}, "spec": spec}


CPU_ALONE = {"containers": [{"resources": {"requests": {"cpu": "1"}}}]}


@pytest.mark.parametrize("request_", [
    {"exactly": {"deviceClassName": "gpu.nvidia.com", "count": 4}},
    {"deviceClassName": "gpu.nvidia.com", "allocationMode": "ExactCount", "count": 4},  # v1beta1
    {"firstAvailable": [{"deviceClassName": "gpu-h100", "count": 4}, {"deviceClassName": "gpu-a100", "count": 8}]},
])  # fmt: skip
def test_claims_by_template_count_the_gpus_that_they_request(read, request_):
    claims = [{"name": "gpus", "resourceClaimTemplateName": "four"}]
    template = device_claim("ResourceClaimTemplate", "four", **request_)
    trace = read(pod("a", **CPU_ALONE, resourceClaims=claims), pod("b", **CPU_ALONE, resourceClaims=claims), template)
    assert trace.workload.frame["gpu_milli"].to_list() == [4000, 4000]
    assert not any("ResourceClaim" in note for note in trace.notes)
    assert trace.rejects.is_empty()


def test_a_claim_that_several_pods_share_counts_once(read):
    claims = [{"name": "gpus", "resourceClaimName": "ours"}]
    claim = device_claim("ResourceClaim", "ours", exactly={"deviceClassName": "gpu.nvidia.com"})
    trace = read(claim, pod("a", **CPU_ALONE, resourceClaims=claims), pod("b", **CPU_ALONE, resourceClaims=claims))
    assert sorted(trace.workload.frame["gpu_milli"].to_list()) == [0, 1000]


def test_claims_of_slices_of_a_gpu_are_named_and_not_counted(read):
    claim = device_claim("ResourceClaim", "ours", exactly={"deviceClassName": "mig.nvidia.com"})
    trace = read(claim, pod("a", **CPU_ALONE, resourceClaims=[{"name": "gpus", "resourceClaimName": "ours"}]))
    assert any("1 pods request devices by ResourceClaim" in note for note in trace.notes)


@pytest.mark.parametrize("is_beta", [False, True])
def test_a_node_has_the_gpus_of_its_slices(read, is_beta):
    node = {"kind": "Node", "metadata": {"name": "n1"}, "status": {"allocatable": {"cpu": "8", "memory": "1Gi"}}}
    about = {"attributes": {"type": {"string": "gpu"}, "productName": {"string": "NVIDIA H100 80GB HBM3"}},
             "capacity": {"memory": {"value": "80Gi"}}}  # fmt: skip
    devices = [{"name": f"gpu-{k}", **({"basic": about} if is_beta else about)} for k in range(8)]
    part = {"name": "gpu-0-mig-0", "attributes": {"type": {"string": "mig"}}}
    spec = {"driver": "gpu.nvidia.com", "nodeName": "n1", "devices": [*devices, part]}
    trace = read(pod("a"), node, {"kind": "ResourceSlice", "metadata": {"name": "n1-gpu"}, "spec": spec})
    assert trace.cluster.frame.select("gpus", "gpu_type", "gpu_memory_mib").row(0) == (
        8,
        "NVIDIA-H100-80GB-HBM3",
        81920,
    )


def test_every_resource_that_is_not_known_is_named_with_how_many_pods_ask_for_it(read):
    common = {"cpu": "1", "hugepages-2Mi": "4Mi", "rdma/hca": "1", "nvidia.com/mig-1g.5gb": "1", "nvidia.com/gpu": "1"}
    ascend, gaudi = {"huawei.com/Ascend910": "8"}, {"habana.ai/gaudi": "2", "example.com/none": "0"}
    trace = read(pod("a", **requests(**common, **ascend)), pod("b", **requests(**common, **ascend, **gaudi)))
    told = "unknown resources, not counted: huawei.com/Ascend910 (2 pods), habana.ai/gaudi (1 pods)"
    assert told in trace.notes


def test_a_list_on_one_line_still_tells_which_pod_was_turned_away(read):
    trace = read(pod("a"), pod("b", phase="Exploded"))
    assert trace.rejects.select("line", "reason").rows() == [(1, "unknown phase: Exploded (ml/b)")]


def test_an_object_is_turned_away_by_the_line_it_begins_on_in_whichever_list(read):
    first, second = ({"kind": "List", "items": [pod(n), pod(n, phase="Exploded")]} for n in "ab")
    text = json.dumps(first, indent=1) + "\n" + json.dumps(second, indent=1)
    lines = text.split("\n")
    began = [k for k, line in enumerate(lines, 1) if line == "  {"]
    assert read(text.encode()).rejects["line"].to_list() == [began[1], began[3]]


def test_a_pod_that_ended_without_saying_when_is_kept(read):
    lost = pod(phase="Failed")
    lost["status"]["containerStatuses"] = None
    frame = read(lost).workload.frame
    assert frame.select("status", "start", "end", "runtime").rows() == [("failed", 10, None, None)]


# -- nodes ---------------------------------------------------------------------------------------------------------


def test_gpus_are_counted_whatever_they_are_advertised_as(good):
    columns = ("node", "gpu_type", "gpus", "gpu_memory_mib")
    assert good.cluster.frame.select(columns).rows() == [
        ("a100", "NVIDIA-A100-SXM4-80GB", 8, 81_920),
        ("t4", "Tesla-T4", 2, 15_360),  # eight shares
        ("mig", "NVIDIA-H100-80GB-HBM3", 2, 81_559),  # seven slices of one and two of the other
        ("single", "NVIDIA-A100-SXM4-40GB", 8, 39_936),  # sixteen slices
        ("hami", "V100", 2, 32_768),  # twenty by its scheduler
        ("cpu", None, 0, 0),
    ]


def test_the_rest_of_a_node_is_what_it_has_to_give(good):
    frame = good.cluster.frame.select("cpu_milli", "memory_mib", "disk_mib", "rdma_milli", "pool")
    assert frame.rows()[:2] == [
        (127_500, 1_031_798, 2**20, 4000, "NVIDIA-A100-SXM4-80GB"),
        (16_000, 65_536, 0, 0, "small"),
    ]


def test_nodes_are_found_beside_the_pods(fixtures):
    trace = fleetlab.read(fixtures / "kubernetes" / "good" / "pods.json", "kubernetes")
    assert len(trace.cluster) == 6


# -- files ---------------------------------------------------------------------------------------------------------


def test_one_list_may_hold_pods_and_nodes(read):
    trace = read({"kind": "Node", "metadata": {"name": "n1"}, "status": {"capacity": {"cpu": "4"}}}, pod())
    assert (len(trace.workload), trace.cluster.frame["cpu_milli"].to_list()) == (1, [4000])


def test_a_list_as_the_server_itself_writes_it_names_no_kinds_in_it(read):
    bare = pod()
    del bare["kind"]
    assert len(read(json.dumps({"kind": "PodList", "items": [bare]}).encode()).workload) == 1


def test_objects_may_follow_one_another(read):
    before, after = pod(phase="Running"), pod()
    frame = read(json.dumps(before).encode() + b"\n" + json.dumps(after, indent=2).encode()).workload.frame
    assert frame["status"].to_list() == ["completed"]


@pytest.mark.parametrize("encode", [gzip.compress, lambda data: data.decode().encode("utf-16")])
def test_a_list_may_be_gzipped_or_from_a_windows_shell(read, encode):
    assert len(read(encode(listed(pod()).encode())).workload) == 1


DEEP = b'{"kind": "List", "items": [{"kind": "Pod", "metadata": ' + b'{"a":' * 100_000


@pytest.mark.parametrize(
    ("data", "said"),
    [
        (listed(pod()).encode()[:-40], "not JSON, or truncated"),
        (listed(pod()).encode().replace(b'"uid"', b'"\xff"'), "not text"),
        (gzip.compress(listed(pod()).encode(), mtime=0)[:60], "truncated or damaged"),
        (DEEP, "nested too deep"),
        (b'{"kind": "Pod" "metadata"', "`}` expected"),
        (b"kind: Pod\n", "no `metadata.name`"),
        (b"", "no JSON list of pods"),
        (listed().encode(), "contains no pods"),
        (b'{"kind": "List", "items": [{"kind": "Pod", "n": ' + b"9" * 5000 + b"}]}", "not JSON, or truncated"),
    ],
)
def test_a_file_that_is_no_list_is_a_trace_error_that_says_why(read, data, said):
    with pytest.raises(TraceError, match=said):
        read(data)


anything = st.recursive(
    st.none()
    | st.booleans()
    | st.integers()
    | st.floats()
    | st.text(max_size=5)
    | st.sampled_from(["1e30", "-1", "7"]),
    lambda inner: st.lists(inner, max_size=3) | st.dictionaries(st.text(max_size=3), inner, max_size=3),
    max_leaves=5,
)


def places(value, path=()):
    """Every place in an object."""
    inside = value.items() if isinstance(value, dict) else enumerate(value) if isinstance(value, list) else ()
    for key, inner in inside:
        yield (*path, key)
        yield from places(inner, (*path, key))


@settings(max_examples=60, deadline=None, suppress_health_check=[HealthCheck.function_scoped_fixture])
@given(data=st.data())
def test_whatever_stands_in_an_object_it_is_kept_or_turned_away(fixtures, tmp_path, data):
    everything = []
    for name in ("pods", "nodes"):
        everything += json.loads((fixtures / "kubernetes" / "good" / f"{name}.json").read_text())["items"]
    items = copy.deepcopy(everything)
    for _ in range(data.draw(st.integers(1, 3))):
        *way, last = data.draw(st.sampled_from(list(places(items))))
        at = items
        for key in way:
            at = at[key]
        at[last] = data.draw(anything)
    (tmp_path / "all.json").write_text(listed(*items, pod("sound")))
    trace = fleetlab.read(tmp_path, "kubernetes")
    assert trace.counts["rows"].sum() == len(everything) + 1


# -- quantities and shares -----------------------------------------------------------------------------------------


@pytest.mark.parametrize(
    ("text", "value"),
    [
        ("100m", Fraction(1, 10)),
        ("1.5", Fraction(3, 2)),
        ("2Gi", 2**31),
        ("1G", 10**9),
        ("500M", 5 * 10**8),
        ("1e3", 1000),
        ("129e6", 129_000_000),
        ("128974848000m", 128_974_848),
        ("1E", 10**18),
        ("1E2", 100),
        ("1Ei", 2**60),
        ("5k", 5000),
        (".5", Fraction(1, 2)),
        ("3.", 3),
        ("+2", 2),
        (7, 7),
        (0.5, Fraction(1, 2)),
    ],
)
def test_a_quantity_is_read_exactly(text, value):
    assert quantity(text, "here") == value


@pytest.mark.parametrize(
    "value", ["", "banana", "1K", "-1", "1e999", "9" * 30, "1 Gi", None, True, [], float("inf"), 2**64]
)
def test_what_is_no_quantity_says_where(value):
    with pytest.raises(MalformedObject, match="`here` is"):
        quantity(value, "here")


SUFFIXES = {
    "": 1,
    "m": Fraction(1, 1000),
    "k": 1000,
    "M": 10**6,
    "Ki": 1024,
    "Mi": 2**20,
    "e3": 1000,
    "E-3": Fraction(1, 1000),
}


@given(st.integers(0, 10**9), st.integers(0, 999), st.sampled_from(sorted(SUFFIXES)))
def test_a_quantity_is_its_number_times_its_suffix(number, thousandths, suffix):
    found = quantity(f"{number}.{thousandths:03d}{suffix}", "here")
    assert found == (number + Fraction(thousandths, 1000)) * SUFFIXES[suffix]


@given(st.text(max_size=12) | st.from_regex(r"[+-]?[0-9.]{1,6}[a-zA-Z]{0,2}[0-9]{0,3}", fullmatch=True))
def test_any_text_is_a_quantity_that_counts_or_malformed(text):
    try:
        found = quantity(text, "here")
    except MalformedObject:
        return
    assert 0 <= found < 2**63


@pytest.mark.parametrize(
    ("resources", "milli", "memory"),
    [
        ({"nvidia.com/gpu": 2}, 2000, 0),
        ({"amd.com/gpu": 1, "gpu.intel.com/i915": 1}, 2000, 0),
        ({"nvidia.com/mig-2g.10gb": 1}, 285, 9536),
        ({"nvidia.com/mig-1g.5gb.me": 2}, 284, 9536),
        ({"nvidia.com/mig-7g.40gb": 1}, 1000, 0),
        ({"nvidia.com/mig-1c.3g.20gb": 1}, 142, 19_073),
        ({"nvidia.com/mig-1g.6gb": 1}, 250, 5722),  # of an A30, which has four slices
        ({"nvidia.com/gpumem": 10_000}, 250, 10_000),
        ({"nvidia.com/gpu": 1, "nvidia.com/gpumem-percentage": 50}, 500, 20_000),
        ({"nvidia.com/gpu": 2, "nvidia.com/gpumem": 4000, "nvidia.com/gpucores": 30}, 2000, 8000),
        ({"nvidia.com/gpu": 2, "nvidia.com/gpumem": 4000}, 2000, 8000),
        ({"nvidia.com/gpu": 2, "nvidia.com/gpumem-percentage": 50}, 2000, 40_000),
        ({"volcano.sh/vgpu-number": 1, "volcano.sh/vgpu-memory": 4000, "volcano.sh/vgpu-cores": 50}, 500, 4000),
        ({"aliyun.com/gpu-mem": 10}, 256, 10_240),
        ({"aliyun.com/gpu-mem": 10, "aliyun.com/gpu-core.percentage": 30}, 300, 10_240),
        ({"cpu": 4, "memory": 2**30}, 0, 0),
    ],
)
def test_each_stack_s_words_for_a_share(resources, milli, memory):
    found = gpu_request({name: Fraction(n) for name, n in resources.items()}, A100)
    assert (found.milli, found.memory) == (milli, memory)


@pytest.mark.parametrize(("shared", "milli"), [(1, 250), (3, 750), (4, 1000)])
def test_a_replica_is_that_part_of_a_gpu_by_either_name(shared, milli):
    card = NodeGpus(replicas=4)
    by_name = [
        gpu_request({name: Fraction(shared)}, card).milli for name in ("nvidia.com/gpu", "nvidia.com/gpu.shared")
    ]
    assert by_name == [milli, milli]


LAYOUTS = [["1g.5gb"] * 7, ["3g.20gb", "4g.20gb"], ["2g.10gb", "2g.10gb", "3g.20gb"], ["3g.20gb"] * 2, ["7g.40gb"]]


@pytest.mark.parametrize("layout", LAYOUTS)
def test_slices_that_fit_on_a_gpu_still_do(layout):
    parts = [slice_of(profile, A100.product) for profile in layout]
    assert (sum(p.milli for p in parts) <= 1000, sum(p.memory for p in parts) <= 40_960) == (True, True)
