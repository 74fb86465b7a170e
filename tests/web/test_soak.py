"""Random what-ifs while processes are killed: every answer is the one that was asked for, and memory stays flat."""

import numpy as np
import pytest
from benchmarks.memory import slope
from benchmarks.web_soak import Soak

SLACK = 19  # MiB that the server may grow in 1,000 what-ifs after the first third, while answers that it keeps fill up


def is_sound(soak, fresh):
    assert soak.mistakes == []
    assert soak.kills > 0
    assert len(soak.answers) > soak.what_ifs / 4  # on a busy machine kills come faster than answers
    assert soak.compare_with_fresh_runs(fresh) == []


def test_a_short_soak_has_no_wrong_answers():
    is_sound(Soak(what_ifs=24, kill_every=8.0, traces=1).run(), fresh=10)


@pytest.mark.validate
def test_a_long_soak_has_no_wrong_answers_and_its_memory_is_flat():
    soak = Soak(what_ifs=3000, kill_every=30.0, jobs=60).run()
    is_sound(soak, fresh=300)
    assert soak.memory.growth().value < SLACK


def test_a_leak_is_seen_and_noise_is_none():
    asked = list(range(0, 3000, 15))
    noise = np.random.default_rng(1).normal(size=len(asked))
    leak = slope(asked, [170 + 0.005 * n + e for n, e in zip(asked, noise, strict=True)])
    none = slope(asked, [170 + e for e in noise])
    assert leak.low < 5 < leak.high
    assert leak.low > 0
    assert none.low < 0 < none.high


def test_what_grows_only_at_first_is_warm_up():
    asked = list(range(0, 3000, 15))
    assert slope(asked, [min(n, 900) / 10 for n in asked]).value == pytest.approx(0.0, abs=1e-9)


def test_a_soak_that_sees_nothing_would_be_no_soak():
    soak = Soak(what_ifs=1)
    words = {"v": "1", "trace": "folder:0", "load": "2"}
    right = {"link": "v=1&trace=folder:0&load=2", "rows": [], "seconds": 1.0}
    soak._take(words, 200, right)
    soak._take(words, 200, right | {"seconds": 2.0})
    assert soak.mistakes == []
    soak._take(words, 200, right | {"link": "v=1&trace=folder:1&load=2"})
    soak._take(words, 200, right | {"rows": [1]})
    soak._take(words, 400, {"error": "no such trace"})
    soak._take(words, 503, {"error": "the process that worked on this has ended twice"})
    assert [why.rpartition(": ")[2] for why in soak.mistakes[:2]] == [
        "the answer is about v=1&trace=folder:1&load=2",
        "another answer than before",
    ]
    assert (len(soak.mistakes), soak.unlucky) == (3, 1)
    row = {"metric": "mean wait", "now": {"value": 1e6, "low": 0.0, "high": 2e6}}
    soak.answers = {"v=1&trace=folder%3A0&load=2": {"rows": [row]}}
    assert "mean wait" in soak.compare_with_fresh_runs(1)[0]
