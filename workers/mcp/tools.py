"""Functions of the MCP tools and resources."""

from __future__ import annotations

from collections.abc import Callable, Iterator
from contextlib import contextmanager
from functools import partial
from typing import Annotated, Any, TypeVar
from urllib.parse import quote

import anyio
import structlog
from anyio import to_thread
from mcp.server.mcpserver import Context
from mcp.server.mcpserver.exceptions import ResourceError, ResourceNotFoundError
from mcp.shared.exceptions import MCPError
from mcp_types import (
    INTERNAL_ERROR,
    INVALID_PARAMS,
    CallToolResult,
    ListResourcesResult,
    Resource,
    TextContent,
)

from config.errors import (
    NotFoundError,
    PermanentError,
    SkillbusError,
    UsageError,
)
from config.settings import Settings
from skills.access import Reader
from skills.bundle.budget_form import BudgetForm
from skills.bundle.markdown import render_query_id
from skills.bundle.model import Bundle
from skills.bundle.rejection import RejectionReason
from skills.events import (
    OutcomesReported,
    QueryAsked,
    QueryFilters,
    SkillOutcome,
)
from skills.outcomes.model import OutcomeKind, Reporter
from workers.audit.commands import recorded
from workers.audit.log import AuditLog
from workers.audit.requests import note_failure, note_object
from workers.backend.protocol import Backend
from workers.library.served_skills import ServedSkills
from workers.library.skill_reader import SkillReader
from workers.mcp.errors import explain_error
from workers.mcp.outcome_reporter import report_and_wait
from workers.mcp.query_runner import QueryRunner
from workers.mcp.requester import get_reader, get_sender
from workers.mcp.results import (
    FoundSkills,
    ReportedOutcome,
    SkillText,
    fit_to_budget,
)
from workers.mcp.schemas import (
    Brief,
    Budget,
    Filters,
    JudgedBy,
    Lines,
    Obstacle,
    OtherSkill,
    OutcomeName,
    QueryId,
    Reason,
    ReportedSkill,
    Resend,
    Session,
    SkillId,
    Task,
    Top,
    is_possible_id,
)

log = structlog.get_logger()

RESOURCE_TOKENS = 20_000
"""Maximum of tokens in a resource; some clients truncate at 25,000."""

PAGE_SIZE = 100
"""Number of skills on a page of the list of resources."""

_THREADS = 16

T = TypeVar("T")

SelectBackend = Callable[[], Backend]


class SkillTools:
    """The functions of the tools; their schemas have checked the arguments, and `create_tool`
    explains the errors.

    session: used for queries that name none, "" for no session.
    """

    def __init__(
        self,
        settings: Settings,
        select_backend: SelectBackend,
        skill_reader: SkillReader,
        served: ServedSkills,
        session: str = "",
    ) -> None:
        self._served = served
        self._session = session
        self._settings = settings
        self._select_backend = select_backend
        self._skill_reader = skill_reader
        self._threads = anyio.CapacityLimiter(_THREADS)

    async def find_skills(
        self,
        ctx: Context,
        task: Task,
        budget: Budget = None,
        top: Top = None,
        filters: Filters = None,
        session: Session = None,
        resend: Resend = None,
        obstacle: Obstacle = None,
        brief: Brief = None,
    ) -> Annotated[CallToolResult, FoundSkills]:
        """Find the skills for a task: Markdown with the passages to follow, the best skill first.

        NO_SKILL_HIT means: go on without a skill.
        """
        max_tokens = budget or self._settings.choice.budget
        request = QueryAsked(
            task=task,
            budget=max_tokens,
            budget_form=BudgetForm.TOOL_RESULT,
            top=top,
            filters=QueryFilters.model_validate(filters or {}),
            session=session or self._session,
            resend=bool(resend),
            obstacle=obstacle or "",
            brief=bool(brief),
        )
        seconds = self._settings.workers.query_seconds
        query_runner = QueryRunner(self.run_in_thread, seconds, ctx.report_progress)
        backend = await self.run_in_thread(self._select_backend)
        status = await query_runner.run(backend, request, *get_sender(ctx))
        if status.state != "done" or status.bundle is None:
            raise PermanentError(status.reason or f"the query was {status.state}")
        bundle = Bundle.model_validate(status.bundle)
        uris = await self._find_uris(ctx, bundle)
        return _build_tool_result(fit_to_budget(bundle, max_tokens, uris))

    async def _find_uris(self, ctx: Context, bundle: Bundle) -> dict[str, str]:
        """Return the URIs of the skills of a bundle; if they fail to load, the answer has none."""
        ids = [skill.skill_id for skill in bundle.skills]
        served = self._served.for_reader(get_reader(ctx))
        try:
            return await self.run_in_thread(partial(served.find_uris, ids), True)
        except SkillbusError as error:
            log.warning("URIs of skills not read", reason=str(error))
            return {}

    async def read_skill(
        self, ctx: Context, skill_id: SkillId, lines: Lines = None, budget: Budget = None
    ) -> Annotated[CallToolResult, SkillText]:
        """Read lines of a skill's SKILL.md that a bundle left out, or all of it."""
        max_tokens = budget or self._settings.choice.budget
        return _build_tool_result(await self._read_lines(ctx, skill_id, lines or "", max_tokens))

    async def report_outcome(
        self,
        ctx: Context,
        query_id: QueryId,
        outcome: OutcomeName,
        skill_id: ReportedSkill = None,
        reason: Reason = None,
        other_skill_id: OtherSkill = None,
        by: JudgedBy = None,
    ) -> Annotated[CallToolResult, ReportedOutcome]:
        """Report whether a skill helped with a task, one that was sent or another, so that later
        answers improve."""
        result = SkillOutcome(
            skill_id=skill_id or "",
            outcome=OutcomeKind(outcome),
            reason=RejectionReason(reason) if reason else "",
            other_skill_id=other_skill_id or "",
            by=Reporter(by or Reporter.AGENT),
        )
        report = OutcomesReported(query_id=query_id, outcomes=(result,))
        backend = await self.run_in_thread(self._select_backend)
        with self._record(ctx, query_id):
            sender = get_sender(ctx)
            status = await report_and_wait(self.run_in_thread, backend, report, *sender)
            if status.state == "failed":
                kind = UsageError if status.outcome.get("usage") else PermanentError
                raise kind(status.reason)
        stored = "stored" if status.state == "done" else "accepted; stored soon"
        return _build_tool_result(ReportedOutcome(text=f"{outcome}: {stored}"))

    @contextmanager
    def _record(self, ctx: Context, query_id: str) -> Iterator[None]:
        """Record a report in the audit log: through the gateway, or here on standard streams.

        The report of a client that disconnects is stored too.
        """
        http_request = ctx.request_context.request
        if http_request is None:
            leaving: BaseException | None = None
            with recorded(self._settings, "outcomes.report", query_id):
                try:
                    yield
                except anyio.get_cancelled_exc_class() as error:
                    leaving = error
            if leaving is not None:
                raise leaving
            return
        AuditLog(self._settings).check()
        note_object(http_request, query_id)
        try:
            yield
        except Exception as error:
            note_failure(http_request, error)
            raise

    async def read_resource(self, ctx: Context, skill_id: str) -> str:
        """Return the resource of a skill: its text with its source, up to RESOURCE_TOKENS."""
        try:
            return (await self._read_lines(ctx, skill_id, "", RESOURCE_TOKENS)).text
        except NotFoundError as error:
            raise ResourceNotFoundError(str(error)) from error
        except SkillbusError as error:
            raise ResourceError(explain_error(error)) from error

    async def list_resources(self, reader: Reader, cursor: Any) -> ListResourcesResult:
        """Return a page of published skills by id; the cursor is the last id
        of the previous page."""
        skills = self._skill_reader.for_reader(reader)
        if not isinstance(cursor, str | None):
            raise MCPError(INVALID_PARAMS, "invalid cursor; use `nextCursor` of a page")
        try:
            if cursor:
                _check_id(cursor)
            entries = await self.run_in_thread(
                partial(skills.list_published, cursor or "", PAGE_SIZE + 1), True
            )
        except NotFoundError as error:
            raise MCPError(INVALID_PARAMS, explain_error(error)) from error
        except SkillbusError as error:
            raise MCPError(INTERNAL_ERROR, explain_error(error)) from error
        shown = entries[:PAGE_SIZE]
        return ListResourcesResult(
            resources=[
                Resource(
                    uri=f"skillbus://skills/{quote(entry.skill_id, safe='')}",
                    name=entry.skill_id,
                    title=entry.name,
                    description=entry.description,
                    mime_type="text/markdown",
                )
                for entry in shown
            ],
            next_cursor=shown[-1].skill_id if len(entries) > PAGE_SIZE else None,
        )

    async def _read_lines(self, ctx: Context, skill_id: str, lines: str, budget: int) -> SkillText:
        skills = self._skill_reader.for_reader(get_reader(ctx))

        def read() -> SkillText:
            # Slow to import; agents wait for their servers to start.
            from workers.mcp.line_excerpt import clip_line_ranges, parse_line_ranges, render_lines

            spans = parse_line_ranges(lines) if lines.strip() else []
            _check_id(skill_id)
            try:
                revision, path = skills.read_skill(skill_id)
            except NotFoundError:
                raise NotFoundError(
                    f"no skill {skill_id!r}; use the exact id from a bundle of find_skills"
                ) from None
            return render_lines(revision, path, clip_line_ranges(revision.parsed, spans), budget)

        return await self.run_in_thread(read, True)

    async def run_in_thread(self, function: Callable[[], T], abandon: bool = False) -> T:
        """Run a blocking function. abandon: a cancelled caller does not wait for its end."""
        return await to_thread.run_sync(function, abandon_on_cancel=abandon, limiter=self._threads)


def _check_id(skill_id: str) -> None:
    if not skill_id or not is_possible_id(skill_id):
        raise NotFoundError("not a valid skill id; use one from a bundle of find_skills")


def _build_tool_result(result: FoundSkills | SkillText | ReportedOutcome) -> CallToolResult:
    """Return a result in both forms: as text, and as structured content, which holds the text."""
    text = result.text
    if isinstance(result, FoundSkills):  # a client that shows only the text reports outcomes too
        text += render_query_id(result.query_id)
    return CallToolResult(
        content=[TextContent(type="text", text=text)],
        structured_content=result.model_dump(mode="json"),
    )
