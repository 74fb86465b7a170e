"""The command that reads a running cluster."""

from typing import Annotated

from cyclopts import App

from fleetlab.commands.words import FLAT, Json, examples, talk
from fleetlab.live.options import System, WatchOptions

desk = App()
DEFAULTS = WatchOptions()


@desk.command(
    help_epilogue=examples(
        "fleetlab watch slurm --once",
        "fleetlab watch slurm --out watched",
        'fleetlab watch slurm --out watched --request "8 A100, 4 h" --predict 300',
        "fleetlab watch kubernetes --context prod --out watched --listen 127.0.0.1:9836",
        "fleetlab eta watched/trace",
    )
)
def watch(system: System, *, options: Annotated[WatchOptions, FLAT] = DEFAULTS, json: Json = False) -> None:
    """Read a running cluster every minute: keep every job, and serve waits and GPUs to Prometheus. Stop with Ctrl-C.

    Parameters
    ----------
    system
        What runs the cluster: slurm (by squeue, sacct, scontrol) or kubernetes (by its API).
    """
    from fleetlab._screen import show
    from fleetlab.live.watch import watch as look

    show(look(system, options, say=talk), json=json)
