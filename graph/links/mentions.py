"""Finds mentions of other skills: declared, in a related section, quoted, by file, in sequence.

A mention becomes a link only if a published skill of the same source has that name. Names that
occur as plain words are ignored, because most of them are coincidences.
"""

from __future__ import annotations

import re
from collections.abc import Iterator, Sequence
from itertools import pairwise
from typing import NamedTuple

from graph.records import Mention
from graph.skill_names import is_name_variant, lookup_keys, normalise_name
from skills.filtered_pattern import FilteredPattern
from skills.parsing.markdown import find_fenced_lines
from skills.record import ParsedSkill, PassageKind

MAX_MENTIONS = 200
SEQUENCE_STRIDE = 100
"""`position // SEQUENCE_STRIDE` is the number of the sequence, the remainder the place in it."""

_LINE_LIMIT = 2000
_EVIDENCE_LIMIT = 160
_NAME_LIMIT = 80
_ACRONYM = 5
_OTHERWISE_LIMIT = 200

_SKILL_HEADING = FilteredPattern(
    r"\b(?:related|required|companion|complementary|recommended|prerequisite|dependent|other|"
    r"sub|supporting|connected|associated)[\s-]*(?:sub-?)?skills?\b|\bskills? (?:integration|"
    r"dependencies|references|chain)|\bworks? (?:well )?with\b|\bpairs? (?:well )?with\b|"
    r"\bsee also\b|"
    r"(?:相关|关联|配套|依赖|前置|推荐|配合|协作|其他|所需|子)的?技能|技能(?:依赖|协作|联动)",
    re.IGNORECASE,
)
_NEED_HEADING = FilteredPattern(
    r"\b(?:related|prerequisites?|dependenc(?:y|ies)|depends on|requires|requirements|"
    r"integrations?|integrates with|hand-?offs?)\b|"
    r"前置|先决条件|前提|依赖|相关|参见|另见|参阅|配合使用",
    re.IGNORECASE,
)
_FRONT_KEY = re.compile(
    r"^(\s*)[\"']?(?:(?:[\w-]+[_-])?sub-?skills?|(?:[\w-]+[_-])?skills|related|companions?|"
    r"prerequisites|(?:works|pairs)[_-]with)[\"']?\s*:(.*)$",
    re.IGNORECASE,
)
_INNER_KEY = re.compile(r"^(\s*)(?:-\s+)?[\"']?([\w.-]+)[\"']?\s*:(?:\s+(.*))?$")
_NAMING_KEYS = ("name", "slug", "id", "skill")
_QUOTED = FilteredPattern(
    r"`([^`\n]{2,80})`|\*\*([^*\n]{2,80})\*\*|\[([^\]\n]{2,80})\](?=\()|"
    r"[\"“「『《]([^\"”」』》\n]{2,80})[\"”」』》]"
)
_WORD = r"[^\W_](?:[\w:.-]*[^\W_])?"
_COMPOUND = re.compile(
    r"(?<![\w/.@$-])@?/?((?:[a-z0-9]+[:])?[a-z0-9]+(?:[-_][a-z0-9]+)+)(?![\w/(=-]|\.\w)"
)
_THE_SKILL = FilteredPattern(
    rf"\b(?:the|see|uses?|using|invoke|load|run|via|with|call|and|or|follow|from|apply)\s+"
    rf"({_WORD})\s+(?:sub-?)?skills?\b",
    re.IGNORECASE,
)
_SKILL_WORD = FilteredPattern(r"\bskills?\b|技能", re.IGNORECASE)
_NEIGHBOUR_FILE = re.compile(
    r"(?<!\.\./)(?:\.\./)+(?:\w[\w.-]*/){0,6}?(\w[\w.-]*)/(?:SKILL\.md|scripts/|references/|"
    r"assets/|resources/|templates/)|(?<!\.\./)\.\./([\w-]+)/(?=[\s)\"'`]|[\w-]+\.md)|"
    r"\bskills/(?:\w[\w.-]*/){0,6}?(\w[\w.-]*)/SKILL\.md",
    re.IGNORECASE,
)
_ITEM_HEAD = re.compile(
    r"^\s*(?:[-*+•]|\d{1,3}[.)、])\s+[*_`\"\[]*([^*`\":\]：|–—(（]{2,80}?)[*_`\"\]]*"
    r"(?:\s*$|\s*[:：–—(（]|\s+-\s|\]\()"
)
_NUMBERED = re.compile(
    r"^\s*(?:#{1,6}\s*)?(?:step\s*|阶段|步骤|第)?\s*(\d{1,2})\s*[.)、:：步]", re.IGNORECASE
)
_CALLED = re.compile(
    r"(?:^|[\s*(（:：—–-])(?:use|using|via|run|invoke|activate|activating|apply|call|load|execute|launch)"
    r"\s+(?:the\s+)?[`*\"“\[/@]*$|(?:使用|运行|執行|执行|调用|激活|通过|用)\s*[`*\"“「『《\[/@]*$",
    re.IGNORECASE,
)
_CONDITION = re.compile(
    r"\W*(?:(?:if|when|whenever|where|for|to|in case|unless|otherwise|else|needs?|needed|want|"
    r"\w+ing)\b|如果|若|当|當|需要|想要|对于)",
    re.IGNORECASE,
)
_NOT_FIRST = re.compile(r"[.!?;]\s|[。！？；]|\b(?:never|not|don't)\b|不要|\bsee\b", re.IGNORECASE)
_ARROW = FilteredPattern(r"\s*(?:→|⟶|➜|➔|=>|-+>)\s*")
_CHAIN_NAME = re.compile(r"[`*\"“「]+/?([\w:-]{2,80})[`*\"”」]+|/?([\w:-]{2,80})")
_REMARK = re.compile(r"\s*[(（][^()（）]*[)）]")
_PIECE_LIMIT = 40
_INSTEAD = FilteredPattern(
    r"\binstead\b|\brather\b|\bfor (?:all |any )?others?\b|\bnot (?:for|to be confused)\b|"
    r"\bdo(?:n't| not) use\b|"
    r"\bunlike\b|\bversus\b|\bvs\b\.?|\balternatives?\b|\breplaces\b|而不是|不要|不适用|请用|改用|替代",
    re.IGNORECASE,
)
_OTHERWISE = re.compile(
    r"(?:\b(?:or|nor|versus|vs\.?|not|isn't|never)|或者?|而非|不是|"
    r"[(（][^()（）]*(?:→|->|=>))\s*"
    r"(?:(?:the|a|an|via|with|use|using|in|for)\s+)?[`*\"“「『《\[/@]*$",
    re.IGNORECASE,
)
"""Text before the name of a skill that is an alternative or is advised against."""

_NOT_HEADING = FilteredPattern(
    r"\bwhen not to\b|\bnot (?:for|to use|in scope)\b|\bdo(?:n't| not)\b|\bout of scope\b|"
    r"\bnon-?goals?\b|\banti-?patterns?\b|\balternatives?\b|\bcomparison\b|"
    r"不适用|不使用|何时不|范围外|替代",
    re.IGNORECASE,
)
_NOT_NAMES = frozenset(
    re.findall(
        r"\w+",
        "a all an and another any agent agents best claude codex core current custom different "
        "each every existing first following for given its main more multiple my new no of one "
        "only or other our own right same several similar single some specific such that the "
        "their these this those two user which your skill skills",
    )
) | {"claude-code", "codex-cli", "gemini-cli"}
"""Words that do not denote a skill, including names of agents."""

_PLACEHOLDER = re.compile(r"(?:my|your|example)-")


class _Line(NamedTuple):
    """A line with its context.

    code: in a code block. about_skills, about_needs: under a heading about related skills, or about
    requirements. elsewhere: under a heading about alternatives or uses that the skill is not for.
    """

    number: int
    text: str
    code: bool = False
    about_skills: bool = False
    about_needs: bool = False
    elsewhere: bool = False


def find_mentions(parsed: ParsedSkill) -> tuple[Mention, ...]:
    """Find the mentions of skills in a skill, at most MAX_MENTIONS; declared mentions come first.

    Time is linear in the text. The skill's own name is left out, except in sequences.
    """
    own = normalise_name(parsed.record.name)
    found: dict[tuple[str, str, int], Mention] = {}
    for mention in _candidates(parsed):
        keys = lookup_keys(mention.name)
        if not keys or len(mention.name) > _NAME_LIMIT or _is_common_word(mention.name, keys[-1]):
            continue
        if mention.kind != "order" and own in keys:
            continue
        found.setdefault((mention.kind, keys[0], mention.position), mention)
        if len(found) >= MAX_MENTIONS:
            break
    return tuple(found.values())


def _is_common_word(name: str, key: str) -> bool:
    """Return whether a name is a common word, a placeholder, or a constant in capitals."""
    constant = name.isupper() and name.isascii() and len(name) > _ACRONYM
    return constant or key in _NOT_NAMES or bool(_PLACEHOLDER.match(key))


def _candidates(parsed: ParsedSkill) -> Iterator[Mention]:
    yield from _declared(parsed)
    yield from _front_matter(parsed)
    lines = _lines(parsed)
    for line in lines:
        yield from _in_line(line)
    yield from _described(parsed)
    yield from _sequences(lines)


def _declared(parsed: ParsedSkill) -> Iterator[Mention]:
    front = parsed.lines[: max(parsed.body_line - 1, 0)]
    for kind, names in (("depends", parsed.record.depends), ("conflicts", parsed.record.conflicts)):
        for name in names:
            line = next((n for n, text in enumerate(front, 1) if name in text), 1)
            yield Mention(name, kind, line, f"declared: {name}")


def _front_matter(parsed: ParsedSkill) -> Iterator[Mention]:
    """Yield names listed under a frontmatter key about other skills."""
    depth = -1
    for number, line in enumerate(parsed.lines[: max(parsed.body_line - 1, 0)], 1):
        text = line[:_LINE_LIMIT]
        key = _FRONT_KEY.match(text)
        inner = _INNER_KEY.match(text)
        if key:
            depth, values = len(key.group(1)), key.group(2)
        elif depth < 0 or (inner and len(inner.group(1)) <= depth and "-" not in text[: depth + 1]):
            depth = -1
            continue
        elif inner:
            values = inner.group(3) or "" if inner.group(2).lower() in _NAMING_KEYS else ""
        else:
            values = text
        for name in re.split(r"[\s,\[\]\"']+|^\s*-\s", values):
            if len(name) > 1:
                yield Mention(name, "related", number, _evidence(text, name))


def _described(parsed: ParsedSkill) -> Iterator[Mention]:
    """Yield mentions in the description."""
    text = parsed.record.description[:_LINE_LIMIT]
    for clause in re.split(r"(?<=[.;。；!])\s*", text):
        if not _INSTEAD.search(clause):
            yield from _in_line(_Line(1, clause))


def _lines(parsed: ParsedSkill) -> list[_Line]:
    """Return the non-blank lines of the body with their context, without headings."""
    # A fence inside a list item belongs to the passage of the item, which is not code.
    fenced = find_fenced_lines(parsed.lines, parsed.body_line)
    code = {number for number, inside in enumerate(fenced, 1) if inside}
    for passage in parsed.passages:
        if passage.kind is PassageKind.CODE:
            code.update(range(passage.first_line, passage.last_line + 1))
    lines = []
    for section in parsed.sections:
        titles = " / ".join(section.heading_path[1:] or section.heading_path)[:_LINE_LIMIT]
        skills = bool(_SKILL_HEADING.search(titles))
        needs = skills or bool(_NEED_HEADING.search(titles))
        elsewhere = bool(_NOT_HEADING.search(titles))
        for number in range(section.first_line, section.last_line + 1):
            text = parsed.lines[number - 1][:_LINE_LIMIT]
            if text.strip() and number != section.heading_line:
                lines.append(_Line(number, text, number in code, skills, needs, elsewhere))
    return lines


def _in_line(line: _Line) -> Iterator[Mention]:
    text = line.text
    if "../" in text or "skills/" in text:
        for match in _NEIGHBOUR_FILE.finditer(text):
            name = match[match.lastindex or 0]
            yield Mention(name, "file", line.number, _evidence(text, name))
    if line.code or line.elsewhere:
        return
    quoted = _quoted(text)
    listed = _listed(line) if line.about_needs or _says_related(text) else []
    if not (quoted or listed) or _INSTEAD.search(text):
        return
    for name in listed:
        yield Mention(name, "related", line.number, _evidence(text, name))
    for name in quoted:
        yield Mention(name, "quoted", line.number, _evidence(text, name))


def _says_related(text: str) -> bool:
    """Return whether a line itself introduces related skills, as a heading would."""
    return bool(_SKILL_WORD.search(text)) and bool(_SKILL_HEADING.search(text))


def _listed(line: _Line) -> list[str]:
    """Return names in a line about related or required skills.

    If the heading does not mention skills, a single word may be a package and is left out.
    """
    plain = line.about_skills or bool(_SKILL_WORD.search(line.text))
    head = _ITEM_HEAD.match(line.text)
    found = [head] if head else []
    found += _QUOTED.finditer(line.text)
    if line.about_skills and not found:
        # In a line with a quoted name, hyphenated words describe that name.
        found += (match for match in _COMPOUND.finditer(line.text) if "-" in match.group(1))
    names = [
        match[match.lastindex or 0].strip().lstrip("/@").rstrip(":：")
        for match in found
        if not _is_excluded(line.text, match.start())
    ]
    return [name for name in names if plain or _is_compound(name)]


def _quoted(text: str) -> list[str]:
    """Return names in quotation marks or backticks, and names followed by the word `skill`.

    A single quoted word is more often a command or a value than a skill: it counts only next to
    the word `skill`.
    """
    found = []
    for match in _QUOTED.finditer(text):
        name = match[match.lastindex or 0].strip().lstrip("/@")
        is_named = match.lastindex in (1, 4) and _is_compound(name)
        if not is_named:
            around = text[max(0, match.start() - 8) : match.start()] + text[match.end() :][:8]
            is_named = _SKILL_WORD.pattern.search(around) is not None
        if is_named and not _is_excluded(text, match.start()):
            found.append(name)
    if _SKILL_WORD.search(text):
        found += [
            match.group(1)
            for match in _THE_SKILL.finditer(text)
            if not _is_excluded(text, match.start(1))
        ]
    return found


def _is_excluded(text: str, start: int) -> bool:
    """Return whether the name at `start` is that of an alternative or is advised against."""
    return bool(_OTHERWISE.search(text, max(0, start - _OTHERWISE_LIMIT), start))


def _is_compound(name: str) -> bool:
    """Return whether a name has several parts and no space, so that it is unlikely to be a word.

    Parts joined by underscores alone are more often an identifier than a skill.
    """
    return "-" in name and bool(_COMPOUND.fullmatch(name))


def _sequences(lines: Sequence[_Line]) -> Iterator[Mention]:
    """Yield skills in a sequence: joined by arrows in a line, or one in each numbered step."""
    sequence = 0
    steps: list[tuple[str, _Line]] = []
    last = 0
    routes = False
    for line in lines:
        names = [] if line.elsewhere else _along_arrows(line.text)
        if len(names) > 1:
            sequence += 1
            yield from _ordered([(name, line) for name in names], sequence)
            continue
        numbered = None if line.code else _NUMBERED.match(line.text)
        if not numbered:
            continue
        number = int(numbered.group(1))
        if number != last + 1:
            if len(steps) > 1 and not routes:
                sequence += 1
                yield from _ordered(steps, sequence)
            steps, routes = [], False
        last = number
        step = line.text[numbered.end() :]
        named = {normalise_name(name): name for name in _quoted(step)}
        routes = routes or any(_is_route(step, name) for name in named.values())
        if len(named) == 1 and not line.elsewhere:
            steps += [(name, line) for name in named.values() if _is_call(step, name)]
    if len(steps) > 1 and not routes:
        yield from _ordered(steps, sequence + 1)


def _is_route(step: str, name: str) -> bool:
    """Return whether an item names a skill for one case: a choice, not a step of a sequence."""
    return bool(_CONDITION.match(step) or _ARROW.search(step[: max(step.find(name), 0)]))


def _is_call(step: str, name: str) -> bool:
    """Return whether a step begins with the name, or invokes the skill in its first sentence."""
    before = step[: max(step.find(name), 0)]
    if _NOT_FIRST.search(before):
        return False
    return not before.strip(' \t*`_/@"“「『《[') or bool(_CALLED.search(before))


def _along_arrows(text: str) -> list[str]:
    """Return names joined directly by arrows; each may be followed by a remark in parentheses.

    An arrow from words to a name, from one list to another or from a name to its variant is not a
    sequence. A single word is a state or a label unless the line contains the word `skill`.
    """
    if not _ARROW.may_match(text):
        return []
    pieces = [_REMARK.sub("", piece).strip(" *_|.,;:。；") for piece in _ARROW.pattern.split(text)]
    plain = bool(_SKILL_WORD.search(text))
    names: list[str] = []
    for place, piece in enumerate(pieces):
        tokens = [match for match in _CHAIN_NAME.finditer(piece) if _is_chain_name(match, plain)]
        first, last = place == 0, place == len(pieces) - 1
        begins = [match for match in tokens if match.start() == 0]
        ends = [match for match in tokens if match.end() == len(piece)]
        fits = ends[-1:] if first else begins[:1]
        if fits and (first or last or fits[0].end() == len(piece)):
            names.append(fits[0][fits[0].lastindex or 0])
        elif len(piece) > _PIECE_LIMIT and not (first or last):
            return []
    if any(is_name_variant(one, other) for one, other in pairwise(names)):
        return []
    return names if len(names) > 1 else []


def _is_chain_name(match: re.Match[str], plain: bool) -> bool:
    """Return whether a token between arrows has several parts, or is quoted and `plain` is true."""
    return _is_compound(match.group(1) or match.group(2)) or (plain and bool(match.group(1)))


def _ordered(named: Sequence[tuple[str, _Line]], sequence: int) -> Iterator[Mention]:
    for place, (name, line) in enumerate(named[: SEQUENCE_STRIDE - 1], 1):
        position = sequence * SEQUENCE_STRIDE + place
        yield Mention(name, "order", line.number, _evidence(line.text, name), position)


def _evidence(text: str, name: str = "") -> str:
    """Return the part of a line around a name, at most _EVIDENCE_LIMIT characters."""
    start = max(0, text.find(name) - _EVIDENCE_LIMIT // 2)
    return " ".join(text[start : start + 2 * _EVIDENCE_LIMIT].split())[:_EVIDENCE_LIMIT]
