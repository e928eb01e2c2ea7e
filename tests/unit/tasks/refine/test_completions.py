"""Completions reach the index by a new revision of the same content; nothing is paid for twice."""

from __future__ import annotations

import os
from collections.abc import Iterator, Sequence
from pathlib import Path
from typing import Any

import pytest

from config.language_model_settings import LanguageModelSettings
from config.settings import Settings
from search.protocol import StoredRevision
from skills.events import SourceChanged
from skills.record import RevisionKey
from tasks.ingest.ingest import ingest
from tasks.ingest.maintain import request_completions
from tasks.language_model.answer_store import RefinementKind
from tasks.policies import INGEST, Deadline
from tasks.refine.completion.completions import completion_origins, keep_used
from tasks.refine.refine import refine
from tasks.services import Services
from tests.support.samples.refining import write_skill
from tests.support.samples.tiny import TinyEncoder, settle
from tests.support.servers.language_model import Asked, LanguageModelServer
from workers.backend.embedded import EmbeddedBackend

IDS = ["made:bollard", "made:capstan"]
FIELDS = ("inputs", "outputs", "domain_tags", "example_tasks")


def answer(asked: Asked) -> dict[str, Any]:
    tags = ["quay furniture"] if '"bollard"' in asked.data else []
    return {"capability": "", **{name: [] for name in FIELDS}, "domain_tags": tags}


class Library:
    """A library of two skills in a process that refines on request; counts what it encodes."""

    def __init__(self, home: Path, server: LanguageModelServer) -> None:
        self.encoded: list[str] = []
        self.server = server
        model = server.settings(stages=("record",), timeout_seconds=60)
        settings = Settings(language_model=model).model_copy(update={"home": home})
        encoder = TinyEncoder(self.encoded.extend)
        self.backend = EmbeddedBackend(settings, writable=True, encoder=encoder, refine="never")

    @property
    def services(self) -> Services:
        return self.backend.services

    def refine(self) -> None:
        refine(self.services, Deadline(30), IDS)
        settle(self.backend)

    def revision(self, skill_id: str) -> StoredRevision:
        entry = self.services.graph.get_entries([skill_id])[0]
        key = RevisionKey(skill_id, entry.seq)
        return self.services.index.get_revisions([key])[key]

    def origins(self, skill_id: str) -> list[str]:
        return [one.origin for one in self.revision(skill_id).parsed.record.completions]

    def request_ingest(self, skill_id: str) -> None:
        graph = self.services.graph
        entry = graph.get_entries([skill_id])[0]
        wanted = [(skill_id, entry.source_id, entry.path)]
        graph.request_ingest(wanted, graph.allocate_sequence(1)[0])


@pytest.fixture
def server() -> Iterator[LanguageModelServer]:
    with LanguageModelServer(answer) as started:
        yield started


@pytest.fixture
def library(tmp_path: Path, server: LanguageModelServer) -> Iterator[Library]:
    for one in IDS:
        write_skill(tmp_path / "skills", one.partition(":")[2])
    made = Library(tmp_path / "home", server)
    with made.backend:
        made.backend.submit(SourceChanged(source_id="made", root=str(tmp_path / "skills")), "test")
        settle(made.backend)
        yield made


def use(library: Library, **changes: Any) -> None:
    """Change the settings of the model in the running process."""
    services = library.services
    model = services.settings.language_model.model_copy(update=changes)
    services.settings = services.settings.model_copy(update={"language_model": model})


def test_a_completion_comes_with_a_new_revision_of_the_same_content(library: Library) -> None:
    before, other = library.revision(IDS[0]), library.revision(IDS[1])
    encoded = len(library.encoded)
    library.refine()
    after = library.revision(IDS[0])
    assert after.key.seq > before.key.seq
    assert after.content_hash == before.content_hash
    assert library.origins(IDS[0]) == ["record/1/scripted-model"]
    assert after.parsed.record.domain_tags == ()
    assert keep_used(after.parsed, LanguageModelSettings()) == before.parsed
    assert library.revision(IDS[1]).key == other.key  # nothing was found for it
    assert len(library.encoded) == encoded
    assert library.services.graph.get_entries([IDS[0]])[0].embedded


def test_doing_it_again_changes_nothing(library: Library, server: LanguageModelServer) -> None:
    library.refine()
    key, asked = library.revision(IDS[0]).key, server.requests
    library.refine()
    library.request_ingest(IDS[0])
    library.services.coordinator.add_pending(INGEST.name, 1)
    assert ingest(library.services, Deadline(30), [IDS[0]]) == {"published": 0}
    assert request_completions(library.services) == 0
    assert library.revision(IDS[0]).key == key
    assert server.requests == asked == 2


def test_the_next_ingest_without_a_model_builds_the_document_again(library: Library) -> None:
    plain = library.revision(IDS[0])
    library.refine()
    use(library, base_url="", model="")
    library.request_ingest(IDS[0])
    library.services.coordinator.add_pending(INGEST.name, 1)
    assert ingest(library.services, Deadline(30), [IDS[0]]) == {"published": 1}
    assert library.revision(IDS[0]).parsed == plain.parsed


def test_a_completion_that_a_crash_kept_from_the_index_is_found(library: Library) -> None:
    services = library.services
    assert services.answers is not None
    content_hash = library.revision(IDS[1]).content_hash
    kind = RefinementKind("record", "scripted-model", 1)
    services.answers.save_refinements(
        kind, {content_hash: {"fields": {"domain_tags": ["harbour gear"]}}}
    )
    assert request_completions(services) == 1
    services.send_task(INGEST.name, [IDS[1]])
    services.coordinator.add_pending(INGEST.name, 1)
    settle(library.backend)
    assert library.origins(IDS[1]) == [kind_origin(kind)]
    assert request_completions(services) == 0


def kind_origin(kind: RefinementKind) -> str:
    return f"{kind.stage}/{kind.version}/{kind.model}"


def test_new_content_that_was_seen_before_is_complete_at_once(
    library: Library, tmp_path: Path
) -> None:
    library.refine()
    path = tmp_path / "skills" / "bollard" / "SKILL.md"
    text = path.read_bytes()
    for content, origins in ((text + b"\nMore.\n", []), (text, ["record/1/scripted-model"])):
        path.write_bytes(content)
        os.utime(path, ns=(len(origins), len(origins)))
        event = SourceChanged(source_id="made", root=str(tmp_path / "skills"))
        library.backend.submit(event, "test")
        settle(library.backend)
        assert library.origins(IDS[0]) == origins


@pytest.mark.parametrize(
    ("stages", "terms", "origins"),
    [
        (("record",), False, ["record/1/m"]),
        (("record", "prompts"), False, ["record/1/m"]),
        (("record", "prompts"), True, ["record/1/m", "prompts/1/m"]),
        (("prompts",), True, ["prompts/1/m"]),
        (("select",), True, []),
    ],
)
def test_the_settings_say_what_searches_use(
    stages: Sequence[Any], terms: bool, origins: list[str]
) -> None:
    settings = LanguageModelSettings(
        base_url="http://127.0.0.1:1/v1", model="m", stages=tuple(stages), search_terms=terms
    )
    assert list(completion_origins(settings)) == origins
    without = LanguageModelSettings(stages=tuple(stages), search_terms=terms)
    assert completion_origins(without) == ()
