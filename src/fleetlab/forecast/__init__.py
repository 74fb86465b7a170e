"""Demand that comes next: series from a trace, models behind one contract, walked forward, with intervals that hold."""

from fleetlab.forecast.backtest import check_forecaster
from fleetlab.forecast.panel import Forecaster, Panel
from fleetlab.forecast.result import Forecast
from fleetlab.forecast.run import forecast

__all__ = ["Forecast", "Forecaster", "Panel", "check_forecaster", "forecast"]
