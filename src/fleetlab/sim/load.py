"""From words to a policy: a built-in name, or `my_module:mine` for one of your own."""

from __future__ import annotations

import sys
from collections.abc import Iterable, Iterator
from contextlib import contextmanager
from importlib import import_module, invalidate_caches
from pathlib import Path
from traceback import extract_tb
from types import FunctionType, ModuleType

from fleetlab.core import FleetlabError, PolicyError
from fleetlab.core.word_spellings import is_of_user
from fleetlab.core.words import WORDS
from fleetlab.sim.orders import BY_NAME
from fleetlab.sim.policy import Ranking, order, placement

KINDS: dict[str, type[Ranking]] = {"order": order, "placement": placement}
WITH_ARTICLE = {"order": "an order", "placement": "a placement"}
ESTIMATES = frozenset({"estimate", "remaining"})  # what a policy sees of runtimes
_TEXTS: dict[str, tuple[Path, str]] = {}  # the files of imported modules of the user, as they were then


def load(words: str, kind: str) -> Ranking | str:
    """Return the policy at MODULE:NAME; a built-in order as a policy too, a built-in placement by its name.

    >>> load("sjf", "order")
    <order policy `sjf`>
    >>> load("best_fit", "placement")
    'best_fit'
    """
    words = WORDS[kind].read(words)
    module, colon, name = words.partition(":")
    if not colon:
        return BY_NAME.get(words, words) if kind == "order" else words
    return _policy_in(imported(module), name, kind)


def reads_estimates(policy: str | Ranking | FunctionType) -> bool:
    """Return whether an order of your own asks for estimated runtimes, by the names in its code.

    >>> reads_estimates(lambda s, job, now: s.estimate[job]), reads_estimates(lambda s, job, now: s.submit[job])
    (True, False)
    """
    ranking = load(policy, "order") if isinstance(policy, str) else policy
    code = getattr(getattr(ranking, "rank", ranking), "__code__", None)
    return code is not None and not ESTIMATES.isdisjoint(code.co_names)


def imported(module: str) -> ModuleType:
    """Import a module of the user, from the current folder first, as its file is now."""
    try:
        with _from_here() as here:
            _forget_changed(module, here)
            before = set(sys.modules)
            try:
                return import_module(module)
            finally:
                _TEXTS.update(_texts(set(sys.modules) - before, here))
    except FleetlabError:
        raise
    except ModuleNotFoundError as e:
        if e.name is None or not f"{module}.".startswith(f"{e.name}."):
            raise _on_import(module, e) from None
        msg = f"no module by that name: `{e.name}`"
        raise PolicyError(msg, hint=f"is {e.name.replace('.', '/')}.py in the current folder?") from None
    except (Exception, SystemExit) as e:
        raise _on_import(module, e) from None


@contextmanager
def _from_here() -> Iterator[Path]:
    """Look for modules in the current folder first, but only as long as this lasts.

    No bytecode is written: Python takes it for current where a file changes within a second and keeps its size.
    """
    here, bytecode = Path.cwd(), sys.dont_write_bytecode
    sys.path.insert(0, str(here))
    sys.dont_write_bytecode = True
    try:
        yield here
    finally:
        sys.path.remove(str(here))
        sys.dont_write_bytecode = bytecode


def _forget_changed(module: str, here: Path) -> None:
    """Let Python read modules again whose folder or files have changed: so workers read them too."""
    top = module.partition(".")[0]
    inside = (here / f"{top}.py", here / top / "__init__.py")
    loaded = _file(top)
    elsewhere = loaded is not None and is_of_user(top) and loaded not in inside and any(p.is_file() for p in inside)
    current = all(file.is_relative_to(here) and _text(file) == text for file, text in _TEXTS.values())
    if current and not elsewhere:
        return
    for name in [name for name in sys.modules if name in _TEXTS or (elsewhere and name.partition(".")[0] == top)]:
        del sys.modules[name]
    _TEXTS.clear()
    invalidate_caches()


def _texts(modules: Iterable[str], here: Path) -> dict[str, tuple[Path, str]]:
    files = {name: _file(name) for name in modules}
    own = {name: file for name, file in files.items() if file is not None and is_of_user(name, file)}
    return {name: (file, _text(file)) for name, file in own.items() if file.is_relative_to(here)}


def _file(module: str) -> Path | None:
    name = getattr(sys.modules.get(module), "__file__", None)
    return Path(name) if name else None


def _text(file: Path) -> str:
    return file.read_text("utf-8", "replace") if file.is_file() else ""


def _on_import(module: str, e: BaseException) -> PolicyError:
    at = e.lineno if isinstance(e, SyntaxError) else extract_tb(e.__traceback__)[-1].lineno
    msg = f"module `{module}` cannot be imported: {type(e).__name__}: {e}"
    hint = f"look at line {at} of what it runs; `python -c 'import {module}'` shows the way there"
    return PolicyError(msg, hint=hint)


def _policy_in(module: ModuleType, name: str, kind: str) -> Ranking:
    policy = getattr(module, name, None)
    if isinstance(policy, KINDS[kind]):
        return policy
    if isinstance(policy, FunctionType):
        return KINDS[kind](policy)
    if isinstance(policy, Ranking):
        msg = f"{module.__name__}:{name} is {WITH_ARTICLE[policy.kind]}, not {WITH_ARTICLE[kind]}"
        raise PolicyError(msg, hint=f"pass it as --{policy.kind}, or decorate it with `@{kind}`")
    mine = [word for word, value in vars(module).items() if isinstance(value, KINDS[kind])]
    what = "is not a policy" if hasattr(module, name) else "is not there"
    msg = f"{module.__name__}:{name} {what}"
    has = f"that module has {', '.join(mine)}" if mine else f"that module has no function with `@{kind}` above it"
    raise PolicyError(msg, hint=has)
