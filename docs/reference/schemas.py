"""Generate the schemas, the AsyncAPI and OpenAPI documents and the MCP reference.

With --check, write nothing and fail if one is stale.
"""

from __future__ import annotations

import json
import sys
from pathlib import Path
from types import SimpleNamespace
from typing import cast

from config.settings import Settings
from skills.bundle.model import bundle_schema
from skills.events.asyncapi import asyncapi_document
from skills.events.schema import event_schemas, events_schema
from workers.backend.store_backend import StoreBackend
from workers.http.access import AccessRules
from workers.http.app import create_api
from workers.http.tokens import TokenStore
from workers.mcp.reference import insert_tools_reference, render_tools_reference
from workers.monitoring.metrics import ProcessMetrics

HERE = Path(__file__).parent


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
