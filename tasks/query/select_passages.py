"""Select passages: the passages of each chosen skill that the task needs."""

from __future__ import annotations

import time
from collections.abc import Iterable, Iterator, Mapping, Sequence
from dataclasses import dataclass, replace
from typing import NamedTuple

import numpy as np

from config.bundle_settings import PassageSettings
from search.protocol import StoredRevision, Vector
from search.text.query_understanding import Understanding
from skills.passages import (
    DEFAULT_WEIGHTS,
    PassageInput,
    PassageQuery,
    PassageWeights,
    estimate_needs,
    find_short_lists,
    passage_texts,
    select_mmr,
)
from skills.record import ParsedSkill, RevisionKey
from tasks.encode import encode_cached, supports_language
from tasks.ingest.embed_sections import embed_revisions
from tasks.query.choose import ChosenSkill
from tasks.query.context import QueryContext
from tasks.query.read_chosen import ChosenRevisions
from tasks.sources.readers import get_skill_location

MAX_LEAD_IN_TOKENS = 40
"""Maximum tokens of a lead-in that is sent with the passage that it introduces."""

MAX_LIST_TOKENS = 150
"""Maximum tokens of a list of which all items are sent or none: single items read as fragments. Of
144 queries, at most one more or less gets every required line."""

_WHOLE_TOKENS = 300
"""Maximum tokens of a skill that is sent whole: a selection would save little."""

_WHOLE_SHARE = 0.8
"""Share of the budget that whole skills may take: headers and dependencies need some too."""

_LONG_TASK_CUT = 0.9
"""Share of the enough passages for a short query that a long task does not send at first."""

_LONG_TASK_SUFFICIENCY = 0.75
"""Share of long tasks for which a tenth of the enough passages is taken to suffice. With 1, the
rest of a skill that is certainly right would come after every improbable skill."""

_TOKENS_PER_SECOND = 3300.0
"""Speed of one thread of a common processor; it only decides whether to begin embedding."""


class PassagePlan(NamedTuple):
    """The passages of a skill that may be sent, and how many of them are enough.

    passages: indexes, most needed first. selected_by: `vectors`, `words` or `whole`. enough: number
    of first passages that suffice for most queries; further ones are sent if the budget has room.
    sufficiency: the share of queries for which they suffice.
    """

    passages: tuple[int, ...]
    selected_by: str
    enough: int
    sufficiency: float = 1.0


@dataclass(frozen=True, slots=True)
class SkillPassages:
    """A chosen skill with the plan of its passages, see `PassagePlan`.

    path: path of its SKILL.md, for the reader. first: whether it is sent before other skills. sent:
    the lines of this revision that were sent before in the session. brief: whether its part of the
    bundle has only what is needed to read on.
    """

    chosen: ChosenSkill
    revision: StoredRevision
    path: str
    passages: tuple[int, ...]
    selected_by: str
    enough: int = 0
    sufficiency: float = 1.0
    first: bool = False
    sent: frozenset[int] = frozenset()
    brief: bool = False


def select_passages(context: QueryContext, chosen: ChosenRevisions) -> list[SkillPassages]:
    """Return the chosen skills that could be read, each with its passages, most needed by the task
    first.

    Sections without vectors are embedded first, if the time allows; otherwise passages are chosen
    by words alone, which is recorded in the degradations.
    """
    settings = context.services.settings.passages
    vectors: dict[RevisionKey, Vector] = {}
    passage_vectors: dict[RevisionKey, Vector] = {}
    vector = None
    if context.is_on("paging"):
        vector = chosen.ranking.vector
    if vector is not None:
        keys = [revision.key for revision in chosen.revisions.values()]
        vectors = context.services.index.get_section_vectors(keys)
        if settings.method == "mmr":
            passage_vectors = _embed_passages(context, chosen)
        else:
            vectors |= _embed_missing_sections(context, chosen, vectors)
    query = make_passage_query(chosen.ranking.understanding, vector)
    whole = _list_whole(context, chosen)
    selected = []
    for skill in chosen.choice.chosen:
        revision = chosen.revisions.get(skill.skill_id)
        if revision is None:
            continue
        path = get_skill_location(context.policy_filter.sources, skill.skill_id)
        plan = select_skill_passages(
            revision,
            query,
            vectors.get(revision.key),
            settings,
            passage_vectors.get(revision.key),
            send_whole=settings.method == "full" or skill.skill_id in whole,
            long_task_weight=chosen.ranking.long_task_weight,
        )
        first = skill.skill_id in whole  # before any passage of a skill that only helps
        selected.append(SkillPassages(skill, revision, path, *plan, first))
    return selected


def _list_whole(context: QueryContext, chosen: ChosenRevisions) -> set[str]:
    """Return the skills to send whole: those that the language model calls needed, if it says that
    they cover the task and if all of them fit."""
    selection = chosen.ranking.selection
    if selection is None or not selection.complete:
        return set()
    needed = {name: chosen.revisions[name] for name in selection.needed if name in chosen.revisions}
    tokens = sum(revision.parsed.record.tokens for revision in needed.values())
    return set(needed) if tokens <= _WHOLE_SHARE * context.budget else set()


def _embed_missing_sections(
    context: QueryContext, chosen: ChosenRevisions, known: Mapping[RevisionKey, Vector]
) -> dict[RevisionKey, Vector]:
    """Return section vectors of the chosen skills that lack them, as many as the time allows,
    without short skills, which are sent whole. A process that may write stores them."""
    missing = [
        revision
        for revision in chosen.revisions.values()
        if revision.key not in known
        and revision.section_hashes
        and _count_tokens(revision) > _WHOLE_TOKENS
    ]
    vectors: dict[RevisionKey, Vector] = {}
    for revision in _within_time(context, missing, "section"):
        vectors |= embed_revisions(context.services, [revision], in_bulk=False)
    return vectors


def _embed_passages(context: QueryContext, chosen: ChosenRevisions) -> dict[RevisionKey, Vector]:
    """Return passage vectors of the chosen skills, for SkillPager's rule: those that this process
    keeps, and as many more as the time allows."""
    services = context.services
    model = services.encoder.get().model
    revisions = chosen.revisions.values()
    kept = services.passage_vectors.get((model, one.key) for one in revisions)
    vectors = {key: found for (_, key), found in kept.items()}
    missing = [one for one in revisions if one.key not in vectors and one.parsed.passages]
    for revision in _within_time(context, missing, "passage"):
        texts = passage_texts(revision.parsed)
        found = vectors[revision.key] = encode_cached(services, texts, in_bulk=False)
        services.passage_vectors.put((model, revision.key), found, found.size)
    return vectors


def _within_time(
    context: QueryContext, revisions: Sequence[StoredRevision], kind: str
) -> Iterator[StoredRevision]:
    """Yield the skills to embed now: skills in a language that the encoder knows, for at most
    `passages.milliseconds`. kind: of the vectors, for the report about other skills."""
    services = context.services
    encoder = services.encoder.get()
    seconds = services.settings.passages.milliseconds / 1000
    end = time.monotonic() + min(seconds, context.deadline.remaining() / 2)
    skipped = 0
    for revision in revisions:
        if not supports_language(encoder, revision.parsed):
            continue
        tokens = _count_tokens(revision)
        if time.monotonic() + tokens / _TOKENS_PER_SECOND > end:
            skipped += 1
            continue
        yield revision
    if skipped:
        context.degradations.add(
            f"{skipped} of the chosen skills {'has' if skipped == 1 else 'have'} no {kind} vectors "
            "yet: passages of such skills were chosen by words alone"
        )


def _count_tokens(revision: StoredRevision) -> int:
    return sum(passage.tokens for passage in revision.parsed.passages)


def make_passage_query(understanding: Understanding, vector: Vector | None) -> PassageQuery:
    """Return the task in the form by which passages are scored; without a vector, by words
    alone."""
    order = np.argsort(understanding.ids)
    return PassageQuery(vector, understanding.ids[order], understanding.weights[order])


def mmr_weights(settings: PassageSettings) -> PassageWeights:
    """Return the constants of SkillPager's rule from the settings."""
    return replace(
        DEFAULT_WEIGHTS,
        mmr_lambda=settings.mmr_lambda,
        mmr_small=settings.mmr_passages,
        mmr_large=settings.mmr_passages_long,
    )


def find_short_lead_ins(parsed: ParsedSkill, indexes: Iterable[int]) -> set[int]:
    """Return the lead-ins of these passages that are short enough to be sent with them."""
    lead_ins = {parsed.passages[index].lead_in for index in indexes} - {-1}
    return {one for one in lead_ins if parsed.passages[one].tokens <= MAX_LEAD_IN_TOKENS}


def select_skill_passages(
    revision: StoredRevision,
    query: PassageQuery,
    section_vectors: Vector | None,
    settings: PassageSettings,
    passage_vectors: Vector | None = None,
    *,
    send_whole: bool = False,
    long_task_weight: float = 0.0,
) -> PassagePlan:
    """Return the passages of a skill, most needed by the query first, and how many are enough.

    settings: `miss`, and the constants of SkillPager's rule, which chooses if there are
    `passage_vectors`; no other passages may be sent then. For a skill of at most 300 tokens, or
    with `send_whole`, all passages are the enough ones. A long task needs a part of each of several
    skills, so fewer passages of each are enough, and the remaining ones come after them. The items
    of a short list stay together. Short lead-ins are sent with what they introduce, and are not
    selected alone.
    """
    parsed, terms = revision.parsed, revision.passage_terms
    skill = PassageInput(
        parsed, terms.offsets, terms.terms, terms.counts, section_vectors, passage_vectors
    )
    needs = estimate_needs(query, skill)
    order = needs.order()
    if send_whole or _count_tokens(revision) <= _WHOLE_TOKENS:
        together, enough = _keep_lists_together(parsed, order, len(order))
        return PassagePlan(tuple(together), "whole", enough)
    if passage_vectors is not None:
        chosen = set(select_mmr(query, skill, mmr_weights(settings)))
        only = tuple(index for index in order if index in chosen)
        return PassagePlan(only, "vectors", len(only))
    lead_ins = find_short_lead_ins(parsed, order)
    order = [index for index in order if index not in lead_ins]
    share = (1.0 - settings.miss) * (1.0 - _LONG_TASK_CUT * long_task_weight)
    enough = max(len(set(needs.select_enough(1.0 - share)) - lead_ins), 1)
    order, enough = _keep_lists_together(parsed, order, enough)
    selected_by = "vectors" if needs.dense else "words"
    sufficiency = max(needs.sufficiency(settings.miss), _LONG_TASK_SUFFICIENCY * long_task_weight)
    return PassagePlan(tuple(order), selected_by, enough, sufficiency)


def _keep_lists_together(
    parsed: ParsedSkill, order: Sequence[int], enough: int
) -> tuple[list[int], int]:
    """Return the order of passages with all items of a short list at the place of the most needed
    one, and the number of first passages that are enough then."""
    lists = find_short_lists(parsed.passages, MAX_LIST_TOKENS)
    places: dict[int, int] = {}
    for place, index in enumerate(order):
        places.setdefault(lists.get(index, index), place)

    def get_place(index: int) -> int:
        return places[lists.get(index, index)]

    together = sorted(order, key=lambda index: (get_place(index), index))
    return together, sum(get_place(index) < enough for index in order)
