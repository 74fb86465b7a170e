"""Real requests to real servers on loopback, whose behaviour is known; no claim leans on a quiet machine."""

import itertools
import json
import os
import random
import signal
import subprocess
import sys
import threading
import time
import urllib.request
from collections import Counter
from contextlib import contextmanager
from pathlib import Path

import numpy as np
import pytest

import fleetlab
from fleetlab.gpu.devices.console import BenchError
from fleetlab.gpu.serving.load import requests
from fleetlab.gpu.serving.load.__main__ import main
from fleetlab.gpu.serving.load.requests import OUTCOMES, STOPPED
from fleetlab.gpu.serving.load.result import load_result, saved_load
from fleetlab.gpu.serving.load.search import exit_status, measure, save, search
from fleetlab.gpu.serving.load.settings import LoadSettings

SERVER = Path(__file__).with_name("load_server.py")
QUIET = {"lag": 10.0}  # s: these tests may share two cores with others


@contextmanager
def serving(waits=0):
    process = subprocess.Popen([sys.executable, str(SERVER), str(waits)], stdout=subprocess.PIPE, text=True)
    try:
        yield process, f"http://127.0.0.1:{int(process.stdout.readline())}"
    finally:
        process.kill()
        process.wait()
        process.stdout.close()


@pytest.fixture(scope="module")
def url():
    with serving() as (_, at):
        yield at


def asked(url, **how):
    return measure(LoadSettings(url=url, **{"warmup": 0, "seconds": 1.0, **QUIET, **how}))


def words(said):
    return said.split()


def seen(url):
    with urllib.request.urlopen(url + "/seen") as answer:
        return Counter(json.load(answer))


def outcomes(load):
    return load.to_json()["outcomes"]


# -- what is counted --------------------------------------------------------------------------------------------------


def test_every_request_that_is_due_has_one_end(url):
    told = asked(url + "/predict?ms=30", rate=100, seconds=2, slo=10.0).to_json()
    assert told["offered"] == told["sent"] == told["answered"] == sum(told["outcomes"].values()) > 150
    assert told["percentiles"]["answers"]["p50"][1] >= 0.03
    assert told["percentiles"]["answers"]["p99.9"].startswith("n too small")
    assert told["rates"]["goodput"].value == pytest.approx(told["rates"]["offered"])
    assert sum(row["offered"] for row in told["timeline"]) == told["offered"]


def test_a_warm_up_is_sent_and_not_counted(url):
    load = asked(url, rate=50, warmup=1.0, seconds=1.0, arrivals="uniform")
    assert (len(load.rows.due), len(load.due.due)) == (99, 50)
    assert load.due.due.min() >= 1.0


def test_refusals_are_apart_from_answers(url):
    told = asked(url + "/refuse?status=429", rate=150, seconds=2).to_json()
    assert told["refused"] + told["answered"] == told["offered"]
    low, high = told["shares"]["refused"][1:]
    assert low <= 0.5 <= high
    assert told["percentiles"]["answers"]["p50"][1] >= 0.05  # quick refusals make no quick answers
    assert sum(told["histograms"]["refusals"]["counts"]) == told["refused"]
    assert told["failed"] == 0


@pytest.mark.parametrize(
    ("path", "outcome"),
    [
        ("/status?code=503", "refused"),
        ("/status?code=400", "client-error"),
        ("/nowhere", "client-error"),
        ("/status?code=500", "server-error"),
        ("/reset", "reset"),
        ("/garbled", "garbled"),
        ("/redirect", "garbled"),
    ],
)
def test_a_failure_has_a_name(url, path, outcome):
    load = asked(url + path, rate=20, arrivals="uniform", timeout=60)
    assert outcomes(load) == {outcome: 19}
    assert load.answered.value == 0


def test_a_redirect_is_not_followed(url):
    before = seen(url)["predict"]
    asked(url + "/redirect", rate=20)
    assert seen(url)["predict"] == before


@pytest.mark.parametrize("path", ["/never", "/endless"])
def test_a_server_that_never_answers_ends_in_timeouts_that_took_as_long(url, path):
    began = time.monotonic()
    load = asked(url + path, rate=300, seconds=1, timeout=0.5)
    assert set(outcomes(load)) == {"timeout"}
    assert load.kinds["answers"].latency == pytest.approx(0.5)
    assert load.to_json()["percentiles"]["answers"]["p50"][0] == pytest.approx(0.5, rel=0.002)
    assert load.to_json()["failed"] == load.to_json()["offered"]
    assert time.monotonic() - began < 30


def kill_after(requests, process, url):
    while seen(url)["predict"] < requests:
        time.sleep(0.02)
    process.kill()


def test_a_server_that_dies_midway_is_told_as_it_was():
    with serving() as (process, url):
        threading.Thread(target=kill_after, args=(10, process, url)).start()
        load = asked(url, rate=50, seconds=3, timeout=5)
    ends = outcomes(load)
    assert ends["answered"] >= 5
    assert ends["unreachable"] >= 5
    assert sum(ends.values()) == len(load.due.due)


def test_where_nobody_listens_nothing_is_sent():
    with pytest.raises(BenchError, match="no server") as caught:
        asked("http://127.0.0.1:1", rate=10)
    assert "bench serve" in caught.value.hint


def test_a_load_begins_when_the_server_is_ready():
    said = []
    with serving(waits=3) as (_, url):
        load = measure(LoadSettings(url=url, rate=20, warmup=0, seconds=0.5, **QUIET), progress=said.append)
    assert said[0] == "waiting for the server to be ready"
    assert set(outcomes(load)) == {"answered"}


def test_a_request_that_finds_no_connection_waits_and_it_is_said(url):
    load = asked(url + "/predict?ms=100", rate=40, arrivals="uniform", connections=2, timeout=30)
    assert set(outcomes(load)) == {"answered"}
    # Two at a time, a tenth of a second each: the last of 39 is served when 1.9 s are over.
    assert load.due.latency.max() > 0.8
    assert load.due.queued.sum() > 30
    assert any("waited for one" in note for note in load.notes)


def test_a_batch_is_one_request_with_many_inputs():
    with serving() as (_, url):
        load = asked(url, rate=20, arrivals="uniform", batch=8)
        assert seen(url)["inputs"] == 8 * len(load.due.due)


# -- what is measured -------------------------------------------------------------------------------------------------


def test_a_stall_shows_in_the_open_loop_and_hides_in_the_closed_one(url):
    """Two seconds in which nobody is served: of 600 requests 200 fall due meanwhile, a client just sends one."""
    stall = f"{url}/stall?at=200&s=2&id="
    opened = asked(stall + "open", rate=100, arrivals="uniform", seconds=6, timeout=60)
    closed = asked(stall + "closed", clients=1, limit=600, seconds=120, timeout=60)
    assert requests.quantile(opened.due.latency, 0.99).low > 1.5
    assert (opened.due.latency > 0.1).mean() > 0.25
    assert closed.due.latency.max() > 1.9
    assert (closed.due.latency > 1).mean() < 0.01
    assert requests.quantile(closed.due.latency, 0.99).value < 1
    assert any("do not compare them with an SLO" in note for note in closed.notes)


def test_latencies_are_those_of_the_queue_that_the_timetable_makes(url):
    """One worker of 20 ms, half loaded: by Lindley's recursion each request's time is known, and nobody is faster."""
    load = asked(f"{url}/queue?ms=20&id=lindley", rate=25, seconds=8, timeout=60)
    free, known = 0.0, []
    for at in load.due.due:
        free = max(free, at) + 0.020
        known.append(free - at)
    late = load.due.latency - known
    assert np.mean(known) > 0.025  # some did wait
    assert late.min() > -0.001
    assert np.median(late) < 0.04


def test_percentile_limits_hold_the_truth_of_a_known_law(url):
    """Each answer takes from 0.1 s to 0.9 s, drawn by its seed: P50 is 0.5 s and P95 0.86 s, and a bit for the way."""
    load = asked(url + "/uniform", rate=120, seconds=4, seed=11)
    drawn = np.array([random.Random(11_000_000 + k).uniform(0.1, 0.9) for k in range(len(load.due.due))])
    way = float(np.quantile(load.due.latency - drawn, 0.95))  # a busy machine makes it longer
    assert (load.due.latency - drawn).min() > -0.001
    for p, truth in ((0.5, 0.5), (0.95, 0.86)):
        low, high = requests.quantile(load.due.latency, p)[1:]
        assert low - way <= truth <= high


def test_a_generator_that_is_held_up_says_that_it_is_invalid(url, capsys):
    slept = []

    def hold_up(_line):
        time.sleep(0.5)
        slept.append(1)

    load = measure(LoadSettings(url=url, rate=100, warmup=0, seconds=3), progress=hold_up)
    assert slept
    assert load.lag["max"] > 0.4
    assert not load.valid
    assert load.notes[0].startswith("invalid: the generator was late")
    assert exit_status(load) == 3
    # From when they were due: what the generator lost is in the latencies, not beside them.
    assert load.due.latency.max() > 0.4


def test_one_seed_sends_the_same_at_the_same_times_whatever_the_server_does(url, tmp_path):
    for path in ("/predict", "/never", "/reset"):
        how = words("--rate 50 --seconds 0.6 --warmup 0.2 --timeout 0.3 --lag-ms 9999 --seed 5 --each")
        assert main([url + path, *how, "--out", str(tmp_path / path[1:])]) == 0
    timetables = [
        [json.loads(line)["scheduled_ns"] for line in (folder / "requests.jsonl").read_text().splitlines()]
        for folder in tmp_path.iterdir()
    ]
    assert len(timetables[0]) > 20
    # Nanoseconds from the start, off by what a float leaves of a clock that has run for days.
    assert np.abs(np.array(timetables) - timetables[0]).max() < 1000


def test_a_closed_loop_ends_after_its_requests_and_never_has_more_under_way(url):
    load = asked(url + "/predict?ms=20", clients=3, limit=60, seconds=60)
    events = sorted([(at, 1) for at in load.rows.sent] + [(at, -1) for at in load.rows.done])
    assert len(load.rows.due) == 60
    assert max(itertools.accumulate(step for _, step in events)) <= 3
    assert load.answered.value <= 3 / 0.02 * 1.5


# -- on the command line ----------------------------------------------------------------------------------------------


def test_the_measuring_side_prints_one_object_and_keeps_it(url, tmp_path, capsys):
    how = words("--rate 50 --seconds 1 --warmup 0.2 --slo-ms 500 --lag-ms 9999 --each")
    assert main([url, *how, "--out", str(tmp_path / "new" / "folder")]) == 0
    said = json.loads(capsys.readouterr().out)
    saved_load = json.loads((tmp_path / "new" / "folder" / "load.json").read_text())
    assert {**said, "manifest": 0} == {**saved_load, "manifest": 0}
    assert saved_load["manifest"]["url"] == url + "/predict"
    lines = [json.loads(line) for line in (tmp_path / "new" / "folder" / "requests.jsonl").read_text().splitlines()]
    assert sum(line["counted"] for line in lines) == saved_load["offered"]
    assert all(line["scheduled_ns"] <= line["begun_ns"] <= line["sent_ns"] <= line["done_ns"] for line in lines)
    assert sorted(p.name for p in (tmp_path / "new" / "folder").iterdir()) == ["load.json", "requests.jsonl"]


def test_the_measuring_side_needs_no_frames():
    ask = (
        "import sys; from fleetlab.gpu.serving.load import search, __main__; "
        "print(sorted({'polars', 'cyclopts', 'rich', 'torch', 'fleetlab.core.result'} & set(sys.modules)))"
    )
    said = subprocess.run([sys.executable, "-c", ask], capture_output=True, text=True, check=True).stdout
    assert said.strip() == "[]"


@pytest.mark.parametrize("sign", [signal.SIGINT, signal.SIGTERM])
def test_a_load_that_is_stopped_keeps_what_it_measured(url, tmp_path, sign):
    how = [url + "/predict?ms=300", *words("--rate 40 --warmup 0 --seconds 300 --out"), str(tmp_path)]
    process = subprocess.Popen(
        [sys.executable, "-m", "fleetlab.gpu.serving.load", *how],
        stdout=subprocess.PIPE,
        stderr=subprocess.PIPE,
        text=True,
        env=os.environ | {"PYTHONPATH": str(Path(fleetlab.__file__).parents[1])},
    )
    assert "requests have ended" in process.stderr.readline()
    process.send_signal(sign)
    out, talk = process.communicate(timeout=60)
    saved_load = json.loads((tmp_path / "load.json").read_text())
    assert process.returncode == 130
    assert "note: stopped after" in talk
    assert json.loads(out)["offered"] == saved_load["offered"] > 20
    assert saved_load["stopped"]
    assert saved_load["window"] < 200
    assert saved_load["outcomes"].get(OUTCOMES[STOPPED], 0) + saved_load["answered"] == saved_load["offered"]


@pytest.mark.parametrize(
    ("asking", "says"),
    [
        (["http://8.8.8.8", "--rate", "5"], "not on this machine"),
        (["http://127.0.0.1:1"], "no rate"),
        (["http://127.0.0.1:1", "--rate", "-5"], "rate must be from"),
        (["http://127.0.0.1:1", "--rate", "5", "--each"], "no folder to write"),
        (["http://127.0.0.1:1", "--rate", "5", "--out", "/dev/null/x"], "not writable"),
        (["http://127.0.0.1:1", "--search", "5", "--slo-ms", "3"], "LOW:HIGH"),
        (["http://127.0.0.1:1", "--rate", "5", "--connections", "9999999"], "connections must be from"),
    ],
)
def test_what_cannot_be_is_refused_on_both_sides(asking, says, capsys):
    assert main(asking) == 2
    assert says in (said := capsys.readouterr().err)
    assert said.startswith("error: ")
    from fleetlab.cli import main as command

    with pytest.raises(SystemExit) as left:
        command(["bench", "load", *asking])
    assert left.value.code == 2
    assert says in capsys.readouterr().err


def test_the_command_shows_rates_latencies_and_doubts(url, capsys):
    from fleetlab.cli import main as command

    with pytest.raises(SystemExit) as left:
        command(["bench", "load", url, *words("--rate 100 --seconds 1 --warmup 0 --slo-ms 900 --lag-ms 9999")])
    said = capsys.readouterr().out
    assert left.value.code == 0
    assert all(word in said for word in ("offered", "answered", "goodput", "P50 latency", "n too small for P99"))
    with pytest.raises(SystemExit):
        command(["bench", "load", url, *words("--clients 2 --seconds 0.5 --warmup 0 --json")])
    told = json.loads(capsys.readouterr().out)
    assert set(told["tables"]) == {"requests", "latency", "timeline", "how"}
    assert "SLO" in told["notes"][0]


def test_a_load_that_was_kept_is_shown_as_when_it_was_measured(url, tmp_path, capsys):
    from fleetlab.cli import main as command

    said = []
    loaded = ["load", url, *words("--rate 50 --seconds 1 --warmup 0 --lag-ms 9999 --out"), str(tmp_path)]
    for asking in (loaded, ["show", str(tmp_path)]):
        with pytest.raises(SystemExit) as left:
            command(["bench", *asking])
        assert left.value.code == 0
        said.append(capsys.readouterr().out)
    assert said[0] == said[1]
    assert "answered" in said[1]


def test_a_search_that_was_kept_is_shown_and_half_a_file_is_refused(url, tmp_path):
    found = search(LoadSettings(url=url, slo=5.0, seconds=1, warmup=0, **QUIET), low=10, high=11, percentile=50)
    save(found, tmp_path)
    assert saved_load(tmp_path).tables()["trials"].equals(load_result(found.to_json()).tables()["trials"])
    (tmp_path / "search.json").write_text('{"kind": "search"}')
    with pytest.raises(BenchError, match=r"search\.json: not a saved load"):
        saved_load(tmp_path)


@pytest.mark.data
def test_real_arrivals_become_requests(url, data, tmp_path, capsys):
    """An hour of requests to a language model, squeezed to 100 a second; bursts stay bursts."""
    from fleetlab.cli import main as command

    log = data / "azure-llm-2023" / "AzureLLMInferenceTrace_code.csv"
    trace = fleetlab.read(log, "csv", map={"submit": "TIMESTAMP", "gpu_milli": "1000"})
    trace.save(tmp_path / "azure")
    submit = trace.workload.frame["submit"].to_numpy()
    how = words("--rate 100 --warmup 0 --seconds 2 --lag-ms 9999 --each")
    paths = ["--arrivals", str(tmp_path / "azure"), "--out", str(tmp_path / "out")]
    with pytest.raises(SystemExit) as left:
        command(["bench", "load", url, *how, *paths])
    assert left.value.code == 0
    lines = (tmp_path / "out" / "requests.jsonl").read_text().splitlines()
    sent = np.array([json.loads(line)["scheduled_ns"] for line in lines]) / 1e9
    squeezed = submit * (len(submit) - 1) / (submit.max() - submit.min()) / 100
    assert sent == pytest.approx(squeezed[squeezed < 2] - squeezed[0], abs=1e-5)
    assert json.loads((tmp_path / "out" / "load.json").read_text())["manifest"]["times"] == 8819


# -- the search -------------------------------------------------------------------------------------------------------


@pytest.mark.slow
def test_a_search_brackets_what_one_worker_can_do(url):
    """20 ms each, one at a time: at 20 a second P90 keeps 0.3 s by far, at 80 a second the queue only grows."""
    goal = LoadSettings(url=f"{url}/queue?ms=20&id=search", slo=0.3, seconds=4, warmup=0.5, timeout=3, **QUIET)
    found = search(goal, low=20, high=80, percentile=90, within=0.5)
    assert found.trials[0].verdict == "passed"
    assert found.trials[1].verdict == "failed"
    assert 20 <= found.passed < 50
    assert found.passed < found.failed <= 80
    assert len({t.rate for t in found.trials}) == len(found.trials)


def test_a_search_does_not_take_quick_refusals_for_quick_answers(url):
    """Half of the requests are refused at once: the other half may be as quick as it likes, the rate fails."""
    goal = LoadSettings(url=url + "/refuse?status=503", slo=5.0, seconds=1, warmup=0, **QUIET)
    found = search(goal, low=100, high=200, percentile=50)
    assert (found.passed, found.failed, len(found.trials)) == (None, 100, 1)
    assert found.trials[0].lost.low > 0.3


# -- the house's own server -------------------------------------------------------------------------------------------


def test_the_server_of_the_house_is_asked_and_counts_the_same():
    """A queue of two for more than it can do: each request is answered or refused, on both sides of the wire."""
    how = words("-m fleetlab.gpu.serving.server bert-infer --tiny --device cpu --port 0 --batch 1 --queue 2 --json")
    source = {"PYTHONPATH": str(Path(fleetlab.__file__).parents[1])}
    process = subprocess.Popen([sys.executable, *how], stdout=subprocess.PIPE, text=True, env=os.environ | source)
    try:
        url = json.loads(process.stdout.readline())["url"]
        load = asked(url, rate=400, arrivals="gamma:0.1", seconds=1.5, timeout=60)
        with urllib.request.urlopen(url + "/stats") as answer:
            stats = json.load(answer)
    finally:
        process.terminate()
        process.communicate(timeout=60)
    ends = Counter(outcomes(load))
    assert ends["answered"] + ends["refused"] == sum(ends.values()) == len(load.rows.due)
    assert (stats["answered"], stats["refused"]) == (ends["answered"], ends["refused"])
    assert ends["answered"] > 0
