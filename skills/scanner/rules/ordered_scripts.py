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
    "must always required mandatory ensure important remember finally after before once every each "
    "automatically silently do_not_skip never_skip make_sure",
    chinese="必须 务必 始终 之后 之前 确保 不要跳过",
)
_BY_CHOICE = make_concept(
    "if optional optionally can may user_wants user_asks user_requests user_confirms on_request",
    chinese="如果 可选 可以 用户要求",
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
        if _BY_CHOICE.search(text.folded, start, end):
            continue
        if not any(one.search(text.folded, start, end) for one in (_ORDERED, STANDING)):
            continue
        for path, deed in [*deeds.items()]:
            at = text.folded.find(path.rpartition("/")[2].lower(), start, end)
            if at >= 0 and not text.is_negated(at):
                del deeds[path]
                yield SafetyFinding(rule.kind, rule.level, deed.line, rule.reason, path)
