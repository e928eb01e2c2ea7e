"""The tokens of the packaged model are those of the library `tokenizers`."""

from __future__ import annotations

from collections.abc import Sequence
from pathlib import Path

import pytest
from tokenizers import Regex, Tokenizer, models, normalizers, pre_tokenizers

from search.models.packed_weights import PackedWeights, Vocabulary, packed_weights_path
from search.models.unigram import UnigramTokenizer

SKILLS = Path(__file__).resolve().parents[3] / "examples" / "skills"
EDGE_CASES = (
    "",
    " ",
    " a  b ",
    "\n\n",
    "a\x00b\x07",
    "\u200b",
    "全角　ＡＢＣ ｶﾀｶﾅ ﬁ",
    "<s> x </s> <unk> <mask>",
    "▁▁a ▁",
    "XXXXX" * 9,
    "\U0001f9f5\U0001f9f6 \U00013000\U00013001 yarn",
    "x" * 5_000,
)


@pytest.fixture(scope="module")
def vocabulary() -> Vocabulary:
    return PackedWeights(packed_weights_path()).vocabulary


def expected(vocabulary: Vocabulary, texts: Sequence[str], limit: int) -> list[list[int]]:
    codes = vocabulary.codes.tobytes().decode("utf-32-le")
    ends, scores = vocabulary.ends.tolist(), vocabulary.scores.tolist()
    places = zip(ends, ends[1:], scores, strict=False)
    pieces = [(codes[start:end], score) for start, end, score in places]
    tokenizer = Tokenizer(models.Unigram(pieces, unk_id=vocabulary.unknown))
    tokenizer.normalizer = normalizers.Sequence(
        [normalizers.Nmt(), normalizers.NFKC(), normalizers.Replace(Regex(" {2,}"), " ")]
    )
    tokenizer.pre_tokenizer = pre_tokenizers.Metaspace(prepend_scheme="always")
    rows = [encoding.ids[: limit - 2] for encoding in tokenizer.encode_batch(list(texts))]
    return [[vocabulary.begin, *row, vocabulary.end] for row in rows]


def test_tokens_are_those_of_the_library(vocabulary: Vocabulary) -> None:
    skills = [path.read_text("utf-8", "replace") for path in sorted(SKILLS.glob("*/SKILL.md"))]
    parts = [text[place : place + 700] for text in skills for place in range(0, len(text), 700)]
    texts = [*EDGE_CASES, *skills, *parts]
    assert len(parts) > 60
    found = UnigramTokenizer(vocabulary).tokenize(texts, 256)
    assert found == expected(vocabulary, texts, 256)


def test_a_lone_surrogate_is_an_unknown_character(vocabulary: Vocabulary) -> None:
    [row] = UnigramTokenizer(vocabulary).tokenize(["a \ud800"], 16)
    assert row[-2] == vocabulary.unknown
