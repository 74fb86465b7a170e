"""The analysis as plain text."""

from __future__ import annotations

import textwrap

import polars as pl

from fleetlab.bench.analysis.advice import by_kind, by_mix
from fleetlab.bench.analysis.result import REHEARSAL, Analysis
from fleetlab.bench.analysis.serving import by_serving
from fleetlab.bench.analysis.wording import number

WIDE = 110
# The most important columns of each table; the CSV files have all.
SHOWN = {
    "mixes": ("mix", "mode", "blocks", "stp", "stp_low", "stp_high", "worst", "antt", "p95_times", "energy_times"),
    "scale": ("tenant", "mode", "tenants", "rate", "unit", "percentile", "tail_ms", "times", "state"),
    "curve": ("tenant", "sms", "progress", "progress_low", "progress_high"),
    "serving": ("served", "background", "mode", "offered", "p50_ms", "p99_ms", "p99_ms_low", "p99_ms_high", "valid"),
    "costs": ("tenant", "mode", "tenants", "unit", "gpu_s_per_1000", "joules_an_item", "cost_per_1000"),
    "failures": ("suite", "cell", "mode", "kind", "detail"),
}


def brief_text(found: Analysis) -> str:
    """Summary, answers and recommendations, for a terminal."""
    return "\n\n".join(_brief(found)) + "\n"


def full_text(found: Analysis) -> str:
    """The same, with the main tables."""
    parts = _brief(found)
    for name, columns in SHOWN.items():
        frame = found.tables()[name]
        if frame.height:
            parts.append(f"{name.upper()}\n{_table(frame.select(c for c in columns if c in frame.columns))}")
    p = found.provenance
    how = ", ".join(f"{key} {value}" for key, value in p.settings.items() if value is not None)
    parts.append(f"{p.verb}, fleetlab {p.version}: {p.source}; {how}")
    return "\n\n".join(parts) + "\n"


def _brief(found: Analysis) -> list[str]:
    loud = [f"*** {REHEARSAL} ***"] if found.facts.gathered.rehearsal else []
    answers = [
        "\n".join([f"{k}. {a.question}", *(_item(line, "   ") for line in a.lines())])
        for k, a in enumerate(found.answers(), 1)
    ]
    return [
        *loud,
        "SUMMARY\n" + "\n".join(_item(line) for line in found.headline()),
        "SIX QUESTIONS\n\n" + "\n\n".join(answers),
        "RECOMMENDED MODES\n" + (_choices(found) or _item("not measured: no mix was measured in two modes")),
        "NOTES\n" + "\n".join(_item(note) for note in found.notes),
    ]


UNITS = {"throughput": "GPUs", "fair": "of its progress alone", "latency": "times alone"}


def _choices(found: Analysis) -> str:
    """One line per mix and goal."""
    x = found.facts.mixes
    each = [(a, UNITS[a.goal]) for a in [*by_kind(x), *by_mix(x)]]
    each += [(a, "ms") for a in by_serving(found.facts.served_tenants, x.noise)]
    lines, last = [], None
    for a, unit in each:
        if a.of != last:
            lines.append(f"{_plain(a.of)}:")
            last = a.of
        lines.append(_item(f"{a.goal}: {a.sentence()}; {number(a.value)} {unit}", "    "))
    return "\n".join(lines)


def _item(line: str, indent: str = "") -> str:
    first, rest = f"{indent}- ", f"{indent}  "
    return textwrap.fill(_plain(line), WIDE, initial_indent=first, subsequent_indent=rest, break_on_hyphens=False)


def _plain(line: str) -> str:
    """Replace control characters: names come from files."""
    return "".join(c if c.isprintable() else "?" for c in line)


def _table(frame: pl.DataFrame) -> str:
    with pl.Config(
        tbl_formatting="ASCII_MARKDOWN",
        tbl_rows=-1,
        tbl_cols=-1,
        tbl_width_chars=200,
        fmt_str_lengths=60,
        float_precision=3,
        tbl_hide_dataframe_shape=True,
        tbl_hide_column_data_types=True,
        tbl_cell_numeric_alignment="RIGHT",
    ):
        return "\n".join(_plain(line) for line in str(frame).splitlines())
