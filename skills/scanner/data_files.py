"""Dated lists that rules use: known installers and indexes, names of packages, campaigns."""

from __future__ import annotations

import json
from collections.abc import Sequence
from functools import cache
from importlib.resources import files
from typing import Any


@cache
def read_list(name: str, key: str) -> tuple[str, ...]:
    """A list of a data file of the package."""
    return tuple(read_data_file(name)[key])


def read_data_file(name: str) -> dict[str, Any]:
    """The content of a data file of the package."""
    return dict(json.loads(read_text(name)))


def read_text(name: str) -> str:
    """The text of a data file of the package."""
    return files(__package__).joinpath("data", name).read_text(encoding="utf-8")


def matches_host(host: str, path: str, known: Sequence[str]) -> bool:
    """Whether an address is on a list of hosts, of which each covers its subdomains; an entry with
    a `/` covers paths that begin with it."""
    bare = host.rpartition("@")[2].partition(":")[0]
    for entry in known:
        name, slash, prefix = entry.partition("/")
        same = bare == name or bare.endswith(f".{name}")
        if same and (not slash or path.lower().startswith(f"/{prefix}")):
            return True
    return False


def word_set(text: str) -> frozenset[str]:
    """The words in a text, separated by white space."""
    return frozenset(text.split())
