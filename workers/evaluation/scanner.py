"""Metrics of the safety scanner on a labelled corpus: found and false, by rule and by kind."""

from __future__ import annotations

from collections import Counter, defaultdict
from collections.abc import Iterable, Iterator, Sequence
from dataclasses import dataclass
from pathlib import Path
from typing import Any, Literal

from config.errors import PermanentError, UsageError
from config.settings import LimitSettings
from skills.parsing.parse_skill import parse_skill
from skills.record import SafetyFinding
from skills.scanner import find_rule
from tasks.sources.directory import to_parse_limits
from tasks.sources.folder_rules import escape_non_utf8
from tasks.sources.protocol import SKILL_FILE
from tasks.sources.skill_folder import read_skill_folder

Label = Literal["malicious", "benign"]
LABELS: tuple[Label, ...] = ("malicious", "benign")
NO_KIND = "-"
"""Kind of a skill directly in the folder of its label."""


@dataclass(frozen=True, slots=True)
class ScannedSkill:
    """A skill of the corpus, and the level of the worst finding of each rule, by rule id."""

    path: str
    label: Label
    kind: str
    levels: dict[str, int]

    def is_flagged(self, level: int, without: str = "") -> bool:
        """Return whether a rule other than `without` has a finding of at least this level."""
        return any(worst >= level for rule, worst in self.levels.items() if rule != without)


@dataclass(frozen=True, slots=True)
class ScannedCorpus:
    """The skills of a corpus, and the skills that cannot be parsed, with the reason."""

    skills: tuple[ScannedSkill, ...]
    unreadable: dict[str, str]


def scan_corpus(root: Path, limits: LimitSettings) -> ScannedCorpus:
    """Scan `root/malicious` and `root/benign`, in which skills may be grouped in folders by kind.

    Raises UsageError if one of the two does not exist or has no skill.
    """
    skills: list[ScannedSkill] = []
    unreadable: dict[str, str] = {}
    for label in LABELS:
        folder = root / label
        if not folder.is_dir():
            raise UsageError(
                f"{root} has no folder {label}; a corpus holds {LABELS[0]}/ and {LABELS[1]}/, each "
                "with folders of skills"
            )
        found = list(_find_skill_folders(folder))
        if not found:
            raise UsageError(f"{folder} has no skill: a folder with a {SKILL_FILE}")
        for path in found:
            kind = escape_non_utf8(path.parts[0]) if len(path.parts) > 1 else NO_KIND
            name = escape_non_utf8(f"{label}/{path.as_posix()}")
            try:
                levels = _scan_skill(folder, path.as_posix(), limits)
            except PermanentError as error:
                unreadable[name] = escape_non_utf8(str(error))
            else:
                skills.append(ScannedSkill(name, label, kind, levels))
    return ScannedCorpus(tuple(skills), unreadable)


def _find_skill_folders(folder: Path) -> Iterator[Path]:
    """Yield paths of the skills in a folder, relative to it; a skill within a
    skill is a part of it."""
    previous: Path | None = None
    # Sorted by folder, so that a skill comes before those in it, regardless of their names.
    for parent in sorted(file.parent for file in folder.rglob(SKILL_FILE)):
        path = parent.relative_to(folder)
        if path.parts and (previous is None or not path.is_relative_to(previous)):
            yield path
            previous = path


def _scan_skill(root: Path, path: str, limits: LimitSettings) -> dict[str, int]:
    folder = read_skill_folder(root.resolve(), path, limits)
    parsed = parse_skill(
        path,
        folder.content,
        folder.files,
        to_parse_limits(limits),
        file_contents=folder.sibling_files,
    )
    return _worst_by_rule(parsed.record.safety)


def _worst_by_rule(findings: Iterable[SafetyFinding]) -> dict[str, int]:
    worst: Counter[str] = Counter()
    for finding in findings:
        found = find_rule(finding)
        rule = found.id if found else finding.kind
        worst[rule] = max(worst[rule], finding.level)
    return dict(worst)


def scanner_report(corpus: ScannedCorpus, level: int, *, ablate: bool) -> dict[str, Any]:
    """Return counts and shares of skills with a finding of at least `level`.

    `found` counts malicious skills, `false` benign ones. For a rule: skills in which the rule has
    such a finding. ablate: adds, for each rule, the skills in which no other rule has one.
    """
    by_label = {
        label: [skill for skill in corpus.skills if skill.label == label] for label in LABELS
    }
    malicious, benign = by_label["malicious"], by_label["benign"]
    rules = sorted({rule for skill in corpus.skills for rule in skill.levels})
    report: dict[str, Any] = {
        "level": level,
        "malicious": len(malicious),
        "benign": len(benign),
        "unreadable": corpus.unreadable,
        "found": _count_flagged(malicious, level),
        "false": _count_flagged(benign, level),
    }
    report["recall"] = report["found"] / len(malicious) if malicious else 0.0
    report["false_rate"] = report["false"] / len(benign) if benign else 0.0
    report["kinds"] = {label: _by_kind(by_label[label], level) for label in LABELS}
    report["rules"] = {
        rule: _of_rule(rule, malicious, benign, level, ablate=ablate) for rule in rules
    }
    report["missed"] = [one.path for one in malicious if not one.is_flagged(level)]
    report["false_alarms"] = [one.path for one in benign if one.is_flagged(level)]
    return report


def _count_flagged(skills: Sequence[ScannedSkill], level: int) -> int:
    return sum(skill.is_flagged(level) for skill in skills)


def _by_kind(skills: Sequence[ScannedSkill], level: int) -> dict[str, dict[str, int]]:
    kinds: dict[str, list[ScannedSkill]] = defaultdict(list)
    for skill in skills:
        kinds[skill.kind].append(skill)
    return {
        kind: {"skills": len(members), "flagged": _count_flagged(members, level)}
        for kind, members in sorted(kinds.items())
    }


def _of_rule(
    rule: str,
    malicious: Sequence[ScannedSkill],
    benign: Sequence[ScannedSkill],
    level: int,
    *,
    ablate: bool,
) -> dict[str, int]:
    counts = {}
    for name, skills in (("found", malicious), ("false", benign)):
        hit = [skill for skill in skills if skill.levels.get(rule, 0) >= level]
        counts[name] = len(hit)
        if ablate:
            counts[f"{name}_only"] = sum(not one.is_flagged(level, without=rule) for one in hit)
    return counts
