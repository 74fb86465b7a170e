"""A compiler's long complaint, boiled down to the line that matters."""

from __future__ import annotations

import re
from collections.abc import Sequence
from difflib import get_close_matches
from pathlib import Path

WHERE = re.compile(r'File "([^"\n]*)", line (\d+)')
ELSEWHERE = re.compile(r",? (location:|defined at).*")
COLOUR = re.compile(r"\x1b\[[0-9;]*m")
NOISE = (
    "Failed in", "During:", "File ", "There are", "- Of which", "Overload", "With argument", "raised from", "<source",
    "Candidate", "Rejected", "This error", "Enable logging", "[", "If this",
)  # fmt: skip
SIMPLER = "a policy is compiled: numbers, `if`, `for`, `min`, `max`, `abs` and `math` are what it knows"


def in_a_line(complaint: str, fields: Sequence[str]) -> tuple[str, str]:
    """What is wrong, in a line, and a hint; `fields` are what the state has."""
    text = COLOUR.sub("", complaint)
    if "readonly array" in text and ("Cannot modify" in text or "setitem" in text):
        return f"it writes to the state{_where(text)}", "the state is the simulator's: read it, and return a number"
    if unknown := re.search(r"Unknown attribute '(\w+)' of type State", text):
        near = ["estimate"] if unknown[1] == "runtime" else get_close_matches(unknown[1], fields, 1)
        did = f"; did you mean `{near[0]}`?" if near else ""
        return f"the state has no `{unknown[1]}`{did}{_where(text)}", f"it has {', '.join(fields)}"
    lines = [line.strip(" -.") for line in text.splitlines()]
    message = next((line for line in lines if line and not line.startswith(NOISE)), "numba does not say why")
    signature = re.search(r">>> (.+)", text)
    if signature and message.startswith("No implementation"):
        message = f"there is no such operation: {_short(signature[1])}"
    return f"{_short(message)}{_where(text)}", SIMPLER


def _where(text: str) -> str:
    # Of the files it names the first that is not the compiler's own.
    lines = [line for file, line in WHERE.findall(text) if "numba" not in Path(file).parts]
    return f", line {lines[0]}" if lines else ""


def _short(words: str) -> str:
    # The type of the state is a page long.
    return ELSEWHERE.sub("", re.sub(r"State\(.*?\)\)", "State", words))
