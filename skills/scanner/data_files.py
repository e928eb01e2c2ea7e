"""Reads data files of the package: rules, known hosts, campaigns."""

from __future__ import annotations

import json
import tomllib
from functools import cache
from importlib.resources import files
from typing import Any


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
