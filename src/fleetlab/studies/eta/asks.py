"""Earlier asks about jobs of the same log: few replays each, of some jobs of late, and kept for the next question."""

from __future__ import annotations

import json
import os
import time
from collections.abc import Iterable
from hashlib import sha256
from importlib.resources import files
from pathlib import Path

import numpy as np

from fleetlab.core import Scenario
from fleetlab.core.censoring import Floats
from fleetlab.core.files import atomic_write
from fleetlab.core.private_folder import make_private
from fleetlab.core.progress import Progress, silent
from fleetlab.core.resample import Ints
from fleetlab.studies.eta.calibration import Asks
from fleetlab.studies.eta.history import History
from fleetlab.studies.eta.jobs import Present
from fleetlab.studies.eta.replay import LEVELS, play
from fleetlab.studies.eta.run_times import RunTimes

REPLAYS = 19  # of an earlier ask: its P10, median and P90 are the 2nd, 10th and 18th
LATELY = 8  # times as many jobs of late are chosen from
MAX_AGE = 30 * 86_400  # seconds that answers are kept
CODE = ("fleetlab.studies.eta", "fleetlab.sim", "fleetlab.sim.engine", "fleetlab.sim.slurm")


def earlier_asks(scenario: Scenario, history: History, at: float, count: int, progress: Progress = silent) -> Asks:
    """Ask about jobs that had to wait before this instant, at their submission; return what had become of them.

    Forecasts that an earlier question about this log made are reused.
    """
    rows = _chosen(history, at, count, scenario.seed)
    kept = Kept.of(scenario, history)
    missing = [int(row) for row in rows if int(row) not in kept.answers]
    classes = RunTimes(history)
    try:
        for k, row in enumerate(missing):
            kept.answers[row] = answer_of(scenario, classes, row, REPLAYS)
            progress("earlier asks", k + 1, (k + 1) / len(missing))
    finally:  # an interrupted question has asked some
        if missing:
            kept.save()
    answer = np.array([kept.answers[int(row)] for row in rows]).reshape(len(rows), len(LEVELS))
    start = np.where(history.start[rows] <= at, history.wait[rows], np.inf)
    return Asks(history.submit[rows], answer, start)


def answer_of(scenario: Scenario, classes: RunTimes, row: int, replays: int) -> Floats:
    """Return the quantiles for a job of the log, asked at its submission; drawn by its row, whoever asks."""
    snapshot = classes.history.at(float(classes.history.submit[row]), row)
    present = Present(scenario, snapshot, classes.known(snapshot), replays, scenario.seed + row)
    return play(present, np.array([row])).bounded_quantiles(row)


def waiters(history: History) -> Ints:
    """Return the jobs that did not start as they came, and that nothing but the queue kept: no dependency, no hold."""
    frame = history.frame
    held = frame["eligible"].fill_null(0.0).to_numpy() > history.submit + 1.0
    able = history.may_wait & ~held & ~frame["initial"].to_numpy() & (frame["job"].to_numpy() >= 0)
    return np.flatnonzero(able & ~(history.start <= history.submit))


def _chosen(history: History, at: float, count: int, seed: int) -> Ints:
    """Return some jobs that came before an instant and had to wait; mostly the same ones for instants close by."""
    rows = waiters(history)
    latest = rows[history.submit[rows] < at][-LATELY * count :]
    luck = np.random.default_rng([seed, 4]).random(len(history.submit))[latest]
    return np.sort(latest[np.argsort(luck, kind="stable")[:count]])


class Kept:
    """Answers that were given before, of one log, scenario and version of the code: a file of the user's own."""

    def __init__(self, path: Path | None, answers: dict[int, Floats]) -> None:
        self.path, self.answers = path, answers

    @classmethod
    def of(cls, scenario: Scenario, history: History) -> Kept:
        """Return those of a scenario; none, where nothing is kept or it cannot be read."""
        try:
            home = Path(os.environ.get("XDG_CACHE_HOME") or Path.home() / ".cache") / "fleetlab"
            path = make_private(home / "eta") / f"{_key(scenario, history)}.json"
        except (OSError, RuntimeError):  # no home folder, or one that others can write to
            return cls(None, {})
        try:
            found = {int(row): np.array(answer) for row, answer in json.loads(path.read_text("utf-8")).items()}
        except (OSError, ValueError, AttributeError):  # none yet, or a broken file, which the next one replaces
            found = {}
        return cls(path, {row: answer for row, answer in found.items() if answer.shape == (len(LEVELS),)})

    def save(self) -> None:
        """Keep the answers for the next question, where that is possible."""
        if self.path is None:
            return
        try:
            text = json.dumps({row: answer.tolist() for row, answer in sorted(self.answers.items())})
            atomic_write(self.path, text)
            for old in self.path.parent.glob("*.json"):  # of logs and versions that nobody asks about any more
                if old.stat().st_mtime < time.time() - MAX_AGE:
                    old.unlink(missing_ok=True)
        except OSError:  # a full disk: the next question asks again
            self.path = None


def _key(scenario: Scenario, history: History) -> str:
    """Return what tells these asks from all others: the scenario, what happened, and the code."""
    found = sha256(scenario.key.encode())
    for values in (history.submit, history.start, history.end):
        found.update(np.ascontiguousarray(values).tobytes())
    found.update(_code())
    return found.hexdigest()[:32]


def _code() -> bytes:
    every: Iterable[bytes] = (
        path.read_bytes()
        for package in CODE
        for path in sorted(files(package).iterdir(), key=lambda p: p.name)
        if path.name.endswith(".py")
    )
    return sha256(b"".join(every)).digest()
