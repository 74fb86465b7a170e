"""Make of a wheel one that brings its compiled loops: `python -m release.compiled_wheel dist/fleetlab-….whl`.

The loops are compiled in a process of their own from the files of the wheel, for any processor of this platform, and
lie in `fleetlab/compiled` with a manifest of their digests. The new wheel is for this release of Python, and for the
platforms that numba's own compiler is for.
"""

from __future__ import annotations

import json
import os
import re
import shutil
import subprocess
import sys
from base64 import urlsafe_b64encode
from hashlib import sha256
from importlib.metadata import distribution, version
from pathlib import Path
from tempfile import TemporaryDirectory
from zipfile import ZIP_DEFLATED, ZipFile

PACKAGE = "fleetlab"
# Any processor: without the features of the one at hand.
GENERIC = {"NUMBA_CPU_NAME": "generic", "NUMBA_CPU_FEATURES": ""}
# What to run, so that all of it is compiled; in a second process all of it is loaded, and what is loaded is printed.
# Loops are shipped with all that they call, so functions that only compiled code calls are not.
RUNS = """
import contextlib, io, sys
import polars as pl
from numba.core.dispatcher import Dispatcher
import fleetlab
from fleetlab.cli import main
from fleetlab.core import Cluster, Scenario, Workload
from fleetlab.schedulers.slurm.config import Slurm
from fleetlab.web.compile_rules import rules, simulate_two_jobs

def run(*words):
    try:
        main(words)
    except SystemExit as e:  # as every command ends
        assert not e.code, words

for _, words in rules():
    simulate_two_jobs(words)
jobs = {"submit": [float(k) for k in range(9)], "runtime": 60.0, "gpu_milli": 1000, "user": ["a", "b", "c"] * 3}
slurm = Scenario.of(Workload.of(pl.DataFrame(jobs), source="nine jobs"), Cluster.uniform(1, 1), scheduler=Slurm())
with contextlib.redirect_stdout(io.StringIO()):
    run("demo", "builtin:200", "--out", "demo.html")
    run("simulate", "builtin:200")
    run("diagnose", "builtin:200")
    run("explain", "builtin:200", "100")
    for verb in (fleetlab.simulate, fleetlab.diagnose):
        result = verb(slurm)
        result.tables()
        fleetlab.report(result, "report.html")
for module in [module for name, module in sys.modules.items() if name.startswith("fleetlab.")]:
    for function in vars(module).values():
        if isinstance(function, Dispatcher) and function.stats.cache_hits:
            print(function._cache.cache_path, function._cache._impl.filename_base, sep="/")
"""


def compiled(tree: Path, home: Path) -> list[Path]:
    """Compile the loops of an unpacked wheel; return the files of those that Python calls."""
    env = os.environ | GENERIC | {"PYTHONPATH": str(tree), "XDG_CACHE_HOME": str(home)}
    for _ in ("compile", "load"):
        done = subprocess.run(
            [sys.executable, "-c", RUNS], env=env, cwd=home, check=True, stdout=subprocess.PIPE, text=True
        )
    bases = (Path(line) for line in set(done.stdout.splitlines()))
    return sorted(path for base in bases for path in base.parent.glob(f"{base.name}.*") if path.suffix != ".lock")


def add(files: list[Path], package: Path) -> None:
    """Put files of compiled code into a package, with the manifest that says which are its own."""
    out, digests = package / "compiled", {}
    for file in files:
        name = f"{file.parent.name}/{file.name}"
        (out / name).parent.mkdir(parents=True, exist_ok=True)
        shutil.copyfile(file, out / name)
        digests[name] = sha256(file.read_bytes()).hexdigest()
    (out / "manifest.json").write_text(json.dumps(digests, indent=0))


def platform_tag() -> str:
    """Return for which Python and platform the compiler is that these loops were compiled with."""
    text = distribution("llvmlite").read_text("WHEEL") or ""
    tag = next(line.partition(": ")[2] for line in text.splitlines() if line.startswith("Tag: "))
    python = f"cp{sys.version_info.major}{sys.version_info.minor}"
    return f"{python}-{python}-{tag.split('-', 2)[2]}"


def packed(tree: Path, out: Path, tag: str) -> Path:
    """Write a wheel of a tree, for a platform; return its path."""
    (info,) = tree.glob("*.dist-info")
    meta = info / "METADATA"
    pinned = f"numba=={version('numba')}"  # of another release it loads nothing
    meta.write_text(re.sub(r"(?m)(?<=^Requires-Dist: )numba\S*", pinned, meta.read_text("utf-8")), "utf-8")
    wheel = info / "WHEEL"
    lines = [line for line in wheel.read_text("utf-8").splitlines() if not line.startswith(("Tag: ", "Root-Is-"))]
    wheel.write_text("\n".join([*lines, "Root-Is-Purelib: false", f"Tag: {tag}", ""]), "utf-8")
    record, rows = info / "RECORD", []
    files = sorted(path for path in tree.rglob("*") if path.is_file() and path != record)
    for file in files:
        digest = urlsafe_b64encode(sha256(file.read_bytes()).digest()).rstrip(b"=").decode()
        rows.append(f"{file.relative_to(tree)},sha256={digest},{file.stat().st_size}")
    record.write_text("\n".join([*rows, f"{record.relative_to(tree)},,", ""]), "utf-8")
    path = out / f"{info.name.removesuffix('.dist-info')}-{tag}.whl"
    with ZipFile(path, "w", ZIP_DEFLATED) as file:
        for member in (*files, record):
            file.write(member, member.relative_to(tree))
    return path


def main(wheel: Path) -> None:
    """Write the wheel with compiled loops beside the one without."""
    with TemporaryDirectory() as scratch:
        tree, home = Path(scratch) / "tree", Path(scratch) / "home"
        home.mkdir()
        with ZipFile(wheel) as file:
            file.extractall(tree)
        files = compiled(tree, home)
        add(files, tree / PACKAGE)
        for cache in sorted(tree.rglob("__pycache__"), reverse=True):
            shutil.rmtree(cache)
        path = packed(tree, wheel.parent, platform_tag())
    print(f"{path}: {len(files)} files of compiled code, {path.stat().st_size / 1e6:.1f} MB")


if __name__ == "__main__":
    main(Path(sys.argv[1]))
