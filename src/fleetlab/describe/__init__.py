"""What a trace contains: arrivals, runtimes, waits, requests, utilization; tables and figures."""

from fleetlab.describe.describe import SECTIONS, describe
from fleetlab.describe.section import Profile

__all__ = ["SECTIONS", "Profile", "describe"]
