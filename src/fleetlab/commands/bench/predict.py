"""Commands that predict from measurements: a speed profile for the simulator, and the mixes of a plan."""

from pathlib import Path
from typing import Annotated

from cyclopts import App, Parameter

import fleetlab
from fleetlab.commands.words import Json, Seed, examples, listed, talk

desk = App()


@desk.command(
    help_epilogue=examples(
        "fleetlab bench profile classes --classes --out mine.json",
        "fleetlab simulate builtin:2000 --sharing mps --speed mine.json",
        "fleetlab bench profile own classes --classes --keep mine --out mine.json",
        "fleetlab bench profile pairs-ts pairs-mps solo --check",
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
    check: Annotated[bool, Parameter(negative=())] = False,
    seed: Seed = 0,
    json: Json = False,
) -> None:
    """Make a speed profile for the simulator from measurements, or check the accuracy of its model.

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
    check
        Make no profile: predict each measurement from the others, and report the errors.
    seed
        Seed of the bootstrap intervals of --check.
    """
    from fleetlab._screen import show
    from fleetlab.bench import profile as room
    from fleetlab.core.files import may_create

    may_create(out)
    if check and (out or workloads or classes or keep):
        msg = "--check makes no profile: omit --out, --workloads, --classes and --keep"
        raise fleetlab.DeviceError(msg)
    if keep and not classes:
        msg = "--keep has no effect without --classes: every workload is a class of its own"
        raise fleetlab.DeviceError(msg)
    if check:
        talk("cross-validation over pairs and workloads: some seconds")
        show(room.check(folders, seed=seed), json=json, most=200)
        return
    named = tuple(listed(workloads))
    made = room.profile(folders, workloads=named, classes=classes, keep=tuple(listed(keep)))
    if out:
        talk(f"saved: {made.save(out)}")
    show(made, json=json)


@desk.command(
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
    from fleetlab._screen import show
    from fleetlab.bench.profile.predictions import predict_plan
    from fleetlab.bench.run import make_plan
    from fleetlab.core.files import may_create

    may_create(out)
    talk("fitting the model without each pair: some seconds")
    made = predict_plan(make_plan(plan), folders)
    if out:
        made.save(out)
        talk(f"saved: {out}")
    show(made, json=json, most=200)


@desk.command(help_epilogue=examples("fleetlab bench compare predictions.json heldout"))
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
    from fleetlab._screen import show
    from fleetlab.bench.profile.predictions import compare_predictions

    show(compare_predictions(predictions, folders, seed=seed), json=json, most=200)
