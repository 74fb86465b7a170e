"""Gather what a site's Slurm says about its jobs, nodes and rules; the script runs alone on a login node too."""

from __future__ import annotations

import subprocess
import sys
from importlib.resources import as_file, files
from importlib.resources.abc import Traversable
from pathlib import Path

from fleetlab.core.errors import TraceError
from fleetlab.core.names import lookup

SYSTEMS = ("slurm", "kubernetes")  # the latter by kubectl, without a script


def script(system: str) -> str:
    """Return the script that gathers, to be copied to a machine without fleetlab."""
    return _file(system).read_text("utf-8")


def collect(system: str, out: Path, *, since: str | None, until: str | None, json: bool) -> None:
    """Run the script here; what may not be read is said and left out, but for the jobs: without them it fails."""
    words = ["--out", str(out)]
    words += [word for name, value in (("--since", since), ("--until", until)) if value for word in (name, value)]
    said = {
        "error": f"nothing was gathered in {out}",
        "hint": f"`fleetlab collect {system} --print` gives the script to run on a login node",
    }
    with as_file(_file(system)) as path:
        command = ["sh", str(path), *words, *(["--json"] if json else [])]
        with subprocess.Popen(command, stderr=subprocess.PIPE, text=True, errors="replace") as script_run:
            for line in script_run.stderr or ():
                kind, _, text = line.partition(": ")
                if kind in said:
                    said[kind] = text.strip()
                else:
                    sys.stderr.write(line)
    if script_run.returncode:
        raise TraceError(said["error"], hint=said["hint"])


def _file(system: str) -> Traversable:
    lookup("system to collect from", system, SYSTEMS, error=TraceError)
    if system != "slurm":
        msg = f"there is no script for {system}"
        raise TraceError(msg, hint="`fleetlab collect kubernetes --out DIR` gathers by kubectl")
    return files("fleetlab.schedulers.slurm.reader") / "collect.sh"
