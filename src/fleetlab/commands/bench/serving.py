"""Commands of the inference server and of the load generator."""

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
    """Send load to a server on this machine; report latency from the scheduled time, throughput, refusals and failures.

    The exit status is 3 if the generator was late, which makes the result invalid.

    Parameters
    ----------
    url
        URL of a server on this machine; requests go to /predict unless the URL has a path.
    rate
        Requests per second (open loop: they do not wait for answers).
    arrivals
        Inter-arrival times: poisson; gamma:B, bursty if B is below 1; uniform; a file with one time in s per line; or
        a TRACE, whose submission times are replayed.
    scale
        Speed-up of the arrivals of a file or a trace; --rate sets their mean rate instead.
    clients
        Number of clients that each wait for their answer (closed loop, instead of --rate). For capacity, not latency.
    seconds
        Length of the measurement.
    warmup
        Seconds of the same load before the measurement.
    slo_ms
        Latency goal in milliseconds; goodput counts the answers within it.
    search
        LOW:HIGH: search the highest rate at which --percentile is within --slo-ms and fewer than 1 in 1,000 fail.
    percentile
        Percentile of the search.
    within
        Relative precision of the search.
    batch
        Inputs per request; more than 1 go to /predict/batch.
    timeout
        Seconds after the scheduled time at which a request fails.
    connections
        Maximum number of connections; a request without a free one waits, and that counts as latency.
    limit
        Maximum number of requests.
    lag_ms
        Maximum P99 lag of the generator in milliseconds; above it the result is invalid.
    seed
        Seed of the arrivals and inputs.
    out
        Folder for load.json or search.json.
    each
        Write every request to requests.jsonl, too.
    """
    from fleetlab._screen import show
    from fleetlab.serving.load.result import load_result
    from fleetlab.serving.load.settings import LoadSettings

    times = _submissions(arrivals)
    with on_the_bench():
        from fleetlab.serving.load.run import exit_status, run

        settings = LoadSettings(
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
        result = run(settings, rates=search, percentile=percentile, within=within, out=out, each=each, progress=talk)
    show(load_result(result.to_json()), json=json)
    sys.exit(exit_status(result))


def _submissions(arrivals: str) -> tuple[float, ...] | None:
    """Submission times of a trace; None for a distribution or a file, which the load generator reads itself."""
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
    """Serve predictions over HTTP, with dynamic batching and a bounded queue, until SIGTERM or Ctrl-C.

    Parameters
    ----------
    work
        resnet-infer, bert-infer, or your own as module:Class.
    host
        Address to listen on; the default is reachable from this machine only.
    port
        Port; 0 chooses a free one, which the first line of output shows.
    device
        cuda, cuda:N or cpu.
    tiny
        A small model, for a CPU.
    set
        KEY=VALUE: a setting of the work; may be given many times.
    seed
        Seed of the weights.
    batch
        Maximum batch size.
    wait
        Milliseconds that the oldest input waits for others to form a batch.
    queue
        Maximum number of queued inputs; further requests get 429.
    deadline
        Seconds that an input may be queued; after that its request gets 503.
    max_body
        Maximum size of a request body in MiB; larger ones get 413.
    body_timeout
        Seconds for the headers, and again for the body, to arrive; after that 408.
    drain
        Seconds to finish queued inputs after SIGTERM.
    connections
        Maximum number of connections; requests on further ones get 503.
    """
    from fleetlab.serving.server.limits import ServerLimits
    from fleetlab.serving.server.server import serve as serve_

    with on_the_bench():
        limits = ServerLimits(batch, wait, queue, deadline, max_body, body_timeout, drain, connections)
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
            progress=talk,
        )
