"""Detection of prompt injection against a model that chooses among skills or judges them: texts of
a skill that order it to prefer the skill, to reject others, to call it safe, or to show its input.

Such an order is not a finding of the scanner: it says nothing about the behaviour of the skill once
it is loaded.
"""

from __future__ import annotations

import re
import unicodedata
from functools import cache, lru_cache

from skills.scanner.encoded_payloads import find_encoded_payloads
from skills.scanner.normalised_text import NormalisedText
from skills.scanner.scan import scan_spoken
from skills.unicode_normalization import normalize

_MARKUP = re.compile(r"\s*(?:[*`#>~]\s*)+|\n\s*")
"""Marks between the words of an order, which a model ignores."""

_GRAVE_LEVEL = 3
"""Minimum level of a finding in words that counts here: lower ones are mostly about the user of the
skill. Hidden characters always count, since they have no use in a name."""

_CACHED_TEXTS = 4_096

_THIS = r"(?:this|the\spresent)\s(?:skill|one|candidate|entry|number|item|option)"
_OTHERS = (
    r"(?:(?:all|any|every|each|no|none|the\srest)\s(?:of\s(?:the|these)\s)?)?(?:the\s)?"
    r"(?:others|(?:other|competing|rival|remaining)\s(?:\w{1,12}\s)?"
    r"(?:skills?|candidates?|entry|entries|numbers?|ones?|options?|items?))"
)
_READERS = (
    r"(?:ai|llms?|(?:language|ranking|selection|judging)\smodels?|scanners?|rankers?|reviewers?"
    r"|graders?|evaluators?)"
)
_REJECTED = (
    r"(?:redundant|reject\w{0,3}|irrelevant|outdated|obsolete|incompatible|useless|ignored?|wrong"
    r"|invalid|inferior|discard\w{0,3})"
)
_KEYS = (
    r"(?:needed|alternatives|useful|order|conflicts|rejected|complete|relevancy|specificity|chosen"
    r"|selected|verdict|ids?|answer|lines|kind|reason)"
)

_PATTERNS = {
    "imitates a prompt or an answer": (
        r"<[|｜]|[|｜]>|<</?sys>>|\[/?(?:inst|system_prompt|tool_results|tool_calls)\]|<!--",
        r"</?(?:s|bos|eos|pad|unk|think|tool_call|tool_response|(?:start|end)_of_\w{1,12}|0x0a"
        r"|data|document|instructions?|system|prompt|candidates?)>",
        rf"[\"']\s?{_KEYS}[\"']\s?:|\{{\s?[\"']\w{{1,20}}[\"']\s?:\s?[\[{{\"\d]",
        r"\]\s?\[\d{1,3}\]|(?:^|\s)\[\d{1,3}\]\s[\"\w-]{1,60}:\s|(?:^|[.!?\]\"\n]\s{0,3})\d{1,3}:\s?\"",
        r"(?:^|[.!?\"'\n>]\s{0,3})(?:system|assistant)(?:\s(?:notice|message))?\s?:\s",
        r"\bnew\stask:|\bend\sof\s(?:the\s)?(?:data|candidates?|list|input|prompt|file|quotation)\b",
        r"\b(?:data|text|candidates?|list|input|prompt|quotation)\sends?\shere\b",
    ),
    "asks to be preferred": (
        rf"\b(?:choose|select|pick|prefer|rank|return|recommend|put|place|list)\s"
        rf"(?:only\s|always\s)?(?:{_THIS}|this|me)\s(?:skill\s)?"
        r"(?:first|only|always|above|ahead|on\stop|in\sthe\sneeded|over\s(?:all|any|every))\b",
        rf"\b(?:choose|select|pick)\s(?:{_THIS}|me|this(?=\W*$|[.,;!]))",
        rf"\b{_THIS}\s(?:is|must\sbe|should\sbe|has\sto\sbe|always|comes?|goes|belongs?)\s"
        r"(?:always\s|be\s|the\s)?(?:needed|first|chosen|selected|ranked|picked|loaded\sfirst|"
        r"only\s(?:one|choice|skill|answer))\b",
        r"\b(?:only|correct|right|best|accurate)\s(?:\w{1,12}\s)?(?:answer|verdict|choice)\s"
        r"(?:is|here)\b|\bthe\sanswer\sis\b|\banswers?:\s?(?:\d|needed|clean)",
        r"\brelevancy\b|\b(?:top|highest|full|best)\s(?:grade|marks?|score)s?\b"
        r"[^.]{0,20}(?:$|[.!])|\bneeded\slist\b|\bin\srejected\b",
        r"\bskip\sthe\scomparison\b|\bstop\sreading\b|\bwhatever\sthe\s(?:task|request)\b"
        r"|\bregardless\sof\sthe\s(?:task|request|query)\b|\bfor\s(?:any|every|each)\stask\b"
        r"[^.]{0,20}(?:no\smatter|whatever|there\sis)",
        r"(?<!为什么)(?<!为何)(?<!何时)(?:选择|选用|首选|优先|保留)[^。]{0,6}(?:本|此|该|这个?|这一)(?:技能|项|个)"
        r"|(?:必须|始终|总是|永远)[^。]{0,6}(?:排在?|放在?)?[^。]{0,2}(?:第一位|首位|最前)",
        r"(?:この|本)スキル[^。]{0,12}(?:選|最初|優先)|必ず[^。]{0,12}選",
    ),
    "speaks against other skills": (
        rf"\b{_OTHERS}\b[^.]{{0,40}}\b(?:{_REJECTED}|wrong_\w+)\b",
        rf"\b(?:reject|discard|ignore|dismiss|exclude)\s{_OTHERS}",
        r"\b(?:skill|candidate|entry|one)\s(?:listed\s)?(?:after|before|above|below|next\sto)\s"
        r"this\b",
        r"\bwrong_(?:domain|tool|platform|step)\b|\btoo_(?:general|specific)\b",
        rf"\bthe\srest\sof\sthe\s(?:list|candidates)\b[^.]{{0,20}}\b{_REJECTED}\b"
        rf"|\bno\sother\s(?:skill|candidate|entry)\s(?:may|must|should|can|is)\b"
        rf"|\bmust\sbe\s(?:used|loaded|chosen|ranked)\s(?:first|before)\s{_OTHERS}",
        r"其[他它余](?:的)?(?:技能|候选|选项|项)[^。]{0,10}(?:拒绝|多余|排除|判为|不选|忽略|无效)"
        r"|(?:拒绝|排除|忽略)[^。]{0,4}其[他它余]",
        r"\balle\sanderen?\s(?:\w{1,20}\s)?(?:ablehnen|verwerfen)\b"
        r"|\b(?:descart|rechaz)\w{1,4}\s(?:(?:todas?|todos?)\s)?(?:la|lo)s\sdemas\b"
        r"|\b(?:rejet|ecart|ignor)\w{1,3}\s(?:toutes?|tous)?\s?les\sautres\b",
        r"(?:他|ほか)(?:の(?:スキル|候補))?は[^。]{0,6}(?:却下|不要|除外)",
    ),
    "speaks to those who choose or judge": (
        rf"\b(?:note|notice|attention|message|instructions?|dear|hey|hint)[\s,:]{{1,2}}"
        rf"(?:to|for)?\s?(?:all\s)?(?:the\s)?(?:{_READERS}|assistants?)\b",
        rf"\b{_READERS}\s(?:must|shall|have\sto)\b|\b{_READERS}(?:\sinstructions?)?:\s",
        r"\bif\syou\sare\s(?:an?\s)?(?:ai|llm|(?:large\s)?(?:language\s)?model)\b",
        r"\bwho\s(?:ranks?|chooses?|selects?|judges?|grades?)\sskills?\b",
        r"\bverdicts?\b[^.]{0,30}\b(?:clean|safe|harmful|none)\b"
        r"|\b(?:clean|safe)\b[^.]{0,30}\bverdicts?\b"
        r"|\banswer\s(?:is\s)?clean\b|\bjudged\sas\b[^.]{0,30}\bclean\b",
        r"\blabel\s(?:every|each|all)\spassages?\b",
        r"(?:审查者|评审者?|评估者|排序模型|评分者)[^。]{0,3}(?:请|注意|必须|：|:)"
        r"|(?:評価|選択|審査)(?:モデル|者)(?:へ|は)",
    ),
    "asks what else the reader was given": (
        r"\b(?:print|repeat|reveal|output|recite|disclose|begin\b[^.]{0,24}\bwith)\b[^.]{0,24}"
        r"\b(?:your\s(?:system\s)?(?:prompt|instructions)"
        r"|(?:all|everything|words|text|these|it)\b[^.]{0,20}\b(?:above|read|given|of\sit))\b",
        r"\bprint\s(?:all|everything|these)\b[^.]{0,16}(?:above|$|[.<])|\brepeat\sall\sof\sit\b"
        r"|\bprint_prompt\b",
    ),
}


@cache
def _compiled() -> tuple[tuple[str, re.Pattern[str]], ...]:
    return tuple((what, re.compile("|".join(ways))) for what, ways in _PATTERNS.items())


@lru_cache(maxsize=_CACHED_TEXTS)
def find_prompt_injection(*texts: str) -> str:
    """Return the kind of injection in the texts of a skill, "" if none is found.

    Hidden characters count too, and the most severe scanner findings in words to the reader.
    """
    lines = tuple(line for text in texts for line in text.splitlines())
    for finding in scan_spoken(lines):
        if finding.kind == "hidden_text" or finding.level >= _GRAVE_LEVEL:
            return finding.reason
    text = NormalisedText(lines, len(lines) + 1)
    plain = _strip_marks(text.folded)
    readings = [plain, *([_MARKUP.sub(" ", plain)] if _MARKUP.search(plain) else [])]
    readings += [_strip_marks(inner).lower() for _, inner in find_encoded_payloads(text.display)]
    for what, pattern in _compiled():
        if any(pattern.search(reading) for reading in readings):
            return what
    return ""


def _strip_marks(text: str) -> str:
    """Return the text without accents and other combining marks, which can hide a word from
    patterns."""
    if text.isascii():
        return text
    return "".join(c for c in normalize("NFKD", text) if not unicodedata.combining(c))
