"""The runs of jobs that were requeued: each is logged when it ends."""

from __future__ import annotations

from fleetlab.schedulers.slurm.state import Slurm
from fleetlab.sim.jit import inner
from fleetlab.sim.layout import Ints, record

RUN = record("job begin:f end:f eligible:f looked:f skipped")


@inner
def log_run(s: Slurm, t: int) -> None:
    """Log a run that has ended, with the node and the GPUs of each instance."""
    if len(s.runs) == 0:
        return
    job, clock = s.jobs[t], s.clock
    row = s.runs[clock.runs]
    row.job, row.begin, row.end, row.eligible, row.looked = t, job.start, job.end, job.eligible, job.looked
    row.skipped = job.skipped
    clock.runs += 1
    write_instances(s, t, s.entries, clock.entries)
    clock.entries += job.instances


@inner
def write_instances(s: Slurm, t: int, into: Ints, first: int) -> None:
    """Write the node and the GPUs of each instance of a job."""
    job, at = s.jobs[t], first
    for k in range(job.first_slot, job.first_slot + job.slots):
        left = s.slot_gpus[k]
        for _ in range(s.slot_count[k]):
            got, wanted = 0, job.gpus
            while left and wanted:
                bit = left & -left
                got |= bit
                left &= ~bit
                wanted -= 1
            into[at, 0], into[at, 1] = s.slot_node[k], got
            at += 1
