"""A server whose behaviour is known: `python _load_server.py [TIMES]` says its port, and is ready after TIMES asks."""

import asyncio
import random
import sys
import time
from collections import Counter

from aiohttp import web

routes = web.RouteTableDef()
seen = Counter()
free = {}  # when the one worker of a queue is free again
waits = int(sys.argv[1]) if len(sys.argv) > 1 else 0


@routes.get("/ready")
async def ready(request):
    seen["ready"] += 1
    return web.Response(status=200 if seen["ready"] > waits else 503)


@routes.get("/seen")
async def counts(request):
    return web.json_response(seen)


@routes.post("/predict")
async def fixed(request):
    """After `ms`."""
    seen["predict"] += 1
    await asyncio.sleep(float(request.query.get("ms", 0)) / 1000)
    return web.json_response({})


@routes.post("/predict/batch")
async def batch(request):
    asked = await request.json()
    seen["inputs"] += len({one["seed"] for one in asked["inputs"]})
    return web.json_response({})


@routes.post("/uniform")
async def uniform(request):
    """After a time that the input's seed draws from 0.1 s to 0.9 s, each by itself."""
    drawn = random.Random((await request.json())["seed"]).uniform(0.1, 0.9)
    await asyncio.sleep(drawn)
    return web.json_response({})


@routes.post("/stall")
async def stall(request):
    """Nobody is served for `s` seconds from the `at`-th request on."""
    seen[request.query["id"]] += 1
    if seen[request.query["id"]] == int(request.query["at"]):
        time.sleep(float(request.query["s"]))
    return web.json_response({})


@routes.post("/queue")
async def queue(request):
    """One worker that takes `ms` for each, first come, first served."""
    which, now = request.query["id"], time.monotonic()
    free[which] = max(free.get(which, 0.0), now) + float(request.query["ms"]) / 1000
    await asyncio.sleep(free[which] - now)
    return web.json_response({})


@routes.post("/refuse")
async def refuse(request):
    """Every second one, at once; the others after 50 ms."""
    seen["refuse"] += 1
    if seen["refuse"] % 2:
        return web.json_response({"error": "full"}, status=int(request.query["status"]))
    await asyncio.sleep(0.05)
    return web.json_response({})


@routes.post("/status")
async def status(request):
    return web.json_response({"error": "no"}, status=int(request.query["code"]))


@routes.post("/never")
async def never(request):
    await asyncio.sleep(600)


@routes.post("/endless")
async def endless(request):
    answer = web.StreamResponse()
    await answer.prepare(request)
    while True:
        await answer.write(b"x" * 1000)
        await asyncio.sleep(0.01)


@routes.post("/reset")
async def reset(request):
    request.transport.abort()
    return web.Response()


@routes.post("/garbled")
async def garbled(request):
    request.transport.write(b"who are you?\r\n\r\n")
    await asyncio.sleep(1)
    return web.Response()


@routes.post("/redirect")
async def redirect(request):
    return web.Response(status=307, headers={"Location": "/predict"})


async def main():
    app = web.Application(handler_args={"access_log": None})
    app.add_routes(routes)
    runner = web.AppRunner(app)
    await runner.setup()
    site = web.TCPSite(runner, "127.0.0.1", 0)
    await site.start()
    print(site._server.sockets[0].getsockname()[1], flush=True)
    await asyncio.sleep(600)


asyncio.run(main())
