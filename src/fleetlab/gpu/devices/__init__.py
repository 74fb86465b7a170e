"""Shared by all parts of gpu: `nvidia-smi`, NVML, device clocks, units, files, progress, imports and errors.

It needs the standard library alone (the clock also torch), because it runs on GPU machines that have little installed.
"""
