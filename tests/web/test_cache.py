"""What is cache in memory: the newest answers, whole, and never more bytes than are allowed."""

import gc
import json
import random
import tracemalloc

from hypothesis import given
from hypothesis import strategies as st

from fleetlab.web import operations
from fleetlab.web.cache import AnswerCache, pack, unpack
from fleetlab.web.operations import DONE, RUNNING, Operation, Operations

JSON = st.recursive(
    st.none() | st.booleans() | st.integers() | st.floats(allow_nan=False, allow_infinity=False) | st.text(),
    lambda inside: st.lists(inside) | st.dictionaries(st.text(), inside),
    max_leaves=20,
)


@given(JSON)
def test_an_answer_comes_back_as_it_was(value):
    assert unpack(pack(value)) == value


@given(st.lists(st.tuples(st.integers(0, 5), st.integers(1, 60), st.booleans())), st.integers(0, 100))
def test_the_newest_that_fit_are_kept_by_hand_counted_bytes(steps, most):
    cache, plain = AnswerCache(most), {}
    for name, size, asks in steps:
        if asks:
            if str(name) in cache:
                cache._packed.move_to_end(str(name))
                plain[name] = plain.pop(name)
            continue
        cache.put(str(name), bytes(size))
        plain.pop(name, None)
        if size <= most:
            plain[name] = size
        while sum(plain.values()) > most:
            del plain[next(iter(plain))]
    assert [int(name) for name in cache._packed] == list(plain)
    assert cache.bytes == sum(plain.values()) <= most


def answer(seed):
    """As an answer is: many numbers with many digits, and some text."""
    draw = random.Random(seed)
    return {"values": [draw.random() for _ in range(2000)], "html": "".join(draw.choices("abcdef<>/", k=5000))}


def test_memory_is_what_was_promised():
    most = 1 << 20
    gc.collect()
    tracemalloc.start()
    try:
        cache = AnswerCache(most)
        for k in range(300):
            cache.put(f"what-if {k}", pack(answer(k)))
        gc.collect()
        taken = tracemalloc.get_traced_memory()[0]
    finally:
        tracemalloc.stop()
    assert len(json.dumps(answer(0))) * 300 > 10 * most  # all of them would be far too much
    assert len(cache) > 20
    assert taken < 1.2 * most


def test_results_of_operations_that_are_over_take_so_much_at_most(monkeypatch):
    monkeypatch.setattr(operations, "OVER_BYTES", 1000)
    monkeypatch.setattr(operations, "MOST_OVER", 5)
    known = Operations()
    for name, status, size in [
        ("a", DONE, 600),
        ("b", RUNNING, 0),
        ("c", DONE, 600),
        *[(f"d{k}", DONE, 1) for k in range(9)],
    ]:
        known._operations[name] = Operation("run", "ann", name=name, status=status, packed=bytes(size))
        known._forget()
    assert list(known._operations) == ["b", "d4", "d5", "d6", "d7", "d8"]
