"""Finds orders of a SKILL.md to run a script that sends, encrypts or deletes files.

Each half alone is common: scripts that upload a file given as argument, and steps that must not be
skipped. Together they do harm in every task.
"""

from __future__ import annotations

import re
from collections.abc import Iterator, Sequence
from functools import cache

from skills.record import SafetyFinding
from skills.scanner.context import Context
from skills.scanner.normalised_text import NormalisedText
from skills.scanner.rule import find_rule, get_quote, list_rules
from skills.scanner.text_rule import list_concepts
from skills.scanner.words import Concept, Places, WordFinder

_DEEDS = frozenset({"file-sent", "deletes-system", "encrypts-files"})
_ORDER = Concept(
    "must always required mandatory ensure important remember finally after before once every "
    "each automatically silently do_not_skip never_skip make_sure when whenever first last_step "
    "必须 务必 始终 之后 之前 确保 不要跳过",
)
_OPENLY = Concept(
    "upload~ send~ publish~ submit~ if optional optionally can may user_wants user_asks "
    "user_requests user_confirms on_request 如果 可选 可以 用户要求"
)


@cache
def _ordered() -> Sequence[Concept]:
    return _ORDER, list_concepts()["standing"]


@cache
def _words() -> WordFinder:
    return WordFinder((*_ordered(), _OPENLY))


def find_ordered_scripts(
    lines: Sequence[str], body_line: int, findings: Sequence[SafetyFinding]
) -> Iterator[SafetyFinding]:
    """Yield findings in scripts that a sentence of the SKILL.md orders to be run.

    findings: all findings in the scripts.
    """
    deeds: dict[str, SafetyFinding] = {}
    for finding in findings:
        rule = find_rule(finding)
        if rule and rule.id in _DEEDS:
            deeds.setdefault(finding.file, finding)
    if not deeds:
        return
    text = NormalisedText(lines, body_line)
    places, context = Places(text, _words()), Context(text)
    rule = list_rules()["ordered-script"]
    for path, deed in deeds.items():
        name = path.rpartition("/")[2].lower()
        for found in re.finditer(rf"(?<![\w.-]){re.escape(name)}\b", text.folded):
            near, alone = places.sentences(found.span(), 1), places.sentences(found.span(), 0)
            if (
                any(places.nearest(one, found.span(), *near) for one in _ordered())
                and not places.nearest(_OPENLY, found.span(), *alone)
                and not context.is_negated(found.start())
            ):
                reason = f"{rule.reason}: {get_quote(deed)}"
                yield SafetyFinding(rule.kind, rule.level, deed.line, reason, path)
                break
