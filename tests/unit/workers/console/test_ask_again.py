"""A query that is asked again from the page of its answer, and the texts to copy from it."""

from __future__ import annotations

import html
import json
import re
from collections.abc import Iterator
from typing import Any

import pytest
from fastapi.testclient import TestClient

from skills.events import QueryAsked, SourceChanged
from tests.support.program.program import wait_for
from tests.support.samples.library import write_skill
from tests.support.samples.tiny import settle, tiny_backend
from tests.unit.workers.console.test_event_page import open_client, read_event
from workers.backend.embedded import EmbeddedBackend
from workers.http.authentication import LOCAL_USER
from workers.mcp.results import FoundSkills
from workers.mcp.schemas import create_tool
from workers.mcp.tools import SkillTools

LIMITS: dict[str, Any] = {
    "session": "s1",
    "brief": True,
    "obstacle": "the glaze crawls",
    "resend": True,
    "least_probability": 0.25,
    "filters": {"source": ["crafts"], "licence": [], "language": [], "tool": []},
    "budget": 900,
}
TASK = "fire stoneware in an electric kiln"


@pytest.fixture(scope="module")
def backend(tmp_path_factory: pytest.TempPathFactory) -> Iterator[EmbeddedBackend]:
    folder = tmp_path_factory.mktemp("asked")
    steps = "## Steps\n\n1. Fire stoneware\u202e in an electric kiln.\n"
    write_skill(folder / "crafts", "kiln-firing", "Fire stoneware in an electric kiln", steps)
    notes = "## Notes\n\n" + "A line.\n" * 2_100 + "\n## Shelves\n\nStack props of alumina.\n"
    write_skill(folder / "crafts", "long-notes", "Stack the props of alumina", notes)
    with tiny_backend(folder / "home", policy={"highest_level": 3}) as backend:
        with open_client(backend) as client:
            source = SourceChanged(source_id="crafts", root=str(folder / "crafts"))
            read_event(backend, client, source)
        settle(backend)
        [entry] = backend.graph_for(LOCAL_USER.reader).get_entries(["crafts:kiln-firing"])
        LIMITS["pins"] = {entry.skill_id: entry.seq}
        yield backend


@pytest.fixture
def client(backend: EmbeddedBackend) -> Iterator[TestClient]:
    with open_client(backend) as client:
        cookies = client.get("/ask").cookies
        # The console is not below the path of its cookie here.
        client.headers["Cookie"] = "; ".join(f"{name}={value}" for name, value in cookies.items())
        yield client


def ask(backend: EmbeddedBackend, **query: Any) -> str:
    """The id of a query that has ended."""
    query_id = backend.submit(QueryAsked(explain=True, **query), "tests")
    job = wait_for(lambda: (job := backend.journal.get_job(query_id)).state != "accepted" and job)
    assert job.state == "done", job.reason
    return query_id


def send(client: TestClient, page: str, **fields: str) -> str:
    """The id of the query that a form of a page asks."""
    shown = client.get(page).text
    found = re.search(r'name="csrf_token" value="(\w+)"', shown)
    assert found is not None
    fields = {"csrf_token": found[1], **fields}
    sent = client.post("/ask", data=fields, follow_redirects=False)
    assert sent.status_code == 303, sent.text
    return re.split("[?#]", sent.headers["location"])[0].rpartition("/")[2]


def list_form(page: str, button: str) -> dict[str, str]:
    """The fields of the form with a button, as a browser sends it unchanged."""
    [form] = [one for one in page.split("<form ") if f">{button}</button>" in one]
    fields = dict(re.findall(r'<input [^>]*name="(\w+)"[^>]*? value="([^"]*)"', form))
    fields |= dict(re.findall(r'<textarea [^>]*name="(\w+)"[^>]*>([^<]*)<', form))
    del fields["csrf_token"]
    fields.pop("without", None)
    return {name: html.unescape(value) for name, value in fields.items()}


@pytest.mark.parametrize("task", [TASK, ""])
@pytest.mark.parametrize(
    ("words", "button", "explained"),
    [("", "Ask again", None), ("?find=crafts:kiln-firing", "Why?", ["crafts:kiln-firing"])],
)
def test_it_is_the_query_that_is_shown(
    backend: EmbeddedBackend,
    client: TestClient,
    task: str,
    words: str,
    button: str,
    explained: list[str] | None,
) -> None:
    asked = ask(backend, task=task, **LIMITS)
    page = f"/ask/{asked}{words}"
    again = send(client, page, **list_form(client.get(page).text, button))
    data = backend.journal.get_job(again).event.data
    assert {name: data.get(name) for name in LIMITS} == LIMITS
    assert (data["task"], data.get("explain_skills")) == (task, explained)
    assert data["record_use"] is False


def test_its_fields_can_be_changed_and_emptied(
    backend: EmbeddedBackend, client: TestClient
) -> None:
    asked = ask(backend, task=TASK, without=["diffusion"], record_use=False, **LIMITS)
    page = f"/ask/{asked}"
    fields = list_form(client.get(page).text, "Ask again")
    changed = {"task": "mix a glaze", "budget": "", "source": "", "top": "2"}
    data = backend.journal.get_job(send(client, page, **fields | changed)).event.data
    assert (data["task"], data["budget"], data["top"]) == ("mix a glaze", None, 2)
    assert not any(data["filters"].values())
    assert not data["without"]
    assert data["obstacle"] == LIMITS["obstacle"]
    assert data.get("record_use", True)


def test_values_of_filters_may_have_spaces(backend: EmbeddedBackend, client: TestClient) -> None:
    filters = {"licence": ["Terms in LICENSE.txt", "MIT"], "tool": ["Bash(git *)", "it's"]}
    page = f"/ask/{ask(backend, task=TASK, filters=filters)}"
    fields = list_form(client.get(page).text, "Ask again")
    data = backend.journal.get_job(send(client, page, **fields)).event.data
    assert {name: data["filters"][name] for name in filters} == filters
    with pytest.raises(AssertionError, match="Licence: close the quotes"):
        send(client, page, **fields | {"licence": "'MIT"})


def test_a_query_that_is_no_longer_kept_cannot_be_asked_again(client: TestClient) -> None:
    found = re.search(r'name="csrf_token" value="(\w+)"', client.get("/ask").text)
    assert found is not None
    fields = {"csrf_token": found[1], "compare": "gone", "why": "crafts:kiln-firing"}
    assert client.post("/ask", data=fields, follow_redirects=False).status_code == 404


@pytest.mark.parametrize("task", [TASK, ""])
def test_the_call_to_copy_is_accepted_by_the_tool(
    backend: EmbeddedBackend, client: TestClient, task: str
) -> None:
    options = {"budget_form": "tool_result", "explain_skills": ["crafts:none"]}
    asked = ask(backend, task=task, without=["diffusion"], record_use=False, **options, **LIMITS)
    found = re.search(r'id="copy-mcp"[^>]*>([^<]*)<', client.get(f"/ask/{asked}").text)
    assert found is not None
    call = json.loads(html.unescape(found[1]))
    tool = create_tool(SkillTools.__new__(SkillTools).find_skills, "Find skills", FoundSkills)
    arguments = tool.fn_metadata.arg_model.model_validate(call["arguments"]).model_dump()
    kept = {name: value for name, value in LIMITS.items() if name in arguments}
    assert {"task", "brief", "obstacle", "resend", "session"} < arguments.keys()
    assert kept == {name: arguments[name] for name in kept}


def test_invisible_characters_of_a_skill_are_escapes_in_json(
    backend: EmbeddedBackend, client: TestClient
) -> None:
    page = client.get(f"/ask/{ask(backend, task=TASK)}").text
    found = re.search(r'id="copy-json"[^>]*>([^<]*)<', page)
    assert found is not None
    assert "\u202e" in json.dumps(json.loads(html.unescape(found[1])), ensure_ascii=False)
    assert "\u202e" not in page


def test_a_passage_after_the_lines_that_are_shown_is_counted(
    backend: EmbeddedBackend, client: TestClient
) -> None:
    page = client.get(f"/ask/{ask(backend, task='stack the props of alumina')}").text
    assert "The first 2,000 lines are shown; 1 passage after them was sent too" in page
