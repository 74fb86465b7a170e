"""What can run on this machine: versions, cores and memory, the cache, GPUs, programs of others, and extras."""

from __future__ import annotations

import os
import platform
import re
import shutil
import tomllib
from collections.abc import Iterator, Sequence
from importlib import metadata
from importlib.resources import files
from pathlib import Path
from typing import TYPE_CHECKING, NamedTuple

from cyclopts import App

from fleetlab.commands import screen
from fleetlab.commands.options import Json, examples

if TYPE_CHECKING:
    import polars as pl

    from fleetlab.core.result import FieldsResult

app = App()
GIB = 2**30


class Work(NamedTuple):
    """Something that users come for, and what it needs beyond the package itself."""

    commands: str
    extras: Sequence[str] = ()
    programs: Sequence[str] = ()
    gpu: bool = False
    without: str = ""  # what remains of it where something is missing; nothing, if empty


REQUIREMENTS = tomllib.loads(files(__package__).joinpath("doctor.toml").read_text("utf-8"))
EXTRAS: dict[str, str] = REQUIREMENTS["extras"]
PROGRAMS: dict[str, str] = REQUIREMENTS["programs"]
WORKS = [Work(**work) for work in REQUIREMENTS["work"]]


@app.command(help_epilogue=examples("fleetlab doctor", "fleetlab doctor --json"))
def doctor(*, json: Json = False) -> None:
    """Tell what can run on this machine: versions, cores, the cache, GPUs, programs, and which extras are missing."""
    screen.show(examined(), json=json, most=200, short=True)


def examined() -> FieldsResult:
    """Look at this machine and this installation."""
    import polars as pl

    from fleetlab.core import Provenance
    from fleetlab.core.result import FieldsResult

    gpus, why = _gpus()
    extras = pl.DataFrame(list(_extras()))
    works = pl.DataFrame([_possible(work, extras, gpus=gpus.height) for work in WORKS])
    frames = {
        "commands": works.sort(works["runs"] == "yes", maintain_order=True),  # what cannot run comes first
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
    if gpus and _version("torch").endswith("+cpu"):
        ready.append("the installed torch is a build for CPUs: it sees no GPU")
    if lacking:
        ready.append(f"`pip install 'fleetlab[{','.join(lacking)}]'` installs all that is missing")
    return tuple(ready)


def _possible(work: Work, extras: pl.DataFrame, *, gpus: int) -> dict[str, str]:
    """Return whether a work can be done here, and what it lacks."""
    absent = set(extras.filter(extras["missing"] != "")["extra"])
    soft = [f"extra {name}" for name in work.extras if name in absent]
    soft += ["an NVIDIA GPU"] * (work.gpu and not gpus)
    hard = [name for name in work.programs if shutil.which(name) is None]
    if hard or (soft and not work.without):
        runs = "no"
    elif soft and soft[0] == "extra bench":
        runs = "no"  # nothing can be rehearsed without the workloads
    else:
        runs = work.without if soft else "yes"
    return {"commands": work.commands, "runs": runs, "lacks": ", ".join(hard + soft)}


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
    beside, *own = cache_parents()
    for folder in (beside, *own):
        if folder.is_dir() and os.access(folder, os.W_OK) and any(folder.rglob("*.nbi")):
            yield "compiled code", f"{_short(folder)}, {_mebibytes(folder)}"
            break
    else:
        yield "compiled code", "not compiled yet: the first simulation takes longer"
    if own and own[0].is_dir():
        yield "kept traces", f"{_short(own[0])}, {_mebibytes(own[0])}"


def _mebibytes(folder: Path) -> str:
    return f"{sum(path.stat().st_size for path in folder.rglob('*') if path.is_file()) / 2**20:.0f} MiB"


def _short(folder: Path) -> str:
    try:
        return f"~/{folder.relative_to(Path.home())}"
    except (ValueError, RuntimeError):
        return str(folder)


def _gpus() -> tuple[pl.DataFrame, str]:
    """Return the GPUs of this machine, or why none can be seen."""
    import polars as pl

    from fleetlab.gpu import BenchError
    from fleetlab.gpu.devices import nvidia_smi

    try:
        cards = nvidia_smi.gpus()
    except BenchError as e:
        return pl.DataFrame(schema={"GPU": pl.Int64}), str(e)
    rows = [{"GPU": one.index, "name": one.name, "driver": one.driver, "memory_mib": one.memory_mib} for one in cards]
    return pl.DataFrame(rows), ""


def _extras() -> Iterator[dict[str, str]]:
    """Yield the extras, what each is for, and which of its packages are missing."""
    needs = metadata.requires("fleetlab") or []
    for extra, use in EXTRAS.items():
        own = [re.match(r"[\w.-]+", one) for one in needs if re.search(rf"extra == ['\"]{extra}['\"]", one)]
        packages = {requirement[0]: _version(requirement[0]) for requirement in own if requirement is not None}
        has = ", ".join(f"{name} {number}" for name, number in packages.items() if number)
        missing = ", ".join(name for name, number in packages.items() if not number)
        yield {"extra": extra, "for": use, "installed": has, "missing": missing}


def _version(package: str) -> str:
    """Return which version of a package is installed; empty if none is."""
    try:
        return metadata.version(package)
    except metadata.PackageNotFoundError:
        return ""
