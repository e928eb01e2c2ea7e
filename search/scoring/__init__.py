"""Exact scores of candidates, and the statistics and constants behind them."""
