"""Nothing that is written is refused by the schema of its stack."""

import re
from pathlib import Path

import pytest

from fleetlab.gpu.devices.console import BenchError
from fleetlab.gpu.stacks import emit
from fleetlab.gpu.stacks.formats import BY_NAME
from fleetlab.gpu.stacks.formats.gpu_operator import inside
from fleetlab.gpu.stacks.formats.kueue import configurations
from fleetlab.gpu.stacks.reading import parse_documents
from fleetlab.gpu.stacks.spec import parse

pytest.importorskip("yaml")
jsonschema = pytest.importorskip("jsonschema")

SPECS = sorted((Path(__file__).parents[2] / "fixtures" / "share").glob("*.toml"))
MORE = {
    "exclusive": 'mode = "exclusive"\nnode = {pool = "gpu"}',
    "medium turns": 'mode = "time-slicing"\ngpu = "T4"\nreplicas = 2\ninterval = "medium"',
    "limits under time slicing": 'mode = "time-slicing"\nreplicas = 3\nmemory_mib = 4000\npercent = 30',
    "one client": 'mode = "mps"\nreplicas = 1\npriority = 1',
    "clients without limits": 'mode = "mps"\ngpu = "L4"\nreplicas = 7',
    "unlike clients": 'mode = "mps"\n[[tenant]]\npercent = 10\n[[tenant]]\nmemory_mib = 3\npriority = 0',
    "media": 'mode = "mig"\nlayout = "1g.18gb+me,2x1g.35gb"',
}
KUBERNETES = ("1.34.0", "1.37.0")  # the first with resource.k8s.io/v1, and the newest that the checker has
BUILT_IN = ("Pod", "ConfigMap", "ResourceClaim", "ResourceClaimTemplate")


@pytest.fixture(scope="module")
def schemas():
    """The module beside this one, which is no test."""
    import importlib.util

    spec = importlib.util.spec_from_file_location("schemas", Path(__file__).with_name("schemas.py"))
    found = importlib.util.module_from_spec(spec)
    spec.loader.exec_module(found)
    return found


def each():
    """Every spec in every stack that can say it."""
    texts = {path.stem: path.read_text("utf-8") for path in SPECS} | MORE
    for name, text in texts.items():
        for to in BY_NAME:
            try:
                found = emit(parse(text, name), to=to).text
            except BenchError:
                continue
            yield pytest.param(to, found, id=f"{name}-{to}")


EVERY = pytest.mark.parametrize(("to", "text"), list(each()))


@pytest.mark.parametrize("version", KUBERNETES)
@EVERY
def test_kubernetes_takes_its_own_kinds(to, text, version):
    checker = pytest.importorskip("kubernetes_validate")
    for one in parse_documents(text, to):
        if one.get("kind") in BUILT_IN:
            checker.validate(one, version, strict=True)


def test_the_checker_would_see_a_slip():
    checker = pytest.importorskip("kubernetes_validate")
    pod = {"apiVersion": "v1", "kind": "Pod", "metadata": {"name": "x"}, "spec": {"containers": [{"name": "a"}]}}
    checker.validate(pod, "1.37.0", strict=True)
    pod["spec"]["nodeSelectors"] = {}
    with pytest.raises(checker.ValidationError):
        checker.validate(pod, "1.37.0", strict=True)


@EVERY
def test_each_stack_takes_its_own_words(to, text, schemas):
    documents = parse_documents(text, to)
    if to == "env":
        assert all(re.fullmatch(r"CUDA_MPS_[A-Z_]+", key) for one in documents for key in one["BLOCK"])
        return
    checked = 0
    for one in documents:
        for schema, inner in pieces(one, schemas):
            jsonschema.validate(inner, schema)
            checked += 1
    assert checked or to in ("hami", "volcano", "kai", "dra")  # these are of Kubernetes alone


def pieces(one, schemas):
    """The parts of a document that Kubernetes does not look into, and whole documents that are not its own."""
    if "services" in one:
        yield schemas.COMPOSE, one
    elif "mig-configs" in one:
        yield schemas.MIG_PARTED, one
    elif "kind" not in one:
        yield schemas.DEVICE_PLUGIN, one
    elif one["kind"] in schemas.BY_KIND:
        yield schemas.BY_KIND[one["kind"]], one
    elif one["kind"].startswith("ResourceClaim"):
        devices = one["spec"].get("spec", one["spec"])["devices"]
        yield from ((schemas.GPU_CONFIG, c["opaque"]["parameters"]) for c in devices.get("config", []))
    for _, inner in inside(one):
        yield from pieces(inner, schemas)
    yield from ((schemas.KUEUE_CONFIGURATION, inner) for _, inner in configurations([one]))


@pytest.mark.parametrize(
    ("name", "wrong"),
    [
        (
            "DEVICE_PLUGIN",
            {"version": "v1", "sharing": {"mps": {"resources": [{"name": "nvidia.com/gpu", "replicas": 1}]}}},
        ),
        ("DEVICE_PLUGIN", {"version": "v2"}),
        ("MIG_PARTED", {"version": "v1", "mig-configs": {"x": [{"devices": "all", "mig-enabled": True}]}}),
        ("MIG_PARTED", {"version": "v1", "mig-configs": {"x+me": [{"devices": "all", "mig-enabled": False}]}}),
        (
            "GPU_CONFIG",
            {"apiVersion": "resource.nvidia.com/v1beta1", "kind": "GpuConfig", "sharing": {"strategy": "X"}},
        ),
        (
            "KUEUE_CONFIGURATION",
            {"apiVersion": "config.kueue.x-k8s.io/v1beta2", "kind": "Configuration", "resource": {}},
        ),
        ("COMPOSE", {"services": {"a": {"imagge": "x"}}}),
    ],
)
def test_a_schema_refuses_what_its_stack_refuses(name, wrong, schemas):
    with pytest.raises(jsonschema.ValidationError):
        jsonschema.validate(wrong, getattr(schemas, name))
