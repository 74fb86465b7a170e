"""What every verb returns: findings, estimates with intervals, tables, figures, notes, and how they came to be."""

from __future__ import annotations

import json
import math
import re
from collections.abc import Callable, Mapping, Sequence
from dataclasses import asdict, dataclass, field
from pathlib import Path
from typing import TYPE_CHECKING, Any

import polars as pl

from fleetlab.core.cells import as_pandas, cell
from fleetlab.core.coverage import Coverage
from fleetlab.core.errors import WorkloadError
from fleetlab.core.estimate import INFINITE, Estimate, amount, amount_and_interval, from_json_number, say
from fleetlab.core.figure import Figure, TimelineFigure
from fleetlab.core.files import CONTROLS
from fleetlab.core.names import lookup
from fleetlab.core.provenance import Provenance

if TYPE_CHECKING:
    import pandas

__all__ = [
    "Estimate", "FieldsResult", "Finding", "Provenance", "Result", "SavedResult", "amount", "amount_and_interval",
    "as_json", "finite", "say",
]  # fmt: skip
SUMMARY = "summary"  # the estimates, as a table
EMPTY: Mapping[str, Any] = {
    "coverage": None, "findings": (), "records": (), "estimates": (), "frames": {}, "charts": {}, "notes": (),
}  # fmt: skip


@dataclass(frozen=True, slots=True)
class Finding:
    """What a study says of one change, as fields; sentences are made of them in one place.

    Attributes
    ----------
    metric
        What was measured: mean wait.
    subject
        What was changed: a policy, a setting, nodes.
    before, after
        The metric without and with it, means over the replicas.
    difference, low, high
        What it changes, with the 95 % interval of that; NaN where there is none.
    unit
        Of all of these.
    population
        Of which jobs.
    verdict
        better, worse, no difference or not decided.
    scope
        this log, or logs like it.
    replicas
        How many pairs of runs it rests on.

    Examples
    --------
    >>> Finding("mean wait", "sjf", 80.0, 44.0, -36.0, -67.0, -5.0, "s", "600 jobs", "better", "this log", 5).verdict
    'better'
    """

    metric: str
    subject: str
    before: float
    after: float
    difference: float
    low: float
    high: float
    unit: str
    population: str
    verdict: str
    scope: str
    replicas: int


class Result:
    """What a verb returns; `report`, the page and the command line know nothing else of it.

    At the end of a notebook's cell it is shown as findings, numbers, figures and tables. A verb has the fields that it
    needs, or computes them. One whose tables or figures are made on demand overrides `summary`, `tables` or `figures`.

    Examples
    --------
    >>> import fleetlab
    >>> result = fleetlab.solve("M/M/c", lam=7.2, mu=1, c=8)
    >>> isinstance(result, fleetlab.Result), result.provenance.verb
    (True, 'solve')
    """

    if TYPE_CHECKING:  # fields or properties of the verb's own class

        @property
        def provenance(self) -> Provenance:
            """How it came to be."""

        @property
        def coverage(self) -> Coverage | None:
            """Which jobs and GPU-hours of a log it speaks of."""

        @property
        def findings(self) -> tuple[str, ...]:
            """Sentences, the most important first."""

        @property
        def records(self) -> tuple[Finding, ...]:
            """What the sentences about changes say, as fields."""

        @property
        def estimates(self) -> Sequence[Estimate]:
            """The few numbers to show first."""

        @property
        def frames(self) -> Mapping[str, pl.DataFrame]:
            """The tables by name."""

        @property
        def charts(self) -> Mapping[str, Figure]:
            """The figures by name."""

        @property
        def notes(self) -> tuple[str, ...]:
            """What to know when reading it."""

    else:

        def __getattr__(self, name: str) -> Any:  # noqa: ANN401
            # Defaults of this class would become defaults of the dataclasses that derive from it, in any order.
            if name in EMPTY:
                return EMPTY[name]
            raise AttributeError(f"{type(self).__name__!r} has no attribute {name!r}")

    def __repr__(self) -> str:
        first = self.findings[0] if self.findings else "; ".join(say(e) for e in self.summary()[:2])
        return f"<{type(self).__name__}: {first}>"

    def _repr_html_(self) -> str:
        return cell(self)

    def summary(self) -> list[Estimate]:
        """Return the few numbers to show first.

        Returns
        -------
        list of Estimate
            Numbers with their 95 % intervals.

        Examples
        --------
        >>> import fleetlab
        >>> fleetlab.solve("M/M/c", lam=7.2, mu=1, c=8).summary()[0].metric
        'utilization'
        """
        return list(self.estimates)

    def tables(self) -> dict[str, pl.DataFrame]:
        """Return the tables by name.

        Returns
        -------
        dict of polars.DataFrame
            Plain numbers: durations are seconds.

        Examples
        --------
        >>> import fleetlab
        >>> list(fleetlab.Speed.default().tables())
        ['speeds']
        """
        return dict(self.frames)

    def figures(self) -> dict[str, Figure]:
        """Return the figures by name.

        Returns
        -------
        dict of Figure
            At the end of a notebook's cell, each draws itself.

        Examples
        --------
        >>> import fleetlab
        >>> list(fleetlab.simulate("builtin:200", load=20).figures())[0]
        'waits'
        """
        return dict(self.charts)

    def _whole_tables(self) -> Mapping[str, Callable[[], pl.DataFrame]]:
        """Return tables too long to be among those of a report, such as one row a job, the main one first."""
        return {}

    def to_polars(self, table: str | None = None) -> pl.DataFrame:
        """Return one table.

        Parameters
        ----------
        table
            One of `tables()`; of a trace also jobs, nodes, placements and the like, of a simulation jobs, ledger and
            holders (default: jobs where there are any, else the first table).

        Returns
        -------
        polars.DataFrame
            Plain numbers: durations are seconds, whatever a report shows them in.

        Raises
        ------
        WorkloadError
            If there is no such table: the hint names those that there are.

        Examples
        --------
        >>> import fleetlab
        >>> fleetlab.solve("M/M/c", lam=7.2, mu=1, c=8).to_polars("summary")["metric"][0]
        'utilization'
        """
        whole, short = self._whole_tables(), self.tables()
        names = list(dict.fromkeys([*whole, *short, SUMMARY]))
        name = lookup("table", names[0] if table is None else table, names, error=WorkloadError)
        if name in whole:
            return whole[name]()
        if name in short:
            return short[name]
        columns = zip(*self.summary(), strict=True) if self.summary() else ((),) * len(Estimate._fields)
        return pl.DataFrame(dict(zip(Estimate._fields, columns, strict=True)), strict=False)

    def to_pandas(self, table: str | None = None) -> pandas.DataFrame:
        """Return one table for pandas.

        Parameters
        ----------
        table
            As `to_polars` takes it.

        Returns
        -------
        pandas.DataFrame
            A copy of what `to_polars` returns.

        Raises
        ------
        WorkloadError
            If there is no such table.
        FleetlabError
            If pandas or pyarrow is not installed: the extra `pandas` brings both.

        Examples
        --------
        >>> import fleetlab
        >>> fleetlab.synthesize(jobs=200).to_pandas("nodes").columns[0]
        'node'
        """
        return as_pandas(self.to_polars(table))

    def to_latex(self, table: str | None = None, *, caption: str = "", label: str = "") -> str:
        r"""Return one table for a paper: LaTeX that needs the package `booktabs`.

        Parameters
        ----------
        table
            As `to_polars` takes it.
        caption, label
            What stands above it, and what refers to it: with either it floats.

        Returns
        -------
        str
            The table as a page shows it: intervals in a column, and one unit a column.

        Raises
        ------
        WorkloadError
            If there is no such table.

        Examples
        --------
        >>> import fleetlab
        >>> fleetlab.solve("M/M/c", lam=7.2, mu=1, c=8).to_latex("summary").splitlines()[0]
        '\\begin{tabular}{lrr}'
        """
        from fleetlab.core.latex import latex_table

        return latex_table(self.to_polars(table), caption=caption, label=label)

    def cluster_timeline(self, most: int) -> TimelineFigure | None:
        """Return the whole cluster over time, if this result has one.

        Parameters
        ----------
        most
            Bytes that its tiles may have together.

        Returns
        -------
        TimelineFigure or None
            What `report` draws as a timeline.

        Examples
        --------
        >>> import fleetlab
        >>> fleetlab.Speed.default().cluster_timeline(10_000) is None
        True
        """
        return None

    def to_json(self) -> dict[str, Any]:
        """Return plain values: what is not a number is null, and an infinite one "inf" or "-inf".

        Returns
        -------
        dict
            Provenance, coverage, findings, summary, tables, notes and figures; `SavedResult.from_json` reads it.

        Examples
        --------
        >>> import fleetlab
        >>> fleetlab.Speed.default().to_json()["provenance"]["verb"]
        'bench profile'
        """
        values = {
            "provenance": self.provenance.to_json(),
            "coverage": None if self.coverage is None else self.coverage.to_json(),
            "findings": list(self.findings),
            "records": [asdict(record) for record in self.records],
            "summary": [e._asdict() for e in self.summary()],
            "tables": {name: list(frame.iter_rows(named=True)) for name, frame in self.tables().items()},
            "notes": list(self.notes),
        }
        figures = finite({name: figure.to_json() for name, figure in self.figures().items()}, infinite=False)
        return {**{name: finite(value) for name, value in values.items()}, "figures": figures}


@dataclass(frozen=True, repr=False)
class FieldsResult(Result):
    """A result whose parts are all there when it is made."""

    provenance: Provenance
    findings: tuple[str, ...] = ()
    estimates: Sequence[Estimate] = ()
    frames: Mapping[str, pl.DataFrame] = field(default_factory=dict)
    charts: Mapping[str, Figure] = field(default_factory=dict)
    notes: tuple[str, ...] = ()
    coverage: Coverage | None = None
    records: tuple[Finding, ...] = ()


class SavedResult(FieldsResult):
    """A result read back from its JSON; `load` and `from_json` make one.

    Parameters
    ----------
    provenance
        How it came to be.
    findings
        Sentences, the most important first.
    estimates
        The few numbers to show first.
    frames
        Tables by name.
    charts
        Figures by name.
    notes
        What to know when reading it.
    coverage
        Of which jobs and GPU-hours of a log it speaks.
    records
        What the sentences about changes say, as fields.

    Examples
    --------
    >>> SavedResult(Provenance("compare", "mine"), findings=("Nothing changes.",))
    <SavedResult: Nothing changes.>
    """

    @classmethod
    def from_json(cls, values: Mapping[str, Any]) -> SavedResult:
        """Undo `to_json`.

        Parameters
        ----------
        values
            What `Result.to_json` returned.

        Returns
        -------
        SavedResult
            The same findings, numbers, tables and figures.

        Raises
        ------
        WorkloadError
            If another version of fleetlab wrote it in another form.

        Examples
        --------
        >>> import fleetlab
        >>> SavedResult.from_json(fleetlab.Speed.default().to_json()).provenance.verb
        'bench profile'
        """
        if "findings" not in values and "version" in values["provenance"]:
            msg = f"saved by fleetlab {values['provenance']['version']}, whose results have another form"
            raise WorkloadError(msg, hint="run the command again: its provenance says how")
        return cls(
            provenance=Provenance.from_json(values["provenance"]),
            findings=tuple(str(line) for line in values["findings"]),
            estimates=tuple(Estimate.from_json(row) for row in values["summary"]),
            frames={name: _frame(rows) for name, rows in values["tables"].items()},
            charts={name: Figure.from_json(figure) for name, figure in values["figures"].items()},
            notes=tuple(str(note) for note in values["notes"]),
            coverage=None if values.get("coverage") is None else Coverage.from_json(values["coverage"]),
            records=tuple(_finding(row) for row in values.get("records", ())),
        )

    @classmethod
    def load(cls, path: Path | str) -> SavedResult:
        """Read what a command printed with `--json`.

        Parameters
        ----------
        path
            The file.

        Returns
        -------
        SavedResult
            The result.

        Raises
        ------
        WorkloadError
            If the file cannot be read, or is not a saved result.

        Examples
        --------
        >>> SavedResult.load("nowhere.json")
        Traceback (most recent call last):
        fleetlab.core.errors.WorkloadError: not a saved result: nowhere.json: No such file or directory
        hint: `fleetlab diagnose sample --json > result.json` writes one
        """
        wrong = (OSError, ValueError, RecursionError, KeyError, TypeError, AttributeError, pl.exceptions.PolarsError)
        try:
            return cls.from_json(json.loads(Path(path).read_text("utf-8")))
        except WorkloadError as e:
            raise WorkloadError(f"{path}: {e}", hint=e.hint) from None
        except wrong as e:
            no_json = f"not JSON, in line {e.lineno}" if isinstance(e, json.JSONDecodeError) else ""
            msg = f"not a saved result: {path}: {no_json or (isinstance(e, OSError) and e.strerror) or e}"
            hint = "`fleetlab diagnose sample --json > result.json` writes one"
            raise WorkloadError(msg, hint=hint) from None


def as_json(result: Result) -> str:
    """Return one JSON object with provenance, findings, summary, tables, notes and figures."""
    text = json.dumps(result.to_json(), ensure_ascii=False, default=str)
    return re.sub(f"[{CONTROLS}]", lambda found: f"\\u{ord(found[0]):04x}", text)


def finite(value: object, *, infinite: bool = True) -> object:
    """Return plain values as JSON can have them: it has neither NaN nor infinity, and a figure no infinite point."""
    if isinstance(value, Mapping):
        return {str(k): finite(v, infinite=infinite) for k, v in value.items()}
    if isinstance(value, list | tuple):
        return [finite(v, infinite=infinite) for v in value]
    if not isinstance(value, float) or math.isfinite(value):
        return value
    return str(value) if infinite and math.isinf(value) else None


def _finding(row: Mapping[str, Any]) -> Finding:
    numbers = ("before", "after", "difference", "low", "high")
    return Finding(**{**row, **{n: math.nan if row[n] is None else from_json_number(row[n]) for n in numbers}})


def _frame(rows: list[dict[str, Any]]) -> pl.DataFrame:
    """Rebuild a table; a column whose texts are all "inf" or "-inf" is numbers."""
    for column in {name for row in rows for name, value in row.items() if value in INFINITE}:
        values = [row.get(column) for row in rows]
        if all(value is None or value in INFINITE or isinstance(value, float | int) for value in values):
            rows = [row | {column: from_json_number(row.get(column))} for row in rows]
    return pl.DataFrame(rows, infer_schema_length=None, strict=False)
