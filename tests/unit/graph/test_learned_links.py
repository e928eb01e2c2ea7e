"""Links from outcomes: a function of the library, the outcomes and the dismissals, whatever the
order in which they came."""

from __future__ import annotations

import tempfile
from collections.abc import Iterator, Sequence
from contextlib import suppress
from pathlib import Path
from types import SimpleNamespace
from typing import Any, cast

import pytest
from hypothesis import HealthCheck, given, settings
from hypothesis import strategies as st

from config.errors import NotFoundError
from config.learning_settings import LearningSettings
from graph.links.learned_links import adapt_weight, get_note, is_learned, without_note
from graph.links.linker import Linker
from graph.local.store import SqliteSkillGraph
from graph.records import DismissedLink, Link, LinkKey, LinkType, Mention, Publication
from skills.outcomes.model import AnsweredQuery, Outcome, OutcomeKind, Reporter
from skills.record import RevisionKey
from tasks.outcomes.links.links_from_use import MAX_COMPANIONS, LinksFromUse
from tasks.outcomes.links.mark_changed import (
    find_outdated,
    has_unread_outcomes,
    mark_for_outcomes,
)
from tasks.outcomes.sqlite import SqliteOutcomeStore
from tasks.refine.linking.candidates import find_declared

NAMES = "abcde"
TEXTS = {"a": {1: 0.8, 2: 0.6}, "b": {1: 0.6, 2: 0.8}, "c": {1: 1.0}, "d": {2: 0.8, 3: 0.6}}
DAY = 86_400.0
SETTINGS = LearningSettings()


class Library:
    """A catalog that links, and outcomes from which it learns."""

    def __init__(self, path: Path, learning: LearningSettings = SETTINGS) -> None:
        self.graph = SqliteSkillGraph(path / "graph.db", writable=True)
        self.outcomes = SqliteOutcomeStore(":memory:")
        self.start(learning)

    def start(self, learning: LearningSettings = SETTINGS) -> None:
        """Begin anew, as another process does."""
        learned = LinksFromUse(self.outcomes, self.graph, learning) if learning.links else None
        self.learned = learned
        self.linker = Linker(self.graph, learned_links=learned)
        self.services = cast(
            Any,
            SimpleNamespace(graph=self.graph, outcomes=self.outcomes, learned_links=learned),
        )

    def publish(self, *names: str, mentions: Sequence[Mention] = ()) -> None:
        self.graph.publish(
            [
                Publication(
                    RevisionKey(f"lib:{name}", seq),
                    "lib",
                    name,
                    f"hash-{name}",
                    name,
                    f"What {name} does",
                    body_terms=TEXTS.get(name, {9: 1.0}),
                    description_terms={ord(name[0]): 1.0},
                    mentions=tuple(mentions),
                )
                for name, seq in zip(names, self.graph.allocate_sequence(len(names)), strict=True)
            ]
        )

    def remove(self, name: str) -> None:
        self.graph.remove([RevisionKey(f"lib:{name}", self.graph.allocate_sequence(1)[0])])

    def report(self, number: int, *said: tuple[str, str], **more: Any) -> None:
        """Outcomes of one query: (skill, `helped`, `used`, `failed` or a reason of rejection)."""
        owner, day = more.get("owner", ""), more.get("day", 1)
        query_id, time = f"q{number}", day * DAY
        self.outcomes.add_answers(
            [AnsweredQuery(query_id, owner, "", f"task {number}", time, hit=True)]
        )
        self.outcomes.add_outcomes(
            [
                Outcome(
                    f"{query_id}-{owner}-{place}",
                    query_id,
                    f"lib:{name}",
                    OutcomeKind(what) if what in list(OutcomeKind) else OutcomeKind.REJECTED,
                    more.get("by", Reporter.PERSON),
                    owner,
                    time,
                    "" if what in list(OutcomeKind) else what,
                    f"lib:{more['other']}"
                    if "other" in more and what not in list(OutcomeKind)
                    else "",
                    place,
                    more.get("result", ""),
                )
                for place, (name, what) in enumerate(said, 1)
            ]
        )

    def dismiss(self, source: str, target: str, kind: LinkType) -> None:
        self.graph.dismiss_link(DismissedLink(f"lib:{source}", f"lib:{target}", kind, "wrong"))

    def restore(self, source: str, target: str, kind: LinkType) -> None:
        self.graph.restore_link(LinkKey(f"lib:{source}", f"lib:{target}", kind))

    def link(self) -> None:
        """Link until no skill is marked."""
        for _ in range(50):
            mark_for_outcomes(self.services)
            marks = self.graph.list_awaiting_linking(2)
            if not marks:
                assert not has_unread_outcomes(self.services)
                return
            self.linker.relink(marks)
        raise AssertionError("skills are marked again and again")

    def links(self) -> set[Link]:
        ids = [entry.skill_id for entry in self.graph.get_entries() if entry.seq]
        return {link for owned in self.graph.get_owned_links(ids).values() for link in owned}

    def of_type(self, kind: LinkType) -> dict[tuple[str, str], Link]:
        return {(one.source[4:], one.target[4:]): one for one in self.links() if one.type is kind}

    def close(self) -> None:
        self.graph.close()
        self.outcomes.close()


@pytest.fixture
def library(tmp_path: Path) -> Iterator[Library]:
    found = Library(tmp_path)
    found.publish(*NAMES)
    found.link()
    yield found
    found.close()


# -- used together
def test_skills_that_helped_together_are_linked_both_ways(library: Library) -> None:
    library.report(1, ("a", "helped"), ("b", "helped"))
    library.report(2, ("a", "helped"))
    library.link()
    links = library.of_type(LinkType.USED_TOGETHER)
    assert links.keys() == {("a", "b"), ("b", "a")}
    # b helped in one task, a in two.
    assert links["b", "a"].weight == pytest.approx(1 / 2)
    assert links["a", "b"].weight == pytest.approx(1 / 3)
    assert links["a", "b"].evidence == "outcomes: helped together in 1 task of 1 owner"


def test_a_rejection_along_with_a_skill_that_helped_makes_the_link_lighter(
    library: Library,
) -> None:
    library.report(1, ("a", "helped"), ("e", "helped"))
    library.link()
    before = library.of_type(LinkType.USED_TOGETHER)["a", "e"]
    library.report(2, ("a", "helped"), ("e", "wrong_step"))
    library.link()
    after = library.of_type(LinkType.USED_TOGETHER)["a", "e"]
    assert after.weight < before.weight
    assert after.evidence.endswith("; lib:e rejected with it in 1 task of 1 owner")


def test_a_skill_has_so_many_companions_at_most(library: Library) -> None:
    others = [f"x{n:02}" for n in range(MAX_COMPANIONS + 3)]
    library.publish(*others)
    # Tasks with all of them: equal weights, so that the first by id are kept.
    for number in range(20):
        library.report(number, ("a", "helped"), *((name, "helped") for name in others))
    library.link()
    links = library.of_type(LinkType.USED_TOGETHER)
    listed = sorted(target for source, target in links if source == "a")
    assert listed == others[:MAX_COMPANIONS]


def test_one_owner_alone_links_nothing_unless_it_is_trusted(tmp_path: Path) -> None:
    library = Library(tmp_path)
    library.publish(*NAMES)
    library.report(1, ("a", "helped"), ("b", "helped"), owner="ci")
    library.link()
    assert library.of_type(LinkType.USED_TOGETHER) == {}
    library.start(LearningSettings(trusted_owners=("ci",)))
    library.link()
    assert library.of_type(LinkType.USED_TOGETHER).keys() == {("a", "b"), ("b", "a")}
    library.start()
    library.report(2, ("a", "helped"), ("b", "helped"), owner="team")
    library.link()
    assert "of 2 owners" in library.of_type(LinkType.USED_TOGETHER)["a", "b"].evidence
    library.close()


def test_a_contributor_of_the_source_does_not_count(library: Library) -> None:
    for owner in ("ci", "team"):
        library.report(len(owner), ("a", "helped"), ("b", "helped"), owner=owner)
    library.link()
    assert library.of_type(LinkType.USED_TOGETHER)
    library.outcomes.add_contributor("lib", "ci")
    assert has_unread_outcomes(library.services)
    library.link()
    assert library.of_type(LinkType.USED_TOGETHER) == {}


# -- weights of other links
def test_a_confirmed_dependency_comes_near_to_a_declared_one(library: Library) -> None:
    library.publish("f", mentions=[Mention("a", "quoted", 3, "see a")])
    library.link()
    before = library.of_type(LinkType.DEPENDENCY)["f", "a"]
    for number in range(30):
        library.report(number, ("f", "helped"), ("a", "helped"))
    library.link()
    after = library.of_type(LinkType.DEPENDENCY)["f", "a"]
    assert before.weight < after.weight < 0.999
    assert after.evidence.endswith(before.evidence)
    assert "helped together in 30 tasks of 1 owner" in get_note(after)
    assert without_note(after).weight == pytest.approx(before.weight)


def test_a_declared_dependency_keeps_its_weight_until_most_tasks_reject_it(
    library: Library,
) -> None:
    library.publish("f", mentions=[Mention("a", "depends", 3, "needs a")])
    for number in range(2):
        library.report(number, ("f", "helped"), ("a", "wrong_tool"))
    library.link()
    assert library.of_type(LinkType.DEPENDENCY)["f", "a"].weight == 1.0
    library.report(2, ("f", "helped"), ("a", "wrong_tool"))
    library.link()
    assert library.of_type(LinkType.DEPENDENCY)["f", "a"].weight < 0.5
    assert list(find_declared(library.services, "lib:f")) == ["lib:a"]


def test_a_link_along_which_rejected_skills_came_loses_weight(library: Library) -> None:
    before = library.of_type(LinkType.SEMANTIC)["a", "b"]
    for number in range(3):
        library.report(number, ("b", "helped"), ("a", "wrong_domain"))
    library.link()
    for ends in (("a", "b"), ("b", "a")):
        after = library.of_type(LinkType.SEMANTIC)[ends]
        assert after.weight == pytest.approx(before.weight * 0.4)
        assert "rejected with it in 3 tasks" in get_note(after)
    library.outcomes.forget_owner("")
    library.link()
    assert library.of_type(LinkType.SEMANTIC)["a", "b"] == before


def test_evidence_of_skills_cannot_pass_for_learned(library: Library) -> None:
    hostile = "outcomes x9.00 (helped): outcomes: helped together in 900 tasks"
    library.publish("f", mentions=[Mention("a", "quoted", 3, hostile)])
    library.link()
    link = library.of_type(LinkType.DEPENDENCY)["f", "a"]
    assert not is_learned(link)
    assert get_note(link) == ""
    assert without_note(link) == link
    assert find_outdated(library.graph, library.learned, ["lib:a", "lib:f"]) == set()


# -- conflicts
def test_a_rejection_that_names_another_skill_makes_a_conflict(library: Library) -> None:
    library.report(1, ("a", "incompatible"), other="b", by=Reporter.AGENT)
    library.link()
    assert library.of_type(LinkType.CONFLICT) == {}
    library.report(2, ("b", "incompatible"), other="a", by=Reporter.AGENT)
    library.link()
    [conflict] = library.of_type(LinkType.CONFLICT).values()
    assert conflict.evidence == "outcomes: rejected as incompatible in 2 tasks of 1 owner"
    for number in range(3, 7):
        library.report(number, ("a", "helped"), ("b", "helped"))
    library.link()
    assert library.of_type(LinkType.CONFLICT) == {}


def test_skills_that_fail_together_but_not_alone_conflict(library: Library) -> None:
    for number in range(8):
        library.report(number, ("a", "helped"))
        library.report(20 + number, ("b", "helped"))
    for number in range(40, 43):
        library.report(number, ("a", "used"), ("b", "used"), result="failed")
        library.link()
        assert bool(library.of_type(LinkType.CONFLICT)) is (number >= 42)
    [conflict] = library.of_type(LinkType.CONFLICT).values()
    assert conflict.evidence == (
        "outcomes: failed together in 3 tasks of 1 owner, though each helped without the other in "
        "8 and 8"
    )


def test_skills_that_also_fail_alone_do_not_conflict(library: Library) -> None:
    for number in range(8):
        library.report(number, ("a", "failed" if number % 2 else "helped"))
        library.report(20 + number, ("b", "helped"))
    for number in range(40, 43):
        library.report(number, ("a", "failed"), ("b", "failed"))
    library.link()
    assert library.of_type(LinkType.CONFLICT) == {}


# -- linking again
def test_links_from_use_survive_a_change_of_the_skill_and_a_restart(library: Library) -> None:
    library.report(1, ("a", "helped"), ("b", "helped"), ("c", "wrong_step"))
    library.link()
    before = library.links()
    library.publish("a")
    library.link()
    library.start()
    library.graph.mark_for_linking([f"lib:{name}" for name in NAMES])
    library.link()
    assert library.links() == before


def test_turning_learning_off_and_on_again(library: Library) -> None:
    plain = library.links()
    library.report(1, ("a", "helped"), ("b", "helped"), ("c", "wrong_step"))
    library.link()
    learned = library.links()
    library.start(LearningSettings(links=False))
    library.link()
    assert library.links() == plain
    library.start()
    library.link()
    assert library.links() == learned != plain


def test_outcomes_that_were_deleted_before_a_start_leave_nothing(library: Library) -> None:
    plain = library.links()
    library.report(1, ("a", "helped"), ("b", "helped"), ("c", "wrong_step"))
    library.link()
    library.outcomes.forget_owner("")
    library.start()
    library.link()
    assert library.links() == plain


def test_only_the_newest_tasks_count(tmp_path: Path) -> None:
    library = Library(tmp_path, LearningSettings(past_tasks=2))
    library.publish(*NAMES)
    for number, names in enumerate(("ab", "cd", "ae"), 1):
        library.report(number, *((name, "helped") for name in names), day=number, owner="")
        library.link()
    assert library.of_type(LinkType.USED_TOGETHER).keys() == {
        ("c", "d"), ("d", "c"), ("a", "e"), ("e", "a")
    }  # fmt: skip
    library.outcomes.forget_before(2.5 * DAY)
    library.link()
    assert library.of_type(LinkType.USED_TOGETHER).keys() == {("a", "e"), ("e", "a")}
    library.close()


# -- dismissals
def test_a_dismissed_link_makes_room_for_the_next(tmp_path: Path) -> None:
    library = Library(tmp_path)
    names = [f"n{place:02}" for place in range(14)]
    library.publish("a", *names)
    TEXTS.update(dict.fromkeys(names, TEXTS["b"]))
    library.publish(*names)
    library.link()
    listed = {target for source, target in library.of_type(LinkType.SEMANTIC) if source == "a"}
    assert listed == set(names[:10])
    library.dismiss("a", "n03", LinkType.SEMANTIC)
    library.link()
    listed = {target for source, target in library.of_type(LinkType.SEMANTIC) if source == "a"}
    assert listed == {*names[:11]} - {"n03"}
    library.restore("n03", "a", LinkType.SEMANTIC)
    library.link()
    listed = {target for source, target in library.of_type(LinkType.SEMANTIC) if source == "a"}
    assert listed == set(names[:10])
    library.close()


SKILLS = st.sampled_from("abcd")
SAID = st.sampled_from(["helped", "used", "failed", "wrong_step", "redundant", "incompatible"])
REPORTS = st.tuples(
    st.just("report"),
    st.integers(0, 5),
    st.lists(st.tuples(SKILLS, SAID), min_size=1, max_size=4, unique_by=lambda one: one[0]),
    st.sampled_from(["", "ci", "team"]),
    st.sampled_from(list(Reporter)),
)
KINDS = st.sampled_from([LinkType.SEMANTIC, LinkType.USED_TOGETHER, LinkType.CONFLICT])
STEPS = st.lists(
    st.one_of(
        REPORTS,
        st.tuples(st.just("forget"), st.sampled_from(["", "ci"])),
        st.tuples(st.sampled_from(["publish", "remove"]), SKILLS),
        st.tuples(st.sampled_from(["dismiss", "restore"]), SKILLS, SKILLS, KINDS),
        st.tuples(st.sampled_from(["link", "start"])),
    ),
    min_size=2,
    max_size=14,
)


def apply(library: Library, step: tuple[Any, ...]) -> None:
    name, *rest = step
    if name == "report":
        number, said, owner, by = rest
        with suppress(NotFoundError):  # a query that was forgotten does not come back
            library.report(number, *said, owner=owner, by=by, other="e", day=number)
    elif name == "forget":
        library.outcomes.forget_owner(rest[0])
    else:
        getattr(library, name)(*rest)


@given(STEPS)
@settings(max_examples=40, deadline=None, suppress_health_check=[HealthCheck.too_slow])
def test_links_do_not_depend_on_the_order_of_what_happened(steps: list[tuple[Any, ...]]) -> None:
    with tempfile.TemporaryDirectory() as folder, tempfile.TemporaryDirectory() as other:
        library = Library(Path(folder))
        library.publish(*NAMES)
        for step in steps:
            apply(library, step)
        library.link()
        # The same library, outcomes and dismissals, which all come at once in another order.
        fresh = Library(Path(other))
        for one in library.graph.list_dismissed_links():
            fresh.graph.dismiss_link(one)
        left = list(library.outcomes.list_outcomes())
        answers = library.outcomes.get_answers(sorted({one.query_id for one in left}))
        fresh.outcomes.add_answers(list(answers.values()))
        for outcome in reversed(left):
            fresh.outcomes.add_outcomes([outcome])
        ids = [one.skill_id[4:] for one in library.graph.get_entries() if one.seq]
        for name in reversed(ids):
            fresh.publish(name)
        fresh.link()
        assert fresh.links() == library.links()
        library.close()
        fresh.close()


@given(
    weight=st.floats(0.05, 1.0),
    factor=st.floats(0.25, 3.0),
    kind=st.sampled_from(["related, line 3: see", "outcomes x2.00 (a): b", ""]),
)
def test_a_note_can_be_taken_away_again(weight: float, factor: float, kind: str) -> None:
    link = Link("a", "a", "b", LinkType.SEMANTIC, weight, f"texts {kind}")
    adapted = adapt_weight(link, factor, "rejected with it in 1 task of 1 owner")
    assert without_note(adapted).evidence == link.evidence
    assert without_note(adapted).weight == pytest.approx(link.weight)
    assert bool(get_note(adapted)) is (adapted != link)
