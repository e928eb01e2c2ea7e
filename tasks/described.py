"""Skills of which only the catalog knows something, while their text cannot be read."""

from __future__ import annotations

import json
from collections.abc import Iterable
from dataclasses import replace

import numpy as np

from graph.protocol import Entry, State
from search.protocol import PassageTerms, StoredRevision
from skills.parsing import parse_skill
from skills.record import RevisionKey, SafetyFinding

_MARKED = "its text was marked, and cannot be read now"


def described(entries: Iterable[Entry]) -> dict[str, StoredRevision]:
    """Published skills with name and description and without any passage, by skill_id."""
    return {
        entry.skill_id: _described(entry) for entry in entries if entry.state is State.PUBLISHED
    }


def _described(entry: Entry) -> StoredRevision:
    # JSON strings are YAML strings, whatever they hold.
    header = f"name: {json.dumps(entry.name)}\ndescription: {json.dumps(entry.description)}"
    nothing = PassageTerms(np.zeros(1, np.int32), np.zeros(0, np.uint64), np.zeros(0, np.uint16))
    parsed = parse_skill(entry.path, f"---\n{header}\n---\n".encode())
    marks = (SafetyFinding("unread", entry.safety_level, 1, _MARKED),) if entry.safety_level else ()
    record = replace(
        parsed.record,
        licence=entry.licence,
        safety_level=entry.safety_level,
        safety=marks,
        scanner=entry.scanner,
    )
    return StoredRevision(
        RevisionKey(entry.skill_id, entry.seq),
        entry.content_hash,
        replace(parsed, record=record),
        nothing,
        (),
    )
