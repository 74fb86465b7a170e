"""A process that does the heavy work for the page: one request a line comes in, words on progress and an answer go out.

It keeps the traces it has opened, so that the next question about them is answered at once. The page ends it when a
question is withdrawn, takes too long or too much memory, and starts another.
"""

from __future__ import annotations

import json
import os
import resource
import sys
import tempfile
import threading
import time
from collections import OrderedDict
from collections.abc import Callable, Mapping
from pathlib import Path
from typing import Any, TextIO

from fleetlab.core import FleetlabError

HELD = 2  # traces in memory
OFTEN = 0.1  # s between two words on progress
GIB = 1 << 30
MEMORY = 12 * GIB  # of a worker
MEMORY_TO_READ = 4 * GIB  # of one that reads a stranger's file
DISK_TO_READ = 2 * GIB  # of any file that it writes
JOBS = 2_000_000  # of a log that is taken in
POINTS = 30_000  # of all figures of a description

_opened: OrderedDict[str, Any] = OrderedDict()


class Stopped(Exception):
    """Nobody waits for the answer any more."""


class Door:
    """Where answers go; progress is not told more often than anybody can see."""

    def __init__(self, out: TextIO) -> None:
        self._out, self._last = out, 0.0
        self.turn, self.unwanted = 0, -1  # the question that is worked on, and the last that was withdrawn

    def tell(self, what: str, done: int, share: float | None) -> None:
        """How far it is; here work ends that is not wanted any more."""
        if self.unwanted == self.turn:
            raise Stopped
        if time.monotonic() - self._last > OFTEN:
            self._last = time.monotonic()
            self.put({"what": what, "done": done, "share": share})

    def put(self, message: Mapping[str, Any]) -> None:
        """One line."""
        line = json.dumps(message, ensure_ascii=True, allow_nan=False)
        try:
            self._out.write(line + "\n")
            self._out.flush()
        except BrokenPipeError:
            os._exit(0)  # the page is gone


def open_(request: Mapping[str, Any], door: Door) -> dict[str, Any]:
    """What is in a trace: enough for the controls of the page."""
    from fleetlab.web.world import by_type, cluster_of

    trace = _trace(request, door)
    cluster, said = cluster_of(trace)
    summary = [e._asdict() for e in trace.summary()]
    notes = [*([said] if said else []), *trace.notes, *trace.workload.notes]
    return {"summary": summary, "types": by_type(cluster).to_dicts(), "notes": notes, "source": trace.workload.source}


def describe(request: Mapping[str, Any], door: Door) -> dict[str, Any]:
    """The trace as the papers describe theirs, ready to be shown, and as JSON."""
    from fleetlab.core import as_json
    from fleetlab.describe import describe as profile
    from fleetlab.web.fragments import described

    found = profile(_trace(request, door), progress=door.tell)
    door.tell("drawing", 0, None)
    return {"html": described(found, most=POINTS), "result": json.loads(as_json(found))}


def run(request: Mapping[str, Any], door: Door) -> dict[str, Any]:
    """Play a scenario."""
    from fleetlab.web.outcome import played
    from fleetlab.web.scenario import Link

    trace = _trace(request, door)
    door.tell("simulating", len(trace.workload), None)
    began, spent = time.perf_counter(), time.process_time()

    def timed(found: dict[str, Any]) -> dict[str, Any]:
        return found | {"seconds": time.perf_counter() - began, "cpu_seconds": time.process_time() - spent}

    answered: list[float] = []  # when the numbers were there

    def early(found: dict[str, Any]) -> None:
        numbers = timed(found)
        answered.append(numbers["seconds"])
        door.put({"what": "drawing", "done": len(trace.workload), "share": None, "numbers": numbers})

    now = Link.of(request["query"]).now
    found = timed(played(trace, now, early, first=request.get("first"), tell=door.tell))
    return found | {"answered": answered[0] if answered else found["seconds"]}


def report(request: Mapping[str, Any], door: Door) -> dict[str, Any]:
    """Results as one page that can be mailed."""
    from fleetlab.core import SavedResult
    from fleetlab.report import report as write

    door.tell("writing the report", 0, None)
    with tempfile.TemporaryDirectory(prefix="fleetlab-") as folder:
        results = {label: SavedResult.from_json(about) for label, about in request["results"].items()}
        return {"html": write(results, Path(folder) / "report.html", title=request["title"]).read_text("utf-8")}


def read(request: Mapping[str, Any], door: Door) -> dict[str, Any]:
    """A stranger's log, read into a trace beside it; only ever asked of a process that ends after it."""
    from fleetlab.core import TraceError
    from fleetlab.traces import read as read_log

    tempfile.tempdir = request["scratch"]  # goes with the upload, however this ends
    trace = read_log(request["path"], request["format"], map=request["map"], zone=request["zone"], progress=door.tell)
    if len(trace.workload) > JOBS:
        msg = f"a log on this page has at most {JOBS:,} jobs, not {len(trace.workload):,}"
        raise TraceError(msg, hint="read it with `fleetlab read` and give its folder by --traces")
    trace.save(request["out"])
    return {"jobs": len(trace.workload), "rejects": trace.rejects.height}


VERBS: dict[str, Callable[[Mapping[str, Any], Door], dict[str, Any]]] = {
    "open": open_,
    "describe": describe,
    "run": run,
    "report": report,
    "read": read,
}


def _trace(request: Mapping[str, Any], door: Door) -> Any:  # noqa: ANN401
    """The trace that is meant; the name it is kept under changes when the trace does."""
    from fleetlab.traces.builtin import open_trace

    name = request["trace"]
    if name in _opened:
        _opened.move_to_end(name)
    else:
        while len(_opened) >= HELD:
            _opened.popitem(last=False)
        _opened[name] = open_trace(request["where"], progress=door.tell)
    return _opened[name]


def _warm() -> None:
    """Load what is compiled, or compile it once, before somebody waits for it."""
    import polars as pl

    from fleetlab.core import Cluster, Workload
    from fleetlab.sim import simulate

    two = Workload.of(pl.DataFrame({"submit": [0.0, 1.0], "runtime": 1.0, "gpu_milli": 1000}), source="warm")
    simulate(two, Cluster.uniform(1, 1)).tables()


def _limited(kind: str) -> None:
    """What a process may take: a file that unpacks to a mountain must not bury the machine."""
    reads = kind == "read"
    limits = {resource.RLIMIT_DATA: MEMORY_TO_READ if reads else MEMORY, resource.RLIMIT_CORE: 0}
    if reads:
        limits[resource.RLIMIT_FSIZE] = DISK_TO_READ
    for what, most in limits.items():
        hard = resource.getrlimit(what)[1]
        resource.setrlimit(what, (most if hard == resource.RLIM_INFINITY else min(most, hard), hard))


def _answer(request: Mapping[str, Any], door: Door) -> dict[str, Any]:
    """Whatever happens, an answer: what the user can mend in words, all else as an accident of ours."""
    try:
        return {"found": VERBS[request["do"]](request, door)}
    except Stopped:
        return {"stopped": True}
    except FleetlabError as e:
        return {"error": str(e), "hint": e.hint}
    except MemoryError:
        return {"error": "not enough memory for this", "hint": "a smaller trace"}
    except OSError as e:
        return {"error": f"the system refused: {e.strerror or type(e).__name__}", "hint": "is the disk full?"}
    except (KeyboardInterrupt, SystemExit):
        raise
    except BaseException as e:  # the frame library panics with one that is no Exception
        import traceback

        traceback.print_exc()
        return {"error": f"something broke here: {type(e).__name__}", "hint": "the terminal of the page says more"}


def main(kind: str) -> None:
    """Answer one line after the other, until there are no more."""
    _limited(kind)
    # Whatever a library prints must not come between the answers.
    door = Door(os.fdopen(os.dup(1), "w", encoding="utf-8"))
    os.dup2(2, 1)
    if kind != "read":
        _warm()
    door.put({"ready": True})
    requests = _requests(door)
    while True:
        request = requests()
        door.turn = request.get("turn", 0)
        door.put(_answer(request, door))


def _requests(door: Door) -> Callable[[], dict[str, Any]]:
    """What is asked for; when nobody is there to ask, the process ends, in the middle of work too."""
    from queue import SimpleQueue

    queue: SimpleQueue[dict[str, Any]] = SimpleQueue()

    def listen() -> None:
        for line in sys.stdin:
            said = json.loads(line)
            if "stop" in said:
                door.unwanted = said["stop"]
            else:
                queue.put(said)
        os._exit(0)

    threading.Thread(target=listen, daemon=True).start()
    return queue.get


if __name__ == "__main__":
    main(sys.argv[1])
