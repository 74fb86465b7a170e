"""What measured suites mean: which mode for which mix, how sure that is, and six questions answered or left open."""

from fleetlab.bench.analysis.result import Analysis, analyse
from fleetlab.bench.analysis.text import brief
from fleetlab.bench.analysis.write import written

__all__ = ["Analysis", "analyse", "brief", "written"]
