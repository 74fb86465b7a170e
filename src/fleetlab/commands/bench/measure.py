"""Commands that measure: a suite, one workload, a stress test, isolation; a server and its load; samples of GPUs."""

import sys
from contextlib import ExitStack
from pathlib import Path
from typing import Annotated

from cyclopts import App

from fleetlab import gpu
from fleetlab.commands import screen
from fleetlab.commands.options import FLAT, Json, examples, say_saved, talk
from fleetlab.gpu import (
    AllOptions,
    IsolationOptions,
    LoadOptions,
    MonitorOptions,
    ServeOptions,
    StressOptions,
    SuiteOptions,
    WorkloadOptions,
)

app = App()
MONITOR = MonitorOptions()


@app.command(
    help_epilogue=examples(
        "fleetlab bench suite pairs-mps --out pairs-mps --limit 500",
        "fleetlab bench suite mine.toml --out mine --blocks 5 --seed 1",
        "fleetlab bench suite llm --out llm",
        "fleetlab bench suite pairs-ts --rehearse --out try",
    )
)
def suite(options: Annotated[SuiteOptions, FLAT], *, json: Json = False) -> None:
    """Measure a plan, cell by cell. Run the same command again to resume."""
    gpu.run_suite(options, progress=talk)
    screen.show(gpu.suite_result(options.out), json=json)


@app.command(
    name="all",
    help_epilogue=examples(
        "fleetlab bench all --out measured --minutes 30",
        "fleetlab bench all --out measured --minutes 20 --stages mine.toml,quick",
        "fleetlab bench all --out try --stages quick --rehearse",
    ),
)
def all_modes(options: Annotated[AllOptions, FLAT], *, price: float | None = None, json: Json = False) -> None:
    """Measure all sharing modes that the GPU allows, within a time budget, and write one report.

    Run the same command again to resume. Nothing of the GPU is changed for others, and MPS is stopped however it ends.

    Parameters
    ----------
    price
        Price of a GPU hour, in any currency, for the report.
    """
    from fleetlab.commands.bench.results import write_analysis
    from fleetlab.gpu.bench import analysis

    gpu.run_all(options, progress=talk)
    result = analysis.analyze(options.out, price=price)
    page = write_analysis(result, options.out / "analysis")
    screen.show(result, json=json, only=("modes", "stages", "kinds"))
    say_saved(page)


@app.command(
    name="workload",
    help_epilogue=examples(
        "fleetlab bench workload resnet-train --epochs 5 --batch 128 --rate 0.1 --out trained",
        "fleetlab bench workload resnet-train --data cifar-10-batches-bin --epochs 20 --out trained",
        "fleetlab bench workload bert-infer --batches 1,4,16",
        "fleetlab bench workload hbm --set duty=0.5 --seconds 20",
        "fleetlab bench workload llm-decode --device cpu --tiny",
    ),
)
def one_workload(options: Annotated[WorkloadOptions, FLAT], *, json: Json = False) -> None:
    """Run one workload alone: training, inference, decoding, small kernels, or a stressor of one resource.

    Training reports loss and accuracy by epoch, inference throughput and latency by batch size, a stressor its rate.
    The exit status is 3 if the loss is not a number.
    """
    from fleetlab.gpu.devices.console import large_import

    with large_import():
        single_result = gpu.single_result
    result, status = single_result(options, progress=talk)
    screen.show(result, json=json)
    sys.exit(status)


@app.command(
    help_epilogue=examples(
        "fleetlab bench stress resnet-infer --out stress",
        "fleetlab bench stress llm-decode --modes mps --up-to 16 --slo-ms 50 --out stress-llm",
        "fleetlab bench stress launch --rehearse --up-to 4",
    )
)
def stress(options: Annotated[StressOptions, FLAT], *, json: Json = False) -> None:
    """Raise the number of tenants until something breaks, and report what: memory, a process, latency, or the host."""
    from tempfile import TemporaryDirectory

    with ExitStack() as stack:
        out = options.out or Path(stack.enter_context(TemporaryDirectory()))
        gpu.run_stress(options, out, progress=talk)
        screen.show(gpu.stress_result(out), json=json)


@app.command(
    help_epilogue=examples(
        "fleetlab bench isolation --out isolation",
        "fleetlab bench isolation --modes time-slicing,mps --probes memory,faults --out isolation",
        "fleetlab bench isolation --rehearse --out try",
    )
)
def isolation(options: Annotated[IsolationOptions, FLAT], *, json: Json = False) -> None:
    """Measure what a tenant can do to its neighbors: memory, faults, performance, information. Run again to resume."""
    gpu.run_isolation(options, progress=talk)
    screen.show(gpu.isolation_result(options.out), json=json)


@app.command(
    help_epilogue=examples(
        "fleetlab bench load http://127.0.0.1:8000 --rate 200 --seconds 30 --slo-ms 15 --out at-200",
        "fleetlab bench load http://127.0.0.1:8000 --arrivals gamma:0.25 --rate 100",
        "fleetlab bench load http://127.0.0.1:8000 --arrivals azure --rate 50",
        "fleetlab bench load http://127.0.0.1:8000 --dataset azure-conv --rate 10 --goodput ttft:200,tpot:25",
        "fleetlab bench load http://127.0.0.1:8000 --clients 16",
        "fleetlab bench load http://127.0.0.1:8000 --slo-ms 15 --search 10:1000",
    )
)
def load(options: Annotated[LoadOptions, FLAT], *, json: Json = False) -> None:
    """Send load to a server on this machine; report latency from the scheduled time, throughput, refusals and failures.

    The exit status is 3 if the generator was late, which makes the result invalid.
    """
    from fleetlab.gpu.serving.load.search import exit_status, run

    result = run(options, times=_submissions(options.arrivals), progress=talk)
    screen.show(gpu.load_result(result.to_json()), json=json)
    sys.exit(exit_status(result))


def _submissions(arrivals: str) -> tuple[float, ...] | None:
    """Submission times of a trace; None for a distribution or a file, which the load generator reads itself."""
    from fleetlab.core.data import open_trace
    from fleetlab.core.words import SHIPPED

    if not (Path(arrivals).is_dir() or arrivals.split(":")[0] in SHIPPED):
        return None
    return tuple(open_trace(arrivals).workload.frame["submit"].to_list())


@app.command(
    help_epilogue=examples(
        "fleetlab bench serve resnet-infer --port 8000",
        "fleetlab bench serve bert-infer --device cpu --tiny --port 0",
        """curl -d '{"seed": 7}' http://127.0.0.1:8000/predict""",
        "fleetlab bench serve llm-serve --batch 32",
    )
)
def serve(options: Annotated[ServeOptions, FLAT]) -> None:
    """Serve predictions over HTTP, with dynamic batching and a bounded queue, until SIGTERM or Ctrl-C."""
    from fleetlab.gpu.serving.server.server import serve as serve_

    serve_(options, progress=talk)


@app.command(
    help_epilogue=examples(
        "fleetlab bench monitor",
        "fleetlab bench monitor --every 0.2 --seconds 60 --out watched --quiet",
        "fleetlab bench monitor --prometheus 9400 --dcgm-names both --quiet",
        "fleetlab bench monitor --pack watched/samples.jsonl",
    )
)
def monitor(
    *, options: Annotated[MonitorOptions, FLAT] = MONITOR, pack: Path | None = None, json: Json = False
) -> None:
    """Sample GPUs: utilization, memory, temperature, power, energy, clocks, throttling, processes. Stop with Ctrl-C.

    Parameters
    ----------
    pack
        Convert the log of a killed run to Parquet, and do nothing else.
    """
    from fleetlab.gpu.monitor.run import monitor as sample

    if pack is None:
        run = sample(options, stream=None if options.quiet or json else sys.stdout, progress=talk)
        result = gpu.monitor_result(run)
    else:
        result = gpu.pack_log(pack)
    screen.show(result, json=json)
