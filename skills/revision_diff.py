"""Differences between two revisions of a skill: lines, files, fields and findings."""

from __future__ import annotations

from collections import Counter
from collections.abc import Iterator, Sequence
from dataclasses import dataclass
from difflib import Match, SequenceMatcher
from itertools import accumulate, chain
from typing import NamedTuple

from typing_extensions import override

from skills.record import ParsedSkill, SafetyFinding, SkillRecord

CONTEXT_LINES = 3
_MAX_COMPARED = 20_000_000
"""Maximum steps of a comparison; a change that takes more is shown as one replacement. Equal lines
can make a comparison take cubic time, and the text is untrusted."""

_FIELDS = (
    *("name", "description", "licence", "version", "compatibility", "language"),
    *("allowed_tools", "depends", "conflicts", "safety_level"),
)


class ChangedValue(NamedTuple):
    """A changed field of the record, with both values as text."""

    field: str
    before: str
    after: str


@dataclass(frozen=True, slots=True)
class RevisionDiff:
    """The difference between two revisions.

    fields: changed fields of the record. files_*: paths of other files of the folder. scripts:
    added and changed files that are scripts. findings_*: findings of the scanner in only one of the
    revisions, compared without line numbers. lines: unified diff of SKILL.md without its two header
    lines. added_lines, removed_lines: their numbers.
    """

    fields: tuple[ChangedValue, ...]
    files_added: tuple[str, ...]
    files_removed: tuple[str, ...]
    files_changed: tuple[str, ...]
    scripts: tuple[str, ...]
    findings_added: tuple[SafetyFinding, ...]
    findings_removed: tuple[SafetyFinding, ...]
    lines: tuple[str, ...]
    added_lines: int
    removed_lines: int


def compare_revisions(before: ParsedSkill, after: ParsedSkill) -> RevisionDiff:
    """Compare two revisions; their findings should come from the same version of the scanner."""
    old, new = _digests(before.record), _digests(after.record)
    new_or_changed = {path for path, digest in new.items() if old.get(path) != digest}
    lines = tuple(diff_lines(before.lines, after.lines))
    return RevisionDiff(
        fields=tuple(_changed_fields(before.record, after.record)),
        files_added=tuple(sorted(new.keys() - old.keys())),
        files_removed=tuple(sorted(old.keys() - new.keys())),
        files_changed=tuple(sorted(path for path in old.keys() & new if old[path] != new[path])),
        scripts=tuple(sorted(new_or_changed.intersection(after.record.entrypoints))),
        findings_added=_only_in(after.record.safety, before.record.safety),
        findings_removed=_only_in(before.record.safety, after.record.safety),
        lines=lines,
        added_lines=sum(line.startswith("+") for line in lines),
        removed_lines=sum(line.startswith("-") for line in lines),
    )


def _digests(record: SkillRecord) -> dict[str, str]:
    return {file.path: file.sha256 for file in record.files}


def _changed_fields(before: SkillRecord, after: SkillRecord) -> Iterator[ChangedValue]:
    for name in _FIELDS:
        old, new = _to_text(getattr(before, name)), _to_text(getattr(after, name))
        if old != new:
            yield ChangedValue(name, old, new)


def _to_text(value: object) -> str:
    return ", ".join(value) if isinstance(value, tuple) else str(value)


def _only_in(
    findings: Sequence[SafetyFinding], others: Sequence[SafetyFinding]
) -> tuple[SafetyFinding, ...]:
    known = {_without_line(one) for one in others}
    return tuple(one for one in findings if _without_line(one) not in known)


def _without_line(one: SafetyFinding) -> tuple[str, int, str, str]:
    return (one.kind, one.level, one.reason, one.file)


def diff_lines(before: Sequence[str], after: Sequence[str]) -> Iterator[str]:
    """Yield the hunks of a unified diff, each line with its mark; nothing for equal texts."""
    first = _common_prefix(before, after)
    last = _common_prefix(before[first:][::-1], after[first:][::-1])
    old, new = before[first : len(before) - last], after[first : len(after) - last]
    if not old and not new:
        return
    try:
        codes = [one for one in _BoundedMatcher(old, new).get_opcodes() if one[0] != "equal"]
    except _TooManyStepsError:
        codes = [("replace", 0, len(old), 0, len(new))]
    changes = [(i + first, j + first, k + first, n + first) for _, i, j, k, n in codes]
    for hunk in _group(changes):
        yield from _format_hunk(before, after, hunk)


class _TooManyStepsError(Exception):
    """A comparison takes more than _MAX_COMPARED steps."""


class _BoundedMatcher(SequenceMatcher[str]):
    """Compares texts; raises _TooManyStepsError. A step is a line, or a pair of equal lines."""

    def __init__(self, old: Sequence[str], new: Sequence[str]) -> None:
        super().__init__(None, old, new, autojunk=False)
        counts = Counter(new)
        self._steps = [0, *accumulate(1 + counts[line] for line in old)]
        self._left = _MAX_COMPARED

    @override
    def find_longest_match(
        self, alo: int = 0, ahi: int | None = None, blo: int = 0, bhi: int | None = None
    ) -> Match:
        self._left -= self._steps[-1 if ahi is None else ahi] - self._steps[alo]
        if self._left < 0:
            raise _TooManyStepsError
        return super().find_longest_match(alo, ahi, blo, bhi)


_Change = tuple[int, int, int, int]
"""Lines i to j of the old text became lines k to n of the new one; ends are exclusive."""


def _common_prefix(one: Sequence[str], other: Sequence[str]) -> int:
    length = 0
    for first, second in zip(one, other, strict=False):
        if first != second:
            break
        length += 1
    return length


def _group(changes: Sequence[_Change]) -> Iterator[list[_Change]]:
    """Yield groups of changes whose contexts touch."""
    group: list[_Change] = []
    for change in changes:
        if group and change[0] - group[-1][1] > 2 * CONTEXT_LINES:
            yield group
            group = []
        group.append(change)
    yield group


def _format_hunk(
    before: Sequence[str], after: Sequence[str], hunk: Sequence[_Change]
) -> Iterator[str]:
    start = max(hunk[0][0] - CONTEXT_LINES, 0)
    begin = hunk[0][2] - (hunk[0][0] - start)
    end = min(hunk[-1][1] + CONTEXT_LINES, len(before))
    ended = hunk[-1][3] + (end - hunk[-1][1])
    yield f"@@ -{_format_range(start, end)} +{_format_range(begin, ended)} @@"
    at = start
    for i, j, k, n in hunk:
        yield from (f" {line}" for line in before[at:i])
        yield from chain((f"-{line}" for line in before[i:j]), (f"+{line}" for line in after[k:n]))
        at = j
    yield from (f" {line}" for line in before[at:end])


def _format_range(start: int, end: int) -> str:
    """Format a range of lines as in unified diffs: first line and length."""
    length = end - start
    if length == 1:
        return str(start + 1)
    return f"{start + 1 if length else start},{length}"
