"""GPU models with MIG: their profiles and placements, and the profiles of an installed GPU.

Sources. Names, fractions and counts: NVIDIA, Multi-Instance GPU User Guide, "Supported MIG Profiles". SMs, usable
memory and profile ids are listings of `nvidia-smi mig -lgip`, start positions of `-lgipp`:

- A100: the guide, "Getting Started with MIG"; without MIG it has 108 SMs (NVIDIA's Ampere white paper).
- A30: public listings of owners, with both commands.
- H100 SXM 80 GB, H100 NVL 94 GB (Colfax Research, 2024) and GH200 96 GB, which is an H100: public listings. An H100
  PCIe has 114 SMs and is not among them.
- H200: our own probe (docs/measurements/h200/probe.json).
- B200: NVIDIA/mig-parted, pull requests 166 and 187. The text that we could read ends after 2g.45gb, see its note.
- RTX PRO 6000 Blackwell: GoogleCloudPlatform/container-engine-accelerators pull request 564, and a public `-lgipp`.

Usable memory differs by up to 1.5 GiB between drivers, so an installed GPU is queried.
"""

from __future__ import annotations

import re
from collections.abc import Sequence

from fleetlab.devices import nvidia_smi
from fleetlab.devices.errors import BenchError
from fleetlab.sharing.mig.profiles import MigGpu, MigProfile, parse_placements, parse_profiles

# Profile ids and placements of GPUs with 7 compute and 8 memory slices: id, memory slices, starts, maximum count.
SEVEN = {
    "1": (19, 1, (0, 1, 2, 3, 4, 5, 6), 7),
    "1+me": (20, 1, (0, 1, 2, 3, 4, 5, 6), 1),
    "1 wide": (15, 2, (0, 2, 4, 6), 4),
    "2": (14, 2, (0, 2, 4), 3),
    "3": (9, 4, (0, 4), 2),
    "4": (5, 4, (0,), 1),
    "7": (0, 8, (0,), 1),
}
AMPERE, HOPPER = (14, 14, 14, 28, 42, 56, 98), (16, 16, 26, 32, 60, 64, 132)  # SMs
BLACKWELL = (18, 18, 30, 36, 54, 72, 148)
B200_NOTE = "SMs and memory of 3g, 4g and 7g are not from a listing: 18 SMs per slice at least, twice the memory of 2g"


def _seven(
    name: str, gigabytes: tuple[int, int, int, int], sms: Sequence[int], gib: Sequence[float], whole: int
) -> MigGpu:
    one, two, half, all_ = gigabytes
    names = [f"1g.{one}gb", f"1g.{one}gb+me", f"1g.{two}gb", f"2g.{two}gb", f"3g.{half}gb", f"4g.{half}gb"]
    usable = (gib[0], gib[0], gib[1], gib[1], gib[2], gib[2], gib[3])
    rows = zip([*names, f"7g.{all_}gb"], SEVEN.values(), sms, usable, strict=True)
    profiles = tuple(MigProfile(name, i, n, m, most, size, at) for name, (i, size, at, most), n, m in rows)
    return MigGpu(name, profiles, whole, (B200_NOTE,) if sms is BLACKWELL else ())


A30 = MigGpu(
    "A30-24",
    (
        MigProfile("1g.6gb", 14, 14, 5.81, 4, 1, (0, 1, 2, 3)),
        MigProfile("1g.6gb+me", 21, 14, 5.81, 1, 1, (0, 1, 2, 3)),
        MigProfile("2g.12gb", 5, 28, 11.69, 2, 2, (0, 2)),
        MigProfile("2g.12gb+me", 6, 28, 11.69, 1, 2, (0, 2)),
        MigProfile("4g.24gb", 0, 56, 23.44, 1, 4, (0,)),
    ),
    56,
)


def _rtx_pro(ids: dict[str, int], sms: int, gib: float, size: int, starts: tuple[int, ...]) -> list[MigProfile]:
    return [
        MigProfile(name, number, sms, gib, 1 if "+me" in name else len(starts), size, starts)
        for name, number in ids.items()
    ]


QUARTER = {"1g.24gb": 14, "1g.24gb+me": 21, "1g.24gb+gfx": 47, "1g.24gb+me.all": 65, "1g.24gb-me": 67}
HALF = {"2g.48gb": 5, "2g.48gb+gfx": 35, "2g.48gb+me.all": 64, "2g.48gb-me": 66}
RTX_PRO_6000 = MigGpu(
    "RTX-PRO-6000-96",
    (
        *_rtx_pro(QUARTER, 46, 23.62, 3, (0, 3, 6, 9)),
        *_rtx_pro(HALF, 94, 47.38, 6, (0, 6)),
        *_rtx_pro({"4g.96gb": 0, "4g.96gb+gfx": 32}, 188, 95.0, 12, (0,)),
    ),
    188,
)

BY_NAME = {
    model.name: model
    for model in (
        A30,
        _seven("A100-40", (5, 10, 20, 40), AMPERE, (4.75, 9.62, 19.5, 39.25), 108),
        _seven("A100-80", (10, 20, 40, 80), AMPERE, (9.5, 19.5, 39.25, 79.0), 108),
        _seven("H100-80", (10, 20, 40, 80), HOPPER, (9.75, 19.62, 39.5, 79.25), 132),
        _seven("H100-94", (12, 24, 47, 94), HOPPER, (10.75, 21.62, 46.38, 93.12), 132),
        _seven("GH200-96", (12, 24, 48, 96), HOPPER, (11.0, 23.0, 46.5, 93.0), 132),
        _seven("H200-141", (18, 35, 71, 141), HOPPER, (16.0, 32.5, 69.75, 140.0), 132),
        _seven("B200-180", (23, 45, 90, 180), BLACKWELL, (20.5, 44.25, 88.5, 177.0), 148),
        RTX_PRO_6000,
    )
}
# Product names as the driver reports them; the first that matches.
PRODUCTS = {
    r"A30\b": "A30-24",
    r"A100.*\b40GB": "A100-40",
    r"A100.*\b80GB": "A100-80",
    r"GH200 480GB": "GH200-96",
    r"H100 NVL": "H100-94",
    r"H100 (80GB|SXM)": "H100-80",
    r"H200": "H200-141",
    r"\bB200": "B200-180",
    r"RTX PRO 6000 Blackwell": "RTX-PRO-6000-96",
}


def mig_gpu(name: str) -> MigGpu:
    """Look up a GPU model; a prefix such as `H200` is enough if it is unambiguous, as is a product name of NVIDIA.

    >>> mig_gpu("H200").profile("3g.71gb").sms, mig_gpu("NVIDIA A100-SXM4-40GB").name
    (60, 'A100-40')
    """
    matches = [cut for model, cut in BY_NAME.items() if model.lower().startswith(name.lower())] if name else []
    exact = [cut for cut in matches if cut.name.lower() == name.lower()]
    products = [BY_NAME[model] for pattern, model in PRODUCTS.items() if re.search(pattern, name)][:1]
    for found in (exact, matches, products):
        if len(found) == 1:
            return found[0]
    several = f"ambiguous GPU model: `{name}`" if matches else f"unknown GPU model with MIG: `{name}`"
    raise BenchError(several, hint=f"there are {', '.join(c.name for c in matches) or ', '.join(BY_NAME)}")


def gpu_profiles(index: int) -> MigGpu:
    """Query the profiles of an installed GPU; placements that the driver does not report come from the known models."""
    one = nvidia_smi.gpu(index)
    if one.mig is None:
        msg = f"GPU {index} does not support MIG: {one.name}"
        raise BenchError(msg, hint=f"known models with MIG: {', '.join(BY_NAME)}")
    rows = parse_profiles(nvidia_smi.run_smi("mig", "-i", str(index), "-lgip"), index)
    try:
        placements = parse_placements(nvidia_smi.run_smi("mig", "-i", str(index), "-lgipp"), index)
    except BenchError:
        placements = {}  # some drivers report placements only in MIG mode
    profiles = tuple(_placed(row, placements) for row in rows)
    return MigGpu(one.name, profiles, max(_whole(one.name), *(p.sms for p in profiles)))


def _whole(product: str) -> int:
    try:
        return mig_gpu(product).sms
    except BenchError:
        return 0  # nvidia-smi does not report the SMs of a GPU; its largest instance is a lower limit


def _placed(row: tuple[str, int, int, float, int], told: dict[int, tuple[int, tuple[int, ...]]]) -> MigProfile:
    name, number, sms, gib, most = row
    if number in told:
        size, starts = told[number]
        return MigProfile(name, number, sms, gib, most, size, starts)
    for cut in BY_NAME.values():
        for profile in cut.profiles:
            if (profile.name, profile.id) == (name, number):
                return MigProfile(name, number, sms, gib, most, profile.size, profile.starts)
    msg = f"unknown placements of profile `{name}`: nvidia-smi does not report them"
    raise BenchError(msg, hint="enable MIG by hand and run `nvidia-smi mig -lgipp`")
