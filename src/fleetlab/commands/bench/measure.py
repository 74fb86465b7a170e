"""Measuring: a plan of many cells, or one work by itself."""

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
    """Measure a plan, cell by cell; the same command goes on where it stopped.

    Parameters
    ----------
    plan
        solo, sm-curve, pairs-ts, pairs-mps, pairs-mps-50, breaking, or a TOML file of tenants, mixes and modes.
    out
        The folder of the results.
    limit
        Seconds after which no cell is begun.
    blocks
        How often each cell is measured.
    settle
        Seconds that a cell runs before it is measured.
    window
        Seconds that it is measured.
    seed
        Of the order of cells.
    rehearse
        On the CPU, tiny and short: the same code, but the numbers mean nothing.
    """
    from fleetlab._screen import show
    from fleetlab.bench.results.suite import measured
    from fleetlab.bench.run import planned
    from fleetlab.bench.suite import Suite

    with on_the_bench():
        made = planned(plan, blocks=blocks, settle=settle, window=window, seed=seed, rehearse=rehearse)
        Suite(made, out, limit=limit, rehearse=rehearse, tell=talk).run()
    show(measured(out), json=json)


@desk.command(
    name="work",
    help_epilogue=examples(
        "fleetlab bench work resnet-train --epochs 5 --batch 128 --rate 0.1 --out trained",
        "fleetlab bench work resnet-train --data cifar-10-batches-bin --epochs 20 --out trained",
        "fleetlab bench work bert-infer --batches 1,4,16",
        "fleetlab bench work hbm --set duty=0.5 --seconds 20",
        "fleetlab bench work llm-decode --device cpu --tiny",
    ),
)
def one_work(
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
    """Run one work by itself: train, ask, decode, launch, or press on one resource.

    Training tells loss and accuracy by epoch, inference latency and throughput by batch size, a stressor its rate.
    The exit status is 3 if the loss was not a number.

    Parameters
    ----------
    name
        resnet-train, bert-train, resnet-infer, bert-infer, llm-decode, launch, interactive, gemm, hbm, l2, h2d, or
        one of your own as module:Class.
    seconds
        How long a window is (10), or how long a training may take.
    epochs
        Of a training (1).
    steps
        How many steps to run.
    batch
        Items a step.
    batches
        Of inference: the sizes to go through, such as 1,2,4,8.
    rate
        Of learning.
    data
        A folder with CIFAR-10 for resnet-train, binary or Python version; synthetic images without.
    set
        Any setting of the work as KEY=VALUE; may be given many times.
    device
        cuda, cuda:1 and so on, or cpu.
    tiny
        Sizes for a CPU: the same code, but the numbers mean nothing.
    seed
        Of weights, data and pauses.
    out
        A folder for statistics.json, and model.pt of a training; each finished epoch is kept.
    """
    from fleetlab._screen import show
    from fleetlab.bench.single.result import worked

    plain = {"batch": batch, "rate": rate, "data": data}
    words = [*set, *(f"{key}={value}" for key, value in plain.items() if value is not None)]
    with on_the_bench():
        found = worked(
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
            tell=talk,
        )
    show(found, json=json)
    sys.exit(found.told.status)
