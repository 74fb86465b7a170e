"""A layout made on a card and undone again, through `nvidia-smi`; by default only said, not done.

What is done is remembered before it begins, asked for after it is done, and undone if it is not so.
"""

from __future__ import annotations

import os
import re
import shlex
from collections.abc import Callable, Iterator, Sequence
from dataclasses import dataclass
from typing import Any

from fleetlab.devices import nvidia_smi as cards
from fleetlab.devices.errors import BenchError
from fleetlab.devices.nvidia_smi import Card
from fleetlab.sharing import records as _state
from fleetlab.sharing.mig.layouts import Layout, told

INSTANCE = re.compile(r"^\|\s*(\d+)\s+MIG\s+(\S+)\s+(\d+)\s+(\d+)\s+(\d+):(\d+)\s*\|", re.MULTILINE)
NONE_YET = ("No GPU instances found", "No MIG-enabled devices found", "No MIG-supported devices found")

Command = tuple[str, ...]  # the words after `nvidia-smi`
Tell = Callable[[str], None]


@dataclass(frozen=True, slots=True)
class Instance:
    """A GPU instance that is there."""

    name: str
    id: int
    start: int
    size: int


@dataclass(frozen=True, slots=True)
class Steps:
    """What makes a layout, and what undoes it."""

    do: tuple[Command, ...]
    undo: tuple[Command, ...]


def steps(layout: Layout, index: int, *, on_already: bool = False) -> Steps:
    """The commands for the card of that number, whose MIG is on already or is to be switched on and off."""
    gpu = str(index)
    make = ("mig", "-i", gpu, "-cgi", ",".join(map(str, layout)), "-C")
    clear = (("mig", "-i", gpu, "-dci"), ("mig", "-i", gpu, "-dgi"))
    if on_already:
        return Steps((make,), clear)
    return Steps((("-i", gpu, "-mig", "1"), make), (*clear, ("-i", gpu, "-mig", "0")))


def said(command: Command) -> str:
    """As one would type it."""
    return shlex.join((cards.SMI, *command))


def instances(index: int) -> list[Instance]:
    """The instances that the card of that number is cut into."""
    try:
        text = cards.ask("mig", "-i", str(index), "-lgi")
    except BenchError as e:
        if any(word in str(e) for word in NONE_YET):
            return []
        raise
    found = [Instance(n, int(i), int(s), int(z)) for g, n, _p, i, s, z in INSTANCE.findall(text) if int(g) == index]
    if not found and not any(word in text for word in NONE_YET):
        msg = f"nvidia-smi answers something that is not a list of instances: `{' '.join(text.split())[:200]}`"
        raise BenchError(msg, hint=f"run `nvidia-smi mig -i {index} -lgi` by hand")
    return found


def devices(index: int) -> list[tuple[str, str]]:
    """Profile and UUID of each part of the card that a program can be given by CUDA_VISIBLE_DEVICES."""
    here, found = -1, []
    for line in cards.ask("-L").splitlines():
        if gpu := re.match(r"GPU (\d+):", line):
            here = int(gpu[1])
        elif (part := re.match(r"\s+MIG (\S+)\s+Device\s+\d+: \(UUID: (\S+)\)", line)) and here == index:
            found.append((part[1], part[2]))
    return found


def obstacles(one: Card) -> Iterator[str]:
    """What forbids a change of this card's layout, now and by us."""
    if one.mig is None:
        yield f"card {one.index} has no MIG: {one.name}"
        return
    if os.geteuid() != 0:
        yield "only root may change MIG"
    if busy := cards.on(one):
        yield f"processes run on card {one.index}: " + ", ".join(f"{p.pid} ({p.name})" for p in busy)


def taken(one: Card) -> Iterator[str]:
    """What of an earlier layout is in the way of a new one."""
    if _state.read(_name(one.index)) is not None:
        yield f"a layout was made on card {one.index} from here before: `fleetlab share mig undo` first"
    elif there := instances(one.index):
        yield f"card {one.index} is cut already: {', '.join(f'{i.name} at {i.start}' for i in there)}"
    if one.mig != one.mig_pending:
        yield f"MIG of card {one.index} is {one.mig}, but {one.mig_pending} after a reset that it waits for"


def apply(layout: Layout, index: int, *, tell: Tell) -> list[tuple[str, str]]:
    """Make it so on the card of that number; the parts that came of it. What fails midway is undone."""
    one = cards.card(index)
    _may("make", [*obstacles(one), *taken(one)])
    plan = steps(layout, index, on_already=one.mig == "Enabled")
    record = {"gpu": index, "uuid": one.uuid, "mig": one.mig, "places": list(map(str, layout)), "layout": told(layout)}
    _state.write(_name(index), record)
    try:
        for command in plan.do:
            tell(said(command))
            cards.ask(*command)
            _on(index)
        return _proved(layout, index)
    except BaseException as e:
        _give_up(record, e, tell=tell)
        raise


def undo(index: int, *, tell: Tell) -> None:
    """Put the card of that number back to what it was before `apply`."""
    record = remembered(index)
    one = cards.card(index)
    if one.uuid != record["uuid"]:
        msg = f"card {index} is another one than was cut: {one.uuid}, not {record['uuid']}"
        raise BenchError(msg, hint=f"look at `nvidia-smi -L`; the record is in {_state.folder()}")
    _may("undo", list(obstacles(one)))
    _put_back(record, tell=tell)


def remembered(index: int) -> dict[str, Any]:
    """What `apply` wrote down of the card of that number."""
    record = _state.read(_name(index))
    if record is None:
        msg = f"no layout was made on card {index} from here"
        raise BenchError(msg, hint="`fleetlab share mig apply` makes one; others' layouts are not undone")
    if not {"gpu", "uuid", "mig", "places", "layout"} <= record.keys():
        msg = f"{_state.folder() / _name(index)}.json: holds no layout"
        raise BenchError(msg, hint="look at it by hand")
    return record


def undoing(record: dict[str, Any], one: Card, there: Sequence[Instance]) -> list[Command]:
    """The commands that lead from what is there back to what was."""
    back: list[Command] = []
    if strangers := [i for i in there if _place(i.name, i.start) not in record["places"]]:
        msg = f"card {record['gpu']} has instances that were not made here: {', '.join(i.name for i in strangers)}"
        raise BenchError(msg, hint="somebody else cut it since; ask them")
    gpu = str(record["gpu"])
    if there:
        ids = ",".join(str(i.id) for i in there)
        back += [("mig", "-i", gpu, "-dci", "-gi", ids), ("mig", "-i", gpu, "-dgi", "-gi", ids)]
    if _still_on(record, one):
        back.append(("-i", gpu, "-mig", "0"))
    return back


# --- the way there and back ------------------------------------------------------------------------------------------


def _name(index: int) -> str:
    return f"mig-{index}"


def _place(name: str, start: int) -> str:
    return f"{name}:{start}"


def _still_on(record: dict[str, Any], one: Card) -> bool:
    return record["mig"] == "Disabled" and "Enabled" in (one.mig, one.mig_pending)


def _may(verb: str, against: Sequence[str]) -> None:
    if against:
        msg = f"cannot {verb} a layout: {'; '.join(against)}"
        raise BenchError(msg, hint="without --really it is only shown what would be done")


def _on(index: int) -> None:
    """Is MIG on? An A100 may need a reset for it, which everybody on the machine would feel: not ours to do."""
    one = cards.card(index)
    if one.mig != "Enabled":
        msg = f"MIG of card {index} was switched on and is not on: {one.mig}, {one.mig_pending} after a reset"
        raise BenchError(msg, hint=f"`nvidia-smi -i {index} --gpu-reset` or a restart of the machine, then again")


def _proved(layout: Layout, index: int) -> list[tuple[str, str]]:
    want = sorted(_place(p.profile.name, p.start) for p in layout)
    have = sorted(_place(i.name, i.start) for i in instances(index))
    if have != want:
        msg = f"nvidia-smi made something else: {', '.join(have) or 'nothing'} in place of {', '.join(want)}"
        raise BenchError(msg, hint="it was undone")
    parts = devices(index)
    if sorted(name for name, _ in parts) != sorted(p.profile.name for p in layout):
        msg = f"the instances are there, but programs would see: {', '.join(n for n, _ in parts) or 'nothing'}"
        raise BenchError(msg, hint="it was undone")
    return parts


def _give_up(record: dict[str, Any], e: BaseException, *, tell: Tell) -> None:
    tell("undoing what was done")
    index = record["gpu"]
    try:
        # There were none before: what lies elsewhere than it was asked to is ours all the same.
        record = record | {"places": [_place(i.name, i.start) for i in instances(index)]}
        _state.write(_name(index), record)
        _put_back(record, tell=tell)
    except BenchError as worse:
        msg = f"{e or type(e).__name__}; and it could not be undone: {worse}"
        raise BenchError(msg, hint=f"`fleetlab share mig undo --gpu {index} --really`, once mended") from None


def _put_back(record: dict[str, Any], *, tell: Tell) -> None:
    index = record["gpu"]
    failed = None
    for command in undoing(record, cards.card(index), instances(index)):
        tell(said(command))
        try:
            cards.ask(*command)
        except BenchError as e:
            failed = e
            if "-dci" not in command:  # an instance may have no parts to remove; all else must be done in turn
                break
    one, there = cards.card(index), instances(index)
    if there or _still_on(record, one):
        rest = ", ".join(i.name for i in there) or f"MIG {one.mig}, {one.mig_pending} after a reset"
        msg = f"card {index} is not as it was: {rest}" + (f" ({failed})" if failed else "")
        raise BenchError(msg, hint=(failed and failed.hint) or "run the commands by hand")
    _state.forget(_name(index))
