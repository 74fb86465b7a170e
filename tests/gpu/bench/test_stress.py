"""More and more tenants until something breaks: the search by itself, the judgement by hand, and real processes."""

import json
import subprocess
import sys

import numpy as np
import pytest

import fleetlab
from fleetlab.gpu.bench.histogram import Histogram
from fleetlab.gpu.bench.results.programs import stress_result
from fleetlab.gpu.bench.stress import (
    MISS,
    StressGoal,
    StressPlan,
    StressStep,
    edges,
    judge_steps,
    next_count,
    sentence,
    steps,
    stress,
)
from fleetlab.gpu.devices.console import BenchError
from fleetlab.stats import binomial_tail

# --- the search ------------------------------------------------------------------------------------------------------


def search(breaks_at, up_to):
    """Climb where everything from `breaks_at` on is bad; what was tried."""
    reasons = {}
    while (n := next_count(reasons, up_to)) is not None:
        assert n not in reasons
        reasons[n] = ["broke"] if breaks_at is not None and n >= breaks_at else []
    return reasons


@pytest.mark.parametrize("up_to", [1, 2, 5, 8, 32, 33])
def test_the_search_finds_every_breaking_point_in_few_steps(up_to):
    for breaks_at in (*range(1, up_to + 1), None):
        reasons = search(breaks_at, up_to)
        good = up_to if breaks_at is None else breaks_at - 1
        assert edges(reasons) == (good, breaks_at)
        assert max(reasons) <= up_to
        assert len(reasons) <= 2 * np.log2(up_to) + 2


def test_the_answer_is_a_sentence():
    assert sentence("mps", {1: [], 2: []}, 2) == "mps: did not break up to 2"
    assert sentence("mps", {1: [], 2: []}, 8) == "mps: time limit reached, did not break up to 2"
    assert sentence("mps", {1: [], 2: ["x"]}, 8) == "mps: breaks at 2: x; 1 is good"
    assert sentence("mps", {1: ["x", "y"]}, 8) == "mps: breaks at 1: x; y"
    assert "between 4 and 8" in sentence("mps", {4: [], 8: ["x"]}, 8)


# --- the judgement ---------------------------------------------------------------------------------------------------


def tenant(k, *, rate=100.0, step=0.01, count=100, cpu=0.1, starved=0.0):
    return {"seat": "a", "tenant": "a", "copy": k, "unit": "image", "rate": rate, "rates": [rate] * 10} | {
        "times": Histogram.of([step] * count).to_json(),
        "cpu": cpu,
        "starved": starved,
        "late": 0.0,
    }


def cell(n, *, failures=(), tenants=None, mode="mps", **how):
    told = [tenant(k, **how) for k in range(n)] if tenants is None else tenants
    about = {"cell": f"{mode}/0/{n}xa", "stage": mode, "mode": mode, "block": 0, "gpu": {}}
    return about | {"status": "failed" if failures else "ok", "tenants": told, "failures": list(failures)}


def judge(*cells, goal=None, cores=16, on_card=True):
    found = [StressStep(int(c["cell"].split("/")[2].partition("x")[0]), c) for c in cells]
    return judge_steps(found, goal or StressGoal(), cores=cores, on_card=on_card)


def test_tenants_that_are_quick_enough_and_do_more_in_all_are_good():
    assert judge(cell(1), cell(2, rate=60, step=0.029)) == {1: [], 2: []}


def test_latency_breaks_it_above_the_factor_and_above_the_goal():
    assert judge(cell(1), cell(2, step=0.031))[2] == [
        "P95 step time above 3 times that of one tenant: 31 ms, limit 30 ms"
    ]
    goal = StressGoal(ms=9)
    assert judge(cell(1), cell(2, step=0.0085), goal=goal)[2] == []
    assert "above the goal" in judge(cell(1), goal=goal)[1][0]


def test_a_few_slow_steps_are_enough_if_there_are_no_others():
    """Eight steps carry no P95, but were it within the limit, all would be above with a chance of 0.05 to the 8."""
    assert "of 8 steps 8 took longer" in judge(cell(1), cell(2, step=1.0, count=4))[2][0]
    assert judge(cell(1), cell(2, tenants=[tenant(0, step=0.01), tenant(1, step=1.0, count=1)]))[2] == []


def test_a_stall_is_a_break():
    assert "no step ended within the window" in judge(cell(1), cell(2, count=0))[2]


def test_too_few_steps_alone_leave_latency_unjudged():
    assert judge(cell(1, count=10), cell(2, step=9.0)) == {1: [], 2: []}


def test_steps_that_just_keep_the_limit_are_seldom_called_too_slow():
    """P95 is exactly at the limit: it is said to be above in about one of twenty windows, and not in more."""
    rng = np.random.default_rng(1)
    for n in (20, 100, 400):
        wrong = np.mean([binomial_tail(int(k), n, 0.05) < MISS for k in rng.binomial(n, 0.05, size=2000)])
        assert wrong <= 0.065


def test_less_work_in_all_is_a_break_where_it_is_shown():
    assert judge(cell(1), cell(2), cell(4, rate=39))[4] == ["throughput 156/s is below 0.8 of the best, 200/s"]
    assert judge(cell(1), cell(2), cell(4, rate=41))[4] == []
    noisy = [tenant(k, rate=39.0) | {"rates": [0.0, 78.0] * 5} for k in range(4)]
    assert judge(cell(1), cell(2), cell(4, tenants=noisy))[4] == []


def test_a_host_that_is_full_is_not_the_cards_fault():
    why = judge(cell(1), cell(2, cpu=0.9), cores=2)[2]
    assert why == ["the host, not the GPU: the tenants keep 1.8 of 2 cores busy"]
    assert judge(cell(1, cpu=1.9), cores=2)[1] == []


def test_a_host_that_starves_the_card_is_said_where_there_is_a_card():
    cells = cell(1, starved=0.1), cell(2, starved=0.7)
    assert "70 % of steps found the GPU idle (10 % alone)" in judge(*cells)[2][0]
    assert judge(*cells, on_card=False)[2] == []
    assert judge(cell(1, starved=0.6), cell(2, starved=0.7))[2] == []


@pytest.mark.parametrize(
    ("failure", "said"),
    [
        (
            {"kind": "out-of-memory", "detail": "CUDA out of memory. Tried to allocate 20.00 GiB. GPU 0"},
            "out of memory (tenant 2 of 2 requested 20.00 GiB)",
        ),
        ({"kind": "died", "detail": "ended by signal 9"}, "tenant 2 of 2 died (ended by signal 9)"),
        ({"kind": "hung", "detail": "no answer within 20 s"}, "tenant 2 of 2 did not answer (no answer within 20 s)"),
        ({"kind": "mode", "detail": "no MPS"}, "the mode failed: no MPS"),
    ],
)
def test_a_failure_is_told_as_it_was(failure, said):
    failed = cell(2, failures=[failure | {"copy": 1, "seat": "a"}], tenants=[tenant(0)])
    assert judge(cell(1), failed)[2] == [said]


@pytest.mark.parametrize("goal", [{"factor": 1.0}, {"factor": float("nan")}, {"ms": 0.0}])
def test_a_goal_that_cannot_be_is_refused(goal):
    with pytest.raises(BenchError):
        StressGoal(**goal)


@pytest.mark.parametrize(
    ("words", "said"),
    [
        ({"work": "magic"}, "unknown workload: `magic`"),
        ({"work": "launch", "modes": ("mig",)}, "unknown sharing mode: `mig`"),
        ({"work": "launch", "modes": ("mps", "mps")}, "each mode once"),
        ({"work": "launch", "up_to": 0}, "not a number of tenants: 0"),
    ],
)
def test_a_climb_that_cannot_be_is_refused(words, said):
    with pytest.raises(BenchError, match=said):
        StressPlan(**words)


# --- the result ------------------------------------------------------------------------------------------------------


def folder(path, cells, **asked):
    about = {"work": "m:a", "modes": ["mps"], "up_to": 4, "goal": {"factor": 3.0, "ms": None, "least": 0.8}} | {
        "settle": 1,
        "window": 4,
        "seed": 0,
        "rehearsal": False,
        "device": "cuda",
        "cores": 16,
    }
    (path / "stress.json").write_text(json.dumps(about | asked))
    (path / "cells.jsonl").write_text("".join(json.dumps(c) + "\n" for c in cells))
    return path


def test_the_table_has_each_number_of_tenants_with_its_spread(tmp_path):
    two = [tenant(0, rate=60.0), tenant(1, rate=80.0)]
    oom = {"kind": "out-of-memory", "detail": "Tried to allocate 2 GiB", "copy": 2, "seat": "a"}
    cells = [cell(1), cell(2, tenants=two) | {"gpu": {"memory_mib": 900, "watts": 300.0}}]
    found = stress_result(folder(tmp_path, [*cells, cell(3, failures=[oom], tenants=two)]))
    row = found.tables()["steps"].row(1, named=True)
    assert (row["throughput"], row["low"], row["high"], row["unit"]) == (140, 140, 140, "image/s")
    assert (row["progress"], row["worst"], row["best"]) == pytest.approx((0.7, 0.6, 0.8))
    assert row["p95_ms"] == pytest.approx(10, rel=2e-3)
    assert (row["memory_mib"], row["watts"], row["good"]) == (900, 300, True)
    assert found.tables()["answers"].rows() == [("mps", 2, 3, "out of memory (tenant 3 of 3 requested 2 GiB)")]
    assert found.summary()[0].value == 2
    assert found.notes[0].startswith("mps: breaks at 3: out of memory")


def test_what_was_measured_again_counts_the_last_time(tmp_path):
    path = folder(tmp_path, [cell(2, rate=1.0), cell(2, rate=50.0)])
    assert steps(path, "mps")[2].rate == 100


def test_a_folder_without_a_stress_test_says_so(tmp_path):
    with pytest.raises(fleetlab.DeviceError, match="not a stress test"):
        stress_result(tmp_path)


def test_a_folder_of_another_work_is_left_alone(tmp_path):
    folder(tmp_path, [])
    with pytest.raises(BenchError, match="contains another run: work m:a, not launch"):
        stress(StressPlan("launch"), tmp_path, rehearse=True, progress=print)


# --- real processes --------------------------------------------------------------------------------------------------

CROWDS = """
@dataclass
class Crowded(Steady):
    '''There is memory for so many: each copy has the seed of its number.'''
    most: int = 1
    def setup(self, device):
        if torch.initial_seed() >= self.most:
            raise torch.OutOfMemoryError("CUDA out of memory. Tried to allocate 20.00 GiB. GPU 0 has 1 GiB free")

@dataclass
class Roomy(Crowded):
    most: int = 3

@dataclass
class Frail(Steady):
    '''Its second copy dies once it runs.'''
    count: int = 0
    def step(self):
        self.count += 1
        if torch.initial_seed() == 1 and self.count > 5: os.kill(os.getpid(), signal.SIGKILL)
        return super().step()

@dataclass
class Jammed(Steady):
    '''Fifty times as slow in company.'''
    def setup(self, device):
        self.here = Path(__file__).with_name("here")
        self.here.mkdir(exist_ok=True)
        (self.here / str(os.getpid())).touch()
    def step(self):
        alive = sum(Path("/proc", p.name).exists() for p in self.here.iterdir())
        time.sleep(0.01 if alive == 1 else 0.5)
        return 1
"""


@pytest.fixture
def crowds(works):
    works.write_text(works.read_text() + CROWDS)
    return works


def climb(work, out, *, up_to=2, window=0.2, factor=1e6, **how):
    """Latency is left out unless asked for: on a busy machine it may be anything."""
    said = []
    goal = StressGoal(factor)
    made = StressPlan(f"mine:{work}", ("time-slicing",), up_to, goal, settle=0.05, window=window)
    reached = stress(made, out, rehearse=True, progress=said.append, **how)
    return reached, said


@pytest.mark.usefixtures("crowds")
def test_memory_that_is_not_enough_for_two_breaks_it_at_two_and_is_not_asked_again(tmp_path):
    reached, said = climb("Crowded", tmp_path / "out")
    answer = "time-slicing: breaks at 2: out of memory (tenant 2 of 2 requested 20.00 GiB); 1 is good"
    assert (reached, said[-1]) == (True, answer)
    before = (tmp_path / "out/cells.jsonl").read_text()
    assert len(before.splitlines()) == 2
    assert climb("Crowded", tmp_path / "out")[1] == [answer]
    assert (tmp_path / "out/cells.jsonl").read_text() == before


@pytest.mark.validate  # ten processes with torch; the search itself and a climb to two are tested above
@pytest.mark.usefixtures("crowds")
def test_it_looks_between_the_last_good_number_and_the_first_bad_one(tmp_path):
    reached, said = climb("Roomy", tmp_path / "out", up_to=8)
    assert reached
    assert said[-1] == "time-slicing: breaks at 4: out of memory (tenant 4 of 4 requested 20.00 GiB); 3 are good"
    assert list(steps(tmp_path / "out", "time-slicing")) == [1, 2, 4, 3]


@pytest.mark.slow
@pytest.mark.usefixtures("crowds")
def test_a_tenant_that_dies_breaks_it(tmp_path):
    _, said = climb("Frail", tmp_path / "out")
    assert "breaks at 2: tenant 2 of 2 died (ended by signal 9" in said[-1]


@pytest.mark.slow
@pytest.mark.usefixtures("crowds")
def test_tenants_that_slow_each_other_down_break_it(tmp_path):
    _, said = climb("Jammed", tmp_path / "out", window=3.0, factor=3.0)
    assert "breaks at 2: P95 step time above 3 times that of one tenant" in said[-1]


@pytest.mark.slow
@pytest.mark.usefixtures("crowds")
def test_the_command_prints_the_answer(tmp_path):
    words = ["bench", "stress", "mine:Steady", "--rehearse", "--modes", "mps", "--up-to", "1", "--window", "0.3"]
    command = [sys.executable, "-m", "fleetlab.cli", *words, "--json"]
    done = subprocess.run(command, capture_output=True, text=True, timeout=120)
    assert done.returncode == 0, done.stderr
    found = json.loads(done.stdout)
    assert found["tables"]["answers"] == [{"mode": "mps", "good": 1, "breaks_at": None, "why": None}]
    assert "mps: did not break up to 1" in done.stderr


@pytest.mark.usefixtures("works", "deaf_mps")
def test_a_mode_that_does_not_start_is_the_answer_and_is_tried_again_the_next_time(tmp_path):
    made = StressPlan("mine:Steady", modes=("mps",), up_to=4, settle=0.05, window=0.1)
    for runs in (1, 2):
        said = []
        assert stress(made, tmp_path / "out", device="cpu", progress=said.append)
        assert "mps: breaks at 1: the mode failed: MPS did not start" in said[-1]
        assert len((tmp_path / "out/cells.jsonl").read_text().splitlines()) == runs


@pytest.mark.usefixtures("works")
def test_without_time_it_says_so(tmp_path):
    reached, said = climb("Steady", tmp_path / "out", limit=5)
    assert not reached
    assert said[-1] == "time-slicing: time limit reached, did not break up to 0"
