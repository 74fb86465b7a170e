"""Which nodes a job gets, now or when others have ended: as select/cons_tres does it.

Nodes next to each other that can hold a part of the job form a set. The job takes the set of the lowest weight that
suffices with the fewest free CPUs, and in it, where one node is enough, the node with the fewest free CPUs; else the
nodes of the set from the first on, and of further sets, until it has what it asks for.
"""

from __future__ import annotations

import numpy as np

from fleetlab.schedulers.slurm.cores import (
    ONE_ROW,
    count_cores,
    kind_of,
    may_join,
    next_tier,
    open_cores,
    skip_higher,
    skip_tier,
)
from fleetlab.schedulers.slurm.state import Free, Slurm
from fleetlab.sim.jit import inner, inner_loop
from fleetlab.sim.layout import Ints, Record
from fleetlab.sim.reference_type import by_reference

FIRST, LAST, CPUS, NODES, INSTANCES, WEIGHT, TAKEN = range(7)  # of a set of consecutive nodes
MOST_GPUS = 256  # of a node
GROUP, LATER = 30.0, 200  # s and jobs: running jobs that end close together are removed together


@inner
def look_in(s: Slurm, t: int, p: int) -> None:
    """Let a job be one of a partition, which may give whole nodes only."""
    job = s.jobs[t]
    job.part, job.whole = p, max(job.exclusive, s.parts[p].exclusive)


@inner
def room_on(job: Record, n: int, free: Free, s: Slurm) -> int:
    """Return how many instances of a job a node holds; of one with `distinct` nodes, at most one."""
    return room_up_to(1 if job.distinct else job.instances, job, n, free, s)


@inner
def room_up_to(room: int, job: Record, n: int, free: Free, s: Slurm) -> int:
    """Return how many instances of a job a node holds, but no more than `room`."""
    node = s.nodes[n]
    if job.whole and (free.cpu[n] < node.cpu or free.gpu[n] < node.gpus):
        return 0
    if job.cpu:
        room = min(room, free.cpu[n] // job.cpu)
    if job.memory:
        room = min(room, free.memory[n] // job.memory)
    if job.gpus:
        room = min(room, free.gpu[n] // job.gpus)
    return max(room, 0)


@inner
def weight_of(s: Slurm, job: Record, n: int, free: Free) -> int:
    """Return the weight of a node for a job: of equal ones, whole nodes for GPUs are those with the most free ones."""
    weight = s.nodes[n].weight * MOST_GPUS
    return weight - free.gpu[n] if job.whole and job.gpus else weight


@inner
def find_sets(s: Slurm, job: Record, usable: Ints, free: Free) -> int:
    """List the sets of consecutive nodes that hold a part of a job."""
    count, is_open = 0, False
    for n in range(len(s.nodes)):
        s.room[n] = room_on(job, n, free, s) if usable[n] else 0
        if not s.room[n]:
            is_open = False
            continue
        weight = weight_of(s, job, n, free)
        if not is_open or s.sets[count - 1, WEIGHT] != weight:
            for field in range(TAKEN + 1):
                s.sets[count, field] = 0
            s.sets[count, FIRST], s.sets[count, WEIGHT] = n, weight
            count, is_open = count + 1, True
        s.sets[count - 1, LAST] = n
        s.sets[count - 1, CPUS] += free.cpu[n]
        s.sets[count - 1, NODES] += 1
        s.sets[count - 1, INSTANCES] += s.room[n]
    return count


@inner
def best_set(s: Slurm, job: Record, count: int, nodes: int, instances: int) -> int:
    """Return the set to take next, -1 if none is left."""
    best, cpus, enough = -1, job.cpu * instances, False
    for k in range(count):
        if s.sets[k, TAKEN]:
            continue
        mine, weight = s.sets[k, CPUS], s.sets[k, WEIGHT]
        fits = mine >= cpus and s.sets[k, NODES] >= nodes and (job.distinct or s.sets[k, INSTANCES] >= instances)
        better = best < 0 or weight < s.sets[best, WEIGHT]
        if not better and weight == s.sets[best, WEIGHT]:
            other = s.sets[best, CPUS]
            better = (fits and not enough) or (fits and mine < other) or (not fits and mine > other)
        if better:
            best, enough = k, fits
    return best


@inner
def single_node(s: Slurm, job: Record, k: int, instances: int, free: Free) -> int:
    """Return the node of a set that holds all with the fewest free CPUs, -1 if none does."""
    best = -1
    for n in range(s.sets[k, FIRST], s.sets[k, LAST] + 1):
        if s.room[n] >= instances and (best < 0 or free.cpu[n] < free.cpu[best]):
            best = n
            if free.cpu[n] == job.cpu * instances:
                break
    return best


@inner
def least_loaded(s: Slurm, free: Free) -> int:
    """Return the node with room that has the largest part of its CPUs free, -1 if none has room."""
    best = -1
    for n in range(len(s.nodes)):
        if s.room[n] and (best < 0 or free.cpu[n] * s.nodes[best].cpu > free.cpu[best] * s.nodes[n].cpu):
            best = n
    return best


@inner
def choose_free(s: Slurm, t: int, usable: Ints, free: Free, lln: int) -> int:
    """Choose nodes with free CPUs, into `chosen` and `share`; return how many nodes, 0 if it does not fit."""
    job = s.jobs[t]
    nodes, instances, count = job.instances if job.distinct else 1, job.instances, 0
    sets = find_sets(s, job, usable, free)
    while lln and (nodes > 0 or instances > 0):
        n = least_loaded(s, free)
        if n < 0:
            return 0
        nodes, instances = nodes - 1, instances - take(s, n, count, instances)
        count += 1
    while nodes > 0 or instances > 0:
        k = best_set(s, job, sets, nodes, instances)
        if k < 0:
            return 0
        s.sets[k, TAKEN] = 1
        only = single_node(s, job, k, instances, free) if nodes <= 1 else -1
        for n in range(s.sets[k, FIRST], s.sets[k, LAST] + 1):
            if (nodes <= 0 and instances <= 0) or (only >= 0 and n != only) or not s.room[n]:
                continue
            nodes, instances = nodes - 1, instances - take(s, n, count, instances)
            count += 1
    return count


@inner
def choose(s: Slurm, t: int, usable: Ints, free: Free, lln: int) -> int:
    """Choose nodes for a job, into `chosen` and `share`; return how many nodes, 0 if it does not fit."""
    return choose_shared(s, t, usable, free, lln) if len(free.cores) else choose_free(s, t, usable, free, lln)


@inner
def choose_open(s: Slurm, t: int, free: Free, lln: int) -> int:
    """Choose nodes by the CPUs that no row in `skip_row` holds."""
    open_cores(s, free, s.joinable)
    room = Free(s.open_cpu, free.memory, free.gpu, free.cores, free.alone, free.one_row)
    return choose_free(s, t, s.joinable, by_reference(room), lln)


@inner
def choose_shared(s: Slurm, t: int, usable: Ints, free: Free, lln: int) -> int:
    """Choose nodes where jobs share CPUs; those that a job may have are in `open_bits`."""
    p = s.jobs[t].part
    for n in range(len(s.nodes)):
        s.joinable[n] = usable[n] and may_join(s, free, n, p)
    for r in range(len(s.skip_row)):
        s.skip_row[r] = 1
    nodes = choose_open(s, t, free, lln)  # CPUs that nobody holds
    suspends = s.clock.suspends == 1
    if nodes or (not suspends and s.parts[p].sharing < 2) or kind_of(s, p) < ONE_ROW:
        return nodes
    tier = s.parts[p].tier
    skip_higher(s, p, 1 if suspends else 0)
    skip_tier(s, tier)
    nodes = choose_open(s, t, free, lln)
    lower = next_tier(s, tier)
    while nodes and lower >= 0:  # and as few as possible of lower tiers
        skip_tier(s, lower)
        if not choose_open(s, t, free, lln):
            break
        lower = next_tier(s, lower)
    if nodes:
        skip_higher(s, p, 1 if suspends else 0)
        while tier > lower:
            skip_tier(s, tier)
            tier = next_tier(s, tier)
        return choose_open(s, t, free, lln)
    for r in range(s.first_row[p], s.first_row[p + 1]):  # CPUs that are free in one row
        skip_higher(s, p, 1 if suspends else 0)
        s.skip_row[r] = 1
        nodes = choose_open(s, t, free, lln)
        if nodes:
            return nodes
    return 0


@inner
def take(s: Slurm, n: int, count: int, instances: int) -> int:
    """Take a node, and return how many instances it holds."""
    count_here = min(s.room[n], instances)
    s.chosen[count], s.share[count], s.room[n] = n, count_here, 0
    return count_here


@inner
def give_back(s: Slurm, t: int, free: Free, sign: int) -> None:
    """Add what a job holds to what is free, or with `sign` -1 take it away."""
    job = s.jobs[t]
    for k in range(job.first_slot, job.first_slot + job.slots):
        n, count = s.slot_node[k], s.slot_count[k]
        free.cpu[n] += sign * (s.nodes[n].cpu if job.whole else count * job.cpu)
        free.memory[n] += sign * count * job.memory
        free.gpu[n] += sign * (s.nodes[n].gpus if job.whole else count * job.gpus)
    if len(free.cores):
        count_cores(s, t, free, sign)


@inner
def overlaps(s: Slurm, t: int, usable: Ints) -> bool:
    """Return whether a running job holds one of these nodes."""
    job = s.jobs[t]
    for k in range(job.first_slot, job.first_slot + job.slots):  # noqa: SIM110  compiled, a loop is quicker
        if usable[s.slot_node[k]]:
            return True
    return False


@inner
def copy_free(s: Slurm) -> None:
    """Let `then` be what is free now."""
    for n in range(len(s.nodes)):
        s.then.cpu[n], s.then.memory[n], s.then.gpu[n] = s.free.cpu[n], s.free.memory[n], s.free.gpu[n]
        for r in range(len(s.free.cores)):
            for w in range(s.free.cores.shape[2]):
                s.then.cores[r, n, w] = s.free.cores[r, n, w]
        s.then.alone[n], s.then.one_row[n] = s.free.alone[n], s.free.one_row[n]


@inner
def expected_end(s: Slurm, t: int, over_time: float, kill_wait: float) -> float:
    """Return when a running job will have ended; one that is over its time limit is expected to end soon."""
    end, now = s.jobs[t].expected_end, s.clock.second
    if end > now:
        return end
    return max(end + kill_wait + over_time, now + 1.0)


@inner
def find_room(s: Slurm, job: Record, usable: Ints, free: Free) -> int:
    """Count the instances that each node holds, into `room`; return how many in all: if enough, `choose` finds them."""
    count = 0
    for n in range(len(s.nodes)):
        s.room[n] = room_on(job, n, free, s) if usable[n] else 0
        count += s.room[n]
    return count


@inner
def more_room(s: Slurm, job: Record, other: int, usable: Ints) -> int:
    """Count anew on the nodes of a job that has ended in `then`; return how many instances more there is room for."""
    count, ended = 0, s.jobs[other]
    for k in range(ended.first_slot, ended.first_slot + ended.slots):
        n = s.slot_node[k]
        if usable[n]:
            room = room_on(job, n, s.then, s)
            count += room - s.room[n]
            s.room[n] = room
    return count


@inner
def choose_from(room: int, s: Slurm, t: int, usable: Ints, free: Free, lln: int) -> int:
    """Choose nodes for a job where so many instances have room; CPUs that jobs share are not counted in it."""
    if room < s.jobs[t].instances and not len(free.cores):
        return 0
    return choose(s, t, usable, free, lln)


@inner
def will_start(s: Slurm, t: int, usable: Ints, running: int, kill_wait: float, over_time: float, lln: int) -> float:
    """Return when a job can start on these nodes if no other comes, -1: not at all; its nodes are in `chosen`.

    `by_end` lists the running jobs by expected end. Those that end close together are removed together: within 30 s of
    the first, then 60 s, then 120 s. So a start may be planned later than necessary, as Slurm does. Jobs that this one
    may preempt are marked as `gone`: they are not waited for.
    """
    job = s.jobs[t]
    room = find_room(s, job, usable, s.free)
    s.sets[0, 0] = choose_from(room, s, t, usable, s.free, lln)
    if s.sets[0, 0]:
        return s.clock.second
    copy_free(s)
    gone = 0
    for k in range(running):
        if s.jobs[s.by_end[k]].gone and overlaps(s, s.by_end[k], usable):
            give_back(s, s.by_end[k], s.then, 1)
            gone += 1
    if gone:
        room = find_room(s, job, usable, s.then)
        s.sets[0, 0] = choose_from(room, s, t, usable, s.then, lln)
        if s.sets[0, 0]:
            return s.clock.second
    k, window, barrier = 0, GROUP, 0.0
    while k < running:
        removed, last, more = 0, -1, False
        while k < running:
            other = s.by_end[k]
            k += 1
            if s.jobs[other].gone or not overlaps(s, other, usable):
                continue
            end = s.jobs[other].expected_end
            if barrier == 0.0:
                barrier = end + GROUP - (end + s.clock.epoch) % GROUP
            last = other
            give_back(s, other, s.then, 1)
            room += more_room(s, job, other, usable)
            more = k < running
            if not more or s.jobs[s.by_end[k]].expected_end > barrier + window:
                break
            removed += 1
            if removed > LATER:
                break
        if last < 0:
            return -1.0
        if removed > LATER and more and s.jobs[s.by_end[k]].expected_end <= barrier + window:
            continue
        window *= 2.0
        while more and s.jobs[s.by_end[k]].expected_end > barrier + window:
            window *= 2.0
        s.sets[0, 0] = choose_from(room, s, t, usable, s.then, lln)
        if s.sets[0, 0]:
            end = s.jobs[last].expected_end
            return end if end > s.clock.second else expected_end(s, last, over_time, kill_wait)
    return -1.0


@inner_loop
def sort_by_end(s: Slurm) -> int:
    """List the running jobs by expected end; jobs that end together in order of their numbers."""
    count = s.clock.running
    ends = np.empty(count)
    for k in range(count):
        ends[k] = s.jobs[s.running[k]].expected_end
    order = np.argsort(ends, kind="mergesort")
    for k in range(count):
        s.by_end[k] = s.running[order[k]]
    return count


@inner
def add_by_end(s: Slurm, count: int, t: int) -> None:
    """Insert a job that has started into the list of running jobs by expected end."""
    job, k = s.jobs[t], count
    while k:
        other = s.jobs[s.by_end[k - 1]]
        if other.expected_end < job.expected_end or (
            other.expected_end == job.expected_end and other.number < job.number
        ):
            break
        s.by_end[k] = s.by_end[k - 1]
        k -= 1
    s.by_end[k] = t
