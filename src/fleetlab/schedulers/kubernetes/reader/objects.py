"""What `kubectl get … -o json` writes, one object at a time, and safe ways to look into one.

Nothing is taken for granted of an object; what is not as Kubernetes writes it raises Malformed, which names the place.
"""

from __future__ import annotations

import json
import re
from collections.abc import Iterable, Iterator
from datetime import UTC, datetime
from fractions import Fraction
from functools import lru_cache
from math import isfinite
from pathlib import Path
from typing import Any, TypeVar

from fleetlab.core import TraceError
from fleetlab.traces.input.files import SourceFile
from fleetlab.traces.input.json_walk import Walk
from fleetlab.traces.input.times import LATEST

# -- Kubernetes quantities: `100m`, `1.5`, `2Gi`, `129e6`; exact, as fractions -----------------------------------------

MOST = 2**63 - 1  # what Kubernetes itself allows

_FORM = re.compile(r"([+-]?)(\d{1,40}\.?\d{0,40}|\.\d{1,40})(|[EPTGMK]i|[numkMGTPE]|[eE][+-]?\d{1,3})")
_SUFFIX = {"": Fraction(1), "n": Fraction(1, 10**9), "u": Fraction(1, 10**6), "m": Fraction(1, 1000)}
_SUFFIX |= {letter: Fraction(1000 ** (k + 1)) for k, letter in enumerate("kMGTPE")}
_SUFFIX |= {f"{letter}i": Fraction(1024 ** (k + 1)) for k, letter in enumerate("KMGTPE")}


def quantity(value: object, where: str) -> Fraction:
    """An amount, exactly; Malformed if it is none, negative, or more than Kubernetes can count.

    >>> quantity("1536Mi", "memory") == quantity("1.5Gi", "memory")
    True
    """
    amount: Fraction | None = None
    if isinstance(value, str):
        amount = _parsed(value)
    elif (isinstance(value, int) and not isinstance(value, bool)) or (isinstance(value, float) and isfinite(value)):
        amount = Fraction(value)
    if amount is None:
        msg = f"`{where}` is not a quantity: {display(value)}"
        raise MalformedObject(msg)
    if not 0 <= amount <= MOST:
        msg = f"`{where}` is negative or larger than Kubernetes allows: {display(value)}"
        raise MalformedObject(msg)
    return amount


@lru_cache(4096)
def _parsed(text: str) -> Fraction | None:
    form = _FORM.fullmatch(text.strip())
    if not form:
        return None
    sign, number, suffix = form.groups()
    scale = _SUFFIX.get(suffix)
    if scale is None:
        scale = Fraction(10) ** int(suffix[1:])
    return Fraction(f"{sign}{number}") * scale


HINT = "kubectl get pods,nodes -A -o json"
LARGEST = 4 << 30  # bytes of one file, unpacked

_EPOCH = datetime(1970, 1, 1, tzinfo=UTC)

Object = dict[str, Any]
T = TypeVar("T")


class MalformedObject(ValueError):
    """A place in an object does not hold what Kubernetes puts there; the message is the reason to reject it."""

    def __init__(self, reason: str) -> None:
        # JSON can spell half a character, which no file can hold.
        super().__init__(reason.encode("utf-8", "replace").decode())


def items(source: SourceFile) -> Iterator[tuple[int, object, float]]:
    """Each object of a file, in lists or one after the other: its line, itself, and the share read so far."""
    text = _text(source)
    if YAML.search(text[:YAML_BEGINS]):
        yield from _yaml_items(text, source.name)
        return
    walk = Walk(text, source.name, hint=f"write it again: {HINT}")
    if not walk.next():
        msg = f"{source.name}: the file is empty"
        raise TraceError(msg, hint=HINT)
    while walk.next():
        for line, item in _document(walk):
            yield line, item, walk.at / len(walk.text)


def _yaml_items(text: str, file: str) -> Iterator[tuple[int, object, float]]:
    """The objects of a text in YAML, each with the line it begins on."""
    yaml = _yaml(file)
    loader = getattr(yaml, "CSafeLoader", yaml.SafeLoader)(text)
    try:
        while loader.check_node():
            whole = loader.get_node()
            listed = [value for key, value in whole.value if key.value == "items"] if whole.id == "mapping" else []
            for node in listed[0].value if listed else [whole]:
                yield node.start_mark.line + 1, loader.construct_document(node), node.start_mark.index / len(text)
    except (yaml.YAMLError, RecursionError) as e:
        raise _not_yaml(file, e, f"write it again: {HINT}") from None


def _text(source: SourceFile) -> str:
    blocks, size = [], 0
    with source.open() as stream:
        while block := stream.read(1 << 24):
            blocks.append(block)
            if (size := size + len(block)) > LARGEST:
                msg = f"{source.name}: larger than what can be read at once: more than {LARGEST:,} bytes"
                raise TraceError(msg, hint="write pods by namespace, one file each, and read their folder")
    data = b"".join(blocks)
    try:
        # A Windows shell writes UTF-16.
        return data.decode(json.detect_encoding(data)).lstrip("\ufeff")
    except UnicodeDecodeError as e:
        msg = f"{source.name}: not text: {e.reason} at byte {e.start:,}"
        raise TraceError(msg, hint=HINT) from None


def _document(walk: Walk) -> Iterator[tuple[int, object]]:
    """The objects of a list, or the object itself if it is none; each with the line it begins on."""
    begun = walk.line
    whole: Object = {}
    listed = False
    for key in walk.members():
        if key == "items" and walk.next() == "[":
            listed = True
            yield from walk.elements()
        else:
            whole[key] = walk.value()
    if not listed:
        yield begun, whole


# -- looking into an object ----------------------------------------------------------------------------------------


def members(value: object, where: str) -> Object:
    """An object's members; none where there is nothing."""
    checked: Object = _checked(value, dict, {}, where, "an object")
    for key in checked:
        _spelt(key, where)
    return checked


def fields(value: object, where: str, known: Iterable[str]) -> Object:
    """An object's members, of which all are known: a misspelt one would be a rule that nobody applies."""
    given, allowed = members(value, where), tuple(known)
    for key in given:
        if key not in allowed:
            msg = f"unknown field `{where}.{key[:80]}`: there are {', '.join(allowed)}"
            raise MalformedObject(msg)
    return given


def elements(value: object, where: str) -> list[Any]:
    """A list's elements; none where there is nothing."""
    return _checked(value, list, [], where, "a list")


def words(value: object, where: str) -> str:
    """A text; empty where there is nothing."""
    return _spelt(_checked(value, str, "", where, "a text"), where)


def _spelt(text: str, where: str) -> str:
    if not text.isascii() and any("\ud800" <= sign <= "\udfff" for sign in text):
        msg = f"`{where}` has an unpaired surrogate: {text[:80]}"
        raise MalformedObject(msg)
    return text


def whole(value: object, where: str) -> int:
    """A whole number; 0 where there is nothing."""
    return _checked(value if not isinstance(value, bool) else "", int, 0, where, "a whole number")


def _checked(value: object, kind: type[T], nothing: T, where: str, what: str) -> T:
    if value is None:
        return nothing
    if not isinstance(value, kind):
        msg = f"`{where}` is not {what}: {display(value)}"
        raise MalformedObject(msg)
    return value


def display(value: object) -> str:
    """What to say of a value: a short one itself, of a large one only what it is."""
    if isinstance(value, (dict, list)):
        return "an object" if isinstance(value, dict) else "a list"
    return str(value)[:80]


def moment(value: object, where: str) -> float | None:
    """A time in Unix seconds; None where there is nothing, or what a program writes that knows no time."""
    text = words(value, where)
    if not text:
        return None
    try:
        seconds = (datetime.fromisoformat(text) - _EPOCH).total_seconds()
    except (ValueError, TypeError, OverflowError):
        seconds = LATEST
    if seconds >= LATEST:
        msg = f"`{where}` is not a time: {text[:80]}"
        raise MalformedObject(msg)
    return seconds if seconds > 0 else None


# -- objects in a file that a site applies, or that `kubectl get … -o json` printed: YAML documents or -----------------

KIND = re.compile(r"""(?:^[ -]*kind|"kind")\s*:\s*["']?(\w+)""", re.MULTILINE)
# How objects in it begin.
YAML = re.compile(r"\A(?:[ \t\r]*(?:#[^\n]*)?\n|---[^\n]*\n)*(?:apiVersion|kind|items|metadata):\s")
YAML_BEGINS = 4096  # characters in which that shows


def documents(text: str, file: str, hint: str) -> Iterator[Object]:
    """Each object of a text; the items of a list apart."""
    for document in _parsed_objects(text, file, hint):
        listed = document.get("items") if isinstance(document, dict) else None
        if isinstance(listed, list):
            yield from (members(one, file) for one in listed)
        elif document is not None:
            yield members(document, file)


def _parsed_objects(text: str, file: str, hint: str) -> list[object]:
    if text.lstrip().startswith("{"):
        try:
            return [json.loads(text)]
        except ValueError:
            pass  # several objects, one after the other, are YAML with `---` between them at best
    yaml = _yaml(file)
    try:
        return list(yaml.safe_load_all(text))
    except yaml.YAMLError as e:
        raise _not_yaml(file, e, hint) from None


def _yaml(file: str) -> Any:  # noqa: ANN401
    try:
        import yaml
    except ImportError:
        msg = f"{file}: YAML needs PyYAML"
        raise TraceError(msg, hint="pip install 'fleetlab[k8s]', or write it as one JSON list") from None
    return yaml


def _not_yaml(file: str, error: Exception, hint: str) -> TraceError:
    return TraceError(f"{file}: not YAML: {' '.join(str(error).split())[:200]}", hint=hint)


def title_of(item: Object) -> str:
    """What an object is, to be said in an error: its kind and name, as far as it tells them."""
    about = item.get("metadata")
    kind, own = item.get("kind"), about if isinstance(about, dict) else {}
    name = "/".join(one for one in (own.get("namespace"), own.get("name")) if isinstance(one, str) and one)
    return f"{kind if isinstance(kind, str) else 'object'} {name or 'without a name'}"[:160]


def kinds_in(path: Path) -> list[str]:
    """Return the kinds of the objects of Kubernetes that a file seems to have; none of a folder."""
    if path.is_dir():
        return []
    try:
        return KIND.findall(path.read_text("utf-8", errors="replace"))
    except OSError:
        return []  # its reader says what is wrong with the file
