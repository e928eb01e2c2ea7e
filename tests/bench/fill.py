"""Copy a library from one deployment's stores into another's, to compare and measure them."""

from __future__ import annotations

from collections.abc import Iterator, Sequence

from graph.protocol import Entry, LinkFacts, Publication, SkillGraph, State
from skills.record import RevisionKey

_AT_ONCE = 200


def copy_graph(source: SkillGraph, target: SkillGraph) -> None:
    """Copy sources, cursors, skills and links into an empty catalog, through its own calls.

    Left behind: how often skills were used, and who waits for ingest or linking.
    """
    entries = source.entries()
    newest = max((max(entry.seq, entry.wanted_seq) for entry in entries), default=0)
    target.take_seqs(max(0, newest + 1 - target.take_seqs(1).start))
    for origin in source.sources():
        target.put_source(origin)
        target.move_cursor(origin.source_id, source.cursor(origin.source_id), ())
    published = [entry for entry in entries if entry.state is State.PUBLISHED]
    for some in _batches(published):
        facts = source.link_facts([entry.skill_id for entry in some])
        target.publish([_publication(entry, facts[entry.skill_id]) for entry in some])
    target.mark_paged([RevisionKey(one.skill_id, one.seq) for one in published if one.paged])
    failed = [entry for entry in entries if entry.state is State.FAILED]
    seq = newest + 1
    target.fail([(RevisionKey(e.skill_id, seq), e.source_id, e.path, e.reason) for e in failed])
    removed = [entry for entry in entries if entry.state is State.REMOVED]
    target.remove([RevisionKey(entry.skill_id, seq) for entry in removed])
    for some in _batches(published):
        target.replace_links(source.owned([entry.skill_id for entry in some]), [])
    target.replace_links({}, target.unlinked(len(published)))


def _publication(entry: Entry, facts: LinkFacts) -> Publication:
    return Publication(
        key=RevisionKey(entry.skill_id, entry.seq),
        source_id=entry.source_id,
        path=entry.path,
        content_hash=entry.content_hash,
        name=entry.name,
        description=entry.description,
        warnings=entry.warnings,
        safety_level=entry.safety_level,
        tokens=entry.tokens,
        language=entry.language,
        licence=entry.licence,
        mentions=facts.mentions,
        signature=facts.signature,
        description_terms=facts.description_terms,
    )


def _batches(entries: Sequence[Entry]) -> Iterator[Sequence[Entry]]:
    for start in range(0, len(entries), _AT_ONCE):
        yield entries[start : start + _AT_ONCE]
