"""What the reconciler sends again, and what it deletes."""

from __future__ import annotations

from collections.abc import Iterator, Sequence
from dataclasses import replace
from pathlib import Path

import pytest

from config.errors import TransientError
from config.settings import Settings
from graph.records import CatalogEntry, Publication, SkillState
from skills.events import QueryAsked, SourceChanged, new_event
from skills.record import RevisionKey
from tasks.history.keep import withdraw
from tasks.ingest.embed_skills import embed_skills
from tasks.ingest.maintain import _sweep, compare_stores, request_reingest, resend_open_work
from tasks.policies import INGEST, PLAN, QUERY, Deadline
from tasks.refine.completion.apply_completion import _request_ingest
from tasks.services import Services
from tests.support.samples.documents import tiny_document
from tests.support.samples.one_skill import SKILL, open_skill
from tests.support.samples.refining import write_skill
from tests.support.samples.tiny import TinyEncoder, settle
from workers.backend.embedded import EmbeddedBackend


@pytest.fixture
def backend(tmp_path: Path) -> Iterator[EmbeddedBackend]:
    settings = Settings(home=tmp_path / "home")
    with EmbeddedBackend(settings, writable=True, encoder=TinyEncoder()) as started:
        yield started


@pytest.fixture
def services(backend: EmbeddedBackend) -> Services:
    return backend.services


def test_queries_are_sent_again_unless_each_may_have_a_task(services: Services) -> None:
    asked = [new_event(QueryAsked(task=text), "skillbus/test") for text in ("bread", "soup")]
    for event in asked:
        services.journal.add_job(event, "query")
    sent: list[tuple[str, list[str]]] = []
    services.send_task = lambda name, ids: sent.append((name, list(ids)))
    services.coordinator.add_pending(QUERY.name, 2)
    assert resend_open_work(services)["queries"] == 0
    assert sent == []
    services.coordinator.add_pending(QUERY.name, -1)
    assert resend_open_work(services)["queries"] == 2
    assert sorted(sent) == sorted((QUERY.name, [event.id]) for event in asked)


def test_one_plan_is_sent_for_all_open_events(services: Services) -> None:
    events = [new_event(SourceChanged(source_id=name), "skillbus/test") for name in "abc"]
    for event in events:
        services.journal.add_job(event, "event")
    sent: list[tuple[str, list[str]]] = []
    services.send_task = lambda name, ids: sent.append((name, list(ids)))
    assert resend_open_work(services)["events"] == 3
    assert sent == [(PLAN.name, [events[0].id])]


def test_revisions_of_removed_skills_are_deleted_while_ingest_goes_on(
    backend: EmbeddedBackend, services: Services, tmp_path: Path
) -> None:
    """Under constant load no sweep finds the queue empty. What may be half written stays."""
    for name in ("bollard", "capstan", "windlass"):
        write_skill(tmp_path / "skills", name)
    backend.submit(SourceChanged(source_id="made", root=str(tmp_path / "skills")), "test")
    settle(backend)
    seqs = {one.skill_id: one.seq for one in services.graph.get_entries()}
    removed = RevisionKey("made:bollard", seqs["made:bollard"])
    services.graph.remove([removed._replace(seq=removed.seq + 10)])
    half_written = add_unpublished(services, "made:capstan", seqs["made:capstan"] + 10)
    unknown = add_unpublished(services, "made:new", 1000)
    services.coordinator.add_pending(INGEST.name, 1)
    orphans, _ = compare_stores(services)
    assert orphans == [removed]
    services.coordinator.add_pending(INGEST.name, -1)
    orphans, _ = compare_stores(services)
    assert sorted(orphans) == sorted([removed, half_written, unknown])


def add_unpublished(services: Services, skill_id: str, seq: int) -> RevisionKey:
    key = RevisionKey(skill_id, seq)
    services.index.add([replace(tiny_document("made"), key=key)])
    return key


@pytest.mark.parametrize("of", ["the reconciler", "refinement"])
def test_a_request_does_not_bring_back_a_skill_that_was_removed_meanwhile(of: str) -> None:
    with open_skill() as library:
        library.edit(0)
        library.ingest(1)
        graph = library.services.graph
        get_entries = graph.get_entries

        def remove_meanwhile(skill_ids: Sequence[str] | None = None) -> list[CatalogEntry]:
            found = get_entries(skill_ids)
            graph.remove([RevisionKey(SKILL, graph.allocate_sequence(1)[0])])
            return found

        [entry] = get_entries([SKILL])
        with pytest.MonkeyPatch.context() as patched:
            patched.setattr(graph, "get_entries", remove_meanwhile)
            if of == "the reconciler":
                request_reingest(library.services, [SKILL])
            else:
                _request_ingest(library.services, RevisionKey(SKILL, entry.seq))
        assert [one.state for one in get_entries([SKILL])] == [SkillState.REMOVED]


def test_the_history_of_a_pruned_skill_is_deleted_though_a_sweep_was_interrupted(
    monkeypatch: pytest.MonkeyPatch,
) -> None:
    with open_skill() as library:
        for number in (1, 2):
            library.edit(number)
            library.ingest(1)
        library.remove(0)
        library.ingest(1)
        workers = library.services.settings.workers.model_copy(update={"journal_days": -1})
        library.services.settings = library.services.settings.model_copy(
            update={"workers": workers}
        )

        def fail(_: object) -> None:
            raise TransientError("killed here")

        for store, call in ((library.history, "forget"), (library.services.graph, "prune_removed")):
            with monkeypatch.context() as patched:
                patched.setattr(store, call, fail)
                with pytest.raises(TransientError):
                    _sweep(library.services, Deadline(60))
        _sweep(library.services, Deadline(60))
        assert library.services.graph.get_entries() == []
        assert library.history.list_revisions(SKILL) == []


def test_a_skill_that_was_published_after_its_source_was_removed_is_withdrawn() -> None:
    with open_skill() as library:
        library.edit(1)
        library.ingest(1)
        graph = library.services.graph
        withdraw(library.services, [RevisionKey(SKILL, graph.allocate_sequence(1)[0])])
        graph.delete_source("lib")
        publication = Publication(
            RevisionKey(SKILL, graph.allocate_sequence(1)[0]), "lib", "kiln", "hash", "kiln", ""
        )
        graph.publish([publication])
        library.services.index.add([replace(tiny_document("x"), key=publication.key)])
        _sweep(library.services, Deadline(60))
        library.run_ingest()
        assert [one.state for one in graph.get_entries([SKILL])] == [SkillState.REMOVED]


def test_a_skill_without_a_document_is_not_sent_to_embed_skills_again() -> None:
    with open_skill() as library:
        services, sent = library.services, list[str]()
        library.edit(1)
        library.ingest(1)
        [entry] = services.graph.get_entries([SKILL])
        services.index.delete([RevisionKey(SKILL, entry.seq)])
        services.send_task = lambda name, _: sent.append(name)
        embed_skills(services, Deadline(60), [SKILL])
        assert sent == []
