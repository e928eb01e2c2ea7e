"""Generate the schemas, the AsyncAPI and OpenAPI documents and the MCP reference.

With --check, write nothing and fail if one is stale.
"""

from __future__ import annotations

import json
import sys
from pathlib import Path
from types import SimpleNamespace
from typing import Any, cast

import anyio

from config.settings import Settings
from skills.bundle.model import bundle_schema
from skills.events.asyncapi import asyncapi_document
from skills.events.schema import event_schemas, events_schema
from workers.backend.factory import open_skill_reader
from workers.backend.protocol import Backend
from workers.backend.store_backend import StoreBackend
from workers.http.access import AccessRules
from workers.http.app import create_api
from workers.http.tokens import TokenStore
from workers.mcp.server import create_server
from workers.mcp.skills_extension import IDENTIFIER, METHODS
from workers.monitoring.metrics import ProcessMetrics

HERE = Path(__file__).parent

BEGIN, END = "<!-- tools: made by schemas.py -->\n", "<!-- end of tools -->\n"
BEGIN_METHODS, END_METHODS = "<!-- methods: made by schemas.py -->\n", "<!-- end of methods -->\n"


def published() -> dict[str, str]:
    """Return path -> text of every generated file."""
    files = {
        "bundle.schema.json": bundle_schema(),
        "events.schema.json": events_schema(),
        "openapi.json": render_openapi(),
        "asyncapi.yaml": asyncapi_document(),
        "mcp.tools.json": render_tools_reference(),
        "mcp.md": insert_tools_reference((HERE / "mcp.md").read_text(encoding="utf-8")),
    }
    kinds = {f"events/{name}.schema.json": text for name, text in event_schemas().items()}
    return files | kinds


def render_openapi() -> str:
    """Return the OpenAPI document of a gateway on a port."""
    # Routes use nothing else of a backend before they are called.
    closed = cast(StoreBackend, SimpleNamespace(settings=Settings(), journal=None, skills=None))
    gateway = create_api(closed, AccessRules(TokenStore(Path("tokens.json"))), ProcessMetrics())
    return json.dumps(gateway.openapi(), indent=2, ensure_ascii=False) + "\n"


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


def list_methods() -> dict[str, Any]:
    """Return the description and the schema of the parameters of each method, without `_meta`."""
    listed = {}
    for method, (params, description) in METHODS.items():
        schema = params.model_json_schema(by_alias=True)
        properties = {
            name: {key: value for key, value in one.items() if key != "title"}
            for name, one in schema["properties"].items()
            if name != "_meta"
        }
        listed[method] = {
            "description": description,
            "params": {"properties": properties, "required": schema.get("required", [])},
        }
    return listed


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


def _no_backend() -> Backend:
    raise RuntimeError("the reference asks no queries")


def stale(files: dict[str, str]) -> list[str]:
    """Return the paths of files that differ from `files`, and of schemas of deleted event types."""
    differing = [
        name
        for name, text in files.items()
        if not (HERE / name).exists() or (HERE / name).read_text(encoding="utf-8") != text
    ]
    there = [path.relative_to(HERE).as_posix() for path in (HERE / "events").glob("*")]
    return differing + sorted(set(there) - set(files))


def main() -> None:
    """Write stale files; with --check, exit with an error that names them."""
    files = published()
    names = stale(files)
    if "--check" in sys.argv[1:]:
        if names:
            sys.exit(f"stale: {', '.join(names)}; run `make schemas`")
        return
    for name in names:
        if name not in files:
            (HERE / name).unlink()
            continue
        (HERE / name).parent.mkdir(exist_ok=True)
        (HERE / name).write_text(files[name], encoding="utf-8")


if __name__ == "__main__":
    main()
