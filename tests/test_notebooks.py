"""The notebooks of the documentation run in a real kernel and show what is committed."""

import json
import re

import pytest

nbformat = pytest.importorskip("nbformat")
pytest.importorskip("nbclient")
pytest.importorskip("ipykernel")

from docs import run_notebooks  # noqa: E402

NOTEBOOKS = sorted(run_notebooks.FOLDER.glob("*.ipynb"))


@pytest.mark.filterwarnings("ignore")  # of the kernel's client; the kernel has filters of its own
@pytest.mark.parametrize("path", NOTEBOOKS, ids=lambda p: p.stem)
def test_a_notebook_runs_and_shows_what_is_committed(path):
    committed, now = nbformat.read(path, as_version=4), run_notebooks.run(path)
    for before, after in zip(run_notebooks.code(committed), run_notebooks.code(now), strict=True):
        if run_notebooks.VARIES not in before.metadata.get("tags", []):
            assert run_notebooks.shown(after) == run_notebooks.shown(before), before.source


def test_there_are_five_notebooks_each_with_findings_and_figures():
    assert len(NOTEBOOKS) == 5
    for path in NOTEBOOKS:
        text = path.read_text("utf-8")
        assert "fleetlab-cell" in text
        assert "<svg" in text


@pytest.mark.parametrize("path", NOTEBOOKS, ids=lambda p: p.stem)
def test_a_notebook_was_run_from_top_to_bottom_without_errors(path):
    cells = run_notebooks.code(nbformat.read(path, as_version=4))
    assert [cell.execution_count for cell in cells] == list(range(1, len(cells) + 1))
    assert not [output for cell in cells for output in cell.outputs if output.output_type == "error"]


@pytest.mark.parametrize("path", NOTEBOOKS, ids=lambda p: p.stem)
def test_a_notebook_names_no_place_of_a_machine_and_leaves_nothing_out(path):
    cells = json.loads(path.read_text("utf-8"))["cells"]
    said = ["".join(cell["source"]) for cell in cells]
    said += [text for cell in cells for output in cell.get("outputs", []) for text in plain_texts(output)]
    for text in said:
        assert not re.search(r"(?<![\w.])/(home|root|tmp|work|Users)/", text)
        assert "..." not in text.replace("../", "")
        assert "…" not in text


def test_the_python_of_the_introduction_runs():
    text = (run_notebooks.FOLDER / "README.md").read_text("utf-8")
    (code,) = re.findall(r"^```python\n(.*?)^```$", text, re.MULTILINE | re.DOTALL)
    exec(compile(code, "README.md", "exec"), {})


def plain_texts(output):
    """Yield the texts of an output, without what is drawn: labels of figures are as long as there is room."""
    data = output.get("data", {"text/plain": output.get("text", "")})
    for kind, lines in data.items():
        text = "".join(lines)
        yield re.sub(r"<svg.*?</svg>|<style.*?</style>", "", text, flags=re.DOTALL) if kind == "text/html" else text
