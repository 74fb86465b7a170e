"""Compilation: functions are compiled once, cached on disk, and compiled again when a source file has changed.

Numba keeps the cache beside the function's own file and checks that file alone, so a loop would go on calling old code
of another file. Here the cache folder is named after the text of the file and of every file that it imports from
packages with compiled loops, which are `sim` and `schedulers`; where the file lies does not count, so that clones and
environments of one user share what is compiled. A wheel brings compiled loops for any processor of its platform.
Processes that need the same function at the same time share one compilation: the first takes a lock, the others wait.
"""

from __future__ import annotations

import atexit
import gc
import json
import os
import re
import shutil
import sys
import time
from collections.abc import Callable, Iterator
from contextlib import contextmanager
from functools import cache, partial
from hashlib import sha256
from pathlib import Path
from tempfile import gettempdir, mkdtemp
from typing import Any, TypeVar

import numba
from numba.core import caching as numba_caching
from numba.core.event import Event, Listener, install_listener
from numba.core.runtime import rtsys
from numba.core.types import unliteral

from fleetlab.core.files import distrust, make_private
from fleetlab.core.progress import COMPILING, shown

try:
    import fcntl
except ImportError:  # not on Windows: there each process compiles for itself
    fcntl = None  # type: ignore[assignment]

config: Any = numba.config
caching: Any = numba_caching  # which has no types
F = TypeVar("F", bound=Callable[..., Any])

PROJECT = "fleetlab"
PACKAGES = ("sim", "schedulers")  # with compiled loops
PREFIXES = tuple(f"{PROJECT}.{name}" for name in PACKAGES)
ROOT = Path(__file__).parent
COMPILED = re.compile(r"^@(?:loop|step|inner|inline|inner_loop|value|cached)\b", re.M)
NOTICE = "compiling the simulator, once: half a minute (Slurm: two minutes)"  # fits 80 columns
BESIDE = ROOT / "__pycache__"
SHIPPED = ROOT.parent / "compiled"  # of a wheel
MANIFEST = "manifest.json"  # digests of its files
CATALOG = ROOT.parent / "core" / "catalog"
STARTED = time.time()
MAX_AGE = 7 * 86_400  # seconds: unused cache folders that are older are deleted
_refusals: list[str] = []  # why no folder can be used


def _file(module: str) -> Path:
    return ROOT.parent / f"{module.replace('.', '/')}.py"


@cache
def sources(module: str) -> frozenset[Path]:
    """Return the file of a module with compiled loops, as `sim.heap`, and those of all such modules that it imports."""
    text = _file(module).read_text("utf-8")
    imports = set()
    for name, members in re.findall(rf"^from {PROJECT}\.((?:{'|'.join(PACKAGES)})\b[\w.]*) import (.+)", text, re.M):
        imports |= {name, *(f"{name}.{member}" for member in members.split(", "))}
    catalogs = CATALOG.glob("*.py") if f"{PROJECT}.core.catalog" in text else ()  # codes are places in catalogs
    others = (sources(name) for name in imports - {module} if _file(name).is_file())
    return frozenset({_file(module), *catalogs}).union(*others)


@cache
def _temporary_folder() -> Path:
    path = Path(mkdtemp(prefix="fleetlab-"))
    atexit.register(shutil.rmtree, path, ignore_errors=True)
    return path


@cache
def cache_folder(module: str) -> Path:
    """Return where a module's compiled code is cached: in the user's cache, or beside the sources if not writable.

    The cache is executed: a folder into which others could have put files is not used.
    """
    name = folder_name(module)
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


@cache
def folder_name(module: str) -> str:
    """Return the name of the folder of a module's compiled code, which changes with any text that it comes from."""
    text = b"".join(
        path.read_bytes() for path in sorted(sources(module), key=lambda path: path.relative_to(ROOT.parent))
    )
    return f"{module}-{sha256(text + numba.__version__.encode()).hexdigest()[:12]}"


def cache_parents() -> tuple[Path, ...]:
    """Return the folders that may hold the cache, the first choice first: that of `FLEETLAB_COMPILED` if it is set."""
    if chosen := os.environ.get("FLEETLAB_COMPILED"):
        return (Path(chosen),)
    user = os.geteuid() if hasattr(os, "geteuid") else "cache"
    temporary = Path(gettempdir()) / f"fleetlab-compiled-{user}"
    try:
        home = Path(os.environ.get("XDG_CACHE_HOME") or Path.home() / ".cache")
    except RuntimeError:  # a user without a home
        return (BESIDE, temporary)
    return (home / "fleetlab", BESIDE, temporary)


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


class _Locator(caching._CacheLocator):  # type: ignore[misc]
    """Where the code of one function is kept: in a folder whose name is a digest of all text that it comes from."""

    def __init__(self, function: Any, folder: Path) -> None:  # noqa: ANN401
        self.folder, self.line = folder, function.__code__.co_firstlineno

    def get_cache_path(self) -> str:
        """Return the folder."""
        return str(self.folder)

    def get_source_stamp(self) -> str:
        """Return what changes with the sources."""
        return self.folder.name

    def get_disambiguator(self) -> str:
        """Return what tells functions of one name apart."""
        return str(self.line)


class _ShippedFile(caching.IndexDataCacheFile):  # type: ignore[misc]
    """The compiled code of one function in a wheel: what its manifest does not have is not there."""

    def _load_index(self) -> Any:  # noqa: ANN401
        return super()._load_index() if self._is_whole(self._index_name) else {}

    def _load_data(self, name: str) -> Any:  # noqa: ANN401
        if not self._is_whole(name):
            raise FileNotFoundError(name)
        return super()._load_data(name)

    def _is_whole(self, name: str) -> bool:
        path = Path(self._cache_path) / name
        expected = _manifest().get(f"{path.parent.name}/{name}")
        return expected is not None and path.is_file() and sha256(path.read_bytes()).hexdigest() == expected


@cache
def _manifest() -> dict[str, str]:
    path = SHIPPED / MANIFEST
    return json.loads(path.read_text("utf-8")) if path.is_file() else {}


class _Cache(caching.FunctionCache):  # type: ignore[misc]
    """The compiled code of one function: what the wheel brings for any processor, then what was compiled here."""

    def __init__(self, function: Any, folder: Path) -> None:  # noqa: ANN401
        def located(function: Any) -> Any:  # noqa: ANN401
            impl = caching.CompileResultCacheImpl.__new__(caching.CompileResultCacheImpl)
            impl._locator, impl._lineno = _Locator(function, folder), function.__code__.co_firstlineno
            impl._filename_base = impl.get_filename_base(function.__qualname__, sys.abiflags)
            return impl

        self._impl_class = located
        super().__init__(function)
        base = self._impl.filename_base
        self._shipped = _ShippedFile(str(SHIPPED / folder.name), base, folder.name) if _manifest() else None

    def load_overload(self, sig: Any, target_context: Any) -> Any:  # noqa: ANN401
        """Load compiled code without all that numba compiles with (half a second): a compilation loads it by itself."""
        rtsys.initialize(target_context)  # who allocates arrays
        with self._guard_against_spurious_io_errors():
            return self._load_overload(sig, target_context)

    def _load_overload(self, sig: Any, target_context: Any) -> Any:  # noqa: ANN401
        if self._shipped is not None:
            of_code, (triple, *_), code = self._index_key(sig, target_context.codegen())
            data = self._shipped.load((of_code, (triple, "generic", ""), code))
            if data is not None:
                return self._impl.rebuild(target_context, data)
        return super()._load_overload(sig, target_context)


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
    options |= {"error_model": "numpy", "forceinline": inlined}  # else a callee takes its caller's

    def compiled(function: F) -> F:
        if config.DISABLE_JIT:
            return function
        folder = cache_folder(function.__module__.removeprefix(f"{PROJECT}."))
        dispatcher = numba.njit(**options)(function)
        dispatcher._cache = _Cache(function, folder)
        return _shared(dispatcher, folder)  # type: ignore[no-any-return]

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
    """Say when the first function of this package is compiled rather than loaded, and then how many are."""

    def __init__(self) -> None:
        self.files: frozenset[Path] = frozenset()  # whose functions may have to be compiled
        self.known = self.done = 0  # functions

    def on_start(self, event: Event) -> None:
        module = event.data["dispatcher"].py_func.__module__
        if module.startswith(PREFIXES):
            if not self.known:
                print(NOTICE, file=sys.stderr)
            more = sources(module.removeprefix(f"{PROJECT}.")) - self.files
            self.known += sum(len(COMPILED.findall(path.read_text("utf-8"))) for path in more)
            self.files |= more

    def on_end(self, event: Event) -> None:
        if event.data["dispatcher"].py_func.__module__.startswith(PREFIXES):
            self.done += 1
            for progress in shown[-1:]:
                progress(COMPILING, self.done, self.done / self.known)


# Prints a notice if anything is compiled within, and shows how far that is.
compile_notice = partial(install_listener, "numba:compile", _Notice())
