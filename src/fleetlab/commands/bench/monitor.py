"""The command that monitors GPUs."""

import sys
from pathlib import Path
from typing import Annotated

from cyclopts import App

from fleetlab.commands.words import FLAT, Json, examples, talk
from fleetlab.monitor.options import MonitorOptions

desk = App()
DEFAULTS = MonitorOptions()


@desk.command(
    help_epilogue=examples(
        "fleetlab bench monitor",
        "fleetlab bench monitor --every 0.2 --seconds 60 --out watched --quiet",
        "fleetlab bench monitor --prometheus 9400 --dcgm-names both --quiet",
        "fleetlab bench monitor --pack watched/samples.jsonl",
    )
)
def monitor(
    *, options: Annotated[MonitorOptions, FLAT] = DEFAULTS, pack: Path | None = None, json: Json = False
) -> None:
    """Sample GPUs: utilization, memory, temperature, power, energy, clocks, throttling, processes. Stop with Ctrl-C.

    Parameters
    ----------
    pack
        Convert the log of a killed run to Parquet, and do nothing else.
    """
    from fleetlab._screen import show
    from fleetlab.monitor.result import monitor_result, pack_log
    from fleetlab.monitor.run import monitor as sample

    if pack is None:
        run = sample(options, stream=None if options.quiet or json else sys.stdout, progress=talk)
        result = monitor_result(run)
    else:
        result = pack_log(pack)
    show(result, json=json)
