"""Tables as LaTeX: every character is one that a plain document compiles, and every row has all columns."""

import re
import shutil
import subprocess

import polars as pl
import pytest
from hypothesis import given
from hypothesis import strategies as st

import fleetlab
from fleetlab.core.latex import latex_table, latex_text

COMMAND = re.compile(r"\\(text[a-z]+\{\}|textsuperscript\{2\}|dots\{\}|[&%$#_{}])|\$(-|\\[a-z]+)\$")


@given(st.text())
def test_no_text_has_a_character_that_means_something_to_latex(text):
    plain = COMMAND.sub("", latex_text(text))
    assert not set(plain) & set('\\&%$#_{}~^<>|"\n')
    assert all(c.isascii() or c.isalpha() for c in plain)


@given(st.lists(st.tuples(st.text(), st.floats(), st.booleans()), max_size=4))
def test_every_row_has_all_columns(rows):
    frame = pl.DataFrame(rows, ["a & b", "mean wait", "c"], orient="row", schema_overrides={"a & b": pl.String})
    lines = latex_table(frame, caption="5 % of all", label="tab:all").splitlines()
    assert lines[:4] == [r"\begin{table}", r"\centering", r"\caption{5 \% of all}", r"\label{tab:all}"]
    assert lines[-2:] == [r"\end{tabular}", r"\end{table}"]
    for line in [lines[6], *lines[8:-3]]:
        assert line.endswith(r" \\")
        assert len(re.findall(r"(?<!\\)&", line)) == 2
    assert len(lines[8:-3]) == len(rows)


def test_a_result_gives_any_of_its_tables():
    result = fleetlab.simulate("builtin:200", load=20)
    table = result.to_latex("allocation", caption="Allocation by GPU type")
    assert table.count(r" \\") == 1 + result.tables()["allocation"].height
    assert r"\toprule" in table
    with pytest.raises(fleetlab.WorkloadError, match="nowhere"):
        result.to_latex("nowhere")


@pytest.mark.skipif(shutil.which("pdflatex") is None, reason="needs pdflatex")
def test_it_compiles(tmp_path):
    result = fleetlab.simulate("builtin:200", load=20)
    tables = "\n".join(result.to_latex(name, caption=name) for name in (*result.tables(), "summary"))
    text = f"\\documentclass{{article}}\\usepackage{{booktabs}}\\begin{{document}}{tables}\\end{{document}}"
    (tmp_path / "t.tex").write_text(text)
    subprocess.run(["pdflatex", "-halt-on-error", "t.tex"], cwd=tmp_path, check=True, capture_output=True, timeout=60)
