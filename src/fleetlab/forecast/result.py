"""A forecast: what comes next, with intervals, and how far such forecasts may be trusted."""

from __future__ import annotations

from collections.abc import Mapping
from dataclasses import dataclass

import polars as pl

from fleetlab.core import Estimate, Figure, Provenance, Result
from fleetlab.forecast.catalogue import SIMPLE
from fleetlab.forecast.verdict import spoken


@dataclass(frozen=True, slots=True, repr=False)
class Forecast(Result):
    """What comes next; `sentences` are to be read first, `tables()` has the leaderboard."""

    provenance: Provenance
    findings: tuple[str, ...]
    frames: Mapping[str, pl.DataFrame]
    held_out: pl.DataFrame  # forecasts of every step of the tail with their intervals, and what came
    recent: pl.DataFrame  # the last of what was seen: part, resource, hour, value
    every: float
    notes: tuple[str, ...] = ()

    def __repr__(self) -> str:
        rows = self.frames["chosen"]
        target, series = self.provenance.settings["target"], rows.select("part", "resource").n_unique()
        return f"<Forecast of {target}, {series} series, {spoken(self.every)} steps, {self.provenance.source}>"

    def summary(self) -> list[Estimate]:
        """NRMSE one step ahead and at the end of the horizon, by what was taken."""
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

    def tables(self) -> dict[str, pl.DataFrame]:
        """What was chosen, what comes next, NRMSE of all models, the whole leaderboard, and signs of overfitting."""
        return dict(self.frames)

    def figures(self) -> dict[str, Figure]:
        """What comes next, models beside each other, skill by horizon, coverage, and the losses of networks."""
        found = {f"next, {name}": figure for name, figure in self._next()}
        found["errors"] = self._errors()
        found["skill"] = self._skill()
        found["coverage"] = self._coverage()
        if self.frames["losses"].height:
            found["losses"] = self._losses()
        return found

    def _next(self) -> list[tuple[str, Figure]]:
        drawn = []
        for (part, resource), rows in self.frames["next"].group_by("part", "resource", maintain_order=True):
            name, unit = _of(str(part), str(resource)), rows["unit"][0]
            mine = (pl.col("part") == part) & (pl.col("resource") == resource)
            seen = self.recent.filter(mine).select(
                x="hour", y="value", series=pl.lit("seen"), low="value", high="value"
            )
            comes = rows.select(
                # At the end of its step, as what was seen is: a level is that of the end.
                x=(pl.col("from") + self.every) / 3600,
                y="forecast",
                series=pl.lit("forecast, 95 %"),
                low="low 95%",
                high="high 95%",
            )
            alt = f"the last of {name} that was seen, and a forecast of {rows['forecast'][0]:,.4g} {unit} next"
            drawn.append(
                (
                    name,
                    Figure(
                        f"What comes of {name}", "line", pl.concat([seen, comes]), "hours from the beginning", unit, alt
                    ),
                )
            )
        return drawn

    def _errors(self) -> Figure:
        rows = self.frames["leaderboard"].filter(pl.col("steps ahead") == 1)
        frame = rows.select(x="model", y="NRMSE", series=_series(), low="low", high="high").drop_nulls("y")
        best = rows.filter("taken")
        said = "; ".join(
            f"{_named(r)} {r['model']} {r['NRMSE'] or float('nan'):.3g}" for r in best.iter_rows(named=True)
        )
        title = f"Error of every model, {spoken(self.every)} ahead, on the held-out end"
        return Figure(title, "bar", frame, "model", "NRMSE", f"NRMSE by model and series; taken: {said}")

    def _skill(self) -> Figure:
        rows = self.frames["chosen"]
        frame = rows.select(
            x=pl.col("steps ahead") * self.every / 60, y="skill", series=_series(), low="skill low", high="skill high"
        ).drop_nulls("y")
        clever = rows.filter(~pl.col("model").is_in(SIMPLE)).height
        alt = f"skill of what was taken against the best simple model; in {clever} of {rows.height} cases it is another"
        return Figure(
            "Skill against the best simple model", "line", frame, "minutes ahead", "share of the error saved", alt
        )

    def _coverage(self) -> Figure:
        rows = self.frames["chosen"]
        frame = rows.select(x=pl.col("steps ahead") * self.every / 60, y="covered 95%", series=_series())
        low, high = rows["covered 95%"].min(), rows["covered 95%"].max()
        alt = f"95 % intervals held between {low!s:.5} and {high!s:.5} of what came"
        return Figure("What 95 % intervals held", "line", frame, "minutes ahead", "share held", alt)

    def _losses(self) -> Figure:
        rows = self.frames["losses"]
        last = rows.filter(pl.col("split") == rows["split"].max(), pl.col("part") == rows["part"][0])
        each = [
            last.select(x="epoch", y=column, series=pl.concat_str("model", pl.lit(f", {column}")))
            for column in ("learnt from", "held back")
        ]
        alt = "losses by epoch, where networks learn and where they are held back; they stop when those no longer fall"
        return Figure(
            "Losses of the networks, last fit", "line", pl.concat(each), "epoch", "mean squared miss, scaled", alt
        )


def _of(part: str, resource: str) -> str:
    return resource if part == "all" else f"{resource} of {part}"


def _named(row: Mapping[str, str]) -> str:
    return _of(row["part"], row["resource"])


def _series() -> pl.Expr:
    return (
        pl.when(pl.col("part") == "all").then("resource").otherwise(pl.concat_str("resource", pl.lit(" of "), "part"))
    )
