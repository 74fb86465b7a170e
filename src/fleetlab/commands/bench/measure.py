"""Commands that measure: a suite of many cells, one workload alone, a stress test, and isolation."""

import sys
from contextlib import ExitStack
from pathlib import Path
from typing import Annotated

from cyclopts import App

from fleetlab.bench.options import AllOptions, IsolationOptions, StressOptions, SuiteOptions, WorkloadOptions
from fleetlab.commands.words import FLAT, Json, examples, say_saved, talk

desk = App()


@desk.command(
    help_epilogue=examples(
        "fleetlab bench suite pairs-mps --out pairs-mps --limit 500",
        "fleetlab bench suite mine.toml --out mine --blocks 5 --seed 1",
        "fleetlab bench suite llm --out llm",
        "fleetlab bench suite pairs-ts --rehearse --out try",
    )
)
def suite(options: Annotated[SuiteOptions, FLAT], *, json: Json = False) -> None:
    """Measure a plan, cell by cell. Run the same command again to resume."""
    from fleetlab._screen import show
    from fleetlab.bench.results.suite import suite_result
    from fleetlab.bench.run import run_suite

    run_suite(options, progress=talk)
    show(suite_result(options.out), json=json)


@desk.command(
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
    from fleetlab._screen import show
    from fleetlab.bench import analysis
    from fleetlab.bench.all_modes.run import run_all
    from fleetlab.commands.bench.results import write_analysis

    run_all(options, progress=talk)
    result = analysis.analyze(options.out, price=price)
    page = write_analysis(result, options.out / "analysis")
    show(result, json=json, only=("modes", "stages", "kinds"))
    say_saved(page)


@desk.command(
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
    from fleetlab._screen import show
    from fleetlab.devices.start import large_import

    with large_import():
        from fleetlab.bench.single.result import single_result
    result = single_result(options, progress=talk)
    show(result, json=json)
    sys.exit(result.report.status)


@desk.command(
    help_epilogue=examples(
        "fleetlab bench stress resnet-infer --out stress",
        "fleetlab bench stress llm-decode --modes mps --up-to 16 --slo-ms 50 --out stress-llm",
        "fleetlab bench stress launch --rehearse --up-to 4",
    )
)
def stress(options: Annotated[StressOptions, FLAT], *, json: Json = False) -> None:
    """Raise the number of tenants until something breaks, and report what: memory, a process, latency, or the host."""
    from tempfile import TemporaryDirectory

    from fleetlab._screen import show
    from fleetlab.bench.stress.result import stress_result
    from fleetlab.bench.stress.run import run_stress

    with ExitStack() as stack:
        out = options.out or Path(stack.enter_context(TemporaryDirectory()))
        run_stress(options, out, progress=talk)
        show(stress_result(out), json=json)


@desk.command(
    help_epilogue=examples(
        "fleetlab bench isolation --out isolation",
        "fleetlab bench isolation --modes time-slicing,mps --probes memory,faults --out isolation",
        "fleetlab bench isolation --rehearse --out try",
    )
)
def isolation(options: Annotated[IsolationOptions, FLAT], *, json: Json = False) -> None:
    """Measure what a tenant can do to its neighbors: memory, faults, performance, information. Run again to resume."""
    from fleetlab._screen import show
    from fleetlab.bench.isolation.result import isolation_result
    from fleetlab.bench.isolation.run import run_isolation

    run_isolation(options, progress=talk)
    show(isolation_result(options.out), json=json)
