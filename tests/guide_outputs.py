"""What a guide has one do, what it says is printed, and how that is compared or written anew.

A line `(12 more lines)` stands for exactly so many lines; `?12`, in a guide that is being written, asks `--update` for
the first 12. Below `<!-- numbers vary by machine -->` only words must agree.
"""

import re
from collections.abc import Iterator
from dataclasses import dataclass
from itertools import zip_longest

FENCE = re.compile(r"^(<!-- (.*?) -->\n)?```(\w+)(?: (\S+))?\n(.*?)^```$", re.MULTILINE | re.DOTALL)
MORE = re.compile(r"\((\d+) more lines?\)")
VARY = "numbers vary by machine"
NUMBER = re.compile(r"[−-]?\d[\d,]*(\.\d+)?")
SHORT = 8  # lines that are shown rather than counted, where a guide leaves some out


@dataclass(frozen=True)
class Step:
    """One thing to do: a file to write, a command with its output, or Python code."""

    kind: str
    text: str  # the name of a file, a command, or code
    body: str = ""  # of a file, or what is printed
    varies: bool = False
    span: tuple[int, int] = (0, 0)  # where the body is in the guide


def steps(text: str) -> Iterator[Step]:
    """What a guide has one do, in order."""
    fences = list(FENCE.finditer(text))
    for fence, after in zip_longest(fences, fences[1:]):
        _, note, kind, name, body = fence.groups()
        if name:
            yield Step("file", name, body)
        elif kind == "console":
            yield from commands(body, fence.start(5), varies=note == VARY)
        elif kind == "python":
            yield code(text, fence, after)


def code(text: str, fence: re.Match[str], after: re.Match[str] | None) -> Step:
    """Return Python code; a block of text right below it is what it prints."""
    shown = after is not None and after[3] == "text" and not after[4] and not text[fence.end() : after.start()].strip()
    if not shown or after is None:
        return Step("python", fence[5])
    return Step("python", fence[5], after[5], after[2] == VARY, after.span(5))


def commands(body: str, begin: int, *, varies: bool) -> Iterator[Step]:
    """Split a block into commands, each with what it prints; one may go on after a backslash."""
    for part in re.finditer(r"^\$ ((?:.*\\\n)*.*)\n((?:(?!\$ ).*\n)*)", body, re.MULTILINE):
        command = part[1].replace("\\\n", " ")
        yield Step("shell", command, part[2], varies, (begin + part.start(2), begin + part.end(2)))


def lines(text: str) -> list[str]:
    """Return the lines of an output, without what nobody sees."""
    return [line.rstrip() for line in text.strip("\n").split("\n")]


def fits(told: list[str], found: list[str], *, varies: bool = False) -> bool:
    """Is this what the guide says? Where numbers vary, how many lines are left out does, too."""
    if varies:
        return aligned(told, found) is not None
    place = 0
    for line in told:
        if more := MORE.fullmatch(line):
            place += int(more[1])
        elif place >= len(found) or line != found[place]:
            return False
        else:
            place += 1
    return place == len(found)


def wording(line: str) -> str:
    """Return a line without what depends on numbers: their digits, units and intervals, and the room that they take."""
    line = re.sub(r"−?∞|–", "0", NUMBER.sub("0", line))
    line = re.sub(r" \((no )?0 % CI[^)]*\)", "", line)
    line = re.sub(r"\b0 to 0\b", "0", line)
    line = re.sub(r"\b0 (ms|s|min|h|days)\b", "0 s", line)
    return " ".join(re.sub(r"[─━]+|-{2,}", "-", line).split())


def refilled(told: list[str], found: list[str]) -> list[str]:
    """Return what was printed, as long as the guide shows it: lines that it leaves out are counted."""
    if first := re.fullmatch(r"\?(\d+)", told[0]):  # how a writer asks for so many lines
        return cut(found, int(first[1]))
    kept = aligned(told, found)
    if kept is None:
        return cut(found, 20)
    shown, place = [], 0
    for line in [*kept, len(found)]:
        gap = found[place:line]
        shown += gap if len(gap) <= SHORT else [f"({len(gap)} more lines)"]
        shown += found[line : line + 1]
        place = line + 1
    return shown


def cut(found: list[str], count: int) -> list[str]:
    """Return the first lines of an output, and how many follow where that is more than a few."""
    rest = len(found) - count
    return found if rest <= SHORT else [*found[:count], f"({rest} more lines)"]


def aligned(told: list[str], found: list[str], place: int = 0) -> list[int] | None:
    """Return which lines of an output a guide shows; None if it shows another."""
    if not told:
        return [] if place == len(found) else None
    if told[0] == "..." or MORE.fullmatch(told[0]):
        starts = range(place, len(found) + 1)
        return next((rest for k in starts if (rest := aligned(told[1:], found, k)) is not None), None)
    if place >= len(found) or not re.fullmatch(pattern(told[0]), wording(found[place])):
        return None
    rest = aligned(told[1:], found, place + 1)
    return None if rest is None else [place, *rest]


def pattern(line: str) -> str:
    """Return what a line of the guide looks like, whatever its numbers are."""
    return re.escape(wording(line)).replace("…", ".*")
