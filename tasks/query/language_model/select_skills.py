"""Select: choice among the first candidates by the language model (SkillFlow eq. 6)."""

from __future__ import annotations

import hashlib
import time
from collections.abc import Collection, Mapping, Sequence
from collections.abc import Set as AbstractSet
from dataclasses import replace

import numpy as np

from config.errors import TransientError
from graph.records import Adjacency, LinkType
from search.protocol import StoredRevision
from search.text.query_understanding import Understanding
from skills.bundle.rejection import RejectionReason
from skills.record import RevisionKey
from tasks.query.choose import is_evident
from tasks.query.context import QueryContext
from tasks.query.language_model.ask_model import ask_model
from tasks.query.language_model.record_rejections import record_rejections
from tasks.query.language_model.select_prompt import (
    AlternativePick,
    Pick,
    SelectAnswer,
    SelectEntry,
    check_answer,
    find_injection,
    select_request,
)
from tasks.query.ranking import RankedSkill, Ranking, Selection

_TIED_PICKS = 4
"""Number of picks from which on equal grades for all of them say nothing."""

_REASON = "the language model selected it"
_NOT_SHOWN = "not shown to the language model, since its text speaks to it"
_LINK_WORDS = {
    (LinkType.DEPENDENCY, True): "needs",
    (LinkType.DEPENDENCY, False): "needed by",
    (LinkType.WORKFLOW, True): "before",
    (LinkType.WORKFLOW, False): "after",
    (LinkType.ALTERNATIVE, True): "like",
    (LinkType.ALTERNATIVE, False): "like",
    (LinkType.USED_TOGETHER, True): "used with",
    (LinkType.USED_TOGETHER, False): "used with",
    (LinkType.CONFLICT, True): "conflicts with",
    (LinkType.CONFLICT, False): "conflicts with",
}


def select_skills(context: QueryContext, ranking: Ranking) -> Ranking:
    """Return the ranking with the skills that the model selected first, and the selection.

    Needed skills come first, then useful ones and alternatives by their relevancy, then skills that
    the model did not mention, then rejected ones. Within the last two groups the order stays. A
    skill whose name or description gives orders to the model is not shown to it, and keeps its
    place. Without a usable answer the ranking is returned unchanged, and the degradations name the
    reason.
    """
    settings = context.services.settings.language_model
    hits = ranking.hits[: settings.select_candidates]
    if len(hits) < 2 or _is_certain(hits, settings.select_margin):
        return ranking
    if not is_evident(context, ranking):
        return ranking  # the answer is NO_SKILL_HIT
    began = time.monotonic()
    try:
        revisions = context.services.index.get_revisions([hit.key for hit in hits])
        hidden = _find_injections(hits, revisions)
        shown = [hit for hit in hits if hit.key.skill_id not in hidden]
        numbered = _number(context.text, shown)
        entries = _describe(context, ranking.understanding, numbered, revisions)
    except TransientError as error:
        context.degradations.add("select was skipped: the candidates could not be read", error)
        return ranking
    if hidden:
        context.model_calls.report("select", not_shown=hidden)
    if len(numbered) < 2:
        return ranking
    answer = ask_model(
        context,
        select_request(context.text, entries),
        SelectAnswer,
        lambda given: check_answer(given, len(numbered)),
        began,
    )
    if answer is None:
        return ranking
    doubt = _find_doubt(answer, len(numbered))
    if doubt:
        context.degradations.add(f"select was not used: {doubt}")
        context.model_calls.report("select", outcome=doubt)
        return ranking
    return _apply(context, ranking, numbered, answer, hidden)


def _is_certain(hits: Sequence[RankedSkill], margin: float) -> bool:
    """Return whether the first candidate leads so clearly that no question to the model is
    needed."""
    return margin > 0 and hits[0].score - hits[1].score >= margin * hits[0].score


def _number(task: str, hits: Sequence[RankedSkill]) -> list[RankedSkill]:
    """Return the candidates in the order of their numbers. It is independent of their rank, which a
    model would repeat, and does not change when two candidates swap ranks."""

    def shuffled(hit: RankedSkill) -> bytes:
        return hashlib.sha256(f"{hit.key.skill_id}\n{task}".encode("utf-8", "replace")).digest()

    return sorted(hits, key=shuffled)


def _find_injections(
    hits: Sequence[RankedSkill], revisions: Mapping[RevisionKey, StoredRevision]
) -> dict[str, str]:
    """Return the candidates whose name or description gives orders to the model, with the kind of
    injection."""
    found: dict[str, str] = {}
    for hit in hits:
        revision = revisions.get(hit.key)
        record = revision.parsed.record if revision else None
        texts = (record.name, record.description) if record else (hit.key.skill_id,)
        injection = next(filter(None, map(find_injection, texts)), "")
        if injection:
            found[hit.key.skill_id] = injection
    return found


def _describe(
    context: QueryContext,
    task: Understanding,
    numbered: Sequence[RankedSkill],
    revisions: Mapping[RevisionKey, StoredRevision],
) -> list[SelectEntry]:
    services = context.services
    ids = [hit.key.skill_id for hit in numbered]
    rows = services.graph.get_adjacency(ids, services.settings.diffusion.fan_out)
    numbers = {skill_id: number for number, skill_id in enumerate(ids, 1)}
    entries = []
    for hit in numbered:
        revision = revisions.get(hit.key)
        links = _describe_links(rows.get(hit.key.skill_id), numbers)
        if revision is None:  # removed in the meantime
            entries.append(SelectEntry(hit.key.skill_id, "", "", links))
            continue
        record = revision.parsed.record
        section = _find_best_section(task, revision)
        section = "" if section and find_injection(section) else section
        entries.append(SelectEntry(record.name, record.description, section, links))
    return entries


def _find_best_section(task: Understanding, revision: StoredRevision) -> str:
    """Return the heading of the section that shares most with the task, "" if no section does."""
    terms, parsed = revision.passage_terms, revision.parsed
    order = np.argsort(task.ids)
    ids, weights = task.ids[order], task.weights[order]
    places = np.searchsorted(ids, terms.terms)
    known = places < len(ids)
    known[known] = ids[places[known]] == terms.terms[known]
    gains = np.zeros(len(terms.terms))
    gains[known] = weights[places[known]] * np.log1p(terms.counts[known])
    best, heading = 0.0, ""
    for passage, (start, end) in enumerate(
        zip(terms.offsets[:-1].tolist(), terms.offsets[1:].tolist(), strict=True)
    ):
        gain = float(gains[start:end].sum())
        path = parsed.sections[parsed.passages[passage].section].heading_path
        if gain > best and len(path) > 1:
            best, heading = gain, path[-1]
    return heading


def _describe_links(row: Adjacency | None, numbers: Mapping[str, int]) -> tuple[str, ...]:
    """Return the links of a candidate to other candidates: `needs 3`."""
    found: dict[str, set[int]] = {}
    for neighbour in row.neighbours if row else ():
        word = _LINK_WORDS.get((neighbour.type, neighbour.forward))
        if word and neighbour.skill_id in numbers:
            found.setdefault(word, set()).add(numbers[neighbour.skill_id])
    return tuple(f"{word} {', '.join(map(str, sorted(ids)))}" for word, ids in found.items())


def _find_doubt(answer: SelectAnswer, count: int) -> str:
    """Return why a well-formed answer has no information, "" if it has some."""
    picks = [*answer.needed, *answer.useful]
    if not answer.needed:
        return "the language model found none of the candidates needed"
    if count > _TIED_PICKS and len(picks) + len(answer.alternatives) == count:
        return "the language model selected every candidate"
    grades = {(pick.relevancy, pick.specificity) for pick in picks}
    if len(picks) >= _TIED_PICKS and len(grades) == 1:
        return "the language model graded all candidates alike"
    return ""


def _apply(
    context: QueryContext,
    ranking: Ranking,
    numbered: Sequence[RankedSkill],
    answer: SelectAnswer,
    hidden: Mapping[str, str],
) -> Ranking:
    ids = [hit.key.skill_id for hit in numbered]

    def named(numbers: Sequence[int]) -> tuple[str, ...]:
        return tuple(ids[number - 1] for number in numbers)

    needed = named([pick.id for pick in answer.needed])
    rejected = {
        skill_id: group.reason for group in answer.rejected for skill_id in named(group.ids)
    }
    alternatives = {
        ids[pick.id - 1]: f"{RejectionReason.REDUNDANT.meaning}: {ids[pick.of - 1]}"
        for pick in answer.alternatives
    }
    left_out = {name: f"{_NOT_SHOWN}: {order}" for name, order in hidden.items()}
    left_out |= {name: reason.meaning for name, reason in rejected.items()} | alternatives
    selection = Selection(
        needed=needed,
        useful=_weigh_useful(answer, ids),
        order=named(answer.order),
        rejected=left_out,
        complete=answer.complete,
    )
    conflicts = tuple((ids[one - 1], ids[other - 1]) for one, other in answer.conflicts)
    replaced = {ids[pick.id - 1]: ids[pick.of - 1] for pick in answer.alternatives}
    record_rejections(context, rejected, replaced, conflicts)
    context.model_calls.report(
        "select",
        candidates=len(ids),
        needed=needed,
        useful=tuple(selection.useful),
        order=selection.order,
        conflicts=conflicts,
        complete=answer.complete,
        rejected={name: str(reason) for name, reason in rejected.items()},
        alternatives=replaced,
    )
    first = (*needed, *named([pick.id for pick in _list_helpful(answer)]))
    places = {skill_id: (0, place) for place, skill_id in enumerate(first)}
    places |= dict.fromkeys(rejected, (2, 0))
    asked = len(numbered) + len(hidden)
    head = _reorder(ranking.hits[:asked], places, set(needed), hidden)
    return replace(
        ranking,
        hits=(*head, *ranking.hits[asked:]),
        selection=selection,
        conflicts=conflicts,
    )


def _weigh_useful(answer: SelectAnswer, ids: Sequence[str]) -> dict[str, float]:
    """Return the relevancy of the useful skills as a share of that of the best needed one."""
    best = max([1, *(pick.relevancy for pick in answer.needed)])
    return {ids[pick.id - 1]: pick.relevancy / best for pick in answer.useful}


def _list_helpful(answer: SelectAnswer) -> list[Pick | AlternativePick]:
    """Return useful skills and alternatives, best first."""
    helpful: list[Pick | AlternativePick] = [*answer.useful, *answer.alternatives]
    return sorted(helpful, key=lambda pick: -pick.relevancy)


def _reorder(
    hits: Sequence[RankedSkill],
    places: Mapping[str, tuple[int, int]],
    needed: AbstractSet[str],
    hidden: Collection[str],
) -> list[RankedSkill]:
    """Return the hits by their places; hits without a place come in between, and ties stay in
    order. Hidden hits stay at their places: an answer that is not about them neither raises nor
    lowers them.

    The scores of the places stay, so that their spread keeps its meaning; the gain or loss of a hit
    is its part `select`.
    """
    shown = [hit for hit in hits if hit.key.skill_id not in hidden]
    order = iter(sorted(shown, key=lambda hit: places.get(hit.key.skill_id, (1, 0))))
    result = []
    for place in hits:
        hit = place if place.key.skill_id in hidden else next(order)
        why = (_REASON, *hit.why) if hit.key.skill_id in needed else hit.why
        parts = {**hit.parts, "select": place.score - hit.score}
        result.append(replace(hit, score=place.score, parts=parts, why=why))
    return result
