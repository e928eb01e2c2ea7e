"""Findings from usage: skills that are never chosen, skills that lose to a copy,
and unanswered queries."""

from __future__ import annotations

from collections import Counter
from typing import Any

from graph.records import CatalogEntry
from skills.outcomes.model import AnsweredQuery, Outcome, to_day
from skills.record import get_source_id
from tasks.outcomes.usage.model import SKILL_COUNTERS
from tasks.outcomes.usage.unanswered import UnansweredQueries
from tasks.outcomes.usage.window import UsageWindow
from workers.library.skill_data import format_time
from workers.library.usage.published_skills import ListedSkill
from workers.library.usage.report import UsageFilter, format_day

MAX_SHOWN_CHARACTERS = 500
"""Maximum of characters of a task that are shown."""

_CHOSEN = SKILL_COUNTERS.index("chosen")


def list_used_skills(window: UsageWindow, selection: UsageFilter) -> set[str]:
    """Return the skills that were chosen, or that have an outcome."""
    return {
        skill_id
        for usage in window.days
        for _, group in selection.select_groups(usage)
        for skill_id, row in group.skills.items()
        if any(row)
    }


def describe_unused(entry: CatalogEntry | ListedSkill) -> dict[str, Any]:
    """Return a skill that was not chosen, as JSON data. published: date of its current revision."""
    return {
        "skill_id": entry.skill_id,
        "name": entry.name,
        "source": entry.source_id,
        "tokens": entry.tokens,
        "published": format_day(to_day(entry.updated)),
    }


def list_lost_copies(window: UsageWindow, selection: UsageFilter) -> list[dict[str, Any]]:
    """Return skills that were never chosen and were left out for a skill that does the same, most
    often first, as JSON data."""
    lost: dict[str, Counter[str]] = {}
    picked: set[str] = set()
    for usage in window.days:
        for _, group in selection.select_groups(usage):
            picked |= {skill_id for skill_id, row in group.skills.items() if row[_CHOSEN]}
            for (skill_id, other), count in group.lost.items():
                if selection.has_skill(skill_id) and selection.sees(other):
                    lost.setdefault(skill_id, Counter())[other] += count
    rows: list[dict[str, Any]] = [
        {
            "skill_id": skill_id,
            "source": get_source_id(skill_id),
            "lost": others.total(),
            "to": [
                {"skill_id": other, "lost": count}
                for other, count in sorted(others.items(), key=lambda one: (-one[1], one[0]))
            ],
        }
        for skill_id, others in lost.items()
        if skill_id not in picked
    ]
    return sorted(rows, key=lambda row: (-row["lost"], row["skill_id"]))


def describe_unanswered(found: UnansweredQueries) -> dict[str, Any]:
    """Return groups of unanswered queries as JSON data."""
    return {
        "total": found.total,
        "grouped": found.grouped,
        "groups": [
            {
                "queries": group.queries,
                "no_hits": group.no_hits,
                "first": format_day(group.first),
                "last": format_day(group.last),
                "examples": [
                    {
                        "query_id": query.query_id,
                        "owner": query.owner,
                        "task": query.task[:MAX_SHOWN_CHARACTERS],
                    }
                    for query in group.examples
                ],
            }
            for group in found.groups
        ],
    }


def describe_reported(outcome: Outcome, answer: AnsweredQuery) -> dict[str, Any]:
    """Return an outcome as JSON data, with the task of its query."""
    return {
        "query_id": outcome.query_id,
        "task": answer.task,
        "skill_id": outcome.skill_id,
        "outcome": outcome.kind.value,
        "reason": outcome.reason,
        "other": outcome.other,
        "by": outcome.by.value,
        "reported_at": format_time(outcome.reported),
    }
