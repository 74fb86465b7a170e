"""Pods and nodes of a Kubernetes cluster, as `kubectl get -o json` prints them."""

from fleetlab.traces.kubernetes.reader import FORMAT, read

__all__ = ["FORMAT", "read"]
