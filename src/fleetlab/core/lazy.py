"""Packages whose members are imported on first use, so that help does not pay for frames and compilers."""

from __future__ import annotations

import sys
from importlib import import_module
from types import ModuleType
from typing import Any


class LazyPackage(ModuleType):
    """A package with members in other modules; a submodule never hides a member of the same name."""

    def __getattr__(self, name: str) -> Any:  # noqa: ANN401
        if name == "_members":
            members = self.__dict__["_members"] = _members(str(self.__file__))
            return members
        if name == "__all__":
            return sorted(self._members)
        if name not in self._members:
            raise AttributeError(f"module {self.__name__!r} has no attribute {name!r}")
        value = getattr(import_module(self._members[name]), name)
        self.__dict__[name] = value
        return value

    def __dir__(self) -> list[str]:
        return sorted(self._members)

    def __setattr__(self, name: str, value: object) -> None:
        if not (isinstance(value, ModuleType) and name in self._members):
            super().__setattr__(name, value)


def _members(file: str) -> dict[str, str]:
    """Return what a package's own file imports under `if TYPE_CHECKING`, each with its module."""
    with open(file, encoding="utf-8") as lines:  # noqa: PTH123  `pathlib` and `ast` take longer than the rest
        words = [line.split() for line in lines if line.startswith("    from ")]
    return {name: module for _, module, _, name, *_ in words}


def lazy(package: str) -> None:
    """Import what a package's own file imports under `if TYPE_CHECKING` when it is first used, and export it."""
    sys.modules[package].__class__ = LazyPackage
