"""`fleetlab watch` beside a real API server and kube-scheduler, with the role that is documented and no more."""

import asyncio
import contextlib
import json
import os
import random
import shutil
import signal
import subprocess
import sys
import time
from pathlib import Path

import pytest

pytest.importorskip("aiohttp")
from realtest.kubernetes.client import PODS, Client
from realtest.kubernetes.kubelets import Kubelets
from realtest.kubernetes.lab import ADMISSION, TOKEN, Lab, kubeconfig, missing
from realtest.kubernetes.objects import Load, nodes_of, pods_of

from fleetlab.core import Trace
from fleetlab.schedulers.kubernetes.source import InPod, KubernetesSource

pytestmark = pytest.mark.kubernetes
ROLE = Path(__file__).parents[2] / "deploy" / "kubernetes" / "watch" / "role.yaml"
ACCOUNT = "system:serviceaccount:default:fleetlab-watch"
PODS_IN_ALL, NODES, KILLS = 60, 3, 5


@pytest.fixture(scope="module")
def lab(tmp_path_factory):
    """An API server that asks who may do what, with a token of the watch's own account."""
    if reason := missing() or ("" if _has("kubectl") else "kubectl"):
        pytest.skip(f"no real API server here, not installed: {reason}")
    folder = tmp_path_factory.mktemp("lab")
    (folder / "both").write_text(f'{TOKEN},lab,lab,"system:masters"\nwatching,{ACCOUNT},2\n')
    options = (ADMISSION, "--authorization-mode=RBAC", f"--token-auth-file={folder / 'both'}")
    with Lab(folder / "lab", options) as made:
        for name, token in (("admin", TOKEN), ("watch", "watching")):
            config = kubeconfig(made.url)
            config["users"][0]["user"]["token"] = token
            (folder / name).write_text(json.dumps(config))
        made.home = folder
        kubectl(made, "admin", "apply", "-f", str(ROLE))
        listed = {"apiVersion": "v1", "kind": "List", "items": nodes_of(NODES, Load())}
        (folder / "nodes").write_text(json.dumps(listed))
        kubectl(made, "admin", "create", "-f", str(folder / "nodes"))
        made.schedule({"apiVersion": "kubescheduler.config.k8s.io/v1beta1", "kind": "KubeSchedulerConfiguration"})
        yield made


def _has(program):
    return subprocess.run(["which", program], capture_output=True, check=False).returncode == 0


def kubectl(lab, who, *words, check=True):
    done = subprocess.run(
        ["kubectl", f"--kubeconfig={lab.home / who}", *words], capture_output=True, text=True, check=False
    )
    assert not check or done.returncode == 0, done.stderr
    return done


@pytest.mark.parametrize("verb", ["get", "list"])
@pytest.mark.parametrize("what", ["pods", "nodes", "events"])
def test_the_role_lets_it_list_what_it_needs(lab, verb, what):
    assert kubectl(lab, "watch", "auth", "can-i", verb, what, "-A").stdout.strip() == "yes"


@pytest.mark.parametrize(
    "words",
    [
        "get secrets",
        "get configmaps",
        "create pods",
        "delete pods",
        "patch nodes",
        "get pods --subresource=log",
        "create pods --subresource=exec",
    ],
)
def test_the_role_lets_it_do_nothing_else(lab, words):
    said = kubectl(lab, "watch", "auth", "can-i", *words.split(), "-A", check=False)
    assert said.stdout.strip() == "no"


def start(lab, out, *words):
    command = [sys.executable, "-m", "fleetlab.cli", "watch", "kubernetes", f"--kubeconfig={lab.home / 'watch'}"]
    command += ["--out", str(out), "--every", "1", "--listen", "off", "--predict", "0", *words]
    return subprocess.Popen(command, stdout=subprocess.PIPE, stderr=subprocess.PIPE, text=True, env=os.environ)


def is_stored(out, name):
    """Whether the watch has seen a pod: one that is deleted before is in no list, and none could tell of it."""
    for path in (*out.rglob("journal-*.log"), *out.rglob("snapshot.json")):
        with contextlib.suppress(FileNotFoundError):  # folded meanwhile
            if name in path.read_text(errors="replace"):
                return True
    return False


async def play(lab, out, reasons):
    """Submit pods, end them, delete some while they run; kill the watch meanwhile."""
    draws = random.Random(3)
    async with Client(lab.url) as client:
        begun = await client.list(PODS)
        kubelets = Kubelets(client)
        follow = asyncio.create_task(kubelets.follow(begun["metadata"]["resourceVersion"]))
        created, deleted, watch = {}, {}, start(lab, out)
        kill_at = time.monotonic() + 3
        killed, said = 0, ""

        def kill():
            nonlocal killed, said, watch, kill_at
            if killed < KILLS and time.monotonic() > kill_at:
                watch.send_signal(signal.SIGKILL)
                said += watch.communicate()[1]
                killed, watch, kill_at = killed + 1, start(lab, out), time.monotonic() + draws.uniform(2, 6)

        for pod in pods_of(PODS_IN_ALL, 5, Load(run_s=8.0)):
            made = await client.create(PODS, pod)
            created[made["metadata"]["name"]] = made["metadata"]["uid"]
            await asyncio.sleep(0.4)
            kill()
            running = [n for n, p in kubelets.pods.items() if p["status"].get("phase") == "Running"]
            if draws.random() < 0.1 and (known := [name for name in running if is_stored(out, name)]):
                name = draws.choice(known)
                await client.delete(f"{PODS}/{name}")
                deleted[name] = time.time()
        while (len(kubelets.ended) < PODS_IN_ALL or killed < KILLS) and time.monotonic() < kill_at + 240:
            await asyncio.sleep(1)
            kill()
        await asyncio.sleep(3)
        watch.terminate()
        printed, more = await asyncio.to_thread(watch.communicate)
        follow.cancel()
        pods = kubelets.pods
    reasons.append(printed)
    assert watch.returncode == 0, more
    assert "Traceback" not in said + more
    return created, deleted, killed, pods


def test_every_pod_of_a_real_cluster_is_in_the_trace_once(lab, tmp_path):
    out, printed = tmp_path / "watched", []
    created, deleted, killed, pods = asyncio.run(play(lab, out, printed))
    trace = Trace.load(out / "trace")
    frame = trace.workload.frame.join(trace.names.collect(), on="job")
    rows = {row["name"].removeprefix("default/"): row for row in frame.iter_rows(named=True)}
    print(f"\n{len(created)} pods, {len(deleted)} deleted as they ran, {killed} kills, {frame.height} jobs in all")
    assert killed == KILLS
    assert deleted
    assert sorted(frame["name"].to_list()) == sorted(f"default/{name}" for name in created)
    ended = {name: row["end"] + trace.workload.epoch for name, row in rows.items() if row["status"] == "completed"}
    real = {name: _finished(pods[name]) for name in ended}
    assert ended == real
    cancelled = {name for name, row in rows.items() if row["status"] == "cancelled"}
    assert cancelled <= deleted.keys()
    near = [abs(rows[n]["end"] + trace.workload.epoch - deleted[n]) for n in cancelled if rows[n]["end"] is not None]
    print(f"ends of deleted pods are known within {max(near, default=0):.1f} s")


def _finished(pod):
    from datetime import datetime

    state = pod["status"]["containerStatuses"][0]["state"]
    return datetime.fromisoformat(state["terminated"]["finishedAt"]).timestamp()


def test_a_real_scheduler_s_reason_becomes_a_label(lab, tmp_path):
    big = {"name": "main", "image": "none", "resources": {"limits": {"nvidia.com/gpu": "99"}}}
    pod = {"apiVersion": "v1", "kind": "Pod", "metadata": {"name": "big"}, "spec": {"containers": [big]}}
    subprocess.run(["kubectl", f"--kubeconfig={lab.home / 'admin'}", "create", "-f", "-"], input=json.dumps(pod),
                   text=True, check=True, capture_output=True)  # fmt: skip
    for _ in range(20):
        said = start(lab, tmp_path / "watched", "--once", "--json").communicate(timeout=120)
        waiting = json.loads(said[0])["tables"]["waiting"]
        if [row["reason"] for row in waiting] == ["InsufficientGPU"]:
            break
        time.sleep(1)
    assert [(row["queue"], row["reason"], row["GPUs"]) for row in waiting] == [("default", "InsufficientGPU", 99.0)]


def test_inside_a_pod_its_service_account_is_enough(lab, tmp_path):
    (tmp_path / "token").write_text("watching\n")
    shutil.copy(lab.folder / "certificates" / "apiserver.crt", tmp_path / "ca.crt")
    source = KubernetesSource(InPod(tmp_path, lab.url))
    poll = source.poll(0.0, 0.0)
    assert poll.failures == {}
    assert poll.listed
    assert len(json.loads(poll.nodes)["items"]) == NODES
    (tmp_path / "token").write_text("wrong\n")
    assert "401" in source.poll(0.0, 0.0).failures["pods"]
