"""Read and write a spec as a TOML file.

```toml
mode = "mps"         # exclusive, time-slicing, mps or mig
gpu = "H200"         # model, for limits relative to it
replicas = 4         # equal tenants; or fractions = [0.5, 0.25, 0.25], or one [[tenant]] each
percent = 25         # active thread percentage of each, at most
memory_mib = 35000   # of each, at most
```
"""

from __future__ import annotations

import json
import math
import tomllib
from typing import Any

from fleetlab.devices.errors import BenchError
from fleetlab.sharing.mig.layouts import parse_layout
from fleetlab.sharing.modes import Share
from fleetlab.stacks import gpu_models
from fleetlab.stacks.spec import MODES, MOST, Spec, by_size, one_of

LIMITS = ("percent", "memory_mib", "priority")
WORDS = ("name", "namespace", "image", "queue")
KEYS = ("mode", "gpu", "replicas", "fractions", *LIMITS, "layout", "turns", "interval", *WORDS, "node", "tenant")


def parse(text: str, source: str) -> Spec:
    """Parse a file into a spec."""
    try:
        about = tomllib.loads(text)
    except (ValueError, RecursionError) as e:
        msg = f"{source}: not TOML: {e}"
        raise BenchError(msg, hint='strings need quotes, such as mode = "mps"') from None
    if unknown := sorted(set(about) - set(KEYS)):
        msg = f"{source}: unknown key: {', '.join(unknown)}"
        raise BenchError(msg, hint=f"there are {', '.join(KEYS)}")
    try:
        return _spec(about)
    except BenchError as e:
        msg = f"{source}: {e}"
        raise BenchError(msg, hint=e.hint) from None


def to_toml(spec: Spec) -> str:
    """Format a spec as a file; defaults are omitted."""
    lines = [f"mode = {_quoted(spec.mode)}"]
    lines += [f"gpu = {_quoted(spec.gpu)}"] if spec.gpu else []
    if spec.layout:
        layout = ",".join(p if n == 1 else f"{n}x{p}" for p, n in spec.counts.items())
        lines += [f"layout = {_quoted(layout)}"] + ([f"turns = {spec.turns}"] if spec.turns > 1 else [])
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


# --- parsing ---------------------------------------------------------------------------------------------------------


def _spec(about: dict[str, Any]) -> Spec:
    if "mode" not in about:
        msg = "no mode"
        raise BenchError(msg, hint=f'mode = "mps"; there are {", ".join(MODES)}')
    one_of("mode", mode := _word(about, "mode", ""), MODES)
    gpu = gpu_models.gpu_model(_word(about, "gpu", "")).name if "gpu" in about else None
    words: dict[str, Any] = {key: _word(about, key, "") for key in ("interval", *WORDS) if key in about}
    if mode == "mig":
        if extra := [key for key in (*LIMITS, "fractions", "tenant") if key in about]:
            msg = f"limits under mig: {', '.join(extra)}"
            raise BenchError(msg, hint="the instance is the limit; layout lists the instances")
        layout = parse_layout(_word(about, "layout", "")) * _whole(about.get("replicas", 1), "replicas")
        turns = _whole(about.get("turns", 1), "turns")
        return Spec(mode, layout=by_size(layout), turns=turns, gpu=gpu, node=_node(about), **words)
    if extra := [key for key in ("layout", "turns") if key in about]:
        msg = f"{' and '.join(extra)} need mode mig, not `{mode}`"
        raise BenchError(msg, hint='mode = "mig"')
    return Spec(mode, _shares(about, mode, gpu), gpu=gpu, node=_node(about), **words)


def _shares(about: dict[str, Any], mode: str, gpu: str | None) -> tuple[Share, ...]:
    ways = [key for key in ("replicas", "fractions", "tenant") if key in about]
    if len(ways) > 1:
        msg = f"tenants are given twice: {' and '.join(ways)}"
        raise BenchError(msg, hint="replicas, or fractions, or [[tenant]]")
    if ways == ["fractions"]:
        if extra := [key for key in ("percent", "memory_mib") if key in about]:
            msg = f"fractions set the limits already: {', '.join(extra)}"
            raise BenchError(msg, hint="or one [[tenant]] each, with its own limits")
        return _fractions(about["fractions"], gpu, _limit(about, "priority"))
    if ways == ["tenant"]:
        return _each(about)
    share = Share(*(_limit(about, key) for key in LIMITS))
    count = about.get("replicas", 1 if mode == "exclusive" else None)
    if count is None:
        msg = "the number of tenants is missing"
        raise BenchError(msg, hint="replicas = 4, or fractions = [0.5, 0.25], or one [[tenant]] each")
    return (share,) * _whole(count, "replicas")


def _fractions(found: object, gpu: str | None, priority: int | None) -> tuple[Share, ...]:
    right = isinstance(found, list) and all(isinstance(f, int | float) and not isinstance(f, bool) for f in found)
    parts = [float(f) for f in found] if right and isinstance(found, list) else []
    if not parts or not all(math.isfinite(f) and 0.01 <= f <= 1 for f in parts):
        msg = f"not fractions of a GPU: {found}"
        raise BenchError(msg, hint="each from 0.01 to 1, as in fractions = [0.5, 0.25, 0.25]")
    if sum(parts) > 1 + 1e-9:
        msg = f"fractions exceed the GPU: {' + '.join(f'{f:g}' for f in parts)} = {sum(parts):g}"
        raise BenchError(msg, hint="they are parts of one GPU: at most 1 in total")
    whole = gpu_models.gpu_model(gpu).memory_mib if gpu else None
    # Rounded down, so that they fit together; an epsilon is added because 0.29 * 100 is 28.999….
    return tuple(Share(int(100 * f + 1e-9), None if whole is None else int(whole * f + 1e-9), priority) for f in parts)


def _each(about: dict[str, Any]) -> tuple[Share, ...]:
    tables = about["tenant"]
    if not isinstance(tables, list) or not all(isinstance(t, dict) for t in tables):
        msg = "tenants must be tables"
        raise BenchError(msg, hint="[[tenant]] with percent, memory_mib or priority")
    if unknown := sorted({key for t in tables for key in t} - set(LIMITS)):
        msg = f"unknown key of a tenant: {', '.join(unknown)}"
        raise BenchError(msg, hint=f"there are {', '.join(LIMITS)}")
    if extra := [key for key in LIMITS if key in about]:
        msg = f"limits beside [[tenant]]: {', '.join(extra)}"
        raise BenchError(msg, hint="put them into each [[tenant]]")
    return tuple(Share(*(_limit(t, key) for key in LIMITS)) for t in tables)


def _node(about: dict[str, Any]) -> tuple[tuple[str, str], ...]:
    labels = about.get("node", {})
    if not isinstance(labels, dict) or not all(isinstance(v, str) for v in labels.values()):
        msg = f"not node labels: {labels}"
        raise BenchError(msg, hint='as in node = {"nvidia.com/gpu.product" = "NVIDIA-H200"}')
    return tuple(sorted(labels.items()))


def _word(about: dict[str, Any], key: str, default: str) -> str:
    value = about.get(key, default)
    if not isinstance(value, str):
        msg = f"{key} must be a string: {value}"
        raise BenchError(msg)
    return value


def _limit(about: dict[str, Any], key: str) -> int | None:
    value = about.get(key)
    if value is not None and (isinstance(value, bool) or not isinstance(value, int)):
        msg = f"{key} must be an integer: {value}"
        raise BenchError(msg)
    return value


def _whole(found: object, key: str) -> int:
    if isinstance(found, bool) or not isinstance(found, int) or not 1 <= found <= MOST:
        msg = f"{key} must be an integer from 1 to {MOST}: {found}"
        raise BenchError(msg)
    return found
