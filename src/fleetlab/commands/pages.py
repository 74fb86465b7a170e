"""Commands that make pages: a report of results, the demo, and the interactive page."""

from pathlib import Path
from typing import Annotated

from cyclopts import App, Parameter

import fleetlab
from fleetlab.commands.options import ClusterFile, Json, Seed, TraceName, trace_of
from fleetlab.commands.words import examples, of_verb

desk = App()


@desk.command(
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
    from fleetlab._screen import Rows, progress, show
    from fleetlab.core.files import may_create

    may_create(out)
    may_create(svg, folder=True)
    if out.resolve() in {path.resolve() for path in results}:
        msg = f"--out is one of the results: {out}"
        raise fleetlab.WorkloadError(msg, hint="give the page a name of its own, such as report.html")
    loaded = {path: fleetlab.SavedResult.load(path) for path in results}
    stems = [path.stem for path in results]
    named = {path.stem: saved for path, saved in loaded.items()} if len(set(stems)) == len(stems) else loaded.values()
    with progress("figures") as bar:
        written = fleetlab.report(named, out, title=title, svg=svg, progress=bar)
    if json:
        from polars import DataFrame

        about = fleetlab.Provenance("report", ", ".join(map(str, results)), {"title": title})
        row = DataFrame({"file": [str(written)], "bytes": [written.stat().st_size]})
        show(Rows("pages", row, about), json=True)
    else:
        print(written)


@desk.command(help_epilogue=examples("fleetlab demo", "fleetlab demo my-trace --out story.html --open"))
def demo(
    trace: TraceName = "builtin:100000",
    *,
    out: Path = Path("demo.html"),
    cluster: ClusterFile = None,
    seed: Seed = 0,
    open: Annotated[bool, Parameter(negative=())] = False,
) -> None:
    """Explain on one page why the jobs of a trace wait, and what would help.

    Of a trace of more than 10,000 jobs, the busiest 10,000 in a row are simulated. The built-in trace is simulated with
    jobs spread evenly over nodes, as the real cluster placed them (worst_fit).

    Parameters
    ----------
    out
        The page.
    open
        Open the page in a browser.
    """
    from fleetlab._screen import progress, prose
    from fleetlab.core.files import may_create
    from fleetlab.studies.story import story

    may_create(out)
    with progress("steps") as bar:
        result = story(trace_of(trace, cluster, bar), out=out, seed=seed, progress=bar)
    print(f"{prose(result.about)}\n")
    print("\n".join(prose(f"{k}. {sentence}", "   ") for k, sentence in enumerate(result.findings, 1)))
    print(f"\n{result.page}")
    if open:
        import webbrowser

        webbrowser.open(result.page.resolve().as_uri())


@desk.command(
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
