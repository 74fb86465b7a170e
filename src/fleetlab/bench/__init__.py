"""Measure how workloads share a GPU: alone and beside each other.

The measuring side needs only the standard library, torch, numpy and, if present, NVML, because GPU machines have little
else installed. It is started there as `python -m fleetlab.bench.run PLAN --out FOLDER`. `step` counts the steps of a
program of your own, which a plan names as a tenant; it needs the standard library only.
"""

from fleetlab.bench.steps import step

__all__ = ["step"]
