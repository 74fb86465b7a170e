"""Options that every command spells alike: the words of a scenario, `--json`, and how words become nouns."""

from collections.abc import Sequence
from dataclasses import dataclass, fields
from pathlib import Path
from typing import TYPE_CHECKING, Annotated, Any

from cyclopts import Group, Parameter, validators

import fleetlab
from fleetlab.commands.complete import traces, values_of
from fleetlab.core.words import WORDS

if TYPE_CHECKING:
    from fleetlab.core import Progress

POLICY = Group("Policy", sort_key=1)
SCENARIO = Group("Scenario", sort_key=2)

Json = Annotated[bool, Parameter(negative=(), show_default=False, help="Print one JSON object.")]
Seed = Annotated[
    int, Parameter(validator=validators.Number(gte=0, lt=2**63), help=WORDS["seed"].help, show_default=False)
]
TraceName = Annotated[str, Parameter(help=WORDS["trace"].help, completer=traces)]
Workers = Annotated[
    int | None, Parameter(help="Processes that simulate at once (default: one per core, at most 4; 0: none but this).")
]
ClusterFile = Annotated[Path | None, Parameter(help=WORDS["cluster"].help)]


def _option(word_name: str, /, **more: Any) -> Parameter:  # noqa: ANN401
    word = WORDS[word_name]
    group = POLICY if word.noun == "policy" else SCENARIO
    return Parameter(help=word.help, group=group, show_default=False, completer=values_of(word), **more)


@Parameter(name="*")
@dataclass(frozen=True)
class ScenarioOptions:
    """The words of a scenario beside its trace; what is not given has the default that its help names."""

    order: Annotated[str | None, _option("order")] = None
    scheduler: Annotated[str | None, _option("scheduler")] = None
    backfill: Annotated[str | None, _option("backfill")] = None
    placement: Annotated[str | None, _option("placement")] = None
    estimate: Annotated[str | None, _option("estimate")] = None
    sharing: Annotated[str | None, _option("sharing")] = None
    speed: Annotated[str | None, _option("speed")] = None
    speed_classes: Annotated[str | None, _option("speed_classes")] = None
    preemption: Annotated[bool | None, _option("preemption", name=("--preemption", "--preempt"), negative=())] = None
    quota: Annotated[str | None, _option("quota")] = None
    queues: Annotated[str | None, _option("queues")] = None
    recovery: Annotated[str | None, _option("recovery")] = None
    cycle: Annotated[str | None, _option("cycle")] = None
    weights: Annotated[str | None, _option("weights")] = None
    cluster: Annotated[str | None, _option("cluster")] = None
    nodes: Annotated[str | None, _option("nodes", allow_leading_hyphen=True)] = None
    load: Annotated[str | None, _option("load")] = None
    latency: Annotated[str | None, _option("latency")] = None
    events: Annotated[str | None, _option("events")] = None
    prices: Annotated[str | None, _option("prices")] = None
    seed: Annotated[str | None, _option("seed", allow_leading_hyphen=True)] = None
    until: Annotated[str | None, _option("until", allow_leading_hyphen=True)] = None
    window: Annotated[str | None, _option("window")] = None
    warm_up: Annotated[str | None, _option("warm_up")] = None
    censored: Annotated[str | None, _option("censored")] = None
    min_coverage: Annotated[str | None, _option("min_coverage")] = None

    def words(self) -> dict[str, Any]:
        """Return the words that were given."""
        return {f.name: value for f in fields(self) if (value := getattr(self, f.name)) is not None}


DEFAULTS = ScenarioOptions()


def scenario_of(trace: str, options: ScenarioOptions, progress: "Progress", **usual: str) -> "fleetlab.Scenario":
    """Build a scenario of what the command line says; `usual` are defaults of this command."""
    return fleetlab.Scenario.of(trace, **usual | options.words()).open(progress)


def trace_of(name: str, cluster: Path | None, progress: "Progress") -> "fleetlab.Trace":
    """Open a saved or built-in trace, with another cluster if a file is given."""
    from dataclasses import replace

    from fleetlab.core.data import open_trace

    trace = open_trace(name, progress)
    return trace if cluster is None else replace(trace, cluster=fleetlab.Cluster.from_toml(cluster))


def cluster_of(trace: "fleetlab.Trace", name: str, option: str = "--cluster") -> "fleetlab.Cluster":
    """Return the cluster of a trace, or say which option gives it one."""
    if trace.cluster is None:
        msg = f"the trace has no cluster: {name}"
        raise fleetlab.TraceError(msg, hint=f"{option} FILE.toml gives it one")
    return trace.cluster


def split(text: str) -> list[str]:
    """Split a list at its commas.

    >>> split("fifo, sjf,,")
    ['fifo', 'sjf']
    """
    return [part.strip() for part in text.split(",") if part.strip()]


def seeds_of(text: str) -> list[int]:
    """Read FIRST-LAST, or seeds separated by commas.

    >>> seeds_of("3-5"), seeds_of("1,9")
    ([3, 4, 5], [1, 9])
    """
    first, dash, last = text.partition("-")
    try:
        seeds = list(range(int(first), int(last) + 1)) if dash else [int(part) for part in text.split(",")]
    except ValueError:
        seeds = []
    if not 1 <= len(seeds) <= 10_000 or min(seeds) < 0:
        msg = f"--seeds is FIRST-LAST or a list separated by commas, not: `{text}`"
        raise fleetlab.WorkloadError(msg, hint="--seeds 42-51, or --seeds 1,2,3")
    return seeds


def with_trace_notes(result: Any, notes: Sequence[str]) -> Any:  # noqa: ANN401  any result with the field `notes`
    """Return a result with the notes of its trace after its own."""
    from dataclasses import replace

    return replace(result, notes=(*result.notes, *(f"trace: {note}" for note in notes)))
