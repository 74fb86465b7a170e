"""A forecast: what comes next, with intervals, and how far such forecasts may be trusted; as a result with tables."""

from __future__ import annotations

from collections.abc import Mapping
from dataclasses import dataclass
from typing import Any

import numpy as np
import polars as pl

from fleetlab.core import Estimate, Figure, Provenance, Result
from fleetlab.core.catalog import RESOURCES
from fleetlab.core.coverage import Coverage
from fleetlab.forecast import backtest
from fleetlab.forecast.backtest import LEVELS, pinball, spoken
from fleetlab.forecast.catalogue import ENSEMBLE, FAMILIES, SIMPLE
from fleetlab.forecast.demand import Floats
from fleetlab.forecast.models.regression import reported
from fleetlab.forecast.study import PartStudy
from fleetlab.stats import divide


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
        figures = []
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
            figures.append(
                (
                    name,
                    Figure(f"Forecast of {name}", "line", pl.concat([past, comes]), "hours from the start", unit, alt),
                )
            )
        return figures

    def _errors(self) -> Figure:
        rows = self.frames["leaderboard"].filter(pl.col("steps ahead") == 1)
        frame = rows.select(x="model", y="NRMSE", series=_series(), low="low", high="high").drop_nulls("y")
        best = rows.filter("selected")
        summary = "; ".join(
            f"{_named(r)} {r['model']} {r['NRMSE'] or float('nan'):.3g}" for r in best.iter_rows(named=True)
        )
        title = f"Error of every model, {spoken(self.every)} ahead, on the held-out period"
        return Figure(title, "bar", frame, "model", "NRMSE", f"NRMSE by model and series; selected: {summary}")

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


PREDICTABLE, PARTLY = 0.5, 0.1  # of the variance about the mean, explained in the tail
CLOSE = 0.05  # NRMSE: what hardly varies is predictable though nothing explains the rest
FAMILY = {model.name: family for family, models in FAMILIES.items() for model in models} | {ENSEMBLE: ENSEMBLE}


def leaderboard(study: PartStudy) -> pl.DataFrame:
    """Every model on the tail, for each resource at some steps ahead, the one with the least NRMSE first."""
    rows = [
        _row(study, name, step, k)
        for k in range(study.panel.width)
        for step in reported(study.horizon)
        for name in study.forecasts
    ]
    frame = pl.DataFrame(rows).with_columns(pl.selectors.float().fill_nan(None))
    return frame.sort("resource", "steps ahead", "NRMSE", maintain_order=True).select(
        pl.all().sort_by(
            pl.col("resource").replace_strict({n: k for k, n in enumerate(study.panel.names)}), "steps ahead"
        )
    )


def _row(study: PartStudy, name: str, step: int, k: int) -> dict[str, Any]:
    h, blocks = step - 1, study.blocks
    came, missed = study.came[-1][:, h, k], study.missed(name)[:, h, k]
    simple = study.missed(study.simple[h][k])[:, h, k]
    mean = float(came.mean())
    nrmse, skill = backtest.nrmse(blocks, missed, came), backtest.skill(blocks, missed, simple)
    naive = backtest.skill(blocks, missed, study.missed("last")[:, h, k])
    past = study.missed(name, tail=False)[:, h, k]
    before = np.concatenate([c[:, h, k] for c in study.came[:-1]])
    widths = study.widths[name].each[:, :, h, k]
    cover = [backtest.share(blocks, (np.abs(missed) <= w).astype(np.float64)) for w in widths]
    learnt = study.panel.values[: study.cuts[-1].learn, k]
    return {
        "part": study.part,
        "resource": study.panel.names[k],
        "steps ahead": step,
        "model": name,
        "family": FAMILY.get(name, "own"),
        "selected": study.selected[h][k] == name,
        "NRMSE": nrmse[0], "low": nrmse[1], "high": nrmse[2],
        "NRMSE on past folds": float(divide(np.sqrt((past**2).mean()), before.mean())),
        **skill.columns("skill"),
        "against": study.simple[h][k],
        "skill against last": naive[0], "last low": naive[1], "last high": naive[2],
        "explained": float(1 - divide((missed**2).mean(), came.var())),
        **backtest.ratio(blocks, np.abs(missed), np.full(len(came), np.abs(np.diff(learnt)).mean())).columns("MASE"),
        **backtest.ratio(blocks, np.abs(missed), came).columns("WAPE"),
        **backtest.ratio(blocks, pinball(came, came - missed, widths), came).columns("pinball"),
        **{
            f"{word} {level:.0%}": value
            for level, c, w in zip(LEVELS, cover, widths, strict=True)
            for word, value in (
                ("covered", c[0]), ("covered low", c[1]), ("covered high", c[2]),
                ("width", float(divide((came - missed + w - np.maximum(came - missed - w, 0.0)).mean(), mean))),
                ("reserve", float(w.mean())),
            )
        },
    }  # fmt: skip


def chosen(board: pl.DataFrame) -> pl.DataFrame:
    """The model that was taken for each resource and step ahead, and what may be expected of it."""
    verdict = (
        pl.when(pl.col("NRMSE").is_null()).then(pl.lit("unknown"))
        .when((pl.col("explained") >= PREDICTABLE) | (pl.col("NRMSE") <= CLOSE)).then(pl.lit("predictable"))
        .when(pl.col("explained") >= PARTLY).then(pl.lit("partly"))
        .otherwise(pl.lit("not predictable"))
    )  # fmt: skip
    columns = ("part", "resource", "steps ahead", "model", "NRMSE", "low", "high")
    skills = ("skill", "skill low", "skill high", "against", "skill against last", "last low", "last high")
    intervals = ("covered 95%", "width 95%", "reserve 95%")
    return board.filter("selected").select(*columns, *skills, *intervals, "explained", verdict=verdict)


def beside(board: pl.DataFrame, step: int) -> pl.DataFrame:
    """NRMSE of every model at one step ahead, a column a resource."""
    rows = board.filter(pl.col("steps ahead") == step)
    wide = rows.pivot("resource", index=["part", "family", "model"], values="NRMSE", maintain_order=True)
    return wide.sort(
        pl.col("family").replace_strict({f: k for k, f in enumerate([*FAMILIES, ENSEMBLE])}, default=99),
        "part",
        maintain_order=True,
    )


def overfitting(study: PartStudy) -> pl.DataFrame:
    """Root mean square misses one step ahead over the spread of what came: where answers were known, on folds, at last.

    1 is no better than the mean of the same stretch; far less where it knew the answers than later is overfitting.
    """
    before = np.concatenate([c[:, 0] for c in study.came[:-1]]).std(axis=0)
    tail = study.came[-1][:, 0].std(axis=0)
    rows = []
    for name, walks in study.walks.items():
        knew = np.sqrt(walks.learnt[-1][0])
        folds = divide(np.sqrt((study.missed(name, tail=False)[:, 0] ** 2).mean(axis=0)), before)
        last = divide(np.sqrt((study.missed(name)[:, 0] ** 2).mean(axis=0)), tail)
        for k, resource in enumerate(study.panel.names):
            rows.append({
                "part": study.part, "resource": resource, "model": name, "training": float(knew[k]),
                "past folds": float(folds[k]), "tail": float(last[k]),
            })  # fmt: skip
    return pl.DataFrame(rows).with_columns(pl.selectors.float().fill_nan(None))


def weights(study: PartStudy) -> pl.DataFrame:
    """How much each model counts in the ensemble, by resource."""
    if not len(study.weights):
        return pl.DataFrame()
    each = {name: study.weights[:, k] for k, name in enumerate(study.panel.names)}
    return pl.DataFrame({"part": study.part, "model": list(study.members), **each})


def tuning(study: PartStudy) -> pl.DataFrame:
    """Every trial of every network: its settings, its error over that of the first, and what it spent."""
    rows = [
        {
            "part": study.part, "model": name, "trial": k + 1, **trial.settings,
            "relative squared error": trial.error, "epochs": trial.epochs, "selected": k == tuning.best,
        }
        for name, tuning in study.tunings.items()
        for k, trial in enumerate(tuning.trials)
    ]  # fmt: skip
    return pl.DataFrame(rows)


def to_come(study: PartStudy, values: Floats, widths: Floats) -> pl.DataFrame:
    """The steps after the end of the trace, each with its intervals."""
    panel = study.panel
    rows = []
    for k, resource in enumerate(panel.names):
        for h in range(study.horizon):
            value = float(values[h, k])
            row: dict[str, Any] = {
                "part": study.part, "resource": resource, "from": (len(panel) + h) * panel.every, "forecast": value,
            }  # fmt: skip
            for level, width in zip(LEVELS, widths[:, h, k].tolist(), strict=True):
                row |= {f"low {level:.0%}": max(0.0, value - width), f"high {level:.0%}": value + width}
            rows.append(row | {"unit": RESOURCES[resource].unit, "model": study.selected[h][k]})
    return pl.DataFrame(rows)


def held_out(study: PartStudy) -> pl.DataFrame:
    """Forecast and actual value of every step of the held-out period, by the selected model, at some steps ahead."""
    rows = []
    for k, resource in enumerate(study.panel.names):
        for step in reported(study.horizon):
            name, h = study.selected[step - 1][k], step - 1
            forecasts, widths = study.forecasts[name][-1][:, h, k], study.widths[name].each[:, :, h, k]
            ends = {
                f"{word} {level:.0%}": np.maximum(forecasts + side * width, 0.0)
                for level, width in zip(LEVELS, widths, strict=True)
                for word, side in (("low", -1), ("high", 1))
            }
            about = {"part": study.part, "resource": resource, "steps ahead": step, "model": name}
            begin, came = (study.cuts[-1].at + h) * study.panel.every, study.came[-1][:, h, k]
            rows.append(pl.DataFrame({**about, "from": begin, "forecast": forecasts, **ends, "actual": came}))
    return pl.concat(rows)
