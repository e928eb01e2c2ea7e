"""Languages of well-known models, and prompts of bi-encoders, by the names of the models.

Names are matched by their last part: `intfloat/multilingual-e5-small`, or a folder of that name.
"""

from __future__ import annotations

import re
from collections.abc import Iterable
from pathlib import PurePath
from typing import NamedTuple

_E5 = r"(^|[-_])e5[-_](small|base|large)"
_INSTRUCTION = "Represent this sentence for searching relevant passages: "

_CHINESE_AND_ENGLISH = re.compile(
    r"""multilingual|xlm-?r|labse|bge-m3|bge-reranker|qwen|m3e|gte-qwen|bce-(embedding|reranker)
    |jina-(embeddings|reranker)-(v[3-9]|m\d)|jina-embeddings-v2-base-zh|arctic-embed-[ml]-v[2-9]
    |embeddinggemma|mmarco|nomic-embed-text-v[2-9]|zpoint|xiaobu|conan|minicpm""",
    re.VERBOSE,
)
_MANY = re.compile(
    r"multilingual|xlm-?r|labse|bge-m3|embeddinggemma|mmarco|arctic-embed-[ml]-v[2-9]"
)
_CHINESE = re.compile(
    r"([-_]|^)zh([-_.]|$)|chinese|text2vec|piccolo|acge|stella-(base|large)-zh|youtu"
)
_ENGLISH = re.compile(r"[-_]en([-_.]|$)|english|e5-mistral")
_OTHER_LANGUAGES = re.compile(r"[-_](de|es|fr|ja|ko|ru)([-_.]|$)")


class Prompts(NamedTuple):
    """Texts prepended to a query, and to a text of a skill; empty: none."""

    query: str = ""
    passage: str = ""


_PROMPTS: tuple[tuple[re.Pattern[str], Prompts], ...] = (
    (
        re.compile(r"e5.*-instruct"),
        Prompts(
            "Instruct: Given a web search query, retrieve relevant passages that answer the query\n"
            "Query: "
        ),
    ),
    (re.compile(_E5), Prompts("query: ", "passage: ")),
    (re.compile(r"^bge-(small|base|large)-en"), Prompts(_INSTRUCTION)),
    (
        re.compile(r"^bge-(small|base|large)-zh"),
        Prompts("为这个句子生成表示以用于检索相关文章："),
    ),
    (re.compile(r"^mxbai-embed-(large|xsmall)"), Prompts(_INSTRUCTION)),
    (re.compile(r"^snowflake-arctic-embed-(xs|s|m|l|m-long|m-v1\.5)$"), Prompts(_INSTRUCTION)),
    (re.compile(r"^snowflake-arctic-embed-[ml]-v2"), Prompts("query: ")),
    (re.compile(r"^nomic-embed-text"), Prompts("search_query: ", "search_document: ")),
)


def known_languages(model: str) -> frozenset[str]:
    """Return the languages, of `en`, `zh` and `other`, that a model with this name supports.

    `other` stands for all languages in other scripts, as `detect_language` finds them.

    A model supports Chinese only if its name says so; other models count as English.
    """
    name = base_name(model)
    if _ENGLISH.search(name) and not re.search(r"multilingual|([-_]|^)zh([-_.]|$)", name):
        return frozenset({"en"})
    if _CHINESE_AND_ENGLISH.search(name):
        return frozenset({"en", "zh", "other"} if _MANY.search(name) else {"en", "zh"})
    if _CHINESE.search(name):
        return frozenset({"zh"})
    if _OTHER_LANGUAGES.search(name):
        return frozenset()
    return frozenset({"en"})


def with_mixtures(languages: Iterable[str]) -> frozenset[str]:
    """Return the languages, with `mixed` for texts in English and Chinese if a model supports
    both."""
    known = frozenset(languages)
    return known | {"mixed"} if known >= {"en", "zh"} else known


def known_prompts(model: str) -> Prompts:
    """Return the prompts that the authors of a model with this name trained it with."""
    name = base_name(model)
    return next((prompts for pattern, prompts in _PROMPTS if pattern.search(name)), Prompts())


def base_name(model: str) -> str:
    """Return the name of a model without its organisation or folder, in lower case."""
    for part in PurePath(model).parts:
        if part.startswith("models--"):  # the cache of the Hugging Face Hub
            return part.rpartition("--")[2].lower()
    return PurePath(model).name.lower()
