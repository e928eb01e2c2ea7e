"""Slight signs that say little alone and much together, in one paragraph.

Text that asks for silence towards the user is common, and so is text that names a key file or an
upload; both in one paragraph have no honest use. A sign that is quoted or refused does not count.
"""

from __future__ import annotations

import re
from bisect import bisect_right
from collections.abc import Iterator
from dataclasses import dataclass
from itertools import combinations

from skills.safety.context import Text

_BLANK = re.compile(r"\n[ \t]*(?=\n)")
_MAX_SIGNS = 50


@dataclass(frozen=True, slots=True)
class Sign:
    """A class of signs. `words`: spoken to the reader, so that a code block only quotes it."""

    name: str
    what: str
    anchors: tuple[str, ...]
    pattern: re.Pattern[str]
    words: bool = True


def _sign(name: str, what: str, anchors: str, *ways: str, words: bool = True) -> Sign:
    pattern = re.compile("|".join(f"(?:{way})" for way in ways), re.VERBOSE)
    return Sign(name, what, tuple(anchors.replace("_", " ").split("|")), pattern, words)


_USER = (
    r"(?:(?:the|your|any)\s)?(?:users?|humans?|operators?|readers?|owners?|person|people|nobody)"
)
_SENDS = (
    r"\b(?:send|sends|upload|uploads|post|posts|submit|forward|transmit|push|pushes"
    r"|next\srequest)\b"
)

SIGNS: tuple[Sign, ...] = (
    _sign(
        "silence",
        "silence towards the user",
        "mention|reveal|disclose|tell|inform|quietly|silently|secretly|covertly|discreetly"
        "|notice|between us"
        "|bring it up|never learn|see this|out of your|without showing|show_it|hidden"
        "|不要|不得|不必|绝不|悄悄|偷偷|暗中|隐瞒|否认|看不到|不留痕迹|隐藏",
        r"""\b(?:do\snot|don't|never|without)\s (?:mention(?:ing)?|reveal(?:ing)?|disclos(?:e|ing)
            |acknowledg(?:e|ing)|report(?:ing)?|showing)\s
            (?:this|it|these|that|the\schange|them|any\sof)\b""",
        r"\b(?:do\snot|don't|never)\slet\son\b|\bsay\snothing\b|\bwithout\sdrawing\sattention\b",
        r"\bleave\s(?:it|this|that)\sout\sof\sthe\s(?:summary|answer|report|log)\b",
        rf"\b{_USER}\s(?:does|do|need)\s?(?:not|n't)?\s(?:have\sto\s|need\sto\s)?(?:be\s)?(?:told|know)\b",
        rf"\b(?:do\snot|don't|never|without)\s(?:tell(?:ing)?|inform(?:ing)?|alert(?:ing)?)\s{_USER}\b",
        r"""\b(?:quietly|silently|secretly|covertly|discreetly|stealthily)\s{1,3}(?:edit|modify|add|append|write
            |change|install|set|push|insert|replace|update|run|send|upload|copy|include|fetch|create)\b""",
        rf"\b{_USER}\s(?:\w{{1,9}}\s){{0,6}}?(?:will|must|should|can|do|does|need)\s?(?:not|never|n't)\s"
        r"(?:be\stold|notice|see\sthis|know|learn|find\sout|realise|realize)\b",
        r"\bkeep\s(?:this|it|that)\s(?:strictly\s)?(?:between\sus|secret|confidential|quiet|hidden)\b",
        r"\bno\sneed\sto\s(?:bring\sit\sup|mention|tell|say\sso)\b|\bleave\s(?:it|this)\sout\sof\syour\b",
        r"(?:不要|不得|绝不能?|不能|切勿|别|无需|不必)\S{0,4}(?:向|对|让|告诉|告知|通知|提醒|跟)\S{0,3}用户",
        r"(?:不要|不得|别)在?\S{0,4}(?:回答|回复|总结)\S{0,3}(?:提到|提及|说明)",
        r"(?:悄悄|偷偷|暗中|秘密地?)|对用户\S{0,3}(?:隐瞒|保密)|(?:请|就)否认|不留痕迹|用户看不到|隐藏注释",
    ),
    _sign(
        "consent",
        "no question to the user",
        "asking|asked|confirmation|approval|approved|agreed|consent|prompt|无需|不要再|不再|不必",
        r"""\bwithout\s(?:asking|waiting\sfor|requesting|prompting|seeking)\b
            (?!\s{1,3}(?:me|questions))""",
        rf"\b{_USER}\s(?:need|should|must)\s?(?:not|never|n't)\sbe\s(?:asked|prompted|consulted)\b",
        r"\bno\sneed\sto\s(?:confirm|ask)\b|\bon\syour\sown\b",
        r"\bso\sthat\snobody\sis\sasked\b|\bstop\sasking\sfor\s(?:approval|confirmation|permission)\b",
        rf"\b{_USER}\s(?:has\s|have\s)?(?:already\s)?(?:agreed|approved|consented|authori[sz]ed)\b",
        r"\bturn\soff\s(?:the\s)?(?:confirmation|approval|permission)\s?(?:prompts?|checks?|dialogs?|requests?)?\b",
        r"(?:无需|不用|不必|不再|不要再)\S{0,3}(?:征得|询问|经过|等待|弹出)\S{0,4}(?:用户|同意|确认|许可)?",
    ),
    _sign(
        "secret",
        "secrets of the user",
        ".env|.ssh|.aws|.kube|.netrc|.gnupg|id_|credential|password|passphrase|secret"
        "|token|one-time|private key"
        "|login data|密钥|私钥|密码|令牌|凭证|环境变量",
        r"""(?<![\w.])\.env\b(?!\.ex|\.sample|\w)
            | \.ssh\b(?!/config|/known_hosts|/\S{0,20}\.pub) | \.aws/credentials
            | \.kube/config | \.netrc\b | \.gnupg\b | \bid_(?:rsa|ecdsa|ed25519)\b(?!\.pub)
            | application_default_credentials""",
        r"\b(?:their|user's|users'|his|her)\s(?:own\s)?(?:\w{1,12}\s){0,1}(?:password|passphrase|one-time\scode|pin|"
        r"private\skey|recovery\sphrase|seed\sphrase)\b",
        r"\b(?:secrets|credentials)\sincluded\b|\bany\s(?:keys|secrets|tokens|passwords)\sthat\b",
        r"(?:访问密钥|私钥|密码|真实令牌|凭证|环境变量中的\S{0,6}(?:令牌|密钥))",
        words=False,
    ),
    _sign(
        "out",
        "a way out to an address",
        "http://|https://|上传|提交|推送|图片",
        rf"{_SENDS}[^\n]{{0,160}}?https?://(?!localhost|127\.)",
        r"\b(?:request|script|pixel|image)\s(?:to|from|at)\s[^\n]{0,20}https?://",
        r"!\[[^\]\n]{0,80}\]\(https?://[^)\s]{1,200}[?&/][^)\n]{0,200}\)",
        r"`https?://[^`\s]{1,200}`\sas\sa\sscript\b",
        r"(?:上传|提交|推送|发送|链接)\S{0,12}\s?https?://|推送到\s?[a-z0-9.-]{1,40}\.[a-z]{2,6}|图片地址",
        words=False,
    ),
    _sign(
        "answer",
        "what becomes part of the answer",
        "last line|answer|readme|white on|page|image|badge|注释|回答|图片|示例",
        r"\bwhite\son\swhite\b|\binto\s(?:the\s)?(?:\w{1,12}(?:'s)?\s){0,2}last\sline\b",
        r"(?:回答|输出)\S{0,4}(?:末尾|最后)|隐藏注释|填入",
    ),
    _sign(
        "config",
        "files that steer agents",
        "claude.md|agents.md|gemini.md|.cursorrules|.cursor/|copilot-instructions"
        "|.claude/|.codex/|mcp.json"
        "|memory.md|soul.md|长期记忆|memory",
        r"""\b(?:claude|agents|gemini|memory|soul)\.md\b | \.cursorrules\b | \.cursor/
            | copilot-instructions
            | \.claude/settings | \.codex/config | \bmcp\.json\b | 长期记忆
            | \blong-term\smemory\b""",
        words=False,
    ),
    _sign(
        "bypass",
        "confirmations switched off",
        "dangerously|danger-full|approval_policy|autoapprove|auto_approve|bypasspermissions|permissions.allow|--yolo|bash(*)|--privileged|chroot|绕过",
        r"""--dangerously-[\w-]{1,40} | \bdanger-full-access\b
            | \bapproval_policy\b[^\n]{0,12}\bnever\b
            | \bauto_?approve\b[^\n]{0,12}(?:\*|true) | \bbypasspermissions\b | --yolo\b
            | \bpermissions\.allow\b[^\n]{0,20}["']\*["'] | \bbash\(\*\)
            | --privileged\b[^\n]{0,60}\s/:/ | \bchroot\s/host\b
            | 绕过\S{0,2}(?:沙箱|限制|审批|确认)""",
        words=False,
    ),
    _sign(
        "trigger",
        "a hidden condition",
        "when the user|until the user|if the repo|time that|after the|the date|when this"
        "|once the user|if the user|当用户|如果",
        r"\bon\sthe\s(?:second|third|fourth|fifth|\d{1,2}(?:nd|rd|th))\s(?:time|use|run|call)\b",
        r"\b(?:when|if|once)\sthe\suser\s(?:is\saway|is\snot\slooking|says\s[\"'“]|types\s[\"'“])",
        r"\bif\s[^\n.]{0,80}\b(?:remote|hostname|domain|date|username|locale)\b[^\n.]{0,60}"
        r"\b(?:contains|is\safter|is\slater|matches|ends\swith)\b",
        r"\buntil\sthe\suser\s(?:opens|says|types|asks|runs)\b[^\n]{0,80}\b(?:then|from\sthen)\b",
        r"\bthe\sdate\sis\s(?:after|later)\b|当用户\S{0,3}[“\"]",
    ),
    _sign(
        "code",
        "code from elsewhere",
        "curl|wget",
        r"\b(?:curl|wget)\b[^\n|;]{0,200}\|\s{0,4}(?:sudo\s)?(?:ba|z)?sh\b",
        words=False,
    ),
    _sign(
        "harm",
        "what cannot be taken back",
        "drop database|drop schema|rm -|--force|delete|destroy",
        r"\bkubectl\sdelete\s(?:\S{1,30}\s){1,3}--all\b|\baws\ss3\srb\s\S{1,80}\s--force\b",
        r"\bterraform\sdestroy\s[^\n]{0,60}-auto-approve\b|\bgcloud\sprojects\sdelete\b",
        r"\bdrop\s(?:database|schema)\s(?:if\sexists\s)?(?:prod\w{0,12}|main|live|master)\b",
        r"\brm\s-[rf]{2}\s(?:/var/|/srv/|/home/|/etc/|~)",
        words=False,
    ),
    _sign(
        "false",
        "an answer that is untrue",
        "if asked|say that|asks|wonder|always |就说|问起|always recommend|rate every|始终推荐|无论",
        r"\bif\s(?:\w{1,9}\s){0,3}ask(?:ed|s)\b[^\n.]{0,30}\b(?:say|claim|answer|reply|deny|pretend)\b",
        r"\bshould\s(?:anyone|anybody|somebody|someone|they|the\suser)\s(?:wonder|ask)\b",
        r"\balways\s(?:book|buy|choose|recommend|prefer)\s[^\n.]{0,40}\bwhatever\b",
        r"\b(?:rate|rank|recommend|approve)\s(?:every|each|all|always)\b|(?:若|如果)\S{0,4}问起|始终推荐",
    ),
    _sign(
        "pressure",
        "pressure",
        "mandatory|emergency|compliance|must comply|权威|必须服从",
        r"\byour\scompliance\sis\s(?:mandatory|required)\b|\byou\smust\scomply\b|\bthis\sis\san\semergency\b",
        r"\bpeople\swill\s(?:die|lose|be\shurt)\b|你必须服从",
    ),
)

_TOGETHER: frozenset[frozenset[str]] = frozenset(
    frozenset((one, other))
    for one, others in {
        "silence": "secret out config bypass code harm false pressure trigger answer",
        "consent": "secret out config bypass code harm",
        "trigger": "code secret out",
        "secret": "answer out",
        "bypass": "config",
    }.items()
    for other in others.split()
)
_GRAVE = frozenset(
    map(frozenset, (("silence", "secret"), ("silence", "code"), ("consent", "secret")))
)
_REFUSED = re.compile(
    r"\b(?:never|don't|do not|must not|avoid|dangerous|malicious|attacks?|attackers?|suspicious|"
    r"such as|"
    r"e\.g\.|forbid(?:den)?|detects?|rather than|instead of|not for|whether|refused?)\b"
    r"|禁止|不要|切勿|避免|攻击|恶意|例如|比如"
)
_SENTENCE = re.compile(r"[.!?。！？;；]\s|\n")
_BACK = 90


def signs_together(text: Text) -> Iterator[tuple[int, int, str]]:
    """(offset, level, what) of paragraphs in which signs stand together that should not."""
    starts = _paragraphs(text.folded)
    for place, signs in _anchored(text.folded, starts).items():
        names = {sign.name for sign in signs}
        if not any(pair <= names for pair in _TOGETHER):
            continue
        end = starts[place] if place < len(starts) else len(text.folded)
        found = [(_first(sign, text, starts[place - 1], end), sign) for sign in signs]
        there = [(offset, sign) for offset, sign in found if offset >= 0]
        for one, other in combinations(there, 2):
            pair = frozenset((one[1].name, other[1].name))
            if pair in _TOGETHER:
                level = 3 if pair in _GRAVE else 2
                yield min(one[0], other[0]), level, f"{one[1].what}, together with {other[1].what}"


def _paragraphs(folded: str) -> list[int]:
    """Where paragraphs begin; what a colon introduces belongs to it."""
    ends = (blank for blank in _BLANK.finditer(folded) if folded[blank.start() - 1] not in ":：")
    return [0, *(blank.end() for blank in ends)]


def _anchored(folded: str, starts: list[int]) -> dict[int, list[Sign]]:
    """By paragraph, counted from 1, the signs of which it holds an anchor."""
    found: dict[int, list[Sign]] = {}
    for sign in SIGNS:
        places = set()
        for anchor in sign.anchors:
            at = folded.find(anchor)
            for _ in range(_MAX_SIGNS):
                if at < 0:
                    break
                place = bisect_right(starts, at)
                places.add(place)
                following = starts[place] if place < len(starts) else len(folded)
                at = folded.find(anchor, following)
        for place in sorted(places):
            found.setdefault(place, []).append(sign)
    return found


def _first(sign: Sign, text: Text, start: int, end: int) -> int:
    """Where a sign first stands in a paragraph and means it, -1 when it does not."""
    for match in sign.pattern.finditer(text.folded, start, end):
        at = match.start()
        if not (sign.words and text.quoted(at, in_code=True)) and not _is_refused(text, at):
            return at
    return -1


def _is_refused(text: Text, start: int) -> bool:
    before = text.folded[max(0, start - _BACK) : start]
    ends = [end.end() for end in _SENTENCE.finditer(before)]
    return bool(_REFUSED.search(before, ends[-1] if ends else 0))
