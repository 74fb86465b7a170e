"""Published results beside ours, number by number, each with a verdict."""

from fleetlab.reproduce.reproduce import reproduce

__all__ = ["reproduce"]
