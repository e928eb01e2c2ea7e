"""A skill: its text with roles and findings, record, links, revisions; pins and removal."""

from __future__ import annotations

from collections import Counter
from collections.abc import Mapping
from typing import Annotated, Any

from fastapi import APIRouter, Query, Response
from pydantic import BaseModel, ConfigDict
from starlette.datastructures import FormData

from config.errors import UsageError
from graph.records import LinkKey, LinkType, link_key
from workers.console.annotated_text import ROLE_LABELS, annotate_lines, list_pages
from workers.console.difference import describe_change
from workers.console.findings import group_by_rule
from workers.console.forms import SentForm, get_text, validate
from workers.console.links import merge_links
from workers.console.pages import PREFIX, redirect
from workers.console.text_display import skill_path
from workers.console.view import CurrentView, View
from workers.console.views.use import RANGES, plot_days
from workers.http.authentication import Caller
from workers.http.routes.pins import NewPin, pin_skill, unpin_skill
from workers.http.routes.revisions import (
    Seq,
    compare_two,
    describe_revision,
    list_revision_rows,
)
from workers.http.routes.skills import describe_skill, remove_skill
from workers.http.routes.usage import OutcomesQuery, UsageQuery, get_usage, list_outcomes
from workers.http.tokens import TokenScope
from workers.library.reasons import MAX_REASON_CHARACTERS

TABS = {
    "text": "Text",
    "record": "Record",
    "findings": "Findings",
    "files": "Files",
    "links": "Links",
    "use": "Usage",
    "revisions": "Revisions",
    "history": "History",
}

_MAX_REPORTED = 100
_USE_COUNTERS = {one: one for one in ("chosen", "sent", "helped", "failed", "rejected")}

_OPTIONAL: dict[str, Any] = dict.fromkeys(("safety", "files", "passages", "dismissed_links"), ())
"""Fields that only a published skill has, if this caller may read it."""

_RECORD_FIELDS = (
    *("capability", "when_to_use", "inputs", "outputs", "domain_tags", "tooling"),
    *("example_tasks", "entrypoints", "compatibility", "allowed_tools", "depends"),
    *("conflicts", "version"),
)


class SkillQuery(BaseModel):
    """Parameters of the page of a skill: a tab; a revision; two revisions to compare; a page of the
    text; the days of its use."""

    model_config = ConfigDict(frozen=True)

    tab: str = "text"
    seq: Seq | None = None
    before: Seq | None = None
    after: Seq | None = None
    line: Annotated[int, Query(ge=1, le=10_000_000)] = 1
    days: int = 90


router = APIRouter()


@router.get("/skills/{skill_id:path}")
def show_skill(view: CurrentView, skill_id: str, query: Annotated[SkillQuery, Query()]) -> Response:
    """Show a tab of a skill."""
    skill = _OPTIONAL | describe_skill(view.backend, view.caller, skill_id)
    tab = query.tab if query.tab in TABS else "text"
    pins = view.backend.revisions_for(view.caller.reader).describe_pins([skill_id])
    return view.render(
        f"skill/{tab}.html",
        section="Library",
        skill=skill,
        tab=tab,
        tabs=TABS,
        counts=_count_tabs(skill),
        pin=pins[0] if pins else None,
        may_change=_may_change(view.caller, skill["source_id"]),
        **_describe_tab(view, skill, tab, query),
    )


@router.post("/actions/skills/remove")
def remove(view: CurrentView, form: SentForm) -> Response:
    """Remove a skill."""
    skill_id = get_text(form, "skill_id")
    view.admit_change(TokenScope.WRITE, skill_id)
    event = remove_skill(view.backend, view.caller, skill_id, Response())
    return redirect(f"{PREFIX}/work/events/{event.id}")


@router.post("/actions/pins/add")
def pin(view: CurrentView, form: SentForm) -> Response:
    """Pin the published revision of a skill."""
    skill_id = get_text(form, "skill_id")
    view.admit_change(TokenScope.WRITE, skill_id)
    new = validate(NewPin, {"skill_id": skill_id, "reason": get_text(form, "reason")})
    pin_skill(view.backend, view.caller, new, view.request)
    return redirect(skill_path(skill_id))


@router.post("/actions/pins/remove")
def unpin(view: CurrentView, form: SentForm) -> Response:
    """Remove a pin."""
    skill_id = get_text(form, "skill_id")
    view.admit_change(TokenScope.WRITE, skill_id)
    unpin_skill(view.backend, view.caller, skill_id)
    return redirect(skill_path(skill_id))


@router.post("/actions/links/dismiss")
def dismiss_link(view: CurrentView, form: SentForm) -> Response:
    """Dismiss a link."""
    key = _admit_link_change(view, form)
    view.backend.dismiss_link(key, get_text(form, "reason", MAX_REASON_CHARACTERS))
    return redirect(f"{skill_path(get_text(form, 'skill_id'))}?tab=links")


@router.post("/actions/links/restore")
def restore_link(view: CurrentView, form: SentForm) -> Response:
    """Restore a dismissed link."""
    view.backend.restore_link(_admit_link_change(view, form))
    return redirect(f"{skill_path(get_text(form, 'skill_id'))}?tab=links")


def _admit_link_change(view: View, form: FormData) -> LinkKey:
    """Return the link of a form; raises HTTPException (403), UsageError."""
    source, target, kind = (get_text(form, name) for name in ("source", "target", "type"))
    view.admit_change(TokenScope.ADMIN, f"{source} {target} {kind}")
    if kind not in list(LinkType):
        raise UsageError(f"type: there is no {kind!r}; use the buttons of the page")
    return link_key(source, target, LinkType(kind))


def _describe_tab(view: View, skill: dict[str, Any], tab: str, query: SkillQuery) -> dict[str, Any]:
    """Return the values that a tab shows in addition to the skill."""
    if tab == "text":
        return _text_tab(view, skill, query)
    if tab == "record":
        return {"fields": _list_fields(skill)}
    if tab == "findings":
        return {"groups": group_by_rule(skill, view.backend.settings.policy.highest_level)}
    if tab == "links":
        return _links_tab(skill)
    if tab == "use":
        return _use_tab(view, skill["skill_id"], query.days)
    if tab == "revisions":
        return _revisions_tab(view, skill, query)
    return {}


def _may_change(caller: Caller, source_id: str) -> bool:
    return caller.scope >= TokenScope.WRITE and (
        caller.sources is None or source_id in caller.sources
    )


def _count_tabs(skill: Mapping[str, Any]) -> dict[str, int | str]:
    """Return the number of entries of each tab, 0 for tabs without a list."""
    findings: list[str] = [str(len(skill["safety"]))] if skill["safety"] else []
    if warnings := len(skill["warnings"]):
        findings.append(f"{warnings} {'warning' if warnings == 1 else 'warnings'}")
    counts: dict[str, int | str] = dict.fromkeys(TABS, 0)
    return counts | {
        "findings": ", ".join(findings),
        "files": len(skill["files"]),
        "links": len(merge_links(skill["links"])),
    }


def _text_tab(view: View, skill: dict[str, Any], query: SkillQuery) -> dict[str, Any]:
    """Return the text of the published revision with roles, or of another revision without."""
    is_published = query.seq is None or query.seq == skill["seq"]
    if skill["seq"] is None and query.seq is None:
        return {"revision": None}
    seq = query.seq or skill["seq"]
    revision = describe_revision(view.backend, view.caller, skill["skill_id"], seq)
    text = revision.get("text")
    if text is None:
        return {"revision": revision, "lines": [], "pages": [], "roles": [], "line": 1}
    passages = skill["passages"] if is_published else ()
    findings = skill["safety"] if is_published else revision["safety"]
    roles = Counter(passage["role"] for passage in passages)
    return {
        "revision": revision,
        "lines": annotate_lines(text, passages, findings, first=query.line),
        "pages": list_pages(revision["lines"]),
        "roles": [(one, ROLE_LABELS[one], roles[one]) for one in ROLE_LABELS if roles[one]],
        "line": query.line,
    }


def _list_fields(skill: Mapping[str, Any]) -> list[tuple[str, list[str], str]]:
    """Return the fields of the record: name, values, and the model that wrote it."""
    completed = skill.get("completed_by", {})
    fields = []
    for name in _RECORD_FIELDS:
        value = skill.get(name)
        if value:
            values = [value] if isinstance(value, str) else [str(one) for one in value]
            fields.append((name.replace("_", " "), values, completed.get(name, "")))
    return fields


def _links_tab(skill: Mapping[str, Any]) -> dict[str, Any]:
    """Return links from this skill, links to it, and undirected links, heaviest first."""
    by_weight = sorted(
        skill["links"], key=lambda one: (-one["weight"], one["source"], one["target"])
    )
    ordered = merge_links(by_weight)
    directed = [one for one in ordered if LinkType(one["type"]).is_directed]
    undirected = [one for one in ordered if not LinkType(one["type"]).is_directed]
    skill_id = skill["skill_id"]
    return {
        "groups": [
            ("To other skills", [one for one in directed if one["source"] == skill_id]),
            ("From other skills", [one for one in directed if one["source"] != skill_id]),
            ("Undirected", undirected),
        ]
    }


def _use_tab(view: View, skill_id: str, days: int) -> dict[str, Any]:
    """Return counts of the skill's use over the days, and its reported outcomes, newest first."""
    if days not in RANGES:
        raise UsageError(f"days: choose one of {', '.join(map(str, RANGES))}")
    context = view.services.usage, view.caller
    usage = get_usage(*context, UsageQuery(days=days, skill=skill_id)).model_dump()
    asked = OutcomesQuery(skill=skill_id, days=days, limit=_MAX_REPORTED)
    return {
        "days": days,
        "ranges": RANGES,
        "usage": usage,
        "chart": plot_days(usage, "Usage over time", _USE_COUNTERS, "a day"),
        "reported": list_outcomes(*context, asked).model_dump(),
    }


def _revisions_tab(view: View, skill: Mapping[str, Any], query: SkillQuery) -> dict[str, Any]:
    backend, caller, skill_id = view.backend, view.caller, skill["skill_id"]
    rows = list_revision_rows(backend, caller, skill_id)
    change = None
    if len(rows) > 1 and (query.before or query.after):
        change = describe_change(compare_two(backend, caller, skill_id, query.before, query.after))
    return {"revisions": rows, "change": change, "query": query}
