"""How fast a kind of work runs on a GPU that it shares: what `bench` measures and `sim` consumes."""

from __future__ import annotations

import json
from dataclasses import dataclass
from importlib.resources import files
from pathlib import Path
from typing import Any

import polars as pl

from fleetlab.core.catalog import SHARINGS, SPEEDS
from fleetlab.core.errors import FleetlabError, WorkloadError
from fleetlab.core.files import atomic_write
from fleetlab.core.names import lookup
from fleetlab.core.result import Estimate, Provenance, Result

MODES = tuple(mode.name for mode in SHARINGS if mode.name != "fractional")  # at full speed nothing is measured
PART = r"^(exclusive|time-slicing|(mps|mig)(-[\w.+]+)?)$"  # a part of a card has a mode of its own: mps-50, mig-1g.18gb
KINDS = ("measured", "predicted", "published")

SCHEMA: dict[str, pl.DataType] = {
    "mode": pl.String(),
    "workload": pl.String(),
    "neighbour": pl.String(),  # null: alone on the card, or on its slice of one
    "speed": pl.Float64(),  # 1 is the speed on a whole GPU of its own
    "low": pl.Float64(),
    "high": pl.Float64(),
    "kind": pl.String(),  # how it is known; null where nobody said
}


@dataclass(frozen=True, slots=True)
class Speed(Result):
    """The speed of each class of work, alone and next to each other class, by sharing mode, on one device.

    Parameters
    ----------
    frame
        One row a mode, workload and neighbor, with the speed (1 is that on a whole GPU of its own), its interval, and
        whether it is measured, predicted or published.
    device
        The GPU.
    provenance
        How it was measured.
    notes
        What to know when using it.

    Examples
    --------
    >>> Speed.default().device
    'NVIDIA H200'
    """

    frame: pl.DataFrame
    device: str
    provenance: Provenance
    notes: tuple[str, ...] = ()

    @classmethod
    def of(cls, frame: pl.DataFrame, *, device: str, provenance: Provenance, notes: tuple[str, ...] = ()) -> Speed:
        """Build one: exact columns, speeds inside their intervals, one row a (mode, workload, neighbour).

        Parameters
        ----------
        frame
            The columns mode, workload, neighbour, speed, low, high, and where it is known kind.
        device
            The GPU.
        provenance
            How it was measured.
        notes
            What to know when using it.

        Returns
        -------
        Speed
            The profile, checked.

        Raises
        ------
        WorkloadError
            If a column is missing, a speed is not inside its interval, or a row is there twice.

        Examples
        --------
        >>> row = {"mode": "mps", "workload": "light", "neighbour": None, "speed": 0.9, "low": 0.8, "high": 1.0}
        >>> Speed.of(pl.DataFrame([row]), device="mine", provenance=Provenance("measured", "by hand"))
        <Speed mine, 1 classes, mps>
        """
        try:
            frame = frame if "kind" in frame.columns else frame.with_columns(kind=None)
            frame = frame.select(list(SCHEMA)).cast(SCHEMA)  # type: ignore[arg-type]
        except pl.exceptions.PolarsError as e:
            msg = f"not a speed profile: {str(e).splitlines()[0]}"
            raise WorkloadError(msg, hint=f"columns are {', '.join(SCHEMA)}; modes are {', '.join(MODES)}") from None
        _obeys(frame)
        return cls(frame, device, provenance, notes)

    @classmethod
    def default(cls) -> Speed:
        """Return the profile that the simulator takes if it is given none.

        Returns
        -------
        Speed
            The first of those that ship with the package.

        Examples
        --------
        >>> Speed.default().speed("exclusive", "heavy").value
        1.0
        """
        return cls.named(SPEEDS.names[0])

    @classmethod
    def named(cls, name: str) -> Speed:
        """Return a profile that ships with the package.

        Parameters
        ----------
        name
            Its name: `fleetlab simulate --help` lists them under --speed.

        Returns
        -------
        Speed
            The profile.

        Raises
        ------
        WorkloadError
            If there is no profile by that name.

        Examples
        --------
        >>> Speed.named("published").speed("time-slicing", "heavy", "heavy").value
        0.699
        """
        lookup(SPEEDS.kind, name, SPEEDS.names, error=WorkloadError)
        return cls._from(json.loads(files("fleetlab.core").joinpath(SPEEDS[name].file).read_text("utf-8")), name)

    @classmethod
    def load(cls, path: Path | str) -> Speed:
        """Read a profile that `save` wrote.

        Parameters
        ----------
        path
            The file.

        Returns
        -------
        Speed
            The profile, checked.

        Raises
        ------
        WorkloadError
            If the file cannot be read, or is not a profile.

        Examples
        --------
        >>> from tempfile import TemporaryDirectory
        >>> with TemporaryDirectory() as folder:
        ...     Speed.load(Speed.default().save(f"{folder}/mine.json")).device
        'NVIDIA H200'
        """
        path = Path(path)
        try:
            about = json.loads(path.read_text("utf-8"))
        except (OSError, ValueError, RecursionError) as e:
            msg = f"cannot read the speed profile: {path}: {e}"
            raise WorkloadError(msg, hint="a profile is one JSON file, as `Speed.save` writes it") from None
        return cls._from(about, path.name)

    @classmethod
    def _from(cls, about: Any, source: str) -> Speed:  # noqa: ANN401  JSON may hold anything until it is checked
        try:
            frame = pl.DataFrame(about["speeds"], schema=SCHEMA)
            provenance = Provenance.from_json(about["provenance"])
            return cls.of(frame, device=about["device"], provenance=provenance, notes=tuple(about["notes"]))
        except (KeyError, TypeError, ValueError, OverflowError, pl.exceptions.PolarsError) as e:
            msg = f"{source}: not a speed profile: {e!r}"
            raise WorkloadError(msg, hint="it needs device, provenance, notes and speeds") from None

    def save(self, path: Path | str) -> Path:
        """Write the profile as JSON, whole or not at all.

        Parameters
        ----------
        path
            The file.

        Returns
        -------
        pathlib.Path
            The file.

        Raises
        ------
        FleetlabError
            If it cannot be written.

        Examples
        --------
        >>> from tempfile import TemporaryDirectory
        >>> with TemporaryDirectory() as folder:
        ...     Speed.default().save(f"{folder}/mine.json").name
        'mine.json'
        """
        path = Path(path)
        origin = {name: value for name, value in self.provenance.to_json().items() if name != "digests"}  # it is data
        about = {"device": self.device, "provenance": origin, "notes": self.notes}
        try:
            atomic_write(path, json.dumps(about | {"speeds": self.frame.to_dicts()}, indent=1))
        except OSError as e:
            msg = f"cannot save the speed profile: {path}: {e.strerror or e}"
            raise FleetlabError(msg, hint="look at free space and permissions") from None
        return path

    def speed(self, mode: str, workload: str, neighbour: str | None = None) -> Estimate:
        """Return how fast a workload runs in a mode, alone or next to another.

        Parameters
        ----------
        mode
            The sharing mode.
        workload
            The class of work.
        neighbour
            The class of the work beside it (default: none, it is alone on the GPU or its part of one).

        Returns
        -------
        Estimate
            The speed, where 1 is that on a whole GPU of its own.

        Raises
        ------
        WorkloadError
            If the profile does not have it.

        Examples
        --------
        >>> Speed.named("published").speed("time-slicing", "heavy", "heavy").value
        0.699
        """
        beside = pl.col("neighbour").is_null() if neighbour is None else pl.col("neighbour") == neighbour
        rows = self.frame.filter((pl.col("mode") == mode) & (pl.col("workload") == workload) & beside)
        if rows.is_empty():
            msg = f"no speed in the profile of {self.device}: {mode}, {workload} next to {neighbour or 'nothing'}"
            raise WorkloadError(msg, hint=f"it has {', '.join(sorted(set(self.frame['workload'])))}")
        row = rows.row(0, named=True)
        return Estimate("speed", row["speed"], row["low"], row["high"], "of alone")

    def __repr__(self) -> str:
        kinds = self.frame["workload"].n_unique()
        modes = ", ".join(self.frame["mode"].unique(maintain_order=True))
        return f"<Speed {self.device}, {kinds} classes, {modes}>"

    def summary(self) -> list[Estimate]:
        """The mean speed next to another, by mode."""
        pairs = self.frame.filter(pl.col("neighbour").is_not_null())
        means = pairs.group_by("mode", maintain_order=True).agg(pl.col("speed", "low", "high").mean())
        return [Estimate(f"mean speed, {m}", v, lo, hi, "of alone") for m, v, lo, hi in means.rows()]

    def tables(self) -> dict[str, pl.DataFrame]:
        """Every speed."""
        return {"speeds": self.frame}


def _obeys(frame: pl.DataFrame) -> None:
    numbers = pl.all_horizontal(pl.col("speed", "low", "high").is_finite().fill_null(value=False))
    good = numbers & (pl.col("low") <= pl.col("speed")) & (pl.col("speed") <= pl.col("high")) & (pl.col("low") > 0)
    if (bad := frame.filter(good.fill_null(value=False).not_())).height:
        msg = f"a speed that is not above 0 and inside its interval: {bad.row(0)}"
        raise WorkloadError(msg, hint="low ≤ speed ≤ high, all finite")
    if frame["mode"].null_count() or frame["workload"].null_count():
        msg = "a speed does not say of which mode and workload it is"
        raise WorkloadError(msg, hint=f"modes are {', '.join(MODES)}; a workload may have any name")
    if (bad := frame.filter(pl.col("mode").str.contains(PART).not_())).height:
        msg = f"no sharing mode by that name: `{bad['mode'][0]}`"
        raise WorkloadError(
            msg, hint=f"modes are {', '.join(MODES)}, and parts of a card such as mps-50 and mig-3g.71gb"
        )
    if (bad := frame.filter(pl.col("kind").is_in(KINDS).not_())).height:
        msg = f"a speed is known in one of three ways, not so: `{bad['kind'][0]}`"
        raise WorkloadError(msg, hint=f"kinds are {', '.join(KINDS)}, or null")
    if frame.select("mode", "workload", "neighbour").is_duplicated().any():
        raise WorkloadError("a speed is given twice for one mode, workload and neighbour")
