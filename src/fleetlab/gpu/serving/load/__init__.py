"""Load on a server of this machine: an open loop with scheduled arrivals, or a closed loop of waiting clients.

On a GPU machine it is started as `python -m fleetlab.gpu.serving.load URL …`, elsewhere as `fleetlab bench load URL …`.
"""
