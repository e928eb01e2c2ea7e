"""One skill in a directory, ingested by hand: what is published of it, and what is kept."""

from __future__ import annotations

import shutil
import tempfile
from collections.abc import Iterator
from contextlib import ExitStack, contextmanager
from pathlib import Path
from typing import Any

from config.settings import Settings
from graph.records import Source
from search.revision_history import Pin
from skills.record import ParsedSkill, RevisionKey
from tasks.ingest.diff import sync_source
from tasks.ingest.ingest import ingest
from tasks.ingest.maintain import compare_stores, delete_orphans
from tasks.policies import Deadline
from tasks.services import Services
from tasks.sources.readers import open_reader
from tests.support.samples.library import write_skill
from tests.support.samples.tiny import TinyEncoder
from workers.backend.stores import open_services
from workers.library.review.decisions import SkillReviews
from workers.library.revisions import RevisionReader

SKILL = "lib:kiln"


def text_of(parsed: ParsedSkill) -> str:
    """The line that says which text it is."""
    return next(line for line in parsed.lines if line.startswith("Text number"))


class OneSkill:
    """The skill, with the services of its library."""

    def __init__(self, services: Services, root: Path) -> None:
        self.services = services
        self.root = root
        self.text = ""
        services.graph.save_source(Source("lib", "directory", str(root)))
        assert services.history is not None
        assert services.review_store is not None
        self.history = services.history
        self.reader = RevisionReader(
            *(services.settings, services.graph, services.index),
            *(services.history, services.review_store),
        )
        self.reviews = SkillReviews(
            *(services.settings, services.graph, services.review_store),
            *(self.reader, services.reviews),
        )

    def edit(self, number: int) -> None:
        self.text = f"Text number {number}."
        write_skill(self.root, "kiln", body=f"# Kiln\n\n{self.text}\n")

    def remove(self, _: int) -> None:
        self.text = ""
        shutil.rmtree(self.root / "kiln", ignore_errors=True)

    def break_(self, _: int) -> None:
        (self.root / "kiln").mkdir(exist_ok=True)
        (self.root / "kiln" / "SKILL.md").write_bytes(b"")
        self.text = "broken"

    def ingest(self, times: int) -> None:
        seq = self.services.graph.allocate_sequence(1)[0]
        self.services.graph.request_ingest([(SKILL, "lib", "kiln")], seq)
        for _ in range(times):
            self.run_ingest()

    def sync(self) -> None:
        [source] = self.services.graph.list_sources()
        with open_reader(source, self.services.settings) as reader:
            sync_source(self.services, Deadline(60), source, reader, since=1.0)

    def run_ingest(self) -> None:
        """Carry out the open request, if there is one."""
        ingest(self.services, Deadline(60), [SKILL])

    def update(self, number: int) -> None:
        """Edit the skill, and carry out what a sync requests."""
        self.edit(number)
        self.sync()
        self.run_ingest()

    def pin(self, place: int) -> None:
        if not self.services.graph.get_entries([SKILL]):
            return
        revisions = self.reader.list_revisions(SKILL)
        if place < len(revisions):
            kept = revisions[place].kept
            self.history.keep([kept])
            assert self.history.set_pin(Pin(SKILL, kept.key.seq, kept.content_hash, "x", 1.0))

    def unpin(self, _: int) -> None:
        self.history.remove_pin(SKILL)

    def sweep(self, _: int) -> None:
        orphans, _missing = compare_stores(self.services)
        delete_orphans(self.services, orphans)

    def published_text(self) -> str:
        """What is published, "" without anything."""
        [entry] = self.services.graph.get_entries([SKILL])
        if not entry.seq:
            return ""
        key = RevisionKey(SKILL, entry.seq)
        return text_of(self.services.index.get_revisions([key])[key].parsed)

    def pinned_text(self) -> str:
        """What the pin says, "" without one."""
        pin = self.history.get_pins().get(SKILL)
        found = self.history.list_revisions(SKILL)
        return next((text_of(one.parsed) for one in found if pin and one.key.seq == pin.seq), "")


@contextmanager
def open_skill(**given: Any) -> Iterator[OneSkill]:
    # tantivy may remove a file of a merge while the folder is deleted.
    with (
        tempfile.TemporaryDirectory(ignore_cleanup_errors=True) as folder,
        ExitStack() as stack,
    ):
        (root := Path(folder) / "lib").mkdir()
        given_settings = Settings.model_validate(
            {
                "home": Path(folder) / "home",
                "history": {"revisions": 2},
                "workers": {"keep_seconds": 0},
                **given,
            }
        )
        given_settings.home.mkdir()
        services = open_services(
            given_settings, stack, lambda name, ids: None, writable=True, encoder=TinyEncoder()
        )
        yield OneSkill(services, root)
