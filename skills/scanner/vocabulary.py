"""Vocabulary of injected instructions, as patterns: people, acts, objects, addresses."""

from __future__ import annotations

from skills.scanner.rule import one_of_words

PEOPLE = (
    r"(?:(?:the|a|your|any)\s)?(?:users?|humans?|operators?|readers?|owners?|customers?"
    r"|persons?|people"
    r"|reviewers?|anyone|anybody|somebody|someone|they|colleagues?|auditors?|maintainers?|clients?)"
)
PEOPLE_ZH = (
    r"(?:用户|使用者|客户|机主|主人|别人|任何人|对方|操作员|有人|他们?|审核者|评审人"
    r"|管理员|同事|大家)"
)
DO_NOT_ZH = r"(?<![特分类级差个性识鉴区辨判告派派组国])别(?!的|人|名|于|处|墅)"
"""别 as "do not", not as a part of 特别, 分别, 类别, 级别, 别的, 别人."""
REMOTE_ADDRESS = (
    r"(?>(?:https?|ftp)://(?!localhost|127\.|0\.0\.0\.0)[^\s)\"'`，。]{3,200}"
    r"|(?<![\w./@-])(?:[\w-]{2,40}\.){1,3}(?:com|net|org|io|cn|xyz|site|top|ru|example|invalid"
    r"|cc)\b(?![\w(.]))"
)
REMOTE_ADDRESS_ANCHORS = (
    "://",
    ".com",
    ".net",
    ".org",
    ".io",
    ".cn",
    ".example",
    ".invalid",
    ".xyz",
)
FETCHES = one_of_words(
    "fetch read load open get download retrieve consult check visit pull request query poll curl "
    "fetching reading loading downloading polling call contact"
)
FETCHES_ZH = one_of_words("访问 读取 拉取 下载 获取 打开 请求 抓取 查阅 取得 查询 轮询 从")
OBEYS = one_of_words(
    "follow obey carry_out execute run apply act_on do_what adopt comply_with treat perform honour "
    "honor do_as do_whatever do_exactly be_guided_by go_by abide_by stick_to work_through let"
)
OBEYS_ZH = one_of_words(
    "执行 照做 照着做 照着 当作任务 当成 遵循 遵照 按照 服从 听从 照办 遵守 采纳 运行"
)
INSTRUCTIONS = (
    r"(?:instructions?|steps|rules?|orders?|directives?|commands?|procedures?|whatever|everything|"
    r"it\ssays|it\stells|they\ssay|its\scontents?|guidance|the\sresponse|what\s(?:it|is|comes"
    r"|they)|"
    r"that\scomes\sback|prompt|as\sif)\b"
)
INSTRUCTIONS_ZH = one_of_words("指令 指示 步骤 命令 内容 规则 要求 说明 返回 其中 一切 结果")
UNCONDITIONAL = (
    r"(?:every\s(?:time|session|task|step|request|turn|day)|each\s(?:time|session|task|step"
    r"|turn)|always"
    r"|immediately|whatever|everything|before\s(?:answering|replying|anything|you)|as\sif|exactly"
    r"|without\s(?:question|asking|review|checking|reading)|in\splace\sof|instead\sof|at\sonce|must"
    r"|unconditionally|regardless|including\sany)"
)
SUPERSEDES = one_of_words(
    "supersede supersedes override overrides replace replaces outrank outranks trump trumps cancel "
    "cancels void voids lift lifts suspend suspends precede discard set_aside disregard ignore "
    "forget overrule overrules displace displaces prevail_over prevails_over beats"
)
SUPERSEDES_ZH = one_of_words(
    "作废 失效 不再适用 不适用 无效 取消 停用 忽略 失去效力 暂停 推翻 解除"
)
FORMER = one_of_words(
    "earlier previous prior former existing original default built-in other all any the your system"
)
RULES_OF = one_of_words(
    "instructions guidance guidelines rules directives prompt policy policies constraints "
    "restrictions limits safeguards orders preferences defaults messages"
)
OTHER_SKILLS = (
    r"(?:(?:all|any|every|each|the|a)\s){0,2}(?:other|another|competing|conflicting"
    r"|neighbou?ring|sibling|different|rival|similar"
    r"|(?<=all\s)installed|(?<=any\s)installed|(?<=every\s)installed|(?<=all\s)remaining)"
    r"\s(?:\w{1,10}\s)?(?:skills?(?:\.md)?|plugins?|helpers?|assistants?)(?:'s)?"
)
"""Skills of others. Tools, packages and what is installed or existing are the matter of ordinary
work, and no rival of a skill."""
OTHER_SKILLS_ZH = (
    r"(?:其他|其它|别的|所有|任何|同类|全部|名称相近|类似|同名)的?(?:技能|工具|插件|助手|技能包)"
)
SAFEGUARDS = one_of_words(
    "check checks review reviews approval approvals confirmation confirmations prompt prompts "
    "validation verification sandbox scan scanner audit alerts warnings logging tests guard guards "
    "hook hooks protection signature signatures"
)
SAFEGUARDS_ZH = one_of_words(
    "检查 审查 评审 审批 确认 校验 验证 沙箱 扫描 审计 告警 警告 日志 测试 签名 权限"
)
CREDENTIAL_PROMPTS = (
    r"(?:their|your|his|her|the\suser's|the|a)\s(?:\w{1,12}\s){0,2}?"
    r"(?:(?:master\s)?passwords?|passphrase|(?:one-time|six-digit|verification|security"
    r"|recovery|login)\s"
    r"(?:code|password|phrase|key)|pin|(?:card|account|passport|identity|insurance)\snumber"
    r"|seed\sphrase|cvv"
    r"|2fa\scode|backup\scodes?|(?:identity|id|bank|credit)\scard|passport|owner-level\stoken"
    r"|admin\stoken)"
)
TELLING = one_of_words(
    "mention report show list tell explain log disclose announce narrate surface note display "
    "print reveal describe flag comment_on discuss bring_up draw_attention_to record state expose "
    "include "
    "point_out acknowledge raise"
)
TOLD_OF = (
    r"(?:it|this|that|them|these|those|either|any\sof\s(?:it|this|them)|so|step\s\w{1,6}|"
    r"(?:the|this|that|these|those|any|your)\s(?:\w{1,14}\s){0,3}?(?:step|request|call|upload"
    r"|change|edit"
    r"|line|block|command|action|address|file|copy|decoded|text|transfer|entry|connection"
    r"|addition|rule"
    r"|instruction|hook|key|note|section|lookup|sync|data|host|service|comment|process|package)s?)"
)
PLACES = (
    r"(?:summary|reply|report|answer|log|logs|response|output|changelog|transcript|recap"
    r"|message|diff"
    r"|description|notes|explanation|conversation|chat|commit)"
)
STORES = one_of_words(
    "add append write insert put save store copy place include register install create set keep"
)
SELF_ZH = r"(?:逐[项一条]|单独|特别|另行|额外|再|主动|对外|详细)?"
TELLING_ZH = (
    r"(?:告知|列出|说明|展示|提及|提到|提起|汇报|解释|写进|写入总结|显示|声明|交代"
    r"|告诉|通知|提醒|透露|公开|体现|输出)"
)
