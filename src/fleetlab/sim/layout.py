"""The layout of the simulator's state: one record type per table, and the unit of every field.

Compiled code reads a table row by row: `node = nodes[n]`, then `node.free_cpu`. A row lies in a few neighboring cache
lines and is passed as one pointer, which is as fast as columns of one integer matrix and compiles in half the time.
Everything that must add up is an integer: CPU and RDMA in milli, memory and disk in MiB, GPUs in milli of one GPU.
"""

from __future__ import annotations

from typing import Any, NamedTuple

import numpy as np
from numpy.typing import NDArray

from fleetlab.core.catalog import RESOURCES

Ints = NDArray[np.int64]
Floats = NDArray[np.float64]
Bits = NDArray[np.uint64]
Records = Any  # a table: an array of one of the record types below
Record = Any  # one row of it, which may be written

WHOLE = 1000  # milli of one GPU
# Times are whole numbers of ticks, so that sums and differences of them are exact in floats: a ledger adds up.
TICK = 2.0**-24  # seconds: 60 ns, exact up to 17 years
REQUESTS = 10  # kinds of GPU request: 0 a fraction, 1 to 8 whole GPUs, 9 more
MAX_TYPES = 62  # classes of nodes in one cluster: a bit each
MAX_GPUS = 62  # on one node: a bit each
AMOUNTS = tuple(r.name for r in RESOURCES if r.divisible)  # that a node has beside GPUs
UNLIMITED = 1 << 40  # more instances than there can be

WAITING, RUNNING, DONE = range(3)  # status of a job


def record(text: str, overlay: str = "", **sizes: int) -> np.dtype[Any]:
    """Make a record type of integer fields; names that end in `:f` are floats, `sizes` makes a field an array.

    `overlay` is the name of an array over the first fields, one for each of AMOUNTS.
    """
    fields = []
    for word in text.split():
        name, _, kind = word.partition(":")
        assert not hasattr(np.recarray, name), f"an attribute of every array: {name}"
        fields.append((name, f"{kind or 'i'}8", (sizes[name],)) if name in sizes else (name, f"{kind or 'i'}8"))
    layout: Any = np.dtype(fields, align=True)
    if overlay:
        names, kinds, offsets = [*layout.names], *([layout.fields[name][k] for name in layout.names] for k in (0, 1))
        names, kinds, offsets = [*names, overlay], [*kinds, ("i8", (len(AMOUNTS),))], [*offsets, 0]
        spec: Any = {"names": names, "formats": kinds, "offsets": offsets, "itemsize": layout.itemsize}
        layout = np.dtype(spec, align=True)
    return layout  # type: ignore[no-any-return]


def table(rows: int, kind: np.dtype[Any], **columns: object) -> Records:
    """Make a table of zeros with some columns filled in."""
    records = np.zeros(rows, dtype=kind).view(np.recarray)
    for name, values in columns.items():
        records[name] = values
    return records


def writable(array: Any) -> Any:  # noqa: ANN401
    """Copy an array so that it may be written. Every input then has the same types, and a loop is compiled once."""
    return np.array(array, order="C", subok=True)


def copied(tables: Any) -> Any:  # noqa: ANN401
    """Copy tables of tables, so that a run may write to them."""
    if isinstance(tables, tuple):
        return type(tables)(*(copied(one) for one in tables))
    return tables.copy() if isinstance(tables, np.ndarray | np.void) else tables


def cut(first: Ints, count: Ints) -> Ints:
    """Return the places of parts that begin there and are so long, one part after the other.

    >>> cut(np.array([5, 0]), np.array([2, 3])).tolist()
    [5, 6, 0, 1, 2]
    """
    return np.repeat(first - np.cumsum(count) + count, count) + np.arange(int(count.sum()))


# What one instance of a job requests: a *shape*. Jobs with the same demand share one.
SHAPE = record(
    f"{' '.join(AMOUNTS)} milli gpus gpu_memory types per_node app distinct exclusive request", overlay="amounts"
)
#   amounts: the first fields as an array; milli: of each GPU, a fraction or WHOLE; gpus: 0 for CPU only; gpu_memory: of
#   each GPU; types: bits of the node classes it may use; per_node: most instances of its app on one node, 0: any; app:
#   its row of NodeView.apps; distinct: `per_node` counts within a job alone; exclusive: it shares its node with none

# What is free on a node.
NODE = record(
    " ".join(f"free_{name}" for name in AMOUNTS) + " free_gpu idle_gpus largest_free up first_gpu end_gpu gpu_type"
    " instances version index_group index_slot cpu_rank type_number number by_request node_class exclusive"
    " pool counted",
    overlay="free",
    by_request=REQUESTS,
)
#   free: the first fields as an array; free_gpu: on all its GPUs; idle_gpus: with nothing allocated; largest_free: the
#   most free on one GPU; up: 1 takes instances; its GPUs are the rows first_gpu to end_gpu - 1; node_class: a bit, see
#   `node_classes`; gpu_type: the same bit, 0 without GPUs; version: counts changes; index_group, index_slot, cpu_rank:
#   see `engine.index`; type_number: of its class, -1 without GPUs; number: its own row; by_request: instances with GPUs
#   by kind of request; exclusive: has an instance that shares its node with none; pool, counted: see `reference.plan`;
#   pool: of machines, the row of the first of them + 1, 0: none

GPU = record("free free_memory node index_slot")
CAPACITY = record("cpu memory gpu tier")  # of an empty node; tier: how high-end its GPUs are, 0 the weakest
TYPICAL = record("cpu milli gpus types share:f")  # a shape that fragmentation is measured against; share: of all jobs
KIND = record("shape_id instances")  # jobs of one kind fit or fail together
LEARNER = record("count average:f")  # of jobs whose finished runtimes are the estimate of the next


class NodeView(NamedTuple):
    """What is free on all nodes: now, at the start of a reservation, or at both."""

    nodes: Records  # NODE
    gpus: Records  # GPU
    apps: Ints  # [apps with a limit, nodes]: instances of each app on each node; at least [1, 1]


class Scoring(NamedTuple):
    """What placement policies look at, beside what is free."""

    capacity: Records  # CAPACITY, [nodes]
    largest: Ints  # [2]: CPU and GPU milli of the largest node
    typical: Records  # TYPICAL
    random: Ints  # [1]: state of the random numbers


# -- the quick loops: see `engine` -----------------------------------------------------------------------------------

CLOCK = record(
    "now:f instant running arrived freed listed candidates waiting next_job head shadow_time:f"
    " renew freed_cpu freed_memory freed_gpu freed_idle freed_types last_job over policy_error"
)
#   instant: counts them; running, freed, listed, candidates, waiting: lengths of lists; head: the job that blocks the
#   queue or has the reservation, -1: none; shadow_time: when its reservation starts; freed_*: the most on a freed node;
#   last_job: the loop ends when this one has started, -1: with all jobs; over: it has, or with policy_error, of which
#   an answer was not a number

# The queue of a kind.
QUEUE = record("first length slot next previous candidate fit_bound both_bound delays shortest:f")
#   first: where its heap begins; slot: its place in the list of waiting kinds, -1: none; next, previous: waiting kinds
#   of its shape; fit_bound: at most so many instances fit now; both_bound: and beside the reservation; delays: it fits
#   now, but would delay the reservation

SHAPE_QUEUE = record("slot first_kind fit_bound counted")  # waiting kinds of a shape; counted: in which instant

INDEX = record("types tiers most_gpus leaves gpu_counts node_counts cpu_order cpu_tree type_ranges steps", steps=8)
INDEX_GROUP = record(
    "gpu_bits gpu_words gpu_sums gpu_sum_words gpus node_bits node_words node_sums node_sum_words nodes idle_lists"
)

# -- the reference loop: see `reference` -----------------------------------------------------------------------------

JOB = record(
    "shape_id instances group user account first_instance learner speed_class status slot next previous preemptions"
    " failures gpu_milli priority submit:f runtime:f key:f start:f end:f work:f overhead:f run_start:f since:f left:f"
    " speed:f expected_end:f lost:f ran:f planned:f"
)
#   slot: in the list of running jobs; next, previous: waiting jobs of its group; work: seconds not done when this run
#   began; overhead: seconds of saving and restarting before that; left: own seconds at time `since`, which pass at
#   `speed`; lost, ran: seconds lost and run in earlier runs; planned: start in the plan of `conservative`, nan: none

INSTANCE = record("node gpus neighbor job speed:f", node=2, gpus=2)
#   node, gpus: where it is [NOW] and where it is planned [PLANNED]; gpus: bits from the node's first GPU;
#   neighbor: the instance that came to its GPU before it
NOW, PLANNED = range(2)

GROUP = record(
    "shape_id instances member queue of_types gpu_milli length newest slot is_new retry able tried held delays"
    " over_quota fit_bound"
)
#   jobs that fit or fail together; member: of quotas, see `quota`, -1: of none; length: waiting jobs; slot:
#   in the list of waiting groups; retry: may fit where it did not before; able: fits when the pass began; tried: is
#   tried in this pass; held: did not fit beside the reservation in this pass; delays: fits, but would delay a
#   reservation; fit_bound: at most so many instances fit

PARTITION = record("classes blocked")  # classes: bits; blocked: a job that names it does not fit, in this pass
USER = record("cpu memory gpu")  # allocated now
NODE_STATUS = record("freed pool power service up_since:f idle_since:f")  # pool: -1 none; since: inf: it is not
POOL = record("least:f boot:f every:f idle:f")  # of an elastic pool: nodes, and seconds
NODE_EVENT = record("time:f node action")
UPTIME = record("node begin:f end:f")
RUN = record("job entry begin:f end:f")
STEP = record("time:f action job")  # of a plan
COUNTERS = record(
    "now:f running waiting freed timers arrived node_events finished head outranked"
    " policy_error error_job runs entries uptimes instances_running steps unsettled outside"
)
#   running, waiting, freed, timers, runs, entries, uptimes, steps, outside: lengths of lists; arrived, node_events: the
#   next to come; outranked: a job came that ranks before the head; unsettled: jobs of the plan may move up
