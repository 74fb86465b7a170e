"""Tenants as processes: each loads one workload and runs it on request."""
