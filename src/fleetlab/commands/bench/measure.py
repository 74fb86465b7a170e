"""Commands that measure: a suite of many cells, or one workload alone."""

import sys
from pathlib import Path
from typing import Annotated

from cyclopts import App, Parameter

from fleetlab.commands.words import Json, Seed, examples, on_the_bench, talk

desk = App()


@desk.command(
    help_epilogue=examples(
        "fleetlab bench suite pairs-mps --out pairs-mps --limit 500",
        "fleetlab bench suite mine.toml --out mine --blocks 5 --seed 1",
        "fleetlab bench suite pairs-ts --rehearse --out try",
    )
)
def suite(
    plan: str,
    *,
    out: Path,
    limit: float = 3600,
    blocks: int | None = None,
    settle: float | None = None,
    window: float | None = None,
    seed: Seed = 0,
    rehearse: Annotated[bool, Parameter(negative=())] = False,
    json: Json = False,
) -> None:
    """Measure a plan, cell by cell. Run the same command again to resume.

    Parameters
    ----------
    plan
        solo, sm-curve, pairs-ts, pairs-mps, pairs-mps-50, breaking, classes, stressors, serving, crowded, or
        a TOML file.
    out
        Folder for the results.
    limit
        Time limit in seconds: no cell starts after it.
    blocks
        Measurements of each cell (default: as in the plan).
    settle
        Seconds that a cell runs before its measurement (default: as in the plan).
    window
        Seconds of a measurement (default: as in the plan).
    seed
        Seed of the order of cells and of the tenants' data.
    rehearse
        Run on the CPU with tiny sizes, to test a plan: the same code, but the results are meaningless.
    """
    from fleetlab._screen import show
    from fleetlab.bench.results.suite import suite_result
    from fleetlab.bench.run import make_plan
    from fleetlab.bench.suite import SuiteRun

    with on_the_bench():
        made = make_plan(plan, blocks=blocks, settle=settle, window=window, seed=seed, rehearse=rehearse)
        SuiteRun(made, out, limit=limit, rehearse=rehearse, progress=talk).run()
    show(suite_result(out), json=json)


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
def one_workload(
    name: str,
    *,
    seconds: float | None = None,
    epochs: int | None = None,
    steps: int | None = None,
    batch: int | None = None,
    batches: str | None = None,
    rate: float | None = None,
    data: Path | None = None,
    set: Annotated[tuple[str, ...], Parameter(negative=())] = (),
    device: str = "cuda",
    tiny: Annotated[bool, Parameter(negative=())] = False,
    seed: Seed = 0,
    out: Path | None = None,
    json: Json = False,
) -> None:
    """Run one workload alone: training, inference, decoding, small kernels, or a stressor of one resource.

    Training reports loss and accuracy by epoch, inference throughput and latency by batch size, a stressor its rate.
    The exit status is 3 if the loss is not a number.

    Parameters
    ----------
    name
        resnet-train, bert-train, resnet-infer, bert-infer, llm-decode, launch, interactive, gemm, hbm, l2, h2d, or
        your own as module:Class.
    seconds
        Length of a measurement (default: 10), or time limit of a training.
    epochs
        Epochs of a training (default: 1).
    steps
        Number of steps.
    batch
        Batch size.
    batches
        Batch sizes of inference, such as 1,2,4,8 (default: 1,2,4,8,16,32).
    rate
        Learning rate.
    data
        Folder with CIFAR-10 for resnet-train, binary or Python version (default: synthetic images).
    set
        Any setting of the workload as KEY=VALUE; may be repeated.
    device
        cuda, cuda:N or cpu.
    tiny
        Tiny sizes for a CPU: the same code, but the results are meaningless.
    seed
        Seed of weights, data and pauses.
    out
        Folder for statistics.json and, of a training, model.pt; both are written after each epoch.
    """
    from fleetlab._screen import show
    from fleetlab.bench.single.result import single_result

    plain = {"batch": batch, "rate": rate, "data": data}
    words = [*set, *(f"{key}={value}" for key, value in plain.items() if value is not None)]
    with on_the_bench():
        result = single_result(
            name,
            words=words,
            seconds=seconds,
            epochs=epochs,
            steps=steps,
            batches=batches,
            device=device,
            tiny=tiny,
            seed=seed,
            out=out,
            progress=talk,
        )
    show(result, json=json)
    sys.exit(result.report.status)
