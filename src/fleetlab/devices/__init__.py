"""What every GPU room shares: `nvidia-smi`, NVML, device clocks, units, files and errors.

It needs the standard library alone (the clock also torch), because it runs on GPU machines that have little installed.
"""
