"""How the values of words are read: from text, numbers, tables, files, or the objects themselves."""

from __future__ import annotations

import json
import math
import re
from collections.abc import Callable, Collection, Mapping, Sequence
from pathlib import Path
from typing import Any

from fleetlab.core import events, nodes
from fleetlab.core.catalog import ESTIMATES, Catalog
from fleetlab.core.durations import HINT as DURATIONS
from fleetlab.core.durations import in_seconds
from fleetlab.core.errors import PolicyError, WorkloadError
from fleetlab.core.events import Event, Recovery
from fleetlab.core.names import clip, lookup
from fleetlab.core.plugins import registered
from fleetlab.core.prices import Prices
from fleetlab.core.schedulers import Scheduler, names_alone, scheduler_of
from fleetlab.core.schedulers import read_scheduler as read_file
from fleetlab.core.word_spellings import spelling, text

SITE, EVENT = "site", "event"  # the scheduler of the trace; the rules of the policy, at every event
OTHER_JOBS = "other"  # the class of a latency for jobs of no other class
CLASS_COLUMNS = ("app", "user", "group", "queue")  # columns of jobs that a quota or a class of a speed profile is of
WARM_UPS = {
    "auto": "of a window the jobs before it, of a synthetic trace the trace itself once before, of a log what it says "
    "was there when it began",
    "repeat": "the same jobs once before",
    "none": "nothing but what a log says was there when it began",
    "2d": "of a window the jobs of two days before it, or of another time, and what still runs then",
}


def as_listed(value: Any, names: Collection[str]) -> Any:  # noqa: ANN401
    """Return a name as it is listed, however its letters are written: easy for EASY.

    >>> as_listed("EASY", ["none", "easy"]), as_listed("eazy", ["none", "easy"])
    ('easy', 'eazy')
    """
    folded = value.strip().casefold() if isinstance(value, str) else ""
    return next((name for name in names if name.casefold() == folded), value)


def choice(catalog: Catalog[Any]) -> Callable[[Any], str]:
    """Return a reader of the names of a catalog."""
    return lambda value: lookup(catalog.kind, as_listed(value, catalog.names), catalog.names)


def ranking(catalog: Catalog[Any]) -> Callable[[Any], Any]:
    """Read a built-in name, MODULE:NAME, or a function or decorated policy."""
    kind = catalog.kind
    hint = f"choose from {', '.join(catalog.names)}; or MODULE:NAME of your own, made with `@{kind}`"

    def read(value: Any) -> Any:  # noqa: ANN401
        if not isinstance(value, str):
            if not callable(value):
                raise PolicyError(f"not {'an' if kind[0] in 'aeiou' else 'a'} {kind}: {value!r}", hint=hint)
            return spelling(value) if spelling(value) in catalog else value
        if ":" not in value:
            return lookup(kind, as_listed(value, catalog.names), catalog.names, hint=hint)
        module, _, name = value.partition(":")
        if not module.replace(".", "_").isidentifier() or not name.isidentifier() or module.endswith(".py"):
            msg = f"a policy of your own is named MODULE:NAME, not: `{clip(value)}`"
            own = f"{Path(module).stem or 'my_module'}:{name or 'mine'}"
            raise PolicyError(msg, hint=f"as you would import it, without `.py` and from the current folder: `{own}`")
        return value

    return read


def read_estimate(value: Any) -> Any:  # noqa: ANN401
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


def number(name: str, low: float, high: float, hint: str) -> Callable[[Any], float]:
    """Return a reader of numbers between two limits."""

    def read(value: Any) -> float:  # noqa: ANN401
        try:
            number = math.nan if isinstance(value, bool) else float(value)
        except (TypeError, ValueError):
            number = math.nan
        if not low <= number <= high:
            raise WorkloadError(f"{name} is a number from {low:g} to {high:g}, not: {clip(repr(value))}", hint=hint)
        return number

    return read


def read_seed(value: Any) -> int:  # noqa: ANN401
    """Read a random seed."""
    text = str(value)
    if isinstance(value, bool) or not (text.isascii() and text.isdigit() and len(text) < 20 and int(text) < 2**63):
        raise WorkloadError(f"a seed is a whole number from 0 up, not: {clip(repr(value))}", hint="seed=1")
    return int(text)


def read_until(value: Any) -> float | None:  # noqa: ANN401
    """Read a time at which to stop, if there is one."""
    if value is None or value == "":
        return None
    seconds = _time(value)
    if not math.isfinite(seconds):
        raise WorkloadError(f"`until` is a time from 0 s up, not: {clip(repr(value))}", hint=DURATIONS)
    return seconds


def read_cycle(value: Any) -> float:  # noqa: ANN401
    """Read the seconds between two looks at the queue."""
    seconds = _time(value)
    if not 0 <= seconds < 1e9:
        raise PolicyError(f"`cycle` is a time from 0 s up, not: {clip(repr(value))}", hint=DURATIONS)
    return seconds


def read_window(value: Any) -> str:  # noqa: ANN401
    """Read a window of time, as text."""
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


def read_warm_up(value: Any) -> str:  # noqa: ANN401
    """Read one of the words, or a time before a window."""
    seconds = _time(value)
    return f"{text(seconds)}s" if seconds > 0 else one_of("warm-up", WARM_UPS)(value)


def one_of(name: str, values: Mapping[str, str]) -> Callable[[Any], str]:
    """Return a reader of names that are listed with their meanings."""

    def read(value: Any) -> str:  # noqa: ANN401
        hint = "; ".join(f"{word}: {meaning}" for word, meaning in values.items())
        return lookup(name, as_listed(value, values), tuple(values), error=WorkloadError, hint=hint)

    return read


def read_flag(value: Any) -> bool:  # noqa: ANN401
    """Read yes or no."""
    if isinstance(value, bool):
        return value
    if value not in ("true", "false"):
        raise PolicyError(f"preemption is true or false, not: {clip(repr(value))}")
    return bool(value == "true")


def read_nodes(value: Any) -> str:  # noqa: ANN401
    """Read nodes to add or remove, as text."""
    if not isinstance(value, str):
        raise WorkloadError(f"not an edit of nodes: {clip(repr(value))}", hint=nodes.HINT)
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
        raise WorkloadError(f"not {what}: `{clip(value)}`", hint="NAME=NUMBER separated by commas, or JSON") from None


def read_quota(value: Any) -> float | dict[str, float] | None:  # noqa: ANN401
    """Read the GPUs that a user may have, for all or by name; COLUMN:NAME is of a queue, group or app."""
    if value is None or value == "":
        return None
    read = number("a quota", 0, 1e12, "quota=16 for every user, or quota={'ada': 16, 'queue:vision': 8}")
    if isinstance(value, str) and "=" not in value and not value.lstrip().startswith("{"):
        return read(value)
    table = _table(value, "a quota")
    return {str(user): read(gpus) for user, gpus in table.items()} if isinstance(table, Mapping) else read(table)


def quota_key(name: str) -> tuple[str, str]:
    """Return the column of jobs that a quota is of, and the value there.

    >>> quota_key("ada"), quota_key("queue:vision")
    (('user', 'ada'), ('queue', 'vision'))
    """
    column, colon, value = name.partition(":")
    return (column, value) if colon and column in CLASS_COLUMNS else ("user", name)


def read_latency(value: Any) -> float | dict[str, list[float]]:  # noqa: ANN401
    """Read seconds, or for classes of jobs seconds or several values that are equally likely: 30, or 1 GPU=5/6/9."""
    read = number("a latency", 0, 1e9, "latency=30, or latency={'1 GPU': 20, 'gang': [60, 90, 200]}, in seconds")
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


def read_recovery(value: Any) -> Recovery | None:  # noqa: ANN401
    """Read what jobs do after a failure."""
    if value is None or value == "" or isinstance(value, Recovery):
        return value or None
    recovery: Recovery = events.from_values(Recovery, _table(value, "a recovery"), "recovery")
    return recovery


def read_events(value: Any) -> tuple[Event, ...]:  # noqa: ANN401
    """Read what happens to nodes."""
    if not value:
        return ()
    if isinstance(value, Path) or (isinstance(value, str) and not value.lstrip().startswith("[")):
        return events.from_toml(value)[0]
    entries = _table(value, "a list of events")
    return events.from_list(entries if isinstance(entries, Sequence) else [entries])


def read_weights(value: Any) -> tuple[float, ...]:  # noqa: ANN401
    """Read the weights of a policy."""
    parts = value.strip("[] ").split(",") if isinstance(value, str) else value
    try:
        weights = tuple(float(part) for part in parts if not isinstance(part, str) or part.strip())
    except (TypeError, ValueError):
        weights = (math.nan,)
    if not all(map(math.isfinite, weights)):
        msg = f"weights are finite numbers, one after the other: {clip(str(value))}"
        raise PolicyError(msg, hint="weights=(1.0, 0.5), which a policy reads as s.weights[0] and s.weights[1]")
    return weights


def read_prices(value: Any) -> Prices | None:  # noqa: ANN401
    """Read prices."""
    if value is None or value == "" or isinstance(value, Prices):
        return value or None
    if isinstance(value, Path) or (isinstance(value, str) and not value.lstrip().startswith("{")):
        return Prices.from_toml(value)
    table = _table(value, "prices")
    if not isinstance(table, Mapping):
        raise WorkloadError(f"not prices: {clip(repr(value))}", hint="a table of the fields of `Prices`")
    return Prices.of(table)


OWN_NAME = re.compile(r"[A-Za-z_][\w.]*:[A-Za-z_]\w*")  # MODULE:NAME of a scheduler of one's own


def read_scheduler(value: Any) -> Scheduler | str | None:  # noqa: ANN401
    """Read `site`, `event`, the name of a scheduler, a file, a table, or a configuration."""
    if value is None or value == "":
        return None
    if isinstance(value, Scheduler) or (isinstance(value, str) and value in (SITE, EVENT)):
        return value
    if callable(getattr(value, "decide", None)) or (isinstance(value, str) and OWN_NAME.fullmatch(value)):
        own: Scheduler = registered("own scheduler")[0].of(value)
        return own
    if isinstance(value, str) and value in names_alone():
        return scheduler_of({"kind": value})
    if isinstance(value, Mapping) or (isinstance(value, str) and value.lstrip().startswith("{")):
        return scheduler_of(_table(value, "a configuration of a scheduler"))
    if not isinstance(value, str | Path):
        msg = f"not a scheduler: {clip(repr(value))}"
        hint = f"an object or a class with `def decide(self, view)`; {', '.join(names_alone())}; or a file of settings"
        raise PolicyError(msg, hint=hint)
    return read_file(Path(value))


def read_speed(value: Any) -> Any:  # noqa: ANN401
    """Read the name of a shipped profile, a file, or a profile."""
    if value is None or value == "":
        return None
    return str(value) if isinstance(value, str | Path) else value


def read_speed_classes(value: Any) -> dict[str, str] | None:  # noqa: ANN401
    """Read which class of a speed profile jobs are of: app:bert=mine,user:ada=mine,other=heavy."""
    if value is None or value == "" or value == {}:
        return None
    if isinstance(value, str) and not value.lstrip().startswith("{"):
        value = {name: of for name, _, of in (part.partition("=") for part in value.split(","))}
    table = _table(value, "classes of a speed profile") if isinstance(value, str) else value
    hint = f"speed_classes='app:bert=mine,other=heavy'; columns are {', '.join(CLASS_COLUMNS)}"
    if not isinstance(table, Mapping):
        raise PolicyError(f"not classes of a speed profile: {clip(repr(value))}", hint=hint)
    rules = {str(name).strip(): str(of).strip() for name, of in table.items()}
    for name, of in rules.items():
        column, colon, which = name.partition(":")
        if not of or (name != OTHER_JOBS and not (colon and which and column in CLASS_COLUMNS)):
            raise PolicyError(f"not a class of a speed profile: `{clip(name)}={clip(of)}`", hint=hint)
    return rules


def as_is(value: Any) -> Any:  # noqa: ANN401
    """Return a value as it is; a path as text."""
    return str(value) if isinstance(value, Path) else value


def read_cluster(value: Any) -> Any:  # noqa: ANN401
    """Read a cluster, or the name of its file."""
    if value is None or isinstance(value, str | Path):
        return as_is(value)
    from fleetlab.core.cluster import Cluster

    if not isinstance(value, Cluster):
        msg = f"not a cluster: {clip(repr(value))}"
        raise WorkloadError(msg, hint="a Cluster, or a TOML file of [[node]] entries; nodes='+5' adds nodes")
    return value
