"""Commands that make pages: a report of results, and the interactive page."""

from pathlib import Path
from typing import Annotated

from cyclopts import App, Parameter

import fleetlab
from fleetlab.commands import screen
from fleetlab.commands.options import Json, examples, of_verb

app = App()


@app.command(
    help_epilogue=examples(
        "fleetlab simulate builtin:20000 --json > fifo.json",
        "fleetlab report fifo.json",
        "fleetlab report fifo.json sjf.json --title 'fifo or sjf?' --out compared.html --svg figures",
    )
)
@of_verb("report/report.py")
def report(
    results: list[Path],
    *,
    out: Path = Path("report.html"),
    title: str | None = None,
    svg: Path | None = None,
    json: Json = False,
) -> None:
    """Write one self-contained HTML page of results: findings, figures, tables and provenance.

    Parameters
    ----------
    results
        Files that commands printed with `--json`; several are shown side by side, named after their files.
    out
        The page: one HTML file that opens without a network.
    title
        Title of the page.
    """
    screen.may_create(out)
    screen.may_create(svg, folder=True)
    if out.resolve() in {path.resolve() for path in results}:
        msg = f"--out is one of the results: {out}"
        raise fleetlab.WorkloadError(msg, hint="give the page a name of its own, such as report.html")
    loaded = {path: fleetlab.SavedResult.load(path) for path in results}
    stems = [path.stem for path in results]
    named = {path.stem: saved for path, saved in loaded.items()} if len(set(stems)) == len(stems) else loaded.values()
    with screen.progress("figures") as bar:
        page = fleetlab.report(named, out, title=title, svg=svg, progress=bar)
    if json:
        from polars import DataFrame

        about = fleetlab.Provenance("report", ", ".join(map(str, results)), {"title": title})
        row = DataFrame({"file": [str(page)], "bytes": [page.stat().st_size]})
        screen.show(screen.Rows("pages", row, about), json=True)
    else:
        print(page)


@app.command(
    help_epilogue=examples(
        "fleetlab web",
        "fleetlab web --traces my-traces --open",
        "fleetlab web --host 0.0.0.0 --port 8080",
        "fleetlab web --allow-host lab.example",
    )
)
@of_verb("web/server.py")
def web(
    *,
    traces: Path | None = None,
    host: str = "127.0.0.1",
    port: int = 8765,
    allow_host: Annotated[tuple[str, ...], Parameter(negative=())] = (),
    workers: int = 2,
    upload_mib: int = 64,
    limit: float = 300.0,
    open: Annotated[bool, Parameter(negative=())] = False,
    json: Json = False,
) -> None:
    """Serve a local page for what-if questions: change policy, load and nodes, and see waits beside a baseline.

    Ctrl-C stops it; uploaded logs are deleted then.

    Parameters
    ----------
    host
        Address to listen on; other than loopback it requires a token, which is printed once.
    port
        Port; 0 takes a free one.
    allow_host
        Another name that the page is reached by, such as that of a proxy before it; may be given many times. The page
        asks for a token then. Names of this machine, with any port, need none: `ssh -L 9000:127.0.0.1:8765` works.
    """
    fleetlab.web(
        traces=traces,
        host=host,
        port=port,
        allow_host=allow_host,
        workers=workers,
        upload_mib=upload_mib,
        limit=limit,
        open=open,
        json=json,
    )
