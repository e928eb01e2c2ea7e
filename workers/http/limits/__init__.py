"""Limits on the rate, size and duration of requests, and on the threads that they take."""
