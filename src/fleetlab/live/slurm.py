"""Slurm, asked by its own commands: squeue for what is there, sacct for what has ended, scontrol for the nodes."""

from __future__ import annotations

import shutil
import subprocess
import time
from collections.abc import Callable, Iterable, Mapping
from importlib.resources import as_file, files
from pathlib import Path
from tempfile import TemporaryDirectory
from typing import Any, ClassVar

from fleetlab.core.errors import TraceError
from fleetlab.live.commands import Ask, SourceError, ask
from fleetlab.live.rows import DOWN, DRAINED, ENDED, PRESENT, RECORDED, UNSEEN, UP, NodeUse, Poll, Row, mark_of
from fleetlab.live.sources import Missing
from fleetlab.traces.slurm.node_lists import scontrol_rows
from fleetlab.traces.slurm.nodes import LOST, OUT
from fleetlab.traces.slurm.squeue_json import queue_rows
from fleetlab.traces.slurm.states import STATUS
from fleetlab.traces.slurm.submit_line import options_of
from fleetlab.traces.slurm.tres import count, gres_of, mebibytes, tres

OVERLAP_S = 600.0  # s before the last reading that accounting is read again: rows come late
SWEEP_EVERY_S, SWEEP_S = 3600.0, 3 * 3600.0  # and now and then further back
SLICE_S = 86_400.0  # s of accounting that are read in one poll, so that none takes too long or too much memory
PATIENCE_S = 3600.0  # s until a job that is gone, and that accounting does not know, is taken to have ended unseen
MOST_ASKED = 200  # jobs that are asked for by their id in one poll
FIELD = "\x1f"  # no name of a job has it
# Free text last; what a version of sacct does not know is left out.
FIELDS = (
    "JobID", "JobIDRaw", "User", "Account", "Partition", "QOS", "Submit", "Eligible", "Start", "End", "State",
    "ElapsedRaw", "Priority", "AllocTRES", "ReqTRES", "NodeList", "TimelimitRaw", "Reason", "Flags", "Constraints",
    "Reservation", "SubmitLine", "JobName",
)  # fmt: skip
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

    def __init__(self, ask: Ask = ask, clock: Callable[[], float] = time.time) -> None:
        self._ask, self._clock = ask, clock
        self._fields: list[str] | None = None
        self._swept = 0.0

    def name(self) -> str:
        """Return the name of the cluster."""
        for line in self._ask(["scontrol", "show", "config"]).splitlines():
            if line.startswith("ClusterName"):
                return line.partition("=")[2].strip()
        msg = "scontrol shows no ClusterName"
        raise SourceError(msg)

    def poll(self, begun: float, accounted: float) -> Poll:
        """Look once: the queue, the nodes, then what has ended; a part that fails is named."""
        found = Poll(self._clock())
        parts = (("squeue", self._queue), ("scontrol", self._nodes))
        for part, look in (*parts, ("sacct", lambda poll: self._ended(poll, begun, accounted))):
            try:
                look(found)
            except (SourceError, TraceError) as e:
                found.failures[part] = str(e)
        return found

    def resolve(self, found: Poll, missing: Mapping[str, Missing], every: float) -> None:
        """Ask accounting for jobs by their ids; after an hour without an answer their end is taken to be unseen."""
        try:
            if missing:
                self._account(found, ["-j", ",".join(key.partition("|")[0] for key in list(missing)[:MOST_ASKED])])
        except SourceError as e:
            found.failures["sacct"] = str(e)
        for key, job in missing.items():
            if key not in found.rows and found.at - job.seen > PATIENCE_S:
                lost = {**job.data, "State": "CANCELLED", "Reason": ""}
                found.add(Row(key, UNSEEN, lost, seen=job.seen))

    def _queue(self, found: Poll) -> None:
        for row in queue_rows(self._ask(["squeue", "--json", "-a", "-t", "all"])):
            if row["JobIDRaw"] and row["Submit"] and (status := STATUS.get(row["State"])):
                rank = PRESENT if status in ("waiting", "running") else ENDED
                found.add(_row(row, rank, row["Reason"] if status == "waiting" else ""))
        found.listed = True

    def _nodes(self, found: Poll) -> None:
        found.nodes = self._ask(["scontrol", "show", "node", "-a"])
        found.used = {}
        rows = scontrol_rows(found.nodes)
        found.nodes_mark = mark_of(*({**words, "state": "", "used": ""} for words in rows))
        for words in rows:
            try:
                parts = tres(words["used"])
                cpus = int(float(parts.get("cpu", 0)) * 1000)
                use = NodeUse(1000 * gres_of(parts).gpus, cpus)
            except ValueError:
                continue  # a node that cannot be read is not counted here, and rejected by the reader
            found.used[words["name"]] = use
            found.states[words["name"]] = node_state(words["state"])

    def _ended(self, found: Poll, begun: float, accounted: float) -> None:
        """Read a day of accounting at most: after a week of silence it takes seven polls."""
        sweep = found.at - self._swept > SWEEP_EVERY_S
        if sweep:
            for cached in (options_of, count, mebibytes):  # made for logs: each would keep 65,536 texts of jobs
                cached.cache_clear()
        since = max(begun, min(accounted - OVERLAP_S, found.at - SWEEP_S if sweep else accounted))
        until = min(found.at, since + SLICE_S)
        self._account(found, ["-S", f"uts{max(0, int(since))}", "-E", f"uts{int(until) + 1}", "-s", OVER])
        found.accounted = until
        self._swept = found.at if sweep else self._swept

    def _account(self, found: Poll, words: list[str]) -> None:
        fields = self._known_fields()
        common = ["sacct", "-a", "-D", "-X", "-P", "-n", f"--delimiter={FIELD}", "-o", ",".join(fields)]
        for values in _records(self._ask([*common, *words], env=UNIX), len(fields)):
            row = dict(zip(fields, values, strict=True))
            status = STATUS.get(row["State"].split(" ")[0].upper())
            if status and status not in ("waiting", "running") and row["JobIDRaw"] and row["Submit"].isdigit():
                found.add(_row(row, RECORDED))

    def _known_fields(self) -> list[str]:
        if self._fields is None:
            known = {word.lower() for word in self._ask(["sacct", "--helpformat"]).split()}
            self._fields = [field for field in FIELDS if field.lower() in known]
        return self._fields

    # -- for the reader ------------------------------------------------------------------------------------------------

    def site(self, folder: Path) -> None:
        """Gather what the site's configuration tells into a folder; what may not be read is left out."""
        with TemporaryDirectory() as scratch, as_file(files("fleetlab.traces.slurm") / "collect.sh") as script:
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
                out.write("|".join(" ".join(str(row.get(field, "")).split("\n")) for field in FIELDS) + "\n")
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


def _records(text: str, width: int) -> Iterable[list[str]]:
    """Take lines apart; one with too few fields goes on in the next, for a name may have a line end."""
    held = ""
    for line in text.splitlines():
        held = f"{held} {line}" if held else line
        values = held.split(FIELD)
        if len(values) >= width:
            yield [value.strip() for value in values[:width]]
            held = ""
