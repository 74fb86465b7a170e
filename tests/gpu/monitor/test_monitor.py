"""Watching GPUs: what is seen, written, served and shown; with a stand-in for the driver, and with the host itself."""

import io
import json
import os
import resource
import signal
import socket
import subprocess
import sys
import time
import urllib.request

import polars as pl
import pytest
from prometheus_client.parser import text_string_to_metric_families
from rich.console import Console

from fleetlab.gpu.devices.console import BenchError
from fleetlab.gpu.monitor.outputs import Exporter, serve_metrics, tables
from fleetlab.gpu.monitor.result import monitor_result, pack_log, sample_frames
from fleetlab.gpu.monitor.run import MonitorOptions, MonitorRun, SampleLog, monitor, read_samples
from fleetlab.gpu.monitor.sources import VALUES, MonitoredGpu
from fleetlab.stats import mean_of_runs

# What NVIDIA's library answers for two GPUs: the second has no memory sensor and no energy counter, and from its
# third look on it is lost. Nobody runs on it, which its process utilization tells by an error.
PYNVML = """
import os
from types import SimpleNamespace as Of
class NVMLError(Exception): pass
NVML_SUCCESS, NVML_TEMPERATURE_GPU, NVML_CLOCK_SM, NVML_CLOCK_MEM, NVML_FI_DEV_MEMORY_TEMP = 0, 0, 1, 2, 82
nvmlMemory_v2 = 0x2000028
looks = {0: 0, 1: 0}
def refuse(why):
    raise NVMLError(why)
def alive(GPU):
    if GPU == 1 and looks[1] > 2: refuse("GPU is lost")
    return GPU
def nvmlInit():
    if os.environ.get("NO_DRIVER"): refuse("Driver Not Loaded")
def nvmlShutdown(): pass
def nvmlSystemGetDriverVersion(): return "580.0"
def nvmlSystemGetCudaDriverVersion(): return 13000
def nvmlDeviceGetCount(): return int(os.environ.get("CARDS", 2))
def nvmlDeviceGetHandleByIndex(k): return k
def nvmlDeviceGetName(c): return "H0"
def nvmlDeviceGetUUID(c): return f"GPU-{c}"
def nvmlDeviceGetMinorNumber(c): return c + 4
def nvmlDeviceGetPciInfo(c): return Of(busId=f"00000000:{c}9:00.0")
def nvmlDeviceGetComputeMode(c): return 0
def nvmlDeviceGetEnforcedPowerLimit(c): return 700000
def nvmlDeviceGetMaxClockInfo(c, kind): return 1980
def nvmlDeviceGetUtilizationRates(c):
    looks[c] += 1
    alive(c)
    return Of(gpu=83, memory=40)
def nvmlDeviceGetMemoryInfo(c, version=None):
    alive(c)
    return Of(total=4 << 30, used=1 << 30, free=5 << 29, reserved=1 << 29)
def nvmlDeviceGetTemperature(c, sensor): return 61 + alive(c)
def nvmlDeviceGetFieldValues(c, ids):
    alive(c)
    return [Of(nvmlReturn=0 if c == 0 else 3, value=Of(uiVal=70))]
def nvmlDeviceGetPowerUsage(c): return 430500 + alive(c)
def nvmlDeviceGetTotalEnergyConsumption(c): return 1001 + 50 * looks[0] if c == 0 else refuse("Not Supported")
def nvmlDeviceGetClockInfo(c, kind): return {1: 1500, 2: 2619}[kind] + alive(c)
def nvmlDeviceGetCurrentClocksEventReasons(c): return 0x24 if alive(c) == 0 else 0x1
def nvmlDeviceGetComputeRunningProcesses(c): return [Of(pid=77, usedGpuMemory=1 << 29)] if alive(c) == 0 else []
def nvmlDeviceGetMPSComputeRunningProcesses(c): return [Of(pid=78, usedGpuMemory=None)] if alive(c) == 0 else []
def nvmlDeviceGetGraphicsRunningProcesses(c): return refuse("Not Supported")
def nvmlDeviceGetProcessUtilization(c, since):
    if c == 1: refuse("Not Found")
    return [Of(pid=77, smUtil=10, memUtil=1, timeStamp=5), Of(pid=77, smUtil=60, memUtil=2, timeStamp=9)]
def nvmlSystemGetProcessName(pid): return "/usr/bin/python3.12"
"""


@pytest.fixture
def driver(tmp_path, monkeypatch):
    """A folder whose `pynvml` the next process finds first."""
    (tmp_path / "driver").mkdir()
    (tmp_path / "driver/pynvml.py").write_text(PYNVML)
    monkeypatch.setenv("PYTHONPATH", str(tmp_path / "driver"), prepend=os.pathsep)
    return tmp_path / "driver"


def on_device(*words):
    command = [sys.executable, "-m", "fleetlab.gpu.monitor", *map(str, words)]
    return subprocess.run(command, capture_output=True, text=True, timeout=120)


def lines(folder):
    return [json.loads(line) for line in (folder / "samples.jsonl").read_text().splitlines()]


@pytest.mark.usefixtures("driver")
def test_every_card_says_what_it_knows_and_nothing_where_it_does_not(tmp_path):
    done = on_device("--every", 0.02, "--seconds", 0.1, "--out", tmp_path / "out", "--quiet")
    assert done.returncode == 0, done.stderr
    first, second = lines(tmp_path / "out")[:2]
    assert (first["gpu"], first["util"], first["memory_util"]) == (0, 83, 40)
    assert [first[f"{part}_mib"] for part in ("used", "free", "reserved", "total")] == [1024, 2560, 512, 4096]
    assert (first["celsius"], first["memory_celsius"], first["watts"], first["joules"]) == (61, 70, 430.5, 1.051)
    assert (first["sm_mhz"], first["memory_mhz"], first["reasons"]) == (1500, 2619, 0x24)
    assert first["events"] == ["power cap", "thermal (software)"]
    assert first["processes"] == [
        {"pid": 77, "name": "python3.12", "kind": "compute", "memory_mib": 512, "util": 60, "memory_util": 2},
        {"pid": 78, "name": "python3.12", "kind": "mps", "memory_mib": None, "util": None, "memory_util": None},
    ]
    assert (second["joules"], second["memory_celsius"], second["processes"]) == (None, None, [])
    assert second["events"] == ["idle"]


@pytest.mark.usefixtures("driver")
def test_a_card_that_is_lost_leaves_empty_rows_and_the_other_goes_on(tmp_path):
    done = on_device("--every", 0.02, "--seconds", 1, "--out", tmp_path / "out", "--quiet")
    assert done.returncode == 0, done.stderr
    rows = lines(tmp_path / "out")
    lost = [row for row in rows if row["gpu"] == 1][2:]
    assert len(lost) > 1
    assert all(row[key] is None for row in lost for key in (*VALUES, "events", "processes"))
    assert all(row["util"] == 83 for row in rows if row["gpu"] == 0)
    assert done.stderr.count("GPU 1 does not answer") == 1


@pytest.mark.usefixtures("driver")
def test_only_the_cards_that_are_asked_for_are_watched(tmp_path):
    on_device("--every", 0.02, "--seconds", 0.05, "--index", "1", "--out", tmp_path / "out", "--quiet")
    assert {row["gpu"] for row in lines(tmp_path / "out")} == {1}
    done = on_device("--index", "0,2")
    assert done.returncode == 2
    assert "no GPU with index 2" in done.stderr


@pytest.mark.usefixtures("driver")
@pytest.mark.parametrize(
    ("env", "said"), [({"NO_DRIVER": "1"}, "Driver Not Loaded"), ({"CARDS": "0"}, "NVML lists none")]
)
def test_a_machine_without_a_card_says_so_and_names_the_way_out(monkeypatch, env, said):
    for key, value in env.items():
        monkeypatch.setenv(key, value)
    done = on_device("--seconds", 1)
    assert done.returncode == 2
    assert said in done.stderr
    assert "--backend cpu" in done.stderr
    assert "Traceback" not in done.stderr


def test_the_measuring_side_imports_no_frames():
    code = "import sys, fleetlab.gpu.monitor.__main__, fleetlab.gpu.bench.stress\n"
    code += "print(sorted({'polars', 'cyclopts', 'torch', 'fleetlab.core.result'} & set(sys.modules)))"
    done = subprocess.run([sys.executable, "-c", code], capture_output=True, text=True, check=True)
    assert done.stdout.strip() == "[]"


# --- the suite's own monitor -----------------------------------------------------------------------------------------

WITHIN = """
import sys, time
from pathlib import Path
from fleetlab.gpu.devices.nvml import GpuSampler
path = Path(sys.argv[1])
with GpuSampler(path, every=0.01) as m:
    began = time.monotonic()
    while len(m.samples) < 5: time.sleep(0.01)
    print(m.about["name"], m.between(began, time.monotonic())["watts"] > 0, m.unwritten)
"""


@pytest.mark.usefixtures("driver")
@pytest.mark.parametrize(("name", "said"), [("m.jsonl", "H0 True "), ("full", "H0 True")])
def test_a_suite_sees_its_card_even_where_the_disk_is_full(tmp_path, name, said):
    (tmp_path / "full").symlink_to("/dev/full")
    words = [sys.executable, "-c", WITHIN, str(tmp_path / name)]
    done = subprocess.run(words, capture_output=True, text=True, timeout=120)
    assert done.returncode == 0, done.stderr
    assert done.stdout.startswith(said)
    assert ("No space left" in done.stdout) == (name == "full")


# --- files -----------------------------------------------------------------------------------------------------------


def cli(*words):
    return [sys.executable, "-m", "fleetlab.cli", "bench", "monitor", "--backend", "cpu", *map(str, words)]


def wait_for(path, count):
    for _ in range(600):
        if path.exists() and path.read_bytes().count(b"\n") >= count:
            return
        time.sleep(0.1)
    pytest.fail(f"{count} lines did not come")


@pytest.mark.parametrize("told", [signal.SIGINT, signal.SIGTERM])
def test_a_watch_that_is_told_to_stop_ends_well_and_is_packed(tmp_path, told):
    out = tmp_path / "out"
    with subprocess.Popen(cli("--every", 0.05, "--out", out), stdout=subprocess.PIPE, text=True) as watcher:
        wait_for(out / "samples.jsonl", 3)
        watcher.send_signal(told)
        said, _ = watcher.communicate(timeout=120)
    assert watcher.returncode == 0
    packed_rows = pl.read_parquet(out / "samples.parquet")
    assert packed_rows.height == len(lines(out)) >= 3
    assert packed_rows["total_mib"].to_list() == [row["total_mib"] for row in lines(out)]
    assert pl.read_parquet(out / "processes.parquet").height == sum(len(row["processes"]) for row in lines(out))
    assert "GPU 0  " in said  # a line a look, as this is no terminal
    assert "samples" in said


def test_a_killed_watch_keeps_its_lines_and_can_be_packed_after(tmp_path):
    out = tmp_path / "out"
    words = [sys.executable, "-m", "fleetlab.gpu.monitor", "--backend", "cpu", "--every", "0.02", "--quiet"]
    with subprocess.Popen([*words, "--out", str(out)]) as watcher:
        wait_for(out / "samples.jsonl", 5)
        watcher.kill()
    with (out / "samples.jsonl").open("a") as file:
        file.write('{"at": 17')  # as if the blow had come in the middle of a line
    done = subprocess.run(cli("--pack", out / "samples.jsonl", "--json"), capture_output=True, text=True, timeout=120)
    assert done.returncode == 0, done.stderr
    whole = (out / "samples.jsonl").read_text().splitlines()[:-1]
    assert pl.read_parquet(out / "samples.parquet").height == len(whole) >= 5
    assert json.loads(done.stdout)["summary"][-1] == {"metric": "samples", "unit": ""} | dict.fromkeys(
        ("value", "low", "high"), len(whole)
    )
    assert sorted(p.name for p in out.iterdir()) == [
        "processes.parquet",
        "samples.jsonl",
        "samples.parquet",
        "watch.json",
    ]


def test_a_watch_goes_on_where_a_killed_one_stopped(tmp_path):
    (tmp_path / "samples.jsonl").write_text('{"at": 1, "gpu": 0}\n{"at": 2, "ca')
    monitor(MonitorOptions(backend="cpu", every=0.01, seconds=0.02, out=tmp_path), progress=print)
    rows = list(read_samples(tmp_path / "samples.jsonl"))
    assert rows[0] == {"at": 1, "gpu": 0}
    assert rows[1]["total_mib"] > 0


def test_a_full_disk_ends_the_watch_with_an_error_and_whole_lines(tmp_path):
    def little():
        resource.setrlimit(resource.RLIMIT_FSIZE, (6000, 6000))

    words = [sys.executable, "-m", "fleetlab.gpu.monitor", "--backend", "cpu", "--every", "0.01", "--seconds", "60"]
    command = [*words, "--quiet", "--out", str(tmp_path / "out")]
    done = subprocess.run(command, capture_output=True, text=True, preexec_fn=little, timeout=120)
    assert done.returncode == 2
    assert "earlier samples are kept" in done.stderr
    assert "Traceback" not in done.stderr
    assert len(lines(tmp_path / "out")) >= 1
    assert (tmp_path / "out/samples.jsonl").read_text().endswith("\n")


def test_a_folder_that_cannot_be_written_to_is_refused(tmp_path):
    (tmp_path / "file").write_text("")
    with pytest.raises(BenchError, match=r"Not a directory|File exists"):
        SampleLog(tmp_path / "file/samples.jsonl")


@pytest.mark.parametrize("line", ["no json", "[]", '{"at": 1}', '{"at": "x", "gpu": 0}'])
def test_a_log_of_something_else_is_refused_by_its_line(tmp_path, line):
    path = tmp_path / "samples.jsonl"
    path.write_text('{"at": 1, "gpu": 0}\n' + line + "\n")
    with pytest.raises(BenchError, match=r"samples.jsonl: line 2 is not a sample"):
        pack_log(path)
    assert [p.name for p in tmp_path.iterdir()] == ["samples.jsonl"]


@pytest.mark.parametrize("words", [{"every": 0}, {"every": float("nan")}, {"seconds": -1}, {"backend": "gpu"}])
def test_a_watch_that_cannot_be_is_refused(words):
    with pytest.raises(BenchError):
        monitor(MonitorOptions(**{"backend": "cpu", "seconds": 1} | words))


# --- numbers ---------------------------------------------------------------------------------------------------------


def row(at, card=0, **known):
    return {"at": at, "gpu": card} | dict.fromkeys(VALUES) | {"events": [], "processes": []} | known


def told(rows):
    seen = MonitorRun()
    seen.rows.extend(rows)
    return monitor_result(seen)


def test_energy_is_the_counters_and_never_the_integral_of_power():
    """The GPU says 999 W all the time; its counter says 30 J in 2 s."""
    found = told([row(10.0, joules=100, watts=999), row(11.0, joules=112, watts=999), row(12.0, joules=130, watts=999)])
    card = found.tables()["gpus"].row(0, named=True)
    assert (card["joules"], card["watts"], card["seconds"]) == (30, 15, 2)


def test_a_counter_that_begins_anew_is_said_and_counts_from_there():
    found = told([row(0.0, joules=100), row(1.0, joules=150), row(2.0, joules=5), row(3.0, joules=25)])
    assert found.tables()["gpus"]["joules"].to_list() == [70]
    assert any("was reset" in note for note in found.notes)


def test_looks_without_an_answer_count_for_nothing():
    found = told([row(0.0, joules=10, util=50), row(1.0), row(2.0, joules=30, util=70), row(0.0, card=1)])
    first, second = found.tables()["gpus"].iter_rows(named=True)
    assert (first["samples"], first["util"], first["joules"], first["watts"]) == (3, 60, 20, 10)
    assert (second["util"], second["joules"], second["throttled"]) == (None, None, None)


def test_limits_of_use_come_from_batches_because_neighbours_are_alike():
    """Each value twice: single looks would be taken for twenty independent ones, and there are ten."""
    values = [20, 40, 60, 80, 30, 50, 70, 90, 10, 50]
    found = told([row(float(k), util=values[k // 2]) for k in range(20)]).tables()["gpus"].row(0, named=True)
    by_hand = mean_of_runs(values, (0.0, 100.0)).interval()
    assert (found["util"], found["low"], found["high"]) == pytest.approx(by_hand)


def test_the_share_of_looks_that_were_throttled():
    found = told([row(float(k), reasons=bits) for k, bits in enumerate([0x4, 0x1, 0x0, 0x40])])
    assert found.tables()["gpus"]["throttled"].to_list() == [0.5]


def test_a_log_longer_than_a_batch_is_whole(monkeypatch):
    monkeypatch.setattr("fleetlab.gpu.monitor.result.AT_ONCE", 3)
    made = sample_frames(row(float(k), util=k, processes=[{"pid": k, "name": None}]) for k in range(10))
    assert made["samples"]["util"].to_list() == list(range(10))
    assert made["processes"]["pid"].to_list() == list(range(10))


# --- Prometheus ------------------------------------------------------------------------------------------------------

CARD = MonitoredGpu(0, "H0", "GPU-7", "00000000:19:00.0", "nvidia4")
FULL = row(1.0, util=83, memory_util=40, used_mib=1.5, free_mib=2.0, reserved_mib=0.5, total_mib=4.0, celsius=61) | {
    "memory_celsius": 70,
    "watts": 430.5,
    "joules": 1234.567,
    "sm_mhz": 1980,
    "memory_mhz": 2619,
    "reasons": 4,
}
OLD = {
    "GPU_UTIL": 83,
    "MEM_COPY_UTIL": 40,
    "FB_USED": 1.5,
    "FB_FREE": 2,
    "FB_RESERVED": 0.5,
    "FB_TOTAL": 4,
    "GPU_TEMP": 61,
    "MEMORY_TEMP": 70,
    "POWER_USAGE": 430.5,
    "TOTAL_ENERGY_CONSUMPTION": 1234567,
    "SM_CLOCK": 1980,
    "MEM_CLOCK": 2619,
    "CLOCKS_EVENT_REASONS": 4,
}
NEW = {
    "GPU_UTIL_RATIO": 0.83,
    "MEMORY_UTIL_RATIO": 0.4,
    "FB_USED_BYTES": 1572864,
    "FB_FREE_BYTES": 2097152,
    "FB_RESERVED_BYTES": 524288,
    "FB_CAPACITY_BYTES": 4194304,
    "GPU_TEMP_CELSIUS": 61,
    "MEMORY_TEMP_CELSIUS": 70,
    "BOARD_POWER_WATTS": 430.5,
    "GPU_ENERGY_JOULES_TOTAL": 1234.567,
    "SM_CLOCK_HERTZ": 1.98e9,
    "MEMORY_CLOCK_HERTZ": 2.619e9,
    "CLOCKS_EVENT_REASONS": 4,
}


def scraped(names, rows):
    exporter = Exporter([CARD, MonitoredGpu(1, "H0", "GPU-8", "", "nvidia5")], names)
    exporter.rows = rows
    with serve_metrics(exporter, port=0) as where, urllib.request.urlopen(where, timeout=60) as page:
        assert where.startswith("http://127.0.0.1:")
        text = page.read().decode()
    return [sample for family in text_string_to_metric_families(text) for sample in family.samples]


@pytest.mark.parametrize(("names", "expected"), [("4.8", OLD), ("4.9", NEW), ("both", OLD | NEW)])
def test_prometheus_gets_the_names_and_units_of_dcgm(names, expected):
    found = scraped(names, [FULL])
    assert {s.name.removeprefix("DCGM_FI_DEV_"): s.value for s in found} == pytest.approx(expected)
    assert len(found) == len(expected)


def test_a_metric_says_which_card_it_is_of_and_is_left_out_where_there_is_no_answer():
    found = scraped("4.8", [FULL | {"watts": None}, row(1.0, card=1, watts=70.0)])
    power = [s for s in found if s.name == "DCGM_FI_DEV_POWER_USAGE"]
    assert [(s.labels["gpu"], s.value) for s in power] == [("1", 70.0)]
    first = next(s for s in found if s.labels["gpu"] == "0")
    assert first.labels == {
        "gpu": "0",
        "UUID": "GPU-7",
        "pci_bus_id": "00000000:19:00.0",
        "device": "nvidia4",
        "modelName": "H0",
        "hostname": os.uname().nodename,
    }


def test_a_port_that_is_taken_is_an_error_with_a_way_out():
    with socket.socket() as taken:
        taken.bind(("127.0.0.1", 0))
        taken.listen()
        port = taken.getsockname()[1]
        with (
            pytest.raises(BenchError, match=f"cannot serve metrics at 127.0.0.1:{port}"),
            serve_metrics(Exporter([CARD]), port=port),
        ):
            pass


def test_prometheus_sees_the_last_look_while_the_watch_goes_on():
    words = [sys.executable, "-m", "fleetlab.gpu.monitor", "--backend", "cpu", "--every", "0.05", "--quiet"]
    with subprocess.Popen([*words, "--prometheus", "0"], stderr=subprocess.PIPE, text=True) as watcher:
        where = watcher.stderr.readline().split()[-1]
        for _ in range(600):
            with urllib.request.urlopen(where, timeout=60) as page:
                if "DCGM_FI_DEV_FB_TOTAL{" in (text := page.read().decode()):
                    break
            time.sleep(0.1)
        watcher.terminate()
        assert watcher.wait(timeout=60) == 0
    total = next(line for line in text.splitlines() if line.startswith("DCGM_FI_DEV_FB_TOTAL{"))
    assert float(total.split()[-1]) > 100


# --- the terminal ----------------------------------------------------------------------------------------------------


def test_the_table_shows_cards_and_processes_and_obeys_no_process_name():
    evil = {"pid": 7, "name": "\x1b[2Jbad[red]", "kind": "compute", "memory_mib": 2048, "util": None}
    page = io.StringIO()
    shown = tables([CARD], [FULL | {"events": ["power cap"], "processes": [evil]}])
    Console(file=page, width=120, no_color=True).print(shown)
    text = page.getvalue()
    assert "0 H0" in text
    assert "83 %" in text
    assert "power cap" in text
    assert "?[2Jbad[red]" in text
    assert "\x1b" not in text


def test_a_terminal_gets_a_table_that_is_drawn_again():
    import pty

    ours, theirs = pty.openpty()
    words = [sys.executable, "-m", "fleetlab.gpu.monitor", "--backend", "cpu", "--every", "0.1", "--seconds", "1.5"]
    with subprocess.Popen(words, stdout=theirs, env=os.environ | {"TERM": "xterm", "COLUMNS": "120"}) as watcher:
        os.close(theirs)
        text = b""
        while True:
            try:
                more = os.read(ours, 1 << 16)
            except OSError:
                break
            text += more
        assert watcher.wait(timeout=60) == 0
    os.close(ours)
    assert text.count(b"stop with Ctrl-C") >= 2
    assert b"process" in text
