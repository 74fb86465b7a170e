"""Run one workload on a machine with few packages: `python -m fleetlab.bench.single NAME --seconds 10`."""

from __future__ import annotations

import argparse
import signal
import sys
from pathlib import Path
from types import FrameType

from fleetlab.bench.single import parse_batch_sizes, parse_settings, work
from fleetlab.bench.workloads import BY_NAME
from fleetlab.devices.errors import BenchError
from fleetlab.devices.progress import print_error, print_progress


def main(words: list[str] | None = None) -> int:
    """Exit status 0 if finished, 2 for an error, 3 if the loss was not a number, 130 if stopped."""
    options = _parser().parse_args(words)
    signal.signal(signal.SIGTERM, _terminated)
    try:
        report = work(
            options.name,
            settings=parse_settings(options.name, options.set + _plain(options)),
            seconds=options.seconds,
            epochs=options.epochs,
            steps=options.steps,
            batches=parse_batch_sizes(options.batches),
            device=options.device,
            tiny=options.tiny,
            seed=options.seed,
            out=options.out,
            progress=print_progress,
        )
    except BenchError as e:
        print_error(e)
        return 2
    except KeyboardInterrupt:
        print("stopped before any result", file=sys.stderr)
        return 130
    print(report.to_json() if options.json else "\n".join(report.lines()))
    return report.status


def _plain(asked: argparse.Namespace) -> list[str]:
    """Settings with options of their own."""
    return [f"{key}={getattr(asked, key)}" for key in ("batch", "rate", "data") if getattr(asked, key) is not None]


def _parser() -> argparse.ArgumentParser:
    parser = argparse.ArgumentParser(prog="python -m fleetlab.bench.single", description=__doc__)
    parser.add_argument("name", help=f"{', '.join(BY_NAME)}, or your own as module:Class")
    parser.add_argument("--seconds", type=float, help="length of a measurement (default: 10), or limit of a training")
    parser.add_argument("--epochs", type=int, help="epochs of a training (default: 1)")
    parser.add_argument("--steps", type=int, help="number of steps")
    parser.add_argument("--batch", help="batch size")
    parser.add_argument("--batches", help="batch sizes of inference (default: 1,2,4,8,16,32)")
    parser.add_argument("--rate", help="learning rate")
    parser.add_argument("--data", help="folder with CIFAR-10, for resnet-train (default: synthetic images)")
    parser.add_argument("--set", action="append", default=[], metavar="KEY=VALUE", help="any setting of the workload")
    parser.add_argument("--device", default="cuda", help="cuda, cuda:N or cpu (default: cuda)")
    parser.add_argument("--tiny", action="store_true", help="tiny sizes for a CPU: results are meaningless")
    parser.add_argument("--seed", type=int, default=0, help="seed of weights, data and pauses (default: 0)")
    parser.add_argument("--out", type=Path, help="folder for statistics.json, and model.pt of a training")
    parser.add_argument("--json", action="store_true", help="print one JSON object")
    return parser


def _terminated(number: int, frame: FrameType | None) -> None:
    raise KeyboardInterrupt


if __name__ == "__main__":
    sys.exit(main())
