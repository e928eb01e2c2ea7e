"""What a task asks for, read without a model: terms, sub-queries, artifacts, formats, language."""

from __future__ import annotations

import re
from collections import Counter
from collections.abc import Iterable, Sequence
from dataclasses import dataclass

import numpy as np

from config.errors import UsageError
from search.protocol import TermIds, Vector
from search.text.background_frequencies import load_background
from search.text.tokens import bigram_ids, term_ids, tokenize, word_count
from skills.parsing.language_detection import detect_language

FIRST_CHARACTERS, LAST_CHARACTERS = 48_000, 16_000
"""Of a longer task the start and the end are read: about 8,000 and 2,500 English words."""

MAX_TASK_TERMS = 600
"""At most so many distinct terms weigh in: those of the highest background idf times weight."""

_SENTENCES = 64
_ARTIFACTS = 64
_KEYWORDS = 16

# Long runs of one character are looked at once: nothing is given back, nor begun inside a run.
_FENCE = re.compile(r"^(```++|~~~++)[^\n]*+\n.*?(?:^\1[`~]*[ \t]*$|\Z)", re.MULTILINE | re.DOTALL)
_CODE_SPAN = re.compile(r"`([^`\n]{1,200})`")
_PATH = re.compile(
    r"(?<![\w@])(?:https?://[^\s)>\]\"'`]+|(?<![.-])[~.]?/?(?:[\w.-]+/)+[\w.-]*"
    r"|(?<!-)[\w-]+\.\w{1,8}\b)"
)
_SUFFIX = re.compile(r"\.([a-z][a-z0-9]{1,5})$")
_BARE_SUFFIX = re.compile(r"(?<![\w.])\.([a-z][a-z0-9]{1,5})\b")
_SENTENCE_END = re.compile(
    r"(?<=[.!?])\s+(?=[\"'(\[]?[A-Z0-9`])|(?<=[。！？；])|\n\s*(?:[-*+•]|\d+[.)])?\s*"
)
_WORD = re.compile(r"[^\W\d_][\w-]*")

FORMAT_NAMES = {
    "xlsx": ("xlsx", "xls", "excel", "spreadsheet"),
    "docx": ("docx", "doc"),
    "pptx": ("pptx", "ppt", "powerpoint"),
    "pdf": ("pdf",),
    "csv": ("csv", "tsv"),
    "json": ("json", "jsonl"),
    "yaml": ("yaml", "yml"),
    "toml": ("toml",),
    "xml": ("xml",),
    "html": ("html", "htm"),
    "latex": ("latex", "tex"),
    "parquet": ("parquet",),
    "sqlite": ("sqlite", "sqlite3"),
    "svg": ("svg",),
    "png": ("png",),
    "jpeg": ("jpeg", "jpg"),
    "gif": ("gif",),
    "mp3": ("mp3",),
    "mp4": ("mp4",),
    "wav": ("wav",),
    "epub": ("epub",),
    "stl": ("stl",),
    "geojson": ("geojson",),
    "ipynb": ("ipynb", "jupyter"),
    "bibtex": ("bibtex", "bib"),
    "pcap": ("pcap", "pcapng"),
}
"""File formats by the words they go by; a suffix that is not here stands for itself."""

_FORMAT_OF = {name: kind for kind, names in FORMAT_NAMES.items() for name in names}

_OPERATIONS = """
    add align analyze annotate answer audit automate build calculate check classify clean
    cluster compare compile compress compute configure convert create debug decode decrypt deploy
    design detect diagnose download draft edit encode encrypt estimate evaluate explain export
    extract filter find fit fix forecast format generate group implement import improve index
    install integrate join label list load measure merge migrate model monitor normalize optimize
    organize parse plan plot predict process profile prove publish query rank read recover refactor
    render repair replace report reproduce resolve review rewrite run sample scan schedule scrape
    search segment simulate solve sort split summarize test trace train transcribe transform
    translate update validate verify visualize write
"""
OPERATIONS = frozenset(_OPERATIONS.split())
"""Verbs that name what is to be done."""


@dataclass(frozen=True, slots=True)
class Understanding:
    """A task as search sees it.

    terms, ids, weights: the distinct terms in order of first use, their hashes and their query
    weights 1 + .5 ln(count), all of one length. pairs: distinct adjacent pairs (hash), with the
    places of their two terms in `terms`, (pairs, 2). formats: for each file format named, the
    words it goes by, as index terms.
    """

    text: str
    terms: tuple[str, ...]
    ids: TermIds
    weights: Vector
    pairs: TermIds
    pair_positions: np.ndarray
    sentences: tuple[str, ...]
    artifacts: tuple[str, ...]
    formats: dict[str, tuple[str, ...]]
    keywords: tuple[str, ...]
    operations: tuple[str, ...]
    language: str

    @property
    def words(self) -> float:
        """How many distinct words the task has: a Chinese bigram counts half, as in `length`."""
        return word_count(self.terms)


def understand(task: str) -> Understanding:
    """Read a task; raises UsageError when it is empty.

    The same text always gives the same result. Of a very long task the first FIRST_CHARACTERS
    and the last LAST_CHARACTERS are read, so that the cost is bounded (some 30 ms at worst).
    """
    text = _bounded(task.replace("\0", " ").strip())
    if not text:
        raise UsageError("the task is empty: say in words what is to be done")
    stream = tokenize(text)
    terms, weights = _weighed(stream)
    pairs, places = _pairs(stream, terms)
    artifacts = _artifacts(text)
    return Understanding(
        text=text,
        terms=terms,
        ids=term_ids(terms),
        weights=weights,
        pairs=pairs,
        pair_positions=places,
        sentences=_sentences(text),
        artifacts=artifacts,
        formats=_formats(text, artifacts),
        keywords=_keywords(text),
        operations=_operations(text),
        language=detect_language(text),
    )


def _bounded(text: str) -> str:
    if len(text) <= FIRST_CHARACTERS + LAST_CHARACTERS:
        return text
    return f"{text[:FIRST_CHARACTERS]}\n{text[-LAST_CHARACTERS:]}"


def _weighed(stream: Sequence[str]) -> tuple[tuple[str, ...], Vector]:
    counts = Counter(stream)
    terms = list(counts)
    weights = 1.0 + 0.5 * np.log(np.array([counts[term] for term in terms], dtype=np.float64))
    if len(terms) > MAX_TASK_TERMS:
        mass = weights * load_background().idf(term_ids(terms))
        kept = np.sort(np.argsort(-mass, kind="stable")[:MAX_TASK_TERMS])
        terms, weights = [terms[place] for place in kept.tolist()], weights[kept]
    return tuple(terms), weights.astype(np.float32)


def _pairs(stream: Sequence[str], terms: Sequence[str]) -> tuple[TermIds, np.ndarray]:
    places = {term: place for place, term in enumerate(terms)}
    ends: dict[int, tuple[int, int]] = {}
    for pair, left, right in zip(
        bigram_ids(term_ids(stream)).tolist(), stream, stream[1:], strict=False
    ):
        if left in places and right in places:
            ends.setdefault(pair, (places[left], places[right]))
    ordered = sorted(ends)
    return (
        np.array(ordered, dtype=np.uint64),
        np.array([ends[pair] for pair in ordered], dtype=np.intp).reshape(len(ordered), 2),
    )


def _sentences(text: str) -> tuple[str, ...]:
    """Sentences and list items in order, code blocks left out; at most _SENTENCES."""
    parts = (part.strip() for part in _SENTENCE_END.split(_FENCE.sub("\n", text)))
    return tuple(dict.fromkeys(part for part in parts if len(part) > 2))[:_SENTENCES]


def _artifacts(text: str) -> tuple[str, ...]:
    """Code spans, paths, file names and addresses in order; at most _ARTIFACTS."""
    spans = [(match.start(), match.group(1).strip()) for match in _CODE_SPAN.finditer(text)]
    paths = [(match.start(), match.group().rstrip(".,;:")) for match in _PATH.finditer(text)]
    found = (name for _, name in sorted(spans + paths) if len(name) > 1)
    return tuple(dict.fromkeys(found))[:_ARTIFACTS]


def _formats(text: str, artifacts: Iterable[str]) -> dict[str, tuple[str, ...]]:
    """File formats that the task names by a suffix or by a word, in order of their name."""
    lowered = text.lower()
    words = set(re.findall(r"[a-z][a-z0-9]+", lowered))
    named = {_FORMAT_OF[word] for word in words if word in _FORMAT_OF}
    suffixes = {match.group(1) for name in artifacts if (match := _SUFFIX.search(name.lower()))}
    suffixes.update(_BARE_SUFFIX.findall(lowered))
    named.update(_FORMAT_OF.get(suffix, suffix) for suffix in suffixes)
    return {
        kind: tuple(dict.fromkeys(token for name in (kind, *names) for token in tokenize(name)[:1]))
        for kind in sorted(named)
        for names in [FORMAT_NAMES.get(kind, ())]
    }


def _keywords(text: str) -> tuple[str, ...]:
    """The words that say most about the task: count weight times background idf."""
    background = load_background()
    counts: Counter[str] = Counter()
    surface: dict[str, str] = {}
    for word in _WORD.findall(text):
        tokens = tokenize(word)
        if tokens:
            counts[tokens[0]] += 1
            surface.setdefault(tokens[0], word)
    terms = list(counts)
    idf = background.idf(term_ids(terms))
    mass = [(1 + 0.5 * np.log(counts[term])) * idf[place] for place, term in enumerate(terms)]
    ranked = sorted(range(len(terms)), key=lambda place: (-mass[place], place))
    return tuple(surface[terms[place]] for place in ranked[:_KEYWORDS])


def _operations(text: str) -> tuple[str, ...]:
    words = re.findall(r"[a-z]+", text.lower())
    return tuple(dict.fromkeys(word for word in words if word in OPERATIONS))
