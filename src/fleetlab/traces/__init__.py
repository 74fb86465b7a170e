"""Read logs of many formats into a Trace; no other room knows a dataset by name."""

from __future__ import annotations

from collections.abc import Mapping
from pathlib import Path

from fleetlab.core import Trace, TraceError
from fleetlab.core.names import lookup
from fleetlab.core.progress import Progress, silent
from fleetlab.traces import (
    acme,
    dlrm2025,
    genai2026,
    helios,
    kubernetes,
    openb2023,
    pai2020,
    philly,
    slurm,
    spot2026,
    swf,
    table,
)
from fleetlab.traces.input.format import Format, Formats, Peek
from fleetlab.traces.input.intake import Intake
from fleetlab.traces.public.catalogue import PUBLISHED
from fleetlab.traces.public.fetch import fetch
from fleetlab.traces.synthesize import synthesize

__all__ = ["READERS", "Progress", "fetch", "formats", "read", "synthesize"]

_MODULES = (
    pai2020,
    openb2023,
    dlrm2025,
    spot2026,
    genai2026,
    philly,
    helios,
    acme,
    swf,
    slurm,
    kubernetes,
    table,
)
READERS: dict[str, Format] = {module.FORMAT.name: module.FORMAT for module in _MODULES}


def read(
    path: Path | str,
    format: str,
    *,
    map: Mapping[str, str] | None = None,
    zone: str | None = None,
    since: str | None = None,
    progress: Progress = silent,
) -> Trace:
    r"""Read a foreign log: every row of it is in the trace, or in its `rejects` with file, line and reason.

    Parameters
    ----------
    path
        A file, or a folder with the format's files.
    format
        How it is written: slurm, kubernetes, swf, csv, philly and so on; `fleetlab traces` lists the readers.
    map
        How a table of your own becomes a workload: `{"submit": "created", "gpu_milli": "cards*1000"}`.
    zone
        Time zone of a log without time zones, such as Europe/Berlin.
    since
        When the log begins, as given to `sacct -S`, such as 2024-05-01: earlier submissions are clipped to it.
    progress
        Called as rows are read.

    Returns
    -------
    Trace
        The jobs, the cluster where the log tells it, and every row that could not be kept.

    Raises
    ------
    TraceError
        If the log is not what its reader expects, or there is no reader by that name.

    Examples
    --------
    >>> import fleetlab
    >>> from pathlib import Path
    >>> from tempfile import TemporaryDirectory
    >>> with TemporaryDirectory() as folder:
    ...     log = Path(folder, "jobs.csv")
    ...     _ = log.write_text("created,ended,cards\n0,60,1\n30,90,2\n")
    ...     trace = fleetlab.read(log, "csv", map={"submit": "created", "end": "ended", "gpu_milli": "cards*1000"})
    >>> trace
    <Trace 2 jobs, no cluster, 0 rejects, csv:jobs>

    """
    path = Path(path)
    hint = f"choose from {', '.join(READERS)}; `fleetlab traces` lists them"
    reader = READERS[lookup("trace format", format, READERS, error=TraceError, hint=hint)]
    peek = Peek(path)
    others = [] if reader.any_table or reader.fits(peek) else [f.name for f in READERS.values() if f.fits(peek)]
    if others:
        msg = f"{path.name}: this does not look like {format}; it looks like: {' or '.join(others)}"
        raise TraceError(msg, hint=f"`fleetlab read {others[0]} {path} --out DIR`")
    trace = reader.read(path, Intake(progress), **_options(reader, {"map": map, "zone": zone, "since": since}))
    _something(trace)
    return trace


def _something(trace: Trace) -> None:
    """A log of which nothing could be kept is the wrong log, or the wrong way to read it."""
    if trace.counts["rows"].sum() and not trace.counts["kept"].sum():
        first = trace.rejects.row(0, named=True)
        msg = f"all {trace.rejects.height:,} rows were rejected; first: {first['file']}, line {first['line']}"
        msg += f": {first['reason']}"
        raise TraceError(msg, hint="check the format and --map; `fleetlab traces` lists what each format expects")


def formats() -> Formats:
    """Every format that can be read, and whether it can be fetched."""
    return Formats(tuple(READERS.values()), frozenset(PUBLISHED))


def _options(reader: Format, given: Mapping[str, object]) -> dict[str, object]:
    options = {name: value for name, value in given.items() if value is not None}
    if unknown := sorted(options.keys() - reader.options):
        msg = f"{reader.name} has no option: {', '.join(unknown)}"
        takers = [f.name for f in READERS.values() if options.keys() <= f.options]
        raise TraceError(msg, hint=f"formats with it: {', '.join(takers)}" if takers else None)
    return options
