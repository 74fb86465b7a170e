"""A real API server takes every object, and refuses what it should; skipped where its programs are not installed.

etcd is a package of Debian, and kube-apiserver is built from Debian's source package: docs/deploy.md says how. Nothing
runs the pods here: there are no nodes, and no controllers.
"""

import contextlib
import copy
import os
import re
import shutil
import socket
import subprocess
import time

import pytest

yaml = pytest.importorskip("yaml")
pytestmark = pytest.mark.slow
MODES = ("exclusive", "time-slicing", "mps", "mig")
FOLDERS = ("sharing", *(f"overlays/{mode}/{what}" for mode in MODES for what in ("lab", "experiments")))
# What came to Kubernetes with a later release than the server's: (since, kind, how it was said before).
YOUNGER = (
    ((1, 21), "PodDisruptionBudget", lambda one: one.update(apiVersion="policy/v1beta1")),
    ((1, 23), "HorizontalPodAutoscaler", lambda one: one.update(apiVersion="autoscaling/v2beta2")),
    ((1, 21), "Job", lambda one: [one["spec"].pop(key, None) for key in ("suspend", "completionMode")]),
)
# What a cluster with the two operators has already.
AROUND = """
apiVersion: v1
kind: Namespace
metadata: {name: gpu-operator}
---
apiVersion: node.k8s.io/v1
kind: RuntimeClass
metadata: {name: nvidia}
handler: nvidia
---
apiVersion: apiextensions.k8s.io/v1
kind: CustomResourceDefinition
metadata: {name: servicemonitors.monitoring.coreos.com}
spec:
  group: monitoring.coreos.com
  names: {kind: ServiceMonitor, plural: servicemonitors, singular: servicemonitor}
  scope: Namespaced
  versions:
  - name: v1
    served: true
    storage: true
    schema:
      openAPIV3Schema:
        type: object
        properties: {spec: {type: object, x-kubernetes-preserve-unknown-fields: true}}
"""


class Cluster:
    """An API server, asked by kubectl."""

    def __init__(self, home, url):
        self.home, self.url = home, url
        version = subprocess.run(["kube-apiserver", "--version"], capture_output=True, text=True, check=True).stdout
        self.version = tuple(map(int, re.search(r"v(\d+)\.(\d+)", version).groups()))

    def ask(self, *words, given=None):
        config = ["--kubeconfig=/dev/null", f"--server={self.url}", "--token=lab", "--insecure-skip-tls-verify=true"]
        home = os.environ | {"HOME": str(self.home)}
        command = ["kubectl", *config, *words]
        return subprocess.run(command, input=given, capture_output=True, text=True, timeout=120, env=home)

    def apply(self, all_, *words):
        known = [self.as_known(one) for one in all_]
        return self.ask("apply", "--server-side", *words, "--filename=-", given=yaml.safe_dump_all(known))

    def as_known(self, one):
        one = copy.deepcopy(one)
        for since, kind, say_old in YOUNGER:
            if one["kind"] == kind and self.version < since:
                say_old(one)
        return one


def free_port():
    with socket.socket() as door:
        door.bind(("127.0.0.1", 0))
        return door.getsockname()[1]


@contextlib.contextmanager
def running(words, log):
    with log.open("w") as out, subprocess.Popen(words, stdout=out, stderr=subprocess.STDOUT) as process:
        try:
            yield process
        finally:
            process.terminate()


def answers(cluster):
    for _ in range(240):
        if cluster.ask("get", "--raw=/readyz").stdout == "ok":
            return True
        time.sleep(0.5)
    return False


@pytest.fixture(scope="module")
def cluster(tmp_path_factory):
    if missing := [name for name in ("etcd", "kube-apiserver", "kubectl", "openssl") if not shutil.which(name)]:
        pytest.skip(f"not installed: {', '.join(missing)}")
    home = tmp_path_factory.mktemp("api")
    (home / "tokens").write_text("lab,lab,lab,system:masters\n")
    subprocess.run(["openssl", "genrsa", "-out", home / "key", "2048"], check=True, capture_output=True)
    store, peer, port = (free_port() for _ in range(3))
    client = f"http://127.0.0.1:{store}"
    etcd = [
        "etcd",
        f"--data-dir={home / 'etcd'}",
        f"--listen-client-urls={client}",
        f"--advertise-client-urls={client}",
    ]
    etcd += [f"--listen-peer-urls=http://127.0.0.1:{peer}", "--unsafe-no-fsync"]
    server = ["kube-apiserver", f"--etcd-servers={client}", f"--cert-dir={home / 'certificates'}"]
    server += ["--bind-address=127.0.0.1", f"--secure-port={port}", "--authorization-mode=RBAC"]
    server += [f"--token-auth-file={home / 'tokens'}", "--service-cluster-ip-range=10.0.0.0/24"]
    server += ["--service-account-issuer=https://lab", f"--service-account-key-file={home / 'key'}"]
    server += [f"--service-account-signing-key-file={home / 'key'}"]
    with running(etcd, home / "etcd.log"), running(server, home / "server.log"):
        found = Cluster(home, f"https://127.0.0.1:{port}")
        assert answers(found), (home / "server.log").read_text()[-2000:]
        done = found.ask("apply", "--filename=-", given=AROUND)
        assert done.returncode == 0, done.stderr
        wanted = "--for=condition=Established"
        assert found.ask("wait", wanted, "crd/servicemonitors.monitoring.coreos.com").returncode == 0
        yield found


def quotas_counted(cluster, all_):
    """What a controller would do: from then on the server holds the quota."""
    for one in all_:
        if one["kind"] == "ResourceQuota":
            hard = one["spec"]["hard"]
            given = {"status": {"hard": hard, "used": dict.fromkeys(hard, "0")}}
            where = ["--namespace", one["metadata"]["namespace"], "resourcequota", one["metadata"]["name"]]
            done = cluster.ask(
                "patch", *where, "--subresource=status", "--type=merge", "--patch", yaml.safe_dump(given)
            )
            assert done.returncode == 0, done.stderr


ROOM = ("Namespace", "ServiceAccount", "ResourceQuota", "LimitRange")


def room(cluster, all_):
    """The namespaces with their limits, before anything comes into them."""
    if some := [one for one in all_ if one["kind"] in ROOM]:
        done = cluster.apply(some, "--validate=strict")
        assert done.returncode == 0, done.stderr
        quotas_counted(cluster, all_)


@pytest.fixture(params=FOLDERS)
def applied(request, cluster, rendered):
    """All objects of a folder in the server, first only tried; pods are gone after."""
    all_ = rendered(request.param)
    room(cluster, all_)
    for words in (["--dry-run=server"], []):
        done = cluster.apply(all_, "--validate=strict", *words)
        assert done.returncode == 0, done.stderr
    yield all_
    for one in all_:
        if one["kind"] == "Namespace":
            where = ["--namespace", one["metadata"]["name"], "--grace-period=0", "--force"]
            cluster.ask("delete", "job,pod,deployment,daemonset,resourcequota", "--all", *where)


def test_the_server_takes_every_object_and_gives_it_back(applied, cluster):
    for one in map(cluster.as_known, applied):
        about = one["metadata"]
        where = ["--namespace", about["namespace"]] if "namespace" in about else []
        done = cluster.ask("get", one["kind"], about["name"], *where, "--output=yaml")
        assert done.returncode == 0, done.stderr
        assert yaml.safe_load(done.stdout)["metadata"]["labels"].items() >= about["labels"].items()


def test_a_slip_is_refused(cluster, rendered):
    one = copy.deepcopy(next(one for one in rendered("overlays/mps/lab") if one["kind"] == "Deployment"))
    one["spec"]["template"]["spec"]["nodeSelectors"] = {}
    done = cluster.apply([one], "--validate=strict", "--dry-run=server")
    assert done.returncode != 0
    assert "nodeSelectors" in done.stderr


def test_the_quota_and_the_limits_hold(cluster, rendered):
    all_ = rendered("overlays/mps/lab")
    room(cluster, all_)
    pod = copy.deepcopy(next(one for one in all_ if one["kind"] == "Pod"))
    limits = pod["spec"]["containers"][0]["resources"]["limits"]
    limits["nvidia.com/gpu.shared"] = "7"
    assert "exceeded quota: lab" in cluster.apply([pod], "--dry-run=server").stderr
    limits |= {"nvidia.com/gpu.shared": "1", "cpu": "9"}
    assert "maximum cpu usage per Container is 8" in cluster.apply([pod], "--dry-run=server").stderr
