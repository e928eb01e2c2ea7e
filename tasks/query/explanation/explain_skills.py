"""Explanation of single skills: the stage in which a skill was dropped and why, or that it is in
the bundle."""

from __future__ import annotations

from typing import Any

from graph.records import CatalogEntry, SkillState
from search.protocol import Filters
from skills.bundle.model import Bundle
from skills.licences import licence_names
from skills.record import RevisionKey
from tasks.query.context import QueryContext
from tasks.query.explanation.explain import explain_choice, list_verdicts
from tasks.query.ranking import Candidates
from tasks.query.read_chosen import ChosenRevisions
from tasks.query.retrieve import EngineRanks, find_engine_ranks, score

_STATES = {
    SkillState.PENDING: "it is not indexed yet",
    SkillState.FAILED: "it could not be read",
    SkillState.HELD: "its revision waits for review",
    SkillState.REMOVED: "it was removed",
}
UNKNOWN = "the library has no such skill, or you may not see it"


def explain_skills(
    context: QueryContext, chosen: ChosenRevisions, bundle: Bundle
) -> list[dict[str, Any]]:
    """Return the outcome of each skill that the request asks about.

    stage: the stage that dropped it, or `bundle` if it is in the bundle: `library`, `filters`,
    `policy`, `retrieve`, `rank` (too many other skills score higher), `session` or `choose`.
    reason: in words. ranks: by stage, 0 if it was not among the hits. engine: for a skill that
    search did not find, its rank by words and by meaning, and the number of each that become
    candidates. scores: the parts of its score.
    """
    asked = context.request.explain_skills
    entries = {one.skill_id: one for one in context.services.graph.get_entries(asked)}
    verdicts = explain_choice(chosen, bundle) | dict(list_verdicts(context, chosen, bundle))
    return [
        {"skill_id": one} | _explain(context, chosen, one, entries.get(one), verdicts.get(one))
        for one in asked
    ]


def _explain(
    context: QueryContext,
    chosen: ChosenRevisions,
    skill_id: str,
    entry: CatalogEntry | None,
    verdict: str | None,
) -> dict[str, Any]:
    """Explain one skill. entry: None also for a published skill if the catalog does not answer."""
    seq = entry.seq if entry else context.services.library.latest.pointers.get(skill_id)
    if seq is None:
        return {"stage": "library", "reason": UNKNOWN}
    if entry is not None and entry.state is not SkillState.PUBLISHED:
        reason = f": {entry.reason}" if entry.reason else ""
        return {"stage": "library", "reason": _STATES[entry.state] + reason}
    ranking = chosen.ranking
    ranks = {"ranks": context.rank_recorder.ranks.get(skill_id, {})}
    if verdict is not None:
        hit = next((one for one in ranking.hits if one.key.skill_id == skill_id), None)
        is_in, reason = verdict.startswith("in: "), verdict.partition(": ")[2]
        found: dict[str, Any] = {"stage": "bundle" if is_in else "choose", "reason": reason}
        if hit is not None:
            found["probability"] = hit.probability
            found["scores"] = _describe_scores(hit.score, hit.parts)
        return found | ranks
    if entry is not None and (excluded := _find_filter(context.filters, entry)):
        return {"stage": "filters", "reason": excluded}
    key = RevisionKey(skill_id, seq)
    violation = context.policy_filter.find_violations([key]).get(skill_id)
    if violation is not None:
        return {"stage": "policy", "reason": violation.reason, "setting": violation.setting}
    if skill_id in context.session.refused:
        reason = "an outcome of this session is failed, rejected or superseded"
        return {"stage": "session", "reason": reason} | ranks
    if skill_id in context.rank_recorder.candidates:
        reason = f"{len(ranking.hits)} skills score higher"
        return {"stage": "rank", "reason": reason} | _score(context, key) | ranks
    return _explain_search(context, key)


def _find_filter(filters: Filters, entry: CatalogEntry) -> str:
    """Return the filter of the request that excludes a skill, by the catalog's data; "" for
    none. Values are compared as the engines compare them."""
    values = {
        "source": (entry.source_id,),
        "licence": licence_names(entry.licence),
        "language": (entry.language,),
    }
    for name, own in values.items():
        wanted: tuple[str, ...] = getattr(filters, name)
        if wanted and set(wanted).isdisjoint(own):
            value = " or ".join(filter(None, own)) or "none"
            return f"the filter {name} leaves it out: it has {value}"
    return ""


def _explain_search(context: QueryContext, key: RevisionKey) -> dict[str, Any]:
    """Return why search did not find a skill."""
    query = context.rank_recorder.query
    if query is None:
        return {"stage": "retrieve", "reason": "nothing was searched for"}
    if key.skill_id not in query.snapshot.pointers:
        reason = "it was published a moment ago; ask again"
        return {"stage": "retrieve", "reason": reason}
    if context.filters.tool:
        reason = "search did not find it with the filter tool"
        return {"stage": "retrieve", "reason": reason} | _score(context, key)
    ranks = find_engine_ranks(context, query, key.skill_id)
    engine = {"engine": ranks._asdict()}
    return {"stage": "retrieve", "reason": _describe_ranks(ranks)} | engine | _score(context, key)


def _describe_ranks(ranks: EngineRanks) -> str:
    words = f"rank {ranks.words:,}" if ranks.words else f"not among the first {ranks.depth:,}"
    parts = [f"by words {words} ({ranks.words_limit:,} become candidates)"]
    if ranks.meaning_limit:
        near = (
            f"rank {ranks.meaning:,}" if ranks.meaning else f"not among the first {ranks.depth:,}"
        )
        parts.append(f"by meaning {near} ({ranks.meaning_limit:,} do)")
    return "search did not find it: " + ", ".join(parts)


def _score(context: QueryContext, key: RevisionKey) -> dict[str, Any]:
    """Return the score that a skill has, or would have as a candidate."""
    if context.rank_recorder.query is None:
        return {}
    hits = score(context, Candidates(context.rank_recorder.query, [key]), {}).hits
    return {"scores": _describe_scores(hits[0].score, hits[0].parts)} if hits else {}


def _describe_scores(total: float, parts: Any) -> dict[str, float]:
    return {"score": round(total, 4)} | {name: round(one, 4) for name, one in parts.items()}
