"""`fleetlab bench …`: words to a plan or a folder, one verb, print."""

from __future__ import annotations

from pathlib import Path
from typing import Annotated, Literal

from cyclopts import App, Parameter

import fleetlab
from fleetlab._words import Json, Seed, examples, on_the_bench, talk

bench = App(
    name="bench",
    help="Measure how work shares a GPU: real tenants, alone and beside each other.",
    help_epilogue=examples("fleetlab bench suite pairs-ts --out pairs", "fleetlab bench show pairs"),
    help_format="plaintext",
)


@bench.command(
    help_epilogue=examples(
        "fleetlab bench suite pairs-mps --out pairs-mps --limit 500",
        "fleetlab bench suite mine.toml --out mine --blocks 5 --seed 1",
        "fleetlab bench suite pairs-ts --rehearse --out try",
    )
)
def suite(
    plan: str,
    *,
    out: Path,
    limit: float = 3600,
    blocks: int | None = None,
    settle: float | None = None,
    window: float | None = None,
    seed: Seed = 0,
    rehearse: Annotated[bool, Parameter(negative=())] = False,
    json: Json = False,
) -> None:
    """Measure a plan, cell by cell; the same command goes on where it stopped.

    Parameters
    ----------
    plan
        solo, sm-curve, pairs-ts, pairs-mps, pairs-mps-50, breaking, or a TOML file of tenants, mixes and modes.
    out
        The folder of the results.
    limit
        Seconds after which no cell is begun.
    blocks
        How often each cell is measured.
    settle
        Seconds that a cell runs before it is measured.
    window
        Seconds that it is measured.
    seed
        Of the order of cells.
    rehearse
        On the CPU, tiny and short: the same code, but the numbers mean nothing.
    """
    from fleetlab._screen import show
    from fleetlab.bench.measured import measured
    from fleetlab.bench.run import planned
    from fleetlab.bench.suite import Suite

    with on_the_bench():
        made = planned(plan, blocks=blocks, settle=settle, window=window, seed=seed, rehearse=rehearse)
        Suite(made, out, limit=limit, rehearse=rehearse, tell=talk).run()
    show(measured(out), json=json)


@bench.command(
    name="work",
    help_epilogue=examples(
        "fleetlab bench work resnet-train --epochs 5 --batch 128 --rate 0.1 --out trained",
        "fleetlab bench work resnet-train --data cifar-10-batches-bin --epochs 20 --out trained",
        "fleetlab bench work bert-infer --batches 1,4,16",
        "fleetlab bench work hbm --set duty=0.5 --seconds 20",
        "fleetlab bench work llm-decode --device cpu --tiny",
    ),
)
def one_work(
    name: str,
    *,
    seconds: float | None = None,
    epochs: int | None = None,
    steps: int | None = None,
    batch: int | None = None,
    batches: str | None = None,
    rate: float | None = None,
    data: Path | None = None,
    set: Annotated[tuple[str, ...], Parameter(negative=())] = (),
    device: str = "cuda",
    tiny: Annotated[bool, Parameter(negative=())] = False,
    seed: Seed = 0,
    out: Path | None = None,
    json: Json = False,
) -> None:
    """Run one work by itself: train, ask, decode, launch, or press on one resource.

    Training tells loss and accuracy by epoch, inference latency and throughput by batch size, a stressor its rate.
    The exit status is 3 if the loss was not a number.

    Parameters
    ----------
    name
        resnet-train, bert-train, resnet-infer, bert-infer, llm-decode, launch, interactive, gemm, hbm, l2, h2d, or
        one of your own as module:Class.
    seconds
        How long a window is (10), or how long a training may take.
    epochs
        Of a training (1).
    steps
        How many steps to run.
    batch
        Items a step.
    batches
        Of inference: the sizes to go through, such as 1,2,4,8.
    rate
        Of learning.
    data
        A folder with CIFAR-10 for resnet-train, binary or Python version; synthetic images without.
    set
        Any setting of the work as KEY=VALUE; may be given many times.
    device
        cuda, cuda:1 and so on, or cpu.
    tiny
        Sizes for a CPU: the same code, but the numbers mean nothing.
    seed
        Of weights, data and pauses.
    out
        A folder for statistics.json, and model.pt of a training; each finished epoch is kept.
    """
    import sys

    from fleetlab._screen import show
    from fleetlab.bench.worked import worked

    plain = {"batch": batch, "rate": rate, "data": data}
    words = [*set, *(f"{key}={value}" for key, value in plain.items() if value is not None)]
    with on_the_bench():
        found = worked(
            name,
            words=words,
            seconds=seconds,
            epochs=epochs,
            steps=steps,
            batches=batches,
            device=device,
            tiny=tiny,
            seed=seed,
            out=out,
            tell=talk,
        )
    show(found, json=json)
    sys.exit(found.told.status)


@bench.command(
    help_epilogue=examples(
        "fleetlab bench load http://127.0.0.1:8000 --rate 200 --seconds 30 --slo-ms 15 --out at-200",
        "fleetlab bench load http://127.0.0.1:8000 --arrivals gamma:0.25 --rate 100",
        "fleetlab bench load http://127.0.0.1:8000 --arrivals azure --rate 50",
        "fleetlab bench load http://127.0.0.1:8000 --clients 16",
        "fleetlab bench load http://127.0.0.1:8000 --slo-ms 15 --search 10:1000",
    )
)
def load(
    url: str,
    *,
    rate: float | None = None,
    arrivals: str = "poisson",
    scale: float | None = None,
    clients: int | None = None,
    seconds: float = 10.0,
    warmup: float = 1.0,
    slo_ms: float | None = None,
    search: str | None = None,
    percentile: float = 99.0,
    within: float = 0.05,
    batch: int = 1,
    timeout: float = 10.0,
    connections: int = 1_000,
    limit: int = 1_000_000,
    lag_ms: float = 1.0,
    seed: Seed = 0,
    out: Path | None = None,
    each: Annotated[bool, Parameter(negative=())] = False,
    json: Json = False,
) -> None:
    """Put load on a server of this machine: latency from when each request was due, what was refused, what failed.

    The exit status is 3 if the generator fell behind, so that the result is invalid.

    Parameters
    ----------
    url
        Of a server on this machine; requests go to its /predict unless the address has a path.
    rate
        Requests a second, sent whether or not those before are answered.
    arrivals
        poisson; gamma:B, in bursts if B is below 1; uniform; a file of seconds, one a line; or a TRACE, whose
        submissions become requests.
    scale
        The arrivals of a file or a trace come so many times as fast; --rate squeezes them to a rate instead.
    clients
        Instead of a rate: so many clients, each of which sends when it was answered. For capacity, not for latency.
    seconds
        How long it is measured.
    warmup
        Seconds of the same load before, which are not counted.
    slo_ms
        Milliseconds that an answer may take: goodput counts those that keep it.
    search
        LOW:HIGH: find the highest rate between at which --percentile keeps --slo-ms and fewer than 1 in 1,000 fail.
    percentile
        Of the search.
    within
        How near the search's two ends come to each other, as a share.
    batch
        Inputs of a request; above 1 they go to /predict/batch.
    timeout
        Seconds from when a request is due until it is given up: a failure that took so long.
    connections
        At once, at most; a request that finds none free waits, and that is part of its latency.
    limit
        Requests at most.
    lag_ms
        Milliseconds that the generator's P99 lag may be before the result is called invalid.
    seed
        Of the timetable: the same seed, the same requests at the same times.
    out
        A folder for load.json or search.json.
    each
        Keep a line for each request too, in requests.jsonl.
    """
    import sys

    from fleetlab._screen import show
    from fleetlab.bench.load.asked import Asked
    from fleetlab.bench.load.shown import shown

    times = _submissions(arrivals)
    with on_the_bench():
        from fleetlab.bench.load.run import exit_status, run

        asked = Asked(
            url=url,
            rate=rate,
            arrivals=arrivals,
            times=times,
            scale=scale,
            clients=clients,
            seconds=seconds,
            warmup=warmup,
            slo=None if slo_ms is None else slo_ms / 1000,
            batch=batch,
            timeout=timeout,
            connections=connections,
            limit=limit,
            lag=lag_ms / 1000,
            seed=seed,
        )
        found = run(asked, rates=search, percentile=percentile, within=within, out=out, each=each, tell=talk)
    show(shown(found.to_json()), json=json)
    sys.exit(exit_status(found))


def _submissions(arrivals: str) -> tuple[float, ...] | None:
    """When the tasks of a trace were submitted; nothing for a law or a file, which the load reads itself."""
    from fleetlab.traces.builtin import WORD, open_trace

    if not (Path(arrivals).is_dir() or arrivals == WORD or arrivals.startswith(f"{WORD}:")):
        return None
    return tuple(open_trace(arrivals).workload.frame["submit"].to_list())


@bench.command(
    help_epilogue=examples(
        "fleetlab bench serve resnet-infer --port 8000",
        "fleetlab bench serve bert-infer --device cpu --tiny --port 0",
        """curl -d '{"seed": 7}' http://127.0.0.1:8000/predict""",
    )
)
def serve(
    work: str,
    *,
    host: str = "127.0.0.1",
    port: int = 8000,
    device: str = "cuda",
    tiny: Annotated[bool, Parameter(negative=())] = False,
    set: Annotated[tuple[str, ...], Parameter(negative=())] = (),
    seed: Seed = 0,
    batch: int = 8,
    wait: float = 2.0,
    queue: int = 256,
    deadline: float = 10.0,
    max_body: float = 4.0,
    body_timeout: float = 5.0,
    drain: float = 10.0,
    connections: int = 1024,
    json: Json = False,
) -> None:
    """Answer predictions over HTTP until told to stop: batched, bounded, and refused in words where it is too much.

    Parameters
    ----------
    work
        resnet-infer, bert-infer, or one of your own as module:Class.
    host
        Address to listen on; the default is this machine alone.
    port
        0 takes a free one; the first line of the output says which.
    device
        Where the model runs: cuda, cuda:1 and so on, or cpu.
    tiny
        A small model, for the CPU.
    set
        KEY=VALUE: a setting of the work; may be given many times.
    seed
        Of the weights.
    batch
        Inputs computed together.
    wait
        Milliseconds that the oldest input waits for company.
    queue
        Inputs that may wait; more are refused with 429.
    deadline
        Seconds that an input may wait; then it is refused with 503.
    max_body
        MiB of a request's body; more is refused with 413.
    body_timeout
        Seconds in which headers, and again the body, must come; else 408.
    drain
        Seconds to finish what is queued when told to stop.
    connections
        At once; more are refused with 503.
    """
    from fleetlab.bench.serve.limits import Limits
    from fleetlab.bench.serve.server import serve as serve_

    with on_the_bench():
        limits = Limits(batch, wait, queue, deadline, max_body, body_timeout, drain, connections)
        serve_(
            work,
            limits=limits,
            words=set,
            tiny=tiny,
            device=device,
            host=host,
            port=port,
            seed=seed,
            json=json,
            tell=talk,
        )


Table = Literal["alone", "progress", "mixes", "latency", "serving", "costs", "density", "runs", "gates", "failures"]


@bench.command(
    name="show",
    help_epilogue=examples(
        "fleetlab bench show pairs",
        "fleetlab bench show pairs --price 3.5 --table costs",
        "fleetlab bench show crowded --slo-ms 15 --table density --table serving",
    ),
)
def show_measured(
    folder: Path,
    *,
    price: float | None = None,
    progress: float = 0.5,
    slowdown: float = 3.0,
    slo_ms: float | None = None,
    table: Annotated[tuple[Table, ...], Parameter(negative=())] = (),
    json: Json = False,
) -> None:
    """Show what a suite measured: rates, progress, throughput and fairness, latency, costs, and what to believe.

    Parameters
    ----------
    folder
        What `fleetlab bench suite --out` wrote.
    price
        Of a card's hour, in any currency: what 1,000 items cost.
    progress
        How much the worst of several tenants must make, of what it makes alone: how many may share a card?
    slowdown
        How many times as long as alone a step may take, at P95.
    slo_ms
        Milliseconds that a step or request may take, at P99.
    table
        Only this one; may be given many times.
    """
    from fleetlab._screen import show
    from fleetlab.bench.density import Goals
    from fleetlab.bench.measured import measured

    goals = Goals(progress=progress, slowdown=slowdown, slo_ms=slo_ms)
    show(measured(folder, price=price, goals=goals), json=json, only=table)


@bench.command(
    help_epilogue=examples(
        "fleetlab bench analyse pairs",
        "fleetlab bench analyse measurements --price 3.5 --out report",
        "fleetlab bench analyse measurements --json",
    )
)
def analyse(
    folder: Path,
    *,
    out: Path | None = None,
    price: float | None = None,
    slo_factor: float = 3.0,
    json: Json = False,
) -> None:
    """Say what measured suites mean: charts, tables, a mode for each mix with its margin of error, six answers.

    Parameters
    ----------
    folder
        What `fleetlab bench suite --out` wrote, or a folder of such, all of one card.
    out
        The folder of tables, figures, analysis.txt and analysis.html; `analysis` in the first if not given.
    price
        Of an hour of the card, in any currency; without it costs are in GPU seconds.
    slo_factor
        A tenant is broken when its tail is longer than so many times that alone.
    """
    from fleetlab._screen import show
    from fleetlab.bench import analysis

    with on_the_bench():
        found = analysis.analyse(folder, price=price, slo_factor=slo_factor)
        files = analysis.written(found, out or folder / "analysis", tell=talk)
    if json:
        show(found, json=True)
    else:
        print(analysis.brief(found), end="")
    talk(f"{len(files)} files in {out or folder / 'analysis'}; open analysis.html")


@bench.command(
    help_epilogue=examples(
        "fleetlab bench monitor",
        "fleetlab bench monitor --every 0.2 --seconds 60 --out watched --quiet",
        "fleetlab bench monitor --prometheus 9400 --dcgm-names both --quiet",
        "fleetlab bench monitor --pack watched/samples.jsonl",
    )
)
def monitor(
    *,
    every: float = 1.0,
    seconds: float | None = None,
    out: Path | None = None,
    index: str = "all",
    backend: Literal["nvml", "cpu"] = "nvml",
    prometheus: int | None = None,
    address: str = "127.0.0.1",
    dcgm_names: Literal["4.8", "4.9", "both"] = "4.8",
    quiet: Annotated[bool, Parameter(negative=())] = False,
    pack: Path | None = None,
    json: Json = False,
) -> None:
    """Watch cards: use, memory, heat, power, energy, clocks and what holds them down, processes; Ctrl-C ends it.

    Parameters
    ----------
    every
        Seconds between two looks.
    seconds
        For how long; until Ctrl-C or SIGTERM unless told.
    out
        A folder for samples.jsonl, as it comes, and Parquet files in the end; one that holds a watch is gone on with.
    index
        Which cards: all, or numbers such as 0,1.
    backend
        cpu watches the host in the place of a card.
    prometheus
        Serve the last look to Prometheus at this port; 0 takes one that is free.
    address
        Where it is served; others on the network see it only if told so here.
    dcgm_names
        Whose names and units: the DCGM exporter's up to 4.8, its new ones from 4.9 on, or both.
    quiet
        Show nothing while it watches.
    pack
        Only make the Parquet files of a log whose watch was killed.
    """
    import sys

    from fleetlab._screen import show
    from fleetlab.bench.watch import watched
    from fleetlab.bench.watch.watching import Served, watch

    with on_the_bench():
        if pack is None:
            seen = watch(
                backend=backend,
                index=index,
                every=every,
                seconds=seconds,
                out=out,
                prometheus=None if prometheus is None else Served(prometheus, address, dcgm_names),
                stream=None if quiet or json else sys.stdout,
                tell=talk,
            )
            result = watched.of(seen)
        else:
            result = watched.packed(pack)
    show(result, json=json)


@bench.command(
    help_epilogue=examples(
        "fleetlab bench stress resnet-infer --out stress",
        "fleetlab bench stress llm-decode --modes mps --up-to 16 --slo-ms 50 --out stress-llm",
        "fleetlab bench stress launch --rehearse --up-to 4",
    )
)
def stress(
    work: str,
    *,
    modes: str = "time-slicing,mps",
    up_to: int = 32,
    slo_factor: float = 3.0,
    slo_ms: float | None = None,
    settle: float = 1.0,
    window: float = 4.0,
    limit: float = 3600,
    seed: Seed = 0,
    rehearse: Annotated[bool, Parameter(negative=())] = False,
    out: Path | None = None,
    json: Json = False,
) -> None:
    """Raise the number of tenants until something breaks, and say what: memory, a process, latency, or the host.

    Parameters
    ----------
    work
        One of those that `fleetlab bench work --help` lists, or your own as module:Class.
    modes
        Of sharing, with commas between: time-slicing, mps.
    up_to
        Tenants at once.
    slo_factor
        It breaks when the P95 of a step is above so many times that alone.
    slo_ms
        Or when it is above this, whatever it is alone.
    settle
        Seconds that a number of tenants runs before it is measured.
    window
        Seconds that it is measured.
    limit
        Seconds after which nothing more is begun.
    seed
        Of the tenants' data.
    rehearse
        On the CPU, tiny: the same code, but the numbers mean nothing.
    out
        The folder of the results; the same command goes on there. Without it nothing is kept.
    """
    from contextlib import ExitStack
    from tempfile import TemporaryDirectory

    from fleetlab._screen import show
    from fleetlab.bench import stress as test
    from fleetlab.bench._verdict import Goal
    from fleetlab.bench.stressed import stressed

    with ExitStack() as stack:
        folder = Path(stack.enter_context(TemporaryDirectory())) if out is None else out
        with on_the_bench():
            goal = Goal(slo_factor, slo_ms)
            named = tuple(mode.strip() for mode in modes.split(","))
            climb = test.Climb(work, named, up_to, goal, settle=settle, window=window, seed=seed)
            test.stress(climb, folder, limit=limit, rehearse=rehearse, tell=talk)
        show(stressed(folder), json=json)


@bench.command(
    help_epilogue=examples(
        "fleetlab bench profile classes --classes --out mine.json",
        "fleetlab simulate builtin:2000 --sharing mps --slowdown mine.json",
        "fleetlab bench profile pairs-ts pairs-mps solo --check",
    )
)
def profile(
    folders: list[Path],
    /,
    *,
    out: Path | None = None,
    works: str = "",
    classes: Annotated[bool, Parameter(negative=())] = False,
    check: Annotated[bool, Parameter(negative=())] = False,
    seed: Seed = 0,
    json: Json = False,
) -> None:
    """Make a slowdown profile of what was measured, for the simulator; or see how far its model can be trusted.

    Parameters
    ----------
    folders
        What `fleetlab bench suite --out` wrote on one card, or folders of such.
    out
        The file of the profile: what `fleetlab simulate --slowdown` takes.
    works
        Those to be in it, with commas between; all that met somebody if not given.
    classes
        Take works together as light, medium and heavy, by how busy each keeps a card of its own.
    check
        Make no profile: foretell what was measured from the rest, and tell how far off that is.
    seed
        Of the intervals of the check.
    """
    from fleetlab._screen import show
    from fleetlab.bench import profile as room

    if check and (out or works or classes):
        msg = "--check makes no profile: leave out --out, --works and --classes"
        raise fleetlab.DeviceError(msg)
    with on_the_bench():
        if check:
            talk("each pair and each work is left out in turn: some seconds")
            show(room.check(folders, seed=seed), json=json, most=200)
            return
        named = tuple(filter(None, map(str.strip, works.split(","))))
        made = room.profile(folders, works=named, classes=classes)
        if out:
            talk(f"saved: {made.save(out)}")
        show(made, json=json)


@bench.command(name="mig", help_epilogue=examples("fleetlab bench mig solo pairs-ts sm-curve --card A100-80"))
def on_slices(folders: list[Path], /, *, card: str | None = None, json: Json = False) -> None:
    """Foretell how fast works would be on each MIG slice of a card: predicted from runs on fewer SMs, never measured.

    Parameters
    ----------
    folders
        What `fleetlab bench suite --out` wrote on one card; the plan sm-curve must be among it.
    card
        A100-40, A100-80, H100-80 or H200-141; the card that was measured if not given.
    """
    from fleetlab._screen import show
    from fleetlab.bench.profile import slices

    with on_the_bench():
        show(slices(folders, card=card), json=json)
