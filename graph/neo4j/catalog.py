"""The catalog on Neo4j: sequence numbers, sources, skills and the change feed."""

from __future__ import annotations

import time
from collections import Counter
from collections.abc import Iterable, Mapping, Sequence
from dataclasses import asdict
from functools import partial
from typing import Any

from config.errors import UsageError
from graph.entry_filter import Selection
from graph.neo4j import transactions as writes
from graph.neo4j.base import READ_AT_ONCE, WRITTEN_AT_ONCE, Neo4jStore, batches
from graph.neo4j.transactions import Withdrawal
from graph.protocol import Changes, Entry, Publication, Source, State
from graph.skill_names import normalise_name
from skills.record import RevisionKey, newest_of_each

_SEEN_AT_ONCE = 1_000


class Neo4jCatalog(Neo4jStore):
    """The part of `graph.protocol.SkillGraph` that knows no links."""

    # -- sequence numbers and sources
    def take_seqs(self, count: int) -> range:
        """Take `count` numbers from the one counter that is never reset."""
        if count < 0:
            raise UsageError(f"cannot take {count} sequence numbers")
        last = int(self._write("take_seqs", count=count)[0][0])
        return range(last - count + 1, last + 1)

    def put_source(self, source: Source) -> None:
        """Record a source; raises UsageError when its id is taken by another root."""
        same, kind, root = self._write(
            "put_source",
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

    def sources(self) -> list[Source]:
        """All sources, by id."""
        rows = self._read("sources")
        return [Source(*row[:6], *(tuple(row[6]), *row[7:])) for row in rows]

    def drop_source(self, source_id: str) -> None:
        """Forget a source and its cursor; raises UsageError while it has published skills."""
        left = self._read("published_of_source", source_id=source_id)[0][0]
        if left:
            raise UsageError(f"source {source_id} still has {left} skills: remove them first")
        while self._write("drop_cursor", source_id=source_id, limit=READ_AT_ONCE)[0][0]:
            pass
        self._write("drop_source", source_id=source_id)

    def cursor(self, source_id: str) -> dict[str, str]:
        """Skill path -> signature of what has been seen of it."""
        found: dict[str, str] = {}
        after: str | None = None
        while True:
            (paths, signatures) = self._read(
                "cursor", source_id=source_id, after=after or "", limit=READ_AT_ONCE
            )[0]
            found.update(zip(paths, signatures, strict=True))
            if len(paths) < READ_AT_ONCE:
                return found
            after = paths[-1]

    def move_cursor(self, source_id: str, seen: Mapping[str, str], gone: Iterable[str]) -> None:
        """Record signatures of paths seen and forget those gone."""
        for paths in batches(sorted(set(gone)), _SEEN_AT_ONCE):
            self._write("forget_seen", source_id=source_id, paths=list(paths))
        for rows in batches(sorted(seen.items()), _SEEN_AT_ONCE):
            self._write("put_seen", source_id=source_id, rows=[list(row) for row in rows])

    # -- the catalog
    def request(self, skills: Sequence[tuple[str, str, str]], seq: int) -> None:
        """Mark (skill_id, source_id, path) as wanting ingest of what was seen at `seq`."""
        for rows in batches(sorted(set(skills))):
            self._write("request", rows=[list(row) for row in rows], seq=seq)

    def entries(self, skill_ids: Sequence[str] | None = None) -> list[Entry]:
        """Entries by id (all when None), removed ones included, ordered by skill_id."""
        if skill_ids is None:
            return [_entry(row) for page in self._pages("all_entries") for row in page]
        return [
            _entry(row)
            for ids in batches(sorted(set(skill_ids)), READ_AT_ONCE)
            for row in self._read("entries", ids=list(ids))[0][0]
        ]

    def entries_under(self, source_id: str, path: str) -> list[Entry]:
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

    def page(self, selection: Selection, after: str, limit: int) -> list[Entry]:
        """The first `limit` entries of a selection whose skill_id sorts after `after`, by it."""
        first, end = selection.bounds(after)
        state = None if selection.state is None else selection.state.value
        wanted = {"after": first, "end": end, "limit": limit, "state": state}
        if selection.name is not None:
            name_key = normalise_name(selection.name)
            rows = self._read("page_named", name_key=name_key, **wanted)
        else:
            rows = self._read("page" if state is None else "page_in_state", **wanted)
        return [_entry(row) for row in rows[0][0]]

    def states(self, source_ids: Sequence[str]) -> dict[str, dict[State, int]]:
        """By source, how many of its skills are in each state."""
        counted: dict[str, dict[State, int]] = {source_id: {} for source_id in source_ids}
        states = [state.value for state in State]
        for source_id, state, many in self._read("states", source_ids=list(counted), states=states):
            counted[source_id][State(state)] = many
        return counted

    def publish(self, publications: Sequence[Publication]) -> list[RevisionKey]:
        """Move pointers forward and mark the skills for linking, up to 200 in one transaction.

        Returns the keys whose pointer moved; a seq that is not above the skill's pointer, its
        last confirmation, removal or failure is stale and changes nothing. Where a skill is given
        more than once, only its highest seq counts.
        """
        newest = newest_of_each(publications)
        moved: list[RevisionKey] = []
        for given in batches([newest[skill_id] for skill_id in sorted(newest)]):
            moved += self._transact_in_order(partial(writes.publish, given=given))
        return moved

    def confirm(self, keys: Sequence[RevisionKey], hashes: Sequence[str] | None = None) -> None:
        """An ingest saw at `seq` what is published already: clear wanted marks up to it.

        hashes: the content each ingest saw; where the published content is another by now, the
        skill goes on waiting.
        """
        seen: Sequence[str | None] = [None] * len(keys) if hashes is None else hashes
        pairs = zip(keys, seen, strict=True)
        for rows in batches(sorted(([*key, seen] for key, seen in pairs), key=lambda row: row[:2])):
            self._write("confirm", rows=list(rows))

    def remove(self, keys: Sequence[RevisionKey]) -> list[str]:
        """Withdraw pointers older than the key's seq; returns the skills that were withdrawn."""
        withdrawals = []
        for key in keys:
            source_id, _, path = key.skill_id.partition(":")
            withdrawals.append(Withdrawal(key, source_id, path, State.REMOVED, ""))
        return self._withdraw(withdrawals)

    def fail(self, failures: Sequence[tuple[RevisionKey, str, str, str]]) -> None:
        """Record (key, source_id, path, reason); withdraws an older pointer."""
        self._withdraw(
            [
                Withdrawal(key, source_id, path, State.FAILED, reason)
                for key, source_id, path, reason in failures
            ]
        )

    def waiting(self, limit: int) -> list[Entry]:
        """Entries whose wanted_seq has not been served, oldest first."""
        return [_entry(row) for row in self._read("waiting", limit=limit)[0][0]]

    def unpaged(self, limit: int) -> list[RevisionKey]:
        """Published revisions without section vectors, most used first."""
        (found,) = self._read("unpaged", limit=limit)
        return [RevisionKey(*pair) for pair in zip(*found, strict=True)]

    def mark_paged(self, keys: Sequence[RevisionKey]) -> None:
        """Their sections have vectors; a key that is no longer published is ignored."""
        for rows in batches(sorted(keys)):
            self._write("mark_paged", rows=[list(key) for key in rows])

    def scanned_before(self, scanner: int, limit: int) -> list[RevisionKey]:
        """Published revisions whose marks are of an older scanner."""
        (found,) = self._read("scanned_before", scanner=scanner, limit=limit)
        return [RevisionKey(*pair) for pair in zip(*found, strict=True)]

    def mark_safety(self, levels: Mapping[RevisionKey, int], scanner: int) -> None:
        """What a newer scanner says of published revisions; others are ignored."""
        for rows in batches(sorted([*key, level or None] for key, level in levels.items())):
            self._write("mark_safety", rows=list(rows), scanner=scanner)

    def count_use(self, skill_ids: Sequence[str]) -> None:
        """Bundles chose these skills once more; written by skill_id."""
        times = Counter(skill_ids)
        for ids in batches(sorted(times)):
            self._write("count_use", rows=[[skill_id, times[skill_id]] for skill_id in ids])

    def prune(self, age: float) -> int:
        """Forget skills that were removed more than `age` seconds ago; how many."""
        before, pruned = time.time() - age, 0
        while many := self._write("prune", before=before, limit=WRITTEN_AT_ONCE)[0][0]:
            pruned += many
        return pruned

    def counts(self) -> dict[str, int]:
        """Skills by state, and `paged`, `unlinked`, `waiting`, `links`."""
        counted = dict(self._read("count_states", states=[state.value for state in State]))
        unpaged, unlinked, waiting, links = self._read("count_rest")[0]
        paged = max(0, counted[State.PUBLISHED.value] - unpaged)
        return counted | {
            "paged": paged,
            "unlinked": unlinked,
            "waiting": waiting,
            "links": links,
        }

    # -- the change feed
    def changes(self, epoch: int) -> Changes:
        """What changed after `epoch`; 0 gives every pointer.

        One round trip where nothing did. Else the counter is read once more behind its lock:
        whoever took an epoch up to that one has been committed whole, so that nothing is missed.
        What is committed later may be told too, and is told again.
        """
        now = self._epoch(epoch, self._read("epoch")[0][0])
        if now == epoch:
            changes = Changes(epoch, {}, frozenset())
        else:
            now = self._epoch(epoch, self._barrier())
            pointers, rows = self._moved(epoch) if epoch else self._all_moved()
            changes = Changes(now, pointers, frozenset(rows))
        self._rows_kept.follow(epoch, changes)
        return changes

    def _barrier(self) -> int:
        self._check_schema()
        return int(self._server.write(self._statements["epoch_after_commits"])[0][0])

    def _epoch(self, seen: int, now: int) -> int:
        if now < seen:
            raise UsageError(
                f"the catalog at {self._server.address} is at change {now}, this process has seen "
                f"change {seen}: an older copy was restored; start this process again"
            )
        return now

    def _moved(self, epoch: int) -> tuple[dict[str, int], list[str]]:
        ids, seqs = self._read("moved_pointers", epoch=epoch)[0]
        return dict(zip(ids, seqs, strict=True)), self._read("moved_rows", epoch=epoch)[0][0]

    def _all_moved(self) -> tuple[dict[str, int], list[str]]:
        pointers: dict[str, int] = {}
        rows: list[str] = []
        after = ""
        while True:
            page = self._read("all_pointers", after=after, limit=READ_AT_ONCE)[0][0]
            for skill_id, seq, pointed, linked in page:
                if pointed:
                    pointers[skill_id] = seq
                if linked:
                    rows.append(skill_id)
            if len(page) < READ_AT_ONCE:
                return pointers, rows
            after = page[-1][0]

    def _withdraw(self, withdrawals: Sequence[Withdrawal]) -> list[str]:
        newest = newest_of_each(withdrawals)
        withdrawn: list[str] = []
        for given in batches([newest[skill_id] for skill_id in sorted(newest)]):
            gone, touched = self._transact_in_order(partial(writes.withdraw, given=given))
            self._rows_kept.drop(touched)
            withdrawn += gone
        return withdrawn


def _entry(row: Sequence[Any]) -> Entry:
    values: list[Any] = [
        default if value is None else value for value, default in zip(row, _EMPTY, strict=True)
    ]
    values[3] = State(values[3])
    return Entry(*values)


_EMPTY: tuple[Any, ...] = ("", "", "", "", "", "", 0, "", 0, "", 0, 0, 0, "", "", False, 0.0, 0)
"""What an `Entry` has where nothing is stored, in its order."""
