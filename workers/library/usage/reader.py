"""Reads usage from the stores."""

from __future__ import annotations

import time
from collections.abc import Callable, Iterable, Iterator
from typing import Any, TypeVar

from config.settings import Settings
from graph.records import CatalogEntry
from search.models.load_models import encoder_identity
from skills.outcomes.model import AnsweredQuery, to_day
from tasks.outcomes.protocol import AnswerPlace, OutcomeStore
from tasks.outcomes.usage.answer_groups import group_answers
from tasks.outcomes.usage.model import OTHERS
from tasks.outcomes.usage.unanswered import find_unanswered
from tasks.outcomes.usage.window import UsageWindow, read_usage
from workers.library.skill_reader import SkillReader
from workers.library.usage.answered import AnsweredPage, AnswerFilter, QueryOutcome, list_answered
from workers.library.usage.findings import (
    describe_reported,
    describe_unanswered,
    list_lost_copies,
    list_used_skills,
)
from workers.library.usage.published_skills import ListedSkill
from workers.library.usage.report import UsageFilter, summarise_usage

_BATCH = 2_000
_MAX_OUTCOMES = 20_000
"""Maximum of outcomes that are read to find those of one skill."""

Skill = TypeVar("Skill", CatalogEntry, ListedSkill)


class UsageReader:
    """Usage of a deployment over its last days, today (UTC) included."""

    def __init__(self, settings: Settings, outcomes: OutcomeStore, skills: SkillReader) -> None:
        self._settings = settings
        self._outcomes = outcomes
        self._skills = skills
        self._windows: dict[int, UsageWindow] = {}

    def read_window(self, days: int) -> UsageWindow:
        """Return the usage of the last `days` days, as of the first call."""
        if days not in self._windows:
            today = to_day(time.time())
            self._windows[days] = read_usage(self._outcomes, today - days + 1, today)
        return self._windows[days]

    def summarise(self, days: int, selection: UsageFilter) -> dict[str, Any]:
        """Return sums in total, by day, skill, source and owner."""
        return summarise_usage(self.read_window(days), selection)

    def list_copies(self, days: int, selection: UsageFilter) -> list[dict[str, Any]]:
        """Return skills that always lose to a near copy."""
        return list_lost_copies(self.read_window(days), selection)

    def group_unanswered(self, days: int, owner: str | None) -> dict[str, Any]:
        """Return groups of unanswered queries of an owner, or of all owners (None)."""
        model = encoder_identity(self._settings.encoder).model
        window = self.read_window(days)
        return describe_unanswered(find_unanswered(self._outcomes, window.days, owner, model))

    def list_answered(
        self,
        days: int,
        outcome: QueryOutcome | None,
        can_see: Callable[[str], bool],
        visible: frozenset[str] | None,
        place: AnswerPlace,
        limit: int,
    ) -> tuple[list[list[AnsweredQuery]], AnsweredPage]:
        """Return answered queries before a place, newest first, at most `limit`, in groups of
        similar tasks and as a page. can_see, visible: as in `AnswerFilter`."""
        first = to_day(time.time()) - days + 1
        wanted = AnswerFilter(first, outcome, can_see, visible)
        page = list_answered(self._outcomes, wanted, place, limit)
        model = encoder_identity(self._settings.encoder).model
        return group_answers(self._outcomes, page.answers, model), page

    def select_unused(
        self, days: int, selection: UsageFilter, published: Iterable[Skill]
    ) -> list[Skill]:
        """Return the given published skills that were not chosen."""
        used = list_used_skills(self.read_window(days), selection)
        unused = [one for one in published if one.skill_id not in used]
        if not selection.selects_skills:
            return unused
        return [one for one in unused if selection.has_skill(one.skill_id)]

    def list_outcomes(
        self,
        days: int,
        skill_id: str,
        limit: int,
        can_see: Callable[[str], bool],
        visible: frozenset[str] | None,
    ) -> tuple[list[dict[str, Any]], bool]:
        """Return the reported outcomes of a skill, each with its task, newest days first. Return
        also whether there may be more, as `limit` or the maximum of read outcomes was reached.

        can_see, visible: as in `AnswerFilter`.
        """
        rows: list[dict[str, Any]] = []
        today, read = to_day(time.time()), 0
        for day in range(today, today - days, -1):
            found = []
            for one in self._outcomes.list_outcomes_of(day):
                read += 1
                if skill_id in (one.skill_id, one.other):
                    found.append(one)
                if read >= _MAX_OUTCOMES:
                    break
            answers = self._outcomes.get_answers(sorted({one.query_id for one in found}))
            shown = UsageFilter(visible=visible).hide(found)
            for one in sorted(shown, key=lambda one: (-one.reported, one.key)):
                answer = answers.get(one.query_id)
                if answer is not None and can_see(answer.owner):
                    rows.append(describe_reported(one, answer))
            if len(rows) > limit or read >= _MAX_OUTCOMES:
                return rows[:limit], True
        return rows, False

    def list_unknown(self, days: int, selection: UsageFilter) -> list[str]:
        """Return names in the filter that neither the library nor the usage of these days has."""
        groups = [group for usage in self.read_window(days).days for group in usage.groups.items()]
        owners = {owner for key, _ in groups for owner in key}
        used = {skill_id for _, group in groups for skill_id in group.skills}
        unknown = []
        if selection.owner and not owners & {selection.owner, OTHERS}:
            unknown.append(selection.owner)
        skills = UsageFilter(selection.source, selection.skill)
        if skills.selects_skills and not any(map(skills.has_skill, used)):
            published = (entry.skill_id for entry in self.list_published())
            if not any(map(skills.has_skill, published)):
                unknown.append(selection.skill or selection.source or "")
        return unknown

    def list_published(self) -> Iterator[CatalogEntry]:
        """Yield the published skills by id; skills that the policy withholds are left out."""
        after = ""
        while page := self._skills.list_published(after, _BATCH):
            yield from page
            after = page[-1].skill_id
