"""Uploads that are slow, broken off, or one too many, at the route itself."""

from __future__ import annotations

import asyncio
import os
from collections.abc import AsyncIterator
from pathlib import Path
from types import SimpleNamespace
from typing import Any, cast

import httpx
import pytest

from config.errors import TransientError
from config.inbound_settings import UploadSettings
from config.settings import Settings
from tasks.journal.sqlite import SqliteJournal
from workers.http.access import AccessRules
from workers.http.app import create_gateway
from workers.http.authentication import LOCAL_USER
from workers.http.jobs import derive_job_id
from workers.http.tokens import TokenScope, TokenStore

TEXT = {"Content-Type": "text/markdown"}
WHERE = "/v1/skills?source=s&path=x"


@pytest.fixture
def settings(tmp_path: Path) -> Settings:
    return Settings(home=tmp_path, uploads=UploadSettings(seconds=60, at_once=1))


@pytest.fixture(scope="module")
def shared(tmp_path_factory: pytest.TempPathFactory) -> SimpleNamespace:
    """The backend of one gateway, which takes long to build; each test sets what it needs."""
    home = tmp_path_factory.mktemp("uploads")
    settings = Settings(home=home, uploads=UploadSettings(at_once=1))
    backend = SimpleNamespace(settings=settings, journal=None, skills=None)
    backend.gateway = create_gateway(cast("Any", backend))
    return backend


@pytest.fixture
def backend(shared: SimpleNamespace, settings: Settings) -> SimpleNamespace:
    shared.settings, shared.journal = settings, None
    shared.graph = SimpleNamespace(list_sources=list)
    shared.accept = lambda event: event.id
    shared.check_capacity = lambda kind: None
    shared.check_visible = lambda reader, source_id: None
    return shared


@pytest.fixture
def client(backend: SimpleNamespace) -> httpx.AsyncClient:
    transport = httpx.ASGITransport(backend.gateway)
    return httpx.AsyncClient(transport=transport, base_url="http://skillbus")


async def slowly(seconds: float) -> AsyncIterator[bytes]:
    yield b"# x\n"
    await asyncio.sleep(seconds)
    yield b"More.\n"


def test_who_sends_slowly_is_cut_off(
    settings: Settings, backend: SimpleNamespace, client: httpx.AsyncClient
) -> None:
    uploads = settings.uploads.model_copy(update={"seconds": 0.3})
    backend.settings = settings.model_copy(update={"uploads": uploads})
    answer = asyncio.run(client.post(WHERE, content=slowly(2.0), headers=TEXT))
    assert (answer.status_code, "uploads.seconds" in answer.text) == (408, True)
    assert not list((settings.home / "uploads" / "staging").iterdir())


def test_one_too_many_is_asked_to_come_again(client: httpx.AsyncClient) -> None:
    async def both() -> list[httpx.Response]:
        begun, answered = asyncio.Event(), asyncio.Event()

        async def held_open() -> AsyncIterator[bytes]:
            yield b"# x\n"
            begun.set()
            await answered.wait()
            yield b"More.\n"

        first = asyncio.create_task(client.post(WHERE, content=held_open(), headers=TEXT))
        await begun.wait()
        second = await client.post(WHERE, content=b"# x\n", headers=TEXT)
        answered.set()
        return [await first, second]

    first, second = asyncio.run(both())
    assert first.status_code == 202
    assert second.status_code == 503
    assert "retry-after" in second.headers


def test_an_upload_that_is_sent_again_is_the_same_job_over_restarts(
    backend: SimpleNamespace, client: httpx.AsyncClient, settings: Settings
) -> None:
    packages = settings.home / "uploads" / "packages"

    def send(content: bytes, key: str, where: str = WHERE) -> httpx.Response:
        """With a journal that was just opened."""
        journal = SqliteJournal(settings.home / "journal.db")
        backend.journal = journal
        backend.accept = lambda event: journal.add_job(event, "event")
        headers = TEXT | {"Idempotency-Key": key}
        try:
            return asyncio.run(client.post(where, content=content, headers=headers))
        finally:
            journal.close()

    first = send(b"# x\n", "one")
    assert (first.status_code, first.json()["skills"]) == (202, ["s:x"])
    assert send(b"# x\n", "one").json() == first.json()
    assert send(b"# x\n", "two").json()["id"] != first.json()["id"]
    for content, where in ((b"# y\n", WHERE), (b"# x\n", f"{WHERE}y")):
        refused = send(content, "one", where)
        assert (refused.status_code, "Idempotency-Key" in refused.text) == (422, True)
    assert send(b"", "three").status_code == 400
    assert len(list(packages.iterdir())) == 2
    # A kill between package and journal: it gives way, but not to one that may be on its way.
    left = packages / f"upload-{derive_job_id(LOCAL_USER, 'four')}"
    left.mkdir()
    (left / "older.zip").write_bytes(b"")
    assert send(b"# x\n", "four").status_code == 503
    os.utime(left, (1, 1))
    assert send(b"# x\n", "four").json()["id"] == left.name
    assert [one.name for one in left.iterdir()] != ["older.zip"]
    assert send(b"# x\n", "four").status_code == 202


def test_what_could_not_be_accepted_is_not_taken_in(
    backend: SimpleNamespace, client: httpx.AsyncClient, settings: Settings
) -> None:
    def full(kind: str) -> None:
        raise TransientError(f"too many of kind {kind} wait")

    backend.check_capacity = full
    answer = asyncio.run(client.post(WHERE, content=slowly(2.0), headers=TEXT))
    assert (answer.status_code, "kind event" in answer.text) == (503, True)
    assert not (settings.home / "uploads").exists()


def test_what_was_accepted_is_on_disk(client: httpx.AsyncClient, settings: Settings) -> None:
    answer = asyncio.run(client.post(WHERE, content=b"# x\n", headers=TEXT))
    package = settings.home / "uploads" / "packages" / answer.json()["id"]
    assert len(list(package.iterdir())) == 1


def test_a_folder_that_cannot_be_used_is_not_named_to_remote_callers(
    backend: Any, settings: Settings, tmp_path: Path
) -> None:
    staging = settings.home / "uploads" / "staging"
    staging.parent.mkdir()
    staging.write_bytes(b"")
    tokens = TokenStore(tmp_path / "tokens.json")
    headers = TEXT | {"Authorization": f"Bearer {tokens.add('ci', TokenScope.WRITE)}"}

    def send(access: AccessRules | None) -> tuple[int, bool]:
        transport = httpx.ASGITransport(create_gateway(backend, access))
        client = httpx.AsyncClient(transport=transport, base_url="http://skillbus")
        answer = asyncio.run(client.post(WHERE, content=b"# x\n", headers=headers))
        return answer.status_code, str(staging) in answer.json()["detail"]

    assert (send(AccessRules(tokens)), send(None)) == ((503, False), (503, True))


@pytest.mark.parametrize(("charset", "status"), [("UTF-8", 202), ("punycode", 415)])
def test_a_form_is_in_utf_8(client: httpx.AsyncClient, charset: str, status: int) -> None:
    """To decode punycode takes time that grows with the square of the text."""
    form = (
        b'--x\r\nContent-Disposition: form-data; name="note"\r\n\r\nnew-\r\n'
        b'--x\r\nContent-Disposition: form-data; name="file"; filename="x"\r\n\r\n# x\n'
        b"\r\n--x--\r\n"
    )
    kind = {"Content-Type": f"multipart/form-data; boundary=x; charset={charset}"}
    answer = asyncio.run(client.post(WHERE, content=form, headers=kind))
    assert answer.status_code == status, answer.text
