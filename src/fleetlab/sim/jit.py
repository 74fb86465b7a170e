"""Compilation: functions are compiled once, cached on disk, and compiled again when a source file has changed.

Numba keeps the cache beside the function's own file and checks that file alone, so a loop would go on calling old code
of another file. Here the cache folder is named after the text of the file and of every file of `sim` that it imports.
Processes that need the same function at the same time share one compilation: the first takes a lock, the others wait.
"""

from __future__ import annotations

import atexit
import gc
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

from fleetlab.core.private_folder import distrust, make_private

try:
    import fcntl
except ImportError:  # not on Windows: there each process compiles for itself
    fcntl = None  # type: ignore[assignment]

config: Any = numba.config
F = TypeVar("F", bound=Callable[..., Any])

PACKAGE = __package__ or "fleetlab.sim"
ROOT = Path(__file__).parent
NOTICE = "compiling the simulator, once: half a minute (Slurm: two minutes)"  # fits 80 columns
BESIDE = ROOT / "__pycache__"
CATALOG = ROOT.parent / "core" / "catalog"
STARTED = time.time()
MAX_AGE = 7 * 86_400  # seconds: unused cache folders that are older are deleted
_refusals: list[str] = []  # why no folder can be used


@cache
def sources(module: str) -> frozenset[Path]:
    """Return the file of a module of this package, and those of all modules of it that the module imports."""
    path = ROOT / f"{module.replace('.', '/')}.py"
    text = path.read_text("utf-8")
    imports = set(re.findall(rf"^from {PACKAGE}\.([\w.]+) import", text, re.M))
    imports |= {name for names in re.findall(rf"^from {PACKAGE} import (.+)", text, re.M) for name in names.split(", ")}
    catalogs = CATALOG.glob("*.py") if "fleetlab.core.catalog" in text else ()  # codes are places in catalogs
    return frozenset({path, *catalogs}).union(*(sources(other) for other in imports - {module}))


@cache
def _temporary_folder() -> Path:
    path = Path(mkdtemp(prefix="fleetlab-"))
    atexit.register(shutil.rmtree, path, ignore_errors=True)
    return path


@cache
def cache_folder(module: str) -> Path:
    """Return where a module's compiled code is cached: beside the sources, or in the user's cache if not writable.

    The cache is executed: a folder into which others could have put files is not used.
    """
    text = b"".join(path.read_bytes() for path in sorted(sources(module)))
    name = f"{module}-{sha256(text + numba.__version__.encode()).hexdigest()[:12]}"
    if any(STARTED <= path.stat().st_mtime <= time.time() for path in sources(module)):
        # A file was changed while it was read: the imported code may not be the text on disk.
        return _temporary_folder()
    refusals = []
    for parent in cache_parents():
        try:
            return _named_folder(parent, module, name)
        except OSError as e:
            refusals.append(str(e))
    if not _refusals:
        print(f"note: compiled code is not kept, every process compiles anew ({'; '.join(refusals)})", file=sys.stderr)
    _refusals.extend(refusals)
    return _temporary_folder()


def cache_parents() -> tuple[Path, ...]:
    """Return the folders that may hold the cache, the first choice first."""
    user = os.geteuid() if hasattr(os, "geteuid") else "cache"
    temporary = Path(gettempdir()) / f"fleetlab-compiled-{user}"
    try:
        home = Path(os.environ.get("XDG_CACHE_HOME") or Path.home() / ".cache")
    except RuntimeError:  # a user without a home
        return (BESIDE, temporary)
    return (BESIDE, home / "fleetlab", temporary)


def _named_folder(parent: Path, module: str, name: str) -> Path:
    """Return a folder of the cache that only this user can write to; make it if it is missing."""
    # Whoever owns the sources decides what is executed anyway.
    owners = (ROOT.stat().st_uid,) if parent == BESIDE else ()
    if parent == BESIDE:
        parent.mkdir(exist_ok=True)
    else:
        parent = make_private(parent)
    if why := distrust(parent, *owners):
        raise PermissionError(why)
    folder = parent / name
    if not folder.is_dir():
        for old in parent.glob(f"{module}-*"):
            if old.lstat().st_mtime < STARTED - MAX_AGE:  # a younger one may be in use by another version
                shutil.rmtree(old, ignore_errors=True)
        folder.mkdir(mode=0o700, exist_ok=True)
    if why := distrust(folder, *owners):
        raise PermissionError(why)
    if not os.access(folder, os.W_OK):
        msg = f"{folder}: not writable"
        raise PermissionError(msg)
    return folder


@contextmanager
def _exclusive(path: Path) -> Iterator[None]:
    """Hold a lock that other processes wait for. Calls have no cycles, so processes cannot wait for each other."""
    if fcntl is None:
        yield
        return
    with path.open("a") as file:
        fcntl.flock(file, fcntl.LOCK_EX)  # released when the file is closed
        yield


@contextmanager
def _quick() -> Iterator[None]:
    """Compile without vector loops and without collecting garbage: both take time and help nobody here.

    The compiler makes millions of small objects that live until it ends, and Python looks through them again and again.
    """
    before, collects = (config.LOOP_VECTORIZE, config.SLP_VECTORIZE), gc.isenabled()
    config.LOOP_VECTORIZE = config.SLP_VECTORIZE = 0
    gc.disable()
    try:
        yield
    finally:
        config.LOOP_VECTORIZE, config.SLP_VECTORIZE = before
        if collects:
            gc.enable()


def _shared(dispatcher: Any, folder: Path) -> Any:  # noqa: ANN401
    """Compile each function once for all processes, for types only, and without vector loops.

    Numba compiles a copy for each constant that it meets in a call, and tries to vectorize loops. These loops are all
    decisions, so neither makes them faster: without both, compilation takes half the time.
    """
    template, compiled = dispatcher.get_call_template, dispatcher.compile
    dispatcher.get_call_template = lambda args, kws: template(tuple(map(unliteral, args)), kws)
    function = dispatcher.py_func
    lock = folder / f"{function.__module__}.{function.__name__}.lock"

    def compile(sig: Any) -> Any:  # noqa: ANN401  numba's name
        args = sig.args if hasattr(sig, "args") else tuple(sig)
        if args in dispatcher.overloads:
            return compiled(sig)
        with _quick(), _exclusive(lock):
            return compiled(sig)  # looks into the cache first: another process may have compiled it meanwhile

    dispatcher.compile = compile
    return dispatcher


def cached(*, inlined: bool = False, **options: Any) -> Callable[[F], F]:  # noqa: ANN401
    """Compile with numba's `options` and this package's cache; `inlined`: copy the code into every caller."""
    options |= {"cache": True, "error_model": "numpy", "forceinline": inlined}  # else a callee takes its caller's

    def compiled(function: F) -> F:
        if config.DISABLE_JIT:
            return function
        before = config.CACHE_DIR
        folder = cache_folder(function.__module__.removeprefix(f"{PACKAGE}."))
        config.CACHE_DIR = str(folder)  # numba reads it when a function is decorated, and only then
        try:
            return _shared(numba.njit(**options)(function), folder)  # type: ignore[no-any-return]
        finally:
            config.CACHE_DIR = before

    return compiled


# A `loop` may create arrays, and several run at once in threads. A `step` may not: then the compiler counts no
# references to the arrays it is given, which took ten times as long as the step itself (60 ns, against 6 for a test of
# one node). `inner` ones are called by compiled code only, and compile in half the time. An `inline` step is copied
# into its callers: passing ten arrays took as long as the step. A `value` is passed to a loop as a value of one fixed
# type, so that the loop compiles once.
_INNER = {"no_cpython_wrapper": True, "no_cfunc_wrapper": True}
loop = cached(no_cfunc_wrapper=True, nogil=True)
step = cached(_nrt=False)
inner = cached(_nrt=False, **_INNER)
inline = cached(_nrt=False, inlined=True, **_INNER)
inner_loop = cached(**_INNER)
value = cached(no_cpython_wrapper=True)


class _Notice(Listener):
    """Print a notice when the first function of this package is compiled rather than loaded from the cache."""

    printed = False

    def on_start(self, event: Event) -> None:
        dispatcher = event.data["dispatcher"]
        if not _Notice.printed and dispatcher.py_func.__module__.startswith(PACKAGE):
            _Notice.printed = True
            print(NOTICE, file=sys.stderr)

    def on_end(self, event: Event) -> None:
        pass


@contextmanager
def compile_notice() -> Iterator[None]:
    """Print a notice if anything is compiled within."""
    with install_listener("numba:compile", _Notice()):
        yield
