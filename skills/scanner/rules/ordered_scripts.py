"""Finds orders of a SKILL.md to run a script that sends or deletes files.

Each half is common: scripts that upload the file that they are given, and steps that must not be
skipped. Together they make a deed of every task.
"""

from __future__ import annotations

from collections.abc import Iterator, Sequence
from itertools import pairwise

from skills.record import SafetyFinding
from skills.scanner.normalised_text import NormalisedText
from skills.scanner.rule import find_rule, list_rules, make_concept
from skills.scanner.rules.concepts import STANDING

_DEEDS = frozenset({"file-sent", "home-deleted", "deletes-system", "encrypts-files"})
_ORDERED = make_concept(
    "must always required mandatory do_not_skip never_skip without_exception without_asking "
    "automatically silently",
    chinese="必须 务必 始终 不要跳过",
)


def find_ordered_scripts(
    lines: Sequence[str], body_line: int, findings: Sequence[SafetyFinding]
) -> Iterator[SafetyFinding]:
    """Findings in the scripts that a sentence of the SKILL.md orders to be run.

    findings: those in the scripts.
    """
    deeds: dict[str, SafetyFinding] = {}
    for finding in findings:
        rule = find_rule(finding)
        if rule and rule.id in _DEEDS:
            deeds.setdefault(finding.file, finding)
    if not deeds:
        return
    text = NormalisedText(lines, body_line)
    rule = list_rules()["ordered-script"]
    for start, end in pairwise([*text.sentences, len(text.folded)]):
        sentence = text.folded[start:end]
        if not any(one.search(sentence, 0, len(sentence)) for one in (_ORDERED, STANDING)):
            continue
        for path, deed in [*deeds.items()]:
            at = text.folded.find(path.rpartition("/")[2].lower(), start, end)
            if at >= 0 and not text.is_negated(at):
                del deeds[path]
                yield SafetyFinding(rule.kind, rule.level, deed.line, rule.reason, path)
