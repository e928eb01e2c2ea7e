"""Reads skills by their ids: catalog entry, published revision, and all data of a skill."""

from __future__ import annotations

import threading
from collections.abc import Callable, Iterable, Iterator, Sequence
from contextlib import ExitStack
from dataclasses import replace
from typing import Any, NamedTuple, cast

from config.errors import NotFoundError, PermanentError, TransientError
from config.settings import Settings
from graph.entry_filter import EntryFilter
from graph.links.passage_links import link_passages
from graph.protocol import Catalog, SkillGraph
from graph.records import CatalogChanges, CatalogEntry, Link, SkillState, Source
from graph.visible_graph import VisibleGraph, find_visible_sources
from search.protocol import SearchIndex, StoredRevision
from search.visible_index import VisibleIndex
from skills.access import UNRESTRICTED, Reader
from skills.batches import batches
from skills.bundle.escaping import escape_inline
from skills.judgement import JUDGEMENT_RULE
from skills.record import RevisionKey, get_source_id
from skills.review import CountedFindings
from skills.scanner import SCANNER_VERSION
from tasks.language_model.answer_store import AnswerStore
from tasks.query.policy_filter import rescan_revision, settle_revision
from tasks.query.process_state.review_cache import ReviewCache
from tasks.refine.completion.completions import keep_used
from tasks.refine.roles.role_overlay import overlay_roles
from tasks.sources.readers import get_skill_location
from workers.library.entry_policy import EntryPolicy
from workers.library.skill_data import (
    dismissal_data,
    entry_data,
    explain_unpublished,
    link_data,
    passage_link_data,
    revision_data,
)

_MAX_ATTEMPTS = 3
_FIRST_BATCH_SIZE = 32
_BATCH_SIZE = 2_000
_READ_AT_ONCE = 200

Stores = tuple[SkillGraph, SearchIndex, AnswerStore | None, ReviewCache]


class PublishedSkill(NamedTuple):
    """A skill at its published revision. path: of its SKILL.md, in the form that bundles use."""

    revision: StoredRevision
    path: str


class SkillReader:
    """Reads skills from the catalog and the index; threads may share it.

    A skill is looked up in the catalog by its whole id and read from the index: no part of an id
    ever becomes a path.

    open_stores: opens catalog, index, the answers of the language model (None without a
    model) and the reviews on first use; `close` closes the stack. reader: limits the
    skills to those it may see.
    """

    def __init__(
        self,
        settings: Settings,
        open_stores: Callable[[ExitStack], Stores],
        reader: Reader = UNRESTRICTED,
    ) -> None:
        self._settings = settings
        self._reader = reader
        self._open_stores = open_stores
        self._lock = threading.Lock()
        self._stack = ExitStack()
        self._stores: Stores | None = None

    def for_reader(self, reader: Reader) -> SkillReader:
        """Return a skill reader of the same library for a reader, whose groups each call checks.

        It uses the stores of this one, and must not be closed.
        """
        if reader.sees_everything:
            return self
        return SkillReader(self._settings, lambda _: self._open(), reader)

    def _open(self) -> Stores:
        with self._lock:
            if self._stores is None:
                with ExitStack() as opening:
                    stores = self._open_stores(opening)
                    self._stack = opening.pop_all()
                self._stores = stores
            return self._stores

    def _get_stores(self) -> Stores:
        """Return the stores, restricted to what the reader may see now."""
        graph, index, answers, reviews = stores = self._open()
        visible = self._find_visible_sources()
        if visible is None:
            return stores
        # The restricted stores have only the methods that read.
        return (
            cast(SkillGraph, VisibleGraph(graph, visible)),
            cast(SearchIndex, VisibleIndex(index, visible)),
            answers,
            reviews,
        )

    def _find_visible_sources(self) -> frozenset[str] | None:
        """Return the sources whose skills the reader may see now, None for all."""
        if self._reader.sees_everything:
            return None
        default_groups = self._settings.access.default_groups
        return find_visible_sources(self._open()[0].read_access(), self._reader, default_groups)

    def get_policy(self) -> EntryPolicy:
        """Return the current policy."""
        graph, index, _, reviews = self._get_stores()
        return EntryPolicy.of_catalog(self._settings, graph, index.get_revisions, reviews.get())

    def close(self) -> None:
        """Close the stores that this reader has opened."""
        with self._lock:
            self._stores = None
            self._stack.close()

    def list_published(self, after_id: str, limit: int, prefix: str = "") -> list[CatalogEntry]:
        """Return the published skills that follow an id, in the order of their ids, without those
        that the policy withholds.

        prefix: the list ends before the first id that does not begin with it.
        """
        graph, *_ = self._get_stores()
        policy = self.get_policy()
        found: list[CatalogEntry] = []
        size = _FIRST_BATCH_SIZE if prefix else max(limit, _FIRST_BATCH_SIZE)
        while len(found) < limit:
            batch = graph.list_entries(EntryFilter(state=SkillState.PUBLISHED), after_id, size)
            batch = [one for one in batch if one.skill_id.startswith(prefix)]
            results = policy.judge(batch)
            found += (one for one in batch if results[one.skill_id].violation is None)
            if len(batch) < size:
                break
            after_id = batch[-1].skill_id
            size = min(2 * size, _BATCH_SIZE)
        return found[:limit]

    def read_skill(self, skill_id: str) -> PublishedSkill:
        """Return a skill at its published revision.

        Raises NotFoundError if the catalog has none of this id, PermanentError if it failed to
        ingest or the policy withholds it, TransientError if it is not published yet.
        """
        graph, *_ = self._get_stores()
        published = _require_published(require_entry(graph, skill_id))
        entry, revision = self._read_revision(published)
        policy = self.get_policy()
        violation = policy.judge_revision(entry, revision).violation
        if violation is not None:
            raise PermanentError(
                f"{skill_id} is withheld by policy: {escape_inline(violation.reason)}; "
                "go on without it"
            )
        revision = settle_revision(policy.policy, revision, entry.judgements)
        return PublishedSkill(revision, get_skill_location(graph.list_sources(), skill_id))

    def read_allowed(self, skill_ids: Sequence[str]) -> dict[str, StoredRevision]:
        """Return by id the published revisions of skills that the policy does not withhold.

        Text and files are as stored, findings are of the current scanner. A skill that is unknown,
        withheld or not published is left out.
        """
        if not skill_ids:
            return {}
        graph, index, *_ = self._get_stores()
        policy = self.get_policy()
        asked = graph.get_entries(list(dict.fromkeys(skill_ids)))
        results = policy.judge(asked)
        entries = [
            one
            for one in asked
            if one.state is SkillState.PUBLISHED and results[one.skill_id].violation is None
        ]
        stored = index.get_revisions([RevisionKey(one.skill_id, one.seq) for one in entries])
        allowed: dict[str, StoredRevision] = {}
        for entry in entries:
            revision = stored.get(RevisionKey(entry.skill_id, entry.seq))
            if revision is None:  # superseded or removed since the catalog was read
                try:
                    entry, revision = self._read_revision(entry)
                except PermanentError:
                    continue
            revision = rescan_revision(revision)
            if policy.judge_revision(entry, revision).violation is None:
                settled = settle_revision(policy.policy, revision, entry.judgements)
                allowed[entry.skill_id] = settled
        return allowed

    def iterate_with_findings(
        self, source_id: str | None = None, skill_id: str = "", rule: str = ""
    ) -> Iterator[tuple[CatalogEntry, CountedFindings]]:
        """Yield the published skills with findings of the current scanner or a judgement, in
        the order of their ids, including withheld skills.

        source_id, skill_id: limit it to a source or a skill. rule: skills that are known to have no
        finding of this rule may be left out. A skill for which an older scanner found nothing is
        left out until the reconciler has scanned it again.
        """
        graph, index, *_ = self._get_stores()
        policy = self.get_policy()
        if skill_id:
            chosen = graph.get_entries([skill_id])
            marked = iter([one for one in chosen if source_id in (None, one.source_id)])
        else:
            marked = iterate_entries(graph, select_marked(graph, source_id, rule or None))
        for some in batches(marked, _READ_AT_ONCE):
            stored = index.get_revisions([RevisionKey(one.skill_id, one.seq) for one in some])
            for entry in some:
                # A revision that is superseded meanwhile is left out, like one
                # that is published later.
                found = stored.get(RevisionKey(entry.skill_id, entry.seq))
                if found is not None:
                    yield entry, policy.judge_revision(entry, rescan_revision(found)).findings

    def get_epoch(self) -> int:
        """Return the present epoch of the catalog, for `get_changes_since`."""
        return self._open()[0].get_epoch()

    def get_review_version(self) -> int:
        """Return a number that changes with decisions of people about skills."""
        return self._open()[3].get().version

    def get_changes_since(self, epoch: int) -> CatalogChanges:
        """Return the changes since an epoch; see `graph.protocol.Catalog`."""
        graph, *_ = self._get_stores()
        return graph.get_changes_since(epoch)

    def sees_all(self) -> bool:
        """Return whether no source is hidden from the reader now."""
        return self._find_visible_sources() is None

    def select_visible(self, skill_ids: Iterable[str]) -> set[str]:
        """Return the given ids whose source the reader may see; the skills may be removed."""
        if self._reader.sees_everything:
            return set(skill_ids)
        graph, *_ = self._open()
        groups, default_groups = graph.read_access().groups, self._settings.access.default_groups
        return {
            one
            for one in skill_ids
            if self._reader.shares(groups.get(get_source_id(one), default_groups))
        }

    def require(self, skill_id: str) -> CatalogEntry:
        """Return the catalog entry of a skill; raises NotFoundError if it does not exist."""
        return require_entry(self._get_stores()[0], skill_id)

    def list_sources(self) -> list[Source]:
        """Return the sources of the catalog."""
        graph, *_ = self._get_stores()
        return graph.list_sources()

    def describe_skill(
        self, skill_id: str, *, text: bool = False, include_withheld: bool = True
    ) -> dict[str, Any]:
        """Return all data of a skill, as JSON: entry, record, passages and links.

        text: whether passages hold their text. include_withheld: if False, a skill that the policy
        withholds has no texts of its author, and no link names one. Raises NotFoundError if the
        catalog does not have this id.
        """
        graph, index, *_ = self._get_stores()
        entry = require_entry(graph, skill_id)
        policy = self.get_policy()
        data = entry_data(entry, policy.judge_one(entry), include_withheld=include_withheld)
        links = graph.get_links([skill_id])[skill_id]
        if not include_withheld:
            links = _without_withheld(graph, policy, links)
        data |= {"links": [link_data(link) for link in links], "warnings": []}
        if include_withheld:
            data["dismissed_links"] = [
                dismissal_data(one)
                for one in graph.list_dismissed_links()
                if skill_id in (one.source, one.target)
            ]
        if entry.state is not SkillState.PUBLISHED:
            return data
        if data["withheld"] is not None and not include_withheld:
            return data
        entry, revision = self._read_revision(entry)
        judged = policy.judge_revision(entry, revision)
        if judged.violation is not None and not include_withheld:
            return data | {"withheld": judged.violation.reason, "description": "", "links": []}
        vectors = index.get_section_vectors([revision.key]).get(revision.key)
        data |= entry_data(entry, judged.result, include_withheld=include_withheld)
        data |= revision_data(revision, judged.findings, text)
        passage_links = link_passages(revision.parsed, vectors)
        return data | {"passage_links": [passage_link_data(link) for link in passage_links]}

    def _read_revision(self, entry: CatalogEntry) -> tuple[CatalogEntry, StoredRevision]:
        """Return the published revision of an entry, and the entry it belongs to.

        If the revision was superseded and deleted meanwhile, the next one is read.
        """
        graph, index, answers, _ = self._get_stores()
        for _ in range(_MAX_ATTEMPTS):
            key = RevisionKey(entry.skill_id, entry.seq)
            stored = index.get_revisions([key]).get(key)
            if stored is not None:
                model = self._settings.language_model
                stored = overlay_roles(answers, model, {key: stored})[key]
                parsed = keep_used(stored.parsed, model)
                return entry, rescan_revision(replace(stored, parsed=parsed))
            newer = _require_published(require_entry(graph, entry.skill_id))
            if newer.seq == entry.seq:
                raise PermanentError(
                    f"{key} is published but missing from the index; run `skillbus doctor`"
                )
            entry = newer
        raise TransientError(f"{entry.skill_id} is being replaced; try again")


def select_marked(
    graph: Catalog, source_id: str | None, rule: str | None, above_level: int = 0
) -> EntryFilter:
    """Return the filter of published skills of a higher scanner level, or with a judgement.

    rule: skills without a finding of this rule are left out if the catalog knows all skills that
    have one.
    """
    if rule not in (None, JUDGEMENT_RULE) and graph.get_rules_version() < SCANNER_VERSION:
        rule = None
    return EntryFilter(source_id, above_level=above_level, rule=rule)


def require_entry(graph: Catalog, skill_id: str) -> CatalogEntry:
    """Return the catalog entry of a skill; raises NotFoundError if it does not exist."""
    entries = graph.get_entries([skill_id])
    if not entries:
        raise NotFoundError(f"no skill {skill_id!r}; `skillbus skills list` lists them")
    return entries[0]


def iterate_entries(
    graph: Catalog, selection: EntryFilter, after_id: str = ""
) -> Iterator[CatalogEntry]:
    """Yield all entries of a selection whose ids are after `after_id`, in the order of their ids.

    The first batches are small, so that a caller that needs only a page does not read much more.
    """
    size = _FIRST_BATCH_SIZE
    while batch := graph.list_entries(selection, after_id, size):
        yield from batch
        after_id = batch[-1].skill_id
        size = min(2 * size, _BATCH_SIZE)


def _require_published(entry: CatalogEntry) -> CatalogEntry:
    if entry.state is SkillState.REMOVED:
        raise NotFoundError(f"no skill {entry.skill_id!r}; it was removed")
    if entry.state is SkillState.PENDING:
        raise TransientError(explain_unpublished(entry))
    if entry.state is not SkillState.PUBLISHED:
        raise PermanentError(explain_unpublished(entry))
    return entry


def _without_withheld(graph: Catalog, policy: EntryPolicy, links: Iterable[Link]) -> list[Link]:
    """Return the links that neither belong to a withheld skill nor lead to one."""
    links = list(links)
    ends = {end for link in links for end in (link.owner, link.source, link.target)}
    entries = () if policy.policy.allows_all or not ends else graph.get_entries(sorted(ends))
    hidden = {name for name, one in policy.judge(entries).items() if one.violation is not None}
    return [link for link in links if not hidden & {link.owner, link.source, link.target}]
