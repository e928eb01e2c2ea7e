"""Where values in code come from and go to, as `data/flow.toml` describes it."""

from __future__ import annotations

import re
from collections.abc import Mapping, Sequence
from dataclasses import dataclass
from functools import cache

from skills.filtered_pattern import FilteredPattern
from skills.scanner import addresses
from skills.scanner.code_blocks import Language
from skills.scanner.data_files import join_parts, read_data_file
from skills.scanner.words import Concept

Patterns = Mapping[str, Sequence[FilteredPattern]]


@dataclass(frozen=True, slots=True)
class Meanings:
    """Patterns of a language. sources: by label. sinks: by kind. others: by name."""

    sources: Patterns
    sinks: Patterns
    others: Mapping[str, re.Pattern[str]]


@cache
def read_meanings(language: Language) -> Meanings:
    """Return the patterns of a language."""
    plain = read_data_file("flow.toml")
    kind = plain["shell" if language == "shell" else "program"]
    others = plain["patterns"] | kind["patterns"] | plain[language]["patterns"]

    def compile_all(table: Mapping[str, Sequence[str | Sequence[str]]]) -> Patterns:
        return {
            name: [FilteredPattern(one) for one in join_parts(patterns, plain["parts"])]
            for name, patterns in table.items()
        }

    return Meanings(
        compile_all(plain["paths"] | kind["sources"]),
        compile_all(kind["sinks"]),
        {name: patterns[0].pattern for name, patterns in compile_all(others).items()},
    )


@cache
def list_ideas() -> Mapping[str, Concept]:
    """Return the concepts that meet in code with a harmful flow, by name."""
    plain = read_data_file("flow.toml")
    paths = [path for patterns in plain["paths"].values() for path in patterns]
    return {
        name: Concept(
            one.get("words", ""),
            *join_parts(
                [*one.get("patterns", ()), *(paths if name == "secrets" else ())], plain["parts"]
            ),
        )
        for name, one in plain["words"].items()
    }


def label_download(text: str) -> str:
    """Return the label of a download from the address in a text, "" without a foreign address.

    A text without an address may have it in a variable.
    """
    address = addresses.ADDRESS.search(text)
    if address is None:
        return "download" if not text or "$" in text or is_host(text) else ""
    if addresses.is_local(address):
        return ""
    if addresses.is_bare(address):
        return "bare download"
    return "known download" if addresses.is_known(address, "installers") else "download"


def is_host(text: str) -> bool:
    """Return whether a text has an address with a path and without a scheme."""
    return bool(re.search(r"(?<![\w/.@-])[\w-]+(?:\.[\w-]+)+/\S", text))


def is_known_installer(text: str) -> bool:
    """Return whether the address in a text is of a known installer; its scheme is optional."""
    if "://" not in text:
        text = re.sub(r"\s(?=[\w-]+\.[a-z]{2,})", " https://", text, count=1)
    return label_download(text) == "known download"
