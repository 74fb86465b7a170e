"""Stand-ins for NVIDIA's control program and for `nvidia-smi`."""

import json
import os
import stat
import sys
import tempfile
from pathlib import Path

import pytest
from realtest.archives import gpu_sharing

# What the driver's program does, as far as the bench asks: a daemon that leaves its id in the pipe directory, answers
# while it lives and goes at `quit`. Its name, its environment and what it inherits are as those of the real one: it is
# forked, and closes nothing. The clients it lists are those that the test writes into `clients`. Other files slow it
# down, by the seconds in them: `slow-start`, until it is there; `slow-quit`, until it is gone; `server`, which has it
# start a server that outlives it by so much, or is deaf to all signals but one if that is `deaf`.
DAEMON = """#!{python} -IS
import os, signal, sys, time
from pathlib import Path
pipe = Path(os.environ["CUDA_MPS_PIPE_DIRECTORY"])
note, home = pipe / "nvidia-cuda-mps-control.pid", Path({home!r})
def setting(name):
    return (home / name).read_text() if (home / name).exists() else ""
def become(seconds):
    # Ends so many seconds after SIGTERM, and in any case; of the name only 15 characters are kept.
    ended = []
    signal.signal(signal.SIGTERM, lambda *_: ended.append(seconds != "deaf"))
    Path("/proc/self/comm").write_text("nvidia-cuda-mps-control")
    until = time.monotonic() + 300
    while time.monotonic() < until and not any(ended):
        time.sleep(0.02)
    time.sleep(float(seconds or 0))
def fork(work):
    pid = os.fork()
    if not pid:
        work()
        os._exit(0)
    return pid
def daemon():
    os.setsid()
    if setting("server"):
        server = fork(lambda: become(setting("server")))
        (pipe / "server").write_text(str(server))
        (home / "server-id").write_text(str(server))
    become(setting("slow-quit"))
    note.unlink(missing_ok=True)
if sys.argv[1:] == ["-d"]:
    (home / "launching").touch()
    Path("/proc/self/comm").write_text("nvidia-cuda-mps-control")
    time.sleep(float(setting("slow-start") or 0))
    pid = str(fork(daemon))
    (home / "daemon").write_text(pid)
    (pipe / "note").write_text(pid)
    (pipe / "note").rename(note)
    sys.exit(0)
def lives(pid):
    try:
        about = Path("/proc", pid, "status").read_text()
    except OSError:
        return False
    return about.startswith("Name:\\tnvidia-cuda-mps") and "(zombie)" not in about
if not note.exists() or not lives(note.read_text()):
    print("Cannot find MPS control daemon process", file=sys.stderr)
    sys.exit(0)
word = sys.stdin.read().split()
stubborn = (home / "stubborn").exists()  # says nothing, and does nothing
if word[0] == "get_default_active_thread_percentage":
    kept = pipe / "percent"
    print(kept.read_text() if kept.exists() else "100.0")
elif word[0] == "set_default_active_thread_percentage" and not stubborn:
    (pipe / "percent").write_text(str(float(word[1])))
elif word[0] == "set_default_device_pinned_mem_limit" and not stubborn:
    (pipe / ("memory" + word[1])).write_text(word[2])
elif word[0] == "get_default_device_pinned_mem_limit":
    kept = pipe / ("memory" + word[1])
    mib = int(kept.read_text()[:-1]) if kept.exists() else 0
    print(f"{{mib // 1024}}G" if mib >= 1024 else f"{{mib}}M" if mib else "")  # newer drivers round down
elif word[0] == "get_server_list":
    print((pipe / "server").read_text() if (pipe / "server").exists() else "4242")
elif word[0] == "get_client_list":
    print(setting("clients"))
    (home / "asked").touch()
elif word[0] == "quit":
    for file in (pipe / "server", note):
        if file.exists() and lives(file.read_text()):
            os.kill(int(file.read_text()), signal.SIGTERM)
    while note.exists() and not setting("slow-quit"):
        time.sleep(0.01)
"""
DEAF = "#!/bin/sh\nexit 0\n"


def program(folder: Path, text: str, name: str = "nvidia-cuda-mps-control") -> None:
    folder.mkdir(exist_ok=True)
    path = folder / name
    path.write_text(text)
    path.chmod(path.stat().st_mode | stat.S_IXUSR)


@pytest.fixture
def mps(tmp_path, monkeypatch) -> Path:
    """A folder with `daemon` (the id of the one last started) and `clients` (who is to be listed)."""
    program(tmp_path / "bin", DAEMON.format(python=sys.executable, home=str(tmp_path)))
    monkeypatch.setenv("PATH", f"{tmp_path / 'bin'}:{os.environ['PATH']}")
    return tmp_path


@pytest.fixture
def deaf_mps(tmp_path, monkeypatch) -> None:
    """A control program that exits 0 and starts nothing, as the driver's does with an option it does not know."""
    program(tmp_path / "bin", DEAF)
    monkeypatch.setenv("PATH", f"{tmp_path / 'bin'}:{os.environ['PATH']}")


# What `nvidia-smi` does, as far as the bench asks: a card whose MIG it switches, cuts and lists. `state` is its memory;
# what is in `fails`, `lies`, … makes it do otherwise at the option of that name.
SMI = """#!{python} -IS
import fcntl, json, os, re, signal, sys, time
from pathlib import Path
path = Path({state!r})
lock = path.with_suffix(".lock").open("w")  # one at a time, as the driver has it
fcntl.flock(lock, fcntl.LOCK_EX)
s = json.loads(path.read_text())
def save():
    path.with_suffix(".new").write_text(json.dumps(s))
    path.with_suffix(".new").replace(path)
words = sys.argv[1:]
line = " ".join(words)
option = next((w for w in words if w in ("-mig", "-cgi", "-dci", "-dgi", "-lgi", "-lgip", "-lgipp", "-L")), words[0])
s["log"].append(line)
save()
def end(text="", status=0):
    save()
    print(text, end="")
    sys.exit(status)
def made(start, size, name):
    time.sleep(s["slow"])
    s["instances"].append([name, max([i[1] for i in s["instances"]], default=0) + 1, start, size])
    save()
if s["hangs"]:
    time.sleep(600)
if s["garbage"]:
    end("�� this is not a table\\n")
if option in s["fails"]:
    end(s["fails"][option] + "\\n", 4)
if option in s["lies"]:
    end("All done.\\n")
if option.startswith("--query-gpu"):
    mig = (s["mig"], s["pending"])
    print(s["warns"], end="")
    end(f"0, {{s['name']}}, {{s['uuid']}}, 580.159.04, 143771, 0, {{s['compute']}}, Enabled, {{mig[0]}}, {{mig[1]}}\\n")
if option.startswith("--query-compute-apps"):
    s["leaves"] -= 1  # at this look they are gone
    if s["leaves"] == 0:
        s["processes"] = []
    came = path.with_name("visitors")
    visitors = [[pid, "visitor"] for pid in came.read_text().split()] if came.exists() else []
    if visitors:
        path.with_name("looked").touch()
    end("".join(f"{{s['uuid']}}, {{pid}}, 1024, {{name}}\\n" for pid, name in s["processes"] + visitors))
if words[:2] == ["compute-policy", "-l"]:
    end(s["slices"])
if option == "-lgip":
    end(s["profiles"])
if option == "-lgipp":
    end(s["places"] or "No MIG-enabled devices found.\\n", 0 if s["places"] else 6)
if option == "-L":
    seen = s["instances"] if s["parts"] else []
    rows = [f"  MIG {{i[0]}}     Device  {{k}}: (UUID: MIG-{{i[1]}})\\n" for k, i in enumerate(seen)]
    end(f"GPU 0: {{s['name']}} (UUID: {{s['uuid']}})\\n" + "".join(rows))
if option == "-lgi" and s["mig"] != "Enabled":
    end("No MIG-enabled devices found.\\n", 6)
if option == "-lgi" and not s["instances"]:
    end("No GPU instances found: Not Found\\n", 6)
if option == "-lgi":
    rows = [f"|   0  MIG {{n:<14}} 9      {{i:>3}}          {{a}}:{{z}}     |\\n" for n, i, a, z in s["instances"]]
    end("| GPU instances:   |\\n|====|\\n" + ("+------+\\n").join(rows))
if option == "-mig":
    mode = "Enabled" if words[-1] == "1" else "Disabled"
    if s["instances"] and mode == "Disabled":
        end("Unable to disable MIG Mode for GPU 00000000:01:00.0: In use by another client\\n", 19)
    time.sleep(s["slow"])
    s["pending"] = mode
    if not s["pends"]:
        s["mig"] = mode
    end(f"{{mode}} MIG Mode for GPU 00000000:01:00.0\\nAll done.\\n")
if option == "-cgi":
    for one in words[words.index("-cgi") + 1].split(","):
        name, start = one.split(":")
        size = {{"1": 1, "2": 2, "3": 4, "4": 4, "7": 8}}[name[0]]
        made(s["moves"].get(start, int(start)), size, name)
        if s["half"]:
            end("Unable to create a GPU instance on GPU  0: Insufficient Resources\\n", 19)
    if s["interrupts"]:
        save()
        os.kill(os.getppid(), signal.SIGINT)
        time.sleep(600)
    end("Successfully created GPU instance\\n")
if option == "-dgi":
    gone = words[words.index("-gi") + 1].split(",") if "-gi" in words else [str(i[1]) for i in s["instances"]]
    s["instances"] = [i for i in s["instances"] if str(i[1]) not in gone]
    end("Successfully destroyed GPU instance\\n")
if option == "-dci":
    end("Successfully destroyed compute instance\\n")
end("Invalid combination of input arguments.\\n", 2)
"""
PLACES = """GPU  0 Profile ID 19 Placements: {0,1,2,3,4,5,6}:1
GPU  0 Profile ID 20 Placements: {0,1,2,3,4,5,6}:1
GPU  0 Profile ID 15 Placements: {0,2,4,6}:2
GPU  0 Profile ID 14 Placements: {0,2,4}:2
GPU  0 Profile ID  9 Placements: {0,4}:4
GPU  0 Profile ID  5 Placement : {0}:4
GPU  0 Profile ID  0 Placement : {0}:8
"""


class Smi:
    """A stand-in for `nvidia-smi` with one H200, which remembers what it was told."""

    def __init__(self, folder: Path) -> None:
        self._state = folder / "smi.json"
        asked = json.loads((gpu_sharing() / "h200" / "probe.json").read_text())
        self.set(
            name="NVIDIA H200",
            uuid="GPU-b9a1a5c3",
            compute="Default",
            mig="Disabled",
            pending="Disabled",
            processes=[],
            instances=[],
            parts=True,
            profiles=asked["mig profiles"] + "\n",
            slices=asked["time slice"] + "\n",
            places=PLACES,
            warns="",
            log=[],
            fails={},
            lies=[],
            moves={},
            half=False,
            pends=False,
            hangs=False,
            garbage=False,
            interrupts=False,
            slow=0.0,
            leaves=0,
        )
        text = SMI.format(python=sys.executable, state=str(self._state))
        program(folder / "bin", text, "nvidia-smi")

    def set(self, **values) -> None:
        old = json.loads(self._state.read_text()) if self._state.exists() else {}
        self._state.write_text(json.dumps(old | values))

    def __getitem__(self, name):
        return json.loads(self._state.read_text())[name]

    @property
    def changes(self) -> list[str]:
        """What it was told that would change a card."""
        return [line for line in self["log"] if {"-mig", "-cgi", "-dci", "-dgi"} & set(line.split())]


@pytest.fixture
def smi(tmp_path, monkeypatch) -> Smi:
    """One H200 behind a program that answers as the driver's does."""
    monkeypatch.setenv("PATH", f"{tmp_path / 'bin'}:{os.environ['PATH']}")
    return Smi(tmp_path)


@pytest.fixture
def own(monkeypatch):
    """A short folder where what was switched on is remembered, and an environment that knows of no MPS."""
    with tempfile.TemporaryDirectory(prefix="fl", dir="/tmp") as home:
        monkeypatch.setenv("XDG_RUNTIME_DIR", home)
        monkeypatch.delenv("CUDA_MPS_PIPE_DIRECTORY", raising=False)
        monkeypatch.delenv("CUDA_VISIBLE_DEVICES", raising=False)
        yield Path(home) / "fleetlab"
