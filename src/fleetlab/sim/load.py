"""From words to a policy: a built-in name, or `my_module:mine` for one of your own."""

from __future__ import annotations

import sys
from collections.abc import Iterator
from contextlib import contextmanager
from importlib import import_module
from pathlib import Path
from traceback import extract_tb
from types import FunctionType, ModuleType

from fleetlab.core import FleetlabError, PolicyError
from fleetlab.core.words import WORDS
from fleetlab.sim.orders import BY_NAME
from fleetlab.sim.policy import Ranking, order, placement

KINDS: dict[str, type[Ranking]] = {"order": order, "placement": placement}
ESTIMATES = frozenset({"estimate", "remaining"})  # what a policy sees of runtimes


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
    return _policy_in(_imported(module), name, kind)


def reads_estimates(policy: str | Ranking | FunctionType) -> bool:
    """Return whether an order of your own asks for estimated runtimes, by the names in its code.

    >>> reads_estimates(lambda s, job, now: s.estimate[job]), reads_estimates(lambda s, job, now: s.submit[job])
    (True, False)
    """
    found = load(policy, "order") if isinstance(policy, str) else policy
    code = getattr(getattr(found, "rank", found), "__code__", None)
    return code is not None and not ESTIMATES.isdisjoint(code.co_names)


def _imported(module: str) -> ModuleType:
    try:
        with _from_here():
            return import_module(module)
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
def _from_here() -> Iterator[None]:
    """Look for modules in the current folder first, but only as long as this lasts."""
    here = str(Path.cwd())
    sys.path.insert(0, here)
    try:
        yield
    finally:
        sys.path.remove(here)


def _on_import(module: str, e: BaseException) -> PolicyError:
    at = e.lineno if isinstance(e, SyntaxError) else extract_tb(e.__traceback__)[-1].lineno
    msg = f"module `{module}` cannot be imported: {type(e).__name__}: {e}"
    return PolicyError(
        msg, hint=f"look at line {at} of what it runs; `python -c 'import {module}'` shows the way there"
    )


def _policy_in(module: ModuleType, name: str, kind: str) -> Ranking:
    found = getattr(module, name, None)
    if isinstance(found, KINDS[kind]):
        return found
    if isinstance(found, FunctionType):
        return KINDS[kind](found)
    if isinstance(found, Ranking):
        msg = f"{module.__name__}:{name} is an {found.kind}, not a {kind}".replace("an p", "a p").replace("a o", "an o")
        raise PolicyError(msg, hint=f"pass it as --{found.kind}, or decorate it with `@{kind}`")
    mine = [word for word, value in vars(module).items() if isinstance(value, KINDS[kind])]
    what = "is not a policy" if hasattr(module, name) else "is not there"
    msg = f"{module.__name__}:{name} {what}"
    has = f"that module has {', '.join(mine)}" if mine else f"that module has no function with `@{kind}` above it"
    raise PolicyError(msg, hint=has)
