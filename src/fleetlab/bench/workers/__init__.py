"""Tenants as processes: each loads one workload and runs it when it is told to."""
