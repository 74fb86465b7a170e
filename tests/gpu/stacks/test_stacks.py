"""Each stack: what it holds is read again, what it does not hold is said, and what it writes has no traps."""

from dataclasses import replace
from pathlib import Path

import pytest
from hypothesis import given, settings
from hypothesis import strategies as st

from fleetlab.gpu.devices.console import BenchError
from fleetlab.gpu.sharing.mig.layouts import maximal_layouts
from fleetlab.gpu.sharing.modes import Share
from fleetlab.gpu.stacks import Spec, emit, lint, read
from fleetlab.gpu.stacks.formats import BY_NAME
from fleetlab.gpu.stacks.formats.format import dig
from fleetlab.gpu.stacks.reading import ALL, parse_documents, recognize
from fleetlab.gpu.stacks.spec import BY_NAME as MODELS
from fleetlab.gpu.stacks.spec import by_size, parse

pytest.importorskip("yaml")

GOLDEN = Path(__file__).parents[2] / "fixtures" / "share"
MEDIA = ("1g.18gb+me", "1g.18gb")
LAYOUTS = [MEDIA] + [
    tuple(p.profile.name for p in layout) for m in MODELS.values() if m.cut for layout in maximal_layouts(m.cut)[::7]
]
NAMES = st.from_regex(r"[a-z]([-a-z]{0,8}[a-z])?", fullmatch=True)
WORDS = {
    "name": NAMES.filter(lambda n: n not in ("mps", "all-disabled")),
    "namespace": NAMES,
    "queue": NAMES,
    "image": st.sampled_from(["example.com/tenant:1.0", "a/b@sha256:0f", "train"]),
    "node": st.sampled_from([(), (("nvidia.com/gpu.product", "NVIDIA-H200"),), (("a", ""), ("pool", "gpu"))]),
}


def attempt(verb, *nouns):
    """What comes of it, or the refusal."""
    try:
        return verb(*nouns)
    except BenchError as e:
        return e


def some(values):
    return st.none() | values


@st.composite
def shares(draw, mode):
    percent, memory = some(st.integers(1, 100)), some(st.integers(1, 15_000))
    priority = some(st.integers(0, 1)) if mode == "mps" else st.none()
    one = st.builds(Share, percent, memory, priority)
    least = 2 if mode == "time-slicing" else 1
    if draw(st.booleans()):
        return (draw(one),) * draw(st.integers(least, 48))
    return tuple(draw(st.lists(one, min_size=least, max_size=6)))


@st.composite
def specs(draw):
    mode = draw(st.sampled_from(["exclusive", "time-slicing", "mps", "mig"]))
    words = {key: draw(value) for key, value in WORDS.items()}
    if mode == "mig":
        return Spec(mode, layout=by_size(draw(st.sampled_from(LAYOUTS))), turns=draw(st.integers(1, 4)), **words)
    tenants = (Share(),) if mode == "exclusive" else draw(shares(mode))
    interval = draw(st.sampled_from(["default", "short", "long"])) if mode == "time-slicing" else "default"
    return Spec(mode, tenants, gpu=draw(st.sampled_from([None, *MODELS])), interval=interval, **words)


@pytest.mark.parametrize("to", BY_NAME)
@settings(deadline=None, max_examples=40)
@given(spec=specs())
def test_what_a_stack_holds_is_read_again_and_the_rest_is_said(to, spec):
    stack = BY_NAME[to]
    held = attempt(stack.hold, spec)
    if isinstance(held, BenchError):
        assert "cannot express it: " in str(held)
        assert held.hint
        return
    text = stack.write(held)
    documents = parse_documents(text, to)
    assert recognize(documents) == to
    assert stack.read(documents) == held
    assert stack.hold(held) == held
    emitted = emit(spec, to=to)
    assert emitted.text == text
    assert (emitted.losses == ()) == (spec == held)
    assert all(loss.requested != loss.kept and loss.why for loss in emitted.losses)
    traps = [f for rule in ALL for f in rule(documents, None) if f.severity != "note" and f.code != "DP07"]
    assert traps == []


@settings(deadline=None, max_examples=40)
@given(spec=specs())
def test_a_promise_that_is_lost_has_a_reason(spec):
    for to in BY_NAME:
        emitted = attempt(lambda: emit(spec, to=to))  # noqa: B023
        if isinstance(emitted, BenchError):
            continue
        assert all(one.why for one in emitted.guarantees if one.lost)
        assert [e.value for e in emitted.summary()] == [len(emitted.losses), sum(p.lost for p in emitted.guarantees)]


EACH = [
    (spec.stem, file.suffix.removeprefix(".") and file.name.partition(".")[0])
    for spec in sorted(GOLDEN.glob("*.toml"))
    for file in sorted((GOLDEN / spec.stem).iterdir())
]


@pytest.mark.parametrize(("name", "to"), EACH)
def test_a_known_spec_gives_a_known_file(name, to):
    spec = parse((GOLDEN / f"{name}.toml").read_text("utf-8"), name)
    found = next((GOLDEN / name).glob(f"{to}.*"))
    assert emit(spec, to=to).text == found.read_text("utf-8")
    assert read(found).spec == BY_NAME[to].hold(spec)


def test_every_stack_has_a_known_file():
    assert {to for _, to in EACH} == set(BY_NAME)


# Files as their stacks' own guides write them: not by us, and so not the way we write.
STRANGERS = {
    "device-plugin": (
        """
version: v1
sharing:
  timeSlicing:
    resources: [{name: nvidia.com/gpu, replicas: 10}]
""",
        Spec("time-slicing", (Share(),) * 10),
    ),
    "mig-parted": (
        """
version: v1
mig-configs:
  all-enabled:
  - {devices: all, mig-enabled: true, mig-devices: {"1g.5gb": 2, "2g.10gb": 1, "3g.20gb": 1},
     device-filter: ["0x20B010DE", "0x20B110DE"]}
""",
        Spec("mig", layout=("3g.20gb", "2g.10gb", "1g.5gb", "1g.5gb"), gpu="A100-40", name="all-enabled"),
    ),
    "dra": (
        """
apiVersion: resource.k8s.io/v1
kind: ResourceClaimTemplate
metadata: {namespace: gpu-lab, name: shared-gpu}
spec:
  spec:
    devices:
      requests: [{name: gpu, exactly: {deviceClassName: gpu.nvidia.com}}]
      config:
      - requests: [gpu]
        opaque:
          driver: gpu.nvidia.com
          parameters:
            apiVersion: resource.nvidia.com/v1beta1
            kind: GpuConfig
            sharing:
              strategy: MPS
              mpsConfig: {defaultActiveThreadPercentage: 50, defaultPinnedDeviceMemoryLimit: 10Gi}
""",
        Spec("mps", (Share(50, 10240),), namespace="gpu-lab"),
    ),
    "hami": (
        """
apiVersion: apps/v1
kind: Deployment
metadata: {name: tenants}
spec:
  replicas: 3
  template:
    spec:
      containers:
      - name: main
        image: train:1
        resources: {limits: {nvidia.com/gpu: "1", nvidia.com/gpumem: "20000", nvidia.com/gpucores: "30"}}
""",
        Spec("time-slicing", (Share(30, 20000),) * 3, image="train:1"),
    ),
    "volcano": (
        """
apiVersion: batch/v1
kind: Job
spec:
  parallelism: 2
  template:
    spec:
      schedulerName: volcano
      containers:
      - resources: {limits: {volcano.sh/vgpu-number: 1, volcano.sh/vgpu-memory: 3000}}
""",
        Spec("time-slicing", (Share(None, 3000),) * 2),
    ),
    "kai": (
        """
apiVersion: v1
kind: Pod
metadata: {name: gpu-sharing, labels: {kai.scheduler/queue: team}, annotations: {gpu-fraction: "0.5"}}
spec: {schedulerName: kai-scheduler, containers: [{name: main, image: train:1}]}
""",
        Spec("time-slicing", (Share(),) * 2, name="gpu-sharing", queue="team", image="train:1"),
    ),
    "kueue": (
        """
apiVersion: kueue.x-k8s.io/v1beta2
kind: ClusterQueue
metadata: {name: hami-queue}
spec:
  namespaceSelector: {}
  resourceGroups:
  - coveredResources: [nvidia.com/gpu, nvidia.com/total-gpucores, nvidia.com/total-gpumem]
    flavors:
    - name: hami-flavor
      resources:
      - {name: nvidia.com/gpu, nominalQuota: 4}
      - {name: nvidia.com/total-gpucores, nominalQuota: "200"}
      - {name: nvidia.com/total-gpumem, nominalQuota: 10240}
""",
        Spec("time-slicing", (Share(50, 2560),) * 4, name="hami-queue"),
    ),
    "compose": (
        """
services:
  a:
    image: train:1
    environment: [CUDA_MPS_PIPE_DIRECTORY=/tmp/nvidia-mps, CUDA_MPS_ACTIVE_THREAD_PERCENTAGE=40]
    deploy: {resources: {reservations: {devices: [{count: 1, capabilities: [gpu]}]}}}
  web:
    image: nginx
""",
        Spec("mps", (Share(40),), name="a", image="train:1"),
    ),
    "env": (
        "export CUDA_MPS_PIPE_DIRECTORY='/tmp/mps'\nCUDA_MPS_PINNED_DEVICE_MEM_LIMIT=0=8G\n",
        Spec("mps", (Share(None, 8192),)),
    ),
    "gpu-operator": (
        """
apiVersion: v1
kind: ConfigMap
metadata: {name: time-slicing-config-all, namespace: gpu-operator}
data:
  any: |-
    version: v1
    flags:
      migStrategy: none
    sharing:
      timeSlicing:
        resources:
        - name: nvidia.com/gpu
          replicas: 4
""",
        Spec("time-slicing", (Share(),) * 4, name="time-slicing-config-all", namespace="gpu-operator"),
    ),
}


@pytest.mark.parametrize("stack", BY_NAME)
def test_a_file_that_others_wrote_is_known_and_read(stack, written):
    text, spec = STRANGERS[stack]
    found = read(written(text))
    assert (found.stack, found.spec) == (stack, spec)


UNREADABLE = {
    "two claims": "{kind: ResourceClaim, apiVersion: resource.k8s.io/v1}\n---\n{kind: ResourceClaim, spec: 3}",
    "two layouts": "version: v1\nmig-configs: {x: [{mig-enabled: true}, {mig-enabled: true}]}",
    "no instances": "version: v1\nmig-configs: {x: [{mig-enabled: true, mig-devices: {}}]}",
    "an impossible layout": 'version: v1\nmig-configs: {x: [{mig-enabled: true, mig-devices: {"3g.71gb": 9}}]}',
    "a thousand replicas": "sharing: {timeSlicing: {resources: [{name: gpu, replicas: 1000}]}}",
    "words for numbers": "sharing: {timeSlicing: {resources: [{name: gpu, replicas: four}]}}",
    "gpus and parts": "sharing: {timeSlicing: {resources: "
    "[{name: gpu, replicas: 2}, {name: mig-1g.5gb, replicas: 2}]}}",
    "one replica": "sharing: {timeSlicing: {resources: [{name: gpu, replicas: 1}]}}",
    "services of nothing": "services: {a: {image: x}}",
    "MIG devices by index": "services: {a: {deploy: {resources: {reservations: {devices: "
    "[{device_ids: ['0:0'], capabilities: [gpu]}]}}}}}",
    "a part of an unknown GPU": "{kind: Pod, spec: {containers: "
    "[{resources: {limits: {nvidia.com/gpumem-percentage: 50}}}]}}",
    "no queue": "apiVersion: kueue.x-k8s.io/v1beta2\nkind: LocalQueue",
    "a pod of nobody": "kind: Pod\nspec: {containers: [{name: x}]}",
    "something else": "a: 1",
    "an environment of another kind": "PATH=/bin",
    "a huge percentage": "CUDA_MPS_ACTIVE_THREAD_PERCENTAGE=900",
}


@pytest.mark.parametrize("text", UNREADABLE.values(), ids=UNREADABLE)
def test_what_no_spec_can_say_is_refused_with_a_hint(text, written):
    with pytest.raises(BenchError) as caught:
        read(written(text))
    assert str(caught.value).startswith("file.yaml: ")
    assert caught.value.hint


@pytest.mark.parametrize("junk", [None, 3, "x", [], [None], {"a": None}, True])
@pytest.mark.parametrize(
    "shape",
    [
        lambda j: {"sharing": j},
        lambda j: {"sharing": {"mps": j, "timeSlicing": {"resources": j}}},
        lambda j: {"sharing": {"mps": {"resources": [j]}}},
        lambda j: {"version": j, "mig-configs": j},
        lambda j: {"mig-configs": {"x": [j]}},
        lambda j: {"mig-configs": {"x": [{"mig-enabled": True, "mig-devices": j, "device-filter": j}]}},
        lambda j: {"kind": "ResourceClaim", "spec": j},
        lambda j: {"kind": "ResourceClaim", "spec": {"devices": {"requests": j, "config": [j]}}},
        lambda j: {"kind": "ResourceClaim", "spec": {"devices": {"requests": [j], "config": [{"opaque": j}]}}},
        lambda j: {"kind": "Pod", "metadata": j, "spec": {"schedulerName": "kai-scheduler", "containers": j}},
        lambda j: {"kind": "Pod", "metadata": {"annotations": j}, "spec": {"containers": [j]}},
        lambda j: {"kind": "Pod", "spec": {"containers": [{"resources": {"limits": {"nvidia.com/gpumem": j}}}]}},
        lambda j: {"kind": "Pod", "spec": {"containers": [{"resources": {"limits": {"volcano.sh/vgpu-memory": j}}}]}},
        lambda j: {"kind": "Pod", "metadata": {"annotations": {"gpu-fraction": j, "gpu-memory": j}}, "spec": j},
        lambda j: {"kind": "Deployment", "spec": {"replicas": j, "template": j}},
        lambda j: {"kind": "ClusterQueue", "apiVersion": "kueue.x-k8s.io/v1beta2", "spec": {"resourceGroups": j}},
        lambda j: {"kind": "Configuration", "apiVersion": "config.kueue.x-k8s.io/v1beta2", "resources": j},
        lambda j: {"kind": "ConfigMap", "data": j},
        lambda j: {"kind": "ConfigMap", "data": {"any": "sharing: [", "x": j}},
        lambda j: {"kind": "ResourceQuota", "spec": {"hard": j}},
        lambda j: {"services": {"a": j}},
        lambda j: {"services": {"a": {"environment": j, "volumes": j, "command": j, "deploy": j, "user": j}}},
        lambda j: {"services": {"a": {"environment": {"CUDA_MPS_PIPE_DIRECTORY": "/x"}, "volumes": [j]}}},
        lambda j: {"featureGates": {"MPSSupport": j}, "consumableShares": j},
        lambda j: {"kind": j, "spec": {"containers": []}},
    ],
)
def test_whatever_a_stranger_wrote_is_an_answer_or_a_refusal(shape, junk, written):
    import json

    path = written(json.dumps(shape(junk)))
    for verb in (read, lint):
        assert str(attempt(verb, path))


MANY = 10**24
CROWD = {"containers": [{"resources": {"limits": {"nvidia.com/gpumem": 9}}}]}
VOLCANO = {"containers": [{"resources": {"limits": {"volcano.sh/vgpu-memory": 9}}}]}


@pytest.mark.parametrize(
    "document",
    [
        {"sharing": {"timeSlicing": {"resources": [{"name": "nvidia.com/gpu", "replicas": MANY}]}}},
        {"kind": "Deployment", "spec": {"replicas": MANY, "template": {"spec": CROWD}}},
        {"kind": "Deployment", "spec": {"replicas": MANY, "template": {"spec": VOLCANO}}},
    ],
    ids=["device-plugin", "hami", "volcano"],
)
def test_more_tenants_than_a_card_can_have_take_no_memory(document, written):
    import json

    with pytest.raises(BenchError, match="more than 100"):
        read(written(json.dumps(document)))


def test_the_v100_has_room_for_sixteen_clients_in_the_plugin_and_no_more():
    spec = Spec("mps", (Share(),) * 16, gpu="V100-16")
    assert "replicas: 16" in emit(spec, to="device-plugin").text
    with pytest.raises(BenchError, match="17 replicas under MPS on V100-16, but the plugin allows 16"):
        emit(replace(spec, tenants=(Share(),) * 17), to="device-plugin")
    assert "replicas: 17" in emit(replace(spec, tenants=(Share(),) * 17, gpu="T4"), to="device-plugin").text


def test_the_plugin_gives_each_of_three_a_third_rounded_down():
    emitted = emit(Spec("mps", (Share(40),) * 3), to="device-plugin")
    assert emitted.kept.tenants == (Share(33),) * 3
    assert [(x.part, x.requested, x.kept) for x in emitted.losses] == [("percent", "40", "33")]


def test_a_claim_holds_all_to_the_largest_limit_and_a_pod_tightens_its_own():
    text = emit(Spec("mps", (Share(50, 200), Share(20, 200))), to="dra").text
    assert "defaultActiveThreadPercentage: 50" in text
    assert text.count("CUDA_MPS_ACTIVE_THREAD_PERCENTAGE") == 1
    assert 'defaultPinnedDeviceMemoryLimit: "200Mi"' in text
    assert "CUDA_MPS_PINNED_DEVICE_MEM_LIMIT" not in text


def test_a_pod_that_asks_for_cpu_and_memory_besides_gets_through_the_queue():
    text = emit(Spec("time-slicing", (Share(),) * 2), to="kueue").text
    covered = dig(parse_documents(text, "x")[1], "spec", "resourceGroups", 0, "coveredResources")
    assert covered == ["cpu", "memory", "nvidia.com/gpu.shared"]


def test_a_queue_with_a_group_of_its_own_for_cpu_is_read():
    text = emit(Spec("time-slicing", (Share(),) * 2), to="kueue").text
    documents = parse_documents(text, "x")
    documents[1]["spec"]["resourceGroups"].insert(
        0, {"flavors": [{"name": "cpu", "resources": [{"name": "cpu", "nominalQuota": 8}]}]}
    )
    assert BY_NAME["kueue"].read(documents) == Spec("time-slicing", (Share(),) * 2)


def test_a_map_for_the_operator_lies_where_the_operator_looks():
    emitted = emit(Spec("time-slicing", (Share(),) * 2), to="gpu-operator")
    assert "namespace: gpu-operator\n" in emitted.text
    assert [(x.part, x.requested, x.kept) for x in emitted.losses] == [("namespace", "default", "gpu-operator")]
    assert "namespace: gpu-lab\n" in emit(replace(emitted.spec, namespace="gpu-lab"), to="gpu-operator").text


def test_a_format_that_is_not_there_is_refused():
    with pytest.raises(BenchError, match="unknown format: `slurm`"):
        emit(Spec("exclusive", (Share(),)), to="slurm")
