"""Commands of the inference server and of the load generator."""

import sys
from pathlib import Path
from typing import Annotated

from cyclopts import App

from fleetlab.commands.words import FLAT, Json, examples, talk
from fleetlab.serving.load.settings import LoadOptions
from fleetlab.serving.server.limits import ServeOptions

desk = App()


@desk.command(
    help_epilogue=examples(
        "fleetlab bench load http://127.0.0.1:8000 --rate 200 --seconds 30 --slo-ms 15 --out at-200",
        "fleetlab bench load http://127.0.0.1:8000 --arrivals gamma:0.25 --rate 100",
        "fleetlab bench load http://127.0.0.1:8000 --arrivals azure --rate 50",
        "fleetlab bench load http://127.0.0.1:8000 --dataset azure-conv --rate 10 --goodput ttft:200,tpot:25",
        "fleetlab bench load http://127.0.0.1:8000 --clients 16",
        "fleetlab bench load http://127.0.0.1:8000 --slo-ms 15 --search 10:1000",
    )
)
def load(options: Annotated[LoadOptions, FLAT], *, json: Json = False) -> None:
    """Send load to a server on this machine; report latency from the scheduled time, throughput, refusals and failures.

    The exit status is 3 if the generator was late, which makes the result invalid.
    """
    from fleetlab._screen import show
    from fleetlab.serving.load.result import load_result
    from fleetlab.serving.load.run import exit_status, run

    result = run(options, times=_submissions(options.arrivals), progress=talk)
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
        "fleetlab bench serve llm-serve --batch 32",
    )
)
def serve(options: Annotated[ServeOptions, FLAT]) -> None:
    """Serve predictions over HTTP, with dynamic batching and a bounded queue, until SIGTERM or Ctrl-C."""
    from fleetlab.serving.server.server import serve as serve_

    serve_(options, progress=talk)
