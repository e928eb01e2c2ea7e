"""The pairs that an encoder is trained on: trigger phrases, own text, repositories."""

from __future__ import annotations

from pathlib import Path

import pytest

from config.errors import PermanentError
from search.protocol import StoredRevision
from search.skill_analysis import analyse_skill, skill_texts
from skills.parsing.parse_skill import parse_skill
from skills.record import ParsedSkill, RevisionKey
from workers.training.encoder.encoder_pairs import (
    EncoderOptions,
    EncoderTrainingSet,
    TrainingPair,
)
from workers.training.encoder.encoder_training import make_batch
from workers.training.encoder.mine_pairs import make_own_pairs, name_repositories
from workers.training.encoder.trigger_phrases import find_trigger_phrases
from workers.training.query_origins import LABELLED, OWN_TEXT, SECTIONS, TRIGGERS
from workers.training.trainer import TRAINING_SET_FILE, load_training_set, save_training_set

BODY = """# Kiln

Opening words about "quoted words in passing" and nothing else.

## When to use

- "my mugs came out grey"
- “烧制陶器的温度曲线”
- `npm run kiln`, "https://kiln.example/a b", "src/kiln.py now"

## Loading

Leave a finger of room between pots on every shelf. More words follow here.

## Cooling

Wait until the pyrometer reads less than ninety degrees before the door is opened.
"""


def parse(description: str, body: str = BODY) -> ParsedSkill:
    text = f"---\nname: kiln-firing\ndescription: |\n  {description}\n---\n{body}"
    return parse_skill("kiln-firing", text.encode())


KILN = parse("Fire stoneware well. Use it when a user says 'dry these pots' or \"glaze\".")


def revision(parsed: ParsedSkill) -> StoredRevision:
    terms = analyse_skill(parsed).passage_terms
    return StoredRevision(RevisionKey("crafts:kiln", 1), "hash", parsed, terms, ())


def test_trigger_phrases_are_quoted_requests() -> None:
    found = find_trigger_phrases(KILN)
    assert set(found) == {
        "dry these pots",
        "my mugs came out grey",
        "烧制陶器的温度曲线",
        "npm run kiln",
    }


def test_a_skill_without_quotes_has_no_trigger_phrases() -> None:
    assert find_trigger_phrases(parse("Don't rush; it's the potters' way.", "# X\n")) == ()


def test_pairs_of_a_skill_say_where_they_come_from() -> None:
    options = EncoderOptions("base", ("en",), pairs=12)
    pairs = make_own_pairs("crafts:kiln", revision(KILN), options)
    origins = [pair.origin for pair in pairs]
    assert origins[:4] == [TRIGGERS] * 4
    assert {SECTIONS, OWN_TEXT} <= set(origins)
    assert len(pairs) <= 12
    description = skill_texts(KILN)[0]
    for pair in pairs:
        assert pair.needed == ("crafts:kiln",)
        if pair.origin == SECTIONS:
            assert pair.query == KILN.record.description
            assert pair.text.splitlines()[0] in ("When to use", "Loading", "Cooling") or pair.text
        else:
            assert pair.query not in pair.text
    phrase = next(pair for pair in pairs if pair.query == "dry these pots")
    assert phrase.text == description.replace("dry these pots", " ")
    assert pairs == make_own_pairs("crafts:kiln", revision(KILN), options)
    few = make_own_pairs("crafts:kiln", revision(KILN), EncoderOptions("b", ("en",), pairs=2))
    assert [pair.origin for pair in few] == [TRIGGERS] * 2


def test_no_part_of_a_query_is_left_at_the_cut_of_a_long_description() -> None:
    topics = ("mugs", "bowls", "plates", "vases", "tiles", "pots", "lids", "jars", "cups")
    says = [f"Throw {topic} on the wheel and trim the feet of {topic} well." for topic in topics]
    long = parse(" ".join(says), "# X\n")
    assert len(skill_texts(long)[0]) < len(long.record.description)
    options = EncoderOptions("base", ("en",), pairs=9)
    pairs = make_own_pairs("crafts:kiln", revision(long), options)
    left = [pair for pair in pairs if pair.origin == OWN_TEXT and pair.query in says]
    assert len(left) > 5
    for pair in left:
        topic = topics[says.index(pair.query)]
        assert topic not in pair.text


def test_repositories_are_named_by_source_and_folder_or_by_a_pattern() -> None:
    ids = ["a:one/x", "a:one/y", "a:two/x", "b:z"]
    assert name_repositories(ids, "") == {
        "a:one/x": "a:one",
        "a:one/y": "a:one",
        "a:two/x": "a:two",
        "b:z": "b:z",
    }
    assert set(name_repositories(ids, "^[ab]:").values()) == {"a:", "b:"}
    assert name_repositories(["a:x/1", "a:x/2"], "") == {"a:x/1": "a:x/1", "a:x/2": "a:x/2"}
    assert name_repositories(["a:x"], "nothing") == {"a:x": "a:x"}


def training_set() -> EncoderTrainingSet:
    return EncoderTrainingSet(
        EncoderOptions("base", ("en", "zh"), seed=3, negatives=1),
        [
            TrainingPair(LABELLED, "问 one", ("a:1", "a:4"), "", ("a:3",)),
            TrainingPair(OWN_TEXT, "two", ("a:2",), "part of two", ("a:1", "a:4")),
        ],
        [TrainingPair(LABELLED, "held", ("a:4",))],
        {f"a:{number}": f"text {number}" for number in range(1, 5)},
        {"a:2": ("a:3",), "a:3": ("a:2",)},
        ("a:1", "a:4"),
        {"a:4": "r"},
        {"skills": 4},
        {"name": 0.125},
    )


def test_a_training_set_is_read_back_as_it_was_written(tmp_path: Path) -> None:
    save_training_set(tmp_path, training_set())
    assert load_training_set(tmp_path, EncoderTrainingSet) == training_set()


@pytest.mark.parametrize("content", ["", "[]", "{}", '{"options": {"languages": []}}'])
def test_a_damaged_training_set_is_refused(tmp_path: Path, content: str) -> None:
    (tmp_path / TRAINING_SET_FILE).write_text(content, encoding="utf-8")
    with pytest.raises(PermanentError, match="start over with --fresh"):
        load_training_set(tmp_path, EncoderTrainingSet)


def test_a_batch_masks_what_may_serve_as_well() -> None:
    made = training_set()
    batch = make_batch(made, made.pairs, 0)
    assert batch.queries == ["问 one", "two"]
    assert batch.texts[:3] == ["text 1", "part of two", "text 3"]
    assert batch.texts[3] in ("text 1", "text 4")
    # Query 1 needs skills 1 and 4; query 2 needs skill 2, of which 3 is a duplicate.
    assert batch.masked.tolist() == [[False, False, False, True], [False, False, True, False]]
    assert make_batch(made, made.pairs, 0).texts == batch.texts
