"""What the tab key offers for a value: names of catalogs with their meaning, traces, files."""

from collections.abc import Callable, Iterator
from pathlib import Path
from typing import TYPE_CHECKING

from fleetlab.core.words import Word

if TYPE_CHECKING:
    from cyclopts.completion import CompletionContext

Completer = Callable[["CompletionContext"], dict[str, str]]
BUILT_IN = {"builtin": "the built-in synthetic trace"}  # with a number of jobs, bash would break it at the colon


def values_of(word: Word) -> Completer | None:
    """Return what completes a word of a scenario: the names of its catalog, and files where it may name one."""
    if word.menu is None and not word.local:
        return None

    def values(context: "CompletionContext") -> dict[str, str]:
        menu = {} if word.menu is None else {one.name: getattr(one, "meaning", "") for one in word.menu}
        return menu | (_paths(context.incomplete) if word.local else {})

    return values


def traces(context: "CompletionContext") -> dict[str, str]:
    """Return the built-in trace, saved traces, and folders on the way to one."""
    folders = [path for path in _found(context.incomplete) if path.is_dir()]
    saved = {f"{path}": "a saved trace" for path in folders if (path / "trace.json").is_file()}
    others = {f"{path}/": "" for path in folders if f"{path}" not in saved}
    return BUILT_IN | saved | others


def _paths(begun: str) -> dict[str, str]:
    return {f"{path}/" if path.is_dir() else f"{path}": "" for path in _found(begun)}


def _found(begun: str) -> Iterator[Path]:
    """Return the files and folders whose path begins so; hidden ones where a dot was typed."""
    folder, _, name = begun.rpartition("/")
    where = Path(f"{folder}/" if begun.startswith("/") else folder or ".").expanduser()
    try:
        found = sorted(where.iterdir()) if where.is_dir() else []
    except OSError:  # not ours to look into
        return
    for path in found:
        if path.name.startswith(name) and (name.startswith(".") or not path.name.startswith(".")):
            yield Path(folder or ("/" if begun.startswith("/") else ""), path.name)
