"""Traces: the tracer of a process and the export of its spans."""
