"""A Model Context Protocol server: an assistant asks what the command line answers, reading alone."""

from __future__ import annotations

from collections.abc import Callable
from typing import TYPE_CHECKING, Any

from cyclopts import App

import fleetlab
from fleetlab.commands.options import examples

if TYPE_CHECKING:
    from mcp.server.mcpserver import MCPServer

    from fleetlab.core import Result

app = App()
INSTRUCTIONS = (
    "fleetlab answers about GPU clusters from their logs: why jobs wait, why one job is pending, what other rules or "
    "more nodes would do, when a job starts. `trace` is a path on this machine (a log of Slurm or Kubernetes, a CSV, "
    "the folder of a saved trace), `sample` (a recorded run of a real Slurm) or `pai` (synthetic). "
    "Your files stay as they are."
)


@app.command(help_epilogue=examples("fleetlab mcp", "claude mcp add fleetlab -- fleetlab mcp"))
def mcp() -> None:
    """Serve the verbs that only read to an assistant, over standard input and output (Model Context Protocol).

    Ask it "why is job 4711 pending?" in the tool that you use already. Needs the extra `mcp`.
    """
    server().run()


def server() -> MCPServer:
    """Return the server with its tools."""
    try:
        from mcp.server.mcpserver import MCPServer
        from mcp_types import ToolAnnotations
    except ImportError:
        msg = "no package for the Model Context Protocol"
        raise fleetlab.FleetlabError(msg, hint="pip install 'fleetlab[mcp]'") from None
    from fleetlab.commands.options import version

    served = MCPServer("fleetlab", instructions=INSTRUCTIONS, version=version())
    reads = ToolAnnotations(read_only_hint=True, idempotent_hint=True, open_world_hint=False)
    for tool in TOOLS:
        served.tool(annotations=reads)(tool)
    return served


def show(trace: str) -> str:
    """Say what is in a log: jobs, users, nodes, GPUs, and the rows that could not be read."""
    return _answer(lambda: _opened(trace))


def diagnose(trace: str) -> str:
    """Say why the jobs of a log wait, by reason, and what would reduce it, with the setting to change."""
    return _answer(lambda: fleetlab.diagnose(_opened(trace)))


def explain(trace: str, job: str) -> str:
    """Say why one job waited or is pending: the reasons second by second, and who held what it needed."""
    return _answer(lambda: fleetlab.explain(_opened(trace), job=job))


def compare(trace: str, policies: str = "", conf: str = "") -> str:
    """Compare policies (`fifo,sjf/easy`), or another line of the site's configuration (`bf_interval=60`), on a log."""
    if ":" in policies:  # MODULE:NAME would run code
        msg = f"an assistant compares built-in policies, not: {policies}"
        return _answer(lambda: _refuse(msg))
    names = [one.strip() for one in policies.split(",") if one.strip()]
    return _answer(lambda: fleetlab.compare(_opened(trace), policies=names or None, conf=[conf] if conf else []))


def capacity(trace: str, slo: str) -> str:
    """Find the smallest cluster on which a log meets a goal such as `p90 wait < 600`."""
    return _answer(lambda: fleetlab.capacity(_opened(trace), slo=slo))


def eta(trace: str, request: str = "", job: str = "") -> str:
    """Predict when a job of the log, or a new request such as `8 A100, 4 h`, starts."""
    return _answer(lambda: fleetlab.eta(_opened(trace), request=request or None, job=job or None, calibrate=0))


TOOLS = (show, diagnose, explain, compare, capacity, eta)


def _opened(trace: str) -> fleetlab.Trace:
    from fleetlab.core.data import open_trace

    return open_trace(trace)


def _refuse(message: str) -> Any:  # noqa: ANN401
    raise fleetlab.WorkloadError(message)


def _answer(ask: Callable[[], Result]) -> str:
    """Return what the command line prints; a user's mistake is an error with its hint."""
    from fleetlab._screen import short_answer

    try:
        result = ask()
    except fleetlab.FleetlabError as e:
        from mcp.server.mcpserver.exceptions import ToolError

        raise ToolError(f"{e}\nhint: {e.hint}" if e.hint else str(e)) from None
    guesses = [note for note in getattr(result, "notes", ()) if note.startswith(("read as: ", "cluster guessed: "))]
    return "\n".join([*guesses, *short_answer(result)])
