"""Rules are compiled before they are asked for, and whoever waits for a compilation is told."""

import fcntl
import io
import json
import subprocess
import sys
import threading
import time

import pytest

from fleetlab.core.catalog import BACKFILLS, ORDERS, SHARINGS
from fleetlab.sim.jit import _exclusive
from fleetlab.web.compile_rules import rules
from fleetlab.web.worker import Channel


def left():
    """What the process says, line by line."""
    command = [sys.executable, "-m", "fleetlab.web.compile_rules"]
    said = subprocess.run(command, capture_output=True, text=True, check=True).stdout
    return [json.loads(line)["left"] for line in said.splitlines()]


def test_every_order_backfill_and_sharing_mode_is_compiled():
    names = [name for name, _ in rules()]
    wanted = {"order": ORDERS, "backfill": BACKFILLS, "sharing": SHARINGS}
    assert {f"{word} {name}" for word, catalog in wanted.items() for name in catalog.names} <= set(names)
    assert len(set(names)) == len(names)


@pytest.mark.slow
def test_fewer_rules_are_left_until_none_is_and_then_none_is_compiled_again():
    counts = [len(names) for names in left()]
    assert counts == sorted(counts, reverse=True)
    assert counts[-1] == 0
    assert left() == [[]]


def test_the_page_says_which_rules_are_not_compiled_yet(page):
    assert isinstance(page.ask("/api/options").json["compiling"], list)


def test_work_that_waits_for_a_compilation_says_so_and_other_work_does_not(tmp_path):
    out, begun = io.StringIO(), threading.Event()

    def work():
        channel = Channel(out)
        channel.turn = 1
        threading.Thread(target=channel.report_compilation, daemon=True).start()
        time.sleep(1.2)
        begun.said = out.getvalue()
        begun.set()
        with _exclusive(tmp_path / "rule.lock"):  # where a process waits until another has compiled
            pass

    with (tmp_path / "rule.lock").open("a") as held:
        fcntl.flock(held, fcntl.LOCK_EX)
        worker = threading.Thread(target=work, daemon=True)
        worker.start()
        assert begun.wait(60)
        assert begun.said == ""
        end = time.monotonic() + 60
        while not out.getvalue() and time.monotonic() < end:
            time.sleep(0.05)
    worker.join(60)
    assert [json.loads(line)["what"] for line in out.getvalue().splitlines()] == [
        "compiling a rule that is used for the first time"
    ]
