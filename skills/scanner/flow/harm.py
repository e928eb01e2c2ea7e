"""Harmful data flows in code, such as secrets to the network and downloads to an interpreter."""

from __future__ import annotations

from collections.abc import Sequence, Set

from skills.scanner.code_blocks import LANGUAGES, Code, Language
from skills.scanner.flow.follow import Follower
from skills.scanner.flow.meanings import list_ideas
from skills.scanner.flow.statements import Statements
from skills.scanner.words import Places

_SHELL, _PROGRAMS = frozenset[Language]({"shell"}), frozenset[Language]({"python", "javascript"})
_FLOWS: list[tuple[frozenset[Language], list[str]]] = [
    (_SHELL | _PROGRAMS, ["secrets dumps", "sends"]),
    (_SHELL | _PROGRAMS, ["given", "uploads", "sends"]),
    (_SHELL, ["shell_fetches", "shell_runs"]),
    (_PROGRAMS, ["fetches", "runs"]),
    (_PROGRAMS, ["deletes", "home"]),
]
"""(languages, ideas that meet in code with a harmful flow, one of each group).

Code without these is not read, since a search for words takes a fraction of the time.
"""


def may_have_flows(places: Places, languages: Set[Language]) -> bool:
    """Return whether code of these languages in a text may have a harmful flow."""
    return any(_has_each(places, ideas) for of, ideas in _FLOWS if not languages.isdisjoint(of))


def may_send_secrets(places: Places) -> bool:
    """Return whether code in a text may send a secret."""
    return _has_each(places, ["secrets", "sends"])


def _has_each(places: Places, groups: Sequence[str]) -> bool:
    ideas = list_ideas()
    return places.has_each([[ideas[name] for name in group.split()] for group in groups])


def find_flows(codes: Sequence[Code]) -> list[tuple[int, str]]:
    """Return (line, rule) of harmful flows in the code of a skill, sorted.

    All shell blocks share variables and files; all programs of a language share functions.
    """
    found: set[tuple[int, str]] = set()
    for language in LANGUAGES:
        chosen = [code for code in codes if code.language == language]
        if chosen:
            found |= Follower(Statements(chosen)).find_harm()
    return sorted(found)
