"""Arguments of the tools, with terse schemas: they are in an agent's context on every turn."""

from __future__ import annotations

import inspect
import re
from collections.abc import Callable
from typing import Annotated, Any, Literal

from mcp.server.mcpserver.exceptions import ToolError
from mcp.server.mcpserver.tools import Tool
from mcp_types import ToolAnnotations
from pydantic import Field, ValidationError
from pydantic.json_schema import GenerateJsonSchema, JsonSchemaValue
from typing_extensions import override

from config.errors import SkillbusError
from skills.events import describe_validation_error
from workers.mcp.errors import explain_error
from workers.mcp.results import MAX_BUDGET, MIN_BUDGET, Result

MAX_ID_LENGTH = 2000
_INVALID_TEXT = re.compile("[\0\ud800-\udfff]")


def is_possible_id(text: str) -> bool:
    """Return whether an id can be passed to a store: no NUL, no lone surrogate, bounded length."""
    return len(text) <= MAX_ID_LENGTH and _INVALID_TEXT.search(text) is None


Budget = Annotated[
    int | None,
    Field(
        ge=MIN_BUDGET,
        le=MAX_BUDGET,
        description="Tokens that the result may take. Default: the library's setting, often 8000.",
    ),
]
Task = Annotated[
    str,
    Field(min_length=1, description="What is to be done, with which files, formats and tools."),
]
Top = Annotated[
    int | None,
    Field(ge=1, le=100, description="Maximum number of skills; their dependencies are added."),
]
Filters = Annotated[
    dict[Literal["source", "licence", "language", "tool"], list[str]] | None,
    Field(
        description="Only skills with one of these values of `source` (the part of an id before "
        "the colon), `licence`, `language` (en, zh, mixed, other), `tool`."
    ),
]
Session = Annotated[
    str | None,
    Field(
        max_length=200,
        description="Any id: text sent in it is not sent again. Over stdio there is a default.",
    ),
]
Resend = Annotated[bool | None, Field(description="Send all text again: earlier text was lost.")]
Obstacle = Annotated[str | None, Field(description="What went wrong, such as an error message.")]
Brief = Annotated[bool | None, Field(description="Introduce skills; ask again for more.")]
SkillId = Annotated[
    str,
    Field(min_length=1, max_length=MAX_ID_LENGTH, description="Id as returned by find_skills."),
]
QueryId = Annotated[
    str,
    Field(min_length=1, max_length=200, description="`query_id` of a result of find_skills."),
]
# Literals instead of the enums, whose schemas would be separate, with titles and descriptions.
OutcomeName = Annotated[
    Literal["used", "helped", "failed", "rejected", "superseded", "missing"],
    Field(
        description="used: followed, result unknown; failed: followed, did not work; rejected: "
        "read, not followed; superseded: another was used; missing: no skill for this task."
    ),
]
Reason = Annotated[
    Literal[
        "wrong_domain",
        "wrong_tool",
        "wrong_platform",
        "wrong_step",
        "too_general",
        "too_specific",
        "redundant",
        "incompatible",
    ]
    | None,
    Field(description="Only for `rejected`."),
]
ReportedSkill = Annotated[
    str | None,
    Field(max_length=MAX_ID_LENGTH, description="Its id. Leave it out for `missing`."),
]
OtherSkill = Annotated[
    str | None,
    Field(
        max_length=MAX_ID_LENGTH,
        description="For `superseded`, `redundant`, `incompatible`: the id of the other skill.",
    ),
]
JudgedBy = Annotated[
    Literal["agent", "verifier", "person"] | None,
    Field(description="verifier: tests or another check decided; person: the user did."),
]
Lines = Annotated[
    str | None,
    Field(
        max_length=2000,
        description="Ranges of lines, such as `36-42, 60`; `next_lines` of a result continues it. "
        "Default: the whole body.",
    ),
]


class _TerseJsonSchema(GenerateJsonSchema):
    """JSON Schema without titles, which repeat names, and without nulls: arguments are optional."""

    def field_title_should_be_set(self, schema: Any) -> bool:
        """Return False: no field has a title."""
        del schema
        return False

    def nullable_schema(self, schema: Any) -> JsonSchemaValue:
        """Return the schema of a value that is not null."""
        return self.generate_inner(schema["schema"])

    def default_schema(self, schema: Any) -> JsonSchemaValue:
        """Return the schema of an argument without its default; the description
        names it if it matters."""
        return self.generate_inner(schema["schema"])


class _Tool(Tool):
    """A tool with the same error messages as the other interfaces."""

    @override
    async def run(
        self, arguments: dict[str, Any], context: Any, convert_result: bool = False
    ) -> Any:
        """Run the tool; raises ToolError for wrong arguments and for errors of its function."""
        try:
            return await super().run(arguments, context, convert_result)
        except ToolError as error:
            if isinstance(cause := error.__cause__, ValidationError):
                raise ToolError(describe_validation_error(cause)) from None
            if isinstance(cause, SkillbusError):
                raise ToolError(explain_error(cause)) from cause
            raise


def create_tool(
    function: Callable[..., Any], title: str, result: type[Result], *, read_only: bool = True
) -> Tool:
    """Return a tool described by its docstring, which deletes nothing; it
    rejects unknown arguments.

    read_only: whether it changes nothing.
    """
    tool = _Tool.from_function(
        function,
        title=title,
        description=inspect.cleandoc(function.__doc__ or ""),
        annotations=ToolAnnotations(
            read_only_hint=read_only,
            destructive_hint=False,
            idempotent_hint=read_only,
            open_world_hint=False,
        ),
    )
    arguments = tool.fn_metadata.arg_model
    arguments.model_config |= {"extra": "forbid", "hide_input_in_errors": True}
    arguments.model_rebuild(force=True)
    tool.parameters = arguments.model_json_schema(schema_generator=_TerseJsonSchema)
    tool.fn_metadata.output_schema = result.model_json_schema(
        schema_generator=_TerseJsonSchema, mode="serialization"
    )
    for schema in (tool.parameters, tool.fn_metadata.output_schema):
        del schema["title"]
    return tool
