"""Forecasting models behind one protocol."""
