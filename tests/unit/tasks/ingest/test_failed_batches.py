"""A skill whose ingest failed: what the catalog says of it afterwards."""

from __future__ import annotations

import pytest

from graph.records import SkillState
from skills.record import RevisionKey
from tasks.history.keep import withdraw
from tasks.ingest.ingest import split_ingest_batch
from tests.support.samples.one_skill import SKILL, OneSkill, open_skill

ERROR = KeyError("broken")


def request(library: OneSkill) -> None:
    graph = library.services.graph
    graph.request_ingest([(SKILL, "lib", "kiln")], graph.allocate_sequence(1)[0])


def test_a_skill_that_fails_alone_is_recorded_as_failed() -> None:
    with open_skill() as library:
        library.edit(1)
        library.ingest(1)
        request(library)
        split_ingest_batch(library.services, [SKILL], ERROR)
        [entry] = library.services.graph.get_entries([SKILL])
        assert (entry.state, entry.seq) == (SkillState.FAILED, 0)
        assert entry.reason == "ingest failed unexpectedly: KeyError: 'broken'"
        assert library.services.graph.list_awaiting_ingest(10) == []
        library.ingest(1)
        assert library.published_text() == "Text number 1."


@pytest.mark.parametrize("outcome", [SkillState.PUBLISHED, SkillState.REMOVED])
def test_what_another_run_has_made_of_the_skill_since_stays(outcome: SkillState) -> None:
    with open_skill() as library:
        library.edit(1)
        library.ingest(1)
        request(library)
        if outcome is SkillState.REMOVED:
            seq = library.services.graph.allocate_sequence(1)[0]
            withdraw(library.services, [RevisionKey(SKILL, seq)])
        else:
            library.edit(2)
            library.ingest(1)
        split_ingest_batch(library.services, [SKILL], ERROR)
        [entry] = library.services.graph.get_entries([SKILL])
        assert entry.state is outcome
        assert library.published_text() == (
            "Text number 2." if outcome is SkillState.PUBLISHED else ""
        )
