"""Which column of a table is meant where nobody says: guessed from its name and from its first cells, and always told.

A unit is taken from the name (`mem_gb`, `duration_min`), else it is the usual one: seconds, MiB, whole GPUs and cores.
"""

from __future__ import annotations

import re
from collections.abc import Mapping, Sequence
from dataclasses import dataclass

import polars as pl

from fleetlab.core import TraceError
from fleetlab.traces.input.times import moments
from fleetlab.traces.table import cells
from fleetlab.traces.table.expression import named
from fleetlab.traces.table.mapping import AMOUNTS, TIMES, ColumnMap, listed, map_option

REQUESTED = (
    "{0} {0}s n{0} n{0}s num{0} num{0}s {0}num {0}count {0}request {0}requests {0}srequested {0}requested {0}req "
    "req{0} req{0}s request{0}s requested{0}s"
)
ALLOCATED = "alloc{0} alloc{0}s allocated{0}s {0}alloc {0}allocated"

# Names in Slurm, Kubernetes, PAI and hand-made tables, in small letters and without signs, by column of a workload.
# Names of a later group count only where none of an earlier one is there; two of one group are ambiguous.
NAMES: dict[str, tuple[str, ...]] = {
    "submit": (
        "submit submittime submitted submittedat submitat submissiontime",
        "created createdat createtime creationtime creationtimestamp queued queuedat enqueuedat arrival arrivaltime "
        "arrivedat",
    ),
    "start": ("start starttime started startedat startat began beganat begin begintime",),
    "end": ("end endtime ended endedat endat finish finished finishedat finishtime completedat completiontime doneat",),
    "runtime": ("runtime duration jobduration elapsed elapsedraw elapsedtime service servicetime", "walltime"),
    "instances": (
        "instances numinstances instancecount instnum pods numpods podcount replicas numreplicas numworkers",
    ),
    "gpu_milli": (f"{REQUESTED.format('gpu')} nvidiacomgpu", ALLOCATED.format("gpu")),
    "cpu_milli": (f"{REQUESTED.format('cpu')} {REQUESTED.format('core')} vcpu vcpus", ALLOCATED.format("cpu")),
    "memory_mib": (f"{REQUESTED.format('mem')} {REQUESTED.format('memory')} ram", ALLOCATED.format("mem")),
    "gpu_memory_mib": ("gpumem gpumemory vram",),
    "priority": ("priority prio jobpriority",),
}
# Words decide nothing: of these names the first that is there is taken.
NAMES |= {
    target: tuple(names.split())
    for target, names in {
        "status": "status state jobstate jobstatus phase",
        "gpu_types": "gputypes gputype gpumodel gpuspec gpuname cardtype card accelerator gpu",
        "job": "job jobid jobidraw jobuuid id uuid taskid podname",
        "parent": "parent parentid parentjobid arrayjobid",
        "user": "user username owner submitter userid uid",
        "group": "group jobname name taskname",
        "app": "app application account project partition queue vc virtualcluster namespace",
    }.items()
}
SECONDS = {"": "", **dict.fromkeys(("s", "sec", "secs", "second", "seconds"), "")} | {
    "ms": "/1000", **dict.fromkeys(("min", "mins", "minutes"), "*60"), **dict.fromkeys(("h", "hr", "hours"), "*3600")
}  # fmt: skip
MIB = {"": "", "b": "/1048576", "bytes": "/1048576", "kb": "/1024", "kib": "/1024", "m": "", "mb": "", "mib": ""} | {
    "g": "*1024", "gb": "*1024", "gib": "*1024", "tb": "*1048576", "tib": "*1048576"
}  # fmt: skip
MILLI = {"": "*1000", "milli": "", "millis": "", "millicores": ""}
# What may follow a name, and what is then done with the number.
UNITS: dict[str, dict[str, str]] = {
    **{time: dict.fromkeys(("", "ts", "s", "sec", "utc", "unix"), "") for time in TIMES},
    "runtime": SECONDS, "gpu_milli": MILLI, "cpu_milli": MILLI, "memory_mib": MIB, "gpu_memory_mib": MIB,
}  # fmt: skip
# PAI counts hundredths of a GPU and of a core.
PAI = {
    "gpu_milli": {"plangpu": (0, "*10")},
    "cpu_milli": {"plancpu": (0, "*10")},
    "memory_mib": {"planmem": (0, "*1024")},
}
KNOWN: dict[str, dict[str, tuple[int, str]]] = {
    target: {
        name + unit: (rank, then)
        for rank, group in reversed(list(enumerate(groups)))  # a name that two groups have is of the first
        for name in group.split()
        for unit, then in UNITS.get(target, {"": ""}).items()
    }
    | PAI.get(target, {})
    for target, groups in NAMES.items()
}
USUAL = {"runtime": "seconds", "memory_mib": "MiB", "gpu_memory_mib": "MiB"}  # where a name states no unit


@dataclass(frozen=True)
class Guess:
    """A column of the file, taken for one of a workload, and what is done with its numbers."""

    target: str
    column: str
    then: str = ""

    @property
    def expression(self) -> str:
        """The guess as `map` would have it."""
        return named(self.column) + self.then

    @property
    def option(self) -> str:
        """The guess as the command line would have it."""
        return map_option(self.target, self.column, self.then)

    @property
    def unit(self) -> str | None:
        """The usual unit, where the name states none."""
        stated = _key(self.column) not in " ".join(NAMES[self.target]).split()
        return None if stated or self.target not in USUAL else f"{named(self.column)} in {USUAL[self.target]}"


def guess(
    plan: ColumnMap, given: Mapping[str, str], header: Sequence[str], rows: Sequence[Sequence[str]]
) -> list[Guess]:
    """Guess the columns that are neither mapped nor named as in a workload; refuse where two could be meant."""
    found: dict[str, Guess] = {}
    for target, known in KNOWN.items():
        there = {*plan.nodes, *given, *found}
        if target in there or (target == "runtime" and {"start", "end"} <= there):
            continue
        used = {"line", *plan.columns, *(g.column for g in found.values())}
        likely = [
            Guess(target, name, known[_key(name)][1])
            for k, name in enumerate(header)
            if name not in used
            and "`" not in name
            and _key(name) in known
            and _readable(target, [row[k] for row in rows if k < len(row)])
        ]
        first = min((known[_key(g.column)][0] for g in likely), default=0)
        best = [g for g in likely if known[_key(g.column)][0] == first]
        if len(best) > 1:
            raise _ambiguous(best)
        if best:
            found[target] = best[0]
    return list(found.values())


def _key(name: str) -> str:
    """A name without what people write differently.

    >>> _key("GPU count"), _key("SubmitTime"), _key("mem_gb")
    ('gpucount', 'submittime', 'memgb')
    """
    return re.sub(r"[\W_]", "", name.casefold())


def _readable(target: str, values: list[str]) -> bool:
    """Can most of the first cells be what the name promises? A column `gpu` may have numbers or models."""
    text = cells.cleaned(pl.Series("status", values, dtype=pl.String)).drop_nulls()
    number = text.cast(pl.Float64, strict=False)
    good = pl.repeat(value=True, n=len(text), eager=True)
    if target in TIMES:
        good = moments(text, "UTC")[0].is_not_null()
    elif target == "runtime" or target in AMOUNTS:
        good = number.is_not_null()
    elif target == "gpu_types":
        good = number.is_null()
    elif target == "status":
        good = text.to_frame().select(cells.state().is_not_null()).to_series()
    return 2 * int(good.sum()) >= len(text)


def _ambiguous(guesses: Sequence[Guess]) -> TraceError:
    names = " or ".join(f"`{g.column}`" for g in guesses)
    msg = f"the column for `{guesses[0].target}` is ambiguous: {names}"
    return TraceError(msg, hint=f"say which: {' or '.join(g.option for g in guesses)}")


def told(plan: ColumnMap, given: Mapping[str, str], guesses: Sequence[Guess], header: Sequence[str]) -> list[str]:
    """Which column became which, how to say the same by hand, and which were not used: the first notes of a trace."""
    texts = {**given, **{g.target: g.expression for g in guesses}}
    read = [f"{target}={texts[target]}" if target in texts else target for target in plan.nodes]
    notes = [f"columns read: {', '.join(read)}"]
    if guesses:
        notes.append(
            f"guessed from their names: {', '.join(g.target for g in guesses)}; by hand: "
            + " ".join(g.option for g in guesses)
        )
    if units := [g.unit for g in guesses if g.unit]:
        notes.append(f"no unit in the name of a column, taken as the usual one: {', '.join(units)}")
    if unused := [name for name in header if name not in plan.columns]:
        notes.append(f"columns not used: {listed(unused)}")
    return notes
