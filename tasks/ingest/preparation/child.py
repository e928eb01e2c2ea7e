"""Child process that prepares skills for its parent over an inherited connection."""

from __future__ import annotations

import os
import sys
import traceback
from dataclasses import dataclass
from multiprocessing.connection import Connection

from tasks.ingest.preparation.prepare import prepare_skill

IDLE_SECONDS = 30.0
"""Seconds without work after which the process ends, to free its memory."""

_NICENESS = 10


@dataclass(frozen=True, slots=True)
class BrokenPreparation:
    """A skill for which the code failed unexpectedly, with the traceback."""

    error: str


def main() -> None:
    """Answer lists of requests, one message for each skill, until the connection closes."""
    connection: Connection = Connection(int(sys.argv[1]))
    os.nice(_NICENESS)
    while connection.poll(IDLE_SECONDS):
        try:
            requests, settings = connection.recv()
            for request in requests:
                try:
                    outcome: object = prepare_skill(request, settings)
                except Exception:  # the parent decides how to handle a broken skill
                    outcome = BrokenPreparation(traceback.format_exc())
                connection.send(outcome)
        except (EOFError, OSError):  # the parent has ended, maybe in the middle of a message
            return
