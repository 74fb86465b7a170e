"""The work behind the page: simulate, open, describe, read and report, each in a process of the pool."""

from __future__ import annotations

import asyncio
import contextlib
import json
import os
import sys
import time
from collections.abc import Awaitable, Callable, Mapping
from hashlib import sha256
from pathlib import Path
from types import MappingProxyType
from typing import Any, NamedTuple, cast

from fleetlab.core import FleetlabError, TraceError
from fleetlab.core.scenario import Scenario
from fleetlab.web import messages
from fleetlab.web.link import Link, words_query
from fleetlab.web.operations import Operation, Operations, Pace
from fleetlab.web.pool import Listener, WorkerPool
from fleetlab.web.traces import DEFAULT_TRACE, TraceNames, builtin_jobs
from fleetlab.web.uploads import Upload, Uploads
from fleetlab.web.worker import REFINE

MOST_TRACES = 1000  # of which the number of jobs is remembered
READ_LIMIT = 60.0  # s for a reader at most


class Work(NamedTuple):
    """What an operation does, and what is known of how long that takes: the same `about` takes the same time."""

    kind: str
    do: Callable[[Operation], Awaitable[Any]]
    about: str = ""
    trace: str = ""


class WhatIfBackend:
    """The parts of a running page."""

    def __init__(self, *, root: Path | None, workers: int, upload_bytes: int, limit: float) -> None:
        self.uploads = Uploads(upload_bytes)
        self.traces = TraceNames(root, self.uploads)
        self.operations = Operations()
        self.pace = Pace()
        self._jobs: dict[str, int] = {}  # of traces that were opened
        self.workers, self.limit = workers, limit
        self._begins = root is None  # whoever opens a page without traces of its own sees the sample
        self.pool: WorkerPool
        self.compiling: list[str] = []  # rules that are not compiled yet
        self._compiler: asyncio.Task[None] | None = None

    async def open(self) -> None:
        """Start the processes."""
        self.pool = WorkerPool(self.workers, str(self.uploads.root))
        self.pool.start()
        self._compiler = asyncio.create_task(self._compile())
        if self._begins:
            self.start(Work("run", self._begin, trace=DEFAULT_TRACE), visitor="")

    async def _begin(self, operation: Operation) -> messages.RunComparison:
        """Answer what the page asks first, before somebody opens it."""
        await self.open_trace(DEFAULT_TRACE, operation)
        return await self.run(Link.of(""), operation)

    async def _compile(self) -> None:
        """Compile all rules in a process of its own, once the first of the others works: they compile the same."""
        ready = {"verb": "ready"}
        await self.pool.request("ready", ready, visitor="", limit=READ_LIMIT, listener=lambda _: None, keep=False)
        path = {"PYTHONPATH": os.pathsep.join(p for p in sys.path if p)}
        process = await asyncio.create_subprocess_exec(
            sys.executable, "-P", "-m", "fleetlab.web.compile_rules",
            stdout=asyncio.subprocess.PIPE, env=os.environ | path, start_new_session=True,
        )  # fmt: skip
        assert process.stdout is not None
        try:
            async for line in process.stdout:
                self.compiling = json.loads(line)["left"]
        finally:
            self.compiling = []
            if process.returncode is None:
                with contextlib.suppress(ProcessLookupError):
                    process.kill()
                await process.wait()

    async def close(self) -> None:
        """End all work and delete the uploads."""
        if self._compiler is not None:
            self._compiler.cancel()
            await asyncio.gather(self._compiler, return_exceptions=True)
        await self.operations.close()
        await self.pool.close()
        self.uploads.close()

    def start(self, work: Work, visitor: str) -> Operation:
        """Start an operation, and learn how long it takes."""
        jobs = self._jobs.get(work.trace, builtin_jobs(work.trace))

        async def timed(operation: Operation) -> Any:  # noqa: ANN401
            result = await work.do(operation)
            self.pace.learn(work.kind, work.about, jobs, time.monotonic() - operation.began)
            return result

        return self.operations.start(work.kind, visitor, timed, self.pace.expected(work.kind, work.about, jobs))

    # -- requests to a process ----------------------------------------------------------------------------------------

    async def _request(
        self,
        verb: str,
        trace: str,
        operation: Operation,
        key: str = "",
        listener: Listener | None = None,
        kind: str = "run",
        **more: Any,  # noqa: ANN401
    ) -> dict[str, Any]:
        stored, where = self.traces.locate(trace)
        full_key = f"{verb} {stored} {key}"
        operation.ahead = lambda: self.pool.ahead(full_key)
        request = {"verb": verb, "name": trace, "trace": stored, "where": where, **more}
        return await self.pool.request(
            full_key,
            request,
            visitor=operation.visitor,
            limit=self.limit,
            listener=listener or operation.update,
            kind=kind,
            patience=operation.patience,
        )

    async def outcome(
        self,
        scenario: Scenario,
        operation: Operation,
        listener: Listener | None = None,
        early: Mapping[str, Any] = MappingProxyType({}),
        *,
        whole: bool = False,
    ) -> dict[str, Any]:
        """Simulate one scenario; it is compared with an `early` baseline at once; a `whole` result has its tables."""
        trace, query = str(scenario.data.name), words_query(scenario)
        stored = self._stored("timeline", scenario) | self._stored("record", scenario)
        words: dict[str, Any] = {"query": query, "whole": whole} | stored | dict(early)
        return await self._request("run", trace, operation, f"{scenario.key} {whole}", listener, **words)

    def _stored(self, what: str, scenario: Scenario) -> dict[str, Any]:
        """Return where the timeline or the record of a scenario is stored."""
        stored = self.traces.locate(str(scenario.data.name))[0]
        name = sha256(f"{stored} {scenario.key}".encode()).hexdigest()[:32]
        return {f"{what}s": str(self.uploads.beside(f"{what}s")), what: name}

    async def timeline(self, scenario: Scenario, operation: Operation, ask: Mapping[str, Any]) -> dict[str, Any]:
        """Answer a question about the timeline of a run: its rows, a tile, its queue, or jobs at a point."""
        key = f"{scenario.key} {json.dumps(ask, sort_keys=True)}"
        trace, query = str(scenario.data.name), words_query(scenario)
        return await self._request(
            "timeline", trace, operation, key, query=query, ask=ask, **self._stored("timeline", scenario)
        )

    async def run(self, link: Link, operation: Operation) -> messages.RunComparison:
        """Compare a scenario with the baseline, by one run each."""
        trace, key, words = self._pair(link)
        if self.pool.cached(f"compare {self.traces.locate(trace)[0]} {key}") is None:
            ran = await self._simulate(link, operation, words)
            words["took"] = {name: ran[name] for name in ("seconds", "cpu_seconds")}
        answer = await self._request("compare", trace, operation, key, **words, **self._stored("record", link.now))
        return cast("messages.RunComparison", answer | {"link": link.query()})

    async def refine(self, link: Link, operation: Operation) -> messages.RunComparison:
        """Compare a scenario with the baseline by paired replicas; pass on the numbers of the first of them."""
        trace, key, words = self._pair(link)
        if self.pool.cached(f"{REFINE} {self.traces.locate(trace)[0]} {key}") is None:
            await self.run(link, operation)

        def listener(progress: dict[str, Any] | None) -> None:
            message = dict(progress or {})
            if "answer" in message:
                message["answer"] = message["answer"] | {"link": link.query()}
            operation.update(message)

        stored = self._stored("record", link.now)
        answer = await self._request(REFINE, trace, operation, key, listener, REFINE, **words, **stored)
        return cast("messages.RunComparison", answer | {"link": link.query()})

    def _pair(self, link: Link) -> tuple[str, str, dict[str, Any]]:
        """Return the trace of a scenario and its baseline, the key of both, and what a process must know of them."""
        key = f"{link.now.key} {link.base.key} {link.submitted}"
        words: dict[str, Any] = {
            "query": words_query(link.now), "base_query": words_query(link.base), "submitted": link.submitted,
            "base": self._stored("record", link.base)["record"],
        }  # fmt: skip
        return str(link.now.data.name), key, words

    async def _simulate(self, link: Link, operation: Operation, words: Mapping[str, Any]) -> dict[str, Any]:
        """Simulate both; pass on the numbers as soon as they are known, but for those of a part of the jobs."""

        def listener(progress: dict[str, Any] | None) -> None:
            message = dict(progress or {})
            answer, base = message.pop("answer", None), message.pop("base", None)
            # The run may have been begun for another visitor, who has another baseline.
            if answer is not None and base == words["base"] and link.between is None:
                message["answer"] = answer | {"link": link.query()}
            operation.update(message)

        early = {name: words[name] for name in ("base", "base_query", "submitted")}
        if link.base == link.now:
            return await self.outcome(link.now, operation, listener, early)
        _, now = await _both(self.outcome(link.base, operation), self.outcome(link.now, operation, listener, early))
        return now  # type: ignore[no-any-return]

    async def open_trace(self, trace: str, operation: Operation) -> messages.TraceSummary:
        """Return the contents of a trace."""
        summary = await self._request("open", trace, operation)
        if len(self._jobs) >= MOST_TRACES:
            self._jobs.clear()
        self._jobs[trace] = next(int(e["value"]) for e in summary["summary"] if e["metric"] == "jobs")
        return cast("messages.TraceSummary", {"trace": trace, "title": self.traces.title(trace), **summary})

    async def describe_trace(self, trace: str, operation: Operation) -> messages.TraceDescription:
        """Describe a trace as `fleetlab describe` does."""
        return cast("messages.TraceDescription", {"trace": trace, **await self._request("describe", trace, operation)})

    async def advise(self, link: Link, study: str, goal: str, operation: Operation) -> messages.Advice:
        """Return what a study recommends for a scenario."""
        scenario, key = link.now, f"{link.now.key} {study} {goal if study == 'capacity' else ''}"
        words: dict[str, Any] = {"query": words_query(scenario), "study": study, "goal": goal}
        return cast("messages.Advice", await self._request("advise", str(scenario.data.name), operation, key, **words))

    async def explain(self, link: Link, job: str, operation: Operation, *, what_if: bool) -> messages.JobStory:
        """Tell the story of a job of a scenario, or find the jobs that are meant."""
        scenario, key = link.now, f"{link.now.key} {what_if} {job}"
        words: dict[str, Any] = {"query": words_query(scenario), "job": job, "what_if": what_if}
        answer = await self._request("explain", str(scenario.data.name), operation, key, **words)
        return cast("messages.JobStory", answer)

    async def report(self, link: Link, operation: Operation) -> str:
        """Return baseline, scenario and pinned runs as one HTML file."""
        outcomes = {"baseline": link.base, "scenario": link.now} if link.base != link.now else {"baseline": link.base}
        outcomes |= {f"pinned {k}: {scenario.title}": scenario for k, scenario in enumerate(link.pinned, 1)}
        results = {label: (await self.outcome(s, operation, whole=True))["result"] for label, s in outcomes.items()}
        request = {
            "verb": "report",
            "results": results,
            "comparison": await self.refine(link, operation) if link.base != link.now else None,
            "title": f"fleetlab: {link.now.title}",
        }
        answer = await self.pool.request(
            f"report {link.query()}",
            request,
            visitor=operation.visitor,
            limit=self.limit,
            listener=operation.update,
            keep=False,
        )
        return str(answer["html"])

    async def preview(self, name: str, operation: Operation) -> messages.LogPreview:
        """Look at an uploaded log before it is read; delete the upload if that fails."""
        upload = self.uploads.get(name)
        answer = await self._read(upload, {"verb": "preview"}, operation)
        rows = [[upload.with_own_names(cell) for cell in row] for row in answer["rows"]]
        return cast("messages.LogPreview", answer | {"rows": rows, "note": upload.with_own_names(answer["note"])})

    async def read(self, settings: Mapping[str, Any], operation: Operation) -> messages.LogSummary:
        """Read an uploaded log into a trace; delete the upload if that fails."""
        upload = self.uploads.get(settings["upload"])
        title = upload.title
        request = {
            "verb": "read", "out": str(upload.trace), "title": title,
            "format": settings["format"], "zone": settings.get("zone") or None, "map": settings.get("map") or None,
        }  # fmt: skip
        counts = await self._read(upload, request, operation)
        own = upload.with_own_names
        rejected = [row | {"file": own(row["file"])} for row in counts["rejected"]]
        upload.keep_trace_only()
        result = counts | {"trace": f"upload:{upload.name}", "title": title, "rejected": rejected}
        return cast("messages.LogSummary", result | {"notes": [own(note) for note in counts["notes"]]})

    async def _read(self, upload: Upload, request: dict[str, Any], operation: Operation) -> dict[str, Any]:
        """Have a process of its own look at the files of an upload; delete them if that fails."""
        if not upload.files:
            raise TraceError("the upload has no file, or was read already", hint="upload the file first")
        request |= {"path": str(upload.log), "scratch": str(upload.scratch)}
        try:
            return await self.pool.request(
                f"{request['verb']} {upload.name}", request, visitor=operation.visitor,
                limit=min(self.limit, READ_LIMIT), listener=operation.update, kind="read", keep=False,
            )  # fmt: skip
        except FleetlabError as e:
            self.uploads.remove(upload.name)
            raise type(e)(upload.with_own_names(str(e)), hint=upload.with_own_names(e.hint or "")) from None
        except BaseException:
            self.uploads.remove(upload.name)
            raise


async def _both(first: Any, second: Any) -> tuple[Any, Any]:  # noqa: ANN401
    """Wait for both; where one fails, cancel the other."""
    tasks = [asyncio.ensure_future(one) for one in (first, second)]
    try:
        return tuple(await asyncio.gather(*tasks))
    finally:
        for task in tasks:
            task.cancel()
