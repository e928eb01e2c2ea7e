"""The catalog on Neo4j: sequence numbers, sources, skills and the change feed."""

from __future__ import annotations

import time
from collections import Counter
from collections.abc import Iterable, Mapping, Sequence
from dataclasses import asdict
from functools import partial
from typing import Any

from config.errors import UsageError
from graph.entry_filter import EntryFilter
from graph.neo4j import transactions as writes
from graph.neo4j.base import READ_BATCH, WRITE_BATCH, Neo4jStore, batches
from graph.neo4j.transactions import Withdrawal
from graph.protocol import CatalogChanges, CatalogEntry, Publication, SkillState, Source
from graph.skill_names import normalise_name
from skills.record import RevisionKey, select_latest_revisions

_SEEN_AT_ONCE = 1_000


class Neo4jCatalog(Neo4jStore):
    """The part of `graph.protocol.SkillGraph` that knows no links."""

    # -- sequence numbers and sources
    def allocate_sequence(self, count: int) -> range:
        """Take `count` numbers from the one counter that is never reset."""
        if count < 0:
            raise UsageError(f"cannot take {count} sequence numbers")
        last = int(self._write("allocate_sequence", count=count)[0][0])
        return range(last - count + 1, last + 1)

    def save_source(self, source: Source) -> None:
        """Record a source; raises UsageError when its id is taken by another root."""
        same, kind, root = self._write(
            "save_source",
            source_id=source.source_id,
            kind=source.kind,
            root=source.root,
            known=asdict(source) | {"licences": list(source.licences)},
        )[0]
        if not same:
            raise UsageError(
                f"source {source.source_id} is already {kind} {root}: "
                "choose another id, or drop that source first"
            )

    def list_sources(self) -> list[Source]:
        """All sources, by id."""
        rows = self._read("sources")
        return [Source(*row[:6], *(tuple(row[6]), *row[7:])) for row in rows]

    def delete_source(self, source_id: str) -> None:
        """Forget a source and its cursor; raises UsageError while it has published skills."""
        left = self._read("published_of_source", source_id=source_id)[0][0]
        if left:
            raise UsageError(f"source {source_id} still has {left} skills: remove them first")
        while self._write("delete_file_signatures", source_id=source_id, limit=READ_BATCH)[0][0]:
            pass
        self._write("delete_source", source_id=source_id)

    def get_file_signatures(self, source_id: str) -> dict[str, str]:
        """Skill path -> signature of what has been seen of it."""
        found: dict[str, str] = {}
        after: str | None = None
        while True:
            (paths, signatures) = self._read(
                "file_signatures", source_id=source_id, after=after or "", limit=READ_BATCH
            )[0]
            found.update(zip(paths, signatures, strict=True))
            if len(paths) < READ_BATCH:
                return found
            after = paths[-1]

    def update_file_signatures(
        self, source_id: str, seen: Mapping[str, str], gone: Iterable[str]
    ) -> None:
        """Record signatures of paths seen and forget those gone."""
        for paths in batches(sorted(set(gone)), _SEEN_AT_ONCE):
            self._write("forget_file_signatures", source_id=source_id, paths=list(paths))
        for rows in batches(sorted(seen.items()), _SEEN_AT_ONCE):
            self._write(
                "save_file_signatures", source_id=source_id, rows=[list(row) for row in rows]
            )

    # -- the catalog
    def request_ingest(self, skills: Sequence[tuple[str, str, str]], seq: int) -> None:
        """Mark (skill_id, source_id, path) as wanting ingest of what was seen at `seq`."""
        for rows in batches(sorted(set(skills))):
            self._write("request_ingest", rows=[list(row) for row in rows], seq=seq)

    def get_entries(self, skill_ids: Sequence[str] | None = None) -> list[CatalogEntry]:
        """Entries by id (all when None), removed ones included, ordered by skill_id."""
        if skill_ids is None:
            return [_entry(row) for page in self._pages("all_entries") for row in page]
        return [
            _entry(row)
            for ids in batches(sorted(set(skill_ids)), READ_BATCH)
            for row in self._read("entries", ids=list(ids))[0][0]
        ]

    def get_entries_under(self, source_id: str, path: str) -> list[CatalogEntry]:
        """Entries of a source whose path is `path` or lies below it; "" is the whole source."""
        if path:
            rows = self._read("entry_at", source_id=source_id, path=path)[0][0]
            name, more = "entries_below", {"below": f"{path}/"}
        else:
            rows = self._read("entry_at", source_id=source_id, path="")[0][0]
            name, more = "entries_of_source", {}
        for page in self._pages(name, source_id=source_id, **more):
            rows += page
        return sorted((_entry(row) for row in rows), key=lambda entry: entry.skill_id)

    def list_entries(self, selection: EntryFilter, after: str, limit: int) -> list[CatalogEntry]:
        """The first `limit` entries of a selection whose skill_id sorts after `after`, by it."""
        first, end = selection.id_range(after)
        state = None if selection.state is None else selection.state.value
        wanted = {"after": first, "end": end, "limit": limit, "state": state}
        if selection.name is not None:
            name_key = normalise_name(selection.name)
            rows = self._read("list_entries_by_name", name_key=name_key, **wanted)
        else:
            rows = self._read(
                "list_entries" if state is None else "list_entries_in_state", **wanted
            )
        return [_entry(row) for row in rows[0][0]]

    def count_states_by_source(self, source_ids: Sequence[str]) -> dict[str, dict[SkillState, int]]:
        """By source, how many of its skills are in each state."""
        counted: dict[str, dict[SkillState, int]] = {source_id: {} for source_id in source_ids}
        states = [state.value for state in SkillState]
        for source_id, state, many in self._read(
            "count_states_by_source", source_ids=list(counted), states=states
        ):
            counted[source_id][SkillState(state)] = many
        return counted

    def publish(self, publications: Sequence[Publication]) -> list[RevisionKey]:
        """Move pointers forward and mark the skills for linking, up to 200 in one transaction.

        Returns the keys whose pointer moved; a seq that is not above the skill's pointer, its
        last confirmation, removal or failure is stale and changes nothing. Where a skill is given
        more than once, only its highest seq counts.
        """
        newest = select_latest_revisions(publications)
        moved: list[RevisionKey] = []
        for given in batches([newest[skill_id] for skill_id in sorted(newest)]):
            moved += self._transact_with_locks(partial(writes.publish, given=given))
        return moved

    def mark_unchanged(
        self, keys: Sequence[RevisionKey], hashes: Sequence[str] | None = None
    ) -> None:
        """An ingest saw at `seq` what is published already: clear wanted marks up to it.

        hashes: the content each ingest saw; where the published content is another by now, the
        skill goes on waiting.
        """
        seen: Sequence[str | None] = [None] * len(keys) if hashes is None else hashes
        pairs = zip(keys, seen, strict=True)
        for rows in batches(sorted(([*key, seen] for key, seen in pairs), key=lambda row: row[:2])):
            self._write("mark_unchanged", rows=list(rows))

    def remove(self, keys: Sequence[RevisionKey]) -> list[str]:
        """Withdraw pointers older than the key's seq; returns the skills that were withdrawn."""
        withdrawals = []
        for key in keys:
            source_id, _, path = key.skill_id.partition(":")
            withdrawals.append(Withdrawal(key, source_id, path, SkillState.REMOVED, ""))
        return self._withdraw(withdrawals)

    def record_failures(self, failures: Sequence[tuple[RevisionKey, str, str, str]]) -> None:
        """Record (key, source_id, path, reason); withdraws an older pointer."""
        self._withdraw(
            [
                Withdrawal(key, source_id, path, SkillState.FAILED, reason)
                for key, source_id, path, reason in failures
            ]
        )

    def list_awaiting_ingest(self, limit: int) -> list[CatalogEntry]:
        """Entries whose wanted_seq has not been served, oldest first."""
        return [_entry(row) for row in self._read("awaiting_ingest", limit=limit)[0][0]]

    def list_awaiting_embedding(self, limit: int) -> list[RevisionKey]:
        """Published revisions without section vectors, most used first."""
        (found,) = self._read("awaiting_embedding", limit=limit)
        return [RevisionKey(*pair) for pair in zip(*found, strict=True)]

    def mark_embedded(self, keys: Sequence[RevisionKey]) -> None:
        """Their sections have vectors; a key that is no longer published is ignored."""
        for rows in batches(sorted(keys)):
            self._write("mark_embedded", rows=[list(key) for key in rows])

    def list_scanned_before(self, scanner_version: int, limit: int) -> list[RevisionKey]:
        """Published revisions whose marks are of an older scanner."""
        (found,) = self._read("scanned_before", scanner=scanner_version, limit=limit)
        return [RevisionKey(*pair) for pair in zip(*found, strict=True)]

    def update_safety_levels(self, levels: Mapping[RevisionKey, int], scanner_version: int) -> None:
        """What a newer scanner says of published revisions; others are ignored."""
        for rows in batches(sorted([*key, level or None] for key, level in levels.items())):
            self._write("update_safety_levels", rows=list(rows), scanner=scanner_version)

    def increment_uses(self, skill_ids: Sequence[str]) -> None:
        """Bundles chose these skills once more; written by skill_id."""
        times = Counter(skill_ids)
        for ids in batches(sorted(times)):
            self._write("increment_uses", rows=[[skill_id, times[skill_id]] for skill_id in ids])

    def prune_removed(self, age_seconds: float) -> int:
        """Forget skills that were removed more than `age` seconds ago; how many."""
        before, pruned = time.time() - age_seconds, 0
        while many := self._write("prune", before=before, limit=WRITE_BATCH)[0][0]:
            pruned += many
        return pruned

    def get_counts(self) -> dict[str, int]:
        """Skills by state, and `paged`, `unlinked`, `waiting`, `links`."""
        counted = dict(self._read("count_states", states=[state.value for state in SkillState]))
        unpaged, unlinked, waiting, links = self._read("count_rest")[0]
        paged = max(0, counted[SkillState.PUBLISHED.value] - unpaged)
        return counted | {
            "paged": paged,
            "unlinked": unlinked,
            "waiting": waiting,
            "links": links,
        }

    # -- the change feed
    def get_changes_since(self, epoch: int) -> CatalogChanges:
        """What changed after `epoch`; 0 gives every pointer.

        One round trip where nothing did. Else the counter is read once more behind its lock:
        whoever took an epoch up to that one has been committed whole, so that nothing is missed.
        What is committed later may be told too, and is told again.
        """
        now = self._epoch(epoch, self._read("epoch")[0][0])
        if now == epoch:
            changes = CatalogChanges(epoch, {}, frozenset())
        else:
            now = self._epoch(epoch, self._barrier())
            pointers, rows = self._moved(epoch) if epoch else self._all_moved()
            changes = CatalogChanges(now, pointers, frozenset(rows))
        self._adjacency_cache.apply_changes(epoch, changes)
        return changes

    def _barrier(self) -> int:
        self._check_schema()
        return int(self._server.write(self._statements["epoch_with_lock"])[0][0])

    def _epoch(self, seen: int, now: int) -> int:
        if now < seen:
            raise UsageError(
                f"the catalog at {self._server.address} is at change {now}, this process has seen "
                f"change {seen}: an older copy was restored; start this process again"
            )
        return now

    def _moved(self, epoch: int) -> tuple[dict[str, int], list[str]]:
        ids, seqs = self._read("changed_pointers", epoch=epoch)[0]
        return dict(zip(ids, seqs, strict=True)), self._read("changed_rows", epoch=epoch)[0][0]

    def _all_moved(self) -> tuple[dict[str, int], list[str]]:
        pointers: dict[str, int] = {}
        rows: list[str] = []
        after = ""
        while True:
            page = self._read("all_changes", after=after, limit=READ_BATCH)[0][0]
            for skill_id, seq, pointed, linked in page:
                if pointed:
                    pointers[skill_id] = seq
                if linked:
                    rows.append(skill_id)
            if len(page) < READ_BATCH:
                return pointers, rows
            after = page[-1][0]

    def _withdraw(self, withdrawals: Sequence[Withdrawal]) -> list[str]:
        newest = select_latest_revisions(withdrawals)
        withdrawn: list[str] = []
        for given in batches([newest[skill_id] for skill_id in sorted(newest)]):
            gone, touched = self._transact_with_locks(partial(writes.withdraw, given=given))
            self._adjacency_cache.evict(touched)
            withdrawn += gone
        return withdrawn


def _entry(row: Sequence[Any]) -> CatalogEntry:
    values: list[Any] = [
        default if value is None else value for value, default in zip(row, _EMPTY, strict=True)
    ]
    values[3] = SkillState(values[3])
    return CatalogEntry(*values)


_EMPTY: tuple[Any, ...] = ("", "", "", "", "", "", 0, "", 0, "", 0, 0, 0, "", "", False, 0.0, 0)
"""What an `Entry` has where nothing is stored, in its order."""
