"""Work of a user's own as a tenant: real programs, counted, made to wait, and ended with all that they started."""

import os
import signal
import subprocess
import sys
import time
from pathlib import Path

import pytest
import torch

from fleetlab.gpu.bench.loops import summarize_window
from fleetlab.gpu.bench.plans import BenchCell, Seat, SuitePlan, Tenant
from fleetlab.gpu.bench.run import make_plan
from fleetlab.gpu.bench.workers import guard
from fleetlab.gpu.bench.workers.pool import python_path
from fleetlab.gpu.bench.workloads import make
from fleetlab.gpu.bench.workloads.own import OwnCommand
from fleetlab.gpu.devices.console import BenchError

from .conftest import run

CPU = torch.device("cpu")
STEADY = "import time\nfrom fleetlab.gpu import step\nwhile True:\n    time.sleep(0.01)\n    step(4)\n"


@pytest.fixture
def start(tmp_path, monkeypatch):
    """Start a program as a tenant; all are ended after the test."""
    monkeypatch.setenv("PYTHONPATH", python_path()["PYTHONPATH"])
    started = []

    def starts(text, **settings):
        (tmp_path / "program.py").write_text(text)
        work = OwnCommand(f"{sys.executable} {tmp_path / 'program.py'}", **settings)
        started.append(work)
        work.setup(CPU)
        return work

    yield starts
    for work in started:
        work.close()


def rate(work, seconds=0.6):
    opens = time.monotonic() + 0.1
    fed = work.watch(closes=opens + seconds, until=opens + seconds)
    assert fed.error is None
    return summarize_window(fed, opens, opens + seconds)["rate"]


def test_steps_are_counted_with_their_items(start):
    """At most 100 steps of 4 in a second; a busy host makes fewer."""
    assert 40 < rate(start(STEADY)) <= 404


def test_lines_of_output_are_steps_and_their_numbers_count_those_between(start):
    text = (
        "import time\nfor k in range(10**6):\n    time.sleep(0.005)\n    if k % 10 == 0: print(f'at {k}', end='\\r')\n"
    )
    assert 40 < rate(start(text, match=r"at (\d+)", warm_up=2)) <= 202


def test_lines_without_a_number_are_one_step_each(start):
    text = "import time\nwhile True:\n    time.sleep(0.02)\n    print('done a step')\n"
    assert 5 < rate(start(text, match="done", items=2)) <= 101


@pytest.mark.parametrize("counts", ["from fleetlab.gpu import step\n", "def step(): print('step')\n"])
def test_between_its_cells_it_stands_still(start, tmp_path, counts):
    log = f"log = open({str(tmp_path / 'log')!r}, 'ab', buffering=0)\n"
    text = f"import time\n{counts}{log}while True:\n    log.write(b'x')\n    step()\n    time.sleep(0.01)\n"
    work = start(text, match="" if "import" in counts else "step")
    before = (tmp_path / "log").stat().st_size
    time.sleep(0.3)
    still = (tmp_path / "log").stat().st_size
    work.watch(closes=time.monotonic() + 0.2, until=time.monotonic() + 0.2)
    after = (tmp_path / "log").stat().st_size
    assert still - before <= 1  # what was on its way
    assert after > still + 2


def test_the_step_under_way_when_the_window_closes_counts_in_part(start):
    """Steps of 0.4 s in a window of 0.6: neither 1 nor 2 steps, but 1.5."""
    work = start(
        "import time\nfrom fleetlab.gpu import step\nwhile True:\n    time.sleep(0.4)\n    step()\n", warm_up=1
    )
    assert rate(work) * 0.6 == pytest.approx(1.5, abs=0.35)


def test_a_program_that_ends_is_told_with_its_last_words(start):
    work = start("from fleetlab.gpu import step\nfor _ in range(9): step()\nraise SystemExit('out of data')\n")
    fed = work.watch(closes=time.monotonic() + 5, until=time.monotonic() + 5)
    assert "ended with status 1 after" in str(fed.error)
    assert "out of data" in str(fed.error)


def test_a_program_that_never_steps_is_told_how(start):
    with pytest.raises(BenchError, match="it does not call `step`"):
        start("import time\ntime.sleep(60)\n", start_s=0.5)


def test_a_command_that_is_not_there_is_told():
    work = OwnCommand("no-such-program --epochs 3")
    with pytest.raises(RuntimeError, match="cannot be started: no-such-program"):
        work.setup(CPU)
    work.close()


FAMILY = f"""
import subprocess, sys, time
from fleetlab.gpu import step
subprocess.Popen(["sleep", "300"], start_new_session=True)  # leaves the process group
subprocess.Popen([sys.executable, "-c", "import subprocess; subprocess.Popen(['sleep', '301'])"])  # an orphan
{STEADY}"""


def test_it_ends_with_everything_that_it_started(start):
    work = start(FAMILY)
    family = guard.descendants(work._process.pid)
    assert len(family) >= 3
    work.close()
    assert not alive(family)


def test_a_killed_worker_leaves_nothing_behind(tmp_path):
    """The worker dies by SIGKILL: its guard ends the program."""
    (tmp_path / "program.py").write_text(FAMILY)
    text = (
        "import sys, time, torch\nfrom fleetlab.gpu.bench.workloads.own import OwnCommand\n"
        f"work = OwnCommand('{sys.executable} {tmp_path / 'program.py'}')\nwork.setup(torch.device('cpu'))\n"
        "print(work._process.pid, flush=True)\ntime.sleep(60)\n"
    )
    env = os.environ | python_path()
    with subprocess.Popen([sys.executable, "-c", text], env=env, stdout=subprocess.PIPE, text=True) as worker:
        family = guard.descendants(int(worker.stdout.readline()))
        worker.send_signal(signal.SIGKILL)
    assert len(family) >= 3
    for _ in range(100):
        if not alive(family):
            return
        time.sleep(0.1)
    pytest.fail("a process outlived its suite")


def alive(pids):
    return [pid for pid in pids if Path(f"/proc/{pid}").exists() and not zombie(pid)]


def zombie(pid):
    try:
        return Path(f"/proc/{pid}/stat").read_text().rpartition(")")[2].split()[0] == "Z"
    except OSError:
        return True


def test_counting_needs_no_packages_and_does_nothing_outside_a_suite():
    text = "import sys; from fleetlab.gpu import step; step(3); print({'torch', 'numpy', 'polars'} & set(sys.modules))"
    env = {k: v for k, v in os.environ.items() if k != "FLEETLAB_STEPS"} | python_path()
    done = subprocess.run([sys.executable, "-c", text], env=env, capture_output=True, text=True, check=True)
    assert done.stdout == "set()\n"


# --- a function -------------------------------------------------------------------------------------------------------

FUNCTIONS = """
import torch
calls = []
def plain(): calls.append(1)
def build(device):
    x = torch.zeros(3, device=device)
    return lambda: len(x)
number = 3
"""


@pytest.fixture
def functions(tmp_path, monkeypatch):
    (tmp_path / "my_functions.py").write_text(FUNCTIONS)
    monkeypatch.syspath_prepend(tmp_path)
    yield
    sys.modules.pop("my_functions", None)


@pytest.mark.usefixtures("functions")
@pytest.mark.parametrize(("name", "items"), [("plain", 7), ("build", 3)])
def test_a_function_is_a_step_or_builds_one(name, items):
    work = make("callable", callable=f"my_functions:{name}", items=7)
    work.setup(CPU)
    assert [work.step(), work.step()] == [items, items]


@pytest.mark.usefixtures("functions")
@pytest.mark.parametrize("name", ["my_functions:none", "my_functions:number", "nowhere:f", "my_functions"])
def test_a_function_that_cannot_be_called_is_refused(name):
    with pytest.raises(BenchError, match=name.partition(":")[0]):
        make("callable", callable=name).setup(CPU)


# --- in a plan --------------------------------------------------------------------------------------------------------


def toml(tmp_path, tenant):
    (tmp_path / "own.toml").write_text(f"[suite]\nmixes = [['mine', 'mine']]\nblocks = 1\n[tenant.mine]\n{tenant}\n")
    return make_plan(str(tmp_path / "own.toml"))


@pytest.mark.parametrize(
    ("tenant", "why"),
    [
        ("unit = 'image'", "needs a workload, a command or a callable"),
        ("workload = 'launch'\ncommand = 'python a.py'", "only one of them"),
        ("command = 3", "only one of them"),
        ("command = 'python a.py'\npoisson = 5", "a command has no poisson"),
        ("command = 'python a.py'\nmach = 'x'", "a command has no mach"),
        ("command = 'python \"a.py'", "not a command or a pattern"),
        ("command = 'python a.py'\nmatch = '('", "not a command or a pattern"),
        ("command = ''", "an empty command"),
        ("command = 'python a.py'\nitems = 0", "items must be above 0"),
        ("callable = 'a:b'\nmatch = 'x'", "a callable has no match"),
    ],
)
def test_a_tenant_that_cannot_be_is_refused_before_anything_starts(tmp_path, tenant, why):
    with pytest.raises(BenchError, match=why):
        toml(tmp_path, tenant)


def test_a_plan_names_a_command_with_its_settings(tmp_path):
    made = toml(tmp_path, "command = 'python a.py'\nunit = 'image'\nmatch = 'step (.*)'")
    assert made.tenants["mine"] == Tenant("command", {"command": "python a.py", "unit": "image", "match": "step (.*)"})


def test_a_suite_measures_own_work_beside_a_workload_and_records_what_fails(tmp_path, monkeypatch):
    (tmp_path / "my_train.py").write_text(STEADY)
    monkeypatch.chdir(tmp_path)
    tenants = {
        "mine": Tenant("command", {"command": f"{sys.executable} my_train.py", "unit": "image"}),
        "bad": Tenant("command", {"command": f"{sys.executable} -c 'raise SystemExit(5)'"}),
        "launch": Tenant("launch"),
    }
    mixes = (("mine",), ("mine", "launch"), ("bad", "launch"))
    cells = tuple(BenchCell("all", "mps", 0, tuple(Seat(name) for name in mix)) for mix in mixes)
    _, told, _ = run(SuitePlan("own", tenants, cells, settle=0.1, window=0.5), tmp_path / "out")
    assert [c["status"] for c in told] == ["ok", "ok", "failed"]
    mine = told[1]["tenants"][0]
    assert mine["unit"] == "image"
    assert 40 < mine["rate"] <= 404
    assert told[2]["failures"][0]["seat"] == "bad"
    assert "status 5" in told[2]["failures"][0]["detail"]
    assert told[2]["tenants"][0]["tenant"] == "launch"
