"""The page as a new visitor meets it: the sample, four numbers, the timeline, and questions that fit its scheduler."""

import asyncio
import base64
import io
import json
import re
import zipfile
from dataclasses import replace
from importlib.resources import as_file, files

import polars as pl
import pytest

from fleetlab import Cluster, Provenance, Trace, Workload
from fleetlab.core.files import unpack
from fleetlab.core.schedulers import scheduler_of
from fleetlab.web.backend import WhatIfBackend
from fleetlab.web.link import Link

from .tab import Tab, complaints, violations

pytestmark = pytest.mark.browser
LINE = "SchedulerParameters=batch_sched_delay=0,bf_interval=1,bf_resolution=1,bf_continue"
GPU = "nvidia.com/gpu"
DROP = """((name, bytes) => {
  const carried = new DataTransfer();
  carried.items.add(new File([Uint8Array.from(atob(bytes), (c) => c.charCodeAt(0))], name));
  document.body.dispatchEvent(new DragEvent('drop', { dataTransfer: carried, bubbles: true, cancelable: true }));
})(arguments[0], arguments[1])"""


@pytest.fixture(scope="module")
def queued() -> Trace:
    """Two queues of KAI on one node of 8 GPUs: `a` may have all of it, `b` is limited to 2."""
    jobs = pl.DataFrame({"submit": [float(k) for k in range(40)], "runtime": 60.0, "gpu_milli": 1000,
                         "queue": ["a", "b"] * 20, "user": ["ann", "bob"] * 20})  # fmt: skip
    kai = scheduler_of({"kind": "kai", "queues": [
        {"name": "a", "quotas": {GPU: {"deserved": 8, "limit": -1}}},
        {"name": "b", "quotas": {GPU: {"deserved": 1, "limit": 2}}},
    ]})  # fmt: skip
    return Trace(
        Workload.of(jobs, source="queued"), Provenance("read", "queued"), cluster=Cluster.uniform(1, 8), scheduler=kai
    )


@pytest.fixture(scope="module")
def page(page, root, queued):
    """The page of all modules, which finds this trace too."""
    queued.save(root / "queued")
    return page


@pytest.fixture
def tab(browser, page):
    return Tab(browser, page)


def tiles(tab):
    """By name: the number and what stands beside it."""
    cells = "[...d.querySelectorAll('dd > *')].map(e => e.innerText)"
    found = tab.ask(
        f"[...document.querySelectorAll('#tiles > div')].map(d => [d.querySelector('dt').innerText, {cells}])"
    )
    return dict(found)


def box(tab, css):
    return tab.ask(
        "(r => [r.left, r.top, r.right, r.bottom])(document.querySelector(arguments[0]).getBoundingClientRect())", css
    )


@pytest.mark.parametrize("width", [390, 1400, 1920])
def test_it_opens_on_the_sample_with_four_numbers_and_the_timeline_on_the_first_screen(tab, width):
    tab.open("", width=width).refined()
    assert tab.text("chip-scheduler") == "Scheduler: Slurm as configured"
    assert tab.text("chip-trust") == "Simulated 86 s · recorded 84 s · ±14 %"
    assert "in 42 of 50 recorded runs" in tab.ask("document.getElementById('chip-trust').title")
    assert not tab.ask("document.getElementById('chip-trust').classList.contains('amber')")
    found = tiles(tab)
    assert list(found) == ["Mean wait", "P90 wait", "GPU allocation", "Main reason to wait"]
    assert [len(texts) for texts in found.values()] == [1, 1, 1, 2]  # no difference before anything was changed
    assert found["Mean wait"] == ["86 s"]  # the same mean as in the badge: that of the replicas
    assert found["Main reason to wait"][0] == "reservation"
    tab.until("document.querySelector('#cluster-timeline .timeline canvas')")
    assert tab.ask("document.documentElement.scrollWidth") <= width
    if width > 390:
        left, top, right, _ = box(tab, "#cluster-timeline .timeline-plots")
        assert (top < 350, right - left > 0.9 * width) == (True, True)
    view, span = tab.ask("[window.fleetlab.pageTimeline.view.t, window.fleetlab.pageTimeline.runs[0].about.span]")
    assert view[1] < 0.9 * span  # the queue that only empties is out of sight
    assert complaints(tab.browser) == []
    assert tab.ask("document.getElementById('pinned').hidden")  # nothing was changed: it would hide the timeline
    assert len(re.findall(r"\d+", tab.text("headline"))) == 1


@pytest.mark.parametrize("dark", [False, True], ids=["light", "dark"])
@pytest.mark.parametrize("width", [390, 1400])
def test_axe_finds_nothing_on_the_sample(tab, width, dark):
    tab.open(f"scheduler={json.dumps({'kind': 'site', 'conf': LINE})}", width=width, dark=dark)
    assert violations(tab.browser) == []


def test_a_line_of_slurm_conf_is_changed_compared_and_taken_back(tab):
    tab.open("")
    assert "SchedulerType=sched/backfill" in tab.ask("document.getElementById('conf').value")
    tab.ask(
        "(c => { c.value += '\\n' + arguments[0]; c.dispatchEvent(new Event('input')); })"
        "(document.getElementById('conf'))",
        LINE,
    )
    assert tab.text("conf-lines").split() == ["+", LINE] or tab.text("conf-lines").endswith(f"+ {LINE}")
    tab.click("#conf-run")
    tab.until(
        "!document.querySelector('.stale')"
        " && document.getElementById('chip-scheduler').innerText.includes('4 settings')"
    )
    changed = tab.ask(
        "[...document.querySelectorAll('#setting-rows tbody tr')].map(r => [...r.cells].map(c => c.innerText))"
    )
    assert ["bf_interval", "30", "1"] in changed
    wait = tiles(tab)["Mean wait"]
    assert (30 < float(wait[0].split()[0]) < 50, wait[1].startswith("−")) == (True, True)
    assert tab.text("headline").startswith(f"With {LINE[:40]}")
    sentence = tab.text("headline").rpartition(": ")[2]
    assert [len(number.replace(".", "")) for number in re.findall(r"[\d.]*\d", sentence)] == [2, 2]
    tab.until("window.fleetlab.pageTimeline.runs.length === 2")
    titles = tab.ask("[...document.querySelectorAll('.timeline-run')].map(p => p.innerText)")
    assert [title.split(":")[0] for title in titles] == ["Before", "After"]
    swiped_is_before_on_the_left_and_after_on_the_right(tab)
    tab.open(tab.browser.current_url.partition("?")[2])
    assert LINE in tab.ask("document.getElementById('conf').value")
    tab.click("#conf-reset")
    tab.until("!location.search.includes('scheduler=')")
    assert complaints(tab.browser) == []


def swiped_is_before_on_the_left_and_after_on_the_right(tab):
    pick = """(([css, value, event]) => {
      const e = document.querySelector(css);
      e.value = value;
      e.dispatchEvent(new Event(event));
    })(arguments)"""
    runs, divider = "#cluster-timeline select[aria-label=Runs]", "#cluster-timeline .timeline-swipe"
    rasters = "window.fleetlab.pageTimeline.charts.filter(c => c.kind === 'raster')"
    picture = f"(u => u.ctx.getImageData(0, 0, u.ctx.canvas.width, u.ctx.canvas.height).data.join())({rasters}[0].u)"
    tab.ask(pick, runs, "swipe", "change")
    assert tab.ask(f"{rasters}.length") == 1
    pictures = []
    for share in ("1", "0"):
        frames = tab.ask("window.fleetlab.pageTimeline.frames")
        tab.ask(pick, divider, share, "input")
        tab.until("window.fleetlab.pageTimeline.frames > arguments[0] && !window.fleetlab.pageTimeline.missing", frames)
        pictures.append(tab.ask(picture))
    assert pictures[0] != pictures[1]
    tab.ask(pick, runs, "both", "change")


def test_the_controls_show_the_scheduler_that_is_simulated_and_nothing_replaces_it_silently(tab):
    tab.open("")
    assert (
        tab.ask("document.querySelector('#option-scheduler option:checked').textContent")
        == "As configured on your cluster (Slurm)"
    )
    assert tab.ask("document.getElementById('policy').hidden")
    names = tab.ask("[...document.querySelectorAll('.preset b')].map(b => b.innerText)")
    assert (names[0], names[-3:]) == ("Shorter scheduler loops", ["Add 4 nodes", "+30 % load", "Lose a rack"])
    assert "EASY backfill" not in names
    assert len(names) <= 5
    tab.choose("option-scheduler", "event")
    tab.choose("option-backfill", "easy")
    tab.until("document.getElementById('chip-scheduler').innerText === 'fifo/easy/best_fit: not your Slurm'")
    assert tab.ask("document.getElementById('chip-scheduler').classList.contains('amber')")
    tab.choose("option-scheduler", "")
    tab.until("document.getElementById('chip-scheduler').innerText === 'Scheduler: Slurm as configured'")
    assert "backfill" not in tab.state


def test_a_far_simulation_is_amber_and_says_why(tab):
    tab.open("backfill=easy&base=backfill%3Deasy")
    assert tab.ask("document.getElementById('chip-trust').classList.contains('amber')")
    assert "find out why" in tab.text("chip-trust")
    assert "Slurm is not simulated" in tab.ask("document.getElementById('chip-trust').title")


def test_a_click_on_a_job_opens_its_story_beside_the_timeline(tab):
    tab.open("", width=1400)
    tab.until("document.querySelector('#cluster-timeline .timeline canvas')")
    tab.ask(
        "document.querySelector('#cluster-timeline .timeline').dispatchEvent("
        "new CustomEvent('timeline-job', { bubbles: true, detail: { job: 700 } }))"
    )
    tab.until("document.querySelector('#job-story h2')")
    timeline, story = box(tab, "#cluster-timeline"), box(tab, "#job")
    assert story[0] >= timeline[2]
    assert abs(story[1] - timeline[1]) < 5
    assert tab.state["job"] == ["#700"]
    tab.click("#job-close")
    tab.until("document.getElementById('job').hidden && !document.getElementById('what-if').hidden")


def test_what_collect_writes_can_be_dropped_as_a_zip(tab, tmp_path):
    with as_file(files("fleetlab.traces") / "sample" / "sample.tar.gz") as archive:
        folder = unpack(archive, tmp_path)
    packed = io.BytesIO()
    with zipfile.ZipFile(packed, "w", zipfile.ZIP_DEFLATED) as z:
        for path in folder.iterdir():
            z.write(path, f"lab/{path.name}")
    tab.open("")
    tab.ask(DROP, "lab.zip", base64.b64encode(packed.getvalue()).decode())
    tab.until("!document.getElementById('upload').hidden")
    tab.click("#send")
    tab.until("!document.getElementById('confirm').hidden")
    assert "1,000 jobs" in tab.text("read-counts")
    tab.click("#use")
    tab.until("location.search.includes('upload%3A')")
    tab.answered()
    assert tab.text("chip-scheduler") == "Scheduler: Slurm as configured"
    assert tab.text("chip-trust") == "Simulated 85 s · recorded 84 s · ±14 %"
    assert tab.ask("document.getElementById('chip-assumed').hidden")


def test_a_log_without_gpus_is_a_red_banner_and_an_assumed_cluster_an_amber_chip(tab):
    rows = "".join(f"{10 * k},60\n" for k in range(50))
    tab.open("")
    tab.ask(DROP, "jobs.csv", base64.b64encode(f"submit,runtime\n{rows}".encode()).decode())
    tab.until("!document.getElementById('upload').hidden")
    assert "No column tells the GPUs" in tab.text("no-gpus")
    tab.click("#send")
    tab.until("!document.getElementById('confirm').hidden")
    tab.click("#use")
    tab.until("!document.getElementById('warnings').hidden")
    assert tab.text("warnings").startswith("No job of this log asks for a GPU.")
    assert tab.text("chip-assumed").startswith("Assumed cluster: ")


def test_quotas_of_queues_are_changed_in_a_table(tab, queued):
    tab.open("trace=folder:queued")
    before = tiles(tab)["Mean wait"]
    of_b = "i => i.getAttribute('aria-label').startsWith('limit of b, nvidia')"
    limit = f"[...document.querySelectorAll('#quotas input')].find({of_b})"
    assert tab.ask(f"{limit}.value") == "2"
    tab.ask(f"(i => {{ i.value = ''; i.dispatchEvent(new Event('input')); }})({limit})")
    tab.click("#quotas-run")
    tab.until(
        "!document.querySelector('.stale')"
        " && document.getElementById('headline').innerText.startsWith('With other quotas')"
    )
    assert tiles(tab)["Mean wait"][0] != before[0]
    row = next(r for r in queued.scheduler.quotas() if (r.queue, r.resource) == ("b", GPU))
    assert queued.scheduler.with_quotas([replace(row, amounts={"limit": None})]).quotas() != queued.scheduler.quotas()
    tab.click("#quotas-reset")
    tab.until("!location.search.includes('scheduler=')")


def test_a_page_without_a_folder_has_answered_the_first_question_before_it_is_asked():
    async def answers():
        backend = WhatIfBackend(root=None, workers=1, upload_bytes=1 << 20, limit=300.0)
        await backend.open()
        try:
            begun = next(iter(backend.operations._operations.values()))
            assert begun.task is not None
            await begun.task
            (trace, key, _), status = backend._pair(Link.of("")), begun.status
            return status, backend.pool.cached(f"compare {backend.traces.locate(trace)[0]} {key}") is not None
        finally:
            await backend.close()

    assert asyncio.run(answers()) == ("done", True)
