"""A simulated run as a trace that Perfetto opens: nodes are processes, GPUs are threads, jobs are slices."""
