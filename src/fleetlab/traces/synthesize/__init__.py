"""Synthetic traces, made from published statistics alone."""

from fleetlab.traces.synthesize.synthesize import JOBS, synthesize

__all__ = ["JOBS", "synthesize"]
