"""Approximations of queueing theory beside simulated means: `python -m benchmarks.approximations [SEED]`.

They are compared where they are known to be good, and where they are known to fail: heavy tails, gangs.
"""

from __future__ import annotations

import sys
from collections.abc import Callable
from typing import NamedTuple

from fleetlab import Provenance
from fleetlab._screen import show
from fleetlab.core.progress import Progress, silent
from fleetlab.queueing import solve
from fleetlab.sim import simulate as simulate_jobs
from fleetlab.studies.validate import Validation
from fleetlab.studies.validate.line import Line
from fleetlab.studies.validate.means import CONSTANT, ELEPHANTS, POWERS, ExactCase, GangMix
from fleetlab.studies.validate.schedules import JobClass, RuntimeLaw, Simulator, load

NEAR = 0.05  # of an approximation: as good as right
TAIL = "two moments do not determine waits with heavy-tailed runtimes"
HYPER_10, LOGNORMAL_10 = RuntimeLaw("hyperexponential", scv=10.0), RuntimeLaw("lognormal", scv=10.0)
LONG = {0.7: (25_000, 2_000), 0.9: (50_000, 8_000)}


class System(NamedTuple):
    """Poisson arrivals of jobs with these runtimes, on so many GPUs."""

    law: RuntimeLaw
    servers: int
    rho: float
    why: str

    def lines(self, simulate: Simulator, seed: int) -> list[Line]:
        """Compare the simulated mean wait with each approximation of it."""
        rate = self.servers * self.rho
        name = f"M/G/{self.servers}, {self.law.spelling}, ρ {self.rho}"
        case = ExactCase(name, {"mean wait": ()}, (JobClass(law=self.law),), self.servers, rate, LONG[self.rho])
        (mean,) = case.measured(simulate, seed)["mean wait"]
        parameters = {"lam": rate, "mu": 1.0, "c": self.servers}
        two = parameters | {"ca2": 1.0, "cs2": self.law.scv}
        approximate = {model: solve(model, **two)["mean wait"] for model in ("Allen-Cunneen", "Whitt GI/G/m")}
        if not self.law.scv:
            approximate["Cosmetatos M/D/c"] = solve("Cosmetatos M/D/c", **parameters)["mean wait"]
        return [
            Line(name, f"mean wait by {model}", value, mean, near=NEAR, why=self.why, counts=False)
            for model, value in approximate.items()
        ]


SYSTEMS = (
    System(CONSTANT, 8, 0.7, "constant runtimes at a low load"),
    System(HYPER_10, 8, 0.7, TAIL),
    System(LOGNORMAL_10, 8, 0.7, TAIL),
    System(HYPER_10, 8, 0.9, TAIL),
    System(LOGNORMAL_10, 8, 0.9, TAIL),
)


def _gang_mix(mix: GangMix, share: float) -> Callable[[Simulator, int], list[Line]]:
    """Compare gangs without backfill with RESET, and with a model without gangs."""

    def lines(simulate: Simulator, seed: int) -> list[Line]:
        rate = share * mix.limit()
        rho = rate * load(mix.classes) / mix.servers
        count = 40_000 if share > 0.8 else 15_000
        case = ExactCase(f"gangs, {mix.name}, {share} of the limit", {"mean JCT": ()}, mix.classes, mix.servers, rate,
                    (count, count // 6), ({"backfill": "none"},), moves=True)  # fmt: skip
        (mean,) = case.measured(simulate, seed)["mean JCT"]
        reset = solve("MSJ RESET", lam=rate, **mix.parameters)["mean response"]
        alone = solve("M/M/c", lam=rho * mix.servers, mu=1.0, c=mix.servers)["mean response"]
        return [
            Line(case.name, "mean JCT by RESET", reset, mean, near=NEAR, counts=False,
                 why="correct up to a constant, which matters at a low load"),
            Line(case.name, "mean JCT by M/M/c", alone, mean, near=NEAR, counts=False,
                 why="it does not model GPUs that idle while a gang does not fit"),
        ]  # fmt: skip

    return lines


def _filling(rho: float) -> Callable[[Simulator, int], list[Line]]:
    """Compare ServerFilling with its limit."""

    def lines(simulate: Simulator, seed: int) -> list[Line]:
        rate = rho * POWERS.servers / load(POWERS.classes)
        name, words = f"ServerFilling, {POWERS.name}, ρ {rho}", ({"order": "server_filling"},)
        case = ExactCase(
            name, {"mean JCT": ()}, POWERS.classes, POWERS.servers, rate, (6_000, 1_500), words, moves=True
        )
        (mean,) = case.measured(simulate, seed)["mean JCT"]
        about = solve("ServerFilling", lam=rate, **POWERS.parameters)["mean response"]
        return [Line(case.name, "mean JCT by its limit", about, mean, near=NEAR, counts=False,
                     why="correct up to a constant")]  # fmt: skip

    return lines


def compare_approximations(simulate: Simulator, *, seed: int, progress: Progress) -> list[Line]:
    """Compare every approximation with the simulator."""
    work: list[Callable[[Simulator, int], list[Line]]] = [system.lines for system in SYSTEMS]
    work += [_gang_mix(mix, share) for mix in (ELEPHANTS, POWERS) for share in (0.5, 0.9)]
    work += [_filling(0.5), _filling(0.8)]
    lines = []
    for k, part in enumerate(work):
        lines += part(simulate, seed)
        progress("comparing simulated waits with approximations", k + 1, (k + 1) / len(work))
    return lines


def main() -> None:
    """Print all lines."""
    seed = int(sys.argv[1]) if len(sys.argv) > 1 else 0
    lines = compare_approximations(simulate_jobs, seed=seed, progress=silent)
    show(Validation({"approximations": lines}, Provenance("approximations", "fleetlab", {}, seed)), most=1000)


if __name__ == "__main__":
    main()
