"""Explain: the verdict about each candidate says what decided about it."""

from __future__ import annotations

from collections.abc import Sequence
from typing import Any

import numpy as np
import pytest

from config.errors import TransientError
from graph.records import CatalogEntry, SkillState
from search.protocol import Filters, Hit, Search, VectorSearch
from search.text.query_understanding import understand
from skills.bundle.model import AlreadySent, Bundle, DidNotFit
from skills.record import RevisionKey
from tasks.query.choose import ChosenSkill, LeftOut, SkillChoice
from tasks.query.explanation.explain import list_verdicts
from tasks.query.explanation.explain_skills import UNKNOWN, _find_filter, explain_skills
from tasks.query.process_state.circuit_breaker import CircuitBreakers
from tasks.query.ranking import RankedSkill, Ranking, TaskQuery
from tasks.query.read_chosen import ChosenRevisions
from tasks.query.retrieve import find_engine_ranks, retrieve
from tests.support.samples.query_context import make_context


class SilentCatalog:
    """A catalog that does not answer."""

    def get_entries(self, skill_ids: Sequence[str]) -> list[CatalogEntry]:
        raise TransientError("no answer")


def test_while_the_catalog_does_not_answer_a_published_skill_is_not_unknown() -> None:
    context = make_context(
        SilentCatalog(),
        pointers={"lib:a": 1, "lib:b": 1},
        circuit_breakers=CircuitBreakers(),
        explain_skills=("lib:a", "lib:none"),
    )
    hits = (RankedSkill(RevisionKey("lib:b", 1), 1.0, {}, ()),)
    ranking = Ranking(understand("weave"), None, hits, probability=0.9)
    choice = SkillChoice(left_out=[LeftOut("lib:a", "alternative to lib:b")])
    bundle = Bundle(query_id="q", status="SKILL_HIT", task="weave", budget=99)
    known, unknown = explain_skills(context, ChosenRevisions(ranking, choice), bundle)
    assert (known["stage"], known["reason"]) == ("choose", "alternative to lib:b")
    assert (unknown["stage"], unknown["reason"]) == ("library", UNKNOWN)


class FullCatalog:
    """A catalog that has published every skill."""

    def get_entries(self, skill_ids: Sequence[str]) -> list[CatalogEntry]:
        published = SkillState.PUBLISHED
        return [CatalogEntry(one, "lib", one, published, one, seq=1) for one in skill_ids]


def test_a_chosen_dependency_that_is_no_candidate_was_sent_earlier_or_did_not_fit() -> None:
    asked = ("lib:sent", "lib:large")
    context = make_context(FullCatalog(), explain_skills=asked)
    chosen = [ChosenSkill(one, 1.0, (), needed_by="lib:first") for one in asked]
    chosen_revisions = ChosenRevisions(Ranking(understand("weave"), None), SkillChoice(chosen))
    bundle = Bundle(
        query_id="q",
        status="SKILL_HIT",
        task="weave",
        budget=99,
        already_sent=(AlreadySent(skill_id="lib:sent", name="sent", seq=1, lines=((1, 9),)),),
        did_not_fit=DidNotFit(skills=1, passages=2, tokens=99),
    )
    sent, large = explain_skills(context, chosen_revisions, bundle)
    assert (sent["stage"], sent["reason"]) == ("bundle", "sent earlier in this session")
    assert (large["stage"], large["reason"]) == ("choose", "did not fit into the budget")


UNLIKELY = "out: the library is unlikely to have a skill for the task"


def verdicts(probability: float, *chosen: str, **request: Any) -> list[str]:
    """The verdicts about two candidates of an answer without a skill."""
    hits = tuple(
        RankedSkill(RevisionKey(name, 1), score, {}, (), probability=score / 10)
        for name, score in (("lib:a", 8.0), ("lib:b", 0.1))
    )
    ranking = Ranking(understand("weave"), None, hits, probability=probability)
    choice = SkillChoice([ChosenSkill(name, 1.0, ()) for name in chosen])
    bundle = Bundle(
        query_id="q", status="NO_SKILL_HIT", task="weave", budget=99, reason="not likely enough"
    )
    context = make_context(object(), **request)
    return [text for _, text in list_verdicts(context, ChosenRevisions(ranking, choice), bundle)]


def test_without_evidence_the_library_is_unlikely_to_have_a_skill() -> None:
    assert verdicts(0.01) == [UNLIKELY, UNLIKELY]


@pytest.mark.parametrize(("probability", "asked"), [(0.9, {}), (0.01, {"without": ("floor",)})])
def test_a_chosen_skill_that_is_not_sent_has_the_reason_of_the_answer(
    probability: float, asked: dict[str, Any]
) -> None:
    assert verdicts(probability, "lib:a", **asked) == [
        "out: not likely enough",
        "out: unlikely to be right for the task",
    ]


@pytest.mark.parametrize(
    ("licence", "filters", "reason"),
    [
        ("MIT License", {"licence": ("MIT",)}, ""),
        ("MIT License", {"licence": ("MIT License", "ISC")}, ""),
        ("MIT", {"licence": ("mit",)}, "the filter licence leaves it out: it has MIT"),
        ("", {"licence": ("MIT",)}, "the filter licence leaves it out: it has none"),
        ("MIT", {"source": ("other",)}, "the filter source leaves it out: it has lib"),
        ("MIT", {"source": ("lib",), "licence": ("MIT",), "language": ("en",)}, ""),
    ],
)
def test_filters_leave_out_what_the_engines_leave_out(
    licence: str, filters: dict[str, tuple[str, ...]], reason: str
) -> None:
    entry = CatalogEntry(
        "lib:a", "lib", "a", SkillState.PUBLISHED, "a", "", seq=1, licence=licence, language="en"
    )
    assert _find_filter(Filters(**filters), entry) == reason


def test_a_chosen_skill_that_no_list_names_did_not_fit_or_was_sent_earlier() -> None:
    names = ("lib:first", "lib:sent", "lib:large")
    hits = tuple(RankedSkill(RevisionKey(one, 1), 1.0, {}, (), probability=0.5) for one in names)
    ranking = Ranking(understand("weave"), None, hits, probability=0.9)
    choice = SkillChoice([ChosenSkill(one, 1.0, ()) for one in names])
    earlier = AlreadySent(skill_id="lib:sent", name="sent", seq=1, lines=((1, 9),))
    bundle = Bundle(
        query_id="q",
        status="SKILL_HIT",
        task="weave",
        budget=99,
        already_sent=(earlier,),
        did_not_fit=DidNotFit(skills=2, passages=2, tokens=99),
    )
    verdicts = dict(list_verdicts(make_context(object()), ChosenRevisions(ranking, choice), bundle))
    assert verdicts["lib:sent"] == "in: sent earlier in this session"
    assert verdicts["lib:large"] == "out: did not fit into the budget"


class Engine:
    """An index without hits, which keeps the searches."""

    searches: Sequence[Search] = ()

    def search_many(self, searches: Sequence[Search]) -> list[list[Hit]]:
        self.searches = searches
        return [[] for _ in searches]


@pytest.mark.parametrize("task", ["weave", " ".join(f"word{number}" for number in range(200))])
def test_the_number_of_neighbours_is_that_of_the_search(task: str) -> None:
    engine = Engine()
    context = make_context(object(), index=engine)
    vector = np.array([1.0, 0.0], dtype=np.float32)
    query = TaskQuery(context.services.library.latest, understand(task), vector)
    retrieve(context, query)
    limits = {one.limit for one in engine.searches if isinstance(one, VectorSearch)}
    assert {find_engine_ranks(context, query, "lib:a").meaning_limit} == limits
