"""What can go wrong with a server of the stack."""

from __future__ import annotations


class StackError(Exception):
    """A server does not do what it should; the message says what happened and what to do."""


class UnavailableError(StackError):
    """A server cannot be had on this machine until something is installed or fetched."""
