"""Uses that a skill states or excludes: phrases and clauses of its description.

Descriptions of skills that were tested for false triggers exclude neighbouring tasks ("Not for
driver setup; use driver-skill"), and quote what users say. The words of an exclusion are evidence
against the skill, those of a quoted phrase for it.
"""

from __future__ import annotations

import re
from collections.abc import Iterator

from skills.filtered_pattern import FilteredPattern

_SUBJECT = (
    r"use|trigger|invoke|activate|apply|handle|cover|load|fire|call|run|select|write|replace"
    r"|provision|include|perform|support|manage"
)
_ENGLISH = (
    rf"(?:do|does|should|must|can)\s?(?:not|n['’]?t)\s+(?:be\s+)?(?:{_SUBJECT})(?:ed|d)?\b"
    rf"|(?:don|doesn|shouldn)['’]?t\s+(?:{_SUBJECT})\b"
    r"|\b(?:(?:it is|is|are|isn['’]t|and|but|or) )?not\s+(?:(?:intended|meant|suitable|designed) )?"
    r"for\b"
    r"|\bnot\s+(?:to be used|applicable|a fit for|when)\b|\bnever\s+(?:use|trigger|invoke)\b"
    r"|\bavoid\s+(?:for|when|using|triggering)\b|\bskip\s+(?:if|when|for|this)\b"
    r"|\bout of scope\b|\bunsuitable for\b|\bisn['’]t for\b|\bexclud(?:es|ing)\b"
)
_CHINESE = (
    r"不适用于?|不适合|不(?:要|应|可|得|能|会)?(?:用于|用来|用作|触发|处理|负责|涵盖|包含|包括|覆盖)"
    r"|(?:请)?勿(?:用于|用|触发)|不要(?:在|用|使用|因)|不是用于|不做"
)
_START = FilteredPattern(f"{_ENGLISH}|{_CHINESE}", re.IGNORECASE)
_END = re.compile(
    r"[.!?](?=\s+[^\sa-z]|\s*$)|[。！？]|\n|[;；](?=\s*(?i:use when|trigger|invoke)\b)"
)
_QUOTED = re.compile(
    r"[\"“]([^\"”\n]{2,80})[\"”]|[「『]([^」』\n]{2,80})[」』]|(?<!\w)'([^'\n]{2,80})'(?!\w)"
)
_HEADING = FilteredPattern(
    r"\bnot (?:to )?(?:use|trigger|apply|activate)\b|\bdo(?:n['’]t| not) (?:use|trigger)\b"
    r"|\bout of scope\b|\bnot for\b|\banti-?triggers?\b|\bnegative triggers?\b"
    r"|不适用|不要用|何时不|不触发|勿用",
    re.IGNORECASE,
)


def split_exclusions(description: str) -> tuple[str, tuple[str, ...]]:
    """Return the description without what it excludes, and the excluding clauses in order."""
    kept: list[str] = []
    clauses: list[str] = []
    place = 0
    found = _START.search(description)
    while found:
        end = _END.search(description, found.end())
        stop = end.end() if end else len(description)
        kept.append(description[place : found.start()])
        clauses += _split_clauses(description[found.start() : stop])
        place = stop
        found = _START.pattern.search(description, place)
    kept.append(description[place:])
    return " ".join(part.strip() for part in kept if part.strip()), tuple(clauses)


def _split_clauses(sentence: str) -> Iterator[str]:
    """Split a sentence at each further exclusion in it."""
    starts = [match.start() for match in _START.finditer(sentence)]
    for first, after in zip(starts, [*starts[1:], len(sentence)], strict=True):
        yield sentence[first:after].strip()


def is_exclusion_heading(heading: str) -> bool:
    """Return whether the section below a heading says what a skill is not for."""
    return _HEADING.search(heading) is not None


def find_quoted_phrases(text: str) -> list[str]:
    """Return the phrases in quotation marks, of 2 to 80 characters, in order."""
    return [next(filter(None, groups)) for groups in _QUOTED.findall(text)]
