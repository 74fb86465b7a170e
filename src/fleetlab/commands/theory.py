"""What queueing theory says, and whether the simulator may be trusted."""

import sys
from dataclasses import asdict
from pathlib import Path
from typing import Annotated

from cyclopts import App, Parameter

import fleetlab
from fleetlab.commands.rules import TURNS, Turns
from fleetlab.commands.words import (
    ClusterFile,
    Json,
    Seed,
    TraceWords,
    cluster_of,
    examples,
    listed,
    trace_of,
    with_notes,
)

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
    **parameters: Annotated[str, Parameter(help="As the theory names them: --lam, --mu, --c, --service and others.")],
) -> None:
    """What does queueing theory say? Without a model, lists them: what each takes, and where it holds.

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
def model(trace: TraceWords, *, seed: Seed = 0, cluster: ClusterFile = None, json: Json = False) -> None:
    """What does queueing theory say of a cluster? Loads, predicted waits, and which assumptions do not hold.

    Parameters
    ----------
    seed
        Of the lot by which jobs that may run on several GPU types are split, and of the draws behind intervals.
    """
    from fleetlab._screen import progress, show

    with progress("pools") as bar:
        opened = trace_of(trace, cluster, bar)
        found = fleetlab.model(opened.workload, cluster_of(opened, trace), seed=seed, progress=bar)
    show(with_notes(found, opened), json=json, only=("model", "pools", "violated"))


@desk.command(
    help_epilogue=examples(
        "fleetlab validate",
        "fleetlab validate --data traces --seed 1",
        "fleetlab validate --only schedules,means --json",
    )
)
def validate(*, data: Path | None = None, only: str = "", seed: Seed = 0, json: Json = False) -> None:
    """Can the simulator be trusted? Beside exact theory, published results and real logs, with intervals and verdicts.

    The exit status is 1 where something that counts speaks against it.

    Parameters
    ----------
    data
        A folder of real traces, as docs/validate.md lists them; without it, what needs them is left out, and said.
    only
        Parts, with commas between: schedules, means, approximations, published, real, audit.
    seed
        Another seed draws other jobs everywhere.
    """
    from fleetlab._screen import progress, show

    with progress("done") as bar:
        parts = listed(only)
        found = fleetlab.validate(data=data, only=parts, seed=seed, progress=bar)
    show(found, json=json, most=1000)
    sys.exit(0 if found.passed else 1)


@desk.command(
    help_epilogue=examples(
        "fleetlab audit my-trace",
        "fleetlab audit my-trace --cluster nodes.toml --backfill none --json",
    )
)
def audit(
    trace: TraceWords,
    *,
    rules: Turns = TURNS,
    cluster: ClusterFile = None,
    json: Json = False,
) -> None:
    """Is the schedule of a log feasible on its cluster, and how far are simulated waits from recorded ones?

    Parameters
    ----------
    rules.order
        The rules by which waits are simulated, as `fleetlab simulate` takes them; so are the next two.
    """
    from fleetlab._screen import progress, show

    with progress("checks") as bar:
        opened = trace_of(trace, cluster, bar)
        found = fleetlab.audit(opened, **asdict(rules), progress=bar)
    show(found, json=json, most=20)
