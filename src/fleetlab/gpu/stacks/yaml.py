"""Write YAML, and read untrusted YAML: no aliases, no tags, limited depth and size, no duplicate keys."""

from __future__ import annotations

import json
import re
from collections.abc import Iterator, Mapping, Sequence
from itertools import islice
from typing import TYPE_CHECKING, Any

from fleetlab.gpu.devices.console import BenchError

if TYPE_CHECKING:
    import yaml


LARGEST = 256 * 1024  # bytes; typical files have a few hundred
DEEPEST = 40
MOST = 500  # documents


def documents(text: str, source: str) -> list[dict[str, Any]]:
    """The documents of a file, each a mapping; empty ones are skipped."""
    try:
        import yaml
    except ImportError:
        raise BenchError(f"{source}: reading YAML needs PyYAML", hint="pip install 'fleetlab[k8s]'") from None
    if len(text.encode()) > LARGEST:
        raise BenchError(f"{source}: too large: {len(text):,} characters", hint=f"at most {LARGEST:,} bytes are read")
    try:
        _harmless(yaml.parse(text, Loader=_base()), source)
        docs = list(islice(yaml.load_all(text, Loader=_loader()), MOST + 1))
    except yaml.YAMLError as e:
        msg = f"{source}: not YAML: {_where(e)}"
        raise BenchError(msg, hint="indent with spaces, and quote strings that contain a colon") from None
    except (ValueError, RecursionError) as e:  # an invalid date, a number that is too long
        raise BenchError(f"{source}: YAML that cannot be read: {e}") from None
    return _mappings(docs, source)


def _harmless(events: Iterator[yaml.Event], source: str) -> None:
    import yaml

    deep = 0
    for event in events:
        deep += isinstance(event, yaml.CollectionStartEvent) - isinstance(event, yaml.CollectionEndEvent)
        what = ""
        if isinstance(event, yaml.AliasEvent):
            what = f"an alias, *{event.anchor}"
        elif isinstance(event, yaml.NodeEvent) and event.anchor:
            what = f"an anchor, &{event.anchor}"
        elif isinstance(event, yaml.ScalarEvent | yaml.CollectionStartEvent) and event.tag not in (None, "!"):
            what = f"a tag, {event.tag}"
        elif deep > DEEPEST:
            what = f"more than {DEEPEST} levels"
        if what:
            line = f"line {event.start_mark.line + 1}: " if event.start_mark else ""
            raise BenchError(f"{source}: {line}{what}", hint="files of these stacks need none; write the value out")


def _base() -> Any:  # noqa: ANN401
    """The fast loader, if PyYAML was built with it."""
    import yaml

    return getattr(yaml, "CSafeLoader", yaml.SafeLoader)


def _loader() -> type[yaml.SafeLoader]:
    import yaml

    base: Any = _base()

    class Loader(base):  # type: ignore[misc]
        """Keeps dates as strings and rejects duplicate keys."""

        def construct_mapping(self, node: yaml.MappingNode, deep: bool = False) -> dict[Any, Any]:  # noqa: FBT001, FBT002
            keys: set[str] = set()
            for key, _ in node.value:
                if not isinstance(key, yaml.ScalarNode) or key.value in keys:
                    what = (
                        f"the key `{key.value}` twice"
                        if isinstance(key, yaml.ScalarNode)
                        else "a key that is not a string"
                    )
                    raise yaml.constructor.ConstructorError(None, None, what, key.start_mark)
                keys.add(key.value)
            return {str(k): v for k, v in super().construct_mapping(node, deep).items()}

    Loader.yaml_implicit_resolvers = {
        first: [(tag, regexp) for tag, regexp in rules if not tag.endswith(("timestamp", "merge"))]
        for first, rules in yaml.SafeLoader.yaml_implicit_resolvers.items()
    }
    return Loader


def _where(e: yaml.YAMLError) -> str:
    mark, what = getattr(e, "problem_mark", None), getattr(e, "problem", None)
    if mark is None:
        return " ".join(str(e).split())[:200]
    return f"line {mark.line + 1}: {what}"


def _mappings(documents: list[Any], source: str) -> list[dict[str, Any]]:
    if len(documents) > MOST:
        raise BenchError(f"{source}: more than {MOST} documents")
    there = [one for one in documents if one is not None]
    if not there:
        raise BenchError(f"{source}: empty", hint="an empty file configures nothing")
    if wrong := [one for one in there if not isinstance(one, dict)]:
        msg = f"{source}: not a mapping, but {type(wrong[0]).__name__}"
        raise BenchError(msg, hint="documents of these stacks are mappings, `key: value`")
    return there


# --- write YAML ------------------------------------------------------------------------------------------------------


# Strings that need no quotes: no special characters, and nothing that looks like a number or a date.
PLAIN = re.compile(r"[A-Za-z_/][A-Za-z0-9_./-]*")
MEANT = {"true", "false", "yes", "no", "on", "off", "y", "n", "null"}


def dump(*documents: Mapping[str, Any], about: Sequence[str] = ()) -> str:
    """Format documents, preceded by comments.

    >>> print(dump({"kind": "Pod", "args": ["on", "-x"]}, about=["a pod"]), end="")
    # a pod
    kind: Pod
    args:
    - "on"
    - "-x"
    """
    head = "".join(f"# {line}".rstrip() + "\n" for line in about)
    return head + "---\n".join("".join(f"{line}\n" for line in _mapping(one, "")) for one in documents)


def _mapping(mapping: Mapping[str, Any], indent: str) -> Iterator[str]:
    for key, value in mapping.items():
        head = f"{indent}{_word(key)}:"
        if isinstance(value, Mapping) and value:
            yield head
            yield from _mapping(value, indent + "  ")
        elif isinstance(value, list | tuple) and value:
            yield head
            yield from _list(value, indent)
        elif isinstance(value, str) and "\n" in value:
            yield f"{head} |"
            yield from (f"{indent}  {line}" if line else "" for line in value.removesuffix("\n").split("\n"))
        else:
            yield f"{head} {_scalar(value)}"


def _list(items: Sequence[Any], indent: str) -> Iterator[str]:
    for value in items:
        if isinstance(value, Mapping) and value:
            first, *rest = _mapping(value, indent + "  ")
            yield f"{indent}- {first.removeprefix(indent + '  ')}"
            yield from rest
        else:
            yield f"{indent}- {_scalar(value)}"


def _scalar(value: object) -> str:
    if isinstance(value, bool):
        return "true" if value else "false"
    if isinstance(value, int):
        return str(value)
    if isinstance(value, str):
        return _word(value)
    assert value in ({}, [], ()), f"not something that we write: {value!r}"
    return "{}" if value == {} else "[]"


def _word(value: str) -> str:
    if PLAIN.fullmatch(value) and value.lower() not in MEANT:
        return value
    return json.dumps(value)  # a JSON string is a YAML string
