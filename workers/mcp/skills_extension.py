"""The extension `io.modelcontextprotocol/skills`: skills as resources under `skill://`.

Specification: specification/stable/skills.mdx of modelcontextprotocol/ext-skills (SEP-2640).
"""

from __future__ import annotations

from collections.abc import Callable, Sequence
from functools import partial
from typing import Any, TypeVar

import structlog
from mcp.server.context import CallNext, HandlerResult, ServerRequestContext
from mcp.server.extension import Extension, MethodBinding, RequestHandler
from mcp.shared.exceptions import MCPError
from mcp_types import INTERNAL_ERROR, INVALID_PARAMS, RequestParams
from typing_extensions import override

from config.errors import NotFoundError, SkillbusError
from skills.skill_uri import SCHEME
from workers.library.served_skills import ServedSkills
from workers.mcp.errors import explain_error
from workers.mcp.query_runner import ThreadRunner
from workers.mcp.requester import get_reader
from workers.mcp.schemas import is_possible_id
from workers.mcp.skill_messages import (
    GetSkillParams,
    ListSkillsParams,
    ReadDirectoryParams,
    make_directory_result,
    make_get_result,
    make_list_result,
    make_read_result,
)

log = structlog.get_logger()

IDENTIFIER = "io.modelcontextprotocol/skills"
METHODS: dict[str, tuple[type[RequestParams], str]] = {
    "skills/list": (ListSkillsParams, "Skills by id, each with all of its files and digests."),
    "skills/get": (GetSkillParams, "One skill, by the URI of its SKILL.md."),
    "resources/directory/read": (ReadDirectoryParams, "What a folder of a skill holds."),
}
"""Methods in addition to those of the protocol: parameters and description."""

PAGE_SIZE = 50
"""Number of skills on a page of `skills/list`; each has up to 512 files."""

DIRECTORY_PAGE_SIZE = 500

T = TypeVar("T")


class SkillsExtension(Extension):
    """Lists skills and serves their files, through the services that the tools use."""

    identifier = IDENTIFIER

    def __init__(self, skills: ServedSkills, run_in_thread: ThreadRunner) -> None:
        self._skills = skills
        self._run_in_thread = run_in_thread

    @override
    def settings(self) -> dict[str, Any]:
        return {"directoryRead": True}

    @override
    def methods(self) -> Sequence[MethodBinding]:
        handlers: tuple[RequestHandler, ...] = (self._list, self._get, self._read_directory)
        return [
            MethodBinding(method, params, handler)
            for (method, (params, _)), handler in zip(METHODS.items(), handlers, strict=True)
        ]

    async def read_resources(
        self, ctx: ServerRequestContext[Any], call_next: CallNext
    ) -> HandlerResult:
        """Answer `resources/read` for URIs of skills; a middleware."""
        uri = (ctx.params or {}).get("uri")
        if ctx.method != "resources/read" or not isinstance(uri, str):
            return await call_next(ctx)
        if not uri.lower().startswith(SCHEME):
            return await call_next(ctx)
        skills = self._skills.for_reader(get_reader(ctx))
        return make_read_result(uri, await self._run(uri, partial(skills.read, uri)))

    async def _list(
        self, ctx: ServerRequestContext[Any], params: ListSkillsParams
    ) -> dict[str, Any]:
        after = params.cursor or ""
        if not is_possible_id(after):
            raise MCPError(INVALID_PARAMS, "invalid cursor; use `nextCursor` of a page")
        skills = self._skills.for_reader(get_reader(ctx))
        page = await self._run("", partial(skills.list_page, after, PAGE_SIZE))
        return make_list_result(page)

    async def _get(self, ctx: ServerRequestContext[Any], params: GetSkillParams) -> dict[str, Any]:
        skills = self._skills.for_reader(get_reader(ctx))
        return make_get_result(await self._run(params.uri, partial(skills.get, params.uri)))

    async def _read_directory(
        self, ctx: ServerRequestContext[Any], params: ReadDirectoryParams
    ) -> dict[str, Any]:
        uri, after = params.uri, params.cursor or ""
        skills = self._skills.for_reader(get_reader(ctx))
        children = await self._run(uri, partial(skills.list_directory, uri))
        rest = [child for child in children if child.name > after]
        shown = rest[:DIRECTORY_PAGE_SIZE]
        return make_directory_result(shown, shown[-1].name if len(rest) > len(shown) else "")

    async def _run(self, uri: str, function: Callable[[], T]) -> T:
        """Return the result of a function that runs in a thread; its errors become
        those of the protocol."""
        data = {"uri": uri} if uri else None
        try:
            return await self._run_in_thread(function, True)
        except NotFoundError as error:
            raise MCPError(INVALID_PARAMS, explain_error(error), data) from error
        except SkillbusError as error:
            raise MCPError(INTERNAL_ERROR, explain_error(error), data) from error
