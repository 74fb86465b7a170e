"""Packages whose members are imported on first use, so that help does not pay for frames and compilers."""

from __future__ import annotations

import sys
from collections.abc import Mapping
from importlib import import_module
from types import ModuleType
from typing import Any


class LazyPackage(ModuleType):
    """A package with members in other modules; a submodule never hides a member of the same name."""

    _members: Mapping[str, str]

    def __getattr__(self, name: str) -> Any:  # noqa: ANN401
        if name not in self._members:
            msg = f"module {self.__name__!r} has no attribute {name!r}"
            raise AttributeError(msg)
        value = getattr(import_module(self._members[name]), name)
        self.__dict__[name] = value
        return value

    def __setattr__(self, name: str, value: object) -> None:
        if not (isinstance(value, ModuleType) and name in self._members):
            super().__setattr__(name, value)


def lazy(package: str, members: Mapping[str, str]) -> None:
    """Give a package members, each by the module that it is imported from."""
    module = sys.modules[package]
    module.__dict__["_members"] = members
    module.__class__ = LazyPackage
