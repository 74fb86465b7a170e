"""Alibaba's PAI trace of 2020 (seven tables)."""

from fleetlab.traces.pai2020.reader import FORMAT, read

__all__ = ["FORMAT", "read"]
