"""Cache of the contents that are refined, so that counting progress reads only the rest.

Refinements are write-once: a found refinement stays.
"""

from __future__ import annotations

import threading
from collections.abc import Collection, Mapping
from typing import Any

from skills.batches import batches
from tasks.language_model.answer_store import AnswerStore, RefinementKind

_BATCH = 500


class RefinedSubjects:
    """Refinements that this process has found in the store of answers; threads may share it."""

    def __init__(self) -> None:
        self._lock = threading.Lock()
        self._seen: dict[RefinementKind, dict[str, tuple[str, ...]]] = {}

    def find_missing(
        self, answers: AnswerStore, kind: RefinementKind, subjects: Collection[str]
    ) -> set[str]:
        """Return the subjects without a refinement. Raises TransientError if the store does not
        answer."""
        with self._lock:
            seen = self._seen.setdefault(kind, {})
            unseen = [subject for subject in dict.fromkeys(subjects) if subject not in seen]
        for some in batches(unseen, _BATCH):
            found = answers.get_refinements(kind, some)
            reasons = {one: _read_reasons(document) for one, document in found.items()}
            with self._lock:
                seen.update(reasons)
        with self._lock:
            return {subject for subject in unseen if subject not in seen}

    def get_invalid(
        self, kind: RefinementKind, subjects: Collection[str]
    ) -> dict[str, tuple[str, ...]]:
        """Return the reasons of invalid answers by subject, for refinements that `find_missing` has
        found."""
        with self._lock:
            seen = self._seen.get(kind, {})
            return {subject: reasons for subject in subjects if (reasons := seen.get(subject))}


def _read_reasons(document: Mapping[str, Any]) -> tuple[str, ...]:
    """Return why answers of a refinement were invalid: its field `invalid`, a text or a list."""
    invalid = document.get("invalid") or ()
    return (invalid,) if isinstance(invalid, str) else tuple(map(str, invalid))
