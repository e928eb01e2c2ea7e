"""Errors of the stack."""

from __future__ import annotations


class StackError(Exception):
    """A server failed; the message states the problem and what to do."""


class UnavailableError(StackError):
    """A server needs a package that is not installed, or a download that failed."""
