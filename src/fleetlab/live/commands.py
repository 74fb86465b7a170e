"""Run a command of the cluster, which may fail, hang or print nonsense."""

from __future__ import annotations

import os
import shutil
import subprocess
from collections.abc import Mapping, Sequence
from typing import Protocol

LONGEST_S = 60.0  # s that a command may take


class Ask(Protocol):
    """Something that runs commands."""

    def __call__(self, words: Sequence[str], *, env: Mapping[str, str] | None = None) -> str:
        """Return what a command prints; SourceError if it fails."""


class SourceError(RuntimeError):
    """A command gave no answer; the message says why, in one line."""


def ask(words: Sequence[str], *, env: Mapping[str, str] | None = None, timeout: float = LONGEST_S) -> str:
    """Return what a command prints."""
    if not shutil.which(words[0]):
        msg = f"no command `{words[0]}` here"
        raise SourceError(msg)
    try:
        done = subprocess.run(
            words, env={**os.environ, "LC_ALL": "C", **(env or {})}, capture_output=True, timeout=timeout, check=False,
            stdin=subprocess.DEVNULL,
        )  # fmt: skip
    except subprocess.TimeoutExpired:
        msg = f"no answer within {timeout:.0f} s"
        raise SourceError(msg) from None
    except OSError as e:
        raise SourceError(e.strerror or str(e)) from None
    if done.returncode:
        said = (done.stderr or done.stdout).decode("utf-8", "replace").strip()
        raise SourceError(said.splitlines()[0][:200] if said else f"status {done.returncode}")
    return done.stdout.decode("utf-8", "replace")
