"""Renders the reference of tools and methods from the server."""

from __future__ import annotations

import json
from typing import Any

import anyio

from config.settings import Settings
from workers.backend.factory import open_skill_reader
from workers.mcp.query_runner import QueryBackend
from workers.mcp.server import create_server
from workers.mcp.skills_extension import IDENTIFIER, list_methods

BEGIN, END = "<!-- tools: made by schemas.py -->\n", "<!-- end of tools -->\n"
BEGIN_METHODS, END_METHODS = "<!-- methods: made by schemas.py -->\n", "<!-- end of methods -->\n"


def render_tools_reference() -> str:
    """Return the lists of the server as JSON: instructions, tools with their schemas, templates,
    and the methods of its extension."""
    settings = Settings()
    server = create_server(settings, _no_backend, open_skill_reader(settings))

    async def listed() -> dict[str, Any]:
        tools = [tool.model_dump(**_WIRE) for tool in await server.list_tools()]
        found = await server.list_resource_templates()
        templates = [template.model_dump(**_WIRE) for template in found]
        return {
            "instructions": server.instructions,
            "tools": tools,
            "resourceTemplates": templates,
            "extensions": {IDENTIFIER: {"methods": list_methods()}},
        }

    return json.dumps(anyio.run(listed), indent=2, ensure_ascii=False) + "\n"


_WIRE: Any = {"mode": "json", "by_alias": True, "exclude_none": True}


def insert_tools_reference(page: str) -> str:
    """Return a page of documentation with its tables of tools and methods rendered again."""
    listed = json.loads(render_tools_reference())
    tools = "\n".join(map(_section, listed["tools"]))
    methods = _method_table(listed["extensions"][IDENTIFIER]["methods"])
    page = _replace_between(page, BEGIN, END, tools)
    return _replace_between(page, BEGIN_METHODS, END_METHODS, methods)


def _replace_between(page: str, begin: str, end: str, text: str) -> str:
    head, _, rest = page.partition(begin)
    return f"{head}{begin}\n{text}\n{end}{rest.partition(end)[2]}"


def _method_table(methods: dict[str, Any]) -> str:
    lines = ["| method | parameters | |", "| --- | --- | --- |"]
    for name, method in methods.items():
        required = method["params"].get("required", [])
        given = method["params"]["properties"]
        parameters = [f"`{one}`{' (required)' if one in required else ''}" for one in given]
        lines.append(f"| `{name}` | {', '.join(parameters)} | {method['description']} |")
    return "\n".join(lines) + "\n"


def _section(tool: dict[str, Any]) -> str:
    lines = [f"### `{tool['name']}`", "", " ".join(tool["description"].split()), ""]
    lines += ["| argument | type | |", "| --- | --- | --- |"]
    required = tool["inputSchema"].get("required", [])
    for name, schema in tool["inputSchema"]["properties"].items():
        needed = " (required)" if name in required else ""
        lines.append(f"| `{name}` | {_type(schema)}{needed} | {schema.get('description', '')} |")
    output = tool["outputSchema"]
    lines += ["", f"Structured content: {' '.join(output['description'].split())}", ""]
    lines += ["| field | type |", "| --- | --- |"]
    lines += [f"| `{name}` | {_type(schema)} |" for name, schema in output["properties"].items()]
    return "\n".join(lines) + "\n"


def _type(schema: dict[str, Any]) -> str:
    """Return a JSON Schema in a few words."""
    if "$ref" in schema:
        return "object"
    if "enum" in schema:
        return ", ".join(f"`{one}`" for one in schema["enum"])
    kind = str(schema.get("type", "any"))
    if kind == "array":
        return f"list of {_type(schema['items'])}"
    if "minimum" in schema and "maximum" in schema:
        return f"{kind}, {schema['minimum']} to {schema['maximum']}"
    return kind


def _no_backend() -> QueryBackend:
    raise RuntimeError("the reference asks no queries")
