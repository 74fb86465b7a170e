"""`fleetlab bench mig …`: speeds on MIG instances, predicted, and compared with measured ones."""

from pathlib import Path

from cyclopts import App

from fleetlab.commands.words import Json, Seed, examples, version

desk = App()
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
desk.command(mig)


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
    from fleetlab._screen import show
    from fleetlab.bench.profile import predict_slices

    show(predict_slices(folders, model=model), json=json)


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
    from fleetlab._screen import show
    from fleetlab.bench.profile import check_slices

    show(check_slices(folders, curves=tuple(curves or ())), json=json, most=200)


@mig.command(help_epilogue=examples("fleetlab bench mig plan", "fleetlab bench mig plan --model H200"))
def plan(*, model: str | None = None) -> None:
    """Print the command that measures every MIG profile of a GPU and compares it with the predictions; changes nothing.

    Parameters
    ----------
    model
        A GPU model such as A30, A100-40 or H200 (default: the GPU of this machine; without one, an A100-40).
    """
    from fleetlab._screen import prose
    from fleetlab.bench.mig_plan import WITHOUT_GPU, has_gpu, mig_plan
    from fleetlab.bench.profile.mig_check import MEASURE
    from fleetlab.bench.workers.pool import LEAD

    made = mig_plan(model=model)
    stages = [stage[0].mode for stage in made.stages()]
    minutes = len(made.cells) * (LEAD + made.settle + made.window + 0.3) / 60 + 0.75 * len(stages)
    print(MEASURE)
    if model is None and not has_gpu():
        print("\n" + prose(f"There is no GPU here: the layouts below are those of an {WITHOUT_GPU}."))
    size = f"{len(made.cells)} cells in {len(stages)} stages, about {minutes:.0f} minutes: {', '.join(stages)}"
    print("\n" + prose(size))
    print(prose("The GPU must be idle and without instances; its MIG mode is restored after each layout."))


@mig.command(help_epilogue=examples("fleetlab bench mig published ../shared/data/colocation"))
def published(folder: Path, /, *, seed: Seed = 0, json: Json = False) -> None:
    """Held-out errors of predicted speeds on published A100 tables, by table, formula and profile.

    Parameters
    ----------
    folder
        Folder with the tables of MISO (miso_mig_speed.csv), ParvaGPU and MIGProfiler.
    seed
        Seed of the bootstrap intervals.
    """
    from fleetlab._screen import show
    from fleetlab.bench.profile import check_published

    show(check_published(folder, seed=seed), json=json, most=200)
