"""Analysis of a parsed skill for the index: token fields, term counts, texts to encode, link terms.

All functions are pure: the same parsed skill always gives the same document.
"""

from __future__ import annotations

import re
from collections.abc import Iterable, Iterator, Sequence
from dataclasses import dataclass, replace
from hashlib import blake2b
from itertools import chain, islice

import numpy as np
import numpy.typing as npt

from search.completed_terms import count_completed, tag_tokens
from search.protocol import (
    FIELDS,
    TEXT_FIELDS,
    CompletedTerms,
    ForwardRecord,
    PassageTerms,
    TermIds,
)
from search.text.background_frequencies import BackgroundFrequencies
from search.text.stated_uses import (
    find_quoted_phrases,
    is_exclusion_heading,
    split_exclusions,
)
from search.text.tokens import bigram_ids, is_cjk, term_ids, tokenize, word_count
from skills.passages import section_texts
from skills.record import ParsedSkill, PassageKind, SkillRecord

ANALYSIS_VERSION = 5
"""Part of every index's schema: increment when `analyse_skill` or `tokenize` gives another result
for the same skill, so that `skillbus reindex` analyses all skills again."""

BIGRAM_WEIGHTS = {"name": 3.0, "description": 2.0, "headings": 1.0}
"""Weight of a bigram, an adjacent pair of tokens, by field."""

DESCRIPTION_PIECES, HEAD_PIECES = 80, 112
"""Limits of the two encoded texts in estimated word pieces; encoding time is linear in them."""

MAX_EXAMPLE_TERMS, MAX_EXCLUSIONS = 256, 16
"""Limits of what a skill may state about its uses, so that long lists cost a query no time."""

_MAX_COUNT = np.iinfo(np.uint16).max
_PIECE = re.compile(r"[^\W_]+|[^\w\s]|_")


@dataclass(frozen=True, slots=True)
class SkillAnalysis:
    """Token fields (in the order of FIELDS) and term counts of one revision."""

    fields: tuple[tuple[str, ...], ...]
    forward: ForwardRecord
    passage_terms: PassageTerms


def analyse_skill(parsed: ParsedSkill) -> SkillAnalysis:
    """Tokenise a parsed skill, for the engine, for exact scores and for selecting passages."""
    record = parsed.record
    # The words of what a skill is not for are no evidence for it.
    stated, excluded = split_exclusions(f"{record.description}\n{record.when_to_use}")
    streams = [tokenize(parsed.text(p.first_line, p.last_line)) for p in parsed.passages]
    prose: list[str] = []
    code: list[str] = []
    for passage, stream in zip(parsed.passages, streams, strict=True):
        (code if passage.kind is PassageKind.CODE else prose).extend(stream)
    headings = "\n".join(s.heading_path[-1] for s in parsed.sections if s.heading_path)
    fields = (
        tuple(tokenize(record.name)),
        tuple(tokenize(stated)),
        tuple(tokenize(headings)),
        tuple(prose),
        tuple(code),
    )
    body = term_ids(list(chain.from_iterable(streams)))
    passage_of = np.repeat(np.arange(len(streams)), [len(stream) for stream in streams])
    is_code = np.array([p.kind is PassageKind.CODE for p in parsed.passages], dtype=np.bool_)
    in_code = is_code[passage_of]
    ids = [*map(term_ids, fields[:3]), body[~in_code], body[in_code]]
    completed = tuple(count_completed(completion) for completion in record.completions)
    return SkillAnalysis(
        (*fields, tag_tokens(record.completions)),
        replace(
            _forward(fields, ids, completed),
            examples=_example_terms(record, stated),
            excluded=tuple(_excluded_terms(parsed, excluded)),
        ),
        _passage_terms(body, passage_of, len(streams)),
    )


def _example_terms(record: SkillRecord, stated: str) -> TermIds:
    """Return the terms of what users may say: example tasks, and phrases that the text quotes."""
    phrases = [*record.example_tasks, *find_quoted_phrases(stated)]
    return np.unique(term_ids(tokenize("\n".join(phrases))))[:MAX_EXAMPLE_TERMS]


def _excluded_terms(parsed: ParsedSkill, clauses: Iterable[str]) -> Iterator[TermIds]:
    """Yield the terms of each use that the description or a section of the body excludes."""
    lines = [
        line
        for section in parsed.sections
        if section.heading_path and is_exclusion_heading(section.heading_path[-1])
        for line in parsed.lines[section.first_line : section.last_line]
    ]
    found = (np.unique(term_ids(tokenize(text))) for text in dict.fromkeys((*clauses, *lines)))
    yield from islice((terms for terms in found if len(terms)), MAX_EXCLUSIONS)


def _forward(
    fields: Sequence[Sequence[str]], ids: Sequence[TermIds], completed: tuple[CompletedTerms, ...]
) -> ForwardRecord:
    terms, inverse = np.unique(np.concatenate(ids), return_inverse=True)
    positions = np.repeat(np.arange(len(fields)), [len(field) for field in ids])
    totals = np.bincount(inverse * len(fields) + positions, minlength=len(terms) * len(fields))
    counts = np.minimum(totals, np.iinfo(np.uint8).max).astype(np.uint8)
    pairs = [np.unique(bigram_ids(ids[TEXT_FIELDS.index(name)])) for name in BIGRAM_WEIGHTS]
    weights = np.repeat([*BIGRAM_WEIGHTS.values()], [*map(len, pairs)])
    bigrams, places = np.unique(np.concatenate(pairs), return_inverse=True)
    return ForwardRecord(
        terms=terms,
        counts=counts.reshape(len(terms), len(fields)),
        bigrams=bigrams,
        bigram_weights=np.bincount(places, weights, len(bigrams)).astype(np.float32),
        lengths=np.array([word_count(tokens) for tokens in fields], dtype=np.float32),
        completed=completed,
    )


def _passage_terms(body: TermIds, passage_of: npt.NDArray[np.intp], passages: int) -> PassageTerms:
    """Return the terms of each passage; body holds all terms, passage_of the passage of each."""
    order = np.lexsort((body, passage_of))
    terms, places = body[order], passage_of[order]
    is_first = np.ones(len(terms), dtype=np.bool_)
    is_first[1:] = (terms[1:] != terms[:-1]) | (places[1:] != places[:-1])
    starts = np.flatnonzero(is_first)
    counts = np.diff(starts, append=len(terms))
    offsets = np.zeros(passages + 1, dtype=np.int32)
    np.cumsum(np.bincount(places[starts], minlength=passages), out=offsets[1:])
    return PassageTerms(offsets, terms[starts], np.minimum(counts, _MAX_COUNT).astype(np.uint16))


# -- texts to encode


def truncate_to_pieces(text: str, pieces: int) -> str:
    """Return the start of a text of about `pieces` word pieces, cut at a word.

    The estimate is for tokenizers of the BERT family: one piece per word, one more for every six
    letters after the first, and one per Chinese character and punctuation mark.
    """
    used = 0
    for match in _PIECE.finditer(text):
        word = match.group()
        used += len(word) if is_cjk(word) else 1 + (len(word) - 1) // 6
        if used > pieces:
            return text[: match.start()].rstrip()
    return text.strip()


def skill_texts(parsed: ParsedSkill) -> tuple[str, str]:
    """Return the two encoded texts of a skill: name + description, and the head of its body."""
    record = parsed.record
    name = record.name.replace("-", " ").replace("_", " ")
    description = truncate_to_pieces(f"{name}: {record.description}", DESCRIPTION_PIECES)
    body = parsed.lines[parsed.body_line - 1 :] if parsed.body_line else parsed.lines
    return description, truncate_to_pieces("\n".join(_head_lines(body)), HEAD_PIECES)


def _head_lines(lines: Iterable[str]) -> list[str]:
    """Return the first nonempty lines, without Markdown marks, up to what HEAD_PIECES can use."""
    head: list[str] = []
    room = HEAD_PIECES * 12
    for line in lines:
        bare = line.strip("#*`>-= \t\r")
        if bare:
            head.append(bare[:room])
            room -= len(bare)
            if room <= 0:
                break
    return head


def text_hash(model: str, text: str) -> bytes:
    """Return the 16-byte key of the vector of a text by a model."""
    digest = blake2b(model.encode(), digest_size=16)
    digest.update(b"\0")
    digest.update(text.encode("utf-8", "surrogatepass"))
    return digest.digest()


def skill_text_hashes(model: str, parsed: ParsedSkill) -> tuple[bytes, ...]:
    """Return the keys of the two vectors of a skill."""
    return tuple(text_hash(model, text) for text in skill_texts(parsed))


def section_text_hashes(model: str, parsed: ParsedSkill) -> tuple[bytes, ...]:
    """Return the keys of the vectors of a skill's sections, in order."""
    return tuple(text_hash(model, text) for text in section_texts(parsed))


# -- terms that links compare


def body_terms(
    analysis: SkillAnalysis, background: BackgroundFrequencies, top: int = 128
) -> dict[int, float]:
    """Return the `top` heaviest terms of the whole skill as a unit vector, by term hash.

    The weight is (1 + ln tf) x background idf, so that the score of a pair of skills does not
    depend on other skills. Lighter terms hardly change the cosine.
    """
    forward = analysis.forward
    counts = forward.counts.sum(axis=1, dtype=np.int64)
    return _unit_vector(forward.terms, counts, background, top)


def description_terms(
    analysis: SkillAnalysis, background: BackgroundFrequencies, top: int = 64
) -> dict[int, float]:
    """Return the terms of name and description as a unit vector, weighted as in `body_terms`."""
    name, description = FIELDS.index("name"), FIELDS.index("description")
    ids = term_ids(analysis.fields[name] + analysis.fields[description])
    return _unit_vector(*np.unique(ids, return_counts=True), background, top)


def _unit_vector(
    terms: TermIds, counts: npt.NDArray[np.int64], background: BackgroundFrequencies, top: int
) -> dict[int, float]:
    """Return the `top` heaviest of distinct terms, each of which occurs, by term hash."""
    idf = background.idf(terms)
    tf = np.log(counts.astype(np.float64)) + 1.0
    weights = np.where(background.is_common(idf), 0.0, tf * idf)
    heaviest = np.lexsort((terms, -weights))[:top]
    norm = np.linalg.norm(weights[heaviest])
    heaviest = heaviest[weights[heaviest] > 0]
    shares = weights[heaviest] / norm
    return dict(zip(terms[heaviest].tolist(), shares.tolist(), strict=True))
