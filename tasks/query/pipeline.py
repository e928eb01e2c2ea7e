"""A query from the task to the bundle: all stages in their order."""

from __future__ import annotations

from dataclasses import replace
from typing import NamedTuple

from search.models.language_bias import remove_language
from search.protocol import Filters, Vector
from search.text.script_balance import balance_scripts
from skills.bundle.model import Bundle
from skills.events import QueryAsked
from tasks.policies import Deadline
from tasks.query.assemble import assemble, assemble_no_hit
from tasks.query.choose import choose, is_evident
from tasks.query.context import QueryContext, StageTimings, check_query
from tasks.query.diffuse import diffuse
from tasks.query.explanation.explain import explain
from tasks.query.explanation.explain_skills import explain_skills
from tasks.query.language_model.show_model_roles import show_model_roles
from tasks.query.memory.recall import add_reasons, add_remembered, nudge, recall
from tasks.query.ranking import Ranking, TaskQuery, estimate_probabilities
from tasks.query.read_chosen import ChosenRevisions, read_chosen
from tasks.query.rerank import rerank
from tasks.query.retrieve import retrieve, score
from tasks.query.select_passages import SkillPassages, select_passages
from tasks.query.session.obstacle import encode_query, understand_query
from tasks.query.session.obstacle_passages import put_error_handling_first
from tasks.query.session.portions import mark_sent
from tasks.query.session.refused import drop_refused
from tasks.query.session.state import Asker
from tasks.services import Services


class Answer(NamedTuple):
    """The answer to a query. vector: of the task, None if dense scores mean nothing."""

    bundle: Bundle
    vector: Vector | None


def answer_query(
    services: Services,
    deadline: Deadline,
    query_id: str,
    request: QueryAsked,
    timings: StageTimings | None = None,
    asker: Asker | None = None,
    wanted_seconds: float | None = None,
) -> Answer:
    """Answer a task with a bundle: a hit with skills, or none if the library has no evidence.

    If stores are servers, the query continues without a server that does not answer. If a complete
    answer would take longer than `wanted_seconds`, links are left out, and then the encoder.
    `degraded` of the bundle names the missing parts. Raises UsageError for an invalid query,
    TransientError for a query that may be answered later.
    """
    check_query(request, services.settings.limits.query_characters)
    context = QueryContext.create(
        services,
        request,
        deadline,
        timings,
        query_id=query_id,
        asker=asker,
        wanted_seconds=wanted_seconds,
    )
    timed = context.timings.measure
    ranking = rank_skills(context)
    chosen = ChosenRevisions(ranking)
    selected: list[SkillPassages] = []
    # Skills in use are known to be about the task, so they can answer an obstacle without evidence.
    if is_evident(context, ranking) or (context.obstacle and context.session.in_use):
        with timed("choose"):
            choice = choose(context, ranking)
        with timed("select_passages"):
            chosen = show_model_roles(context, read_chosen(context, ranking, choice))
            selected = mark_sent(context.session, select_passages(context, chosen))
            if context.obstacle:
                selected = put_error_handling_first(context, selected)
    bundle = None
    if selected:
        with timed("bundle"):
            bundle = assemble(context, chosen, selected)
    if bundle is None or _is_unlikely(request, bundle):
        bundle = assemble_no_hit(context, chosen, is_unlikely=bundle is not None)
    if request.record_use:
        services.record_use([skill.skill_id for skill in bundle.skills])
    return Answer(_complete(context, chosen, bundle), ranking.vector)


def rank_skills(context: QueryContext) -> Ranking:
    """Return the ranking before choosing: candidates, reranked, diffused and selected, without
    withheld skills."""
    ranking = rank_candidates(context)
    context.deadline.check("retrieve")
    with context.timings.measure("rerank"):
        ranking = context.rank_recorder.record("rerank", rerank(context, ranking))
    if context.is_on("diffusion") and context.has_time("diffuse"):
        with context.timings.measure("diffuse"):
            ranking = context.rank_recorder.record("diffuse", _diffuse(context, ranking))
    ranking = nudge(context.policy_filter.withhold(ranking))
    ranking = drop_refused(ranking, context.session)
    context.rank_recorder.record("policy and session", ranking)
    with context.timings.measure("probability"):
        library = context.services.library
        ranking = estimate_probabilities(ranking, library.latest.statistics, library.records)
    if context.uses_model("select"):
        # Imported only if a model is configured: building the forms of answers takes time.
        from tasks.query.language_model.select_skills import select_skills

        with context.timings.measure("select"):
            ranking = context.rank_recorder.record("select", select_skills(context, ranking))
    return ranking


def rank_candidates(context: QueryContext) -> Ranking:
    """Return the ranking before reranking: candidates of the engine by their exact scores.

    Raises UsageError for an empty task.
    """
    timed = context.timings.measure
    services = context.services
    with timed("understand"):
        snapshot = services.library.refresh()
        understanding = understand_query(context)
    if snapshot.error is not None:
        reason = f"the library as of {snapshot.age_seconds:.0f} s ago: a store did not answer"
        context.degradations.add(reason, snapshot.error)
    vector = None
    if (
        context.is_on("dense")
        and understanding.has_words
        and understanding.language in services.encoder.get().languages
        and context.has_time("encode")
    ):
        with timed("encode"):
            vector = encode_query(context, understanding)
    query = TaskQuery(snapshot, understanding, vector)
    if context.is_on("memory"):
        with timed("memory"):
            query = recall(context, query)
    # After the memory, which compares the task with past ones by its own words and vector.
    query = replace(query, understanding=balance_scripts(understanding, snapshot.statistics))
    if vector is not None:
        encoder = services.encoder.get()
        query = replace(query, vector=remove_language(vector, understanding.text, encoder))
    with timed("retrieve"):
        candidates = add_remembered(context, retrieve(context, query))
    context.rank_recorder.record_candidates(candidates)
    violations = context.policy_filter.find_violations(candidates.keys)
    with timed("score"):
        ranking = add_reasons(score(context, candidates, violations))
    context.rank_recorder.record("score", ranking)
    if context.uses_model("rewrite"):
        from tasks.query.language_model.rewrite import rewrite

        with timed("rewrite"):
            rewritten = rewrite(context, candidates.query, ranking)
        ranking = context.rank_recorder.record("rewrite", rewritten)
    return ranking


def _diffuse(context: QueryContext, ranking: Ranking) -> Ranking:
    services, settings = context.services, context.services.settings.diffusion
    in_use = context.session.in_use[: settings.seeds] if context.obstacle else ()
    # Read before the links: later changes have a higher epoch.
    epoch = services.library.epoch
    # Skills that are added over links would bypass the filters of a request.
    linkable = services.library.latest.pointers if context.filters == Filters() else {}
    return diffuse(
        ranking,
        settings,
        lambda ids: services.graph.get_adjacency(ids, settings.fan_out),
        linkable,
        in_use,
        epoch,
    )


def _is_unlikely(request: QueryAsked, bundle: Bundle) -> bool:
    """Return whether the bundle is less probable to be right than the request asks for."""
    least = request.least_probability
    return least is not None and bundle.probability is not None and bundle.probability < least


def _complete(context: QueryContext, chosen: ChosenRevisions, bundle: Bundle) -> Bundle:
    """Return the bundle with degradations, timings and the explanation, which are known only at the
    end."""
    context.degradations.log_errors(context.query_id)
    known = {
        "degraded": context.degradations.reasons,
        "timings_ms": context.timings.milliseconds,
    }
    bundle = bundle.model_copy(update=known)
    if not (context.request.explain or context.request.explain_skills):
        return bundle
    explained = explain(context, chosen, bundle)
    if context.request.explain_skills:
        explained["skills"] = explain_skills(context, chosen, bundle)
    return bundle.model_copy(update={"explain": explained})
