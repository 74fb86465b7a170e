"""The reception: the command is the function, talk goes to stderr, mistakes end in an error and a hint."""

import inspect
import json
import os
import subprocess
import sys

import pytest

import fleetlab
from fleetlab import cli
from fleetlab._screen import cell, table

# Words that only a person needs: where to put things, and how to print them.
OF_THE_RECEPTION = {"json", "out", "check"}
OF_THE_FUNCTION = {"tell", "base"}


def run(*words, **env):
    return subprocess.run(
        [sys.executable, "-m", "fleetlab.cli", *map(str, words)],
        capture_output=True,
        text=True,
        env=os.environ | env,
        timeout=120,
    )


@pytest.fixture
def saved(fixtures, tmp_path):
    run("read", "openb2023", fixtures / "openb2023" / "good", "--out", tmp_path / "trace")
    return tmp_path / "trace"


@pytest.mark.parametrize("verb", ["read", "fetch", "synthesize"])
def test_a_command_takes_what_its_verb_takes(verb):
    said = set(inspect.signature(getattr(cli, verb)).parameters) - OF_THE_RECEPTION
    taken = set(inspect.signature(getattr(fleetlab, verb)).parameters) - OF_THE_FUNCTION
    assert said == taken


def test_help_imports_no_frames_and_no_compiler():
    code = "import sys; from fleetlab.cli import main\ntry: main(['--help'])\nexcept SystemExit: pass\n"
    code += (
        "heavy = {'polars', 'numpy', 'numba', 'torch', 'plotly', 'matplotlib', 'ortools', 'scipy'} & set(sys.modules)\n"
    )
    done = subprocess.run([sys.executable, "-c", code + "assert not heavy, heavy"], capture_output=True, text=True)
    assert done.returncode == 0, done.stderr


@pytest.mark.parametrize("command", ["read", "fetch", "synthesize", "traces", "show"])
def test_help_of_every_command_has_examples(command):
    assert f"fleetlab {command}" in run(command, "--help").stdout.split("Examples:")[1]


def test_reading_saves_a_trace_and_prints_how_many_rows_were_kept(fixtures, tmp_path):
    done = run("read", "openb2023", fixtures / "openb2023" / "bad", "--out", tmp_path / "t")
    assert done.returncode == 0
    assert "pods      9     1         8" in done.stdout
    assert len(fleetlab.Trace.load(tmp_path / "t").workload) == 1


def test_json_is_one_object_and_nothing_else(saved):
    found = json.loads(run("show", saved, "--json").stdout)
    assert set(found) == {"provenance", "summary", "tables"}
    assert found["summary"][0] == {"metric": "tasks", "value": 5, "low": 5, "high": 5, "unit": ""}


def test_a_cluster_file_replaces_the_cluster_of_a_trace(saved, tmp_path):
    (tmp_path / "c.toml").write_text("[[node]]\ncount = 3\ngpus = 4\ngpu_type = 'L4'\n")
    found = json.loads(run("show", saved, "--cluster", tmp_path / "c.toml", "--json").stdout)
    assert {e["metric"]: e["value"] for e in found["summary"]}["GPUs"] == 12


@pytest.mark.parametrize(
    ("words", "error", "hint"),
    [
        (
            ["read", "openb", "x", "--out", "y"],
            "no trace format by that name: `openb`; did you mean openb2023?",
            "pai2020",
        ),
        (["read", "openb2023", "nowhere", "--out", "y"], "no such file or folder: nowhere", "fleetlab traces"),
        (["show", "nowhere"], "no saved trace in: nowhere", "fleetlab read"),
        (["show", "builtin:many"], "builtin", "builtin"),
        (["frobnicate"], "frobnicate", "--help"),
        (
            ["read", "csv", "x", "--map", "submit", "--out", "y"],
            "--map takes COLUMN=EXPRESSION, not: `submit`",
            "--map",
        ),
        (["synthesize", "pai2021"], "pai2021", "pai2020"),
        (["synthesize", "pai2020", "--tasks", "-4"], "tasks", "tasks"),
        (["fetch", "nothing", "--into", "y"], "no published trace by that name: `nothing`", "pai2020"),
        (["show", "x", "--cluster", "y"], "no saved trace", "builtin"),
    ],
)
def test_a_mistake_ends_in_an_error_a_hint_and_status_2(words, error, hint, tmp_path):
    done = subprocess.run(
        [sys.executable, "-m", "fleetlab.cli", *words], capture_output=True, text=True, cwd=tmp_path, timeout=60
    )
    assert done.returncode == 2
    assert done.stderr.startswith("error: ")
    said, _, hinted = done.stderr.partition("\nhint: ")
    assert error in said
    assert hint in hinted
    assert "Traceback" not in done.stderr
    assert list(tmp_path.iterdir()) == []


def test_a_file_of_another_format_is_recognised(fixtures, tmp_path):
    done = run("read", "dlrm2025", fixtures / "openb2023" / "good", "--out", tmp_path / "t")
    assert "this does not look like dlrm2025, but like: openb2023" in done.stderr
    assert "fleetlab read openb2023" in done.stderr


def test_a_reader_that_goes_away_is_no_mistake(saved):
    code = f"{sys.executable} -m fleetlab.cli traces | head -1"
    done = subprocess.run(["bash", "-c", code], capture_output=True, text=True)
    assert done.stderr == ""


def test_every_format_is_listed_with_licence_and_origin():
    rows = json.loads(run("traces", "--json").stdout)["tables"]["formats"]
    assert len(rows) == 12
    assert all(row["expects"] and row["licence"] and row["origin"] for row in rows)


def test_what_a_log_brought_in_is_never_a_control_code():
    assert cell("\x1b[31mred\x07") == "?[31mred?"


def test_a_table_reads_without_colour():
    import polars as pl

    assert table(pl.DataFrame({"name": ["a", None], "rows": [12345, 6]})) == (
        "name    rows\n----  ------\na     12,345\n–          6"
    )
