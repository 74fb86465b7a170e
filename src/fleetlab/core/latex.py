"""Tables as LaTeX, for a paper: `booktabs`, and nothing else beyond a plain document."""

from __future__ import annotations

import re

import polars as pl

from fleetlab.core.display import UNKNOWN, display_columns

ESCAPES = {
    "\\": r"\textbackslash{}", "&": r"\&", "%": r"\%", "$": r"\$", "#": r"\#", "_": r"\_", "{": r"\{", "}": r"\}",
    "~": r"\textasciitilde{}", "^": r"\textasciicircum{}", "<": r"\textless{}", ">": r"\textgreater{}",
    "|": r"\textbar{}", '"': r"\textquotedbl{}", "−": "$-$", "–": "--", "×": r"$\times$",
    "∞": r"$\infty$", "±": r"$\pm$",
    "²": r"\textsuperscript{2}", "≤": r"$\le$", "≥": r"$\ge$", "µ": r"$\mu$", "…": r"\dots{}", "’": "'",
}  # fmt: skip


def latex_text(text: str) -> str:
    r"""Return text as LaTeX shows it; what no font of a plain document has is a question mark.

    >>> latex_text("share of GPU_time: 5 % −3"), latex_text("a\nb")
    ('share of GPU\\_time: 5 \\% $-$3', 'a b')
    """
    flat = re.sub(r"\s+", " ", text)
    return "".join(ESCAPES.get(c, c if c.isascii() or (c.isalpha() and ord(c) < 0x180) else "?") for c in flat)


def latex_table(frame: pl.DataFrame, *, caption: str = "", label: str = "") -> str:
    r"""Return a table as LaTeX, with the texts of a page; with a caption or a label it floats.

    >>> print(latex_table(pl.DataFrame({"policy": ["a_b"], "mean wait": [90.0]})))
    \begin{tabular}{lr}
    \toprule
    policy & mean wait \\
    \midrule
    a\_b & 90 s \\
    \bottomrule
    \end{tabular}
    <BLANKLINE>
    """
    columns = display_columns(frame)
    texts = [[latex_text(text) if text != UNKNOWN else "--" for text in column.texts] for column in columns]
    rows = [" & ".join(row) + r" \\" for row in zip(*texts, strict=True)]
    lines = [
        rf"\begin{{tabular}}{{{''.join('r' if column.numeric else 'l' for column in columns) or 'l'}}}",
        r"\toprule",
        " & ".join(latex_text(column.name) for column in columns) + r" \\",
        r"\midrule",
        *rows,
        r"\bottomrule",
        r"\end{tabular}",
    ]
    if caption or label:
        above = [rf"\caption{{{latex_text(caption)}}}"] if caption else []
        above += [rf"\label{{{label}}}"] if label else []
        lines = [r"\begin{table}", r"\centering", *above, *lines, r"\end{table}"]
    return "\n".join(lines) + "\n"
