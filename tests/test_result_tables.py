"""Every table that a result has is described, with all its columns; and what is described is there.

Small runs make most tables. What they do not make (a search that needs a GPU, a site's own configuration) is looked
for in the code: a described column whose name is nowhere in it is one that no longer exists.
"""

import json
import re
from dataclasses import fields
from functools import cache
from pathlib import Path
from tempfile import TemporaryDirectory

import polars as pl
import pytest
from docs.site.records import DERIVED, FILES, RESULTS, VARIES
from realtest.archives import gpu_sharing

import fleetlab
from fleetlab.core.catalog import HOLDERS, REASONS

ROOT = Path(__file__).parents[1]
MEASURED = gpu_sharing()
CODE = list((ROOT / "src" / "fleetlab").rglob("*.py"))
BUSY = {"load": 20.0}
TEXT = re.compile(r"[\"']([^\"'\n]{1,120})[\"']|^ +(\w+): |\b(\w+)=|#.*$", re.MULTILINE)


def by_hand(**columns):
    return fleetlab.Workload.of(pl.DataFrame({"submit": 0.0, **columns}), source="by hand")


def autoscale():
    hourly = by_hand(submit=[3600.0 * k for k in range(150)], runtime=1800.0, gpu_milli=1000)
    return fleetlab.autoscale(hourly, fleetlab.Cluster.uniform(2, 1), every="15m", models=["last"])


def capacity():
    jobs = by_hand(submit=[0.0, 10.0, 20.0, 30.0], runtime=600.0, gpu_milli=8000)
    return fleetlab.capacity(jobs, fleetlab.Cluster.uniform(1, 8), slo="p90 wait < 1m", workers=0)


def defragment():
    half, nodes = by_hand(instances=[2], gpu_milli=[500]), fleetlab.Cluster.uniform(2, 1)
    return fleetlab.defragment(half, nodes, fleetlab.plan(half, nodes, objective="balance").placements)


def describe(trace):
    short = fleetlab.synthesize(jobs=300, days=2)
    return fleetlab.describe(trace(), against=short)


def services():
    return fleetlab.read(ROOT / "tests" / "fixtures" / "dlrm2025" / "good", "dlrm2025")


def pai():
    return fleetlab.read(ROOT / "tests" / "fixtures" / "pai2020" / "good", "pai2020")


def model():
    scenario = fleetlab.Scenario.of("builtin:200", **BUSY)
    return fleetlab.model(scenario.workload, scenario.cluster)


def plan():
    both = by_hand(instances=[3, 1], gpu_milli=[600, 9000])
    return fleetlab.plan(both, fleetlab.Cluster.uniform(4, 2))


def plan_ahead():
    trace = fleetlab.synthesize(jobs=200, days=2)
    return fleetlab.plan_ahead(trace, every="15m", horizon=2, models=["last"], seconds=1)


def forecast():
    trace = fleetlab.synthesize(jobs=200, days=2)
    return fleetlab.forecast(trace, every="15m", horizon=2, models=["simple"])


@cache
def swept():
    """A sweep, and its store of runs."""
    scenarios = fleetlab.Scenario.of("builtin:200", **BUSY).vary(order=["fifo", "sjf"])
    with TemporaryDirectory() as folder:
        study = fleetlab.sweep(scenarios, seeds=2, against={"order": "fifo"}, workers=1, store=folder)
        record = json.loads(next(Path(folder, "cells").rglob("*.json")).read_text("utf-8"))
        return study, fleetlab.runs(folder, against={"order": "fifo"}), record


def tune():
    pytest.importorskip("optuna")
    trace = fleetlab.synthesize(jobs=200, days=4)
    return fleetlab.tune(trace, trials=2, days=1, warm=0, against=["fifo"])


def formats():
    from fleetlab.traces import formats as listed

    return listed()


def bench(what):
    from fleetlab.gpu.bench import analysis, profile
    from fleetlab.gpu.bench.advise import advise
    from fleetlab.gpu.bench.profile.predictions import compare_predictions
    from fleetlab.gpu.bench.results.programs import isolation_result
    from fleetlab.gpu.bench.results.suite import suite_result

    h200, held_out = MEASURED / "h200", MEASURED / "h200-heldout"
    return {
        "suite": lambda: suite_result(h200 / "serving", price=3.0),
        "llm": lambda: suite_result(MEASURED / "h200-llm"),
        "notebook": lambda: suite_result(MEASURED / "h200-notebook"),
        "analyze": lambda: analysis.analyze(h200, price=3.5),
        "advise": lambda: advise(h200, mix="resnet-train, resnet-infer", goal="cost"),
        "compare": lambda: compare_predictions(held_out / "predictions.json", [held_out]),
        "speeds": lambda: profile.profile([h200 / "classes"], classes=True),
        "slices": lambda: profile.predict_slices([h200 / "sm-curve", h200 / "solo"]),
        "isolation": lambda: isolation_result(MEASURED / "h200-isolation"),
    }[what]()


def doctor():
    from fleetlab.commands.doctor import examined

    return examined()


SAMPLES = {
    "read, synthesize, show": [lambda: fleetlab.synthesize(jobs=200), pai],
    "traces": [formats],
    "describe": [lambda: describe(lambda: fleetlab.synthesize(jobs=3000, days=9)), lambda: describe(pai),
                 lambda: describe(services)],
    "simulate": [lambda: fleetlab.simulate("builtin:300", **BUSY)],
    "pack": [lambda: fleetlab.pack("builtin:300", seeds=[1])],
    "compare": [lambda: fleetlab.compare("builtin:200", policies=["fifo", "sjf", "las"], workers=0, **BUSY)],
    "diagnose": [lambda: fleetlab.diagnose("builtin:200", changes=["cpu"], workers=0, **BUSY),
                 lambda: fleetlab.diagnose("builtin:200", changes=["cpu"], workers=0, backfill="none")],
    "explain": [lambda: fleetlab.explain("builtin:200", longest=3, **BUSY),
                lambda: fleetlab.explain("builtin:200", job=190, what_if=True, **BUSY)],
    "capacity": [capacity],
    "eta": [lambda: fleetlab.eta("builtin:200", request="1 T4, 1 h", at="60s", replays=20, calibrate=0, **BUSY),
            lambda: fleetlab.eta("builtin:200", at="60s", replays=20, calibrate=0, **BUSY)],
    "calibrate": [lambda: fleetlab.calibrate("builtin:300")],
    "audit": [lambda: fleetlab.audit("builtin:200")],
    "tune": [tune],
    "sweep": [lambda: swept()[0]],
    "runs": [lambda: swept()[1]],
    "autoscale": [autoscale],
    "forecast": [forecast],
    "plan (ahead)": [plan_ahead],
    "plan": [plan],
    "defragment": [defragment],
    "model": [model],
    "solve": [lambda: fleetlab.solve("M/M/c", lam=7.2, mu=1, c=8), lambda: fleetlab.queueing.models()],
    "doctor": [doctor],
    "bench suite, show": [lambda: bench("suite"), lambda: bench("llm"), lambda: bench("notebook")],
    "bench analyze, all": [lambda: bench("analyze")],
    "bench advise": [lambda: bench("advise")],
    "bench profile, predict, compare": [lambda: bench("compare"), lambda: bench("speeds")],
    "bench mig": [lambda: bench("slices")],
    "bench isolation": [lambda: bench("isolation")],
}  # fmt: skip
BY_NAME = {one.name: one for one in RESULTS}


@pytest.fixture(scope="module")
def seen():
    """The columns of each table that was made, as far as they are described: filled by the tests of the samples."""
    return {}


@pytest.mark.parametrize("name", SAMPLES)
def test_every_table_and_every_column_is_described(name, seen):
    one = BY_NAME[name]
    for sample in SAMPLES[name]:
        for table, frame in sample().tables().items():
            found = one.table(table)
            assert found is not None, f"`{table}` of {name}"
            columns = {column: found.column(column) for column in frame.columns}
            assert [column for column, entry in columns.items() if entry is None] == [], table
            always = {column for column, always in found.names() if always} if frame.columns else set()
            assert sorted(always - set(columns.values())) == [], table
            seen.setdefault((name, found.name), set()).update(columns.values())


@pytest.fixture(scope="module")
def words():
    """All texts and names in the code, from which tables are made."""
    found = set(REASONS.names) | set(HOLDERS.names)
    for path in CODE:
        for parts in TEXT.findall(path.read_text("utf-8")):
            found.update(part.strip() for part in parts)
    return found


@pytest.mark.parametrize("one", RESULTS, ids=lambda one: one.name)
def test_what_is_described_is_in_a_table_or_in_the_code(one, seen, words):
    for table in one.tables:
        made = seen.get((one.name, table.name), set())
        names = {name for name, _ in table.names() if not VARIES.search(name)}
        assert sorted(name for name in names - made if not in_code(name, words)) == [], table.name


def in_code(name, words):
    """Is it a text of the code, or the end of an interval, or a change, of one; or one with a part that differs?"""
    found = {name, *(name.removesuffix(suffix) for suffix in DERIVED)}
    if found & words:
        return True
    pieces = [[piece for piece in re.split(r"[\s_,]+", one) if piece] for one in found]
    varied = [text for text in words if VARIES.search(text)]
    return any(all(piece in text for piece in one[:1] + one[-1:]) for one in pieces for text in varied)


def test_a_column_that_is_nowhere_is_noticed(words):
    assert not in_code("mean gloom", words)


# -- files -------------------------------------------------------------------------------------------------------------

FILE = {one.name.split(":")[0]: one for one in FILES}


def check(one, table, keys):
    """The keys of rows are all described, and those that are always there are."""
    found = one.table(table)
    assert sorted({key for some in keys for key in some} - {name for name, _ in found.names()}) == []
    assert [key for key, always in found.names() if always and not all(key in some for some in keys)] == []
    return {key for some in keys for key in some}


def test_keys_of_a_suite_are_described():
    from fleetlab.gpu.bench.results.cells import read_records

    one, manifests, cells = FILE["bench suite --out"], [], []
    for path in (p for p in MEASURED.rglob("manifest.json") if list(p.parent.glob("cells.jsonl*"))):
        about, measured, _ = read_records(path.parent)
        manifests.append(about)
        cells += measured
    parts = {
        "manifest.json": manifests, "cells.jsonl": cells,
        "tenants of a cell": [tenant for cell in cells for tenant in cell.get("tenants", [])],
        "gpu of a cell": [cell["gpu"] for cell in cells if cell.get("gpu")],
        "failures of a cell": [failure for cell in cells for failure in cell.get("failures", [])],
    }  # fmt: skip
    for table, rows in parts.items():
        assert check(one, table, rows) == {name for name, _ in one.table(table).names()}, table


def test_keys_of_probes_are_described(words):
    from fleetlab.gpu.bench.results.programs import read_probes

    one = FILE["bench isolation --out"]
    found = check(one, "probes.jsonl", read_probes(MEASURED / "h200-isolation")[1])
    assert [name for name, _ in one.tables[0].names() if name not in found | words] == []


def test_columns_of_a_monitor_are_described():
    from fleetlab.gpu.monitor.result import PROCESSES, SAMPLES

    one = FILE["bench monitor --out"]
    assert [name for name, _ in one.table("samples.parquet").names()] == list(SAMPLES)
    assert [name for name, _ in one.table("processes.parquet").names()] == list(PROCESSES)


def test_keys_of_a_cell_of_a_sweep_are_described(words):
    record, one = swept()[2], FILE["sweep --store"]
    for table, row in (("KEY.json", record), ("cell", record["cell"]), ("made", record["made"])):
        found = check(one, table, [row])
        assert [name for name, _ in one.table(table).names() if name not in found | words] == []


def test_files_of_a_watched_cluster_are_described():
    from fleetlab.live.journal import PARTS, ROW, Cursor, Segment, Snapshot

    one = FILE["watch --out"]
    for table, kind in (("segments", Segment), ("cursor", Cursor)):
        assert [name for name, _ in one.table(table).names()] == [field.name for field in fields(kind)]
    assert [name for name, _ in one.tables[0].names()] == ["layout", *(field.name for field in fields(Snapshot))]
    assert len(one.tables[-1].parts()) == PARTS[ROW]
