"""Exact scores of candidates, the evidence floor, and the statistics and weights behind them."""
