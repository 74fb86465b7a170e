"""The bench: real work on a real GPU, alone and beside others, measured.

What runs on the measuring machine needs only the standard library, torch, numpy and, where there is one, NVML:
such machines carry little else. It is started there as `python -m fleetlab.bench.run PLAN --out FOLDER`.
"""
