"""Gather what a site's Slurm says about its jobs, nodes and rules; the script runs alone on a login node too."""

from __future__ import annotations

import subprocess
import sys
from importlib.resources import as_file, files
from pathlib import Path

from fleetlab.core.errors import TraceError

SCRIPT = files("fleetlab.schedulers.slurm.reader") / "collect.sh"


def run_script(out: Path, *, since: str | None, until: str | None, json: bool) -> None:
    """Run the script here; what may not be read is said and left out, but for the jobs: without them it fails."""
    words = ["--out", str(out)]
    words += [word for name, value in (("--since", since), ("--until", until)) if value for word in (name, value)]
    said = {
        "error": f"nothing was gathered in {out}",
        "hint": "`fleetlab collect slurm --print` gives the script to run on a login node",
    }
    with as_file(SCRIPT) as path:
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
