"""Conflicts and alternatives from queries: pairs of skills that queries compare often.

R3-Skill keeps the rejections of a model as a signal of skills that do not go together. One query
says little: the model is asked about a pair when several different queries compared it for one
reason, and the pair is linked if the model confirms it from the texts of both.
"""

from __future__ import annotations

from collections import defaultdict
from collections.abc import Mapping
from dataclasses import replace
from typing import NamedTuple

from graph.records import SkillState
from skills.bundle.rejection import RejectionReason
from tasks.ingest.next_tasks import send_link
from tasks.language_model.protocol import InvalidAnswerError
from tasks.language_model.skill_pairs.protocol import PairVerdict, order_pair
from tasks.refine.linking.candidates import read_published, read_skill_text
from tasks.refine.linking.lines import SkillText
from tasks.refine.linking.link_origin import link_kind, rejection_kind
from tasks.refine.linking.prompt import LinksAnswer, build_rejection_prompt
from tasks.refine.linking.read_verdicts import read_verdicts
from tasks.refine.stage import RefineContext
from tasks.services import Services

MIN_QUERIES = 3
"""Minimum different queries that compared a pair for one reason, before the model is asked about
it."""

_PAIRS_PER_RUN = 8
_MAX_PAIRS = 12_800
"""Maximum pairs that are read: the most frequent ones may have been asked about already, or be of
removed skills."""


class ComparedSkills(NamedTuple):
    """Two published skills, and the number of queries that compared them, by reason."""

    texts: tuple[SkillText, SkillText]
    queries: Mapping[RejectionReason, int]


def find_unasked_pairs(services: Services, limit: int = _PAIRS_PER_RUN) -> list[ComparedSkills]:
    """Return pairs that enough queries compared, and about whose contents the model was not
    asked, the most frequent first."""
    kind, pairs = link_kind(services.settings), services.skill_pairs
    if kind is None or pairs is None:
        return []
    counts: defaultdict[tuple[str, str], dict[RejectionReason, int]] = defaultdict(dict)
    for pair in pairs.list_rejected_pairs(MIN_QUERIES, _MAX_PAIRS):
        counts[pair.skill_ids][pair.reason] = pair.queries
    ids = sorted({skill_id for pair in counts for skill_id in pair})
    hashes = {
        entry.skill_id: entry.content_hash
        for entry in (services.graph.get_entries(ids) if ids else ())
        if entry.seq and entry.state is SkillState.PUBLISHED
    }
    contents = {
        pair: order_pair(*(hashes[one] for one in pair))
        for pair in counts
        if hashes.keys() >= set(pair) and hashes[pair[0]] != hashes[pair[1]]
    }
    known = pairs.find_known(rejection_kind(kind), list(contents.values()))
    unasked = [pair for pair, hashed in contents.items() if hashed not in known][:limit]
    found = read_published(services, sorted({one for pair in unasked for one in pair}))
    texts = {one.key.skill_id: read_skill_text(one) for one in found}
    return [
        ComparedSkills((texts[one], texts[other]), counts[one, other])
        for one, other in unasked
        if one in texts and other in texts
    ]


def confirm_rejected_pairs(context: RefineContext) -> None:
    """Ask the model about some unasked pairs, and mark confirmed skills for linking."""
    services, kind = context.services, link_kind(context.services.settings)
    if kind is None or services.skill_pairs is None:
        return
    for pair in find_unasked_pairs(services):
        context.deadline.check("links")
        verdict = _ask(context, pair)
        marked = sorted(verdict.skill_ids) if verdict.type else []
        if marked:
            # Before too: if the catalog fails here, the pair stays unasked; its answer is stored.
            services.graph.mark_for_linking(marked)
        services.skill_pairs.save_verdicts(rejection_kind(kind), [verdict])
        if marked:
            services.graph.mark_for_linking(marked)
            send_link(services)


def _ask(context: RefineContext, pair: ComparedSkills) -> PairVerdict:
    prompt = build_rejection_prompt(*pair.texts, pair.queries)
    try:
        answer = context.model.complete(prompt.request, LinksAnswer, prompt.check).answer
    except InvalidAnswerError:
        answer = LinksAnswer(relations=[])
    allowed = [one for one in answer.relations if one.relation in ("same_job", "conflict")]
    [verdict], _ = read_verdicts(prompt, LinksAnswer(relations=allowed))
    counts = ", ".join(f"{reason} {count}" for reason, count in sorted(pair.queries.items()))
    return replace(verdict, evidence=f"queries ({counts}); {verdict.evidence}")
