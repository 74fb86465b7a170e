"""What a user asked of sbatch, salloc or srun: the options in sacct's SubmitLine.

Slurm keeps the words as they were after the shell took the quotes away, so a value with blanks cannot be told from
what follows it. Options end where the script begins, or with `--wrap`. Options inside a script are not in the log.
"""

from __future__ import annotations

import re
from functools import lru_cache
from itertools import takewhile

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
