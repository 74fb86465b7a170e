"""A spec: one way to share a GPU, independent of any stack. Validated once, immutable."""

from __future__ import annotations

import re
from collections import Counter
from collections.abc import Sequence
from dataclasses import dataclass

from fleetlab.devices.errors import BenchError
from fleetlab.sharing.mig.layouts import place
from fleetlab.sharing.mig.profiles import MigGpu
from fleetlab.sharing.modes import Share
from fleetlab.stacks import gpu_models

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
        _words(self)
        if self.mode == "mig":
            _instances(self)
        else:
            _sharers(self)

    @property
    def model(self) -> gpu_models.GpuModel | None:
        """The GPU model, if named."""
        return gpu_models.gpu_model(self.gpu) if self.gpu else None

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
    names = [gpu] if gpu else list(gpu_models.BY_NAME)
    cuts = [cut for name in names if (cut := gpu_models.gpu_model(name).cut) is not None]
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
        msg = f"unknown {what}: `{word}`"
        raise BenchError(msg, hint=f"there are {', '.join(there)}")


def _words(spec: Spec) -> None:
    for what in ("name", "namespace", "queue"):
        if not LABEL.fullmatch(getattr(spec, what)):
            msg = f"not a valid {what} in Kubernetes: `{getattr(spec, what)}`"
            raise BenchError(msg, hint="lower-case letters, digits and dashes, at most 50, such as `gpu-lab`")
    if not IMAGE.fullmatch(spec.image):
        msg = f"not an image name: `{spec.image}`"
        raise BenchError(msg, hint="such as `example.com/tenant:1.0`")
    for key, value in spec.node:
        if not KEY.fullmatch(key) or not VALUE.fullmatch(value):
            msg = f"not a node label: `{key}={value}`"
            raise BenchError(msg, hint='as in node = {"nvidia.com/gpu.product" = "NVIDIA-H200"}')
    if spec.gpu is not None and gpu_models.gpu_model(spec.gpu).name != spec.gpu:
        msg = f"not the full name of a GPU: `{spec.gpu}`"
        raise BenchError(msg, hint=f"it is {gpu_models.gpu_model(spec.gpu).name}")


def _instances(spec: Spec) -> None:
    if spec.tenants:
        msg = "limits under mig: the instance is the limit"
        raise BenchError(msg, hint="omit percent, memory_mib, priority and fractions, or choose another mode")
    if not spec.layout:
        msg = "mig without a layout"
        raise BenchError(msg, hint='layout = "3g.71gb,2x2g.35gb"; `fleetlab share mig layouts --model H200` lists them')
    if not 1 <= spec.turns <= MOST:
        msg = f"not a number of time-sliced tenants: {spec.turns}"
        raise BenchError(msg, hint=f"from 1 to {MOST}")
    if spec.interval != "default":
        msg = "the time-slice length is set for a whole GPU, not for an instance"
        raise BenchError(msg, hint="omit interval under mig")
    if spec.model is not None and spec.model.cut is None:
        msg = f"{spec.gpu} does not support MIG"
        raise BenchError(
            msg, hint=f"models with MIG: {', '.join(m.name for m in gpu_models.BY_NAME.values() if m.cut)}"
        )
    _possible(spec)


def _possible(spec: Spec) -> None:
    cuts = gpus_with(spec.layout, spec.gpu)
    if not cuts and spec.gpu is not None:
        cut = gpu_models.gpu_model(spec.gpu).cut
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
        msg = f"layout and turns need mode mig, not {spec.mode}"
        raise BenchError(msg, hint='mode = "mig"')
    least = 2 if spec.mode == "time-slicing" else 1
    if not least <= len(spec.tenants) <= MOST:
        many = f"more than {MOST}" if len(spec.tenants) > MOST else len(spec.tenants)
        msg = f"not a number of tenants for {spec.mode}: {many}"
        raise BenchError(msg, hint=f"{least} to {MOST}; a single tenant is mode exclusive")
    if spec.mode == "exclusive" and spec.tenants != (Share(),):
        msg = "mode exclusive has one tenant without limits"
        raise BenchError(msg, hint="omit replicas, fractions and limits, or choose another mode")
    if spec.interval != "default" and spec.mode != "time-slicing":
        msg = f"the time-slice length needs mode time-slicing, not {spec.mode}"
        raise BenchError(msg)
    for share in spec.tenants:
        if share.priority is not None and spec.mode != "mps":
            msg = f"a client's priority needs mode mps, not {spec.mode}"
            raise BenchError(msg)
        if (share.memory_mib or 0) > MOST_MIB:
            msg = f"a limit above the memory of any GPU: {share.memory_mib} MiB"
            raise BenchError(msg, hint="memory_mib is in MiB: 20000 is about 20 GB")
        if spec.model is not None and (share.memory_mib or 0) > spec.model.memory_mib:
            msg = f"a limit above the memory of the GPU {spec.gpu}: {share.memory_mib} MiB"
            raise BenchError(msg, hint=f"it has {spec.model.memory_mib} MiB")
