"""The reception: the command is the function, talk goes to stderr, mistakes end in an error and a hint."""

import inspect
import json
import os
import shutil
import signal
import subprocess
import sys
import time
from importlib.metadata import version
from typing import get_args

import pytest
from cyclopts import CoercionError

import fleetlab
from fleetlab import cli
from fleetlab._screen import cell, table
from fleetlab.commands import first_help

# Words that only a person needs: where to put things, and how to print them.
OF_THE_RECEPTION = {"json", "out"}
OF_THE_FUNCTION = {"progress"}


def apart(*words, **env):
    """A command in a process of its own."""
    return subprocess.run(
        [sys.executable, "-m", "fleetlab.cli", *map(str, words)],
        capture_output=True,
        text=True,
        env=os.environ | env,
        timeout=120,
    )


@pytest.fixture
def saved(fixtures, tmp_path, command):
    command("read", "openb2023", fixtures / "openb2023" / "good", "--out", tmp_path / "trace")
    return tmp_path / "trace"


@pytest.mark.parametrize("verb", ["read", "fetch", "synthesize"])
def test_a_command_takes_what_its_verb_takes(verb):
    said = set(inspect.signature(cli.app[verb].default_command).parameters) - OF_THE_RECEPTION
    taken = set(inspect.signature(getattr(fleetlab, verb)).parameters) - OF_THE_FUNCTION
    assert said == taken


def test_help_imports_no_frames_and_no_compiler():
    code = "import sys; from fleetlab.cli import main\ntry: main(['--help'])\nexcept SystemExit: pass\n"
    code += (
        "heavy = {'polars', 'numpy', 'numba', 'torch', 'plotly', 'matplotlib', 'ortools', 'scipy'} & set(sys.modules)\n"
    )
    done = subprocess.run([sys.executable, "-c", code + "assert not heavy, heavy"], capture_output=True, text=True)
    assert done.returncode == 0, done.stderr


@pytest.mark.parametrize("words", ["describe builtin:9", "demo"])
def test_a_seed_below_zero_is_refused_before_anything_is_done(words, capsys):
    with pytest.raises(SystemExit, match="2"):
        cli.main([*words.split(), "--seed", "-1"])
    assert "--seed. Must be >= 0" in capsys.readouterr().err


@pytest.mark.parametrize("words", ["simulate builtin:9", "compare builtin:9", "bench workload launch"])
def test_a_seed_of_a_scenario_or_a_measurement_below_zero_is_refused(words, capsys):
    with pytest.raises(SystemExit, match="2"):
        cli.main([*words.split(), "--seed", "-1"])
    assert "a seed is a whole number from 0 up, not: '-1'" in capsys.readouterr().err


def every_option(app=cli.app, words=()):
    """Every option of every command: the words before it, its name, and what it takes."""
    for name in app:
        if not name.startswith("-"):
            command = app[name]
            yield from every_option(command, (*words, name))
            if command.default_command:
                yield from ((*words, name, of.name, of.hint) for of in command.assemble_argument_collection())


WHOLE = [option for *option, takes in every_option() if int in (takes, *get_args(takes))]


@pytest.mark.parametrize("option", WHOLE, ids=" ".join)
def test_a_whole_number_is_never_made_of_a_fraction(option):
    with pytest.raises(CoercionError, match=f'{option[-1]}: unable to convert "1.5" into int'):
        cli.app.parse_args([*option, "1.5"], exit_on_error=False, print_error=False)


def test_a_horizon_of_one_and_a_half_steps_is_a_mistake(capsys):
    with pytest.raises(SystemExit, match="2"):
        cli.main(["forecast", "builtin:9", "--horizon", "1.5"])
    assert capsys.readouterr().err.startswith('error: Invalid value for --horizon: unable to convert "1.5" into int.')


def test_a_whole_number_may_be_written_with_a_point():
    _, bound, _ = cli.app.parse_args(["forecast", "builtin", "--horizon", "12.0"])
    assert bound.arguments["horizon"] == 12


@pytest.mark.parametrize("words", ["", "simulate", "bench", "bench suite", "share run", "share mig check"])
def test_the_version_is_ours_after_every_command(words, capsys):
    with pytest.raises(SystemExit, match="0"):
        cli.main([*words.split(), "--version"])
    assert capsys.readouterr().out == f"{version('fleetlab')}\n"


@pytest.mark.parametrize("verb", ["read", "fetch", "synthesize", "traces", "show"])
def test_help_of_every_command_has_examples(verb, command):
    assert f"fleetlab {verb}" in command(verb, "--help").stdout.split("Examples:")[1]


def test_reading_saves_a_trace_and_prints_how_many_rows_were_kept(fixtures, tmp_path, command):
    done = command("read", "openb2023", fixtures / "openb2023" / "bad", "--out", tmp_path / "t")
    assert done.returncode == 0
    assert "pods      9     1         8" in done.stdout
    assert len(fleetlab.Trace.load(tmp_path / "t").workload) == 1


def test_json_is_one_object_and_nothing_else(saved):
    found = json.loads(apart("show", saved, "--json").stdout)
    assert list(found) == ["provenance", "coverage", "findings", "records", "summary", "tables", "notes", "figures"]
    assert found["summary"][0] == {"metric": "jobs", "value": 5, "low": 5, "high": 5, "unit": ""}


def test_a_cluster_file_replaces_the_cluster_of_a_trace(saved, tmp_path, command):
    (tmp_path / "c.toml").write_text("[[node]]\ncount = 3\ngpus = 4\ngpu_type = 'L4'\n")
    found = json.loads(command("show", saved, "--cluster", tmp_path / "c.toml", "--json").stdout)
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
        (["show", "builtin:many"], "builtin", "pai:20000"),
        (["frobnicate"], "frobnicate", "--help"),
        (
            ["read", "csv", "x", "--map", "submit", "--out", "y"],
            "--map takes COLUMN=EXPRESSION, not: `submit`",
            "--map",
        ),
        (["synthesize", "pai2021"], "pai2021", "pai2020"),
        (["synthesize", "pai2020", "--jobs", "-4"], "jobs", "1,260,920"),
        (["fetch", "nothing", "--into", "y"], "no published trace by that name: `nothing`", "pai2020"),
        (["show", "x", "--cluster", "y"], "no saved trace", "sample"),
    ],
)
def test_a_mistake_ends_in_an_error_a_hint_and_status_2(words, error, hint, tmp_path, command, monkeypatch):
    monkeypatch.chdir(tmp_path)
    done = command(*words)
    assert done.returncode == 2
    assert done.stderr.startswith("error: ")
    said, _, hinted = done.stderr.partition("\nhint: ")
    assert error in said
    assert hint in hinted
    assert "Traceback" not in done.stderr
    assert list(tmp_path.iterdir()) == []


def test_a_file_of_another_format_is_recognised(fixtures, tmp_path, command):
    done = command("read", "dlrm2025", fixtures / "openb2023" / "good", "--out", tmp_path / "t")
    assert "this does not look like dlrm2025; it looks like: openb2023" in done.stderr
    assert "fleetlab read openb2023" in done.stderr


def test_a_reader_that_goes_away_is_no_mistake(saved):
    code = f"{sys.executable} -m fleetlab.cli traces | head -1"
    done = subprocess.run(["bash", "-c", code], capture_output=True, text=True)
    assert done.stderr == ""


def test_every_format_is_listed_with_licence_and_origin(command):
    rows = json.loads(command("traces", "--json").stdout)["tables"]["formats"]
    assert len(rows) == 13
    assert all(row["expects"] and row["licence"] and row["origin"] for row in rows)


def test_a_read_that_keeps_nothing_leaves_the_trace_that_was_there(saved, tmp_path, command):
    (tmp_path / "jobs.csv").write_text("owner,submit\nann,never\nbob,never\n")
    done = command("read", "csv", tmp_path / "jobs.csv", "--out", saved)
    assert done.returncode == 2
    assert "all 2 rows were rejected; first: jobs.csv, line 2" in done.stderr
    assert len(fleetlab.Trace.load(saved).workload) == 5


def test_a_folder_that_cannot_take_the_trace_is_found_before_the_work(tmp_path, command):
    (tmp_path / "file").write_text("mine")
    done = command("read", "openb2023", tmp_path / "nowhere", "--out", tmp_path / "file")
    assert "not a folder" in done.stderr


def test_rows_turned_away_can_be_listed(fixtures, tmp_path, command):
    command("read", "openb2023", fixtures / "openb2023" / "bad", "--out", tmp_path / "t")
    rows = json.loads(command("show", tmp_path / "t", "--rejects", "--json").stdout)["tables"]["rejects"]
    assert rows[0] == {
        "table": "nodes",
        "file": "openb_node_list_all_node.csv",
        "line": 3,
        "reason": "duplicate name: node-0",
    }


def test_notes_reach_machines_too(fixtures, tmp_path, command):
    command("read", "slurm", fixtures / "slurm" / "good", "--out", tmp_path / "t")
    found = json.loads(command("show", tmp_path / "t", "--json").stdout)
    assert any("UTC" in note for note in found["notes"])


def test_a_name_that_is_not_utf8_is_no_traceback(fixtures, tmp_path):
    odd = os.fsencode(tmp_path) + b"/j\xff.csv"
    shutil.copy(os.fsencode(fixtures / "csv" / "good" / "jobs.csv"), odd)
    done = apart("read", "csv", os.fsdecode(odd), "--map", "submit=`created at`", "--out", tmp_path / "t")
    assert "Traceback" not in done.stderr
    assert apart("show", tmp_path / "t").returncode == 0


def test_a_terminal_that_is_not_utf8_is_no_traceback(saved):
    done = apart("show", saved, LC_ALL="POSIX", PYTHONUTF8="0", PYTHONCOERCECLOCALE="0")
    assert (done.returncode, done.stderr) == (0, "")


@pytest.mark.parametrize("number", [signal.SIGINT, signal.SIGTERM])
def test_a_read_that_is_stopped_leaves_no_trace_no_scratch_and_no_traceback(tmp_path, number):
    row = "job-{0},worker,inst-{0},worker-{0},id-{0},Terminated,100.0,340.0,machine-a\n"
    (tmp_path / "pai_instance_table.csv").write_text("".join(row.format(k) for k in range(1_000_000)))
    scratch = tmp_path / "scratch"
    scratch.mkdir()
    command = [sys.executable, "-m", "fleetlab.cli", "read", "pai2020", tmp_path, "--out", tmp_path / "t"]
    reading = subprocess.Popen(command, stderr=subprocess.PIPE, text=True, env=os.environ | {"TMPDIR": str(scratch)})
    while not list(scratch.glob("*/*.parquet")) and reading.poll() is None:
        time.sleep(0.01)
    reading.send_signal(number)
    _, said = reading.communicate(timeout=60)
    assert reading.returncode == 128 + number
    assert "Traceback" not in said
    assert list(scratch.iterdir()) == []
    assert not (tmp_path / "t" / "trace.json").exists()


def test_what_a_log_brought_in_is_never_a_control_code():
    assert cell("\x1b[31mred\x07") == "?[31mred?"


def test_a_table_reads_without_colour():
    import polars as pl

    assert table(pl.DataFrame({"name": ["a", None], "rows": [12345, 6]})) == (
        "name    rows\n----  ------\na     12,345\n–          6"
    )


@pytest.mark.parametrize("kilobytes", [400_000, 1_000_000, 2_000_000])
def test_too_little_memory_is_one_sentence(kilobytes):
    code = f"ulimit -v {kilobytes}; exec {sys.executable} -m fleetlab describe sample"
    done = subprocess.run(["bash", "-c", code], capture_output=True, text=True)
    assert done.returncode == 2
    assert done.stderr.startswith("error: this process may use ")
    assert "ulimit -v unlimited" in done.stderr
    assert "Traceback" not in done.stderr


def test_help_is_one_screen_with_everyday_commands_first(command):
    lines = command("--help").stdout.splitlines()
    assert 24 <= len(lines) <= 40
    assert max(map(len, lines)) <= 80
    everyday = [line.split()[0] for line in lines if line.startswith("  ")][: len(first_help.EVERYDAY)]
    assert everyday == ["demo", "web", "read", "diagnose", "explain", "compare", "capacity", "eta", "report", "doctor"]


def test_help_names_every_command():
    grouped = {name for names in first_help.GROUPS.values() for name in names}
    commands = {name for name in cli.app if not name.startswith("-")}
    assert commands | {"help", "version"} == grouped | set(first_help.EVERYDAY)
    assert all(name.split()[0] in commands | {"help"} for name in first_help.MEANT)


@pytest.mark.parametrize(
    ("word", "meant"),
    [("monitor", "bench monitor"), ("stress", "bench stress"), ("queue", "diagnose"), ("why", "explain"),
     ("when", "eta"), ("simulat", "simulate")],
)  # fmt: skip
def test_a_word_that_is_no_command_is_answered_with_the_command_that_it_means(command, word, meant):
    done = command(word, "sample")
    assert done.returncode == 2
    assert f"did you mean `fleetlab {meant}`?" in done.stderr


@pytest.mark.parametrize(("verb", "meant"), [("simulate", "--order"), ("compare", "--policies")])
def test_policy_is_answered_with_the_option_that_says_it(command, verb, meant):
    done = command(verb, "sample", "--policy", "sjf")
    assert done.returncode == 2
    assert f"did you mean {meant}?" in done.stderr


def test_help_and_version_are_words_too(command):
    assert command("help").stdout == command("--help").stdout
    assert command("help", "eta").stdout == command("eta", "--help").stdout
    assert command("version").stdout == command("--version").stdout


def test_an_answer_fits_a_screen_and_full_prints_all_of_it(command):
    words = ("diagnose", "builtin:200", "--load", "20", "--changes", "cpu", "--replicas", "1")
    short, full = (command(*words, *more).stdout.splitlines() for more in ((), ("--full",)))
    assert len(short) <= 40
    assert max(map(len, short)) <= 100
    assert "--full prints all" in "\n".join(short)
    assert any(line.startswith("one run of the log as it is") for line in short)  # what intervals speak of, or none
    assert len(full) > 60
    assert "\nnotes\n" in "\n".join(full)
