"""Watch cards for as long as one likes: to a file, to the terminal, to Prometheus.

What samples, writes and serves needs the standard library, NVML and prometheus_client alone; it is started on a machine
that has little else as `python -m fleetlab.monitor --out FOLDER`. `pack` and `watched` need frames, and run where
the results are read.
"""
