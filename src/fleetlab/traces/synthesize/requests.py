"""What jobs ask for: gang size, GPU share and type, CPUs and memory, as one joint law.

The published numbers count some things by jobs and some by instances; only a joint law of gang size and request can
say both at once.
"""

from __future__ import annotations

from dataclasses import dataclass
from functools import cache

import numpy as np

from fleetlab.traces.synthesize.joint_law import (
    CPU_ONLY,
    FULL,
    KNOWN_A_SECOND,
    LAWS,
    PRINTED,
    REQUEST_EDGES,
    TABLE,
    TYPES,
    Bools,
    Floats,
    Ints,
    Target,
    cores,
    curve,
    fit,
    gpus,
)

SIZES: Ints = np.array([int(size) for size in LAWS["size_mass"]])
MILLI: Ints = np.array([0, 50, 100, 150, 200, 250, 300, 500, 800, 1000, 2000, 4000, 6000, 8000])
CPUS: Ints = np.array([500, 1000, 2000, 3000, 4000, 5000, 6000, 8000, 10000, 12000, 16000, 18000, 32000, 64000])
# Requests are round in decimal megabytes: the figure's 29.3 GiB is 30,000.
MEMORY: Ints = np.array([2, 4, 6, 8, 10, 12, 15, 20, 25, 30, 35, 40, 50, 60, 80, 120, 200]) * 1000
USUAL_CPUS, USUAL_MEMORY = 6000, 30_000  # the medians
READ = 1024 * 1.03  # GiB of the figure to MiB, and the pixel by which it may be misread

# Instances a job: what the figure's law of sizes and the counted share of single instances imply together.
# The «7.5 million instances» of the text would make it 5.95: docs/measurements/synthesize.md tells why both cannot be.
PER_JOB = 5.46
# Of the 82,184 GPU jobs in the authors' own sample of 100,000; their median is 6 CPUs.
PER_GPU_JOB = 5.0
CPUS_PER_GPU_JOB = 6916.0

# How a class of request leans to a type before the published shares are asked for: T4, MISC, P100, V100, V100M32.
# More than one GPU is mostly asked for where nodes have eight and NVLink.
LEANING: Floats = np.array(
    [
        [0.15, 0.83, 0.02, 0.005, 0.005],
        [0.25, 0.72, 0.03, 0.005, 0.005],
        [0.45, 0.45, 0.09, 0.010, 0.005],
        [0.17, 0.66, 0.13, 0.030, 0.010],
        [0.10, 0.25, 0.05, 0.350, 0.250],
    ]
)
# Seconds that a GPU and a CPU of a type are held, by the fitted law of run times: with them the published allocation
# asks for so many a job. Were gangs spread over types by chance, MISC would be full and V100 empty.
RUN_TIME = {"MISC": 6470.0, "V100": 9421.0, "V100M32": 12227.0}
CPU_RUN_TIME = {"MISC": 6614.0, "V100": 9347.0, "V100M32": 12104.0}
# Types whose nodes have more CPUs held a GPU: what a job there asks for before the fit, in milli at one GPU.
PLENTY, PLENTIFUL = ("V100", "V100M32"), 9000
THOUSAND_GPUS = 4.0  # jobs of the whole trace that ask for more than 1,000: «some» did
ROOM = 2  # a gang asks for no more than this part of its pool: else the simulator could never start it

EXACT, DIGITISED, LOOSE = 1e-4, 3e-3, 6e-3


@dataclass(frozen=True, slots=True)
class RequestShapes:
    """Every combination of requests that occurs, with its share of the jobs."""

    share: Floats
    instances: Ints
    gpu_milli: Ints
    type: Ints  # of TYPES, or CPU_ONLY
    cpu_milli: Ints
    memory_mib: Ints
    kind: Ints  # of size, GPU share and type: rises with the row
    first: Ints  # row of each kind, and one past the last


def request_class(gpu_milli: Ints) -> Ints:
    """Which class of REQUESTS a GPU request is in."""
    return np.searchsorted(REQUEST_EDGES, gpu_milli, side="right")


@cache
def shapes() -> RequestShapes:
    """Join the laws: size and GPU share, type given those, CPUs given those, memory given size and CPUs."""
    law = _gangs()
    typed = _types(law)
    cpus = _cpus(typed)
    of_size = cpus.sum(axis=(1, 2))
    memory = _memory(of_size)
    with np.errstate(invalid="ignore", divide="ignore"):
        memory_part = np.nan_to_num(memory / of_size[:, :, None])
    joint = cpus[..., None] * memory_part[:, None, None, :, :]
    joint *= _fits()
    # What does not fit on a node is asked for in another shape of the same size, share and type.
    joint *= (typed / np.maximum(joint.sum(axis=(3, 4)), 1e-300))[..., None, None]
    at = np.nonzero(joint > 1e-13)
    share = joint[at] / joint[at].sum()
    _, first, kind = np.unique(np.ravel_multi_index(at[:3], joint.shape[:3]), return_index=True, return_inverse=True)
    return RequestShapes(
        np.round(share, 14),
        SIZES[at[0]],
        MILLI[at[1]],
        at[2].astype(np.int64),
        CPUS[at[3]],
        MEMORY[at[4]],
        kind.astype(np.int64),
        np.append(first, len(share)),
    )


def _gangs() -> Floats:
    """Fit gang size × GPU share to what is known of each by jobs, by instances, and of their product."""
    size, milli = SIZES[:, None], MILLI[None, :]
    counted = {int(m): n / TABLE["rows"] for m, n in TABLE["gpu_milli"].items()}
    gpu, some = 1 - counted[0], (milli > 0).astype(float)
    constraints = [
        Target((size == 1) * 1.0, TABLE["single"] / TABLE["rows"], EXACT),
        Target(size.astype(float), PER_JOB, 0.01),
        Target(some * size, PER_GPU_JOB * gpu, 0.1),
        Target(milli / 1000, PRINTED["gpus_per_instance_mean"] * gpu, 1e-3),
        Target(some * (milli < 250), LAWS["request_share"]["<0.25"] * gpu, 1e-3),
        Target((milli > 1000).astype(float), LAWS["request_share"][">1"] * gpu, 5e-4),
        *[Target((milli == m) * 1.0, share, EXACT) for m, share in counted.items()],
    ]
    for below, percent in zip(*curve(LAWS["size_below"]), strict=True):
        constraints.append(Target((size < below) * size / PER_JOB, percent / 100, DIGITISED))
    for upto, percent in zip(*curve(LAWS["gpu_request_cdf"]), strict=True):
        constraints.append(Target(some * ((milli <= upto * 1000) - percent / 100) * size / PER_JOB, 0.0, DIGITISED))
    for upto, percent in zip(*curve(LAWS["job_total_cdf"]["gpu"]), strict=True):
        constraints.append(Target(some * (size * milli <= upto * 1000), percent / 100 * gpu, LOOSE))
    of_gangs = ((size > 1) - PRINTED["gang_demand"]) * size * milli / 1000
    # Loosely, by a part of the GPUs a job asks for: more firmly, it would be had of gangs of hundreds of GPUs.
    constraints.append(Target(of_gangs, 0.0, 0.2))
    constraints.append(Target(np.where(size * milli > 1_000_000, float(FULL), 0.0), THOUSAND_GPUS, 0.1))
    mass = np.array(list(LAWS["size_mass"].values())) / SIZES
    # Large gangs ask for single GPUs or shares of one; of those that ask for more than 500 a real sample has none.
    total = size * milli
    rare = np.where((milli > 1000) & (size > 64), 1e-6, 1.0) * np.where(total > 500_000, 1e-9, 1.0)
    rare = np.where(total > 1_000_000, (milli == 1000) * 1.0, rare)
    prior = mass[:, None] * np.array([counted.get(int(m), 0.003) for m in MILLI]) * rare
    return fit("gangs", prior / prior.sum(), constraints)


def _types(law: Floats) -> Floats:
    """Fit the type, given size and share, to the published shares of types; a job without a GPU has none."""
    gpu = law[:, 1:]
    lean = LEANING[request_class(MILLI[1:])]
    fits = _fits()[:, 1:, :CPU_ONLY]
    # A gang goes where it fits with the CPUs and memory that most ask for: elsewhere it would have to ask for less.
    usual = fits[..., CPUS == USUAL_CPUS, MEMORY == USUAL_MEMORY]
    prior = lean * fits.any(axis=(3, 4)) * np.where(usual[..., 0], 1.0, 1e-9)
    constraints = [
        Target(np.eye(len(TYPES))[k], share * gpu.sum(), 3e-4) for k, share in enumerate(LAWS["type_share"].values())
    ]
    requested = (SIZES[:, None] * MILLI[None, 1:] / 1000)[:, :, None]
    for name, part in PRINTED["gpus_allocated"].items():
        allocated = part * gpus(name) / KNOWN_A_SECOND / RUN_TIME[name]
        constraints.append(Target(requested * np.eye(len(TYPES))[TYPES.index(name)], allocated, 0.01 * allocated))
    typed = np.zeros((*law.shape, CPU_ONLY + 1))
    typed[:, 1:, :CPU_ONLY] = fit("types", prior, constraints, marginal=gpu)
    typed[:, 0, CPU_ONLY] = law[:, 0]
    return typed


def _cpus(law: Floats) -> Floats:
    """Fit CPUs, given size, share and type: more GPUs come with more CPUs, and on V100 nodes still more."""
    size, cpus = SIZES[:, None, None, None], CPUS[None, None, None, :]
    constraints = [
        Target((cpus <= upto * 1000) * size / PER_JOB, percent / 100, DIGITISED)
        for upto, percent in zip(*curve(LAWS["cpu_request_cdf"]), strict=True)
    ]
    constraints += [
        Target((size * cpus <= upto * 1000) * 1.0, percent / 100, LOOSE)
        for upto, percent in zip(*curve(LAWS["job_total_cdf"]["cpu"]), strict=True)
    ]
    some = (MILLI > 0)[None, :, None, None] / law[:, 1:].sum()
    constraints += [Target(some * cpus, CPUS_PER_GPU_JOB, 50.0), Target(some * (cpus < 6000), 0.42, 0.02)]
    for name, part in PRINTED["cpus_allocated"].items():
        allocated = 1000 * part * cores(name) / KNOWN_A_SECOND / CPU_RUN_TIME[name]
        mine = np.eye(CPU_ONLY + 1)[TYPES.index(name)][:, None]
        constraints.append(Target(size * cpus * mine, allocated, 0.01 * allocated))
    plenty = np.array([name in PLENTY for name in (*TYPES, None)])
    whole = np.maximum(1, MILLI / 1000)[:, None]
    heart = np.where(plenty, PLENTIFUL * whole**0.8, 6000 * whole**0.6)[None, :, :, None]
    fits = np.where(_fits().any(axis=4), 1.0, 1e-12)
    return fit("cpus", _near(cpus / heart, 0.9) * fits, constraints, marginal=law)


def _memory(law: Floats) -> Floats:
    """Fit memory, given size and CPUs: about five gigabytes a CPU."""
    size, memory = SIZES[:, None, None], MEMORY[None, None, :]
    constraints = [
        Target((memory <= upto * READ) * size / PER_JOB, percent / 100, DIGITISED)
        for upto, percent in zip(*curve(LAWS["memory_request_cdf"]), strict=True)
    ]
    constraints += [
        Target((size * memory <= upto * READ) * 1.0, percent / 100, LOOSE)
        for upto, percent in zip(*curve(LAWS["job_total_cdf"]["memory"]), strict=True)
    ]
    prior = np.broadcast_to(_near(memory / (5 * CPUS[None, :, None]), 0.9), (*law.shape, len(MEMORY)))
    return fit("memory", prior, constraints, marginal=law)


def _near(ratio: Floats, spread: float) -> Floats:
    """Weigh down what is far from the usual, by factors and not by differences."""
    weight: Floats = np.exp(-0.5 * (np.log(ratio) / spread) ** 2)
    return weight


@cache
def _fits() -> Bools:
    """Could a gang of this shape start on the empty nodes of this type, and leave capacity for others?"""
    milli, cpus, memory = MILLI[:, None, None], CPUS[None, :, None], MEMORY[None, None, :]
    instances = np.zeros((CPU_ONLY + 1, len(MILLI), len(CPUS), len(MEMORY)), dtype=np.int64)
    for m in LAWS["machines"]:
        a_gpu = np.where(
            milli < 1000, 1000 // np.maximum(milli, 1) * m["gpus"], m["gpus"] * 1000 // np.maximum(milli, 1)
        )
        by_gpu = np.where(milli == 0, 1 << 20, a_gpu)
        on_node = np.minimum(by_gpu, np.minimum(m["cpus"] * 1000 // cpus, m["memory_gb"] * 1024 // memory))
        at = TYPES.index(m["gpu_type"]) if m["gpu_type"] else CPU_ONLY
        instances[at] += m["nodes"] * on_node
    return np.moveaxis(instances, 0, 1)[None] >= ROOM * SIZES[:, None, None, None, None]
