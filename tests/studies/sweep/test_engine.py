"""Workers and the queue: who dies is replaced, a cell that kills is a record, and two sweeps share the work."""

import time

import pytest

from fleetlab import FleetlabError
from fleetlab.studies.sweep._claims import claiming
from fleetlab.studies.sweep._code import code
from fleetlab.studies.sweep._engine import Engine
from fleetlab.studies.sweep._plan import Plan
from fleetlab.studies.sweep._queue import Queue
from fleetlab.studies.sweep._store import Store


class Here:
    """A worker in this process: says at once what it is told to say of a cell; None: it dies."""

    def __init__(self, say):
        self.say, self.said = say, {"code": code()}

    def give(self, ask):
        self.said = self.say(ask)

    def hear(self):
        return self.said

    def why(self):
        return "SIGKILL: out of memory"

    def stop(self, *, now):
        self.said = None


class Hands:
    """So many of them."""

    name, most_deaths = "here", 2

    def __init__(self, say, count=2):
        self.say, self.hired, self._count = say, 0, count

    def count(self):
        return self._count

    def hire(self):
        self.hired += 1
        return Here(self.say)

    def listen(self, workers, timeout):
        return list(workers)

    def close(self):
        pass


def fine(ask):
    return {"metrics": {"mean wait": float(ask["seed"])}, "units": {"mean wait": "s"}, "schedule": ask["key"],
            "seconds": {"all": 0.01}}  # fmt: skip


@pytest.fixture
def plan(study):
    return Plan.of(study(seeds=10), lambda *_: None)


@pytest.fixture
def store(tmp_path):
    return Store.at(tmp_path / "store", make=True)


def cells(plan):
    return [plan.cell(case, seed) for seed in plan.study.seeds.listed for case in plan.study.cases()]


def run(plan, store, say, *, some=None, count=2):
    """Play cells; what came, and how many workers it took."""
    found, hands = {}, Hands(say, count)
    with claiming(store.folder) as claims, Engine(hands, plan.ask) as engine:
        queue = Queue(store, claims, lambda cell, record: found.setdefault(cell.key, record))
        queue.add(cells(plan) if some is None else some)
        engine.run(queue)
    return found, hands.hired, queue


def test_every_cell_is_played_once_and_kept(plan, store):
    asked = []
    found, hired, _ = run(plan, store, lambda ask: (asked.append(ask["key"]), fine(ask))[1])
    assert sorted(asked) == sorted(cell.key for cell in cells(plan)) == sorted(found)
    assert all(store.get(key)["schedule"] == key for key in found)
    assert hired == 2
    assert list((store.folder / "claims").iterdir()) == []


def test_a_dying_worker_is_replaced_and_its_cell_is_played_again(plan, store):
    died = set()

    def once(ask):
        if ask["seed"] % 3 == 0 and ask["key"] not in died:
            return died.add(ask["key"])
        return fine(ask)

    found, hired, _ = run(plan, store, once)
    assert len(died) == 8
    assert all("failed" not in record for record in found.values())
    assert len(found) == 20
    assert 2 < hired <= 2 + 8  # at the end those that are left are enough


def test_a_cell_that_kills_two_workers_is_a_record_and_not_the_end(plan, store):
    killer = cells(plan)[5].key
    found, _, _ = run(plan, store, lambda ask: None if ask["key"] == killer else fine(ask))
    assert found[killer]["failed"] == "2 workers died over it: SIGKILL: out of memory"
    assert sum("failed" in record for record in found.values()) == 1
    again, _, queue = run(plan, store, fine)
    assert len(queue.played) == 1  # what died may have been the machine's fault: it is played once more
    assert "failed" not in again[killer]


def test_workers_that_never_start_are_the_end(plan, store):
    class Stillborn(Here):
        def __init__(self, say):
            super().__init__(say)
            self.said = None

    hands = Hands(fine)
    hands.hire = lambda: Stillborn(fine)
    with claiming(store.folder) as claims, Engine(hands, plan.ask) as engine:
        queue = Queue(store, claims, lambda *_: None)
        queue.add(cells(plan))
        with pytest.raises(FleetlabError, match="workers do not start: SIGKILL"):
            engine.run(queue)


def test_a_worker_of_another_fleetlab_is_refused(plan, store):
    hands = Hands(fine)

    def other():
        worker = Here(fine)
        worker.said = {"code": "0ther", "where": "node-7"}
        return worker

    hands.hire = other
    with claiming(store.folder) as claims, Engine(hands, plan.ask) as engine:
        queue = Queue(store, claims, lambda *_: None)
        queue.add(cells(plan))
        with pytest.raises(FleetlabError, match="another fleetlab than this one: node-7"):
            engine.run(queue)


def test_cells_of_one_draw_go_to_one_worker_as_long_as_there_are_others(plan, store):
    with claiming(store.folder) as claims:
        queue = Queue(store, claims, lambda *_: None)
        queue.add(cells(plan))
        seeds = [(queue.take("a").seed, queue.take("b").seed) for _ in range(10)]
    assert seeds == [(k, k + 1) for k in range(0, 10, 2) for _ in range(2)]


def test_what_another_sweep_is_at_is_waited_for_and_not_played_again(plan, store):
    every = cells(plan)
    with claiming(store.folder) as other:
        theirs = every[3]
        assert other.take(theirs.key)
        asked, begin = [], time.monotonic()

        def slowly(ask):
            asked.append(ask["key"])
            return fine(ask)

        def answers(cell, record):
            # When all else is done, the other sweep finishes its cell.
            if len(found) == len(every) - 2:
                store.put(fine_record(theirs))
                other.drop(theirs.key)
            found[cell.key] = record

        def fine_record(cell):
            return {"key": cell.key, "cell": plan.ask(cell), **fine(plan.ask(cell)), "made": {"engine": "other"}}

        found = {}
        with claiming(store.folder) as claims, Engine(Hands(slowly), plan.ask) as engine:
            queue = Queue(store, claims, answers)
            queue.add(every)
            engine.run(queue)
    assert theirs.key not in asked
    assert found[theirs.key]["made"] == {"engine": "other"}
    assert len(found) == len(every)
    assert time.monotonic() - begin < 60


def test_what_a_dead_sweep_had_claimed_is_played(plan, store):
    every = cells(plan)
    with claiming(store.folder) as other:
        other.take(every[3].key)
        other.mine.clear()  # as if it had been killed: its claim stays, its lock does not
    found, _, _ = run(plan, store, fine)
    assert len(found) == len(every)
