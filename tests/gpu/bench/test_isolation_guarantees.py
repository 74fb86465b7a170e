"""The table of guarantees follows from the cells."""

import json
from pathlib import Path

import pytest

from fleetlab.gpu.bench.results.programs import JUDGES, KEPT, LOST, PARTLY, measured_guarantees, read_probes
from fleetlab.gpu.stacks.emitting import isolation_records

ROOT = Path(__file__).parents[3]


def cell(probe, kind, **more):
    return {"cell": f"mps/{probe}/{kind}", "mode": "mps", "probe": probe, "kind": kind, "status": "ok", **more}


def fault(kind, *, survived, gap=0.01, after=1.5):
    neighbor = {"survived": survived, "longest_gap_s": gap}
    return cell("faults", kind, neighbor=neighbor, newcomer={"after_s": after})


def memory(refused, *, starts):
    during = {"good": 10, "refused": refused}
    held = {"held_mib": 20480}
    return cell("memory", "all", neighbor={"during": during}, aggressor=held, newcomer_while_full={"good": starts})


def windows(speed):
    alone = {"stressor": "", "duty": 0.0, "per_second": 100.0}
    return cell("performance", "stressors", windows=[alone, {"stressor": "hbm", "duty": 1.0, "per_second": speed}])


def verdicts(*cells):
    return {record.guarantee: (record.verdict, record.says) for record in measured_guarantees(cells)}


def test_a_memory_cap_is_kept_if_nobody_else_is_refused():
    assert verdicts(memory(0, starts=True))["memory cap"][0] == KEPT
    verdict, says = verdicts(memory(5, starts=False))["memory cap"]
    assert verdict == LOST
    assert "20.0 GiB" in says
    assert "5 of 15" in says


@pytest.mark.parametrize(("lives", "verdict"), [((True, True), KEPT), ((True, False), PARTLY), ((False, False), LOST)])
def test_faults_are_isolated_if_the_neighbor_survives_all_of_them(lives, verdict):
    found = verdicts(fault("kill", survived=lives[0]), fault("assert", survived=lives[1]))
    assert found["fault isolation"][0] == verdict


def test_a_long_gap_is_a_stall_even_of_a_neighbor_that_survives():
    assert verdicts(fault("hang", survived=True, gap=4.0))["no stalls"][0] == LOST
    assert verdicts(fault("hang", survived=True, gap=0.02))["no stalls"] == (
        KEPT,
        "longest time without a good step: hang 20 ms",
    )


def test_a_neighbor_that_died_makes_no_stalls_kept_in_part_at_best():
    found = verdicts(fault("kill", survived=False, gap=None), fault("hang", survived=True, gap=0.02))
    assert found["no stalls"][0] == PARTLY
    assert found["no stalls"][1].endswith("hang 20 ms; the neighbor died, and made no further step: kill")


def test_a_long_gap_beside_a_death_is_no_guarantee_at_all():
    found = verdicts(fault("kill", survived=False, gap=None), fault("hang", survived=True, gap=4.0))
    assert found["no stalls"][0] == LOST


def test_a_gpu_that_serves_nobody_after_a_fault_has_not_recovered():
    assert verdicts(fault("assert", survived=False, after=None))["recovery"][0] == LOST


def test_the_worst_neighbor_decides_on_fairness():
    assert verdicts(windows(95.0))["fairness"][0] == KEPT
    assert verdicts(windows(8.0))["fairness"] == (LOST, "worst neighbor: 0.08 at duty 1 (hbm)")


def test_a_word_of_the_pattern_is_a_leak():
    leak = cell("information", "free", found_share=0.25, read_mib=2048)
    says = "of a freed pattern the next tenant found: 25 % (free); it read 2 GiB or more"
    assert verdicts(leak)["confidentiality"] == (LOST, says)
    assert verdicts(leak | {"found_share": 0.0})["confidentiality"][0] == KEPT


def test_a_failed_cell_says_nothing():
    assert verdicts(windows(8.0) | {"status": "failed"}) == {}


def test_what_ships_follows_from_the_cells_that_it_names():
    about = json.loads((ROOT / "src/fleetlab/gpu/stacks/isolation.json").read_text("utf-8"))
    if not about["records"]:
        pytest.skip("nothing was measured yet")
    _, cells = read_probes(ROOT / about["folder"])
    made = {(r.mode, r.guarantee): (r.verdict, r.says, r.cells) for r in measured_guarantees(cells)}
    assert made == {key: (r["verdict"], r["says"], tuple(r["cells"])) for key, r in isolation_records().items()}
    assert {guarantee for _, guarantee in made} == set(JUDGES)
