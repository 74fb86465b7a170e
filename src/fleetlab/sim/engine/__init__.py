"""The quick loops: orders whose ranks are fixed at arrival, jobs that run to completion."""
