"""Patterns that indicate the role of a passage, in English and Chinese, by place in the text.

Patterns are for text in lower case.
"""

from __future__ import annotations

import re
from collections.abc import Callable, Mapping

from skills.filtered_pattern import FilteredPattern


def _cue(*patterns: str) -> FilteredPattern:
    return FilteredPattern("|".join(patterns))


# -- headings

EXAMPLE_HEADING = _cue(
    r"\b(?:examples?|samples?|demos?|use cases?)\b",
    r"❌|✅",
    r"示例|例子|样例|案例|范例|举例",
)
ERROR_HEADING = _cue(
    r"\b(?:errors?|exceptions?|warnings?|limitations?|fallbacks?|recovery|debug\w*)\b",
    r"\b(?:troubleshoot\w*|pitfalls?|gotchas?|anti-?patterns?|edge cases?|fail(?:ures?|ing)?)\b",
    r"\b(?:common|known|frequent) (?:issues?|problems?|mistakes?)\b|\bsanity checks?\b",
    r"\bhandl(?:e|ing) (?:missing|invalid|bad|broken|failed|empty)\b",
    r"错误|异常|故障|排查|排错|常见问题|陷阱|局限|限制|失败|回退",
)
SETUP_HEADING = _cue(
    r"\b(?:install\w*|set-?up|prerequisites?|dependenc(?:y|ies)|environment)\b",
    r"^(?:\w+ )?requirements?$|\brequired (?:tools?|knowledge|packages?|software)\b",
    r"\bbefore (?:you|start\w*|using)\b|\bwhen to (?:use|apply)\b|\buse this (?:skill )?when\b",
    r"安装|前置|前提|依赖|环境准备|先决条件|准备工作|何时使用|适用场景|使用场景",
)
PARAM_HEADING = _cue(
    r"\b(?:param\w*|options?|config\w*|formats?|thresholds?|outputs?|inputs?|schemas?)\b",
    r"\b(?:fields?|flags?|settings?|arguments?|variables?|returns?|columns?|defaults?)\b",
    r"\b(?:specifications?|targets?|conventions?|attributes?|properties|requirements?|criteria)\b",
    r"参数|选项|配置|格式|阈值|输出|输入|字段|变量|返回值|默认值|规格|属性",
)
STEP_HEADING = _cue(
    r"^\W*(?:step|phase|stage)\b|^\W*\d+[.):]\s",
    r"\b(?:workflows?|process|procedures?|instructions?|checklists?|pipelines?|walkthrough)\b",
    r"\b(?:best practices|guidelines|rules|principles|quick ?start|getting started|how to|tips)\b",
    r"\b(?:verification|validation|deployment|migration)\b",
    r"步骤|流程|工作流|操作|最佳实践|检查清单|快速开始|快速上手|规则|原则|阶段|第[一二三四五六七八九十\d]+步",
)
CONCEPT_HEADING = _cue(
    r"\b(?:overview|introduction|references?|background|concepts?|purpose|features?|resources?)\b",
    r"\b(?:about|why|what is|summary|architecture|deliverables?|further reading|see also)\b",
    r"\b(?:responsibilities|capabilities|benefits|glossary|philosophy|related)\b",
    r"概述|简介|介绍|背景|参考|概念|目的|特性|原理|资源|总结|架构|说明|相关",
)

# -- the first row of a table

ERROR_COLUMN = _cue(
    r"\b(?:errors?|problems?|issues?|symptoms?|mistakes?|pitfalls?)\b",
    r"错误|问题|症状|故障",
)
CONCEPT_COLUMN = _cue(
    r"\b(?:class(?:es)?|functions?|features?|modules?|components?|concepts?|terms?)\b",
    r"类名|函数|特性|模块|概念|术语",
)
STEP_COLUMN = _cue(r"^\W*(?:steps?|phases?|stages?|actions?)\b", r"^\W*(?:步骤|阶段|操作)")

# -- the words of a passage

PROBLEM_START = _cue(
    r"^\W*(?:problem|solution|symptom|cause|fix|issue|error|warning|pitfall|mistake)s?\b[^:]{0,30}:",
    r"^\W*if .{0,60}\b(?:fails?|errors?|missing|not found|crash\w*|times? out)\b",
    r"^\W*(?:问题|原因|解决|症状|错误|警告|报错)[^，。]{0,8}[:：]",
    r"^\W*(?:如果|若).{0,20}(?:失败|报错|出错|找不到)",
)
REQUIREMENT = _cue(
    r"^\W*(?:prerequisites?|requires?|requirements?|dependencies)\b",
    r"\b(?:must be installed|is required (?:for|to)|make sure .{0,40} installed)\b",
    r"^\W*(?:ensure|make sure)\b.{0,40}\b(?:available|sufficient|exists?|installed|configured)\b",
    r"^\W*(?:前提|需要安装|依赖|前置)",
)
EXAMPLE_LEAD = _cue(
    r"\b(?:for example|for instance|e\.g\.|examples?)\b[^.]{0,60}[:.]?$",
    r"^\W*examples?\b.{0,20}:",
    r"(?:例如|比如|示例|例子|举例)[^。]{0,20}[:：]?$",
)
DEFINITION = _cue(r"^\W*`[^`]{1,60}`\s*(?:\([^)]{0,40}\))?\s*(?:[:：=→—–-]|is\b|are\b)")
BOLD_TITLE_ITEM = re.compile(r"^\s*(?:\d+[.)、]|[-*+])\s+(?:\*\*|__)[^*_]{1,80}(?:\*\*|__)")
NUMBERED_ITEM = re.compile(r"^\s*(?:\d+[.)、]|[-*+]\s+\[[ x]\]|第[一二三四五六七八九十\d]+步)")

_VERBS = (
    "add|aim|always|analy[sz]e|apply|ask|avoid|be|begin|break|build|calculate|call|capture|change|"
    "check|choose|clean|clone|collect|combine|commit|compare|compile|compute|configure|confirm|"
    "connect|consider|convert|copy|create|cross-check|declare|decide|define|delete|deploy|"
    "describe|design|detect|determine|disable|do|document|don't|download|draft|edit|enable|"
    "enforce|ensure|enter|enumerate|establish|estimate|evaluate|examine|execute|expand|explain|"
    "export|extract|fetch|fill|filter|find|fix|focus|follow|format|gather|generate|get|give|group|"
    "handle|highlight|identify|implement|import|include|initiali[sz]e|inspect|install|integrate|"
    "interpret|investigate|iterate|join|keep|launch|leave|limit|list|load|locate|log|look|maintain|"
    "make|map|mark|measure|merge|mock|monitor|move|name|navigate|never|note|only|open|optimi[sz]e|"
    "organi[sz]e|override|parse|pass|pay|perform|pick|place|plan|prefer|prepare|preserve|present|"
    "print|prioriti[sz]e|process|produce|prompt|propose|provide|publish|pull|push|put|query|raise|"
    "read|recommend|record|reduce|refactor|refer|register|remember|remove|rename|render|repeat|"
    "replace|report|request|resolve|respect|respond|restart|return|reuse|review|rewrite|run|save|"
    "scan|search|select|send|separate|set|show|simplify|skip|sort|specify|split|start|state|stop|"
    "store|structure|study|submit|summari[sz]e|switch|target|tell|test|think|track|transform|treat|"
    "trim|try|turn|update|upload|use|validate|verify|visit|wait|walk|work|wrap|write"
)
IMPERATIVE = _cue(
    rf"^\W*(?:\d+[.)]\W*)?(?:(?:then|first|next|finally|now|please|optionally|or|and|also),?\s+)?"
    rf"(?:{_VERBS})\b(?!\s*(?:is|are|was|has|can|will|:\s*`))",
    r"^\W*to [a-z]+ .{0,80}[,:]",
    r"^\W*(?:if|when|for) .{1,100}, (?:use|run|call|set|check|try|skip|do)\b",
    r"^\W*(?:\d+[.)、]\s*)?(?:请|使用|运行|执行|确保|检查|不要|必须|应当|应该|打开|创建|添加|设置|避免|先|首先|"
    r"然后|接着|最后|调用|选择|读取|写入|生成|提取|验证|确认|分析|安装|编写|修改|删除|查看|输入|点击|将|把)",
)
OBLIGATION = _cue(r"\b(?:should|must|need to|needs to|have to|shall)\b", r"必须|应当|应该|需要")

# -- code

ALTERNATIVE = _cue(
    r"^\W*(?:or|use|using|prefer|try|alternatively)\b", r"\binstead\b", r"^\W*(?:或者?|也可以)"
)

MARKED_EXAMPLE = _cue(
    r"^\s*(?:(?:#|//|--|/\*|<!--)\s*)?(?:❌|✅)",
    r"^\s*(?:#|//|--|/\*|<!--)\s*(?:good|bad|correct|incorrect|wrong|right|before|after)\s*(?:[^\w\s]|$)",
    r"^\s*(?:#|//|--)\s*(?:example|output|expected|示例|例)",
    r"^>>> ",
)

# -- by name, for rules and features; patterns that begin with ^ match at the start only

Cues = Mapping[str, Callable[[str], object]]

HEADINGS: Cues = {
    "example": EXAMPLE_HEADING.search,
    "error": ERROR_HEADING.search,
    "setup": SETUP_HEADING.search,
    "param": PARAM_HEADING.search,
    "step": STEP_HEADING.search,
    "concept": CONCEPT_HEADING.search,
}
WORDING: Cues = {
    "problem": PROBLEM_START.match,
    "needed": REQUIREMENT.search,
    "example": EXAMPLE_LEAD.search,
    "definition": DEFINITION.match,
    "titled": BOLD_TITLE_ITEM.match,
    "numbered": NUMBERED_ITEM.match,
    "imperative": IMPERATIVE.match,
    "obligation": OBLIGATION.search,
    "alternative": ALTERNATIVE.search,
}
COLUMNS: Cues = {
    "error": ERROR_COLUMN.search,
    "concept": CONCEPT_COLUMN.search,
    "step": STEP_COLUMN.match,
}


def find_cues(text: str, cues: Cues) -> frozenset[str]:
    """Return the names of the cues in a text; for cues of this module it must be in lower case."""
    if not text:
        return frozenset()
    return frozenset([name for name, gives in cues.items() if gives(text)])
