"""Exact scores of candidates, the probability that a skill is right, and the statistics and weights
behind them."""
