"""Functions that install and delete uploaded skills; called by the tasks `plan` and `maintain`."""

from __future__ import annotations

from collections.abc import Iterable, Sequence
from typing import TYPE_CHECKING

import structlog

from config.errors import PermanentError
from graph.records import Source
from skills.events import SkillUpserted
from tasks.sources.readers import ensure_source
from tasks.sources.uploads.staging import iter_text_members, write_packages
from tasks.sources.uploads.store import (
    UPLOAD_KIND,
    is_package_id,
    open_upload_store,
    package_file_name,
    upload_root,
)

if TYPE_CHECKING:
    from tasks.services import Services

log = structlog.get_logger()


def make_upload_source(source_id: str) -> Source:
    """Return the catalog's source for uploads to `source_id`."""
    return Source(source_id, UPLOAD_KIND, upload_root(source_id))


def install_packages(services: Services, source_id: str, event_ids: Iterable[str]) -> None:
    """Install the packages of events in their order; a repeated call continues where it stopped.

    An event whose package is gone is recorded as failed. Raises TransientError if the folder of
    uploads cannot be read or written, UsageError if the source is of another kind.
    """
    packages = [one for one in event_ids if is_package_id(one)]
    if not packages:
        return
    ensure_source(services.graph, make_upload_source(source_id))
    store = open_upload_store(services.settings)
    for package in packages:
        try:
            store.install_package(source_id, package)
        except PermanentError as error:
            log.warning("package is missing", event_id=package, reason=str(error))
            services.journal.fail_job(package, str(error))


def install_skill_files(services: Services, content: SkillUpserted) -> str:
    """Install a skill whose files are in its event; returns its path in the source.

    Raises UsageError for refused files, or if the source is of another kind.
    """
    source_id, _, path = content.skill_id.partition(":")
    store = open_upload_store(services.settings)
    with store.staging() as place:
        skills = place / "skills"
        members = iter_text_members(content.files or {})
        contents = write_packages(services.settings, place, skills, source_id, path, members)
        ensure_source(services.graph, make_upload_source(source_id))
        store.create_source(source_id)
        for skill in contents.skills:
            store.install_skill(source_id, skill, skills / package_file_name(skill))
    return path


def delete_uploaded_skills(services: Services, skill_ids: Iterable[str]) -> None:
    """Delete the packages of withdrawn skills that were uploaded."""
    uploaded = {
        source.source_id for source in services.graph.list_sources() if source.kind == UPLOAD_KIND
    }
    store = open_upload_store(services.settings)
    for skill_id in skill_ids:
        source_id, _, path = skill_id.partition(":")
        if source_id in uploaded:
            store.remove_skills(source_id, [path])


def delete_expired_uploads(services: Services) -> int:
    """Delete packages whose events have ended, and packages of killed processes; returns how
    many."""

    def ended(ids: Sequence[str]) -> dict[str, bool]:
        states = services.journal.get_job_states(ids)
        return {one: state == "done" for one, (state, _) in states.items()}

    return open_upload_store(services.settings).delete_expired(ended)
