"""GPUs as Kubernetes pods ask for them: whole, shared, sliced, or by share of cores or memory; all as milli of a GPU.

A share asked for by memory alone is that part of a GPU's memory. MIG slices are rounded down: seven of 142 fit on a GPU
and seven of 143 would not. A profile's size is in gigabytes, as its name says: in gibibytes the slices of a GPU would
add up to more than it has.
"""

from __future__ import annotations

import re
from collections.abc import Mapping
from dataclasses import dataclass
from fractions import Fraction
from math import ceil

WHOLE = (
    "amd.com/gpu", "gpu.intel.com/i915", "gpu.intel.com/xe", "aliyun.com/gpu", "aliyun.com/gpu-count",
)  # fmt: skip
SHARED = "nvidia.com/gpu.shared"
NVIDIA = "nvidia.com/gpu"
VOLCANO = "volcano.sh/vgpu-number"
# HAMi and Volcano: a number of GPUs, and of each so much memory, in MiB or percent, and so many percent of its cores.
OF_EACH = {
    NVIDIA: ("nvidia.com/gpumem", "nvidia.com/gpumem-percentage", "nvidia.com/gpucores"),
    VOLCANO: ("volcano.sh/vgpu-memory", "volcano.sh/vgpu-memory-percentage", "volcano.sh/vgpu-cores"),
}
ALIYUN_MEMORY, ALIYUN_CORES = "aliyun.com/gpu-mem", "aliyun.com/gpu-core.percentage"
KNOWN = {*WHOLE, SHARED, ALIYUN_MEMORY, ALIYUN_CORES, *OF_EACH, *(name for parts in OF_EACH.values() for name in parts)}

PROFILE = re.compile(r"(?:([1-7])c\.)?([1-7])g\.(\d{1,4})gb(?:[.+](?:me|gfx)(?:\.all)?)?")
MIG = re.compile(rf"nvidia\.com/mig-({PROFILE.pattern})(\.shared)?")
QUARTERED = ("A30", "RTX-PRO")  # their GPUs have four slices, all others seven
QUARTERS = {(1, 6), (2, 12), (4, 24)}  # and so these profiles tell, where no product is named


@dataclass(frozen=True)
class NodeGpus:
    """What is known of the GPUs that a pod runs on, or could."""

    memory: int | None = None  # MiB
    replicas: int | None = 1  # shares that each is advertised as; None if not known
    profile: str | None = None  # of MIG, where slices are advertised as GPUs
    product: str = ""


@dataclass(frozen=True)
class GpuRequest:
    """A demand for GPUs that can be added up."""

    milli: Fraction = Fraction(0)
    memory: Fraction = Fraction(0)  # MiB
    unsized: bool = False  # the size of a share is not known: the whole GPU is counted
    rounded: bool = False  # shares of several GPUs: whole ones are counted

    def __add__(self, other: GpuRequest) -> GpuRequest:
        unsized, rounded = self.unsized or other.unsized, self.rounded or other.rounded
        return GpuRequest(self.milli + other.milli, self.memory + other.memory, unsized, rounded)

    def times(self, n: Fraction) -> GpuRequest:
        """That much, `n` times, wherever it fits."""
        return GpuRequest(self.milli * n, self.memory * n, self.unsized and n > 0, self.rounded and n > 0)

    def of_each(self, n: Fraction) -> GpuRequest:
        """That much of each of `n` GPUs: a workload knows shares of one only, so several are taken whole."""
        if n <= 1:
            return self.times(n)
        whole = Fraction(1000 * ceil(self.milli / 1000))
        return GpuRequest(whole * n, self.memory * n, self.unsized, self.rounded or whole != self.milli)


GPU = GpuRequest(Fraction(1000))


def gpu_request(requests: Mapping[str, Fraction], card: NodeGpus) -> GpuRequest:
    """What one container asks for in all."""
    total = GpuRequest()
    if not any("/" in name for name in requests):
        return total  # most ask for CPU and memory alone
    for name, n in requests.items():
        if name in WHOLE:
            total += GPU.times(n)
        elif name == SHARED:
            total += _replica(card).times(n)
        elif mig := MIG.fullmatch(name):
            total += slice_of(mig[1], card.product).times(n / (card.replicas or 1) if mig[5] else n)
    for name in OF_EACH:
        total += _virtual(requests, name, card)
    return total + _aliyun(requests, card)


def _replica(card: NodeGpus) -> GpuRequest:
    if card.replicas is None or card.replicas < 2:
        return GpuRequest(Fraction(1000), unsized=True)
    return GpuRequest(Fraction(max(1, 1000 // card.replicas)))


def _virtual(requests: Mapping[str, Fraction], name: str, card: NodeGpus) -> GpuRequest:
    memory, percent, cores = (requests.get(part, Fraction(0)) for part in OF_EACH[name])
    n = requests.get(name, Fraction(1 if memory or percent or cores else 0))
    if percent and card.memory:
        memory = percent * card.memory / 100
    if cores:
        return GpuRequest(min(cores * 10, Fraction(1000)), memory).of_each(n)
    if percent:
        return GpuRequest(min(percent * 10, Fraction(1000)), memory).of_each(n)
    return by_memory(memory, card).of_each(n) if memory else _advertised(card).times(n)


def _advertised(card: NodeGpus) -> GpuRequest:
    """One of what the device plugin calls a GPU: it may be a replica or a slice of one."""
    if card.profile:
        return slice_of(card.profile, card.product)
    return _replica(card) if (card.replicas or 1) > 1 else GPU


def _aliyun(requests: Mapping[str, Fraction], card: NodeGpus) -> GpuRequest:
    memory, cores = requests.get(ALIYUN_MEMORY, Fraction(0)), requests.get(ALIYUN_CORES, Fraction(0))
    memory *= 1024 if memory < 1000 else 1  # in GiB; clusters set up in MiB have larger numbers
    if cores:
        return GpuRequest(cores * 10, memory)
    return by_memory(memory, card) if memory else GpuRequest()


def by_memory(memory: Fraction, card: NodeGpus) -> GpuRequest:
    """A share of a GPU by its memory, in MiB; more than a GPU has is several of them."""
    if not card.memory:
        return GpuRequest(Fraction(1000), memory, unsized=True)
    return GpuRequest(max(Fraction(1), 1000 * memory / card.memory), memory)


def slice_of(profile: str, product: str) -> GpuRequest:
    """A MIG slice by its profile: `1g.5gb`, `3g.40gb`, or `1c.3g.40gb` for a part of its cores."""
    form = PROFILE.fullmatch(profile)
    if not form:
        return GpuRequest(Fraction(1000), unsized=True)
    cores, memory = int(form[1] or form[2]), int(form[3]) * 10**9 // 2**20
    slices = slices_of(profile, product)
    # The largest is the GPU itself, and its memory is whatever the GPU has.
    return GpuRequest(Fraction(1000 * cores // slices), Fraction(memory)) if cores < slices else GPU


def slices_of(profile: str, product: str) -> int:
    """How many compute slices the GPU has that a profile is cut from."""
    form = PROFILE.fullmatch(profile)
    quarter = form is not None and (int(form[2]), int(form[3])) in QUARTERS
    return 4 if quarter or any(name in product.upper() for name in QUARTERED) else 7
