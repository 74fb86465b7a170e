"""Where each file of the repository is in the site."""

from __future__ import annotations

import re
from collections.abc import Sequence
from functools import cache
from pathlib import Path
from posixpath import normpath, relpath
from typing import Any

ROOT = Path(__file__).parents[2]
DOCS = ROOT / "docs"
PROJECT = ("CONTRIBUTING.md", "DESIGN.md", "CHANGELOG.md")
PAGES = (".md", ".ipynb")
LINK = re.compile(r"(?<=\]\()(?!\w+:|#)([^)#\s]+)")


def menu(entry: Any, made: Sequence[str]) -> Any:
    """Return an entry of the menu with the pages of its folders, those that are made too; None if there are none."""
    if isinstance(entry, str):
        return folder(entry, made) if entry.endswith("/") else entry
    if isinstance(entry, list):
        return [part for part in (menu(part, made) for part in entry) if part]
    (title, value), *_ = entry.items()
    pages = menu(value, made)
    return {title: pages} if pages else None


def folder(name: str, made: Sequence[str]) -> list[str]:
    """List the pages of a folder, README.md first; folders in it follow."""
    written = [p.relative_to(DOCS).with_suffix(".md") for p in (DOCS / name).rglob("*") if p.suffix in PAGES]
    pages = written + [Path(page) for page in made if page.startswith(name)]
    pages.sort(key=lambda p: (len(p.parts), p.name != "README.md", str(p)))
    return [str(p) for p in pages]


def site_path(path: str) -> str | None:
    """Return where a path of the repository is in the site; None if there is no such file."""
    found = ROOT / path
    if found.is_dir():
        inner = "README.md" if (found / "README.md").exists() else "files.md"
        return site_path(f"{path}/README.md") if inner == "README.md" else f"{in_docs(path)}/{inner}"
    if not found.exists():
        return None
    return in_docs(path).removesuffix(".ipynb") + ".md" if path.endswith(".ipynb") else in_docs(path)


def in_docs(path: str) -> str:
    """Return a path of the repository as one of the site: docs/ is its root, the rest is in project/."""
    return path.removeprefix("docs/") if path.startswith("docs/") else f"project/{path}"


def repository_path(name: str) -> str:
    """Return the path in the repository of what is at a place of the site."""
    return name.removeprefix("project/") if name.startswith("project/") else f"docs/{name}"


def targets(text: str, name: str) -> dict[str, str]:
    """Return the links of a page of the site, each with its path in the repository."""
    here = Path(repository_path(name)).parent
    return {link: normpath(str(here / link)) for link in LINK.findall(text)}


def relink(text: str, name: str) -> str:
    """Write the links of a page as the site has them."""
    here = str(Path(name).parent)

    def site_link(match: re.Match[str]) -> str:
        place = site_path(targets(f"]({match[0]})", name)[match[0]])
        return match[0] if place is None else relpath(place, here)

    return LINK.sub(site_link, text)


@cache
def repository_links() -> frozenset[str]:
    """Return the paths of the repository that any page leads to."""
    pages = {str(p.relative_to(DOCS)): p for p in DOCS.rglob("*.md")} | {f"project/{n}": ROOT / n for n in PROJECT}
    return frozenset(path for name, file in pages.items() for path in targets(file.read_text("utf-8"), name).values())


def outside() -> dict[str, Path]:
    """Return the files outside of docs/ that are in the site: pages of the project, and what a page leads to."""
    linked = [path for path in repository_links() if not path.startswith("docs") and (ROOT / path).is_file()]
    return {f"project/{name}": ROOT / name for name in sorted({*PROJECT, *linked})}


def listings() -> dict[str, str]:
    """Return a page for each folder without a page of its own that another leads to: its files."""
    folders = [p for p in sorted(repository_links()) if (ROOT / p).is_dir() and not (ROOT / p / "README.md").exists()]
    return {f"{in_docs(path)}/files.md": listing(ROOT / path) for path in folders}


def listing(path: Path) -> str:
    """Return a page with the files of a folder."""
    names = sorted(str(p.relative_to(path)) for p in path.rglob("*") if p.is_file())
    rows = [f"- [{name}]({name})" for name in names]
    return "\n".join([f"# {path.name}", "", "The files of this folder, as they were recorded:", "", *rows, ""])
