"""Pages: results drawn, a trace's whole story, and what-ifs that answer as you drag."""

from pathlib import Path
from typing import Annotated

from cyclopts import App, Parameter

import fleetlab
from fleetlab.commands.words import ClusterFile, Json, Seed, TraceWords, examples, trace_of

desk = App()


@desk.command(
    help_epilogue=examples(
        "fleetlab simulate builtin:20000 --json > fifo.json",
        "fleetlab report fifo.json",
        "fleetlab report fifo.json sjf.json --title 'fifo or sjf?' --out compared.html --svg figures",
    )
)
def report(
    results: list[Path],
    *,
    out: Path = Path("report.html"),
    title: str | None = None,
    png: Path | None = None,
    svg: Path | None = None,
    json: Json = False,
) -> None:
    """Draw any results as one page that opens anywhere: words, figures, tables, and how each came to be.

    Parameters
    ----------
    results
        What commands printed with `--json`; several stand beside each other, under the names of their files.
    out
        The page: one HTML file with all that it needs, to be opened without a network.
    title
        Of the page.
    png
        A folder for the figures as PNG; needs the extra `plots`.
    svg
        A folder for the figures as SVG.
    """
    from fleetlab._screen import Rows, progress, show

    if out.resolve() in {path.resolve() for path in results}:
        msg = f"--out is one of the results: {out}"
        raise fleetlab.WorkloadError(msg, hint="give the page a name of its own, such as report.html")
    loaded = {path: fleetlab.SavedResult.load(path) for path in results}
    stems = [path.stem for path in results]
    named = {path.stem: saved for path, saved in loaded.items()} if len(set(stems)) == len(stems) else loaded.values()
    with progress("figures") as bar:
        written = fleetlab.report(named, out, title=title, png=png, svg=svg, progress=bar)
    if json:
        from polars import DataFrame

        about = fleetlab.Provenance("report", ", ".join(map(str, results)), {"title": title})
        row = DataFrame({"file": [str(written)], "bytes": [written.stat().st_size]})
        show(Rows("pages", row, about), json=True)
    else:
        print(written)


@desk.command(help_epilogue=examples("fleetlab demo", "fleetlab demo my-trace --out story.html --open"))
def demo(
    trace: TraceWords = "builtin:1260920",
    *,
    out: Path = Path("demo.html"),
    cluster: ClusterFile = None,
    seed: Seed = 0,
    open: Annotated[bool, Parameter(negative=())] = False,
) -> None:
    """Describe a trace, say why its jobs wait, compare five policies, and write one page of it all.

    Parameters
    ----------
    out
        The page.
    seed
        Of the draws behind intervals.
    open
        Show the page in a browser.
    """
    from fleetlab._screen import progress
    from fleetlab.studies.story import story

    with progress("steps") as bar:
        told = story(trace_of(trace, cluster, bar), out=out, seed=seed, progress=bar)
    print("\n".join(f"{k}. {sentence}" for k, sentence in enumerate(told.sentences, 1)))
    print(f"\n{told.page}")
    if open:
        import webbrowser

        webbrowser.open(told.page.resolve().as_uri())


@desk.command(
    help_epilogue=examples(
        "fleetlab web",
        "fleetlab web --traces my-traces --open",
        "fleetlab web --host 0.0.0.0 --port 8080",
    )
)
def web(
    *,
    traces: Path | None = None,
    host: str = "127.0.0.1",
    port: int = 8765,
    workers: int = 2,
    upload_mib: int = 64,
    limit: float = 300.0,
    open: Annotated[bool, Parameter(negative=())] = False,
    json: Json = False,
) -> None:
    """A local page on which what-ifs answer as you drag: change rules, load and nodes, and see waiting move.

    It ends with Ctrl-C. Logs that were sent to it go with it.

    Parameters
    ----------
    traces
        A folder whose folders are saved traces: they can be chosen on the page.
    host
        Where it is seen from; elsewhere than on this machine it asks for a token, which is printed once.
    port
        0 takes a free one.
    workers
        Processes that simulate.
    upload_mib
        The largest log that may be sent to it, in MiB.
    limit
        Seconds that one piece of work may take.
    open
        Open the page in the browser.
    """
    fleetlab.web(
        traces=traces, host=host, port=port, workers=workers, upload_mib=upload_mib, limit=limit, open=open, json=json
    )
