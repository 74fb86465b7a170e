"""Synthetic traces, made from published statistics alone."""

from fleetlab.traces.synthesize.synthesize import JOBS, synthesize
from fleetlab.traces.synthesize.validation.check import Check, check

__all__ = ["JOBS", "Check", "check", "synthesize"]
