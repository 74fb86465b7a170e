"""A forecast: what comes next, with intervals, and how far such forecasts may be trusted."""

from __future__ import annotations

from collections.abc import Mapping
from dataclasses import dataclass

import polars as pl

from fleetlab.core import Estimate, Figure, Provenance, Result
from fleetlab.core.coverage import Coverage
from fleetlab.forecast.catalogue import SIMPLE
from fleetlab.forecast.verdict import spoken


@dataclass(frozen=True, slots=True, repr=False)
class Forecast(Result):
    """A forecast; `findings` come first, `tables()` has the leaderboard."""

    provenance: Provenance
    findings: tuple[str, ...]
    frames: Mapping[str, pl.DataFrame]
    held_out: pl.DataFrame  # forecasts of every step of the tail with their intervals, and what came
    recent: pl.DataFrame  # the last of what was seen: part, resource, hour, value
    every: float
    notes: tuple[str, ...] = ()
    coverage: Coverage | None = None

    def __repr__(self) -> str:
        rows = self.frames["chosen"]
        target, series = self.provenance.settings["target"], rows.select("part", "resource").n_unique()
        return f"<Forecast of {target}, {series} series, {spoken(self.every)} steps, {self.provenance.source}>"

    def summary(self) -> list[Estimate]:
        """NRMSE of the selected models, one step ahead and at the end of the horizon."""
        rows = self.frames["chosen"]
        ends = rows.filter(pl.col("steps ahead").is_in([1, rows["steps ahead"].max()])).with_columns(
            pl.col("NRMSE", "low", "high").fill_null(float("nan"))
        )
        return [
            Estimate(
                f"NRMSE of {_named(r)}, {spoken(r['steps ahead'] * self.every)} ahead",
                r["NRMSE"],
                r["low"],
                r["high"],
                "",
            )
            for r in ends.iter_rows(named=True)
        ]

    def figures(self) -> dict[str, Figure]:
        """What comes next, models beside each other, skill by horizon, and coverage."""
        figures = {f"next, {name}": figure for name, figure in self._next()}
        figures["errors"] = self._errors()
        figures["skill"] = self._skill()
        figures["coverage"] = self._coverage()
        return figures

    def _next(self) -> list[tuple[str, Figure]]:
        drawn = []
        for (part, resource), rows in self.frames["next"].group_by("part", "resource", maintain_order=True):
            name, unit = _of(str(part), str(resource)), rows["unit"][0]
            mine = (pl.col("part") == part) & (pl.col("resource") == resource)
            past = self.recent.filter(mine).select(
                x="hour", y="value", series=pl.lit("observed"), low="value", high="value"
            )
            comes = rows.select(
                # At the end of its step, as what was seen is: a level is that of the end.
                x=(pl.col("from") + self.every) / 3600,
                y="forecast",
                series=pl.lit("forecast, 95 %"),
                low="low 95%",
                high="high 95%",
            )
            alt = f"recent {name}, and a forecast of {rows['forecast'][0]:,.4g} {unit} for the next step"
            drawn.append(
                (
                    name,
                    Figure(f"Forecast of {name}", "line", pl.concat([past, comes]), "hours from the start", unit, alt),
                )
            )
        return drawn

    def _errors(self) -> Figure:
        rows = self.frames["leaderboard"].filter(pl.col("steps ahead") == 1)
        frame = rows.select(x="model", y="NRMSE", series=_series(), low="low", high="high").drop_nulls("y")
        best = rows.filter("selected")
        taken = "; ".join(
            f"{_named(r)} {r['model']} {r['NRMSE'] or float('nan'):.3g}" for r in best.iter_rows(named=True)
        )
        title = f"Error of every model, {spoken(self.every)} ahead, on the held-out period"
        return Figure(title, "bar", frame, "model", "NRMSE", f"NRMSE by model and series; selected: {taken}")

    def _skill(self) -> Figure:
        rows = self.frames["chosen"]
        frame = rows.select(
            x=pl.col("steps ahead") * self.every / 60, y="skill", series=_series(), low="skill low", high="skill high"
        ).drop_nulls("y")
        clever = rows.filter(~pl.col("model").is_in(SIMPLE)).height
        alt = f"skill against the best simple model; in {clever} of {rows.height} cases another model is selected"
        return Figure(
            "Skill against the best simple model", "line", frame, "minutes ahead", "relative reduction of RMSE", alt
        )

    def _coverage(self) -> Figure:
        rows = self.frames["chosen"]
        frame = rows.select(x=pl.col("steps ahead") * self.every / 60, y="covered 95%", series=_series())
        low, high = rows["covered 95%"].min(), rows["covered 95%"].max()
        alt = f"95 % intervals covered between {low!s:.5} and {high!s:.5} of the actual values"
        return Figure("Coverage of 95 % intervals", "line", frame, "minutes ahead", "coverage", alt)


def _of(part: str, resource: str) -> str:
    return resource if part == "all" else f"{resource} of {part}"


def _named(row: Mapping[str, str]) -> str:
    return _of(row["part"], row["resource"])


def _series() -> pl.Expr:
    return (
        pl.when(pl.col("part") == "all").then("resource").otherwise(pl.concat_str("resource", pl.lit(" of "), "part"))
    )
