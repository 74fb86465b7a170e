"""Language models and notebooks over all suites: by mode, number of servers or users, and neighbors."""

from __future__ import annotations

from collections import defaultdict
from collections.abc import Iterable, Iterator
from typing import Any

import polars as pl

from fleetlab.bench.analysis.folders import BASELINE
from fleetlab.bench.analysis.modes import mode_name, mode_order
from fleetlab.bench.analysis.suite_data import SuiteData
from fleetlab.bench.analysis.wording import count_noun
from fleetlab.bench.results.cells import Cell, table
from fleetlab.bench.results.llm import LLM, rows_llm
from fleetlab.bench.results.notebook import NOTEBOOK, rows_notebook

ENOUGH = 0.9  # fraction of requests within the goals; named in the finding


def _cells(g: SuiteData, mix: str | None = None) -> list[Cell]:
    """Cells by mode; the mode has the limits of the tenants, so their names need none. Or those of a mix, and alone."""
    here = [m for m in g.meetings if mix in (None, m.mix) or len(m.tenants) == 1]
    return [{"stage": m.mode, "tenants": [t.about | {"seat": t.name} for t in m.tenants]} for m in here]


def llm_table(g: SuiteData) -> pl.DataFrame:
    """Servers of language models: TTFT, TPOT and goodput."""
    rows = sorted(
        rows_llm(_cells(g)), key=lambda r: (r["beside"] != "", r["servers"], r["beside"], mode_order(r["stage"]))
    )
    return table(rows, LLM).rename({"stage": "mode"})


def notebook_table(g: SuiteData, mix: str | None = None) -> pl.DataFrame:
    """Users of notebooks, or those of a mix: time to answer, over that of one user alone without MPS."""
    rows = rows_notebook(_cells(g, mix), baseline=BASELINE)
    return table(
        sorted(rows, key=lambda r: (r["beside"], r["users"], mode_order(r["stage"]), r["cell"])), NOTEBOOK
    ).rename({"stage": "mode"})


def user_findings(llm: pl.DataFrame, notebook: pl.DataFrame) -> Iterator[str]:
    """How many servers of a language model meet their goals, and how much longer users of notebooks wait."""
    yield from _server_findings(llm.iter_rows(named=True))
    yield from _user_findings(notebook.iter_rows(named=True))


def _server_findings(rows: Iterable[dict[str, Any]]) -> Iterator[str]:
    by: dict[tuple[str, str], list[dict[str, Any]]] = defaultdict(list)
    for row in rows:
        own = row["beside"] in ("", row["tenant"]) or row["beside"] == f"{row['servers'] - 1} {row['tenant']}"
        by[row["tenant"], "" if own else row["beside"]].append(row)
    for (tenant, beside), group in by.items():
        modes = dict.fromkeys(row["mode"] for row in group)
        parts = [f"{_servers([r for r in group if r['mode'] == mode])} under {mode_name(mode)}" for mode in modes]
        where = f" beside {beside}" if beside else ""
        goal = "servers with 90 % of requests within the goals (95 % confidence)"
        sentence = f"{tenant}{where}: {goal}: {', '.join(parts)}"
        yield sentence + ("; the lower number counts unfinished requests as missed." if " to " in sentence else ".")


def _servers(rows: list[dict[str, Any]]) -> str:
    """The most servers that meet their goals; two numbers where that depends on requests that did not finish."""
    valid = [r for r in rows if r["valid"] or r["keeps_up"] is False]  # one that falls behind makes its generator late
    if not valid:
        return "not valid (late generator)"
    known = [r for r in valid if r["keeps_up"] is not None]
    if not known:
        return "not known (windows too short)"
    met = [r for r in known if r["goodput_low"] >= ENOUGH]
    high = max((r["servers"] for r in met), default=0)
    low = max((r["servers"] for r in met if r["goodput_least"] >= ENOUGH), default=0)
    return f"{high}" if low == high else f"{low} to {high}"


def _user_findings(rows: Iterable[dict[str, Any]]) -> Iterator[str]:
    for row in rows:
        if row["cell"] == "train" and row["low"] is not None and row["low"] > 1.0:
            where = f" beside {row['beside']}" if row["beside"] else ""
            slow = f"{row['slowdown']:.2f} ({row['low']:.2f} to {row['high']:.2f})"
            who = f"{count_noun(row['users'], 'notebook user')}{where}"
            yield f"{who} under {mode_name(row['mode'])}: training takes {slow} times as long."
