"""What can run on this machine: versions, cores and memory, the cache, GPUs, programs of others, and extras."""

from __future__ import annotations

import os
import platform
import re
import shutil
from collections.abc import Iterator
from importlib import metadata
from pathlib import Path
from typing import TYPE_CHECKING

from cyclopts import App

from fleetlab.commands.words import Json, examples

if TYPE_CHECKING:
    import polars as pl

    from fleetlab.core.result import FieldsResult

desk = App()
# What an extra is for, as far as users choose it; those of the project's own tests are not listed.
EXTRAS = {
    "bench": "measure GPU sharing, serve and load models",
    "forecast": "forecasts by boosted trees",
    "optimize": "exact placement, and bounds",
    "tune": "search for a policy",
    "dist": "sweeps on several machines",
    "pandas": "tables for pandas",
    "notebooks": "run the notebooks of the documentation",
    "k8s": "read manifests in YAML",
    "web": "the page",
    "watch": "metrics of a watched cluster",
}
PROGRAMS = {
    "nvidia-smi": "GPUs and their settings",
    "nvidia-cuda-mps-control": "MPS",
    "sacct": "collect a Slurm log",
    "scontrol": "collect a Slurm configuration",
    "kubectl": "collect a Kubernetes cluster",
}
GIB = 2**30


@desk.command(help_epilogue=examples("fleetlab doctor", "fleetlab doctor --json"))
def doctor(*, json: Json = False) -> None:
    """Tell what can run on this machine: versions, cores, the cache, GPUs, programs, and which extras are missing."""
    from fleetlab._screen import show

    show(examined(), json=json, most=200)


def examined() -> FieldsResult:
    """Look at this machine and this installation."""
    import polars as pl

    from fleetlab.core import Provenance
    from fleetlab.core.result import FieldsResult

    gpus, why = _gpus()
    extras = pl.DataFrame(list(_extras()))
    frames = {
        "machine": pl.DataFrame(_machine(), schema=["what", "value"], orient="row"),
        "GPUs": gpus,
        "extras": extras,
        "programs": pl.DataFrame(
            [{"program": name, "found": shutil.which(name) is not None, "for": use} for name, use in PROGRAMS.items()]
        ),
    }
    return FieldsResult(
        Provenance("doctor", platform.node()), _findings(gpus.height, extras), frames=frames, notes=(why,) * bool(why)
    )


def _findings(gpus: int, extras: pl.DataFrame) -> tuple[str, ...]:
    """Return what can be done here, and with what the rest can."""
    ready = ["traces, simulation, queueing models and planning work"]
    lacking = extras.filter(extras["missing"] != "")["extra"].to_list()
    if "bench" in lacking:
        ready.append("GPU sharing cannot be measured: the extra `bench` is missing")
    elif gpus:
        ready.append(f"GPU sharing can be measured on {gpus} GPU{'s' * (gpus > 1)}")
    else:
        ready.append("GPU sharing can only be rehearsed (--rehearse): there is no NVIDIA GPU")
    if lacking:
        ready.append(f"`pip install 'fleetlab[{','.join(lacking)}]'` installs all that is missing")
    return tuple(ready)


def _machine() -> Iterator[tuple[str, str]]:
    from fleetlab.sim.jit import cache_parents

    yield "fleetlab", metadata.version("fleetlab")
    yield "Python", platform.python_version()
    for name in ("numba", "numpy", "polars"):
        yield name, metadata.version(name)
    yield "system", f"{platform.system()} {platform.release()}, {platform.machine()}"
    yield "cores", str(len(os.sched_getaffinity(0)) if hasattr(os, "sched_getaffinity") else os.cpu_count())
    if hasattr(os, "sysconf"):
        yield "memory", f"{os.sysconf('SC_PAGE_SIZE') * os.sysconf('SC_PHYS_PAGES') / GIB:.1f} GiB"
    for folder in cache_parents():
        if folder.is_dir() and os.access(folder, os.W_OK):
            size = sum(path.stat().st_size for path in folder.rglob("*") if path.is_file())
            yield "compiled code", f"{_short(folder)}, {size / 2**20:.0f} MiB"
            return
    yield "compiled code", "not compiled yet: the first simulation takes longer"


def _short(folder: Path) -> str:
    try:
        return f"~/{folder.relative_to(Path.home())}"
    except (ValueError, RuntimeError):
        return str(folder)


def _gpus() -> tuple[pl.DataFrame, str]:
    """Return the GPUs of this machine, or why none can be seen."""
    import polars as pl

    from fleetlab.devices import nvidia_smi
    from fleetlab.devices.errors import BenchError

    try:
        found = nvidia_smi.gpus()
    except BenchError as e:
        return pl.DataFrame(schema={"GPU": pl.Int64}), str(e)
    rows = [{"GPU": one.index, "name": one.name, "driver": one.driver, "memory_mib": one.memory_mib} for one in found]
    return pl.DataFrame(rows), ""


def _extras() -> Iterator[dict[str, str]]:
    """Yield the extras, what each is for, and which of its packages are missing."""
    needs = metadata.requires("fleetlab") or []
    for extra, use in EXTRAS.items():
        own = [re.match(r"[\w.-]+", one) for one in needs if re.search(rf"extra == ['\"]{extra}['\"]", one)]
        missing = [found[0] for found in own if found is not None and not _has(found[0])]
        yield {"extra": extra, "for": use, "missing": ", ".join(missing)}


def _has(package: str) -> bool:
    try:
        metadata.version(package)
    except metadata.PackageNotFoundError:
        return False
    return True
