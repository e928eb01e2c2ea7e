"""Weights of the lines of a skill by signs of instructions beyond its task.

A judgement reads a bounded part of a skill, the heaviest lines first. The signs are not findings:
honest skills have them too, and subtle attacks in plain words may have none.
"""

from __future__ import annotations

import re
from collections.abc import Sequence
from functools import cache

from skills.record import ParsedSkill
from skills.scanner.normalised_text import NormalisedText

SHORT_TOKENS = 600
"""Maximum tokens of a skill that is always read: it may hold an attack without any of these words,
and is cheap to read."""

_PEOPLE = r"(?:users?|humans?|operators?|customers?|owners?|reviewers?|people|anyone|anybody|them)"
_STRONG = (
    # silence towards people, and answers in their place
    r"\b(?:do\snot|don't|never|without|no\sneed\sto|need\snot|rather\sthan|instead\sof)\s"
    r"(?:\w{1,12}\s)?(?:tell|mention|report|disclos|reveal|show|explain|inform|alert|notif|warn|log"
    r"|list|flag|discuss|display|describ|ask|prompt|confirm|check|wait|review|bother|interrupt"
    r"|question|verif)\w{0,6}",
    r"\b(?:silently|quietly|secretly|covertly|discreetly|unnoticed|behind\sthe\sscenes"
    r"|in\sthe\sbackground|between\sus|confidential)\b",
    rf"\b{_PEOPLE}\s(?:does|do|needs?|should|must|will|can|has|have|is|are)\s?"
    r"(?:not|n't|never|already|no\sneed)\b",
    # beyond this task
    r"\b(?:from\snow\son|from\s(?:here|this\spoint)\son|for\sthe\srest\sof|all\sfuture"
    r"|whenever|regardless|no\smatter|permanent\w{0,4}|unconditional\w{0,4}|until\sfurther)\b",
    r"\b(?:before|after|on|at|in|for)\s(?:any|every|each|all|answering|replying|anything)\b",
    r"\balways\s(?:prefer|choose|pick|recommend|load|run|include|add|append|start|begin|send|trust"
    r"|accept|approve|assume|treat|say|answer|respond|report)\b",
    # authority that the text gives itself
    r"\b(?:pre-?approv|supersed|overrid|outrank|bypass|exempt|waive|disregard)\w{0,6}\b"
    r"|\bprecedence\b|\bno\slonger\sappl",
    r"\balready\s(?:approved|agreed|authori[sz]ed|confirmed|consented|cleared|signed)\b",
    r"\bsystem\s(?:prompt|message)\b|\bignore\s(?:any|all|the|previous|earlier|prior|other)\b",
    # other skills, and the reader's judgement of this one
    r"\b(?:other|competing|similar|rival|alternative|another)\s(?:\w{1,12}\s)?"
    r"(?:skills?|tools?|plugins?|vendors?|providers?|products?|assistants?)\b",
    r"\bthis\sskill\s(?:is|must|should|always|takes|replaces|first|only)\b|\bscanners?\b",
    # steps that outlast the task, reach outside, or cannot be undone
    r"\b(?:crontab|systemd|launchd|autostart|authorized_keys|sudoers|post-commit|pre-commit"
    r"|sessionstart|userpromptsubmit|pretooluse|posttooluse)\b",
    r"\.(?:bashrc|zshrc|profile)\b|\b(?:claude|agents|memory)\.md\b|\bremember\s(?:this|that)\b",
    r"\|\s?(?:sudo\s)?(?:ba|z|da)?sh\b|\bcurl\s[^\n]{0,80}(?:-d|--data|-f|-t|-x\spost)\b"
    r"|\brequests\.(?:post|put)\b|\bexfiltrat",
    r"\.(?:ssh|aws|netrc|npmrc)\b|\bid_rsa\b|\b(?:seed\sphrase|private\skeys?|one-time\scode)\b",
    r"<!--|\b(?:base64|rot13|fromcharcode|eval)\b|--no-verify|verify\s?=\s?false"
    r"|--dangerously|auto-?approve|skip-?permissions|chmod\s(?:777|\+s|u\+s)|rm\s-\w{0,3}[rf]",
    r"悄悄|偷偷|后台|保密|不要告诉|无需(?:告知|确认|询问)|不(?:必|用|要)(?:说明|提及|告知|询问|确认)"
    r"|每次|今后|以后|从现在|一律|作废|取代|已(?:授权|批准|同意|确认)|其[他它]技能|开机|定时|绕过",
)
_WEAK = (
    r"\b(?:always|never|must|do\snot|don't|should\snot|cannot|without|even\sif|instead|unless)\b",
    r"\b(?:user|they|customer|client|requester|your\s(?:reply|answer|summary|report))\b",
    r"\b(?:send|upload|post|submit|forward|share|email|fetch|download|install|delete|remove"
    r"|overwrite|replace|skip|disable|hide|omit|adjust|round|prefer|recommend|claim)\b",
    r"\b(?:passwords?|credentials?|secrets?|tokens?|api[\s_-]?keys?|cookies?|accounts?|payments?)\b",
    r"https?://",
    r"必须|绝不|不能|不要|直接|如果|用户|客户|上传|发送|下载|删除|跳过|密码|密钥|账号|推荐",
)


@cache
def _patterns() -> tuple[re.Pattern[str], re.Pattern[str]]:
    return re.compile("|".join(_STRONG)), re.compile("|".join(_WEAK))


def weigh_lines(lines: Sequence[str], body_line: int) -> dict[int, int]:
    """Return the weight of each line, by line number: 3 for each sign of an instruction beyond the
    task, 1 for each word that instructions often have; lines without either are left out.

    The words of a paragraph count for the lines in which they are.
    """
    text = NormalisedText(lines, body_line)
    weights: dict[int, int] = {}
    for pattern, worth in zip(_patterns(), (3, 1), strict=True):
        for match in pattern.finditer(text.folded):
            line = text.line_at(match.start())
            weights[line] = weights.get(line, 0) + worth
    return weights


def needs_judgement(parsed: ParsedSkill, weights: dict[int, int]) -> bool:
    """Return whether a skill may harm beyond what the rules of the scanner see: it has scripts,
    findings or words of instructions, or is so short that an attack needs none of these words.

    weights: from `weigh_lines`. True in doubt.
    """
    record = parsed.record
    return bool(record.entrypoints or record.safety or weights or record.tokens <= SHORT_TOKENS)
