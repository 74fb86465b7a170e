"""Slurm, read by its own commands: squeue for what is there, sacct for what has ended, scontrol for the nodes."""

from __future__ import annotations

import re
import shutil
import subprocess
import time
from collections.abc import Callable, Iterable, Iterator, Mapping, Sequence
from importlib.resources import as_file, files
from pathlib import Path
from tempfile import TemporaryDirectory
from typing import Any, ClassVar, Self

from fleetlab.core.errors import TraceError
from fleetlab.core.sources import (
    DOWN,
    DRAINED,
    ENDED,
    PRESENT,
    RECORDED,
    UNSEEN,
    UP,
    Ask,
    CollectOptions,
    Missing,
    NodeUse,
    Poll,
    Row,
    SourceError,
    ask,
    mark_of,
)
from fleetlab.schedulers.slurm.reader.collect import SCRIPT, run_script
from fleetlab.schedulers.slurm.reader.node_lists import scontrol_rows
from fleetlab.schedulers.slurm.reader.nodes import LOST, OUT
from fleetlab.schedulers.slurm.reader.squeue_json import queue_rows
from fleetlab.schedulers.slurm.reader.submissions import options_of
from fleetlab.schedulers.slurm.reader.tres import count, gres_of, mebibytes, tres
from fleetlab.traces.job_list import STATUS

OVERLAP_S = 600.0  # s before the last reading that accounting is read again: rows come late
SWEEP_EVERY_S, SWEEP_S = 3600.0, 3 * 3600.0  # and now and then further back
SLICE_S = 86_400.0  # s of accounting that are read in one poll, so that none takes too long or too much memory
PATIENCE_S = 3600.0  # s until a job that is gone, and that accounting does not know, is taken to have ended unseen
MOST_BY_ID = 200  # jobs that are queried by their id in one poll
FIELD = "\x1f"
ID = "JobIDRaw"  # asked for once more behind free text: a row ends in it, and no line end in a name ends a row
LINE_ENDS = re.compile(r"[\x00-\x1f\x7f-\x9f\u2028\u2029]+")  # what one program or another takes for one
# Free text last; what a version of sacct does not know is left out.
FIELDS = (
    "JobID", "JobIDRaw", "User", "Account", "Partition", "QOS", "Submit", "Eligible", "Start", "End", "State",
    "ElapsedRaw", "Priority", "AllocTRES", "ReqTRES", "NodeList", "TimelimitRaw", "Reason", "Flags", "Constraints",
    "Reservation", "SubmitLine", "JobName",
)  # fmt: skip
# Every version of sacct knows these: a list of fields without them was cut off, and is read again.
NEEDED = (
    "JobID",
    "JobIDRaw",
    "User",
    "Partition",
    "Submit",
    "Start",
    "End",
    "State",
    "AllocTRES",
    "ReqTRES",
    "NodeList",
)
OVER = "CD,F,TO,CA,NF,OOM,BF,DL,PR,RQ,RV"  # states that a job ends in, as sacct takes them
UNIX = {"SLURM_TIME_FORMAT": "%s"}
# What tells that a job has changed; its priority grows with every minute.
CHANGES = ("JobID", "State", "Start", "End", "NodeList", "AllocTRES", "Partition", "QOS", "Account", "Reason",
           "TimelimitRaw", "Eligible", "Reservation", "ReqTRES")  # fmt: skip
SITE = ("config.txt", "partitions.txt", "reservations.txt", "assoc.txt", "qos.txt", "sshare.txt", "accounts.cfg",
        "collected.txt", "slurm.conf", "gres.conf", "topology.conf")  # fmt: skip


class SlurmSource:
    """A Slurm cluster that this machine is a client of."""

    format: ClassVar[str] = "slurm"
    parts: ClassVar[tuple[str, ...]] = ("squeue", "scontrol", "sacct")
    hint: ClassVar[str] = "run it where squeue, sacct and scontrol work, such as a login node"
    queue: ClassVar[tuple[str, ...]] = ("partitions",)
    team: ClassVar[str] = "app"  # the reader keeps the account there

    def __init__(self, ask: Ask = ask, clock: Callable[[], float] = time.time) -> None:
        self._ask, self._clock = ask, clock
        self._fields: list[str] | None = None
        self._swept = 0.0

    @classmethod
    def at(cls, kubeconfig: Path | None = None, context: str | None = None) -> Self:
        """Return the cluster that this machine is a client of."""
        return cls()

    @staticmethod
    def collect(out: Path, options: CollectOptions, say: Callable[[str], None]) -> None:
        """Gather a site's log and rules in a folder."""
        run_script(out, since=options.since, until=options.until, json=options.sacct_json)

    @staticmethod
    def script() -> str:
        """Return the script that gathers them where fleetlab is not installed."""
        return SCRIPT.read_text("utf-8")

    def name(self) -> str:
        """Return the name of the cluster."""
        for line in self._ask(["scontrol", "show", "config"]).splitlines():
            if line.startswith("ClusterName"):
                return line.partition("=")[2].strip()
        raise SourceError("scontrol shows no ClusterName")

    def poll(self, begun: float, accounted: float) -> Poll:
        """Look once: the queue, the nodes, then what has ended; a part that fails is named."""
        result = Poll(self._clock())
        parts = (("squeue", self._queue), ("scontrol", self._nodes))
        for part, look in (*parts, ("sacct", lambda poll: self._ended(poll, begun, accounted))):
            try:
                look(result)
            except (SourceError, TraceError) as e:
                result.failures[part] = str(e)
        return result

    def resolve(self, poll: Poll, missing: Mapping[str, Missing], every: float) -> None:
        """Ask accounting for jobs by their ids; after an hour without an answer their end is taken to be unseen."""
        try:
            if missing:
                self._account(poll, ["-j", ",".join(key.partition("|")[0] for key in list(missing)[:MOST_BY_ID])])
        except SourceError as e:
            poll.failures["sacct"] = str(e)
        for key, job in missing.items():
            if key not in poll.rows and poll.at - job.last_seen > PATIENCE_S:
                ended = {**job.data, "State": "CANCELLED", "Reason": ""}
                poll.add(Row(key, UNSEEN, ended, last_seen=job.last_seen))

    def _queue(self, poll: Poll) -> None:
        for row in queue_rows(self._ask(["squeue", "--json", "-a", "-t", "all"])):
            if row["JobIDRaw"] and row["Submit"] and (status := STATUS.get(row["State"])):
                rank = PRESENT if status in ("waiting", "running") else ENDED
                poll.add(_row(row, rank, row["Reason"] if status == "waiting" else ""))
        poll.listed = True

    def _nodes(self, poll: Poll) -> None:
        poll.nodes = self._ask(["scontrol", "show", "node", "-a"])
        poll.used = {}
        rows = scontrol_rows(poll.nodes)
        poll.nodes_mark = mark_of(*({**words, "state": "", "used": ""} for words in rows))
        for words in rows:
            try:
                parts = tres(words["used"])
                cpus = int(float(parts.get("cpu", 0)) * 1000)
                use = NodeUse(1000 * gres_of(parts).gpus, cpus)
            except ValueError:
                continue  # a node that cannot be read is not counted here, and rejected by the reader
            poll.used[words["name"]] = use
            poll.states[words["name"]] = node_state(words["state"])

    def _ended(self, poll: Poll, begun: float, accounted: float) -> None:
        """Read a day of accounting at most: after a week of silence it takes seven polls."""
        sweep = poll.at - self._swept > SWEEP_EVERY_S
        if sweep:
            for cached in (options_of, count, mebibytes):  # made for logs: each would keep 65,536 texts of jobs
                cached.cache_clear()
        since = max(begun, min(accounted - OVERLAP_S, poll.at - SWEEP_S if sweep else accounted))
        until = min(poll.at, since + SLICE_S)
        self._account(poll, ["-S", f"uts{max(0, int(since))}", "-E", f"uts{int(until) + 1}", "-s", OVER])
        poll.accounted = until
        self._swept = poll.at if sweep else self._swept

    def _account(self, poll: Poll, words: list[str]) -> None:
        fields = self._known_fields()
        common = ["sacct", "-a", "-D", "-X", "-P", "-n", f"--delimiter={FIELD}", "-o", ",".join([*fields, ID])]
        for row in _records(self._ask([*common, *words], env=UNIX), fields):
            status = STATUS.get(row["State"].split(" ")[0].upper())
            if status and status not in ("waiting", "running") and row["JobIDRaw"] and row["Submit"].isdigit():
                poll.add(_row(row, RECORDED))

    def _known_fields(self) -> list[str]:
        if self._fields is None:
            supported = {word.lower() for word in self._ask(["sacct", "--helpformat"]).split()}
            if missing := [field for field in NEEDED if field.lower() not in supported]:
                raise SourceError(f"sacct --helpformat does not name {missing[0]}")
            self._fields = [field for field in FIELDS if field.lower() in supported]
        return self._fields

    # -- for the reader ------------------------------------------------------------------------------------------------

    def site(self, folder: Path) -> None:
        """Gather what the site's configuration tells into a folder; what may not be read is left out."""
        with (
            TemporaryDirectory() as scratch,
            as_file(files("fleetlab.schedulers.slurm.reader") / "collect.sh") as script,
        ):
            words = ["sh", str(script), "--out", scratch, "--since", "now", "--until", "now"]
            try:
                subprocess.run(words, capture_output=True, timeout=300, check=True)
            except (subprocess.SubprocessError, OSError) as e:
                raise SourceError(str(e)) from None
            folder.mkdir(parents=True, exist_ok=True)
            gathered = [Path(scratch) / name for name in SITE]
            gathered += [p for p in Path(scratch).glob("*.conf") if p.name not in SITE]
            for path in gathered:
                if path.is_file():
                    shutil.copyfile(path, folder / path.name)

    @staticmethod
    def write_log(rows: Iterable[Mapping[str, Any]], nodes: str, folder: Path) -> None:
        """Write rows as `sacct -P` prints them, and the nodes beside them."""
        with (folder / "sacct.txt").open("w", encoding="utf-8") as out:
            out.write("|".join(FIELDS) + "\n")
            for row in rows:
                out.write("|".join(LINE_ENDS.sub(" ", str(row.get(field, ""))) for field in FIELDS) + "\n")
        if nodes:
            (folder / "nodes.txt").write_text(nodes, "utf-8")

    @staticmethod
    def job_names(row: Mapping[str, Any]) -> tuple[str, ...]:
        """Return the id that squeue shows."""
        return (str(row["JobID"]),)


def node_state(text: str) -> str:
    """Tell whether a node takes jobs.

    >>> [node_state(text) for text in ("MIXED", "IDLE+DRAIN", "DOWN*+DRAIN", "IDLE+POWERED_DOWN")]
    ['up', 'drained', 'down', 'up']
    """
    if not OUT.search(text):
        return UP
    return DOWN if LOST.search(text) else DRAINED


def _row(row: dict[str, str], rank: int, reason: str = "") -> Row:
    filled = {name: value for name, value in row.items() if value}
    return Row(f"{row['JobIDRaw']}|{row['Submit']}", rank, filled, mark_of(*(row.get(c, "") for c in CHANGES)), reason)


def _records(text: str, fields: Sequence[str]) -> Iterator[dict[str, str]]:
    """Take rows apart: the job's id stands in each once more, at its end, behind names that may have line ends."""
    raw, pending = fields.index(ID), ""
    for line in text.split("\n"):
        pending = f"{pending}\n{line}" if pending else line
        *values, last = pending.split(FIELD)
        if len(values) >= len(fields) and last == values[raw]:
            name = FIELD.join(values[len(fields) - 1 :])
            yield dict(zip(fields, [*map(str.strip, values[: len(fields) - 1]), name.strip()], strict=True))
            pending = ""
    if pending:
        raise SourceError(f"sacct stopped in the middle of a row: {LINE_ENDS.sub(' ', pending)[:80]}")
