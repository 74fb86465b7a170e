"""Look at a cluster again and again: rows to the store, numbers to Prometheus, now and then a trace and predictions."""

from __future__ import annotations

import json
import os
import subprocess
import sys
import threading
import time
from collections.abc import Callable
from contextlib import ExitStack
from dataclasses import replace
from pathlib import Path

import polars as pl

from fleetlab.core.durations import plural
from fleetlab.core.errors import FleetlabError
from fleetlab.core.files import atomic_write, plain
from fleetlab.core.sources import PRESENT, Missing, Poll, Row, Source, SourceError, source_kind
from fleetlab.gpu.monitor.outputs import serve_metrics
from fleetlab.gpu.monitor.run import stop_event
from fleetlab.live.journal import NODES, PREDICTED, SITE, STORE, Cursor
from fleetlab.live.options import WatchOptions
from fleetlab.live.present import Metrics, Present, Watched, present_of, watched
from fleetlab.live.store import Store

FOLD_S, FOLD_BYTES = 3600.0, 8 << 20  # the journal is folded when it is so old, or so large
SITE_S = 3600.0  # s between readings of the site's configuration
DAY = 86_400.0
MOST_NAMED = 10  # nodes in one line
Say = Callable[[str], None]
Clock = Callable[[], float]


def watch(system: str, options: WatchOptions, *, say: Say = print) -> Watched:
    """Look at a running cluster until stopped, or once; return what it was at the last poll.

    Parameters
    ----------
    system
        `slurm` or `kubernetes`.
    options
        What to look at, how often, and where it goes.
    say
        Called with each line for a person to read.

    Returns
    -------
    Watched
        Jobs that run and wait, by reason, and nodes, at the last poll.

    Raises
    ------
    FleetlabError
        If the cluster does not answer, or an option is out of range.

    Examples
    --------
    >>> import fleetlab
    >>> from fleetlab.live.options import WatchOptions
    >>> fleetlab.watch("slurm", WatchOptions(once=True))  # doctest: +SKIP
    """
    options.check()
    source = source_kind(system).at(options.kubeconfig, options.context)
    try:
        name = source.name()
    except SourceError as e:
        name = _watched_before(options.out, system)
        if options.once or not name:
            raise FleetlabError(f"{system} does not answer: {e}", hint=source.hint) from None
        say(f"{system} does not answer: {e}; it is asked again at every poll")
    with ExitStack() as stack:
        if options.out is not None:
            stack.callback(os.umask, os.umask(0o077))  # also of the trace, which another process writes
        watcher = Watcher(source, name, options, lambda line: say(plain(line)))
        stack.callback(watcher.close)
        if options.once:
            watcher.step()
            if watcher.present is None:
                failed = "; ".join(f"{part}: {why}" for part, why in watcher.failing.items())
                raise FleetlabError(f"{system} gave no list of jobs: {failed}", hint=source.hint)
            return watched(system, name, watcher.present)
        if address := options.address():
            host, port = address
            where = stack.enter_context(serve_metrics(watcher.metrics, port=port, address=host, option="--listen"))
            say(f"metrics at {where}")
        over = stack.enter_context(stop_event())
        _loop(watcher, over, options)
        return watched(system, name, watcher.present or Present(time.time()))


def _loop(watcher: Watcher, over: threading.Event, options: WatchOptions) -> None:
    began = due = time.monotonic()
    while not over.wait(max(due - time.monotonic(), 0)):
        watcher.step()
        due += options.every
        # A slow poll must not be followed by a burst.
        due += max(0, int((time.monotonic() - due) / options.every)) * options.every
        if options.seconds is not None and due > began + options.seconds:
            return


class Watcher:
    """One source and where its rows go."""

    def __init__(self, source: Source, name: str, options: WatchOptions, say: Say, clock: Clock = time.time) -> None:
        self.source, self.options, self.say, self._clock = source, options, say, clock
        self.metrics, self.failing = Metrics(), dict[str, str]()
        self.present: Present | None = None
        self.store: Store | None = None
        self.background: Background | None = None
        self._cursor = Cursor()
        self._folded = self._site_read = 0.0
        self._nodes_mark = ""
        self._started: dict[str, tuple[str, float]] | None = None
        if options.out is not None:
            self.store = Store(options.out / STORE)
            try:
                _identify(options.out, f"{source.format}:{name}")
            except FleetlabError:
                self.store.close()
                raise
            self._cursor, self._folded = self.store.cursor, clock()
            self.background = Background(options.out, source.format, options, say)
            if self._cursor.polled:
                say(f"{self._cursor.rows:,} rows are kept in {options.out}; the last poll was "
                    f"{self._clock() - self._cursor.polled:,.0f} s ago")  # fmt: skip

    @property
    def site(self) -> Path | None:
        """Where the site's configuration is kept."""
        return self.options.out / STORE / SITE if self.options.out is not None else None

    # -- one poll ------------------------------------------------------------------------------------------------------

    def step(self) -> None:
        """Look once; a failure is said and counted, and the next poll asks again."""
        began = self._clock()
        cursor = self._cursor
        begun = began - self.options.history * DAY if cursor.begun is None else cursor.begun
        poll = self.source.poll(begun, begun if cursor.accounted is None else cursor.accounted)
        moved = replace(
            cursor, begun=begun, polled=poll.at if poll.listed else cursor.polled,
            accounted=poll.accounted or cursor.accounted, polls=cursor.polls + poll.listed,
        )  # fmt: skip
        missing = self._resolve(poll)
        self._read_site(poll)
        self._write(poll, missing, moved)
        if poll.listed:
            self._show(poll)
        if poll.states:
            self._see_nodes(poll.states)
        self._report(poll)
        self.metrics.values["watch_poll_seconds"] = self._clock() - began
        if self.background is not None:
            self.background.step(self.metrics)

    def _resolve(self, poll: Poll) -> dict[str, float]:
        """Ask after jobs that are listed no more; return those that are still missing, and when they last were."""
        if self.store is None or not poll.listed:
            return {} if self.store is None else self.store.missed
        last_poll = self._cursor.polled or poll.at
        unlisted = {key: stored for key, stored in self.store.present().items() if key not in poll.rows}
        missing = {
            key: Missing(stored.data(), self.store.missed.get(key, last_poll)) for key, stored in unlisted.items()
        }
        self.source.resolve(poll, missing, self.options.every)
        return {key: job.last_seen for key, job in missing.items() if key not in poll.rows}

    def _write(self, poll: Poll, missing: dict[str, float], cursor: Cursor) -> None:
        new: list[Row] = []
        ended = 0
        if self.store is not None:
            before = self.store.jobs
            ended = sum(r.rank > PRESENT and (r.key not in before or before[r.key].rank == PRESENT)
                        for r in poll.rows.values())  # fmt: skip
            try:
                new = self.store.write(poll.rows.values(), missing, cursor)
                self._fold()
            except OSError as e:
                poll.failures["store"] = f"{e.filename or self.options.out}: {e.strerror or e}"
                return
            self.metrics.values["watch_store_bytes"] = self.store.size()
            self.metrics.values["watch_missing_jobs"] = len(missing)
            self.metrics.counts["watch_rows"][()] += len(new)
            cursor = self.store.cursor
        if self._cursor.polled is not None:  # else these are jobs of the past
            self.metrics.counts["jobs_ended"][()] += ended
        self._cursor = cursor

    def _fold(self) -> None:
        assert self.store is not None
        now = self._clock()
        if now - self._folded > FOLD_S or self.store.journal.stat().st_size > FOLD_BYTES:
            keep = None if self.options.keep is None else self.options.keep * DAY
            self.store.fold(keep=keep)
            self._folded = now

    def _read_site(self, poll: Poll) -> None:
        """Keep the nodes and the configuration of the site beside the rows, for the reader."""
        if self.store is None or self.site is None:
            return
        try:
            if poll.nodes and poll.nodes_mark != self._nodes_mark:
                atomic_write(self.store.folder / NODES, poll.nodes)
                self._nodes_mark = poll.nodes_mark
            if poll.listed and self._clock() - self._site_read > SITE_S:
                self._site_read = self._clock()
                self.source.site(self.site)
        except SourceError as e:
            poll.failures["site"] = str(e)
        except OSError as e:
            poll.failures["store"] = f"{e.filename}: {e.strerror or e}"

    # -- output --------------------------------------------------------------------------------------------------------

    def _show(self, poll: Poll) -> None:
        before = self.present
        try:
            self.present = present_of(type(self.source), poll, self.site)
        except (FleetlabError, pl.exceptions.PolarsError) as e:  # the rows are kept all the same
            poll.failures["present"] = " ".join(str(e).split())[:200]
            return
        if before is not None and not poll.nodes:  # they were not listed: what is known of their GPUs stays
            self.present = replace(self.present, gpus=before.gpus)
        self.metrics.present = self.present
        self.metrics.counts["watch_polls"][()] += 1
        if before is not None:
            passed = poll.at - before.at
            for row in self.present.waiting.iter_rows(named=True):
                self.metrics.waited(row["queue"], row["reason"], passed * row["jobs"])
        if self._started is not None:
            for job in self.present.starts.keys() - self._started.keys():
                self.metrics.observe(*self.present.starts[job])
        self._started = self.present.starts

    def _see_nodes(self, states: dict[str, str]) -> None:
        """Say which nodes went down, were drained or came back since the last list of them."""
        for event, nodes in self.metrics.take_nodes(states).items():
            if nodes:
                more = f" and {plural(len(nodes) - MOST_NAMED, 'other')}" if len(nodes) > MOST_NAMED else ""
                self.say(f"{event}: {', '.join(nodes[:MOST_NAMED])}{more}")

    def _report(self, poll: Poll) -> None:
        """Say once that a part fails, and once that it answers again."""
        for part, why in poll.failures.items():
            self.metrics.counts["watch_failures"][part,] += 1
            if part not in self.failing:
                self.say(f"{part} fails: {why}; it is asked again at every poll")
        for part in self.failing.keys() - poll.failures.keys():
            self.say(f"{part} answers again")
        self.failing = dict(poll.failures)
        self.metrics.up |= dict.fromkeys(self.source.parts, True) | dict.fromkeys(poll.failures, False)

    def close(self) -> None:
        """Fold the store, and write the trace."""
        if self.store is None:
            return
        try:
            self.store.fold(keep=None if self.options.keep is None else self.options.keep * DAY)
        except OSError as e:
            self.say(f"the journal could not be folded, and is read at the next start: {e.strerror or e}")
        if self.background is not None and self.store.cursor.polled is not None:
            self.background.finish()
        self.store.close()
        if self.background is not None and self.background.failure:
            msg = f"no trace was written: {self.background.failure}"
            raise FleetlabError(msg, hint=f"the rows are kept in {self.options.out}, and so is an earlier trace")


def _watched_before(folder: Path | None, system: str) -> str:
    """Return which cluster a folder is of: a watch that is started again may find it down."""
    path = folder / STORE / "cluster" if folder is not None else None
    text = path.read_text("utf-8", "replace").strip() if path is not None and path.is_file() else ""
    return text.partition(":")[2] if text.startswith(f"{system}:") else ""


def _identify(folder: Path, identity: str) -> None:
    """Refuse to mix the jobs of two clusters."""
    path = folder / STORE / "cluster"
    if path.exists() and (before := path.read_text("utf-8", "replace").strip()) != identity:
        msg = f"{folder} holds the jobs of {plain(before[:80])}, not of {identity}"
        raise FleetlabError(msg, hint="name another folder with --out")
    if not path.exists():
        atomic_write(path, identity + "\n")


# -- work in processes of its own ------------------------------------------------------------------------------------


TRACE_S = 3600.0  # s between traces
LONGEST_S = 1800.0  # s that one may take


class Background:
    """At most one process at a time."""

    def __init__(self, folder: Path, system: str, options: WatchOptions, say: Callable[[str], None]) -> None:
        self._folder, self._system, self._options, self._say = folder, system, options, say
        self._process: subprocess.Popen[bytes] | None = None
        self._begun = 0.0
        self._task = self._reported = self.failure = ""  # why the last task failed
        self._due = {"trace": time.time() + TRACE_S, "predict": time.time()}

    def step(self, metrics: Metrics) -> None:
        """Take over what has been done, and begin what is due."""
        if self._process is not None:
            if self._process.poll() is None:
                if time.time() - self._begun > LONGEST_S:
                    self._end()
                return
            self._take(metrics)
        now = time.time()
        if self._options.predict and now >= self._due["predict"]:
            self._due["predict"] = now + self._options.predict
            self._start("predict")
        elif now >= self._due["trace"]:
            self._due["trace"] = now + TRACE_S
            self._start("trace")

    def finish(self) -> None:
        """End what runs, and write the trace as it is now."""
        self._end()
        self._start("trace")
        assert self._process is not None
        try:
            self._process.wait(LONGEST_S)
        except subprocess.TimeoutExpired:
            self._end()
        self._take(None)

    def _start(self, task: str) -> None:
        words = [sys.executable, "-m", "fleetlab.live.analyze", task, self._system, str(self._folder)]
        words += [word for request in self._options.request for word in ("--request", request)]
        self._begun, self._task = time.time(), task
        self._process = subprocess.Popen(
            words, stdin=subprocess.DEVNULL, stdout=subprocess.DEVNULL, stderr=subprocess.PIPE
        )

    def _take(self, metrics: Metrics | None) -> None:
        process, self._process = self._process, None
        if process is None:
            return
        assert process.stderr is not None
        message = process.stderr.read().decode("utf-8", "replace").strip()
        process.stderr.close()
        self.failure = ""
        if process.returncode:
            self.failure = message or f"status {process.returncode}"
            if metrics is not None:
                metrics.counts["watch_failures"][self._task,] += 1
            line = f"{self._task}: {message.splitlines()[-1][:200] if message else f'status {process.returncode}'}"
            if line != self._reported:  # what fails each time is reported once
                self._say(line)
                self._reported = line
        elif self._task == "predict" and metrics is not None:
            self._predictions(metrics)

    def _predictions(self, metrics: Metrics) -> None:
        values = json.loads((self._folder / STORE / PREDICTED).read_text("utf-8"))
        metrics.predicted_at = values["at"]
        metrics.predicted = {
            f"predicted_{kind}_seconds": {(row[0], row[1]): row[2] for row in values[kind]}
            for kind in ("wait", "request")
        }

    def _end(self) -> None:
        if self._process is not None:
            self._process.kill()
            self._process.wait()
            if self._process.stderr is not None:
                self._process.stderr.close()
            self._process = None
