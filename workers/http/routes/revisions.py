"""Revisions of skills: lists, texts and comparisons."""

from __future__ import annotations

from collections.abc import Sequence
from typing import Annotated, Any
from urllib.parse import quote

from fastapi import APIRouter, Query, Request, Response
from fastapi.responses import JSONResponse
from pydantic import BaseModel, ConfigDict, Field
from starlette.convertors import IntegerConvertor, register_url_convertor

from skills.record import RevisionKey
from workers.audit.requests import note_object
from workers.backend.store_backend import StoreBackend
from workers.http.authentication import NEEDS_WRITE, Caller, CurrentCaller, check_scope
from workers.http.dependencies import CurrentBackend
from workers.http.jobs import Accepted
from workers.http.models import RequestModel, ResponseModel
from workers.http.routes.skills import remove_skill, respond_with_skill
from workers.http.tokens import TokenScope
from workers.library.revisions import Revision, compare, revision_detail, revision_row

_MAX_PAGE = 100
_MAX_LINES = 20_000

Seq = Annotated[int, Field(ge=1, le=2**63 - 1)]


class _SeqConvertor(IntegerConvertor):
    # Stores take 63 bits. A number that is written otherwise may be a folder of a skill.
    regex = "0|[1-9][0-9]{0,17}"


register_url_convertor("seq", _SeqConvertor())


class RevisionEntry(ResponseModel):
    """A revision in a list."""

    skill_id: str
    seq: int
    state: str = Field(description="`published`, `superseded`, or `held` by a pin or for review")
    published_at: str | None = Field(description="RFC 3339; null if it is not known")
    content_hash: str
    name: str
    description: str
    licence: str
    version: str
    safety_level: int
    lines: int
    tokens: int
    withheld: str | None = Field(
        description="why the policy would exclude it from bundles; only admins then see the "
        "author's texts"
    )
    review: str | None = Field(
        None,
        description="of an update under review: `waiting`, `approval` or `rejection`; null if "
        "nothing is recorded",
    )


class RevisionDetail(RevisionEntry):
    """A revision with its findings, files and the text of its SKILL.md; without these if the policy
    withholds it and the caller is not an admin."""

    safety: list[dict[str, Any]] = Field([])
    files: list[dict[str, Any]] = Field([])
    text: str | None = None


class RevisionList(ResponseModel):
    """Revisions of a skill, newest first. next: path of the next page, null on the last one."""

    revisions: list[RevisionEntry]
    next: str | None


class ChangedField(ResponseModel):
    """A field of the record with its values."""

    field: str
    before: str
    after: str


class RevisionComparison(BaseModel):
    """Changes between two revisions. scripts: those of the added and changed files that are
    programs. diff: lines of a unified diff without its header, starting at `offset`. next: path of
    the further lines, null if there are none. withheld: why the policy hides the changes from
    callers that are not admins."""

    model_config = ConfigDict(frozen=True, populate_by_name=True)

    skill_id: str
    before: int = Field(alias="from")
    to: int
    fields: list[ChangedField] = []
    files: dict[str, list[str]] = {}
    scripts: list[str] = []
    findings: dict[str, list[dict[str, Any]]] = {}
    added_lines: int = 0
    removed_lines: int = 0
    diff: list[str] = []
    next: str | None = None
    withheld: str | None = None


class PurgeReport(ResponseModel):
    """Counts of what a purge removed: revisions of the index, earlier revisions, jobs of the
    journal that named the skill, dead letters, prompts of kept runs of `eval` that named it,
    answers and verdicts of the language model.
    comes_back: why the skill may be added again, "" if its source does not have it."""

    skill_id: str
    revisions: int
    kept_revisions: int
    jobs: int
    dead_letters: int
    evaluated_prompts: int
    model_answers: int
    verdicts: int
    comes_back: str


class RevisionPage(RequestModel):
    """Page of a list of revisions."""

    limit: int = Field(_MAX_PAGE, ge=1, le=_MAX_PAGE)
    before: Seq | None = Field(None, description="only revisions older than this one")


class ComparedRevisions(BaseModel):
    """Revisions to compare, and the part of their diff to show."""

    model_config = ConfigDict(frozen=True, extra="forbid", populate_by_name=True)

    before: Seq | None = Field(
        None, alias="from", description="by default the newest one older than `to`"
    )
    to: Seq | None = Field(None, description="by default the newest one")
    offset: int = Field(0, ge=0, le=2**31, description="number of lines of the diff to skip")
    limit: int = Field(
        5_000, ge=1, le=_MAX_LINES, description="maximum number of lines of the diff"
    )


# These routes come before that of a skill, whose id may hold slashes. A skill whose own path ends
# like one of them is answered as a skill.
router = APIRouter(tags=["skills"])


def _respond_if_skill(backend: StoreBackend, caller: Caller, skill_id: str) -> Response | None:
    """Return the response for a skill whose id is the whole path, None if there is no such
    skill."""
    if not backend.graph_for(caller.reader).get_entries([skill_id]):
        return None
    return respond_with_skill(backend, skill_id, caller)


@router.get("/v1/skills/{skill_id:path}/revisions", response_model=RevisionList)
def list_revisions(
    backend: CurrentBackend,
    caller: CurrentCaller,
    skill_id: str,
    page: Annotated[RevisionPage, Query()],
) -> Any:
    """List the revisions of a skill that can be read, newest first."""
    if (skill := _respond_if_skill(backend, caller, f"{skill_id}/revisions")) is not None:
        return skill
    rows = [
        row
        for row in list_revision_rows(backend, caller, skill_id)
        if page.before is None or row["seq"] < page.before
    ]
    shown = rows[: page.limit]
    more = len(rows) > len(shown)
    return {
        "revisions": shown,
        "next": f"{_path(skill_id)}?limit={page.limit}&before={shown[-1]['seq']}" if more else None,
    }


@router.get("/v1/skills/{skill_id:path}/revisions/diff", response_model=RevisionComparison)
def compare_revisions(
    backend: CurrentBackend,
    caller: CurrentCaller,
    skill_id: str,
    query: Annotated[ComparedRevisions, Query()],
) -> Any:
    """Compare two revisions of a skill: fields, files, findings and lines."""
    if (skill := _respond_if_skill(backend, caller, f"{skill_id}/revisions/diff")) is not None:
        return skill
    data = compare_two(backend, caller, skill_id, query.before, query.to)
    if "diff" not in data:
        return data
    end = query.offset + query.limit
    if end < len(data["diff"]):
        data["next"] = (
            f"{_path(skill_id)}/diff?from={data['from']}&to={data['to']}"
            f"&offset={end}&limit={query.limit}"
        )
    return data | {"diff": data["diff"][query.offset : end]}


@router.get("/v1/skills/{skill_id:path}/revisions/{seq:seq}", response_model=RevisionDetail)
def get_revision(backend: CurrentBackend, caller: CurrentCaller, skill_id: str, seq: int) -> Any:
    """Show one revision with its findings, files and text."""
    if (skill := _respond_if_skill(backend, caller, f"{skill_id}/revisions/{seq}")) is not None:
        return skill
    return describe_revision(backend, caller, skill_id, seq)


@router.delete(
    "/v1/skills/{skill_id:path}/revisions",
    response_model=PurgeReport,
    responses={202: {"model": Accepted, "description": "removal of a skill of that path"}},
    dependencies=NEEDS_WRITE,
)
def purge_skill(
    backend: CurrentBackend,
    caller: CurrentCaller,
    skill_id: str,
    request: Request,
    response: Response,
) -> Any:
    """Remove a skill, all its revisions and every trace of their text permanently; admins only.

    If the whole path is the id of a skill, that skill is removed as by
    `DELETE /v1/skills/{skill_id}`.
    """
    whole = f"{skill_id}/revisions"
    if backend.graph_for(caller.reader).get_entries([whole]):
        note_object(request, whole, "skills.remove")
        accepted = remove_skill(backend, caller, whole, response)
        return JSONResponse(accepted.model_dump(), 202, dict(response.headers))
    check_scope(caller, TokenScope.ADMIN)
    return backend.purge_skill(skill_id)


def list_revision_rows(
    backend: StoreBackend, caller: Caller, skill_id: str
) -> list[dict[str, Any]]:
    """Return the revisions of a skill that this caller may see, newest first."""
    revisions = backend.revisions_for(caller.reader).list_revisions(skill_id)
    return [revision_row(one, include_withheld=caller.is_admin) for one in revisions]


def describe_revision(
    backend: StoreBackend, caller: Caller, skill_id: str, seq: int
) -> dict[str, Any]:
    """Return one revision as this caller may see it; raises NotFoundError if it is not kept."""
    found = backend.revisions_for(caller.reader).read_revision(skill_id, seq)
    return revision_detail(found, include_withheld=caller.is_admin)


def describe_revisions(
    backend: StoreBackend, caller: Caller, keys: Sequence[RevisionKey]
) -> dict[RevisionKey, dict[str, Any]]:
    """Return the given revisions that are kept, as this caller may see them."""
    found = backend.revisions_for(caller.reader).read_revisions(keys)
    return {
        key: revision_detail(one, include_withheld=caller.is_admin) for key, one in found.items()
    }


def compare_two(
    backend: StoreBackend, caller: Caller, skill_id: str, before: int | None, after: int | None
) -> dict[str, Any]:
    """Return the changes between two revisions. If this caller may not see them, `diff` is missing
    and `withheld` has the reason. Raises as `RevisionReader.choose_pair`."""
    pair = backend.revisions_for(caller.reader).choose_pair(skill_id, before, after)
    withheld = None if caller.is_admin else _find_withheld(*pair)
    if withheld is None:
        return compare(*pair)
    first, second = pair
    return {"skill_id": skill_id, "from": first.seq, "to": second.seq, "withheld": withheld}


def _path(skill_id: str) -> str:
    return f"/v1/skills/{quote(skill_id)}/revisions"


def _find_withheld(*revisions: Revision) -> str | None:
    return next((one.withheld for one in revisions if one.withheld is not None), None)
