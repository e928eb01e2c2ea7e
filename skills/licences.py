"""Recognises licences in the forms that people write, and compares them with allowed licences.

`license: MIT license` and `Apache License, Version 2.0` become the SPDX identifiers `MIT` and
`Apache-2.0`; `MIT OR GPL-3.0-only` is an SPDX expression (SPDX specification, annex D). An
unrecognised licence is kept as text.
"""

from __future__ import annotations

import re
from collections.abc import Collection, Iterator, Sequence
from functools import lru_cache

UNKNOWN = "unknown"
"""Entry of a list of allowed licences that stands for skills without a licence."""

_IDS = (
    *("MIT", "MIT-0", "Apache-2.0", "BSD-2-Clause", "BSD-3-Clause", "0BSD", "ISC", "Unlicense"),
    *("MPL-2.0", "GPL-2.0", "GPL-3.0", "LGPL-2.1", "LGPL-3.0", "AGPL-3.0", "CC0-1.0", "Zlib"),
    *("CC-BY-4.0", "CC-BY-SA-4.0", "CC-BY-NC-4.0", "CC-BY-NC-SA-4.0", "EPL-2.0", "BSL-1.0"),
)
_BY_FOLDED = {name.casefold(): name for name in _IDS}
_VERSIONED = {
    "apache": "Apache-{}.0",
    "mpl": "MPL-{}.0",
    "mozilla public": "MPL-{}.0",
    "gpl": "GPL-{}.0",
    "gnu gpl": "GPL-{}.0",
    "gnu general public": "GPL-{}.0",
    "agpl": "AGPL-{}.0",
    "gnu agpl": "AGPL-{}.0",
    "gnu affero general public": "AGPL-{}.0",
}
_VERSION = re.compile(r"(?P<name>[a-z ]+?)[ ,-]*(?:version |v)?(?P<major>[1-4])(?:\.0)?")
_CLAUSES = re.compile(r"(?:new |simplified )?bsd[ -](?P<many>[23])[ -]clause")
_CLAUSES_FIRST = re.compile(r"(?P<many>[23])[ -]clause bsd")
_WORD = re.compile(r"\(|\)|[^\s()]+")
_OPERATORS = frozenset(("OR", "AND", "WITH"))
_MAX_PARENTHESES = 20
_VERSION_SUFFIX = re.compile(r"-only$|-or-later$|\+$")

_LICENCE_TEXTS = (
    ("MIT", re.compile(r"permission is hereby granted, free of charge, to any person obtaining")),
    ("Apache-2.0", re.compile(r"apache license\s+version 2\.0")),
    ("AGPL-3.0", re.compile(r"gnu affero general public license\s+version 3")),
    ("LGPL-3.0", re.compile(r"gnu lesser general public license\s+version 3")),
    ("GPL-3.0", re.compile(r"gnu general public license\s+version 3")),
    ("GPL-2.0", re.compile(r"gnu general public license\s+version 2")),
    ("MPL-2.0", re.compile(r"mozilla public license,? version 2\.0")),
    ("BSD-3-Clause", re.compile(r"redistribution and use in source.{0,1500}neither the name")),
    ("BSD-2-Clause", re.compile(r"redistribution and use in source and binary forms")),
    ("ISC", re.compile(r"permission to use, copy, modify, and(?:/or)? distribute this software")),
    ("CC0-1.0", re.compile(r"cc0 1\.0 universal")),
    ("CC-BY-SA-4.0", re.compile(r"attribution-sharealike 4\.0 international")),
    ("CC-BY-4.0", re.compile(r"attribution 4\.0 international")),
    ("Unlicense", re.compile(r"free and unencumbered software released into the public domain")),
)
_MAX_TEXT_CHARACTERS = 4_000
_LICENCE_FILE = re.compile(
    r"(?:licen[cs]e|copying|unlicense)(?:|\.(?:[^/]*\.)?(?:md|txt|rst))", re.IGNORECASE
)
_REFERS_TO_FILE = re.compile(
    r"(?:see |complete terms in |terms in )?(?:the )?(?:\./)?(?:licen[cs]e|copying)(?:\.txt|\.md)?"
    r"(?: for complete terms| has complete terms)?\.?"
)


@lru_cache(4_096)
def spdx_identifier(text: str) -> str:
    """Return the SPDX identifier of a licence, or the text with white space collapsed."""
    plain = " ".join(text.split())
    folded = plain.casefold()
    bare = re.sub(r"^the | licen[cs]e\b| licence\b", "", folded).strip(" ,.") or folded
    for one in (folded, bare):
        if one in _BY_FOLDED:
            return _BY_FOLDED[one]
    clauses = _CLAUSES.fullmatch(bare) or _CLAUSES_FIRST.fullmatch(bare)
    if clauses:
        return f"BSD-{clauses['many']}-Clause"
    version = _VERSION.fullmatch(bare)
    if version:
        known = _VERSIONED.get(version["name"].strip(" -,"), "").format(version["major"])
        return _BY_FOLDED.get(known.casefold(), plain)
    return plain


def licence_names(text: str) -> tuple[str, ...]:
    """Return the names by which a stated licence can be filtered: its text and its identifier."""
    plain = " ".join(text.split())
    return tuple(dict.fromkeys(filter(None, (plain, spdx_identifier(plain)))))


@lru_cache(4_096)
def is_licence_allowed(text: str, allowed: frozenset[str]) -> bool:
    """Return whether a stated licence or SPDX expression is allowed.

    allowed: result of `normalise_allowed`. `A OR B` is allowed if A or B is, `A AND B` if both are.
    An exception (`WITH`) is ignored, since it only adds permissions.
    """
    if not text.strip() or text.strip().casefold() == UNKNOWN:
        return UNKNOWN in allowed
    if _is_identifier_allowed(text, allowed):
        return True
    words = _WORD.findall(text)
    if words.count("(") > _MAX_PARENTHESES or not _OPERATORS.intersection(words):
        return False
    return _Expression(words, allowed).allows()


def normalise_allowed(allowed: Sequence[str]) -> frozenset[str]:
    """Normalise allowed licences for comparison: identifiers in lower case."""
    return frozenset(spdx_identifier(one).casefold().removesuffix("-only") for one in allowed)


def detect_licence(text: str) -> str:
    """Return the identifier of a licence text, "" if it is not recognised."""
    plain = " ".join(text[:_MAX_TEXT_CHARACTERS].casefold().split())
    return next((name for name, words in _LICENCE_TEXTS if words.search(plain)), "")


def resolve_licence(licence: str, text: str) -> str:
    """Return the licence of a skill: from its frontmatter, or from the text of its licence file.

    The file is used if the frontmatter states no licence or only refers to the file.
    """
    return licence if is_stated(licence) else detect_licence(text) or licence


def is_stated(licence: str) -> bool:
    """Return whether a frontmatter's licence is one, and does not only refer to a file."""
    plain = licence.strip().casefold()
    return bool(plain) and plain != UNKNOWN and not _REFERS_TO_FILE.fullmatch(plain)


def is_licence_file(path: str) -> bool:
    """Return whether a path in a skill's folder is that of its licence file."""
    return _LICENCE_FILE.fullmatch(path) is not None


def _is_identifier_allowed(text: str, allowed: Collection[str]) -> bool:
    one = spdx_identifier(text)
    return (
        one.casefold() in allowed
        or spdx_identifier(_VERSION_SUFFIX.sub("", one)).casefold() in allowed
    )


class _Expression:
    """Recursive descent parser of SPDX expressions; a malformed expression allows nothing."""

    def __init__(self, words: Sequence[str], allowed: Collection[str]) -> None:
        self._words: Iterator[str] = iter(words)
        self._word = next(self._words, "")
        self._allowed = allowed
        self._malformed = False

    def allows(self) -> bool:
        allowed = self._parse_or()
        return allowed and not self._word and not self._malformed

    def _next(self) -> str:
        word, self._word = self._word, next(self._words, "")
        return word

    def _parse_or(self) -> bool:
        allowed = self._parse_and()
        while self._word == "OR":
            self._next()
            allowed |= self._parse_and()
        return allowed

    def _parse_and(self) -> bool:
        allowed = self._parse_term()
        while self._word == "AND":
            self._next()
            allowed &= self._parse_term()
        return allowed

    def _parse_term(self) -> bool:
        word = self._next()
        if word == "(":
            allowed = self._parse_or()
            self._malformed |= self._next() != ")"
            return allowed
        if word in ("", ")", *_OPERATORS):
            self._malformed = True
            return False
        if self._word == "WITH":
            self._next()
            self._malformed |= self._next() in ("", "(", ")", *_OPERATORS)
        return _is_identifier_allowed(word, self._allowed)
