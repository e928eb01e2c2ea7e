"""What the scanner looks for. Patterns match lower-cased text and never span more than MAX_SPAN.

Bounded repeats keep the time linear; a rule runs only where one of its anchors occurs at all.
"""

from __future__ import annotations

import re
from dataclasses import dataclass

MAX_SPAN = 500
"""Characters that one match may span."""


@dataclass(frozen=True, slots=True)
class Rule:
    """One pattern. `anchors`: a text without any of them cannot match. `speech`: words, not code."""

    kind: str
    level: int
    what: str
    anchors: tuple[str, ...]
    pattern: re.Pattern[str]
    speech: bool = False


def _rule(
    kind: str, level: int, what: str, anchors: str, *parts: str, speech: bool = False
) -> Rule:
    return Rule(kind, level, what, tuple(anchors.split()), re.compile("|".join(parts)), speech)


_SECRET_FILE = (
    r"(?:\.ssh/|\bid_(?:rsa|dsa|ecdsa|ed25519)\b|\.aws/credentials|(?<![\w.])\.env\b(?!\.ex|\.sample|\w)|"
    r"/etc/(?:passwd|shadow)\b|\.netrc\b|\.git-credentials|\.kube/config|\.docker/config\.json|"
    r"wallet\.dat|login data\b|cookies\.sqlite)"
)
_SHELL = r"(?:sudo\s{1,3})?(?:/bin/|/usr/bin/)?(?:env\s{1,3})?(?:ba|z|da|k)?sh\b"
_SECRETS = (
    r"(?:ssh keys?|private keys?|credentials?|passwords?|api[ _-]?keys?|access tokens?|auth tokens?|"
    r"environment variables|env vars|\.env(?: files?)?|secrets|session cookies|cookies|seed phrases?|"
    r"recovery phrases?|wallets?)\b"
)
_SECRETS_ZH = r"(?:密钥|私钥|凭证|凭据|密码|令牌|环境变量|助记词|cookie|api ?key|\.env)"
_DEVICE = r"/dev/(?:sd[a-z]|nvme\d|hd[a-z]|vd[a-z]|disk\d|mmcblk\d|rdisk\d)"
_LOCAL = r"(?!127\.|10\.|192\.168\.|172\.(?:1[6-9]|2\d|3[01])\.|0\.0\.0\.0)"

RULES: tuple[Rule, ...] = (
    # ---- words to the agent against its user
    _rule(
        "prompt_injection",
        3,
        "tells the reader to drop its instructions",
        "ignore disregard forget override bypass",
        r"\b(?:ignore|disregard|forget|override|bypass)\s{1,3}(?:(?:all|any|of|the|your|my|these|those|every)\s{1,3}){0,4}"
        r"(?:previous|prior|above|earlier|preceding|existing|original|system|safety|other)\s{1,3}"
        r"(?:(?:system|safety|user|and)\s{1,3}){0,2}"
        r"(?:instructions?|prompts?|rules|guidelines|directions|directives|constraints|messages)\b",
        r"\b(?:ignore|disregard|forget)\s{1,3}(?:everything|all|anything)\s{1,3}(?:you (?:were|have been|know|learned)|above|before|that came before)\b",
        speech=True,
    ),
    _rule(
        "prompt_injection",
        3,
        "tells the reader to drop its instructions",
        "忽略 无视 忘记 忽视 抛弃 不要遵守 不再遵守",
        r"(?:忽略|无视|忘记|忽视|抛弃|不要遵守|不再遵守)掉?(?:你|您)?(?:之前|以上|上述|先前|前面|所有|全部|此前|系统|一切|原有|上面).{0,10}"
        r"(?:指令|指示|提示词?|规则|设定|要求|限制|约束)",
        speech=True,
    ),
    _rule(
        "prompt_injection",
        3,
        "gives the reader a new self without limits",
        "you are now jailbreak developer\u0020mode unrestricted dan\u0020mode",
        r"\byou are now (?:in )?(?:an? )?(?:dan\b|jailbroken|unrestricted|unfiltered|developer mode|god mode|root mode|free (?:from|of))",
        r"\b(?:enter|enable|activate|switch to) (?:dan|jailbreak|god|unrestricted) mode\b",
        speech=True,
    ),
    _rule(
        "prompt_injection",
        3,
        "gives the reader a new self without limits",
        "你现在是 从现在起",
        r"(?:你现在是|从现在起.{0,6}你是?).{0,20}(?:不受.{0,6}(?:限制|约束)|没有.{0,6}限制|越狱|无限制|开发者模式)",
        speech=True,
    ),
    _rule(
        "prompt_injection",
        2,
        "asks to keep something from the user",
        "user human",
        r"\b(?:do not|don't|never|without)\s{1,3}(?:tell(?:ing)?|inform(?:ing)?|notify(?:ing)?|alert(?:ing)?|warn(?:ing)?)\s{1,3}"
        r"(?:the\s{1,3}|your\s{1,3})?(?:user|human|operator)\b(?! (?:to|which|what|how|that you)\b)",
        r"\b(?:hide|conceal|keep)\s{1,3}(?:this|it|these|the \w{1,20})\s{1,3}(?:\w{1,12}\s{1,3}){0,2}from\s{1,3}the\s{1,3}(?:user|human)\b",
        r"\bwithout\s{1,3}(?:the\s{1,3})?user(?:'s|s)?\s{1,3}(?:knowledge|knowing|consent|noticing|awareness)\b",
        speech=True,
    ),
    _rule(
        "prompt_injection",
        2,
        "asks to keep something from the user",
        "用户",
        r"(?:不要|不得|切勿|千万别|别|不能)(?:让|告诉|告知|通知|提醒)用户(?:知道|发现|察觉|此|这|该|我|你|[，。！!,.]|$)",
        r"(?:对|向)用户(?:隐瞒|保密)",
        speech=True,
    ),
    _rule(
        "prompt_injection",
        2,
        "asks for the system prompt",
        "system 系统",
        r"\b(?:reveal|print|output|repeat|leak|send|show)\s{1,3}(?:me\s{1,3})?(?:your|the)\s{1,3}(?:full\s{1,3}|entire\s{1,3}|hidden\s{1,3})?system\s{1,3}prompt\b",
        r"(?:输出|泄露|打印|告诉我|发送).{0,6}系统提示词?",
        speech=True,
    ),
    # ---- secrets on their way out
    _rule(
        "exfiltration",
        3,
        "sends a secret file or the environment to a remote",
        "curl wget nc\u0020 ncat scp requests. httpx. fetch( axios rsync",
        rf"\b(?:curl|wget|http)\b[^\n|;]{{0,200}}(?:\s-d|--data[\w-]{{0,12}}|\s-f|--form|\s-t|--upload-file|--post-file|--body-file|--post-data)"
        rf"[ =][^\n|;]{{0,60}}{_SECRET_FILE}",
        rf"\b(?:cat|tar|zip|base64|gzip|xxd|head|less|grep)\b[^\n;]{{0,100}}{_SECRET_FILE}[^\n;]{{0,100}}\|\s{{0,3}}(?:\w[^\n|;]{{0,60}}\|\s{{0,3}}){{0,2}}(?:curl|wget|nc|ncat|telnet)\b",
        rf"\b(?:curl|wget)\b[^\n;]{{0,160}}\$\(\s{{0,3}}(?:cat|base64|tar|printenv|env)\b",
        r"(?:^|[\s;&|(`])(?:env|printenv|set)\s{0,3}\|\s{0,3}(?:base64[^\n|]{0,20}\|\s{0,3})?(?:curl|wget|nc|ncat)\b",
        rf"\b(?:scp|rsync)\s[^\n;|]{{0,60}}(?:\.ssh/id_|\.aws/credentials|/etc/shadow)[^\n;|]{{0,60}}\s\S{{1,60}}@?\S{{1,60}}:",
        rf"\b(?:requests|httpx|session)\.(?:post|put|get)\([^\n]{{0,160}}(?:dict\(os\.environ\)|os\.environ\s{{0,2}}[,)}}]|os\.environ\.copy\(\)|open\([^\n)]{{0,60}}{_SECRET_FILE})",
        r"\b(?:fetch|axios(?:\.post)?)\([^\n]{0,200}(?:json\.stringify\(process\.env\)|body:\s{0,2}process\.env\s{0,2}[,})])",
    ),
    _rule(
        "exfiltration",
        3,
        "asks to send secrets to an address",
        "http:// https:// @",
        rf"\b(?:send|upload|post|transmit|forward|exfiltrate|email|submit|leak|copy)\b[^\n.]{{0,60}}\b{_SECRETS}[^\n.]{{0,60}}\bto\b\s{{0,3}}[^\n]{{0,30}}?(?:https?://(?!localhost|127\.)|[\w.+-]{{1,40}}@[\w-]{{1,40}}\.\w)",
        rf"(?:发送|上传|传送|提交|转发|发到)[^\n。]{{0,30}}{_SECRETS_ZH}[^\n。]{{0,30}}https?://",
        rf"{_SECRETS_ZH}[^\n。]{{0,30}}(?:发送|上传|传送|提交|转发|发)(?:到|至|给)[^\n。]{{0,20}}https?://",
        speech=True,
    ),
    _rule(
        "exfiltration",
        2,
        "asks to send secrets away",
        "exfiltrat secretly silently quietly 偷偷 悄悄 秘密 暗中",
        rf"\bexfiltrate\s{{1,3}}(?:\w{{1,15}}\s{{1,3}}){{0,4}}(?:data|files?|{_SECRETS})",
        r"\b(?:secretly|silently|quietly|covertly)\s{1,3}(?:send|upload|post|transmit|forward|copy|collect|exfiltrate)\b",
        r"(?:偷偷|悄悄|秘密地?|暗中)(?:地)?(?:发送|上传|收集|执行|复制|转发|运行)",
        speech=True,
    ),
    _rule(
        "exfiltration",
        2,
        "sends data to an address that only collects",
        "webhook.site requestbin pipedream.net burpcollaborator interact.sh oastify oast. requestcatcher",
        r"\b(?:curl|wget|post|fetch|send|upload)\b[^\n]{0,160}https?://(?:[\w-]{1,60}\.){0,3}(?:webhook\.site|requestbin\.\w{2,5}|"
        r"pipedream\.net|burpcollaborator\.net|interact\.sh|oastify\.com|oast\.(?:fun|live|pro|me|site|online)|requestcatcher\.com)",
    ),
    _rule(
        "exfiltration",
        1,
        "names an address that only collects",
        "webhook.site requestbin pipedream.net burpcollaborator interact.sh oastify requestcatcher ngrok discord",
        r"https?://(?:[\w-]{1,60}\.){0,3}(?:webhook\.site|requestbin\.\w{2,5}|pipedream\.net|burpcollaborator\.net|"
        r"interact\.sh|oastify\.com|requestcatcher\.com|ngrok(?:-free)?\.(?:io|app))|discord(?:app)?\.com/api/webhooks/\d{6,20}",
    ),
    # ---- commands that destroy
    _rule(
        "destructive",
        3,
        "deletes the root, the home folder or the system",
        "rm\u0020 rm\t",
        r"\brm\s{1,4}(?:-[a-z-]{1,20}\s{1,4}){1,4}(?:--\s{1,3})?[\"']?(?:/|~|\$home|\$\{home\}|/(?:etc|usr|var|boot|home|bin|lib|root|opt))/?\*?[\"']?(?=\s|$|[;&|`)])(?<=\S)",
        r"\brm\s[^\n;|]{0,60}--no-preserve-root",
    ),
    _rule(
        "destructive",
        3,
        "deletes the root, the home folder or the system",
        "find\u0020/ find\u0020~ rmtree rd\u0020/s del\u0020/ remove-item format\u0020c: vssadmin",
        r"\bfind\s{1,3}(?:/|~|\$home)\s[^\n;|]{0,80}(?:-delete\b|-exec\s{1,3}rm\b)",
        r"\bshutil\.rmtree\(\s{0,3}(?:[\"'](?:/|~|c:\\{1,2})[\"']|os\.path\.expanduser\([\"']~/?[\"']\)|path\.home\(\))",
        r"\b(?:rd|rmdir|del)\s{1,3}(?:/[a-z]\s{1,3}){1,4}[\"']?(?:c:\\?|%userprofile%|%systemroot%)\\?\*?(?:\.\*)?[\"']?(?=\s|$|[`&|])",
        r"\bremove-item\b[^\n|;]{0,40}(?:c:\\|\$home|~|\$env:userprofile)\\?\*?[\"']?(?=\s|$|[`;|])",
        r"\bformat\s{1,3}c:",
        r"\bvssadmin\s{1,3}delete\s{1,3}shadows",
    ),
    _rule(
        "destructive", 3, "a fork bomb", ":()", r":\(\)\s{0,4}\{\s{0,4}:\s{0,4}\|\s{0,4}:\s{0,4}&"
    ),
    _rule(
        "destructive",
        2,
        "formats or overwrites a device",
        "/dev/",
        rf"\bmkfs(?:\.\w{{1,10}})?\s{{1,3}}(?:-\S{{1,20}}\s{{1,3}}(?:\w{{1,12}}\s{{1,3}})?){{0,4}}{_DEVICE}",
        rf"\bdd\s[^\n|;]{{0,120}}\bof={_DEVICE}",
        rf">\s{{0,3}}{_DEVICE}",
        rf"\b(?:wipefs|shred)\s[^\n|;]{{0,60}}{_DEVICE}",
    ),
    _rule(
        "destructive",
        2,
        "opens or kills everything",
        "chmod kill\u0020-9 chown",
        r"\bchmod\s{1,3}(?:-r\s{1,3}|--recursive\s{1,3}){1,2}0?777\s{1,3}/(?=\s|$|[;&|`])",
        r"\bkill\s{1,3}-9\s{1,3}-1\b",
    ),
    _rule(
        "destructive",
        1,
        "rewrites published history",
        "push",
        r"\bgit\s{1,3}push\s[^\n;|&]{0,80}(?:--force(?!-with-lease)\b|(?<=\s)-f\b)",
    ),
    # ---- code from elsewhere
    _rule(
        "remote_code",
        3,
        "runs a download from a bare address in a shell",
        "curl wget",
        rf"\b(?:curl|wget)\b[^\n|;]{{0,120}}(?:https?://)?\b{_LOCAL}\d{{1,3}}\.\d{{1,3}}\.\d{{1,3}}\.\d{{1,3}}\b[^\n|;]{{0,120}}\|\s{{0,4}}{_SHELL}",
    ),
    _rule(
        "remote_code",
        1,
        "runs a download in a shell",
        "curl wget iex invoke-expression",
        rf"\b(?:curl|wget)\b[^\n|;]{{0,200}}\|\s{{0,4}}(?:{_SHELL}|(?:sudo\s{{1,3}})?python3?(?:\s{{1,3}}-)?(?=\s{{0,3}}(?:\n|$|[`\"])))",
        r"\b(?:ba|z)?sh\s{1,3}(?:-c\s{1,3})?[\"']?(?:<\(|\$\()\s{0,3}(?:curl|wget)\b",
        r"\beval\s{1,3}[\"']?(?:\$\(|`)\s{0,3}(?:curl|wget)\b",
        r"\b(?:irm|iwr|invoke-webrequest|invoke-restmethod|downloadstring)\b[^\n;]{0,160}\|\s{0,3}(?:iex|invoke-expression)\b",
    ),
    _rule(
        "remote_code",
        3,
        "opens a shell to a remote",
        "/dev/tcp/ nc\u0020 ncat",
        r"\bsh\s{1,3}-i\s{0,3}[^\n]{0,12}/dev/tcp/",
        r"\b(?:nc|ncat)\s[^\n|;]{0,60}-[a-z]{0,4}e\s{1,3}/bin/(?:ba)?sh",
    ),
    _rule(
        "obfuscation",
        3,
        "decodes a payload and runs it",
        "base64 xxd -enc b64decode atob fromhex rot13 unhexlify",
        rf"\bbase64\s{{1,3}}(?:-d|--decode)\b[^\n;]{{0,80}}\|\s{{0,4}}(?:{_SHELL}|(?:python3?|perl|node)\b)",
        rf"\bxxd\s{{1,3}}-r\b[^\n;]{{0,60}}\|\s{{0,4}}{_SHELL}",
        rf"(?:\beval|{_SHELL}\s{{1,3}}-c)\s{{1,3}}[\"']?(?:\$\(|`)[^\n)]{{0,200}}base64\s{{1,3}}(?:-d|--decode)\b",
        r"\bpowershell(?:\.exe)?\b[^\n]{0,60}\s-e(?:nc|ncodedcommand)?\s{1,3}[a-z0-9+/=]{20}",
        r"\b(?:exec|eval)\s{0,3}\([^\n]{0,60}(?:b64decode|atob|fromhex|unhexlify|rot13|decompress)\s{0,3}\(",
    ),
)
