"""Descriptions of candidates that are not sent, with the tokens that the passages leave."""

from __future__ import annotations

from collections.abc import Iterator, Sequence

from config.errors import TransientError
from skills.bundle.budget_form import BudgetForm
from skills.bundle.markdown import render_candidate
from skills.bundle.model import Bundle, LeftOutSkill
from skills.record import RevisionKey
from skills.token_count import count_tokens
from tasks.query.bundle_parts import find_folders, round_probability
from tasks.query.context import QueryContext
from tasks.query.filling.bundle_skill import truncate_description
from tasks.query.read_chosen import ChosenRevisions

_MAX_DESCRIBED = 5
_LEAST_PROBABILITY = 0.005
"""Minimum probability of a skill that is described. Of 785 prompts, the first ten have the right
skill below it for 1."""

_OPENING = 100
"""Characters at the start of a description by which copies of a skill are recognised."""

_LEAST_TOKENS = 20
"""Tokens of the shortest description with its id."""


def describe_candidates(
    context: QueryContext, chosen: ChosenRevisions, bundle: Bundle, form: BudgetForm
) -> Bundle:
    """Return the bundle with descriptions of the best skills that are not sent, as many as fit: an
    agent may see that one of them suits the task better, and read it.

    They are the chosen skills that did not fit, then skills among the first `top` that are too
    improbable to be chosen. Passages go first: skills are described with what they leave. Later
    answers of a session describe none, since they would repeat them.
    """
    if bundle.brief or bundle.earlier or bundle.budget - bundle.tokens < _LEAST_TOKENS:
        return bundle
    room = bundle.budget - bundle.tokens
    known = {_opening(skill.description) for skill in bundle.skills}
    described: list[LeftOutSkill] = []
    for candidate in _read_candidates(context, chosen, bundle):
        tokens = count_tokens(render_candidate(candidate))
        opening = _opening(candidate.description)
        if tokens <= room and opening not in known:  # else it is a copy
            room -= tokens
            known.add(opening)
            described.append(candidate)
        if len(described) == _MAX_DESCRIBED:
            break
    in_skills = bundle.tokens - form.count_rest(bundle)
    while described:
        wider = _add(context, bundle, described)
        tokens = in_skills + form.count_rest(wider)
        if tokens <= bundle.budget:
            return wider.model_copy(update={"tokens": tokens})
        described.pop()
    return bundle


def _opening(description: str) -> str:
    return description[:_OPENING]


def _add(context: QueryContext, bundle: Bundle, described: Sequence[LeftOutSkill]) -> Bundle:
    """Return the bundle with these candidates and their folders."""
    ids = [one.skill_id for one in described]
    others = [one for one in bundle.left_out if one.skill_id not in ids]
    update = {
        "left_out": (*described, *others),
        "folders": bundle.folders | find_folders(context, ids),
    }
    return bundle.model_copy(update=update)


def _read_candidates(
    context: QueryContext, chosen: ChosenRevisions, bundle: Bundle
) -> Iterator[LeftOutSkill]:
    """Yield the first candidates that are not sent, with the descriptions of the revisions that
    were ranked: the policy has checked these, not those that were published since."""
    unsent = _list_unsent(context, chosen, bundle)
    if not unsent:
        return
    try:
        entries = context.services.graph.get_entries([key.skill_id for key in unsent])
    except TransientError as error:
        context.degradations.add("no descriptions of further candidates", error)
        return
    found = {RevisionKey(entry.skill_id, entry.seq): entry for entry in entries}
    unfit = {one.skill_id: one.reason for one in bundle.left_out if one.cause == "budget"}
    for key, probability in unsent.items():
        entry = found.get(key)
        # A skill with findings is not described, since that would leave out the caution.
        if entry is None or not entry.description or entry.safety_level:
            continue
        yield LeftOutSkill(
            skill_id=entry.skill_id,
            name=entry.name,
            reason=unfit.get(entry.skill_id, "unlikely to be right for the task"),
            description=truncate_description(entry.description),
            probability=round_probability(probability),
            tokens=entry.tokens,
            cause="budget" if entry.skill_id in unfit else "improbable",
        )


def _list_unsent(
    context: QueryContext, chosen: ChosenRevisions, bundle: Bundle
) -> dict[RevisionKey, float | None]:
    """Return the probabilities of the chosen skills that did not fit, then of skills among the
    first `top` that are too improbable to be chosen; none if a language model selected the skills,
    since it rejected the others."""
    choice, ranking = chosen.choice, chosen.ranking
    if ranking.selection is not None:
        return {}
    unfit = {one.skill_id for one in bundle.left_out if one.cause == "budget"}
    unsent = {
        chosen.revisions[one.skill_id].key: one.probability
        for one in choice.chosen
        if one.skill_id in unfit
    }
    known = choice.chosen_ids() | {one.skill_id for one in choice.left_out}
    for hit in ranking.hits[: context.top]:
        if hit.key.skill_id not in known and (hit.probability or 0.0) >= _LEAST_PROBABILITY:
            unsent[hit.key] = hit.probability
    return unsent
