"""Serve on a machine that has little installed: `python -m fleetlab.serving.server WORK --port 8000`."""

from __future__ import annotations

import argparse
import sys
from dataclasses import fields

from fleetlab.devices.errors import BenchError
from fleetlab.serving.server.limits import Limits
from fleetlab.serving.server.server import serve

HELP = {
    "batch": "inputs computed together",
    "wait": "milliseconds that the oldest input waits for company",
    "queue": "inputs that may wait; more are refused with 429",
    "deadline": "seconds that an input may wait; then it is refused with 503",
    "max_body": "MiB of a request's body; more is refused with 413",
    "body_timeout": "seconds in which headers, and again the body, must come; else 408",
    "drain": "seconds to finish what is queued when told to stop",
    "connections": "at once; more are refused with 503",
}


def main(words: list[str] | None = None) -> int:
    """0 when it was told to stop and did, 2 if it cannot serve."""
    asked = vars(_parser().parse_args(words))
    try:
        limits = Limits(**{name: asked.pop(name) for name in HELP})
        serve(asked.pop("work"), limits=limits, words=asked.pop("set"), **asked)
    except BenchError as e:
        print(f"error: {e}" + (f"\nhint: {e.hint}" if e.hint else ""), file=sys.stderr)
        return 2
    return 0


def _parser() -> argparse.ArgumentParser:
    parser = argparse.ArgumentParser(prog="python -m fleetlab.serving.server", description=__doc__)
    parser.add_argument("work", help="resnet-infer, bert-infer, or one of your own as module:Class")
    parser.add_argument("--host", default="127.0.0.1", help="address to listen on (127.0.0.1: this machine alone)")
    parser.add_argument("--port", type=int, default=8000, help="0 takes a free one (8000)")
    parser.add_argument("--device", default="cuda", help="where the model runs (cuda)")
    parser.add_argument("--tiny", action="store_true", help="a small model, for the CPU")
    parser.add_argument("--set", action="append", default=[], metavar="KEY=VALUE", help="a setting of the work")
    parser.add_argument("--seed", type=int, default=0, help="of the weights (0)")
    parser.add_argument("--json", action="store_true", help="say where it serves as one JSON object")
    for field in fields(Limits):
        kind = {"int": int, "float": float}[str(field.type)]
        words = f"{HELP[field.name]} ({field.default:g})"
        parser.add_argument(f"--{field.name.replace('_', '-')}", type=kind, default=field.default, help=words)
    return parser


if __name__ == "__main__":
    sys.exit(main())
