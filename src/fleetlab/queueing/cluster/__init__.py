"""The queueing model of a cluster, fitted to a workload."""
