"""The words of a scenario: one table, from which options, study files, addresses, help and checks derive.

A word has the same name, default and help everywhere. `read` takes what a person or a file gives (text, numbers,
tables, or the objects themselves) and returns the checked value; `plain` turns that into what JSON and TOML can hold.
"""

from __future__ import annotations

from collections.abc import Callable, Iterable, Mapping, Sequence
from dataclasses import dataclass
from pathlib import Path
from typing import TYPE_CHECKING, Any, Literal, TypedDict

from fleetlab.core import nodes
from fleetlab.core import word_values as values
from fleetlab.core.catalog import BACKFILLS, ESTIMATES, ORDERS, PLACEMENTS, SHARINGS, SPEEDS, Catalog
from fleetlab.core.errors import PolicyError, WorkloadError
from fleetlab.core.events import Event, Recovery
from fleetlab.core.names import clip, lookup
from fleetlab.core.prices import Prices
from fleetlab.core.schedulers import Scheduler
from fleetlab.core.word_spellings import Opaque, as_options, exact, fingerprint, plain, policy_code, text
from fleetlab.core.word_values import CLASS_COLUMNS, EVENT, OTHER_JOBS, SITE, WARM_UPS

if TYPE_CHECKING:
    import polars as pl

    from fleetlab.core.speed import Speed

__all__ = [
    "BOOSTED", "BUILTIN", "CENSORED", "CLASS_COLUMNS", "EVENT", "LOADS", "MIN_COVERAGE", "OTHER_JOBS", "POLICY",
    "SHIPPED", "SHORTHAND", "SITE", "SYNTHETIC", "WARM_UPS", "WORDS", "Opaque", "Rank", "Word", "Words", "as_options",
    "check", "exact", "fingerprint", "plain", "policy_code", "shorthand", "text",
]  # fmt: skip
Rank = Callable[..., float]
LOADS = (0.001, 1000.0)
BOOSTED = "boosted"  # an estimate by trees over what the log had seen
BUILTIN = "builtin"
SYNTHETIC = (BUILTIN, "pai")  # names of the synthetic trace
SHIPPED = ("sample", *SYNTHETIC)  # traces that come with the package, before a colon
MIN_COVERAGE = 0.5  # of the GPU-hours: an answer about less is not one about the log
CENSORED = {
    "hold": "those still running at the end of the log run until then; others as long as jobs like them",
    "impute": "all run as long as jobs like them that ran at least as long, by a Kaplan-Meier estimate",
    "drop": "left out",
}


class Words(TypedDict, total=False):
    """The keyword arguments that build a scenario from a trace and a cluster, the same for every verb."""

    nodes: str
    load: float
    latency: float | str | Mapping[str, float | Sequence[float]]
    order: str | Rank
    scheduler: Scheduler | Mapping[str, Any] | str | Path | None
    backfill: str
    placement: str | Rank
    estimate: str | Sequence[float] | pl.Series
    sharing: str
    speed: Speed | str | Path | None
    speed_classes: str | Mapping[str, str] | None
    preemption: bool
    quota: float | Mapping[str, float] | None
    recovery: Recovery | Mapping[str, float] | None
    events: Sequence[Event] | str | Path
    cycle: float | str
    weights: Sequence[float]
    prices: Prices | Mapping[str, Any] | str | Path | None
    seed: int
    until: float | str | None
    window: str | Sequence[float]
    warm_up: str
    censored: str
    min_coverage: float


@dataclass(frozen=True, slots=True)
class Word:
    """One word: where it belongs, its default, its help, and how it is read."""

    name: str
    noun: Literal["data", "policy", "scenario"]
    default: Any
    help: str
    read: Callable[[Any], Any]
    menu: Catalog[Any] | None = None  # the built-in values, where it has a catalog
    local: bool = False  # its text may name a file: refused where the text comes from another machine


def _listed(meanings: Mapping[str, str]) -> str:
    return "; ".join(f"{name} ({meaning})" for name, meaning in meanings.items())


def _choices(what: str, catalog: Catalog[Any], default: str, also: str = "") -> str:
    return f"{what}: {catalog.help()}{also} (default: {default})."


WORDS: dict[str, Word] = {
    word.name: word
    for word in (
        Word("trace", "data", None,
             "A log, or the folder of a saved trace; sample, a recorded run of a real Slurm; or pai, the busiest part "
             "of a synthetic one (pai:JOBS and pai:JOBS:SEED: all of it).",
             values.as_is, local=True),
        Word("cluster", "data", None,
             "A TOML file of [[node]] entries (default: the cluster of the trace).", values.read_cluster, local=True),
        Word("nodes", "scenario", "",
             f"Nodes to add or remove, by pool or GPU type: {nodes.HINT} (default: none).", values.read_nodes),
        Word("load", "scenario", 1.0,
             "Arrival rate relative to the trace: 1.2 submits the same jobs in 1/1.2 of the time (default: 1).",
             values.number("load", *LOADS, "load=1.2 raises the arrival rate by 20 %")),
        Word("latency", "scenario", 0.0,
             "Start-up latency, in which a job holds its GPUs and still waits: seconds, or by GPU type or size of the "
             "job, such as 1 GPU=5/6/9,gang=60,other=20, of which several are equally likely (default: 0).",
             values.read_latency),
        Word("order", "policy", "fifo",
             _choices("Queue order", ORDERS, "fifo", "; or MODULE:NAME of your own"), values.ranking(ORDERS), ORDERS),
        Word("scheduler", "policy", None,
             "A scheduler with rules of its own in place of an order and a backfill: site (as the trace's cluster is "
             "configured), kubernetes, volcano or kai (their defaults), a slurm.conf, a KubeSchedulerConfiguration, "
             "ClusterQueues of Kueue, or Queues of Volcano or KAI in a file; MODULE:NAME of your own "
             "(docs/own-scheduler.md); event: by the words of the policy, whenever a job comes or ends (default: site "
             "where the trace tells it and no other word of a policy is given, else event).",
             values.read_scheduler, local=True),
        Word("backfill", "policy", "greedy",
             _choices("When the first job does not fit", BACKFILLS, "greedy"), values.choice(BACKFILLS), BACKFILLS),
        Word("placement", "policy", "best_fit",
             _choices("Node that an instance is placed on", PLACEMENTS, "best_fit", "; or MODULE:NAME of your own"),
             values.ranking(PLACEMENTS), PLACEMENTS),
        Word("estimate", "policy", "oracle",
             _choices("Runtime estimate", ESTIMATES, "oracle",
                      "; boosted: trees over user, group, request and hour, of jobs that had ended in the log (extra "
                      "forecast); or a series of the trace, such as requested (walltime limits) or a column that was "
                      "read with --map estimate=COLUMN"), values.read_estimate, ESTIMATES),
        Word("sharing", "policy", "fractional",
             _choices("Sharing of GPUs by fractional requests", SHARINGS, "fractional"),
             values.choice(SHARINGS), SHARINGS),
        Word("speed", "policy", None,
             _choices(f"Slowdown of jobs on one GPU, for sharing {', '.join(SHARINGS.where('needs_speed'))}", SPEEDS,
                      SPEEDS.names[0], "; or a JSON file"), values.read_speed, SPEEDS, local=True),
        Word("speed_classes", "policy", None,
             "Class of the speed profile that jobs are of, by app, user, group or queue: app:bert=mine,other=heavy; "
             "the first that applies (default: light, medium or heavy, by their request).", values.read_speed_classes),
        Word("preemption", "policy", False,  # noqa: FBT003
             "Preempt running jobs for jobs ahead of them in the queue order (default: off).", values.read_flag),
        Word("quota", "policy", None,
             "GPU limit per user: 16, or ada=16,bob=8; of a queue, group or app: queue:vision=32 (default: no limit). "
             "Quotas that queues lend and take back are those of a scheduler: Kueue, Volcano or KAI.",
             values.read_quota),
        Word("recovery", "policy", None,
             "Checkpoints: every=600,save=10,restart=30, in seconds; every=0: only at a preemption (default: none: "
             "failed jobs start over, preempted ones resume at no cost).",
             values.read_recovery),
        Word("cycle", "policy", 0.0,
             "Time between two looks of the scheduler at the queue: seconds, or such as 30s or 5m (default: 0, it "
             "looks whenever a job is submitted or ends).", values.read_cycle),
        Word("events", "scenario", (),
             "A TOML file of node events: [[faults]], [[outage]], [[drain]], [[spot]], [[elastic]], and [recovery] "
             "(default: none).", values.read_events, local=True),
        Word("weights", "policy", (),
             "Numbers for a policy of your own, which reads them as s.weights: 1,0.5 (default: none).",
             values.read_weights),
        Word("prices", "scenario", None,
             "A TOML file of prices and powers: per_gpu_hour, per_kwh, pue, … (default: 1 per GPU-hour).",
             values.read_prices, local=True),
        Word("seed", "scenario", 0, "Random seed (default: 0).", values.read_seed),
        Word("until", "scenario", None,
             "Stop the simulation at this time: seconds, or such as 12h or 7d (default: after all jobs).",
             values.read_until),
        Word("window", "scenario", "",
             "Measure only the jobs submitted from BEGIN to END of the trace, such as 2d..5d; those before fill the "
             "cluster (default: all jobs).", values.read_window),
        Word("warm_up", "scenario", "auto",
             f"What runs before the jobs that are measured: {_listed(WARM_UPS)} (default: auto).",
             values.read_warm_up),
        Word("censored", "scenario", "hold",
             f"Jobs of unknown runtime: {_listed(CENSORED)} (default: hold).",
             values.one_of("rule for censored jobs", CENSORED)),
        Word("min_coverage", "scenario", MIN_COVERAGE,
             "Refuse to answer where less than this share of the GPU-hours in the log can be simulated; 0 answers "
             f"all the same (default: {MIN_COVERAGE:g}).",
             values.number("min_coverage", 0.0, 1.0, "min_coverage=0 answers all the same")),
    )
}  # fmt: skip
POLICY = tuple(name for name, word in WORDS.items() if word.noun == "policy")
SHORTHAND = ("order", "backfill", "placement", "estimate", "sharing")


def check(names: Iterable[str], choices: Iterable[str] = WORDS) -> None:
    """Refuse an unknown word with the closest known one, and a list of all."""
    for name in names:
        lookup("word", name, choices, error=WorkloadError)


def shorthand(text: str) -> dict[str, str]:
    """Read ORDER/BACKFILL/PLACEMENT/ESTIMATE/SHARING, of which the last may be left out; WORD=VALUE for other words.

    >>> shorthand("sjf/easy"), shorthand("las/preemption=true")
    ({'order': 'sjf', 'backfill': 'easy'}, {'order': 'las', 'preemption': 'true'})
    >>> shorthand("scheduler=./site/packing.yaml/load=1.2")
    {'scheduler': './site/packing.yaml', 'load': '1.2'}
    """
    words: dict[str, str] = {}
    for k, part in enumerate(_parts(text)):
        name, equals, value = part.partition("=")
        if not equals and k < len(SHORTHAND):
            name, value = SHORTHAND[k], part
        if not value or name in words or (not equals and k != len(words)):
            msg = f"not a policy: `{clip(text)}`"
            raise PolicyError(msg, hint=f"{'/'.join(SHORTHAND).upper()}, such as sjf/easy/estimate=group")
        check([name])
        words[name] = value
    return words


def _parts(text: str) -> list[str]:
    """What slashes part; the path of a scheduler's file keeps its own, as no order or backfill stands beside it."""
    parts: list[str] = []
    for part in text.split("/"):
        begins_word = part.partition("=")[0] in WORDS and "=" in part
        if parts and parts[-1].startswith("scheduler=") and not begins_word:
            parts[-1] += f"/{part}"
        else:
            parts.append(part)
    return parts
