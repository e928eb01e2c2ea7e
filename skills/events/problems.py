"""One-line messages for the senders of requests that fail validation."""

from __future__ import annotations

import re
from collections.abc import Mapping, Sequence
from typing import Any

from pydantic import ValidationError

MAX_SHOWN_CHARACTERS = 80

LONE_SURROGATE = (
    "a lone surrogate (\\ud800 to \\udfff) is no character; leave it out, or send the whole pair"
)
"""Problem of a text that JSON can escape and UTF-8 cannot hold."""

_MAX_PROBLEMS = 5
_CONTROL = re.compile(r"[\x00-\x1f\x7f-\x9f]")
_EMPTY_BRANCH = ("literal_error", "literal['']")
"""Type and last part of the place of the problem "is not empty", for values that may be empty."""


def describe_validation_error(error: ValidationError) -> str:
    """Return a validation error as one line of limited length: places and problems."""
    return describe_problems(error.errors(include_url=False, include_input=False))


def describe_problems(problems: Sequence[Mapping[str, Any]]) -> str:
    """Return the problems of a validation error, as pydantic lists them, as one line.

    The line has at most _MAX_PROBLEMS problems. Problems that only follow from other problems are
    left out: that an invalid value is not empty, and that a list is too short without its invalid
    items.
    """
    optional = {tuple(one["loc"][:-1]) for one in problems if _is_empty_branch(one)}
    found = [
        (_without_branch(tuple(one["loc"]), optional), one)
        for one in problems
        if not _is_empty_branch(one)
    ]
    lines = [
        _describe(place, problem)
        for place, problem in found
        if problem["type"] != "too_short" or not any(_is_below(other, place) for other, _ in found)
    ]
    if len(lines) > _MAX_PROBLEMS:
        lines[_MAX_PROBLEMS:] = [f"and {len(lines) - _MAX_PROBLEMS} more"]
    return "; ".join(lines)


def _is_empty_branch(problem: Mapping[str, Any]) -> bool:
    """Return whether a problem only says that an optional value is not empty."""
    return bool(problem["loc"]) and (problem["type"], problem["loc"][-1]) == _EMPTY_BRANCH


def _without_branch(
    place: tuple[int | str, ...], optional: set[tuple[int | str, ...]]
) -> tuple[int | str, ...]:
    """Return the place without the name that pydantic appends for a branch of a union."""
    return place[:-1] if place[:-1] in optional else place


def _is_below(place: tuple[int | str, ...], parent: tuple[int | str, ...]) -> bool:
    return len(place) > len(parent) and place[: len(parent)] == parent


def _describe(place: tuple[int | str, ...], problem: Mapping[str, Any]) -> str:
    kind, reason = problem["type"], problem["msg"].removeprefix("Value error, ")
    if kind == "json_invalid":
        reason, _, position = problem["ctx"]["error"].partition(" at ")
        if reason.endswith("hex escape"):  # of a surrogate; any other is an invalid escape
            return f"{position}: {LONE_SURROGATE}"
        return f"the body is not valid JSON: {problem['ctx']['error']}"
    if kind == "model_attributes_type" and place == ("body",):
        return "the body is not a JSON object, sent as application/json"
    return f"{_format_place(place)}{LONE_SURROGATE if kind == 'string_unicode' else reason}"


def _format_place(parts: tuple[int | str, ...]) -> str:
    """Return the place of a problem with a colon, "" for the whole document.

    Places contain keys from the input, so they are cut and put on one line.
    """
    named = ".".join(_CONTROL.sub("\N{REPLACEMENT CHARACTER}", str(part)) for part in parts)
    shown = named[:MAX_SHOWN_CHARACTERS] + "…" * (len(named) > MAX_SHOWN_CHARACTERS)
    return f"{shown}: " if shown else ""
