"""Stress test: raise the number of tenants of one kind until something breaks."""
