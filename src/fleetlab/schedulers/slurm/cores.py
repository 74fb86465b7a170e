"""CPUs that several jobs may hold at a time: partitions with OverSubscribe=FORCE:n, and preemption by suspension.

Each partition has rows, as many as jobs may share a CPU there; jobs of one row hold different CPUs. A job first looks
for CPUs that nobody holds. If there are too few, one of a partition that preempts by suspension takes CPUs of lower
tiers, and one of a partition that shares takes CPUs that are free in one of its rows. Memory and GPUs are never shared:
a suspended job keeps both. Where no partition shares there are no rows, and nothing of this is done.
"""

from __future__ import annotations

from fleetlab.schedulers.slurm.state import OFF, Free, Slurm
from fleetlab.sim.jit import inner
from fleetlab.sim.layout import Ints

WORD = 60  # CPUs in one number
MILLI = 1000
ALONE, ONE_ROW, SHARED = range(3)  # what a job asks of its nodes


@inner
def count_bits(bits: int) -> int:
    """Return how many bits are set: by pairs, fours and bytes, which are then added."""
    bits -= (bits >> 1) & 0x5555555555555555
    bits = (bits & 0x3333333333333333) + ((bits >> 2) & 0x3333333333333333)
    bits = (bits + (bits >> 4)) & 0x0F0F0F0F0F0F0F0F
    bits += bits >> 8
    bits += bits >> 16
    bits += bits >> 32
    return bits & 0x7F


@inner
def kind_of(s: Slurm, p: int) -> int:
    """Return what jobs of a partition ask of their nodes."""
    if s.parts[p].exclusive:
        return ALONE
    return SHARED if s.parts[p].sharing > 1 else ONE_ROW


@inner
def is_busy(s: Slurm, free: Free, n: int, p: int) -> bool:
    """Return whether a node has jobs of a partition that shares, other than `p`; with `p` -1, any jobs."""
    for r in range(len(free.cores)):
        if p >= 0 and (s.row_part[r] == p or s.parts[s.row_part[r]].sharing < 2):
            continue
        for w in range(free.cores.shape[2]):
            if free.cores[r, n, w]:
                return True
    return False


@inner
def may_join(s: Slurm, free: Free, n: int, p: int) -> bool:
    """Return whether jobs of a partition may be on a node beside those that are there."""
    kind = kind_of(s, p)
    if free.alone[n] or (free.one_row[n] and kind != ONE_ROW):
        return False
    if kind == ALONE:
        return not is_busy(s, free, n, -1)
    return kind == SHARED or not is_busy(s, free, n, p)


@inner
def open_cores(s: Slurm, free: Free, usable: Ints) -> None:
    """Find the CPUs of each node that none of the rows in `skip_row` holds, into `open_bits` and `open_cpu`."""
    for n in range(len(s.nodes)):
        s.open_cpu[n] = 0
        left = s.nodes[n].cpu // MILLI if usable[n] else 0
        for w in range(free.cores.shape[2]):
            here = min(WORD, left)
            left -= here
            bits = (1 << here) - 1
            for r in range(len(free.cores)):
                if s.skip_row[r]:
                    bits &= ~free.cores[r, n, w]
            s.open_bits[n, w] = bits
            s.open_cpu[n] += count_bits(bits) * MILLI


@inner
def idle_cpu(s: Slurm, free: Free, n: int) -> int:
    """Return the CPU milli of a node that nobody holds."""
    cpus = s.nodes[n].cpu // MILLI
    for w in range(free.cores.shape[2]):
        bits = 0
        for r in range(len(free.cores)):
            bits |= free.cores[r, n, w]
        cpus -= count_bits(bits)
    return cpus * MILLI


@inner
def skip_higher(s: Slurm, p: int, by_tier: int) -> None:
    """Leave out CPUs of jobs that a job of a partition may not have suspended; `by_tier`: it may some."""
    for r in range(len(s.row_part)):
        other = s.parts[s.row_part[r]]
        kept = other.tier > s.parts[p].tier or other.preempt_mode == OFF
        s.skip_row[r] = 1 if by_tier and kept else 0


@inner
def skip_tier(s: Slurm, tier: int) -> None:
    """Leave out CPUs of jobs in partitions of a tier too."""
    for r in range(len(s.row_part)):
        if s.parts[s.row_part[r]].tier == tier:
            s.skip_row[r] = 1


@inner
def next_tier(s: Slurm, tier: int) -> int:
    """Return the highest tier below one, -1: there is none."""
    best = -1
    for p in range(len(s.parts)):
        if s.parts[p].tier < tier:
            best = max(best, s.parts[p].tier)
    return best


@inner
def take_cores(s: Slurm, t: int) -> None:
    """Give a job that starts the first open CPUs of its nodes, and the first row in which nobody holds them."""
    job = s.jobs[t]
    for k in range(job.first_slot, job.first_slot + job.slots):
        n = s.slot_node[k]
        need = s.nodes[n].cpu if job.whole else s.slot_count[k] * job.cpu
        need = (need + MILLI - 1) // MILLI
        for w in range(s.slot_cores.shape[1]):
            bits, got = s.open_bits[n, w], 0
            while bits and need:
                bit = bits & -bits
                got |= bit
                bits &= ~bit
                need -= 1
            s.slot_cores[k, w] = got
    job.row = s.first_row[job.part]
    for r in range(s.first_row[job.part + 1] - 1, s.first_row[job.part] - 1, -1):
        if is_free(s, t, r):
            job.row = r


@inner
def is_free(s: Slurm, t: int, r: int) -> bool:
    """Return whether nobody of a row holds the CPUs of a job."""
    job = s.jobs[t]
    for k in range(job.first_slot, job.first_slot + job.slots):
        for w in range(s.slot_cores.shape[1]):
            if s.free.cores[r, s.slot_node[k], w] & s.slot_cores[k, w]:
                return False
    return True


@inner
def count_cores(s: Slurm, t: int, free: Free, sign: int) -> None:
    """Let the CPUs of a job be free in its row, or with `sign` -1 not."""
    job = s.jobs[t]
    kind = kind_of(s, job.part)
    for k in range(job.first_slot, job.first_slot + job.slots):
        n = s.slot_node[k]
        for w in range(s.slot_cores.shape[1]):
            if sign > 0:
                free.cores[job.row, n, w] &= ~s.slot_cores[k, w]
            else:
                free.cores[job.row, n, w] |= s.slot_cores[k, w]
        free.alone[n] -= sign * (kind == ALONE)
        free.one_row[n] -= sign * (kind == ONE_ROW)
        free.cpu[n] = idle_cpu(s, free, n)
