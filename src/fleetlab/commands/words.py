"""What the desks share: options with one meaning, words to nouns, examples, and how commands speak and fail."""

from __future__ import annotations

import sys
from collections.abc import Callable, Iterator, Sequence
from contextlib import contextmanager
from pathlib import Path
from typing import TYPE_CHECKING, Annotated, TypeVar, get_args

from cyclopts import App, ArgumentCollection, CoercionError, Parameter, validators

import fleetlab

if TYPE_CHECKING:
    from fleetlab.traces import Progress

T = TypeVar("T")

Seed = Annotated[int, Parameter(validator=validators.Number(gte=0, lt=2**63))]
Json = Annotated[bool, Parameter(negative=(), help="Print one JSON object, for machines.")]
TraceWords = Annotated[
    str, Parameter(help="The folder of a saved trace, or `builtin`, `builtin:JOBS`, `builtin:JOBS:SEED`.")
]
ClusterFile = Annotated[
    Path | None, Parameter(help="A TOML file of [[node]] entries to use in place of the trace's cluster.")
]


# --- the app ---------------------------------------------------------------------------------------------------------


def version() -> str:
    """What `--version` prints, after whichever command it stands."""
    from importlib.metadata import version as of

    return of("fleetlab")


def open_desk(app: App, desk: App) -> None:
    """The commands of a desk become commands of the app."""
    # Not `App.update`, which would put the desk's `--help` in the place of the app's.
    for name in desk:
        if name not in (*desk.help_flags, *desk.version_flags):
            app.command(desk[name], name=name)


def examples(*lines: str) -> str:
    """The end of a command's help."""
    return "Examples:\n\n" + "\n\n".join(f"  {line}" for line in lines)


def whole_numbers(_app: App, _commands: Sequence[str], arguments: ArgumentCollection) -> None:
    """Refuse a fraction where a whole number is asked for; left alone, the parser would round it."""
    for argument in arguments:
        whole = int in (argument.hint, *get_args(argument.hint))  # int, and int | None
        for token in argument.tokens:
            if whole and _is_fraction(token.value):
                raise CoercionError(token=token, argument=argument, target_type=int)


def _is_fraction(word: str) -> bool:
    try:
        return "." in word and not float(word).is_integer()
    except ValueError:
        return False  # no number at all: the parser says so


# --- words to nouns --------------------------------------------------------------------------------------------------


def listed(words: str) -> list[str]:
    """Words with commas between.

    >>> listed("fifo, sjf,,")
    ['fifo', 'sjf']
    """
    return [word.strip() for word in words.split(",") if word.strip()]


def pairs(words: Sequence[str], takes: str, of: Callable[[str], T], *, hint: str) -> list[tuple[str, T]]:
    """NAME=VALUE, as often as it was said; `of` makes a value of its word, or raises ValueError.

    >>> pairs(["cpu=4", "gpu = 16"], "--price takes POOL=NUMBER", float, hint="")
    [('cpu', 4.0), ('gpu', 16.0)]
    """
    found = []
    for word in words:
        name, equals, value = word.partition("=")
        try:
            if not equals or not name.strip():
                raise ValueError
            found.append((name.strip(), of(value)))
        except ValueError:
            msg = f"{takes}, not: `{word}`"
            raise fleetlab.WorkloadError(msg, hint=hint) from None
    return found


def trace_of(words: str, cluster: Path | None, bar: Progress) -> fleetlab.Trace:
    """A saved or built-in trace, on another cluster if a file has one."""
    from dataclasses import replace

    from fleetlab.traces.builtin import open_trace

    opened = open_trace(words, progress=bar)
    return opened if cluster is None else replace(opened, cluster=fleetlab.Cluster.from_toml(cluster))


def with_notes(found: T, opened: fleetlab.Trace) -> T:
    """A result that says last, too, what is to be known of its trace: what follows from a log is no better than it."""
    from dataclasses import replace

    told = tuple(f"of the trace: {note}" for note in opened.notes)
    return replace(found, notes=(*found.notes, *told))  # type: ignore[type-var,attr-defined]


def cluster_of(opened: fleetlab.Trace, trace: str, option: str = "--cluster") -> fleetlab.Cluster:
    """The cluster of a trace, or which option gives it one."""
    if opened.cluster is None:
        msg = f"the trace has no cluster: {trace}"
        raise fleetlab.TraceError(msg, hint=f"{option} FILE.toml gives it one")
    return opened.cluster


# --- how commands speak and fail -------------------------------------------------------------------------------------


def talk(line: str) -> None:
    """On stderr: stdout is for what was asked for, and may be one JSON object."""
    print(line, file=sys.stderr, flush=True)


def say_saved(out: Path) -> None:
    """Where it went."""
    talk(f"\nsaved in {out}")


@contextmanager
def on_the_bench() -> Iterator[None]:
    """Errors of the bench as errors of the house."""
    # The bench runs where the hall's frames are not installed, so its errors are its own until they come here.
    from fleetlab.devices.errors import BenchError

    try:
        yield
    except BenchError as e:
        raise fleetlab.DeviceError(str(e), hint=e.hint) from None
