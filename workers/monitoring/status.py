"""Status of a library as JSON data: counts, open jobs, sources."""

from __future__ import annotations

import time
from collections.abc import Mapping
from dataclasses import asdict
from typing import Any

from config.errors import SkillbusError
from config.language_model_settings import LanguageModelSettings
from config.settings import Settings
from graph.protocol import Catalog
from graph.records import SkillState, Source
from skills.outcomes.model import to_day
from skills.parsing.parse_skill import PARSER_VERSION
from tasks.coordination.protocol import Coordinator
from tasks.journal.protocol import Journal
from tasks.language_model.answer_store import AnswerStore, utc_day
from tasks.outcomes.protocol import OutcomeStore
from tasks.refine.refined_subjects import RefinedSubjects
from workers.library.review.review_list import ReviewLister
from workers.queue.status_reporter import read_consumer_statuses


def home_status(
    settings: Settings,
    graph: Catalog,
    journal: Journal,
    serving: bool,
    problem: str = "",
    answers: AnswerStore | None = None,
    refined: RefinedSubjects | None = None,
    outcomes: OutcomeStore | None = None,
    reviews: ReviewLister | None = None,
) -> dict[str, Any]:
    """Return the status of an embedded library.

    problem: why processing is stalled, "" while it is not. answers: of the language model, None if
    none is in use. refined: cache of its refinements. outcomes: None leaves usage out. reviews:
    None leaves reviews out.
    """
    model: dict[str, Any] = {}
    if answers is not None:
        model = language_model_status(settings.language_model, answers)
    if answers is not None and settings.language_model.offline_stages:
        from workers.library.refinement import RefinementProgress  # only with a model

        progress = RefinementProgress(settings.language_model, graph, answers, refined=refined)
        progress.find_missing()
        model["language_model"]["refinement"] = {"stages": progress.count_by_stage()}
    return {
        "home": str(settings.home),
        "serving": serving,
        "problem": problem,
        "trouble": problem,  # the name before 0.2; remove it after that version
        "encoder": settings.encoder.model,
        **catalog_status(graph.get_counts(), graph.count_parsed_before(PARSER_VERSION)),
        **journal_status(journal),
        "sources": [source_status(source) for source in graph.list_sources()],
        "submissions": read_consumer_statuses(settings.home),
        **({} if outcomes is None else usage_status(outcomes)),
        **({} if reviews is None else {"reviews": _count_reviews(reviews)}),
        **model,
    }


def visible_status(graph: Catalog, problem: str) -> dict[str, Any]:
    """Return the status of the sources that a reader may see, if it may not see all.

    graph: restricted to that reader. problem: as for `home_status`, without details.
    """
    sources = graph.list_sources()
    counted = graph.count_states_by_source([source.source_id for source in sources]).values()
    states = (SkillState.PUBLISHED, SkillState.FAILED, SkillState.PENDING, SkillState.HELD)
    return {
        "problem": problem,
        "skills": {
            state.value: sum(counts.get(state, 0) for counts in counted) for state in states
        },
        "sources": [source_status(source) for source in sources],
    }


def _count_reviews(reviews: ReviewLister) -> dict[str, int] | None:
    """Return the counts of reviews, None while the index cannot be read, as before a reindex."""
    try:
        return reviews.count()
    except SkillbusError:
        return None


def language_model_status(
    settings: LanguageModelSettings, answers: AnswerStore, now: float | None = None
) -> dict[str, Any]:
    """Return today's (UTC) use of the language model, by stage, and the tokens that are left.

    now: seconds since 1970 [default: the present]. Without a limit, limit and remaining tokens are
    None.
    """
    day = utc_day(time.time() if now is None else now)
    usage = answers.get_usage(day)
    tokens = sum(stage.tokens for stage in usage.values())
    limit = settings.daily_tokens or None
    return {
        "language_model": {
            "model": settings.model,
            "stages": list(settings.stages),
            "day": day,
            "tokens": tokens,
            "daily_tokens": limit,
            "tokens_left": None if limit is None else max(0, limit - tokens),
            "usage": {name: asdict(stage) for name, stage in usage.items()},
        }
    }


def catalog_status(counts: Mapping[str, int], outdated: int) -> dict[str, Any]:
    """Return skills by state, and progress of embedding and linking.

    outdated: number of skills that an older version of the parser parsed.
    """
    published, embedded = counts.get("published", 0), counts.get("embedded", 0)
    with_vectors = counts.get("with_vectors", 0)
    embedded_share = round(embedded / published, 4) if published else 1.0
    return {
        "skills": {
            "published": published,
            "failed": counts.get("failed", 0),
            "held": counts.get("held", 0),
            "removed": counts.get("removed", 0),
            "waiting": counts.get("waiting", 0),
        },
        "with_vectors": with_vectors,
        "with_vectors_share": round(with_vectors / published, 4) if published else 1.0,
        "embedded": embedded,
        "embedded_share": embedded_share,
        # The names before 0.2; remove them after that version.
        "paged": embedded,
        "paging_done": embedded_share,
        "outdated": outdated,
        "unlinked": counts.get("unlinked", 0),
        "links": counts.get("links", 0),
    }


def journal_status(journal: Journal) -> dict[str, Any]:
    """Return numbers and ages in seconds of open events and queries, and the
    number of dead letters."""
    return {
        "open_events": journal.count_open_jobs("event"),
        "open_queries": journal.count_open_jobs("query"),
        "oldest_event_seconds": round(journal.get_oldest_job_age("event"), 1),
        "oldest_query_seconds": round(journal.get_oldest_job_age("query"), 1),
        "dead_letters": journal.count_dead_letters(),
    }


def usage_status(outcomes: OutcomeStore) -> dict[str, Any]:
    """Return the number of past days (UTC) with changed usage that is not rolled up yet."""
    today = to_day(time.time())
    return {"usage_days_behind": sum(day < today for day in outcomes.list_changed_days())}


def source_status(source: Source) -> dict[str, Any]:
    """Return the status of a source, with time and age in seconds of its last
    full sync (None: never).

    For a git source also the fetched branch and path, the synced commit, and time and
    error of the last fetch.
    """
    lag_seconds = (
        round(max(0.0, time.time() - source.last_success), 1) if source.last_success else None
    )
    status: dict[str, Any] = {
        "source_id": source.source_id,
        "kind": source.kind,
        "root": source.root,
        "last_success": source.last_success,
        "lag_seconds": lag_seconds,
    }
    if source.kind == "git":
        status |= {
            "branch": source.branch,
            "path": source.path,
            "licences": list(source.licences),
            "poll_seconds": source.poll_seconds,
            "commit": source.commit,
            "last_attempt": source.last_attempt,
            "last_error": source.last_error,
        }
    return status


def oldest_change_age_seconds(graph: Catalog, coordinator: Coordinator) -> float | None:
    """Return the age of the oldest change that is not ingested yet; 0 without one, None if unknown
    because the change was recorded before this process started."""
    oldest = graph.list_awaiting_ingest(1)
    if not oldest:
        return 0.0
    seq = oldest[0].requested_seq
    request = coordinator.get_ingest_requests([seq]).get(seq)
    return None if request is None else round(max(0.0, time.time() - request.since), 1)
