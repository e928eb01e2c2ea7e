"""Pauses between retries that grow with each failure."""

from __future__ import annotations

import random
from dataclasses import dataclass, field


@dataclass(slots=True)
class Backoff:
    """Growing pauses in seconds: `first`, then doubled each time up to `longest`.

    jitter: multiply each pause by a random factor between 0.5 and 1, so that processes that failed
    together do not retry together.
    """

    first: float
    longest: float
    jitter: bool = True
    _next: float = field(init=False)

    def __post_init__(self) -> None:
        self._next = self.first

    def reset(self) -> None:
        """Begin at `first` again; called after a success."""
        self._next = self.first

    def pause(self) -> float:
        """Return the next pause, without sleeping: the caller waits, or stores a due time."""
        pause, self._next = self._next, min(2 * self._next, self.longest)
        return pause * random.uniform(0.5, 1.0) if self.jitter else pause  # noqa: S311 - jitter, no secret
