"""Pods and nodes of a Kubernetes cluster, as `kubectl get -o json` prints them."""

from fleetlab.schedulers.kubernetes.reader.reader import FORMAT, read

__all__ = ["FORMAT", "read"]
