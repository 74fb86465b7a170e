"""Ask an API server: create, patch, delete and watch objects, many at a time."""

from __future__ import annotations

import asyncio
import json
from collections.abc import AsyncIterator
from types import TracebackType

import aiohttp

from realtest.kubernetes.lab import TOKEN, LabError, own_certificate
from realtest.kubernetes.objects import Object

AT_ONCE = 16
PODS = "/api/v1/namespaces/default/pods"


class Client:
    """Requests to one server; at most so many at once."""

    def __init__(self, url: str) -> None:
        self.url = url
        self._free = asyncio.Semaphore(AT_ONCE)

    async def __aenter__(self) -> Client:
        connector = aiohttp.TCPConnector(ssl=own_certificate(), limit=AT_ONCE + 4)
        headers = {"Authorization": f"Bearer {TOKEN}"}
        whole = aiohttp.ClientTimeout(total=None)
        self._session = aiohttp.ClientSession(
            self.url, connector=connector, headers=headers, timeout=whole, read_bufsize=2**22
        )
        return self

    async def __aexit__(
        self, kind: type[BaseException] | None, error: BaseException | None, at: TracebackType | None
    ) -> None:
        await self._session.close()

    async def list(self, path: str) -> Object:
        """All objects of a kind, as kubectl would write them."""
        return await self._ask("GET", path)

    async def create(self, path: str, what: Object) -> Object:
        """Create an object; return it as the server keeps it."""
        return await self._ask("POST", path, what)

    async def status(self, path: str, what: Object) -> Object:
        """Change an object's status."""
        return await self._ask("PATCH", f"{path}/status", {"status": what}, "application/merge-patch+json")

    async def delete(self, path: str) -> None:
        """Delete an object at once; one that is gone already is no error."""
        await self._ask("DELETE", path, {"kind": "DeleteOptions", "apiVersion": "v1", "gracePeriodSeconds": 0})

    async def watch(self, path: str, since: str) -> AsyncIterator[tuple[str, Object]]:
        """Yield changes as (type, object) from a version on; until the caller stops."""
        words = {"watch": "1", "resourceVersion": since, "timeoutSeconds": "7200"}
        async with self._session.get(path, params=words) as answer:
            async for line in answer.content:
                change = json.loads(line)
                if change["type"] == "ERROR":
                    msg = f"the server ended the watch of {path}: {change['object'].get('message')}"
                    raise LabError(msg)
                yield change["type"], change["object"]

    async def _ask(self, verb: str, path: str, what: Object | None = None, kind: str = "application/json") -> Object:
        body = None if what is None else json.dumps(what)
        async with self._free, self._session.request(verb, path, data=body, headers={"Content-Type": kind}) as answer:
            given = await answer.json()
            if answer.status >= 400 and answer.status not in (404, 409):
                msg = f"{verb} {path}: {answer.status} {given.get('message')}"
                raise LabError(msg)
            return dict(given)
