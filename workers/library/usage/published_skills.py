"""In-memory copy of the published skills that the policy does not withhold,
following the catalog."""

from __future__ import annotations

from collections.abc import Callable, Iterable, Sequence
from typing import NamedTuple

from graph.entry_filter import EntryFilter
from graph.protocol import Catalog
from graph.records import CatalogEntry, SkillState
from skills.skill_policy import SkillPolicy
from workers.library.entry_policy import EntryPolicy

_BATCH = 2_000


class ListedSkill(NamedTuple):
    """The fields of a skill that lists show. updated: seconds since the epoch."""

    skill_id: str
    name: str
    source_id: str
    tokens: int
    updated: float


class PublishedSkills:
    """The skills that may be sent, for all readers; for one thread at a time.

    The whole catalog is read at first, and when the policy changes; afterwards only the
    skills in its change feed.
    """

    def __init__(self, get_catalog: Callable[[], Catalog]) -> None:
        self._get_catalog = get_catalog
        self._epoch = 0
        self._policy: SkillPolicy | None = None
        self._found: dict[str, ListedSkill] = {}
        self._ordered: tuple[ListedSkill, ...] = ()

    def read(self, entry_policy: EntryPolicy) -> Sequence[ListedSkill]:
        """Return the skills in the order of their ids; the sequence is the same object while
        nothing changes. Raises TransientError if the catalog does not answer."""
        catalog = self._get_catalog()
        if entry_policy.policy != self._policy:
            self._read_all(catalog, entry_policy)
        else:
            self._read_changes(catalog, entry_policy)
        return self._ordered

    def check(self, skills: Iterable[ListedSkill], entry_policy: EntryPolicy) -> list[ListedSkill]:
        """Return the skills of a page that may be sent now: the change feed does not name skills
        whose level or judgements change."""
        page = list(skills)
        entries = self._get_catalog().get_entries([one.skill_id for one in page]) if page else []
        allowed = _select(entries, entry_policy)
        return [allowed[one.skill_id] for one in page if one.skill_id in allowed]

    def _read_all(self, catalog: Catalog, entry_policy: EntryPolicy) -> None:
        epoch, found, after = catalog.get_epoch(), dict[str, ListedSkill](), ""
        selection = EntryFilter(state=SkillState.PUBLISHED)
        while batch := catalog.list_entries(selection, after, _BATCH):
            found |= _select(batch, entry_policy)
            after = batch[-1].skill_id
        self._policy = entry_policy.policy
        self._keep(epoch, found)

    def _read_changes(self, catalog: Catalog, entry_policy: EntryPolicy) -> None:
        if catalog.get_epoch() == self._epoch:
            return
        changes = catalog.get_changes_since(self._epoch)
        changed = list(changes.pointers)
        if not changed:
            self._epoch = changes.epoch
            return
        found = {name: one for name, one in self._found.items() if name not in changes.pointers}
        for start in range(0, len(changed), _BATCH):
            entries = catalog.get_entries(changed[start : start + _BATCH])
            found |= _select(entries, entry_policy)
        self._keep(changes.epoch, found)

    def _keep(self, epoch: int, found: dict[str, ListedSkill]) -> None:
        self._epoch, self._found = epoch, found
        self._ordered = tuple(found[name] for name in sorted(found))


def _select(entries: Iterable[CatalogEntry], entry_policy: EntryPolicy) -> dict[str, ListedSkill]:
    """Return the entries that may be sent, by skill."""
    published = [one for one in entries if one.state is SkillState.PUBLISHED]
    results = entry_policy.judge(published)
    return {
        one.skill_id: ListedSkill(one.skill_id, one.name, one.source_id, one.tokens, one.updated)
        for one in published
        if results[one.skill_id].violation is None
    }
