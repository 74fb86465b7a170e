"""The queue before the processes, and the processes: in turn, once for the same question, and not for nobody."""

import asyncio
import os
import time

import pytest

from fleetlab import FleetlabError
from fleetlab.web import pool as pools
from fleetlab.web.messages import TookTooLong, TooManyRequests, WorkerEnded
from fleetlab.web.pool import RequestCancelled, WorkerPool


def silent(_):
    """Ignore progress."""


TRACE = {"trace": "t", "name": "builtin:2000:0", "where": "builtin:2000:0"}


def ask(pool, key, visitor="ann", verb="open", limit=60.0, **more):
    request = {"verb": verb} | TRACE | more
    return asyncio.ensure_future(pool.request(key, request, visitor=visitor, limit=limit, listener=silent))


def test_visitors_are_served_in_turn():
    async def taken():
        pool = WorkerPool(1)
        asked = [ask(pool, f"{who}{k}", who) for who, many in (("ann", 4), ("bob", 2), ("eve", 1)) for k in range(many)]
        await asyncio.sleep(0)
        found = [(await pool._next()).key for _ in asked]
        for one in asked:
            one.cancel()
        return found

    assert asyncio.run(taken()) == ["ann0", "bob0", "eve0", "ann1", "bob1", "ann2", "ann3"]


def test_the_same_question_stands_in_the_queue_once():
    async def queued():
        pool = WorkerPool(1)
        asked = [ask(pool, "same", who) for who in ("ann", "bob", "eve")]
        await asyncio.sleep(0)
        found = len(pool._pending)
        for one in asked:
            one.cancel()
        return found

    assert asyncio.run(queued()) == 1


def test_what_nobody_waits_for_leaves_the_queue():
    async def left():
        pool = WorkerPool(1)
        first, second = ask(pool, "same", "ann"), ask(pool, "same", "bob")
        await asyncio.sleep(0)
        first.cancel()
        await asyncio.sleep(0)
        with_one = len(pool._pending)
        second.cancel()
        await asyncio.sleep(0)
        return with_one, len(pool._pending), pool.ahead("same")

    assert asyncio.run(left()) == (1, 0, 0)


def test_a_visitor_who_asks_for_too_much_is_refused_and_others_are_not():
    async def refused():
        pool = WorkerPool(1)
        asked = [ask(pool, f"ann{k}") for k in range(pools.EACH)]
        await asyncio.sleep(0)
        with pytest.raises(TooManyRequests):
            await ask(pool, "one more")
        asked.append(ask(pool, "bob", "bob"))
        await asyncio.sleep(0)
        found = len(pool._pending)
        for one in asked:
            one.cancel()
        return found

    assert asyncio.run(refused()) == pools.EACH + 1


def run(story):
    """A story with one real process."""

    async def told():
        pool = WorkerPool(1)
        pool.start()
        try:
            return await asyncio.wait_for(story(pool), 240)
        finally:
            await pool.close()

    return asyncio.run(told())


def worker_of(pool, key):
    return pool._pending[key].worker._process.pid


async def working(pool, key):
    """Until a process works on it."""
    while pool._pending[key].worker is None:
        await asyncio.sleep(0.01)
    return worker_of(pool, key)


LONG = {"verb": "run", "query": "order=fair&load=10"}
FOREVER = {"verb": "run", "query": "backfill=conservative&load=10&warm_up=none"}


def test_a_process_answers_keeps_and_survives_a_mistake():
    async def story(pool):
        first = await ask(pool, "a")
        with pytest.raises(FleetlabError, match="no pool or GPU type by that name"):
            await ask(pool, "b", verb="run", query="nodes=X+1")
        with pytest.raises(FleetlabError, match="internal error"):
            await ask(pool, "broken", verb="nothing of the kind")
        return first, await ask(pool, "a"), pool.cached("a")

    first, again, kept = run(story)
    assert first["summary"][0]["value"] == 2000
    assert again == first == kept


async def withdrawn(pool):
    """The process that worked on something long which nobody wants any more, and the one that answers the next."""
    heard = asyncio.Event()
    request = TRACE | FOREVER
    listener = lambda message: heard.set() if message["what"] == "simulating jobs" else None  # noqa: E731
    asked = asyncio.ensure_future(pool.request("long", request, visitor="ann", limit=200.0, listener=listener))
    await asyncio.wait_for(heard.wait(), 200)
    before = worker_of(pool, "long")
    asked.cancel()
    with pytest.raises(asyncio.CancelledError):
        await asked
    short = ask(pool, "short")
    await asyncio.sleep(0)
    work = pool._pending["short"]  # taken now: it may be over before anybody looks again
    assert (await short)["summary"][0]["value"] == 2000
    return before, work.worker._process.pid


def test_work_that_is_withdrawn_stops_and_its_process_goes_on_with_what_it_has_opened(monkeypatch):
    monkeypatch.setattr(pools, "GRACE", 100.0)
    before, after = run(withdrawn)
    assert before == after


def test_a_process_that_does_not_stop_is_ended_and_the_next_is_answered_by_another(monkeypatch):
    monkeypatch.setattr(pools, "GRACE", -1.0)  # it has no time to
    before, after = run(withdrawn)
    assert before != after
    with pytest.raises(ProcessLookupError):
        os.kill(before, 0)


def test_work_beyond_its_time_is_stopped_and_a_process_that_dies_is_replaced():
    async def story(pool):
        await ask(pool, "warm")
        with pytest.raises(TookTooLong, match=r"took more than 0\.01 s"):
            await ask(pool, "late", limit=0.01, **LONG)
        asked = ask(pool, "killed", **FOREVER)
        await asyncio.sleep(0)
        first = await working(pool, "killed")
        os.kill(first, 9)
        while (second := await working(pool, "killed")) == first:
            await asyncio.sleep(0.01)
        os.kill(second, 9)
        with pytest.raises(WorkerEnded, match="has ended twice") as told:
            await asked
        assert told.value.status == 503
        return await ask(pool, "after")

    assert run(story)["summary"][0]["value"] == 2000


def test_work_whose_process_dies_once_is_done_by_another(tmp_path):
    kept = {f"{what}s": str(tmp_path / f"{what}s") for what in ("record", "timeline")}
    kept |= {"record": "one", "timeline": "one", "whole": True}

    async def story(pool):
        asked = ask(pool, "killed", verb="run", query="load=1.5", **kept)
        await asyncio.sleep(0)
        os.kill(await working(pool, "killed"), 9)
        again = await asked
        return again, await ask(pool, "undisturbed", verb="run", query="load=1.5", **kept)

    again, undisturbed = run(story)
    assert again["result"] == undisturbed["result"]


def only_process(pool):
    """The one process of a pool, while it has nothing to do."""
    return pool._slots[0].get_coro().cr_frame.f_locals["worker"]


def test_an_idle_process_that_dies_is_replaced_before_anybody_asks():
    async def story(pool):
        await ask(pool, "warm")
        dead = only_process(pool)
        os.kill(dead._process.pid, 9)
        while (new := only_process(pool)) is dead or not new.was_ready:
            await asyncio.sleep(0.01)
        asked = ask(pool, "after")
        await asyncio.sleep(0)
        work = pool._pending["after"]
        await asked
        return work.tried, work.worker is new

    assert run(story) == (False, True)


def test_a_process_that_has_just_died_is_not_given_work():
    async def story(pool):
        await ask(pool, "warm")
        os.kill(only_process(pool)._process.pid, 9)
        time.sleep(0.5)  # it is dead, and this loop cannot have heard of it
        asked = ask(pool, "after")
        await asyncio.sleep(0)
        work = pool._pending["after"]
        await asked
        return work.tried

    assert run(story) is False


def test_closing_ends_what_goes_on():
    async def story():
        pool = WorkerPool(1)
        pool.start()
        asked = ask(pool, "long", **LONG)
        await asyncio.sleep(0)
        began = time.monotonic()
        await pool.close()
        with pytest.raises(RequestCancelled):
            await asked
        return time.monotonic() - began

    assert asyncio.run(story()) < 30
