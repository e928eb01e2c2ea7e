"""Parses published skills again that an older version of the parser parsed (decision 65).

They are parsed from their stored text, so that no source has to be read. A skill of which the
parser makes the same as before keeps its revision. Another result is published under a new seq,
with the content hash that it had, as with completions: the history, pins, waivers and reviews,
which are about contents, stay as they are.
"""

from __future__ import annotations

from collections.abc import Sequence

import structlog

from graph.records import CatalogEntry
from search.protocol import StoredRevision
from skills.batches import batches
from skills.parsing.parse_skill import PARSER_VERSION
from skills.record import RevisionKey
from skills.scanner import rescan
from tasks.ingest.ingest import SkillWork, publish_skills
from tasks.ingest.preparation.prepare import (
    PreparedSkill,
    make_preparation_settings,
    parse_stored,
    prepare_parsed,
)
from tasks.policies import Deadline
from tasks.services import Services

log = structlog.get_logger()

_BATCH_SKILLS = 16
MAX_REPARSED = 500
"""Maximum skills per run of the reconciler, whose other work waits meanwhile; a skill takes some 20
ms of processor time."""


def reparse_outdated(services: Services, deadline: Deadline) -> int:
    """Parse skills of an older parser again, at most MAX_REPARSED; returns their number.

    Ends early when half of the time is over, since other maintenance follows.
    """
    keys = services.graph.list_parsed_before(PARSER_VERSION, MAX_REPARSED)
    half, done = deadline.remaining() / 2, 0
    for batch in batches(keys, _BATCH_SKILLS):
        if done and deadline.remaining() < half:
            break
        services.coordinator.yield_to_queries()
        _reparse(services, deadline, batch)
        done += len(batch)
    if done:
        log.info("skills parsed again", skills=done, parser=PARSER_VERSION)
    return done


def _reparse(services: Services, deadline: Deadline, keys: Sequence[RevisionKey]) -> None:
    graph = services.graph
    stored = services.index.get_revisions(keys)
    entries = [
        one for one in graph.get_entries([key.skill_id for key in keys]) if one.key in stored
    ]
    changed: list[tuple[CatalogEntry, PreparedSkill]] = []
    same: list[RevisionKey] = []
    for entry in entries:
        prepared = _prepare(services, entry, stored[entry.key])
        if prepared is None:
            same.append(entry.key)
        else:
            changed.append((entry, prepared))
    graph.mark_parsed(same, PARSER_VERSION)
    if not changed:
        return
    seqs = graph.allocate_sequence(len(changed))
    work = [
        SkillWork(RevisionKey(entry.skill_id, seq), entry, entry.content_hash, prepared, entry.seq)
        for (entry, prepared), seq in zip(changed, seqs, strict=True)
    ]
    publish_skills(services, work, deadline)


def _prepare(
    services: Services, entry: CatalogEntry, stored: StoredRevision
) -> PreparedSkill | None:
    """Return the skill as it is parsed now, None if it is parsed as it is stored."""
    settings = make_preparation_settings(services.settings)
    parsed = parse_stored(entry.path, stored.parsed, settings)
    return None if parsed == rescan(stored.parsed) else prepare_parsed(parsed)
