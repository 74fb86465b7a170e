"""A server of predictions, and load on it."""

import sys
from pathlib import Path
from typing import Annotated

from cyclopts import App, Parameter

from fleetlab.commands.words import Json, Seed, examples, on_the_bench, talk

desk = App()


@desk.command(
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
    from fleetlab._screen import show
    from fleetlab.serving.load.result import shown
    from fleetlab.serving.load.settings import Asked

    times = _submissions(arrivals)
    with on_the_bench():
        from fleetlab.serving.load.run import exit_status, run

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


@desk.command(
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
    from fleetlab.serving.server.limits import Limits
    from fleetlab.serving.server.server import serve as serve_

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
