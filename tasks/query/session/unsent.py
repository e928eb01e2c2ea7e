"""Unsent parts of a skill: lines that a session has sent before are left out."""

from __future__ import annotations

from collections.abc import Iterable, Iterator

from skills.record import ParsedSkill

LineRange = tuple[int, int]
"""First and last line, 1-based and inclusive."""


def find_sent_passages(parsed: ParsedSkill, sent: frozenset[int]) -> list[int]:
    """Return the indexes of the passages whose lines with text were all sent, ascending."""
    if not sent:
        return []
    return [
        passage.index
        for passage in parsed.passages
        if all(
            number in sent or not parsed.lines[number - 1].strip()
            for number in range(passage.first_line, passage.last_line + 1)
        )
    ]


def subtract_lines(
    parsed: ParsedSkill, ranges: Iterable[LineRange], sent: frozenset[int]
) -> Iterator[LineRange]:
    """Yield the ranges without the sent lines, each from a line with text to a line with text."""
    numbers = (number for first, last in ranges for number in range(first, last + 1))
    for first, last in to_ranges(number for number in numbers if number not in sent):
        filled = [n for n in range(first, last + 1) if parsed.lines[n - 1].strip()]
        if filled:
            yield filled[0], filled[-1]


def to_ranges(numbers: Iterable[int]) -> list[LineRange]:
    """Return line numbers as the fewest ranges, ascending."""
    ranges: list[LineRange] = []
    for number in sorted(numbers):
        if ranges and number == ranges[-1][1] + 1:
            ranges[-1] = (ranges[-1][0], number)
        else:
            ranges.append((number, number))
    return ranges
