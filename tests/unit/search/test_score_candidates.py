from __future__ import annotations

import math
from typing import Any

import numpy as np
import pytest
from hypothesis import given, settings
from hypothesis import strategies as st

from search.protocol import TEXT_FIELDS
from search.scoring.cosine_scale import DEFAULT_SCALE, CosineScale
from search.scoring.score_candidates import ScoredCandidates, long_task_weight
from search.scoring.weights import ScoringWeights
from search.skill_analysis import analyse_skill
from search.text.query_understanding import understand
from search.text.tokens import term_id
from skills.parsing.parse_skill import parse_skill
from skills.record import RevisionKey
from tests.support.samples.candidates import Candidate, score, statistics_of


def skill(name: str, description: str, body: str = "Follow along.") -> Candidate:
    text = f"---\nname: {name}\ndescription: {description}\n---\n# {name}\n\n{body}\n"
    forward = analyse_skill(parse_skill(name, text.encode())).forward
    return Candidate(RevisionKey(f"home:{name}", 1), forward)


TREES = ("alder", "birch", "cedar", "elm")
LIBRARY = [
    skill("kiln-firing", "Plans kiln schedules for stoneware", "Check cones and glaze."),
    skill("loom-setup", "Warps a loom", "Wind the warp, then thread heddles."),
    skill("tide-tables", "Reads tide tables", "Look up the port, then the hour."),
    skill("xlsx-reports", "Writes reports", "Fill cells with figures."),
    *(
        skill(f"plain-{w}", f"About {w}", f"All of {w}.")
        for w in ["alder", "birch", "cedar", "elm"]
    ),
]
STATISTICS = statistics_of(LIBRARY)
LONG = "Fire the stoneware in a kiln on a schedule with cones. " + " ".join(
    f"detail{chr(97 + i % 26)}{chr(97 + i // 26)}" for i in range(90)
)


def names(text: str, **options: Any) -> list[str]:
    scored = score(understand(text), LIBRARY, STATISTICS, **options)
    return [key.skill_id.removeprefix("home:") for key in scored.keys]


def component(scored: ScoredCandidates, key: RevisionKey, name: str) -> float:
    return float(scored.components[name][scored.keys.index(key)])


def test_the_skill_that_is_meant_comes_first() -> None:
    assert names("How do I fire stoneware in my kiln?")[0] == "kiln-firing"
    assert names(LONG)[0] == "kiln-firing"
    assert names("thread the heddles")[0] == "loom-setup"


def test_bm25f_is_the_formula_it_claims() -> None:
    task = understand("loom")
    weights = ScoringWeights()
    scored = score(task, LIBRARY, STATISTICS, weights)
    loom = LIBRARY[1]
    row = int(np.searchsorted(loom.forward.terms, term_id("loom")))
    n, df = len(LIBRARY), 1
    idf = math.log(1 + (n - df + 0.5) / (df + 0.5))
    tf = 0.0
    for place in range(len(TEXT_FIELDS)):
        b = weights.length_norms[place]
        ratio = loom.forward.lengths[place] / STATISTICS.mean_lengths[place]
        if loom.forward.counts[row, place] == 0:
            continue
        weight = weights.field_weights[place] if place < 3 else weights.body_short
        tf += weight * loom.forward.counts[row, place] / (1 - b + b * ratio)
    k = weights.k_short
    expected = idf * (k + 1) * tf / (tf + k) / math.sqrt(idf)
    assert scored.keys[0] == loom.key
    assert scored.evidence[0] == pytest.approx(expected, rel=1e-5)
    assert scored.evidence[1:].tolist() == [0.0] * (n - 1)


def test_blend_runs_from_short_to_long() -> None:
    weights = ScoringWeights()
    assert long_task_weight(understand("fire the kiln"), weights) == 0.0
    assert long_task_weight(understand(LONG), weights) == 1.0


def test_chinese_pairs_count_half() -> None:
    weights = ScoringWeights()
    question = "请帮我把这个季度的销售数据整理成一份可以给客户看的汇报材料"
    assert long_task_weight(understand(question), weights) == 0.0


def test_dense_scores_decide_short_queries() -> None:
    task = understand("unseen words")
    near = Candidate(LIBRARY[2].key, LIBRARY[2].forward, (0.9, 0.9))
    mean = DEFAULT_SCALE.mean
    same = Candidate(LIBRARY[0].key, LIBRARY[0].forward, (mean, mean))
    scored = score(task, [same, near], STATISTICS)
    assert scored.keys[0] == near.key
    assert component(scored, same.key, "dense") == pytest.approx(0.0)


def test_cosines_count_by_the_scale_of_their_encoder() -> None:
    task = understand("unseen words")
    near = Candidate(LIBRARY[2].key, LIBRARY[2].forward, (0.2, 0.2))
    narrow = Candidate(LIBRARY[2].key, LIBRARY[2].forward, (0.84, 0.84))
    wide = score(task, [near], STATISTICS, scale=CosineScale(0.0, 0.1))
    other = score(task, [narrow], STATISTICS, scale=CosineScale(0.8, 0.02))
    assert wide.scores[0] == pytest.approx(other.scores[0])
    assert wide.scores[0] > 0


def test_unknown_cosines_are_taken_as_those_of_equal_matches() -> None:
    task = understand("Fire the stoneware in a kiln")
    seen = [Candidate(c.key, c.forward, (0.5, 0.5)) for c in LIBRARY if c is not LIBRARY[1]]
    scored = score(task, [*seen, LIBRARY[1]], STATISTICS)
    parts = [component(scored, c.key, "dense") for c in (LIBRARY[0], LIBRARY[1])]
    assert parts[0] == pytest.approx(parts[1])
    none = score(task, LIBRARY, STATISTICS)
    assert not none.components["dense"].any()


def test_a_query_that_is_a_name_finds_it_before_longer_names() -> None:
    longer = skill("kiln-firing-and-loom-setup", "Plans kiln firing", "Kiln firing. " * 30)
    library = [*LIBRARY, longer]
    statistics = statistics_of(library)
    scored = score(understand("kiln-firing"), library, statistics)
    assert scored.keys[0].skill_id == "home:kiln-firing"


def test_a_hub_is_marked_down_for_long_tasks() -> None:
    everything = " ".join(["use file data test build run code project write create update"] * 9)
    hub = skill("plain-hub", f"About elm {everything}", everything)
    library = [*LIBRARY, hub]
    statistics = statistics_of(library)
    weights = ScoringWeights(hub_rivals=10.0)
    scored = score(understand(f"elm {LONG}"), library, statistics, weights)
    parts = {key.skill_id: component(scored, key, "hub") for key in scored.keys}
    assert parts["home:plain-hub"] == min(parts.values())
    more = ScoringWeights(hub_rivals=1000.0)
    there = score(understand(f"elm {LONG}"), library, statistics, more)
    others = {key.skill_id: component(there, key, "hub") for key in there.keys}
    spread = max(parts.values()) - min(parts.values())
    assert max(others.values()) - min(others.values()) < 0.1 * spread
    short = score(understand("elm"), library, statistics, weights)
    assert not short.components["hub"].any()
    free = score(understand("elm"), library, statistics, without=frozenset({"hub"}))
    assert "hub" not in free.components


def test_a_description_that_has_the_words_comes_before_a_body_that_has_them() -> None:
    said = skill("plain-oak", "Prunes the oak in winter", "Nothing more to say.")
    meant = skill("plain-ash", "Nothing more to say", "Prunes the oak in winter.")
    library = [*LIBRARY, said, meant]
    statistics = statistics_of(library)
    scored = score(understand("prune an oak in winter"), library, statistics)
    assert scored.keys[0] == said.key
    assert component(scored, meant.key, "description") < component(scored, said.key, "description")


def test_a_skill_that_excludes_the_task_comes_after_one_that_offers_it() -> None:
    excludes = skill("oak-care", "Prunes the oak. Not for watering an oak; use garden-hose.")
    offers = skill("garden-hose", "Watering of oak and ash with a hose in summer and in spring")
    library = [*LIBRARY, excludes, offers]
    statistics = statistics_of(library)
    task = "watering an oak"
    scored = score(understand(task), library, statistics)
    assert scored.keys[0] == offers.key
    assert component(scored, excludes.key, "exclusions") < 0
    assert component(scored, offers.key, "exclusions") == 0
    there = score(understand("prune the oak"), library, statistics)
    assert there.keys[0] == excludes.key
    assert component(there, excludes.key, "exclusions") == 0


def test_a_prompt_like_a_quoted_example_finds_the_skill() -> None:
    quoted = skill("plain-oak", "Care of trees. Use when the user says 'my leaves turn brown'.")
    library = [*LIBRARY, quoted]
    statistics = statistics_of(library)
    scored = score(understand("why do leaves turn brown"), library, statistics)
    assert scored.keys[0] == quoted.key
    assert component(scored, quoted.key, "examples") > 0


def test_a_named_format_gets_a_place() -> None:
    weights = ScoringWeights(slots=2)
    task = understand("Read kiln schedules and stoneware loom cones from `firing.xlsx`")
    scored = score(task, LIBRARY, STATISTICS, weights)
    assert RevisionKey("home:xlsx-reports", 1) in scored.keys[:2]
    free = score(task, LIBRARY, STATISTICS, weights, frozenset({"artifacts"}))
    assert free.slots == {}
    assert sorted(free.keys) == sorted(scored.keys)


def test_parts_can_be_left_out() -> None:
    every = frozenset({"names", "bigrams", "hub", "dense", "artifacts"})
    scored = score(understand("kiln firing"), LIBRARY, STATISTICS, without=every)
    assert list(scored.components) == ["bm25f", "description", "examples", "exclusions"]


def test_nothing_to_score() -> None:
    assert score(understand("kiln"), [], STATISTICS).keys == ()
    assert len(score(understand("what is it"), LIBRARY, STATISTICS).keys) == len(LIBRARY)


@settings(max_examples=30, deadline=None)
@given(st.permutations(range(len(LIBRARY))), st.sampled_from([LONG, "loom kiln", "图", "what"]))
def test_order_does_not_depend_on_arrival(order: list[int], text: str) -> None:
    task = understand(text)
    one = score(task, LIBRARY, STATISTICS)
    other = score(task, [LIBRARY[i] for i in order], STATISTICS)
    assert one.keys == other.keys
    assert np.allclose(one.scores, other.scores)
    assert np.isfinite(one.scores).all()
    parts = sum(one.components.values())
    assert np.allclose(parts, one.scores)
