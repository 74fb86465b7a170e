"""What a Slurm job asks for: trackable resources, `billing=8,cpu=8,gres/gpu:a100=4,mem=64G,node=2`, as a gang.

Slurm counts a job as a whole, a gang is counted by its instance: one a node where GPUs were asked for by the node, one
a task where they were by the task, and one a GPU where `--gpus` left it to Slurm on how many nodes they are. Where the
log does not say how, it was by the node if the GPUs divide by the nodes that were asked for, and nothing says that
they were divided otherwise. CPU and memory are shared out alike and rounded up, so a gang asks for what its job did,
and for less than one milli-CPU and one MiB an instance more.
"""

from __future__ import annotations

import re
from collections.abc import Mapping
from dataclasses import dataclass, replace
from fractions import Fraction
from functools import lru_cache
from math import ceil

MOST = {"cpu": 10**9, "mem": 10**12, "node": 10**6, "gpu": 10**6, "mps": 10**8, "shard": 10**8}
MOST_CPUS = 10_000  # instances of a job without GPUs that its nodes share unevenly
MPS = 100  # of a GPU, where no node says otherwise: Slurm's percent

# Sizes are binary, and a number alone is in MiB.
_MIB = {"K": Fraction(1, 1024), "": Fraction(1), "M": Fraction(1), "G": Fraction(1024)}
_MIB |= {"T": Fraction(1024**2), "P": Fraction(1024**3)}
_TIMES = {"": 1, "K": 1024, "M": 1024**2, "G": 1024**3, "T": 1024**4, "P": 1024**5}
_NUMBER = re.compile(r"(\d{1,18}(?:\.\d{1,9})?)([KMGTP]?)")
_GRES = re.compile(r"(?:gres[:/])?(gpu|mps|shard)(?::([^:=,]+))??(?:[:=](\d{1,18}[KMGTP]?))?")


@dataclass(frozen=True)
class PerGpu:
    """How many shares a GPU of the cluster is cut into; None where no node says it, or nodes differ."""

    mps: int | None = None
    shard: int | None = None


@dataclass(frozen=True)
class JobShape:
    """What the log tells of how a job is divided: by its submission, and by its batch step on the first node."""

    gpus_by: str = ""  # node, task or job; empty: not known
    gpus_per_task: int = 0
    most_nodes: int = 0  # that it may have; 0: not known
    first: str = ""  # the resources of its first node, where the log tells
    exclusive: bool = False  # it asked for whole nodes, whatever is on them


UNKNOWN = JobShape()


@dataclass(frozen=True)
class JobRequest:
    """A job as a gang of identical instances; the last ones say what had to be decided on the way."""

    instances: int
    cpu_milli: int
    memory_mib: int
    gpu_milli: int
    gpu_types: tuple[str, ...] = ()
    distinct_nodes: bool = False
    on_first: int = 0  # instances on the first of several nodes; 0: not known
    unsplit: bool = False  # what each of several nodes had is not known for certain
    uneven: bool = False  # GPUs are not divided evenly by nodes
    got: bool = False  # the type is the one it got: the log does not say which it asked for
    unsized: bool = False  # shares of unknown size


@dataclass(frozen=True)
class Gres:
    """GPUs and shares of them, of one job or one node."""

    gpus: int = 0
    types: tuple[str, ...] = ()
    mps: int = 0
    shard: int = 0

    def __bool__(self) -> bool:
        return bool(self.gpus or self.mps or self.shard)


def tres(text: str) -> dict[str, str]:
    """The parts of a TRES string by name; ValueError if it is none.

    >>> tres("cpu=8,gres/gpu:a100=4")
    {'cpu': '8', 'gres/gpu:a100': '4'}
    """
    parts = [part.strip().partition("=") for part in text.split(",") if part.strip()]
    if any(not (name and sign) for name, sign, _ in parts):
        msg = f"not resources as Slurm writes them: {text[:80]}"
        raise ValueError(msg)
    return {name.lower(): value for name, _, value in parts}


@lru_cache(65_536)
def count(name: str, text: str) -> int:
    """A number of things, with Slurm's binary suffixes."""
    number, unit = _number(name, text)
    return _bounded(name, text, number * _TIMES[unit])


@lru_cache(65_536)
def mebibytes(name: str, text: str) -> int:
    """A size in MiB, rounded up: `64G`, `1000M`, `62.50G`.

    >>> mebibytes("mem", "62.50G")
    64000
    """
    number, unit = _number(name, text)
    return _bounded(name, text, number * _MIB[unit])


def _number(name: str, text: str) -> tuple[Fraction, str]:
    match = _NUMBER.fullmatch(text.strip().upper())
    if not match:
        msg = f"`{name}` is not an amount: {text[:80]}"
        raise ValueError(msg)
    return Fraction(match[1]), match[2]


def _bounded(name: str, text: str, number: Fraction) -> int:
    if number > MOST.get(name, 10**12):
        msg = f"`{name}` is more than any cluster has: {text[:80]}"
        raise ValueError(msg)
    return ceil(number)


def gres_of(parts: Mapping[str, str]) -> Gres:
    """GPUs and shares of a parsed TRES string: the sum stands there untyped, and again by type."""
    by_type = {k.split(":", 1)[1]: count("gpu", v) for k, v in parts.items() if k.startswith("gres/gpu:")}
    # Most clusters track the sum; where only types are tracked, they are the sum.
    gpus = count("gpu", parts["gres/gpu"]) if "gres/gpu" in parts else sum(by_type.values())
    types = tuple(sorted(t for t, n in by_type.items() if n))
    return Gres(gpus, types, _shares(parts, "mps"), _shares(parts, "shard"))


def _shares(parts: Mapping[str, str], kind: str) -> int:
    if f"gres/{kind}" in parts:
        return count(kind, parts[f"gres/{kind}"])
    return sum(count(kind, v) for k, v in parts.items() if k.startswith(f"gres/{kind}:"))


def gres_list(text: str) -> list[tuple[str, str, int]]:
    """The GPUs and shares in a list such as `gpu:a100:8(S:0-1),shard:32`: kind, type and number of each.

    >>> gres_list("gpu:A100:8(S:0-1),shard:32,bandwidth:lustre:4G")
    [('gpu', 'a100', 8), ('shard', '', 32)]
    """
    parts = re.sub(r"\([^()]*\)", "", text).split(",")
    matches = [match for part in parts if (match := _GRES.fullmatch(part.strip()))]
    return [(m[1], (m[2] or "").lower(), count(m[1], m[3] or "1")) for m in matches]


# -- a job ---------------------------------------------------------------------------------------------------------


def demand(asked: Mapping[str, str], hosts: int, per_gpu: PerGpu, shape: JobShape = UNKNOWN) -> JobRequest:
    """What one job holds, from the columns that a log has of it; ValueError says what is wrong with them.

    Of one that has whole nodes to itself it is what was asked for: what else is on them tells only which it got.
    """
    if shape.exclusive and asked["ReqTRES"]:
        asked = {**asked, **dict.fromkeys(("AllocTRES", "AllocGRES", "AllocCPUS", "NCPUS"), "")}
        shape = replace(shape, first="")
    given, wanted = tres(asked["AllocTRES"]), tres(asked["ReqTRES"])
    nodes = _first(asked, "node", (given, wanted), ("AllocNodes", "NNodes", "ReqNodes")) or hosts or 1
    cpus = _first(asked, "cpu", (given, wanted), ("AllocCPUS", "NCPUS", "ReqCPUS"))
    memory = _memory(asked, (given, wanted), nodes, cpus)
    got, want = gres_of(given), gres_of(wanted)
    allocated = got or want or _old_gres(asked, nodes)
    # Left to Slurm, a number of GPUs can be on more nodes than were asked for.
    spread = bool(want.gpus == got.gpus > 0 and 0 < count("node", wanted.get("node", "0")) < nodes)
    job = _Job(nodes, cpus, memory, allocated, spread, gres_of(tres(shape.first)).gpus, _cpus_of(shape.first))
    return replace(_gang(job, shape, per_gpu), gpu_types=(want or allocated).types, got=bool(got.types and not want))


@dataclass(frozen=True)
class _Job:
    nodes: int
    cpus: int
    memory: int
    allocated: Gres
    spread: bool
    first_gpus: int
    first_cpus: int


def _cpus_of(text: str) -> int:
    parts = tres(text)
    return count("cpu", parts["cpu"]) if "cpu" in parts else 0


def _first(asked: Mapping[str, str], name: str, parts: tuple[dict[str, str], ...], columns: tuple[str, ...]) -> int:
    """The first amount that is not nothing, of the TRES strings and then of the columns."""
    texts = [part[name] for part in parts if name in part] + [asked[c] for c in columns]
    return next((n for text in texts if text and (n := count(name, text))), 0)


def _memory(asked: Mapping[str, str], parts: tuple[dict[str, str], ...], nodes: int, cpus: int) -> int:
    for part in parts:
        if "mem" in part:
            return mebibytes("mem", part["mem"])
    text = asked["ReqMem"].strip()
    if not text:
        return 0
    # Before 21.08 a letter said of what: `4Gn` a node, `4Gc` a CPU.
    times = {"n": nodes, "c": cpus}.get(text[-1], 1)
    return _bounded("mem", text, Fraction(mebibytes("mem", text[:-1] if text[-1] in "nc" else text) * times))


def _old_gres(asked: Mapping[str, str], nodes: int) -> Gres:
    """Before 20.11 there were no typed TRES: `gpu:a100:2`, of the job where allocated, of a node where requested."""
    column, times = ("AllocGRES", 1) if gres_list(asked["AllocGRES"]) else ("ReqGRES", nodes)
    parts = gres_list(asked[column])
    types = tuple(sorted({kind for k, kind, _ in parts if k == "gpu" and kind}))
    gpus, mps, shard = (sum(n for k, _, n in parts if k == kind) * times for kind in ("gpu", "mps", "shard"))
    for kind, amount in (("gpu", gpus), ("mps", mps), ("shard", shard)):
        _bounded(kind, asked[column], Fraction(amount))
    return Gres(gpus, types, mps, shard)


def _gang(job: _Job, shape: JobShape, per_gpu: PerGpu) -> JobRequest:
    each, unsized = _shares_each(job.allocated, job.nodes, per_gpu)
    instances = _instances(job, shape)
    by_node = instances == job.nodes and shape.gpus_by != "task" and not _by_job(job, shape)
    first = job.first_gpus * instances // job.allocated.gpus if job.allocated.gpus else 0
    if not job.allocated.gpus and instances > job.nodes:
        first = job.first_cpus
    return JobRequest(
        instances=instances,
        cpu_milli=-(-1000 * job.cpus // instances),
        memory_mib=-(-job.memory // instances),
        gpu_milli=1000 * job.allocated.gpus // instances if job.allocated.gpus else each,
        distinct_nodes=by_node and job.nodes > 1,
        on_first=0 if by_node and not shape.first else 1 if by_node else first,
        unsplit=job.nodes > 1 and shape.gpus_by != "node" and not (shape.first and job.nodes == 2),
        uneven=not by_node and job.nodes > 1,
        unsized=unsized,
    )


def _instances(job: _Job, shape: JobShape) -> int:
    gpus = job.allocated.gpus
    if not gpus:
        even = not job.first_cpus or job.first_cpus * job.nodes == job.cpus or job.cpus > MOST_CPUS
        return job.nodes if even else max(job.cpus, 1)
    if shape.gpus_by == "task":
        return gpus // shape.gpus_per_task if gpus % shape.gpus_per_task == 0 else gpus
    return gpus if _by_job(job, shape) else job.nodes


def _by_job(job: _Job, shape: JobShape) -> bool:
    """Whether Slurm was free to divide the GPUs of a job over nodes, or did so unevenly."""
    gpus = job.allocated.gpus
    if not gpus or shape.gpus_by == "task":
        return False
    if gpus % job.nodes or (job.first_gpus and job.first_gpus * job.nodes != gpus):
        return True
    if shape.gpus_by == "node" or shape.most_nodes == 1:
        return False
    return job.spread or (shape.gpus_by == "job" and shape.most_nodes == 0)


def _shares_each(allocated: Gres, nodes: int, per_gpu: PerGpu) -> tuple[int, bool]:
    """Milli of a GPU for each node, and whether that is only the most it can be: the size of a share is not known."""
    if allocated.gpus or not (allocated.mps or allocated.shard):
        return 0, False
    if allocated.shard and per_gpu.shard is None:
        return 1000, True
    milli = Fraction(1000 * allocated.mps, per_gpu.mps or MPS) + Fraction(1000 * allocated.shard, per_gpu.shard or 1)
    each = ceil(milli / nodes)
    _bounded("gpu", f"{each} milli", Fraction(each, 1000))
    return (each if each < 1000 else -(-each // 1000) * 1000), False
