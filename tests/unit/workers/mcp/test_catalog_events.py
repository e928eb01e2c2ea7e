"""Which notifications a stream gets of the catalog's change feed, by what its reader may see."""

from __future__ import annotations

import shutil
import time
from collections.abc import Callable, Iterator
from contextvars import ContextVar
from pathlib import Path
from typing import Any, TypeVar

import anyio
import pytest
from anyio import to_thread
from mcp import Client
from mcp.shared.exceptions import MCPError

from config.errors import TransientError
from skills.access import ANYONE, UNRESTRICTED, Reader
from skills.events import SourceChanged
from tests.support.samples.library import write_skill
from tests.support.samples.tiny import settle, tiny_backend
from workers.backend.embedded import EmbeddedBackend
from workers.mcp.catalog_events import CatalogEvents
from workers.mcp.server import create_server

T = TypeVar("T")

URI = "skill://vault/ledger/SKILL.md"
ABSENT = "skill://vault/absent/SKILL.md"
UPDATED, LISTED = f"ResourceUpdated {URI}", "ResourcesListChanged"


@pytest.fixture(scope="module")
def folder(tmp_path_factory: pytest.TempPathFactory) -> Path:
    return tmp_path_factory.mktemp("catalog")


@pytest.fixture(scope="module")
def library(folder: Path) -> Iterator[EmbeddedBackend]:
    with tiny_backend(folder / "home") as opened:
        for source_id, name in (("crafts", "kiln-firing"), ("vault", "ledger")):
            write_skill(folder / source_id, name)
            opened.submit(SourceChanged(source_id=source_id, root=str(folder / source_id)), "t")
        settle(opened)
        yield opened


@pytest.fixture
def backend(library: EmbeddedBackend) -> EmbeddedBackend:
    """A public source, and one of a group."""
    library.set_source_groups("vault", ["finance"])
    return library


async def in_thread(function: Callable[[], T], abandon: bool = False) -> T:
    return await to_thread.run_sync(function, abandon_on_cancel=abandon)


def collect(
    backend: EmbeddedBackend, reader: Reader, *changes: Callable[[], Any], fails: bool = False
) -> list[list[str]]:
    """What a stream of a reader is sent after each change."""
    seen: list[list[str]] = []

    async def work() -> None:
        events = CatalogEvents(backend.skills, in_thread, poll_seconds=3600)
        async with events.open_stream(reader, [URI, ABSENT]):
            events.subscribe(
                lambda one: seen[-1].append(
                    f"{type(one).__name__} {getattr(one, 'uri', '')}".strip()
                )
            )
            for change in changes:
                seen.append([])
                await to_thread.run_sync(change)
                if fails:
                    with pytest.MonkeyPatch.context() as patch:
                        patch.setattr(events, "_find_events", _fail)
                        with pytest.raises(TransientError):
                            await events._publish_changes()
                await events._publish_changes()

    anyio.run(work)
    return seen


def _fail(*_: object) -> list[Any]:
    raise TransientError("the catalog does not answer")


def test_a_source_that_is_shown_or_hidden_is_a_change(backend: EmbeddedBackend) -> None:
    sent = collect(
        backend,
        ANYONE,
        lambda: backend.set_source_groups("vault", ["everyone"]),
        lambda: None,
        lambda: backend.set_source_groups("vault", ["finance"]),
    )
    assert sent == [[LISTED, UPDATED], [], [LISTED, UPDATED]]


def test_groups_that_change_nothing_for_a_reader_are_none(backend: EmbeddedBackend) -> None:
    def add_hidden() -> None:
        backend.set_source_groups("annex", ["finance"])

    def widen() -> None:
        backend.set_source_groups("vault", ["audit", "finance"])

    assert collect(backend, ANYONE, widen, add_hidden) == [[], []]
    assert collect(backend, UNRESTRICTED, add_hidden) == [[]]
    assert collect(backend, Reader.of(["finance"]), widen) == [[]]


def test_a_skill_that_was_never_seen_is_not_told_of(backend: EmbeddedBackend, folder: Path) -> None:
    """Between two looks a source was hidden and got the skill whose URI is watched."""
    backend.set_source_groups("vault", ["everyone"])

    def hide_and_add() -> None:
        backend.set_source_groups("vault", ["finance"])
        write_skill(folder / "vault", "absent")
        backend.submit(SourceChanged(source_id="vault"), "t")
        settle(backend)

    assert collect(backend, ANYONE, hide_and_add) == [[LISTED, UPDATED]]
    shutil.rmtree(folder / "vault" / "absent")
    backend.submit(SourceChanged(source_id="vault"), "t")
    settle(backend)


def test_what_a_failed_look_left_out_comes_with_the_next(backend: EmbeddedBackend) -> None:
    def show() -> None:
        backend.set_source_groups("vault", ["everyone"])

    assert collect(backend, ANYONE, show, fails=True) == [[LISTED, UPDATED]]


def test_a_failed_look_for_one_reader_repeats_nothing_for_others(
    backend: EmbeddedBackend, folder: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    seen: list[str] = []

    async def work() -> None:
        events = CatalogEvents(backend.skills, in_thread, poll_seconds=3600)
        async with events.open_stream(UNRESTRICTED, []):
            events.subscribe(lambda _: seen.append("unrestricted"))
            async with events.open_stream(Reader.of(["finance"]), []):
                events.subscribe(lambda _: seen.append("finance"))
                write_skill(folder / "crafts", "star-charts")
                backend.submit(SourceChanged(source_id="crafts"), "t")
                await to_thread.run_sync(settle, backend)
                find, calls = events._find_events, iter(range(9))

                def fail_once(*given: Any) -> Any:
                    return _fail() if next(calls) == 1 else find(*given)

                monkeypatch.setattr(events, "_find_events", fail_once)
                with pytest.raises(TransientError):
                    await events._publish_changes()
                await events._publish_changes()

    anyio.run(work)
    assert sorted(seen) == ["finance", "unrestricted"]


def test_polls_do_not_belong_to_the_first_stream(backend: EmbeddedBackend) -> None:
    """Its context has its trace, which the spans of every later poll would join."""
    request: ContextVar[str] = ContextVar("request", default="")
    polled: list[str] = []

    async def run(function: Callable[[], T], abandon: bool = False) -> T:
        polled.append(request.get())
        return await in_thread(function, abandon)

    async def work() -> None:
        request.set("first")
        events = CatalogEvents(backend.skills, run, poll_seconds=0.001)
        async with events.open_stream(UNRESTRICTED, []):
            polled.clear()
            with anyio.fail_after(60):
                while not polled:
                    await anyio.sleep(0.001)

    anyio.run(work)
    assert set(polled) == {""}


def test_many_uris_and_many_changes_take_linear_time(backend: EmbeddedBackend) -> None:
    """Seconds at most of processor time, where quadratic time would take a minute."""
    events = CatalogEvents(backend.skills, in_thread)
    uris = [f"skill://crafts/@/any-{number}/SKILL.md" for number in range(20_000)]
    removed = {f"crafts:skill-{number}": 0 for number in range(20_000)}
    before = time.process_time()
    found = events._find_events(UNRESTRICTED, uris, removed, frozenset(), False)
    assert time.process_time() - before < 10
    assert len(found) == 1 + len(uris)


def test_streams_are_limited_until_one_is_closed(backend: EmbeddedBackend) -> None:
    gateway = backend.settings.gateway.model_copy(update={"streams": 1})
    settings = backend.settings.model_copy(update={"gateway": gateway})

    async def work() -> None:
        async with Client(create_server(settings, lambda: backend, backend.skills)) as client:
            for _ in range(2):
                async with client.listen(resources_list_changed=True):
                    with pytest.raises(MCPError, match="1 streams are open already"):
                        async with client.listen(resources_list_changed=True):
                            pass

    anyio.run(work)
