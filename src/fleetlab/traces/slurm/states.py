"""How Slurm says that a job ended, or did not yet, in the words of a workload; every log of Slurm's is read by this."""

from __future__ import annotations

STATES = {
    "completed": ("COMPLETED",),
    "failed": ("FAILED", "TIMEOUT", "NODE_FAIL", "OUT_OF_MEMORY", "BOOT_FAIL", "DEADLINE", "LAUNCH_FAILED"),
    # It was taken off its nodes, and not for a fault of its own.
    "cancelled": ("CANCELLED", "PREEMPTED", "REVOKED", "REQUEUED"),
    "running": ("RUNNING", "COMPLETING", "CONFIGURING", "SUSPENDED", "RESIZING", "STOPPED", "SIGNALING", "STAGE_OUT"),
    "waiting": ("PENDING", "REQUEUE_FED", "REQUEUE_HOLD", "RESV_DEL_HOLD", "SPECIAL_EXIT"),
}
STATUS = {state: status for status, states in STATES.items() for state in states}
