"""A real Slurm on this host: generate its configuration, replay a workload in compressed time, and compare."""
