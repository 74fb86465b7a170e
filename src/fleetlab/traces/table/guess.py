"""Which column of a table is meant where nobody says: guessed from its name and from its first cells, and always noted.

A unit is taken from the name (`mem_gb`, `duration_min`), else it is the usual one: seconds, MiB, whole GPUs and cores.
"""

from __future__ import annotations

import re
from collections.abc import Mapping, Sequence
from typing import NamedTuple

import polars as pl

from fleetlab.core import TraceError
from fleetlab.traces.input.times import moments
from fleetlab.traces.table import cells
from fleetlab.traces.table.expression import NODES, TEXTS, TIMES, ColumnMap, columns, listed, map_option, named
from fleetlab.traces.table.values import amounts, model

REQUESTED = (
    "{0} {0}s n{0} n{0}s num{0} num{0}s {0}num {0}count {0}request {0}requests {0}srequested {0}requested {0}req "
    "req{0} req{0}s request{0} request{0}s requested{0} requested{0}s plan{0}"
)
ALLOCATED = "; alloc{0} alloc{0}s allocated{0}s {0}alloc {0}allocated"

# Names in Slurm, Kubernetes, PAI and hand-made tables, in small letters and without signs, by column of a workload.
# Those after a semicolon count where none before it is there; two names between semicolons are ambiguous, except for
# words: of them the first name is taken.
NAMES = {
    "submit": "submit submittime submitted submittedat submitat submissiontime; created createdat createtime "
    "creationtime creationtimestamp queued queuedat enqueuedat arrival arrivaltime arrivedat "
    "qdate qsubtime datesubmitted requestedat; ctime; qtime",
    "eligible": "eligible eligibletime eligibleat",
    "start": "start starttime started startedat startat began beganat begin begintime jobstartdate datestarted stime",
    "end": "end endtime ended endedat endat finish finished finishedat finishtime completedat completiontime doneat "
    "stoppedat completiondate dateended; mtime",
    "runtime": "runtime duration jobduration elapsed elapsedraw elapsedtime service servicetime; walltime wall "
    "ruwallclock resourcesusedwalltime remotewallclocktime",
    "limit": "timelimit walltimelimit resourcelistwalltime runlimit runtimelimit; limit timeout maxruntime",
    "instances": "instances numinstances instancecount instnum pods numpods podcount replicas numreplicas numworkers",
    "gpu_milli": REQUESTED.format("gpu") + " nvidiacomgpu gpunum ngpu resourcelistngpus "
    "gputotal totalgpus" + ALLOCATED.format("gpu") + "; accelerators; resources requestedresources resourcelistselect "
    "alloctres reqtres reqgres",
    "cpu_milli": f"{REQUESTED.format('cpu')} {REQUESTED.format('core')} vcpu vcpus resourcelistncpus"
    + ALLOCATED.format("cpu")
    + "; slots; corecount",
    "memory_mib": f"{REQUESTED.format('mem')} {REQUESTED.format('memory')} ram resourcelistmem"
    + ALLOCATED.format("mem"),
    "gpu_memory_mib": "gpumem gpumemory vram",
    "priority": "priority prio jobpriority",
    "status": "status state jobstate jobstatus phase",
    "gpu_types": "gputypes gputype gpumodel gpuspec gpuname cardtype card accelerator acceleratortype gpu gpus "
    "gpurequest gpurequests requestedgpus accelerators resources requestedresources alloctres reqtres reqgres",
    "job": "job jobid jobidraw jobuuid id uuid localjobid jobnumber clusterid taskid podname workloadid",
    "node_list": "nodelist nodes node hosts host hostname exechost exechosts allocatednodes hostlist lastremotehost "
    "machine nodename",
    "parent": "parent parentid parentjobid arrayjobid",
    "user": "user username owner submitter jobowner who systemusername userid uid",
    "group": "group jobname name taskname",
    "partitions": "partition partitions",
    "queue": "queue queuename qname jobqueue",
    "qos": "qos",
    "app": "app application account project partition vc virtualcluster namespace queue",
}
# The units that a name may end in, and what is then done with the number; `_` is a name without one.
CLOCK = "_ ts s sec utc unix"
SECONDS = "_ s sec secs seconds ms/1000 min*60 mins*60 minutes*60 h*3600 hrs*3600 hours*3600"
MIB = "_ mb mib b/1048576 bytes/1048576 kb/1024 kib/1024 g*1024 gb*1024 gib*1024 tb*1048576 tib*1048576"
MILLI = "_*1000 milli millicores"
UNITS = dict.fromkeys(TIMES, CLOCK) | {"runtime": SECONDS, "limit": SECONDS, "memory_mib": MIB, "gpu_memory_mib": MIB}
UNITS |= dict.fromkeys(("gpu_milli", "cpu_milli"), MILLI)
PAI = {"plangpu": "*10", "plancpu": "*10", "planmem": "*1024"}  # hundredths of a GPU and of a core, and GB
USUAL = {"runtime": "seconds", "memory_mib": "MiB", "gpu_memory_mib": "MiB"}  # where a name states no unit
KNOWN = {
    target: {
        name + unit.strip("_"): (rank, PAI.get(name, then))
        for rank, group in enumerate(names.split() if target in TEXTS else names.split(";"))
        for name in group.split()
        for unit, then in re.findall(r"(\w+)(\S*)", UNITS.get(target, "_"))
    }
    for target, names in NAMES.items()
}


SHARED = (("app", "partitions", "queue"), ("gpu_milli", "gpu_types"))


class Guess(NamedTuple):
    """A column of the file, taken for one of a workload, and what is done with its numbers."""

    target: str
    column: str
    then: str

    @property
    def expression(self) -> str:
        """The guess as `map` would have it."""
        return named(self.column) + self.then

    @property
    def option(self) -> str:
        """The guess as the command line would have it."""
        return map_option(self.target, self.column, self.then)


def guess(
    plan: ColumnMap, expressions: Mapping[str, str], header: Sequence[str], rows: Sequence[Sequence[str]]
) -> list[Guess]:
    """Guess the columns that are neither mapped nor named as in a workload; refuse where two could be meant."""
    guesses: dict[str, Guess] = {}
    for target, aliases in KNOWN.items():
        there = {*plan.nodes, *guesses}
        if target in {*there, *expressions} or (target == "runtime" and {"start", "end"} <= there):
            continue
        used = {
            "line",
            *_columns_in_use(plan, target),
            *(g.column for g in guesses.values() if not _shared(g.target, target)),
        }
        likely = []
        for k, name in enumerate(header):
            values = [row[k] for row in rows if k < len(row)]
            known = name not in used and "`" not in name and _key(name) in aliases
            if known and _readable(target, values):
                likely.append(Guess(target, name, _then(target, aliases[_key(name)][1], values)))
        first = min((aliases[_key(g.column)][0] for g in likely), default=0)
        best = [g for g in likely if aliases[_key(g.column)][0] == first]
        if len(best) > 1:
            msg = f"the column for `{target}` is ambiguous: {' or '.join(f'`{g.column}`' for g in best)}"
            raise TraceError(msg, hint=f"say which: {' or '.join(g.option for g in best)}")
        if best:
            guesses[target] = best[0]
    return list(guesses.values())


def _shared(one: str, other: str) -> bool:
    """Whether a column may be taken for both: a partition or a queue may also stand for the application."""
    return any(one in group and other in group for group in SHARED)


def _columns_in_use(plan: ColumnMap, target: str) -> set[str]:
    return {name for of, node in plan.nodes.items() if not _shared(of, target) for name in columns(node)}


def _key(name: str) -> str:
    """A name without what people write differently: `GPU Count`, `gpu_count` and `GpuCount` are one."""
    return re.sub(r"[\W_]", "", name.casefold())


def _then(target: str, then: str, values: list[str]) -> str:
    """Return what is done with the number of a cell: nothing, where cells name their own units."""
    text = cells.cleaned(pl.Series("x", values, dtype=pl.String)).drop_nulls()
    plain = text.cast(pl.Float64, strict=False).is_not_null()
    own_units = target in ("runtime", "limit", "memory_mib", "gpu_memory_mib") and 2 * int(plain.sum()) < len(text)
    return "" if own_units else then


def _readable(target: str, values: list[str]) -> bool:
    """Can most of the first cells be what the name promises? A column `gpu` may have numbers or models."""
    text = cells.cleaned(pl.Series("status", values, dtype=pl.String)).drop_nulls()
    number = text.cast(pl.Float64, strict=False)
    if target in TIMES:
        good = moments(text, "UTC")[0].is_not_null()
    elif target == "status":
        good = text.to_frame().select(cells.state().is_not_null()).to_series()
    elif target == "gpu_types":
        good = pl.Series([bool(model(one)) for one in text]) & number.is_null()
        return bool(good.any()) and (bool(number.is_null().all()) or 2 * int(good.sum()) >= len(text))
    elif target == NODES:
        good = number.is_null()
    elif target in TEXTS:
        good = text.is_not_null()
    else:
        good = number.is_not_null() | amounts(text, target).is_not_null()
    return 2 * int(good.sum()) >= len(text)


def mapping_notes(
    plan: ColumnMap, expressions: Mapping[str, str], guesses: Sequence[Guess], header: Sequence[str]
) -> list[str]:
    """Which column became which, how to say the same by hand, and which were not used: the first notes of a trace."""
    texts = {**expressions, **{g.target: g.expression for g in guesses}}
    read = (f"{target}={texts[target]}" if target in texts else target for target in plan.nodes)
    by_hand = " ".join(g.option for g in guesses)
    units = [f"{named(g.column)} in {USUAL[g.target]}" for g in guesses if g.target in USUAL and not g.then]
    unused = [name for name in header if name not in plan.columns]
    return [
        f"columns read: {', '.join(read)}",
        *([f"guessed from their names: {', '.join(g.target for g in guesses)}; by hand: {by_hand}"] if guesses else []),
        *([f"units taken: {', '.join(units)}"] if units else []),
        *([f"columns not used: {listed(unused)}"] if unused else []),
    ]
