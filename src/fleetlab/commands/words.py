"""How every command begins and speaks: examples in its help, whole numbers, options in dataclasses."""

from __future__ import annotations

import inspect
import re
import sys
from collections.abc import Callable, Sequence
from pathlib import Path
from typing import TypeVar, get_args

from cyclopts import App, ArgumentCollection, CoercionError, Parameter

import fleetlab
from fleetlab.commands.options import Json, Seed
from fleetlab.commands.options import split as listed

__all__ = [
    "FLAT", "Json", "Seed", "examples", "listed", "of_verb", "open_desk", "pairs", "parameters_of", "say_saved", "talk",
    "version",
]  # fmt: skip

T = TypeVar("T")
Command = TypeVar("Command", bound=Callable[..., None])
HELP = 80  # columns
FLAT = Parameter(name="*", negative=())  # the fields of a dataclass are options of the command


def version() -> str:
    """Return what `--version` prints, after whichever command it stands."""
    from importlib.metadata import version as of

    return of("fleetlab")


def open_desk(app: App, commands: App) -> None:
    """Make the commands of one app commands of another."""
    # Not `App.update`, which would put the `--help` of `commands` in the place of the app's.
    for name in commands:
        if name not in (*commands.help_flags, *commands.version_flags):
            app.command(commands[name], name=name)


def examples(*lines: str) -> str:
    """Return the end of a command's help; a long example goes on after a backslash, as a shell takes it."""
    return "Examples:\n\n" + "\n\n".join(_example(line) for line in lines)


def _example(line: str) -> str:
    r"""Break an example before an option.

    >>> print(_example("fleetlab read csv jobs.csv --map submit=created --map gpu_milli=cards*1000 --out mine"))
      fleetlab read csv jobs.csv --map submit=created --map gpu_milli=cards*1000 \
        --out mine
    """
    parts, text = re.split(r" (?=-)", line), ""
    row = "  " + parts[0]
    for part in parts[1:]:
        if len(row) + len(part) + 3 > HELP:
            text, row = f"{text}{row} \\\n", "   "
        row += f" {part}"
    return text + row


def of_verb(file: str) -> Callable[[Command], Command]:
    """Describe options in the words of the verb, where the command's own docstring does not.

    The verb's docstring is read from its file: to import it would take frames and compilers, which help needs not.
    """

    def fill(command: Command) -> Command:
        text = (Path(fleetlab.__file__).parent / file).read_text("utf-8")
        found = re.search(rf'^def {command.__name__}\(.*?"""(.*?)"""', text, re.MULTILINE | re.DOTALL)
        own = inspect.cleandoc(command.__doc__ or "")
        known, verb = parameters_of(own), parameters_of(inspect.cleandoc(found[1] if found else ""))
        defaults = {name: p.default for name, p in inspect.signature(command).parameters.items()}
        shared = {name: verb[name] for name in defaults if name in verb and name not in known}
        lines = [f"{name}\n    {_without_default(text, defaults[name])}" for name, text in shared.items()]
        head = [] if known else ["", "Parameters", "----------"]
        command.__doc__ = "\n".join([own, *head, *lines])
        return command

    return fill


def parameters_of(docstring: str) -> dict[str, str]:
    r"""Return what a docstring says of each parameter.

    >>> parameters_of("Add.\n\nParameters\n----------\na, b\n    A\n    number.\n\nReturns\n-------\nint\n")
    {'a': 'A number.', 'b': 'A number.'}
    """
    section = re.search(r"^Parameters\n-+\n(.*?)(?=^\w[\w ]*\n-+\n|\Z)", docstring, re.MULTILINE | re.DOTALL)
    entries = re.findall(r"^(\S.*)\n((?:[ ]+.*\n?|\n)+)", section[1] + "\n" if section else "", re.MULTILINE)
    return {name: " ".join(text.split()) for names, text in entries for name in names.split(", ")}


def _without_default(text: str, default: object) -> str:
    """Leave out a default that help names by itself."""
    return text if shown_default(default) is None else re.sub(r" \(default: [^(),;]*\)(?=\.$)", "", text)


def shown_default(value: object) -> str | None:
    """Return a default as help names it; none where there is nothing to name: off, empty, or a word of Python's."""
    if value is None or value is False or value in ("", ()):
        return None
    return ",".join(map(str, value)) if isinstance(value, tuple) else str(value)


def whole_numbers(_app: App, _commands: Sequence[str], arguments: ArgumentCollection) -> None:
    """Refuse a fraction where a whole number is expected; the parser would round it."""
    for argument in arguments:
        whole = int in (argument.hint, *get_args(argument.hint))  # int, and int | None
        for token in argument.tokens:
            if whole and _is_fraction(token.value):
                raise CoercionError(token=token, argument=argument, target_type=int)


def _is_fraction(word: str) -> bool:
    try:
        return "." in word and not float(word).is_integer()
    except ValueError:
        return False  # not a number at all: the parser says so


def pairs(words: Sequence[str], takes: str, of: Callable[[str], T], *, hint: str) -> list[tuple[str, T]]:
    """Read NAME=VALUE words; `of` converts a value, or raises ValueError.

    >>> pairs(["cpu=4", "gpu = 16"], "--price takes POOL=NUMBER", float, hint="")
    [('cpu', 4.0), ('gpu', 16.0)]
    """
    values = []
    for word in words:
        name, equals, value = word.partition("=")
        try:
            if not equals or not name.strip():
                raise ValueError
            values.append((name.strip(), of(value)))
        except ValueError:
            msg = f"{takes}, not: `{word}`"
            raise fleetlab.WorkloadError(msg, hint=hint) from None
    return values


def talk(line: str) -> None:
    """Print on stderr: stdout is for the answer, which may be one JSON object."""
    print(line, file=sys.stderr, flush=True)


def say_saved(out: Path) -> None:
    """Print where the result was saved."""
    talk(f"\nsaved in {out}")
