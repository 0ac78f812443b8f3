"""Forecasts of series from CSV files, with prediction intervals."""
