"""How this room compiles: once, kept on disk, and anew when a file that the code came from has changed.

Numba keeps compiled code beside the file of the function, and looks at that file alone: a loop would go on calling an
old copy of what another file has changed since. So what is kept goes into a folder named after the text of the file and
of all files of this room that it imports.
"""

from __future__ import annotations

import atexit
import os
import re
import shutil
import sys
import time
from collections.abc import Callable, Iterator
from contextlib import contextmanager
from functools import cache
from hashlib import sha256
from pathlib import Path
from tempfile import gettempdir, mkdtemp
from typing import Any, TypeVar

import numba
from numba.core.event import Event, Listener, install_listener
from numba.core.types import unliteral

config: Any = numba.config
F = TypeVar("F", bound=Callable[..., Any])

ROOM = Path(__file__).parent
STARTED = time.time()
OLD = 7 * 86_400  # seconds: compiled code that nothing came from for so long is thrown away


@cache
def _sources(module: str) -> frozenset[Path]:
    """The file of a module of this room, and those of all that it imports from this room."""
    found = {ROOM / f"{module}.py"}
    for other in re.findall(r"from fleetlab\.sim\.(\w+) import", (ROOM / f"{module}.py").read_text("utf-8")):
        found |= {ROOM / f"{other}.py"} if other == module else _sources(other)
    return frozenset(found)


@cache
def _for_now() -> Path:
    path = Path(mkdtemp(prefix="fleetlab-"))
    atexit.register(shutil.rmtree, path, ignore_errors=True)
    return path


@cache
def folder(module: str) -> Path:
    """Where a module's compiled code is kept: beside the sources, or, where nobody may write, in the user's cache."""
    text = b"".join(path.read_bytes() for path in sorted(_sources(module)))
    name = f"{module}-{sha256(text + numba.__version__.encode()).hexdigest()[:12]}"
    if any(STARTED <= path.stat().st_mtime <= time.time() for path in _sources(module)):
        # A file was changed while we read it: what was imported may not be what is written there now.
        return _for_now()
    home = os.environ.get("XDG_CACHE_HOME") or str(Path.home() / ".cache")
    for parent in (ROOM / "__pycache__", Path(home) / "fleetlab", Path(gettempdir()) / "fleetlab"):
        try:
            if not (parent / name).is_dir():
                for old in parent.glob(f"{module}-*"):
                    if old.stat().st_mtime < STARTED - OLD:  # a younger one may be in use, by another version
                        shutil.rmtree(old, ignore_errors=True)
                (parent / name).mkdir(parents=True, exist_ok=True)
        except OSError:
            continue
        if os.access(parent / name, os.W_OK):
            return parent / name
    return ROOM / "__pycache__" / name


def _lean(dispatcher: Any) -> Any:  # noqa: ANN401
    """Compile one copy of each function, and no loops for several numbers at once: half the time, and as fast.

    Numba compiles a copy for each constant it meets in a call while it works out types. And these loops are all
    decisions: there is nothing that could be done to several numbers at once.
    """
    template, compiled = dispatcher.get_call_template, dispatcher.compile
    dispatcher.get_call_template = lambda args, kws: template(tuple(map(unliteral, args)), kws)

    def compile(sig: Any) -> Any:  # noqa: ANN401  numba's name
        before = config.LOOP_VECTORIZE, config.SLP_VECTORIZE
        config.LOOP_VECTORIZE = config.SLP_VECTORIZE = 0
        try:
            return compiled(sig)
        finally:
            config.LOOP_VECTORIZE, config.SLP_VECTORIZE = before

    dispatcher.compile = compile
    return dispatcher


def kept(*, inlined: bool = False, **options: Any) -> Callable[[F], F]:  # noqa: ANN401
    options |= {"cache": True, "error_model": "numpy", "forceinline": inlined}  # else a callee takes its caller's

    def compiled(function: F) -> F:
        if config.DISABLE_JIT:
            return function
        before = config.CACHE_DIR
        # Looked at when a function is decorated, and only then.
        config.CACHE_DIR = str(folder(function.__module__.rsplit(".", 1)[-1]))
        try:
            return _lean(numba.njit(**options)(function))  # type: ignore[no-any-return]
        finally:
            config.CACHE_DIR = before

    return compiled


# A loop may make arrays. A step may not: then the compiler counts no references to those it is handed, which took ten
# times as long as the step itself (60 ns against 6 for a node's test). An inner step is called by compiled code alone.
# One that is `inline` is written out where it is called: handing over ten arrays took as long as what was done with
# them.
_BARE = {"no_cpython_wrapper": True, "no_cfunc_wrapper": True}
loop = kept()
step = kept(_nrt=False)
inner = kept(_nrt=False, **_BARE)
inline = kept(_nrt=False, inlined=True, **_BARE)


class _Teller(Listener):
    """Says why nothing seems to happen, when the first part of this room is compiled and not found on disk."""

    told = False

    def on_start(self, event: Event) -> None:
        dispatcher = event.data["dispatcher"]
        if not _Teller.told and dispatcher.py_func.__module__.startswith(__package__):
            _Teller.told = True
            print("compiling the simulator: only the first run waits for this, about half a minute", file=sys.stderr)

    def on_end(self, event: Event) -> None:
        pass


@contextmanager
def telling() -> Iterator[None]:
    """Tell of compiling that goes on within."""
    with install_listener("numba:compile", _Teller()):
        yield
