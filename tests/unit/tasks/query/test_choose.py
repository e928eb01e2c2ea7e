"""Choose: dependencies come along, alternatives and conflicts stay out, weak skills too."""

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import replace
from typing import Any

import numpy as np
import pytest
from hypothesis import given, settings
from hypothesis import strategies as st

from config.settings import ChoiceSettings, Settings
from graph.records import Adjacency, LinkType, Neighbour
from search.protocol import Filters, PassageTerms, StoredRevision
from search.text.query_understanding import understand
from skills.events import QueryAsked
from skills.parsing.parse_skill import parse_skill
from skills.record import RevisionKey
from tasks.query.choose import LeftOut, SkillChoice
from tasks.query.choose import choose as choose_skills
from tasks.query.ranking import RankedSkill, Ranking
from tasks.query.session.state import SessionState
from tests.support.samples.query_context import make_context

DEPENDS, ALTERNATIVE, CONFLICT = LinkType.DEPENDENCY, LinkType.ALTERNATIVE, LinkType.CONFLICT


class Links:
    """A graph made from (source, type, target[, weight]) that counts the reads."""

    def __init__(self, *links: tuple[Any, ...]) -> None:
        self._rows: dict[str, list[Neighbour]] = {}
        self.reads = 0
        for source, kind, target, *rest in links:
            weight = float(rest[0]) if rest else 1.0
            assert isinstance(kind, LinkType)
            self._rows.setdefault(str(source), []).append(
                Neighbour(str(target), kind, True, weight)
            )
            self._rows.setdefault(str(target), []).append(
                Neighbour(str(source), kind, False, weight)
            )

    def get_adjacency(self, ids: Sequence[str], fan_out: int) -> dict[str, Adjacency]:
        del fan_out
        self.reads += 1
        return {one: Adjacency(tuple(self._rows.get(one, ())), {}) for one in ids}


def reasons(choice: SkillChoice) -> dict[str, str]:
    return {left.skill_id: left.reason for left in choice.left_out}


def test_of_skills_in_use_that_conflict_one_is_sent_for_an_obstacle() -> None:
    context = make_context(
        Links(("a:first", CONFLICT, "a:second")),
        pointers={"a:first": 1, "a:second": 1},
    )
    context = replace(
        context,
        request=QueryAsked(session="s", obstacle="the crust burns"),
        session=SessionState(in_use=("a:first", "a:second")),
    )
    nothing = Ranking(understand("bake bread"), None, (hit("a:other", 5.0),))
    assert ids(choose_skills(context, nothing)) == ["a:other", "a:first"]


def test_without_evidence_only_skills_in_use_are_chosen_for_an_obstacle() -> None:
    """However often the choice is made: a skill in use may turn out to be withheld."""
    context = make_context(Links(), pointers={"a:first": 1})
    context = replace(
        context,
        request=QueryAsked(session="s", obstacle="the crust burns"),
        session=SessionState(in_use=("a:first",)),
    )
    hits = (hit("a:other", 5.0),)
    unlikely = Ranking(understand("bake bread"), None, hits, probability=0.01)
    assert ids(choose_skills(context, unlikely)) == ["a:first"]


def test_a_conflict_that_only_the_chosen_skill_lists_is_seen() -> None:
    """The other has more links than are read."""
    links = Links(("a:first", CONFLICT, "a:second"))
    links._rows["a:second"] = []
    choice = choose([("a:first", 9.0), ("a:second", 8.0)], links)
    assert ids(choice) == ["a:first"]
    assert reasons(choice) == {"a:second": "conflicts with a:first"}


def hit(skill_id: str, score: float) -> RankedSkill:
    return RankedSkill(RevisionKey(skill_id, 1), score, {}, ("matches",))


def choose(
    ranked: Sequence[tuple[str, float]],
    links: Links | None = None,
    top: int = 10,
    owners: Sequence[str] = (),
    relative: float = 0.25,
    conflicts: Sequence[tuple[str, str]] = (),
    probabilities: Sequence[float] = (),
) -> SkillChoice:
    hits = tuple(
        RankedSkill(
            RevisionKey(skill_id, 1),
            score,
            {},
            ("matches",),
            "pdf" if skill_id in owners else "",
            probability=probabilities[place] if place < len(probabilities) else None,
        )
        for place, (skill_id, score) in enumerate(ranked)
    )
    context = make_context(
        links or Links(), settings=Settings(choice=ChoiceSettings(relative=relative)), top=top
    )
    return choose_skills(
        context, Ranking(understand("bake bread"), None, hits, conflicts=tuple(conflicts))
    )


def ids(choice: SkillChoice) -> list[str]:
    return [chosen.skill_id for chosen in choice.chosen]


def test_nothing_ranked_nothing_chosen() -> None:
    assert choose([]).chosen == []


def test_the_ranking_is_kept_up_to_the_top() -> None:
    ranked = [(name, 10.0 - place) for place, name in enumerate("abcdef")]
    assert ids(choose(ranked, top=3)) == ["a", "b", "c"]


def test_dependencies_do_not_count_towards_the_top() -> None:
    ranked = [(name, 10.0 - place) for place, name in enumerate("abcdef")]
    links = Links(("a", DEPENDS, "x"), ("a", DEPENDS, "y"), ("c", DEPENDS, "d"))
    assert ids(choose(ranked, links, top=3)) == ["a", "x", "y", "b", "c", "d"]


TIE = [("a", 8.0), ("b", 7.9), ("c", 7.8)]


def test_skills_whose_probability_is_not_estimated_are_as_likely_as_the_least_likely() -> None:
    ranked = [*TIE, ("d", 7.7), ("e", 7.6)]
    assert ids(choose(ranked, probabilities=(0.9, 0.005, 0.004))) == ["a"]
    chosen = choose(ranked, probabilities=(0.9, 0.3, 0.1)).chosen
    assert [one.probability for one in chosen] == [0.9, 0.3, 0.1, 0.1, 0.1]
    assert chosen[-1].worth == chosen[2].worth


def test_one_that_is_certain_comes_alone() -> None:
    assert ids(choose(TIE, probabilities=(0.97, 0.008, 0.004))) == ["a"]


def test_several_that_may_be_right_come_together() -> None:
    choice = choose(TIE, probabilities=(0.3, 0.25, 0.2))
    assert ids(choice) == ["a", "b", "c"]
    assert [chosen.probability for chosen in choice.chosen] == [0.3, 0.25, 0.2]
    assert [chosen.worth for chosen in choice.chosen] == pytest.approx([1.0, 0.25 / 0.3, 0.2 / 0.3])


def test_the_first_comes_however_unlikely_and_so_does_the_owner_of_a_format() -> None:
    assert ids(choose(TIE, owners="c", probabilities=(0.004, 0.004, 0.004))) == ["a", "c"]


def test_a_prerequisite_counts_with_what_needs_it_before_what_ranks_behind() -> None:
    choice = choose(TIE, Links(("a", DEPENDS, "z")), probabilities=(0.6, 0.3, 0.2))
    assert ids(choice) == ["a", "z", "b", "c"]
    assert choice.chosen[1].probability == 0.6
    worth = [chosen.worth for chosen in choice.chosen]
    assert worth == sorted(worth, reverse=True)


def test_a_prerequisite_that_ranks_itself_is_worth_what_needs_it() -> None:
    choice = choose(TIE, Links(("a", DEPENDS, "c")), probabilities=(0.6, 0.3, 0.001))
    assert ids(choice) == ["a", "c", "b"]


def test_without_probabilities_worth_falls_with_a_power_of_the_score() -> None:
    choice = choose([("a", 8.0), ("b", 4.0)])
    assert [chosen.worth for chosen in choice.chosen] == [1.0, 0.0625]


def test_far_below_the_best_is_left_out() -> None:
    assert ids(choose([("a", 8.0), ("b", 2.0), ("c", 1.99)])) == ["a", "b"]


def test_the_owner_of_a_named_format_may_score_low() -> None:
    ranked = [("a", 8.0), ("b", 2.0), ("c", 1.0), ("d", 0.9)]
    assert ids(choose(ranked, owners=["d"])) == ["a", "b", "d"]


def test_no_evidence_pads_nothing() -> None:
    choice = choose([("a", 1.0), ("b", 0.0)], relative=0.0)
    assert ids(choice) == ["a"]


def test_a_declared_dependency_comes_along_though_it_does_not_rank() -> None:
    choice = choose([("a", 8.0)], Links(("a", DEPENDS, "b"), ("b", DEPENDS, "c")))
    assert set(ids(choice)) == {"a", "b", "c"}
    by_id = {chosen.skill_id: chosen for chosen in choice.chosen}
    assert by_id["b"].needed_by == "a"
    assert by_id["c"].needed_by == "b"
    assert any("a" in reason for reason in by_id["b"].why)


def test_a_mentioned_skill_does_not_come_along() -> None:
    assert ids(choose([("a", 8.0)], Links(("a", DEPENDS, "b", 0.9)))) == ["a"]


def test_a_dependent_skill_does_not_come_along() -> None:
    assert ids(choose([("a", 8.0)], Links(("b", DEPENDS, "a")))) == ["a"]


def test_circular_dependencies_end() -> None:
    choice = choose(
        [("a", 8.0)], Links(("a", DEPENDS, "b"), ("b", DEPENDS, "c"), ("c", DEPENDS, "a"))
    )
    assert sorted(ids(choice)) == ["a", "b", "c"]


def test_a_dependency_of_two_skills_is_chosen_once() -> None:
    choice = choose([("a", 8.0), ("b", 7.0)], Links(("a", DEPENDS, "c"), ("b", DEPENDS, "c")))
    assert sorted(ids(choice)) == ["a", "b", "c"]


def test_a_long_chain_is_bounded() -> None:
    links = Links(*((f"s{n}", DEPENDS, f"s{n + 1}") for n in range(200)))
    choice = choose([("s0", 8.0)], links)
    assert ids(choice) == [f"s{n}" for n in range(21)]
    assert reasons(choice) == {"s21": "declared dependency of s20, beyond the first 20"}


def test_one_of_a_group_of_alternatives() -> None:
    choice = choose([("a", 8.0), ("b", 7.5), ("c", 7.0)], Links(("b", ALTERNATIVE, "a")))
    assert ids(choice) == ["a", "c"]
    [(skill_id, reason, *_)] = choice.left_out
    assert (skill_id, reason.startswith("alternative to a")) == ("b", True)


def test_a_group_is_folded_by_way_of_its_members() -> None:
    links = Links(("b", ALTERNATIVE, "a"), ("c", ALTERNATIVE, "b"), ("d", ALTERNATIVE, "x"))
    choice = choose([("a", 8.0), ("b", 7.5), ("c", 7.0), ("d", 6.0)], links)
    assert ids(choice) == ["a", "d"]
    assert {reason for _, reason, *_ in choice.left_out} == {
        "alternative to a, which ranks better",
    }


def test_a_declared_dependency_comes_along_with_its_alternative() -> None:
    links = Links(("a", DEPENDS, "b"), ("b", ALTERNATIVE, "c"))
    assert ids(choose([("c", 9.0), ("a", 8.0)], links)) == ["c", "a", "b"]


@pytest.mark.parametrize("pair", [("a", "b"), ("b", "a")])
def test_never_two_in_conflict(pair: tuple[str, str]) -> None:
    choice = choose([("a", 8.0), ("b", 7.5)], Links((pair[0], CONFLICT, pair[1])))
    assert ids(choice) == ["a"]
    assert "conflicts with a" in reasons(choice)["b"]


def test_a_dependency_in_conflict_with_what_is_taken_stays_out() -> None:
    choice = choose([("a", 8.0), ("b", 7.0)], Links(("b", DEPENDS, "c"), ("c", CONFLICT, "a")))
    assert "c" not in ids(choice)
    assert "a" in ids(choice)


def test_a_dependency_in_conflict_with_what_needs_it_stays_out() -> None:
    choice = choose([("a", 8.0)], Links(("a", DEPENDS, "b"), ("b", CONFLICT, "a")))
    assert ids(choice) == ["a"]
    assert reasons(choice)["b"] == "declared dependency of a, but conflicts with a"


@settings(deadline=None, max_examples=50)
@given(
    st.lists(
        st.tuples(
            st.sampled_from("abcdef"),
            st.sampled_from([DEPENDS, CONFLICT, ALTERNATIVE]),
            st.sampled_from("abcdef"),
        ).filter(lambda link: link[0] != link[2]),
        max_size=15,
    ),
    st.permutations("abcd"),
)
def test_no_set_holds_two_in_conflict(
    links: list[tuple[str, LinkType, str]], ranked: list[str]
) -> None:
    choice = choose([(name, 8.0 - place) for place, name in enumerate(ranked)], Links(*links))
    chosen = set(ids(choice))
    assert ranked[0] in chosen
    assert not [link for link in links if link[1] is CONFLICT and {link[0], link[2]} <= chosen]


def test_what_only_a_dependency_left_out_needs_stays_out_too() -> None:
    links = Links(("b", DEPENDS, "c"), ("c", CONFLICT, "a"), ("c", DEPENDS, "d"))
    assert ids(choose([("a", 8.0), ("b", 7.0)], links)) == ["a", "b"]


def test_a_skill_that_is_chosen_later_is_not_left_out() -> None:
    links = Links(("b", ALTERNATIVE, "a"), ("c", DEPENDS, "b"))
    choice = choose([("a", 8.0), ("b", 7.5), ("c", 7.0)], links)
    assert ids(choice) == ["a", "c", "b"]
    assert choice.left_out == []


def test_a_skill_left_out_twice_is_listed_once() -> None:
    links = Links(("b", DEPENDS, "c"), ("c", CONFLICT, "a"))
    choice = choose([("a", 8.0), ("b", 7.5), ("c", 7.0)], links)
    reason = "declared dependency of b, but conflicts with a"
    assert choice.left_out == [LeftOut("c", reason, "conflict", "a")]


def test_scores_stay_those_of_the_ranking() -> None:
    choice = choose([("a", 8.0), ("b", 4.0)])
    assert [(chosen.skill_id, chosen.score) for chosen in choice.chosen] == [("a", 8.0), ("b", 4.0)]


def test_reads_are_few() -> None:
    links = Links(("s0", DEPENDS, "x"), ("x", DEPENDS, "y"))
    choose([(f"s{n}", 8.0) for n in range(10)], links)
    assert links.reads <= 6


@pytest.mark.parametrize("pair", [("a", "b"), ("b", "a")])
def test_never_two_that_clash_for_this_task(pair: tuple[str, str]) -> None:
    choice = choose([("a", 8.0), ("b", 7.0), ("c", 6.0)], conflicts=[pair])
    assert ids(choice) == ["a", "c"]
    assert reasons(choice)["b"] == "conflicts with a in this task"


def test_a_dependency_that_clashes_for_this_task_stays_out() -> None:
    choice = choose([("a", 8.0), ("b", 7.0)], Links(("b", DEPENDS, "c")), conflicts=[("a", "c")])
    assert ids(choice) == ["a", "b"]


def test_skills_for_one_purpose_that_are_no_copies_may_go_together() -> None:
    assert ids(choose([("a", 8.0), ("b", 7.0)], Links(("a", ALTERNATIVE, "b", 0.7)))) == ["a", "b"]


class Revisions:
    """An index of revisions by their licence, of which those without a licence are unknown."""

    def __init__(self, **licences: str) -> None:
        self._licences = licences

    def get_revisions(self, keys: Sequence[RevisionKey]) -> dict[RevisionKey, StoredRevision]:
        nothing = PassageTerms(
            np.zeros(1, np.int32), np.zeros(0, np.uint64), np.zeros(0, np.uint16)
        )
        parsed = parse_skill("loom", b"---\nname: loom\ndescription: Warps\n---\nWarp it.\n")
        return {
            key: StoredRevision(
                key, "", parsed, nothing, (), Filters(("lib",), (self._licences[name],))
            )
            for key in keys
            if (name := key.skill_id.partition(":")[2]) in self._licences
        }


@pytest.mark.parametrize(
    ("filters", "sent"),
    [
        ({}, ["lib:a", "lib:b", "other:d", "lib:c"]),
        ({"licence": ["MIT", "ISC"]}, ["lib:a", "lib:b"]),
        ({"source": ["lib"]}, ["lib:a", "lib:b", "lib:c"]),
        ({"source": ["lib"], "licence": ["GPL-3.0"]}, ["lib:a", "lib:c"]),
    ],
)
def test_dependencies_pass_the_filters(filters: dict[str, list[str]], sent: list[str]) -> None:
    names = ("lib:b", "other:d", "lib:c")
    context = make_context(
        Links(*(("lib:a", DEPENDS, name) for name in names)),
        index=Revisions(b="MIT", c="GPL-3.0", d="Apache-2.0"),
        pointers=dict.fromkeys(("lib:a", *names), 1),
        filters=filters,
    )
    choice = choose_skills(context, Ranking(understand("weave"), None, (hit("lib:a", 8.0),)))
    assert ids(choice) == sent
    reason = "declared dependency of lib:a, but the filters leave it out"
    assert reasons(choice) == {name: reason for name in names if name not in sent}
