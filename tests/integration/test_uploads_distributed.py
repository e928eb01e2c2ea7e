"""Skills by value on servers: gateway and workers share a folder, and its absence passes."""

from __future__ import annotations

from pathlib import Path

from skills.events import Event, SkillRemoved
from tasks.uploads.intake import take_in
from tasks.uploads.store import upload_store
from tests.support.distributed import Distributed, deployments, distributed
from tests.support.program import wait_for
from workers.remote import Remote

__all__ = ["deployments", "distributed"]

SKILL = "---\nname: sundial\ndescription: Set up a sundial.\n---\n# Sundial\n\nPoint it north.\n"


def handed_in(deployment: Distributed, text: str) -> Event:
    store = upload_store(deployment.settings)
    with store.staging() as place:
        (place / "body").write_text(text)
        taken = take_in(deployment.settings, store, place, place / "body", "values", "sundial")
    return taken.event


def is_done(remote: Remote, event_id: str) -> bool:
    return remote.journal.job(event_id).state == "done"


def test_a_worker_without_the_folder_says_so_and_loses_nothing(
    distributed: Distributed, tmp_path: Path
) -> None:
    shared = {"SKILLBUS_UPLOADS__FOLDER": str(distributed.settings.home / "uploads")}
    away = {"SKILLBUS_UPLOADS__FOLDER": str(tmp_path / "elsewhere")}
    distributed.stop("ingest")
    distributed.start("ingest", **away)
    with distributed.remote() as remote:
        event = handed_in(distributed, SKILL)
        remote.accept(event)
        wait_for(lambda: "share one folder" in str(distributed.log("ingest")), 60)
        assert remote.journal.job(event.id).state == "accepted"
        distributed.stop("ingest")

        distributed.start("ingest", **shared)
        wait_for(lambda: is_done(remote, event.id), 60)
        wait_for(lambda: remote.graph.counts()["published"] == 1, 60)
        assert [one.skill_id for one in remote.graph.entries()] == ["values:sundial"]

        removed = SkillRemoved(skill_id="values:sundial")
        removal = remote.submit(removed, "skillbus/test")
        wait_for(lambda: is_done(remote, removal), 60)
        assert upload_store(distributed.settings).paths("values") == []
