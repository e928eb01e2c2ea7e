"""Assemble: the bundle of the selected passages, within the token budget."""

from __future__ import annotations

from collections.abc import Iterable, Sequence

from config.errors import TransientError
from graph.entry_filter import EntryCount
from graph.records import Link, SkillState
from search.protocol import Filters, FilterSearch
from skills.bundle.budget_form import BudgetForm, with_markdown_tokens
from skills.bundle.markdown import summarise_withheld
from skills.bundle.model import Bundle, LeftOutSkill
from skills.events import QueryFilters
from skills.licences import licence_names
from tasks.query.bundle_parts import (
    collect_withheld,
    estimate_bundle,
    find_folders,
    list_left_out,
    round_probability,
    select_links,
)
from tasks.query.context import QueryContext
from tasks.query.filling.allocation import allocate_and_fill, check_size
from tasks.query.filling.candidates import describe_candidates
from tasks.query.filling.session import fill_session_bundle
from tasks.query.read_chosen import ChosenRevisions
from tasks.query.select_passages import SkillPassages
from tasks.query.session.portions import list_already_sent

_MAX_NAMED, _MAX_CHARACTERS = 5, 80
"""Maximum filter values that a reason names, and characters of each."""


def assemble(
    context: QueryContext, chosen: ChosenRevisions, selected: Sequence[SkillPassages]
) -> Bundle:
    """Return the bundle of a hit, with the selected passages that fit.

    Raises UsageError if not even the best skill with one passage fits into the budget.
    """
    form = context.request.budget_form
    bundle = _begin_bundle(context, chosen).model_copy(
        update={
            "folders": find_folders(context, [one.chosen.skill_id for one in selected]),
            "already_sent": tuple(list_already_sent(context.session, selected)),
        }
    )
    links = select_links(context, selected)
    left_out = list_left_out(context, chosen.choice)
    filled = fill_bundle(bundle, selected, links, left_out, form)
    filled = describe_candidates(context, chosen, filled, form)
    if form is not BudgetForm.MARKDOWN:
        filled = with_markdown_tokens(filled)
    held = {one.skill_id for one in filled.skills} | {one.skill_id for one in filled.already_sent}
    probability = estimate_bundle(
        chosen.ranking, [one.chosen for one in selected if one.chosen.skill_id in held]
    )
    return filled.model_copy(update={"probability": probability})


def _begin_bundle(context: QueryContext, chosen: ChosenRevisions) -> Bundle:
    """Return a hit without skills: the query itself, and what the policy withholds."""
    withheld, warning = collect_withheld(context, chosen.ranking, chosen.choice)
    return Bundle(
        query_id=context.query_id,
        status="SKILL_HIT",
        warning=warning,
        task=context.task,
        session=context.request.session,
        obstacle=context.request.obstacle,
        earlier=context.session.answers,
        brief=context.request.brief,
        budget=context.budget,
        withheld=withheld,
    )


def assemble_no_hit(
    context: QueryContext, chosen: ChosenRevisions, *, is_unlikely: bool = False
) -> Bundle:
    """Return the bundle without a skill, and the reason why there is none.

    is_unlikely: skills were found, but none reached the probability that the request asks for.
    """
    bundle = _begin_bundle(context, chosen)
    if is_unlikely:
        reason = "no skill reaches the least_probability of the query"
    elif bundle.withheld.count:
        reason = f"every skill about the task is withheld: {summarise_withheld(bundle.withheld)}"
    elif not context.services.library.latest.pointers:
        reason = "the library holds no skill yet"
    elif chosen.ranking.refused:
        reason = "all skills about the task have failed or were rejected in this session"
    elif not chosen.ranking.hits and context.request.filters != QueryFilters():
        reason = _explain_filtered(context)
    else:
        reason = "the library probably has no skill for the task"
    update = {
        "status": "NO_SKILL_HIT",
        "reason": reason,
        "probability": round_probability(chosen.ranking.probability),
        "left_out": tuple(list_left_out(context, chosen.choice)),
    }
    return with_markdown_tokens(bundle.model_copy(update=update))


def _explain_filtered(context: QueryContext) -> str:
    """Return the reason why no skill passes the filters; names values that no skill has, since they
    may be misspelt. The catalog may not answer, and does not hold the tools of skills."""
    filters = context.request.filters
    wanted = {"source": filters.source, "licence": filters.licence, "language": filters.language}
    counts = context.services.graph.count_entries()
    rows = [_list_filter_values(one) for one in counts if one.state is SkillState.PUBLISHED]
    unknown = [
        f"{name} {value[:_MAX_CHARACTERS]!r}"
        for name, values in wanted.items()
        for value in values
        if not any(value in row[name] for row in rows)
    ]
    unknown += [f"tool {value[:_MAX_CHARACTERS]!r}" for value in _find_unknown_tools(context)]
    if rows and unknown:
        others = [f"{len(unknown) - _MAX_NAMED} others"] if len(unknown) > _MAX_NAMED else []
        named = " or ".join([*unknown[:_MAX_NAMED], *others])
        return f"no skill matches the filters: none has {named}"
    if rows and not any(
        all(not values or row[name].intersection(values) for name, values in wanted.items())
        for row in rows
    ):
        return "no skill matches all filters"
    if filters.tool or not rows:
        return "no skill both matches the filters and is related to the task"
    return "no skill that matches the filters is related to the task"


def _find_unknown_tools(context: QueryContext) -> list[str]:
    """Return the tools of the filters that no revision in the index has."""
    tools = context.request.filters.tool
    searches = [FilterSearch(1, Filters(tool=(value,))) for value in tools]
    try:
        found = context.services.index.search_many(searches) if searches else []
    except TransientError:
        return []
    return [value for value, hits in zip(tools, found, strict=True) if not hits]


def _list_filter_values(count: EntryCount) -> dict[str, frozenset[str]]:
    return {
        "source": frozenset((count.source_id,)),
        "licence": frozenset(licence_names(count.licence)),
        "language": frozenset((count.language,)),
    }


def fill_bundle(
    bundle: Bundle,
    skills: Sequence[SkillPassages],
    links: Iterable[Link],
    left_out: Sequence[LeftOutSkill],
    form: BudgetForm = BudgetForm.MARKDOWN,
) -> Bundle:
    """Fill a bundle so that its `tokens`, counted in this form, stay within its budget.

    Lines that were sent before in the session are not sent again, and a brief bundle has only the
    portion of each skill. Skills that are left out are not named where the names would leave no
    room for a passage. Raises UsageError if not even the best skill with its shortest passage
    fits; the message names a budget that would do.
    """
    shell = bundle.model_copy(update={"left_out": tuple(left_out)})
    if bundle.brief or bundle.already_sent:
        return fill_session_bundle(shell, skills, tuple(links), form, brief=bundle.brief)
    return check_size(allocate_and_fill(shell, skills, tuple(links), form)[1])
