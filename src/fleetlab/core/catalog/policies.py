"""The parts of a scheduling policy that are built in."""

from __future__ import annotations

from dataclasses import dataclass

from fleetlab.core.catalog.catalog import Catalog

FGD = "Weng et al., ATC 2023"
TANG = "Tang, Lan, Desai and Buettner, CLUSTER 2009"
GROSOF = "Grosof, Harchol-Balter and Scheller-Wolf, 2022"


@dataclass(frozen=True, slots=True)
class OrderRule:
    """Which waiting job is next: the lowest key first, ties by arrival."""

    name: str
    meaning: str
    citation: str = ""
    needs_estimate: bool = False
    dynamic: bool = False  # its keys change while a job waits or runs
    timed: bool = False  # they do, but depend on the job itself and the time alone
    preemptive: bool = False  # it preempts by itself
    chooses_set: bool = False  # it chooses a set of jobs that fills the cluster, not one job after the other


@dataclass(frozen=True, slots=True)
class BackfillRule:
    """What happens to the jobs behind one that does not fit."""

    name: str
    meaning: str
    citation: str = ""
    reserves: bool = False  # jobs hold reservations: it cannot be combined with preemption


@dataclass(frozen=True, slots=True)
class PlacementRule:
    """Which of the nodes that can hold an instance it gets: the lowest score, ties by node order."""

    name: str
    meaning: str
    citation: str = ""
    randomized: bool = False
    in_pack: bool = True  # `pack` knows it


@dataclass(frozen=True, slots=True)
class EstimateRule:
    """The runtime that policies believe a job has."""

    name: str
    meaning: str
    columns: tuple[str, ...] = ()  # the mean runtime of finished jobs that agree in these; none: known in advance


@dataclass(frozen=True, slots=True)
class SharingMode:
    """How fractional GPU requests share a GPU."""

    name: str
    meaning: str
    needs_speed: bool = False  # neighbors slow each other by a speed profile
    granularity: int = 1  # milli-GPU: requests for a fraction are rounded up to multiples of this


@dataclass(frozen=True, slots=True)
class SpeedProfile:
    """A speed profile that ships with the package."""

    name: str
    meaning: str
    file: str  # beside `fleetlab.core.speed`


ORDERS = Catalog(
    "order",
    (
        OrderRule("fifo", "first come, first served"),
        OrderRule("sjf", "shortest estimated runtime first", needs_estimate=True),
        OrderRule("smallest", "fewest GPUs first, over all its instances"),
        OrderRule("largest", "most GPUs first, over all its instances"),
        OrderRule("priority", "highest priority first"),
        OrderRule("aging", "estimated runtime minus time waited, smallest first", needs_estimate=True),
        OrderRule("las", "least attained service first, in two queues split at one GPU-hour; use with preemption",
                  "Gu et al. (Tiresias), NSDI 2019", dynamic=True),
        OrderRule("fair",
                  "DRF: user with the lowest current dominant share first; no usage history as in Slurm fair-share",
                  "Ghodsi et al. (DRF), NSDI 2011", dynamic=True),
        OrderRule("srpt", "shortest estimated remaining runtime first; preempts", "Schrage, 1968",
                  needs_estimate=True, dynamic=True, preemptive=True),
        OrderRule("server_filling", "the earliest jobs that together fill the cluster, largest first; preempts",
                  GROSOF, dynamic=True, preemptive=True, chooses_set=True),
        OrderRule("server_filling_srpt", "the same, by remaining GPU time instead of arrival; preempts", GROSOF,
                  needs_estimate=True, dynamic=True, preemptive=True, chooses_set=True),
        OrderRule("wfp3", "most (wait / estimated runtime)³ × size first, the default score of Cobalt", TANG,
                  needs_estimate=True, dynamic=True, timed=True),
        OrderRule("unicef", "most wait / (log2(size) × estimated runtime) first: small and short jobs soon", TANG,
                  needs_estimate=True, dynamic=True, timed=True),
    ),
)  # fmt: skip

BACKFILLS = Catalog(
    "backfill",
    (
        BackfillRule("none", "no backfill: all jobs wait behind the first that does not fit (head-of-line blocking)"),
        BackfillRule("greedy", "start any job that fits, without reservations (large jobs can starve)"),
        BackfillRule("easy", "start any job that fits and does not delay the reservation of the first job",
                     "Lifka, 1995", reserves=True),
        BackfillRule("conservative", "start any job that fits and delays no reservation of the jobs before it",
                     "Mu'alem and Feitelson, 2001", reserves=True),
    ),
)  # fmt: skip

PLACEMENTS = Catalog(
    "placement",
    (
        PlacementRule("first_fit", "first node that fits"),
        PlacementRule("best_fit", "node with the least free GPU that fits"),
        PlacementRule("worst_fit", "least allocated node: load balancing over CPU, memory and GPU"),
        PlacementRule("dot_product", "smallest dot product of the request and what is free",
                      "Panigrahy et al., 2011"),
        PlacementRule("gpu_packing", "GPUs in use first, then nodes in use, then idle nodes", FGD),
        PlacementRule("gpu_clustering", "nodes that run requests of the same size first", FGD),
        PlacementRule("fgd", "fragmentation gradient descent: least growth of fragmentation", FGD),
        PlacementRule("reserve_and_pack", "weakest GPU type first, keeping high-end GPUs for jobs that name them",
                      "Weng et al., NSDI 2022", in_pack=False),
        PlacementRule("spread", "node with the fewest instances", in_pack=False),
        PlacementRule("random", "uniformly random node that fits", randomized=True),
    ),
)  # fmt: skip

ESTIMATES = Catalog(
    "estimate",
    (
        EstimateRule("oracle", "the true runtime, known in advance"),
        EstimateRule("user", "mean runtime of the user's finished jobs", ("user",)),
        EstimateRule("user+gpu", "mean of the user's finished jobs with the same GPU request", ("user", "gpu_milli")),
        EstimateRule("group", "mean runtime of finished jobs of the same user and group", ("user", "group")),
        EstimateRule("group+gpu", "mean of finished jobs of the same user, group and GPU request",
                     ("user", "group", "gpu_milli")),
    ),
)  # fmt: skip

SHARINGS = Catalog(
    "sharing mode",
    (
        SharingMode("fractional", "fractions of a GPU run at full speed"),
        SharingMode("exclusive", "a fraction takes a whole GPU", granularity=1000),
        SharingMode("time-slicing", "jobs on one GPU slow each other as measured under time slicing", needs_speed=True),
        SharingMode("mps", "jobs on one GPU slow each other as measured under MPS", needs_speed=True),
        SharingMode("mig", "a request up to half a GPU gets a half-GPU MIG instance, a larger one the whole GPU",
                    needs_speed=True, granularity=500),
    ),
)  # fmt: skip

SPEEDS = Catalog(
    "speed profile",
    (
        SpeedProfile("h200", "light, medium and heavy training, measured on an H200", "speed.json"),
        SpeedProfile("h200-tenants", "six workloads by name, measured on an H200", "speed-h200-tenants.json"),
        SpeedProfile("published", "slowdowns from publications, without MPS", "speed-published.json"),
    ),
)
