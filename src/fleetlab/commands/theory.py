"""Commands that check: queueing theory, validation of the simulator, audit of a log."""

import sys
from pathlib import Path
from typing import Annotated

from cyclopts import App, Parameter

import fleetlab
from fleetlab.commands.options import (
    DEFAULTS,
    ClusterFile,
    Json,
    ScenarioOptions,
    Seed,
    TraceName,
    cluster_of,
    scenario_of,
    split,
    trace_of,
    with_trace_notes,
)
from fleetlab.commands.words import examples, of_verb
from fleetlab.core.words import MIN_COVERAGE, WORDS

desk = App()


@desk.command(
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
    from fleetlab._screen import show
    from fleetlab.queueing import models

    show(models() if model is None else fleetlab.solve(model, **parameters), json=json)


@desk.command(
    help_epilogue=examples(
        "fleetlab model builtin:20000",
        "fleetlab model my-trace --cluster bigger.toml --json",
    )
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
    from fleetlab._screen import progress, show

    with progress("pools") as bar:
        opened = trace_of(trace, cluster, bar)
        nodes = cluster_of(opened, trace)
        result = fleetlab.model(opened.workload, nodes, min_coverage=min_coverage, seed=seed, progress=bar)
    show(with_trace_notes(result, opened.notes), json=json, only=("model", "pools", "violated"))


@desk.command(
    help_epilogue=examples(
        "fleetlab validate",
        "fleetlab validate --data traces --seed 1",
        "fleetlab validate --only schedules,means --json",
    )
)
@of_verb("studies/validate/validation.py")
def validate(*, data: Path | None = None, only: str = "", seed: Seed = 0, json: Json = False) -> None:
    """Validate the simulator against exact theory, published results and real logs.

    The exit status is 1 if a check that counts fails.

    Parameters
    ----------
    only
        Parts separated by commas: schedules, means, approximations, published, real, audit (default: all).
    """
    from fleetlab._screen import progress, show

    with progress("done") as bar:
        result = fleetlab.validate(data=data, only=split(only), seed=seed, progress=bar)
    show(result, json=json, most=1000)
    sys.exit(0 if result.passed else 1)


@desk.command(
    help_epilogue=examples(
        "fleetlab audit my-trace",
        "fleetlab audit my-trace --cluster nodes.toml --backfill none --json",
    )
)
def audit(trace: TraceName, *, options: ScenarioOptions = DEFAULTS, json: Json = False) -> None:
    """Check that the recorded schedule is feasible on its cluster; compare simulated with recorded waits."""
    from fleetlab._screen import progress, show

    with progress("checks") as bar:
        result = fleetlab.audit(scenario_of(trace, options, bar), progress=bar)
    show(result, json=json, most=20)
