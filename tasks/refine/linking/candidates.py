"""Candidates that a skill is compared with: a bounded pool, never all pairs.

Graph of Skills §3.2 forms the pool from lexical overlap, neighbours by similarity, and compatible
inputs and outputs. This pool has, in order of preference, skills that the text names, and then in
turns skills with compatible inputs and outputs, and skills with similar texts. It depends on the
library alone; ties are broken by skill_id.
"""

from __future__ import annotations

import re
from collections.abc import Iterable, Iterator, Sequence
from itertools import chain, zip_longest

from graph.links.learned_links import get_own_evidence
from graph.records import SkillState
from graph.skill_names import normalise_name
from search.protocol import Filters, LexicalSearch, StoredRevision
from search.text.tokens import tokenize
from skills.record import RevisionKey, get_source_id
from tasks.refine.linking.lines import Exchanged, SkillText
from tasks.services import Services

_MAX_NAMES = 4_000
_MAX_NAME_WORDS = 4
_SEARCHED = 24
_MAX_SEARCH_TERMS = 48

_WORD = re.compile(r"[^\W_]+")
_COMPOUND = re.compile(r"(?<![\w-])[^\W_]+(?:[-_][^\W_]+)+(?![\w-])")
_MARKED = re.compile(
    r"`([^`\n]{2,80})`|\*\*([^*\n]{2,80})\*\*|\[([^\]\n]{2,80})\]|\b(\w+) skills?\b"
)
_PUNCTUATION = re.compile(r"[.,;:!?()|\[\]{}/\\<>=+]|--|→|->")


def find_candidates(
    services: Services, revision: StoredRevision, limit: int
) -> list[StoredRevision]:
    """Return the published skills that a skill is compared with, at most `limit`, best first.

    Skills of the same content, and skills in declared links, are left out.
    """
    skill = read_skill_text(revision)
    named = _find_named(services, skill)
    compatible = _find_compatible(services, skill)
    alike = services.linker.find_alike(skill.skill_id, 2 * limit)
    turns = chain.from_iterable(zip_longest(compatible, alike))
    ordered = dict.fromkeys(one for one in (*named, *turns) if one and one != skill.skill_id)
    for other in find_declared(services, skill.skill_id):
        ordered.pop(other, None)
    found: list[StoredRevision] = []
    hashes = {revision.content_hash}
    for one in read_published(services, list(ordered)[: 2 * limit]):
        if one.content_hash not in hashes and len(found) < limit:
            hashes.add(one.content_hash)
            found.append(one)
    return found


def read_skill_text(revision: StoredRevision) -> SkillText:
    """Return the parts of a stored revision that are compared."""
    return SkillText.from_parsed(revision.key.skill_id, revision.content_hash, revision.parsed)


def _find_named(services: Services, skill: SkillText) -> list[str]:
    """Return skills of the same source whose names are in the text, in the order of their names
    there."""
    names: dict[str, None] = {}
    for name in _possible_names(skill):
        names[name] = None
        if len(names) == _MAX_NAMES:
            break
    source_id = get_source_id(skill.skill_id)
    by_name = services.graph.find_by_name(source_id, list(names))
    # A name of several skills does not say which of them is meant.
    return [by_name[name][0] for name in names if len(by_name.get(name, ())) == 1]


def _possible_names(skill: SkillText) -> Iterator[str]:
    """Yield possible names of skills: marked text, compounds, and runs of words in prose."""
    texts = [skill.description, *(line.text for line in skill.lines)]
    for text in texts:
        for match in _MARKED.finditer(text):
            yield normalise_name(match[match.lastindex or 0].strip("/@ "))
        yield from map(normalise_name, _COMPOUND.findall(text))
    prose = [skill.description, *(line.text for line in skill.lines if not line.code)]
    for text in prose:
        for clause in _PUNCTUATION.split(text):
            words = _WORD.findall(normalise_name(clause))
            for size in range(2, _MAX_NAME_WORDS + 1):
                for start in range(len(words) - size + 1):
                    yield "-".join(words[start : start + size])


def _find_compatible(services: Services, skill: SkillText) -> list[str]:
    """Return skills whose outputs are inputs of this skill or the reverse, or that work on the same
    named files."""
    wanted = (*sorted(skill.files), *skill.inputs, *skill.outputs)
    terms = dict.fromkeys((term for text in wanted for term in tokenize(text)), 1.0)
    if not terms:
        return []
    asked = dict(list(terms.items())[:_MAX_SEARCH_TERMS])
    [hits] = services.index.search_many([LexicalSearch(asked, _SEARCHED, Filters())])
    ids = {hit.key.skill_id for hit in hits} - {skill.skill_id}
    scored = [
        (-_compatibility(skill.exchanged, other), key.skill_id)
        for key, other in _read_exchanged(services, sorted(ids)).items()
    ]
    return [skill_id for score, skill_id in sorted(scored) if score < 0]


def _read_exchanged(services: Services, skill_ids: Sequence[str]) -> dict[RevisionKey, Exchanged]:
    """Return what the published revisions of these skills take and give.

    It is cached, as many skills find the same ones, and reading it tokenises their texts.
    """
    keys = _find_published(services, skill_ids)
    found = services.exchanged.get(keys)
    for key, one in services.index.get_revisions([key for key in keys if key not in found]).items():
        found[key] = read_skill_text(one).exchanged
        services.exchanged.put(key, found[key])
    return found


def _compatibility(skill: Exchanged, other: Exchanged) -> int:
    """Return how many whole terms are outputs of one and inputs of the other; names of files count
    in both."""
    return (
        len(skill.files & other.files)
        + len(skill.outputs & other.inputs)
        + len(skill.inputs & other.outputs)
    )


def find_declared(services: Services, skill_id: str) -> Iterable[str]:
    """Yield the other ends of links that front matter declares, in either direction."""
    for link in services.graph.get_links([skill_id])[skill_id]:
        if get_own_evidence(link).startswith(("depends, ", "conflicts, ")):
            yield link.target if link.source == skill_id else link.source


def read_published(services: Services, skill_ids: Sequence[str]) -> list[StoredRevision]:
    """Return the published revisions of these skills, in this order."""
    keys = {key.skill_id: key for key in _find_published(services, skill_ids)}
    found = services.index.get_revisions(list(keys.values()))
    ordered = (keys.get(skill_id) for skill_id in skill_ids)
    return [found[key] for key in ordered if key in found]


def _find_published(services: Services, skill_ids: Sequence[str]) -> list[RevisionKey]:
    return [
        entry.key
        for entry in (services.graph.get_entries(skill_ids) if skill_ids else ())
        if entry.seq and entry.state is SkillState.PUBLISHED
    ]
