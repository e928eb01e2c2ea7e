"""Assembly: the Markdown never exceeds its budget, and the bundle counts it exactly."""

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import dataclass, replace
from itertools import groupby
from typing import Any

import numpy as np
import pytest
from hypothesis import given, settings
from hypothesis import strategies as st

from config.bundle_settings import PassageSettings
from config.errors import TransientError, UsageError
from graph.records import CatalogEntry, Link, LinkType, SkillState, Source
from search.protocol import StoredRevision
from search.skill_analysis import analyse_skill
from search.text.query_understanding import understand
from skills.bundle.budget_form import BudgetForm, with_markdown_tokens
from skills.bundle.markdown import render_markdown, render_skill
from skills.bundle.model import Bundle, LeftOutSkill
from skills.events import QueryAsked
from skills.parsing.parse_skill import parse_skill
from skills.passages import PassageQuery, find_short_lists
from skills.record import RevisionKey, SiblingFile
from skills.token_count import count_tokens
from tasks.query.assemble import assemble, assemble_no_hit, fill_bundle
from tasks.query.choose import ChosenSkill, LeftOut, SkillChoice
from tasks.query.ranking import RankedSkill, Ranking, Selection
from tasks.query.read_chosen import ChosenRevisions
from tasks.query.select_passages import SkillPassages, select_skill_passages
from tests.support.samples.query_context import make_context
from workers.mcp.results import count_result_tokens, fit_to_budget

SETTINGS = PassageSettings(miss=0.1)

VOCABULARY = "bake dough oven the a of steam 240 °C flour-bag `scale.py` 面团 烤箱 </passage>"


def words(most: int) -> st.SearchStrategy[str]:
    """A few words, drawn at once: to draw each for itself takes longer than the tests."""
    known = VOCABULARY.split(" ")
    return st.binary(min_size=1, max_size=most).map(
        lambda drawn: " ".join(known[byte % len(known)] for byte in drawn)
    )


LINES = words(25)
BLOCKS = st.one_of(
    LINES,
    LINES.map(lambda text: f"## {text}"),
    st.lists(LINES, min_size=1, max_size=4).map(lambda rows: "\n".join(f"- {r}" for r in rows)),
    st.lists(LINES, min_size=1, max_size=4).map(lambda rows: "```sh\n" + "\n".join(rows) + "\n```"),
    st.lists(LINES, min_size=1, max_size=3).map(
        lambda rows: "| a | b |\n|---|---|\n" + "\n".join(f"| {r} | 1 |" for r in rows)
    ),
)


@dataclass(frozen=True)
class Draft:
    """A made-up skill."""

    name: str
    description: str
    blocks: list[str]
    score: float
    files: int


DRAFTS = st.lists(
    st.builds(
        Draft,
        name=st.sampled_from(["bread", "pie", "烘焙", "a-very-long-name-of-a-skill"]),
        description=words(80),
        blocks=st.lists(BLOCKS, min_size=1, max_size=14),
        score=st.floats(0.1, 10),
        files=st.integers(0, 20),
    ),
    min_size=1,
    max_size=5,
)


def select(draft: Draft, number: int, words: bool = True) -> SkillPassages:
    text = f"---\nname: {draft.name}\ndescription: >-\n  {draft.description}\n---\n\n"
    text += "\n\n".join(draft.blocks) + "\n"
    files = [SiblingFile(f"scripts/run_{n}.py", n, "0" * 64) for n in range(draft.files)]
    parsed = parse_skill(f"s{number}", text.encode(), files)
    analysis = analyse_skill(parsed)
    revision = StoredRevision(
        RevisionKey(f"home:s{number}", number + 1), "f" * 64, parsed, analysis.passage_terms, ()
    )
    terms = analysis.forward.terms[:5] if words else np.empty(0, np.uint64)
    query = PassageQuery(None, terms, np.ones(len(terms), np.float32))
    chosen = ChosenSkill(f"home:s{number}", draft.score, ("its text matches the task",))
    path = f"/skills/s{number}/SKILL.md"
    return SkillPassages(
        chosen, revision, path, *select_skill_passages(revision, query, None, SETTINGS)
    )


def select_all(drafts: list[Draft]) -> list[SkillPassages]:
    ordered = sorted(drafts, key=lambda draft: -draft.score)
    return [select(draft, number) for number, draft in enumerate(ordered)]


def empty(budget: int) -> Bundle:
    return Bundle(query_id="q", status="SKILL_HIT", task="bake", budget=budget)


LINKS = [
    Link(f"home:s{n}", f"home:s{n}", f"home:s{n + 1}", LinkType.DEPENDENCY, 1.0, "depends, line 3")
    for n in range(6)
]
LEFT_OUT = [LeftOutSkill(skill_id="home:other", name="other", reason="alternative to home:s0")]


def check(bundle: Bundle) -> None:
    text = render_markdown(bundle)
    assert bundle.tokens == count_tokens(text)
    assert bundle.tokens <= bundle.budget
    assert bundle.skills
    for place, skill in enumerate(bundle.skills, 1):
        assert skill.tokens == count_tokens(render_skill(place, skill))


@given(DRAFTS, st.integers(1, 3000), st.sampled_from(BudgetForm))
@settings(max_examples=60, deadline=None)
def test_a_bundle_never_exceeds_the_budget(
    drafts: list[Draft], budget: int, form: BudgetForm
) -> None:
    skills = select_all(drafts)
    try:
        bundle = fill_bundle(empty(budget), skills, LINKS, LEFT_OUT, form)
    except UsageError as error:
        # What it names as enough must be enough.
        least = int(str(error).rsplit(" ", 1)[1])
        assert least > budget
        bundle = fill_bundle(empty(least), skills, LINKS, LEFT_OUT, form)
    assert bundle.tokens <= bundle.budget
    check(with_markdown_tokens(bundle))
    if form is BudgetForm.TOOL_RESULT:
        result = fit_to_budget(bundle, bundle.budget)
        assert count_result_tokens(result) <= bundle.budget
        assert [one.skill_id for one in result.skills] == [one.skill_id for one in bundle.skills]


@given(DRAFTS)
@settings(max_examples=40, deadline=None)
def test_passages_and_what_is_left_out_cover_each_skill(drafts: list[Draft]) -> None:
    skills = select_all(drafts)
    bundle = fill_bundle(empty(100_000), skills, [], [])
    for sent, skill in zip(bundle.skills, skills, strict=True):
        parsed = skill.revision.parsed
        starts = [passage.first_line for passage in parsed.passages]
        shown = [
            start
            for start in starts
            if any(part.first_line <= start <= part.last_line for part in sent.passages)
        ]
        assert len(shown) + sent.left_out.passages == len(starts)
        assert [part.first_line for part in sent.passages] == sorted(
            part.first_line for part in sent.passages
        )
        for part in sent.passages:
            assert part.text == parsed.text(part.first_line, part.last_line)
            assert part.roles


@given(DRAFTS, st.integers(200, 1500), st.integers(0, 1500))
@settings(max_examples=25, deadline=None)
def test_more_budget_never_loses_the_answer(drafts: list[Draft], budget: int, more: int) -> None:
    skills = select_all(drafts)
    try:
        fill_bundle(empty(budget), skills, LINKS, LEFT_OUT)
    except UsageError:
        return
    check(fill_bundle(empty(budget + more), skills, LINKS, LEFT_OUT))


LONG_TEXT = "steam " * 300
PIE = Draft("pie", "Bake pie", ["steam " * 80, "## More", "oven " * 400], 3.0, 0)
BREAD = Draft("bread", "Bake bread", ["## Steps", "- knead\n- bake"], 5.0, 2)
LONG = Draft("long", "A long one", [f"## Part {n}\n\n{'dough ' * 60}" for n in range(12)], 4.0, 0)


def test_a_budget_that_holds_all_of_a_short_skill_is_never_too_small() -> None:
    """One passage with the note on the other may take more tokens than both."""
    skills = select_all([Draft("bread", "Bake bread", ["Knead.", "- bake\n- cool"], 5.0, 2)])
    least = fill_bundle(empty(100_000), skills, [], []).tokens
    for budget in range(least, least + 40):
        check(fill_bundle(empty(budget), skills, [], []))


def test_a_skill_that_does_not_fit_is_left_out() -> None:
    skills = select_all([BREAD, LONG])
    alone = fill_bundle(empty(100_000), skills[:1], [], [])
    bundle = fill_bundle(empty(alone.tokens + 80), skills, [], LEFT_OUT)
    assert [skill.skill_id for skill in bundle.skills] == ["home:s0"]
    assert [(left.skill_id, left.reason) for left in bundle.left_out] == [
        ("home:s1", "did not fit into the budget"),
        ("home:other", "alternative to home:s0"),
    ]
    check(bundle)


def test_names_of_skills_that_do_not_fit_give_way_to_a_passage() -> None:
    skills = select_all([BREAD, LONG])
    alone = fill_bundle(empty(100_000), skills[:1], [], [])
    named = [
        LeftOutSkill(skill_id=f"home:far-{n}", name="far", reason="alternative to home:s0 " * 9)
        for n in range(5)
    ]
    bundle = fill_bundle(empty(alone.tokens + 60), skills, [], named)
    assert [skill.skill_id for skill in bundle.skills] == ["home:s0"]
    assert bundle.left_out == ()
    assert bundle.did_not_fit is not None
    assert bundle.did_not_fit.skills == 1
    check(bundle)


def test_too_small_a_budget_names_the_least() -> None:
    with pytest.raises(UsageError, match="give at least"):
        fill_bundle(empty(5), select_all([BREAD]), [], [])


def test_links_stay_among_those_sent() -> None:
    bundle = fill_bundle(empty(100_000), select_all([BREAD, LONG]), LINKS, [])
    assert [(link.source, link.target) for link in bundle.links] == [("home:s0", "home:s1")]


def test_files_are_absolute_and_bounded() -> None:
    draft = Draft("bread", "Bake bread", ["knead"], 5.0, 20)
    [skill] = fill_bundle(empty(100_000), select_all([draft]), [], []).skills
    assert len(skill.scripts) == 12
    assert all(path.startswith("/skills/s0/scripts/") for path in skill.scripts)
    assert skill.further_files == 8
    assert "\n- further files in its folder: 8\n" in render_skill(1, skill)


def test_a_short_skill_is_sent_whole() -> None:
    [skill] = fill_bundle(empty(100_000), select_all([BREAD]), [], []).skills
    assert skill.paged_by == "whole"
    assert skill.left_out.passages == 0


def test_headings_between_passages_are_part_of_them() -> None:
    blocks = ["knead", "## Heat", "### Oven", "bake", "### Empty", "## Eat", "slice"]
    [skill] = fill_bundle(empty(500), [select(replace(BREAD, blocks=blocks), 0)], [], []).skills
    [passage] = skill.passages
    assert passage.text == "\n\n".join(blocks)


def test_without_vectors_words_choose() -> None:
    [skill] = fill_bundle(empty(500), [select(LONG, 0)], [], []).skills
    assert skill.paged_by == "words"
    [skill] = fill_bundle(empty(100_000), [select(LONG, 0)], [], []).skills
    assert skill.paged_by == "whole"


def test_a_skill_without_any_body_is_its_header() -> None:
    draft = Draft("bread", "Bake bread", ["# Title only"], 5.0, 0)
    [skill] = fill_bundle(empty(100_000), select_all([draft]), [], []).skills
    assert skill.passages == ()


def test_a_skill_without_any_body_and_no_room_is_an_error_of_the_caller() -> None:
    draft = Draft("bread", "Bake bread", ["# Title only"], 5.0, 0)
    with pytest.raises(UsageError, match="give at least"):
        fill_bundle(empty(5), select_all([draft]), [], [])


def offer(draft: Draft, number: int, worth: float, enough: int) -> SkillPassages:
    skill = select(draft, number)
    chosen = replace(skill.chosen, worth=worth)
    return replace(skill, chosen=chosen, enough=enough, sufficiency=0.6)


def test_what_is_left_of_the_budget_holds_no_further_passage() -> None:
    # The second skill comes with a link whose tokens are not known before.
    link = replace(LINKS[0], evidence="named in steps " * 20)
    skills = [offer(LONG, 0, 1.0, 1), offer(PIE, 1, 0.5, 1)]
    bundle = fill_bundle(empty(950), skills, [link], [])
    assert len(bundle.skills) == 2
    assert bundle.budget - bundle.tokens < 60
    check(bundle)


def test_a_lead_in_that_is_sent_is_not_left_out() -> None:
    blocks = ["## Shape", "Shape the loaf in this order:", f"1. Fold {'dough ' * 200}", LONG_TEXT]
    skill = select(Draft("bread", "Bake bread", blocks, 5.0, 0), 0)
    [lead_in, item, rest] = skill.revision.parsed.passages
    assert item.lead_in == lead_in.index
    needed = replace(skill, passages=(item.index, rest.index), enough=1)
    whole = fill_bundle(empty(100_000), [needed], [], [])
    assert whole.skills[0].left_out.passages == 0
    bundle = fill_bundle(empty(whole.tokens - 50), [needed], [], [])
    [sent] = bundle.skills
    assert "Shape the loaf" in sent.passages[0].text
    assert sent.left_out.passages == 1
    assert sent.left_out.tokens == rest.tokens
    assert sent.left_out.lines == ((rest.first_line, rest.last_line),)


def test_all_left_out_lines_are_named_and_the_first_in_the_markdown() -> None:
    draft = Draft("bread", "Bake bread", [f"## Step {n}\n\nFold {n}." for n in range(30)], 5.0, 0)
    skill = select(draft, 0)
    needed = replace(skill, passages=tuple(range(0, 30, 2)), enough=15)
    bundle = fill_bundle(empty(100_000), [needed], [], [])
    [sent] = bundle.skills
    passages = skill.revision.parsed.passages
    assert sent.left_out.passages == 15
    assert sent.left_out.lines == tuple(
        (one.first_line, one.last_line) for one in passages if one.index % 2
    )
    shown = ", ".join(str(first) for first, _ in sent.left_out.lines[:12])
    assert f"Left out: lines {shown}, … (" in render_markdown(bundle)
    check(bundle)


def test_a_lead_in_is_not_sent_without_what_it_introduces() -> None:
    table = "| dough | g |\n|---|---|\n" + "| flour | 500 |\n" * 60
    blocks = ["## Scale", "Scale the dough by this table:", table, LONG_TEXT]
    skill = select(Draft("bread", "dough table by scale", blocks, 5.0, 0), 0)
    lead_in = skill.revision.parsed.passages[0]
    assert lead_in.tokens < 20
    for budget in range(200, 1200, 100):
        try:
            [sent] = fill_bundle(empty(budget), [skill], [], []).skills
        except UsageError:
            continue
        shown = "\n".join(passage.text for passage in sent.passages)
        assert ("Scale the dough" in shown) == ("| flour" in shown)
    assert sent.paged_by == "whole"


def test_short_lists_are_found_by_their_items() -> None:
    blocks = ["## Rest", "- cold\n- warm\n- covered", "Then bake.", "- hot\n- " + "long " * 200]
    parsed = select(Draft("bread", "warm", blocks, 5.0, 0), 0).revision.parsed
    assert find_short_lists(parsed.passages, 150) == {0: 0, 1: 0, 2: 0}


@given(DRAFTS)
@settings(max_examples=30, deadline=None)
def test_the_items_of_a_short_list_stay_together(drafts: list[Draft]) -> None:
    for draft in drafts:
        skill = select(replace(draft, blocks=[*draft.blocks, LONG_TEXT, LONG_TEXT]), 0)
        assert skill.selected_by == "words"
        lists = find_short_lists(skill.revision.parsed.passages, 150)
        keys = [lists.get(index, index) for index in skill.passages]
        assert len([key for key, _ in groupby(keys)]) == len(set(keys))
        assert not set(keys[: skill.enough]) & set(keys[skill.enough :])


PARTS = [f"heat({n})\nbake({n})\nwait({n})\nturn({n})" for n in range(5)]
CODE = Draft(
    "code", "Bake by code", ["## Script", "```python\n" + "\n\n".join(PARTS) + "\n```"], 5.0, 0
)


@pytest.mark.parametrize("part", [0, 2, 4])
def test_a_part_of_a_code_block_is_sent_between_fences(part: int) -> None:
    skill = select(CODE, 0)
    assert len(skill.revision.parsed.passages) == len(PARTS)
    one = replace(skill, passages=(part,), enough=1)
    bundle = fill_bundle(empty(100_000), [one], [], [])
    [sent] = bundle.skills[0].passages
    assert sent.open_fence == ("```python" if part else "")
    assert PARTS[part] in sent.text
    assert f"```python\n{PARTS[part]}\n```\n</passage>" in render_markdown(bundle)
    check(bundle)


def test_a_passage_names_its_heading_in_a_skill_without_a_title() -> None:
    skill = select(Draft("pie", "Bake pie", ["## Dough", "cold", "butter " * 300], 5.0, 0), 0)
    bundle = fill_bundle(empty(100_000), [replace(skill, passages=(1,), enough=1)], [], [])
    assert bundle.skills[0].passages[0].heading_path == ("pie", "Dough")
    assert 'under="Dough"' in render_markdown(bundle)
    check(bundle)


class _NoLinks:
    def get_links_among(self, skill_ids: Sequence[str]) -> list[Link]:
        return []


@dataclass
class _Catalog(_NoLinks):
    """entries: those of its skills, or why it does not answer."""

    entries: list[CatalogEntry] | TransientError

    def get_entries(self, skill_ids: Sequence[str]) -> list[CatalogEntry]:
        if isinstance(self.entries, TransientError):
            raise self.entries
        return [one for one in self.entries if one.skill_id in skill_ids]


def test_the_tokens_of_no_hit_are_those_of_its_markdown() -> None:
    request = QueryAsked(task="bake", session="s", brief=True)
    context = replace(make_context(_NoLinks()), request=request)
    bundle = assemble_no_hit(context, ChosenRevisions(Ranking(understand("bake"), None, ())))
    assert bundle.tokens == count_tokens(render_markdown(bundle)) > 0
    assert bundle.brief


def test_a_skill_that_is_left_out_is_named_by_its_folder() -> None:
    choice = SkillChoice(left_out=[LeftOut("home:pie", "x"), LeftOut("home:a/loaf", "x")])
    nothing = Ranking(understand("bake"), None, ())
    bundle = assemble_no_hit(make_context(_NoLinks()), ChosenRevisions(nothing, choice))
    assert [one.name for one in bundle.left_out] == ["pie", "loaf"]


def test_a_skill_that_does_not_fit_does_not_count_for_the_probability() -> None:
    skills = select_all([BREAD, LONG])
    hits = tuple(
        RankedSkill(one.revision.key, one.chosen.score, {}, (), probability=probability)
        for one, probability in zip(skills, (0.2, 0.6), strict=True)
    )
    ranking = Ranking(understand("bake"), None, hits, probability=0.9)
    revisions = {one.revision.key.skill_id: one.revision for one in skills}
    chosen = ChosenRevisions(ranking, SkillChoice([one.chosen for one in skills]), revisions)
    whole = assemble(make_context(_NoLinks(), budget=100_000), chosen, skills)
    assert [skill.skill_id for skill in whole.skills] == ["home:s0", "home:s1"]
    assert whole.probability == 0.9
    alone = assemble(make_context(_Catalog([]), budget=250), chosen, skills)
    assert [skill.skill_id for skill in alone.skills] == ["home:s0"]
    assert alone.probability == 0.225  # its share of the candidates, of the library's


CANDIDATES = [
    CatalogEntry(
        f"away:c{n}",
        "away",
        f"c{n}",
        SkillState.PUBLISHED,
        name=f"c{n}",
        description=f"Knits {n} jumpers.  Use it for wool. " + "And more. " * 30,
        seq=n,
        tokens=1000 + n,
    )
    for n in range(1, 9)
]


def rank_candidates(probabilities: Sequence[float | None]) -> ChosenRevisions:
    """A ranking of the candidates, none of which is chosen."""
    hits = tuple(
        RankedSkill(RevisionKey(one.skill_id, one.seq), 1.0, {}, (), probability=probability)
        for one, probability in zip(CANDIDATES, probabilities, strict=False)
    )
    return ChosenRevisions(Ranking(understand("bake"), None, hits, probability=0.9))


def test_candidates_are_described_with_the_tokens_that_passages_leave() -> None:
    chosen = rank_candidates([0.04, 0.03, 0.004, None, 0.02, 0.01, 0.006, 0.005])
    context = make_context(_Catalog(CANDIDATES), budget=100_000)
    context.policy_filter.sources = tuple(
        Source(name, "directory", f"/{name}") for name in ("home", "away", "other")
    )
    skills = select_all([BREAD, LONG])
    plain = fill_bundle(empty(100_000), skills, [], [])
    bundle = assemble(context, chosen, skills)
    check(bundle)
    assert [one.skill_id for one in bundle.left_out] == [f"away:c{n}" for n in (1, 2, 5, 6, 7)]
    assert {one.cause for one in bundle.left_out} == {"improbable"}
    assert bundle.folders == {"home": "/home/", "away": "/away/"}
    line = "- away:c1 (1001 tokens, probability 0.04): Knits 1 jumpers. Use it for wool."
    assert line in render_markdown(bundle)
    for budget in range(plain.tokens, bundle.tokens + 1, 30):
        context = make_context(_Catalog(CANDIDATES), budget=budget)
        bundle = assemble(context, chosen, skills)
        check(bundle)
        assert [one.passages for one in bundle.skills] == [one.passages for one in plain.skills]


@pytest.mark.parametrize("values", [{"seq": 9}, {"safety_level": 1}, {"description": ""}])
def test_candidates_that_changed_or_have_findings_are_not_described(
    values: dict[str, Any],
) -> None:
    entries = [replace(CANDIDATES[0], **values), *CANDIDATES[1:]]
    context = make_context(_Catalog(entries), budget=100_000)
    bundle = assemble(context, rank_candidates([0.04, 0.03]), select_all([BREAD]))
    assert [one.skill_id for one in bundle.left_out] == ["away:c2"]


def test_a_dependency_that_does_not_fit_is_described() -> None:
    skills = select_all([BREAD, LONG])
    needed = replace(skills[1].chosen, needed_by="home:s0", probability=0.9)
    revisions = {one.revision.key.skill_id: one.revision for one in skills}
    choice = SkillChoice([skills[0].chosen, needed])
    entry = replace(CANDIDATES[0], skill_id="home:s1", seq=revisions["home:s1"].key.seq)
    alone = fill_bundle(empty(100_000), skills[:1], [], [])
    bundle = assemble(
        make_context(_Catalog([entry]), budget=alone.tokens + 110),
        ChosenRevisions(Ranking(understand("bake"), None, ()), choice, revisions),
        [skills[0], replace(skills[1], chosen=needed)],
    )
    check(bundle)
    [left] = bundle.left_out
    assert (left.skill_id, left.cause, left.probability) == ("home:s1", "budget", 0.9)
    assert left.description.startswith("Knits 1 jumpers.")


def test_copies_of_a_candidate_are_described_once() -> None:
    copy = replace(CANDIDATES[1], description=CANDIDATES[0].description)
    context = make_context(_Catalog([CANDIDATES[0], copy, CANDIDATES[2]]), budget=100_000)
    bundle = assemble(context, rank_candidates([0.04, 0.03, 0.02]), select_all([BREAD]))
    assert [one.skill_id for one in bundle.left_out] == ["away:c1", "away:c3"]


def test_no_candidate_is_described_after_a_model_selected_the_skills() -> None:
    chosen = rank_candidates([0.04, 0.03])
    ranking = replace(chosen.ranking, selection=Selection(("home:s0",), {}, (), {}, complete=True))
    context = make_context(_Catalog(CANDIDATES), budget=100_000)
    assert not assemble(context, replace(chosen, ranking=ranking), select_all([BREAD])).left_out


def test_an_answer_names_no_candidates_while_the_catalog_is_away() -> None:
    context = make_context(_Catalog(TransientError("gone")), budget=100_000)
    bundle = assemble(context, rank_candidates([0.04]), select_all([BREAD]))
    assert not bundle.left_out
    assert context.degradations.reasons == ("no descriptions of further candidates",)


@pytest.mark.parametrize(
    ("kind", "root", "path", "folders"),
    [
        ("directory", "/skills", "", {"home": "/skills/"}),
        ("git", "https://git.example/a.git", "", {"home": "https://git.example/a.git//"}),
        ("git", "https://git.example/a.git", "lib", {"home": "https://git.example/a.git//lib/"}),
        ("upload", "upload:home", "", {}),
    ],
)
def test_the_folder_of_a_source_is_named_unless_it_has_uploads(
    kind: str, root: str, path: str, folders: dict[str, str]
) -> None:
    context = make_context(_NoLinks(), budget=100_000)
    other = Source("other", "directory", "/others")
    context.policy_filter.sources = (Source("home", kind, root, path=path), other)
    chosen = ChosenRevisions(Ranking(understand("bake"), None, ()))
    assert assemble(context, chosen, select_all([BREAD])).folders == folders
