"""One work on a machine that has little installed: `python -m fleetlab.bench.single NAME --seconds 10`."""

from __future__ import annotations

import argparse
import signal
import sys
from pathlib import Path
from types import FrameType

from fleetlab.bench.single import settings_of, sizes_of, work
from fleetlab.bench.workloads import BY_NAME
from fleetlab.devices.errors import BenchError


def main(words: list[str] | None = None) -> int:
    """Run it; 0 if it ran to its end, 2 if it cannot be, 3 if the loss was not a number, 130 if it was stopped."""
    asked = _parser().parse_args(words)
    signal.signal(signal.SIGTERM, _terminated)
    try:
        told = work(
            asked.name,
            settings=settings_of(asked.name, asked.set + _plain(asked)),
            seconds=asked.seconds,
            epochs=asked.epochs,
            steps=asked.steps,
            batches=sizes_of(asked.batches),
            device=asked.device,
            tiny=asked.tiny,
            seed=asked.seed,
            out=asked.out,
            tell=lambda line: print(line, file=sys.stderr, flush=True),
        )
    except BenchError as e:
        print(f"error: {e}" + (f"\nhint: {e.hint}" if e.hint else ""), file=sys.stderr)
        return 2
    except KeyboardInterrupt:
        print("stopped before anything was finished", file=sys.stderr)
        return 130
    print(told.to_json() if asked.json else "\n".join(told.lines()))
    return told.status


def _plain(asked: argparse.Namespace) -> list[str]:
    """Settings that have options of their own."""
    return [f"{key}={getattr(asked, key)}" for key in ("batch", "rate", "data") if getattr(asked, key) is not None]


def _parser() -> argparse.ArgumentParser:
    parser = argparse.ArgumentParser(prog="python -m fleetlab.bench.single", description=__doc__)
    parser.add_argument("name", help=f"{', '.join(BY_NAME)}, or one of your own as module:Class")
    parser.add_argument("--seconds", type=float, help="how long a window is, or a training may take")
    parser.add_argument("--epochs", type=int, help="of a training (1)")
    parser.add_argument("--steps", type=int, help="how many steps to run")
    parser.add_argument("--batch", help="items a step")
    parser.add_argument("--batches", help="of inference: sizes to go through (1,2,4,8,16,32)")
    parser.add_argument("--rate", help="of learning")
    parser.add_argument("--data", help="a folder with CIFAR-10, for resnet-train")
    parser.add_argument("--set", action="append", default=[], metavar="KEY=VALUE", help="any setting of the work")
    parser.add_argument("--device", default="cuda", help="cuda, cuda:1, cpu (cuda)")
    parser.add_argument("--tiny", action="store_true", help="sizes for a CPU: same code, no meaning")
    parser.add_argument("--seed", type=int, default=0, help="of weights, data and pauses (0)")
    parser.add_argument("--out", type=Path, help="folder for statistics.json, and model.pt of a training")
    parser.add_argument("--json", action="store_true", help="one JSON object")
    return parser


def _terminated(number: int, frame: FrameType | None) -> None:
    raise KeyboardInterrupt


if __name__ == "__main__":
    sys.exit(main())
