"""What each stack accepts, as JSON Schemas in our own words; strict, so that a slip in a key is seen.

Sources, read in the repositories of the stacks:
- device plugin: NVIDIA/k8s-device-plugin `api/config/v1` (`config.go`, `flags.go`, `replicas.go`, `sharing.go`)
- mig-parted: NVIDIA/mig-parted `api/spec/v1/spec.go`, `pkg/types/mig_profile.go`
- DRA parameters: kubernetes-sigs/dra-driver-nvidia-gpu `api/nvidia.com/resource/v1beta1` (`sharing.go`, `validate.go`)
Not read as a whole, and so less sure:
- Kueue: kubernetes-sigs/kueue, its published examples and an excerpt of the transformations' struct
- Compose: the part that we write, from what the Compose specification is known to say

Kubernetes' own kinds are checked by kubernetes-validate, strictly, against the published OpenAPI schemas.
"""


def closed(required=(), **properties):
    return {
        "type": "object",
        "properties": {key.replace("__", "-"): value for key, value in properties.items()},
        "required": list(required),
        "additionalProperties": False,
    }


TEXT, WHOLE, FLAG = {"type": "string", "minLength": 1}, {"type": "integer"}, {"type": "boolean"}
TEXTS = {"type": "array", "items": TEXT, "minItems": 1}
WORDS = {"type": "object", "additionalProperties": {"type": "string"}}


def listed(items):
    return {"type": "array", "items": items, "minItems": 1}


# --- device plugin: replicas below 2 are refused; resources may not be empty ------------------------------------------
REPLICATED = closed(
    ["resources"],
    renameByDefault=FLAG,
    failRequestsGreaterThanOne=FLAG,
    resources=listed(
        closed(
            ["name", "replicas"],
            name={"type": "string", "pattern": r"^nvidia\.com/[a-z0-9]([-a-z0-9.]*[a-z0-9])?$", "maxLength": 63},
            replicas={"type": "integer", "minimum": 2},
        )
    ),
)
DEVICE_PLUGIN = closed(
    ["version"],
    version={"const": "v1"},
    flags=closed(migStrategy={"enum": ["none", "single", "mixed"]}),
    sharing=closed(timeSlicing=REPLICATED, mps=REPLICATED) | {"maxProperties": 1},
)

# --- mig-parted: unknown keys are errors; enabled needs instances, disabled must have none ----------------------------
INSTANCES = {
    "type": "object",
    "propertyNames": {"pattern": r"^([1-8]c\.)?[1-8]g\.\d+gb(\+[a-z.]+)?$"},
    "additionalProperties": {"type": "integer", "minimum": 0},
}
ENTRY = closed(
    ["devices", "mig-enabled"],
    **{
        "device-filter": {"oneOf": [TEXT, listed({"type": "string", "pattern": "^0x[0-9A-F]{8}$"})]},
        "devices": {"oneOf": [{"const": "all"}, listed(WHOLE)]},
        "mig-enabled": FLAG,
        "mig-devices": INSTANCES,
    },
) | {
    "if": {"properties": {"mig-enabled": {"const": True}}},
    "then": {"required": ["mig-devices"]},
    "else": {"properties": {"mig-devices": {"maxProperties": 0}}},
}
LABEL = r"^[A-Za-z0-9]([-A-Za-z0-9_.]{0,61}[A-Za-z0-9])?$"
MIG_PARTED = closed(
    ["version", "mig-configs"],
    version={"const": "v1"},
    mig__configs={
        "type": "object",
        "minProperties": 1,
        "propertyNames": {"pattern": LABEL},
        "additionalProperties": listed(ENTRY),
    },
)

# --- DRA: what stands under opaque.parameters -------------------------------------------------------------------------
AMOUNT = {"type": "string", "pattern": r"^[1-9]\d*(Mi|Gi)$"}
MPS = closed(
    defaultActiveThreadPercentage={"type": "integer", "minimum": 0, "maximum": 100},
    defaultPinnedDeviceMemoryLimit=AMOUNT,
    defaultPerDevicePinnedMemoryLimit={"type": "object", "additionalProperties": AMOUNT},
)
TURNS = closed(interval={"enum": ["Default", "Short", "Medium", "Long"]})
HEAD = {"apiVersion": {"const": "resource.nvidia.com/v1beta1"}}
GPU_CONFIG = closed(
    ["apiVersion", "kind"],
    **HEAD,
    kind={"const": "GpuConfig"},
    sharing={
        "oneOf": [
            closed(["strategy"], strategy={"const": "MPS"}, mpsConfig=MPS),
            closed(["strategy"], strategy={"const": "TimeSlicing"}, timeSlicingConfig=TURNS),
        ]
    },
)

# --- Kueue ------------------------------------------------------------------------------------------------------------
ABOUT = closed(["name"], name=TEXT, namespace=TEXT)
KUEUE = {"apiVersion": {"const": "kueue.x-k8s.io/v1beta2"}, "metadata": ABOUT}
RESOURCE = {"type": "string", "pattern": r"^(cpu|memory|[a-z0-9.-]+/[A-Za-z0-9]([-A-Za-z0-9_.]*[A-Za-z0-9])?)$"}
AMOUNT = {"oneOf": [{"type": "integer", "minimum": 0}, {"type": "string", "pattern": r"^[0-9]+([KMGTPE]i)?$"}]}
QUOTA = closed(["name", "nominalQuota"], name=RESOURCE, nominalQuota=AMOUNT)
GROUP = closed(
    ["coveredResources", "flavors"],
    coveredResources=listed(RESOURCE) | {"maxItems": 16, "uniqueItems": True},
    flavors=listed(closed(["name", "resources"], name=TEXT, resources=listed(QUOTA))),
)
BY_KIND = {
    "ResourceFlavor": closed(
        ["apiVersion", "kind", "metadata"],
        **KUEUE,
        kind={"const": "ResourceFlavor"},
        spec=closed(nodeLabels=WORDS | {"maxProperties": 8}),
    ),
    "ClusterQueue": closed(
        ["apiVersion", "kind", "metadata", "spec"],
        **KUEUE,
        kind={"const": "ClusterQueue"},
        spec=closed(["resourceGroups"], namespaceSelector=closed(), resourceGroups=listed(GROUP)),
    ),
    "LocalQueue": closed(
        ["apiVersion", "kind", "metadata", "spec"],
        **KUEUE,
        kind={"const": "LocalQueue"},
        spec=closed(["clusterQueue"], clusterQueue=TEXT),
    ),
}
RULE = closed(
    ["input"],
    input=RESOURCE,
    strategy={"enum": ["Retain", "Replace"]},
    multiplyBy=RESOURCE,
    outputs={"type": "object", "propertyNames": RESOURCE, "additionalProperties": TEXT},
)
KUEUE_CONFIGURATION = closed(
    ["apiVersion", "kind"],
    apiVersion={"const": "config.kueue.x-k8s.io/v1beta2"},
    kind={"const": "Configuration"},
    resources=closed(transformations=listed(RULE)),
)

# --- Compose ----------------------------------------------------------------------------------------------------------
DEVICE = closed(["capabilities"], driver=TEXT, device_ids=TEXTS, count=WHOLE, capabilities=TEXTS) | {
    "not": {"required": ["count", "device_ids"]}
}
SERVICE = closed(
    image=TEXT,
    command={"oneOf": [TEXT, TEXTS]},
    user=TEXT,
    ipc=TEXT,
    environment=WORDS,
    volumes=TEXTS,
    depends_on=TEXTS,
    labels=WORDS,
    deploy=closed(resources=closed(reservations=closed(devices=listed(DEVICE)))),
)
COMPOSE = closed(
    ["services"],
    services={"type": "object", "propertyNames": {"pattern": r"^[a-zA-Z0-9._-]+$"}, "additionalProperties": SERVICE},
    volumes={"type": "object", "additionalProperties": closed(driver_opts=WORDS)},
)
