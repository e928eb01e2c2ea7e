"""Prometheus metrics, status, and the checks of `doctor`."""
