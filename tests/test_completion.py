"""Completion by the tab key, in the real shells: bash always, zsh and fish where they are installed."""

import os
import pty
import select
import shutil
import subprocess
import sys
import time

import pytest

PATIENCE = 120  # seconds until a shell that says nothing is given up


@pytest.fixture(scope="module")
def place(tmp_path_factory):
    """A folder with a saved trace, another folder, a file, the scripts, and `fleetlab` on the path."""
    folder = tmp_path_factory.mktemp("completion")
    program = folder / "bin" / "fleetlab"
    program.parent.mkdir()
    program.write_text(f'#!/bin/sh\nexec "{sys.executable}" -m fleetlab "$@"\n')
    program.chmod(0o755)
    (folder / "my-trace").mkdir()
    (folder / "my-trace" / "trace.json").write_text("{}")
    (folder / "more").mkdir()
    (folder / "cluster.toml").write_text("")
    return folder


def env_of(place):
    return os.environ | {"PATH": f"{place / 'bin'}:{os.environ['PATH']}", "TERM": "dumb", "HOME": str(place)}


def script(place, shell):
    """The file of a script, written by the command."""
    path = place / f"script.{shell}"
    if not path.exists():
        path.write_text(run(place, "fleetlab", "completion", shell))
    return path


def run(place, *words):
    done = subprocess.run(words, capture_output=True, text=True, check=True, env=env_of(place), cwd=place)
    return done.stdout


def in_bash(place, *words):
    """What bash offers for the last of the words."""
    quoted = " ".join(f"'{word}'" for word in words)
    ask = f"source {script(place, 'bash')}; COMP_WORDS=({quoted}); COMP_CWORD={len(words) - 1}; _fleetlab"
    return run(place, "bash", "--norc", "-c", f'{ask}; printf "%s\\n" "${{COMPREPLY[@]}}"').split()


def in_fish(place, *words):
    """What fish offers for the last of the words."""
    ask = f"source {script(place, 'fish')}; complete --do-complete '{' '.join(words)}'"
    return [line.split("\t")[0] for line in run(place, "fish", "--no-config", "-c", ask).splitlines()]


def in_zsh(place, *words):
    """The words that zsh makes of these, when the tab key is pressed after the last."""
    pid, screen = pty.fork()
    if pid == 0:
        os.chdir(place)
        os.execvpe("zsh", ["zsh", "-f", "-i"], env_of(place))
    try:
        says = f"fleetlab() {{ if [[ $1 == __complete ]]; then {place}/bin/fleetlab $@; else print -r -- GOT:$*:; fi }}"
        start = f"autoload -U compinit; compinit -u -D; source {script(place, 'zsh')}; PS1=; {says}; print REA''DY"
        os.write(screen, f"{start}\n".encode())
        read_until(screen, "READY")
        os.write(screen, f"{' '.join(words)}\t".encode())
        time.sleep(0.2)  # a newline that is typed with the tab would be part of a paste
        os.write(screen, b"\n")
        text = read_until(screen, ":\r\n")
    finally:
        os.close(screen)
        os.waitpid(pid, 0)
    return text.rsplit("GOT:", 1)[1].split(":\r")[0].split()


def read_until(screen, mark):
    text, until = "", time.monotonic() + PATIENCE
    while mark not in text and time.monotonic() < until:
        if select.select([screen], [], [], 1.0)[0]:
            text += os.read(screen, 4096).decode(errors="replace")
    assert mark in text, text
    return text


def test_bash_completes_commands_options_and_names(place):
    assert in_bash(place, "fleetlab", "simu") == ["simulate"]
    assert in_bash(place, "fleetlab", "simulate", "builtin", "--backf") == ["--backfill"]
    assert in_bash(place, "fleetlab", "simulate", "builtin", "--backfill", "e") == ["easy"]
    assert in_bash(place, "fleetlab", "share", "em") == ["emit"]
    assert in_bash(place, "fleetlab", "completion", "z") == ["zsh"]


def test_bash_completes_traces_and_files(place):
    assert sorted(in_bash(place, "fleetlab", "simulate", "b")) == ["bin/"]
    assert sorted(in_bash(place, "fleetlab", "simulate", "m")) == ["more/", "my-trace"]  # in the folder's order
    assert in_bash(place, "fleetlab", "simulate", "builtin", "--cluster", "c") == ["cluster.toml"]


@pytest.mark.skipif(not shutil.which("fish"), reason="no fish: apt-get install fish")
def test_fish_completes_commands_options_and_names(place):
    assert in_fish(place, "fleetlab", "simu") == ["simulate"]
    assert in_fish(place, "fleetlab", "simulate", "builtin", "--backf") == ["--backfill"]
    assert in_fish(place, "fleetlab", "simulate", "builtin", "--backfill", "ea") == ["easy"]


@pytest.mark.skipif(not shutil.which("zsh"), reason="no zsh: apt-get install zsh")
def test_zsh_completes_commands_options_and_names(place):
    assert in_zsh(place, "fleetlab", "simu") == ["simulate"]
    assert in_zsh(place, "fleetlab", "simulate", "builtin", "--backf") == ["simulate", "builtin", "--backfill"]
    words = ["simulate", "builtin", "--backfill", "easy"]
    assert in_zsh(place, "fleetlab", *words[:3], "ea") == words


def test_an_unknown_shell_is_an_error(command):
    done = command("completion", "tcsh")
    assert done.returncode == 2
    assert "error: " in done.stderr
    assert "bash" in done.stderr
