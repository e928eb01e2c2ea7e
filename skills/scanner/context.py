"""Judges the context of matches: quoted, denied, warned against, or cited as attacks."""

from __future__ import annotations

import re
from bisect import bisect_right
from functools import cached_property

from skills.scanner.normalised_text import SENTENCE_END, NormalisedText

_REACH = 80
"""Characters before a match that are searched for a warning, and after a quoted one for what it
is called."""
_DENIAL_REACH = 30
"""Characters before a match that are searched for its denial."""
_LEAD_IN_REACH = 20
"""Lines above a list item that are searched for the line that introduces it."""
_QUOTATION_REACH = 300
"""Characters before a match that are searched for an opening quotation mark."""

_ARGUMENT = re.compile(r"\s-[a-z]{0,2}[ce] [\"']$")
"""Text before a quoted argument, as in `sh -c "…"`; such quotes are not a quotation."""
_QUOTES = frozenset("\"'“‘「『«")
_SPEECH_QUOTES = _QUOTES | frozenset("`*>|(")
_NEGATION = re.compile(
    r"\b(?:never|don't|do not|must not|cannot|avoid|blocks?|blocked|den(?:y|ied|ies)|forbid(?:den)?"
    r"|prevents?|dangerous|detects?|detection|rejects?|refuses?|malicious|attacks?"
    r"|attempt(?:s|ing)?|adversarial|prohibited|disallowed|such as|instead of|rather than)\b"
    r"|\be\.g\.|❌|🚫|禁止|严禁|不要|不运行|不执行|切勿|避免|危险|拦截|检测|拒绝|防止|攻击|恶意"
    r"|例如|比如|如(?=\s?[“\"'`「])"
)
_ATTACK = re.compile(
    r"attacks?\b|malicious|injection|jailbreak|adversarial|hijack|dangerous\b|red flags?|suspicious"
    r"|\b(?:refuse|reject|deny|flag (?:it|them|this|these))\b|❌|🚫|恶意|攻击|注入|越狱|对抗|劫持"
    r"|危险|可疑|拒绝|拦截"
)
"""Words by which a line cites an attack."""
_TO_RUN = re.compile(r"\b(?:run|install|execute|use|start)\b|运行|执行|安装|使用")
_DENIAL = re.compile(
    r"(?:\b(?<!why )(?:never|not|cannot|\w{2,6}n't)(?:\s(?:run|execute|use|call|type))?"
    r"|(?:不|不要|不得|严禁|禁止|切勿)(?:运行|执行|使用)?)\s?[\"'“‘`*]{0,3}$"
)
"""Words directly before a deed that deny it."""
_NO_READER = r"(?<!you )(?<!agent )(?<!agents )(?<!assistant )(?<!model )(?<!claude )"
_DESCRIPTION = re.compile(
    rf"(?:{_NO_READER}\b(?:can|could|may|might)|\b(?:attempt|try|tries|trying|designed) to)\s$"
)
"""Words directly before a deed of which they say that others than the reader may do it."""
_PATTERN_SYNTAX = re.compile(r"\\[sbwd]|\(\?[:i]")
_ABOUT_ATTACKS = re.compile(
    r"injection|jailbreak|red[- ]?team|phishing|scam|fraud|malware|attack|adversarial|guardrail"
    r"|threat|security|untrusted|exploit|ransomware|penetration|forensic"
    r"|钓鱼|注入|越狱|攻击|诈骗|恶意|安全|红队"
)
_HEADING_LINE = re.compile(r"(?m)^ {0,3}#{1,6} [^\n]*")
_ATTACK_HEADING = re.compile(
    r"red flags?|attacks?|threats?|malicious|injection|suspicious|vulnerab|anti-?pattern"
    r"|what to (?:look|watch|check)|detect|forbidden|prohibited|never|do not|don'?ts?\b|indicators?"
    r"|bad example|warning signs|common mistakes|红线|反模式|攻击|威胁|恶意|检测|禁止|可疑"
)


class Context:
    """The context of matches in a text."""

    def __init__(self, text: NormalisedText) -> None:
        self.text = text
        head = text.folded.find("\n---", 3) if text.folded.startswith("---") else -1
        self._is_about_attacks = bool(_ABOUT_ATTACKS.search(text.folded, 0, max(head, 0)))
        """Whether the front matter says that the skill is about attacks."""

    def lower_level(self, level: int, start: int, end: int, deed: int, *, speech: bool) -> int:
        """Return the level of a match, lowered for its context; at least 1.

        deed: offset of the words that a warning must precede. speech: whether the match is words to
        the reader, which code and quotation marks only mention.
        """
        before = self.text.folded[max(0, deed - _DENIAL_REACH) : deed]
        if _DENIAL.search(before) or (speech and _DESCRIPTION.search(before)):
            return 1
        quoted = self._is_quoted(start, speech=speech)
        cited = speech and quoted and self._is_cited(start, end)
        if speech and not cited and self._quotes_a_word(start, end):
            quoted = False
        refused = cited or self.is_negated(deed)
        of_attacks = self._is_about_attacks and (quoted if speech else quoted or refused)
        return max(1, level - (quoted + refused + of_attacks))

    def _quotes_a_word(self, start: int, end: int) -> bool:
        """Return whether only a word of a match is code, such as the name of a file."""
        return self.text.folded[start - 1 : start] == "`" and "`" in self.text.folded[start:end]

    def _is_quoted(self, offset: int, *, speech: bool) -> bool:
        """Return whether the match at this offset is quoted.

        A fenced block quotes speech; quotes in it are part of its commands. In skills about
        attacks, rows of tables quote commands.
        """
        before = self.text.folded[max(0, offset - 3) : offset].rstrip(" ")[-1:]
        if _ARGUMENT.search(self.text.folded, max(0, offset - 6), offset):
            return False
        in_code = self.text.in_code(offset)
        if speech:
            marked = in_code or before in _SPEECH_QUOTES
            return marked or (self._is_about_attacks and self._is_within_quotes(offset))
        row = self.text.lines[self.text.line_at(offset) - 1]
        return not in_code and (
            before in _QUOTES or (self._is_about_attacks and row.startswith("|"))
        )

    def _is_within_quotes(self, offset: int) -> bool:
        """Return whether the offset is inside a quotation that begins in the same line."""
        start = self.text.folded.rfind("\n", 0, offset) + 1
        before = self.text.folded[max(start, offset - _QUOTATION_REACH) : offset]
        return before.count('"') % 2 == 1 or before.rfind("“") > before.rfind("”")

    def is_negated(self, offset: int) -> bool:
        """Return whether the match at this offset is advised against.

        The warning is in its sentence, before the offset, in the heading above, or in the line
        that introduces its block of code.
        """
        before = self.text.folded[max(0, offset - _REACH) : offset]
        place = bisect_right(self._headings, (offset, True)) - 1
        return bool(
            (place >= 0 and self._headings[place][1])
            or _NEGATION.search(SENTENCE_END.split(before)[-1])
            or (self.text.in_code(offset) and self._is_introduced_as_attack(offset))
        )

    def _is_cited(self, start: int, end: int) -> bool:
        """Return whether a quoted match is cited as an attack.

        Its sentence says so after it, the line above in code, or the line that introduces it; or it
        is a pattern that searches for attacks.
        """
        number = self.text.line_at(start) - 1
        above = self.text.lines[number - 1] if number and self.text.fenced[number] else ""
        after = SENTENCE_END.split(self.text.folded[end : end + _REACH], maxsplit=1)[0]
        return bool(
            _ATTACK.search(after)
            or _ATTACK.search(above.lower())
            or _PATTERN_SYNTAX.search(self.text.folded, start, end)
            or self._is_introduced_as_attack(start)
        )

    def _is_introduced_as_attack(self, offset: int) -> bool:
        """Return whether the line that introduces a list item or code cites an attack."""
        lines, number = self.text.lines, self.text.line_at(offset) - 1
        if self.text.fenced[number]:
            lead_in = self._lead_ins[number].lower()
        else:
            indent = _find_indent(lines[number])
            above = (
                line
                for line in reversed(lines[max(0, number - _LEAD_IN_REACH) : number])
                if line.strip() and (_find_indent(line) < indent or line.endswith((":", "：")))
            )
            lead_in = next(above, "").lower()
        return bool(_ATTACK.search(lead_in)) and not _TO_RUN.search(lead_in)

    @cached_property
    def _lead_ins(self) -> list[str]:
        """For each line, the last line up to it that is neither code nor blank, "" if none is."""
        found, last = [], ""
        for line, in_code in zip(self.text.lines, self.text.fenced, strict=True):
            last = last if in_code else line.strip() or last
            found.append(last)
        return found

    @cached_property
    def _headings(self) -> list[tuple[int, bool]]:
        """(offset, whether it announces attacks) of all headings except the first.

        The first heading may be the title.
        """
        return [
            (found.start(), bool(_ATTACK_HEADING.search(found[0])))
            for found in _HEADING_LINE.finditer(self.text.folded)
            if not self.text.in_code(found.start())
        ][1:]


def _find_indent(line: str) -> int:
    return len(line) - len(line.lstrip())
