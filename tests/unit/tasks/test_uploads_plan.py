"""Planning where skills come by value: put in place in order, taken away, and never lost."""

from __future__ import annotations

import threading
from collections.abc import Iterator
from pathlib import Path

import pytest

from config.errors import PermanentError, TransientError
from config.inbound_settings import UploadSettings
from graph.records import Source
from skills.events import Event, SkillRemoved, SkillUpserted, SourceChanged, new_event
from tasks.ingest import coalesce
from tasks.policies import INGEST
from tasks.sources.uploads.install import delete_expired_uploads
from tasks.sources.uploads.reader import UploadReader
from tasks.sources.uploads.staging import stage_upload
from tasks.sources.uploads.store import open_upload_store
from tests.support.samples.planning import PlanServices

SKILL = "---\nname: trips\n---\nBody.\n"


class Services(PlanServices):
    """What plan needs, with uploads that come in."""

    def uploaded(self, text: str, path: str = "trips") -> Event:
        store = open_upload_store(self.settings)
        with store.staging() as place:
            (place / "body").write_text(text)
            event = stage_upload(self.settings, store, place, place / "body", "team", path).event
        self.accept(event)
        return event

    def content(self, path: str = "trips") -> str:
        return UploadReader("team", self.settings).read(path).content.decode()


@pytest.fixture
def services(tmp_path: Path) -> Iterator[Services]:
    with Services.opened(tmp_path) as services:
        yield services


def test_uploads_are_installed_in_the_order_of_their_events(services: Services) -> None:
    events = [services.uploaded(SKILL + f"{number}\n") for number in range(5)]
    services.plan()
    assert services.content().endswith("4\n")
    assert {services.journal.get_job(event.id).state for event in events} == {"done"}
    assert services.graph.list_sources() == [
        Source("team", "upload", "upload:team", services.graph.list_sources()[0].last_success)
    ]
    assert [ids for name, ids in services.sent if name == INGEST.name] == [["team:trips"]]


def test_a_message_of_a_later_upload_does_not_change_the_order(
    services: Services, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setattr(coalesce, "MAX_EVENTS", 2)
    events = [services.uploaded(SKILL + f"{number}\n") for number in range(4)]
    services.plan(events[3].id)
    services.plan()
    assert services.journal.list_open_jobs("event") == []
    assert services.content().endswith("3\n")


def test_a_removal_among_uploads_keeps_its_place(services: Services) -> None:
    services.uploaded(SKILL)
    services.plan()
    removal = new_event(SkillRemoved(skill_id="team:trips"), "skillbus/test")
    services.accept(removal)
    services.uploaded(SKILL + "Again.\n")
    services.plan()
    assert services.content().endswith("Again.\n")
    assert services.run(SkillRemoved(skill_id="team:trips")).state == "done"
    with pytest.raises(PermanentError, match="gone"):
        services.content()


def test_a_half_installed_upload_is_continued(services: Services) -> None:
    event = services.uploaded(SKILL)
    # What a kill after the renames, before the journal's note, leaves behind.
    open_upload_store(services.settings).install_package("team", event.id)
    services.plan()
    assert services.journal.get_job(event.id).state == "done"
    assert services.content() == SKILL


def test_a_folder_that_is_not_shared_keeps_the_event(services: Services, tmp_path: Path) -> None:
    event = services.uploaded(SKILL)
    here = services.settings
    elsewhere = UploadSettings(folder=tmp_path / "elsewhere")
    services.settings = here.model_copy(update={"uploads": elsewhere})
    with pytest.raises(TransientError, match=r"uploads\.folder"):
        services.plan()
    assert services.journal.get_job(event.id).state == "accepted"
    services.settings = here
    services.plan()
    assert services.journal.get_job(event.id).state == "done"
    # Skills that are there stay, where the folder is away when the source is looked at whole.
    services.settings = here.model_copy(update={"uploads": elsewhere})
    services.accept(new_event(SourceChanged(source_id="team"), "skillbus/test"))
    with pytest.raises(TransientError):
        services.plan()
    assert "removed" not in services.states().values()


def test_a_package_that_is_gone_fails_alone(services: Services) -> None:
    lost, kept = services.uploaded(SKILL, "a"), services.uploaded(SKILL, "b")
    (services.settings.home / "uploads" / "packages" / lost.id / _only(services, lost)).unlink()
    (services.settings.home / "uploads" / "packages" / lost.id).rmdir()
    services.plan()
    assert "upload the skills again" in services.journal.get_job(lost.id).reason
    assert services.journal.get_job(kept.id).state == "done"
    assert services.content("b") == SKILL


def _only(services: Services, event: Event) -> str:
    (one,) = (services.settings.home / "uploads" / "packages" / event.id).iterdir()
    return one.name


def test_a_skill_comes_with_its_event(services: Services) -> None:
    files = {"SKILL.md": SKILL, "scripts/run.py": "print()"}
    done = services.run(SkillUpserted(skill_id="team:a/b", files=files))
    assert (done.state, done.outcome["changed"]) == ("done", 1)
    assert services.content("a/b") == SKILL
    assert services.run(SkillUpserted(skill_id="team:a/b", files=files)).outcome["found"] == 1
    services.run(SkillUpserted(skill_id="team:a/b", files={"SKILL.md": SKILL + "x\n"}))
    assert UploadReader("team", services.settings).read("a/b").files == ()
    services.graph.save_source(Source("dir", "directory", "/srv/x"))
    refused = services.run(SkillUpserted(skill_id="dir:a", files=files))
    assert "already" in refused.reason
    at_the_top = services.run(SkillUpserted(skill_id="new:.", files=files))
    assert at_the_top.state == "failed"
    assert {source.source_id for source in services.graph.list_sources()} == {"team", "dir"}


def test_packages_go_once_their_events_are_done(services: Services) -> None:
    done = services.uploaded(SKILL)
    services.plan()
    waiting = services.uploaded(SKILL + "x\n")
    assert delete_expired_uploads(services) == 1  # type: ignore[arg-type]  # the part it needs
    left = {one.name for one in (services.settings.home / "uploads" / "packages").iterdir()}
    assert left == {waiting.id}
    assert done.id != waiting.id


def test_readers_get_one_whole_revision_while_it_is_replaced(services: Services) -> None:
    store = open_upload_store(services.settings)
    services.uploaded(SKILL)
    services.plan()
    stop = threading.Event()
    seen: list[str] = []

    def read() -> None:
        while not stop.is_set():
            folder = UploadReader("team", services.settings).read("trips")
            number = folder.content.decode().rpartition("\n")[2]
            assert {file.size for file in folder.files} <= {len(number)}
            seen.append(number)

    reader = threading.Thread(target=read)
    reader.start()
    for number in range(60):
        text = f"{SKILL}{'x' * number}"
        with store.staging() as place:
            (place / "in").mkdir()
            (place / "in" / "SKILL.md").write_text(text)
            (place / "in" / "data").write_text("x" * number)
            taken = stage_upload(services.settings, store, place, place / "in", "team", "trips")
        store.install_package("team", taken.event.id)
    stop.set()
    reader.join()
    assert len(set(seen)) > 1
    assert services.content().endswith("x" * 59)


def test_a_damaged_package_with_a_long_name_holds_up_no_other(services: Services) -> None:
    long = "清洗行程数据" * 5
    services.uploaded(SKILL, long)
    services.uploaded(SKILL, "a")
    services.plan()
    (file,) = (services.settings.home / "uploads" / "sources").glob("*/~*.zip")
    file.write_bytes(file.read_bytes()[:100])
    later = services.uploaded(SKILL, "b")
    services.plan()
    assert services.journal.get_job(later.id).state == "done"
    assert services.run(SourceChanged(source_id="team")).state == "done"
    assert services.states().keys() == {long, "a", "b"}
    assert "removed" not in services.states().values()
