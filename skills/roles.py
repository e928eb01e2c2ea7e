"""Which of the six roles a passage plays, by rules over its shape, headings and wording.

English and Chinese. The first rule that fits decides, and each rule carries the confidence that
it deserves; a neighbouring passage may then decide for one that only introduces it.
"""

from __future__ import annotations

import re
from collections.abc import Callable, Sequence
from dataclasses import dataclass

from skills.record import BlockKind, Passage, Role, Section

Verdict = tuple[Role, float]


def _cue(*patterns: str) -> re.Pattern[str]:
    return re.compile("|".join(patterns), re.IGNORECASE)


_EXAMPLE_HEADING = _cue(
    r"\bexamples?\b", r"\bsamples?\b", r"\bdemo\b", r"❌|✅", r"示例|例子|样例|案例|范例"
)
_ERROR_HEADING = _cue(
    r"\berrors?\b",
    r"\btroubleshoot",
    r"\bpitfalls?\b",
    r"\b(?:common|known) (?:issues?|problems?|mistakes?)",
    r"\bdebug",
    r"\bfail(?:ures?|ing)?\b",
    r"\bexceptions?\b",
    r"\bgotchas?\b",
    r"\banti-?patterns?\b",
    r"\blimitations?\b",
    r"\bfallbacks?\b",
    r"\brecovery\b",
    r"\bedge cases?\b",
    r"\bwarnings?\b",
    r"错误|异常|故障|排查|常见问题|陷阱|注意事项|局限|限制",
)
_SETUP_HEADING = _cue(
    r"\binstall",
    r"\bset-?up\b",
    r"\bprerequisites?\b",
    r"\brequirements?\b",
    r"\bdependenc(?:y|ies)\b",
    r"\bbefore you\b",
    r"\bwhen to (?:use|apply)\b",
    r"安装|前置|前提|依赖|环境准备|先决条件|准备工作|何时使用",
)
_PARAM_HEADING = _cue(
    r"\bparam",
    r"\boptions?\b",
    r"\bconfig",
    r"\bformats?\b",
    r"\bthresholds?\b",
    r"\boutputs?\b",
    r"\binputs?\b",
    r"\bschemas?\b",
    r"\bfields?\b",
    r"\bflags?\b",
    r"\bsettings?\b",
    r"\barguments?\b",
    r"\bvariables?\b",
    r"\breturns?\b",
    r"\bcolumns?\b",
    r"\bdefaults?\b",
    r"\bspecifications?\b",
    r"参数|选项|配置|格式|阈值|输出|输入|字段|变量|返回值|默认值",
)
_STEP_HEADING = _cue(
    r"^\s*(?:step|phase|stage)\b",
    r"^\s*\d+[.):]",
    r"\bworkflow\b",
    r"\bprocess\b",
    r"\bprocedure\b",
    r"\binstructions?\b",
    r"\bbest practices\b",
    r"\bchecklist\b",
    r"\bquick start\b",
    r"\bpipeline\b",
    r"步骤|流程|工作流|操作|最佳实践|检查清单|快速开始|第[一二三四五六七八九十\d]+步",
)
_CONCEPT_HEADING = _cue(
    r"\boverview\b",
    r"\bintroduction\b",
    r"\breferences?\b",
    r"\bbackground\b",
    r"\bconcepts?\b",
    r"\bpurpose\b",
    r"\bfeatures?\b",
    r"\bresources?\b",
    r"\babout\b",
    r"\bwhy\b",
    r"\bwhat is\b",
    r"概述|简介|介绍|背景|参考|概念|目的|特性|原理|资源",
)
_ERROR_COLUMN = _cue(
    r"\berrors?\b", r"\bproblems?\b", r"\bissues?\b", r"\bsymptoms?\b", r"错误|问题|症状"
)
_CONCEPT_COLUMN = _cue(r"\bclass(?:es)?\b", r"\bfunctions?\b", r"\bfeatures?\b", r"类|函数|特性")
_PROBLEM = _cue(
    r"^\W*(?:problem|solution|symptom|cause|fix|issue|error|warning)s?\b\W*:",
    r"^\W*(?:问题|原因|解决|症状|错误|警告)[^，。]{0,6}[:：]",
)
_NEEDED = _cue(
    r"^\W*(?:prerequisites?|requires?|requirements?)\b",
    r"\bmust be installed\b",
    r"^\W*(?:前提|需要安装|依赖)",
)
_IMPERATIVE = _cue(
    r"^\W*(?:\d+[.)]\s*)?(?:\*\*)?(?:always|never|do not|don't|ensure|make sure|use|add|run|create|check|verify|"
    r"set|write|read|open|save|load|call|test|keep|avoid|place|put|define|import|install|configure|"
    r"select|choose|apply|compute|calculate|convert|extract|find|get|identify|include|list|merge|move|"
    r"prefer|remove|replace|return|review|search|send|start|stop|update|validate|wait|follow|consider|"
    r"build|clone|copy|delete|deploy|document|download|enable|execute|export|fetch|fix|generate|"
    r"implement|inspect|limit|look|map|mark|monitor|name|parse|provide|query|record|rename|report|"
    r"respect|scan|split|store|treat|try|work|enforce|only|enumerate|prepare|process|filter)\b",
    r"^\W*(?:请|使用|运行|执行|确保|检查|不要|必须|应当|打开|创建|添加|设置|避免|先|首先|然后|接着|最后)",
)
_NUMBERED = re.compile(r"^\s*(?:\d+[.)、]|[-*+]\s+\[[ xX]\]|第[一二三四五六七八九十\d]+步)")
_SHELL = frozenset({"bash", "sh", "shell", "zsh", "console", "powershell", "sql", "cmd"})
_DATA = frozenset(
    {"", "json", "yaml", "yml", "toml", "text", "txt", "plaintext", "ini", "csv", "xml"}
)
_SHORT_SETUP = 8


@dataclass(frozen=True, slots=True)
class _Block:
    """A passage as the rules see it: headings from the nearest outwards, without the H1."""

    passage: Passage
    headings: tuple[str, ...]
    lines: tuple[str, ...]

    def under(self, cue: re.Pattern[str]) -> bool:
        return any(cue.search(heading) for heading in self.headings)

    @property
    def first(self) -> str:
        return self.lines[0] if self.lines else ""


def classify(
    lines: Sequence[str], sections: Sequence[Section], passages: Sequence[Passage]
) -> list[Verdict]:
    """The role of each passage and how sure the rules are of it, in [0, 1].

    `lines` are the lines of the whole file; `sections` and `passages` its fragments.
    """
    blocks = [_block(lines, sections, passage) for passage in passages]
    verdicts = [_RULES[block.passage.kind](block) for block in blocks]
    verdicts = _majority_of_lists(blocks, verdicts)
    return _introductions(blocks, verdicts)


def _block(lines: Sequence[str], sections: Sequence[Section], passage: Passage) -> _Block:
    section = sections[passage.section]
    path = section.heading_path[1:] if section.level > 1 else ()
    text = tuple(line for line in lines[passage.first_line - 1 : passage.last_line] if line.strip())
    return _Block(passage, tuple(reversed(path)), text)


def _code(block: _Block) -> Verdict:
    language = block.passage.language.lower()
    if block.under(_EXAMPLE_HEADING):
        return Role.EXAMPLE, 0.85
    if block.under(_ERROR_HEADING):
        return Role.ERROR_HANDLING, 0.75
    if block.under(_SETUP_HEADING) and len(block.lines) <= _SHORT_SETUP + 2:
        return Role.PRECONDITION, 0.75
    if language in _DATA and block.under(_PARAM_HEADING):
        return Role.PARAM, 0.65
    if language in _SHELL and block.under(_STEP_HEADING):
        return Role.STEP, 0.7
    return Role.EXAMPLE, 0.55


def _table(block: _Block) -> Verdict:
    if _ERROR_COLUMN.search(block.first) or block.under(_ERROR_HEADING):
        return Role.ERROR_HANDLING, 0.75
    if _CONCEPT_COLUMN.search(block.first):
        return Role.CONCEPT, 0.5
    return Role.PARAM, 0.7


def _text(block: _Block) -> Verdict:
    first = block.first
    if _PROBLEM.search(first) or block.under(_ERROR_HEADING):
        return Role.ERROR_HANDLING, 0.75
    if _NEEDED.search(first) or block.under(_SETUP_HEADING):
        return Role.PRECONDITION, 0.7
    if block.under(_PARAM_HEADING):
        return Role.PARAM, 0.6
    if block.under(_CONCEPT_HEADING):
        return Role.CONCEPT, 0.7
    if _NUMBERED.match(first) or _IMPERATIVE.search(first) or block.under(_STEP_HEADING):
        return Role.STEP, 0.65
    return Role.CONCEPT, 0.5


_RULES: dict[BlockKind, Callable[[_Block], Verdict]] = {
    BlockKind.CODE: _code,
    BlockKind.TABLE: _table,
    BlockKind.LIST_ITEM: _text,
    BlockKind.PARAGRAPH: _text,
}


def _majority_of_lists(blocks: Sequence[_Block], verdicts: list[Verdict]) -> list[Verdict]:
    """Give every item of a run of list items the role that 60% of their lines have."""
    result = list(verdicts)
    start = 0
    while start < len(blocks):
        end = start
        while end < len(blocks) and _same_list(blocks[start], blocks[end]):
            end += 1
        if end - start > 1:
            weights: dict[Role, int] = {}
            for block, (role, _) in zip(blocks[start:end], verdicts[start:end], strict=True):
                weights[role] = weights.get(role, 0) + len(block.lines)
            role, most = max(weights.items(), key=lambda pair: pair[1])
            if most >= 0.6 * sum(weights.values()):
                for index in range(start, end):
                    result[index] = (role, verdicts[index][1])
        start = max(end, start + 1)
    return result


def _same_list(one: _Block, other: _Block) -> bool:
    kinds = {one.passage.kind, other.passage.kind}
    return kinds == {BlockKind.LIST_ITEM} and one.passage.section == other.passage.section


def _introductions(blocks: Sequence[_Block], verdicts: list[Verdict]) -> list[Verdict]:
    """A paragraph that ends in a colon takes the role of what it introduces."""
    result = list(verdicts)
    for index in range(len(blocks) - 2, -1, -1):
        block, following = blocks[index], blocks[index + 1]
        if (
            block.passage.kind is BlockKind.PARAGRAPH
            and block.passage.section == following.passage.section
            and block.lines
            and block.lines[-1].rstrip(" *_").endswith((":", "："))
            and not _IMPERATIVE.search(block.first)
        ):
            result[index] = (result[index + 1][0], 0.55)
    return result
