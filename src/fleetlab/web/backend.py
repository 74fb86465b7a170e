"""The work behind the page: simulate, open, describe, read and report, each in a process of the pool."""

from __future__ import annotations

import asyncio
import json
from collections import OrderedDict
from collections.abc import Mapping
from hashlib import sha256
from pathlib import Path
from typing import Any, cast

from fleetlab.core import FleetlabError, TraceError
from fleetlab.core.scenario import Scenario
from fleetlab.web import messages
from fleetlab.web.comparison import compare_runs
from fleetlab.web.link import Link, words_query
from fleetlab.web.operations import Operation, Operations
from fleetlab.web.pool import Listener, WorkerPool
from fleetlab.web.runs import completed_by_both, pack
from fleetlab.web.traces import TraceNames
from fleetlab.web.uploads import Uploads

KEPT = 64  # comparisons in memory
READ_LIMIT = 120.0  # s for a reader at most


class WhatIfBackend:
    """The parts of a running page."""

    def __init__(self, *, root: Path | None, workers: int, upload_bytes: int, limit: float) -> None:
        self.uploads = Uploads(upload_bytes)
        self.traces = TraceNames(root, self.uploads)
        self.operations = Operations()
        self.workers, self.limit = workers, limit
        # Outcomes are kept with the comparison, so that no others can get their addresses in memory, and their key.
        self._comparisons: OrderedDict[tuple[str, int, int], tuple[messages.RunComparison, Any, Any]] = OrderedDict()
        self.pool: WorkerPool

    async def open(self) -> None:
        """Start the processes."""
        self.pool = WorkerPool(self.workers)
        self.pool.start()

    async def close(self) -> None:
        """End all work and delete the uploads."""
        await self.operations.close()
        await self.pool.close()
        self.uploads.close()

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
        self, scenario: Scenario, operation: Operation, listener: Listener | None = None, among: str | None = None
    ) -> dict[str, Any]:
        """Simulate one scenario; means and quantiles are of all jobs that complete, or of those `among` them."""
        key = scenario.key if among is None else f"{scenario.key} {sha256(among.encode()).hexdigest()}"
        trace, query = str(scenario.data.name), words_query(scenario)
        timeline = {} if among is not None else self._timeline(scenario)
        return await self._request("run", trace, operation, key, listener, query=query, among=among, **timeline)

    def _timeline(self, scenario: Scenario) -> dict[str, Any]:
        """Return where the timeline of a scenario is stored."""
        stored = self.traces.locate(str(scenario.data.name))[0]
        name = sha256(f"{stored} {scenario.key}".encode()).hexdigest()[:32]
        return {"timelines": str(self.uploads.beside("timelines")), "timeline": name}

    async def timeline(self, scenario: Scenario, operation: Operation, ask: Mapping[str, Any]) -> dict[str, Any]:
        """Answer a question about the timeline of a run: its rows, a tile, its queue, or jobs at a point."""
        key = f"{scenario.key} {json.dumps(ask, sort_keys=True)}"
        trace, query = str(scenario.data.name), words_query(scenario)
        return await self._request("timeline", trace, operation, key, query=query, ask=ask, **self._timeline(scenario))

    async def run(self, link: Link, operation: Operation) -> messages.RunComparison:
        """Compare a scenario with the baseline."""
        base, now = await self._outcomes(link, operation)
        key = (link.query(), id(base), id(now))
        if key not in self._comparisons:
            self._comparisons[key] = (await asyncio.to_thread(_compare, link, base, now), base, now)
            while len(self._comparisons) > KEPT:
                self._comparisons.popitem(last=False)
        return self._comparisons[key][0]

    async def _outcomes(self, link: Link, operation: Operation) -> tuple[dict[str, Any], dict[str, Any]]:
        if link.base == link.now:
            outcome = await self.outcome(link.now, operation)
            return outcome, outcome
        listener = self._early_answer(link, operation)
        base, now = await _both(self.outcome(link.base, operation), self.outcome(link.now, operation, listener))
        if base["completed"] == now["completed"]:
            return base, now
        # A job that only one side ran would change the mean of that side: the same jobs are measured on both.
        among = pack(completed_by_both(base, now))
        return await _both(*(self.outcome(s, operation, among=among) for s in (link.base, link.now)))

    def _key(self, scenario: Scenario) -> str:
        """Return the key under which the outcome is kept."""
        return f"run {self.traces.locate(str(scenario.data.name))[0]} {scenario.key}"

    def _early_answer(self, link: Link, operation: Operation) -> Listener:
        """Return a listener that passes on the numbers as soon as they are known, before figures are drawn."""
        key = self._key(link.base)

        def listener(progress: dict[str, Any] | None) -> None:
            message = dict(progress or {})
            numbers = message.pop("numbers", None)
            base = self.pool.kept(key)
            if numbers is not None and base is not None and numbers["completed"] == base["completed"]:
                message["answer"] = compare_runs(link, base, numbers, "")
            operation.update(message)

        return listener

    async def open_trace(self, trace: str, operation: Operation) -> messages.TraceSummary:
        """Return the contents of a trace."""
        return cast("messages.TraceSummary", {"trace": trace, **await self._request("open", trace, operation)})

    async def describe_trace(self, trace: str, operation: Operation) -> messages.TraceDescription:
        """Describe a trace as `fleetlab describe` does."""
        return cast("messages.TraceDescription", {"trace": trace, **await self._request("describe", trace, operation)})

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

    async def read(self, settings: Mapping[str, Any], operation: Operation) -> messages.LogSummary:
        """Read an uploaded log into a trace; delete the upload if that fails."""
        upload = self.uploads.get(settings["upload"])
        if not upload.files:
            msg = "the upload has no file, or was read already"
            raise TraceError(msg, hint="upload the file first")
        request = {
            "verb": "read", "path": str(upload.log), "out": str(upload.trace), "scratch": str(upload.scratch),
            "format": settings["format"], "zone": settings.get("zone") or None, "map": settings.get("map") or None,
        }  # fmt: skip
        try:
            counts = await self.pool.request(
                f"read {upload.name}", request, visitor=operation.visitor, limit=min(self.limit, READ_LIMIT),
                listener=operation.update, kind="read", keep=False,
            )  # fmt: skip
        except FleetlabError as e:
            self.uploads.remove(upload.name)
            raise TraceError(upload.with_own_names(str(e)), hint=upload.with_own_names(e.hint or "")) from None
        except BaseException:
            self.uploads.remove(upload.name)
            raise
        notes = [upload.with_own_names(note) for note in counts["notes"]]
        upload.keep_trace_only()
        return {"trace": f"upload:{upload.name}", "jobs": counts["jobs"], "rejects": counts["rejects"], "notes": notes}


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
