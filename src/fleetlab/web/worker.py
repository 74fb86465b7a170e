"""A process of the page that does the work: requests come in, progress messages and answers go out, one per line.

It keeps the traces that it has opened, so that the next request about them is quick. The server ends it when a request
is cancelled, takes too long or too much memory, and starts another.
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
from dataclasses import replace
from pathlib import Path
from typing import TYPE_CHECKING, Any, TextIO

from fleetlab.core import FleetlabError

if TYPE_CHECKING:
    from fleetlab.core.scenario import Scenario
    from fleetlab.web.link import Link
    from fleetlab.web.runs import RunRecord

COMPILING = "compiling a rule that is used for the first time"  # what is reported while it is
MOST_TRACES = 2  # in memory
REFINE = "refine"  # the kind of process that simulates replicas while nothing else is to be done
NICE = 10  # lower priority of it
INTERVAL = 0.1  # s between two progress messages
LOOK = 0.5  # s between two looks whether something is compiled
COMPILES = str(Path(__file__).parents[1] / "sim" / "jit.py")
GIB = 1 << 30
MEMORY = 12 * GIB  # of a process
READ_MEMORY = 4 * GIB  # of one that reads an upload
READ_DISK = 2 * GIB  # of any file that it writes
JOBS = 2_000_000  # of an uploaded log
REJECTS = 20  # rejected rows of an upload that are listed
POINTS = 30_000  # of all figures of a description

_traces: OrderedDict[str, Any] = OrderedDict()


class WorkCancelled(Exception):
    """Nobody waits for the answer any more."""


class Channel:
    """Messages to the server."""

    def __init__(self, out: TextIO) -> None:
        self._out, self._last = out, 0.0
        self._lock, self._main = threading.Lock(), threading.get_ident()
        self.turn, self.cancelled = 0, -1  # the number of the current request, and of the last that was cancelled

    def progress(self, what: str, count: int, fraction: float | None) -> None:
        """Send a progress message, but not too many; end work that was cancelled."""
        if self.cancelled == self.turn:
            raise WorkCancelled
        if time.monotonic() - self._last > INTERVAL:
            self._last = time.monotonic()
            self.send({"what": what, "count": count, "fraction": fraction})

    def send(self, message: Mapping[str, Any]) -> None:
        """Send one line."""
        line = json.dumps(message, ensure_ascii=True, allow_nan=False)
        try:
            with self._lock:
                self._out.write(line + "\n")
                self._out.flush()
        except BrokenPipeError:
            os._exit(0)  # the server has ended

    def report_compilation(self) -> None:
        """Say, from a thread of its own, when a rule is compiled: that takes a minute, in which nothing else is said.

        It looks at where the work is: also one that waits until another process has compiled the rule is there.
        """
        reported = -1
        while True:
            time.sleep(LOOK)
            frame = sys._current_frames().get(self._main)
            while frame is not None and frame.f_code.co_filename != COMPILES:
                frame = frame.f_back
            if frame is None:
                reported = -1
            elif reported != self.turn and self.turn:
                reported = self.turn
                self.send({"what": COMPILING, "count": 0, "fraction": None})


def open_trace(request: Mapping[str, Any], channel: Channel) -> dict[str, Any]:
    """Return the contents of a trace: what the page shows of it before anything is simulated."""
    from fleetlab.web.traces import summarize

    return summarize(_trace(request, channel))


def describe_trace(request: Mapping[str, Any], channel: Channel) -> dict[str, Any]:
    """Describe a trace, as HTML and as JSON."""
    from fleetlab.core import as_json
    from fleetlab.describe import describe
    from fleetlab.web.figures import description_html

    result = describe(_trace(request, channel), progress=channel.progress)
    channel.progress("drawing", 0, None)
    return {"html": description_html(result, most=POINTS), "result": json.loads(as_json(result))}


def run(request: Mapping[str, Any], channel: Channel) -> dict[str, Any]:
    """Simulate a scenario, and store the run; only a `whole` result has its tables, which take a while."""
    from fleetlab.core import as_json
    from fleetlab.sim import simulate
    from fleetlab.web import runs, timelines

    began, cpu = time.perf_counter(), time.process_time()
    scenario = runs.check_size(bound(request, channel))
    jobs = scenario.workload.frame.height
    channel.progress("simulating", jobs, None)
    result = simulate(scenario, progress=channel.progress)
    timelines.keep(request, result)
    runs.keep(request, result)
    if jobs <= timelines.SOON:
        timelines.complete(request, result)

    def took() -> dict[str, float]:
        return {"seconds": time.perf_counter() - began, "cpu_seconds": time.process_time() - cpu}

    if request.get("base") and (early := _compared(request, runs.RunRecord.load(runs.folder_of(request)))) is not None:
        about = {"what": "drawing", "count": jobs, "fraction": None}
        channel.send(about | {"base": request["base"], "answer": early | took()})
    if not request["whole"]:
        return took()
    saved = json.loads(as_json(result))
    return {"result": saved, "clock": [scenario.workload.epoch, scenario.workload.zone]} | took()


def _compared(request: Mapping[str, Any], now: RunRecord) -> dict[str, Any] | None:
    """Compare a run with its baseline, if that is there and completed the same jobs; nothing is drawn."""
    from fleetlab.web.comparison import compare_runs
    from fleetlab.web.runs import RunRecord, folder_of

    if not folder_of(request, "base").exists():
        return None
    base = RunRecord.load(folder_of(request, "base"))
    same = base.done["job"].equals(now.done["job"])
    return dict(compare_runs(_link(request), base, now, drawn=False)) if same else None


def compare(request: Mapping[str, Any], channel: Channel) -> dict[str, Any]:
    """Compare a run with its baseline."""
    from fleetlab.web.comparison import compare_runs

    base, now = _records(request, channel)
    channel.progress("drawing", now.jobs.height, None)
    return {**compare_runs(_link(request), base, now), **request.get("took", {})}


def refine(request: Mapping[str, Any], channel: Channel) -> dict[str, Any]:
    """Compare a run with its baseline in paired replicas, as `fleetlab compare` does; send what is known meanwhile."""
    from fleetlab.studies.compare.runs import Runs
    from fleetlab.web.comparison import compare_runs
    from fleetlab.web.runs import check_size, folder_of, measure_replica

    began, cpu = time.perf_counter(), time.process_time()
    base, now = _records(request, channel)
    link = _link(request)
    first = compare_runs(link, base, now, drawn=False)
    if not any(row["metric"] == "mean wait" for row in first["rows"]):  # no job completed: nothing is up to chance
        return dict(first) | {"planned": 1}
    sides = {"baseline": ("base_query", "base"), "scenario": ("query", "record")}
    if base is now:
        del sides["scenario"]
    scenarios = {
        name: check_size(bound({**request, "query": request[query]}, channel)) for name, (query, _) in sides.items()
    }
    reached: list[Any] = [0, 0.0]

    def alive(*_: object) -> None:
        channel.progress("refining", *reached)

    def done(_: str, count: int, fraction: float | None) -> None:
        reached[:] = count // len(scenarios), fraction
        alive()

    def look(runs: Runs) -> None:
        answer = compare_runs(link, base, now, drawn=False, runs=runs)
        channel.send({"what": "refining", "count": reached[0], "fraction": reached[1], "answer": answer})

    arguments = {n: {"folder": folder_of(request, side), "progress": alive} for n, (_, side) in sides.items()}
    runs = Runs.of(
        scenarios, workers=0, progress=done, function=measure_replica, arguments=arguments, look=look
    )  # fmt: skip
    took = {"seconds": time.perf_counter() - began, "cpu_seconds": time.process_time() - cpu}
    return {**compare_runs(link, base, now, drawn=False, runs=runs), **took}


def _records(request: Mapping[str, Any], channel: Channel) -> tuple[RunRecord, RunRecord]:
    from fleetlab.web.runs import open_record

    base = open_record({**request, "query": request["base_query"], "record": request["base"]}, channel)
    return base, base if request["base"] == request["record"] else open_record(request, channel)


def _link(request: Mapping[str, Any]) -> Link:
    from fleetlab.web.link import Link, read_scenario

    now, base = (read_scenario(request[name], request["name"]) for name in ("query", "base_query"))
    return Link(now, base, submitted=request["submitted"])


def bound(request: Mapping[str, Any], channel: Channel) -> Scenario:
    """Return the scenario of a request, with its trace open."""
    from fleetlab.web.link import read_scenario
    from fleetlab.web.traces import cluster_of

    trace = _trace(request, channel)
    cluster = None if trace.cluster is not None else cluster_of(trace)[0]
    return read_scenario(request["query"], request["name"]).bind(trace, cluster)


def timeline(request: Mapping[str, Any], channel: Channel) -> dict[str, Any]:
    """Answer a question about the timeline of a run."""
    from fleetlab.web import timelines

    return timelines.answer(request, channel)


def advise(request: Mapping[str, Any], channel: Channel) -> dict[str, Any]:
    """Say what to do about waiting in a scenario."""
    from fleetlab.web.advice import advise as study

    return dict(study(bound(request, channel), request["study"], request["goal"], channel.progress))


def explain(request: Mapping[str, Any], channel: Channel) -> dict[str, Any]:
    """Explain one job, or find the jobs that are meant."""
    from fleetlab.web.advice import explain_job

    scenario = bound(request, channel)
    return dict(explain_job(scenario, request["job"], what_if=request["what_if"], progress=channel.progress))


def report(request: Mapping[str, Any], channel: Channel) -> dict[str, Any]:
    """Return results as one HTML file; the comparison with the baseline comes first."""
    from fleetlab.core import Result, SavedResult
    from fleetlab.report import report as write
    from fleetlab.web.comparison import as_result

    channel.progress("writing the report", 0, None)
    results: dict[str, Result] = {label: SavedResult.from_json(r) for label, r in request["results"].items()}
    if request["comparison"]:
        last = list(results.values())[1]
        results = {"scenario and baseline": as_result(request["comparison"], last.provenance)} | results
    with tempfile.TemporaryDirectory(prefix="fleetlab-") as folder:
        return {"html": write(results, Path(folder) / "report.html", title=request["title"]).read_text("utf-8")}


def read(request: Mapping[str, Any], channel: Channel) -> dict[str, Any]:
    """Read an uploaded log into a trace; only in a process that ends after it."""
    from fleetlab.core import TraceError
    from fleetlab.traces import read as read_log

    _as_stranger(request)
    settings = {"map": request["map"], "zone": request["zone"]}
    trace = read_log(request["path"], request["format"], **settings, progress=channel.progress)
    if len(trace.workload) > JOBS:
        msg = f"a log on this page has at most {JOBS:,} jobs, not {len(trace.workload):,}"
        raise TraceError(msg, hint="read it with `fleetlab read`, and start the page with --traces FOLDER")
    title = request.get("title") or trace.workload.source  # the visitor's name of the file in place of ours
    trace = replace(
        trace, workload=replace(trace.workload, source=title), provenance=replace(trace.provenance, source=title)
    )
    trace.save(request["out"])
    reasons = trace.tables()["rejects"].select("reason", "rows").group_by("reason", maintain_order=True).sum()
    return {
        "jobs": len(trace.workload),
        "rejects": trace.rejects.height,
        "reject_reasons": reasons.head(REJECTS).to_dicts(),
        "rejected": trace.rejects.head(REJECTS).select("file", "line", "reason").to_dicts(),
        "notes": list(trace.notes),
    }


def _as_stranger(request: Mapping[str, Any]) -> None:
    from fleetlab.core.files import confine

    tempfile.tempdir = request["scratch"]  # deleted with the upload, however this ends
    confine(Path(request["scratch"]).parent)


def preview(request: Mapping[str, Any], _: Channel) -> dict[str, Any]:
    """Look at an uploaded log before it is read; only in a process that ends after it."""
    from dataclasses import asdict

    from fleetlab.traces.table.reader import preview as look

    _as_stranger(request)
    return asdict(look(request["path"]))


def ready(_: Mapping[str, Any], __: Channel) -> dict[str, Any]:
    """Answer that this process works."""
    return {}


VERBS: dict[str, Callable[[Mapping[str, Any], Channel], dict[str, Any]]] = {
    "open": open_trace,
    "describe": describe_trace,
    "run": run,
    "advise": advise,
    "explain": explain,
    "compare": compare,
    REFINE: refine,
    "timeline": timeline,
    "report": report,
    "preview": preview,
    "read": read,
    "ready": ready,
}


def _trace(request: Mapping[str, Any], channel: Channel) -> Any:  # noqa: ANN401
    """Return the trace of a request, from memory if it has not changed since."""
    from fleetlab.core.data import open_trace as open_by_name

    key = request["trace"]
    if key in _traces:
        _traces.move_to_end(key)
    else:
        while len(_traces) >= MOST_TRACES:
            _traces.popitem(last=False)
        _traces[key] = open_by_name(request["where"], channel.progress)
    return _traces[key]


def _warm_up() -> None:
    """Load compiled code, or compile it once, before anybody waits for it."""
    import polars as pl

    from fleetlab.core import Cluster, Workload
    from fleetlab.sim import simulate

    two = Workload.of(pl.DataFrame({"submit": [0.0, 1.0], "runtime": 1.0, "gpu_milli": 1000}), source="warm")
    simulate(two, Cluster.uniform(1, 1)).tables()


def limit_resources(kind: str) -> None:
    """Limit the memory of this process, and the size of files that a reader writes."""
    reads = kind == "read"
    limits = {resource.RLIMIT_DATA: READ_MEMORY if reads else MEMORY, resource.RLIMIT_CORE: 0}
    if reads:
        limits[resource.RLIMIT_FSIZE] = READ_DISK
    for what, most in limits.items():
        hard = resource.getrlimit(what)[1]
        resource.setrlimit(what, (most if hard == resource.RLIM_INFINITY else min(most, hard), hard))


def _answer(request: Mapping[str, Any], channel: Channel) -> dict[str, Any]:
    """Return an answer whatever happens: an error that the user can fix with its hint, all others as internal."""
    try:
        return {"answer": VERBS[request["verb"]](request, channel)}
    except WorkCancelled:
        return {"cancelled": True}
    except FleetlabError as e:
        return {"error": str(e), "hint": e.hint}
    except MemoryError:
        return {"error": "not enough memory", "hint": "a smaller trace"}
    except OSError as e:
        return {"error": f"the operating system refused: {e.strerror or type(e).__name__}", "hint": "is the disk full?"}
    except (KeyboardInterrupt, SystemExit):
        raise
    except BaseException as e:  # polars panics with one that is no Exception
        import traceback

        traceback.print_exc()
        return {"error": f"internal error: {type(e).__name__}", "hint": "the terminal of `fleetlab web` says more"}


def main(kind: str, uploads: str = "") -> None:
    """Answer one request after the other, until the server ends; if that was killed, delete the `uploads` it left."""
    limit_resources(kind)
    if kind == REFINE:
        os.nice(NICE)
    # What a library prints must not come between the answers.
    channel = Channel(os.fdopen(os.dup(1), "w", encoding="utf-8"))
    os.dup2(2, 1)
    if kind != "read":
        _warm_up()
    channel.send({"ready": True})
    if kind != "read":
        threading.Thread(target=channel.report_compilation, daemon=True).start()
    next_request = _requests(channel, uploads)
    while True:
        request = next_request()
        channel.turn = request.get("turn", 0)
        channel.send(_answer(request, channel))


def _requests(channel: Channel, uploads: str) -> Callable[[], dict[str, Any]]:
    """Return a function that waits for the next request; when the server ends, so does this process."""
    from queue import SimpleQueue

    queue: SimpleQueue[dict[str, Any]] = SimpleQueue()

    def listen() -> None:
        for line in sys.stdin:
            message = json.loads(line)
            if "stop" in message:
                channel.cancelled = message["stop"]
            else:
                queue.put(message)
        remove_uploads(uploads)
        os._exit(0)

    threading.Thread(target=listen, daemon=True).start()
    return queue.get


def remove_uploads(uploads: str) -> None:
    """Delete the uploads of a server that has ended; another of its processes may still be writing there."""
    import shutil

    if not uploads:
        return
    for _ in range(20):
        shutil.rmtree(uploads, ignore_errors=True)
        if not Path(uploads).exists():
            return
        time.sleep(0.1)


if __name__ == "__main__":
    main(*sys.argv[1:])
