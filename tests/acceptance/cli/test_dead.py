"""`dead`: letters of an embedded library, with and without a running `serve`."""

from __future__ import annotations

import json
import time
from pathlib import Path

import pytest

from skills.events import OutcomesReported, SkillOutcome, SourceChanged, new_event
from skills.outcomes.model import OutcomeKind
from tasks.journal.protocol import DeadLetter, new_dead_letter_id
from tasks.journal.sqlite import SqliteJournal
from tasks.policies import FETCH, INGEST, LINK, PLAN, RECORD_OUTCOMES
from tests.support.program.program import Skillbus, wait_for
from tests.support.samples.library import write_skill


@pytest.fixture
def root(skillbus: Skillbus, tmp_path: Path) -> Path:
    """A source with one skill, synced."""
    root = tmp_path / "crafts"
    write_skill(root, "kiln-firing", "Fire a kiln to stoneware heat")
    skillbus("sync", str(root))
    return root


def bury(home: Path, task: str, *ids: str, reason: str = "it broke", body: str = "") -> str:
    now = time.time()
    letter = DeadLetter(new_dead_letter_id(now), task, ids, reason, 3, "", body, now)
    journal = SqliteJournal(home / "journal.db")
    journal.add_dead_letter(letter)
    journal.close()
    return letter.id


def letters(skillbus: Skillbus) -> list[str]:
    return [letter["id"] for letter in skillbus("dead", "list", "--json").data]


def test_letters_are_listed_and_shown(copied: Skillbus) -> None:
    assert copied("dead", "list").out == "no dead letters\n"
    one = bury(copied.home, INGEST.name, "crafts:kiln-firing", reason="worker died")
    other = bury(copied.home, "", body="{no json", reason="not readable as JSON")
    listed = copied("dead", "list", "--json").data
    assert [(letter["id"], letter["retryable"]) for letter in listed] == [
        (other, False),
        (one, True),
    ]
    assert "worker died" in copied("dead", "list").out
    assert "1 more" in copied("dead", "list", "--limit", "1").err
    shown = copied("dead", "show", one, "--json").data
    assert (shown["task"], shown["ids"]) == (INGEST.name, ["crafts:kiln-firing"])
    assert "{no json" in copied("dead", "show", other).out
    assert "no dead letter" in copied("dead", "show", "none", code=2).err
    hostile = copied("dead", "show", bury(copied.home, "t\x1b", "a\x1bb", reason="c\x1bd"))
    assert hostile.out.count("[hidden characters: 1]") == 3
    assert "\x1b" not in hostile.out


def test_letters_are_discarded(copied: Skillbus) -> None:
    ids = [bury(copied.home, LINK.name) for _ in range(3)]
    copied("dead", "discard", code=2)
    copied("dead", "discard", ids[0], "--all", code=2)
    assert copied("dead", "discard", ids[0]).out == "1 dead letter discarded\n"
    assert "no dead letter" in copied("dead", "discard", ids[0], code=2).err
    for command in ("retry", "discard"):
        refused = copied("dead", command, ids[1], "unknown", code=2)
        assert "no dead letter 'unknown'" in refused.err
    assert set(letters(copied)) == set(ids[1:])
    done = copied("dead", "discard", "--all", "--json").data
    assert {one["id"] for one in done} == set(ids[1:])
    assert {one["state"] for one in done} == {"discarded"}
    assert letters(copied) == []


def test_all_letters_are_taken_in_the_order_in_which_their_tasks_failed(copied: Skillbus) -> None:
    journal = SqliteJournal(copied.home / "journal.db")
    for number, letter_id in enumerate(("f-first", "0-second", "c-third")):
        journal.add_dead_letter(DeadLetter(letter_id, LINK.name, (), "", 3, "", "", number))
    journal.close()
    done = copied("dead", "discard", "--all", "--json").data
    assert [one["id"] for one in done] == ["f-first", "0-second", "c-third"]


def failed_skill(skillbus: Skillbus, root: Path) -> str:
    """A skill that failed, whose cause is gone now; its letter."""
    (root / "glazing").mkdir()
    (root / "glazing" / "SKILL.md").write_bytes(b"")
    skillbus("sync", str(root), code=4)
    assert skillbus.skills()["crafts:glazing"]["state"] == "failed"
    write_skill(root, "glazing", "Glaze pots and plates")
    return bury(skillbus.home, INGEST.name, "crafts:glazing")


def test_a_failed_skill_is_taken_in_by_a_retry(skillbus: Skillbus, root: Path) -> None:
    letter = failed_skill(skillbus, root)
    assert skillbus("dead", "retry", letter, "--json").data == [
        {"id": letter, "state": "sent", "reason": ""}
    ]
    assert letters(skillbus) == []
    assert skillbus.skills()["crafts:glazing"]["state"] == "published"


def test_a_running_serve_retries(skillbus: Skillbus, root: Path) -> None:
    letter = failed_skill(skillbus, root)
    with skillbus.serving():
        assert "1 dead letter retried" in skillbus("dead", "retry", letter).out
        assert letters(skillbus) == []
        wait_for(lambda: skillbus.skills()["crafts:glazing"]["state"] == "published")
        for unknown in (letter, f"{letter}?x"):
            refused = skillbus("dead", "retry", unknown, code=2).err
            assert f"no dead letter {unknown!r}" in refused


@pytest.mark.parametrize("task", [PLAN.name, FETCH.name])
def test_an_event_is_carried_out_by_a_retry(skillbus: Skillbus, root: Path, task: str) -> None:
    event = new_event(SourceChanged(source_id="later", root=str(root.parent / "later")), "tests")
    event = event.model_copy(update={"source": "skillbus/tests"})
    journal = SqliteJournal(skillbus.home / "journal.db")
    journal.add_job(event, "event")
    journal.fail_job(event.id, "no such folder")
    journal.close()
    write_skill(root.parent / "later", "welding", "Weld a cracked frame")
    letter = bury(skillbus.home, task, event.id)
    skillbus("dead", "retry", letter)
    assert skillbus.skills()["later:welding"]["state"] == "published"


def test_outcomes_are_recorded_by_a_retry(skillbus: Skillbus, root: Path) -> None:
    asked = skillbus("query", "fire stoneware in a kiln", "--format", "json").data["query_id"]
    outcome = SkillOutcome(skill_id="crafts:kiln-firing", outcome=OutcomeKind.HELPED)
    event = new_event(OutcomesReported(query_id=asked, outcomes=(outcome,)), "skillbus/tests")
    journal = SqliteJournal(skillbus.home / "journal.db")
    journal.add_job(event, "outcome")
    journal.fail_job(event.id, "no space left")
    journal.close()
    skillbus("dead", "retry", bury(skillbus.home, RECORD_OUTCOMES.name, event.id))
    [recorded] = skillbus("outcomes", "export").out.splitlines()
    assert json.loads(recorded)["query_id"] == asked


def test_what_cannot_be_sent_again_stays_and_says_why(copied: Skillbus) -> None:
    unreadable = bury(copied.home, "", body="x")
    gone = bury(copied.home, INGEST.name, "crafts:gone")
    forgotten = bury(copied.home, PLAN.name, "forgotten")
    former_name = bury(copied.home, "skillbus.page", "crafts:kiln-firing")
    assert "cannot be retried" in copied("dead", "retry", unreadable, code=2).err
    assert "belongs to a source now" in copied("dead", "retry", gone, code=2).err
    assert "has expired from the journal" in copied("dead", "retry", forgotten, code=2).err
    done = copied("dead", "retry", "--all", "--json", code=1).data
    assert {one["id"]: one["state"] for one in done} == {
        unreadable: "refused",
        gone: "refused",
        forgotten: "refused",
        former_name: "sent",
    }
    assert set(letters(copied)) == {unreadable, gone, forgotten}
