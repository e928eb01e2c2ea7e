"""Backends: clients of the deployment that does the work.

`protocol` defines the interface; `embedded`, `distributed` and `serve` implement it; `factory`
opens the backend that the settings call for.
"""
