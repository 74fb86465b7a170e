"""Serve on a machine with few packages: `python -m fleetlab.serving.server WORKLOAD --port 8000`."""

from __future__ import annotations

import argparse
import sys
from dataclasses import fields

from fleetlab.devices.errors import BenchError
from fleetlab.devices.progress import print_error
from fleetlab.serving.server.limits import ServerLimits
from fleetlab.serving.server.server import serve

HELP = {
    "batch": "maximum batch size",
    "wait": "milliseconds that the oldest input waits to form a batch",
    "queue": "maximum number of queued inputs; further requests get 429",
    "deadline": "seconds that an input may be queued; after that 503",
    "max_body": "maximum size of a request body in MiB; larger ones get 413",
    "body_timeout": "seconds for headers, and again for the body, to arrive; after that 408",
    "drain": "seconds to finish queued inputs after SIGTERM",
    "connections": "maximum number of connections; requests on further ones get 503",
}


def main(words: list[str] | None = None) -> int:
    """Exit status 0 after an orderly stop, 2 for an error."""
    options = vars(_parser().parse_args(words))
    try:
        limits = ServerLimits(**{name: options.pop(name) for name in HELP})
        serve(options.pop("work"), limits=limits, words=options.pop("set"), **options)
    except BenchError as e:
        print_error(e)
        return 2
    return 0


def _parser() -> argparse.ArgumentParser:
    parser = argparse.ArgumentParser(prog="python -m fleetlab.serving.server", description=__doc__)
    parser.add_argument("work", metavar="WORKLOAD", help="resnet-infer, bert-infer, or your own as module:Class")
    parser.add_argument("--host", default="127.0.0.1", help="address to listen on (default: 127.0.0.1)")
    parser.add_argument("--port", type=int, default=8000, help="port; 0 chooses a free one (default: 8000)")
    parser.add_argument("--device", default="cuda", help="cuda, cuda:N or cpu (default: cuda)")
    parser.add_argument("--tiny", action="store_true", help="a small model, for a CPU")
    parser.add_argument("--set", action="append", default=[], metavar="KEY=VALUE", help="a setting of the workload")
    parser.add_argument("--seed", type=int, default=0, help="seed of the weights (default: 0)")
    parser.add_argument("--json", action="store_true", help="print the URL as a JSON object")
    for field in fields(ServerLimits):
        kind = {"int": int, "float": float}[str(field.type)]
        words = f"{HELP[field.name]} ({field.default:g})"
        parser.add_argument(f"--{field.name.replace('_', '-')}", type=kind, default=field.default, help=words)
    return parser


if __name__ == "__main__":
    sys.exit(main())
