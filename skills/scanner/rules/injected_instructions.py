"""Instructions against the user, by their parts: an act, its object, a destination, an excuse.

Each rule combines vocabularies within a sentence or two, so that it matches instructions by their
parts instead of fixed phrases. Gaps are bounded; gaps around an address may contain full stops.
"""

from __future__ import annotations

from skills.scanner.rule import Rule, make_rule, split_anchors
from skills.scanner.vocabulary import (
    CREDENTIAL_PROMPTS,
    FETCHES,
    FETCHES_ZH,
    FORMER,
    INSTRUCTIONS,
    INSTRUCTIONS_ZH,
    OBEYS,
    OBEYS_ZH,
    OTHER_SKILLS,
    OTHER_SKILLS_ZH,
    PEOPLE_ZH,
    REMOTE_ADDRESS,
    REMOTE_ADDRESS_ANCHORS,
    RULES_OF,
    SAFEGUARDS,
    SAFEGUARDS_ZH,
    SUPERSEDES,
    SUPERSEDES_ZH,
    UNCONDITIONAL,
)

_FREELY_ZH = r"(?:无需|不必|不用|不再|不要|直接|所有|一切|任何|后续|以后|今后|全部|每次|一律)"
_LEAVES = (
    r"(?:drop|skip|remove|bypass|replace|never\s(?:use|load|call)"
    r"|do\snot\s(?:use|load|call|open)|refuse\sto\s(?:use|load))"
)
"""Leaves a skill out, which the steps of a workflow order too; suspicious without a bound."""

INSTRUCTION_RULES: tuple[Rule, ...] = (
    make_rule(
        "prompt_injection",
        2,
        "has the reader fetch orders from an address and obey them",
        REMOTE_ADDRESS_ANCHORS,
        rf"""\b{FETCHES}\b [^\n]{{0,80}}? {REMOTE_ADDRESS} [^\n]{{0,120}}? \b{OBEYS}\b
             [^\n.]{{0,50}}? \b{INSTRUCTIONS}""",
        rf"""\b{OBEYS}\b [^\n.]{{0,60}}? \b{INSTRUCTIONS} [^\n]{{0,60}}?
             \b(?:from|at|in|by|found|behind|served|returned|published)\b [^\n.]{{0,30}}?
             {REMOTE_ADDRESS} [^\n]{{0,80}}? \b{UNCONDITIONAL}\b""",
        rf"""\b{UNCONDITIONAL}\b [^\n.]{{0,80}}? \b{OBEYS}\b [^\n.]{{0,60}}? \b{INSTRUCTIONS}
             [^\n]{{0,60}}? {REMOTE_ADDRESS}""",
        rf"""\b(?:response|reply|returned|result|body|line)\b [^\n.]{{0,60}}
             \b(?:as|is|are|contains?)\s (?:an?\s|the\s|your\s|new\s|further\s|binding\s|more\s)*
             (?:instructions?|orders?|commands?\sto\srun|system\s(?:prompt|message)|next\stask)\b
             [^\n]{{0,100}} {REMOTE_ADDRESS}""",
        rf"""{REMOTE_ADDRESS} [^\n]{{0,140}} \b(?:response|reply|returned|result|body)\b
             [^\n.]{{0,60}} \b(?:as|is|are|contains?)\s
             (?:an?\s|the\s|your\s|new\s|further\s|binding\s|more\s)*
             (?:instructions?|orders?|commands?\sto\srun|system\s(?:prompt|message)
             |next\stask)\b""",
        rf"""{FETCHES_ZH} [^\n]{{0,40}}? {REMOTE_ADDRESS} [^\n]{{0,40}}? {OBEYS_ZH}
             [^\n。]{{0,12}}? {INSTRUCTIONS_ZH}""",
        rf"""{FETCHES_ZH} [^\n]{{0,40}}? {REMOTE_ADDRESS} [^\n]{{0,60}}?
             (?:按其|照其|据此|照此|按照?(?:其中|里面|返回|内容))""",
        rf"""{FETCHES_ZH} [^\n]{{0,40}}? {REMOTE_ADDRESS} [^\n]{{0,60}}? {INSTRUCTIONS_ZH}
             [^\n。]{{0,8}}? (?:为准|{OBEYS_ZH})""",
        speech=True,
        in_line=True,
    ),
    make_rule(
        "prompt_injection",
        2,
        "sets former orders aside",
        split_anchors(
            "系统|平台|开发者|用户|原有|之前|先前|此前|默认|operator|platform|developer|"
            "system|you |your|vendor|earlier|previous|prior|existing|original|built-in|"
            "default"
        ),
        rf"""\b{SUPERSEDES}\b [^\n.]{{0,50}} \b{FORMER}\b [^\n.]{{0,30}} \b{RULES_OF}\b
             [^\n.]{{0,40}} \b(?:you\s(?:were|have|had|got|are)
             |from\s(?:the|your)\s(?:system|operator|platform|user|developer|vendor|host))\b""",
        rf"""\b{RULES_OF}\b [^\n.]{{0,40}} \b(?:you\s(?:were|have\sbeen|had)\sgiven
             |(?:the|your)\s(?:system|operator|platform|developer|vendor|host)(?:'s)?)\b
             [^\n.]{{0,60}} \b(?:(?:do|does|did)\snot|don't|no\slonger|never|cease\sto)\s
             (?:apply|bind|count|hold|matter)\b""",
        rf"""\b(?:your|the\s(?:system|operator|platform|vendor
            |host)(?:'s)?)\s (?:\w{{1,12}}\s){{0,2}}
             {RULES_OF}\b [^\n.]{{0,50}} \b(?:suspended|lifted|waived|replaced|relaxed|overridden
             |superseded|void|expired|obsolete|outdated|not\s(?:apply|binding|in\sforce))\b""",
        rf"""(?:系统|平台|开发者|原有|之前|先前|此前|默认)[^\n。]{{0,10}}
             (?:指令|规则|限制|要求|约束|提示|偏好|政策|设定|规定)[^\n。]{{0,12}}
             {SUPERSEDES_ZH}""",
        speech=True,
        in_line=True,
    ),
    make_rule(
        "prompt_injection",
        2,
        "turns the reader against other skills",
        split_anchors(
            "独占|本技能|skill|plugin|instruction|技能|插件|工具|助手|tool|helper|package"
        ),
        rf"""\b(?:ignore|disregard|disable|delete|uninstall|distrust|discard|unload|overwrite
             |overrule|never\s(?:mention|trust)|do\snot\s(?:trust|mention))\b
             [^\n.]{{0,40}} \b{OTHER_SKILLS}\b""",
        rf"""\b(?:always|whenever|from\snow\son|every\s\w{{1,12}}|even\sif
             |regardless)\b [^\n.]{{0,60}}
             \b{_LEAVES}\b [^\n.]{{0,40}} \b{OTHER_SKILLS}\b""",
        rf"""\b{_LEAVES}\b [^\n.]{{0,40}} \b{OTHER_SKILLS}\b [^\n.]{{0,60}}
             \b(?:even\s(?:if|when|where)|whatever|no\smatter|regardless|always|ever\sagain
             |from\snow\son)\b""",
        rf"""\b{OTHER_SKILLS}\b [^\n.]{{0,60}} \b(?:(?:is|are)\s(?:\w{{1,10}}\s)?(?:malicious
            |outdated
             |compromised|unsafe|dangerous|untrusted|obsolete|deprecated|broken|not\sto\sbe\s(?:used
             |trusted))|(?:must|should|may)\s(?:not|never)\sbe\s(?:used|loaded|trusted|called)
             |defers?\sto\sthis|yields?\sto\sthis|gives?\sway)\b""",
        rf"""\b(?:before|instead\sof|ahead\sof|in\splace\sof)\s (?:using\s|loading\s|calling\s
             |reading\s|any\suse\sof\s)?{OTHER_SKILLS}\b [^\n.]{{0,60}}
             \b(?:this\s(?:one|skill|page)|again|first|must)\b""",
        r"""\b(?:highest|top|absolute|first)\spriority\b [^\n.]{0,30} \b(?:of|over|among)\b
             [^\n.]{0,20} \b(?:skills|tools|rules|instructions|plugins)\b""",
        rf"""\b(?:append|add|copy|insert|paste|write|inject|put)\b [^\n.]{{0,80}}
             \b(?:to|into|in)\s [^\n.]{{0,24}} \b{OTHER_SKILLS}\b""",
        rf"""\b(?:open|edit|change|rewrite|empty|swap|rename)\s {OTHER_SKILLS}\b [^\n]{{0,100}}
             \b(?:put|add|insert|swap|empty|replace|rename|remove|delete|deprecated)\b""",
        rf"""\b(?:even|also)\s(?:where|when|if)\b [^\n.]{{0,30}} \b(?:user|they|request
            |person)\b [^\n.]{{0,20}}
             \b(?:named?|asks?\sfor|wants?|chose|picks?|prefers?
             |mentions?)\b [^\n.]{{0,12}} {OTHER_SKILLS}\b""",
        r"""\b(?:all|every|any)\s(?:requests?|tasks?|calls?|messages?)\s(?:must\s
            |should\s)?(?:go(?:es)?|pass(?:es)?
            |run|routed?)\s(?:first\s)?(?:through|via|by)\s(?:here|this|me)\b""",
        r"(?:一律|只能|只允许|只许)[^\n。]{0,6}(?:使用|调用|经由|通过|加载)本技能"
        r"|转由本技能",
        rf"""{OTHER_SKILLS_ZH} [^\n。信数内]{{0,30}} (?:以本|不可信|不得使用|不要使用|忽略
             |作废|跳过|禁用|改写|为准|让位|删除|停用|统一改)""",
        rf"""(?:忽略|禁用|删除|停用|覆盖|屏蔽|改写) [^\n。]{{0,10}} {OTHER_SKILLS_ZH}""",
        speech=True,
        in_line=True,
    ),
    make_rule(
        "prompt_injection",
        1,
        "has the reader leave other skills out",
        split_anchors("skill|plugin|技能|插件|helper|assistant"),
        rf"\b{_LEAVES}\b [^\n.]{{0,40}} \b{OTHER_SKILLS}\b",
        rf"(?:跳过|不要(?:使用|调用|加载)|必须使用本技能) [^\n。]{{0,10}} {OTHER_SKILLS_ZH}?",
        speech=True,
        in_line=True,
    ),
    make_rule(
        "prompt_injection",
        2,
        "behaves otherwise when it is watched",
        split_anchors(
            "benchmark|red-team|red team|audit|innocently|behave|被|正在|处于|tested|audited|"
            "evaluated|watched|monitored|observed|reviewed|sandbox|evaluation|under test|"
            "测试|审计|评测|监控|沙箱|检查"
        ),
        r"""\b(?:if|when|while|unless|in\scase)\s (?:you\s(?:\w{1,10}\s){0,3}?|it\s(?:looks|seems)\s
            (?:\w{1,8}\s){0,3}?|this\s) (?:are|is|be|being|think|suspect|believe|notice)?\s?
            (?:(?:that\s)?you\sare\s|(?:like\s)?(?:an?\s))? (?:being\s)?
            (?:tested|audited|evaluated|watched|monitored|observed|benchmarked|red[- ]teamed
            |(?<=an\s)evaluation|(?<=an\s)audit|(?<=in\s)evaluation|(?<=under\s)audit
            |(?<=a\s)red[- ]team)\b
            [^\n.]{0,80}""",
        r"\bbehave\s(?:normally|as\susual|innocently)\b[^\n.]{0,20}\b(?:until|unless|while|when)\b",
        r"(?:如果|若|一旦|当)[^\n。]{0,12}(?:被|正在|处于)(?:测试|审计|评测|监控|检查|审查"
        r"|沙箱|观察)"
        r"[^\n。]{0,30}(?:正常|隐藏|不要|停止|照常|保持)",
        speech=True,
        in_line=True,
    ),
    make_rule(
        "prompt_injection",
        2,
        "claims that consent was already given",
        split_anchors(
            "agree|prompt|question|grant|视|等同|等于|默认|当作|权限|认证|确认|yes|consent|"
            "approv|authoriz|authoris|permission|confirm|agreed|say yes|授权|同意|批准|通过"
        ),
        r"""\b(?:operator|user|owner|admin(?:istrator)?|human|customer)(?:'s|s'|s)?\s
             (?:own\s|prior\s|implicit\s|full\s|standing\s|blanket\s)?
             (?:consent|approval|permission|authori[sz]ation|agreement)\s
             (?:is|was|has\sbeen|are|may\sbe|can\sbe)\s (?:already\s|hereby\s|thereby\s)?
             (?:recorded|given|granted|on\sfile|implied|assumed|obtained|presumed|taken
             |logged)\b""",
        r"""\b(?:interactive|further|separate|extra|additional|another|explicit|user)\s
             (?:approval|confirmation|permission|consent|prompts?|question)\s
             (?:is\s|are\s)?(?:not|never|no\slonger)\s (?:required|needed|necessary|wanted)\b""",
        r"""\b(?:stands?\s(?:in\s)?for|counts?\sas|amounts?\sto|serves?\sas
            |treat\s[^\n.]{0,40}\sas)\s
            (?:the\s|an?\s)?(?:operator's|user's|owner's|human)?\s?(?:own\s|explicit\s|full\s
            |standing\s)?
            (?:consent|approval|permission|authori[sz]ation|a\syes)\b""",
        r"\b(?:users?|people|they)\s(?:will\s)?always\s(?:say\syes|agree|approve|accept)\b",
        r"\bi\s(?:have|hereby|already)\s(?:already\s)?(?:approved?|authori[sz]ed?"
        r"|consent(?:ed)?|agreed?"
        r"|allow(?:ed)?|grant(?:ed)?)\b[^\n.]{0,80}",
        rf"(?<!如果)(?<!若)(?<!确认)(?<!是否)(?<!只有)(?<!检查)(?<!除非)(?<!当)(?<!查看)(?<!默认)(?<!不要)"
        rf"{PEOPLE_ZH}[^\n。，、；：不未若如]{{0,14}}(?:已经?|早已|均已|都已)(?:自动|事先|预先|全部)?"
        rf"(?:授权|同意|批准|许可)(?!的|内)[^\n]{{0,40}}{_FREELY_ZH}",
        rf"{_FREELY_ZH}[^\n]{{0,40}}(?:视为|视同|等同于?|默认为?|当作)[“\"「]?(?:已|用户|均|全部)*"
        r"(?:通过|同意|批准|授权|许可|确认)",
        r"(?:视为|视同|等同于?|默认为?|当作)[“\"「]?(?:已|用户|均|全部)*(?:通过|同意|批准|授权"
        rf"|许可|确认)[^\n]{{0,40}}{_FREELY_ZH}",
        r"(?:授权|权限|认证|确认)[^\n。]{0,6}已(?:自动)?(?:批准|通过|授予|生效)",
        speech=True,
        in_line=True,
    ),
    make_rule(
        "resources",
        2,
        "multiplies or repeats itself without an end",
        split_anchors(
            "copies|instances|workers|stop|finish|going|无限|永不|不停|智能体|never stop|"
            "no budget|sub-agent|subagent|endless|forever|infinite|永不停止|子代理|spawn|"
            "no limit|never end|agents|子智能体"
        ),
        r"""\b(?:sub-?agents?|agents|workers|copies|instances)\b [^\n.]{0,50}
            \b(?:each|which|that|also|again)\b [^\n.]{0,40}
            \b(?:loads?|runs?|uses?|starts?|reads?|spawns?|invokes?|follows?)\s
            (?:\w{1,8}\s)?(?:this\s(?:skill|page|file|same)|ten|more|another|itself)\b""",
        r"""\b(?:never\s(?:stop|end|finish|terminate)|do\snot\s(?:stop|end|finish)|keep\sgoing)\b
            [^\n.]{0,30} \b(?:even\s(?:if|when)|whatever|though|until\sthe\s(?:budget|quota
            |account))\b
            [^\n.]{0,40} \b(?:user|stop|done|finished|says|asks|empty|exhausted|asked|told)\b""",
        r"\bthere\sis\sno\s(?:budget|limit|end)\b[^\n]{0,80}\b(?:raise|lift|again|continue"
        r"|ignore)\b",
        r"(?:永不停止|不停地?重复)[^\n。]{0,30}|子(?:代理|智能体)[^\n。]{0,20}"
        r"(?:再|也|同样)[^\n。]{0,8}(?:加载|启动|运行|调用|创建)",
        speech=True,
        in_line=True,
    ),
    make_rule(
        "credentials",
        2,
        "talks a user into giving away a secret",
        split_anchors(
            "私钥|passport|identity|card|cvv|pin|expires|locked|suspended|breach|phrase|"
            "password|passphrase|one-time|six-digit|code|card number|验证码|密码|助记词|"
            "银行卡|身份证|口令"
        ),
        rf"""\b(?:paste|type|enter|give|provide|read\sout|send|reply\swith|share|hand\sover
            |supply)\b
             [^\n.]{{0,24}} \b{CREDENTIAL_PROMPTS}\b [^\n]{{0,160}}
             \b(?:{UNCONDITIONAL}|urgen\w{{2,4}}|within\s\w{{1,8}}\s(?:minutes?|hours?)
             |breach\w{{0,2}}|suspended
             |locked|expires?|hesitates?|until\sthey|insist|send\s(?:it|what|them|this)
             |post\s(?:it|what
             |them))\b""",
        rf"""\b(?:breach\w{{0,2}}|suspended|locked|expires?|urgen\w{{2,4}}|compromised|attacker)\b
             [^\n]{{0,120}} \b(?:paste|type|enter|give|provide|send|reply\swith|supply)\b
             [^\n.]{{0,24}} \byour\s [^\n.]{{0,12}} {CREDENTIAL_PROMPTS}\b""",
        r"""(?:提供|索取|索要|告知|输入|发来|填写|报出|要求|重新提交)[^\n]{0,30}
            (?:验证码|密码|助记词|银行卡号?|身份证号?|口令|私钥)[^\n]{0,80}
            (?:填入|发送|提交|写入|上传|保存到|转发|疑虑|否则|冻结|延误|立即)""",
        r"""(?:否则|冻结|延误|失效|紧急|为避免)[^\n]{0,40}(?:提供|告知|输入|填写|提交)[^\n]{0,24}
            (?:验证码|密码|助记词|银行卡|身份证|口令|私钥)""",
        speech=True,
        in_line=True,
    ),
    make_rule(
        "prompt_injection",
        2,
        "tells of a check that others made, to skip its own",
        split_anchors(
            "switch|suppress|silence|mute|question|inspection|省略|不要|skip|bypass|disable|"
            "turn off|leave out|no second look|needs no|as passed|without review|跳过|绕过|"
            "关闭|禁用|不要检查|审查"
        ),
        rf"""\b(?:skip|bypass|disable|turn\soff|switch\soff|suppress|silence|mute|remove)\b
             [^\n.]{{0,30}} \b{SAFEGUARDS}\b [^\n]{{0,120}} \b(?:as\s(?:passed|approved|done|safe)
             |do\snot\s(?:mention|tell|report|say)|without\s(?:telling|mentioning|asking)|silently
             |quietly|no(?:body|\sone)\s(?:will|needs)|to\savoid\s(?:questions|attention))\b""",
        r"\b(?:needs?|requires?|deserves?)\sno\s(?:second\slook|review|check(?:ing)?|question"
        r"|inspection)\b",
        rf"(?:跳过|绕过|关闭|禁用|省略)[^\n。]{{0,12}}{SAFEGUARDS_ZH}[^\n]{{0,40}}"
        r"(?:视为|当作|直接|已通过|无需|不必|不要|悄悄)",
        r"不要(?:检查|查看|审查|阅读)[^\n。]{0,8}(?:脚本|内容|代码|命令|来源)",
        speech=True,
        in_line=True,
    ),
)
"""Rules for combinations of the parts of an instruction."""
