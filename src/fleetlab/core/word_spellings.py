"""How the values of words are written: as options, as what JSON and TOML can hold, as one piece of text."""

from __future__ import annotations

import ast
import json
import pickle
import re
import sys
from collections import deque
from collections.abc import Iterable, Mapping
from contextlib import suppress
from dataclasses import asdict
from dis import get_instructions
from hashlib import sha256
from pathlib import Path
from types import CodeType, FunctionType, ModuleType
from typing import Any

from fleetlab.core import events
from fleetlab.core.errors import FleetlabError
from fleetlab.core.events import Event, Recovery
from fleetlab.core.plugins import registered
from fleetlab.core.prices import Prices
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
    if isinstance(value, Prices):
        return value.to_values()
    if isinstance(value, Scheduler):
        own = getattr(value, "decides", None)  # an object of the user
        return scheduler_values(value) if own is None else getattr(value, "spelled", "") or Opaque(label(own))
    if isinstance(value, Event):
        return events.to_values(value)
    if isinstance(value, tuple | list):
        return [plain(v) for v in value]
    if isinstance(value, Mapping):
        return {str(k): plain(v) for k, v in value.items()}
    if value is None or isinstance(value, str | bool | int | float):
        return value
    return spelling(value) or Opaque(label(value))


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
    if getattr(module, name, None) in (policy, function):
        return f"{module.__name__}:{name}"
    names = [name for name, value in vars(module).items() if value is policy or value is function]
    return f"{module.__name__}:{names[0]}" if names else None  # what a factory made has the name of its variable


def label(value: Any) -> str:  # noqa: ANN401
    """Return what an object without a spelling is called: its name, what it was made with, and a digest of its code.

    >>> def factory(weight):
    ...     def patient(s, job, now):
    ...         return weight * s.submit[job]
    ...     return patient
    >>> label(factory(2.0)).rpartition("#")[0], label(factory(2.0)) == label(factory(3.0))
    ('<patient(weight=2.0)', False)
    """
    if hasattr(value, "to_frame"):
        return "<column>"
    of = _function(value) or type(value)
    if isinstance(of, FunctionType):
        code, cells = of.__code__, [_content(cell) for cell in of.__closure__ or ()]
        values = dict(zip(code.co_freevars, cells, strict=True))
        alone = "<" not in of.__qualname__ and not cells
    else:
        values, alone = _state(value), False
    simple = [f"{name}={v!r}" for name, v in values.items() if isinstance(v, SIMPLE)]
    made_with = f"({', '.join(simple)})" if simple else ""
    digest = "" if alone else f"#{sha256(fingerprint(value).encode()).hexdigest()[:4]}"
    # A digest tells two of one name apart, so the label stays short enough for a table.
    module = "" if digest or of.__module__ == "__main__" else f"{of.__module__}."
    return f"<{module}{of.__qualname__.rpartition('<locals>.')[2]}{made_with}{digest}>"


SIMPLE = (bool, int, float, str)
# Where methods, properties and what functools makes have the functions that they call, and with what.
WRAPPED = ("__func__", "__self__", "__wrapped__", "func", "args", "keywords", "fget", "fset", "fdel")


def fingerprint(value: Any) -> str:  # noqa: ANN401
    """Return what tells an object from others: its values, its code, and all code of the user that it calls.

    >>> import math
    >>> one, other = (eval(f"lambda s, job, now: s.estimate[job] * {k}") for k in (1, 2))
    >>> fingerprint(one) == fingerprint(one), fingerprint(one) == fingerprint(other)
    (True, False)
    """
    return repr(_printed(getattr(value, "decides", value), {}))


def policy_code(kind: str, value: Any) -> str | None:  # noqa: ANN401
    """Return the fingerprint of a policy or scheduler at MODULE:NAME; None where it cannot be imported, or is built in.

    >>> policy_code("order", "sjf"), policy_code("order", "no_such_module:mine")
    (None, None)
    """
    name = plain(value)
    if isinstance(name, Opaque) or not isinstance(name, str) or ":" not in name:
        return None
    if isinstance(value, str):
        (load,) = registered("own policy")
        try:
            value = load(value, kind)
        except FleetlabError:  # which its simulation reports
            return None
    return fingerprint(value)


def _printed(value: Any, numbers: dict[int, int]) -> Any:  # noqa: ANN401
    """Return plain values that tell `value` from others; `numbers` counts objects on the way, which may be circular."""
    if value is None or isinstance(value, (*SIMPLE, bytes, complex)):
        return value
    if id(value) in numbers:
        return f"seen {numbers[id(value)]}"
    numbers[id(value)] = len(numbers)
    if isinstance(value, ModuleType):
        return f"module {value.__name__}"
    if isinstance(value, CodeType):
        constants = [_printed(constant, numbers) for constant in value.co_consts]
        return (value.co_name, value.co_code.hex(), value.co_names, value.co_varnames, constants)
    function = _function(getattr(value, "py_func", value))
    if function is not None:
        return _printed_function(function, numbers)
    if type(value).__module__ in ("builtins", "functools") and not isinstance(value, type):
        parts = [getattr(value, name) for name in WRAPPED if hasattr(value, name)]
        if parts:
            name = getattr(value, "__qualname__", "")  # of what is in C, all there is
            return [type(value).__name__, name, *(_printed(part, numbers) for part in parts)]
    if isinstance(value, Mapping):
        return [(_printed(k, numbers), _printed(v, numbers)) for k, v in value.items()]
    if isinstance(value, tuple | list | deque):
        return [type(value).__name__, *(_printed(v, numbers) for v in value)]
    if isinstance(value, set | frozenset):
        return sorted(repr(_printed(v, numbers)) for v in value)
    if hasattr(value, "tobytes") and hasattr(value, "dtype"):
        return (str(value.dtype), sha256(value.tobytes()).hexdigest())
    of = value if isinstance(value, type) else type(value)
    name = f"{of.__module__}.{of.__qualname__}"
    if not is_of_user(of.__module__):
        return (name, getattr(value, "__name__", None) or (None if isinstance(value, type) else _plain_state(value)))
    methods = [(k, _printed(getattr(v, "__func__", v), numbers)) for k, v in vars(of).items() if not _is_internal(k)]
    bases = [_printed(base, numbers) for base in of.__bases__]
    return (name, methods, bases, [] if isinstance(value, type) else _printed(_state(value), numbers))


def _printed_function(function: FunctionType, numbers: dict[int, int]) -> Any:  # noqa: ANN401
    name = f"{function.__module__}.{function.__qualname__}"
    cells = [_printed(_content(cell), numbers) for cell in function.__closure__ or ()]
    defaults = _printed((function.__defaults__, function.__kwdefaults__), numbers)
    names = sorted(_names(function.__code__)) if is_of_user(function.__module__) else []
    used = [(k, _printed(function.__globals__[k], numbers)) for k in names if k in function.__globals__]
    modules = [v for k, v in function.__globals__.items() if k in names and isinstance(v, ModuleType)]
    inside = _imports(function.__code__) if names else ()  # which the function itself imports
    modules += [sys.modules[name] for name in inside if name in sys.modules]
    read: set[str] = set()
    while modules:
        module = modules.pop()
        if module.__name__ in read or not is_of_user(module.__name__):
            continue
        read.add(module.__name__)
        of_module = [(k, vars(module)[k]) for k in names if k in vars(module)]  # what the function may read of it
        modules += [v for _, v in of_module if isinstance(v, ModuleType)]
        used += [(f"{module.__name__}.{k}", _printed(v, numbers)) for k, v in of_module]
    return (name, _printed(function.__code__, numbers), cells, defaults, used)


def _names(code: CodeType) -> set[str]:
    inner = (constant for constant in code.co_consts if isinstance(constant, CodeType))
    return set(code.co_names).union(*(_names(each) for each in inner))


def _imports(code: CodeType) -> set[str]:
    inner = (constant for constant in code.co_consts if isinstance(constant, CodeType))
    own = {str(step.argval) for step in get_instructions(code) if step.opname == "IMPORT_NAME"}
    return own.union(*(_imports(each) for each in inner))


def is_of_user(module: str | None, file: Path | None = None) -> bool:
    """Whether a module is neither this package, nor of Python, nor installed: its code may change at any time."""
    if module is None:  # code that was executed from text
        return True
    top = module.partition(".")[0]
    if top in sys.stdlib_module_names or top == __name__.partition(".")[0]:
        return False
    file = file or Path(getattr(sys.modules.get(module), "__file__", None) or "")
    return top == "__main__" or not {"site-packages", "dist-packages"}.intersection(file.parts)


def _is_internal(name: str) -> bool:
    return name in ("__dict__", "__weakref__", "__module__", "__doc__", "__firstlineno__", "__static_attributes__")


def _state(value: Any) -> dict[str, Any]:  # noqa: ANN401
    slots = [name for of in type(value).__mro__ for name in getattr(of, "__slots__", ()) if hasattr(value, name)]
    return {name: getattr(value, name) for name in slots} | dict(getattr(value, "__dict__", {}))


def _plain_state(value: Any) -> str:  # noqa: ANN401
    """Return what an object of an installed package holds, without where it lies in memory."""
    try:
        return sha256(pickle.dumps(value)).hexdigest()
    except (pickle.PicklingError, TypeError, AttributeError):
        return re.sub(r" at 0x[0-9a-f]+", "", repr(value))


def _content(cell: Any) -> Any:  # noqa: ANN401
    try:
        return cell.cell_contents
    except ValueError:  # not filled yet
        return None


def exact(words: Mapping[str, Any]) -> dict[str, Any]:
    """Refuse words that have no spelling."""
    for name, value in words.items():
        if isinstance(value, Opaque):
            msg = f"`{name}` exists only in this process and cannot be written down: {value}"
            raise FleetlabError(msg, hint="name a file or a saved trace; a policy in a module is MODULE:NAME")
    return dict(words)
