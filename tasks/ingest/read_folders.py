"""Read the folders of a batch of skills; of those that are gone, withdraw what was published."""

from __future__ import annotations

from collections import defaultdict
from collections.abc import Sequence
from dataclasses import dataclass, field

from config.errors import PermanentError, TransientError
from graph.records import CatalogEntry
from skills.record import RevisionKey
from tasks.history.keep import withdraw
from tasks.policies import Deadline
from tasks.services import Services
from tasks.sources.protocol import SkillFolder, SkillGoneError
from tasks.sources.readers import ReaderPool

PendingSkill = tuple[RevisionKey, CatalogEntry]
"""A skill with the key of its next revision."""


@dataclass(slots=True)
class ReadFolders:
    """Folders of a batch as read, and the skills without one.

    failures: why skills cannot be read. unavailable: errors of skills that may be readable later;
    their requests stay open.
    """

    folders: dict[PendingSkill, SkillFolder] = field(default_factory=dict)
    gone: list[PendingSkill] = field(default_factory=list)
    failures: dict[PendingSkill, str] = field(default_factory=dict)
    unavailable: list[TransientError] = field(default_factory=list)


def read_folders(
    services: Services, entries: Sequence[CatalogEntry], deadline: Deadline
) -> ReadFolders:
    """Read the folders of skills, each with the key of its next revision."""
    found = ReadFolders()
    seqs = services.graph.allocate_sequence(len(entries))
    # Read after the seqs were allocated: a git source's commit is part of the content.
    sources = {source.source_id: source for source in services.graph.list_sources()}
    with ReaderPool(sources, services.settings) as readers:
        for entry, seq in zip(entries, seqs, strict=True):
            deadline.check("read")
            services.coordinator.yield_to_queries()
            key = RevisionKey(entry.skill_id, seq)
            try:
                found.folders[key, entry] = readers.get(entry.source_id).read(entry.path)
            except SkillGoneError:
                found.gone.append((key, entry))
            except PermanentError as error:
                found.failures[key, entry] = str(error)
            except TransientError as error:
                found.unavailable.append(error)
    return found


def withdraw_gone(services: Services, gone: Sequence[PendingSkill]) -> None:
    """Withdraw skills that are gone from their sources.

    Their file signatures are forgotten, so that the next scan finds them if they are back.
    """
    withdraw(services, [key for key, _ in gone])
    paths: defaultdict[str, list[str]] = defaultdict(list)
    for _, entry in gone:
        paths[entry.source_id].append(entry.path)
    for source_id, missing in paths.items():
        services.graph.update_file_signatures(source_id, {}, missing)
