import json

import numpy as np
import pytest

from fleetlab.gpu.bench.histogram import Histogram


def test_any_time_is_kept_to_a_thousandth():
    times = np.sort(np.geomspace(2e-6, 100, 5000))
    kept = Histogram.of(times)
    found = np.array([kept.at(k + 1) for k in range(len(times))])
    assert np.abs(found / times - 1).max() <= 0.00101


def test_histograms_add_up_as_their_samples_do():
    a, b = np.random.default_rng(0).exponential(0.01, (2, 1000))
    both = Histogram.sum([Histogram.of(a), Histogram.of(b)])
    of_both = Histogram.of(np.concatenate((a, b)))
    assert both.buckets.tolist() == of_both.buckets.tolist()
    assert both.counts.tolist() == of_both.counts.tolist()


def test_a_histogram_survives_its_journey():
    kept = Histogram.of([0.001, 0.5, 0.5, 7200])
    back = Histogram.from_json(json.loads(json.dumps(kept.to_json())))
    assert (back.n, back.at(1), back.at(3)) == (4, kept.at(1), kept.at(3))


def test_nothing_is_a_histogram_too():
    assert Histogram.from_json(Histogram.of([]).to_json()).n == 0
    with pytest.raises(IndexError):
        Histogram.of([]).at(1)


@pytest.mark.parametrize("bad", [[-1.0], [float("nan")], [float("inf")]])
def test_what_is_no_time_is_refused(bad):
    with pytest.raises(ValueError, match="negative or not a number"):
        Histogram.of(bad)
