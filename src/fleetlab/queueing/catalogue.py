"""Every model by name: what it takes, how good it is, where it holds, where it comes from."""

from __future__ import annotations

import inspect
from collections.abc import Callable
from dataclasses import dataclass

from fleetlab.queueing.formulas import ggm, infinite, loss, mg1, mmc, multiserver, priority, sharing, staffing
from fleetlab.queueing.formulas.output import Found


@dataclass(frozen=True, slots=True)
class Model:
    """A formula and what must be known of it; `kind` is exact, approximate, asymptotic or bound."""

    name: str
    formula: Callable[..., Found]
    kind: str
    holds: str
    source: str

    @property
    def takes(self) -> tuple[str, ...]:
        """Its parameters, as the theory names them."""
        return tuple(inspect.signature(self.formula).parameters)


EXACT, NEAR, LIMIT, BOUND = "exact", "approximate", "asymptotic", "bound"

_ALL = (
    Model("M/M/1", mmc.mm1, EXACT, "Poisson arrivals, exponential run times, one server", "Erlang 1917"),
    Model("M/M/c", mmc.mmc, EXACT, "Poisson arrivals, exponential run times, c servers alike, one line", "Erlang 1917"),
    Model("Erlang B", mmc.blocked, EXACT, "Poisson arrivals, who finds no server goes away; any run times",
          "Erlang 1917"),
    Model("Erlang C", mmc.delayed, EXACT, "Poisson arrivals, exponential run times", "Erlang 1917"),
    Model("M/G/1", mg1.fcfs, EXACT, "Poisson arrivals, one server, order does not look at run times",
          "Pollaczek 1930, Khinchine 1932"),
    Model("M/G/1 PS", mg1.ps, EXACT, "Poisson arrivals, one server in equal parts; any law of run times",
          "Sakata, Noguchi, Oizumi 1971"),
    Model("M/G/1 SJF", mg1.sjf, EXACT, "Poisson arrivals, one server, run times known, nobody is put off",
          "Phipps 1956, after Cobham 1954"),
    Model("M/G/1 SRPT", mg1.srpt, EXACT, "Poisson arrivals, one server, run times known, put off without loss",
          "Schrage, Miller 1966"),
    Model("M/G/1 priority", priority.cobham, EXACT, "Poisson arrivals, one server, nobody is put off", "Cobham 1954"),
    Model("M/G/1 preemptive priority", priority.preemptive, EXACT, "Poisson arrivals, one server, put off without loss",
          "White, Christie 1958; Miller 1960"),
    Model("M/M/c priority", priority.mmc_priority, EXACT, "exponential run times of one mean, nobody is put off",
          "Cobham 1954; Kella, Yechiali 1985"),
    Model("M/M/c preemptive priority", priority.mmc_preemptive, EXACT,
          "exponential run times of one mean, put off without loss", "Buzen, Bondi 1983"),
    Model("M/G/c priority", priority.bondi_buzen, NEAR, "moderate to high load, run times not far from exponential",
          "after Bondi, Buzen 1984, with Whitt 1993"),
    Model("M/G/inf", infinite.mg_inf, EXACT, "Poisson arrivals, nobody waits; any law of run times", "Palm 1943"),
    Model("Mt/G/inf", infinite.mt_g_inf, EXACT, "Poisson arrivals at a rate that repeats, nobody waits",
          "Eick, Massey, Whitt 1993"),
    Model("MOL", infinite.modified_offered_load, NEAR, "loads that stay below c and change slowly beside run times",
          "Jennings, Mandelbaum, Massey, Whitt 1996"),
    Model("Kaufman-Roberts", loss.kaufman_roberts, EXACT, "Poisson arrivals, who does not fit goes away; any run times",
          "Kaufman 1981, Roberts 1981"),
    Model("Allen-Cunneen", ggm.allen_cunneen, NEAR,
          "high load, SCVs near 1; too high where cs2 is far above 1 and c above 1",
          "Allen 1978, after Lee, Longton 1959"),
    Model("Whitt GI/G/m", ggm.whitt, NEAR,
          "SCVs up to a few; for c = 1 and Poisson arrivals M/G/1 is exact; two moments do not fix the wait",
          "Whitt 1993; Gupta, Harchol-Balter, Dai, Zwart 2010 for its limits"),
    Model("Cosmetatos M/D/c", ggm.cosmetatos, NEAR, "Poisson arrivals, constant run times", "Cosmetatos 1975"),
    Model("Bjorklund-Elldin M/G/c", ggm.bjorklund_elldin, NEAR, "Poisson arrivals, cs2 from 0 to 1",
          "Björklund, Elldin 1964; Cosmetatos 1975"),
    Model("Kraemer-Langenbach-Belz", ggm.kraemer_langenbach_belz, NEAR, "one server, ca2 not far above 1",
          "Krämer, Langenbach-Belz 1976"),
    Model("Kingman", ggm.kingman, BOUND, "one server, independent gaps and run times; near the truth at high load",
          "Kingman 1962"),
    Model("Halfin-Whitt", staffing.halfin_whitt, LIMIT, "many servers, high load, exponential run times",
          "Halfin, Whitt 1981"),
    Model("square-root staffing", staffing.square_root, LIMIT,
          "many servers, exponential run times; Erlang C beside it is exact",
          "Halfin, Whitt 1981; Borst, Mandelbaum, Reiman 2004"),
    Model("M/G/c PS", sharing.pooled, EXACT, "jobs spread evenly over all GPUs at any moment; any law of run times",
          "Cohen 1979"),
    Model("GPU sharing", sharing.shared, EXACT,
          "one GPU with Poisson arrivals of its own; too high where a scheduler balances them", "Cohen 1979"),
    Model("MSJ saturated", multiserver.saturated, EXACT, "in order of arrival, exponential run times by class",
          "Baccelli, Foss 1995; Grosof, Harchol-Balter, Scheller-Wolf 2020"),
    Model("MSJ two classes", multiserver.two_classes, EXACT, "as MSJ saturated, for two classes and any c",
          "Grosof, Harchol-Balter, Scheller-Wolf 2020"),
    Model("MSJ RESET", multiserver.reset, LIMIT, "loads near the most that gets through; off by a constant at any",
          "Grosof, Hong, Harchol-Balter, Scheller-Wolf 2023"),
    Model("ServerFilling", multiserver.server_filling, LIMIT,
          "c and needs that are powers of 2, high load; off by a constant at any",
          "Grosof, Harchol-Balter, Scheller-Wolf 2022"),
)  # fmt: skip
MODELS = {model.name: model for model in _ALL}
