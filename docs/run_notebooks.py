"""Run the notebooks of the documentation in a kernel of their own, and keep what they show: `make notebooks`."""

from __future__ import annotations

import re
import sys
from pathlib import Path

import nbformat
from nbclient import NotebookClient
from nbformat import NotebookNode

FOLDER = Path(__file__).parent / "notebooks"
SECONDS = 600  # of a cell: the first compiles the simulator, where nothing is cached
VERSION = re.compile(r"\bfleetlab \d[\w.]*")
VARIES = "varies"  # the tag of a cell whose output depends on the speed of the machine


def run(path: Path) -> NotebookNode:
    """Return a notebook with the outputs of this run."""
    notebook = nbformat.read(path, as_version=4)
    NotebookClient(notebook, timeout=SECONDS, kernel_name="python3", resources={"metadata": {"path": FOLDER}}).execute()
    return plain(notebook)


def plain(notebook: NotebookNode) -> NotebookNode:
    """Leave out what another run would have differently: progress on stderr, times of cells, versions of Python."""
    notebook.metadata = nbformat.from_dict(
        {"kernelspec": {"display_name": "Python 3", "language": "python", "name": "python3"}}
    )
    for cell in code(notebook):
        cell.metadata.pop("execution", None)
        cell.outputs = [output for output in cell.outputs if output.get("name") != "stderr"]
    return notebook


def code(notebook: NotebookNode) -> list[NotebookNode]:
    """Return the cells of code."""
    return [cell for cell in notebook.cells if cell.cell_type == "code"]


def shown(cell: NotebookNode) -> list[dict[str, str]]:
    """Return what a cell shows by its kind of content, whatever version of fleetlab did."""
    outputs = [output.get("data") or {"text/plain": output.get("text", "")} for output in cell.outputs]
    return [{kind: VERSION.sub("fleetlab", str(text)) for kind, text in data.items()} for data in outputs]


def main() -> None:
    """Run all notebooks, or those that are named, and write them with what they show."""
    for path in map(Path, sys.argv[1:] or sorted(FOLDER.glob("*.ipynb"))):
        print(path.name, file=sys.stderr, flush=True)
        nbformat.write(run(path), path)


if __name__ == "__main__":
    main()
