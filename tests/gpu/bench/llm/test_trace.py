"""Lengths and arrivals of requests."""

import numpy as np
import pytest

from fleetlab.gpu.bench.llm.requests import PUBLISHED, read_trace
from fleetlab.gpu.devices.console import BenchError


@pytest.mark.data
@pytest.mark.parametrize(("kind", "prompt", "output"), [("conv", 1020, 129), ("code", 1500, 13)])
def test_a_whole_file_has_the_published_medians_and_synthetic_requests_its_distributions(kind, prompt, output, data):
    """Medians by Splitwise (ISCA 2024), section III."""
    whole = read_trace(str(data / f"azure-llm-2023/AzureLLMInferenceTrace_{kind}.csv"))
    drawn = read_trace(f"azure-{kind}")
    assert (np.median(whole.prompt), np.median(whole.output)) == pytest.approx((prompt, output), rel=0.03)
    for own, real in (
        (drawn.prompt, whole.prompt),
        (drawn.output, whole.output),
        (np.diff(drawn.at), np.diff(whole.at)),
    ):
        both = np.sort(np.concatenate([own, real]))
        distance = [np.searchsorted(np.sort(x), both, side="right") / len(x) for x in (own, real)]
        assert np.abs(distance[0] - distance[1]).max() < 0.06  # Kolmogorov and Smirnov, 1 % level: 0.039, and steps


def test_a_window_has_the_rate_that_was_asked_for_and_the_same_seed_the_same_requests():
    trace = read_trace("azure-conv")
    drawn = [list(trace.window(200, rate=20, seed=seed)) for seed in (1, 1, 2)]
    assert drawn[0] == drawn[1] != drawn[2]
    assert len(drawn[0]) == pytest.approx(4000, rel=0.1)
    assert all(0 <= a < 200 for a, _, _ in drawn[0])


def test_a_window_keeps_the_burstiness_of_the_trace():
    trace = read_trace("azure-code")
    due = np.array([at for at, _, _ in trace.window(trace.at[-1] / 10, rate=10 * trace.rate, seed=0)])
    own, drawn = np.diff(trace.at), np.diff(due)
    assert drawn.std() / drawn.mean() == pytest.approx(own.std() / own.mean(), rel=0.05)


def test_requests_beyond_the_context_are_left_out():
    assert (read_trace("azure-code").fitting(2000).prompt < 2000).all()
    with pytest.raises(BenchError, match="no requests of at most 3 tokens"):
        read_trace("azure-conv").fitting(3)


@pytest.mark.parametrize(
    ("text", "why"),
    [
        ("a,b\n1,2\n", "no column TIMESTAMP"),
        ("TIMESTAMP,ContextTokens,GeneratedTokens\nyesterday,3,4\n", "line 2"),
        ("TIMESTAMP,ContextTokens,GeneratedTokens\n2023-11-16 18:17:03,0,4\n", "tokens must be 1 or more"),
        ("TIMESTAMP,ContextTokens,GeneratedTokens\n2023-11-16 18:17:03,3,4\n", "fewer than two"),
        ("TIMESTAMP,ContextTokens,GeneratedTokens\n2023-11-16 18:17:03\n", "line 2"),
    ],
)
def test_a_file_that_is_no_trace_is_refused(tmp_path, text, why):
    (tmp_path / "bad.csv").write_text(text)
    with pytest.raises(BenchError, match=why):
        read_trace(str(tmp_path / "bad.csv"))


def test_a_missing_file_is_refused_with_the_known_names():
    with pytest.raises(BenchError, match="cannot read") as e:
        read_trace("nowhere.csv")
    assert all(name in e.value.hint for name in PUBLISHED)
