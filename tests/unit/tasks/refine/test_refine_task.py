"""The refine task: idempotent, held up by nothing for long, and one skill at a time."""

from __future__ import annotations

import shutil
from collections.abc import Iterator, Sequence
from pathlib import Path
from typing import Any

import pytest
from typing_extensions import override

from config.errors import MisconfiguredError, PermanentError, TransientError
from config.language_model_settings import LanguageModelSettings, ModelStage
from config.settings import Settings
from search.protocol import StoredRevision
from skills.events import SourceChanged
from tasks.coordination.local import LocalCoordinator
from tasks.ingest.maintain import resend_open_work
from tasks.ingest.next_tasks import send_refine
from tasks.language_model.answer_store import RefinementKind
from tasks.language_model.protocol import (
    InvalidAnswerError,
    ModelRequest,
    ModelUnavailableError,
    TokenBudgetError,
)
from tasks.language_model.sqlite_answers import SqliteAnswerStore
from tasks.policies import INGEST, REFINE, Deadline
from tasks.refine import stages as stage_table
from tasks.refine.pauses import get_refine_pause, pause_refining
from tasks.refine.refine import refine, split_refine_batch
from tasks.refine.refined_subjects import RefinedSubjects
from tasks.refine.roles.role_prompt import VERSION
from tasks.refine.stage import RefineContext, RefineStage
from tasks.refine.unrefined import find_unrefined, list_published, send_unrefined_skills
from tasks.services import Services
from tests.support.samples.refining import give_roles, write_skill
from tests.support.samples.tiny import TinyEncoder, settle
from tests.support.servers.language_model import LanguageModelServer, broken, rate_limited
from workers.backend.embedded import EmbeddedBackend

IDS = ["made:bollard", "made:capstan", "made:windlass"]
MODEL_SETTINGS = LanguageModelSettings(base_url="http://127.0.0.1:1/v1", model="m")


@pytest.fixture
def server() -> Iterator[LanguageModelServer]:
    with LanguageModelServer(give_roles("param")) as started:
        yield started


@pytest.fixture(scope="module")
def library(tmp_path_factory: pytest.TempPathFactory) -> Path:
    """A folder with three skills, and the home of a library of them."""
    folder = tmp_path_factory.mktemp("library")
    for one in IDS:
        write_skill(folder / "skills", one.partition(":")[2])
    settings = Settings().model_copy(update={"home": folder / "home"})
    with EmbeddedBackend(settings, writable=True, encoder=TinyEncoder()) as backend:
        backend.submit(SourceChanged(source_id="made", root=str(folder / "skills")), "test")
        settle(backend)
    return folder


@pytest.fixture
def backend(
    tmp_path: Path, library: Path, server: LanguageModelServer
) -> Iterator[EmbeddedBackend]:
    """The library, in a process that refines nothing by itself."""
    shutil.copytree(library / "home", tmp_path / "home")
    model = server.settings(stages=("roles",), timeout_seconds=60)
    settings = Settings(language_model=model).model_copy(update={"home": tmp_path / "home"})
    with EmbeddedBackend(settings, writable=True, encoder=TinyEncoder(), refine="never") as started:
        yield started


@pytest.fixture
def services(backend: EmbeddedBackend) -> Services:
    return backend.services


def run(services: Services, ids: Sequence[str] = IDS, seconds: float = 30) -> dict[str, object]:
    return refine(services, Deadline(seconds), ids)


def stored(services: Services, stage: ModelStage = "roles") -> dict[str, dict[str, Any]]:
    assert services.answers is not None
    kind = RefinementKind(stage, services.settings.language_model.model, VERSION)
    entries = {entry.content_hash: entry.skill_id for entry in services.graph.get_entries(IDS)}
    found = services.answers.get_refinements(kind, list(entries))
    return {entries[subject]: document for subject, document in found.items()}


class Stage(RefineStage):
    """A stage that notes what was done, and fails for some skills."""

    name: ModelStage = "roles"
    version = VERSION

    def __init__(self, **errors: Exception) -> None:
        self.errors = errors
        self.refined: list[str] = []
        self.applied: list[tuple[str, dict[str, Any]]] = []
        self.apply_error: Exception | None = None

    @override
    def requests(self, context: RefineContext, revision: StoredRevision) -> Sequence[ModelRequest]:
        return []

    @override
    def refine(self, context: RefineContext, revision: StoredRevision) -> dict[str, Any]:
        name = revision.parsed.record.name
        if name in self.errors:
            raise self.errors[name]
        self.refined.append(name)
        return {"about": name}

    @override
    def apply(
        self, context: RefineContext, revision: StoredRevision, refinement: dict[str, Any]
    ) -> None:
        if self.apply_error is not None:
            raise self.apply_error
        self.applied.append((revision.parsed.record.name, refinement))


def use(monkeypatch: pytest.MonkeyPatch, stage: RefineStage) -> None:
    monkeypatch.setattr(stage_table, "STAGES", (stage,))


def test_a_task_that_runs_twice_asks_once(services: Services, server: LanguageModelServer) -> None:
    assert run(services) == {"refined": 3, "waiting": 0}
    first = stored(services)
    assert sorted(first) == IDS
    assert run(services) == {"refined": 3, "waiting": 0}
    assert (server.requests, stored(services)) == (3, first)


def test_what_is_stored_is_applied_again(
    services: Services, monkeypatch: pytest.MonkeyPatch
) -> None:
    stage = Stage()
    use(monkeypatch, stage)
    run(services, IDS[:1])
    run(services, IDS[:1])
    assert stage.refined == ["bollard"]
    assert stage.applied == 2 * [("bollard", {"about": "bollard"})]


def test_a_crash_before_it_took_effect_leaves_it_to_be_done(
    services: Services, monkeypatch: pytest.MonkeyPatch
) -> None:
    stage = Stage()
    stage.apply_error = TransientError("the index is busy")
    use(monkeypatch, stage)
    with pytest.raises(TransientError, match="busy"):
        run(services, IDS[:1])
    assert stored(services) == {}
    stage.apply_error = None
    run(services, IDS[:1])
    assert sorted(stored(services)) == IDS[:1]


def test_a_bad_skill_does_not_affect_the_others(
    services: Services, monkeypatch: pytest.MonkeyPatch
) -> None:
    error = PermanentError("cannot be read")
    stage = Stage(capstan=error)
    use(monkeypatch, stage)
    with pytest.raises(PermanentError, match="cannot be read"):
        run(services)
    assert sorted(stored(services)) == ["made:bollard", "made:windlass"]
    sent: list[Sequence[object]] = []
    services.send_task = lambda name, ids: sent.append(ids)
    split_refine_batch(services, IDS, error)
    assert sent == [[one] for one in IDS]
    split_refine_batch(services, ["made:capstan"], error)
    assert run(services, ["made:capstan"]) == {"refined": 0, "waiting": 0}
    services.sends_refine = True
    services.coordinator.add_pending(REFINE.name, -3)
    assert send_unrefined_skills(services) == 0


def test_a_bad_skill_is_refined_once_it_is_edited(
    backend: EmbeddedBackend, library: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    stage = Stage()
    use(monkeypatch, stage)
    split_refine_batch(backend.services, ["made:capstan"], PermanentError("cannot be read"))
    write_skill(library / "skills", "capstan", steps=4)
    backend.submit(SourceChanged(source_id="made", root=str(library / "skills")), "test")
    settle(backend)
    assert run(backend.services) == {"refined": 3, "waiting": 0}


def test_a_store_that_does_not_answer_is_tried_again_as_a_whole(
    services: Services, monkeypatch: pytest.MonkeyPatch
) -> None:
    use(monkeypatch, Stage(bollard=PermanentError("bad"), capstan=TransientError("away")))
    with pytest.raises(TransientError, match="away"):
        run(services)
    assert sorted(stored(services)) == ["made:windlass"]


def test_an_invalid_answer_is_a_refinement(
    services: Services, monkeypatch: pytest.MonkeyPatch
) -> None:
    use(monkeypatch, Stage(capstan=InvalidAnswerError("no list")))
    assert run(services) == {"refined": 3, "waiting": 0}
    assert stored(services)["made:capstan"] == {"invalid": ["no list"]}


@pytest.mark.parametrize(
    ("error", "cause"),
    [
        (ModelUnavailableError("no answer"), "endpoint"),
        (ModelUnavailableError("slow down", retry_after=5), "endpoint"),
        (TokenBudgetError("all spent", retry_after=3600), "tokens"),
        (MisconfiguredError("wrong key"), "settings"),
    ],
)
def test_what_holds_up_all_skills_pauses_the_work(
    services: Services, monkeypatch: pytest.MonkeyPatch, error: TransientError, cause: str
) -> None:
    use(monkeypatch, Stage(bollard=error, capstan=error, windlass=error))
    sent: list[object] = []
    services.send_task = lambda name, ids: sent.append(ids)
    report = run(services)
    assert (report["waiting"], report["paused"]) == (3, str(error))
    settings = services.settings.language_model
    pause = get_refine_pause(services.coordinator, settings)
    assert pause is not None
    assert (pause.cause, pause.reason) == (cause, str(error))
    use(monkeypatch, Stage())
    assert run(services)["waiting"] == 3
    services.sends_refine = True
    assert send_unrefined_skills(services) == 0
    assert sent == []
    assert not services.coordinator.task_error


def test_an_endpoint_that_is_down_costs_few_calls(
    services: Services, server: LanguageModelServer
) -> None:
    server.script = lambda asked: rate_limited("600") if asked.number < 2 else broken()
    assert run(services)["waiting"] == 3
    asked = server.requests
    assert run(services)["waiting"] == 3
    assert server.requests == asked


def test_a_skill_at_which_the_endpoint_fails_keeps_no_others_waiting(
    services: Services, server: LanguageModelServer, monkeypatch: pytest.MonkeyPatch
) -> None:
    roles = give_roles("param")
    server.script = lambda asked: broken() if '"bollard"' in asked.data else roles(asked)
    model = services.settings.language_model.model_copy(update={"concurrency": 1})
    services.settings = services.settings.model_copy(update={"language_model": model})
    sent: list[Sequence[Any]] = []
    services.send_task = lambda name, ids: sent.append(ids)
    assert run(services)["waiting"] == 3
    send_refine(services.coordinator, services.send_task, IDS)
    assert sent == [[*IDS[1:], IDS[0]]]
    monkeypatch.setattr("tasks.refine.refine.get_refine_pause", lambda *_: None)
    assert run(services, [*IDS[1:], IDS[0]])["refined"] == 2
    assert sorted(stored(services)) == IDS[1:]


def test_a_pause_ends_by_itself_or_with_other_settings() -> None:
    coordinator = LocalCoordinator()
    error = TokenBudgetError("all spent", retry_after=3600)
    pause_refining(coordinator, MODEL_SETTINGS, error)
    assert get_refine_pause(coordinator, MODEL_SETTINGS) == ("tokens", "all spent")
    more = MODEL_SETTINGS.model_copy(update={"daily_tokens": 5})
    assert get_refine_pause(coordinator, more) is None
    pause_refining(coordinator, more, ModelUnavailableError("x", retry_after=0))
    assert get_refine_pause(coordinator, more) is not None


def test_a_task_at_its_time_limit_sends_the_rest(services: Services) -> None:
    sent: list[tuple[str, Sequence[object]]] = []
    services.send_task = lambda name, ids: sent.append((name, ids))
    assert run(services, seconds=0)["waiting"] == 3
    assert [(name, sorted(map(str, ids))) for name, ids in sent] == [(REFINE.name, IDS)]


def test_a_process_that_stops_leaves_the_rest(services: Services) -> None:
    services.stopping.set()
    sent: list[object] = []
    services.send_task = lambda name, ids: sent.append(ids)
    assert run(services) == {"refined": 0, "waiting": 3}
    assert sent == []


def test_the_reconciler_sends_what_is_missing_once(
    services: Services, monkeypatch: pytest.MonkeyPatch
) -> None:
    sent: list[object] = []
    services.send_task = lambda name, ids: sent.extend(ids)
    assert send_unrefined_skills(services) == 0  # this process refines nothing by itself
    services.sends_refine = True
    run(services, IDS[:1])
    assert send_unrefined_skills(services) == 2
    assert sent == IDS[1:]
    monkeypatch.setattr(services.coordinator, "claim_if_due", lambda *_: True)
    assert send_unrefined_skills(services) == 0  # two are waiting
    services.coordinator.add_pending(REFINE.name, -1)
    assert send_unrefined_skills(services) == 2


def test_others_are_refined_while_a_skill_waits_for_ingest(services: Services) -> None:
    sent: dict[str, list[object]] = {INGEST.name: [], REFINE.name: []}
    services.send_task = lambda name, ids: sent[name].extend(ids)
    services.sends_refine = True
    waiting, *others = services.graph.get_entries(IDS)
    [seq] = services.graph.allocate_sequence(1)
    services.graph.request_ingest([(waiting.skill_id, waiting.source_id, waiting.path)], seq)
    resend_open_work(services)
    assert sent[INGEST.name] == [waiting.skill_id]
    assert sent[REFINE.name] == [entry.skill_id for entry in others]


def test_nothing_is_asked_without_a_model(services: Services, server: LanguageModelServer) -> None:
    services.language_model = services.answers = None
    assert run(services) == {"refined": 0, "waiting": 0}
    assert send_unrefined_skills(services) == 0
    assert server.requests == 0


def test_refined_contents_are_read_once(
    services: Services, monkeypatch: pytest.MonkeyPatch
) -> None:
    answers = services.answers
    assert answers is not None
    run(services, IDS[:2])
    refined, stages = (
        RefinedSubjects(),
        stage_table.list_enabled_stages(services.settings.language_model),
    )
    entries = list_published(services.graph)
    model = services.settings.language_model.model
    missing = find_unrefined(answers, refined, model, stages, entries)
    assert [entry.skill_id for entry in missing["roles"]] == IDS[2:]
    asked: list[int] = []
    read = answers.get_refinements

    def count(kind: RefinementKind, subjects: Sequence[str]) -> dict[str, dict[str, Any]]:
        asked.append(len(subjects))
        return read(kind, subjects)

    monkeypatch.setattr(answers, "get_refinements", count)
    assert find_unrefined(answers, refined, model, stages, entries) == missing
    assert asked == [1]


def test_reasons_of_invalid_answers_are_a_text_or_a_list(tmp_path: Path) -> None:
    kind, refined = RefinementKind("roles", "m", 1), RefinedSubjects()
    documents: dict[str, dict[str, Any]] = {
        "text": {"invalid": "bad"}, "list": {"invalid": ["a", "b"]}, "none": {},
    }  # fmt: skip
    answers = SqliteAnswerStore(tmp_path / "answers.db")
    answers.save_refinements(kind, documents)
    subjects = [*documents, "missing"]
    assert refined.find_missing(answers, kind, subjects) == {"missing"}
    assert refined.get_invalid(kind, subjects) == {"text": ("bad",), "list": ("a", "b")}
    answers.close()
