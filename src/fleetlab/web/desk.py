"""What the page can do, whoever asks and however: play, open, describe, read, report."""

from __future__ import annotations

import asyncio
from collections import OrderedDict
from collections.abc import Mapping
from pathlib import Path
from typing import Any, cast

from fleetlab.core import FleetlabError, TraceError
from fleetlab.web import answers
from fleetlab.web.beside import answer
from fleetlab.web.book import Book
from fleetlab.web.operations import Operation, Operations
from fleetlab.web.pace import Pace, after, slow
from fleetlab.web.pool import Pool, Tell
from fleetlab.web.scenario import Link, Scenario
from fleetlab.web.uploads import Uploads

ANSWERS = 64  # that are kept as they were shown
TO_READ = 120.0  # s for a reader, at the most


class Desk:
    """The parts of a running page."""

    def __init__(self, *, root: Path | None, workers: int, upload_bytes: int, limit: float) -> None:
        self.uploads = Uploads(upload_bytes)
        self.book = Book(root, self.uploads)
        self.operations, self.pace = Operations(), Pace()
        self.workers, self.limit = workers, limit
        # Outcomes are kept with the answer, so that no other can take their place in memory, and their key.
        self._answers: OrderedDict[tuple[str, int, int], tuple[answers.Answer, Any, Any]] = OrderedDict()
        self.pool: Pool

    async def open(self) -> None:
        """Start the processes."""
        self.pool = Pool(self.workers)
        self.pool.start()

    async def close(self) -> None:
        """End all work, and leave nothing behind."""
        await self.operations.close()
        await self.pool.close()
        self.uploads.close()

    # -- what is asked of a process -----------------------------------------------------------------------------------

    async def _ask(
        self,
        do: str,
        trace: str,
        operation: Operation,
        key: str = "",
        tell: Tell | None = None,
        **more: Any,  # noqa: ANN401
    ) -> dict[str, Any]:
        name, where = self.book.where(trace)
        whole = f"{do} {name} {key}"
        operation.ahead = lambda: self.pool.ahead(whole)
        request = {"do": do, "trace": name, "where": where, **more}
        return await self.pool.ask(
            whole,
            request,
            visitor=operation.visitor,
            limit=self.limit,
            tell=tell or operation.tell,
            patience=operation.patience,
        )

    async def outcome(
        self, scenario: Scenario, operation: Operation, tell: Tell | None = None, first: int | None = None
    ) -> dict[str, Any]:
        """What one scenario gives, for all jobs or for the first so many."""
        key = scenario.key if first is None else f"{scenario.key} {first}"
        found = await self._ask("run", scenario.trace, operation, key, tell, query=scenario.key, first=first)
        self.pace.note(scenario, found["jobs"][0], found["answered"])
        return found

    async def dragged(self, link: Link, operation: Operation) -> answers.Answer:
        """As `run`, but what takes long is told for the first jobs before: the operation's progress has that answer."""
        if all(self.pool.kept(self._key(scenario)) for scenario in (link.base, link.now)):
            return await self.run(link, operation)
        opened = await self.opened(link.now.trace, operation)
        jobs = next(int(e["value"] or 0) for e in opened["summary"] if e["metric"] == "jobs")
        size = self.pace.first(link, jobs)
        while size < jobs:
            base, now = await _both(*(self.outcome(s, operation, first=size) for s in (link.base, link.now)))
            if not slow(size, jobs, max(base["seconds"], now["seconds"])):
                break
            operation.partly, size = True, after(size, jobs)
            operation.tell({"what": "simulating", "done": size, "share": None, "answer": answer(link, base, now, "")})
        return await self.run(link, operation)

    async def run(self, link: Link, operation: Operation) -> answers.Answer:
        """A scenario beside the baseline."""
        if link.base == link.now:
            base = now = await self.outcome(link.now, operation)
        else:
            base, now = await _both(
                self.outcome(link.base, operation), self.outcome(link.now, operation, self._early(link, operation))
            )
        key = (link.query(), id(base), id(now))
        if key not in self._answers:
            self._answers[key] = (await asyncio.to_thread(_answered, link, base, now), base, now)
            while len(self._answers) > ANSWERS:
                self._answers.popitem(last=False)
        return self._answers[key][0]

    def _key(self, scenario: Scenario) -> str:
        """Under which name what it gave is kept."""
        return f"run {self.book.where(scenario.trace)[0]} {scenario.key}"

    def _early(self, link: Link, operation: Operation) -> Tell:
        """Tells the numbers of a scenario as soon as they are known, before anything is drawn."""
        key = self._key(link.base)

        def tell(progress: dict[str, Any] | None) -> None:
            told = dict(progress or {})
            numbers = told.pop("numbers", None)
            base = self.pool.kept(key)
            if numbers is not None and base is not None:
                told["answer"] = answer(link, base, numbers, "")
            operation.tell(told)

        return tell

    async def opened(self, trace: str, operation: Operation) -> answers.Opened:
        """What is in a trace."""
        found = await self._ask("open", trace, operation)
        return cast("answers.Opened", {"trace": trace, **found})

    async def described(self, trace: str, operation: Operation) -> answers.Described:
        """A trace as the papers describe theirs."""
        found = await self._ask("describe", trace, operation)
        return {"trace": trace, "html": found["html"], "result": found["result"]}

    async def report(self, link: Link, operation: Operation) -> str:
        """Baseline, scenario and kept runs as one page that can be mailed."""
        runs = {"baseline": link.base, "now": link.now} if link.base != link.now else {"baseline": link.base}
        runs |= {f"kept {k}: {kept.title}": kept for k, kept in enumerate(link.kept, 1)}
        found = [(await self.outcome(scenario, operation))["result"] for scenario in runs.values()]
        request = {
            "do": "report",
            "results": dict(zip(runs, found, strict=True)),
            "title": f"fleetlab: {link.now.title}",
        }
        done = await self.pool.ask(
            f"report {link.query()}",
            request,
            visitor=operation.visitor,
            limit=self.limit,
            tell=operation.tell,
            keep=False,
        )
        return str(done["html"])

    async def read(self, asked: Mapping[str, Any], operation: Operation) -> answers.Read:
        """Make a trace of a log that was sent; nothing of it is left if that fails."""
        upload = self.uploads.get(asked["upload"])
        if not upload.files:
            msg = "the upload has no file, or was read already"
            raise TraceError(msg, hint="send the file first")
        request = {
            "do": "read", "path": str(upload.log), "out": str(upload.trace), "scratch": str(upload.scratch),
            "format": asked["format"], "zone": asked.get("zone") or None, "map": asked.get("map") or None,
        }  # fmt: skip
        try:
            found = await self.pool.ask(
                f"read {upload.name}", request, visitor=operation.visitor, limit=min(self.limit, TO_READ),
                tell=operation.tell, kind="read", keep=False,
            )  # fmt: skip
        except FleetlabError as e:
            self.uploads.remove(upload.name)
            raise TraceError(upload.said(str(e)), hint=upload.said(e.hint or "")) from None
        except BaseException:
            self.uploads.remove(upload.name)
            raise
        upload.tidy()
        upload.files.clear()
        upload.told.clear()
        return {"trace": f"upload:{upload.name}", "jobs": found["jobs"], "rejects": found["rejects"]}


async def _both(first: Any, second: Any) -> tuple[Any, Any]:  # noqa: ANN401
    """Both at once; where one fails, the other is not waited for."""
    jobs = [asyncio.ensure_future(one) for one in (first, second)]
    try:
        return tuple(await asyncio.gather(*jobs))
    finally:
        for job in jobs:
            job.cancel()


def _answered(link: Link, base: dict[str, Any], now: dict[str, Any]) -> answers.Answer:
    from fleetlab.web.fragments import drawn

    how = f"simulate · {now['result']['provenance']['source']} · now: {link.now.title} · baseline: {link.base.title}"
    return answer(link, base, now, str(drawn(base, now, how)))
