"""Commands that predict from measurements: a speed profile, the mixes of a plan, and speeds on MIG instances."""

from pathlib import Path
from typing import Annotated

from cyclopts import App, Parameter

import fleetlab
from fleetlab import gpu
from fleetlab.commands import screen
from fleetlab.commands.options import Json, Seed, examples, split, talk, version

app = App()


@app.command(
    help_epilogue=examples(
        "fleetlab bench profile classes --classes --out mine.json",
        "fleetlab simulate builtin:2000 --sharing mps --speed mine.json",
        "fleetlab bench profile own classes --classes --keep mine --out mine.json",
    )
)
def profile(
    folders: list[Path],
    /,
    *,
    out: Path | None = None,
    workloads: str = "",
    classes: Annotated[bool, Parameter(negative=())] = False,
    keep: str = "",
    json: Json = False,
) -> None:
    """Make a speed profile for the simulator from measurements.

    Parameters
    ----------
    folders
        Folders of `fleetlab bench suite --out` on one GPU, or folders of such.
    out
        File for the profile, as `fleetlab simulate --speed` takes it.
    workloads
        Workloads in the profile, separated by commas (default: all that were measured beside others).
    classes
        Group workloads as light, medium and heavy, by their GPU utilization when alone.
    keep
        With --classes: workloads that stay classes of their own, separated by commas, such as your own program.
    """
    from fleetlab.gpu.bench import profile as speed_profile

    screen.may_create(out)
    if keep and not classes:
        raise fleetlab.DeviceError("--keep has no effect without --classes: every workload is a class of its own")
    named = tuple(split(workloads))
    result = speed_profile.profile(folders, workloads=named, classes=classes, keep=tuple(split(keep)))
    if out:
        talk(f"saved: {result.save(out)}")
    screen.show(result, json=json)


@app.command(
    name="predict",
    help_epilogue=examples(
        "fleetlab bench predict heldout measurements --out predictions.json",
        "fleetlab bench suite heldout --out heldout",
        "fleetlab bench compare predictions.json heldout",
    ),
)
def predict_mixes(plan: str, folders: list[Path], /, *, out: Path | None = None, json: Json = False) -> None:
    """Predict the mixes of a plan before it is measured: the speed of each tenant, with a 90 % interval.

    Parameters
    ----------
    plan
        A plan as in `fleetlab bench suite --help`, or a TOML file.
    folders
        Folders of `fleetlab bench suite --out` on the same GPU model, or folders of such; none may contain the plan.
    out
        File for the predictions, as `fleetlab bench compare` takes it.
    """
    screen.may_create(out)
    talk("fitting the model without each pair: some seconds")
    predictions = gpu.predict_plan(gpu.make_plan(plan), folders)
    if out:
        predictions.save(out)
        talk(f"saved: {out}")
    screen.show(predictions, json=json, most=200)


@app.command(help_epilogue=examples("fleetlab bench compare predictions.json heldout"))
def compare(predictions: Path, folders: list[Path], /, *, seed: Seed = 0, json: Json = False) -> None:
    """Compare predictions with the measurement: mean absolute error by mode and number of tenants, with intervals.

    Parameters
    ----------
    predictions
        File of `fleetlab bench predict --out`.
    folders
        Folders of `fleetlab bench suite --out` of the predicted plan.
    seed
        Seed of the bootstrap intervals.
    """
    screen.show(gpu.compare_predictions(predictions, folders, seed=seed), json=json, most=200)


mig = App(
    name="mig",
    help="Speeds on MIG instances: predict them, and compare predictions with measurements.",
    help_epilogue=examples(
        "fleetlab bench mig solo pairs-ts sm-curve --model A100-80",
        "fleetlab bench mig plan",
        "fleetlab bench mig check mig",
    ),
    help_format="plaintext",
    version=version,
)
app.command(mig)


@mig.default
def predict(folders: list[Path], /, *, model: str | None = None, json: Json = False) -> None:
    """Predict the speed of workloads on each MIG slice of a GPU, from runs on fewer SMs. Nothing is measured on MIG.

    Parameters
    ----------
    folders
        Folders of `fleetlab bench suite --out` on one GPU; one must be of the plan sm-curve.
    model
        A GPU model such as A30, A100-40 or H200 (default: the measured GPU).
    """
    screen.show(gpu.predict_slices(folders, model=model), json=json)


@mig.command(
    help_epilogue=examples("fleetlab bench mig check mig", "fleetlab bench mig check mig --curves h200 --json")
)
def check(folders: list[Path], /, *, curves: list[Path] | None = None, json: Json = False) -> None:
    """Compare speeds measured on MIG instances with predictions: errors by profile and workload, inside limits or not.

    Parameters
    ----------
    folders
        Folders of `fleetlab bench suite mig --out` on one GPU.
    curves
        Folders with runs on fewer SMs from which to predict, of this or of another GPU model (default: the same
        folders).
    """
    screen.show(gpu.check_slices(folders, curves=tuple(curves or ())), json=json, most=200)


@mig.command(help_epilogue=examples("fleetlab bench mig plan", "fleetlab bench mig plan --model H200"))
def plan(*, model: str | None = None) -> None:
    """Print the command that measures every MIG profile of a GPU and compares it with the predictions; changes nothing.

    Parameters
    ----------
    model
        A GPU model such as A30, A100-40 or H200 (default: the GPU of this machine; without one, an A100-40).
    """
    from fleetlab.gpu.bench.plans import WITHOUT_GPU, has_gpu
    from fleetlab.gpu.bench.profile.mig import MEASURE
    from fleetlab.gpu.bench.workers.pool import LEAD

    suite = gpu.mig_plan(model=model)
    stages = [stage[0].mode for stage in suite.stages()]
    minutes = len(suite.cells) * (LEAD + suite.settle + suite.window + 0.3) / 60 + 0.75 * len(stages)
    print(MEASURE)
    if model is None and not has_gpu():
        print("\n" + screen.prose(f"There is no GPU here: the layouts below are those of an {WITHOUT_GPU}."))
    size = f"{len(suite.cells)} cells in {len(stages)} stages, about {minutes:.0f} minutes: {', '.join(stages)}"
    print("\n" + screen.prose(size))
    print(screen.prose("The GPU must be idle and without instances; its MIG mode is restored after each layout."))
