"""What the tools and resources do."""

from __future__ import annotations

import re
from collections.abc import Callable
from functools import partial
from typing import Annotated, Any, TypeVar
from urllib.parse import quote

import anyio
import structlog
from anyio import to_thread
from mcp.server.mcpserver import Context
from mcp.server.mcpserver.exceptions import ResourceError, ResourceNotFoundError, ToolError
from mcp.shared.exceptions import MCPError
from mcp_types import INVALID_PARAMS, CallToolResult, ListResourcesResult, Resource, TextContent

from config.errors import NotFoundError, SetupError, SkillbusError, TransientError
from config.settings import Settings
from skills.bundle.model import Bundle
from skills.events import QueryAsked, QueryFilters
from workers.mcp.query_calls import Asking, Teller
from workers.mcp.results import (
    FoundSkills,
    SkillText,
    found,
    markdown_budget,
    result_budget,
)
from workers.mcp.schemas import Budget, Filters, Lines, SkillId, Task, Top
from workers.mcp.skill_reader import Shelf
from workers.mcp.ways import FindWay, Standing

log = structlog.get_logger()

RESOURCE_TOKENS = 20_000
"""Tokens that a resource may hold: some clients cut what has more than 25,000."""

PAGE = 100
"""Skills on a page of the list of resources."""

_LEAST = re.compile(r"less than one passage needs; give at least (\d+)")
_THREADS = 16

T = TypeVar("T")


class Tools:
    """The functions behind the names; what they are told is checked by their schemas."""

    def __init__(self, settings: Settings, find_way: FindWay, shelf: Shelf) -> None:
        self._settings = settings
        self._find_way = find_way
        self._shelf = shelf
        self._threads: anyio.CapacityLimiter | None = None

    async def find_skills(
        self,
        ctx: Context,
        task: Task,
        budget: Budget = None,
        top: Top = None,
        filters: Filters = None,
    ) -> Annotated[CallToolResult, FoundSkills]:
        """Find the skills for a task: Markdown with the passages to follow, the best skill first.

        NO_SKILL_HIT means: go on without a skill.
        """
        room = budget or self._settings.choice.budget
        asked = QueryAsked(
            task=task,
            budget=markdown_budget(room),
            top=top,
            filters=QueryFilters.model_validate(filters or {}),
        )
        asking = Asking(self._thread, self._settings.workers.query_seconds, _teller(ctx))
        try:
            way = await self._thread(self._find_way)
            standing = await asking.answer(way, asked, _owner(ctx))
            if standing.state != "done" or standing.bundle is None:
                raise ToolError(_failed(standing, room))
            return _shown(found(Bundle.model_validate(standing.bundle), room))
        except SkillbusError as error:
            raise ToolError(_said(error)) from error

    async def read_skill(
        self, skill_id: SkillId, lines: Lines = None, budget: Budget = None
    ) -> Annotated[CallToolResult, SkillText]:
        """Read lines of a skill's SKILL.md that a bundle left out, or all of it."""
        room = budget or self._settings.choice.budget
        try:
            return _shown(await self._read(skill_id, lines or "", room))
        except SkillbusError as error:
            raise ToolError(_said(error)) from error

    async def skill(self, skill_id: str) -> str:
        """The resource of a skill: its text with its source, as far as RESOURCE_TOKENS go."""
        try:
            return (await self._read(skill_id, "", RESOURCE_TOKENS)).text
        except NotFoundError as error:
            raise ResourceNotFoundError(str(error)) from error
        except SkillbusError as error:
            raise ResourceError(_said(error)) from error

    async def page(self, cursor: Any) -> ListResourcesResult:
        """A page of the skills that can be read, by id; the cursor is the last of one before."""
        if not isinstance(cursor, str | None):
            raise MCPError(INVALID_PARAMS, "that is no cursor; take `nextCursor` of a page")
        try:
            entries = await self._thread(partial(self._shelf.after, cursor or "", PAGE + 1), True)
        except SkillbusError as error:
            raise MCPError(INVALID_PARAMS, _said(error)) from error
        shown = entries[:PAGE]
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
            next_cursor=shown[-1].skill_id if len(entries) > PAGE else None,
        )

    async def _read(self, skill_id: str, lines: str, budget: int) -> SkillText:
        def read() -> SkillText:
            # Slow, and not needed to start.
            from workers.mcp.excerpt import chosen_lines, parse_ranges, read_lines

            spans = parse_ranges(lines) if lines.strip() else []
            revision, path = self._shelf.take(skill_id)
            return read_lines(revision, path, chosen_lines(revision.parsed, spans), budget)

        return await self._thread(read, True)

    async def _thread(self, function: Callable[[], T], abandon: bool = False) -> T:
        """Call what blocks; abandon: a caller that is cancelled need not wait for its end."""
        if self._threads is None:
            self._threads = anyio.CapacityLimiter(_THREADS)
        return await to_thread.run_sync(function, abandon_on_cancel=abandon, limiter=self._threads)


def _teller(ctx: Context) -> Teller:
    async def tell(progress: int, total: int | None, message: str) -> None:
        await ctx.report_progress(progress, total, message)

    return tell


def _owner(ctx: Context) -> str:
    """The name of the token that the gateway's door has found, "" on standard streams."""
    request = ctx.request_context.request
    return "" if request is None else str(request.state.caller.name)


def _failed(standing: Standing, budget: int) -> str:
    """Why there is no bundle; a least budget is told as the caller counts."""
    least = _LEAST.search(standing.reason)
    if least is None:
        return standing.reason or f"the query was {standing.state}"
    return (
        f"a budget of {budget} tokens is less than one passage needs; "
        f"give at least {result_budget(int(least[1]))}"
    )


def _said(error: SkillbusError) -> str:
    if isinstance(error, SetupError):
        # Agents are not told where servers are and secrets are kept.
        log.error("a setting is wrong", reason=str(error))
        return "a setting of this deployment is wrong; the server's log says which"
    again = isinstance(error, TransientError) and "try again" not in str(error)
    return f"{error}; try again in a moment" if again else str(error)


def _shown(result: FoundSkills | SkillText) -> CallToolResult:
    return CallToolResult(
        content=[TextContent(type="text", text=result.text)],
        structured_content=result.model_dump(mode="json"),
    )
