"""Commands that show and analyze measurements."""

from pathlib import Path
from typing import Annotated, Literal

from cyclopts import App, Parameter

import fleetlab
from fleetlab import gpu
from fleetlab.commands import screen
from fleetlab.commands.options import Json, examples, say_saved, talk

app = App()

Table = Literal[
    "alone", "progress", "mixes", "latency", "serving", "llm", "notebook", "costs", "runs", "checks", "failures"
]


@app.command(
    name="show",
    help_epilogue=examples(
        "fleetlab bench show pairs",
        "fleetlab bench show pairs --price 3.5 --table costs",
        "fleetlab bench show crowded --table latency --table serving",
        "fleetlab bench show at-200",
    ),
)
def show_measured(
    folder: Path,
    *,
    price: float | None = None,
    table: Annotated[tuple[Table, ...], Parameter(negative=())] = (),
    json: Json = False,
) -> None:
    """Show the results of a suite: rates, progress, throughput, fairness, latency, costs, and validity checks.

    The saved results of `fleetlab bench load` are shown as well.

    Parameters
    ----------
    folder
        Folder of `fleetlab bench suite --out` or `fleetlab bench load --out`.
    price
        Price of a GPU hour, in any currency: adds the cost of 1,000 items.
    table
        Show only this table; may be repeated.
    """
    result = gpu.saved_load(folder) or gpu.suite_result(folder, price=price)
    screen.show(result, json=json, only=table)


@app.command(
    help_epilogue=examples(
        "fleetlab bench analyze pairs",
        "fleetlab bench analyze measurements --price 3.5 --out report",
        "fleetlab bench analyze crowded --slo-ms 15",
        "fleetlab bench analyze measurements --json",
    )
)
def analyze(
    folder: Path,
    *,
    out: Path | None = None,
    price: float | None = None,
    slo_factor: float = 3.0,
    slo_ms: float | None = None,
    json: Json = False,
) -> None:
    """Analyze suites: which sharing mode for which mix, with intervals; charts, tables, and answers to six questions.

    Parameters
    ----------
    folder
        Folder of `fleetlab bench suite --out`, or a folder of such, all of one GPU model.
    out
        Folder for the page analysis.html, figures, tables and analysis.json (default: print only).
    price
        Price of a GPU hour, in any currency (default: costs are in GPU seconds).
    slo_factor
        Limit of the tail latency of copies of one tenant, as a multiple of that of one alone.
    slo_ms
        Limit of that tail latency in milliseconds, instead of --slo-factor.
    """
    from fleetlab.gpu.bench import analysis

    screen.may_create(out, folder=True)
    result = analysis.analyze(folder, price=price, slo_factor=slo_factor, slo_ms=slo_ms)
    page = write_analysis(result, out) if out else None
    screen.show(result, json=json, only=("kinds", "advice"))
    if page:
        say_saved(page)
    elif not json:
        talk("--out FOLDER writes the page, with all figures and tables")


def write_analysis(result: "fleetlab.Result", out: Path) -> Path:
    """Write page, figures, tables and JSON to a folder; return the page."""
    from fleetlab.core import as_json

    page = fleetlab.report(result, out / "analysis.html", svg=out / "figures")
    screen.atomic_write(out / "analysis.json", as_json(result).encode())
    (out / "tables").mkdir(exist_ok=True)
    for name, frame in result.tables().items():
        screen.atomic_write(out / "tables" / f"{name}.csv", frame.write_csv().encode())
    return page


@app.command(
    name="advise",
    help_epilogue=examples(
        'fleetlab bench advise measured --mix "train, serve" --goal p99',
        'fleetlab bench advise measured --mix "resnet-train, resnet-infer" --goal cost --price 3.5 --out advice.html',
        'fleetlab bench advise measured --mix "llm-serve, resnet-train" --goal goodput',
        'fleetlab bench advise measured --mix "4 notebook, resnet-train" --goal answer',
        'fleetlab bench advise measured --mix "light, heavy" --goal throughput --json',
        'fleetlab bench advise measured --mix "app:bert, mine" --speed mine.json --speed-classes app:bert=light',
    ),
)
def advise_on(
    folder: Path,
    *,
    mix: str,
    goal: Literal["throughput", "worst", "p99", "goodput", "answer", "cost", "energy", "isolation"] = "throughput",
    price: float | None = None,
    margin: float = 0.05,
    goodput: str | None = None,
    speed: str | None = None,
    speed_classes: str | None = None,
    out: Path | None = None,
    json: Json = False,
) -> None:
    """Advise on a mix: which mode, limits and replicas, by what margin, and when the advice flips.

    Parameters
    ----------
    folder
        Folder of `fleetlab bench suite --out` or `fleetlab bench all --out`, or a folder of such.
    mix
        Tenants of the plans by name, a measured command, or classes of jobs (light, medium, heavy, or those of
        --speed): "train, 2 serve".
    goal
        Total work, the slowest tenant, tail latency, goodput of language-model servers, time to answer a notebook
        cell, cost or energy of an item, or isolation.
    price
        Price of a GPU hour, in any currency: adds the cost of 1,000 items.
    margin
        Relative difference below which two modes are equivalent, if a test shows it.
    goodput
        Goals of language-model servers in ms, as ttft:200,tpot:25 (default: those of the servers).
    speed
        Speed profile whose classes --mix may name, as the simulation takes it: a shipped one, or a JSON file.
    speed_classes
        Class of jobs, as the simulation takes it: app:bert=light,other=heavy; --mix may then name app:bert.
    out
        File for the page.
    """
    screen.may_create(out)
    options: gpu.AdviceOptions = {"price": price, "margin": margin, "goodput": goodput}
    options |= {"speed": speed, "speed_classes": speed_classes}
    result = gpu.advise(folder, mix=mix, goal=goal, **options)
    screen.show(result, json=json)
    if out:
        say_saved(fleetlab.report(result, out))
