"""Where the data of a study lie: in a folder of traces, in a folder of one, or nowhere."""

from __future__ import annotations

from pathlib import Path

from fleetlab.core import WorkloadError


def folder_of(data: Path | str | None, names: tuple[str, ...], file: str) -> Path | None:
    """Return the folder with this file: `data` itself, or the first of these names in it; None if there is none."""
    if data is None:
        return None
    root = Path(data)
    if not root.is_dir():
        msg = f"no folder of data: {root}"
        raise WorkloadError(msg, hint="a folder of public traces, or of the files of one")
    return next((place for place in (*(root / name for name in names), root) if any(place.glob(file))), None)


def needed(data: Path | str | None, names: tuple[str, ...], file: str, trace: str) -> Path:
    """Return the folder with this file, or say how to get it."""
    place = folder_of(data, names, file)
    if place is None:
        msg = f"{file} is needed: " + ("no folder of data was given" if data is None else f"not in {data}")
        raise WorkloadError(msg, hint=f"`fleetlab fetch {trace} --into {trace}`, then `--data {trace}`")
    return place
