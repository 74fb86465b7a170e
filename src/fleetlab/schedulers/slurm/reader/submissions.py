"""What users asked for with their jobs, beyond amounts: from the line of submission, and from columns of sacct.

A line tells what accounting does not keep: how GPUs were asked for, a nice value, dependencies, throttles of arrays and
partitions in which a job did not run. Where there is none, columns of accounting have the rest.
"""

from __future__ import annotations

import re
from functools import lru_cache
from itertools import takewhile
from typing import Any

import polars as pl

from fleetlab.core import TraceError
from fleetlab.traces.input.files import SourceFile
from fleetlab.traces.input.intake import Intake

# -- the log that jobcomp/filetxt writes, a line a job when it ends, as rows with the columns of `sacct ----------------
# It has no steps and no requests, only what a job held; of a job that was put back there is a line for each run.

LARGEST = 4 << 30  # bytes, unpacked
_BEGIN = re.compile(r"^JobId=\d+ UserId=", re.MULTILINE)
# A name and a folder may hold blanks, so each value reaches to the next key.
_KEYS = (
    *("JobId", "UserId", "GroupId", "Name", "JobState", "Partition", "TimeLimit", "StartTime", "EndTime", "NodeList"),
    *("NodeCnt", "ProcCnt", "WorkDir", "ReservationName", "Tres", "Account", "QOS", "WcKey", "Cluster", "SubmitTime"),
    *("EligibleTime", "ArrayJobId", "ArrayTaskId", "HetJobId", "HetJobOffset", "DerivedExitCode", "ExitCode"),
)
_COLUMNS = {
    "JobName": "Name", "State": "JobState", "Partition": "Partition", "Timelimit": "TimeLimit", "Start": "StartTime",
    "End": "EndTime", "NodeList": "NodeList", "AllocNodes": "NodeCnt", "AllocCPUS": "ProcCnt", "AllocTRES": "Tres",
    "Reservation": "ReservationName", "Account": "Account", "QOS": "QOS", "Submit": "SubmitTime",
    "Eligible": "EligibleTime", "JobIDRaw": "JobId",
}  # fmt: skip


def is_jobcomp(beginning: str) -> bool:
    """Whether a file is such a log: `scontrol show job` has other keys."""
    return bool(_BEGIN.match(beginning)) and "ProcCnt=" in beginning


def read_jobcomp(source: SourceFile, intake: Intake, columns: tuple[str, ...]) -> pl.DataFrame:
    """Read the lines of a log as the columns that sacct would have printed, each with its number."""
    with source.open() as stream:
        data = stream.read(LARGEST + 1)
    if len(data) > LARGEST:
        msg = f"{source.name}: larger than {LARGEST:,} bytes"
        raise TraceError(msg, hint="take it apart by the month")
    text = data.decode("utf-8-sig", "replace")
    starts = [match.start() for match in _BEGIN.finditer(text)]
    rows = [_row(text[a:b]) for a, b in zip(starts, [*starts[1:], len(text)], strict=True)] if starts else []
    lines, line, at = [], 1, 0
    for start in starts:
        line, at = line + text.count("\n", at, start), start
        lines.append(line)
    intake.read("jobs", len(rows))
    table = {name: pl.Series([row.get(name, "") for row in rows], dtype=pl.String) for name in columns}
    return pl.DataFrame(table).with_columns(line=pl.Series(lines, dtype=pl.Int64))


def _row(text: str) -> dict[str, str]:
    values: dict[str, str] = {}
    rest = " " + text.rstrip("\n ")
    for key, following in zip(_KEYS, [_KEYS[k + 1 :] for k in range(len(_KEYS))], strict=True):
        if not rest.startswith(f" {key}="):
            continue
        ends = [at for name in following if (at := rest.find(f" {name}=", 1)) > 0]
        end = min(ends, default=len(rest))
        values[key], rest = rest[len(key) + 2 : end], rest[end:]
    row = {column: values.get(key, "") for column, key in _COLUMNS.items()}
    row["User"] = re.sub(r"\(\d+\)$", "", values.get("UserId", ""))
    row["JobID"] = _name(values)
    return {column: "" if value == "(null)" else value for column, value in row.items()}


def _name(values: dict[str, str]) -> str:
    if values.get("ArrayJobId", "0") != "0":
        return f"{values['ArrayJobId']}_{values.get('ArrayTaskId', '')}"
    if values.get("HetJobId", "0") != "0":
        return f"{values['HetJobId']}+{values.get('HetJobOffset', '0')}"
    return values.get("JobId", "")


# -- what a user asked of sbatch, salloc or srun: the options in sacct's SubmitLine ------------------------------------
# Slurm keeps the words as they were after the shell took the quotes away, so a value with blanks cannot be told from
# what follows it. Options end where the script begins, or with `--wrap`. Options inside a script are not in the log.

# Options with a value, by their letters where they have one; those without end a word.
LETTERS = {
    "A": "account", "a": "array", "b": "begin", "C": "constraint", "c": "cpus-per-task", "d": "dependency",
    "G": "gpus", "J": "job-name", "N": "nodes", "n": "ntasks", "p": "partition", "q": "qos", "t": "time",
    **dict.fromkeys("BDeFiLmMoPSUwx", ""),
}  # fmt: skip
FLAGS = {"H": "hold", **dict.fromkeys("hIjkKlOQrsuvVWXZT", "")}
# Names that an option may be cut short to, as long as only one fits.
VALUES = (
    "account", "array", "begin", "clusters", "comment", "constraint", "cores-per-socket", "cpu-freq", "cpus-per-gpu",
    "cpus-per-task", "chdir", "deadline", "dependency", "distribution", "error", "exclude", "export", "gid", "gpu-bind",
    "gpu-freq", "gpus", "gpus-per-node", "gpus-per-socket", "gpus-per-task", "gres", "hint", "input", "job-name",
    "licenses", "mail-type", "mail-user", "mem", "mem-per-cpu", "mem-per-gpu", "mincpus", "nodefile", "nodelist",
    "nodes", "ntasks", "ntasks-per-core", "ntasks-per-gpu", "ntasks-per-node", "ntasks-per-socket", "open-mode",
    "output", "partition", "prefer", "priority", "qos", "reservation", "signal", "switches", "threads-per-core", "time",
    "time-min", "tmp", "uid", "wckey", "wrap", "batch", "bb", "bbf", "container", "core-spec", "profile", "power",
    "thread-spec", "acctg-freq", "export-file", "delay-boot", "sockets-per-node", "mpi", "network", "multi-prog",
)  # fmt: skip
MAY_HAVE = ("exclusive", "nice", "oversubscribe", "contiguous", "hold", "requeue", "no-requeue", "overcommit", "wait",
            "get-user-env", "kill-on-invalid-dep", "parsable", "quiet", "spread-job", "verbose", "reboot", "test-only",
            "use-min-nodes", "no-kill", "propagate", "ignore-pbs", "share", "immediate", "pty", "no-shell")  # fmt: skip
PROGRAMS = frozenset({"sbatch", "salloc", "srun"})


@lru_cache(65_536)
def options_of(line: str) -> dict[str, str]:
    """Return the options of a submission by their long names; a flag has an empty value.

    >>> options_of("sbatch -N2 --gpus-per-node=8 -d afterok:17 --exclusive --wrap sleep -t 5")
    {'nodes': '2', 'gpus-per-node': '8', 'dependency': 'afterok:17', 'exclusive': ''}
    """
    words = line.split()
    if not words or words[0].rsplit("/", 1)[-1] not in PROGRAMS:
        return {}
    options: dict[str, str] = {}
    at = 1
    while at < len(words):
        word, at = words[at], at + 1
        if word in (":", "--") or not word.startswith("-") or word == "-":
            break  # the next part of a heterogeneous job, or a script
        if not word.startswith("--"):
            options |= dict.fromkeys(_flags(word[1:]), "")
        name, value, more = _long(word[2:]) if word.startswith("--") else _short(word[1:])
        if name == "wrap":
            break
        if more and at < len(words):
            value, at = words[at], at + 1
        if name:
            options[name] = value or ""
    return options


def _long(word: str) -> tuple[str, str | None, bool]:
    """Its name, its value, and whether the next word is the value."""
    text, sign, value = word.partition("=")
    fits = [text] if text in (*VALUES, *MAY_HAVE) else [n for n in (*VALUES, *MAY_HAVE) if n.startswith(text)]
    if len(fits) != 1:
        return "", None, False
    return fits[0], value if sign else None, not sign and fits[0] in VALUES


def _short(word: str) -> tuple[str, str | None, bool]:
    """The same of letters, of which those without a value may stand before one with it: `-HN2`."""
    at = next((k for k, letter in enumerate(word) if letter in LETTERS), None)
    if at is None:
        return "", None, False
    value = word[at + 1 :].removeprefix("=")
    return LETTERS[word[at]], value or None, not value


def _flags(word: str) -> list[str]:
    before = takewhile(lambda letter: letter not in LETTERS, word)
    return [FLAGS[letter] for letter in before if FLAGS.get(letter)]


def parts_of(line: str) -> list[dict[str, str]]:
    """Return the options of each part of a heterogeneous job; of another job, those of the one.

    >>> [part.get("gpus") for part in parts_of("sbatch --gpus=2 : --gpus=4 --wrap sleep 1")]
    ['2', '4']
    """
    words = line.split()
    if ":" not in words:
        return [options_of(line)]
    parts = re.split(r"\s:\s", " ".join(words))
    return [options_of(part if k == 0 else f"{words[0]} {part}") for k, part in enumerate(parts)]


SUBMISSION: dict[str, Any] = {
    "partitions": pl.List(pl.String),
    "constraint": pl.String,
    "reservation": pl.String,
    "exclusive": pl.Boolean,
    "requeue": pl.Boolean,  # null: not said
    "nice": pl.Int64,
    "array_limit": pl.Int64,
    "gpus_by": pl.String,  # node, task, job: of what a number of GPUs was asked for; empty: not known
    "gpus_per_task": pl.Int64,
    "most_nodes": pl.Int64,  # 0: not said
    "wish": pl.String,  # --dependency
    "begin": pl.String,
    "hold": pl.Boolean,
}
SUBMISSION_TEXTS = ("SubmitLine", "JobName", "Partition", "Constraints", "Reservation", "part")
# Which part of a heterogeneous job it is.
PART = pl.col("JobID").str.extract(r"\+(\d+)$").cast(pl.Int64, strict=False).fill_null(0).clip(0, 1000)
NICE = 100  # where --nice has no value
BIGGEST_NICE = 2_147_483_645
_THROTTLE = re.compile(r"%(\d{1,9})\]?$")


def submission(row: dict[str, Any]) -> dict[str, Any]:
    """Return what a job's submission asked for, by the texts that tell it."""
    parts = parts_of(_with_short_name(row["SubmitLine"], row["JobName"]))
    options = parts[min(row["part"], len(parts) - 1)]
    ran_in = [name for name in row["Partition"].split(",") if name]
    named = [name for name in options.get("partition", "").split(",") if name]
    throttle = _THROTTLE.search(options.get("array", ""))
    by, per_task = _gpus_by(options)
    return {
        # One of those named is the one it ran in; if not, somebody moved it.
        "partitions": named if set(ran_in) <= set(named) else ran_in,
        "constraint": constraint(row["Constraints"] or options.get("constraint", "")),
        "reservation": row["Reservation"] or options.get("reservation") or None,
        "exclusive": options.get("exclusive", "no") in ("", "exclusive"),
        "requeue": _requeue(row["SubmitLine"], parts[0]),
        "nice": _nice(options.get("nice")),
        "array_limit": int(throttle[1]) if throttle else 0,
        "gpus_by": by,
        "gpus_per_task": per_task,
        "most_nodes": _most_nodes(options.get("nodes", "")),
        "wish": parts[0].get("dependency", ""),
        "begin": options.get("begin", ""),
        "hold": "hold" in options or options.get("priority") == "0",
    }


def _with_short_name(line: str, name: str) -> str:
    """Take a name of several words out of a line, where it would end the options."""
    if len(name.split()) < 2:
        return line
    return re.sub(rf"(-J[ =]?|--job-name[ =]){re.escape(name)}(?=\s|$)", "-J name", line)


def _requeue(line: str, options: dict[str, str]) -> bool | None:
    """Whether a job may run again; what runs at a terminal never does, and None is as the site says."""
    if line.split(" ", 1)[0].rsplit("/", 1)[-1] in ("srun", "salloc") or "no-requeue" in options:
        return False
    return True if "requeue" in options else None


def _gpus_by(options: dict[str, str]) -> tuple[str, int]:
    per_task = _amount(options.get("gpus-per-task", ""))
    if per_task:
        return "task", per_task
    if "gpus-per-node" in options or "gpu" in options.get("gres", ""):
        return "node", 0
    return ("job", 0) if "gpus" in options else ("", 0)


def _amount(text: str) -> int:
    """The number of `4`, `a100:4` or `a100:2,v100:2`, or 0."""
    numbers = [part.rsplit(":", 1)[-1] for part in text.split(",")]
    return sum(int(n) for n in numbers if n.isdigit() and len(n) < 7)


def _most_nodes(text: str) -> int:
    last = text.rsplit("-", 1)[-1]
    return int(last) if last.isdigit() and len(last) < 7 else 0


def _nice(text: str | None) -> int:
    if text is None:
        return 0
    return max(-BIGGEST_NICE, min(BIGGEST_NICE, int(text))) if re.fullmatch(r"-?\d{1,12}", text) else NICE


def constraint(text: str) -> str | None:
    """Return a constraint with &, | and parentheses alone.

    Slurm's `[a|b]` wants all nodes alike and `a*2` two nodes of a kind: they become `(a|b)` and `a`.

    >>> [constraint(text) for text in ("a100&nvlink", "[rack1|rack2]", "fast*2,ssd", "")]
    ['a100&nvlink', '(rack1|rack2)', 'fast&ssd', None]
    """
    text = re.sub(r"\*\d+", "", text.strip().strip('"'))
    text = text.replace("[", "(").replace("]", ")").replace(",", "&").replace(" ", "")
    return text if text and text.lower() not in ("(null)", "none", "n/a") else None
