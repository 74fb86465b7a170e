"""A spec: one way to share a GPU, independent of any stack. Validated once, immutable.

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
import re
import tomllib
from collections import Counter
from collections.abc import Sequence
from dataclasses import dataclass
from typing import Any

from fleetlab.gpu.devices.console import BenchError
from fleetlab.gpu.sharing.mig.layouts import BY_NAME as CUTS
from fleetlab.gpu.sharing.mig.layouts import CATALOG, MigGpu, parse_layout, place
from fleetlab.gpu.sharing.modes import Share


@dataclass(frozen=True, slots=True)
class GpuModel:
    """A GPU model."""

    name: str
    memory_mib: int
    capability: tuple[int, int]
    ids: tuple[str, ...] = ()

    @property
    def cut(self) -> MigGpu | None:
        """Its MIG profiles; None if it has none that we know."""
        return CUTS.get(self.name)


BY_NAME = {
    name: GpuModel(name, about["memory_mib"], tuple(about["capability"]), tuple(about.get("ids", ())))
    for name, about in CATALOG.items()
}


def gpu_model(name: str) -> GpuModel:
    """Look up a GPU model; an unambiguous prefix is enough.

    >>> gpu_model("H200").memory_mib
    143771
    """
    matches = [model for model in BY_NAME.values() if name and model.name.lower().startswith(name.lower())]
    exact = [model for model in matches if model.name.lower() == name.lower()]
    if len(exact or matches) == 1:
        return (exact or matches)[0]
    msg = f"ambiguous GPU model: `{name}`" if matches else f"unknown GPU model: `{name}`"
    raise BenchError(msg, hint=f"there are {', '.join(m.name for m in matches) or ', '.join(BY_NAME)}")


def by_ids(ids: frozenset[str]) -> GpuModel | None:
    """The GPU model with these PCI ids, some or all of them."""
    wanted = {i.upper() for i in ids}
    matches = [m for m in BY_NAME.values() if wanted and wanted <= {i.upper() for i in m.ids}]
    return matches[0] if len(matches) == 1 else None


MODES = ("exclusive", "time-slicing", "mps", "mig")
INTERVALS = ("default", "short", "medium", "long")
MOST = 100  # tenants per GPU; no stack allows more
MOST_MIB = 2**24  # no GPU has so much memory, and some stacks count in 32 bits
LABEL = re.compile(r"[a-z0-9]([-a-z0-9]{0,48}[a-z0-9])?")
KEY = re.compile(r"([a-z0-9.-]{1,253}/)?[A-Za-z0-9]([-A-Za-z0-9_.]{0,61}[A-Za-z0-9])?")
VALUE = re.compile(r"([A-Za-z0-9]([-A-Za-z0-9_.]{0,61}[A-Za-z0-9])?)?")
IMAGE = re.compile(r"[a-z0-9][-a-z0-9._:/@]{0,250}", re.IGNORECASE)
PROFILE = re.compile(r"([1-7])g\.(\d+)gb(\+me)?")


@dataclass(frozen=True, slots=True)
class Spec:
    """Tenants with their limits, or the MIG instances of a GPU."""

    mode: str
    tenants: tuple[Share, ...] = ()  # empty under mig, where the instance is the limit
    layout: tuple[str, ...] = ()  # profiles, largest first
    turns: int = 1  # tenants that are time-sliced on each MIG instance
    gpu: str | None = None
    interval: str = "default"  # time-slice length
    name: str = "shared-gpu"
    namespace: str = "default"
    image: str = "example.com/tenant:1.0"
    queue: str = "default-queue"
    node: tuple[tuple[str, str], ...] = ()  # node selector

    def __post_init__(self) -> None:
        one_of("mode", self.mode, MODES)
        one_of("interval", self.interval, INTERVALS)
        for what in ("name", "namespace", "queue"):
            if not LABEL.fullmatch(getattr(self, what)):
                msg = f"not a valid {what} in Kubernetes: `{getattr(self, what)}`"
                raise BenchError(msg, hint="lower-case letters, digits and dashes, at most 50, such as `gpu-lab`")
        if not IMAGE.fullmatch(self.image):
            raise BenchError(f"not an image name: `{self.image}`", hint="such as `example.com/tenant:1.0`")
        for key, value in self.node:
            if not KEY.fullmatch(key) or not VALUE.fullmatch(value):
                msg = f"not a node label: `{key}={value}`"
                raise BenchError(msg, hint='as in node = {"nvidia.com/gpu.product" = "NVIDIA-H200"}')
        if self.gpu is not None and gpu_model(self.gpu).name != self.gpu:
            raise BenchError(f"not the full name of a GPU: `{self.gpu}`", hint=f"it is {gpu_model(self.gpu).name}")
        if self.mode == "mig":
            _instances(self)
        else:
            _sharers(self)

    @property
    def model(self) -> GpuModel | None:
        """The GPU model, if named."""
        return gpu_model(self.gpu) if self.gpu else None

    @property
    def equal(self) -> bool:
        """Whether all tenants have the same limits."""
        return len(set(self.tenants)) <= 1

    @property
    def counts(self) -> dict[str, int]:
        """Number of instances of each profile, largest first."""
        return dict(Counter(self.layout))


def by_size(layout: Sequence[str]) -> tuple[str, ...]:
    """Sort profiles, largest first.

    >>> by_size(["1g.18gb", "3g.71gb"])
    ('3g.71gb', '1g.18gb')
    """

    def size(profile: str) -> tuple[int, int, str]:
        match = PROFILE.fullmatch(profile)
        return (-int(match[1]), -int(match[2]), profile) if match else (0, 0, profile)

    return tuple(sorted(layout, key=size))


def gpus_with(profiles: Sequence[str], gpu: str | None) -> list[MigGpu]:
    """The GPU models that have all these profiles: the named one, or any known one."""
    names = [gpu] if gpu else list(BY_NAME)
    cuts = [cut for name in names if (cut := gpu_model(name).cut) is not None]
    return [cut for cut in cuts if set(profiles) <= {p.name for p in cut.profiles}]


def layout_error(cuts: Sequence[MigGpu], layout: Sequence[str]) -> BenchError | None:
    """Why a layout fits on none of these GPUs; `1g.10gb` exists on two models with different maximum counts."""
    why = None
    for cut in cuts:
        try:
            place(cut, layout)
        except BenchError as e:
            why = why or e
        else:
            return None
    return why


# --- validation ------------------------------------------------------------------------------------------------------


def one_of(what: str, word: str, there: Sequence[str]) -> None:
    """Reject an unknown value."""
    if word not in there:
        raise BenchError(f"unknown {what}: `{word}`", hint=f"there are {', '.join(there)}")


def _instances(spec: Spec) -> None:
    if spec.tenants:
        msg = "limits under mig: the instance is the limit"
        raise BenchError(msg, hint="omit percent, memory_mib, priority and fractions, or choose another mode")
    if not spec.layout:
        msg = "mig without a layout"
        raise BenchError(msg, hint='layout = "3g.71gb,2x2g.35gb"; `fleetlab share mig layouts --model H200` lists them')
    if not 1 <= spec.turns <= MOST:
        raise BenchError(f"not a number of time-sliced tenants: {spec.turns}", hint=f"from 1 to {MOST}")
    if spec.interval != "default":
        msg = "the time-slice length is set for a whole GPU, not for an instance"
        raise BenchError(msg, hint="omit interval under mig")
    if spec.model is not None and spec.model.cut is None:
        msg = f"{spec.gpu} does not support MIG"
        raise BenchError(msg, hint=f"models with MIG: {', '.join(m.name for m in BY_NAME.values() if m.cut)}")
    _possible(spec)


def _possible(spec: Spec) -> None:
    cuts = gpus_with(spec.layout, spec.gpu)
    if not cuts and spec.gpu is not None:
        cut = gpu_model(spec.gpu).cut
        assert cut is not None
        for profile in spec.layout:
            cut.profile(profile)  # raises an error with the profile that it lacks
    if not cuts:
        msg = f"no known GPU model has these profiles: {', '.join(dict.fromkeys(spec.layout))}"
        raise BenchError(msg, hint="`fleetlab share mig profiles --model H200` lists the profiles of a model")
    if why := layout_error(cuts, spec.layout):
        raise why


def _sharers(spec: Spec) -> None:
    if spec.layout or spec.turns != 1:
        raise BenchError(f"layout and turns need mode mig, not {spec.mode}", hint='mode = "mig"')
    least = 2 if spec.mode == "time-slicing" else 1
    if not least <= len(spec.tenants) <= MOST:
        many = f"more than {MOST}" if len(spec.tenants) > MOST else len(spec.tenants)
        msg = f"not a number of tenants for {spec.mode}: {many}"
        raise BenchError(msg, hint=f"{least} to {MOST}; a single tenant is mode exclusive")
    if spec.mode == "exclusive" and spec.tenants != (Share(),):
        msg = "mode exclusive has one tenant without limits"
        raise BenchError(msg, hint="omit replicas, fractions and limits, or choose another mode")
    if spec.interval != "default" and spec.mode != "time-slicing":
        raise BenchError(f"the time-slice length needs mode time-slicing, not {spec.mode}")
    for share in spec.tenants:
        if share.priority is not None and spec.mode != "mps":
            raise BenchError(f"a client's priority needs mode mps, not {spec.mode}")
        if (share.memory_mib or 0) > MOST_MIB:
            msg = f"a limit above the memory of any GPU: {share.memory_mib} MiB"
            raise BenchError(msg, hint="memory_mib is in MiB: 20000 is about 20 GB")
        if spec.model is not None and (share.memory_mib or 0) > spec.model.memory_mib:
            msg = f"a limit above the memory of the GPU {spec.gpu}: {share.memory_mib} MiB"
            raise BenchError(msg, hint=f"it has {spec.model.memory_mib} MiB")


# --- read and write a spec as a TOML file ----------------------------------------------------------------------------


LIMITS = ("percent", "memory_mib", "priority")
WORDS = ("name", "namespace", "image", "queue")
KEYS = ("mode", "gpu", "replicas", "fractions", *LIMITS, "layout", "turns", "interval", *WORDS, "node", "tenant")


def parse(text: str, source: str) -> Spec:
    """Parse a file into a spec."""
    try:
        about = tomllib.loads(text)
    except (ValueError, RecursionError) as e:
        raise BenchError(f"{source}: not TOML: {e}", hint='strings need quotes, such as mode = "mps"') from None
    if unknown := sorted(set(about) - set(KEYS)):
        raise BenchError(f"{source}: unknown key: {', '.join(unknown)}", hint=f"there are {', '.join(KEYS)}")
    try:
        return _spec(about)
    except BenchError as e:
        raise BenchError(f"{source}: {e}", hint=e.hint) from None


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
        raise BenchError("no mode", hint=f'mode = "mps"; there are {", ".join(MODES)}')
    one_of("mode", mode := _word(about, "mode", ""), MODES)
    gpu = gpu_model(_word(about, "gpu", "")).name if "gpu" in about else None
    words: dict[str, Any] = {key: _word(about, key, "") for key in ("interval", *WORDS) if key in about}
    if mode == "mig":
        if extra := [key for key in (*LIMITS, "fractions", "tenant") if key in about]:
            msg = f"limits under mig: {', '.join(extra)}"
            raise BenchError(msg, hint="the instance is the limit; layout lists the instances")
        layout = parse_layout(_word(about, "layout", "")) * _whole(about.get("replicas", 1), "replicas")
        turns = _whole(about.get("turns", 1), "turns")
        return Spec(mode, layout=by_size(layout), turns=turns, gpu=gpu, node=_node(about), **words)
    if extra := [key for key in ("layout", "turns") if key in about]:
        raise BenchError(f"{' and '.join(extra)} need mode mig, not `{mode}`", hint='mode = "mig"')
    return Spec(mode, _shares(about, mode, gpu), gpu=gpu, node=_node(about), **words)


def _shares(about: dict[str, Any], mode: str, gpu: str | None) -> tuple[Share, ...]:
    ways = [key for key in ("replicas", "fractions", "tenant") if key in about]
    if len(ways) > 1:
        raise BenchError(f"tenants are given twice: {' and '.join(ways)}", hint="replicas, or fractions, or [[tenant]]")
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


def _fractions(value: object, gpu: str | None, priority: int | None) -> tuple[Share, ...]:
    right = isinstance(value, list) and all(isinstance(f, int | float) and not isinstance(f, bool) for f in value)
    parts = [float(f) for f in value] if right and isinstance(value, list) else []
    if not parts or not all(math.isfinite(f) and 0.01 <= f <= 1 for f in parts):
        msg = f"not fractions of a GPU: {value}"
        raise BenchError(msg, hint="each from 0.01 to 1, as in fractions = [0.5, 0.25, 0.25]")
    if sum(parts) > 1 + 1e-9:
        msg = f"fractions exceed the GPU: {' + '.join(f'{f:g}' for f in parts)} = {sum(parts):g}"
        raise BenchError(msg, hint="they are parts of one GPU: at most 1 in total")
    whole = gpu_model(gpu).memory_mib if gpu else None
    # Rounded down, so that they fit together; an epsilon is added because 0.29 * 100 is 28.999….
    return tuple(Share(int(100 * f + 1e-9), None if whole is None else int(whole * f + 1e-9), priority) for f in parts)


def _each(about: dict[str, Any]) -> tuple[Share, ...]:
    tables = about["tenant"]
    if not isinstance(tables, list) or not all(isinstance(t, dict) for t in tables):
        raise BenchError("tenants must be tables", hint="[[tenant]] with percent, memory_mib or priority")
    if unknown := sorted({key for t in tables for key in t} - set(LIMITS)):
        raise BenchError(f"unknown key of a tenant: {', '.join(unknown)}", hint=f"there are {', '.join(LIMITS)}")
    if extra := [key for key in LIMITS if key in about]:
        raise BenchError(f"limits beside [[tenant]]: {', '.join(extra)}", hint="put them into each [[tenant]]")
    return tuple(Share(*(_limit(t, key) for key in LIMITS)) for t in tables)


def _node(about: dict[str, Any]) -> tuple[tuple[str, str], ...]:
    labels = about.get("node", {})
    if not isinstance(labels, dict) or not all(isinstance(v, str) for v in labels.values()):
        raise BenchError(f"not node labels: {labels}", hint='as in node = {"nvidia.com/gpu.product" = "NVIDIA-H200"}')
    return tuple(sorted(labels.items()))


def _word(about: dict[str, Any], key: str, default: str) -> str:
    value = about.get(key, default)
    if not isinstance(value, str):
        raise BenchError(f"{key} must be a string: {value}")
    return value


def _limit(about: dict[str, Any], key: str) -> int | None:
    value = about.get(key)
    if value is not None and (isinstance(value, bool) or not isinstance(value, int)):
        raise BenchError(f"{key} must be an integer: {value}")
    return value


def _whole(value: object, key: str) -> int:
    if isinstance(value, bool) or not isinstance(value, int) or not 1 <= value <= MOST:
        raise BenchError(f"{key} must be an integer from 1 to {MOST}: {value}")
    return value
