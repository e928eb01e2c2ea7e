"""Backends: how a process reaches the deployment that does the work."""
