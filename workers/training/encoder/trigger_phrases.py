"""Trigger phrases: requests that a skill's own text quotes, such as `use when the user says "…"`.

They are in the words of users, and so the training queries nearest to real prompts.
"""

from __future__ import annotations

import re
from collections.abc import Iterator

from skills.passages.headings import heading_paths_below_title
from skills.record import ParsedSkill

_QUOTED = re.compile(
    r"\"([^\"\n]{3,160})\"|“([^”\n]{2,160})”|「([^」\n]{2,120})」|`([^`\n]{3,160})`"
    r"|(?<![\w])'([^'\n]{6,160})'(?=[\s,.;:)\]/]|$)"
)
_TRIGGER_HEADING = re.compile(
    r"when to use|trigger|activat|use this|example (prompt|request|quer)|user says|usage example"
    r"|何时使用|触发|使用场景|适用",
    re.IGNORECASE,
)
_CHINESE = re.compile(r"[一-鿿]")
_MARKUP = re.compile(r"https?://|[{}<>=$\\|]|\w/\w|\.\w{1,4}$|^--?\w|\(\)")
_MIN_WORDS, _MIN_CHINESE = 2, 4


def find_trigger_phrases(parsed: ParsedSkill) -> tuple[str, ...]:
    """Return quoted phrases of the description and of sections about when to use the skill.

    A phrase has at least two words or four Chinese characters, and no markup, path or code.
    """
    found: dict[str, None] = {}
    for text in _trigger_texts(parsed):
        for match in _QUOTED.finditer(text):
            phrase = next(group for group in match.groups() if group).strip(" .…,;:")
            if _is_request(phrase):
                found.setdefault(phrase)
    return tuple(found)


def _trigger_texts(parsed: ParsedSkill) -> Iterator[str]:
    yield parsed.record.description
    yield parsed.record.when_to_use
    paths = heading_paths_below_title(parsed.sections)
    for path, section in zip(paths, parsed.sections, strict=True):
        if path and _TRIGGER_HEADING.search(path[-1]):
            yield parsed.text(section.first_line, section.last_line)


def _is_request(phrase: str) -> bool:
    if _MARKUP.search(phrase):
        return False
    words, chinese = len(phrase.split()), len(_CHINESE.findall(phrase))
    return words >= _MIN_WORDS or chinese >= _MIN_CHINESE
