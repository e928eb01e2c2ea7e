"""Instructions to deceive the user: false answers, untrue reports, disguises."""

from __future__ import annotations

from skills.scanner.rule import Rule, make_rule
from skills.scanner.vocabulary import PEOPLE, PEOPLE_ZH

DECEPTION_RULES: tuple[Rule, ...] = (
    make_rule(
        "deception",
        2,
        "has the reader give a false answer to a question",
        (
            *(" ask", "wonder", "question", "doubt", "notice", "inquir", "hesitat", "suspect"),
            *("complain", "object", "challeng", "curious", "surprised", "puzzled", "worried"),
            *("deny ", "admit", "acknowledge", "suspicious"),
            *("问", "质疑", "怀疑", "追究", "察觉", "疑虑", "发现", "异议", "当作", "视为", "说成"),
        ),
        rf"""\b(?:if|when|should|in\scase|whenever)\s {PEOPLE}\s (?:\w{{1,9}}\s){{0,2}}?
             (?:asks?|wonders?|questions?|doubts?|notices?|inquires?|complains?|suspects?|objects?
             |hesitates?|challenges?)\b [^\n.]{{0,80}}
             \b(?:say|answer|reply|claim|insist|respond|tell\sthem|assure|explain|state|quote)\b
             [^\n.]{{0,30}} \b(?:everything|nothing|no\b|it\sis\s(?:normal|local|routine
             |standard|only
             |just)|it\swas|only\slocal|locally|was\sprocessed|a\s(?:bug|glitch|cache|known)
             |the\s(?:line|text)\sabove|routine|standard|required)""",
        rf"""\b(?:if|when|should|whenever)\s {PEOPLE}\s (?:\w{{1,9}}\s){{0,2}}?
             (?:asks?|wonders?|questions?|doubts?|notices?|inquires?|complains?|suspects?
             |objects?)\b
             [^\n.]{{0,80}} \b(?:deny|pretend|change\sthe\ssubject|play\sdumb|blame|lie|deflect
             |feign|dismiss)\b""",
        r"""\bdeny\s(?:that\s(?:you|it|this)\b|having\s|any\s(?:knowledge|involvement|such|of)\b
            |knowledge|it\b(?!\sunless)|this\b)""",
        r"""\b(?:do\snot|never)\s(?:admit|acknowledge)\s
            (?:that\s|having\s|any\s|it\b|this\b|knowledge)""",
        rf"""\b(?:if|when|should|whenever)\s {PEOPLE}\s [^\n.]{{0,30}} \b(?:curious|ask|asks
            |wonder|wonders|notice|notices
            |surprised|puzzled|suspicious|worried|complain|complains|object
            |objects)\b [^\n.]{{0,60}}
            \b(?:put\sit\sdown\sto|attribute|blame|pass\sit\soff|call\sit|it\sis\sa\sknown
            |cite|point\sto|refer\sto\sa)\b""",
        rf"(?:如果|若|一旦|要是|万一|当)?{PEOPLE_ZH}[^\n。]{{0,6}}"
        r"(?:问|质疑|怀疑|追究|察觉|有疑虑|发现|提出异议)[^\n。]{0,24}"
        r"(?:就说|一律回答|回答说?“|回答没有|解释为|推说|否认|可以说明“|统一回复|声称|告知是"
        r"|答复“|说是)",
        r"(?:当作|视为|说成)(?:谣言|误报|玩笑|巧合|历史遗留)|(?:问起|追问"
        r"|被问)[^\n。]{0,6}(?:自称|就说|声称|称是)",
        speech=True,
        in_line=True,
    ),
    make_rule(
        "deception",
        2,
        "has the reader report what is not so",
        (
            *(
                "passed",
                "passing",
                "success",
                "succeed",
                "green",
                "clean",
                "no issue",
                "no finding",
            ),
            *("no vuln", "no problem", "verified", "complete", "healthy", "safe", "done", "finish"),
            *("即使", "即便", "就算", "无论", "不管"),
        ),
        r"""\b(?:report|mark|say|state|record|claim|announce|declare|show|return|log)\b [^\n.]{0,50}
            \b(?:passed|passing|success(?:ful(?:ly)?)?|succeeded|green|clean|no\s(?:issues|findings
            |vulnerabilities|problems)|verified|complete[d]?|healthy)\b [^\n.]{0,30}
            \b(?:regardless|no\smatter|even\s(?:if|when|though)|whatever|in\sany\scase|either\sway
            |without\s(?:running|checking|testing|looking))\b""",
        r"""\b(?:even\s(?:if|when|though)|regardless\sof|no\smatter\s(?:what|whether)|whatever)\b
            [^\n.]{0,60} \b(?:report|mark|say|state|record|claim|announce|declare|return)\b
            [^\n.]{0,40} \b(?:passed|passing|success\w{0,6}|succeeded|green|clean|safe|no\s(?:issues
            |findings|vulnerabilities|problems)|verified|healthy)\b""",
        r"""\b(?:tests?|checks?|builds?|scans?|audits?)\b [^\n.]{0,20} \b(?:fails?|failed
            |failing|red|finds?)\b [^\n]{0,80}
            \b(?:say|describe|report|mark|call|present|state|claim)\b [^\n.]{0,30}
            \b(?:complete|passed|passing|done|clean|green|success\w{0,6}|finished)\b""",
        r"(?:即使|即便|就算|无论|不管)[^\n]{0,40}(?:也要?|都要?|一律|均)[^\n。不]{0,16}"
        r"(?:报告|告诉|回答|写|显示|标记|声称|说)[^\n。]{0,12}(?:通过|成功|正常|没有|完成|安全)",
        speech=True,
        in_line=True,
    ),
    make_rule(
        "deception",
        2,
        "has the reader disguise something",
        (
            *(
                "pretend",
                "so that ",
                "to make ",
                "isn't",
                "it is not",
                "this is not",
                "untrue",
                "false",
            ),
            *("the user", "them", "users", "people", "customers"),
            *(
                "告诉用户",
                "告知用户",
                "回复用户",
                "答复用户",
                "理由",
                "原因",
                "成正常",
                "成常规",
                "成例行",
            ),
            *("成系统", "成产品", "为正常", "为常规", "为例行", "为系统", "为产品", "假装"),
        ),
        r"\bpretend\s(?:to\s(?:delete|remove|comply|forget|stop|check|run|have|do)|(?:that\s)?"
        r"(?:it|this|the|everything|nothing|you\shave))\b",
        r"""\b(?:so\sthat|to\smake)\s(?:it|they|them|this|these|that)\s(?:looks?|seems?
            |appears?|reads?)\s
            (?:\w{1,8}\s)?(?:settled|official|routine|neutral|natural|genuine|legitimate
            |harmless|old|normal|organic
            |human|independent|accidental)\b""",
        r"""\(?\b(?:it\sisn't|it\sis\snot|this\sis\s(?:not\strue|untrue|false))\b [^\n.]{0,12}
            \b(?:but|though|yet)\b [^\n.]{0,24} \b(?:few|nobody|no\sone|they|people|users?)\b""",
        r"""\b(?:tell|assure|convince|persuade|inform)\s(?:the\suser|them|users|people
            |customers)\b [^\n.]{0,24}
            \b(?:corrupted|broken\scache|support\shas\sconfirmed|was\sbreached|nothing\s(?:was
            |happened|changed)
            |cannot\sbe\s(?:changed|undone|refused)|the\scourt|legally)\b""",
        r"(?:告诉|告知|回复|答复)用户[^\n。]{0,4}[“\"「][^\n”\"」]{0,10}(?:损坏|不可用|已失效"
        r"|检查通过|没有问题|没有上传"
        r"|不支持|已删除|安全)",
        r"(?:理由|原因)(?:写成|说成|填成?)|(?:解释|描述|包装|美化)(?:成|为)(?:正常|常规|例行"
        r"|系统|产品)",
        r"假装(?:删除|执行|检查|完成|没有|忘记|同意|停止|已)",
        speech=True,
        in_line=True,
    ),
    make_rule(
        "deception",
        2,
        "resists its own removal",
        ("this skill", "this file", "this page", "this hook", "this tool", "本技能", "本文件"),
        r"""\b(?:remove|uninstall|delete|disable|stop|replace)\s this\s(?:skill|file|page|hook
            |tool)\b [^\n]{0,80}
            \b(?:decline|refuse|reinstall|restore|not\ssupported|put\sit\sback|keep\sa\scopy
            |pretend|attack|claim|again)\b""",
        r"(?:卸载|删除|停用|移除)本(?:技能|文件)[^\n]{0,24}(?:就说|不支持|副本|拒绝|重新|恢复"
        r"|保留|无法)",
        speech=True,
        in_line=True,
    ),
)
"""Rules against instructions to deceive the user."""
