"""Load for a server on this machine: requests by a timetable that does not wait for answers, or clients that do.

On a GPU machine it is started as `python -m fleetlab.serving.load URL …`, elsewhere as `fleetlab bench load URL …`.
"""
