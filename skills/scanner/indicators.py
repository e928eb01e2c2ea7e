"""Indicators of known campaigns: hosts, hashes of files and names, from dated lists."""

from __future__ import annotations

import re
from collections.abc import Iterator
from dataclasses import dataclass
from functools import cache
from typing import Any

from skills.scanner.data_files import read_data_file
from skills.scanner.words import Concept, Places

_KINDS = ("hosts", "names", "sha256")


@dataclass(frozen=True, slots=True)
class Indicators:
    """Indicators in lower case -> name of the campaign. updated: date of the list."""

    updated: str
    texts: dict[str, str]
    sha256: dict[str, str]

    def __or__(self, other: Indicators) -> Indicators:
        updated = max(self.updated, other.updated)
        return Indicators(updated, self.texts | other.texts, self.sha256 | other.sha256)


def parse_indicators(plain: Any) -> Indicators:
    """Parse a list of indicators from JSON data; raises ValueError that names the problem."""
    if not isinstance(plain, dict) or not isinstance(plain.get("campaigns"), dict):
        raise ValueError("expected an object with `updated` and `campaigns`")
    updated = plain.get("updated")
    if not isinstance(updated, str) or not re.fullmatch(r"\d{4}-\d\d-\d\d", updated):
        raise ValueError("`updated` must be a date such as 2026-01-31")
    found: dict[str, dict[str, str]] = {kind: {} for kind in _KINDS}
    for campaign, lists in plain["campaigns"].items():
        for kind, values in lists.items() if isinstance(lists, dict) else [("?", None)]:
            if kind == "source":
                continue
            if kind not in _KINDS or not isinstance(values, list):
                raise ValueError(f"{campaign}: expected lists of {', '.join(_KINDS)}")
            for value in values:
                if not isinstance(value, str) or len(value) < 5:
                    raise ValueError(f"{campaign}: {value!r} is not a text of 5 characters or more")
                found[kind][value.lower()] = str(campaign)
    return Indicators(updated, found["hosts"] | found["names"], found["sha256"])


class _Additional:
    """Additional indicators of this process."""

    indicators = Indicators("", {}, {})


def use_additional_indicators(indicators: Indicators) -> None:
    """Set the additional indicators for which this process scans from now on."""
    _Additional.indicators = indicators
    _known.cache_clear()
    indicator_texts.cache_clear()


@cache
def _known() -> Indicators:
    return parse_indicators(read_data_file("campaigns.json")) | _Additional.indicators


@cache
def indicator_texts() -> Concept:
    """Return all hosts and names of campaigns as a concept."""
    concept = Concept()
    concept.words = dict.fromkeys(_known().texts, False)
    return concept


def find_indicators(places: Places) -> Iterator[tuple[int, str]]:
    """Yield (offset, description) of the indicators in a text, each indicator once."""
    seen = set()
    for start, end in places.of_concept(indicator_texts()):
        text = places.text[start:end]
        if text not in seen:
            seen.add(text)
            yield start, f"{text} of {_known().texts[text]}"


def find_campaign(sha256: str) -> str:
    """Return the campaign of a file with this hash, "" for none."""
    return _known().sha256.get(sha256.lower(), "")
