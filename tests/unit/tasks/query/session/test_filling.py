"""Bundles of a session: no line twice, exact budgets, and no skill less than without a session."""

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import replace

import pytest
from hypothesis import given, settings
from hypothesis import strategies as st

from config.errors import UsageError
from skills.bundle.markdown import render_markdown, render_skill
from skills.bundle.model import Bundle
from skills.outcomes.model import AnsweredQuery
from skills.token_count import count_tokens
from tasks.outcomes.record_answers import QueryFacts, describe_answer
from tasks.query.assemble import fill_bundle
from tasks.query.select_passages import SkillPassages
from tasks.query.session.portions import list_already_sent, mark_sent
from tasks.query.session.state import SessionState, build_state
from tests.unit.tasks.query.test_assemble import BREAD, DRAFTS, LEFT_OUT, LINKS, Draft, select

BUDGETS = st.lists(st.integers(60, 2500), min_size=2, max_size=5)


def choose(drafts: list[Draft]) -> list[SkillPassages]:
    """The drafts as chosen skills, the best first."""
    found = []
    for number, draft in enumerate(drafts):
        skill = select(draft, number)
        chosen = replace(skill.chosen, probability=min(draft.score / 10, 1.0))
        found.append(replace(skill, chosen=chosen))
    return sorted(found, key=lambda skill: -(skill.chosen.probability or 0.0))


def shuffle(skills: Sequence[SkillPassages], seed: int) -> list[SkillPassages]:
    """The same skills, with their passages in another order."""
    return [
        replace(skill, passages=tuple(sorted(skill.passages, key=lambda one: hash((one, seed)))))
        for skill in skills
    ]


def fill(state: SessionState, skills: Sequence[SkillPassages], budget: int, brief: bool) -> Bundle:
    """The next bundle of a session."""
    marked = mark_sent(state, skills)
    empty = Bundle(
        query_id="q",
        status="SKILL_HIT",
        task="bake",
        session="s",
        budget=budget,
        brief=brief,
        already_sent=tuple(list_already_sent(state, marked)),
    )
    return fill_bundle(empty, marked, LINKS, LEFT_OUT)


def ask(
    state: SessionState, skills: Sequence[SkillPassages], budget: int, brief: bool
) -> Bundle | None:
    """The next bundle of a session, None where no passage fits."""
    try:
        return fill(state, skills, budget, brief)
    except UsageError:
        return None


def record(bundle: Bundle, number: int) -> AnsweredQuery:
    return describe_answer(bundle, f"q{number}", QueryFacts("", float(number), "s"))


def lines_of(bundle: Bundle) -> set[tuple[str, int, int]]:
    return {
        (skill.skill_id, skill.revision.seq, number)
        for skill in bundle.skills
        for passage in skill.passages
        for number in range(passage.first_line, passage.last_line + 1)
    }


@given(DRAFTS, BUDGETS, st.lists(st.booleans(), min_size=5, max_size=5))
@settings(max_examples=25, deadline=None)
def test_no_line_is_sent_twice_and_the_budget_is_exact(
    drafts: list[Draft], budgets: list[int], brief: list[bool]
) -> None:
    answers: list[AnsweredQuery] = []
    sent: set[tuple[str, int, int]] = set()
    skills = choose(drafts)
    for number, budget in enumerate(budgets):
        state = build_state(answers, {})
        bundle = ask(state, shuffle(skills, number), budget, brief[number])
        if bundle is None:
            continue
        assert bundle.tokens == count_tokens(render_markdown(bundle)) <= budget
        for place, skill in enumerate(bundle.skills, 1):
            assert skill.tokens == count_tokens(render_skill(place, skill))
        assert not sent & lines_of(bundle)
        sent |= lines_of(bundle)
        answers.append(record(bundle, number))


@given(DRAFTS, st.integers(200, 2500), st.integers(200, 2500))
@settings(max_examples=25, deadline=None)
def test_what_is_sent_without_a_session_is_sent_or_was_before(
    drafts: list[Draft], first: int, second: int
) -> None:
    """Also if the session began with other passages, and with less or more of them."""
    skills = choose(drafts)
    before = ask(SessionState(), shuffle(skills, 1), first, brief=True)
    alone = ask(SessionState(), shuffle(skills, 2), second, brief=False)
    if before is None or alone is None:
        return
    state = build_state([record(before, 1)], {})
    following = ask(state, shuffle(skills, 2), second, brief=False)
    assert following is not None
    with_text = {
        (*skill.revision.key, number)
        for skill in skills
        for passage in skill.revision.parsed.passages
        for number in range(passage.first_line, passage.last_line + 1)
        if skill.revision.parsed.lines[number - 1].strip()
    }
    assert lines_of(alone) & with_text <= lines_of(following) | lines_of(before)
    sent = {one.skill_id for one in (*before.skills, *following.skills)}
    assert {one.skill_id for one in alone.skills} <= sent


def test_a_brief_query_names_the_least_budget_that_is_enough() -> None:
    skills = choose([BREAD])
    with pytest.raises(UsageError) as caught:
        fill(SessionState(), skills, 1, brief=True)
    least = int(str(caught.value).rsplit(" ", 1)[1])
    assert fill(SessionState(), skills, least, brief=True).skills
    with pytest.raises(UsageError, match=f"give at least {least}"):
        fill(SessionState(), skills, least - 1, brief=True)


@given(DRAFTS, st.integers(200, 2500))
@settings(max_examples=25, deadline=None)
def test_a_brief_bundle_has_no_skill_less(drafts: list[Draft], budget: int) -> None:
    skills = choose(drafts)
    alone = ask(SessionState(), skills, budget, brief=False)
    brief = ask(SessionState(), skills, budget, brief=True)
    if alone is None:
        return
    assert brief is not None
    assert {one.skill_id for one in alone.skills} <= {one.skill_id for one in brief.skills}


def test_what_was_sent_is_named_and_said_to_be_all() -> None:
    draft = Draft("bread", "Bake bread", ["Knead the dough.", "Heat the oven."], 9.0, 0)
    skills = [select(draft, 0)]
    first = ask(SessionState(), skills, 2000, brief=False)
    assert first is not None
    assert not first.already_sent
    second = ask(build_state([record(first, 1)], {}), skills, 2000, brief=False)
    assert second is not None
    assert second.status == "SKILL_HIT"
    assert not second.skills
    assert second.reason == "what the task needs was sent earlier in this session"
    (named,) = second.already_sent
    assert (named.skill_id, named.name, named.seq) == ("home:s0", "bread", 1)
    assert named.tokens == first.skills[0].tokens
    assert set(range(named.lines[0][0], named.lines[-1][1] + 1)) >= {
        number for _, _, number in lines_of(first)
    }
    text = render_markdown(second)
    assert "status: SKILL_HIT (what the task needs was sent earlier in this session)" in text
    assert "- bread: lines " in text
    assert "Knead" not in text
    # Names of skills that are left out give way, as in any bundle.
    less = ask(build_state([record(first, 1)], {}), skills, second.tokens - 1, brief=False)
    assert less is not None
    assert (less.skills, less.left_out) == ((), ())
