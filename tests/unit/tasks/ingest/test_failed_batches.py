"""A skill whose ingest failed: what the catalog says of it afterwards."""

from __future__ import annotations

from collections.abc import Callable

import pytest

from graph.records import SkillState
from skills.record import RevisionKey
from tasks.history.keep import withdraw
from tasks.ingest.ingest import split_ingest_batch
from tasks.policies import PoisonTaskError
from tests.support.samples.one_skill import SKILL, OneSkill, open_skill


def request(library: OneSkill) -> None:
    graph = library.services.graph
    graph.request_ingest([(SKILL, "lib", "kiln")], graph.allocate_sequence(1)[0])


def fail_ingest(library: OneSkill, meanwhile: Callable[[], object] = lambda: None) -> None:
    """Ingest the skill; this fails unexpectedly after the call of `meanwhile`."""
    request(library)
    with pytest.MonkeyPatch.context() as patched:

        def fail(*_: object) -> None:
            patched.undo()
            meanwhile()
            raise KeyError("broken")

        patched.setattr("tasks.ingest.ingest._prepare", fail)
        with pytest.raises(KeyError) as raised:
            library.run_ingest()
    split_ingest_batch(library.services, [SKILL], raised.value)


def test_a_skill_that_fails_alone_is_recorded_as_failed() -> None:
    with open_skill() as library:
        library.edit(1)
        library.ingest(1)
        library.edit(2)
        fail_ingest(library)
        [entry] = library.services.graph.get_entries([SKILL])
        assert (entry.state, entry.seq) == (SkillState.FAILED, 0)
        assert entry.reason == "ingest failed unexpectedly: KeyError: 'broken'"
        assert library.services.graph.list_awaiting_ingest(10) == []
        library.ingest(1)
        assert library.published_text() == "Text number 2."


def test_a_skill_stays_published_if_its_process_stops_meanwhile() -> None:
    with open_skill() as library:
        library.edit(1)
        library.ingest(1)
        fail_ingest(library, library.services.stopping.set)
        assert library.published_text() == "Text number 1."
        assert len(library.services.graph.list_awaiting_ingest(10)) == 1


def test_a_skill_that_ends_its_workers_is_recorded_as_failed() -> None:
    with open_skill() as library:
        library.edit(1)
        request(library)
        split_ingest_batch(library.services, [SKILL], PoisonTaskError("started 3 times"))
        [entry] = library.services.graph.get_entries([SKILL])
        assert entry.reason == "ingest failed unexpectedly: PoisonTaskError: started 3 times"
        assert library.services.graph.list_awaiting_ingest(10) == []


@pytest.mark.parametrize("outcome", [SkillState.PUBLISHED, SkillState.REMOVED])
def test_what_another_run_has_made_of_the_skill_since_stays(outcome: SkillState) -> None:
    with open_skill() as library:
        library.edit(1)
        library.ingest(1)

        def remove() -> None:
            seq = library.services.graph.allocate_sequence(1)[0]
            withdraw(library.services, [RevisionKey(SKILL, seq)])

        library.edit(2)
        is_removal = outcome is SkillState.REMOVED
        fail_ingest(library, remove if is_removal else lambda: library.ingest(1))
        [entry] = library.services.graph.get_entries([SKILL])
        assert entry.state is outcome
        assert library.published_text() == ("" if is_removal else "Text number 2.")


def test_a_request_that_comes_while_the_ingest_fails_stays_open() -> None:
    with open_skill() as library:
        library.edit(1)
        fail_ingest(library, lambda: request(library))
        library.run_ingest()
        assert library.published_text() == "Text number 1."
