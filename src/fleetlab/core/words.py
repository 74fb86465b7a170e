"""The words of a scenario: one table, from which options, study files, addresses, help and checks derive.

A word has the same name, default and help everywhere. `read` takes what a person or a file gives (text, numbers,
tables, or the objects themselves) and returns the checked value; `plain` turns that into what JSON and TOML can hold.
"""

from __future__ import annotations

import ast
import json
import math
import re
import sys
from collections.abc import Callable, Iterable, Mapping, Sequence
from contextlib import suppress
from dataclasses import asdict, dataclass
from importlib import import_module
from pathlib import Path
from types import FunctionType
from typing import TYPE_CHECKING, Any, Literal, TypedDict

from fleetlab.core import events, nodes
from fleetlab.core.catalog import BACKFILLS, ESTIMATES, ORDERS, PLACEMENTS, QUEUE_RULES, SHARINGS, SPEEDS, Catalog
from fleetlab.core.durations import HINT as DURATIONS
from fleetlab.core.durations import in_seconds
from fleetlab.core.errors import FleetlabError, PolicyError, WorkloadError
from fleetlab.core.events import Event, Recovery
from fleetlab.core.names import clip, lookup
from fleetlab.core.prices import Prices
from fleetlab.core.queue_rules import Queues
from fleetlab.core.queues import QueueTree
from fleetlab.core.schedulers import NAMED, Scheduler, scheduler_of, scheduler_values

if TYPE_CHECKING:
    import polars as pl

    from fleetlab.core.speed import Speed

Rank = Callable[..., float]
LOADS = (0.001, 1000.0)
BOOSTED = "boosted"  # an estimate by trees over what the log had seen
BUILTIN = "builtin"  # the name of the synthetic trace
SITE, EVENT = "site", "event"  # the scheduler of the trace; the rules of the policy, at every event
OTHER_JOBS = "other"  # the class of a latency for jobs of no other class
MIN_COVERAGE = 0.5  # of the GPU-hours: an answer about less is not one about the log
WARM_UPS = {
    "auto": "of a window the jobs before it, of a synthetic trace the trace itself once before, of a log what it says "
    "was there when it began",
    "repeat": "the same jobs once before",
    "none": "nothing but what a log says was there when it began",
    "2d": "of a window the jobs of two days before it, or of another time, and what still runs then",
}
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
    queues: Queues | QueueTree | Mapping[str, Any] | str | Path | None
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


# -- how values are read ---------------------------------------------------------------------------------------------


def _choice(catalog: Catalog[Any]) -> Callable[[Any], str]:
    return lambda value: lookup(catalog.kind, value, catalog.names)


def _ranking(catalog: Catalog[Any]) -> Callable[[Any], Any]:
    """Read a built-in name, MODULE:NAME, or a function or decorated policy."""
    kind = catalog.kind
    hint = f"choose from {', '.join(catalog.names)}; or MODULE:NAME of your own, made with `@{kind}`"

    def read(value: Any) -> Any:  # noqa: ANN401
        if not isinstance(value, str):
            if not callable(value):
                msg = f"not {'an' if kind[0] in 'aeiou' else 'a'} {kind}: {value!r}"
                raise PolicyError(msg, hint=hint)
            return _spelling(value) if _spelling(value) in catalog else value
        if ":" not in value:
            return lookup(kind, value, catalog.names, hint=hint)
        module, _, name = value.partition(":")
        if not module.replace(".", "_").isidentifier() or not name.isidentifier() or module.endswith(".py"):
            msg = f"a policy of your own is named MODULE:NAME, not: `{clip(value)}`"
            own = f"{Path(module).stem or 'my_module'}:{name or 'mine'}"
            raise PolicyError(msg, hint=f"as you would import it, without `.py` and from the current folder: `{own}`")
        return value

    return read


def _estimate(value: Any) -> Any:  # noqa: ANN401
    """Read a name (built in, or a series of the trace), or one number of seconds per job."""
    if isinstance(value, str) and value:
        return value
    import polars as pl

    try:
        column = pl.Series("estimate", value, dtype=pl.Float64, strict=False)
    except (TypeError, ValueError, pl.exceptions.PolarsError):
        msg = f"not an estimate: {clip(repr(value))}"
        hint = f"choose from {', '.join(ESTIMATES.names)}, or one number of seconds per job"
        raise PolicyError(msg, hint=hint) from None
    if (bad := column.is_nan() | column.is_infinite() | (column < 0)).any():
        msg = f"an estimate is a number of seconds, not below 0: {column.filter(bad)[0]}"
        raise PolicyError(msg, hint="null where nothing is known of a job: its true runtime is used")
    return column


def _number(name: str, low: float, high: float, hint: str) -> Callable[[Any], float]:
    def read(value: Any) -> float:  # noqa: ANN401
        try:
            number = math.nan if isinstance(value, bool) else float(value)
        except (TypeError, ValueError):
            number = math.nan
        if not low <= number <= high:
            msg = f"{name} is a number from {low:g} to {high:g}, not: {clip(repr(value))}"
            raise WorkloadError(msg, hint=hint)
        return number

    return read


def _seed(value: Any) -> int:  # noqa: ANN401
    text = str(value)
    if isinstance(value, bool) or not (text.isascii() and text.isdigit() and len(text) < 20 and int(text) < 2**63):
        msg = f"a seed is a whole number from 0 up, not: {clip(repr(value))}"
        raise WorkloadError(msg, hint="seed=1")
    return int(text)


def _until(value: Any) -> float | None:  # noqa: ANN401
    if value is None or value == "":
        return None
    seconds = _time(value)
    if not math.isfinite(seconds):
        msg = f"`until` is a time from 0 s up, not: {clip(repr(value))}"
        raise WorkloadError(msg, hint=DURATIONS)
    return seconds


def _cycle(value: Any) -> float:  # noqa: ANN401
    seconds = _time(value)
    if not 0 <= seconds < 1e9:
        msg = f"`cycle` is a time from 0 s up, not: {clip(repr(value))}"
        raise PolicyError(msg, hint=DURATIONS)
    return seconds


def _window(value: Any) -> str:  # noqa: ANN401
    if value is None or value == "":
        return ""
    parts = value.split("..") if isinstance(value, str) else list(value) if isinstance(value, Sequence) else []
    ends = [math.inf if k and part in ("", math.inf) else _time(part) for k, part in enumerate(parts)]
    if len(ends) != 2 or not 0 <= ends[0] < ends[1]:
        msg = f"a window is BEGIN..END, times from the first submission on, not: {clip(repr(value))}"
        raise WorkloadError(msg, hint="window=2d..5d, or window=2d.. for all from then on")
    return "..".join("" if end == math.inf else text(end) for end in ends)


def _time(value: Any) -> float:  # noqa: ANN401
    return math.nan if isinstance(value, bool) or not isinstance(value, str | int | float) else in_seconds(value)


def _warm_up(value: Any) -> str:  # noqa: ANN401
    """Read one of the words, or a time before a window."""
    seconds = _time(value)
    return f"{text(seconds)}s" if seconds > 0 else _one_of("warm-up", WARM_UPS)(value)


def _one_of(name: str, values: Mapping[str, str]) -> Callable[[Any], str]:
    def read(value: Any) -> str:  # noqa: ANN401
        hint = "; ".join(f"{word}: {meaning}" for word, meaning in values.items())
        return lookup(name, value, tuple(values), error=WorkloadError, hint=hint)

    return read


def _flag(value: Any) -> bool:  # noqa: ANN401
    if isinstance(value, bool):
        return value
    if value not in ("true", "false"):
        msg = f"preemption is true or false, not: {clip(repr(value))}"
        raise PolicyError(msg)
    return bool(value == "true")


def _nodes(value: Any) -> str:  # noqa: ANN401
    if not isinstance(value, str):
        msg = f"not an edit of nodes: {clip(repr(value))}"
        raise WorkloadError(msg, hint=nodes.HINT)
    return ", ".join(map(str, nodes.parse(value)))


def _table(value: Any, what: str) -> Any:  # noqa: ANN401
    """Read text that holds a table: JSON, or NAME=NUMBER separated by commas."""
    if not isinstance(value, str):
        return value
    try:
        if value.lstrip().startswith(("{", "[")):
            return json.loads(value)
        return {name.strip(): float(number) for part in value.split(",") for name, number in [part.split("=")]}
    except (ValueError, RecursionError):
        msg = f"not {what}: `{clip(value)}`"
        raise WorkloadError(msg, hint="NAME=NUMBER separated by commas, or JSON") from None


def _quota(value: Any) -> float | dict[str, float] | None:  # noqa: ANN401
    if value is None or value == "":
        return None
    read = _number("a quota", 0, 1e12, "quota=16 for every user, or quota={'ada': 16, 'bob': 8}")
    if isinstance(value, str) and "=" not in value and not value.lstrip().startswith("{"):
        return read(value)
    table = _table(value, "a quota")
    return {str(user): read(gpus) for user, gpus in table.items()} if isinstance(table, Mapping) else read(table)


def _latency(value: Any) -> float | dict[str, list[float]]:  # noqa: ANN401
    """Read seconds, or for classes of jobs seconds or several values that are equally likely: 30, or 1 GPU=5/6/9."""
    read = _number("a latency", 0, 1e9, "latency=30, or latency={'1 GPU': 20, 'gang': [60, 90, 200]}, in seconds")
    if isinstance(value, str):
        if value.lstrip().startswith(("{", "[")):
            value = _table(value, "a latency")
        elif "=" in value:
            value = {name: seconds for name, _, seconds in (part.partition("=") for part in value.split(","))}
        else:
            value = value.split("/")
    table = value if isinstance(value, Mapping) else {OTHER_JOBS: value}
    law = {str(name).strip(): [read(v) for v in _several(values)] for name, values in table.items()}
    if all(not any(values) for values in law.values()):
        return 0.0
    only = law.get(OTHER_JOBS, ())
    return only[0] if len(law) == len(only) == 1 else law


def _several(values: Any) -> Sequence[Any]:  # noqa: ANN401
    if isinstance(values, str):
        return values.split("/")
    return values if isinstance(values, list | tuple) and values else [values]


def _recovery(value: Any) -> Recovery | None:  # noqa: ANN401
    if value is None or value == "" or isinstance(value, Recovery):
        return value or None
    found: Recovery = events.from_values(Recovery, _table(value, "a recovery"), "recovery")
    return found


def _events(value: Any) -> tuple[Event, ...]:  # noqa: ANN401
    if not value:
        return ()
    if isinstance(value, Path) or (isinstance(value, str) and not value.lstrip().startswith("[")):
        return events.from_toml(value)[0]
    entries = _table(value, "a list of events")
    return events.from_list(entries if isinstance(entries, Sequence) else [entries])


def _weights(value: Any) -> tuple[float, ...]:  # noqa: ANN401
    parts = value.strip("[] ").split(",") if isinstance(value, str) else value
    try:
        weights = tuple(float(part) for part in parts if not isinstance(part, str) or part.strip())
    except (TypeError, ValueError):
        weights = (math.nan,)
    if not all(map(math.isfinite, weights)):
        msg = f"weights are finite numbers, one after the other: {clip(str(value))}"
        raise PolicyError(msg, hint="weights=(1.0, 0.5), which a policy reads as s.weights[0] and s.weights[1]")
    return weights


def _prices(value: Any) -> Prices | None:  # noqa: ANN401
    if value is None or value == "" or isinstance(value, Prices):
        return value or None
    if isinstance(value, Path) or (isinstance(value, str) and not value.lstrip().startswith("{")):
        return Prices.from_toml(value)
    table = _table(value, "prices")
    if not isinstance(table, Mapping):
        msg = f"not prices: {clip(repr(value))}"
        raise WorkloadError(msg, hint="a table of the fields of `Prices`")
    return Prices.of(table)


def _scheduler(value: Any) -> Scheduler | str | None:  # noqa: ANN401
    """Read `site`, `event`, the name of a scheduler, a file, a table, or a configuration."""
    if value is None or value == "":
        return None
    if isinstance(value, Scheduler) or value in (SITE, EVENT):
        return value  # type: ignore[no-any-return]
    if value in NAMED:
        return scheduler_of({"kind": value})
    if isinstance(value, Mapping) or (isinstance(value, str) and value.lstrip().startswith("{")):
        return scheduler_of(_table(value, "a configuration of a scheduler"))
    # The readers are in another room, which this one may not import: they are called by name.
    found: Scheduler = import_module("fleetlab.traces.schedulers").read_scheduler(Path(value))
    return found


def _queues(value: Any) -> Queues | str | None:  # noqa: ANN401
    """Read the name of rules, `site`, a file, a table, a tree, or queues."""
    if value is None or value == "":
        return None
    if isinstance(value, str) and (value == SITE or value in QUEUE_RULES):
        return value
    if isinstance(value, str) and value.lstrip().startswith(("{", "[")):
        value = _table(value, "queues")
    elif isinstance(value, str) and "." not in value and "/" not in value:
        hint = f"choose from {SITE}, {', '.join(QUEUE_RULES.names)}; or a TOML or JSON file"
        lookup(QUEUE_RULES.kind, value, QUEUE_RULES.names, hint=hint)
    return Queues.of(value)


def _speed(value: Any) -> Any:  # noqa: ANN401
    """Read the name of a shipped profile, a file, or a profile."""
    if value is None or value == "":
        return None
    return str(value) if isinstance(value, str | Path) else value


CLASS_COLUMNS = ("app", "user", "group", "queue")  # columns of jobs that name a class of a speed profile


def _speed_classes(value: Any) -> dict[str, str] | None:  # noqa: ANN401
    """Read which class of a speed profile jobs are of: app:bert=mine,user:ada=mine,other=heavy."""
    if value is None or value == "" or value == {}:
        return None
    if isinstance(value, str) and not value.lstrip().startswith("{"):
        value = {name: of for name, _, of in (part.partition("=") for part in value.split(","))}
    table = _table(value, "classes of a speed profile") if isinstance(value, str) else value
    hint = f"speed_classes='app:bert=mine,other=heavy'; columns are {', '.join(CLASS_COLUMNS)}"
    if not isinstance(table, Mapping):
        msg = f"not classes of a speed profile: {clip(repr(value))}"
        raise PolicyError(msg, hint=hint)
    rules = {str(name).strip(): str(of).strip() for name, of in table.items()}
    for name, of in rules.items():
        column, colon, which = name.partition(":")
        if not of or (name != OTHER_JOBS and not (colon and which and column in CLASS_COLUMNS)):
            msg = f"not a class of a speed profile: `{clip(name)}={clip(of)}`"
            raise PolicyError(msg, hint=hint)
    return rules


def _as_is(value: Any) -> Any:  # noqa: ANN401
    return str(value) if isinstance(value, Path) else value


def _cluster(value: Any) -> Any:  # noqa: ANN401
    if value is None or isinstance(value, str | Path):
        return _as_is(value)
    from fleetlab.core.cluster import Cluster

    if not isinstance(value, Cluster):
        msg = f"not a cluster: {clip(repr(value))}"
        raise WorkloadError(msg, hint="a Cluster, or a TOML file of [[node]] entries; nodes='+5' adds nodes")
    return value


# -- the table -------------------------------------------------------------------------------------------------------


def _listed(values: Mapping[str, str]) -> str:
    return "; ".join(f"{name} ({meaning})" for name, meaning in values.items())


def _choices(what: str, catalog: Catalog[Any], default: str, also: str = "") -> str:
    return f"{what}: {catalog.help()}{also} (default: {default})."


WORDS: dict[str, Word] = {
    word.name: word
    for word in (
        Word("trace", "data", None,
             "The folder of a saved trace, or the built-in synthetic one: builtin, builtin:JOBS, builtin:JOBS:SEED.",
             _as_is, local=True),
        Word("cluster", "data", None,
             "A TOML file of [[node]] entries (default: the cluster of the trace).", _cluster, local=True),
        Word("nodes", "scenario", "",
             f"Nodes to add or remove, by pool or GPU type: {nodes.HINT} (default: none).", _nodes),
        Word("load", "scenario", 1.0,
             "Arrival rate relative to the trace: 1.2 submits the same jobs in 1/1.2 of the time (default: 1).",
             _number("load", *LOADS, "load=1.2 raises the arrival rate by 20 %")),
        Word("latency", "scenario", 0.0,
             "Start-up latency, in which a job holds its GPUs and still waits: seconds, or by GPU type or size of the "
             "job, such as 1 GPU=5/6/9,gang=60,other=20, of which several are equally likely (default: 0).", _latency),
        Word("order", "policy", "fifo",
             _choices("Queue order", ORDERS, "fifo", "; or MODULE:NAME of your own"), _ranking(ORDERS), ORDERS),
        Word("scheduler", "policy", None,
             "A scheduler with rules of its own in place of an order and a backfill: site (as the trace's cluster is "
             "configured), kubernetes, volcano or kai (their defaults), a slurm.conf, a KubeSchedulerConfiguration, "
             "ClusterQueues of Kueue, or Queues of Volcano or KAI in a file; event: by the words of the policy, "
             "whenever a job comes or ends (default: site where the trace tells it and no other word of a policy is "
             "given, else event).", _scheduler, local=True),
        Word("backfill", "policy", "greedy",
             _choices("When the first job does not fit", BACKFILLS, "greedy"), _choice(BACKFILLS), BACKFILLS),
        Word("placement", "policy", "best_fit",
             _choices("Node that an instance is placed on", PLACEMENTS, "best_fit", "; or MODULE:NAME of your own"),
             _ranking(PLACEMENTS), PLACEMENTS),
        Word("estimate", "policy", "oracle",
             _choices("Runtime estimate", ESTIMATES, "oracle",
                      "; boosted: trees over user, group, request and hour, of jobs that had ended in the log (extra "
                      "forecast); or a series of the trace, such as requested (walltime limits) or a column that was "
                      "read with --map estimate=COLUMN"), _estimate, ESTIMATES),
        Word("sharing", "policy", "fractional",
             _choices("Sharing of GPUs by fractional requests", SHARINGS, "fractional"), _choice(SHARINGS), SHARINGS),
        Word("speed", "policy", None,
             _choices(f"Slowdown of jobs on one GPU, for sharing {', '.join(SHARINGS.where('needs_speed'))}", SPEEDS,
                      SPEEDS.names[0], "; or a JSON file"), _speed, SPEEDS, local=True),
        Word("speed_classes", "policy", None,
             "Class of the speed profile that jobs are of, by app, user, group or queue: app:bert=mine,other=heavy; "
             "the first that applies (default: light, medium or heavy, by their request).", _speed_classes),
        Word("preemption", "policy", False,  # noqa: FBT003
             "Preempt running jobs for jobs ahead of them in the queue order (default: off).", _flag),
        Word("quota", "policy", None,
             "GPU limit per user: 16, or ada=16,bob=8 (default: no limit).", _quota),
        Word("queues", "policy", None,
             "Quotas, borrowing and limits of queues: a TOML or JSON file of [[queue]] entries; site (those of the "
             f"trace); or those of the trace by the rules of {QUEUE_RULES.help()} (default: site where the trace tells "
             "them, else none).", _queues, local=True),
        Word("recovery", "policy", None,
             "Checkpoints: every=600,save=10,restart=30, in seconds; every=0: only at a preemption (default: none: "
             "failed jobs start over, preempted ones resume at no cost).",
             _recovery),
        Word("cycle", "policy", 0.0,
             "Time between two looks of the scheduler at the queue: seconds, or such as 30s or 5m (default: 0, it "
             "looks whenever a job is submitted or ends).", _cycle),
        Word("events", "scenario", (),
             "A TOML file of node events: [[faults]], [[outage]], [[drain]], [[spot]], [[elastic]], and [recovery] "
             "(default: none).", _events, local=True),
        Word("weights", "policy", (),
             "Numbers for a policy of your own, which reads them as s.weights: 1,0.5 (default: none).", _weights),
        Word("prices", "scenario", None,
             "A TOML file of prices and powers: per_gpu_hour, per_kwh, pue, … (default: 1 per GPU-hour).",
             _prices, local=True),
        Word("seed", "scenario", 0, "Random seed (default: 0).", _seed),
        Word("until", "scenario", None,
             "Stop the simulation at this time: seconds, or such as 12h or 7d (default: after all jobs).", _until),
        Word("window", "scenario", "",
             "Measure only the jobs submitted from BEGIN to END of the trace, such as 2d..5d; those before fill the "
             "cluster (default: all jobs).", _window),
        Word("warm_up", "scenario", "auto",
             f"What runs before the jobs that are measured: {_listed(WARM_UPS)} (default: auto).",
             _warm_up),
        Word("censored", "scenario", "hold",
             f"Jobs of unknown runtime: {_listed(CENSORED)} (default: hold).",
             _one_of("rule for censored jobs", CENSORED)),
        Word("min_coverage", "scenario", MIN_COVERAGE,
             "Refuse to answer where less than this share of the GPU-hours in the log can be simulated; 0 answers "
             f"all the same (default: {MIN_COVERAGE:g}).",
             _number("min_coverage", 0.0, 1.0, "min_coverage=0 answers all the same")),
    )
}  # fmt: skip
POLICY = tuple(name for name, word in WORDS.items() if word.noun == "policy")
SHORTHAND = ("order", "backfill", "placement", "estimate", "sharing")


def check(names: Iterable[str], known: Iterable[str] = WORDS) -> None:
    """Refuse an unknown word with the closest known one, and a list of all."""
    for name in names:
        lookup("word", name, known, error=WorkloadError)


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


# -- how values are written ------------------------------------------------------------------------------------------


ASSIGNED = re.compile(r"(?<!\S)(--\S+ )?`?(\w+)=(\{[^}]*\}|\([^)]*\)|\[[^]]*\]|'[^']*'|[^\s,;:`]+)`?")


def as_options(message: str, names: Iterable[str]) -> str:
    """Return a message with keyword arguments spelled as options of the command line.

    >>> as_options("load=1.2 for 20 % more, quota={'ada': 16}, preemption=True; leave `until` out",
    ...            ["load", "quota", "preemption", "until"])
    '--load 1.2 for 20 % more, --quota ada=16, --preemption; leave --until out'
    """
    options = {name.replace("-", "_"): f"--{name.replace('_', '-')}" for name in names}

    def named(match: re.Match[str]) -> str:
        return options.get(match[1], match[0])

    def spelled(match: re.Match[str]) -> str:
        before, name, value = match.groups()
        if before or name not in options:
            return match[0]
        with suppress(ValueError, SyntaxError):  # a word such as easy, or a path
            value = ast.literal_eval(value)
        return options[name] if value is True else f"{options[name]} {_option_value(value)}"

    # A name in backquotes is an argument where a message begins with it, says what it does, or to leave it out; else it
    # is a value.
    text_ = re.sub(
        r"^`\w+`|`\w+` (takes|raises)|or by `\w+`|leave .* out",
        lambda part: re.sub(r"`(\w+)`", named, part[0]),
        message,
    )
    return ASSIGNED.sub(spelled, text_)


def _option_value(value: object) -> str:
    if isinstance(value, dict):
        return ",".join(f"{k}={v}" for k, v in value.items())
    return ",".join(map(str, value)) if isinstance(value, tuple | list) else str(value)


class Opaque(str):
    """The label of a value that has no spelling: an object that exists only in this process."""

    __slots__ = ()


def plain(value: Any) -> Any:  # noqa: ANN401
    """Return what JSON and TOML can hold; a value without a spelling becomes an `Opaque` label."""
    if isinstance(value, Recovery):
        return {k: v for k, v in asdict(value).items() if v}
    if isinstance(value, Prices | Queues):
        return value.to_values()
    if isinstance(value, Scheduler):
        return scheduler_values(value)
    if isinstance(value, Event):
        return events.to_values(value)
    if isinstance(value, tuple | list):
        return [plain(v) for v in value]
    if isinstance(value, Mapping):
        return {str(k): plain(v) for k, v in value.items()}
    if value is None or isinstance(value, str | bool | int | float):
        return value
    return _spelling(value) or Opaque(_label(value))


def text(value: Any) -> str:  # noqa: ANN401
    """Return a value as one piece of text, which `read` understands."""
    if isinstance(value, str):
        return value
    if isinstance(value, float) and value.is_integer() and abs(value) < 2**53:
        return str(int(value))
    if isinstance(value, list) and all(isinstance(v, float) for v in value):
        return ",".join(map(repr, value))
    return json.dumps(value, ensure_ascii=False, separators=(",", ":"))


def _function(policy: Any) -> FunctionType | None:  # noqa: ANN401
    function = getattr(policy, "rank", policy)
    return function if isinstance(function, FunctionType) else None


def _spelling(policy: Any) -> str | None:  # noqa: ANN401
    """Return MODULE:NAME of a policy that can be imported so, NAME of a built-in one, None of any other."""
    function = _function(policy)
    module = sys.modules.get(function.__module__) if function else None
    if function is None or module is None or module.__name__ == "__main__":
        return None
    name = function.__name__
    if getattr(module, "BY_NAME", {}).get(name) is policy:
        return name
    return f"{module.__name__}:{name}" if getattr(module, name, None) in (policy, function) else None


def _label(value: Any) -> str:  # noqa: ANN401
    function = _function(value)
    if function is not None:
        module = "" if function.__module__ == "__main__" else f"{function.__module__}."  # of a notebook, or a script
        return f"<{module}{function.__qualname__}>"
    return "<column>" if hasattr(value, "to_frame") else repr(value)


def fingerprint(policy: Any) -> str:  # noqa: ANN401
    """Return what tells a policy without a spelling from others: its code and the values that it closes over."""
    function = _function(policy)
    if function is None:
        return repr(policy)
    code = function.__code__
    constants = [c for c in code.co_consts if not hasattr(c, "co_code")]
    cells = [cell.cell_contents for cell in function.__closure__ or ()]
    return repr((function.__qualname__, code.co_code.hex(), code.co_names, constants, cells))


def exact(words: Mapping[str, Any]) -> dict[str, Any]:
    """Refuse words that have no spelling."""
    for name, value in words.items():
        if isinstance(value, Opaque):
            msg = f"`{name}` exists only in this process and cannot be written down: {value}"
            raise FleetlabError(msg, hint="name a file or a saved trace; a policy in a module is MODULE:NAME")
    return dict(words)
