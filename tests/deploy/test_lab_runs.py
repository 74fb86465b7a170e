"""What the manifests say, done on the CPU: the same arguments, the probes' addresses, and every metric that is used."""

import re
import signal
import subprocess
import sys
import urllib.request
from contextlib import contextmanager

import pytest
from tests.deploy.boards import check_panels, expressions, used

pytest.importorskip("yaml")
pytest.importorskip("torch")
pytest.importorskip("prometheus_client")
# Labels that Prometheus adds to what it scrapes; `le` is of every histogram.
ADDED = {"namespace", "pod", "le"}


def args(all_, name):
    """(image, arguments, container) of a workload."""
    for one in all_:
        spec = one.get("spec", {}).get("template", {}).get("spec") or one.get("spec", {})
        if one["metadata"]["name"] == name and "containers" in spec:
            found = spec["containers"][0]
            return found["image"], found.get("args", []), found
    pytest.fail(f"no workload by that name: {name}")


def workloads(all_):
    return [one["metadata"]["name"] for one in all_ if one["kind"] in ("Deployment", "DaemonSet", "Job", "Pod")]


@contextmanager
def started(words):
    """A process of the lab and its first line that names an address."""
    command = [sys.executable, "-m", "fleetlab.cli", *words]
    with subprocess.Popen(command, stdout=subprocess.PIPE, stderr=subprocess.STDOUT, text=True) as process:
        try:
            said = ""
            for line in process.stdout:
                said += line
                if found := re.search(r"http://[\d.]+:(\d+)", line):
                    yield f"http://127.0.0.1:{found[1]}"
                    break
            else:
                pytest.fail(said)
        finally:
            process.send_signal(signal.SIGTERM)
            process.stdout.read()
            assert process.wait(60) == 0


def with_port(words, flag):
    """The same arguments at a free port."""
    at = words.index(flag)
    return [*words[: at + 1], "0", *words[at + 2 :]]


def get(url, body=None):
    with urllib.request.urlopen(url, body, timeout=30) as answer:
        return answer.status, answer.read().decode()


@pytest.fixture(scope="module")
def server(rendered, entrypoint):
    """The inference container on the CPU, tiny, after an answer."""
    image, words, found = args(rendered("overlays/mps/lab"), "inference")
    command = [*entrypoint(image)[1:], *with_port(words, "--port"), "--device", "cpu", "--tiny"]
    with started(command) as url:
        assert get(f"{url}/predict", b'{"seed": 7}')[0] == 200
        yield url, found


@pytest.fixture(scope="module")
def monitor(rendered, entrypoint):
    """The monitor's container, watching the host."""
    image, words, found = args(rendered("overlays/mps/lab"), "monitor")
    with started([*entrypoint(image)[1:], *with_port(words, "--prometheus"), "--backend", "cpu"]) as url:
        yield url, found


@pytest.fixture(scope="module")
def scraped(server, monitor):
    """Metric families, and the labels of each sample, as the two really say them."""
    text = get(f"{server[0]}/metrics")[1] + get(f"{monitor[0]}/metrics")[1]
    names = set(re.findall(r"^# TYPE (\S+)", text, re.MULTILINE))
    labels = {}
    for name, inside in re.findall(r"^(\w+)(?:\{(.*?)\})? ", text, re.MULTILINE):
        labels.setdefault(name, set()).update(re.findall(r'(\w+)="', inside))
    return names | labels.keys(), labels


@pytest.mark.parametrize("who", ["server", "monitor"])
def test_the_probes_of_a_running_container_answer(who, request):
    url, found = request.getfixturevalue(who)
    paths = {found[probe]["httpGet"]["path"] for probe in found if probe.endswith("Probe")}
    assert paths
    assert [get(url + path)[0] for path in paths] == [200] * len(paths)


@pytest.mark.parametrize("folder", ["overlays/mps/lab", "overlays/mps/experiments"])
def test_every_container_runs_a_command_of_the_lab(folder, rendered, entrypoint):
    from fleetlab.cli import app

    configured = {
        one["metadata"]["name"]: one.get("data", {}) for one in rendered(folder) if one["kind"] == "ConfigMap"
    }
    for name in workloads(rendered(folder)):
        image, words, found = args(rendered(folder), name)
        if "command" in found and found["command"][-1] == "tenant":  # its script begins so, with each workload in turn
            assert 'fleetlab bench workload "$mine" "$@"' in found["command"][2]
            words = ["bench", "workload", "resnet-infer", *words]
        elif "command" in found and found["command"][-1] != "fleetlab":
            assert found["command"][0] == "sleep"
            continue
        start = [] if "command" in found else entrypoint(image)
        if start[:1] == ["jupyter"]:
            continue
        given = {
            e["name"]: configured[e["valueFrom"]["configMapKeyRef"]["name"]][e["valueFrom"]["configMapKeyRef"]["key"]]
            for e in found.get("env", [])
            if "configMapKeyRef" in e.get("valueFrom", {})
        }
        told = [re.sub(r"\$\((\w+)\)", lambda m, given=given: given[m[1]], word) for word in words]
        app.parse_args([*start[1:], *told], exit_on_error=False, print_error=False)


def test_a_wrong_argument_would_be_seen():
    from cyclopts import CycloptsError

    from fleetlab.cli import app

    with pytest.raises(CycloptsError):
        app.parse_args(["bench", "serve", "resnet-infer", "--prot", "1"], exit_on_error=False, print_error=False)


# --- metrics ---------------------------------------------------------------------------------------------------------


def test_the_words_of_an_expression_are_found():
    said = 'sum by (le, pod) (rate(a_bucket{namespace=~"$n"}[$__rate_interval])) / 2'
    assert used(said) == ({"a_bucket"}, {"le", "pod", "namespace"})
    assert used("label_values(a, b)") == ({"a"}, {"b"})


def test_the_dashboard_shows_what_is_really_exported(deploy, scraped):
    names, labels = scraped
    seen = set()
    for expression, legend in expressions(deploy / "grafana" / "fleetlab.json"):
        metrics, wanted = used(expression)
        assert metrics, expression
        assert metrics <= names, expression
        known = set().union(*(labels.get(name, set()) for name in metrics)) | ADDED
        # A card that this machine lacks says no number, but all numbers of the monitor have the same labels.
        known |= labels["DCGM_FI_DEV_GPU_UTIL"] if any(name.startswith("DCGM") for name in metrics) else set()
        assert wanted | legend <= known, expression
        seen |= metrics
    assert len(seen) >= 14


def test_a_metric_that_nobody_exports_would_be_seen(scraped):
    assert not used("rate(fleetlab_serve_answers_total[5m])")[0] <= scraped[0]


def test_the_autoscaler_goes_by_a_metric_that_is_exported(rendered, scraped):
    scaler = next(one for one in rendered("overlays/mps/lab") if one["kind"] == "HorizontalPodAutoscaler")
    asked = [m["pods"]["metric"]["name"] for m in scaler["spec"]["metrics"] if m["type"] == "Pods"]
    assert asked
    assert set(asked) <= scraped[1].keys()


def test_metrics_are_scraped_where_they_are(rendered, server, monitor):
    watched = [one for one in rendered("overlays/mps/lab") if one["kind"] == "ServiceMonitor"]
    doors = {"inference": server[0], "monitor": monitor[0]}
    assert {one["metadata"]["name"] for one in watched} == doors.keys()
    for one in watched:
        for endpoint in one["spec"]["endpoints"]:
            assert "# TYPE" in get(doors[one["metadata"]["name"]] + endpoint["path"])[1]


def test_panels_do_not_lie_on_each_other(deploy):
    check_panels(deploy / "grafana" / "fleetlab.json")
