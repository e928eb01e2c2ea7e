"""What every `SkillGraph` must do. An implementation subclasses `SkillGraphContract` and says
how a graph is opened; opening the same place twice gives the same library."""

from __future__ import annotations

import threading
from collections.abc import Callable, Iterator
from dataclasses import replace
from pathlib import Path
from typing import Any

import pytest

from config.errors import UsageError
from graph.entry_filter import EntryCount, EntryFilter, HasScripts
from graph.protocol import SkillGraph
from graph.records import (
    Link,
    LinkInput,
    LinkType,
    Mention,
    Neighbour,
    Publication,
    RevisionScan,
    SafetyRecord,
    SkillState,
    Source,
)
from graph.visible_graph import VisibleGraph
from skills.judgement import JUDGEMENT_RULE, Judgement
from skills.record import RevisionKey
from tests.support.samples.reopened import reopening_neo4j_graph, reopening_sqlite_graph

JUDGEMENT = Judgement("some-model", 2, "deception", 12, 'rounds totals 上 "in favour"')

Reopen = Callable[[], SkillGraph]


def publication(
    path: str, seq: int, *, source: str = "lib", name: str = "", **more: Any
) -> Publication:
    """One revision of `source:path`, named after its path."""
    values: dict[str, Any] = {
        "key": RevisionKey(f"{source}:{path}", seq),
        "source_id": source,
        "path": path,
        "content_hash": f"hash-{seq}",
        "name": name or path,
        "description": f"What {path} does",
    }
    return Publication(**(values | more))


def key(path: str, seq: int, source: str = "lib") -> RevisionKey:
    return RevisionKey(f"{source}:{path}", seq)


def link(
    source: str,
    target: str,
    kind: LinkType = LinkType.SEMANTIC,
    weight: float = 0.5,
    owner: str = "",
) -> Link:
    return Link(f"lib:{owner or source}", f"lib:{source}", f"lib:{target}", kind, weight, "because")


def mention(name: str) -> Mention:
    return Mention(name, "related", 7, f"see {name}")


def pointers(graph: SkillGraph) -> dict[str, int]:
    return {skill: seq for skill, seq in graph.get_changes_since(0).pointers.items() if seq}


def marked(graph: SkillGraph) -> set[str]:
    return {skill_id for skill_id, _ in graph.list_awaiting_linking(1000)}


def link_all(graph: SkillGraph, *links: Link) -> None:
    """Write these links and clear every mark."""
    owned: dict[str, list[Link]] = {skill_id: [] for skill_id in marked(graph)}
    for one in links:
        owned.setdefault(one.owner, []).append(one)
    graph.replace_links(owned, graph.list_awaiting_linking(1000))


def mentioning(graph: SkillGraph, name: str, source: str = "lib") -> set[str]:
    """The skills that are marked when a skill of this name is published in a source."""
    graph.replace_links({}, graph.list_awaiting_linking(1000))
    published, removed = graph.allocate_sequence(2)
    graph.publish([publication("probe", published, name=name, source=source)])
    found = marked(graph) - {f"{source}:probe"}
    graph.remove([key("probe", removed, source)])
    return found


def walked(graph: SkillGraph | VisibleGraph, selection: EntryFilter, size: int) -> list[str]:
    """Ids of all pages of a selection, one after the other."""
    found: list[str] = []
    while page := graph.list_entries(selection, found[-1] if found else "", size):
        assert len(page) <= size
        found += [entry.skill_id for entry in page]
    return found


class SkillGraphContract:
    """The suite; `reopen` is a fixture that opens the same library again."""

    @pytest.fixture
    def graph(self, reopen: Reopen) -> SkillGraph:
        return reopen()

    # -- sequence numbers
    def test_seqs_follow_one_another(self, graph: SkillGraph) -> None:
        assert graph.last_sequence() == 0
        first = graph.allocate_sequence(3)
        assert list(first) == [1, 2, 3]
        assert list(graph.allocate_sequence(2)) == [4, 5]
        assert list(graph.allocate_sequence(0)) == []
        assert graph.last_sequence() == 5

    def test_seqs_are_never_reset(self, graph: SkillGraph, reopen: Reopen) -> None:
        graph.allocate_sequence(10)
        graph.publish([publication("a", 10)])
        graph.remove([key("a", graph.allocate_sequence(1)[0])])
        graph.close()
        assert graph is not (again := reopen())
        assert again.allocate_sequence(1)[0] == 12

    def test_what_was_removed_long_ago_is_forgotten(self, graph: SkillGraph) -> None:
        graph.publish([publication("a", 1), publication("b", 2), publication("c", 3)])
        graph.remove([key("a", 4), key("b", 5)])
        graph.request_ingest([("lib:b", "lib", "b")], 6)
        assert graph.prune_removed(3600) == []
        assert graph.prune_removed(-1) == ["lib:a"]
        assert [entry.path for entry in graph.get_entries()] == ["b", "c"]
        assert graph.prune_removed(-1) == []

    # -- sources and cursors
    def test_sources(self, graph: SkillGraph) -> None:
        graph.save_source(Source("b", "directory", "/srv/b"))
        graph.save_source(Source("a", "directory", "/srv/a"))
        graph.save_source(Source("a", "directory", "/srv/a", last_success=5.0))
        assert [(s.source_id, s.last_success) for s in graph.list_sources()] == [
            ("a", 5.0),
            ("b", 0.0),
        ]
        with pytest.raises(UsageError, match="a is already"):
            graph.save_source(Source("a", "directory", "/srv/other"))
        graph.delete_source("a")
        assert [s.source_id for s in graph.list_sources()] == ["b"]

    def test_a_git_source_keeps_all_that_is_known_of_it(
        self, graph: SkillGraph, reopen: Reopen
    ) -> None:
        source = Source(
            *("team", "git", "https://example.org/team.git", 5.0, "main", "skills/good"),
            licences=("MIT", "Apache-2.0"),
            credential_file="team",
            poll_seconds=60.0,
            commit="0" * 40,
            last_attempt=6.0,
            last_error="the branch is gone",
        )
        graph.save_source(source)
        assert graph.list_sources() == [source]
        moved = replace(source, branch="next", path="", licences=(), last_error="")
        graph.save_source(moved)
        graph.close()
        assert reopen().list_sources() == [moved]

    def test_a_source_with_skills_is_not_dropped(self, graph: SkillGraph) -> None:
        graph.save_source(Source("lib", "directory", "/srv/lib"))
        graph.publish([publication("a", 1)])
        with pytest.raises(UsageError, match="remove them first"):
            graph.delete_source("lib")
        graph.remove([key("a", 2)])
        graph.delete_source("lib")
        assert graph.list_sources() == []

    def test_cursor(self, graph: SkillGraph) -> None:
        graph.update_file_signatures("lib", {"": "0", "a": "1", "b": "1"}, [])
        graph.update_file_signatures("lib", {"b": "2", "c": "1"}, ["a", "never-seen"])
        graph.update_file_signatures("other", {"a": "9"}, [])
        assert graph.get_file_signatures("lib") == {"": "0", "b": "2", "c": "1"}
        graph.update_file_signatures("lib", {}, [""])
        assert graph.get_file_signatures("lib") == {"b": "2", "c": "1"}
        assert graph.get_file_signatures("missing") == {}

    # -- pointers
    def test_a_newer_scanner_marks_what_is_published(self, graph: SkillGraph) -> None:
        for name, seq, level in (("a", 1, 0), ("b", 2, 3), ("c", 3, 1)):
            scanned: dict[str, Any] = {"safety_level": level, "scanner_version": 1}
            graph.publish([publication(name, seq, **scanned, has_scripts=False)])
        graph.publish([publication("d", 4, scanner_version=2, has_scripts=False)])
        graph.remove([key("c", 5)])
        assert graph.list_scanned_before(1, 10) == []
        assert graph.list_scanned_before(2, 10) == [key("a", 1), key("b", 2)]
        assert graph.list_scanned_before(2, 1) == [key("a", 1)]
        epoch = graph.get_changes_since(0).epoch
        levels = {key("a", 1): 2, key("b", 1): 1, key("c", 3): 2, key("d", 4): 3}
        graph.save_scans({one: RevisionScan(levels[one], (), False) for one in levels}, 2)
        entries = {entry.path: entry for entry in graph.get_entries()}
        assert (entries["a"].safety_level, entries["a"].scanner_version, entries["a"].seq) == (
            2,
            2,
            1,
        )
        assert (entries["b"].safety_level, entries["b"].scanner_version) == (3, 1)
        assert (entries["c"].safety_level, entries["d"].safety_level) == (0, 0)
        assert graph.list_scanned_before(2, 10) == [key("b", 2)]
        graph.save_scans({key("b", 2): RevisionScan(0, (), False)}, 2)
        assert graph.get_entries(["lib:b"])[0].safety_level == 0
        assert graph.get_changes_since(epoch).pointers == {}

    def test_a_newer_parser_lists_what_is_published(self, graph: SkillGraph) -> None:
        graph.publish([publication("a", 1), publication("b", 2, parser_version=1)])
        graph.publish([publication("c", 3, parser_version=2), publication("d", 4)])
        graph.remove([key("d", 5)])
        assert graph.list_parsed_before(2, 10) == [key("a", 1), key("b", 2)]
        assert len(graph.list_parsed_before(2, 1)) == 1
        assert [graph.count_parsed_before(version) for version in (1, 2, 3)] == [1, 2, 3]
        epoch = graph.get_epoch()
        graph.mark_parsed([key("a", 1), key("b", 1), key("c", 3), key("d", 4)], 2)
        found = {entry.path: entry.parser_version for entry in graph.get_entries()}
        assert found == {"a": 2, "b": 1, "c": 2, "d": 0}
        graph.mark_parsed([key("a", 1)], 1)
        assert graph.get_entries(["lib:a"])[0].parser_version == 2
        assert graph.get_changes_since(epoch).pointers == {}
        graph.request_ingest([("lib:b", "lib", "b")], 6)
        assert graph.list_parsed_before(2, 10) == []
        assert graph.count_parsed_before(2) == 1

    def test_a_revision_that_replaces_one_alone(self, graph: SkillGraph) -> None:
        """An ingest under a lower seq, which read newer content, is not overtaken."""
        graph.publish([publication("a", 1)])
        assert graph.publish([publication("a", 3, replaces=2)]) == []
        assert graph.publish([publication("a", 3, replaces=1)]) == [key("a", 3)]
        graph.request_ingest([("lib:a", "lib", "a")], 4)
        assert graph.publish([publication("a", 6, replaces=3)]) == []
        assert graph.publish([publication("a", 5)]) == [key("a", 5)]
        assert graph.publish([publication("a", 6, replaces=3)]) == []
        graph.mark_unchanged([key("a", 7)])
        assert graph.publish([publication("a", 6, replaces=5)]) == [], "stale"
        assert graph.publish([publication("a", 8, replaces=5)]) == [key("a", 8)]
        graph.remove([key("a", 9)])
        assert graph.publish([publication("a", 10, replaces=8)]) == []

    def test_scripts_and_rules_of_a_former_version_are_filled_in(self, graph: SkillGraph) -> None:
        """It published without them; a scan that is as new replaces them once."""
        level: dict[str, Any] = {"safety_level": 2, "scanner_version": 2}
        graph.publish([publication("a", 1, **level), publication("b", 2, **level)])
        graph.publish([publication("c", 3, **level, has_scripts=True, rules=("r",))])
        of_rule = EntryFilter(above_level=0, rule="r")
        assert [entry.has_scripts for entry in graph.get_entries()] == [None, None, True]
        assert walked(graph, of_rule, 1) == ["lib:c"]
        assert graph.list_scanned_before(2, 10) == [key("a", 1), key("b", 2)]
        assert graph.list_scanned_before(1, 10) == [], "left to the newer scanner"
        graph.save_scans({key("a", 1): RevisionScan(0, ("r",), True)}, 1)
        assert graph.get_entries(["lib:a"])[0].scanner_version == 2

        epoch = graph.get_changes_since(0).epoch
        scans = {name: RevisionScan(3, ("r", "s"), True) for name in map(key, "abc", (1, 2, 3))}
        graph.save_scans(scans, 2)
        entries = graph.get_entries()
        assert [entry.has_scripts for entry in entries] == [True, True, True]
        assert [entry.safety_level for entry in entries] == [3, 3, 2], "c was known"
        assert walked(graph, of_rule, 1) == ["lib:a", "lib:b", "lib:c"]
        assert walked(graph, EntryFilter(above_level=0, rule="s"), 1) == ["lib:a", "lib:b"]
        assert graph.list_scanned_before(2, 10) == []
        graph.save_scans({key("a", 1): RevisionScan(0, (), False)}, 2)
        assert graph.get_entries(["lib:a"]) == entries[:1]
        assert graph.get_changes_since(epoch).pointers == {}

    def test_whether_all_rules_are_known_is_stored(self, graph: SkillGraph, reopen: Reopen) -> None:
        assert graph.get_rules_version() == 0
        for version in (7, 0):
            graph.set_rules_version(version)
            assert reopen().get_rules_version() == version

    def test_a_judgement_belongs_to_the_content(self, graph: SkillGraph) -> None:
        graph.publish([publication("a", 1), publication("b", 2)])
        epoch = graph.get_changes_since(0).epoch
        graph.save_judgements(
            "some-model",
            {
                "lib:a": ("hash-1", JUDGEMENT),
                "lib:b": ("another content", JUDGEMENT),
                "lib:unknown": ("hash-1", JUDGEMENT),
            },
        )
        entries = {entry.path: entry for entry in graph.get_entries()}
        assert entries.keys() == {"a", "b"}
        assert (entries["a"].judgements, entries["a"].safety_level) == ((JUDGEMENT,), 0)
        assert entries["b"].judgements == ()
        changes = graph.get_changes_since(epoch)
        assert changes.pointers == {}
        assert changes.relinked == frozenset({"lib:a"})
        graph.save_judgements(
            "some-model", {"lib:a": ("hash-1", JUDGEMENT), "lib:b": ("hash-2", None)}
        )
        assert graph.get_changes_since(changes.epoch).relinked == frozenset()

    def test_the_feed_can_be_polled_from_now_on(self, graph: SkillGraph) -> None:
        assert graph.get_epoch() == graph.get_changes_since(0).epoch
        graph.publish([publication("a", 1)])
        epoch = graph.get_epoch()
        assert graph.get_changes_since(epoch).pointers == {}
        graph.publish([publication("a", 2), publication("b", 3)])
        graph.remove([key("a", 4)])
        assert graph.get_changes_since(epoch).pointers == {"lib:a": 0, "lib:b": 3}
        assert graph.get_epoch() == graph.get_changes_since(epoch).epoch > epoch

    def test_each_model_has_its_own_judgement(self, graph: SkillGraph) -> None:
        other = replace(JUDGEMENT, model="other-model", level=1)
        graph.publish([publication("a", 1)])
        graph.save_judgements("some-model", {"lib:a": ("hash-1", JUDGEMENT)})
        graph.save_judgements("other-model", {"lib:a": ("hash-1", other)})
        assert graph.get_entries(["lib:a"])[0].judgements == (JUDGEMENT, other)
        graph.save_judgements("other-model", {"lib:a": ("hash-1", None)})
        assert graph.get_entries(["lib:a"])[0].judgements == (JUDGEMENT,)

    def test_a_judgement_stays_with_the_same_content_only(self, graph: SkillGraph) -> None:
        graph.publish([publication("a", 1), publication("b", 2)])
        graph.save_judgements(
            "some-model",
            {"lib:a": ("hash-1", JUDGEMENT), "lib:b": ("hash-2", replace(JUDGEMENT, level=1))},
        )
        graph.publish([publication("a", 3, content_hash="hash-1"), publication("b", 4)])
        graph.mark_unchanged([key("a", 5)], ["hash-1"])
        assert [entry.judgements for entry in graph.get_entries()] == [(JUDGEMENT,), ()]
        graph.save_judgements("some-model", {"lib:a": ("hash-1", None)})
        assert graph.get_entries(["lib:a"])[0].judgements == ()
        graph.save_judgements("some-model", {"lib:a": ("hash-1", JUDGEMENT)})
        graph.remove([key("a", 6)])
        assert graph.get_entries(["lib:a"])[0].judgements == ()
        graph.save_judgements("some-model", {"lib:a": ("hash-1", JUDGEMENT)})
        assert graph.get_entries(["lib:a"])[0].judgements == ()

    def test_publish_shows_the_revision(self, graph: SkillGraph) -> None:
        published = publication(
            "a/b", 4, name="Some Name", warnings=2, safety_level=1, tokens=90, language="zh"
        )
        assert graph.publish([published]) == [published.key]
        (entry,) = graph.get_entries(["lib:a/b"])
        assert (entry.state, entry.seq, entry.requested_seq) == (SkillState.PUBLISHED, 4, 4)
        assert (entry.name, entry.description) == ("Some Name", "What a/b does")
        assert (entry.source_id, entry.path, entry.content_hash) == ("lib", "a/b", "hash-4")
        assert (entry.warnings, entry.safety_level, entry.tokens) == (2, 1, 90)
        assert (entry.language, entry.embedded) == ("zh", False)
        assert pointers(graph) == {"lib:a/b": 4}

    def test_a_pointer_moves_only_forward(self, graph: SkillGraph) -> None:
        assert graph.publish([publication("a", 5)]) == [key("a", 5)]
        before = graph.get_changes_since(0)
        for late in (5, 4, 1):
            assert graph.publish([publication("a", late, name="older")]) == []
        assert graph.get_changes_since(0) == before
        assert graph.get_entries(["lib:a"])[0].name == "a"
        assert graph.publish([publication("a", 6)]) == [key("a", 6)]

    def test_a_batch_is_one_change(self, graph: SkillGraph) -> None:
        batch = [publication("a", 1), publication("b", 2), publication("a", 3)]
        assert set(graph.publish(batch)) == {key("b", 2), key("a", 3)}
        assert pointers(graph) == {"lib:a": 3, "lib:b": 2}
        assert graph.publish([]) == []

    def test_a_removal_beats_a_late_publication(self, graph: SkillGraph) -> None:
        graph.publish([publication("a", 1)])
        assert graph.remove([key("a", 3), key("never-seen", 3)]) == ["lib:a"]
        assert pointers(graph) == {}
        assert graph.publish([publication("a", 2), publication("never-seen", 3)]) == []
        assert graph.get_entries(["lib:a"])[0].state is SkillState.REMOVED
        assert graph.publish([publication("a", 4)]) == [key("a", 4)]
        assert pointers(graph) == {"lib:a": 4}

    def test_a_late_removal_changes_nothing(self, graph: SkillGraph) -> None:
        graph.publish([publication("a", 5)])
        before = graph.get_changes_since(0)
        assert graph.remove([key("a", 4), key("a", 5)]) == []
        assert graph.get_changes_since(0) == before

    def test_a_failure_withdraws_the_older_pointer(self, graph: SkillGraph) -> None:
        graph.publish([publication("a", 1)])
        graph.record_failures(
            [(key("a", 3), "lib", "a", "no text"), (key("b", 4), "lib", "b", "too long")]
        )
        assert pointers(graph) == {}
        a, b = graph.get_entries(["lib:a", "lib:b"])
        assert (a.state, a.reason, a.seq, a.content_hash) == (SkillState.FAILED, "no text", 0, "")
        assert (b.state, b.reason, b.path) == (SkillState.FAILED, "too long", "b")
        assert graph.publish([publication("a", 2)]) == []
        graph.publish([publication("a", 5)])
        (a,) = graph.get_entries(["lib:a"])
        assert (a.state, a.reason) == (SkillState.PUBLISHED, "")

    def test_a_late_failure_changes_nothing(self, graph: SkillGraph) -> None:
        graph.publish([publication("a", 5)])
        graph.remove([key("b", 5)])
        before = (graph.get_entries(), graph.get_changes_since(0))
        graph.record_failures(
            [(key("a", 5), "lib", "a", "late"), (key("b", 4), "lib", "b", "late")]
        )
        assert (graph.get_entries(), graph.get_changes_since(0)) == before

    def test_a_held_skill_waits_without_a_pointer(self, graph: SkillGraph) -> None:
        graph.request_ingest([("lib:a", "lib", "a")], 2)
        graph.record_held([(key("a", 3), "lib", "a", "waits for review")])
        (a,) = graph.get_entries(["lib:a"])
        assert (a.state, a.reason, a.seq) == (SkillState.HELD, "waits for review", 0)
        assert graph.list_awaiting_ingest(9) == []
        assert graph.get_counts()["held"] == 1
        assert graph.list_entries(EntryFilter(state=SkillState.HELD), "", 9) == [a]
        graph.record_held([(key("a", 2), "lib", "a", "late")])
        assert graph.get_entries(["lib:a"]) == [a]
        graph.request_ingest([("lib:a", "lib", "a")], 4)
        assert [one.skill_id for one in graph.list_awaiting_ingest(9)] == ["lib:a"]
        graph.publish([publication("a", 5)])
        assert pointers(graph) == {"lib:a": 5}
        assert graph.get_counts()["held"] == 0

    # -- what ingest still has to do
    def test_of_a_skill_twice_in_a_batch_the_highest_seq_counts(self, graph: SkillGraph) -> None:
        low = publication("a", 3, name="low", mentions=(mention("x"),), body_terms={3: 1.0})
        high = publication("a", 5, name="high", mentions=(mention("y"),), body_terms={5: 1.0})
        other = publication("b", 4)
        for batch in ([high, other, low], [low, other, high]):
            assert set(graph.publish(batch)) <= {high.key, other.key}
            assert pointers(graph) == {"lib:a": 5, "lib:b": 4}
            assert graph.get_entries(["lib:a"])[0].name == "high"
            assert graph.get_link_features(["lib:a"])["lib:a"].body_terms == {5: 1.0}
            assert mentioning(graph, "y") == {"lib:a"}
            assert mentioning(graph, "x") == set()
        assert graph.publish([publication("a", 4), publication("a", 5)]) == []
        assert graph.publish([publication("a", 7), publication("a", 6)]) == [key("a", 7)]

    def test_requests_wait_until_served(self, graph: SkillGraph) -> None:
        graph.publish([publication("a", 1)])
        graph.request_ingest([("lib:a", "lib", "a")], 9)
        graph.request_ingest([("lib:b", "lib", "b"), ("lib:c", "lib", "c")], 7)
        graph.request_ingest([("lib:a", "lib", "a")], 3)
        assert [e.skill_id for e in graph.list_awaiting_ingest(10)] == ["lib:b", "lib:c", "lib:a"]
        assert [e.skill_id for e in graph.list_awaiting_ingest(1)] == ["lib:b"]
        a, b, _ = graph.get_entries()
        assert (a.state, a.seq, a.requested_seq) == (SkillState.PUBLISHED, 1, 9)
        assert (b.state, b.seq, b.requested_seq) == (SkillState.PENDING, 0, 7)
        graph.publish([publication("b", 7), publication("a", 8)])
        graph.record_failures([(key("c", 7), "lib", "c", "unreadable")])
        assert [e.skill_id for e in graph.list_awaiting_ingest(10)] == ["lib:a"]
        self.waiting_shows(graph)
        graph.request_ingest([("lib:b", "lib", "b"), ("lib:c", "lib", "c")], 7)
        assert [e.skill_id for e in graph.list_awaiting_ingest(10)] == ["lib:a"]

    @staticmethod
    def waiting_shows(graph: SkillGraph) -> None:
        """The entry alone shows whether it waits."""
        waiting = {entry.skill_id for entry in graph.list_awaiting_ingest(1000)}
        assert waiting == {e.skill_id for e in graph.get_entries() if e.awaits_ingest}

    def test_confirm_serves_without_a_new_revision(self, graph: SkillGraph) -> None:
        graph.publish([publication("a", 1)])
        graph.request_ingest([("lib:a", "lib", "a")], 5)
        graph.mark_unchanged([key("a", 4)])
        assert graph.list_awaiting_ingest(10)
        graph.mark_unchanged([key("a", 5), key("unknown", 5)])
        assert not graph.list_awaiting_ingest(10)
        self.waiting_shows(graph)
        assert pointers(graph) == {"lib:a": 1}
        assert graph.publish([publication("a", 3)]) == []

    def test_confirm_with_another_hash_is_ignored(self, graph: SkillGraph) -> None:
        graph.publish([publication("a", 1), publication("a", 2)])
        graph.request_ingest([("lib:a", "lib", "a")], 5)
        graph.mark_unchanged([key("a", 5)], ["hash-1"])
        assert graph.list_awaiting_ingest(10)
        graph.mark_unchanged([key("a", 5)], ["hash-2"])
        assert not graph.list_awaiting_ingest(10)

    def test_a_removed_skill_asked_for_again_is_pending(self, graph: SkillGraph) -> None:
        graph.publish([publication("a", 1)])
        graph.remove([key("a", 2)])
        graph.request_ingest([("lib:a", "lib", "a")], 1)
        assert not graph.list_awaiting_ingest(10)
        graph.request_ingest([("lib:a", "lib", "a")], 3)
        assert [e.state for e in graph.list_awaiting_ingest(10)] == [SkillState.PENDING]
        graph.remove([key("a", 4)])
        assert not graph.list_awaiting_ingest(10)
        self.waiting_shows(graph)

    def test_entries_under_a_path(self, graph: SkillGraph) -> None:
        paths = ["a", "a/b", "a/b/c", "a-b", "a0", "b", "a%"]
        graph.publish([publication(path, n) for n, path in enumerate(paths, 1)])
        graph.publish([publication("a/b", 20, source="other")])
        assert {e.path for e in graph.get_entries_under("lib", "a")} == {"a", "a/b", "a/b/c"}
        assert {e.path for e in graph.get_entries_under("lib", "")} == set(paths)
        assert graph.get_entries_under("lib", "a/x") == []
        assert [e.skill_id for e in graph.get_entries()] == sorted(
            e.skill_id for e in graph.get_entries()
        )

    # -- embedding and use
    def test_pages_follow_one_another(self, graph: SkillGraph) -> None:
        everywhere = [("b", "x"), ("a", "x/y"), ("a", "x"), ("a-b", "x"), ("a", "."), ("ab", "é/Z")]
        graph.publish([publication(path, 1, source=source) for source, path in everywhere])
        graph.request_ingest([("a:new", "a", "new")], 2)
        graph.record_failures([(key("broken", 3, "b"), "b", "broken", "no text")])
        every = [entry.skill_id for entry in graph.get_entries()]
        assert walked(graph, EntryFilter(), 3) == every
        assert walked(graph, EntryFilter(source_id="a"), 2) == ["a:.", "a:new", "a:x", "a:x/y"]
        assert walked(graph, EntryFilter("a", SkillState.PUBLISHED), 1) == ["a:.", "a:x", "a:x/y"]
        assert walked(graph, EntryFilter(state=SkillState.FAILED), 5) == ["b:broken"]
        assert walked(graph, EntryFilter(name="X"), 2) == ["a-b:x", "a:x", "b:x"]
        assert walked(graph, EntryFilter("b", SkillState.PUBLISHED, "x"), 2) == ["b:x"]
        assert walked(graph, EntryFilter(name="x", state=SkillState.FAILED), 2) == []
        long = "é" * 5_000
        graph.publish([publication("long", 1, name=long), publication("marks", 2, name="--")])
        assert walked(graph, EntryFilter(name=long.upper()), 2) == ["lib:long"]
        assert walked(graph, EntryFilter(name=""), 2) == walked(graph, EntryFilter(name="_"), 2)
        assert walked(graph, EntryFilter(name=""), 2) == []
        assert walked(graph, EntryFilter(source_id="absent"), 2) == []
        assert graph.list_entries(EntryFilter("a"), "a:x", 9) == graph.get_entries(["a:x/y"])
        assert graph.list_entries(EntryFilter("a"), "b:zzz", 9) == []
        assert graph.list_entries(EntryFilter(), "\0\U0010ffff", 1)[0].skill_id == every[0]
        assert graph.list_entries(EntryFilter(), "\U0010ffff", 1) == []

    def test_published_entries_above_a_level_are_listed(self, graph: SkillGraph) -> None:
        levels = {"a": 0, "b": 1, "c": 2, "d": 3, "e": 0, "f": 3}
        graph.publish([publication(path, 1, safety_level=level) for path, level in levels.items()])
        graph.remove([key("f", 2)])
        graph.save_judgements("m", {"lib:e": (publication("e", 1).content_hash, JUDGEMENT)})
        assert walked(graph, EntryFilter(above_level=0), 2) == ["lib:b", "lib:c", "lib:d", "lib:e"]
        assert walked(graph, EntryFilter("lib", above_level=2), 1) == ["lib:d", "lib:e"]
        assert walked(graph, EntryFilter("other", above_level=0), 1) == []

    def test_entries_by_the_rule_of_a_finding(self, graph: SkillGraph) -> None:
        """Those of the published revision count, and no others."""
        rules = {"a": ("r",), "b": ("r", "s"), "c": ("s",), "d": ("r",), "e": ("r",), "f": ()}
        graph.publish(
            [publication(path, 1, safety_level=2, rules=names) for path, names in rules.items()]
        )
        graph.publish([publication("a", 1, source="li", safety_level=1, rules=("r",))])
        assert walked(graph, EntryFilter(above_level=1, rule="r"), 1) == [
            *("lib:a", "lib:b", "lib:d", "lib:e"),
        ]
        assert walked(graph, EntryFilter("li", above_level=0, rule="r"), 2) == ["li:a"]
        assert walked(graph, EntryFilter("l", above_level=0, rule="r"), 2) == []
        graph.publish([publication("a", 2, safety_level=2, rules=("s",))])
        graph.publish([publication("a", 1, safety_level=2, rules=("r",))])  # late
        graph.publish([publication("b", 2, safety_level=1, rules=("r",))])
        graph.remove([key("d", 2)])
        graph.record_failures([(key("e", 2), "lib", "e", "no text")])
        assert walked(graph, EntryFilter(above_level=1, rule="r"), 2) == []
        assert walked(graph, EntryFilter(above_level=1, rule="s"), 2) == ["lib:a", "lib:c"]
        assert walked(graph, EntryFilter(above_level=0, rule="r"), 2) == ["li:a", "lib:b"]
        about = {"lib:f": ("hash-1", JUDGEMENT), "lib:b": ("hash-2", JUDGEMENT)}
        graph.save_judgements(JUDGEMENT.model, about)
        assert walked(graph, EntryFilter(above_level=1, rule="r"), 2) == ["lib:b"]
        judged = EntryFilter(above_level=2, rule=JUDGEMENT_RULE)
        assert walked(graph, judged, 1) == ["lib:b", "lib:f"]
        graph.save_judgements(JUDGEMENT.model, {"lib:b": ("hash-2", None)})
        graph.remove([key("f", 3)])
        assert walked(graph, judged, 1) == []

    def test_entries_by_scripts_and_embedded_sections(self, graph: SkillGraph) -> None:
        scripts = {"a": True, "b": False, "c": None, "d": True}
        graph.publish([publication(path, 1, has_scripts=has) for path, has in scripts.items()])
        graph.publish([publication("d", 2, has_scripts=False)])
        graph.record_failures([(key("e", 2), "lib", "e", "no text")])
        graph.mark_embedded([key("a", 1), key("b", 1)])
        assert [entry.has_scripts for entry in graph.get_entries()] == [
            *(True, False, None, False, None),
        ]
        found = {value: walked(graph, EntryFilter(has_scripts=value), 1) for value in HasScripts}
        assert found == {
            HasScripts.TRUE: ["lib:a"],
            HasScripts.FALSE: ["lib:b", "lib:d"],
            HasScripts.UNKNOWN: ["lib:c", "lib:e"],
        }
        published = EntryFilter(state=SkillState.PUBLISHED, has_scripts=HasScripts.UNKNOWN)
        assert walked(graph, published, 2) == ["lib:c"]
        assert walked(graph, EntryFilter(name="b", has_scripts=HasScripts.TRUE), 2) == []
        assert walked(graph, EntryFilter(embedded=True), 1) == ["lib:a", "lib:b"]
        assert walked(graph, EntryFilter(embedded=False), 2) == ["lib:c", "lib:d", "lib:e"]
        both = EntryFilter(embedded=True, has_scripts=HasScripts.FALSE)
        assert walked(graph, both, 2) == ["lib:b"]
        counted = {
            (one.state.value, one.has_scripts, one.embedded): one.entries
            for one in graph.count_entries()
        }
        assert counted == {
            ("published", True, True): 1,
            ("published", False, True): 1,
            ("published", None, False): 1,
            ("published", False, False): 1,
            ("failed", None, False): 1,
        }
        graph.remove([key("a", 3)])
        assert graph.get_entries(["lib:a"])[0].has_scripts is None

    def test_entries_by_language_licence_and_level(self, graph: SkillGraph) -> None:
        kinds = [("a", "en", "MIT", 0), ("b", "zh", "MIT", 2), ("c", "en", "", 3)]
        graph.publish(
            [
                replace(
                    publication(path, 1), language=language, licence=licence, safety_level=level
                )
                for path, language, licence, level in kinds
            ]
        )
        graph.record_failures([(key("d", 2), "lib", "d", "no text")])
        assert walked(graph, EntryFilter(language="en"), 1) == ["lib:a", "lib:c"]
        assert walked(graph, EntryFilter(licence="MIT", language="zh"), 1) == ["lib:b"]
        assert walked(graph, EntryFilter(licence="MIT", name="a"), 1) == ["lib:a"]
        risky = EntryFilter(state=SkillState.PUBLISHED, safety_level=2)
        assert walked(graph, risky, 1) == ["lib:b", "lib:c"]
        every = ["lib:a", "lib:b", "lib:c", "lib:d"]
        assert walked(graph, EntryFilter(safety_level=0), 2) == every
        assert walked(graph, EntryFilter(licence=""), 1) == ["lib:c", "lib:d"]
        assert walked(graph, EntryFilter(language=""), 2) == ["lib:d"]
        assert sorted(graph.count_entries()) == sorted(
            [
                EntryCount("lib", SkillState.PUBLISHED, "en", "MIT", 0, None, False, 1),
                EntryCount("lib", SkillState.PUBLISHED, "zh", "MIT", 2, None, False, 1),
                EntryCount("lib", SkillState.PUBLISHED, "en", "", 3, None, False, 1),
                EntryCount("lib", SkillState.FAILED, "", "", 0, None, False, 1),
            ]
        )

    def test_states_of_sources(self, graph: SkillGraph) -> None:
        graph.publish([publication("a", 1), publication("b", 1), publication("a", 1, source="li")])
        graph.record_failures([(key("c", 3), "lib", "c", "no text")])
        graph.request_ingest([("lib:d", "lib", "d")], 4)
        counted = graph.count_states_by_source(["lib", "absent"])
        none = dict.fromkeys(SkillState, 0)
        assert counted["lib"] == none | {
            SkillState.PUBLISHED: 2,
            SkillState.FAILED: 1,
            SkillState.PENDING: 1,
        }
        assert counted["absent"] == none
        assert graph.count_states_by_source([]) == {}

    def test_unembedded_most_used_first(self, graph: SkillGraph) -> None:
        graph.publish([publication("a", 1), publication("b", 2), publication("c", 3)])
        graph.increment_uses(["lib:b", "lib:c"])
        graph.increment_uses(["lib:c", "lib:missing"])
        assert graph.list_awaiting_embedding(2) == [key("c", 3), key("b", 2)]
        graph.mark_embedded([key("c", 3), key("b", 1), key("missing", 1)])
        assert graph.list_awaiting_embedding(9) == [key("b", 2), key("a", 1)]
        assert graph.get_entries(["lib:c"])[0].embedded
        graph.publish([publication("c", 4)])
        assert graph.list_awaiting_embedding(1) == [key("c", 4)]

    def test_skill_vectors_are_awaited_by_use(self, graph: SkillGraph) -> None:
        known = replace(publication("d", 4), has_vectors=True)
        graph.publish([publication("a", 1), publication("b", 2), publication("c", 3), known])
        graph.increment_uses(["lib:b", "lib:c"])
        graph.increment_uses(["lib:c", "lib:d"])
        assert graph.list_awaiting_vectors(2) == [key("c", 3), key("b", 2)]
        graph.mark_vectors_stored([key("c", 3), key("b", 1), key("missing", 1)])
        assert graph.list_awaiting_vectors(9) == [key("b", 2), key("a", 1)]
        states = {entry.skill_id: entry.has_vectors for entry in graph.get_entries()}
        assert states == {"lib:a": False, "lib:b": False, "lib:c": True, "lib:d": True}
        graph.publish([publication("c", 5), replace(publication("b", 6), has_vectors=True)])
        assert graph.list_awaiting_vectors(9) == [key("c", 5), key("a", 1)]
        graph.remove([key("c", 7)])
        assert graph.list_awaiting_vectors(9) == [key("a", 1)]

    def test_counts(self, graph: SkillGraph) -> None:
        graph.publish([publication("a", 1), publication("b", 2)])
        link_all(graph, link("a", "b"))
        graph.mark_embedded([key("a", 1)])
        graph.mark_vectors_stored([key("b", 2)])
        graph.request_ingest([("lib:c", "lib", "c")], 3)
        graph.record_failures([(key("d", 4), "lib", "d", "bad")])
        graph.remove([key("e", 5)])
        graph.publish([publication("f", 6)])
        assert graph.get_counts() == {
            "pending": 1,
            "published": 3,
            "failed": 1,
            "held": 0,
            "removed": 1,
            "with_vectors": 1,
            "embedded": 1,
            "unlinked": 1,
            "waiting": 1,
            "links": 1,
        }

    # -- the change feed
    def test_changes_since_an_epoch(self, graph: SkillGraph) -> None:
        start = graph.get_changes_since(0)
        assert (start.pointers, start.relinked) == ({}, frozenset())
        graph.publish([publication("a", 1), publication("b", 2)])
        first = graph.get_changes_since(start.epoch)
        assert first.epoch > start.epoch
        assert first.pointers == {"lib:a": 1, "lib:b": 2}
        graph.remove([key("a", 3)])
        second = graph.get_changes_since(first.epoch)
        assert second.epoch > first.epoch
        assert first.pointers | second.pointers == {"lib:a": 0, "lib:b": 2}
        nothing = graph.get_changes_since(second.epoch)
        assert nothing.epoch == second.epoch
        assert first.pointers | second.pointers | nothing.pointers == {"lib:a": 0, "lib:b": 2}

    def test_changes_miss_nothing_and_no_pointer_steps_back(self, graph: SkillGraph) -> None:
        skills, rounds, writers = 8, 12, 3
        start = graph.allocate_sequence(writers * rounds).start
        done = threading.Event()
        seen: dict[str, list[int]] = {}

        def write(worker: int) -> None:
            for turn in range(rounds):
                seq = start + turn * writers + worker
                batch = [publication(f"s{(turn + n) % skills}", seq) for n in range(4)]
                graph.publish(batch if turn % 2 else batch[::-1])

        def read() -> None:
            epoch, last = 0, False
            while not last:
                last = done.is_set()
                epoch, moved, _ = graph.get_changes_since(epoch)
                for skill_id, seq in moved.items():
                    seen.setdefault(skill_id, []).append(seq)

        reader = threading.Thread(target=read)
        threads = [threading.Thread(target=write, args=(n,)) for n in range(writers)]
        for thread in (reader, *threads):
            thread.start()
        for thread in threads:
            thread.join()
        done.set()
        reader.join()
        assert all(seqs == sorted(seqs) for seqs in seen.values())
        assert {skill_id: seqs[-1] for skill_id, seqs in seen.items()} == pointers(graph)
        newest = {
            f"lib:s{(turn + n) % skills}": start + turn * writers + writers - 1
            for turn in range(rounds)
            for n in range(4)
        }
        assert pointers(graph) == newest

    def test_links_change_the_rows_of_both_ends(self, graph: SkillGraph) -> None:
        graph.publish([publication(path, n) for n, path in enumerate("abcd", 1)])
        before = graph.get_changes_since(0).epoch
        link_all(graph, link("a", "b"), link("c", "d"))
        changed = graph.get_changes_since(before)
        assert changed.relinked == {"lib:a", "lib:b", "lib:c", "lib:d"}
        graph.replace_links({"lib:a": [link("a", "b")]}, [])
        assert graph.get_changes_since(changed.epoch).epoch == changed.epoch
        graph.remove([key("d", 9)])
        assert graph.get_changes_since(changed.epoch).relinked >= {"lib:c", "lib:d"}

    # -- links and rows
    def test_replace_links_is_whole_and_per_owner(self, graph: SkillGraph) -> None:
        graph.publish([publication(path, n) for n, path in enumerate("abc", 1)])
        link_all(graph, link("a", "b"), link("b", "a"))
        graph.replace_links({"lib:a": [link("a", "c"), link("a", "c")]}, [])
        assert {(one.source, one.target) for one in graph.get_links(["lib:a"])["lib:a"]} == {
            ("lib:a", "lib:c"),
            ("lib:b", "lib:a"),
        }
        assert graph.get_links(["lib:c"])["lib:c"] == [link("a", "c")]
        graph.replace_links({"lib:a": []}, [])
        assert graph.get_counts()["links"] == 1

    def test_links_of_every_type_are_counted(self, graph: SkillGraph) -> None:
        graph.publish([publication("a", 1), publication("b", 2)])
        graph.replace_links({"lib:a": [link("a", "b", kind) for kind in LinkType]}, [])
        assert graph.get_counts()["links"] == len(LinkType)

    def test_of_several_links_alike_the_heaviest_stands(self, graph: SkillGraph) -> None:
        graph.publish([publication("a", 1), publication("b", 2)])
        alike = [
            Link("lib:a", "lib:a", "lib:b", LinkType.DEPENDENCY, weight, evidence)
            for weight, evidence in ((0.5, "z"), (0.8, "y"), (0.8, "x"), (0.1, "w"))
        ]
        for links in (alike, alike[::-1]):
            graph.replace_links({"lib:a": links}, [])
            assert graph.get_links(["lib:a"])["lib:a"] == [alike[2]]

    def test_safety_records(self, graph: SkillGraph) -> None:
        first = publication("a", 1, safety_level=2, licence="MIT", scanner_version=3)
        graph.publish([first, publication("b", 2), publication("c", 3)])
        graph.remove([key("c", 9)])
        graph.save_judgements("some-model", {"lib:b": ("hash-2", JUDGEMENT)})
        wanted = ["lib:b", "lib:a", "lib:c", "lib:missing", "lib:a"]
        found = {one.skill_id: one for one in graph.get_safety_records(wanted)}
        assert found == {
            entry.skill_id: SafetyRecord(
                entry.skill_id,
                entry.seq,
                entry.safety_level,
                entry.licence,
                entry.scanner_version,
                entry.judgements,
            )
            for entry in graph.get_entries(["lib:a", "lib:b"])
        }
        assert found["lib:b"].judgements
        assert graph.get_safety_records([]) == []

    def test_links_among(self, graph: SkillGraph) -> None:
        graph.publish([publication(path, n) for n, path in enumerate("abc", 1)])
        link_all(graph, link("a", "b"), link("a", "c"), link("b", "a", LinkType.CONFLICT))
        assert graph.get_links_among(["lib:b", "lib:a", "lib:x"]) == [
            link("a", "b"),
            link("b", "a", LinkType.CONFLICT),
        ]
        assert graph.get_links_among([]) == []

    def test_an_id_that_is_given_twice_counts_once(self, graph: SkillGraph) -> None:
        graph.publish([publication("a", 1), publication("b", 2)])
        link_all(graph, one := link("a", "b"))
        twice = ["lib:a", "lib:a"]
        assert [entry.skill_id for entry in graph.get_entries(twice)] == ["lib:a"]
        assert [record.skill_id for record in graph.get_safety_records(twice)] == ["lib:a"]
        assert graph.get_links(twice) == graph.get_owned_links(twice) == {"lib:a": [one]}
        assert graph.get_links_among([*twice, "lib:b"]) == [one]
        assert len(graph.get_adjacency(twice, 9)["lib:a"].neighbours) == 1
        assert graph.min_link_weight(LinkType.SEMANTIC, 2, twice) == {}

    def test_an_id_that_is_only_alike_is_another(self, graph: SkillGraph) -> None:
        graph.publish([publication("a", 1), publication("b", 2)])
        link_all(graph, link("a", "b"))
        for other in ("lib:a\0", "lib:a\0b", "LIB:A", "lib:a ", "lib:\uff41", ""):
            assert graph.get_entries([other]) == []
            assert graph.get_safety_records([other]) == []
            assert graph.get_links([other]) == {other: []}
            assert graph.get_links_among([other, "lib:b"]) == []
            assert graph.get_adjacency([other], 9)[other].neighbours == ()
            assert graph.get_owned_links([other]) == {}
            assert graph.get_link_features([other]) == {}
            assert graph.min_link_weight(LinkType.SEMANTIC, 1, [other]) == {}
            graph.mark_for_linking([other])
            assert marked(graph) == set()

    def test_rows(self, graph: SkillGraph) -> None:
        graph.publish([publication(path, n) for n, path in enumerate("abcd", 1)])
        link_all(
            graph,
            link("a", "b", weight=0.25),
            link("a", "c", weight=0.75),
            link("a", "b", LinkType.DEPENDENCY, 1.0),
            link("d", "a", weight=0.5),
        )
        whole = graph.get_adjacency(["lib:a"], 10)["lib:a"]
        assert whole.neighbours == (
            Neighbour("lib:b", LinkType.DEPENDENCY, True, 1.0),
            Neighbour("lib:c", LinkType.SEMANTIC, True, 0.75),
            Neighbour("lib:d", LinkType.SEMANTIC, False, 0.5),
            Neighbour("lib:b", LinkType.SEMANTIC, True, 0.25),
        )
        cut = graph.get_adjacency(["lib:a", "lib:c", "lib:missing"], 2)
        assert cut["lib:a"].neighbours == whole.neighbours[:2]
        assert (
            cut["lib:a"].totals
            == whole.totals
            == {
                (LinkType.DEPENDENCY, True): 1.0,
                (LinkType.SEMANTIC, True): 1.0,
                (LinkType.SEMANTIC, False): 0.5,
            }
        )
        assert cut["lib:missing"].neighbours == ()

    def test_withdrawal_takes_the_links_along(self, graph: SkillGraph) -> None:
        graph.publish([publication(path, n) for n, path in enumerate("abc", 1)])
        link_all(graph, link("a", "b"), link("b", "c"), link("c", "a"))
        graph.remove([key("b", 9)])
        assert graph.get_counts()["links"] == 1
        assert marked(graph) == {"lib:a"}
        graph.replace_links({"lib:b": [link("b", "c")]}, [])
        assert graph.get_counts()["links"] == 1

    def test_a_link_to_a_withdrawn_skill_marks_its_owner(self, graph: SkillGraph) -> None:
        graph.publish([publication("a", 1), publication("b", 2)])
        marks = graph.list_awaiting_linking(10)
        graph.remove([key("b", 3)])
        graph.replace_links({"lib:a": [link("a", "b")]}, marks)
        assert graph.get_counts()["links"] == 0
        assert marked(graph) == {"lib:a"}

    # -- marks for linking
    def test_marks_are_cleared_only_if_unchanged(self, graph: SkillGraph) -> None:
        graph.publish([publication("a", 1), publication("b", 2)])
        marks = graph.list_awaiting_linking(10)
        assert [skill for skill, _ in marks] == ["lib:a", "lib:b"]
        assert graph.list_awaiting_linking(1) == marks[:1]
        graph.publish([publication("a", 3)])
        graph.replace_links({"lib:a": [], "lib:b": []}, marks)
        assert marked(graph) == {"lib:a"}

    def test_publishing_marks_the_skill_and_removal_who_links_to_it(
        self, graph: SkillGraph
    ) -> None:
        graph.publish([publication(path, n) for n, path in enumerate("abc", 1)])
        link_all(graph, link("a", "b"))
        assert marked(graph) == set()
        graph.publish([publication("b", 9, body_terms={5: 1.0})])
        assert marked(graph) == {"lib:b"}
        graph.remove([key("b", 10)])
        assert marked(graph) == {"lib:a"}

    def test_owned(self, graph: SkillGraph) -> None:
        graph.publish([publication(path, n) for n, path in enumerate("abcd", 1)])
        kept = [link("a", "b"), link("a", "c", LinkType.DEPENDENCY)]
        other = Link("lib:b", "lib:a", "lib:c", LinkType.WORKFLOW, 0.8, "text")
        graph.replace_links({"lib:a": kept, "lib:b": [other]}, graph.list_awaiting_linking(10))
        graph.remove([key("d", 9)])
        found = graph.get_owned_links(["lib:a", "lib:b", "lib:c", "lib:d", "lib:missing"])
        assert {owner: set(links) for owner, links in found.items()} == {
            "lib:a": set(kept), "lib:b": {other}, "lib:c": set(),
        }  # fmt: skip

    def test_weakest(self, graph: SkillGraph) -> None:
        graph.publish([publication(path, n) for n, path in enumerate("abcd", 1)])
        link_all(
            graph,
            link("a", "b", weight=0.5),
            link("a", "c", weight=0.25),
            link("a", "d", LinkType.ALTERNATIVE, 0.125),
            link("b", "c", weight=0.75),
            link("b", "a", weight=0.0625, owner="a"),
        )
        every = ["lib:a", "lib:b", "lib:c", "lib:missing"]
        assert graph.min_link_weight(LinkType.SEMANTIC, 2, every) == {"lib:a": 0.25}
        assert graph.min_link_weight(LinkType.SEMANTIC, 1, every) == {"lib:a": 0.25, "lib:b": 0.75}
        assert graph.min_link_weight(LinkType.SEMANTIC, 1, every[1:]) == {"lib:b": 0.75}

    def test_skills_can_be_marked_for_linking(self, graph: SkillGraph) -> None:
        graph.publish([publication(path, n) for n, path in enumerate("abc", 1)])
        link_all(graph)
        graph.remove([key("c", 9)])
        link_all(graph)
        graph.mark_for_linking(["lib:b", "lib:c", "lib:missing"])
        [(skill_id, epoch)] = graph.list_awaiting_linking(10)
        graph.mark_for_linking(["lib:b"])
        assert skill_id == "lib:b"
        graph.replace_links({"lib:b": []}, [("lib:b", epoch)])
        assert marked(graph) == {"lib:b"}
        graph.mark_for_linking([])
        assert marked(graph) == {"lib:b"}

    def test_versions_of_the_inputs_of_linking_are_kept(
        self, graph: SkillGraph, reopen: Reopen
    ) -> None:
        for which in LinkInput:
            assert graph.get_input_version(which) == ""
            graph.set_input_version(which, f"{which} 1")
        graph.set_input_version(LinkInput.OUTCOMES, "outcomes 2")
        known = reopen()
        assert known.get_input_version(LinkInput.OUTCOMES) == "outcomes 2"
        assert known.get_input_version(LinkInput.SETTINGS) == "link_origin 1"
        for text in ("0123", " 1", "1e5", "语 9", ""):
            graph.set_input_version(LinkInput.SETTINGS, text)
            assert graph.get_input_version(LinkInput.SETTINGS) == text

    def test_names_that_come_and_go_mark_who_mentions_them(self, graph: SkillGraph) -> None:
        graph.publish(
            [
                publication("a", 1, mentions=(mention("New_Name"),)),
                publication("b", 2, mentions=(mention("plugin:old name"),)),
                publication("c", 3, mentions=(mention("lib:x"),), source="elsewhere"),
                publication("d", 4, mentions=(mention("new-name"),), source="elsewhere"),
                publication("x", 5, name="old-name"),
            ]
        )
        link_all(graph)
        graph.publish([publication("x", 6, name="new name")])
        assert marked(graph) == {"lib:a", "lib:b", "elsewhere:c", "lib:x"}
        link_all(graph)
        graph.publish([publication("x", 7, name="new name")])
        assert marked(graph) == {"lib:x"}
        link_all(graph)
        graph.record_failures([(key("x", 8), "lib", "x", "bad")])
        assert marked(graph) == {"lib:a", "elsewhere:c"}

    # -- what linking reads
    def test_link_facts(self, graph: SkillGraph) -> None:
        mentions = (mention("b"), Mention("中文 名", "order", 3, "先", 2))
        big = (1 << 63) - 1
        graph.publish(
            [
                publication("a", 1, mentions=mentions, body_terms={big: 0.5, 3: 0.25}),
                publication("b", 2, description_terms={3: 1.0}),
            ]
        )
        facts = graph.get_link_features(["lib:a", "lib:b", "lib:missing"])
        assert set(facts) == {"lib:a", "lib:b"}
        assert facts["lib:a"].body_terms == {big: 0.5, 3: 0.25}
        assert facts["lib:a"].mentions == mentions
        assert (facts["lib:b"].name, facts["lib:b"].path) == ("b", "b")
        graph.publish([publication("a", 3, body_terms={8: 1.0})])
        graph.remove([key("b", 4)])
        left = graph.get_link_features(["lib:a", "lib:b"])
        assert {skill_id: one.body_terms for skill_id, one in left.items()} == {"lib:a": {8: 1.0}}

    def test_find_by_name(self, graph: SkillGraph) -> None:
        graph.publish(
            [
                publication("a", 1, name="Data Tool", mentions=(mention("B_b"),)),
                publication("x/a", 2, name="data-tool"),
                publication("a", 3, name="data-tool", source="other"),
            ]
        )
        assert graph.find_by_name("lib", ["data_tool", "missing"]) == {
            "data-tool": ["lib:a", "lib:x/a"]
        }
        assert mentioning(graph, "b b") == {"lib:a"}
        assert mentioning(graph, "b b", "other") == set()
        graph.remove([key("a", 4)])
        assert graph.find_by_name("lib", ["data-tool"]) == {"data-tool": ["lib:x/a"]}
        assert mentioning(graph, "b-b") == set()

    def test_a_name_that_normalisation_lengthens_is_found(self, graph: SkillGraph) -> None:
        name = "\N{ARABIC LIGATURE SALLALLAHOU ALAYHE WASALLAM}" * 200
        graph.publish([publication("a", 1, name=name), publication("b", 2)])
        assert walked(graph, EntryFilter(name=name), 9) == ["lib:a"]
        assert list(graph.find_by_name("lib", [name]).values()) == [["lib:a"]]

    def test_the_longest_ids_are_stored(self, graph: SkillGraph) -> None:
        path = "語" * 1_364  # as an event may name it: 4,096 bytes with its source
        graph.request_ingest([(f"lib:{path}", "lib", path)], 1)
        graph.publish([publication(path, 1, rules=("unread",)), publication("b", 2)])
        link_all(graph, one := link("b", path))
        assert graph.get_links(["lib:b"]) == {"lib:b": [one]}
        graph.update_file_signatures("lib", {path: "seen"}, [])
        assert graph.get_file_signatures("lib") == {path: "seen"}
        assert [entry.path for entry in graph.get_entries_under("lib", path)] == [path]
        assert graph.remove([key(path, 3)]) == [f"lib:{path}"]

    # -- durability
    def test_everything_is_there_again(self, graph: SkillGraph, reopen: Reopen) -> None:
        graph.save_source(Source("lib", "directory", "/srv/lib"))
        graph.publish([publication("a", 1, body_terms={1: 1.0}), publication("b", 2)])
        graph.replace_links({"lib:a": [link("a", "b")]}, graph.list_awaiting_linking(1))
        graph.request_ingest([("lib:c", "lib", "c")], 3)

        def everything(of: SkillGraph) -> list[object]:
            return [
                of.list_sources(),
                of.get_entries(),
                of.get_changes_since(0),
                of.get_links(["lib:a", "lib:missing"]),
                of.list_awaiting_linking(9),
                of.list_awaiting_ingest(9),
                of.get_link_features(["lib:a"]),
                of.get_counts(),
            ]

        before = everything(graph)
        graph.close()
        assert everything(reopen()) == before


class TestSqliteSkillGraph(SkillGraphContract):
    def test_changes_are_returned_once(self, graph: SkillGraph) -> None:
        graph.publish([publication("a", 1), publication("b", 2)])
        first = graph.get_changes_since(0)
        link_all(graph, link("a", "b"))
        second = graph.get_changes_since(first.epoch)
        assert second.pointers == {}
        assert second.relinked == frozenset({"lib:a", "lib:b"})
        assert graph.get_changes_since(second.epoch) == (second.epoch, {}, frozenset())

    @pytest.fixture
    def reopen(self, tmp_path: Path) -> Iterator[Reopen]:
        with reopening_sqlite_graph(tmp_path) as reopened:
            yield reopened


class TestNeo4jSkillGraph(SkillGraphContract):
    @pytest.fixture
    def reopen(self, neo4j_url: str, neo4j_password_file: Path | None) -> Iterator[Reopen]:
        with reopening_neo4j_graph(neo4j_url, neo4j_password_file) as reopened:
            yield reopened
