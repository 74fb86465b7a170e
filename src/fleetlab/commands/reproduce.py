"""The command that reproduces published results."""

import sys
from pathlib import Path
from typing import Annotated

from cyclopts import App, Parameter, validators

import fleetlab
from fleetlab.commands.options import Json, Seed
from fleetlab.commands.words import examples, of_verb, say_saved, talk

desk = App()
COLUMNS = ("item", "what", "published", "ours", "on", "verdict", "why")
MEASURED, PUBLISHED = Path("measured"), Path("docs/measurements")


@desk.command(
    help_epilogue=examples(
        "fleetlab reproduce",
        "fleetlab reproduce nsdi22 --quick",
        "fleetlab reproduce fgd-atc23 --data traces --out fgd.html",
        "fleetlab reproduce dlrm2025 --data traces --json > dlrm2025.json",
        "fleetlab reproduce gpu-sharing --data docs/measurements",
        "fleetlab reproduce gpu-sharing --measure 30 --data measured",
    )
)
@of_verb("reproduce/reproduce.py")
def reproduce(
    name: str | None = None,
    *,
    data: Path | None = None,
    quick: Annotated[bool, Parameter(negative=())] = False,
    measure: Annotated[float | None, Parameter(validator=validators.Number(gt=0))] = None,
    seed: Seed = 0,
    out: Path | None = None,
    json: Json = False,
) -> None:
    """Reproduce a published study: every published number beside ours, with a verdict and the reason.

    Without a name, list the studies. A number is reproduced if ours, with its 95 % interval where it comes from random
    runs, lies inside the tolerance around the published one, different if it lies outside, and not decided if the
    interval reaches across. The exit status is 1 if a number is different and nothing explains it.

    Parameters
    ----------
    measure
        Of gpu-sharing: first measure this machine's GPU for so many minutes, into the folder of --data.
    out
        Write the page: one HTML file with the table and the figures.
    """
    from fleetlab._screen import progress, show
    from fleetlab.core.files import may_create
    from fleetlab.reproduce.result import paged

    if name is None:
        from fleetlab.reproduce.reproduce import studies

        show(studies(), json=json)
        return
    may_create(out)
    if measure is not None:
        data = _measured(name, data, measure)
    with progress("done") as bar:
        result = fleetlab.reproduce(name, data=data, quick=quick, seed=seed, progress=bar)
    show(result, json=json, most=1000, only=("published numbers",), columns=COLUMNS)
    if out is not None:
        say_saved(fleetlab.report(paged(result), out, title=result.title))
    sys.exit(0 if result.passed else 1)


def _measured(name: str, data: Path | None, minutes: float) -> Path:
    """Measure this machine's GPU, and return the folder of its cells."""
    from fleetlab.bench.all_modes.run import run_all
    from fleetlab.bench.options import AllOptions
    from fleetlab.devices.errors import BenchError

    if name != "gpu-sharing":
        msg = "--measure is for gpu-sharing only"
        raise fleetlab.WorkloadError(msg, hint="`fleetlab reproduce gpu-sharing --measure 30`")
    folder = data or MEASURED
    if (folder / "h200").is_dir():
        msg = f"--data has the published cells, and is not for new ones: {folder}"
        raise fleetlab.WorkloadError(msg, hint=f"`--data {MEASURED}`, or another new folder")
    try:
        run_all(AllOptions(out=folder, minutes=minutes), progress=talk)
    except BenchError as e:
        raise BenchError(str(e), hint=f"the cells of an H200 are in the repository: --data {PUBLISHED}") from None
    return folder
