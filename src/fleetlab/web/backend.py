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
from typing import Any, NamedTuple, cast

from fleetlab.core import FleetlabError, TraceError
from fleetlab.core.scenario import Scenario
from fleetlab.web import messages
from fleetlab.web.comparison import compare_runs
from fleetlab.web.kept import KeptAnswers
from fleetlab.web.kept import pack as pack_json
from fleetlab.web.link import Link, words_query
from fleetlab.web.operations import Operation, Operations
from fleetlab.web.pace import Pace
from fleetlab.web.pool import Listener, WorkerPool
from fleetlab.web.runs import completed_by_both, of_part, pack
from fleetlab.web.traces import TraceNames, builtin_jobs
from fleetlab.web.uploads import Upload, Uploads

KEPT = 8 << 20  # bytes of comparisons in memory
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
        self._comparisons = KeptAnswers(KEPT)
        self.pool: WorkerPool
        self.compiling: list[str] = []  # rules that are not compiled yet
        self._compiler: asyncio.Task[None] | None = None

    async def open(self) -> None:
        """Start the processes."""
        self.pool = WorkerPool(self.workers, str(self.uploads.root))
        self.pool.start()
        self._compiler = asyncio.create_task(self._compile())

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
            patience=operation.patience,
        )

    async def outcome(
        self, scenario: Scenario, operation: Operation, listener: Listener | None = None
    ) -> dict[str, Any]:
        """Simulate one scenario."""
        trace, query = str(scenario.data.name), words_query(scenario)
        return await self._request(
            "run", trace, operation, scenario.key, listener, query=query, **self._stored("timeline", scenario),
            **self._stored("record", scenario),
        )  # fmt: skip

    async def _part(self, scenario: Scenario, operation: Operation, part: Mapping[str, Any]) -> dict[str, Any]:
        """Measure a part of the jobs of a run that was simulated."""
        trace, query = str(scenario.data.name), words_query(scenario)
        key = f"{scenario.key} {sha256(json.dumps(part).encode()).hexdigest()}"
        stored = self._stored("record", scenario)
        return await self._request("measure", trace, operation, key, query=query, part=part, **stored)

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
        """Compare a scenario with the baseline."""
        key = f"{self.traces.locate(str(link.now.data.name))[0]} {link.query()}"
        if (kept := self._comparisons.get(key)) is not None:
            return cast("messages.RunComparison", kept)
        base, now = await self._outcomes(link, operation)
        comparison = await asyncio.to_thread(_compare, link, base, now)
        self._comparisons.keep(key, pack_json(comparison))
        return comparison

    async def _outcomes(self, link: Link, operation: Operation) -> tuple[dict[str, Any], dict[str, Any]]:
        if link.base == link.now:
            base = now = await self.outcome(link.now, operation)
        else:
            listener = self._early_answer(link, operation)
            base, now = await _both(self.outcome(link.base, operation), self.outcome(link.now, operation, listener))
        if base["completed"] == now["completed"] and link.between is None:
            return base, now
        return await self._measured(link, base, now, operation)

    async def _measured(
        self, link: Link, base: dict[str, Any], now: dict[str, Any], operation: Operation
    ) -> tuple[dict[str, Any], dict[str, Any]]:
        """Measure the same jobs on both sides: those that completed in both, and were submitted in the time meant.

        A job that only one side ran would change the mean of that side. Rows of jobs are those of the baseline: at
        another load the same jobs have other times.
        """
        part: dict[str, Any] = {"between": None if link.between is None else list(link.between)}
        if base["completed"] != now["completed"]:
            part["among"] = pack(completed_by_both(base, now))
        before = await self._part(link.base, operation, part)
        measured = of_part(base, before)
        if link.base == link.now:
            return measured, measured
        after = await self._part(link.now, operation, part | {"rows": before["rows"]})
        return measured, of_part(now, after)

    def _key(self, scenario: Scenario) -> str:
        """Return the key under which the outcome is kept."""
        return f"run {self.traces.locate(str(scenario.data.name))[0]} {scenario.key}"

    def _early_answer(self, link: Link, operation: Operation) -> Listener:
        """Return a listener that passes on the numbers as soon as they are known, before figures are drawn.

        Those of a part of the jobs are not among them.
        """
        key = "" if link.between is not None else self._key(link.base)

        def listener(progress: dict[str, Any] | None) -> None:
            message = dict(progress or {})
            numbers = message.pop("numbers", None)
            base = self.pool.kept(key) if numbers is not None else None
            if numbers is not None and base is not None and numbers["completed"] == base["completed"]:
                message["answer"] = compare_runs(link, base, numbers, "")
            operation.update(message)

        return listener

    async def open_trace(self, trace: str, operation: Operation) -> messages.TraceSummary:
        """Return the contents of a trace."""
        summary = await self._request("open", trace, operation)
        if len(self._jobs) >= KEPT:
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
        """Return baseline, scenario and kept runs as one HTML file."""
        outcomes = {"baseline": link.base, "scenario": link.now} if link.base != link.now else {"baseline": link.base}
        outcomes |= {f"pinned {k}: {scenario.title}": scenario for k, scenario in enumerate(link.kept, 1)}
        results = {label: (await self.outcome(s, operation))["result"] for label, s in outcomes.items()}
        request = {
            "verb": "report",
            "results": results,
            "comparison": await self.run(link, operation) if link.base != link.now else None,
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
            msg = "the upload has no file, or was read already"
            raise TraceError(msg, hint="upload the file first")
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


def _compare(link: Link, base: dict[str, Any], now: dict[str, Any]) -> messages.RunComparison:
    from fleetlab.web.figures import comparison_html

    source = now["result"]["provenance"]["source"]
    how = f"simulate · {source} · scenario: {link.now.title} · baseline: {link.base.title}"
    return compare_runs(link, base, now, str(comparison_html(base, now, how)))
