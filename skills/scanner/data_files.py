"""Reads data files of the package: rules, known hosts, campaigns."""

from __future__ import annotations

import json
import re
import tomllib
from collections.abc import Iterable, Iterator, Mapping, Sequence
from functools import cache
from importlib.resources import files
from typing import Any

_PART = re.compile(r"\{([a-z_]+)\}")


def word_set(text: str) -> frozenset[str]:
    """Return the words in a text, separated by white space."""
    return frozenset(text.split())


def read_data_file(name: str) -> dict[str, Any]:
    """Return the content of a JSON or TOML file of the package."""
    text = files(__package__).joinpath("data", name).read_text(encoding="utf-8")
    return dict(tomllib.loads(text) if name.endswith(".toml") else json.loads(text))


@cache
def read_words(key: str) -> frozenset[str]:
    """Return the words of a list in known.toml."""
    return word_set(read_data_file("known.toml")[key])


def join_parts(patterns: Iterable[str | Sequence[str]], parts: Mapping[str, str]) -> Iterator[str]:
    """Yield patterns, each a text or a list of texts, in which `{name}` stands for a part."""

    def resolve(text: str) -> str:
        return _PART.sub(lambda part: resolve(parts[part[1]]), text)

    return (resolve("".join(pattern)) for pattern in patterns)
