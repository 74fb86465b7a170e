"""Slurm accounting logs (`sacct -P`) and node lists (`scontrol show node`, `sinfo`)."""

from fleetlab.schedulers.slurm.reader.reader import FORMAT, read

__all__ = ["FORMAT", "read"]
