"""Errors, progress lines, units and options of programs that run without the command line's packages.

A command's options are a dataclass: its fields are the options, its docstring is their help.
`fleetlab …` reads them with its own packages, and `python -m fleetlab.…`, on a machine with few, with `argparse`.
"""

from __future__ import annotations

import argparse
import gc
import inspect
import os
import re
import signal
import sys
import uuid
from collections.abc import Callable, Iterator, Sequence
from contextlib import contextmanager
from dataclasses import MISSING, Field, fields
from importlib import metadata
from pathlib import Path
from types import NoneType, UnionType
from typing import Any, Literal, TypeVar, get_args, get_origin, get_type_hints


class BenchError(Exception):
    """An error that the user can fix; `hint` says what to do next."""

    def __init__(self, message: str, *, hint: str | None = None) -> None:
        super().__init__(message)
        self.hint = hint


# --- progress lines and errors on stderr, for programs without the command line's packages ---------------------------


Progress = Callable[[str], None]  # receives one line


def print_progress(line: str) -> None:
    """Print a line on stderr: stdout is for results."""
    print(line, file=sys.stderr, flush=True)


def print_error(e: BenchError) -> None:
    """Print an error and its hint on stderr."""
    print_progress(f"error: {e}" + (f"\nhint: {e.hint}" if e.hint else ""))


def silent(line: str) -> None:
    """Print nothing."""


# --- readable units for large counts ---------------------------------------------------------------------------------


SCALE = {"flop": (1e-12, "TFLOP"), "byte": (1e-9, "GB")}


def unit_scale(unit: str) -> tuple[float, str]:
    """Return the factor and the name of the unit to print a count in.

    >>> unit_scale("flop"), unit_scale("image")
    ((1e-12, 'TFLOP'), (1, 'image'))
    """
    return SCALE.get(unit, (1, unit))


# --- options of a command as a dataclass -----------------------------------------------------------------------------


Options = TypeVar("Options")
STOPPED = 130  # exit status


def start(
    prog: str,
    kind: Callable[..., Options],
    act: Callable[[Options], int],
    arguments: Sequence[str] | None = None,
    *,
    stopped: str = "stopped",
) -> int:
    """Read options and act; the exit status is that of `act`, 2 for an error, 130 if stopped."""
    signal.signal(signal.SIGTERM, signal.default_int_handler)
    try:
        return act(parse(prog, kind, arguments))
    except BenchError as e:
        print_error(e)
        return 2
    except KeyboardInterrupt:
        print_progress(stopped)
        return STOPPED


def parse(prog: str, kind: Callable[..., Options], arguments: Sequence[str] | None = None) -> Options:
    """Read a dataclass from the command line."""
    summary, texts = documented(kind)
    parser = argparse.ArgumentParser(prog=f"python -m {prog}", description=summary)
    hints = get_type_hints(kind)
    known: Any = kind
    for field in fields(known):
        _add(parser, field, hints[field.name], texts[field.name])
    values = vars(parser.parse_args(arguments))
    return kind(**{name: tuple(value) if isinstance(value, list) else value for name, value in values.items()})


def documented(kind: Any) -> tuple[str, dict[str, str]]:  # noqa: ANN401
    """The first line of a docstring, and the text of each parameter, also of the classes that it derives from."""
    texts: dict[str, str] = {}
    for cls in reversed(kind.__mro__[:-1]):
        sections = re.findall(r"^(\w+)\n((?: {4}.*\n?)+)", inspect.cleandoc(cls.__doc__ or ""), re.MULTILINE)
        texts |= {name: " ".join(text.split()) for name, text in sections}
    return inspect.cleandoc(kind.__doc__).partition("\n")[0], texts


def check_seed(seed: int) -> None:
    """Refuse a seed that a generator does not take."""
    if not 0 <= seed < 2**63:
        raise BenchError(f"a seed is a whole number from 0 up, not: '{seed}'")


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


# --- files that are written atomically, processes that import the same package, and versions of packages -------------


@contextmanager
def replacing(path: Path) -> Iterator[Path]:
    """Yield a temporary path in the same folder; at the end of the block it is synced and replaces `path`."""
    temporary = path.with_name(f".{path.name}.{uuid.uuid4().hex[:8]}")
    try:
        yield temporary
        with temporary.open("rb") as file:
            os.fsync(file.fileno())
        temporary.replace(path)
    finally:
        temporary.unlink(missing_ok=True)


def check_folder(out: Path) -> None:
    """Check that a folder is writable before a long run."""
    try:
        out.mkdir(parents=True, exist_ok=True)
        trial = out / f".{uuid.uuid4().hex[:8]}"
        trial.touch()
        trial.unlink()
    except OSError as e:
        raise BenchError(f"{out}: not writable: {e.strerror or e}", hint="name another folder with --out") from None


def atomic_write(path: Path, content: str | bytes) -> None:
    """Write text or bytes."""
    with replacing(path) as temporary:
        temporary.write_bytes(content.encode() if isinstance(content, str) else content)


# --- start Python processes ------------------------------------------------------------------------------------------


@contextmanager
def large_import() -> Iterator[None]:
    """Collect no garbage within, and never look at what is there at the end: importing torch takes a third less."""
    collects = gc.isenabled()
    gc.disable()
    try:
        yield
    finally:
        gc.freeze()
        if collects:
            gc.enable()


def python_path() -> dict[str, str]:
    """PYTHONPATH with which a child process imports the same package as its parent."""
    here = str(Path(__file__).parents[3])
    paths = [here, *filter(None, os.environ.get("PYTHONPATH", "").split(os.pathsep))]
    return {"PYTHONPATH": os.pathsep.join(dict.fromkeys(paths))}


# --- versions of installed packages, for manifests -------------------------------------------------------------------


def package_version(package: str) -> str:
    """Version of a package, or that it is not installed."""
    try:
        return metadata.version(package)
    except metadata.PackageNotFoundError:
        return "not installed"
