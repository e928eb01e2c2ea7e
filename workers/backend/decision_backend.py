"""Base class of the backends with their own stores: reads skills and carries out decisions."""

from __future__ import annotations

import contextlib
from abc import ABC, abstractmethod
from functools import cached_property
from typing import Any

from typing_extensions import override

from config.errors import TransientError
from graph.protocol import SkillGraph
from graph.records import LinkKey
from search.protocol import SearchIndex
from search.review_store import ReviewStore
from search.revision_history import RevisionHistory
from tasks.language_model.answer_store import AnswerStore
from tasks.policies import LINK, MAINTAIN
from tasks.query.process_state.review_cache import ReviewCache
from tasks.send import send_task, send_task_if_room
from workers.backend.protocol import Backend
from workers.library import link_dismissals, pins
from workers.library.review.decisions import ReviewDecision, Reviewer, SkillReviews, waiver_data
from workers.library.review.review_list import ReviewLister
from workers.library.revisions import RevisionReader, pin_data
from workers.library.skill_data import dismissal_data
from workers.library.skill_reader import SkillReader


class DecisionBackend(Backend, ABC):
    """Reads the skills of its stores, dismisses links, pins and reviews skills.

    app: the Celery application that sends tasks.
    """

    graph: SkillGraph
    app: Any

    @abstractmethod
    def search_index(self) -> SearchIndex:
        """Return the search index, for reading revisions."""

    @abstractmethod
    def answer_store(self) -> AnswerStore | None:
        """Return the stored answers of the language model; None if no language model is in use."""

    @abstractmethod
    def history_store(self) -> RevisionHistory:
        """Return the store of superseded revisions."""

    @abstractmethod
    def review_store(self) -> ReviewStore:
        """Return the store of decisions of people about skills."""

    @abstractmethod
    def review_cache(self) -> ReviewCache:
        """Return the in-memory copy of the decisions that the policy reads."""

    @cached_property
    def skills(self) -> SkillReader:
        """Reads skills by their ids."""
        return SkillReader(
            self.settings,
            lambda _: (
                *(self.graph, self.search_index(), self.answer_store()),
                self.review_cache(),
            ),
        )

    @cached_property
    def revisions(self) -> RevisionReader:
        """Reads and compares revisions of skills."""
        return RevisionReader(
            *(self.settings, self.graph, self.search_index()),
            *(self.history_store(), self.review_store()),
        )

    @cached_property
    def reviews(self) -> SkillReviews:
        """Makes decisions about skills."""
        return SkillReviews(
            *(self.settings, self.graph, self.review_store()),
            *(self.revisions, self.review_cache()),
        )

    @cached_property
    def review_lister(self) -> ReviewLister:
        """Lists skills that wait for a person, and decisions."""
        return ReviewLister(
            self.settings,
            self.graph,
            lambda keys: self.search_index().get_revisions(keys),
            self.review_store(),
        )

    # -- links
    @override
    def dismiss_link(self, key: LinkKey, reason: str) -> dict[str, Any]:
        dismissed = link_dismissals.dismiss_link(self.graph, key, reason)
        self._link_again()
        return dismissal_data(dismissed)

    @override
    def restore_link(self, key: LinkKey) -> None:
        link_dismissals.restore_link(self.graph, key)
        self._link_again()

    def _link_again(self) -> None:
        """Send the task that links the marked skills; if that fails, the
        reconciler sends it later."""
        with contextlib.suppress(TransientError):
            send_task_if_room(self.app, LINK.name, [])

    # -- pins
    @override
    def pin_skill(self, skill_id: str, seq: int | None, reason: str) -> dict[str, Any]:
        pin = pins.pin_skill(
            *(self.settings, self.graph, self.history_store(), self.revisions),
            *(skill_id, seq, reason),
        )
        self._send_waiting()
        return pin_data(pin)

    @override
    def unpin_skill(self, skill_id: str) -> None:
        pins.unpin_skill(self.graph, self.history_store(), skill_id)
        self._send_waiting()

    # -- reviews
    @override
    def waive_findings(
        self, skill_id: str, seq: int | None, rule: str, principal: str, reason: str
    ) -> dict[str, Any]:
        record = self.reviews.waive(skill_id, seq, rule, Reviewer(principal, reason))
        self.review_lister.expire()
        return waiver_data(record, "in force")

    @override
    def remove_waiver(self, skill_id: str, rule: str) -> None:
        self.reviews.remove_waiver(skill_id, rule)
        self.review_lister.expire()

    @override
    def review_skill(
        self, decision: ReviewDecision, skill_id: str, seq: int | None, principal: str, reason: str
    ) -> dict[str, Any]:
        data = self.reviews.decide(decision, skill_id, seq, Reviewer(principal, reason))
        self.review_lister.expire()
        if decision is ReviewDecision.APPROVE:
            self._send_waiting()
        return data

    @override
    def reopen_review(self, skill_id: str) -> None:
        self.reviews.reopen(skill_id)
        self.review_lister.expire()

    def _send_waiting(self) -> None:
        """Send the requested ingest tasks; if that fails, the reconciler sends them later."""
        with contextlib.suppress(TransientError):
            self.send_maintenance()

    def send_maintenance(self) -> None:
        """Send the task that runs the reconciler once."""
        send_task(self.app, MAINTAIN.name, [])
