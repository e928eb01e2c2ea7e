"""The page of an event: what of its skills still waits once it is done."""

from __future__ import annotations

from collections.abc import Iterator
from contextlib import contextmanager
from pathlib import Path
from typing import Any

import pytest
from cryptography.fernet import Fernet
from fastapi.testclient import TestClient

from skills.events import SkillUpserted, SourceChanged
from skills.events.requests import Request as EventRequest
from tests.support.program.program import wait_for
from tests.support.samples.library import write_skill
from tests.support.samples.tiny import settle, tiny_backend
from workers.backend.embedded import EmbeddedBackend
from workers.backend.protocol import EmbedMode
from workers.console.app import create_console
from workers.console.pages import Pages
from workers.console.sessions import ConsoleSessions
from workers.http.access import AccessRules
from workers.http.authentication import LOCAL_USER
from workers.http.route_services import RouteServices


@contextmanager
def open_client(backend: EmbeddedBackend) -> Iterator[TestClient]:
    """A client of the console, as the user of this machine."""
    services = RouteServices.create(backend, None)
    pages = Pages(ConsoleSessions(Fernet.generate_key()))
    console = create_console(AccessRules(), pages, services)

    async def app(scope: Any, receive: Any, send: Any) -> None:
        if scope["type"] == "http":
            scope.setdefault("state", {})["caller"] = LOCAL_USER
        await console(scope, receive, send)

    with TestClient(app) as client:
        yield client


def read_event(backend: EmbeddedBackend, client: TestClient, data: EventRequest) -> str:
    """The page of an event that is done."""
    event_id = backend.submit(data, "tests")
    wait_for(lambda: backend.get_event_status(event_id).state == "done")
    page = client.get(f"/work/events/{event_id}")
    assert page.status_code == 200, page.text
    return " ".join(page.text.split())


@pytest.mark.parametrize(
    ("embeds", "of_skill", "of_source"),
    [
        ("nothing", "The skill can be searched by words, but", "2 skills</a> of this source still"),
        ("skills", "but its sections still wait for vectors", "2 skills</a> of this source still"),
        ("sections", "", ""),
    ],
)
def test_an_event_that_is_done_says_what_still_waits(
    tmp_path: Path, embeds: EmbedMode, of_skill: str, of_source: str
) -> None:
    crafts = tmp_path / "crafts"
    for name in ("kiln-firing", "glaze-mixing"):
        write_skill(crafts, name, f"How to do {name}")
    with tiny_backend(tmp_path / "home", embeds=embeds) as backend, open_client(backend) as client:
        source = SourceChanged(source_id="crafts", root=str(crafts))
        read_event(backend, client, source)
        if embeds == "sections":
            settle(backend)
        elif embeds == "skills":
            wait_for(lambda: backend.get_progress()["with_vectors"] == 2)
        page = read_event(backend, client, source)
        of_one = read_event(backend, client, SkillUpserted(skill_id="crafts:kiln-firing"))
    assert of_source in page
    assert of_skill in of_one
    assert ("notice" in page, "notice" in of_one) == (bool(of_source), bool(of_skill))
