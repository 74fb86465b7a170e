"""Run notebooks cell by cell in this process, without a kernel, and keep what they show.

`python -m benchmarks.notebooks docs/notebooks/reproduce/gpu-sharing.ipynb` runs one in its folder and writes its
outputs into it; with --folder DIR it runs there, where the data are.
"""

from __future__ import annotations

import ast
import json
import os
import sys
from contextlib import redirect_stdout
from io import StringIO
from pathlib import Path
from typing import Any

SHOWN = {"image/svg+xml": "_repr_svg_", "text/html": "_repr_html_"}


def executed(path: Path) -> dict[str, Any]:
    """Return the notebook with the outputs of its cells, run in the working folder."""
    notebook = json.loads(path.read_text("utf-8"))
    names: dict[str, Any] = {"__name__": "__main__"}
    count = 0
    for cell in notebook["cells"]:
        if cell["cell_type"] == "code":
            count += 1
            cell["execution_count"] = count
            cell["outputs"] = outputs("".join(cell["source"]), names, count)
    return notebook


def outputs(source: str, names: dict[str, Any], count: int) -> list[dict[str, Any]]:
    """Run one cell; what it prints, and the value of its last line."""
    tree = ast.parse(source)
    last = tree.body.pop() if tree.body and isinstance(tree.body[-1], ast.Expr) else None
    said, value = StringIO(), None
    with redirect_stdout(said):
        exec(compile(tree, "<cell>", "exec"), names)
        if isinstance(last, ast.Expr):
            value = eval(compile(ast.Expression(last.value), "<cell>", "eval"), names)
    found: list[dict[str, Any]] = []
    if said.getvalue():
        found.append({"name": "stdout", "output_type": "stream", "text": said.getvalue().splitlines(keepends=True)})
    if value is not None:
        found.append({"data": _data(value), "execution_count": count, "metadata": {}, "output_type": "execute_result"})
    return found


def _data(value: object) -> dict[str, list[str]]:
    rich = {kind: getattr(value, name)() for kind, name in SHOWN.items() if hasattr(value, name)}
    return {kind: text.splitlines(keepends=True) for kind, text in {**rich, "text/plain": repr(value)}.items()}


def write(path: Path, folder: Path | None = None) -> None:
    """Run a notebook and write its outputs into it."""
    path = path.resolve()
    os.chdir(folder or path.parent)
    path.write_text(json.dumps(executed(path), indent=1, ensure_ascii=False) + "\n", "utf-8")


if __name__ == "__main__":
    words = sys.argv[1:]
    there = Path(words.pop(words.index("--folder") + 1)).resolve() if "--folder" in words else None
    for word in (w for w in words if w != "--folder"):
        write(Path(word), there)
