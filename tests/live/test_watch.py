"""Polls of a cluster that fails, forgets and changes; on a clock of the test's own."""

import gc
import json
import re
import socket
import subprocess
import sys
import threading
import time
import urllib.request
from pathlib import Path

import polars as pl
import pytest
from prometheus_client import CollectorRegistry, generate_latest
from prometheus_client.parser import text_string_to_metric_families
from tests.live.cluster import answer, drawn, install, scontrol

from fleetlab.core import Scenario
from fleetlab.core.errors import FleetlabError
from fleetlab.core.sources import SourceError
from fleetlab.gpu.monitor import outputs
from fleetlab.live.analyze import predict
from fleetlab.live.journal import trace_of
from fleetlab.live.options import WatchOptions
from fleetlab.live.present import COUNTERS, GAUGES, HISTOGRAM, PREFIX, Metrics, present_of
from fleetlab.live.watch import Watcher
from fleetlab.schedulers.slurm.reader.submissions import options_of
from fleetlab.schedulers.slurm.source import SlurmSource
from fleetlab.studies.eta.question import question_of
from fleetlab.studies.eta.snapshot import History

BEGIN = 1_800_000_000.0


class Site:
    """A cluster of the stand-in, a clock, and programs that can be taken away."""

    def __init__(self, jobs, out=None, **options):
        self.now, self.jobs, self.broken, self.said = BEGIN, jobs, {}, []
        self.options = WatchOptions(out=out, listen="off", predict=0, history=0, **options)
        self.watcher = None

    def ask(self, words, env=None):
        if words[0] in self.broken:
            broken = self.broken[words[0]]
            if broken is None:
                msg = "Unable to contact slurm controller"
                raise SourceError(msg)
            return broken
        return answer(words[0], words[1:], self.jobs, self.now)

    def start(self):
        source = SlurmSource(self.ask, lambda: self.now)
        source.site = lambda folder: folder.mkdir(exist_ok=True)  # runs a script of the machine that the test is on
        self.watcher = Watcher(source, "standin", self.options, self.said.append, lambda: self.now)
        return self

    def stop(self):
        self.watcher.background = None
        self.watcher.close()

    def poll(self, seconds=60.0):
        self.now += seconds
        self.watcher.step()

    def samples(self):
        registry = CollectorRegistry()
        registry.register(self.watcher.metrics)
        families = text_string_to_metric_families(generate_latest(registry).decode())
        return {(s.name, *sorted(s.labels.items())): s.value for family in families for s in family.samples}

    def trace(self):
        return trace_of(self.options.out, SlurmSource)


def job(number, submit, start, end, gpus=8, **more):
    times = {"submit": int(BEGIN + submit), "start": None if start is None else BEGIN + start, "end": BEGIN + end}
    return {"id": number, "gpus": gpus, "node": f"n{number % 4 + 1}", **times, **more}


@pytest.fixture
def site(tmp_path):
    """A cluster with a job that runs for hours, one that waits for an hour, and one that is soon over."""
    jobs = [job(1, 0, 30, 9000), job(2, 10, 3600, 7200, 4), job(3, 20, 40, 100, 2)]
    made = Site(jobs, tmp_path / "watched").start()
    yield made
    made.stop()


def test_waits_are_counted_by_queue_and_reason(site):
    site.poll(90)
    assert site.samples()["fleetlab_queue_jobs", ("queue", "gpu"), ("reason", "Priority")] == 1
    assert site.samples()["fleetlab_queue_gpus", ("queue", "gpu"), ("reason", "Priority")] == 4
    assert site.samples()["fleetlab_queue_longest_wait_seconds", ("queue", "gpu"), ("reason", "Priority")] == 80


def test_gpus_are_free_allocated_or_unavailable(site):
    site.poll(90)
    states = {key[2][1]: value for key, value in site.samples().items() if key[0] == "fleetlab_gpus"}
    assert states == {"allocated": 10, "free": 22, "unavailable": 0}


def test_waited_seconds_are_counted_by_reason_between_polls(site):
    for _ in range(4):
        site.poll(60)
    assert site.samples()["fleetlab_wait_seconds_total", ("queue", "gpu"), ("reason", "Priority")] == 180


def test_a_job_that_starts_while_it_is_watched_is_in_the_histogram_of_waits(site):
    site.poll(60)
    site.poll(3600)
    samples = site.samples()
    assert samples["fleetlab_start_wait_seconds_count", ("queue", "gpu")] == 1
    assert samples["fleetlab_start_wait_seconds_sum", ("queue", "gpu")] == 3590
    assert samples["fleetlab_start_wait_seconds_bucket", ("le", "3600"), ("queue", "gpu")] == 1


def test_every_metric_has_a_name_of_prometheus_and_bounded_labels(site):
    site.poll(60)
    registry = CollectorRegistry()
    registry.register(site.watcher.metrics)
    families = {f.name: f for f in text_string_to_metric_families(generate_latest(registry).decode())}
    assert set(families) == {PREFIX + name for name in (*GAUGES, *COUNTERS, HISTOGRAM)}
    assert all(families[PREFIX + name].type == "counter" for name in COUNTERS)
    labels = {label for f in families.values() for sample in f.samples for label in sample.labels}
    assert labels <= {"queue", "team", "reason", "gpu_type", "state", "event", "part", "quantile", "request", "le"}


def test_more_queues_than_anyone_looks_at_are_one(tmp_path):
    jobs = [job(n, n, 5000 + n, 9000) for n in range(1, 200)]
    made = Site(jobs, tmp_path / "watched").start()
    made.watcher.source._ask = lambda words, env=None: _many_partitions(made.ask(words))
    made.poll(300)
    queues = {dict(key[1:])["queue"] for key in made.samples() if key[0] == "fleetlab_queue_jobs"}
    made.stop()
    assert len(queues) == 51
    assert "other" in queues


def test_counters_tell_a_bounded_number_of_queues_apart_however_many_come_and_go():
    metrics = Metrics()
    for number in range(500):
        metrics.waited(f"namespace-{number}", "InsufficientGPU", 60.0)
        metrics.observe(f"namespace-{number}", 30.0)
    waited = metrics.counts["wait_seconds"]
    assert len(waited) == len(metrics.waits) == 51
    assert waited["other", "InsufficientGPU"] == 450 * 60.0


def test_jobs_and_gpus_are_counted_by_account_and_state(site):
    site.poll(90)
    teams = {key: value for key, value in site.samples().items() if key[0].startswith("fleetlab_team_")}
    assert {(key[0], key[1][1], key[2][1]): value for key, value in teams.items()} == {
        ("fleetlab_team_jobs", "running", "lab"): 2,
        ("fleetlab_team_jobs", "waiting", "lab"): 1,
        ("fleetlab_team_gpus", "running", "lab"): 10,
        ("fleetlab_team_gpus", "waiting", "lab"): 4,
    }


# -- nodes -------------------------------------------------------------------------------------------------------------


def nodes(site):
    samples = site.samples()
    by_state = {key[1][1]: value for key, value in samples.items() if key[0] == "fleetlab_nodes"}
    events = {key[1][1]: value for key, value in samples.items() if key[0] == "fleetlab_node_events_total"}
    return by_state, events


def poll_with_states(site, **states):
    """Poll while scontrol shows some nodes in other states."""
    text = scontrol(site.jobs, site.now, ["show", "node"])
    for name, state in states.items():
        text = re.sub(rf"(NodeName={name} .*?State=)\S+", rf"\g<1>{state}", text, flags=re.DOTALL)
    site.broken = {"scontrol": text}
    site.poll()
    site.broken = {}


def test_nodes_are_up_drained_or_down(site):
    poll_with_states(site, n1="DOWN*+DRAIN", n2="MIXED+DRAIN", n3="IDLE+POWERED_DOWN")
    assert nodes(site)[0] == {"up": 2, "drained": 1, "down": 1}


def test_a_node_that_was_down_when_the_watch_began_is_no_event(site):
    poll_with_states(site, n1="DOWN")
    assert nodes(site)[1] == {"down": 0, "drained": 0, "back": 0}


def test_nodes_that_go_down_are_drained_and_come_back_are_counted_and_said(site):
    site.poll()
    poll_with_states(site, n1="DOWN*", n2="IDLE+DRAIN")
    poll_with_states(site, n1="DOWN*", n2="IDLE+DRAIN")
    poll_with_states(site, n2="IDLE+DRAIN")
    assert nodes(site)[1] == {"down": 1, "drained": 1, "back": 1}
    assert site.said[-3:] == ["down: n1", "drained: n2", "back: n1"]


def test_a_list_of_nodes_that_fails_changes_no_node_and_no_gpu(site):
    poll_with_states(site, n1="DOWN")
    before = site.samples()
    site.broken = {"scontrol": None}
    site.poll(1)
    after = site.samples()
    assert nodes(site)[0] == {"up": 3, "drained": 0, "down": 1}
    assert {k: v for k, v in before.items() if k[0] == "fleetlab_gpus"} == {
        k: v for k, v in after.items() if k[0] == "fleetlab_gpus"
    }


def _many_partitions(text):
    try:
        listed = json.loads(text)
    except ValueError:
        return text
    for number, one in enumerate(listed["jobs"]):
        one["partition"] = f"p{number}"
    return json.dumps(listed)


# -- failures ----------------------------------------------------------------------------------------------------------


def test_a_controller_that_is_down_is_said_once_counted_and_asked_again(site):
    site.poll()
    site.broken = {"squeue": None}
    for _ in range(3):
        site.poll()
    samples = site.samples()
    assert samples["fleetlab_watch_failures_total", ("part", "squeue")] == 3
    assert samples["fleetlab_watch_up", ("part", "squeue")] == 0
    assert len([line for line in site.said if "squeue fails: Unable to contact" in line]) == 1
    site.broken = {}
    site.poll()
    assert site.samples()["fleetlab_watch_up", ("part", "squeue")] == 1
    assert site.said[-1] == "squeue answers again"


def test_the_last_good_values_stay_and_their_age_grows(site, monkeypatch):
    site.poll(90)
    site.broken = {"squeue": None}
    site.poll(300)
    monkeypatch.setattr("time.time", lambda: site.now)
    assert site.samples()["fleetlab_watch_age_seconds",] == 300
    assert site.samples()["fleetlab_queue_jobs", ("queue", "gpu"), ("reason", "Priority")] == 1


@pytest.mark.parametrize("text", ["", "{", '{"jobs": 5}', "null", '{"jobs": [', "slurm_load_jobs error", "[1]"])
def test_bad_json_is_a_failure_and_no_job_is_lost(site, text):
    site.poll(90)
    site.broken = {"squeue": text}
    site.poll()
    site.broken = {}
    site.poll()
    assert site.trace().names.collect().height == 3
    assert site.trace().workload.frame["status"].to_list() == ["running", "waiting", "completed"]


def test_without_accounting_jobs_are_known_as_far_as_the_controller_tells(site):
    site.broken = {"sacct": None}
    site.poll(90)
    site.poll(10.5)  # job 3 ended at 100, and is forgotten a second later
    assert site.trace().workload.frame["status"].to_list() == ["running", "waiting", "completed"]


@pytest.mark.parametrize("text", ["", "JobID", "JobID JobIDRaw User Account Partition QOS Submit Start End Sta"])
def test_a_list_of_fields_that_was_cut_off_is_asked_for_again(site, text):
    site.broken = {"sacct": text}
    site.poll(90)
    assert "sacct fails: sacct --helpformat does not name" in site.said[-1]
    site.broken = {}
    site.poll(10.5)
    assert site.trace().workload.frame["status"].to_list() == ["running", "waiting", "completed"]


def test_lines_of_submission_are_forgotten_after_their_jobs(tmp_path):
    made = Site(drawn(1500, BEGIN, 20.0, 600.0), tmp_path / "watched").start()
    for _ in range(8):
        made.poll(3700.0)
    made.stop()
    assert options_of.cache_info().currsize < 800  # of the last three hours


def test_what_python_holds_does_not_grow_with_the_jobs_that_came_and_went(tmp_path):
    jobs = [job(n, 20 * n, 20 * n + 30, 20 * n + 630) for n in range(1, 3600)]
    made = Site(jobs, tmp_path / "watched").start()
    blocks = []
    for _ in range(60):
        made.poll(1200.0)  # 60 jobs come
        gc.collect()
        blocks.append(sys.getallocatedblocks())
    made.stop()
    early, late = min(blocks[18:30]), min(blocks[48:])  # at hours, caches are cleared
    assert late - early < 600  # 1,800 jobs came meanwhile


def test_the_present_is_counted_by_the_engine_of_polars_that_keeps_no_list_of_its_queries(site):
    engines = []

    class Noticing(SlurmSource):
        @staticmethod
        def write_log(rows, nodes, folder):
            engines.append(pl.Config.state()["POLARS_ENGINE_AFFINITY"])
            SlurmSource.write_log(rows, nodes, folder)

    for _ in range(2):
        site.now += 90
        present_of(Noticing, Noticing(site.ask, lambda: site.now).poll(BEGIN, BEGIN), None)
    assert engines == ["in-memory", "in-memory"]


# -- jobs that end while nobody looks ----------------------------------------------------------------------------------


def test_a_job_that_ended_while_the_watch_was_down_has_its_end_from_accounting(site):
    site.poll(90)
    site.stop()
    site.now += 3 * 86_400
    site.start()
    site.poll()
    ends = site.trace().workload.frame.select("end").to_series().to_list()
    assert ends == [9000.0, 7200.0, 100.0]


def test_a_job_that_came_and_went_while_the_watch_was_down_is_there(site):
    site.poll(5)
    site.stop()
    site.jobs.append(job(4, 500, 600, 700))
    site.now += 5000
    site.start()
    site.poll()
    names = site.trace().names.collect()["name"].to_list()
    assert sorted(names) == ["1", "2", "3", "4"]


def test_a_job_whose_end_nobody_tells_is_censored_at_its_last_sight(site):
    site.poll(90)
    site.jobs[:] = [one for one in site.jobs if one["id"] != 1]  # the controller and accounting have lost it
    site.poll(60)
    assert site.samples()["fleetlab_watch_missing_jobs",] == 1
    assert site.trace().workload.frame["status"][0] == "running"
    site.poll(3600)
    trace = site.trace()
    lost = trace.workload.frame.row(0, named=True)
    assert (lost["status"], lost["end"], lost["runtime"]) == ("cancelled", None, None)
    assert lost["runtime_at_least"] == 60.0  # from second 30 to the poll at 90
    assert trace.series["end_not_seen"].collect().height == 1
    assert any("1 job ended unseen" in note for note in trace.notes)


def test_accounting_that_comes_late_still_gives_the_end(site):
    site.poll(90)
    lost = site.jobs.pop(0)
    site.poll(60)
    site.poll(4000)
    site.jobs.insert(0, lost | {"end": BEGIN + 130})
    site.poll(3700)  # now and then accounting is read further back
    assert site.trace().workload.frame["end"][0] == 130.0


def test_running_jobs_have_run_at_least_up_to_the_last_poll(site):
    site.poll(90)
    site.poll(60)
    frame = site.trace().workload.frame
    assert frame["runtime_at_least"][0] == 120.0


def test_a_new_watch_reads_days_of_accounting_first(tmp_path):
    jobs = [job(1, -90_000, -80_000, -70_000), job(2, -9000, -8000, -7000)]
    made = Site(jobs, tmp_path / "watched")
    object.__setattr__(made.options, "history", 0.5)
    made.start().poll()
    made.stop()
    assert made.trace().names.collect()["name"].to_list() == ["2"]


def test_the_folder_of_another_cluster_is_refused(site):
    site.stop()
    with pytest.raises(FleetlabError, match="holds the jobs of slurm:standin, not of slurm:other"):
        Watcher(SlurmSource(site.ask), "other", site.options, print)


def test_a_question_about_the_queue_is_asked_at_the_last_poll(site):
    site.poll(90)
    trace = site.trace()
    question = question_of(Scenario.of(trace), History.of_log(trace), None, None, None)
    assert question.at == trace.provenance.settings["watched_until"] == 90.0
    assert question.names(question.snapshot.waiting) == ["2"]
    assert question.names(question.snapshot.running) == ["1", "3"]


def test_waits_are_predicted_for_the_jobs_that_wait_and_for_a_request(tmp_path):
    past = [job(n, -9000 + 10 * n, -8000 + 10 * n, -7000 + 20 * n) for n in range(1, 21)]  # 1,010 to 1,200 s
    running = [job(30 + n, -500, -400, 700) for n in range(4)]  # every GPU
    made = Site([*past, *running, job(40, -100, 700, 1800)], tmp_path / "watched")
    object.__setattr__(made.options, "history", 1.0)
    made.start().poll()
    made.stop()
    found = predict(made.trace(), SlurmSource, ["8 A100, 1 h"])
    (queue, level, median), _ = found["wait"]
    assert (queue, level) == ("gpu", "0.5")
    assert 400 <= median <= 740  # the first of four ends that has run for 460 s
    assert [row[:2] for row in found["request"]] == [("8 A100, 1 h", q) for q in ("0.1", "0.5", "0.9")]
    assert median <= found["request"][1][2]  # it comes after


def test_without_waiting_jobs_only_requests_are_predicted(tmp_path):
    made = Site([job(n, -900, -800, -100 - n) for n in range(1, 9)], tmp_path / "watched")
    object.__setattr__(made.options, "history", 1.0)
    made.start().poll()
    made.stop()
    found = predict(made.trace(), SlurmSource, ["1 GPU, 1 h"])
    assert found["wait"] == []
    assert [row[2] for row in found["request"]] == [0.0, 0.0, 0.0]


# -- the command ---------------------------------------------------------------------------------------------------


def run(env, *words):
    command = [sys.executable, "-m", "fleetlab.cli", "watch", *map(str, words)]
    return subprocess.run(command, env=env, capture_output=True, text=True, timeout=120)


def test_once_prints_what_is_there_and_leaves_nothing(tmp_path):
    env = install(tmp_path / "bin", drawn(30, time.time() - 100, 3.0, 90.0))
    done = run(env, "slurm", "--once", "--json")
    result = json.loads(done.stdout)
    assert result["findings"][0].startswith("standin at ")
    assert {row["gpu_type"] for row in result["tables"]["gpus"]} == {"a100"}
    assert sorted(path.name for path in tmp_path.iterdir()) == ["bin"]


@pytest.mark.parametrize(
    ("words", "said"),
    [
        (("--every", "0"), "--every is from 0.05 to 86400, not: 0"),
        (("--listen", "9836"), "not an address and a port: `9836`"),
        (("--listen", "localhost:99999"), "not an address and a port"),
        (("--out", "bin/squeue"), "cannot write into"),
    ],
)
def test_a_mistake_ends_with_a_hint(tmp_path, words, said, monkeypatch):
    env = install(tmp_path / "bin", [])
    monkeypatch.chdir(tmp_path)
    done = run(env, "slurm", "--once", *words)
    assert done.returncode == 2
    assert said in done.stderr
    assert "hint: " in done.stderr
    assert "Traceback" not in done.stderr


def test_a_cluster_that_does_not_answer_is_said_at_once(tmp_path):
    done = run({"PATH": str(tmp_path)}, "slurm", "--once")
    assert done.returncode == 2
    assert "slurm does not answer: no command `scontrol` here" in done.stderr


def test_a_watch_that_is_started_again_while_the_cluster_is_down_goes_on(tmp_path):
    env = install(tmp_path / "bin", drawn(9, time.time() - 100, 3.0, 90.0))
    words = ("slurm", "--out", tmp_path / "watched", "--listen", "off", "--predict", "0", "--every", "0.2")
    assert run(env, *words, "--once").returncode == 0
    done = run(env | {"FAILING": "2"}, *words, "--seconds", "1")
    assert done.returncode == 0
    assert "slurm does not answer: scontrol: error: Unable to contact" in done.stderr
    assert "squeue fails" in done.stderr


def test_it_listens_on_loopback_alone_unless_asked():
    assert WatchOptions().address() == ("127.0.0.1", 9836)


def test_metrics_are_served_while_it_runs(tmp_path):
    with socket.socket() as door:
        door.bind(("127.0.0.1", 0))
        port = door.getsockname()[1]
    env = install(tmp_path / "bin", drawn(30, time.time() - 100, 3.0, 90.0))
    command = [
        sys.executable,
        "-m",
        "fleetlab.cli",
        "watch",
        "slurm",
        "--every",
        "0.5",
        "--listen",
        f"127.0.0.1:{port}",
    ]
    with subprocess.Popen(command, env=env, stderr=subprocess.PIPE, stdout=subprocess.DEVNULL, text=True) as watch:
        assert watch.stderr.readline() == f"metrics at http://127.0.0.1:{port}/metrics\n"
        text = ""
        while "fleetlab_gpus{" not in text:
            text = urllib.request.urlopen(f"http://127.0.0.1:{port}/metrics", timeout=5).read().decode()
        doors = [line.split()[1:4] for line in Path("/proc/net/tcp").read_text().splitlines()[1:]]
        watch.terminate()
        assert watch.wait(30) == 0
    listening = {address for address, _, state in doors if state == "0A" and address.endswith(f":{port:04X}")}
    assert listening == {f"0100007F:{port:04X}"}
    assert list(text_string_to_metric_families(text))


# -- nothing lost ------------------------------------------------------------------------------------------------------


@pytest.mark.parametrize("name", ["two\nlines", "end\n", "page\x0cfeed", "para\u2029graph", "\n\n", "a\x1fb", "7\n7"])
def test_a_name_with_a_line_end_takes_no_other_job_with_it(tmp_path, name):
    jobs = [job(number, 0, 10, 50, name=name if number == 2 else "plain") for number in (1, 2, 3)]
    site = Site(jobs, tmp_path / "live").start()
    site.poll(1)
    site.poll(300)
    assert site.watcher.failing == {}
    site.stop()
    trace = site.trace()
    assert trace.names.collect()["name"].to_list() == ["1", "2", "3"]
    assert trace.rejects.height == 0
    assert set(trace.workload.frame["status"]) == {"completed"}


def test_accounting_that_stops_in_the_middle_of_a_row_is_asked_again(tmp_path):
    site = Site([job(number, 0, 10, 50) for number in (1, 2)], tmp_path / "live").start()
    site.now += 300
    words = ["-o", "JobIDRaw,JobID,State,Submit,JobName,JobIDRaw", "-S", "uts0", "-E", f"uts{int(site.now)}"]
    site.broken["sacct"] = answer("sacct", words, site.jobs, site.now)[:-9]
    site.watcher.source._fields = words[1].split(",")[:-1]
    site.poll()
    assert "middle of a row" in site.watcher.failing["sacct"]
    accounted = site.watcher.store.cursor.accounted
    site.stop()
    assert accounted is None


def test_a_damaged_store_leaves_the_earlier_trace_and_ends_with_another_status(tmp_path):
    out, env = tmp_path / "live", install(tmp_path / "bin", drawn(20, time.time() - 100, 1, 5))
    words = ["slurm", "--out", str(out), "--listen", "off", "--every", "1", "--seconds", "2", "--history", "1"]
    first = run(env, *words)
    assert first.returncode == 0, first.stderr
    before = (out / "trace" / "trace.json").read_bytes()
    assert all(path.stat().st_mode & 0o077 == 0 for path in (out, *out.rglob("*")))
    next((out / "store").glob("ended-*.gz")).write_bytes(b"")
    second = run(env, *words)
    assert second.returncode == 2
    assert "damaged" in second.stderr
    assert (out / "trace" / "trace.json").read_bytes() == before


def test_a_store_whose_cluster_is_garbage_is_refused(site):
    site.poll()
    site.stop()
    (site.options.out / "store" / "cluster").write_bytes(b"\xff\x1b[2J\x00")
    with pytest.raises(FleetlabError, match=r"holds the jobs of .\?\[2J\?, not of slurm:standin"):
        Site(site.jobs, site.options.out).start()


def test_connections_that_ask_nothing_are_few_and_are_closed(tmp_path, monkeypatch):
    monkeypatch.setattr(outputs._Handler, "timeout", 0.5)
    with outputs.serve_metrics(Metrics(), port=0) as address:
        port = int(address.split(":")[2].split("/")[0])
        before = threading.active_count()
        idle = [socket.create_connection(("127.0.0.1", port)) for _ in range(100)]
        time.sleep(0.2)
        assert threading.active_count() - before <= outputs.MOST_CONNECTIONS
        time.sleep(0.6)
        assert b"fleetlab" in urllib.request.urlopen(address, timeout=5).read()
        for connection in idle:
            connection.close()
