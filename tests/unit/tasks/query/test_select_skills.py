"""Select: the model's choice leads the ranking; doubtful and missing answers change nothing."""

from __future__ import annotations

import re
from collections.abc import Callable, Mapping, Sequence
from dataclasses import replace
from typing import Any, cast

import pytest

from config.errors import MisconfiguredError
from config.language_model_settings import LanguageModelSettings
from config.settings import ChoiceSettings, Settings
from graph.records import Adjacency, LinkType, Neighbour
from search.protocol import StoredRevision
from search.text.query_understanding import understand
from skills.record import RevisionKey
from tasks.language_model.protocol import (
    InvalidAnswerError,
    ModelRequest,
    ModelUnavailableError,
    TokenBudgetError,
)
from tasks.query.choose import SkillChoice, choose
from tasks.query.context import QueryContext
from tasks.query.language_model.select_skills import select_skills
from tasks.query.ranking import RankedSkill, Ranking
from tasks.services import Lazy
from tests.support.samples.documents import tiny_document
from tests.support.samples.query_context import make_context
from tests.support.samples.scripted_model import ScriptedModel

NAMES = tuple("abcdef")


class Index:
    """The revisions of some skills, each described by its name."""

    def get_revisions(self, keys: Sequence[RevisionKey]) -> dict[RevisionKey, Any]:
        found = {}
        for key in keys:
            document = tiny_document(f"name-{key.skill_id}", "# Head\n\n## Bread\n\nBake bread.")
            found[key] = StoredRevision(key, "", document.parsed, document.passage_terms, ())
        return found


class Graph:
    """No links but those given."""

    def __init__(self, rows: Mapping[str, Sequence[Neighbour]] | None = None) -> None:
        self._rows = rows or {}

    def get_adjacency(self, ids: Sequence[str], fan_out: int) -> dict[str, Adjacency]:
        del fan_out
        return {one: Adjacency(tuple(self._rows.get(one, ())), {}) for one in ids}


def numbers_in(request: ModelRequest) -> dict[str, int]:
    """The number of each candidate by its skill_id."""
    found = re.findall(r'^\[(\d+)\] "name-(\w+)"', request.data, re.MULTILINE)
    return {name: int(number) for number, name in found}


def answer_with(needed: Sequence[str], **lists: Any) -> Callable[[ModelRequest], dict[str, Any]]:
    def script(request: ModelRequest) -> dict[str, Any]:
        numbers = numbers_in(request)
        useful = lists.get("useful", ())
        alternatives = lists.get("alternatives", {})
        return {
            "needed": [_pick(numbers[name], 9 - at) for at, name in enumerate(needed)],
            "alternatives": [
                {"id": numbers[name], "of": numbers[of], "relevancy": 6}
                for name, of in alternatives.items()
            ],
            "useful": [_pick(numbers[name], 4 - at) for at, name in enumerate(useful)],
            "order": [numbers[name] for name in lists.get("order", needed)],
            "conflicts": [[numbers[one], numbers[two]] for one, two in lists.get("conflicts", ())],
            "rejected": [
                {"reason": reason, "ids": [numbers[name] for name in names]}
                for reason, names in lists.get("rejected", {}).items()
            ],
            "complete": lists.get("complete", False),
        }

    return script


def _pick(number: int, relevancy: int) -> dict[str, int]:
    return {"id": number, "relevancy": relevancy, "specificity": 5}


def make_query(
    script: Callable[[ModelRequest], Any], graph: Graph | None = None, **settings: Any
) -> tuple[QueryContext, ScriptedModel]:
    model = ScriptedModel(script)
    chosen = Settings(
        choice=ChoiceSettings(least_probability=0.2),
        language_model=LanguageModelSettings(
            base_url="http://127.0.0.1:1/v1", model="scripted", **settings
        ),
    )
    context = make_context(graph or Graph(), index=Index(), settings=chosen)
    services = replace(context.services, language_model=Lazy(lambda: model))
    return replace(context, services=services), cast(Any, model)


def make_ranking(names: Sequence[str] = NAMES) -> Ranking:
    hits = tuple(
        RankedSkill(RevisionKey(name, 1), 10.0 - at, {"bm25f": 10.0 - at}, ("matches",))
        for at, name in enumerate(names)
    )
    return Ranking(understand("bake bread"), None, hits, probability=0.9, library_size=6)


def ids(ranking: Ranking) -> str:
    return "".join(hit.key.skill_id for hit in ranking.hits)


def test_needed_skills_lead_then_helpful_ones_then_open_ones_then_rejected_ones() -> None:
    script = answer_with(
        ["e", "b"],
        useful=["f"],
        alternatives={"c": "e"},
        rejected={"wrong_tool": ["a"]},
    )
    context, _ = make_query(script)
    ranking = select_skills(context, make_ranking())
    assert ids(ranking) == "ebcfda"
    assert [hit.score for hit in ranking.hits] == [10.0, 9.0, 8.0, 7.0, 6.0, 5.0]
    assert ranking.hits[0].parts["select"] == pytest.approx(4.0)
    assert ranking.hits[0].why[0] == "the language model selected it"
    assert ranking.selection is not None
    assert ranking.selection.needed == ("e", "b")
    assert "tool" in ranking.selection.rejected["a"]
    assert context.degradations.reasons == ()


def test_the_order_of_the_candidates_says_nothing_of_their_rank() -> None:
    context, model = make_query(answer_with(["a"]))
    select_skills(context, make_ranking())
    select_skills(context, make_ranking(NAMES[::-1]))
    first, second = (list(numbers_in(request)) for request in model.requests)
    assert first == second
    assert first != list(NAMES)


def test_candidates_beyond_the_setting_are_neither_shown_nor_moved() -> None:
    context, model = make_query(answer_with(["c"]), select_candidates=3)
    ranking = select_skills(context, make_ranking())
    assert set(numbers_in(model.requests[0])) == {"a", "b", "c"}
    assert ids(ranking) == "cabdef"


def test_links_among_the_candidates_are_shown_by_number() -> None:
    rows = {"a": [Neighbour("b", LinkType.DEPENDENCY, True, 1.0)]}
    context, model = make_query(answer_with(["a"]), Graph(rows))
    select_skills(context, make_ranking())
    numbers = numbers_in(model.requests[0])
    line = next(line for line in model.requests[0].data.splitlines() if '"name-a"' in line)
    assert line.endswith(f"| needs {numbers['b']}")


@pytest.mark.parametrize(
    ("error", "reason"),
    [
        (ModelUnavailableError("http://10.0.0.1 is down"), "did not answer in time"),
        (TokenBudgetError("spent", retry_after=9.0), "today's tokens"),
        (InvalidAnswerError("garbage"), "was not usable"),
        (MisconfiguredError("http://10.0.0.1 refuses the API key"), "a setting of this deployment"),
    ],
)
def test_without_an_answer_the_ranking_stays_and_the_cause_is_noted(
    error: Exception, reason: str
) -> None:
    def script(_: ModelRequest) -> Any:
        raise error

    context, _ = make_query(script)
    before = make_ranking()
    assert select_skills(context, before) is before
    (noted,) = context.degradations.reasons
    assert reason in noted
    assert "10.0.0.1" not in noted


@pytest.mark.parametrize(
    ("script", "reason"),
    [
        (answer_with([], rejected={"wrong_domain": NAMES}), "none of the candidates needed"),
        (answer_with(["a", "b"], useful=["c", "d", "e", "f"]), "selected every candidate"),
        (
            lambda request: (
                answer_with(["a"])(request)
                | {"needed": [_pick(number, 7) for number in numbers_in(request).values()][:5]}
                | {"order": []}
            ),
            "graded all candidates alike",
        ),
    ],
)
def test_an_answer_that_tells_nothing_is_no_agreement(script: Any, reason: str) -> None:
    context, _ = make_query(script)
    before = make_ranking()
    assert select_skills(context, before) is before
    assert reason in context.degradations.reasons[0]


def test_a_clear_lead_needs_no_model() -> None:
    context, model = make_query(answer_with(["b"]), select_margin=0.05)
    before = make_ranking()
    assert select_skills(context, before) is before
    assert model.requests == []


def test_a_task_that_the_library_hardly_has_a_skill_for_needs_no_model() -> None:
    context, model = make_query(answer_with(["b"]))
    before = replace(make_ranking(), probability=0.1)
    assert select_skills(context, before) is before
    assert model.requests == []


def test_no_time_left_means_no_call() -> None:
    context, model = make_query(answer_with(["b"]))
    context.model_calls.seconds = 0.0
    select_skills(context, make_ranking())
    assert model.requests == []
    assert "did not answer in time" in context.degradations.reasons[0]


def _reasons(choice: SkillChoice) -> dict[str, str]:
    return {left.skill_id: left.reason for left in choice.left_out}


def test_useful_skills_follow_the_needed_ones_by_their_relevancy() -> None:
    script = answer_with(["e", "c"], useful=["a", "d"], rejected={"too_general": ["b"]})
    context, _ = make_query(script)
    choice = choose(context, select_skills(context, make_ranking()))
    assert [one.skill_id for one in choice.chosen] == ["e", "c", "a", "d"]
    scores = [one.score for one in choice.chosen]
    assert scores == pytest.approx([10.0, 10.0, 10 * 4 / 9, 10 * 3 / 9])
    assert _reasons(choice)["b"].startswith("its advice is generic")


def test_what_hardly_helps_is_left_out() -> None:
    context, _ = make_query(answer_with(["e"], useful=["a", "b", "c", "d"]))
    choice = choose(context, select_skills(context, make_ranking()))
    assert [one.skill_id for one in choice.chosen] == ["e", "a", "b"]


def test_two_needed_skills_that_conflict_in_this_task_do_not_go_together() -> None:
    context, _ = make_query(answer_with(["e", "b"], conflicts=[("e", "b")]))
    choice = choose(context, select_skills(context, make_ranking()))
    assert [one.skill_id for one in choice.chosen] == ["e"]
    assert _reasons(choice)["b"] == "conflicts with e in this task"


def test_what_the_model_calls_needed_is_not_folded_into_an_alternative() -> None:
    rows = {"b": [Neighbour("e", LinkType.ALTERNATIVE, True, 1.0)]}
    context, _ = make_query(answer_with(["e", "b"]), Graph(rows))
    choice = choose(context, select_skills(context, make_ranking()))
    assert [one.skill_id for one in choice.chosen] == ["e", "b"]
