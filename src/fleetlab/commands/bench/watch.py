"""A card watched, and loaded until something breaks."""

import sys
from pathlib import Path
from typing import Annotated, Literal

from cyclopts import App, Parameter

from fleetlab.commands.words import Json, Seed, examples, on_the_bench, talk

desk = App()


@desk.command(
    help_epilogue=examples(
        "fleetlab bench monitor",
        "fleetlab bench monitor --every 0.2 --seconds 60 --out watched --quiet",
        "fleetlab bench monitor --prometheus 9400 --dcgm-names both --quiet",
        "fleetlab bench monitor --pack watched/samples.jsonl",
    )
)
def monitor(
    *,
    every: float = 1.0,
    seconds: float | None = None,
    out: Path | None = None,
    index: str = "all",
    backend: Literal["nvml", "cpu"] = "nvml",
    prometheus: int | None = None,
    address: str = "127.0.0.1",
    dcgm_names: Literal["4.8", "4.9", "both"] = "4.8",
    quiet: Annotated[bool, Parameter(negative=())] = False,
    pack: Path | None = None,
    json: Json = False,
) -> None:
    """Watch cards: use, memory, heat, power, energy, clocks and what holds them down, processes; Ctrl-C ends it.

    Parameters
    ----------
    every
        Seconds between two looks.
    seconds
        For how long; until Ctrl-C or SIGTERM unless told.
    out
        A folder for samples.jsonl, as it comes, and Parquet files in the end; one that holds a watch is gone on with.
    index
        Which cards: all, or numbers such as 0,1.
    backend
        cpu watches the host in the place of a card.
    prometheus
        Serve the last look to Prometheus at this port; 0 takes one that is free.
    address
        Where it is served; others on the network see it only if told so here.
    dcgm_names
        Whose names and units: the DCGM exporter's up to 4.8, its new ones from 4.9 on, or both.
    quiet
        Show nothing while it watches.
    pack
        Only make the Parquet files of a log whose watch was killed.
    """
    from fleetlab._screen import show
    from fleetlab.monitor import result as watched
    from fleetlab.monitor.run import Served, watch

    with on_the_bench():
        if pack is None:
            seen = watch(
                backend=backend,
                index=index,
                every=every,
                seconds=seconds,
                out=out,
                prometheus=None if prometheus is None else Served(prometheus, address, dcgm_names),
                stream=None if quiet or json else sys.stdout,
                tell=talk,
            )
            result = watched.of(seen)
        else:
            result = watched.packed(pack)
    show(result, json=json)


@desk.command(
    help_epilogue=examples(
        "fleetlab bench stress resnet-infer --out stress",
        "fleetlab bench stress llm-decode --modes mps --up-to 16 --slo-ms 50 --out stress-llm",
        "fleetlab bench stress launch --rehearse --up-to 4",
    )
)
def stress(
    work: str,
    *,
    modes: str = "time-slicing,mps",
    up_to: int = 32,
    slo_factor: float = 3.0,
    slo_ms: float | None = None,
    settle: float = 1.0,
    window: float = 4.0,
    limit: float = 3600,
    seed: Seed = 0,
    rehearse: Annotated[bool, Parameter(negative=())] = False,
    out: Path | None = None,
    json: Json = False,
) -> None:
    """Raise the number of tenants until something breaks, and say what: memory, a process, latency, or the host.

    Parameters
    ----------
    work
        One of those that `fleetlab bench work --help` lists, or your own as module:Class.
    modes
        Of sharing, with commas between: time-slicing, mps.
    up_to
        Tenants at once.
    slo_factor
        It breaks when the P95 of a step is above so many times that alone.
    slo_ms
        Or when it is above this, whatever it is alone.
    settle
        Seconds that a number of tenants runs before it is measured.
    window
        Seconds that it is measured.
    limit
        Seconds after which nothing more is begun.
    seed
        Of the tenants' data.
    rehearse
        On the CPU, tiny: the same code, but the numbers mean nothing.
    out
        The folder of the results; the same command goes on there. Without it nothing is kept.
    """
    from contextlib import ExitStack
    from tempfile import TemporaryDirectory

    from fleetlab._screen import show
    from fleetlab.bench.stress import run as test
    from fleetlab.bench.stress.result import stressed
    from fleetlab.bench.stress.verdict import Goal

    with ExitStack() as stack:
        folder = Path(stack.enter_context(TemporaryDirectory())) if out is None else out
        with on_the_bench():
            goal = Goal(slo_factor, slo_ms)
            named = tuple(mode.strip() for mode in modes.split(","))
            climb = test.Climb(work, named, up_to, goal, settle=settle, window=window, seed=seed)
            test.stress(climb, folder, limit=limit, rehearse=rehearse, tell=talk)
        show(stressed(folder), json=json)
