"""Commands that monitor GPUs, and that raise the load until something breaks."""

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
    """Sample GPUs: utilization, memory, temperature, power, energy, clocks, throttling, processes. Stop with Ctrl-C.

    Parameters
    ----------
    every
        Seconds between samples.
    seconds
        Duration in seconds (default: until Ctrl-C or SIGTERM).
    out
        Folder for samples.jsonl, and for Parquet files at the end; an existing file is appended to.
    index
        GPU indexes, such as 0,1, or all.
    backend
        nvml, or cpu to sample the host instead of a GPU.
    prometheus
        Port at which the latest sample is served to Prometheus; 0 chooses a free port.
    address
        Address for Prometheus; the default is reachable from this machine only.
    dcgm_names
        Metric names and units of the DCGM exporter: up to version 4.8, from 4.9 on, or both.
    quiet
        Print no samples.
    pack
        Convert the log of a killed run to Parquet, and do nothing else.
    """
    from fleetlab._screen import show
    from fleetlab.monitor.result import monitor_result, pack_log
    from fleetlab.monitor.run import MetricsEndpoint
    from fleetlab.monitor.run import monitor as sample

    with on_the_bench():
        if pack is None:
            run = sample(
                backend=backend,
                index=index,
                every=every,
                seconds=seconds,
                out=out,
                prometheus=None if prometheus is None else MetricsEndpoint(prometheus, address, dcgm_names),
                stream=None if quiet or json else sys.stdout,
                progress=talk,
            )
            result = monitor_result(run)
        else:
            result = pack_log(pack)
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
    """Raise the number of tenants until something breaks, and report what: memory, a process, latency, or the host.

    Parameters
    ----------
    work
        A workload as in `fleetlab bench workload --help`, or your own as module:Class.
    modes
        Sharing modes, separated by commas: time-slicing, mps.
    up_to
        Maximum number of tenants.
    slo_factor
        Limit of the P95 step time, as a multiple of that of one tenant alone.
    slo_ms
        Limit of the P95 step time in milliseconds, instead of --slo-factor.
    settle
        Seconds that tenants run before a measurement.
    window
        Seconds of a measurement.
    limit
        Time limit in seconds: no measurement starts after it.
    seed
        Seed of the tenants' data.
    rehearse
        Run on the CPU with tiny sizes: the same code, but the results are meaningless.
    out
        Folder for the results; run the same command again to resume (default: results are not kept).
    """
    from contextlib import ExitStack
    from tempfile import TemporaryDirectory

    from fleetlab._screen import show
    from fleetlab.bench.stress import run as stress_run
    from fleetlab.bench.stress.result import stress_result
    from fleetlab.bench.stress.verdict import StressGoal

    with ExitStack() as stack:
        folder = Path(stack.enter_context(TemporaryDirectory())) if out is None else out
        with on_the_bench():
            goal = StressGoal(slo_factor, slo_ms)
            named = tuple(mode.strip() for mode in modes.split(","))
            climb = stress_run.StressPlan(work, named, up_to, goal, settle=settle, window=window, seed=seed)
            stress_run.stress(climb, folder, limit=limit, rehearse=rehearse, progress=talk)
        show(stress_result(folder), json=json)
