"""Options of the commands that measure: a suite, one workload alone, and a stress test."""

from __future__ import annotations

from dataclasses import KW_ONLY, dataclass
from pathlib import Path

from fleetlab.gpu.devices.console import BenchError, check_seed


@dataclass(frozen=True, slots=True)
class SuiteOptions:
    """Measure a plan, cell by cell. Run the same command again to resume.

    Parameters
    ----------
    plan
        quick, solo, sm-curve, pairs-ts, pairs-mps, pairs-mps-50, breaking, classes, stressors, serving, crowded,
        heldout, neighbors, llm, notebook, mig, or a TOML file.
    out
        Folder for the results.
    limit
        Time limit in seconds: no cell starts after it.
    blocks
        Measurements of each cell (default: as in the plan).
    settle
        Seconds that a cell runs before its measurement (default: as in the plan).
    window
        Seconds of a measurement (default: as in the plan).
    seed
        Seed of the order of cells and of the tenants' data.
    device
        cuda, cuda:N or cpu.
    rehearse
        Run on the CPU with tiny sizes, to test a plan: the same code, but the results are meaningless.
    allow_mig
        Allow the suite to partition the GPU whose UUID is in the environment variable FLEETLAB_ALLOW_MIG.
    """

    plan: str
    _: KW_ONLY
    out: Path
    limit: float = 3600
    blocks: int | None = None
    settle: float | None = None
    window: float | None = None
    seed: int = 0
    device: str = "cuda"
    rehearse: bool = False
    allow_mig: bool = False

    def __post_init__(self) -> None:
        check_seed(self.seed)


@dataclass(frozen=True, slots=True)
class AllOptions:
    """Measure all sharing modes that the GPU allows, within a time budget. Run the same command again to resume.

    Parameters
    ----------
    out
        Folder for the results: one suite per stage, and all.json.
    minutes
        Time budget: stages are chosen and shortened so that they fit; with more, a later run adds stages.
    stages
        Plans or TOML files, separated by commas (default: all, as many as fit, the most useful first).
    seed
        Seed of the order of cells and of the tenants' data.
    device
        cuda, cuda:N or cpu.
    allow_mig
        Allow stages with MIG to partition the GPU whose UUID is in the environment variable FLEETLAB_ALLOW_MIG.
    rehearse
        Run on the CPU with tiny sizes, to test the sequence: the same code, but the results are meaningless.
    """

    _: KW_ONLY
    out: Path
    minutes: float = 60
    stages: str = ""
    seed: int = 0
    device: str = "cuda"
    allow_mig: bool = False
    rehearse: bool = False

    def __post_init__(self) -> None:
        check_seed(self.seed)
        if not 0 < self.minutes < 1e6:
            raise BenchError(f"not a time budget: {self.minutes} minutes")


@dataclass(frozen=True, slots=True)
class WorkloadOptions:
    """Run one workload alone: training, inference, decoding, small kernels, or a stressor of one resource.

    Parameters
    ----------
    name
        resnet-train, bert-train, resnet-infer, bert-infer, llm-decode, llm-serve, launch, interactive, notebook, gemm,
        hbm, l2, h2d, or your own as module:Class.
    seconds
        Length of a measurement (default: 10), or time limit of a training.
    epochs
        Epochs of a training (default: 1).
    steps
        Number of steps.
    batch
        Batch size.
    batches
        Batch sizes of inference, such as 1,2,4,8 (default: 1,2,4,8,16,32).
    rate
        Learning rate.
    data
        Folder with CIFAR-10 for resnet-train, binary or Python version (default: synthetic images).
    set
        Any setting of the workload as KEY=VALUE; may be repeated.
    device
        cuda, cuda:N or cpu.
    tiny
        Tiny sizes for a CPU: the same code, but the results are meaningless.
    seed
        Seed of weights, data and pauses.
    out
        Folder for statistics.json and, of a training, model.pt; both are written after each epoch.
    """

    name: str
    _: KW_ONLY
    seconds: float | None = None
    epochs: int | None = None
    steps: int | None = None
    batch: int | None = None
    batches: str | None = None
    rate: float | None = None
    data: Path | None = None
    set: tuple[str, ...] = ()
    device: str = "cuda"
    tiny: bool = False
    seed: int = 0
    out: Path | None = None

    def __post_init__(self) -> None:
        check_seed(self.seed)

    @property
    def words(self) -> list[str]:
        """Settings of the workload as KEY=VALUE, with those that have options of their own."""
        own = {key: getattr(self, key) for key in ("batch", "rate", "data")}
        return [*self.set, *(f"{key}={value}" for key, value in own.items() if value is not None)]


@dataclass(frozen=True, slots=True)
class StressOptions:
    """Raise the number of tenants until something breaks, and report what: memory, a process, latency, or the host.

    Parameters
    ----------
    work
        A workload as in `fleetlab bench workload --help`, or your own as module:Class.
    modes
        Sharing modes, separated by commas: time-slicing, mps.
    up_to
        Maximum number of tenants.
    slo_factor
        Limit of the P95 step time, as a multiple of that of one tenant alone.
    slo_ms
        Limit of the P95 step time in milliseconds, instead of --slo-factor.
    settle
        Seconds that tenants run before a measurement.
    window
        Seconds of a measurement.
    limit
        Time limit in seconds: no measurement starts after it.
    seed
        Seed of the tenants' data.
    device
        cuda, cuda:N or cpu.
    rehearse
        Run on the CPU with tiny sizes: the same code, but the results are meaningless.
    out
        Folder for the results; run the same command again to resume (default: results are not kept).
    """

    work: str
    _: KW_ONLY
    modes: str = "time-slicing,mps"
    up_to: int = 32
    slo_factor: float = 3.0
    slo_ms: float | None = None
    settle: float = 1.0
    window: float = 4.0
    limit: float = 3600
    seed: int = 0
    device: str = "cuda"
    rehearse: bool = False
    out: Path | None = None

    def __post_init__(self) -> None:
        check_seed(self.seed)


@dataclass(frozen=True, slots=True)
class IsolationOptions:
    """Measure what a tenant can do to its neighbors: memory, faults, performance, information. Run again to resume.

    Parameters
    ----------
    out
        Folder for the results.
    modes
        time-slicing, mps, mps-limited, streams, green, separated by commas (default: all).
    probes
        memory, information, performance, faults, separated by commas (default: all).
    illegal_access
        Also have a tenant write to an illegal address: only on a GPU that nobody else uses.
    memory_mib
        Memory limit of each tenant in mps-limited, which also has half of the SMs.
    limit
        Time limit in seconds: no cell starts after it.
    device
        cuda, cuda:N or cpu.
    rehearse
        Run on the CPU with tiny sizes: the same code, but the results are meaningless.
    """

    _: KW_ONLY
    out: Path
    modes: str = ""
    probes: str = ""
    illegal_access: bool = False
    memory_mib: int = 16384
    limit: float = 600
    device: str = "cuda"
    rehearse: bool = False
