"""One machine, all modes: what fits into a budget, what the GPU allows, and a sequence that resumes."""

import json

import pytest

from fleetlab.gpu.bench.all_modes import PAIRS, choose, main, modes_here, named_stages, run_all, seconds_of
from fleetlab.gpu.bench.options import AllOptions
from fleetlab.gpu.bench.plans import BY_NAME
from fleetlab.gpu.devices.console import BenchError

BOTH = {"time-slicing", "mps"}


def chosen(minutes, modes=BOTH, stages=""):
    return choose(named_stages(stages), 60 * minutes, modes)


def seconds(stages, modes=BOTH):
    return sum(seconds_of(stage.made(modes, seed=0, rehearse=False)) for stage in stages)


@pytest.mark.parametrize("minutes", [5, 10, 15, 30, 45, 90])
def test_what_is_chosen_fits_into_the_budget(minutes):
    stages = chosen(minutes)
    assert stages
    assert seconds(stages) <= 60 * minutes


def test_five_minutes_are_enough_for_three_modes():
    (stage,) = chosen(5)
    cells = stage.made(BOTH, seed=0, rehearse=False).cells
    assert {cell.stage for cell in cells} == {"time-slicing", "mps", "mps@50"}


def test_more_time_measures_more_and_ends_with_all_plans_at_full_length():
    told = [seconds(chosen(minutes)) for minutes in (5, 15, 30, 60)]
    assert told == sorted(told)
    longest = chosen(600, BOTH | {"mig"})
    assert {stage.plan for stage in longest} == set(BY_NAME) - {"quick"}
    assert all(stage.window is None for stage in longest)


@pytest.mark.parametrize("minutes", [10, 30, 60, 70])
def test_requests_and_notebooks_are_measured_at_full_length_or_not_at_all(minutes):
    """A server that does not keep up meets its goals for the first seconds."""
    timed = {"serving", "llm", "notebook", "crowded"}
    assert all(stage.window is None for stage in chosen(minutes) if stage.plan in timed)


def test_an_hour_is_enough_for_language_models_and_notebooks():
    assert {"serving", "classes", "llm", "notebook"} <= {stage.plan for stage in chosen(60)}


def test_the_plan_of_mig_is_left_out_where_the_gpu_may_not_be_partitioned():
    assert "mig" not in {stage.plan for stage in chosen(600)}


def test_quick_is_left_out_where_all_pairs_are_measured():
    assert set(PAIRS) <= {stage.plan for stage in chosen(15)}
    assert "quick" not in {stage.plan for stage in chosen(15)}


def test_a_mode_that_is_not_possible_is_left_out_of_every_plan():
    stages = chosen(60, {"time-slicing"})
    cells = [c for stage in stages for c in stage.made({"time-slicing"}, seed=0, rehearse=False).cells]
    assert {cell.mode for cell in cells} == {"time-slicing"}
    assert "pairs-mps" not in {stage.plan for stage in stages}


def test_probes_that_fill_the_memory_of_the_gpu_run_only_if_named():
    assert "isolation" not in {stage.plan for stage in chosen(600)}
    assert "isolation" in {stage.plan for stage in chosen(600, stages="quick,isolation")}


@pytest.mark.parametrize(("words", "why"), [("quick,quack", "unknown stage: quack"), ("a.toml,b/a.toml", "same name")])
def test_stages_that_cannot_be_are_refused(words, why):
    with pytest.raises(BenchError, match=why):
        named_stages(words)


def test_a_mode_is_told_why_it_is_not_possible(smi, monkeypatch):
    monkeypatch.setattr("shutil.which", lambda name: None if name == "nvidia-cuda-mps-control" else name)
    smi.set(compute="Default", mig="Disabled")
    told = {one["mode"]: one for one in modes_here(rehearse=False)}
    assert told["time-slicing"]["possible"]
    assert not told["mps"]["possible"]
    assert "not installed" in told["mps"]["why"]
    assert not smi.changes


# --- a sequence -------------------------------------------------------------------------------------------------------

SMALL = """
[suite]
modes = ["{mode}"]
mixes = [["launch", "launch"]]
blocks = 2
[tenant.launch]
workload = "launch"
"""


@pytest.fixture(scope="module")
def measured(tmp_path_factory):
    """Two small plans, one after the other, run once for all."""
    home = tmp_path_factory.mktemp("all")
    for name, mode in (("turns", "time-slicing"), ("together", "mps")):
        (home / f"{name}.toml").write_text(SMALL.format(mode=mode))
    stages = f"{home / 'turns.toml'},{home / 'together.toml'}"
    options = AllOptions(out=home / "out", stages=stages, rehearse=True)
    assert run_all(options, progress=lambda _: None)
    return home, options


def told(home):
    return json.loads((home / "out" / "all.json").read_text())


def test_each_stage_is_a_suite_of_one_folder_and_the_manifest_says_how_far_it_is(measured):
    home, _ = measured
    assert [(s["plan"].rpartition("/")[2], s["state"]) for s in told(home)["stages"]] == [
        ("turns.toml", "finished"),
        ("together.toml", "finished"),
    ]
    assert {p.name for p in (home / "out").iterdir()} >= {"turns", "together", "all.json"}


def test_it_resumes_where_it_was_broken_off(measured):
    home, options = measured
    cells = home / "out" / "together" / "cells.jsonl"
    lines = cells.read_text().splitlines(keepends=True)
    cells.write_text("".join(lines[:-1]) + '{"cell": "mps/1/lau')  # killed while it wrote
    turns = (home / "out" / "turns" / "cells.jsonl").read_text()
    assert run_all(options, progress=lambda _: None)
    assert len(cells.read_text().splitlines()) == len(lines)
    assert (home / "out" / "turns" / "cells.jsonl").read_text() == turns


def test_the_report_has_the_modes_and_the_stages(measured, command):
    home, options = measured
    words = ["bench", "all", "--out", str(home / "out"), "--stages", options.stages, "--rehearse", "--json"]
    done = command(*words)
    tables = json.loads(done.stdout)["tables"]
    assert [row["state"] for row in tables["stages"]] == ["finished", "finished"]
    assert (home / "out" / "analysis" / "analysis.html").exists()


def test_another_seed_needs_another_folder(measured, capsys):
    home, options = measured
    words = ["--out", str(home / "out"), "--stages", options.stages, "--rehearse", "--seed", "3"]
    assert main(words) == 2
    assert "contains another run: seed 0, not 3" in capsys.readouterr().err


@pytest.mark.parametrize("named", [["quick"], ["llm", "quick"], ["pairs-ts", "quick"]])
def test_quick_is_measured_where_not_all_pairs_are_named(named):
    assert [stage.name for stage in choose(named, 60 * 60, BOTH)] == named


def test_a_budget_that_is_too_small_is_told(tmp_path, capsys):
    assert main(["--out", str(tmp_path), "--minutes", "0.5", "--rehearse"]) == 2
    assert "nothing fits into 0.5 minutes" in capsys.readouterr().err


def test_what_the_shortest_plan_needs_is_told_and_is_enough(tmp_path, capsys):
    """A plan that is never shortened."""
    assert main(["--out", str(tmp_path), "--minutes", "3", "--stages", "llm,quick", "--rehearse"]) == 2
    minutes, _, name = capsys.readouterr().err.partition("--minutes ")[2].partition(",")[0].partition(" is enough for ")
    assert [stage.name for stage in choose(["llm", "quick"], 60 * int(minutes), BOTH)] == [name]
    assert not choose(["llm", "quick"], 60 * (int(minutes) - 1), BOTH)


def test_a_machine_without_a_gpu_is_told_to_rehearse(tmp_path, capsys, monkeypatch):
    monkeypatch.setenv("PATH", str(tmp_path))
    assert main(["--out", str(tmp_path / "out")]) == 2
    assert "--rehearse" in capsys.readouterr().err
    assert not (tmp_path / "out").exists()
