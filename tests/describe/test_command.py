"""`fleetlab describe` on the command line."""

import inspect
import json

import pytest

import fleetlab
from fleetlab import cli


@pytest.fixture
def saved(tmp_path):
    fleetlab.synthesize("pai2020", jobs=400, seed=1).save(tmp_path / "one")
    fleetlab.synthesize("pai2020", jobs=500, seed=2).save(tmp_path / "two")
    return tmp_path


def run(capsys, *words):
    try:
        cli.main(["describe", *map(str, words)])
        status = 0
    except SystemExit as e:
        status = e.code
    return status, *capsys.readouterr()


def test_the_command_takes_what_the_verb_takes():
    said = set(inspect.signature(cli.app["describe"].default_command).parameters) - {"json", "cluster"}
    assert said == set(inspect.signature(fleetlab.describe).parameters) - {"progress"}


def test_sentences_come_first_then_numbers_then_what_is_missing(saved, capsys):
    status, out, _ = run(capsys, saved / "one", "--full")
    assert status == 0
    assert out.index("mean arrival rate") < out.index("\njobs 400") < out.index("\nmissing\n")
    assert "\nruntime\n" not in out


def test_a_section_asked_for_is_printed_whole(saved, capsys):
    _, out, _ = run(capsys, saved / "one", "--only", "runtimes, sharing")
    assert "\nruntime by GPU type\n" in out
    assert "\nbursts\n" not in out


def test_json_has_figures_and_distances(saved, capsys):
    _, out, _ = run(capsys, saved / "one", "--against", saved / "two", "--json", "--seed", "3")
    told = json.loads(out)
    assert told["provenance"]["seed"] == 3
    assert {"distances", "missing"} <= set(told["tables"])
    assert told["figures"]["wait by GPU type"]["log_x"] is True


@pytest.mark.parametrize(
    ("words", "said"),
    [(["--only", "arrival"], "did you mean arrivals?"), (["--against", "nowhere"], "no saved trace in: nowhere")],
)
def test_a_mistake_ends_in_an_error_and_a_hint(saved, capsys, words, said):
    status, _, err = run(capsys, saved / "one", *words)
    assert status == 2
    assert said in err
    assert "hint:" in err
