"""Each trap, planted, is found where it lies; a file without traps has no findings."""

import re
from pathlib import Path

import pytest

import fleetlab.gpu.stacks.reading as rules
from fleetlab.gpu.devices.console import BenchError
from fleetlab.gpu.stacks import lint
from fleetlab.gpu.stacks.formats import device_plugin
from fleetlab.gpu.stacks.formats.format import traps

pytest.importorskip("yaml")

PLUGIN = """version: v1
flags: {migStrategy: none}
sharing:
  timeSlicing:
    renameByDefault: true
    failRequestsGreaterThanOne: true
    resources:
    - name: nvidia.com/gpu
      replicas: 4
"""
UNDER_MPS = PLUGIN.replace("timeSlicing", "mps")
CUT = """version: v1
mig-configs:
  half:
  - device-filter: ["0x233510DE", "0x233B10DE"]
    devices: all
    mig-enabled: true
    mig-devices: {"3g.71gb": 2}
"""
MAP = "apiVersion: v1\nkind: ConfigMap\nmetadata: {name: x, namespace: gpu-operator}\ndata:\n  KEY: |\n"
CLAIM = """apiVersion: resource.k8s.io/v1
kind: ResourceClaim
metadata: {name: shared}
spec:
  devices:
    requests:
    - {name: gpu, exactly: {deviceClassName: gpu.nvidia.com}}
    config:
    - requests: [gpu]
      opaque:
        driver: gpu.nvidia.com
        parameters:
          apiVersion: resource.nvidia.com/v1beta1
          kind: GpuConfig
          sharing: {strategy: TimeSlicing, timeSlicingConfig: {interval: Default}}
"""
CLAIM_MPS = CLAIM.replace(
    "{strategy: TimeSlicing, timeSlicingConfig: {interval: Default}}",
    "{strategy: MPS, mpsConfig: {defaultActiveThreadPercentage: 50, defaultPinnedDeviceMemoryLimit: 10Gi}}",
)
CLAIM_PARTS = CLAIM.replace("Name: gpu.nvidia", "Name: mig.nvidia").replace("GpuConfig", "MigDeviceConfig")
GATES = "featureGates: {TimeSlicingSettings: true, MPSSupport: true}\n---\n"
TEMPLATE = CLAIM.replace("ResourceClaim", "ResourceClaimTemplate").replace(
    "spec:\n  devices:", "spec:\n spec:\n  devices:"
)
USER = """---
apiVersion: v1
kind: Pod
metadata: {name: a}
spec:
  containers: [{name: main, image: x, resources: {claims: [{name: gpu}]}}]
  resourceClaims: [{name: gpu, resourceClaimTemplateName: shared}]
"""


def pod(limits, annotations="{}", labels="{}", scheduler="", more=""):
    named = f"schedulerName: {scheduler}\n  " if scheduler else ""
    return f"""apiVersion: v1
kind: Pod
metadata: {{name: a, annotations: {annotations}, labels: {labels}}}
spec:
  {named}containers:
  - name: main
    image: x
    resources: {{limits: {limits}}}
{more}"""


HAMI = pod("{nvidia.com/gpu: 1, nvidia.com/gpumem: 20000}")
VOLCANO = pod("{volcano.sh/vgpu-number: 1, volcano.sh/vgpu-memory: 20000}", scheduler="volcano")
QUEUE = "{kai.scheduler/queue: team}"
KAI = pod("{cpu: 1}", '{gpu-fraction: "0.5"}', QUEUE, "kai-scheduler")
NV = "nvidia.com/container.main.gpu-memory"


def kai(annotations, limits="{cpu: 1}", labels=QUEUE, scheduler="kai-scheduler"):
    return pod(limits, annotations, labels, scheduler)


KUEUE = """apiVersion: kueue.x-k8s.io/v1beta2
kind: ClusterQueue
metadata: {name: q}
spec:
  namespaceSelector: {}
  resourceGroups:
  - coveredResources: [cpu, memory]
    flavors: [{name: f, resources: [{name: cpu, nominalQuota: 64}, {name: memory, nominalQuota: 512Gi}]}]
  - coveredResources: [nvidia.com/gpu, nvidia.com/total-gpumem]
    flavors:
    - name: f
      resources:
      - {name: nvidia.com/gpu, nominalQuota: 4}
      - {name: nvidia.com/total-gpumem, nominalQuota: 100}
"""
CONFIGURATION = """apiVersion: config.kueue.x-k8s.io/v1beta2
kind: Configuration
resources:
  transformations:
  - {input: nvidia.com/gpumem, strategy: Replace, multiplyBy: nvidia.com/gpu, outputs: {nvidia.com/total-gpumem: "1"}}
"""
COMPOSE = """services:
  mps:
    image: x
    command: nvidia-cuda-mps-control -f
    user: "1000"
    ipc: host
    environment: {CUDA_MPS_PIPE_DIRECTORY: /mps/pipe}
    volumes: ["mps:/mps"]
    deploy: {resources: {reservations: {devices: [{count: 1, capabilities: [gpu]}]}}}
  a:
    image: x
    user: "1000"
    ipc: host
    environment: {CUDA_MPS_PIPE_DIRECTORY: /mps/pipe, CUDA_MPS_ACTIVE_THREAD_PERCENTAGE: "50"}
    volumes: [{type: volume, source: mps, target: /mps}]
    deploy: {resources: {reservations: {devices: [{count: 1, capabilities: [gpu]}]}}}
"""
ENV = "CUDA_MPS_PIPE_DIRECTORY=/tmp/mps\nCUDA_MPS_ACTIVE_THREAD_PERCENTAGE=50\nCUDA_MPS_PINNED_DEVICE_MEM_LIMIT=0=8G\n"
QUOTA = "apiVersion: v1\nkind: ResourceQuota\nmetadata: {name: q}\nspec: {hard: {KEY: '4'}}\n"

CLEAN = {
    "device plugin": PLUGIN,
    "mig-parted": CUT,
    "gpu operator": MAP.replace("KEY", "any") + "".join(f"    {line}\n" for line in PLUGIN.splitlines()),
    "gpu operator, layouts": MAP.replace("KEY", "config.yaml") + "".join(f"    {x}\n" for x in CUT.splitlines()),
    "claim": GATES + CLAIM,
    "claim of parts": GATES + CLAIM_PARTS.replace(", timeSlicingConfig: {interval: Default}", ""),
    "hami": HAMI,
    "hami, a whole GPU": pod("{nvidia.com/gpu: 1, nvidia.com/gpumem-percentage: 100, nvidia.com/gpucores: 100}"),
    "volcano": VOLCANO,
    "kai, a whole GPU": kai("{}", "{nvidia.com/gpu: 1}"),
    "kueue": KUEUE + "---\n" + CONFIGURATION,
    "compose": COMPOSE,
    "env": ENV,
    "quota": QUOTA.replace("KEY", "requests.nvidia.com/gpu.shared"),
    "helm values": "featureGates: {MPSSupport: true}\nconsumableShares: disabled\n",
}


@pytest.mark.parametrize("text", CLEAN.values(), ids=CLEAN)
def test_a_file_without_traps_has_no_findings(text, written):
    assert lint(written(text)).problems == ()


def changed(text, old, new):
    assert old in text
    return text.replace(old, new)


IN_MAP = "".join(f"    {line}\n" for line in changed(PLUGIN, "replicas: 4", "replicas: 1").splitlines())
# code, severity, a part of where, the file, and the GPU it is for
PLANTED = [
    ("DP01", "error", "resources[0].replicas", changed(PLUGIN, "replicas: 4", "replicas: 1")),
    ("DP01", "error", "resources[0].replicas", changed(PLUGIN, "replicas: 4", "replicas: '4'")),
    ("DP01", "error", "resources[0].replicas", changed(PLUGIN, "      replicas: 4\n", "")),
    ("DP02", "error", "version", changed(PLUGIN, "v1", "v2")),
    ("DP03", "warning", "resources[0].rename", changed(PLUGIN, "replicas: 4", "replicas: 4\n      rename: half")),
    ("DP04", "warning", "resources[0].devices", changed(PLUGIN, "replicas: 4", "replicas: 4\n      devices: [0]")),
    ("DP05", "warning", "sharing", PLUGIN + UNDER_MPS.partition("sharing:\n")[2]),
    ("DP06", "error", "resources[0].name", changed(UNDER_MPS, "com/gpu", "com/mig-1g.18gb")),
    ("DP06", "error", "resources[0].name", changed(UNDER_MPS, "Strategy: none", "Strategy: single")),
    ("DP07", "warning", "resources[0].replicas", changed(UNDER_MPS, "replicas: 4", "replicas: 3")),
    ("DP08", "warning", "sharing.timeSlicing", changed(PLUGIN, "    failRequestsGreaterThanOne: true\n", "")),
    ("DP08", "warning", "sharing.mps", changed(UNDER_MPS, "    failRequestsGreaterThanOne: true\n", "")),
    ("DP09", "error", "resources[0].replicas", changed(UNDER_MPS, "replicas: 4", "replicas: 50")),
    ("DP09", "note", "resources[0].replicas", changed(UNDER_MPS, "replicas: 4", "replicas: 20")),
    ("DP09", "error", "resources[0].replicas", changed(UNDER_MPS, "replicas: 4", "replicas: 20"), "V100-16"),
    ("DP10", "error", "resources[0]", changed(PLUGIN, "- name: nvidia.com/gpu\n      replicas", "- replicas")),
    ("DP11", "warning", "sharing.mpss", changed(PLUGIN, "sharing:\n", "sharing:\n  mpss: {}\n")),
    ("DP11", "warning", "shraing", PLUGIN + "shraing: {}\n"),
    ("DP12", "warning", "resources", PLUGIN + "resources: {gpus: [{pattern: '*', name: gpu}]}\n"),
    ("DP13", "note", "sharing.mps", UNDER_MPS),
    (
        "DP14",
        "error",
        "flags.plugin.sharedDevicesAllocationPolicy",
        changed(PLUGIN, "none}", "none, plugin: {sharedDevicesAllocationPolicy: spread}}"),
    ),
    ("DP15", "warning", "sharing.timeSlicing", changed(PLUGIN, "renameByDefault: true", "renameByDefault: false")),
    ("DP01", "error", "data.any: sharing.timeSlicing.resources[0].replicas", MAP.replace("KEY", "any") + IN_MAP),
    ("GO01", "error", "data.any", MAP.replace("KEY", "any") + "    sharing: [\n"),
    ("GO01", "error", "data.any", MAP.replace("  KEY: |\n", "  any: {sharing: {}}\n")),
    ("GO02", "error", "data.mine", MAP.replace("KEY", "mine") + "".join(f"    {x}\n" for x in CUT.splitlines())),
    ("GO03", "warning", "metadata", CLEAN["gpu operator"].replace(", namespace: gpu-operator", "")),
    ("GO03", "warning", "metadata.namespace", changed(CLEAN["gpu operator"], ": gpu-operator", ": default")),
    ("GO03", "note", "metadata.namespace", changed(CLEAN["gpu operator"], ": gpu-operator", ": gpu-lab")),
    ("MG01", "error", "version", changed(CUT, "version: v1\n", "")),
    ("MG01", "error", "version", changed(CUT, "v1", "v2")),
    ("MG02", "error", "mig-config", CUT + "mig-config: {}\n"),
    ("MG02", "error", "half[0].mig-device", changed(CUT, "mig-devices: {", "mig-device: {}\n    mig-devices: {")),
    ("MG03", "error", "half[0].devices", changed(CUT, "devices: all", "devices: some")),
    ("MG03", "error", "half[0].devices", changed(CUT, "    devices: all\n", "")),
    ("MG04", "error", "half[0]", changed(CUT, '    mig-devices: {"3g.71gb": 2}\n', "")),
    ("MG05", "error", "half[0].mig-devices", changed(CUT, "enabled: true", "enabled: false")),
    ("MG06", "error", "mig-devices.1g.18gb.me", changed(CUT, '"3g.71gb": 2', '"1g.18gb.me": 1')),
    ("MG07", "error", "mig-configs.all-1g.18gb+me", changed(CUT, "half", "all-1g.18gb+me")),
    ("MG08", "warning", "half[0].device-filter", changed(CUT, ', "0x233B10DE"', "")),
    ("MG08", "warning", "half[0].device-filter", changed(CUT, '"0x233510DE", ', "")),
    ("MG09", "error", "half[0].mig-devices", changed(CUT, '"3g.71gb": 2', '"3g.71gb": 3')),
    ("MG09", "error", "half[0].mig-devices", changed(CUT, '"3g.71gb": 2', '"3g.40gb": 2')),
    ("MG09", "error", "half[0].mig-devices", CUT, "A100-80"),
    ("MG10", "note", "mig-devices.1g.24gb-me", changed(CUT, '"3g.71gb": 2', '"1g.24gb-me": 1')),
    ("MG10", "error", "mig-devices.3g.71gb", changed(CUT, '"3g.71gb": 2', '"3g.71gb": "two"')),
    ("MG11", "error", "mig-configs.none", CUT + "  none: []\n"),
    ("MG13", "error", "half[0].mig-enabled", changed(CUT, "    mig-enabled: true\n", "")),
    ("DR01", "error", "parameters.kind", changed(CLAIM_PARTS, "MigDeviceConfig", "GpuConfig")),
    ("DR01", "error", "parameters.kind", changed(CLAIM, "GpuConfig", "MigDeviceConfig")),
    ("DR02", "error", "parameters.kind", changed(CLAIM, "GpuConfig", "GPUConfig")),
    ("DR02", "error", "parameters.apiVersion", changed(CLAIM, "nvidia.com/v1beta1", "nvidia.com/v1alpha1")),
    ("DR03", "error", "timeSlicingConfig.interval", changed(CLAIM, "Default", "2ms")),
    ("DR04", "error", "sharing.strategy", changed(CLAIM, "strategy: TimeSlicing", "strategy: Fabric")),
    (
        "DR05",
        "error",
        "sharing.timeSlicingConfig",
        changed(CLAIM_MPS, "{strategy: MPS", "{timeSlicingConfig: {}, strategy: MPS"),
    ),
    ("DR05", "error", "sharing.timeSlicingConfig", CLAIM_PARTS),
    ("DR06", "error", "defaultActiveThreadPercentage", changed(CLAIM_MPS, "Percentage: 50", "Percentage: 150")),
    ("DR07", "note", "sharing.strategy", CLAIM),
    ("DR07", "error", "[1].spec.devices", "featureGates: {MPSSupport: true}\n---\n" + CLAIM),
    ("DR08", "error", "featureGates", "featureGates: {MPSSupport: true, DynamicMIG: true}\n"),
    ("DR09", "warning", "consumableShares", "featureGates: {MPSSupport: true}\nconsumableShares: 4\n"),
    (
        "DR09",
        "error",
        "sharing.strategy",
        "featureGates: {MPSSupport: true}\nconsumableShares: memory\n---\n" + CLAIM_MPS,
    ),
    ("DR10", "warning", "apiVersion", changed(CLAIM, "k8s.io/v1\n", "k8s.io/v1beta1\n")),
    (
        "DR10",
        "error",
        "requests[0]",
        changed(CLAIM, "exactly: {deviceClassName: gpu.nvidia.com}", "deviceClassName: x"),
    ),
    ("DR11", "warning", "[0].kind", TEMPLATE + USER),
    ("DR12", "error", "defaultPinnedDeviceMemoryLimit", changed(CLAIM_MPS, "10Gi", "10")),
    ("DR13", "note", "timeSlicingConfig.interval", changed(CLAIM, "Default", "Long")),
    ("DR14", "error", "config[0].requests", changed(CLAIM, "requests: [gpu]", "requests: [gpus]")),
    ("DR15", "note", "sharing.strategy", CLAIM_MPS),
    ("RQ01", "error", "spec.hard.limits.nvidia.com/gpu", QUOTA.replace("KEY", "limits.nvidia.com/gpu")),
    ("RQ01", "error", "spec.hard.nvidia.com/gpu.shared", QUOTA.replace("KEY", "nvidia.com/gpu.shared")),
    ("K803", "error", "limits.nvidia.com/gpumem", changed(HAMI, "gpumem: 20000", "gpumem: 0.5")),
    (
        "K801",
        "error",
        "resources.requests.nvidia.com/gpu",
        changed(pod("{}"), "{limits: {}}", "{requests: {nvidia.com/gpu: 1}}"),
    ),
    ("K802", "error", "annotations.gpu-fraction", changed(KAI, '"0.5"', "0.5")),
    ("HM01", "note", "nvidia.com/gpucores", changed(HAMI, "20000", "20000, nvidia.com/gpucores: 30")),
    ("HM02", "error", "spec.containers", changed(HAMI, "20000", "20000, nvidia.com/gpumem-percentage: 50")),
    ("HM03", "warning", "spec.containers", changed(HAMI, "20000", "20000, nvidia.com/gpucores: 100")),
    ("HM04", "error", "nvidia.com/gpucores", changed(HAMI, "20000", "20000, nvidia.com/gpucores: 130")),
    ("HM05", "error", "nvidia.com/gpumem", changed(HAMI, "20000", "20Gi")),
    ("HM06", "warning", "spec.containers", pod("{nvidia.com/gpu: 1, nvidia.com/gpucores: 30}")),
    (
        "HM07",
        "warning",
        "hami.io/gpu-scheduler-policy",
        changed(HAMI, "annotations: {}", "annotations: {hami.io/gpu-scheduler-policy: pack}"),
    ),
    (
        "HM07",
        "warning",
        "nvidia.com/vgpu-mode",
        changed(HAMI, "annotations: {}", "annotations: {nvidia.com/vgpu-mode: MIG}"),
    ),
    ("HM08", "warning", "spec.containers", HAMI + "    env: [{name: GPU_CORE_UTILIZATION_POLICY, value: disable}]\n"),
    ("HM11", "warning", "spec.containers", HAMI + "    env: [{name: CUDA_DISABLE_CONTROL, value: 'true'}]\n"),
    ("HM09", "error", "spec.containers", changed(HAMI, "nvidia.com/gpu: 1", "nvidia.com/gpu.shared: 1")),
    ("HM10", "error", "spec.containers", HAMI, "T4"),
    ("VO01", "note", "volcano.sh/vgpu-cores", changed(VOLCANO, "20000", "20000, volcano.sh/vgpu-cores: 30")),
    ("VO02", "error", "spec.schedulerName", changed(VOLCANO, "schedulerName: volcano\n  ", "")),
    ("VO03", "error", "spec.containers", changed(VOLCANO, "volcano.sh/vgpu-number: 1, ", "")),
    ("VO04", "error", "volcano.sh/vgpu-cores", changed(VOLCANO, "20000", "20000, volcano.sh/vgpu-cores: 101")),
    ("VO05", "error", "volcano.sh/vgpu-memory", changed(VOLCANO, "20000", "20Gi")),
    ("VO06", "warning", "spec.containers", changed(VOLCANO, ", volcano.sh/vgpu-memory: 20000", "")),
    ("VO07", "error", "spec.containers", changed(VOLCANO, "20000", "20000, nvidia.com/gpu: 1")),
    ("VO08", "warning", "spec.containers", changed(VOLCANO, "{limits:", "{claims: [{name: gpu}], limits:")),
    ("KA01", "error", "metadata.labels", kai('{gpu-fraction: "0.5"}', labels="{}")),
    ("KA02", "error", "spec.schedulerName", kai('{gpu-fraction: "0.5"}', scheduler="")),
    ("KA03", "error", "annotations.gpu-fraction", kai('{gpu-fraction: "1.0"}')),
    ("KA03", "error", "annotations.gpu-fraction", kai("{gpu-fraction: half}")),
    ("KA04", "error", "spec.containers", kai('{gpu-fraction: "0.5"}', "{nvidia.com/gpu: 1}")),
    ("KA05", "error", "gpu-compute-sharing-mode", kai("{kai.scheduler/gpu-compute-sharing-mode: sm-sharing}")),
    ("KA06", "error", "gpu-compute.mode", kai("{nvidia.com/container.main.gpu-compute.mode: mps}")),
    ("KA07", "error", "container.train.gpu-memory.limit", kai(f"{{{NV.replace('main', 'train')}.limit: 20Gi}}")),
    ("KA08", "warning", "metadata.annotations", kai(f'{{{NV}.limit: 20Gi, gpu-fraction: "0.5"}}')),
    ("KA09", "note", "metadata.annotations", KAI),
    ("KA10", "error", "gpu-memory.request", kai(f"{{{NV}.limit: 20Gi, {NV}.request: 40Gi}}")),
    ("KA11", "error", "metadata.labels", kai('{gpu-fraction: "0.5"}', labels="{runai/queue: team}")),
    ("KA12", "error", "annotations.gpu-memory", kai('{gpu-memory: "20Gi"}')),
    ("KA13", "error", "gpu-memory.limit", kai(f'{{{NV}.limit: "20000"}}')),
    ("KA14", "warning", "gpu-memory.max", kai(f"{{{NV}.max: 20Gi}}")),
    ("KA15", "note", "metadata.annotations", kai(f"{{{NV}.limit: 20Gi}}")),
    ("KU01", "warning", "apiVersion", changed(CONFIGURATION, "v1beta2", "v1beta1")),
    ("KU02", "error", "transformations[0].strategy", changed(CONFIGURATION, "Replace", "replace")),
    ("KU03", "error", "transformations[1].input", CONFIGURATION + CONFIGURATION.splitlines()[-1] + "\n"),
    ("KU04", "error", "spec", changed(KUEUE, "  namespaceSelector: {}\n", "")),
    (
        "KU05",
        "error",
        "spec.resourceGroups[1].flavors[0].resources",
        changed(KUEUE, "[nvidia.com/gpu, nvidia.com/total-gpumem]", "[nvidia.com/total-gpumem, nvidia.com/gpu]"),
    ),
    ("KU06", "warning", "transformations[0]", changed(CONFIGURATION, "multiplyBy: nvidia.com/gpu, ", "")),
    ("KU07", "error", "coveredResources", changed(KUEUE, "nvidia.com/gpu", "requests.nvidia.com/gpu")),
    (
        "KU08",
        "warning",
        "spec.resourceGroups",
        changed(changed(KUEUE, "[cpu, ", "["), "{name: cpu, nominalQuota: 64}, ", ""),
    ),
    (
        "CO01",
        "error",
        "services.a",
        changed(
            COMPOSE,
            '"1000"\n    ipc: host\n    environment: {CUDA_MPS_PIPE_DIRECTORY: /mps/pipe, ',
            '"1000"\n    environment: {CUDA_MPS_PIPE_DIRECTORY: /mps/pipe, ',
        ),
    ),
    ("CO02", "error", "services.a.volumes", changed(COMPOSE, "target: /mps}", "target: /other}")),
    ("CO03", "error", "services", changed(COMPOSE, 'x\n    user: "1000"\n    ipc', 'x\n    user: "0"\n    ipc')),
    ("CO03", "warning", "services", changed(COMPOSE, '    user: "1000"\n', "")),
    ("CO04", "error", "devices[0]", changed(COMPOSE, ", capabilities: [gpu]", "")),
    ("CO05", "error", "devices[0]", changed(COMPOSE, "count: 1", "count: 1, device_ids: ['0']")),
    ("CO06", "error", "services.a", COMPOSE.rpartition("    deploy")[0]),
    ("CO07", "note", "services", changed(COMPOSE, "nvidia-cuda-mps-control -f", "sleep 1")),
    ("EN01", "error", "CUDA_MPS_ACTIVE_THREAD_PERCENTAGE", changed(ENV, "=50", "=0")),
    ("EN01", "error", "services.a.environment", changed(COMPOSE, '"50"', '"500"')),
    ("EN02", "error", "CUDA_MPS_PINNED_DEVICE_MEM_LIMIT", changed(ENV, "0=8G", "8G")),
    ("EN02", "error", "CUDA_MPS_PINNED_DEVICE_MEM_LIMIT", changed(ENV, "0=8G", "0=20G"), "T4"),
    ("EN03", "warning", "CUDA_MPS_ACTIVE_THREAD_PERCENTAGE", changed(ENV, "CUDA_MPS_PIPE_DIRECTORY=/tmp/mps\n", "")),
    ("EN04", "error", "CUDA_MPS_CLIENT_PRIORITY", ENV + "CUDA_MPS_CLIENT_PRIORITY=high\n"),
    ("EN05", "note", "CUDA_MPS_SM_PARTITION", ENV + "CUDA_MPS_SM_PARTITION=GPU-1/2\n"),
    ("EN06", "error", "CUDA_MPS_PIPE_DIRECTORY", changed(ENV, "/tmp/mps", "/nonexistent/mps")),
    ("EN07", "warning", "CUDA_MPS_PRIORITY", ENV + "CUDA_MPS_PRIORITY=1\n"),
]


@pytest.mark.parametrize("planted", PLANTED, ids=lambda planted: f"{planted[0]} {planted[1]}")
def test_a_planted_trap_is_found_where_it_lies(planted, written):
    code, severity, where, text, *gpu = planted
    found = lint(written(text), gpu=gpu[0] if gpu else None)
    mine = [one for one in found.problems if (one.code, one.severity) == (code, severity)]
    assert mine, found.problems
    assert where in mine[0].where
    assert mine[0].what
    assert mine[0].do


OF_SPECS = [
    ("SP01", "warning", 'mode = "mps"\ngpu = "T4"\nreplicas = 2\nmemory_mib = 15000\npercent = 50'),
    ("SP02", "note", 'mode = "mps"\nreplicas = 2\npercent = 80'),
    ("SP03", "note", 'mode = "mps"\nreplicas = 2'),
    ("SP04", "note", 'mode = "time-slicing"\nreplicas = 2\nmemory_mib = 1'),
]


@pytest.mark.parametrize(("code", "severity", "text"), OF_SPECS)
def test_a_spec_that_may_not_be_meant_so_is_told(code, severity, text, written):
    found = lint(written(text, "lab.toml")).problems
    assert [(one.code, one.severity) for one in found] == [(code, severity)]


def test_a_sound_spec_has_no_findings(written):
    text = 'mode = "mps"\ngpu = "H200"\nreplicas = 4\npercent = 25\nmemory_mib = 35000'
    assert lint(written(text, "lab.toml")).problems == ()


@pytest.mark.parametrize("many", ["0.5", '"500m"', '"1.5"', "-1", '"-1"', "1500u", "true", "one", "[1]"])
def test_a_card_is_asked_for_in_whole_pieces(many, written):
    """Kubernetes: `must be an integer`, `must be greater than or equal to 0`."""
    found = lint(written(pod(f"{{cpu: 0.5, nvidia.com/gpu: {many}}}"))).problems
    assert [(one.code, one.where) for one in found] == [("K803", "spec.containers[0].resources.limits.nvidia.com/gpu")]


@pytest.mark.parametrize("many", ["0", "2", "1.0", '"2"', "1000m", "1e0", "1k"])
def test_whole_pieces_may_be_written_in_any_way_that_kubernetes_reads(many, written):
    assert lint(written(pod(f"{{nvidia.com/gpu: {many}}}"))).problems == ()


def test_every_trap_that_is_looked_for_was_planted():
    assert {form.partition(".")[0] for form in traps()} == {p[0] for p in PLANTED} | {p[0] for p in OF_SPECS}


def test_every_form_of_a_trap_is_looked_for():
    source = "".join(path.read_text("utf-8") for path in Path(rules.__file__).parent.rglob("*.py"))
    looked_for = set(re.findall(r'"((?:[A-Z]{2}\d{2}|K8\d{2})(?:\.\w+)?)"', source))
    looked_for |= {prefix + n for prefix in ("HM", "VO") for n in re.findall(r'f"\{prefix\}(\d\d)"', source)}
    looked_for |= {f"DP08.{way}" for way in device_plugin.WAYS}
    assert looked_for == set(traps())


STRANGE = {
    "limits": pod("[nvidia.com/gpu]"),
    "requests": pod("{cpu: 1}, requests: yes"),
    "annotations": pod("{cpu: 1}", "[gpu-fraction]", QUEUE, "kai-scheduler"),
    "strategy": CLAIM.replace("strategy: TimeSlicing", "strategy: [MPS]"),
    "sharing": PLUGIN.replace("timeSlicing:", "timeSlicing: 1\n  mps:"),
    "layouts": CUT.replace("mig-devices: {", "mig-devices: [{").replace("2}", "2}]"),
    "groups": KUEUE.replace("resourceGroups:", "resourceGroups: x\n  other:"),
}


@pytest.mark.parametrize("part", STRANGE)
def test_a_value_of_another_type_is_no_error_of_the_linter(part, written):
    assert isinstance(lint(written(STRANGE[part])).problems, tuple)


def test_a_note_that_holds_for_many_is_said_once(written):
    one = changed(HAMI, "20000", "20000, nvidia.com/gpucores: 30")
    found = lint(written("---\n".join([one] * 5))).problems
    assert [f.code for f in found] == ["HM01"]
    assert found[0].where.endswith("and 4 more")


def test_the_worst_comes_first(written):
    text = changed(changed(UNDER_MPS, "replicas: 4", "replicas: 1"), "renameByDefault: true", "renameByDefault: false")
    assert [one.severity for one in lint(written(text)).problems] == ["error", "warning", "note"]


@pytest.mark.parametrize(("text", "says"), [("a: 1", "not a file that we know traps of"), ("a: [", "not YAML")])
def test_a_file_of_nobody_is_refused(text, says, written):
    with pytest.raises(BenchError, match=says):
        lint(written(text))
