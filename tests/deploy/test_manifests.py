"""The manifests: what Kubernetes takes, strictly, and rules as kube-score has them; each catches what it is for."""

import copy
import importlib.util
import ipaddress
import re
from itertools import chain
from pathlib import Path

import pytest

yaml = pytest.importorskip("yaml")
jsonschema = pytest.importorskip("jsonschema")
MODES = ("exclusive", "time-slicing", "mps", "mig")
WITH_PODS = tuple(f"overlays/{mode}/{what}" for mode in MODES for what in ("lab", "lab-load-balancer", "experiments"))
FOLDERS = ("sharing", *WITH_PODS)
EVERY = pytest.mark.parametrize("folder", FOLDERS)
KUBERNETES = ("1.34.0", "1.37.0")
RESOURCE = {"exclusive": "nvidia.com/gpu", "mig": "nvidia.com/mig-3g.71gb"}

# The part that we write; after prometheus-operator/prometheus-operator, pkg/apis/monitoring/v1/servicemonitor_types.go
TEXT = {"type": "string", "minLength": 1}
DURATION = {"type": "string", "pattern": r"^([0-9]+(ms|s|m|h))+$"}
WORDS = {"type": "object", "additionalProperties": {"type": "string"}}


def closed(required=(), **properties):
    return {"type": "object", "properties": properties, "required": list(required), "additionalProperties": False}


SERVICE_MONITOR = closed(
    ["apiVersion", "kind", "metadata", "spec"],
    apiVersion={"const": "monitoring.coreos.com/v1"},
    kind={"const": "ServiceMonitor"},
    metadata=closed(["name"], name=TEXT, namespace=TEXT, labels=WORDS),
    spec=closed(
        ["selector", "endpoints"],
        selector=closed(matchLabels=WORDS),
        endpoints={
            "type": "array",
            "minItems": 1,
            "items": closed(["port"], port=TEXT, path=TEXT, interval=DURATION, scrapeTimeout=DURATION),
        },
    ),
)


def check(one, version):
    import kubernetes_validate

    if one["kind"] == "ServiceMonitor":
        jsonschema.validate(one, SERVICE_MONITOR)
    else:
        kubernetes_validate.validate(one, version, strict=True)


@pytest.mark.parametrize("version", KUBERNETES)
@EVERY
def test_kubernetes_takes_every_object(folder, version, rendered):
    pytest.importorskip("kubernetes_validate")
    for one in rendered(folder):
        check(one, version)


@pytest.mark.parametrize("kind", ["Deployment", "Job", "Pod", "ServiceMonitor", "ResourceQuota", "NetworkPolicy"])
def test_a_slip_in_a_key_is_seen(kind, rendered):
    checker = pytest.importorskip("kubernetes_validate")
    one = copy.deepcopy(next(one for one in rendered("overlays/mps/lab") if one["kind"] == kind))
    check(one, "1.37.0")
    one["spec"]["slip"] = 1
    with pytest.raises((checker.ValidationError, jsonschema.ValidationError)):
        check(one, "1.37.0")


def test_no_file_is_forgotten(deploy):
    for path in (deploy / "kubernetes").glob("*/kustomization.yaml"):
        if "resources" in (about := yaml.safe_load(path.read_text("utf-8"))):
            there = {p.name for p in path.parent.glob("*.yaml")} - {"kustomization.yaml"}
            assert set(about["resources"]) == there


# --- rules -----------------------------------------------------------------------------------------------------------


def kinds(all_, *names):
    return [one for one in all_ if one["kind"] in names]


def pods(all_):
    """(object, labels, spec) of all that makes pods."""
    for one in kinds(all_, "Deployment", "DaemonSet", "Job"):
        yield one, one["spec"]["template"]["metadata"]["labels"], one["spec"]["template"]["spec"]
    for one in kinds(all_, "Pod"):
        yield one, one["metadata"]["labels"], one["spec"]


def containers(all_):
    return [c for _, _, spec in pods(all_) for c in spec["containers"]]


def long_lived(all_):
    return [c for one, _, spec in pods(all_) if one["kind"] != "Job" for c in spec["containers"]]


def within(wanted, labels):
    return bool(wanted) and wanted.items() <= labels.items()


def amount(quantity):
    number, unit = re.fullmatch(r"([\d.]+)(\D*)", str(quantity)).groups()
    return float(number) * {"": 1, "m": 1e-3, "Mi": 2**20, "Gi": 2**30}[unit]


def how_many(one, all_, nodes=8):
    """Pods of an object at the most."""
    if one["kind"] == "DaemonSet":
        return nodes
    if one["kind"] == "Deployment":
        return next(h["spec"]["maxReplicas"] for h in kinds(all_, "HorizontalPodAutoscaler"))
    return 1


def quota_covers(all_):
    (quota,) = kinds(all_, "ResourceQuota")
    need = {"pods": 0.0}
    for one, _, spec in pods(all_):
        n = how_many(one, all_)
        need["pods"] += n
        for c in spec["containers"]:
            asked = {k: v for k, v in c["resources"]["limits"].items() if "/" in k} | c["resources"]["requests"]
            for key, value in chain(
                ((f"requests.{k}", v) for k, v in asked.items()),
                ((f"limits.{k}", v) for k, v in c["resources"]["limits"].items() if "/" not in k),
            ):
                need[key] = need.get(key, 0) + n * amount(value)
    hard = quota["spec"]["hard"]
    return all(amount(hard[key]) >= value for key, value in need.items() if "storage" not in key or key in hard)


def services_meet_pods(all_):
    ports = {
        name: p for one, _, s in pods(all_) for c in s["containers"] for p in c.get("ports", []) for name in [p["name"]]
    }
    return all(
        any(within(s["spec"]["selector"], labels) for _, labels, _ in pods(all_))
        and all(p["targetPort"] in ports for p in s["spec"]["ports"])
        for s in kinds(all_, "Service")
    )


def watched_services_are_there(all_):
    return all(
        any(
            within(m["spec"]["selector"]["matchLabels"], s["metadata"]["labels"])
            and {e["port"] for e in m["spec"]["endpoints"]} <= {p["name"] for p in s["spec"]["ports"]}
            for s in kinds(all_, "Service")
        )
        for m in kinds(all_, "ServiceMonitor")
    )


def references(all_):
    """(kind, name) of what pods need beside them."""
    for _, _, spec in pods(all_):
        yield "ServiceAccount", spec["serviceAccountName"]
        for volume in spec.get("volumes", []):
            if claim := volume.get("persistentVolumeClaim"):
                yield "PersistentVolumeClaim", claim["claimName"]
        for c in spec["containers"]:
            for e in c.get("env", []):
                if ref := e.get("valueFrom", {}).get("configMapKeyRef"):
                    yield "ConfigMap", ref["name"]


def mounts_are_volumes(all_):
    return all(
        {m["name"] for c in spec["containers"] for m in c.get("volumeMounts", [])}
        == {v["name"] for v in spec["volumes"]}
        for _, _, spec in pods(all_)
    )


def probes_meet_ports(all_):
    for c in containers(all_):
        names = {p["name"] for p in c.get("ports", [])}
        for probe in ("startupProbe", "readinessProbe", "livenessProbe"):
            asked = c.get(probe, {}).get("httpGet")
            if asked and asked["port"] not in names:
                return False
    return True


def policies_close_the_namespace(all_):
    return any(
        p["spec"]["podSelector"] == {}
        and set(p["spec"]["policyTypes"]) == {"Ingress", "Egress"}
        and not p["spec"].keys() & {"ingress", "egress"}
        for p in kinds(all_, "NetworkPolicy")
    )


def selected(all_, kind, selector):
    return all(any(within(selector(one), labels) for _, labels, _ in pods(all_)) for one in kinds(all_, kind))


def guarded(all_):
    """Every Deployment may lose a pod to a drained node, but not the last."""
    return all(
        any(
            within(b["spec"]["selector"]["matchLabels"], d["spec"]["template"]["metadata"]["labels"])
            for b in kinds(all_, "PodDisruptionBudget")
        )
        for d in kinds(all_, "Deployment")
    )


RULES = {
    "requests and limits are said": lambda a: all(
        {"cpu", "memory"} <= c["resources"].get(what, {}).keys()
        for c in containers(a)
        for what in ("requests", "limits")
    ),
    "what lives long is probed": lambda a: all({"readinessProbe", "livenessProbe"} <= c.keys() for c in long_lived(a)),
    "nobody is root": lambda a: all(
        s["securityContext"].get("runAsNonRoot") and s["securityContext"]["runAsUser"] >= 10000 for _, _, s in pods(a)
    ),
    "calls to the kernel are filtered": lambda a: all(
        s["securityContext"].get("seccompProfile") == {"type": "RuntimeDefault"} for _, _, s in pods(a)
    ),
    "the root file system is for reading": lambda a: all(
        c["securityContext"].get("readOnlyRootFilesystem") for c in containers(a)
    ),
    "nobody gains rights": lambda a: all(
        c["securityContext"].get("allowPrivilegeEscalation") is False
        and c["securityContext"].get("capabilities") == {"drop": ["ALL"]}
        and not c["securityContext"].get("privileged")
        for c in containers(a)
    ),
    "nothing of the host is mounted or shared": lambda a: (
        not any(
            "hostPath" in v or s.get("hostNetwork") or s.get("hostPID") or s.get("hostIPC")
            for _, _, s in pods(a)
            for v in s.get("volumes", [{}])
        )
    ),
    "no pod has a key to the API server": lambda a: all(
        s.get("automountServiceAccountToken") is False for _, _, s in pods(a)
    ),
    "images have a version": lambda a: all(re.search(r":\d+\.\d+\.\d+$", c["image"]) for c in containers(a)),
    "selectors find their pods": lambda a: all(
        within(one["spec"]["selector"]["matchLabels"], labels)
        for one, labels, _ in pods(a)
        if one["kind"] in ("Deployment", "DaemonSet")
    ),
    "services meet pods and ports": services_meet_pods,
    "probes ask at ports that are there": probes_meet_ports,
    "metrics are asked of services that are there": watched_services_are_there,
    "what is needed is there": lambda a: all(
        any(one["kind"] == kind and one["metadata"]["name"] == name for one in a) for kind, name in references(a)
    ),
    "mounts and volumes are the same": mounts_are_volumes,
    "a drained node leaves one": guarded,
    "copies are spread over nodes": lambda a: all(
        s["spec"]["template"]["spec"].get("topologySpreadConstraints") for s in kinds(a, "Deployment")
    ),
    "the autoscaler has what to scale, and nobody else counts": lambda a: all(
        any(
            d["metadata"]["name"] == h["spec"]["scaleTargetRef"]["name"] and "replicas" not in d["spec"]
            for d in kinds(a, "Deployment")
        )
        for h in kinds(a, "HorizontalPodAutoscaler")
    ),
    "a budget is of pods that are there": lambda a: selected(
        a, "PodDisruptionBudget", lambda one: one["spec"]["selector"]["matchLabels"]
    ),
    "the namespace is closed first": policies_close_the_namespace,
    "the quota is enough for all": quota_covers,
    "all is in one namespace": lambda a: (
        len({one["metadata"].get("namespace") for one in a if one["kind"] != "Namespace"}) == 1
    ),
    "a job ends": lambda a: all(j["spec"].get("activeDeadlineSeconds") for j in kinds(a, "Job")),
    "the namespace is restricted": lambda a: all(
        n["metadata"]["labels"].get("pod-security.kubernetes.io/enforce") == "restricted" for n in kinds(a, "Namespace")
    ),
}


def container(all_):
    return kinds(all_, "Deployment")[0]["spec"]["template"]["spec"]["containers"][0]


def spec(all_):
    return kinds(all_, "Deployment")[0]["spec"]["template"]["spec"]


def first(all_, kind):
    return kinds(all_, kind)[0]


# How each rule is broken.
PLANTED = {
    "requests and limits are said": lambda a: container(a)["resources"]["limits"].pop("memory"),
    "what lives long is probed": lambda a: container(a).pop("livenessProbe"),
    "nobody is root": lambda a: spec(a)["securityContext"].pop("runAsNonRoot"),
    "calls to the kernel are filtered": lambda a: spec(a)["securityContext"].pop("seccompProfile"),
    "the root file system is for reading": lambda a: container(a)["securityContext"].pop("readOnlyRootFilesystem"),
    "nobody gains rights": lambda a: container(a)["securityContext"].pop("allowPrivilegeEscalation"),
    "nothing of the host is mounted or shared": lambda a: spec(a)["volumes"].append(
        {"name": "x", "hostPath": {"path": "/"}}
    ),
    "no pod has a key to the API server": lambda a: spec(a).pop("automountServiceAccountToken"),
    "images have a version": lambda a: container(a).update(image="registry.example/fleetlab-inference:latest"),
    "selectors find their pods": lambda a: first(a, "DaemonSet")["spec"]["selector"]["matchLabels"].update(x="y"),
    "services meet pods and ports": lambda a: first(a, "Service")["spec"]["ports"][0].update(targetPort="web"),
    "probes ask at ports that are there": lambda a: container(a)["livenessProbe"]["httpGet"].update(port="web"),
    "metrics are asked of services that are there": lambda a: first(a, "ServiceMonitor")["spec"]["endpoints"][0].update(
        port="x"
    ),
    "what is needed is there": lambda a: spec(a)["volumes"][1]["persistentVolumeClaim"].update(claimName="lost"),
    "mounts and volumes are the same": lambda a: container(a)["volumeMounts"].pop(),
    "a drained node leaves one": lambda a: a.remove(first(a, "PodDisruptionBudget")),
    "copies are spread over nodes": lambda a: spec(a).pop("topologySpreadConstraints"),
    "the autoscaler has what to scale, and nobody else counts": lambda a: first(a, "Deployment")["spec"].update(
        replicas=2
    ),
    "a budget is of pods that are there": lambda a: first(a, "PodDisruptionBudget")["spec"]["selector"][
        "matchLabels"
    ].update(x="y"),
    "the namespace is closed first": lambda a: a.remove(
        next(p for p in kinds(a, "NetworkPolicy") if p["metadata"]["name"] == "nothing")
    ),
    "the quota is enough for all": lambda a: first(a, "ResourceQuota")["spec"]["hard"].update(
        {"requests.nvidia.com/gpu": "5"}
    ),
    "all is in one namespace": lambda a: first(a, "Service")["metadata"].update(namespace="default"),
    "a job ends": lambda a: first(a, "Job")["spec"].pop("activeDeadlineSeconds"),
    "the namespace is restricted": lambda a: first(a, "Namespace")["metadata"]["labels"].clear(),
}


@pytest.mark.parametrize("folder", WITH_PODS)
@pytest.mark.parametrize("rule", RULES)
def test_the_manifests_keep_the_rules(folder, rule, rendered):
    assert RULES[rule](rendered(folder))


@pytest.mark.parametrize("rule", RULES)
def test_each_rule_sees_what_it_is_for(rule, rendered):
    planted = rendered("overlays/exclusive/lab")
    assert RULES[rule](planted)
    PLANTED[rule](planted)
    assert not RULES[rule](planted)


# --- sharing ---------------------------------------------------------------------------------------------------------


@pytest.mark.parametrize(
    ("spec_", "to", "file"),
    [
        ("exclusive", "device-plugin", "exclusive.yaml"),
        ("time-slicing", "device-plugin", "time-slicing.yaml"),
        ("mps", "device-plugin", "mps.yaml"),
        ("mig", "mig-parted", "mig-layout.yaml"),
    ],
)
def test_what_the_operator_gets_is_what_the_compiler_writes(spec_, to, file, deploy, rendered):
    from fleetlab.gpu.stacks import emit
    from fleetlab.gpu.stacks.spec import parse

    folder = deploy / "kubernetes" / "sharing"
    text = emit(parse((folder / f"{spec_}.toml").read_text("utf-8"), spec_), to=to).text
    assert (folder / file).read_text("utf-8") == text
    assert text in [value for one in rendered("sharing") for value in one["data"].values()]


def test_the_plugin_takes_every_mode(rendered):
    path = Path(__file__).parents[1] / "gpu" / "stacks" / "schemas.py"
    spec_ = importlib.util.spec_from_file_location("schemas", path)
    schemas = importlib.util.module_from_spec(spec_)
    spec_.loader.exec_module(schemas)
    by_name = {one["metadata"]["name"]: one["data"] for one in rendered("sharing")}
    for text in by_name["fleetlab-sharing"].values():
        jsonschema.validate(yaml.safe_load(text), schemas.DEVICE_PLUGIN)
    jsonschema.validate(yaml.safe_load(by_name["fleetlab-mig"]["config.yaml"]), schemas.MIG_PARTED)


def test_a_mode_of_the_overlays_is_a_mode_of_the_plugin(rendered):
    configured = next(one["data"] for one in rendered("sharing") if one["metadata"]["name"] == "fleetlab-sharing")
    assert set(configured) == set(MODES)


@pytest.mark.parametrize("mode", MODES)
@pytest.mark.parametrize("what", ["lab", "experiments"])
def test_pods_of_a_mode_ask_for_what_its_plugin_gives(mode, what, rendered):
    all_ = rendered(f"overlays/{mode}/{what}")
    asked = {key for c in containers(all_) for key in c["resources"]["limits"] if "/" in key}
    (quota,) = kinds(all_, "ResourceQuota")
    assert asked == {RESOURCE.get(mode, "nvidia.com/gpu.shared")}
    assert f"requests.{asked.pop()}" in quota["spec"]["hard"]


@pytest.mark.parametrize("mode", MODES)
def test_the_linter_of_the_lab_finds_no_error_in_them(mode, rendered, tmp_path):
    from fleetlab.gpu.stacks import lint

    looked = 0
    for one in rendered(f"overlays/{mode}/lab") + rendered("sharing"):
        if one["kind"] in ("Pod", "ResourceQuota") or one.get("metadata", {}).get("name", "").startswith("fleetlab-"):
            path = tmp_path / "one.yaml"
            path.write_text(yaml.safe_dump(one), "utf-8")
            assert [f for f in lint(path, gpu=None).problems if f.severity == "error"] == []
            looked += 1
    assert looked == 4


def test_a_load_balancer_serves_private_addresses_alone(rendered):
    all_ = rendered("overlays/mps/lab-load-balancer")
    (service,) = [one for one in kinds(all_, "Service") if one["metadata"]["name"] == "inference"]
    ranges = service["spec"]["loadBalancerSourceRanges"]
    (policy,) = [one for one in kinds(all_, "NetworkPolicy") if one["metadata"]["name"] == "inference"]
    let_in = [f["ipBlock"]["cidr"] for f in policy["spec"]["ingress"][0]["from"] if "ipBlock" in f]
    assert service["spec"]["type"] == "LoadBalancer"
    assert ranges == let_in
    assert all(ipaddress.ip_network(cidr).is_private for cidr in ranges)


def test_the_server_answers_to_the_names_of_its_service(rendered):
    from fleetlab.gpu.serving.server.requests import KnownHosts

    (server,) = [c for c in containers(rendered("overlays/mps/lab")) if c["name"] == "inference"]
    words = server["args"]
    allowed = [words[k + 1] for k, word in enumerate(words) if word == "--allow-host"]
    hosts = KnownHosts("0.0.0.0", "0.0.0.0", allowed)
    assert all(hosts.accepts(name) for name in (b"inference", b"inference.fleetlab:80", b"inference.fleetlab.svc"))
    assert not hosts.accepts(b"evil.example")
