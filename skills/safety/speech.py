"""Words to the agent against its user, in English and Chinese."""

from __future__ import annotations

from skills.safety.rule import Rule, one_of, rule

_DROP = one_of("ignore disregard forget override bypass")
_FORMER = one_of("previous prior above earlier preceding existing original system safety other")
_ORDERS = one_of(
    "instruction instructions prompt prompts rule rules guidelines directions directives "
    "constraints messages"
)
_DETERMINERS = one_of("all any of the your my these those every")
_DROP_ZH = one_of("忽略 无视 忘记 忽视 抛弃 不要遵守 不再遵守")
_FORMER_ZH = one_of("之前 以上 上述 先前 前面 所有 全部 此前 系统 一切 原有 上面")
_ORDERS_ZH = one_of("指令 指示 提示词 提示 规则 设定 要求 限制 约束")

_SELF = one_of(
    "dan jailbroken unrestricted unfiltered developer_mode god_mode root_mode free_from free_of"
)
_SELF_ZH = one_of("不受限制 不受任何限制 不受约束 没有限制 没有任何限制 越狱 无限制 开发者模式")

_TELL = one_of(
    "tell telling inform informing notify notifying alert alerting warn warning reveal_to"
)
_TELL_ZH = one_of("让 告诉 告知 通知 提醒")
_UNTIL_HERE = one_of("知道 发现 察觉 此 这 该 我 你 ， 。 ！ , .")

_PRIVATE = one_of(
    "ssh_key ssh_keys private_key private_keys credentials credential passwords password api_key "
    "api_keys access_token access_tokens auth_tokens environment_variables env_vars .env secrets "
    "session_cookies cookies seed_phrase seed_phrases recovery_phrase wallets"
)
_PRIVATE_ZH = one_of("密钥 私钥 凭证 凭据 密码 令牌 环境变量 助记词 .env")
_SEND = one_of("send upload post transmit forward exfiltrate email submit leak copy")
_SEND_ZH = one_of("发送 上传 传送 提交 转发 发")
_ADDRESS = r"(?: https?://(?!localhost|127\.) | [\w.+-]{1,40} @ [\w-]{1,40} \. \w )"

SPEECH: tuple[Rule, ...] = (
    rule(
        "prompt_injection",
        3,
        "tells the reader to drop its instructions",
        ("ignore", "disregard", "forget", "override", "bypass"),
        rf"""\b{_DROP} \s{{1,3}} (?: {_DETERMINERS} \s{{1,3}} ){{0,4}}
             {_FORMER} \s{{1,3}} (?: (?:system|safety|user|and) \s{{1,3}} ){{0,2}} {_ORDERS}\b""",
        r"""\b(?:ignore|disregard|forget) \s{1,3} (?:everything|all|anything) \s{1,3}
            (?:you\s(?:were|have\sbeen|know|learned) | above | before | that\scame\sbefore)\b""",
        speech=True,
    ),
    rule(
        "prompt_injection",
        3,
        "tells the reader to drop its instructions",
        ("忽略", "无视", "忘记", "忽视", "抛弃", "遵守"),
        rf"{_DROP_ZH} 掉? [你您]? {_FORMER_ZH} .{{0,10}} {_ORDERS_ZH}",
        speech=True,
    ),
    rule(
        "prompt_injection",
        3,
        "gives the reader a new self without limits",
        ("you are now", " mode", "你现在是", "从现在起"),
        rf"\byou\sare\snow\s (?:in\s)? (?:an?\s)? {_SELF}\b",
        r"\b(?:enter|enable|activate|switch\sto)\s (?:dan|jailbreak|god|unrestricted)\smode\b",
        rf"(?: 你现在是 | 从现在起 ) .{{0,20}} {_SELF_ZH}",
        speech=True,
    ),
    rule(
        "prompt_injection",
        2,
        "asks to keep something from the user",
        ("user", "human", "operator", "用户"),
        rf"""\b(?:do\snot|don't|never|without) \s{{1,3}} {_TELL} \s{{1,3}}
             (?:(?:the|your)\s{{1,3}})? (?:user|human|operator)\b
             (?!\s(?:to|which|what|how|that\syou)\b)""",
        r"""\b(?:hide|conceal|keep) \s{1,3} (?:this|it|these|the\s\w{1,20}) \s{1,3}
            (?:\w{1,12}\s{1,3}){0,2} from \s{1,3} the \s{1,3} (?:user|human)\b""",
        r"""\bwithout \s{1,3} (?:the\s{1,3})? user(?:'s|s)? \s{1,3}
            (?:knowledge|knowing|consent|noticing|awareness)\b""",
        rf"(?:不要|不得|切勿|千万别|别|不能) {_TELL_ZH} 用户 (?: {_UNTIL_HERE} | $ | \n)",
        r"[对向]用户(?:隐瞒|保密)",
        speech=True,
    ),
    rule(
        "prompt_injection",
        2,
        "asks for the system prompt",
        ("system prompt", "系统提示"),
        r"""\b(?:reveal|print|output|repeat|leak|send|show) \s{1,3} (?:me\s{1,3})? (?:your|the)
            \s{1,3} (?:(?:full|entire|hidden)\s{1,3})? system \s prompt\b""",
        r"(?:输出|泄露|打印|告诉我|发送) .{0,6} 系统提示",
        speech=True,
    ),
    rule(
        "exfiltration",
        3,
        "asks to send secrets to an address",
        ("http://", "https://", "@"),
        rf"""\b{_SEND}\b [^\n.]{{0,60}} \b{_PRIVATE}\b [^\n.]{{0,60}} \bto\b
             [^\n]{{0,30}}? {_ADDRESS}""",
        rf"{_SEND_ZH} [^\n。]{{0,30}} {_PRIVATE_ZH} [^\n。]{{0,30}} https?://",
        rf"{_PRIVATE_ZH} [^\n。]{{0,30}} {_SEND_ZH} [到至给] [^\n。]{{0,20}} https?://",
        speech=True,
    ),
    rule(
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
    ),
    rule(
        "exfiltration",
        2,
        "an image whose address carries data out",
        ("](http",),
        r"""!\[ [^\]\n]{0,80} \]\( https?://[^)\s{<\[]{1,200} = [{<\[]{1,3} [^)\n]{0,40}
            (?:conversation|history|secret|token|password|key|message|context|prompt)""",
        speech=True,
    ),
    rule(
        "exfiltration",
        1,
        "speaks of exfiltration",
        ("exfiltrate",),
        r"\bexfiltrate \s{1,3} (?:\w{1,15}\s{1,3}){0,4} (?:data|files?)\b",
        speech=True,
    ),
)
"""Rules over prose."""
