"""Read untrusted YAML: no aliases, no tags, limited depth and size, no duplicate keys."""

from __future__ import annotations

from collections.abc import Iterator
from itertools import islice
from typing import TYPE_CHECKING, Any

from fleetlab.devices.errors import BenchError

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
        msg = f"{source}: reading YAML needs PyYAML"
        raise BenchError(msg, hint="pip install 'fleetlab[k8s]'") from None
    if len(text.encode()) > LARGEST:
        msg = f"{source}: too large: {len(text):,} characters"
        raise BenchError(msg, hint=f"at most {LARGEST:,} bytes are read")
    try:
        _harmless(yaml.parse(text, Loader=_base()), source)
        docs = list(islice(yaml.load_all(text, Loader=_loader()), MOST + 1))
    except yaml.YAMLError as e:
        msg = f"{source}: not YAML: {_where(e)}"
        raise BenchError(msg, hint="indent with spaces, and quote strings that contain a colon") from None
    except (ValueError, RecursionError) as e:  # an invalid date, a number that is too long
        msg = f"{source}: YAML that cannot be read: {e}"
        raise BenchError(msg) from None
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
            msg = f"{source}: {line}{what}"
            raise BenchError(msg, hint="files of these stacks need none; write the value out")


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


def _mappings(found: list[Any], source: str) -> list[dict[str, Any]]:
    if len(found) > MOST:
        msg = f"{source}: more than {MOST} documents"
        raise BenchError(msg)
    there = [one for one in found if one is not None]
    if not there:
        msg = f"{source}: empty"
        raise BenchError(msg, hint="an empty file configures nothing")
    if wrong := [one for one in there if not isinstance(one, dict)]:
        msg = f"{source}: not a mapping, but {type(wrong[0]).__name__}"
        raise BenchError(msg, hint="documents of these stacks are mappings, `key: value`")
    return there
