"""Slurm's own scheduler: partitions, priorities, limits, and its main and backfill loops."""
