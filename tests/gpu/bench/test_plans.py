import subprocess
import sys
from collections import Counter

import pytest

from fleetlab.gpu.bench.plans import BY_NAME, MATRIX, Seat
from fleetlab.gpu.bench.run import main, make_plan
from fleetlab.gpu.devices.console import BenchError
from fleetlab.gpu.sharing.modes import Share


@pytest.mark.parametrize("name", BY_NAME)
def test_the_same_seed_gives_the_same_order_and_another_another(name):
    names = [[cell.name for cell in make_plan(name, seed=seed).cells] for seed in (0, 0, 1)]
    assert names[0] == names[1]
    assert names[0] != names[2]
    assert sorted(names[0]) == sorted(names[2]) or name in ("sm-curve", "mig")


def test_a_block_of_pairs_has_every_pair_and_every_tenant_alone():
    cells = make_plan("pairs-ts", blocks=3).cells
    assert Counter(cell.block for cell in cells) == {0: 27, 1: 27, 2: 27}
    alone = {cell.seats[0].tenant for cell in cells if cell.block == 1 and len(cell.seats) == 1}
    assert alone == set(MATRIX)
    blocks = [[c.name.split("/")[2] for c in cells if c.block == b] for b in range(3)]
    assert blocks[0] != blocks[1]


def test_a_tenant_meets_itself_as_two_processes():
    cell = next(
        c for c in make_plan("pairs-ts").cells if c.label == "" and [s.tenant for s in c.seats] == ["launch"] * 2
    )
    assert cell.seats == (Seat("launch", 0), Seat("launch", 1))


def test_shares_are_measured_beside_anchors_without_them():
    cells = [c for c in make_plan("pairs-mps-50", blocks=1).cells if len(c.seats) == 1]
    assert Counter(c.seats[0].share for c in cells) == {Share(): 6, Share(50): 6}


MINE = """
[suite]
modes = ["time-slicing", "mps@50"]
mixes = [["train", "serve", "serve"]]
blocks = 2
window = 2

[tenant.train]
workload = "resnet-train"
batch = 128
[tenant.serve]
workload = "resnet-infer"
poisson = 20
"""


def test_a_plan_of_ones_own(tmp_path):
    (tmp_path / "mine.toml").write_text(MINE)
    made = make_plan(str(tmp_path / "mine.toml"))
    assert made.window == 2
    assert made.tenants["train"].settings == {"batch": 128}
    assert made.tenants["serve"].poisson == 20
    assert made.tenants["serve"].settings == {}
    first = {c.name for c in made.cells if c.block == 0}
    assert first == {
        "time-slicing/0/train",
        "time-slicing/0/serve",
        "time-slicing/0/train+serve+serve",
        "mps@50/0/train",
        "mps@50/0/serve",
        "mps@50/0/train@50",
        "mps@50/0/serve@50",
        "mps@50/0/train@50+serve@50+serve@50",
    }


@pytest.mark.parametrize(
    ("text", "what"),
    [
        ("[suite", "cannot read the plan"),
        ("[suite]\nblock = 1\n[tenant.a]\nworkload='gemm'", "unknown key: block"),
        ("[suite]\nmodes=['mig']\n[tenant.a]\nworkload='gemm'", "unknown sharing mode: `mig`"),
        ("[suite]\nmodes=['mps@x']\n[tenant.a]\nworkload='gemm'", "unknown sharing mode"),
        ("[suite]\nmodes=['mps@0']\n[tenant.a]\nworkload='gemm'", "percentage"),
        ("[suite]\nmixes=[['b']]\n[tenant.a]\nworkload='gemm'", "unknown tenant: b"),
        ("[suite]\nmixes='all'\n[tenant.a]\nworkload='gemm'", "mixes must be lists"),
        ("[suite]\nblocks=0.5\n[tenant.a]\nworkload='gemm'", "not a number of blocks"),
        ("[suite]\nwindow='x'\n[tenant.a]\nworkload='gemm'", "window must be a number"),
        ("[suite]\n[tenant.a]\nworkload='gemm'\nrest='x'", "rest must be a number"),
        ("[suite]\n[tenant.a]\nworkload='gemm'\npoisson=-1", "not a pause or a rate"),
        ("[suite]\n[tenant.a]\nworkload='gemm'\npoisson=1\nrest=1", "rest and poisson exclude each other"),
        ("[suite]\nwindow=0\n[tenant.a]\nworkload='gemm'", "nothing to measure"),
        ("[suite]\nmodes=[]\n[tenant.a]\nworkload='gemm'", "nothing to measure"),
        ("[suite]\n[tenant.a]\nbatch=1", "needs a work"),
        ("", "needs a work"),
    ],
)
def test_a_plan_that_cannot_be_says_why(tmp_path, text, what):
    (tmp_path / "bad.toml").write_text(text)
    with pytest.raises(BenchError, match=what):
        make_plan(str(tmp_path / "bad.toml"))


def test_a_mistake_ends_in_an_error_and_a_hint(capsys, tmp_path):
    assert main(["pears", "--out", str(tmp_path)]) == 2
    said = capsys.readouterr().err
    assert said.startswith("error: unknown plan: `pears`\nhint: there are ")


def test_the_measuring_side_needs_no_frames_and_its_commander_no_torch():
    heavy = "{'polars', 'cyclopts', 'numba', 'scipy', 'fleetlab.core.result'}"
    code = "import sys, fleetlab.gpu.bench.run; assert 'torch' not in sys.modules\n"
    code += f"import fleetlab.gpu.bench.workers.worker\nloaded = {heavy} & set(sys.modules)\nassert not loaded, loaded"
    done = subprocess.run([sys.executable, "-c", code], capture_output=True, text=True, check=False)
    assert done.returncode == 0, done.stderr


def test_every_victim_meets_every_stressor_at_every_duty_in_every_mode():
    plan = make_plan("neighbors")
    met = Counter(
        (c.stage, c.seats[0].tenant, plan.tenants[c.seats[1].tenant].work) for c in plan.cells if len(c.seats) == 2
    )
    assert set(met.values()) == {3}  # duties
    assert len(met) == 3 * 2 * 4  # modes, a training and an inference, stressors


def test_no_held_out_mix_is_in_another_plan():
    def mixes(name):
        same = {"resnet-heavy": "resnet-train", "bert-heavy": "bert-train"}
        seats = [[same.get(s.tenant, s.tenant) for s in c.seats] for c in make_plan(name).cells if len(c.seats) > 1]
        return {tuple(sorted(mix)) for mix in seats}

    held_out = mixes("heldout")
    assert Counter(map(len, held_out)) == {2: 12, 3: 8}
    assert not any(held_out & mixes(name) for name in BY_NAME if name != "heldout")
