"""Measure how workloads share a GPU: alone and beside each other.

The measuring side needs only the standard library, torch, numpy and, if present, NVML, because GPU machines have little
else installed. It is started there as `python -m fleetlab.gpu.bench.run PLAN --out FOLDER`.
"""
