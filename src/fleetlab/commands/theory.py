"""Commands that check: queueing theory, validation of the simulator, audit of a log, published results."""

import sys
from pathlib import Path
from typing import Annotated

from cyclopts import App, Parameter, validators

import fleetlab
from fleetlab.commands import screen
from fleetlab.commands.options import (
    DEFAULTS,
    ClusterFile,
    Json,
    ScenarioOptions,
    Seed,
    TraceName,
    cluster_of,
    examples,
    of_verb,
    say_saved,
    scenario_of,
    split,
    talk,
    trace_of,
    with_trace_notes,
)
from fleetlab.core.words import MIN_COVERAGE, WORDS

app = App()


@app.command(
    help_epilogue=examples(
        "fleetlab solve",
        "fleetlab solve M/M/c --lam 7.2 --mu 1 --c 8",
        "fleetlab solve 'M/G/1 SRPT' --lam 0.9 --service lognormal:1:10",
        "fleetlab solve 'MSJ RESET' --lam 2 --c 8 --n 1,2,4,8 --p 0.6,0.2,0.1,0.1 --mu 1,1,1,1",
    )
)
def solve(
    model: str | None = None,
    *,
    json: Json = False,
    **parameters: Annotated[str, Parameter(help="Parameters of the model: --lam, --mu, --c, --service and others.")],
) -> None:
    """Solve a queueing model; without a model, list them with their parameters and where they hold.

    Parameters
    ----------
    model
        A name from the list, such as M/M/c.
    """
    from fleetlab.queueing import models

    screen.show(models() if model is None else fleetlab.solve(model, **parameters), json=json)


@app.command(
    help_epilogue=examples("fleetlab model builtin:20000", "fleetlab model my-trace --cluster bigger.toml --json")
)
def model(
    trace: TraceName,
    *,
    seed: Seed = 0,
    cluster: ClusterFile = None,
    min_coverage: Annotated[float, Parameter(help=WORDS["min_coverage"].help, show_default=False)] = MIN_COVERAGE,
    json: Json = False,
) -> None:
    """Model a cluster by queueing theory: offered load, predicted waits, and which assumptions are violated."""
    with screen.progress("pools") as bar:
        opened = trace_of(trace, cluster, bar)
        nodes = cluster_of(opened, trace)
        result = fleetlab.model(opened.workload, nodes, min_coverage=min_coverage, seed=seed, progress=bar)
    screen.show(with_trace_notes(result, opened.notes), json=json, only=("model", "pools", "violated"))


@app.command(
    help_epilogue=examples(
        "fleetlab validate", "fleetlab validate --seed 1", "fleetlab validate --only schedules,means --json"
    )
)
@of_verb("studies/validate/validation.py")
def validate(*, only: str = "", seed: Seed = 0, json: Json = False) -> None:
    """Validate the simulator against exact theory and published results; audit its schedules.

    The exit status is 1 if a check that counts fails.

    Parameters
    ----------
    only
        Parts separated by commas: schedules, means, published, audit (default: all).
    """
    with screen.progress("done") as bar:
        result = fleetlab.validate(only=split(only), seed=seed, progress=bar)
    screen.show(result, json=json, most=1000)
    sys.exit(0 if result.passed else 1)


@app.command(
    help_epilogue=examples(
        "fleetlab audit my-trace", "fleetlab audit my-trace --cluster nodes.toml --backfill none --json"
    )
)
def audit(trace: TraceName, *, options: ScenarioOptions = DEFAULTS, json: Json = False) -> None:
    """Check that the recorded schedule is feasible on its cluster; compare simulated with recorded waits."""
    with screen.progress("checks") as bar:
        result = fleetlab.audit(scenario_of(trace, options, bar), progress=bar)
    screen.show(result, json=json, most=20, short=True)


COLUMNS = ("item", "what", "published", "ours", "on", "verdict", "why")
MEASURED, PUBLISHED = Path("measured"), Path("measurements/gpu-sharing.tar.gz")


@app.command(
    help_epilogue=examples(
        "fleetlab reproduce",
        "fleetlab reproduce nsdi22 --quick",
        "fleetlab reproduce fgd-atc23 --data traces --out fgd.html",
        "fleetlab reproduce dlrm2025 --data traces --json > dlrm2025.json",
        "fleetlab reproduce gpu-sharing --data measurements/gpu-sharing.tar.gz",
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
    from fleetlab.reproduce.result import paged

    if name is None:
        from fleetlab.reproduce.reproduce import studies

        screen.show(studies(), json=json)
        return
    screen.may_create(out)
    if measure is not None:
        data = _measured(name, data, measure)
    with screen.progress("done") as bar:
        result = fleetlab.reproduce(name, data=data, quick=quick, seed=seed, progress=bar)
    screen.show(result, json=json, most=1000, only=("published numbers",), columns=COLUMNS)
    if out is not None:
        say_saved(fleetlab.report(paged(result), out, title=result.title))
    sys.exit(0 if result.passed else 1)


def _measured(name: str, data: Path | None, minutes: float) -> Path:
    """Measure this machine's GPU, and return the folder of its cells."""
    from fleetlab.core.files import folder_at
    from fleetlab.gpu import AllOptions, BenchError, run_all

    if name != "gpu-sharing":
        msg = "--measure is for gpu-sharing only"
        raise fleetlab.WorkloadError(msg, hint="`fleetlab reproduce gpu-sharing --measure 30`")
    folder = data or MEASURED
    if (folder_at(folder) / "h200").is_dir():
        msg = f"--data has the published cells, and is not for new ones: {folder}"
        raise fleetlab.WorkloadError(msg, hint=f"`--data {MEASURED}`, or another new folder")
    try:
        run_all(AllOptions(out=folder, minutes=minutes), progress=talk)
    except BenchError as e:
        raise BenchError(str(e), hint=f"the cells of an H200 are in the repository: --data {PUBLISHED}") from None
    return folder
