"""A figure before it is drawn: what lies on which axis, and what it says to one who cannot see it."""

from __future__ import annotations

from collections.abc import Mapping
from dataclasses import dataclass, field
from pathlib import Path
from typing import TYPE_CHECKING, Any, Literal, cast, get_args

import polars as pl

from fleetlab.core.cells import Framed, cell
from fleetlab.core.durations import plural
from fleetlab.core.errors import WorkloadError
from fleetlab.core.plugins import registered

if TYPE_CHECKING:
    import matplotlib.figure

Kind = Literal["line", "step", "bar", "dots", "heat", "span"]
KINDS: tuple[str, ...] = get_args(Kind)


@dataclass(frozen=True, slots=True)
class Figure(Framed):
    """One figure: a long table of points, and what its axes say; a notebook draws it.

    Parameters
    ----------
    title
        Its heading.
    kind
        line, step, bar, dots, heat or span. A `step` holds its value until the next.
    frame
        The points: `x`, `y`, and where there are several curves `series`. `low` and `high`, where it has them, are the
        interval of `y`. A `heat` has `x`, `y` (both names) and `value`. A `span` has bars from `low` to `high` in the
        row of the name `x`; `y` is how long those of a row are in all. `x` may be numbers or names; names stay in the
        order in which they come.
    x, y
        What the axes show, with their units.
    alt
        What it shows, in a sentence, for one who cannot see it.
    log_x, log_y
        Whether an axis is logarithmic.

    Raises
    ------
    WorkloadError
        If there is no such kind, or a column is missing.

    Examples
    --------
    >>> points = pl.DataFrame({"x": [1, 2, 3], "y": [1, 4, 9]})
    >>> Figure("squares", "line", points, "x", "x²", "A curve that rises ever faster.").to_polars().height
    3
    """

    title: str
    kind: Kind
    frame: pl.DataFrame
    x: str  # what the axis shows, with its unit
    y: str
    alt: str  # what it shows, in a sentence
    log_x: bool = False
    log_y: bool = False

    def __post_init__(self) -> None:
        needs = {"x", "y"} | {"heat": {"value"}, "span": {"low", "high"}}.get(self.kind, set())
        if self.kind not in KINDS or not needs <= set(self.frame.columns):
            msg = f"not a figure: {self.title}: {self.kind} of {self.frame.columns}"
            raise WorkloadError(msg, hint=f"kinds are {', '.join(KINDS)}; columns x, y, series, low, high, or value")

    def __repr__(self) -> str:
        return f"<Figure {self.title}: {self.kind} of {plural(self.frame.height, 'point')}>"

    def _repr_html_(self) -> str:
        return cell(self)

    def to_matplotlib(self) -> matplotlib.figure.Figure:
        """Return it as a figure of matplotlib, to change or to put beside others.

        Returns
        -------
        matplotlib.figure.Figure
            With one pair of axes: `figure.axes[0]`.

        Raises
        ------
        FleetlabError
            If matplotlib is not installed: the extra `plots` brings it.

        Examples
        --------
        >>> bar = Figure("one", "bar", pl.DataFrame({"x": ["a"], "y": [1]}), "", "", "One bar.")
        >>> bar.to_matplotlib().axes[0].get_title()  # doctest: +SKIP
        'one'
        """
        (draw,) = registered("figures of matplotlib")
        return cast("matplotlib.figure.Figure", draw(self))

    def save(self, path: Path | str) -> Path:
        """Write it as a file: SVG, or PDF, PNG and what else matplotlib writes.

        Parameters
        ----------
        path
            The file; its ending says the kind.

        Returns
        -------
        pathlib.Path
            The file.

        Raises
        ------
        FleetlabError
            If matplotlib, which all kinds but SVG need, is not installed, or does not write that kind.

        Examples
        --------
        >>> from tempfile import TemporaryDirectory
        >>> bar = Figure("one", "bar", pl.DataFrame({"x": ["a"], "y": [1]}), "", "", "One bar.")
        >>> with TemporaryDirectory() as folder:
        ...     bar.save(f"{folder}/one.svg").read_text("utf-8")[:4]
        '<svg'
        """
        (write,) = registered("files of figures")
        write(self, Path(path))
        return Path(path)

    def to_json(self) -> dict[str, Any]:
        """Return plain values; undone by `from_json`.

        Returns
        -------
        dict
            The fields, and the columns of the table by name.

        Examples
        --------
        >>> Figure("one", "bar", pl.DataFrame({"x": ["a"], "y": [1]}), "", "", "One bar.").to_json()["columns"]
        {'x': ['a'], 'y': [1]}
        """
        labels = {name: getattr(self, name) for name in ("title", "kind", "x", "y", "alt", "log_x", "log_y")}
        return labels | {"columns": {name: self.frame[name].to_list() for name in self.frame.columns}}

    @classmethod
    def from_json(cls, about: Mapping[str, Any]) -> Figure:
        """Return what `to_json` wrote.

        Parameters
        ----------
        about
            The plain values.

        Returns
        -------
        Figure
            The figure.

        Examples
        --------
        >>> bar = Figure("one", "bar", pl.DataFrame({"x": ["a"], "y": [1]}), "", "", "One bar.")
        >>> Figure.from_json(bar.to_json()).title
        'one'
        """
        values = {name: about[name] for name in ("title", "kind", "x", "y", "alt", "log_x", "log_y")}
        return cls(frame=pl.DataFrame(about["columns"], strict=False), **values)


SMALLEST = 64_000  # bytes that a timeline may have whatever else a page holds
LARGEST = 3_400_000  # bytes of tiles: 4.5 MB in a page, where three bytes are four letters


@dataclass(frozen=True, slots=True)
class TimelineFigure:
    """GPUs × time, and below it the queue: drawn by the script of a page.

    `about` has plain values: span, levels of rows, nodes, colors, queue and arrivals. `tiles` has compressed planes by
    `LEVEL/ZOOM/COLUMN/BLOCK/PLANE`; of the levels and zooms in `about["held"]`, a tile that is not there is empty.
    """

    title: str
    about: Mapping[str, Any]
    alt: str  # what it shows, in a sentence
    tiles: Mapping[str, bytes] = field(default_factory=dict)
