"""Soak: a deployment under load for a long time, its processes killed in turn.

See `__main__.py` for what is run, measured and checked.
"""
