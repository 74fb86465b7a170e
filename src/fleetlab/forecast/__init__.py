"""Demand that comes next: series from a trace, models behind one contract, walked forward, with intervals that hold."""

from fleetlab.forecast.backtest import check_forecaster
from fleetlab.forecast.demand import Forecaster, Panel
from fleetlab.forecast.forecast import forecast
from fleetlab.forecast.instances import InstancesAhead, instances_ahead
from fleetlab.forecast.tables import Forecast

__all__ = ["Forecast", "Forecaster", "InstancesAhead", "Panel", "check_forecaster", "forecast", "instances_ahead"]
