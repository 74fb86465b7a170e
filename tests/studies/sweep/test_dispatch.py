"""Workers and the queue: a dead worker is replaced, a cell that kills has a record, and two sweeps share the work."""

import time

import pytest

from fleetlab import FleetlabError
from fleetlab.studies.runner import Dispatcher, Reply, code_version
from fleetlab.studies.sweep.cell_queue import CellQueue, claiming
from fleetlab.studies.sweep.plan import CELL, SweepPlan
from fleetlab.studies.sweep.store import RunStore


class FakeWorker:
    """A worker in this process that answers at once; None: it dies."""

    def __init__(self, say):
        self.say, self.message = say, Reply({"code": code_version(CELL)})

    def give(self, question):
        answer = self.say(question)
        self.message = None if answer is None else Reply(answer)

    def receive(self):
        return self.message

    def reason(self):
        return "SIGKILL: out of memory"

    def stop(self, *, now):
        self.message = None


class FakeBackend:
    """So many of them."""

    name, most_deaths = "here", 2

    def __init__(self, say, count=2):
        self.say, self.started, self._count = say, 0, count

    def count(self):
        return self._count

    def start(self):
        self.started += 1
        return FakeWorker(self.say)

    def wait(self, workers, timeout):
        return list(workers)

    def close(self):
        pass


def fine(question):
    return {"metrics": {"mean wait": float(question["seed"])}, "units": {"mean wait": "s"}, "schedule": question["key"],
            "seconds": {"all": 0.01}}  # fmt: skip


@pytest.fixture
def plan(study):
    return SweepPlan.of(study(seeds=10), lambda *_: None)


@pytest.fixture
def store(tmp_path):
    return RunStore.at(tmp_path / "store", create=True)


def cells(plan):
    return [plan.cell(scenario, seed) for seed in plan.study.seeds.values for scenario in plan.study.scenarios]


def run(plan, store, say, *, some=None, count=2):
    """Run cells; return the records, how many workers were started, and the queue."""
    found, backend = {}, FakeBackend(say, count)
    with claiming(store.folder) as claims, Dispatcher(backend, code_version(CELL)) as workers:
        queue = CellQueue(store, claims, plan.question, lambda cell, record: found.setdefault(cell.key, record))
        queue.add(cells(plan) if some is None else some)
        workers.run(queue)
    return found, backend.started, queue


def test_every_cell_is_played_once_and_kept(plan, store):
    asked = []
    found, started, _ = run(plan, store, lambda question: (asked.append(question["key"]), fine(question))[1])
    assert sorted(asked) == sorted(cell.key for cell in cells(plan)) == sorted(found)
    assert all(store.get(key)["schedule"] == key for key in found)
    assert started == 2
    assert list((store.folder / "claims").iterdir()) == []


def test_a_dying_worker_is_replaced_and_its_cell_is_played_again(plan, store):
    died = set()

    def once(question):
        if question["seed"] % 3 == 0 and question["key"] not in died:
            return died.add(question["key"])
        return fine(question)

    found, started, _ = run(plan, store, once)
    assert len(died) == 8
    assert all("failed" not in record for record in found.values())
    assert len(found) == 20
    assert 2 < started <= 2 + 8  # at the end those that are left are enough


def test_a_cell_that_kills_two_workers_is_a_record_and_not_the_end(plan, store):
    killer = cells(plan)[5].key
    found, _, _ = run(plan, store, lambda question: None if question["key"] == killer else fine(question))
    assert found[killer]["failed"] == "2 workers died while running it: SIGKILL: out of memory"
    assert sum("failed" in record for record in found.values()) == 1
    again, _, queue = run(plan, store, fine)
    assert len(queue.seconds) == 1  # what died may have been the machine's fault: it is played once more
    assert "failed" not in again[killer]


def test_workers_that_never_start_are_the_end(plan, store):
    class NeverReady(FakeWorker):
        def __init__(self, say):
            super().__init__(say)
            self.message = None

    backend = FakeBackend(fine)
    backend.start = lambda: NeverReady(fine)
    with claiming(store.folder) as claims, Dispatcher(backend, code_version(CELL)) as workers:
        queue = CellQueue(store, claims, plan.question, lambda *_: None)
        queue.add(cells(plan))
        with pytest.raises(FleetlabError, match="workers do not start: SIGKILL"):
            workers.run(queue)


def test_a_worker_of_another_fleetlab_is_refused(plan, store):
    backend = FakeBackend(fine)

    def other():
        worker = FakeWorker(fine)
        worker.message = Reply({"code": "0ther", "where": "node-7"})
        return worker

    backend.start = other
    with claiming(store.folder) as claims, Dispatcher(backend, code_version(CELL)) as workers:
        queue = CellQueue(store, claims, plan.question, lambda *_: None)
        queue.add(cells(plan))
        with pytest.raises(FleetlabError, match="another version of fleetlab: node-7"):
            workers.run(queue)


def test_cells_with_the_same_jobs_go_to_one_worker_as_long_as_there_are_others(plan, store):
    with claiming(store.folder) as claims:
        queue = CellQueue(store, claims, plan.question, lambda *_: None)
        queue.add(cells(plan))
        seeds = [(queue.take("a").seed, queue.take("b").seed) for _ in range(10)]
    assert seeds == [(k, k + 1) for k in range(0, 10, 2) for _ in range(2)]


def test_what_another_sweep_is_at_is_waited_for_and_not_played_again(plan, store):
    every = cells(plan)
    with claiming(store.folder) as other:
        theirs = every[3]
        assert other.take(theirs.key)
        asked, begin = [], time.monotonic()

        def slowly(question):
            asked.append(question["key"])
            return fine(question)

        def answers(cell, record):
            # When all else is done, the other sweep finishes its cell.
            if len(found) == len(every) - 2:
                store.put(fine_record(theirs))
                other.drop(theirs.key)
            found[cell.key] = record

        def fine_record(cell):
            return {
                "key": cell.key,
                "cell": plan.question(cell),
                **fine(plan.question(cell)),
                "made": {"engine": "other"},
            }

        found = {}
        with claiming(store.folder) as claims, Dispatcher(FakeBackend(slowly), code_version(CELL)) as workers:
            queue = CellQueue(store, claims, plan.question, answers)
            queue.add(every)
            workers.run(queue)
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
