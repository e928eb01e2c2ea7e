"""What is wrong with the form of a request, as one line for its sender."""

from __future__ import annotations

import re
from collections.abc import Mapping, Sequence
from typing import Any

from pydantic import ValidationError

MAX_SHOWN_CHARACTERS = 80

_MAX_PROBLEMS = 5
_CONTROL = re.compile(r"[\x00-\x1f\x7f-\x9f]")
_EMPTY_BRANCH = ("literal_error", "literal['']")
"""Type and last place of a problem of a value that may also be empty."""


def describe_validation_error(error: ValidationError) -> str:
    """A validation error as one line of limited length: the places and what is wrong."""
    return describe_problems(error.errors(include_url=False, include_input=False))


def describe_problems(problems: Sequence[Mapping[str, Any]]) -> str:
    """The problems of a validation error, in the form of pydantic, as one line of limited length.

    Left out is what follows from other problems: that a value is not empty either, and that a list
    is too short without its wrong items.
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
    """Whether this is the other form of a value that may be left empty."""
    return bool(problem["loc"]) and (problem["type"], problem["loc"][-1]) == _EMPTY_BRANCH


def _without_branch(
    place: tuple[int | str, ...], optional: set[tuple[int | str, ...]]
) -> tuple[int | str, ...]:
    """The place without the name that pydantic gives to the form of a value."""
    return place[:-1] if place[:-1] in optional else place


def _is_below(place: tuple[int | str, ...], parent: tuple[int | str, ...]) -> bool:
    return len(place) > len(parent) and place[: len(parent)] == parent


def _describe(place: tuple[int | str, ...], problem: Mapping[str, Any]) -> str:
    if problem["type"] == "json_invalid":
        return f"the body is not valid JSON: {problem['ctx']['error']}"
    if place == ("body",) and problem["type"] == "model_attributes_type":
        return "the body is not a JSON object, sent as application/json"
    return f"{_format_place(place)}{problem['msg'].removeprefix('Value error, ')}"


def _format_place(parts: tuple[int | str, ...]) -> str:
    """The place of a problem and a colon, "" for the whole; keys from the input are cut and put on
    one line."""
    named = ".".join(_CONTROL.sub("\N{REPLACEMENT CHARACTER}", str(part)) for part in parts)
    shown = named[:MAX_SHOWN_CHARACTERS] + "…" * (len(named) > MAX_SHOWN_CHARACTERS)
    return f"{shown}: " if shown else ""
