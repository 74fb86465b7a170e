"""Put load on a server of this machine, where little is installed: one JSON object on stdout, talk on stderr."""

from __future__ import annotations

import argparse
import json
import sys
from pathlib import Path

from fleetlab.devices.errors import BenchError
from fleetlab.serving.load.run import STOPPED, exit_status, run
from fleetlab.serving.load.settings import Asked


def main(words: list[str] | None = None) -> int:
    """0 if it was measured, 2 if it cannot be, 3 if the generator fell behind, 130 if it was stopped."""
    said = vars(_parser().parse_args(words))
    how = {name: said.pop(name) for name in ("rates", "percentile", "within", "out", "each")}
    slo, lag = said.pop("slo_ms"), said.pop("lag_ms")
    try:
        result = run(Asked(slo=slo and slo / 1000, lag=lag / 1000, **said), **how, tell=_tell)
    except BenchError as e:
        print(f"error: {e}" + (f"\nhint: {e.hint}" if e.hint else ""), file=sys.stderr)
        return 2
    except KeyboardInterrupt:
        print("stopped before anything was measured", file=sys.stderr)
        return STOPPED
    for note in result.notes:
        _tell(f"note: {note}")
    print(json.dumps(result.to_json()))
    return exit_status(result)


def _parser() -> argparse.ArgumentParser:
    own = Asked(url="")
    parser = argparse.ArgumentParser(prog="python -m fleetlab.serving.load", description=__doc__)
    add = parser.add_argument
    add("url", help="of a server on this machine, such as http://127.0.0.1:8000")
    add("--rate", type=float, help="requests a second, sent whether or not those before are answered")
    add("--clients", type=int, help="instead: so many clients, each of which sends when it was answered")
    add("--arrivals", default=own.arrivals, help="poisson, gamma:B, uniform, or a file of seconds (poisson)")
    add("--scale", type=float, help="a file's arrivals come so many times as fast")
    add("--seconds", type=float, default=own.seconds, help="that are measured (10)")
    add("--warmup", type=float, default=own.warmup, help="seconds of the same load before (1)")
    add("--limit", type=int, default=own.limit, help="requests at most (1000000)")
    add("--connections", type=int, default=own.connections, help="at once, at most (1000)")
    add("--timeout", type=float, default=own.timeout, help="seconds after which a request is given up (10)")
    add("--batch", type=int, default=own.batch, help="inputs of a request (1)")
    add("--slo-ms", type=float, help="milliseconds that an answer may take")
    add("--search", dest="rates", help="LOW:HIGH: the highest rate between that keeps the SLO")
    add("--percentile", type=float, default=99.0, help="of the search (99)")
    add("--within", type=float, default=0.05, help="how near the search's ends come to each other (0.05)")
    add("--lag-ms", type=float, default=1000 * own.lag, help="that P99 of the generator's lag may be (1)")
    add("--seed", type=int, default=own.seed, help="of the timetable (0)")
    add("--out", type=Path, help="folder for load.json or search.json")
    add("--each", action="store_true", help="keep a line for each request too, in requests.jsonl")
    return parser


def _tell(line: str) -> None:
    print(line, file=sys.stderr, flush=True)


if __name__ == "__main__":
    sys.exit(main())
