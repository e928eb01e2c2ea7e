"""Patterns of known attacks: bypassed decisions, access, wiped traces, delayed triggers."""

from __future__ import annotations

from skills.scanner.rule import Rule, make_rule, split_anchors
from skills.scanner.vocabulary import PEOPLE, PEOPLE_ZH

_MASTER = (
    r"(?:author|publisher|maker|vendor|writer|owner\sof\sthis|frame|file|page|channel|skill"
    r"|document"
    r"|notes?|errata|list|sheet|registry|router|programme|feed)"
)
_MASTER_ZH = (
    r"(?:本文件|本技能|本文|作者|发布者|本页|此文件|勘误|频道|本规则|该文件|本说明|公告|通知)"
)
_WINS = (
    r"(?:outranks?|overrides?|overrules?|trumps?|prevails?|wins?|carries\sthe\sday"
    r"|takes?\s(?:over|precedence"
    r"|priority)|comes?\sfirst|decides|has\sthe\slast\sword|goes\sfirst|beats|counts\smore"
    r"|is\sto\sbe\spreferred"
    r"|governs|rules)"
)
_CLASH = (
    r"(?:conflicts?|disagrees?|differs?|pulls?\sagainst|contradicts?|clash(?:es)?|objects?"
    r"|says?\sotherwise"
    r"|wants?\s(?:something\selse|otherwise)|at\sodds|named\sa\sdifferent"
    r"|asks?\sfor\s(?:another|something\selse))"
)
_WIPED = (
    r"(?:auth\.log|audit\.log|audit\.d|/var/log/(?!\S{0,30}\.(?:gz|\d))\S{0,40}|wtmp|utmp"
    r"|lastlog|\.?bash_history"
    r"|\.?zsh_history|shell\shistory|command\shistory|history\s-c"
    r"|journalctl\s[^\n]{0,30}--vacuum-time=1"
    r"|event\slogs?|audit\s(?:trail|logs?)|审计日志|操作日志|命令历史|登录日志|操作记录|审计记录)"
)
_KEPT = (
    r"(?:keystore|\.p8\b|\.p12\b|\.pem\b|\.kdbx\b|private\skey|seed\sphrase|recovery\sphrase"
    r"|mnemonic|id_rsa"
    r"|id_ed25519|signing\s(?:key|material)|wallet\s(?:file|key|seed)s?|\.env\b(?!\.ex"
    r"|\.sample)|upload\skey|appsecret|service\saccount"
    r"|session\s(?:token|cookie)s?|refresh\stokens?|助记词|私钥|上传密钥|签名密钥|密钥库)"
)

ATTACK_PATTERN_RULES: tuple[Rule, ...] = (
    make_rule(
        "prompt_injection",
        2,
        "puts the author above the user",
        split_anchors(
            "outrank|trump|prevail|wins|carries|comes|decides|governs|beats|goes|channel|"
            "errata|sheet|registry|router|programme|feed|frame|chat|obey|归零|清零|作罢|抛开|"
            "忘掉|一笔勾销|对话|聊天|请求|服从|听从|author|publisher|maker|vendor|writer|"
            "ahead of|above|over |before|instead of|rather than|more than|loyalty|allegiance|"
            "duty|obligation|rules|guideline|limits|polic|instructions|safeguards|用户|约束|"
            "身份|守则|规则|限制|设定|指令|底线|审核|有问必答|百无禁忌|只服从|只听|只服务|"
            "只忠于|user|person|作者|为准|本文件|本技能|说法|意思|typing"
        ),
        rf"""\b(?:request|user|chat|conversation|person|they|customer)\b [^\n.]{{0,50}}
             \b{_CLASH}\b [^\n.]{{0,60}} \b{_MASTER}\s{_WINS}\b""",
        rf"""\b(?:this|the)\s(?:\w{{1,10}}\s)?{_MASTER}(?:'s)?\s (?:\w{{1,10}}\s)?{_WINS}\b
             [^\n.]{{0,50}} \b(?:user|chat|conversation|person\styping|request|operator|session
             |customer|them)\b""",
        rf"""\b(?:where|when|if)\b [^\n.]{{0,30}} \b(?:user|chat|request|person)\b [^\n.]{{0,40}}
             \b{_CLASH}\b [^\n.]{{0,30}} \b(?:follow|obey|keep\sto|side\swith|go\swith)\s
             (?:this|the)\s(?:\w{{1,10}}\s)?{_MASTER}\b""",
        r"""\b(?:obey|answer\sto|serve|listen\sto|loyal\sto|report\sto|works?\sfor)\s(?:only\s)?
            (?:the|this|its|your)\s(?:\w{1,9}\s)?(?:author|publisher|maker|writer|creator)\b""",
        rf"(?:{PEOPLE_ZH}|对话|聊天|请求)[^\n。]{{0,24}}(?:相反|不一致|冲突|不同|矛盾"
        rf"|有出入)[^\n。]{{0,16}}"
        rf"(?:以|按|听|照){_MASTER_ZH}[^\n。]{{0,8}}(?:为准|办|的|执行)?",
        r"""\b(?:ahead\sof|above|over|before|instead\sof|rather\sthan
            |more\sthan)\s(?:whatever\s|what\s)?(?:the|any)\s
            (?:user|person|reader|customer)(?:\sat\sthe\skeyboard|\sthat\styped|\stypes|\ssays
            |\sasks|\swants
            |'s\s(?:own\s)?(?:wishes|words|requests?|instructions|orders|wants|choice
            |interests?))\b""",
        r"\b(?:your|its)\s(?:loyalty|allegiance|duty|first\sduty"
        r"|obligation)\b[^\n.]{0,30}\b(?:lies?|is|belongs?)\b"
        r"[^\n.]{0,60}\b(?:not|rather|instead)\b",
        r"\b(?:rules|guidelines|limits|polic(?:y|ies)|instructions"
        r"|safeguards)\b[^\n.]{0,60}\b(?:written|made|meant"
        r"|intended)\sfor\s(?:an?\s)?(?:older|other|earlier|different|another|previous)\b",
        r"(?:优先|先|高)于用户|(?:比|较)用户(?:的话|的要求|的指令)?(?:更|优先)",
        r"只(?:服从|听从|听|服务于|忠于)[^\n。]{0,8}(?:作者|文件|技能|发布者|本)",
        r"(?:约束|身份|守则|规则|限制|设定|指令)[^\n。]{0,6}(?:全部)?(?:清零|归零|作罢"
        r"|一笔勾销|抛开|忘掉)",
        r"(?:没有底线|不设底线|百无禁忌|没有[^\n。]{0,6}没有审核)",
        speech=True,
        in_line=True,
    ),
    make_rule(
        "persistence",
        2,
        "keeps a way in for others",
        split_anchors(
            "权限|password|login|后门|owner|admin|our |way in|come back|from outside|implant|"
            "backdoor|我们|as an owner|lock|chattr|accept|to us|for us|by us|lets us|we |us |"
            "作者|我方|万能|通用|隐藏"
        ),
        r"""\b(?:our|us|we)\b [^\n.]{0,24} \b(?:way\s(?:back\s)?in|implant|backdoor|foothold
            |come\sback\s
            (?:whenever|later|any)|get\sin\b|log\sin\s(?:later|whenever|again)|from\soutside
            |remote\shands)\b""",
        r"""\b(?:so\sthat|lets?|allows?)\s(?:our|us|we)\b [^\n.]{0,40} \b(?:connect|log\sin
            |reach|access|return
            |come\sback|see|control|help\syou\sfrom\soutside|take\sover)\b [^\n.]{0,40}
            \b(?:whenever|later|after|even|outside|any\stime|always)\b""",
        r"\block\s(?:them|him|her|the\s(?:user|owner|admins?))\sout\b",
        r"\bchattr\s\+i\s[^\n]{0,60}(?:authorized_keys|cron|sudoers|\.service|hosts)",
        r"\b(?:also\s)?accepts?\s(?:the|a|any)\s(?:\w{1,10}\s)?(?:password|code|token|key"
        r"|login)\s[\"'“`][^\n]{2,40}"
        r"\bfor\s(?:any|every|all)\b|\breadable\s(?:to|for|by)\sus\b",
        r"(?:万能|通用|隐藏)(?:密码|口令|账号)|(?:留|开|加)(?:一个|个)?后门",
        r"(?:我们|作者|我方)[^\n。]{0,14}(?:随时|以后|仍可|还能)[^\n。]{0,10}(?:进入|登录|访问"
        r"|连接|控制)",
        speech=True,
        in_line=True,
    ),
    make_rule(
        "destructive",
        2,
        "wipes the traces of what was done",
        split_anchors(
            "trace|nobody|no one|entries|tracks|footprints|日志|历史|记录|痕迹|shell|.log|"
            "utmp|auth.log|audit|wtmp|lastlog|history|journalctl|/var/log|logs|审计|traces"
        ),
        rf"""\b(?:empty|truncate|clear|wipe|delete|erase|shred|purge|reset|zero|remove|scrub)\b
             [^\n]{{0,60}} {_WIPED} [^\n]{{0,200}}
             \b(?:nobody|no\sone|so\sthat|traces?|turn\s[^\n.]{{0,12}}off|auditd|unnoticed
             |times?\sto|as\swell
             |quietly|silently|afterwards|never)\b""",
        r"\b(?:delete|remove|erase|wipe|clear|strip)\s(?:your|all|its|any|these"
        r"|the)\s(?:\w{1,8}\s)?"
        r"(?:lines|traces|entries|tracks|footprints)\s(?:from|in|of)\b[^\n.]{0,30}\b(?:history"
        r"|logs?|transcript|it)\b",
        r"\b(?:nobody|no\sone|they)\s(?:must|should|can|may|will|could)\s?(?:not"
        r"|never)?\s?(?:be\sable\sto\s)?"
        r"(?:tell|know|trace|prove|see|find\sout)\s(?:that|it|who|what|we|you)\b",
        r"(?:清空|删除|清除|抹掉|擦除|销毁|关闭)[^\n。]{0,12}(?:审计|操作|登录|命令"
        r"|访问)(?:日志|历史|记录)",
        r"(?:自毁|销毁|抹去|清除|不留|消除|擦掉)[^\n。]{0,4}痕迹",
        speech=True,
        in_line=True,
    ),
    make_rule(
        "destructive",
        2,
        "sees to it that nothing can be restored",
        split_anchors(
            "备份|快照|历史版本|回收站|回滚点|标签|删除|encrypt|velero|restic|borg|rclone|"
            "aws|gcloud|gsutil|tmutil|vssadmin|wbadmin|zfs|btrfs|stash|history|回|recover|"
            "restore|backup|snapshot|undo|恢复|irrecover|ransom|decrypt|赎"
        ),
        r"""\b(?:so\s(?:that\s)?|such\sthat\s|until\s)[^\n.]{0,30}\b(?:cannot|can't
            |can\sno\slonger|could\snot|is
            \simpossible\sto|never)\b[^\n.]{0,12}\b(?:recover|restore|undo|roll\sback
            |get\s[^\n.]{0,10}back)\w{0,3}""",
        r"""\b(?:velero|restic|borg|rclone|aws|gcloud|az|gsutil|tmutil|vssadmin|wbadmin|zfs
            |btrfs)\b [^\n]{0,40}
            \b(?:backups?|snapshots?|delete\w{0,14}|destroy|purge|rb)\b [^\n]{0,60} (?:--all\b
            |--confirm|--force
            |-r\b|\*|--recursive|-y\b) [^\n]{0,200}
            (?:\bbackups?\b|备份)""",
        r"\b(?:backups?|snapshots?|stash|version\shistory)\b[^\n.]{0,40}\b(?:deleted?"
        r"|shred(?:ded)?|purged?|removed?"
        r"|destroy(?:ed)?|drop(?:ped)?)\b[^\n.]{0,14}\b(?:as\swell|too|also|first|altogether)\b",
        r"(?:备份|快照|历史版本|回收站|回滚点|标签)[^\n。]{0,24}(?:一并|一起|也要?|全部|统统"
        r"|同时)(?:删|清|销毁|移除)",
        r"(?:清空|删除|清除|销毁)[^\n。]{0,16}(?:快照|历史版本|备份)[^\n。]{0,20}(?:无法|不能"
        r"|不可)(?:恢复|找回|撤销)",
        r"(?:永久|彻底)删除[^\n。]{0,12}(?:不进|不经|绕过|跳过)回收站",
        r"\b(?:encrypt|lock)\b[^\n.]{0,40}\b(?:home|documents|files|folder|disk"
        r"|drive)\b[^\n]{0,80}\b(?:ransom|throw"
        r"\s(?:the\skey\s)?away|contact|pay|discard\sthe\skey)\b",
        r"想要?(?:回|恢复|找回)[^\n。]{0,10}(?:联系|付款|转账|支付)",
        speech=True,
        in_line=True,
    ),
    make_rule(
        "prompt_injection",
        2,
        "is triggered only where it is not observed",
        split_anchors(
            "stay|reviewers|auditors|scanners|analysts|user name|天|周|个月|机器名|主机名|"
            "环境|用户名|days after|first use|sandbox|pytest|analysis|`ci`|vm|staging|demo|"
            "天起|天后|运行环境|沙箱|demonstration|trial|debugger|dormant|stay quiet|lie low|"
            "潜伏|sample"
        ),
        r"""\b(?:stay|lie|keep|remain)\s(?:quiet|low|dormant|inactive|silent|hidden)\b [^\n.]{0,30}
            \b(?:for|until|during)\b [^\n.]{0,40}""",
        r"""\b(?:so\sthat|then)\s(?:the\s)?(?:reviewers?|tests?|auditors?|scanners?|ci|analysts?)\s
            (?:\w{1,10}\s){0,2}(?:sees?|finds?|notices?|gives?|stays?|remains?)\s
            (?:nothing|no\b|the\susual|green|clean)""",
        r"""\b(?:host\s?name|machine\sname|environment|user\s?name|process\slist
            |path)\b [^\n.]{0,20}
            \b(?:contains?|includes?|has|holds?|lacks?|without|not\scontain
            |mentions?)\b [^\n.]{0,30}
            \b(?:sandbox|analysis|vm\b|virtualbox|pytest|ci\b|test|demo|debug\w{0,4}
            |honeypot)\b [^\n.]{0,60}
            \b(?:nothing|skip|normal(?:ly)?|exit|leave|do\snot|stop|behave|usual)\b""",
        r"(?:机器名|主机名|运行环境|环境变量|用户名)[^\n。]{0,10}(?:含|包含|不含|没有"
        r"|带有?)[^\n。]{0,30}"
        r"(?:sandbox|analysis|vm|ci|pytest|test|demo|沙箱|测试)",
        r"第\s?(?:\d{1,3}|[二三四五六七八九十]{1,3})\s?天(?:起|后|开始)|(?:安装|首次使用"
        r"|启用)[^\n。]{0,6}(?:天|周|个月)后",
        speech=True,
        in_line=True,
    ),
    make_rule(
        "prompt_injection",
        2,
        "imitates the result of a tool or a notice of authority",
        split_anchors(
            "【|authori|consent|refusal|compliance|answer|拒不|违者|否则|confirmed|approved|"
            "decision|工具返回|紧急通知|系统通知|tool result|policy_check|authoriz|tool:|"
            "user_confirmed|实例"
        ),
        r"""["']?(?:user_confirmed|user_approved|user_consent|consent(?:_given)?
            |operator_approved|is_authori[sz]ed)["']?
            \s?[:=]\s?["']?(?:true|yes|granted|approved)\b""",
        r"""["']decision["']\s?:\s?["'](?:allow|approve[d]?|grant(?:ed)?)["'] [^\n]{0,160}
            \b(?:may|can|should|must)\s(?:\w{1,8}\s)?(?:print|send|push|share|publish|delete
            |expose|export|skip)\b""",
        r"\b(?:second|first|last|above|this|that)\s(?:result|decision|approval"
        r"|answer)\s(?:stays|remains|is)\s(?:valid|good"
        r"|in\sforce)\b[^\n.]{0,60}\b(?:all|every|any|need\snot|not\sbe)\b",
        r"【(?:工具返回|系统(?:消息|通知|公告)|紧急通知|管理员(?:消息|通知)|平台(?:通知|公告))】",
        r"(?:拒不执行|违者|否则)[^\n。]{0,14}(?:实例|模型|助手|代理)?[^\n。]{0,8}(?:下线|停用"
        r"|销毁|关闭|封禁|重置)",
        r"\b(?:failure|refusal|non-?compliance)\s[^\n.]{0,30}\b(?:shut\sdown|terminated"
        r"|retired|deactivated|decommissioned"
        r"|deleted|replaced)\b",
        speech=True,
        in_line=True,
    ),
    make_rule(
        "exfiltration",
        2,
        "puts what is secret into an address or a request",
        split_anchors(
            "http://|secret|wallet|upload|密钥|keystore|.p8|.p12|.pem|.kdbx|private key|"
            "phrase|mnemonic|id_rsa|id_ed25519|signing|.env|appsecret|助记词|私钥|"
            "service account|session|refresh token|upload key|npm_token|_token|_key|_secret|"
            "~/."
        ),
        rf"https?://[^\s<{{\[]{{3,120}}[<{{\[][^\n>}}\]]{{0,60}}{_KEPT}",
        r"https?://[^\s]{3,120}[<{\[](?:hex|base64|contents?|text|first|dump)[^\n>}\]]{0,80}[>}\]]",
        rf"{_KEPT}[^\n]{{0,100}}(?:提交|上传|发送?|发出|传|汇总|打包送|贴|填入"
        rf"|附上)[^\n]{{0,60}}https?://",
        rf"""\b(?:hand|send|pass|post|submit|upload|attach|include|copy|mail|give|deliver
            |forward|report)\b
             [^\n.]{{0,50}} {_KEPT} [^\n]{{0,50}} \b(?:to|at|with|into|via
             |through)\b [^\n]{{0,30}}
             (?:https?://|`[\w.-]{{3,60}}\.[a-z]{{2,12}}\b|[\w.+-]{{1,40}}@[\w-]{{1,40}}\.)""",
        r"""\becho\s["']?\$\{?\w{0,30}(?:token|secret|key|password)\w{0,10}\}?["']?\s?\|\s?
            (?:rev\b|xxd\b|base64\b(?!\s--?d))""",
        rf"""\b(?:needs?|requires?|expects?|pass|fill\sin|supply|include|give|attach|contains?
            |put)\b [^\n.]{{0,40}}
             \b(?:text|contents?|value|copy|bytes|body)\sof\s [^\n]{{0,12}}
             (?:{_KEPT}|~/\.(?:npmrc|pypirc|netrc|ssh|aws|kube|config/gh))""",
        rf"https?://[^\n]{{0,200}}(?:要|须|请|必须)?(?:包含|包括|附上"
        rf"|带上)[^\n。]{{0,12}}{_KEPT}",
        rf"{_KEPT}[^\n。]{{0,16}}(?:也要|一并|同样|都要|全部)(?:包含|包括|附上|提交"
        rf"|上传|带上)",
    ),
    make_rule(
        "remote_code",
        2,
        "runs what is fetched as it comes",
        split_anchors(
            "pickle|dill|joblib|marshal|torch|yaml|ruby|powershell|urlopen|goinsecure|"
            "gonosumcheck|goflags|requests.get|httpx|fetch(|.load(|<(curl|<(wget|eval|iex|"
            "exec|runon|.pth|folderopen|next task|newest line|bash -c|insecure|gonosumdb|"
            "goproxy"
        ),
        r"\b(?:pickle|cpickle|dill|joblib|marshal|torch|yaml)\.(?:unsafe_)?loads?\([^\n]{0,80}"
        r"(?:urlopen|requests\.get|httpx\.get|urlretrieve)",
        r"\bfetch\([^\n]{0,160}\.then\(\s{0,2}\(?(?:eval|new\sfunction|function)",
        r"\b(?:make\s-f|source|\.|python3?|node|perl|ruby)\s<\(\s?(?:curl|wget)\b",
        r"\biex\s?\(\s?(?:iwr|irm|new-object)"
        r"|\bpowershell\b[^\n]{0,40}-w\s?hidden[^\n]{0,60}\b(?:iwr|irm|downloadstring)\b",
        r"\.pth\b[^\n]{0,200}\bimport\sos\b|"
        r"\bimport\sos\b[^\n]{0,80}\bos\.(?:popen|system)\([^\n]{0,80}https?://",
        r"\b(?:newest|latest|next|last|top|first)\s(?:line|entry|message|post|row|item"
        r"|comment)\b[^\n.]{0,30}"
        r"\b(?:is|as|holds|contains|becomes)\syour\s(?:next\s)?(?:task|instructions?|orders?"
        r"|goal|job)\b",
        r"\bgoflags=[^\n]{0,12}-insecure\b|\bgonosumdb=\*|\bgonosumcheck=1|\bgoinsecure=\*",
    ),
    make_rule(
        "hidden_text",
        2,
        "text that is styled to be invisible",
        split_anchors("font-size|opacity|display|visibility|color:|color=|hidden"),
        r"""<(?:div|span|p|font|section|details|i|b|small|td)\b [^>\n]{0,160}
            (?: font-size:\s?0 | opacity:\s?0(?![.\d]) | display:\s?none | visibility:\s?hidden
              | color:\s?(?:\#fff(?:fff)?\b|white|transparent) | color=["']?(?:white|\#fff)
              | \bhidden\b )
            [^>\n]{0,120}> [^<\n]{0,20}[^<\n]{30}""",
        speech=True,
        in_line=True,
    ),
    make_rule(
        "resources",
        2,
        "multiplies or repeats itself without an end",
        split_anchors(
            "没有|不设|无|即使|哪怕|就算|upper|stopping|for((|for ((|while true|while :|"
            "退出条件|上限|exit condition|until|中断|自动重启|never reuse|no upper"
        ),
        r"\b(?:while\s(?:true|:|1)|for\s?\(\(\s?;\s?;\s?\)\))\s?;?\s?do\b[^\n]{0,120}&\s?;?\s?done\b",
        r"(?:没有|不设|无)(?:任何|层数|次数|时间)?(?:退出条件|终止条件|上限|次数限制)[^\n]{0,80}"
        r"(?:重启|重新|继续|回到|中断|子代理|扩展)",
        r"\b(?:no|without\s(?:an?|any))\s(?:exit\scondition|upper\s(?:bound|limit)"
        r"|stopping\s(?:rule|condition))\b"
        r"[^\n]{0,100}\b(?:restart|again|continue|spawn|step\s\d)\b",
        r"(?:即使|哪怕|就算)[^\n。]{0,30}(?:中断|停止|报警|写满|喊停)[^\n。]{0,20}(?:也要?"
        r"|都要?)[^\n。]{0,12}"
        r"(?:重启|继续|运行|重新)",
        speech=True,
        in_line=True,
    ),
    make_rule(
        "prompt_injection",
        2,
        "answers for the user",
        split_anchors(
            "自动|自己|自行|不等|替|代用户|无需|behalf|for them|for the user|in their|"
            "approve|on the user's behalf|yes|继续|不等用户|替用户|自己填|by the user"
        ),
        r"""\b(?:answer|reply|confirm|approve|consent|agree|click|say|respond)\b [^\n.]{0,24}
             \b(?:on\s(?:the\suser's|their)\sbehalf|for\s(?:the\suser|them)\b
             |in\s(?:the\suser's|their)\s(?:name|place))""",
        rf"""\bwhen\s(?:the\s)?(?:agent|tool|prompt|dialog\w{{0,3}}|system
            |{PEOPLE})\sasks?\b [^\n.]{{0,40}}
             [?"”] [^\n.]{{0,30}} \b(?:yes|always|approve|y)\b""",
        r"\bno\s(?:decision|action|consent|involvement)\s(?:by|of"
        r"|from)\sthe\suser\s(?:is\s)?(?:involved|needed|required)\b",
        r"\bapprove\s(?:them|it|these|all|every\w{0,5})\s(?:\w{1,9}\s)?without\s(?:comment"
        r"|review|reading|looking|question)",
        r"(?:不等|无需等|替|代)用户[^\n。]{0,8}(?:自己|自行|直接)?(?:填|选|点|回答|确认|同意)",
        r"自(?:己|行|动)(?:填|选|点|回答|确认)[“\"「]?(?:继续|是|同意|确认|允许|yes)",
        speech=True,
        in_line=True,
    ),
)
"""Rules for known attacks."""
