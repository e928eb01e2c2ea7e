"""Unsent parts of a skill: lines that a session has sent before are left out."""

from __future__ import annotations

from collections.abc import Iterable, Sequence

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
) -> list[LineRange]:
    """Return the ranges without the sent lines, each from a line with text to a line with text."""
    kept = [
        number
        for first, last in ranges
        for run in _split_runs(range(first, last + 1), sent)
        for number in _strip_blank(parsed, run)
    ]
    return to_ranges(kept)


def _split_runs(numbers: Sequence[int], sent: frozenset[int]) -> list[list[int]]:
    """Return the numbers that were not sent, in runs without a gap."""
    runs: list[list[int]] = [[]]
    for number in numbers:
        if number in sent:
            runs.append([])
        else:
            runs[-1].append(number)
    return [run for run in runs if run]


def _strip_blank(parsed: ParsedSkill, run: Sequence[int]) -> Sequence[int]:
    """Return the run without blank lines at its ends."""
    filled = [place for place, number in enumerate(run) if parsed.lines[number - 1].strip()]
    return run[filled[0] : filled[-1] + 1] if filled else []


def to_ranges(numbers: Iterable[int]) -> list[LineRange]:
    """Return line numbers as the fewest ranges, ascending."""
    ranges: list[LineRange] = []
    for number in sorted(numbers):
        if ranges and number == ranges[-1][1] + 1:
            ranges[-1] = (ranges[-1][0], number)
        else:
            ranges.append((number, number))
    return ranges
