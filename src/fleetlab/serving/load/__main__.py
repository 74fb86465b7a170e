"""Send load to a server on this machine, with few packages installed: prints one JSON object on stdout."""

from __future__ import annotations

import argparse
import json
import sys
from pathlib import Path

from fleetlab.devices.errors import BenchError
from fleetlab.devices.progress import print_error, print_progress
from fleetlab.serving.load.run import STOPPED, exit_status, run
from fleetlab.serving.load.settings import LoadSettings


def main(words: list[str] | None = None) -> int:
    """Exit status 0 if measured, 2 for an error, 3 if the generator was late, 130 if stopped."""
    options = vars(_parser().parse_args(words))
    how = {name: options.pop(name) for name in ("rates", "percentile", "within", "out", "each")}
    slo, lag = options.pop("slo_ms"), options.pop("lag_ms")
    try:
        result = run(LoadSettings(slo=slo and slo / 1000, lag=lag / 1000, **options), **how, progress=print_progress)
    except BenchError as e:
        print_error(e)
        return 2
    except KeyboardInterrupt:
        print("stopped before anything was measured", file=sys.stderr)
        return STOPPED
    for note in result.notes:
        print_progress(f"note: {note}")
    print(json.dumps(result.to_json()))
    return exit_status(result)


def _parser() -> argparse.ArgumentParser:
    own = LoadSettings(url="")
    parser = argparse.ArgumentParser(prog="python -m fleetlab.serving.load", description=__doc__)
    add = parser.add_argument
    add("url", help="URL of a server on this machine, such as http://127.0.0.1:8000")
    add("--rate", type=float, help="requests per second (open loop)")
    add("--clients", type=int, help="number of clients that wait for their answers (closed loop, instead of --rate)")
    add(
        "--arrivals", default=own.arrivals, help="poisson, gamma:B, uniform, or a file of times in s (default: poisson)"
    )
    add("--scale", type=float, help="speed-up of the arrivals of a file")
    add("--seconds", type=float, default=own.seconds, help="length of the measurement (default: 10)")
    add("--warmup", type=float, default=own.warmup, help="seconds of load before the measurement (default: 1)")
    add("--limit", type=int, default=own.limit, help="maximum number of requests (default: 1000000)")
    add("--connections", type=int, default=own.connections, help="maximum number of connections (default: 1000)")
    add("--timeout", type=float, default=own.timeout, help="seconds after which a request fails (default: 10)")
    add("--batch", type=int, default=own.batch, help="inputs per request (default: 1)")
    add("--slo-ms", type=float, help="latency goal in milliseconds")
    add("--search", dest="rates", help="LOW:HIGH: search the highest rate within --slo-ms")
    add("--percentile", type=float, default=99.0, help="percentile of the search (default: 99)")
    add("--within", type=float, default=0.05, help="relative precision of the search (default: 0.05)")
    add("--lag-ms", type=float, default=1000 * own.lag, help="maximum P99 lag of the generator (default: 1)")
    add("--seed", type=int, default=own.seed, help="seed of arrivals and inputs (default: 0)")
    add("--out", type=Path, help="folder for load.json or search.json")
    add("--each", action="store_true", help="write every request to requests.jsonl, too")
    return parser


if __name__ == "__main__":
    sys.exit(main())
