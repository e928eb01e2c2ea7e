"""Rejections of a query are kept; a store that does not answer changes no answer."""

from __future__ import annotations

from pathlib import Path

import pytest

from config.errors import TransientError
from skills.bundle.rejection import RejectionReason
from tasks.language_model.skill_pairs.protocol import RejectedPair
from tasks.language_model.skill_pairs.sqlite import SqliteSkillPairs
from tasks.query.language_model.record_rejections import record_rejections
from tests.support.samples.query_context import make_context

REDUNDANT, INCOMPATIBLE = RejectionReason.REDUNDANT, RejectionReason.INCOMPATIBLE


def test_alternatives_and_conflicts_are_pairs(tmp_path: Path) -> None:
    context = make_context(None)
    pairs = SqliteSkillPairs(tmp_path / "answers.db")
    context.services.skill_pairs = pairs
    for _ in range(2):  # the same task counts once
        record_rejections(context, {"z": RejectionReason.WRONG_TOOL}, {"b": "a"}, [("d", "c")])
    assert pairs.list_rejected_pairs(1, 10) == [
        RejectedPair(("a", "b"), REDUNDANT, 1),
        RejectedPair(("c", "d"), INCOMPATIBLE, 1),
    ]
    pairs.close()


def test_without_a_store_nothing_is_kept() -> None:
    record_rejections(make_context(None), {"z": REDUNDANT}, {}, [])


def test_a_store_that_does_not_answer_is_logged(
    tmp_path: Path, capsys: pytest.CaptureFixture[str]
) -> None:
    context = make_context(None)
    pairs = SqliteSkillPairs(tmp_path / "answers.db")
    context.services.skill_pairs = pairs
    with pairs._file.transaction() as connection:
        connection.execute("DROP TABLE rejecting_queries")
    with pytest.raises(TransientError):
        pairs.record("key", set())
    record_rejections(context, {"z": REDUNDANT}, {}, [])
    assert "not kept" in capsys.readouterr().out
    pairs.close()
