"""Packages whose members are imported on first use, so that help does not pay for frames and compilers."""

from __future__ import annotations

import ast
import sys
from collections.abc import Mapping
from importlib import import_module
from pathlib import Path
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


def lazy(package: str, file: str) -> None:
    """Import what a package's own file imports under `if TYPE_CHECKING` when it is first used, and export it."""
    branches = [node for node in ast.parse(Path(file).read_text("utf-8")).body if isinstance(node, ast.If)]
    imports = [node for branch in branches for node in branch.body if isinstance(node, ast.ImportFrom)]
    module = sys.modules[package]
    members = {name.name: str(node.module) for node in imports for name in node.names}
    module.__dict__.update(_members=members, __all__=sorted(members), __dir__=lambda: sorted(members))
    module.__class__ = LazyPackage
