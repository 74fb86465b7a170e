"""Pods of a cluster that are listed, end, and are deleted; an API server of the test's own answers."""

import copy
import json
from datetime import UTC, datetime
from urllib.parse import parse_qs, urlsplit

import pytest

from fleetlab.core.sources import SourceError
from fleetlab.live.journal import trace_of
from fleetlab.live.options import WatchOptions
from fleetlab.live.watch import Watcher
from fleetlab.schedulers.kubernetes.source import KubernetesSource, items, stripped_pod

BEGIN = 1_800_000_000.0
FULL = "0/2 nodes are available: 2 Insufficient nvidia.com/gpu."


def stamp(seconds):
    return datetime.fromtimestamp(BEGIN + seconds, UTC).strftime("%Y-%m-%dT%H:%M:%SZ")


def pod(name, created, **about):
    container = {"name": "main", "env": [{"name": "PASSWORD", "value": "secret"}], "image": "private/image",
                 "resources": {"limits": {"nvidia.com/gpu": "4"}, "requests": {"cpu": "8"}}}  # fmt: skip
    return {
        "metadata": {"name": name, "namespace": "team", "uid": f"uid-{name}", "creationTimestamp": stamp(created),
                     "annotations": {"kubectl.kubernetes.io/last-applied-configuration": "x" * 999}, **about},
        "spec": {"containers": [container]},
        "status": {"phase": "Pending", "conditions": []},
    }  # fmt: skip


class Api:
    """Answers lists by pages, as an API server does."""

    def __init__(self):
        self.pods, self.events, self.broken, self.asked = {}, [], set(), []
        self.nodes = [self._node("n1"), self._node("n2")]

    @staticmethod
    def _node(name):
        amounts = {"cpu": "64", "memory": "512Gi", "nvidia.com/gpu": "8"}
        labels = {"nvidia.com/gpu.product": "NVIDIA-A100-SXM4-80GB"}
        ready = [{"type": "Ready", "status": "True"}]
        return {"metadata": {"name": name, "labels": labels}, "spec": {},
                "status": {"capacity": amounts, "allocatable": amounts, "conditions": ready}}  # fmt: skip

    def server(self):
        return "https://stand-in"

    def get(self, path):
        url = urlsplit(path)
        kind, words = url.path.rsplit("/", 1)[1], parse_qs(url.query)
        self.asked.append(kind)
        if kind in self.broken:
            msg = "Error from server (Timeout): request timed out"
            raise SourceError(msg)
        every = {"pods": list(self.pods.values()), "nodes": self.nodes, "events": self.events}[kind]
        begin, size = int(words.get("continue", ["0"])[0]), min(3, int(words["limit"][0]))
        more = str(begin + size) if begin + size < len(every) else ""
        return json.dumps({"metadata": {"continue": more}, "items": every[begin : begin + size]})

    # what schedulers and kubelets do

    def bind(self, name, node, at):
        one = self.pods[name]
        one["spec"]["nodeName"] = node
        one["status"]["conditions"] = [{"type": "PodScheduled", "status": "True", "lastTransitionTime": stamp(at)}]
        one["status"] |= {"phase": "Running", "startTime": stamp(at)}

    def end(self, name, at):
        state = {"terminated": {"exitCode": 0, "finishedAt": stamp(at)}}
        self.pods[name]["status"] |= {"phase": "Succeeded", "containerStatuses": [{"name": "main", "state": state}]}


class Site:
    """A watch of that cluster on a clock of its own."""

    def __init__(self, out):
        self.api, self.now, self.said = Api(), BEGIN, []
        self.options = WatchOptions(out=out, listen="off", predict=0)
        self.start()

    def start(self):
        source = KubernetesSource(self.api, lambda: self.now)
        self.watcher = Watcher(source, source.name(), self.options, self.said.append, lambda: self.now)

    def stop(self):
        self.watcher.background = None
        self.watcher.close()

    def poll(self, at):
        self.now = BEGIN + at
        self.watcher.step()

    def jobs(self):
        trace = trace_of(self.options.out, KubernetesSource)
        frame = trace.workload.frame.join(trace.names.collect(), on="job")
        rows = frame.select("name", "status", "start", "end", "runtime_at_least").iter_rows()
        return {name.removeprefix("team/"): tuple(values) for name, *values in rows}


@pytest.fixture
def site(tmp_path):
    """A pod that waits, one that runs, and one that has ended."""
    made = Site(tmp_path / "watched")
    for name in ("waits", "runs", "ended"):
        made.api.pods[name] = pod(name, 0)
    made.api.bind("runs", "n1", 10)
    made.api.bind("ended", "n2", 10)
    made.api.end("ended", 30)
    failed = {"type": "PodScheduled", "status": "False", "reason": "Unschedulable", "message": FULL}
    made.api.pods["waits"]["status"]["conditions"] = [failed]
    yield made
    made.stop()


def test_pods_are_jobs_of_the_trace(site):
    site.poll(60)
    assert site.jobs() == {
        "waits": ("waiting", None, None, None),
        "runs": ("running", 10.0, None, 50.0),
        "ended": ("completed", 10.0, 30.0, None),
    }


def test_a_pending_pod_has_a_reason_of_few_words(site):
    site.poll(60)
    assert site.watcher.present.waiting.select("queue", "reason", "jobs", "gpus").rows() == [
        ("team", "InsufficientGPU", 1, 4.0)
    ]


def test_pods_of_a_gang_are_one_job_with_the_reason_of_its_pods(site):
    for name in ("a-0", "a-1"):
        site.api.pods[name] = pod(name, 5, labels={"scheduling.x-k8s.io/pod-group": "a"})
        site.api.pods[name]["status"] = copy.deepcopy(site.api.pods["waits"]["status"])
    site.poll(60)
    waiting = site.watcher.present.waiting.select("reason", "jobs", "gpus").rows()
    assert waiting == [("InsufficientGPU", 2, 12.0)]


def test_gpus_are_counted_by_where_pods_run_and_by_nodes_that_are_up(site):
    site.api.nodes[1]["spec"]["unschedulable"] = True
    site.poll(60)
    row = site.watcher.present.gpus.row(0, named=True)
    assert (row["gpus"], row["up"], row["allocated"]) == (16, 8.0, 4.0)


def test_a_node_that_is_cordoned_is_drained_and_one_that_is_not_ready_is_down(site):
    site.poll(60)
    site.api.nodes[0]["spec"]["unschedulable"] = True
    site.api.nodes[1]["status"]["conditions"][0]["status"] = "Unknown"
    site.poll(120)
    assert site.watcher.metrics.nodes == {"n1": "drained", "n2": "down"}
    assert site.said[-2:] == ["down: n2", "drained: n1"]


def test_namespaces_are_teams(site):
    site.poll(60)
    assert site.watcher.present.teams.rows() == [("team", "running", 1, 4.0), ("team", "waiting", 1, 4.0)]


def test_what_is_kept_of_a_pod_has_no_environment_no_image_and_no_long_annotation(site):
    site.poll(60)
    kept = b"".join(p.read_bytes() for p in site.options.out.rglob("*") if p.is_file())
    assert not any(word in kept for word in (b"secret", b"PASSWORD", b"private/image", b"last-applied"))


def test_a_pod_deleted_between_two_polls_ended_halfway(site):
    site.poll(60)
    del site.api.pods["runs"]
    site.poll(120)
    assert site.jobs()["runs"] == ("cancelled", 10.0, 90.0, None)


def test_an_event_tells_when_a_deleted_pod_was_killed(site):
    site.poll(60)
    del site.api.pods["runs"]
    site.api.events.append({"involvedObject": {"uid": "uid-runs"}, "reason": "Killing", "lastTimestamp": stamp(71)})
    site.poll(120)
    assert site.jobs()["runs"] == ("cancelled", 10.0, 71.0, None)


def test_a_pod_deleted_while_the_watch_was_down_has_an_unknown_end(site):
    site.poll(60)
    site.stop()
    del site.api.pods["runs"]
    site.start()
    site.poll(9000)
    assert site.jobs()["runs"] == ("cancelled", 10.0, None, 50.0)


def test_a_pending_pod_that_is_deleted_never_started(site):
    site.poll(60)
    del site.api.pods["waits"]
    site.poll(120)
    assert site.jobs()["waits"] == ("cancelled", None, 90.0, None)


def test_a_pod_that_ended_and_is_deleted_later_keeps_its_end(site):
    site.poll(60)
    site.api.pods.clear()
    site.poll(120)
    assert site.jobs()["ended"] == ("completed", 10.0, 30.0, None)


def test_an_api_server_that_times_out_ends_no_pod(site):
    site.poll(60)
    site.api.broken = {"pods"}
    site.poll(120)
    assert site.said == ["pods fails: Error from server (Timeout): request timed out; it is asked again at every poll"]
    assert site.jobs()["runs"][0] == "running"


def test_events_that_may_not_be_read_are_a_failure_of_their_own(site):
    site.poll(60)
    site.api.broken = {"events"}
    del site.api.pods["runs"]
    site.poll(120)
    assert "events fails" in site.said[0]
    assert site.jobs()["runs"][:3] == ("cancelled", 10.0, 90.0)


def test_events_are_asked_for_only_when_a_pod_is_gone(site):
    site.poll(60)
    site.poll(120)
    assert "events" not in site.api.asked


def test_a_long_list_is_read_by_pages():
    api = Api()
    api.pods = {str(n): pod(str(n), n) for n in range(10)}
    assert [one["metadata"]["name"] for one in items(api, "/api/v1/pods")] == [str(n) for n in range(10)]


@pytest.mark.parametrize("text", ["", "{}", "[]", '{"items": 3}', "<html>", '{"items": [', "null"])
def test_an_answer_that_is_no_list_is_a_failure(text):
    api = Api()
    api.get = lambda path: text
    with pytest.raises(SourceError):
        list(items(api, "/api/v1/pods"))


def test_readiness_and_restarts_of_a_running_pod_are_no_change(site):
    site.poll(60)
    before = site.watcher.store.cursor.rows
    status = site.api.pods["runs"]["status"]
    status["conditions"].append({"type": "Ready", "status": "False", "lastTransitionTime": stamp(70)})
    status["containerStatuses"] = [{"name": "main", "restartCount": 7, "state": {"running": {}}}]
    site.poll(120)
    assert site.watcher.store.cursor.rows == before


@pytest.mark.parametrize("part", ["metadata", "spec", "status"])
@pytest.mark.parametrize("value", [None, 5, [], "text", {"containers": 3, "conditions": {}, "annotations": []}])
def test_a_pod_of_any_form_is_stripped(part, value):
    broken = copy.deepcopy(pod("a", 0)) | {part: value}
    assert stripped_pod(broken)["kind"] == "Pod"
