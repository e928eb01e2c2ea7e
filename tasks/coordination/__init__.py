"""Coordination between tasks: locks, heartbeats, running work."""
