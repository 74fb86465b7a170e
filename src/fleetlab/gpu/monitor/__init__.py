"""Sample GPUs at an interval: to a file, to the terminal, to Prometheus.

Sampling needs only the standard library, NVML and prometheus_client, and runs on a GPU machine as
`python -m fleetlab.gpu.monitor --out FOLDER`. The modules `parquet` and `result` need polars and run where results are
read.
"""
