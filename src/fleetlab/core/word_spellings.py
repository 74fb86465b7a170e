"""How the values of words are written: as options, as what JSON and TOML can hold, as one piece of text."""

from __future__ import annotations

import ast
import json
import re
import sys
from collections.abc import Iterable, Mapping
from contextlib import suppress
from dataclasses import asdict
from types import FunctionType
from typing import Any

from fleetlab.core import events
from fleetlab.core.errors import FleetlabError
from fleetlab.core.events import Event, Recovery
from fleetlab.core.prices import Prices
from fleetlab.core.queue_rules import Queues
from fleetlab.core.schedulers import Scheduler, scheduler_values

ASSIGNED = re.compile(r"(?<!\S)(--\S+ )?`?(\w+)=(\{[^}]*\}|\([^)]*\)|\[[^]]*\]|'[^']*'|[^\s,;:`]+)`?")


def as_options(message: str, names: Iterable[str]) -> str:
    """Return a message with keyword arguments spelled as options of the command line.

    >>> as_options("load=1.2 for 20 % more, quota={'ada': 16}, preemption=True; leave `until` out",
    ...            ["load", "quota", "preemption", "until"])
    '--load 1.2 for 20 % more, --quota ada=16, --preemption; leave --until out'
    """
    options = {name.replace("-", "_"): f"--{name.replace('_', '-')}" for name in names}

    def named(match: re.Match[str]) -> str:
        return options.get(match[1], match[0])

    def spelled(match: re.Match[str]) -> str:
        before, name, value = match.groups()
        if before or name not in options:
            return match[0]
        with suppress(ValueError, SyntaxError):  # a word such as easy, or a path
            value = ast.literal_eval(value)
        return options[name] if value is True else f"{options[name]} {_option_value(value)}"

    # A name in backquotes is an argument where a message begins with it, says what it does, or to leave it out; else it
    # is a value.
    text_ = re.sub(
        r"^`\w+`|`\w+` (takes|raises)|or by `\w+`|leave .* out",
        lambda part: re.sub(r"`(\w+)`", named, part[0]),
        message,
    )
    return ASSIGNED.sub(spelled, text_)


def _option_value(value: object) -> str:
    if isinstance(value, dict):
        return ",".join(f"{k}={v}" for k, v in value.items())
    return ",".join(map(str, value)) if isinstance(value, tuple | list) else str(value)


class Opaque(str):
    """The label of a value that has no spelling: an object that exists only in this process."""

    __slots__ = ()


def plain(value: Any) -> Any:  # noqa: ANN401
    """Return what JSON and TOML can hold; a value without a spelling becomes an `Opaque` label."""
    if isinstance(value, Recovery):
        return {k: v for k, v in asdict(value).items() if v}
    if isinstance(value, Prices | Queues):
        return value.to_values()
    if isinstance(value, Scheduler):
        return scheduler_values(value)
    if isinstance(value, Event):
        return events.to_values(value)
    if isinstance(value, tuple | list):
        return [plain(v) for v in value]
    if isinstance(value, Mapping):
        return {str(k): plain(v) for k, v in value.items()}
    if value is None or isinstance(value, str | bool | int | float):
        return value
    return spelling(value) or Opaque(_label(value))


def text(value: Any) -> str:  # noqa: ANN401
    """Return a value as one piece of text, which `read` understands."""
    if isinstance(value, str):
        return value
    if isinstance(value, float) and value.is_integer() and abs(value) < 2**53:
        return str(int(value))
    if isinstance(value, list) and all(isinstance(v, float) for v in value):
        return ",".join(map(repr, value))
    return json.dumps(value, ensure_ascii=False, separators=(",", ":"))


def _function(policy: Any) -> FunctionType | None:  # noqa: ANN401
    function = getattr(policy, "rank", policy)
    return function if isinstance(function, FunctionType) else None


def spelling(policy: Any) -> str | None:  # noqa: ANN401
    """Return MODULE:NAME of a policy that can be imported so, NAME of a built-in one, None of any other."""
    function = _function(policy)
    module = sys.modules.get(function.__module__) if function else None
    if function is None or module is None or module.__name__ == "__main__":
        return None
    name = function.__name__
    if getattr(module, "BY_NAME", {}).get(name) is policy:
        return name
    return f"{module.__name__}:{name}" if getattr(module, name, None) in (policy, function) else None


def _label(value: Any) -> str:  # noqa: ANN401
    function = _function(value)
    if function is not None:
        module = "" if function.__module__ == "__main__" else f"{function.__module__}."  # of a notebook, or a script
        return f"<{module}{function.__qualname__}>"
    return "<column>" if hasattr(value, "to_frame") else repr(value)


def fingerprint(policy: Any) -> str:  # noqa: ANN401
    """Return what tells a policy without a spelling from others: its code and the values that it closes over."""
    function = _function(policy)
    if function is None:
        return repr(policy)
    code = function.__code__
    constants = [c for c in code.co_consts if not hasattr(c, "co_code")]
    cells = [cell.cell_contents for cell in function.__closure__ or ()]
    return repr((function.__qualname__, code.co_code.hex(), code.co_names, constants, cells))


def exact(words: Mapping[str, Any]) -> dict[str, Any]:
    """Refuse words that have no spelling."""
    for name, value in words.items():
        if isinstance(value, Opaque):
            msg = f"`{name}` exists only in this process and cannot be written down: {value}"
            raise FleetlabError(msg, hint="name a file or a saved trace; a policy in a module is MODULE:NAME")
    return dict(words)
