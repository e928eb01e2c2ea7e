"""Updates under review in ingest: nothing is published that a person did not approve."""

from __future__ import annotations

from typing import Any

import pytest
from hypothesis import example, given, settings
from hypothesis import strategies as st

from config.errors import TransientError, UsageError
from graph.records import SkillState
from search.revision_history import KeptRevision
from skills.record import RevisionKey
from skills.review import ReviewKind, ReviewRecord
from tasks.ingest.held.pinned import hold_back
from tasks.ingest.held.reviewed import request_decided
from tasks.ingest.preparation.prepare import UnreadableSkill
from tests.support.samples.one_skill import SKILL, OneSkill, open_skill, text_of
from workers.library.pins import pin_skill
from workers.library.review.decisions import ReviewDecision, Reviewer
from workers.library.revisions import Revision

REVIEW = {"policy": {"review": ["lib"]}}
ANA = Reviewer("local:ana", "read it")

_STEPS = st.lists(
    st.one_of(
        st.tuples(st.just("edit"), st.integers(0, 3)),
        st.tuples(st.just("ingest"), st.integers(1, 2)),
        st.tuples(st.sampled_from(["approve", "reject"]), st.integers(0, 3)),
        st.tuples(st.sampled_from(["remove", "break", "sweep"]), st.just(0)),
    ),
    max_size=16,
)


def decide(
    library: OneSkill, decision: ReviewDecision, place: int, verdicts: dict[str, ReviewDecision]
) -> None:
    """Decide about one of the revisions that can be read, and note it by its text."""
    if not library.services.graph.get_entries([SKILL]):
        return
    revisions = library.reader.list_revisions(SKILL)
    if place < len(revisions):
        try:
            library.reviews.decide(decision, SKILL, revisions[place].seq, ANA)
        except UsageError:  # it is published, or older than what is
            return
        verdicts[text_of(revisions[place].parsed)] = decision


@settings(max_examples=25)
@given(_STEPS)
@example([("ingest", 1), ("edit", 1), ("ingest", 1), ("approve", 1)])
def test_only_what_was_approved_is_published(steps: list[tuple[str, int]]) -> None:
    with open_skill(**REVIEW) as library:
        verdicts: dict[str, ReviewDecision] = {}
        ever_approved = set()
        library.edit(0)
        for name, value in steps:
            if name in ("approve", "reject"):
                decide(library, ReviewDecision(name), value, verdicts)
            else:
                getattr(library, {"break": "break_"}.get(name, name))(value)
            ever_approved |= {
                text for text, verdict in verdicts.items() if verdict is ReviewDecision.APPROVE
            }
        library.ingest(2)
        published = library.published_text()
        assert published in ever_approved | {""}
        if not library.text:
            assert published == ""
        elif verdicts.get(library.text) is ReviewDecision.APPROVE:
            assert published == library.text
        assert library.services.graph.list_awaiting_ingest(9) == []
        before = [one.seq for one in library.reader.list_revisions(SKILL)]
        library.ingest(2)  # again, without a change
        library.sweep(0)
        assert library.published_text() == published
        assert [one.seq for one in library.reader.list_revisions(SKILL)] == before


def waiting(library: OneSkill) -> list[ReviewRecord]:
    assert library.services.review_store is not None
    found = library.services.review_store.get([SKILL]).by_skill.get(SKILL, ())
    return [one for one in found if one.kind is ReviewKind.WAITING]


def approve_the_first_of_two(library: OneSkill) -> Revision:
    """Approve an update of which the source has a newer one by then; returns its revision."""
    library.edit(1)
    library.ingest(1)
    (first,) = library.reader.list_revisions(SKILL)
    library.edit(2)
    library.ingest(1)
    library.reviews.decide(ReviewDecision.APPROVE, SKILL, first.seq, ANA)
    library.ingest(1)
    return first


def test_a_new_skill_is_held_until_it_is_approved() -> None:
    with open_skill(**REVIEW) as library:
        library.edit(1)
        library.ingest(2)
        (entry,) = library.services.graph.get_entries([SKILL])
        assert (entry.state, entry.seq) == (SkillState.HELD, 0)
        (held,) = library.reader.list_revisions(SKILL)
        assert (held.state, held.is_reviewed) == ("held", False)
        assert [one.seq for one in waiting(library)] == [held.seq]
        library.reviews.decide(ReviewDecision.APPROVE, SKILL, held.seq, ANA)
        library.ingest(1)
        assert library.published_text() == "Text number 1."
        assert waiting(library) == []


def test_an_approved_revision_is_published_though_its_source_went_on() -> None:
    with open_skill(**REVIEW) as library:
        first = approve_the_first_of_two(library)
        assert library.published_text() == "Text number 1."
        held, published = library.reader.list_revisions(SKILL)
        assert (held.state, published.state) == ("held", "published")
        (record,) = waiting(library)
        assert (record.seq, record.content_hash) == (held.seq, held.kept.content_hash)
        assert record.content_hash != first.kept.content_hash
        assert request_decided(library.services) == 0


def test_an_update_is_numbered_anew_once_the_published_content_has_a_higher_seq() -> None:
    with open_skill(**REVIEW) as library:
        approve_the_first_of_two(library)
        (entry,) = library.services.graph.get_entries([SKILL])
        library.services.index.delete([RevisionKey(SKILL, entry.seq)])
        library.ingest(1)  # writes the lost document again
        assert request_decided(library.services) == 1
        library.ingest(1)
        (record,) = waiting(library)
        held, published = library.reader.list_revisions(SKILL)[:2]
        assert (held.state, published.state) == ("held", "published")
        assert record.seq == held.seq
        assert request_decided(library.services) == 0


def test_two_ingests_at_once_hold_an_update_under_one_number() -> None:
    with open_skill(**REVIEW) as library:
        library.edit(1)
        graph = library.services.graph
        allocate = graph.allocate_sequence
        seen: list[int] = []

        def allocate_for_the_second(count: int) -> range:
            seqs = allocate(count)
            if not library.reader.list_revisions(SKILL) and len(seen) < 2:
                seen.append(seqs[0])
                if len(seen) == 2:  # the first has its number, and has held nothing yet
                    library.run_ingest()
            return seqs

        with pytest.MonkeyPatch.context() as patch:
            graph.request_ingest([(SKILL, "lib", "kiln")], allocate(1)[0])
            patch.setattr(graph, "allocate_sequence", allocate_for_the_second)
            library.run_ingest()
        (held,) = library.reader.list_revisions(SKILL)
        assert held.seq > seen[1]
        assert [one.seq for one in waiting(library)] == [held.seq]
        library.ingest(1)
        library.reviews.decide(ReviewDecision.APPROVE, SKILL, held.seq, ANA)
        library.ingest(1)
        assert library.published_text() == "Text number 1."


def test_a_decision_while_a_newer_update_is_held_is_kept(monkeypatch: pytest.MonkeyPatch) -> None:
    with open_skill(**REVIEW) as library:
        library.edit(1)
        library.ingest(1)
        (first,) = library.reader.list_revisions(SKILL)

        def approve_meanwhile(*given: Any) -> KeptRevision | UnreadableSkill:
            library.reviews.decide(ReviewDecision.APPROVE, SKILL, first.seq, ANA)
            return hold_back(*given)

        library.edit(2)
        with monkeypatch.context() as patched:
            patched.setattr("tasks.ingest.held.reviewed.hold_back", approve_meanwhile)
            library.ingest(1)
        library.ingest(1)
        assert library.published_text() == "Text number 1."
        assert len(waiting(library)) == 1


def test_a_source_that_goes_back_ends_the_wait() -> None:
    with open_skill(**REVIEW) as library:
        library.edit(1)
        library.ingest(1)
        (held,) = library.reader.list_revisions(SKILL)
        library.reviews.decide(ReviewDecision.APPROVE, SKILL, held.seq, ANA)
        library.ingest(1)
        library.edit(2)
        library.ingest(1)
        assert len(waiting(library)) == 1
        library.update(1)
        assert waiting(library) == []
        assert library.reader.list_revisions(SKILL)[0].state == "published"


def test_an_approved_update_is_not_requested_again_once_its_source_went_back() -> None:
    with open_skill(**REVIEW) as library:
        approve_the_first_of_two(library)
        held = library.reader.list_revisions(SKILL)[0]
        library.edit(1)
        library.reviews.decide(ReviewDecision.APPROVE, SKILL, held.seq, ANA)
        library.run_ingest()
        assert library.published_text() == "Text number 1."
        assert request_decided(library.services) == 0


def test_a_skill_that_was_published_before_its_source_is_reviewed_stays() -> None:
    with open_skill() as library:
        library.edit(1)
        library.ingest(1)
        policy = library.services.settings.policy.model_copy(update={"review": ("li*",)})
        library.services.settings = library.services.settings.model_copy(update={"policy": policy})
        library.edit(2)
        library.ingest(2)
        assert library.published_text() == "Text number 1."
        library.break_(0)
        library.ingest(1)
        assert library.published_text() == "Text number 1."
        library.remove(0)
        library.ingest(1)
        assert library.published_text() == ""


def test_a_new_skill_that_cannot_be_read_fails() -> None:
    with open_skill(**REVIEW) as library:
        library.break_(0)
        library.ingest(1)
        (entry,) = library.services.graph.get_entries([SKILL])
        assert entry.state is SkillState.FAILED
        assert waiting(library) == []


def test_a_pin_does_not_replace_a_review() -> None:
    with open_skill(**REVIEW) as library:
        library.edit(1)
        library.ingest(1)
        (held,) = library.reader.list_revisions(SKILL)
        services = library.services
        with pytest.raises(UsageError, match="waits for a review"):
            pin_skill(
                *(services.settings, services.graph, library.history, library.reader),
                *(SKILL, held.seq, "stay"),
            )


def test_only_held_updates_are_decided_about() -> None:
    with open_skill(**REVIEW) as library:
        library.edit(1)
        library.ingest(1)
        (held,) = library.reader.list_revisions(SKILL)
        with pytest.raises(UsageError, match="name the revision"):
            library.reviews.decide(ReviewDecision.APPROVE, SKILL, None, ANA)
        for _ in range(2):  # again changes nothing
            library.reviews.decide(ReviewDecision.APPROVE, SKILL, held.seq, ANA)
            library.ingest(1)
        published = library.reader.list_revisions(SKILL)[0].seq
        with pytest.raises(UsageError, match="is published"):
            library.reviews.decide(ReviewDecision.REJECT, SKILL, published, ANA)
    with open_skill() as library:
        library.edit(1)
        library.ingest(1)
        with pytest.raises(UsageError, match="need no review"):
            library.reviews.decide(ReviewDecision.APPROVE, SKILL, 1, ANA)


@pytest.mark.parametrize("call", ["save", "record_held", "hold"])
def test_a_crash_while_an_update_is_held_is_made_up_for(
    call: str, monkeypatch: pytest.MonkeyPatch
) -> None:
    with open_skill(**REVIEW) as library:
        services = library.services
        assert services.review_store is not None
        owner = {
            "save": services.review_store,
            "record_held": services.graph,
            "hold": library.history,
        }[call]
        library.edit(1)
        with monkeypatch.context() as patch:
            patch.setattr(owner, call, fail)
            with pytest.raises(TransientError):
                library.ingest(1)
        assert library.services.graph.list_awaiting_ingest(9) != []
        library.ingest(1)
        (entry,) = services.graph.get_entries([SKILL])
        assert entry.state is SkillState.HELD
        assert len(library.reader.list_revisions(SKILL)) == 1
        assert len(waiting(library)) == 1


def fail(*_: object, **__: object) -> None:
    raise TransientError("killed here")


def test_a_crash_between_an_approval_and_its_ingest_is_made_up_for(
    monkeypatch: pytest.MonkeyPatch,
) -> None:
    with open_skill(**REVIEW) as library:
        library.edit(1)
        library.ingest(1)
        (held,) = library.reader.list_revisions(SKILL)
        with monkeypatch.context() as patch:
            patch.setattr(library.services.graph, "request_ingest", fail)
            with pytest.raises(TransientError):
                library.reviews.decide(ReviewDecision.APPROVE, SKILL, held.seq, ANA)
        assert library.services.graph.list_awaiting_ingest(9) == []
        assert request_decided(library.services) == 1
        assert request_decided(library.services) == 0
        library.run_ingest()
        assert library.published_text() == "Text number 1."
        assert request_decided(library.services) == 0


@pytest.mark.parametrize("verdict", [None, ReviewDecision.REJECT])
@pytest.mark.parametrize("was_published", [False, True])
def test_what_waits_is_published_when_its_source_is_not_reviewed_any_more(
    verdict: ReviewDecision | None, was_published: bool
) -> None:
    with open_skill(**REVIEW) as library:
        library.edit(1)
        library.ingest(1)
        if was_published:
            (held,) = library.reader.list_revisions(SKILL)
            library.reviews.decide(ReviewDecision.APPROVE, SKILL, held.seq, ANA)
            library.ingest(1)
            library.edit(2)
            library.ingest(1)
        newest = library.reader.list_revisions(SKILL)[0]
        if verdict is not None:
            library.reviews.decide(verdict, SKILL, newest.seq, ANA)
        assert request_decided(library.services) == 0
        policy = library.services.settings.policy.model_copy(update={"review": ()})
        library.services.settings = library.services.settings.model_copy(update={"policy": policy})
        assert request_decided(library.services) == 1
        library.run_ingest()
        assert library.published_text() == library.text
        assert request_decided(library.services) == 0
