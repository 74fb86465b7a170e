"""What is registered under a name: an object of a module, or one that another package brings as an entry point.

A package that needs what one above it has asks for it by the name of an extension point. `fleetlab/__init__.py`, above
them all, says what stands there; a package below names none above it.
"""

from __future__ import annotations

from functools import cache
from importlib import import_module
from typing import TYPE_CHECKING, Any

if TYPE_CHECKING:
    from importlib.metadata import EntryPoint

_ADDRESSES: dict[str, tuple[str, ...]] = {}  # by extension point


def register(point: str, *addresses: str) -> None:
    """Say what stands at an extension point; it is imported when it is first asked for."""
    _ADDRESSES[point] = addresses


def registered(point: str) -> list[Any]:
    """Return what stands at an extension point.

    >>> register("example", "json:dumps", "json:loads")
    >>> [one.__name__ for one in registered("example")]
    ['dumps', 'loads']
    """
    return [load(address) for address in _ADDRESSES[point]]


def load(address: str) -> Any:  # noqa: ANN401
    """Return the object at an address such as `package.module:name`.

    >>> load("fleetlab.core.plugins:load") is load
    True
    """
    module, _, name = address.partition(":")
    return getattr(import_module(module), name)


@cache
def others(group: str) -> dict[str, EntryPoint]:
    """Return what installed packages bring under a group of entry points, by name."""
    from importlib.metadata import entry_points

    return {one.name: one for one in entry_points(group=group)}
