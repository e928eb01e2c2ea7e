"""Limits on the rate, size and duration of requests."""
