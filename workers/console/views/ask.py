"""Ask: a query, its stages as they start, and its bundle with the reason for each candidate."""

from __future__ import annotations

import json
import shlex
from collections.abc import Mapping, Sequence
from contextlib import suppress
from inspect import signature
from typing import Annotated, Any

from fastapi import APIRouter, Query, Response
from pydantic import BaseModel, ConfigDict
from starlette.concurrency import run_in_threadpool
from starlette.datastructures import FormData

from config.errors import NotFoundError, UsageError
from config.settings import OPTIONAL_STAGES
from graph.records import SkillState
from skills.bundle.escaping import dump_terminal_json
from skills.bundle.markdown import render_answer
from skills.bundle.model import Bundle, BundleSkill
from skills.outcomes.model import OutcomeKind
from skills.outcomes.weights import TRUSTED_OWNERS
from skills.record import RevisionKey
from tasks.journal.protocol import Job
from workers.backend.store_backend import StoreBackend
from workers.console.annotated_text import AnnotatedLine, annotate_lines
from workers.console.compare_bundles import BundleChange, compare_bundles, list_lines
from workers.console.forms import SentForm, get_text, validate
from workers.console.pages import PREFIX, build_url, get_base_url, redirect
from workers.console.view import CurrentView, View
from workers.console.views.library import find_published
from workers.console.views.outcomes import CHOICES, describe_outcomes
from workers.http.authentication import LOCAL_USER, Caller
from workers.http.routes.queries import (
    QueryRequest,
    cancel_query,
    list_queries,
    stream_query_events,
)
from workers.http.routes.revisions import describe_revisions
from workers.library.skill_data import entry_data
from workers.mcp.tools import SkillTools

PATH = f"{PREFIX}/ask"

_WAIT_SECONDS = 0.4
"""Time within which the answer of a query is shown at once, without a page of its stages."""

_FILTERS = ("source", "licence", "language", "tool")
_KEPT = ("obstacle", "resend", "brief", "pins", "least_probability")
"""Fields of a query that the form does not have; a query that is asked again keeps them."""
_MAX_SCORES = 30
_MAX_OTHERS = 8
_MAX_SOURCES = 200


class AskQuery(BaseModel):
    """Initial values of the form. why: id of a skill whose place or absence the answer explains."""

    model_config = ConfigDict(frozen=True)

    task: str = ""
    why: str = ""


class AnswerQuery(BaseModel):
    """Parameters of the page of an answer.

    compare: id of the query to compare it with. reported: whether an outcome of the answer has just
    been reported. find: id or words of another skill.
    """

    model_config = ConfigDict(frozen=True)

    compare: str = ""
    reported: bool = False
    find: str = ""


_STAGE_WORDS = {
    "library": "Not in the library",
    "filters": "Left out by a filter",
    "policy": "Withheld by policy",
    "retrieve": "Not among the candidates",
    "rank": "A candidate that ranks too low",
    "session": "Refused in this session",
    "choose": "A candidate that was not chosen",
}
"""Words for the stage at which a skill was left out, by stage of the explanation."""


router = APIRouter()


@router.get("/ask")
def show_form(view: CurrentView, query: Annotated[AskQuery, Query()]) -> Response:
    """Show the form and recent queries."""
    return view.render(
        "ask/form.html",
        section="Ask",
        form=_describe_form({"task": query.task, "explain_skills": [query.why]}),
        asked=list_queries(view.backend, view.caller).queries,
        **_list_options(view.backend, view.caller),
    )


@router.post("/ask")
async def ask(view: CurrentView, form: SentForm) -> Response:
    """Submit a query."""
    compare = get_text(form, "compare")
    before = await run_in_threadpool(_find_query, view, compare)
    if "task" not in form and not before:
        raise NotFoundError("this query is no longer kept; ask it again under Ask")
    query = _read_query(form, before)
    if _is_look(query, before):
        query = query.model_copy(update={"record_use": False})
    query_id = (await view.services.queries.accept(query, view.caller)).id
    url = build_url(f"{PATH}/{query_id}", {"compare": compare})
    return redirect(f"{url}#why" if get_text(form, "why") else url)


@router.get("/ask/{query_id}")
async def show_answer(
    view: CurrentView, query_id: str, query: Annotated[AnswerQuery, Query()]
) -> Response:
    """Show the answer to a query, or the stages that it has reached."""
    await run_in_threadpool(_get_job, view, query_id)
    await view.services.queries.wait_until_ended(query_id, _WAIT_SECONDS)
    return await run_in_threadpool(_render_answer, view, query_id, query)


@router.get("/ask/{query_id}/events")
async def stream_stages(view: CurrentView, query_id: str) -> Response:
    """Stream the stages of a query."""
    return await stream_query_events(view.services.queries, view.caller, query_id)


@router.post("/ask/{query_id}/cancel")
def cancel(view: CurrentView, query_id: str, form: SentForm) -> Response:
    """Cancel a query."""
    del form
    cancel_query(view.backend, view.caller, query_id)
    return redirect(f"{PATH}/{query_id}")


def _get_job(view: View, query_id: str) -> Job:
    return view.services.queries.get_job(query_id, view.caller)


def _find_query(view: View, query_id: str) -> Mapping[str, Any]:
    """Return the data of a query, empty without an id or if it is no longer kept."""
    if query_id:
        with suppress(NotFoundError):
            return _get_job(view, query_id).event.data
    return {}


def _read_query(form: FormData, before: Mapping[str, Any]) -> QueryRequest:
    """Return the query of a form; raises UsageError if the form is invalid.

    before: data of the query that is asked again. What the form has no field for is kept of it.
    """
    values = {name: value for name, value in before.items() if name != "record_use"}
    if "task" in form:
        values |= _read_fields(form)
    if not values.get("task"):
        values.pop("task", None)  # that of the session
    why = get_text(form, "why").strip()
    values |= {"explain": True, "explain_skills": (why,) if why else ()}
    return validate(QueryRequest, values)


def _read_fields(form: FormData) -> dict[str, Any]:
    filters = {name: _split_values(name, get_text(form, name)) for name in _FILTERS}
    values: dict[str, Any] = {
        "task": get_text(form, "task", 1_000_000),
        "filters": filters,
        "without": tuple(str(one) for one in form.getlist("without")),
        "session": get_text(form, "session").strip(),
    }
    for name in ("budget", "top"):
        text = get_text(form, name).strip()
        if text and not (text.isascii() and text.isdigit()):
            raise UsageError(f"{name}: write a whole number, or leave it empty")
        values[name] = int(text) if text else None
    return values


def _split_values(name: str, text: str) -> tuple[str, ...]:
    try:
        return tuple(shlex.split(text))
    except ValueError:
        raise UsageError(f"{name}: close the quotes around the value") from None


def _is_look(query: QueryRequest, before: Mapping[str, Any]) -> bool:
    """Return whether a query only inspects an answer, and so is not recorded as use.

    It then explains given skills, or has the task of the query that is asked again.
    """
    is_same = bool(before) and query.task.split() == before.get("task", "").split()
    return bool(query.explain_skills) or is_same


def _describe_form(data: Mapping[str, Any]) -> dict[str, Any]:
    """Return values of the form for the data of a query."""
    filters = data.get("filters") or {}
    return {
        "task": data.get("task", ""),
        "budget": data.get("budget") or "",
        "top": data.get("top") or "",
        "session": data.get("session", ""),
        "without": list(data.get("without") or ()),
        "why": next(iter(data.get("explain_skills") or ()), ""),
        "kept": [name for name in _KEPT if data.get(name)],
        **{name: shlex.join(filters.get(name) or ()) for name in _FILTERS},
    }


def _list_options(backend: StoreBackend, caller: Caller) -> dict[str, Any]:
    """Return what the form offers: stages to leave out, sources, and the usual budget."""
    sources = backend.graph_for(caller.reader).list_sources()
    return {
        "stages": OPTIONAL_STAGES,
        "sources": [one.source_id for one in sources[:_MAX_SOURCES]],
        "budget": backend.settings.choice.budget,
    }


def _render_answer(view: View, query_id: str, query: AnswerQuery) -> Response:
    backend, caller = view.backend, view.caller
    job = _get_job(view, query_id)
    frame: dict[str, Any] = {
        "section": "Ask",
        "query_id": query_id,
        "form": _describe_form(job.event.data),
        "job": job,
        **_list_options(backend, caller),
    }
    if job.outcome is None:
        reached = backend.journal.list_stages(query_id)
        return view.render("ask/waiting.html", reached=reached, **frame)
    bundle = Bundle.model_validate(job.outcome)
    outcomes = describe_outcomes(backend, caller, query_id)
    trusted = backend.settings.learning.trusted_owners
    return view.render(
        "ask/answer.html",
        bundle=bundle,
        candidates=_describe_candidates(bundle),
        score_parts=_list_score_parts(bundle),
        texts=_read_texts(backend, caller, bundle.skills),
        change=_compare(view, query.compare, bundle),
        compare=query.compare,
        reported=query.reported,
        outcomes=outcomes,
        right_skills={one["skill_id"] for one in outcomes if one["outcome"] == OutcomeKind.HELPED},
        is_trusted=caller.name in TRUSTED_OWNERS.union(trusted),
        trusted_with_caller=[*trusted, caller.name],
        explained_skills=(bundle.explain or {}).get("skills", []),
        stage_words=_STAGE_WORDS,
        find=query.find,
        others=_find_others(view, query.find.strip()),
        choices=CHOICES,
        is_own=caller is LOCAL_USER or caller.name == job.event.owner,
        copies=_list_copies(bundle, job, get_base_url(view.request)),
        **frame,
    )


def _find_others(view: View, find: str) -> list[dict[str, Any]]:
    """Return the skill with this id, else the skills with this name, else
    those with these words."""
    if not find:
        return []
    found = view.backend.graph_for(view.caller.reader).get_entries([find])
    if found and found[0].state is SkillState.PUBLISHED:
        result = view.backend.skills.get_policy().judge_one(found[0])
        return [entry_data(found[0], result, include_withheld=view.caller.is_admin)]
    skills = find_published(view, find, _MAX_OTHERS)
    return [one for one in skills if one["name"] == find] or skills


def _compare(view: View, compare: str, bundle: Bundle) -> BundleChange | None:
    """Return the difference from an earlier answer, or None if it is no longer kept."""
    if not compare:
        return None
    with suppress(NotFoundError):
        before = _get_job(view, compare).outcome
        if before is not None:
            return compare_bundles(Bundle.model_validate(before), bundle)
    return None


def _describe_candidates(bundle: Bundle) -> list[dict[str, Any]]:
    """Return the candidates of the explanation, each with verdict, scores and probability."""
    explained: dict[str, Any] = bundle.explain or {}
    rows = explained.get("candidates", [])[:_MAX_SCORES]
    best = max((abs(row["scores"]["score"]) for row in rows), default=0.0) or 1.0
    return [
        {
            "rank": rank,
            "skill_id": row["skill_id"],
            "probability": row["probability"],
            "is_in": row["verdict"].startswith("in: "),
            "why": row["verdict"].partition(": ")[2],
            "score": row["scores"]["score"],
            "share": max(0.0, row["scores"]["score"] / best),
            "parts": {name: value for name, value in row["scores"].items() if name != "score"},
        }
        for rank, row in enumerate(rows, 1)
    ]


def _list_score_parts(bundle: Bundle) -> list[str]:
    """Return names of the parts of scores that are not 0 for all candidates."""
    explained: dict[str, Any] = bundle.explain or {}
    names: dict[str, None] = {}
    for row in explained.get("candidates", []):
        names |= {name: None for name, value in row["scores"].items() if value}
    return [name for name in names if name != "score"]


def _read_texts(
    backend: StoreBackend, caller: Caller, skills: Sequence[BundleSkill]
) -> dict[str, list[AnnotatedLine]]:
    """Return the lines of SKILL.md by skill_id, marked by whether they were sent. A revision that
    is no longer kept, or is withheld now, has no lines."""
    keys = [RevisionKey(one.skill_id, one.revision.seq) for one in skills]
    found = describe_revisions(backend, caller, keys)
    return {
        skill.skill_id: _mark_sent(found.get(key, {}), skill)
        for key, skill in zip(keys, skills, strict=True)
    }


def _mark_sent(revision: Mapping[str, Any], skill: BundleSkill) -> list[AnnotatedLine]:
    """Return the lines of a revision with roles; lines that several roles
    share are without role."""
    if "text" not in revision:
        return []
    passages = [
        {
            "lines": [one.first_line, one.last_line],
            "role": one.roles[0] if len(one.roles) == 1 else "",
        }
        for one in skill.passages
    ]
    return annotate_lines(revision["text"], passages, revision["safety"], sent=list_lines(skill))


def _list_copies(bundle: Bundle, job: Job, base_url: str) -> list[tuple[str, str, str]]:
    """Return texts to copy for the answer and its query: id, title, text.
    base_url: of the gateway."""
    data = {
        name: value
        for name, value in job.event.data.items()
        if value and name != "record_use" and not (name == "filters" and not any(value.values()))
    }
    known = signature(SkillTools.find_skills).parameters
    arguments = {n: v for n, v in (data | {"task": bundle.task}).items() if n in known}
    call = {"name": "find_skills", "arguments": arguments}
    body = json.dumps(data, ensure_ascii=False)
    curl = (
        f"curl --silent {base_url}/v1/queries --header 'Prefer: wait=10' \\\n"
        f'  --header "Authorization: Bearer $TOKEN" --json {shlex.quote(body)}'
    )
    return [
        ("markdown", "Markdown", render_answer(bundle)),
        ("json", "JSON", dump_terminal_json(job.outcome)),
        ("curl", "curl", curl),
        ("mcp", "MCP call", dump_terminal_json(call)),
    ]
