"""Read logs of many formats into a Trace; no other package knows a dataset by name."""

from __future__ import annotations

from collections.abc import Iterator, Mapping
from contextlib import contextmanager
from functools import cache
from pathlib import Path
from tempfile import TemporaryDirectory

from fleetlab.core import Trace, TraceError
from fleetlab.core.files import is_archive, unpack
from fleetlab.core.names import lookup
from fleetlab.core.plugins import registered
from fleetlab.core.progress import Progress, silent
from fleetlab.traces import dlrm2025, genai2026, job_list, lumos, openb2023, pai2020, philly, spot2026, swf, table
from fleetlab.traces.input.format import Format, Formats, Peek
from fleetlab.traces.input.intake import Intake
from fleetlab.traces.public.fetch import PUBLISHED, fetch
from fleetlab.traces.synthesize import synthesize

__all__ = ["Progress", "fetch", "formats", "read", "readers", "synthesize"]

_DATASETS = (pai2020, openb2023, dlrm2025, spot2026, genai2026, philly, lumos)


@cache
def readers() -> dict[str, Format]:
    """Return every reader by the name of its format."""
    own = [*(module.FORMAT for module in _DATASETS), job_list.HELIOS, job_list.ACME, swf.FORMAT]
    every: list[Format] = [*own, *registered("readers of schedulers' logs"), table.FORMAT]
    return {one.name: one for one in every}


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
        A file, or a folder with the format's files; of slurm and kubernetes also a .tar.gz of such a folder.
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
    hint = f"choose from {', '.join(readers())}; `fleetlab traces` lists them"
    reader = readers()[lookup("trace format", format, readers(), error=TraceError, hint=hint)]
    options = _options(reader, {"map": map, "zone": zone, "since": since})
    with _folder(Path(path), reader) as folder:
        _refuse_other_format(folder, reader, path)
        trace = reader.read(folder, Intake(progress), **options)
    _something(trace)
    return trace


@contextmanager
def _folder(path: Path, reader: Format) -> Iterator[Path]:
    """Unpack an archive of a folder for as long as it is read."""
    if not (reader.unpacks and is_archive(path)):
        yield path
        return
    with TemporaryDirectory(prefix="fleetlab-archive-") as scratch:
        yield unpack(path, Path(scratch), reader.only)


def _refuse_other_format(folder: Path, reader: Format, path: Path | str) -> None:
    peek = Peek(folder)
    others = [] if reader.any_table or reader.fits(peek) else [f.name for f in readers().values() if f.fits(peek)]
    if others:
        msg = f"{folder.name}: this does not look like {reader.name}; it looks like: {' or '.join(others)}"
        raise TraceError(msg, hint=f"`fleetlab read {others[0]} {path} --out DIR`")


def _something(trace: Trace) -> None:
    """A log of which nothing could be kept is the wrong log, or the wrong way to read it."""
    if trace.counts["rows"].sum() and not trace.counts["kept"].sum():
        first = trace.rejects.row(0, named=True)
        msg = f"all {trace.rejects.height:,} rows were rejected; first: {first['file']}, line {first['line']}"
        msg += f": {first['reason']}"
        raise TraceError(msg, hint="check the format and --map; `fleetlab traces` lists what each format expects")


def formats() -> Formats:
    """Every format that can be read, and whether it can be fetched."""
    return Formats(tuple(readers().values()), frozenset(PUBLISHED))


def _options(reader: Format, arguments: Mapping[str, object]) -> dict[str, object]:
    options = {name: value for name, value in arguments.items() if value is not None}
    if unknown := sorted(options.keys() - reader.options):
        msg = f"{reader.name} has no option: {', '.join(unknown)}"
        takers = [f.name for f in readers().values() if options.keys() <= f.options]
        raise TraceError(msg, hint=f"formats with it: {', '.join(takers)}" if takers else None)
    return options
