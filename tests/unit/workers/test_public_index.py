"""The index of public skills: it follows the library, and while it is built no thread waits."""

from __future__ import annotations

import threading
from concurrent.futures import ThreadPoolExecutor
from pathlib import Path
from types import SimpleNamespace
from typing import Any

import pytest
from fastapi.testclient import TestClient

from config.bundle_settings import PolicySettings
from config.errors import TransientError
from config.settings import Settings
from skills.events import SourceChanged
from tests.support.program.program import wait_for
from tests.support.samples.library import write_skill
from tests.support.samples.tiny import settle, tiny_backend
from workers.backend.embedded import EmbeddedBackend
from workers.http.app import create_gateway
from workers.library.public_skills import PublicSkills
from workers.library.review.decisions import ReviewDecision
from workers.library.served_skills import ServedSkills


def publish(backend: EmbeddedBackend, root: Path, name: str) -> None:
    write_skill(root, name, f"How to do {name}")
    event_id = backend.submit(SourceChanged(source_id="crafts", root=str(root)), "tests")
    wait_for(lambda: backend.get_event_status(event_id).state == "done")
    settle(backend)


def list_names(public: PublicSkills) -> list[str]:
    return [one["name"] for one in public.describe()["skills"]]


def test_no_thread_waits_while_another_builds_it(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    begun, released = threading.Event(), threading.Event()
    list_page = ServedSkills.list_page

    def list_slowly(*arguments: Any) -> Any:
        begun.set()
        assert released.wait(60)
        return list_page(*arguments)

    monkeypatch.setattr(ServedSkills, "list_page", list_slowly)
    policy = PolicySettings(public=("crafts",))
    root = tmp_path / "crafts"
    with (
        ThreadPoolExecutor(2) as pool,
        tiny_backend(tmp_path / "home", policy=policy) as backend,
    ):
        publish(backend, root, "kiln")
        public = PublicSkills(backend.settings, backend.skills)
        first = pool.submit(list_names, public)
        assert begun.wait(60)
        second = pool.submit(list_names, public)
        try:
            with pytest.raises(TransientError, match="is being built"):
                second.result(30)
        finally:
            released.set()
        assert first.result(60) == ["kiln"]

        publish(backend, root, "loom")
        begun.clear()
        released.clear()
        public._index.next_at = 1e-9
        third = pool.submit(list_names, public)
        assert begun.wait(60)
        fourth = pool.submit(list_names, public)
        try:
            assert fourth.result(30) == ["kiln"]
        finally:
            released.set()
        assert third.result(60) == ["kiln", "loom"]


def test_the_index_follows_changes_and_decisions_of_people(tmp_path: Path) -> None:
    root = tmp_path / "crafts"
    policy = PolicySettings(public=("crafts",))
    with tiny_backend(tmp_path / "home", policy=policy) as backend:
        write_skill(root, "kiln")
        publish(backend, root, "loom")
        public = PublicSkills(backend.settings, backend.skills)
        assert list_names(public) == ["kiln", "loom"]
        (root / "loom" / "SKILL.md").unlink()
        publish(backend, root, "tide")
        wait_for(lambda: list_names(public) == ["kiln", "tide"])
        backend.review_skill(ReviewDecision.CONFIRM, "crafts:kiln", None, "ana", "it burns")
        wait_for(lambda: list_names(public) == ["tide"])
        backend.reopen_review("crafts:kiln")
        wait_for(lambda: list_names(public) == ["kiln", "tide"])


def test_nothing_is_public_by_default(tmp_path: Path) -> None:
    backend: Any = SimpleNamespace(settings=Settings(home=tmp_path), journal=None, skills=None)
    client = TestClient(create_gateway(backend), "http://skillbus")
    for path in ("agent-skills/index.json", "skills/index.json", "skills/a.zip", "skills/a/x.md"):
        assert client.get(f"/.well-known/{path}").status_code == 404
