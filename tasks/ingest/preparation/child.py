"""A process that prepares skills for another one, from which it inherits a connection."""

from __future__ import annotations

import os
import sys
import traceback
from dataclasses import dataclass
from multiprocessing.connection import Connection

from tasks.ingest.preparation.prepare import prepare_skill

IDLE_SECONDS = 30.0
"""Without work for this long, the process ends: its memory is of use to others."""

_NICENESS = 10


@dataclass(frozen=True, slots=True)
class BrokenPreparation:
    """A skill for which the code failed unexpectedly, with the traceback."""

    error: str


def main() -> None:
    """Answer lists of requests, one message for each skill, until the other side is gone."""
    connection: Connection = Connection(int(sys.argv[1]))
    os.nice(_NICENESS)
    while connection.poll(IDLE_SECONDS):
        try:
            requests, settings = connection.recv()
            for request in requests:
                try:
                    outcome: object = prepare_skill(request, settings)
                except Exception:  # the other side decides what a broken skill means
                    outcome = BrokenPreparation(traceback.format_exc())
                connection.send(outcome)
        except (EOFError, ConnectionError):
            return
