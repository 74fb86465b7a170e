"""Slurm's scheduler: its priorities, its limits and its two loops, by the rules of its own source (22.05)."""
