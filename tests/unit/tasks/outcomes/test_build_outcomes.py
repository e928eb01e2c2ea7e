"""Outcomes of an event, as they are stored."""

from __future__ import annotations

from datetime import UTC, datetime
from types import SimpleNamespace
from typing import Any, cast

from skills.events import OutcomesReported
from skills.outcomes.model import AnsweredQuery, AnsweredSkill
from skills.outcomes.task_report import build_reports
from tasks.outcomes.record_outcomes import build_outcomes


def test_a_skill_that_was_left_out_for_the_budget_has_no_place() -> None:
    skills = AnsweredSkill("lib:a", 1, 1), AnsweredSkill("lib:b", 1, 2, sent=False)
    answer = AnsweredQuery("q", "", "", "clean trips", 0.0, hit=True, skills=skills)
    said = [{"skill_id": "lib:a", "outcome": "helped"}] + [
        {"skill_id": name, "outcome": "rejected", "reason": "wrong_step"}
        for name in ("lib:b", "lib:c")
    ]
    reported = OutcomesReported.model_validate({"query_id": "q", "outcomes": said})
    event = SimpleNamespace(owner="", time=datetime.fromtimestamp(9.0, UTC))
    job = cast(Any, SimpleNamespace(id="o", event=event, accepted=9.0))
    outcomes = build_outcomes(job, reported, answer)
    assert [one.place for one in outcomes] == [1, 0, 0]
    [report] = build_reports(outcomes)
    assert report.unhelpful == {}
