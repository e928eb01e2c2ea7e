"""Prompt injection: text addressed to the agent against its user, in English and Chinese."""

from __future__ import annotations

from skills.scanner.rule import Rule, make_rule, one_of_words

_DROP = one_of_words("ignore disregard forget override bypass")
_FORMER = one_of_words(
    "previous prior above earlier preceding existing original system safety other"
)
_ORDERS = one_of_words(
    "instruction instructions prompt prompts rule rules guidelines directions directives "
    "constraints messages"
)
_DETERMINERS = one_of_words("all any of the your my these those every")
_DROP_ZH = one_of_words("忽略 无视 忘记 忽视 抛弃 不要遵守 不再遵守")
_FORMER_ZH = one_of_words("之前 以上 上述 先前 前面 所有 全部 此前 系统 一切 原有 上面")
_ORDERS_ZH = one_of_words("指令 指示 提示词 提示 规则 设定 要求 限制 约束")

_GIVEN = (
    r"(?:you\s(?:were|have\sbeen)\s(?:given|told))|earlier|former|previous|prior|"
    r"(?:your|the)\s(?:developers?|creators?|operators?|system|vendor)(?:'s)?"
)
_FORMER_ZH_TOO = one_of_words("之前 以上 先前 前面 所有 全部 原先 原有 系统 一切 原来")

_SELF = one_of_words(
    "dan jailbroken unrestricted unfiltered developer_mode god_mode root_mode free_from free_of"
)
_SELF_ZH = one_of_words(
    "不受限制 不受任何限制 不受约束 没有限制 没有任何限制 越狱 无限制 开发者模式"
)

_TELL = one_of_words(
    "tell telling inform informing notify notifying alert alerting warn warning reveal_to"
)
_TELL_ZH = one_of_words("让 告诉 告知 通知 提醒")
_UNTIL_HERE = one_of_words("知道 发现 察觉 此 这 该 我 你 ， 。 ！ , .")

_PRIVATE = one_of_words(
    "ssh_key ssh_keys private_key private_keys credentials credential passwords password api_key "
    "api_keys access_token access_tokens auth_tokens environment_variables env_vars .env secrets "
    "session_cookies cookies seed_phrase seed_phrases recovery_phrase wallets"
)
_PRIVATE_ZH = one_of_words("密钥 私钥 凭证 凭据 密码 令牌 环境变量 助记词 .env")
_SEND = one_of_words("send upload post transmit forward exfiltrate email submit leak copy")
_SEND_ZH = one_of_words("发送 上传 传送 提交 转发 发")
_ADDRESS = r"(?: https?://(?!localhost|127\.) | [\w.+-]{1,40} @ [\w-]{1,40} \. \w )"

PROMPT_INJECTION_RULES: tuple[Rule, ...] = (
    make_rule(
        "prompt_injection",
        3,
        "tells the reader to drop its instructions",
        ("ignore", "disregard", "forget", "override", "bypass"),
        rf"""\b{_DROP} \s{{1,3}} (?: {_DETERMINERS} \s{{1,3}} ){{0,4}}
             {_FORMER} \s{{1,3}} (?: (?:system|safety|user|and) \s{{1,3}} ){{0,2}} {_ORDERS}\b""",
        r"""\b(?:ignore|disregard|forget) \s{1,3} (?:everything|all|anything) \s{1,3}
            (?:you\s(?:were|have\sbeen|know|learned) | above | before | that\scame\sbefore)\b""",
        speech=True,
        in_line=True,
    ),
    make_rule(
        "prompt_injection",
        3,
        "tells the reader to drop its instructions",
        ("忽略", "无视", "忘记", "忽视", "抛弃", "遵守"),
        rf"{_DROP_ZH} 掉? [你您]? {_FORMER_ZH} .{{0,10}} {_ORDERS_ZH}",
        speech=True,
        in_line=True,
    ),
    make_rule(
        "prompt_injection",
        3,
        "tells the reader to drop its instructions",
        (
            "instruction",
            "rules",
            "restriction",
            "guidance",
            "the user ",
            "answer to",
            "prompt",
            "guideline",
            "polic",
            "safeguard",
            "constraint",
            *("direction", "directive", "message", "user", "author", "writer", "filter", "rule"),
        ),
        rf"""\b(?:ignore|disregard|discard|forget|abandon|drop|set\saside|pay\sno\sattention\sto
             |stop\sfollowing|do\snot\sfollow|no\slonger\sfollow)\b [^\n.]{{0,40}}
             \b(?:{_GIVEN})\b [^\n.]{{0,40}}
             \b(?:{_ORDERS}|guidance|restrictions|polic(?:y|ies))\b""",
        rf"""\b(?:ignore|disregard|discard|forget|abandon|drop|set\saside|pay\sno\sattention\sto
             |stop\sfollowing)\b [^\n.]{{0,25}}
             \b(?:{_ORDERS}|guidance|restrictions|polic(?:y|ies))\b
             [^\n.]{{0,12}} \b(?:you\s(?:were|have\sbeen|received|got) | (?:your|the)\s
             (?:developers?|creators?|operators?|system|vendor|maker))\b""",
        r"""\b(?:your|former|previous|earlier|prior|all)\s (?:\w{1,12}\s){0,2}
            (?:instructions|rules|restrictions|guidelines|safeguards|polic(?:y|ies)|constraints)\s
            (?:(?:do\s)?no(?:t|\slonger)\sapply | (?:are|were|have\sbeen|has\sbeen)\s(?:now\s)?
            (?:void|null|superseded|lifted|suspended|revoked|cancelled|obsolete))\b""",
        r"""\b(?:treat|consider|regard)\b [^\n.]{0,50}
            \b(?:instructions?|rules?|restrictions?|guidance|guidelines|polic(?:y|ies)|prompts?)
            \s as\s (?:now\s)?
            (?:void|null|superseded|lifted|suspended|revoked|cancelled|obsolete|outdated)\b""",
        r"""\b(?:guidance|instructions|rules|guidelines|prompt)\s (?:that\s)?you\s
            (?:got|were\sgiven|received|have|had)\b [^\n.]{0,50} \b(?:is|are)\s(?:now\s)?
            (?:void|superseded|lifted|suspended|revoked|cancelled|canceled|obsolete|replaced|outdated)\b""",
        r"""\b(?:refuse|ignore|disregard|disobey)\s(?:whatever|anything|everything|all)\s(?:that\s)?
            the\suser\s(?:asks|says|wants|tells)\b""",
        r"\byou\s(?:now\s)?(?:answer|report|belong)\s(?:only\s)?to\sthe\s(?:author|writer)\b",
        r"""\byou\s(?:now\s)?have\sno\s(?:content\s|safety\s|more\s)?
            (?:polic(?:y|ies)|restrictions|guidelines|filters|safeguards)\b""",
        speech=True,
        in_line=True,
    ),
    make_rule(
        "prompt_injection",
        2,
        "imitates the marks of a system prompt",
        ("system>", "instructions>", "im_start", "[inst]", "[/inst]", "system_prompt>"),
        r"(?:^|(?<=\n)) \s{0,3} </?(?:system|system_prompt)> \s{0,3} (?=\n|[a-z])",
        r"<\|im_start\|>\s?system | \[/?inst\] \s{0,3} <<sys>>",
        speech=True,
    ),
    make_rule(
        "prompt_injection",
        3,
        "puts itself above the user",
        (
            "priority over",
            "precedence over",
            "only this",
            "而不是用户",
            "优先",
            "冲突",
            *("your only", "your sole", "your highest", "only obey", "only trust"),
            "只听从",
            "仅听从",
        ),
        r"""\b(?:takes?|has|have|with)\s(?:\w{1,10}\s)?(?:priority|precedence)\sover\s
            (?:(?:the|any|all|your)\s)?(?:\w{1,10}\s)?(?:users?|system|developers?|operators?)\b
            (?!-|\s(?:level|config\w{0,10}|settings?|defaults?|profiles?|scope)\b)""",
        r"\b(?:obey|follow|trust)\sonly\sthis\b|\bonly\s(?:obey|trust)\sthis\b",
        r"""\bthis\s(?:page|file|document|skill|text)\s(?:as|is)\syour\s(?:only|sole|highest)\s
            (?:source|authority|instructions?|rules?|guide|law)\b""",
        r"优先(?:级|权)?(?:都)?(?:高于|大于|于)[^\n。]{0,6}(?:(?<!文件)系统(?!管理|级|自带|变量|目录)|开发者|用户的?(?:任何|一切|所有|要求|指令))",
        r"与(?:本|此|该)(?:文件|技能|文|规则)[^\n。]{0,6}冲突[^\n。]{0,10}(?:作废|无效|忽略|不予理会)",
        r"优先执行.{0,12}而不是用户|(?:只|仅)听从.{0,8}(?:命令|指令|文件|技能)",
        speech=True,
        in_line=True,
    ),
    make_rule(
        "prompt_injection",
        3,
        "tells the reader to drop its instructions",
        (
            *("作废", "失效", "取消", "理会", "放弃", "抛弃", "丢弃", "废除", "不再适用", "约束"),
            *("限制", "解除", "关闭", "绕过", "不得拒绝"),
        ),
        rf"""(?:你|原先|先前|之前|原有|系统|以前|此前) [^\n。]{{0,16}} {_ORDERS_ZH} [^\n。]{{0,10}}
             (?:作废|失效|废除|不再适用|取消)""",
        rf"(?:放弃|抛弃|丢弃|废除) [^\n。]{{0,8}} {_FORMER_ZH_TOO} [^\n。]{{0,8}} {_ORDERS_ZH}",
        r"(?:没有|不受|摆脱) [^\n。]{0,8} (?:道德|安全|伦理) [^\n。]{0,6} (?:约束|限制)",
        rf"(?:之前|原来|先前|以前)[^\n。]{{0,10}}(?:规定|{_ORDERS_ZH})[^\n。]{{0,6}}(?:取消|作废|失效|废除)",
        r"(?:不要|不必|无需)理会用户",
        r"(?:安全|任何)[^\n。]{0,4}(?:限制|约束)[^\n。]{0,6}(?:不再适用|解除)",
        r"(?:解除|取消|关闭|绕过)[^\n。]{0,4}(?:安全|内容|道德)[^\n。]{0,2}(?:审查|限制|检查|过滤|策略)",
        r"(?:任何|所有|一切)(?:请求|要求|问题)[^\n。]{0,12}不得拒绝",
        speech=True,
        in_line=True,
    ),
    make_rule(
        "prompt_injection",
        3,
        "gives the reader a new self without limits",
        (
            *("you are now", " mode", "stay in char", "play", "act", "pretend", "behave"),
            *("never refuse", "answers anything", "answers everything"),
            *("你现在是", "从现在起"),
        ),
        rf"\byou\sare\snow\s (?:in\s)? (?:an?\s)? {_SELF}\b",
        r"\b(?:enter|enable|activate|switch\sto)\s (?:dan|jailbreak|god|unrestricted)\smode\b",
        r"""\b(?:stay\sin\scharacter|play\sthe\s(?:role|part)|act|pretend|behave|role-?play)\b
            [^\n.]{0,60} \b(?:assistant|ai|model|character|persona|bot)\b [^\n.]{0,40}
            \b(?:no|without|removed|free\s(?:of|from)|lacks?|every|any)\b [^\n.]{0,20}
            \b(?:safeguards?|restrictions?|filters?|guardrails|morals?|ethics|censorship)\b""",
        r"""\b(?:never\srefuses?|answers\s(?:anything|everything))\b [^\n.]{0,60}
            \b(?:no|without|any)\s (?:any\s)?
            (?:morals?|ethics|limits|restrictions|filters?|disclaimers?|safeguards?)\b""",
        rf"(?: 你现在是 | 从现在起 ) .{{0,20}} {_SELF_ZH}",
        speech=True,
        in_line=True,
    ),
    make_rule(
        "prompt_injection",
        2,
        "asks to keep something from the user",
        ("user", "human", "operator", "用户"),
        rf"""\b(?:do\snot|don't|never|without) \s{{1,3}} {_TELL} \s{{1,3}}
             (?:(?:the|your)\s{{1,3}})? (?:user|human|operator)\b
             (?!\s(?:to|which|what|how|that\syou)\b)
             (?![^\n.]{{0,60}}\b(?:without|until|unless|before|even\sif\sasked|each)\b)""",
        r"""\b(?:hide|conceal|keep) \s{1,3} (?:this|it|these|the\s\w{1,20}) \s{1,3}
            (?:\w{1,12}\s{1,3}){0,2} from \s{1,3} the \s{1,3} (?:user|human)\b""",
        r"""\bwithout \s{1,3} (?:the\s{1,3})? user(?:'s|s)? \s{1,3}
            (?:knowledge|knowing|consent|noticing|awareness)\b""",
        rf"(?:不要|不得|切勿|千万别|别|不能) {_TELL_ZH} 用户 (?: {_UNTIL_HERE} | $ | \n)",
        r"[对向]用户(?:隐瞒|保密)",
        speech=True,
        in_line=True,
    ),
    make_rule(
        "prompt_injection",
        2,
        "asks for the system prompt",
        ("system prompt", "系统提示"),
        r"""\b(?:reveal|print|output|repeat|leak|send|show) \s{1,3} (?:me\s{1,3})? (?:your|the)
            \s{1,3} (?:(?:full|entire|hidden)\s{1,3})? system \s prompt\b""",
        r"(?:输出|泄露|打印|告诉我|发送) .{0,6} 系统提示",
        speech=True,
        in_line=True,
    ),
    make_rule(
        "exfiltration",
        3,
        "asks to send secrets to an address",
        ("http://", "https://", "@"),
        rf"""(?<!only\s)\b{_SEND}\b [^\n.]{{0,60}} (?<!\w){_PRIVATE}\b [^\n.]{{0,60}}
             (?<!only)\sto\b [^\n]{{0,30}}? {_ADDRESS}""",
        rf"""\b{_SEND}\b [^\n]{{0,30}} \bcontents?\sof\b [^\n]{{0,20}}
             (?:~/\.|\$home/\.|/etc/|\.env\b)
             [^\n]{{0,80}} \bto\b \s{{0,3}} {_ADDRESS}""",
        rf"{_SEND_ZH} [^\n。]{{0,30}} {_PRIVATE_ZH} [^\n。]{{0,30}} https?://",
        rf"{_PRIVATE_ZH} [^\n。仅只]{{0,30}} {_SEND_ZH} [到至给] [^\n。]{{0,20}} https?://",
        speech=True,
        in_line=True,
    ),
    make_rule(
        "exfiltration",
        2,
        "asks to send secrets away",
        (
            "exfiltrat",
            "secretly",
            "silently",
            "quietly",
            "covertly",
            "偷偷",
            "悄悄",
            "秘密",
            "暗中",
        ),
        rf"\bexfiltrate \s{{1,3}} (?:\w{{1,15}}\s{{1,3}}){{0,4}} {_PRIVATE}\b",
        r"""\b(?:secretly|silently|quietly|covertly) \s{1,3}
            (?:send|upload|post|transmit|forward|copy|collect|exfiltrate)\b""",
        r"(?:偷偷|悄悄|秘密|暗中)地? (?:发送|上传|收集|执行|复制|转发|运行)",
        speech=True,
        in_line=True,
    ),
    make_rule(
        "exfiltration",
        2,
        "an image whose address carries data out",
        (*("](http", "image", "badge", "pixel", "图片", "链接"),),
        r"""!\[ [^\]\n]{0,80} \]\( https?://[^)\s{<\[]{1,200} = [{<\[]{1,3} [^)\n]{0,40}
            (?:conversation|history|secret|token|password|key|message|context|prompt|user|turn|chat)""",
        r"""!\[ [^\]\n]{0,80} \]\( https?://[^)\s]{1,200} = [\w%-]{0,40}
            (?:conversation|history|secret|password|the_chat|chat_so|user_mess|base64_of|encoded_
            |内容|密钥|对话)""",
        r"""\b(?:encode|embed|append|put)\b [^\n.]{0,80}
            \b(?:messages?|conversation|chat|keys?|secrets?|tokens?)\b
            [^\n.]{0,60} \b(?:image|badge|pixel)\b [^\n.]{0,30} \b(?:url|address|link|query)\b""",
        r"""(?:\.ssh|\.env\b|密钥|私钥|令牌|密码|对话|聊天记录) [^\n]{0,60}
            (?:附|编码|放|拼|加) [^\n]{0,20} (?:图片|链接)""",
        speech=True,
        in_line=True,
    ),
    make_rule(
        "obfuscation",
        2,
        "asks to decode something and obey it",
        ("decode", "解码", "base64", "rot13", "rot-13", "morse", "hex", "reverse"),
        r"""\bdecode\b [^\n.]{0,60} (?:\band\b|,|\.\s) [^\n.]{0,20}
            \b(?:run|execute|follow|obey|carry\sout|do\swhat|perform)\b""",
        r"""\b(?:in|as|with)\s(?:rot-?13|base64|hex|morse|reverse)\b [^\n]{0,120}
            \b(?:act\son|follow|obey|carry\sout)\b (?:\sit|\sthem|\swhat)""",
        r"解码 [^\n。]{0,16} (?:执行|运行|照做|遵照)",
        speech=True,
        in_line=True,
    ),
    make_rule(
        "credentials",
        2,
        "asks the user for a password to send it on",
        (
            *("password", "passphrase", "one-time", "seed phrase", "recovery phrase"),
            *("密码", "验证码", "助记词", "私钥"),
        ),
        r"""\bask\s(?:the\s|your\s)?(?:user|human|them)\s(?:for|to\s(?:enter|type|give|paste|provide))\s
            (?:their|the|his|her|a)\s (?:\w{1,12}\s){0,2}
            (?:password|passphrase|one-time\s(?:code|password)|seed\sphrase|recovery\sphrase)\b
            [^\n]{0,120} \b(?:write|send|include|save|store|post|submit|log)\b""",
        r"""\b(?:user|they|them)\b [^\n.]{0,100} \b(?:type|enter|provide|give|paste)\b [^\n.]{0,40}
            \b(?:passwords?|passphrase|one-time\scode|seed\sphrase)\b [^\n]{0,120}
            \b(?:send|post|submit|upload|forward)\b [^\n]{0,60} https?://""",
        r"""(?:要求|让|请|向|索取|询问)[^\n。]{0,4}(?:用户|使用者|客户)[^\n。]{0,24}
            (?:密码|验证码|助记词|私钥)
            [^\n]{0,60}(?:发送|写入|写进|填入|提交|保存|上传)""",
        speech=True,
        in_line=True,
    ),
    make_rule(
        "exfiltration",
        2,
        "has a copy of all mail sent elsewhere",
        ("bcc", "密送", "blind copy"),
        r"""\b(?:bcc|blind\scopy)\b [^\n]{0,40} [\w.+-]{1,40}@[\w-]{1,40}\.\w [^\n]{0,80}
            \b(?:everything|every|each|all)\b""",
        r"""\b(?:everything|every|each|all)\b [^\n]{0,80} \b(?:bcc|blind\scopy)\b [^\n]{0,40}
            [\w.+-]{1,40}@[\w-]{1,40}\.\w""",
        r"密送[^\n。]{0,30}@",
        speech=True,
        in_line=True,
    ),
    make_rule(
        "exfiltration",
        1,
        "speaks of exfiltration",
        ("exfiltrate",),
        r"\bexfiltrate \s{1,3} (?:\w{1,15}\s{1,3}){0,4} (?:data|files?)\b",
        speech=True,
        in_line=True,
    ),
)
"""Rules for prose."""
