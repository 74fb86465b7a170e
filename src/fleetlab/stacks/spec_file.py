"""A spec as a TOML file, read and written.

```toml
mode = "mps"         # exclusive, time-slicing, mps or mig
card = "H200"        # for limits in parts of it
replicas = 4         # tenants alike; or fractions = [0.5, 0.25, 0.25], or one [[tenant]] each
percent = 25         # of the SMs, at most, for each
memory_mib = 35000   # at most, for each
```
"""

from __future__ import annotations

import json
import math
import tomllib
from typing import Any

from fleetlab.devices.errors import BenchError
from fleetlab.sharing.mig.layouts import names
from fleetlab.sharing.modes import Share
from fleetlab.stacks import gpu_models as models
from fleetlab.stacks.spec import MODES, MOST, Spec, by_size, one_of

LIMITS = ("percent", "memory_mib", "priority")
WORDS = ("name", "namespace", "image", "queue")
KEYS = ("mode", "card", "replicas", "fractions", *LIMITS, "layout", "turns", "interval", *WORDS, "node", "tenant")


def parse(text: str, source: str) -> Spec:
    """The spec that a file holds."""
    try:
        about = tomllib.loads(text)
    except (ValueError, RecursionError) as e:
        msg = f"{source}: not TOML: {e}"
        raise BenchError(msg, hint='strings stand in quotes, as in mode = "mps"') from None
    if unknown := sorted(set(about) - set(KEYS)):
        msg = f"{source}: no such key: {', '.join(unknown)}"
        raise BenchError(msg, hint=f"there are {', '.join(KEYS)}")
    try:
        return _spec(about)
    except BenchError as e:
        msg = f"{source}: {e}"
        raise BenchError(msg, hint=e.hint) from None


def written(spec: Spec) -> str:
    """The spec as a file: what is as it would be anyway is left out."""
    lines = [f"mode = {_quoted(spec.mode)}"]
    lines += [f"card = {_quoted(spec.card)}"] if spec.card else []
    if spec.layout:
        told = ",".join(p if n == 1 else f"{n}x{p}" for p, n in spec.counts.items())
        lines += [f"layout = {_quoted(told)}"] + ([f"turns = {spec.turns}"] if spec.turns > 1 else [])
    plain = Spec("exclusive", (Share(),))
    for word in ("interval", *WORDS):
        if (value := getattr(spec, word)) != getattr(plain, word):
            lines.append(f"{word} = {_quoted(value)}")
    if spec.node:
        lines.append("node = { " + ", ".join(f"{_quoted(k)} = {_quoted(v)}" for k, v in spec.node) + " }")
    return "\n".join(lines + _tenants(spec)) + "\n"


def _tenants(spec: Spec) -> list[str]:
    if spec.mode in ("mig", "exclusive"):
        return []
    if spec.equal:
        return [f"replicas = {len(spec.tenants)}", *_limits(spec.tenants[0])]
    return [line for share in spec.tenants for line in ("", "[[tenant]]", *_limits(share))]


def _limits(share: Share) -> list[str]:
    return [f"{key} = {value}" for key in LIMITS if (value := getattr(share, key)) is not None]


def _quoted(word: str) -> str:
    return json.dumps(word, ensure_ascii=False)


# --- from what was written -------------------------------------------------------------------------------------------


def _spec(about: dict[str, Any]) -> Spec:
    if "mode" not in about:
        msg = "no mode"
        raise BenchError(msg, hint=f'mode = "mps"; there are {", ".join(MODES)}')
    one_of("mode", mode := _word(about, "mode", ""), MODES)
    card = models.known(_word(about, "card", "")).name if "card" in about else None
    words: dict[str, Any] = {key: _word(about, key, "") for key in ("interval", *WORDS) if key in about}
    if mode == "mig":
        if extra := [key for key in (*LIMITS, "fractions", "tenant") if key in about]:
            msg = f"limits under mig: {', '.join(extra)}"
            raise BenchError(msg, hint="an instance is the limit itself; layout says which there are")
        layout = names(_word(about, "layout", "")) * _whole(about.get("replicas", 1), "replicas")
        turns = _whole(about.get("turns", 1), "turns")
        return Spec(mode, layout=by_size(layout), turns=turns, card=card, node=_node(about), **words)
    if extra := [key for key in ("layout", "turns") if key in about]:
        msg = f"{' and '.join(extra)} belong to mig, and the mode is `{mode}`"
        raise BenchError(msg, hint='mode = "mig"')
    return Spec(mode, _shares(about, mode, card), card=card, node=_node(about), **words)


def _shares(about: dict[str, Any], mode: str, card: str | None) -> tuple[Share, ...]:
    ways = [key for key in ("replicas", "fractions", "tenant") if key in about]
    if len(ways) > 1:
        msg = f"tenants are said twice: {' and '.join(ways)}"
        raise BenchError(msg, hint="replicas, or fractions, or [[tenant]]")
    if ways == ["fractions"]:
        if extra := [key for key in ("percent", "memory_mib") if key in about]:
            msg = f"fractions say the limits already: {', '.join(extra)}"
            raise BenchError(msg, hint="or one [[tenant]] each, with its own limits")
        return _fractions(about["fractions"], card, _limit(about, "priority"))
    if ways == ["tenant"]:
        return _each(about)
    share = Share(*(_limit(about, key) for key in LIMITS))
    count = about.get("replicas", 1 if mode == "exclusive" else None)
    if count is None:
        msg = "how many tenants?"
        raise BenchError(msg, hint="replicas = 4, or fractions = [0.5, 0.25], or one [[tenant]] each")
    return (share,) * _whole(count, "replicas")


def _fractions(found: object, card: str | None, priority: int | None) -> tuple[Share, ...]:
    right = isinstance(found, list) and all(isinstance(f, int | float) and not isinstance(f, bool) for f in found)
    parts = [float(f) for f in found] if right and isinstance(found, list) else []
    if not parts or not all(math.isfinite(f) and 0.01 <= f <= 1 for f in parts):
        msg = f"not fractions of a card: {found}"
        raise BenchError(msg, hint="each from 0.01 to 1, as in fractions = [0.5, 0.25, 0.25]")
    if sum(parts) > 1 + 1e-9:
        msg = f"fractions that exceed the card: {' + '.join(f'{f:g}' for f in parts)} = {sum(parts):g}"
        raise BenchError(msg, hint="they are parts of one card: together at most 1")
    whole = models.known(card).memory_mib if card else None
    # Rounded down, so that they fit together; a hair is added for 0.29 * 100 being 28.999….
    return tuple(Share(int(100 * f + 1e-9), None if whole is None else int(whole * f + 1e-9), priority) for f in parts)


def _each(about: dict[str, Any]) -> tuple[Share, ...]:
    found = about["tenant"]
    if not isinstance(found, list) or not all(isinstance(t, dict) for t in found):
        msg = "tenants are tables"
        raise BenchError(msg, hint="[[tenant]] with percent, memory_mib or priority")
    if unknown := sorted({key for t in found for key in t} - set(LIMITS)):
        msg = f"no such key of a tenant: {', '.join(unknown)}"
        raise BenchError(msg, hint=f"there are {', '.join(LIMITS)}")
    if extra := [key for key in LIMITS if key in about]:
        msg = f"limits beside [[tenant]]: {', '.join(extra)}"
        raise BenchError(msg, hint="say them in each [[tenant]]")
    return tuple(Share(*(_limit(t, key) for key in LIMITS)) for t in found)


def _node(about: dict[str, Any]) -> tuple[tuple[str, str], ...]:
    found = about.get("node", {})
    if not isinstance(found, dict) or not all(isinstance(v, str) for v in found.values()):
        msg = f"not labels of a node: {found}"
        raise BenchError(msg, hint='as in node = {"nvidia.com/gpu.product" = "NVIDIA-H200"}')
    return tuple(sorted(found.items()))


def _word(about: dict[str, Any], key: str, default: str) -> str:
    found = about.get(key, default)
    if not isinstance(found, str):
        msg = f"{key} is a word in quotes: {found}"
        raise BenchError(msg)
    return found


def _limit(about: dict[str, Any], key: str) -> int | None:
    found = about.get(key)
    if found is not None and (isinstance(found, bool) or not isinstance(found, int)):
        msg = f"{key} is a whole number: {found}"
        raise BenchError(msg)
    return found


def _whole(found: object, key: str) -> int:
    if isinstance(found, bool) or not isinstance(found, int) or not 1 <= found <= MOST:
        msg = f"{key} is a whole number from 1 to {MOST}: {found}"
        raise BenchError(msg)
    return found
