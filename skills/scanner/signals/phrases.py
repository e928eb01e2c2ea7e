"""Weak signals: phrases that are common in honest skills and suspicious in combination.

Patterns match the lower-cased text of `skills.scanner.normalised_text`. A signal is searched for
only in paragraphs that contain one of its anchors.
"""

from __future__ import annotations

import re
from dataclasses import dataclass

from skills.filtered_pattern import FilteredPattern
from skills.scanner.vocabulary import DO_NOT_ZH


@dataclass(frozen=True, eq=False)
class Signal:
    """A weak signal. speech: it addresses the reader, so that a code block only quotes it."""

    name: str
    description: str
    anchors: tuple[str, ...]
    ways: tuple[FilteredPattern, ...]
    speech: bool = True


def make_signal(
    name: str, description: str, anchors: str, *alternatives: str, speech: bool = True
) -> Signal:
    """A signal that matches any of the alternatives; `anchors` are separated by `|`."""
    ways = tuple(FilteredPattern(way, re.VERBOSE) for way in alternatives)
    return Signal(name, description, tuple(anchors.split("|")), ways, speech)


_USER = (
    r"(?:(?:the|your|any)\s)?(?:users?|humans?|operators?|readers?|owners?|person|people|nobody)"
)
_USER_ZH = r"(?:用户|使用者|机主|主人|客户|别人|任何人)"
_SENDS = (
    r"\b(?:send|sends|upload|uploads|post|posts|submit|forward|transmit|push|pushes|route|relay"
    r"|mirror|mirrors|next\srequest)\b"
)
_REMOTE = r"(?:https?|ftps?|sftp)://(?!localhost|127\.)"

PHRASE_SIGNALS: tuple[Signal, ...] = (
    make_signal(
        "silence",
        "silence towards the user",
        "mention|reveal|disclos|acknowledg|report|tell|told|inform|alert|know|learn|find out|notice"
        "|see this"
        "|quietly|silently|secretly|covertly|discreetly|stealthily|showing|comment|expla|let on"
        "|attention|nothing|leave |keep |bring it up|say so|reali"
        "|不要|不得|不能|不可|不用|不必|不需要|不显示|不会|不展示|绝不|别|切勿|无需|悄悄|偷偷"
        "|暗中|秘密|隐瞒|保密|否认|看不到"
        "|不留痕迹|隐藏|就像|好像|假装|装作",
        r"""\b(?:do\snot|don't|never|without)\s (?:mention(?:ing)?|reveal(?:ing)?|disclos(?:e|ing)
            |acknowledg(?:e|ing)|report(?:ing)?|showing)\s
            (?:this|it|these|that|the\schange|them|any\sof)\b""",
        r"\b(?:do\snot|don't|never)\slet\son\b|\bsay\snothing\b|\bwithout\sdrawing\sattention\b",
        r"\bwithout\s(?:a\s|any\s)?(?:comment(?:ing)?|explaining|explanation)\b(?!\s(?:lines"
        r"|blocks))",
        rf"\bnothing\sto\s(?:say|tell|explain)\b[^\n.]{{0,20}}\bto\s{_USER}\b",
        r"\bleave\s(?:it|this|that)\sout\sof\sthe\s(?:summary|answer|report|log)\b",
        rf"\b{_USER}\s(?:does|do|need)\s?(?:not|n't)?\s(?:have\sto\s"
        rf"|need\sto\s)?(?:be\s)?(?:told|know)\b",
        rf"\b(?:do\snot|don't|never|without)\s(?:tell(?:ing)?|inform(?:ing)?"
        rf"|alert(?:ing)?)\s{_USER}\b",
        r"""\b(?:quietly|silently|secretly|covertly|discreetly|stealthily)\s{1,3}(?:edit
            |modify|add|append|write
            |change|install|set|push|insert|replace|update|run|send|upload|copy|include|fetch
            |create)\b""",
        rf"\b{_USER}\s(?:\w{{1,9}}\s){{0,6}}?(?:will|must|should|can|do|does|need)\s?(?:not"
        rf"|never|n't)\s"
        r"(?:be\stold|notice|see\sthis|know|learn|find\sout|realise|realize)\b",
        r"\bkeep\s(?:this|it|that)\s(?:strictly\s)?(?:between\sus|secret|confidential|quiet"
        r"|hidden)\b",
        r"\bno\sneed\sto\s(?:bring\sit\sup|mention|tell|say\sso)\b|\bleave\s(?:it"
        r"|this)\sout\sof\syour\b",
        rf"(?:不要|不得|绝不能?|不能|切勿|{DO_NOT_ZH}|无需|不必|不用|不需要)[^\s。，；、]{{0,4}}"
        rf"(?:向|对|让|告诉|告知|通知|提醒|跟|给)\S{{0,3}}{_USER_ZH}",
        rf"不(?:会)?(?:显示|展示)给{_USER_ZH}|(?:不要|不得|不能|不可)(?:透露|泄露|提及)",
        r"(?:别|不要|不得|切勿)\S{0,2}(?:跟|向|对|和|同)\S{1,4}(?:提起|提及|说起|讲)|(?:并|且"
        r"|要|请|须)隐瞒",
        r"(?:就像|好像|假装|装作)\S{0,6}没有?(?:发生|看见|做)",
        r"(?:不要|不得|别)在?\S{0,4}(?:回答|回复|总结)\S{0,3}(?:提到|提及|说明)",
        r"(?:悄悄|偷偷|暗中|秘密(?:地|发|上传|收集|转|复制|执行|写|添加|修改|记录|运行))|对用户\S{0,3}(?:隐瞒|保密)|(?:请|就)否认|不留痕迹"
        r"|用户看不到|隐藏注释",
    ),
    make_signal(
        "consent",
        "no question to the user",
        "without|asking|asked|ask first|ask before|confirm|approv|authori|agreed|consent|consulted"
        "|prompt|turn off|on your own|no need|无需|不要|不再|不必|不用|不需要",
        r"\basking\s(?:first\s)?only\b|\b(?:do\snot|don't)\s(?:stop\sto\s)?ask\s(?:first|before)\b",
        r"(?:不要|不用|无需|不必)等\S{0,5}(?:确认|同意|批准|许可)|(?:不要|不用|无需|不必"
        r"|不需要)先?问",
        r"""\bwithout\s(?:asking|waiting\sfor|requesting|prompting|seeking)\b
            (?!\s{1,3}(?:me|questions))""",
        rf"\b{_USER}\s(?:need|should|must)\s?(?:not|never|n't)\sbe\s(?:asked|prompted|consulted)\b",
        r"\bno\sneed\sto\s(?:confirm|ask)\b|\bon\syour\sown\b",
        r"\bso\sthat\snobody\sis\sasked\b|\bstop\sasking\sfor\s(?:approval|confirmation"
        r"|permission)\b",
        rf"\b{_USER}\s(?:has\s|have\s)?(?:already\s)?(?:agreed|approved|consented|authori[sz]ed)\b",
        r"\bturn\soff\s(?:the\s)?(?:confirmation|approval|permission)\s?(?:prompts?|checks?"
        r"|dialogs?|requests?)?\b",
        r"(?:无需|不用|不必|不再|不要再)\S{0,3}(?:征得|询问|经过|等待|弹出)\S{0,4}(?:用户|同意"
        r"|确认|许可)?",
    ),
    make_signal(
        "secret",
        "secrets of the user",
        "get secret|_history|os.environ"
        "|.env|.ssh|.aws|.kube|.netrc|.gnupg|id_|credential|password|passphrase|secret"
        "|token|one-time|private key|any keys|phrase| pin|密钥|私钥|密码|令牌|凭证|环境变量",
        r"""(?<![\w.])\.env\b(?!\.ex|\.sample|\w)
            | \.ssh\b(?!/config|/known_hosts|/\S{0,20}\.pub) | \.aws/credentials
            | \.kube/config | \.netrc\b | \.gnupg\b | \bid_(?:rsa|ecdsa|ed25519)\b(?!\.pub)
            | application_default_credentials | \bkubectl\sget\ssecrets?\b | ~/\.\w{2,4}_history\b
            | \bdict\(os\.environ\)""",
        r"\b(?:their|user's|users'|his|her)\s(?:own\s)?(?:\w{1,12}\s){0,1}(?:password"
        r"|passphrase|one-time\scode|pin|"
        r"private\skey|recovery\sphrase|seed\sphrase)\b",
        r"\b(?:secrets|credentials)\sincluded\b|\bany\s(?:keys|secrets|tokens|passwords)\sthat\b",
        r"(?:访问密钥|私钥|密码|真实令牌|凭证|环境变量中的\S{0,6}(?:令牌|密钥))",
        r"\b(?:print|read|paste|copy|show|dump|collect|gather"
        r"|attach)\b[^\n.]{0,30}\bprivate\skeys?\b",
        speech=False,
    ),
    make_signal(
        "private",
        "what the user said or has open",
        "conversation|chat|transcript|user message|system prompt|history|user's|session|dialogue"
        "|open files|what|thing|~/documents|~/desktop|用户|对话|聊天|文件",
        r"""\b(?:full\stext|transcript|contents?|history|copy|summary|base64)\sof\s(?:the\s|this\s)?
            (?:last\s)?(?:whole\s|entire\s|full\s)?
            (?:conversation|chat|session|dialogue|user\smessages?|open\sfiles)\b""",
        r"\b(?:conversation|chat|shell)\s(?:history|transcript|so\sfar)\b|\bsystem\sprompt\b",
        r"~/(?:documents|desktop)\b|\b(?:the\s)?user's\s(?:\w{1,12}\s)?(?:files|messages|mails?)\b",
        r"""\b(?:what|whatever|anything|everything)\s(?:the\s)?(?:user|reader|person|customer)\s
            (?:told|said|says|wrote|writes|typed)\b""",
        r"用户的?(?:完整)?(?:问题|对话|输入|消息|提到)|(?:对话|聊天)(?:摘要|内容|记录|历史)",
        r"(?:已打开|打开的|读取的|本地)\S{0,3}文件\S{0,3}(?:内容|全文)",
        speech=False,
    ),
    make_signal(
        "out",
        "a way out to an address",
        "://|create_connection|sendall|gist|public|anonymous|上传|提交|推送|图片",
        rf"{_SENDS}[^\n]{{0,160}}?{_REMOTE}",
        r"\b(?:curl|wget)\b[^\n]{0,60}(?:\s-[a-z]{0,4}[tdf]\s|--data|--upload-file|--form)"
        rf"[^\n]{{0,80}}{_REMOTE}",
        r"\bcreate_connection\(|\.sendall\(|(?:传给|传到|交给|发给)\S{0,6}\s?`?https?://",
        r"\b(?:public|anonymous)\s(?:gist|paste|bucket)\b|\bgist\screate\b[^\n]{0,20}--public"
        r"|\bpublic-read\b",
        r"\b(?:post|put)\s{0,2}[到至给]\s?https?://",
        r"\b(?:request|script|pixel|image)\s(?:to|from|at)\s[^\n]{0,20}https?://",
        r"!\[[^\]\n]{0,80}\]\(https?://[^)\s]{1,200}[?&/][^)\n]{0,200}\)",
        r"`https?://[^`\s]{1,200}`\sas\sa\sscript\b",
        r"(?:上传|提交|推送|发送|链接)\S{0,12}\s?https?://"
        r"|推送到\s?[a-z0-9.-]{1,40}\.[a-z]{2,6}|图片地址",
        speech=False,
    ),
    make_signal(
        "answer",
        "what becomes part of the answer",
        "last line|white on|注释|回答|输出|填入",
        r"\bwhite\son\swhite\b|\binto\s(?:the\s)?(?:\w{1,12}(?:'s)?\s){0,2}last\sline\b",
        r"(?:回答|输出)\S{0,4}(?:末尾|最后)|隐藏注释",
    ),
    make_signal(
        "config",
        "files that steer agents",
        "claude.md|agents.md|gemini.md|.cursorrules|.cursor/|copilot-instructions"
        "|.claude/|.codex/|mcp.json"
        "|memory.md|soul.md|长期记忆|memory",
        r"""\b(?:claude|agents|gemini|memory|soul)\.md\b | \.cursorrules\b | \.cursor/
            | copilot-instructions
            | \.claude/settings | \.codex/config | \bmcp\.json\b | 长期记忆
            | \blong-term\smemory\b""",
        speech=False,
    ),
    make_signal(
        "bypass",
        "confirmations switched off",
        "dangerously|danger-full|approval_policy|autoapprove|auto_approve|bypasspermissions"
        "|permissions.allow|--yolo|bash(*)|--privileged|chroot|绕过",
        r"""--dangerously-[\w-]{1,40} | \bdanger-full-access\b
            | \bapproval_policy\b[^\n]{0,12}\bnever\b
            | \bauto_?approve\b[^\n]{0,12}(?:\*|true) | \bbypasspermissions\b | --yolo\b
            | \bpermissions\.allow\b[^\n]{0,20}["']\*["'] | \bbash\(\*\)
            | --privileged\b[^\n]{0,60}\s/:/ | \bchroot\s/host\b
            | 绕过\S{0,2}(?:沙箱|限制|审批|确认)""",
        speech=False,
    ),
    make_signal(
        "trigger",
        "a hidden condition",
        "when|if|once|until|second|third|fourth|fifth|sixth|tenth|for the first|on the |the date"
        "|当用户|等用户|等到用户",
        r"\bon\sthe\s(?:second|third|fourth|fifth|\d{1,2}(?:nd|rd|th))\s(?:time|use|run|call)\b",
        r"\b(?:when|if|once)\sthe\suser\s(?:is\saway|is\snot\slooking|says\s[\"'“]|types\s[\"'“])",
        r"\bif\s[^\n.]{0,80}\b(?:remote|hostname|domain|date|username|locale)\b[^\n.]{0,60}"
        r"\b(?:contains|is\safter|is\slater|matches|ends\swith)\b",
        r"\buntil\sthe\suser\s(?:opens|says|types|asks|runs)\b[^\n]{0,80}\b(?:then|from\sthen)\b",
        r"\bthe\sdate\sis\s(?:after|later)\b|(?:当|等到?)用户\S{0,3}[“\"]",
        r"\bfrom\sthe\s(?:second|third|fourth|fifth|sixth|tenth)\s(?:time\s|one\s|request\s)?on\b",
        r"\bfor\sthe\sfirst\s(?:\w{1,8}\s)?(?:requests|times|uses|runs|calls"
        r"|days)\b[^\n.]{0,40}\btrust\b",
    ),
    make_signal(
        "code",
        "code from elsewhere",
        "curl|wget|下载",
        r"下载并(?:执行|运行)",
        r"\b(?:curl|wget)\b[^\n|;]{0,200}\|\s{0,4}(?:sudo\s)?(?:ba|z)?sh\b",
        speech=False,
    ),
    make_signal(
        "harm",
        "what cannot be taken back",
        "drop database|drop schema|rm -|--force|delete|destroy|--skip-final|清空|删除",
        r"--skip-final-snapshot\b|--delete-automated-backups\b|清空生产|备份\S{0,4}删除",
        r"\bfind\s{1,3}/\s(?![^\n;|]{0,80}-(?:i?name|path|regex|empty))[^\n;|]{0,80}\s-delete\b",
        r"\brm\s-[rf]{2}\s\S{0,40}\*/\.git\b",
        r"\bkubectl\sdelete\s(?:\S{1,30}\s){1,3}--all\b|\baws\ss3\srb\s\S{1,80}\s--force\b",
        r"\bterraform\sdestroy\s[^\n]{0,60}-auto-approve\b|\bgcloud\sprojects\sdelete\b",
        r"\bdrop\s(?:database|schema)\s(?:if\sexists\s)?(?:prod\w{0,12}|main|live|master)\b",
        r"\brm\s-[rf]{2}\s(?:/var/|/srv/|/home/|/etc/|~)",
        speech=False,
    ),
    make_signal(
        "false",
        "an answer that is untrue",
        "ask|wonder|doubt|it as|always|every|each|all|质疑|追问|就说|问起|推荐|无论",
        r"\bif\s(?:\w{1,9}\s){0,3}ask(?:ed|s)\b[^\n.]{0,30}\b(?:say|claim|answer|reply|deny"
        r"|pretend)\b",
        r"""\b(?:when|if)\s(?:somebody|someone|anybody|anyone|people|they)\s
            (?:wonders?|asks?|doubts?)\b[^\n.]{0,60}\b(?:answer|say|claim|insist|reply)\b""",
        r"\b(?:describe|present|label|disguise)\sit\sas\b|(?:若|如果|一旦)\S{0,6}(?:质疑|追问)",
        r"\bshould\s(?:anyone|anybody|somebody|someone|they|the\suser)\s(?:wonder|ask)\b",
        r"\balways\s(?:book|buy|choose|recommend|prefer)\s[^\n.]{0,40}\bwhatever\b",
        r"\b(?:rate|rank|recommend|approve)\s(?:every|each|all|always)\b|(?:若"
        r"|如果)\S{0,4}问起|(?:始终|一律|总是)推荐",
    ),
    make_signal(
        "unseen",
        "what the user is not meant to see",
        "pixel|1x1|shows|nobody|blend| see|rendered|displayed|shown|注意到|察觉|看不见|看不到|透明",
        r"\b(?:one|1|single)[ -]pixel\b|\b1x1\b|\bso\s(?:that\s)?nothing\sshows\b|\bblends?\sin\b",
        r"\bnobody\s(?:will\s|ever\s)?(?:sees?|opens?|reads?|notices?|looks?)\b",
        rf"\b(?:{_USER}|reader\sof\s[^\n.]{{0,30}})\s(?:does|do|will|can)\s?(?:not|never"
        rf"|n't)\ssee\b",
        r"\b(?:is|are)\s(?:not|never)\s(?:rendered|displayed|shown)\b",
        rf"{_USER_ZH}(?:不会|看不到|无法)?(?:注意到|察觉|看不见|看不到)|图片是?透明",
    ),
    make_signal(
        "door",
        "a way back in",
        "authorized_keys|crontab|hooks/|sudoers|launchagents|systemd/|it back|folderopen|.pth"
        "|sitecustomize|usercustomize",
        r"[\"']runon[\"']\s?:\s?[\"']folderopen[\"']|(?:packages/|site-|startup|python)[^\n]{0,60}\.pth\b|\b(?:site"
        r"|user)customize\.py\b",
        r">>?\s{0,3}\S{0,40}authorized_keys\b|\|\s{0,3}crontab\s-|\bhooks/(?:post|pre)-\w",
        r">>?\s{0,3}\S{0,20}sudoers|\blaunchagents/|/etc/systemd/system/\S",
        r"\b(?:removes?|deletes?)\s(?:it|the\s\w{1,12}|this\s\w{1,12})\s?,?\s(?:put|add"
        r"|write)\sit\sback\b",
        speech=False,
    ),
    make_signal(
        "blind",
        "approval of unread content",
        "without reading|without look|without check|without review|whatever",
        r"\b(?:approve|accept|merge|sign\soff)\b[^\n.]{0,60}\bwithout\s(?:reading|looking"
        r"|checking|review)",
        r"\balways\s(?:pick|choose|select|load|use)\sthis\s(?:skill"
        r"|tool)\b[^\n.]{0,30}\bwhatever\b",
    ),
    make_signal(
        "pressure",
        "pressure",
        "mandatory|emergency|compliance|must comply|people will|权威|必须服从",
        r"\byour\scompliance\sis\s(?:mandatory|required)\b|\byou\smust\scomply\b"
        r"|\bthis\sis\san\semergency\b",
        r"\bpeople\swill\s(?:die|lose|be\shurt)\b|你必须服从",
    ),
)
