"""Replace the names of people, accounts and jobs in a trace, so that it can be shown, or live in a repository."""

from __future__ import annotations

import re
from collections.abc import Mapping
from dataclasses import replace
from typing import Any

import polars as pl

from fleetlab.core import Provenance, Trace
from fleetlab.core.schedulers import scheduler_of, scheduler_values

# Columns of jobs whose values name somebody or something, and what their values are called instead.
NAMED = {"user": "user", "queue": "team", "reservation": "reservation", "app": "app", "group": "group"}
PLAIN = ("node", "loop", "state", "gpu_type", "status")  # columns of series that nobody wrote by hand
KEPT = ("root", "normal", "default")  # names that every site has
TIMES = ("zone", "since", "watched_from", "watched_until", "zero", "separator")  # settings without names
PARTS = re.compile(r"([/,])")


def anonymize(trace: Trace) -> Trace:
    """Return a trace without names of users, accounts and jobs.

    Jobs are called by their number. Nodes, partitions and QOS keep their names, because a new configuration names them
    too; one that is called as a user or an account is renamed with it. Files and reasons of rejected rows are left out.

    Parameters
    ----------
    trace
        Any trace.

    Returns
    -------
    Trace
        The same jobs, nodes, times and rules.

    Raises
    ------
    TraceError
        If a configuration cannot be built again from its own values.

    Examples
    --------
    >>> import fleetlab
    >>> named = fleetlab.synthesize(jobs=200)
    >>> fleetlab.anonymize(named).workload.frame["user"].drop_nulls()[0]
    'user-1'
    """
    alias = _aliases(trace)
    frame = trace.workload.frame.with_columns(_columns(trace.workload.frame.schema, alias))
    source = f"anonymized:{trace.provenance.verb}"
    settings = {name: value for name, value in trace.provenance.settings.items() if name in TIMES}
    cluster = trace.cluster
    if cluster is not None:
        cluster = replace(
            cluster, frame=cluster.frame.with_columns(_columns(cluster.frame.schema, alias)), source=source
        )
    return replace(
        trace,
        workload=replace(trace.workload, frame=frame, source=source, notes=()),
        provenance=Provenance("anonymize", source, settings),
        cluster=cluster,
        scheduler=None
        if trace.scheduler is None
        else scheduler_of(_in_values(scheduler_values(trace.scheduler), alias)),
        names=None if trace.names is None else trace.names.select("job", name=(pl.col("job") + 1).cast(pl.String)),
        placements=None if trace.placements is None else _with_aliases(trace.placements, alias),
        series={name: _without_text(table, alias) for name, table in trace.series.items()},
        rejects=trace.rejects.with_columns(file=pl.lit("log"), reason=pl.lit("rejected")),
        notes=(),
    )


def _aliases(trace: Trace) -> dict[str, str]:
    """Number the names of each kind as they first appear; one of several kinds is of the first."""
    frame, alias = trace.workload.frame, dict[str, str]()
    rules = [] if trace.scheduler is None else [scheduler_values(trace.scheduler)]
    for column, kind in NAMED.items():
        names = frame[column].cast(pl.String).drop_nulls().unique(maintain_order=True).to_list()
        names += [name for values in rules for name in _people(values, kind)]
        number = 0
        for name in names:
            if name and name not in alias and name not in KEPT:
                number += 1
                alias[name] = f"{kind}-{number}"
    return alias


def _people(values: Any, kind: str) -> list[str]:  # noqa: ANN401  of any configuration
    """Return who is named in a configuration: those who submitted no job are in it too."""
    if kind == "reservation":
        kept = values.get("reservations", ()) if isinstance(values, Mapping) else ()
        return [str(reservation.get("name", "")) for reservation in kept]
    keys = {"user": ("user", "users"), "team": ("accounts", "allow_accounts", "deny_accounts", "parent")}.get(kind, ())
    if isinstance(values, Mapping):
        found = [name for key in keys for name in _texts(values.get(key))]
        if kind == "team" and "parent" in values:  # a queue of a tree
            found += [part for name in _texts(values.get("name")) for part in name.split("/")]
        return found + [name for value in values.values() for name in _people(value, kind)]
    return [name for value in values for name in _people(value, kind)] if isinstance(values, list | tuple) else []


def _texts(value: object) -> list[str]:
    return [value] if isinstance(value, str) else list(value) if isinstance(value, list | tuple) else []


def _alias(text: str, alias: Mapping[str, str]) -> str:
    """Return a text with its name, or each name in `account/user` and `ann,bob`, replaced."""
    return alias.get(text) or "".join(alias.get(part, part) for part in PARTS.split(text))


def _in_values(values: Any, alias: Mapping[str, str]) -> Any:  # noqa: ANN401
    if isinstance(values, Mapping):
        return {_alias(str(name), alias): _in_values(value, alias) for name, value in values.items()}
    if isinstance(values, list | tuple):
        return [_in_values(value, alias) for value in values]
    return _alias(values, alias) if isinstance(values, str) else values


def _columns(schema: Mapping[str, Any], alias: Mapping[str, str]) -> list[pl.Expr]:
    """Return the columns of text with names replaced, also those in lists."""

    def renamed(text: str) -> str:
        return _alias(text, alias)

    columns = []
    for name, kind in schema.items():
        if kind in (pl.String, pl.Categorical):
            text = pl.col(name).cast(pl.String).map_elements(renamed, return_dtype=pl.String)
            columns.append(text.cast(kind))
        elif kind == pl.List(pl.String):
            element = pl.element().map_elements(renamed, return_dtype=pl.String)
            columns.append(pl.col(name).list.eval(element))
    return columns


def _with_aliases(table: pl.LazyFrame, alias: Mapping[str, str]) -> pl.LazyFrame:
    return table.with_columns(_columns(table.collect_schema(), alias))


def _without_text(table: pl.LazyFrame, alias: Mapping[str, str]) -> pl.LazyFrame:
    """Return a table of which only texts that name nodes or states are left: others were written by people."""
    schema = table.collect_schema()
    free = [name for name, kind in schema.items() if kind in (pl.String, pl.Categorical) and name not in PLAIN]
    return _with_aliases(table.with_columns(pl.lit("").cast(schema[name]).alias(name) for name in free), alias)
