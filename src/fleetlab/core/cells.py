"""How nouns and results are shown at the end of a notebook's cell, and handed over as frames.

What draws them is above this package: it is registered, and imported when a cell is displayed.
"""

from __future__ import annotations

from collections.abc import Mapping
from importlib import import_module
from typing import TYPE_CHECKING, Any, cast

from fleetlab.core.errors import FleetlabError
from fleetlab.core.plugins import registered

if TYPE_CHECKING:
    import pandas
    import polars as pl

EXTRA = "pip install 'fleetlab[pandas]'"


def cell(result: object) -> str:
    """Return a result or a figure as HTML for a notebook."""
    return _html("cells of notebooks", result)


def noun_cell(line: str, tables: Mapping[str, pl.DataFrame]) -> str:
    """Return one line and tables below it as HTML for a notebook."""
    return _html("nouns in notebooks", line, tables)


def _html(point: str, *args: object) -> str:
    (draw,) = registered(point)
    return cast("str", draw(*args))


def words_table(words: Mapping[str, Any]) -> pl.DataFrame:
    """Return words and their values as a table.

    >>> words_table({"order": "sjf", "load": 1.2}).rows()
    [('order', 'sjf'), ('load', '1.2')]
    """
    import polars as pl

    texts = [None if value is None else str(value) for value in words.values()]
    return pl.DataFrame({"word": list(words), "value": texts}, schema={"word": pl.String, "value": pl.String})


def as_pandas(frame: pl.DataFrame) -> pandas.DataFrame:
    """Return a table as a `pandas.DataFrame`, or say what to install."""
    _need_pandas("to_polars() needs nothing more")
    return frame.to_pandas()


def as_polars(frame: pl.DataFrame | pandas.DataFrame) -> pl.DataFrame:
    """Return a table of pandas for Polars, without its index and with null for what is missing; others as they are."""
    import polars as pl

    if type(frame).__module__.partition(".")[0] != "pandas":
        return cast("pl.DataFrame", frame)
    _need_pandas("or pass a polars.DataFrame")
    return pl.from_pandas(cast("Any", frame), nan_to_null=True)


def _need_pandas(otherwise: str) -> None:
    try:
        import_module("pandas")
        import_module("pyarrow")
    except ImportError as e:
        msg = f"a table for pandas needs `{e.name}`, which is not installed"
        raise FleetlabError(msg, hint=f"{EXTRA}; {otherwise}") from None


class Framed:
    """What has one table, as its `frame`."""

    __slots__ = ()

    if TYPE_CHECKING:

        @property
        def frame(self) -> pl.DataFrame:
            """The table."""

    def to_polars(self) -> pl.DataFrame:
        """Return the table, one row each.

        Returns
        -------
        polars.DataFrame
            The `frame` itself: nothing is copied.

        Examples
        --------
        >>> import fleetlab
        >>> fleetlab.Cluster.uniform(2, 8).to_polars().select("node", "gpus").rows()
        [('node-0', 8), ('node-1', 8)]
        """
        return self.frame

    def to_pandas(self) -> pandas.DataFrame:
        """Return the table for pandas.

        Returns
        -------
        pandas.DataFrame
            A copy of the `frame`.

        Raises
        ------
        FleetlabError
            If pandas or pyarrow is not installed: the extra `pandas` brings both.

        Examples
        --------
        >>> import fleetlab
        >>> len(fleetlab.Cluster.uniform(2, 8).to_pandas())
        2
        """
        return as_pandas(self.frame)
