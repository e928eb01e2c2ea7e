"""Backends: how a process reaches the deployment that does the work.

`protocol` has the interface; `embedded`, `distributed` and `serve` implement it; `factory` opens
the one that the settings call for.
"""
