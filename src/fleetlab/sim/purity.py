"""Reading a policy before it runs: is it a pure ranking, and can its answer change while a job waits?

Both are read off the bytecode, which is there for every function, also for one typed at a prompt. What is not known to
be harmless is refused, or taken to change.
"""

from __future__ import annotations

import builtins
import dis
import math
import sys
from collections.abc import Iterator
from types import CodeType, FunctionType, ModuleType
from typing import Any, NamedTuple

import numpy as np
from numba import config

from fleetlab.core import PolicyError

# What the state has that never changes while a job waits. Of jobs it is what the job itself brings: with others' rows
# its key would change when they arrive.
FIXED = ("gpus", "gpu_type", "capacity_cpu", "capacity_memory", "weights", "qos_priority", "parent", "level", "shares")
OWN = (
    "submit", "estimate", "instances", "cpu_milli", "memory_mib", "gpu_milli", "priority", "user", "limit", "qos",
    "partition_id", "account",
)  # fmt: skip
PURE = ("abs", "bool", "divmod", "float", "int", "len", "max", "min", "pow", "range", "round", "enumerate", "zip")
WRITES = ("sort", "partition", "fill", "put", "itemset", "setfield", "setflags", "resize", "byteswap")
SILENT = ("EXTENDED_ARG", "CACHE", "NOP", "RESUME", "PRECALL", "PUSH_NULL", "COPY_FREE_VARS", "NOT_TAKEN")
MAY = "a policy may use numbers, `math`, `@numba.njit` functions that are pure themselves, and what the state has"


class Step(NamedTuple):
    """One thing that a function does."""

    does: str  # as the bytecode says it, but local names loaded two at once come one by one
    name: Any


def steps(code: CodeType) -> list[Step]:
    """What a function does, one after the other."""
    return [step for i in dis.get_instructions(code) if i.opname not in SILENT for step in _apart(i)]


def _apart(i: dis.Instruction) -> Iterator[Step]:
    if "_FAST" in i.opname and isinstance(i.argval, tuple):
        verbs = [word for word in i.opname.split("_") if word in ("LOAD", "STORE")]
        yield from (Step(f"{verb}_FAST", name) for verb, name in zip(verbs, i.argval, strict=True))
    elif i.opname.startswith("LOAD_FAST"):
        yield Step("LOAD_FAST", i.argval)
    elif i.opname == "BINARY_OP" and i.argrepr == "[]":
        yield Step("BINARY_SUBSCR", None)
    else:
        yield Step("LOAD_ATTR" if i.opname == "LOAD_METHOD" else i.opname, i.argval)


# -- can its answer change while a job waits? ---------------------------------------------------------------------


def moves(rank: FunctionType, *, by_time: bool = True) -> bool:
    """Can the key that this order gives a job change while the job waits: by the time, or by all but the time?

    >>> moves(lambda s, job, now: s.estimate[job])
    False
    >>> moves(lambda s, job, now: s.estimate[job] - (now - s.submit[job]))
    True
    >>> moves(lambda s, job, now: s.estimate[job] - (now - s.submit[job]), by_time=False)
    False
    """
    code = rank.__code__
    names = code.co_varnames[:3]
    done = steps(code)
    if code.co_cellvars or any(step.does in ("MAKE_FUNCTION", "CALL_FUNCTION_EX") for step in done):
        return True
    return any(_may_move(done, k, names, by_time) for k in range(len(done)))


def _may_move(done: list[Step], k: int, names: tuple[str, ...], by_time: bool) -> bool:  # noqa: FBT001
    s, job, now = names
    step, then = done[k], [*done[k + 1 : k + 4], *[Step("", None)] * 3]
    if "FAST" not in step.does or step.name not in names:
        return False
    if step.does != "LOAD_FAST" or step.name == now:
        return by_time or step.does != "LOAD_FAST"
    if step.name != s:
        return False
    if then[0].does == "LOAD_ATTR" and then[0].name in OWN:
        return then[1] != ("LOAD_FAST", job) or then[2].does != "BINARY_SUBSCR"
    return then[0].does != "LOAD_ATTR" or then[0].name not in FIXED


# -- is it pure? ---------------------------------------------------------------------------------------------------


def must_be_pure(rank: FunctionType, who: str, *, read: tuple[FunctionType, ...] = ()) -> None:
    """Refuse a policy that could answer otherwise when asked again, or that does anything but answer.

    `read` are functions on the way here: one that calls itself is read once.
    """
    if rank in read:
        return
    outside = dict(zip(rank.__code__.co_freevars, rank.__closure__ or (), strict=True))
    values = {name: cell.cell_contents for name, cell in outside.items() if not _is_empty(cell)}
    _judge_code(rank.__code__, rank.__globals__, values, who, (*read, rank))


def _is_empty(cell: Any) -> bool:  # noqa: ANN401
    try:
        _ = cell.cell_contents
    except ValueError:
        return True
    return False


def _judge_code(
    code: CodeType, world: dict[str, Any], outside: dict[str, Any], who: str, read: tuple[FunctionType, ...]
) -> None:
    done = steps(code)
    for k, step in enumerate(done):
        if step.does.startswith(("IMPORT_", "STORE_GLOBAL", "DELETE_GLOBAL", "STORE_ATTR", "YIELD", "RETURN_GEN")):
            does = f"{_IN_WORDS[step.does]} `{step.name}`" if step.does in _IN_WORDS else "it yields"
            msg = f"{who} does more than answer: {does}"
            raise PolicyError(msg, hint=f"import at the top of the file and write nothing; {MAY}")
        if step.does == "LOAD_ATTR" and step.name in WRITES:
            msg = f"{who} writes: `.{step.name}` changes what it is asked of"
            raise PolicyError(msg, hint="the state is the simulator's: read it, and return a number")
        if step.does == "LOAD_GLOBAL" or (step.does == "LOAD_DEREF" and step.name in outside):
            _judge(*_resolved(done, k, world, outside, who), who, read)
    for inner in code.co_consts:
        if isinstance(inner, CodeType):
            _judge_code(inner, world, outside, who, read)


_IN_WORDS = {
    "IMPORT_NAME": "it imports",
    "IMPORT_FROM": "it imports",
    "STORE_GLOBAL": "it changes the global",
    "DELETE_GLOBAL": "it deletes the global",
    "STORE_ATTR": "it sets",
}


def _resolved(
    done: list[Step], k: int, world: dict[str, Any], outside: dict[str, Any], who: str
) -> tuple[str, Any]:  # fmt: skip
    """The thing from outside that is used at step `k`, through modules: `np.random.rand` is what that leads to."""
    name = str(done[k].name)
    names = outside if done[k].does == "LOAD_DEREF" else {**vars(builtins), **world}
    if name not in names:
        msg = f"{who} uses `{name}`, which is not defined"
        raise PolicyError(msg, hint="look at the spelling; names in a policy are those of its own file")
    value, path = names[name], name
    while isinstance(value, ModuleType) and k + 1 < len(done) and done[k + 1].does == "LOAD_ATTR":
        k += 1
        path = f"{path}.{done[k].name}"
        if value not in (math, np) and value.__name__ != "numpy.random":
            break
        if not hasattr(value, done[k].name):
            msg = f"{who} uses `{path}`, which is not there"
            raise PolicyError(msg, hint=f"look at the spelling; {MAY}")
        value = getattr(value, done[k].name)
    return path, value


def _judge(path: str, value: object, who: str, read: tuple[FunctionType, ...]) -> None:
    """Refuse a thing from outside whose answer may change; compiled code keeps what it was."""
    if _is_constant(value) or value is math or value is np or _is_pure_function(value):
        return
    # Without the compiler `@numba.njit` leaves a function as it is: then every function is taken for compiled.
    inner = value if getattr(config, "DISABLE_JIT", 0) and not _is_of_python(value) else getattr(value, "py_func", None)
    if isinstance(inner, FunctionType):
        must_be_pure(inner, who, read=read)
        return
    if isinstance(value, list | dict | set | bytearray | np.ndarray):
        what = "an array" if isinstance(value, np.ndarray) else f"a {type(value).__name__}"
        msg = f"{who} reads `{path}`, {what} that could change; compiled, it would keep what it was"
        raise PolicyError(msg, hint="make it a number or a tuple, or a parameter of a function that makes the policy")
    if isinstance(value, FunctionType) and not _is_of_python(value):
        msg = f"{who} calls `{path}`, which is not compiled"
        raise PolicyError(msg, hint="put `@numba.njit` above that function, or write it out in the policy")
    msg = f"{who} uses `{path}`, which is not known to give the same answer each time and to do nothing beside"
    raise PolicyError(msg, hint=MAY)


def _is_of_python(value: object) -> bool:
    return str(getattr(value, "__module__", "")).partition(".")[0] in sys.stdlib_module_names


def _is_constant(value: object) -> bool:
    if isinstance(value, tuple):
        return all(_is_constant(part) for part in value)
    return value is None or isinstance(value, int | float | str | np.generic)


def _is_pure_function(value: object) -> bool:
    if isinstance(value, np.ufunc):
        return True
    if isinstance(value, type) and issubclass(value, np.number | np.bool_ | Exception):
        return True
    name = getattr(value, "__name__", "")
    return (getattr(builtins, name, None) is value and name in PURE) or getattr(value, "__module__", None) == "math"
