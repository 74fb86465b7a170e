"""How nouns and results are shown at the end of a notebook's cell, and handed over as frames.

The room that draws is above this one, which may not import it: it is called by name, when a cell is displayed.
"""

from __future__ import annotations

from collections.abc import Mapping
from importlib import import_module
from typing import TYPE_CHECKING, Any, cast

from fleetlab.core.errors import FleetlabError

if TYPE_CHECKING:
    import pandas
    import polars as pl

EXTRA = "pip install 'fleetlab[pandas]'"


def cell(shown: object) -> str:
    """Return a result or a figure as HTML for a notebook."""
    return cast("str", import_module("fleetlab.report.cell").cell(shown))


def noun_cell(line: str, tables: Mapping[str, pl.DataFrame]) -> str:
    """Return one line and tables below it as HTML for a notebook."""
    return cast("str", import_module("fleetlab.report.cell").noun_cell(line, tables))


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
    try:
        import_module("pandas")
        import_module("pyarrow")
    except ImportError as e:
        msg = f"a table for pandas needs `{e.name}`, which is not installed"
        raise FleetlabError(msg, hint=f"{EXTRA}; to_polars() needs nothing more") from None
    return frame.to_pandas()


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
