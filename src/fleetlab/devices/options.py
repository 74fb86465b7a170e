"""Options of a command as a dataclass: its fields are the options, its docstring is their help.

`fleetlab …` reads them with its own packages, and `python -m fleetlab.…`, on a machine with few, with `argparse`.
"""

from __future__ import annotations

import argparse
import inspect
import re
import signal
from collections.abc import Callable, Sequence
from dataclasses import MISSING, Field, fields
from types import NoneType, UnionType
from typing import Any, Literal, TypeVar, get_args, get_origin, get_type_hints

from fleetlab.devices.errors import BenchError
from fleetlab.devices.progress import print_error, print_progress

Options = TypeVar("Options")
STOPPED = 130  # exit status


def start(
    prog: str,
    kind: Callable[..., Options],
    act: Callable[[Options], int],
    words: Sequence[str] | None = None,
    *,
    stopped: str = "stopped",
) -> int:
    """Read options and act; the exit status is that of `act`, 2 for an error, 130 if stopped."""
    signal.signal(signal.SIGTERM, signal.default_int_handler)
    try:
        return act(parse(prog, kind, words))
    except BenchError as e:
        print_error(e)
        return 2
    except KeyboardInterrupt:
        print_progress(stopped)
        return STOPPED


def parse(prog: str, kind: Callable[..., Options], words: Sequence[str] | None = None) -> Options:
    """Read a dataclass from the command line."""
    summary, texts = documented(kind)
    parser = argparse.ArgumentParser(prog=f"python -m {prog}", description=summary)
    hints = get_type_hints(kind)
    known: Any = kind
    for field in fields(known):
        _add(parser, field, hints[field.name], texts[field.name])
    values = vars(parser.parse_args(words))
    return kind(**{name: tuple(value) if isinstance(value, list) else value for name, value in values.items()})


def documented(kind: Any) -> tuple[str, dict[str, str]]:  # noqa: ANN401
    """The first line of a docstring, and the text of each parameter, also of the classes that it derives from."""
    texts: dict[str, str] = {}
    for cls in reversed(kind.__mro__[:-1]):
        found = re.findall(r"^(\w+)\n((?: {4}.*\n?)+)", inspect.cleandoc(cls.__doc__ or ""), re.MULTILINE)
        texts |= {name: " ".join(text.split()) for name, text in found}
    return inspect.cleandoc(kind.__doc__).partition("\n")[0], texts


def check_seed(seed: int) -> None:
    """Refuse a seed that a generator does not take."""
    if not 0 <= seed < 2**63:
        msg = f"a seed is a whole number from 0 up, not: '{seed}'"
        raise BenchError(msg)


def _add(parser: argparse.ArgumentParser, field: Field[Any], hint: Any, text: str) -> None:  # noqa: ANN401
    required = field.default is MISSING
    kind = next(k for k in get_args(hint) if k is not NoneType) if isinstance(hint, UnionType) else hint
    how: dict[str, Any] = {"help": text.replace("%", "%%")}
    if kind is bool:
        how["action"] = "store_true"
    elif get_origin(kind) is tuple:
        how |= {"action": "append", "default": []}
    elif get_origin(kind) is Literal:
        how |= {"choices": get_args(kind), "default": field.default}
    else:
        how |= {"type": kind, "default": None if required else field.default}
    if how.get("default"):
        how["help"] += " (default: %(default)s)"
    if required and not field.kw_only:
        parser.add_argument(field.name, type=kind, help=how["help"])
    else:
        how |= {"required": True} if required else {}
        parser.add_argument(f"--{field.name.replace('_', '-')}", **how)
