"""A running cluster, read every minute: a store that survives kills, a trace that grows, metrics for Prometheus."""
