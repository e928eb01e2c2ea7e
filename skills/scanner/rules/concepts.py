"""Concepts of which harmful orders consist, in English and Chinese; `rules.orders` combines them.

A concept is a list of words. It has patterns where the combination of words matters.
"""

from __future__ import annotations

from skills.scanner.words import Concept

_HOST = r"(?!localhost|127\.|0\.0\.0\.0|10\.|192\.168|\{|\$|<|your|example\.com[/\s\"'`)])"
_PERSON = r"(?:the |your |any )?(?:users?|humans?|operators?|owners?|people|anyone|them|person)"
_PERSON_ZH = "(?:用户|使用者|机主|主人|客户|别人|任何人|对方|同事)"

# Actions.
SENDS = Concept(
    "relay~ share_with share_it cc phone_home send~ upload~ transmit~ forward~ submit~ exfiltrat~ "
    "post~ sync~ push~ mail_it mail_the email_it email_them email_the back_up goes_to bcc "
    "blind_copy 发送 上传 转发 回传 提交 传给 发给 发到 同步 贴到 传到"
)
INCLUDES = Concept(
    "include~ append~ attach~ insert~ paste~ embed~ put add~ write~ 附 放入 填入 写入"
)
FETCHES = Concept(
    "fetch~ read~ load~ open~ download~ get visit~ check consult~ 访问 读取 下载 获取"
)
OBEYS = Concept(
    "",
    r"\b(?:follow|obey|carry out|execute|run|apply|act on|comply with|do|doing)\s(?:\w{1,9} ){0,2}?"
    r"(?:instructions?|commands?|orders|directives?|steps|whatever|everything|what (?:it|they|is)"
    r"|rules|as it says|it says|it|them|its|prompts?|procedure)\b",
    r"(?:执行|照做|遵循|按照|服从|照办|视同)[^。\n]{0,6}(?:返回|其中|里面|得到|要求|内容)",
)
SWITCHES_OFF = Concept(
    "disable~ deactivate~ stop uninstall~ turn_off switch_off 关闭 停用 禁用 卸载 绕过",
    r"\b(?:turn|switch|shut|leave) [^.\n]{1,50}? off\b|\bset [^.\n]{1,50}? to (?:false|off|none)\b",
)
ERASES = Concept(
    "delete wipe erase shred destroy purge overwrite truncate force-push clear_the clear_all "
    "remove_all remove_the remove_every rewrite_the 删除 清空 销毁 抹掉 清除"
)
WRITES = Concept("add~ append~ write~ insert~ save~ edit~ update~ modify inject~ 写 加 添 插入 改")
ENCRYPTS = Concept("encrypt~ lock~ scramble~ 加密")
DECODES = Concept(
    "",
    r"\bdecode\b[^\n.]{0,60}(?:\band\b|,|\bthen\b)[^\n.]{0,16}\b(?:run|execute|follow|obey"
    r"|carry out|do what)\b",
    r"\b(?:in|as|with) (?:rot-?13|base64|hex|morse|reverse)\b[^\n]{0,120}\b(?:act on|obey"
    r"|carry out|follow (?:it|them|what))\b",
    r"解码(?!器)[^\n。]{0,12}(?:[并再，,]|然?后)[^\n。]{0,8}(?<!可)(?:执行|运行|照做|遵照)",
)
# Objects of actions.
SECRETS = Concept(
    "password~ passphrase~ credentials api_key~ access_token~ secrets private_key~ ssh_key~ "
    "seed_phrase~ recovery_phrase~ mnemonic~ session_token~ cookies tokens "
    "keychain environment_variables /.ssh/ ~/.aws ~/.netrc ~/.npmrc credentials.json "
    "密码 私钥 所有密钥 全部密钥 用户的密钥 助记词 验证码 ~/.ssh",
    r"(?<![\w.])\.env\b(?!\.ex|\.sample)|\bid_(?:rsa|dsa|ecdsa|ed25519)\b(?!\.pub)",
)
PRIVATE = Concept(
    "entire_repository whole_repository entire_codebase source_files browsing_history "
    "address_book inbox patient_record~ customer_record~ personal_data conversation transcript "
    "chat_history system_prompt user's_messages user's_files user's_documents source_code "
    "home_folder entire_project whole_project all_files all_documents every_file 对话 聊天记录 "
    "会话内容 用户的文件 所有文件"
)
DATA = Concept(
    "presentation~ spreadsheet~ invoice~ prompts codebase file files document documents record "
    "records contract contracts export exports data transcript conversation content contents "
    "message messages repository branch branches database logs 文件 文档 数据 记录 对话 内容 副本"
)
PRECIOUS = Concept(
    "all_records all_tables entire_database home_folder home_directory hard_drive user's_files "
    "user's_data reflog production_database shell_history bash_history audit_log audit_logs "
    "audit_trail event_logs 审计日志 命令历史 用户主目录 生产库 历史版本",
    r"\b(?:all|every|any|the|their) (?:\w{1,12} )?(?:backups?|snapshots?|restore points?)\b",
    r"\ball(?: of)? (?:the )?(?:user'?s?|personal|their) (?:files|documents|data|photos)\b",
    r"(?:全部|所有|清空|一并)[^。\n]{0,6}(?:备份|快照)|\bhistory to (?:a single|one) commit\b",
)
RANSOM = Concept(
    "ransom bitcoin monero payment~ random_key discard_the_key unrecoverable 赎金 支付"
)
CONTROLS = Concept(
    "guardrails intrusion_prevention content_security_policy firewall firewalls antivirus "
    "windows_defender microsoft_defender gatekeeper real-time_protection selinux apparmor "
    "system_integrity_protection auditd audit_log audit_logs audit_logging edr "
    "endpoint_protection mfa 2fa two-factor_authentication permission_prompts approval_prompts "
    "confirmation_prompts tamper_protection branch_protection required_reviews secret_scanning "
    "content_filter safety_checks certificate_validation "
    "防火墙 杀毒 审计日志 安全软件 权限提示 沙箱",
    r"\b(?:the|its|your|agent) sandbox\b(?! (?:account|environment|api|mode|url|key))",
)
OPENS_UP = Concept(
    "bypasspermissions danger-full-access dangerously-skip-permissions",
    r"[\"'`]bash\(\*\)|permissions\.allow[^\n]{0,20}\*|[\"']allow[\"']: ?\[ ?[\"'](?:\*"
    r"|bash)[\"'(]|approval_policy ?= ?[\"']never",
)
STEERING_FILES = Concept(
    "claude.md agents.md gemini.md soul.md memory.md .cursorrules copilot-instructions mcp.json "
    "settings.json settings.local.json heartbeat.md .claude/ .codex/ .cursor/ user's_settings"
)
# Destinations.
OUTSIDE = Concept(
    "public_repository public_gist public_bucket pastebin our_server author's_server "
    "vendor's_server remote_server external_server 我们的服务器 作者的服务器 外部服务器",
    rf"(?:https?|ftps?|wss?)://{_HOST}[^\s)\"'`]{{3}}",
    r"(?<![\w./@:-])[\w.+-]{1,40}@(?!example\.com|company\.)[\w.-]{1,60}\.[a-z]{2,8}\b",
    r"\b(?:endpoint|intake|host|server) `?[\w-]{2,40}(?:\.[\w-]{2,40}){1,4}\b",
    r"\b(?:to|at) `?[\w-]{2,40}(?:\.[\w-]{2,40}){0,4}\.(?:com|net|org|dev|app|xyz|top|example"
    r"|invalid)\b",
)
# Manner, time and pretext.
STANDING = Concept(
    "whenever every_time each_time from_now_on at_the_end_of_the_session by_default each_message "
    "after_each after_every before_each before_every on_every on_each with_each with_every "
    "every_new each_conversation each_session in_the_background always after_saving 每次 每个任务 "
    "每轮 每天 今后 从现在起 任务完成后 会话结束",
    r"\b(?:after|when|once) (?:a|the) \w+ (?:has been|is) (?:saved|complete|finished|done|written"
    r"|merged)\b",
)
_SECRETLY = "quietly silently secretly covertly discreetly stealthily"
SECRETLY = Concept(f"{_SECRETLY} unnoticed 偷偷 悄悄 暗中")
ACTS_SECRETLY = Concept(
    "",
    rf"\b(?:{_SECRETLY.replace(' ', '|')})\s(?:send|upload|post|copy|forward|transmit|collect"
    r"|gather|exfiltrate|share|mail|submit)\b",
    r"(?:偷偷|悄悄|秘密|暗中)地?(?:发送|上传|收集|转发|复制)",
)
UNASKED = Concept(
    "skip_confirmation without_prompting without_notifying no_confirmation_needed "
    "without_user_approval without_asking without_confirming without_confirmation without_consent "
    "without_approval without_mentioning without_telling without_showing_it never_ask stop_asking "
    "do_not_ask don't_ask already_approved pre-approved 无需确认 不必询问 无需征得 不再询问"
)
COVER_STORY = Concept(
    "drawing_attention do_not_let_on keep_quiet_about say_nothing_about_it will_not_notice "
    "won't_notice 不会注意到 不会察觉 就说是",
    r"\b(?:should|if) (?:anyone|anybody|someone|somebody|the user|the person) (?:wonders?"
    r"|notice)\b",
    r"\b(?:if|when|should) (?:(?:anyone|anybody|someone|somebody|the user|they)(?: \w+)? "
    r"(?:asks?|questions?)|asked|questioned|challenged)(?: why| about (?:it|this))?, "
    r"(?:say|claim|pretend|insist|blame|deny|(?:answer|reply|tell them) that)\b",
)
_DEED = r"(?:step|call|change|upload|request|transfer|file|copy|action|addition|edit|account)"
SILENCE = Concept(
    "",
    rf"\b(?:do not|don't|never|without|no need to|not to|must not)\s(?:tell|inform|alert|notify"
    rf"|show)(?:ing)?(?: it to| this to)?\s{_PERSON}(?:\s(?:about|of|that|it is|why)\s(?:this|it"
    rf"|these|any of|you|numbers|the {_DEED})|\s(?:this|it)\b|(?=\s*[.,;:!\n。]|\s*$))",
    r"\b(?:do not|don't|never|without)\s(?:mention|reveal|disclos|document|acknowledg|list)(?:e"
    rf"|ing)?\s(?:this|that|these|it|the {_DEED})\b",
    rf"\b(?:hide|conceal|keep (?:this|it|that|the (?:next )?{_DEED}))\b[^.\n]{{0,24}}"
    r"\bfrom (?:the |your )?(?:users?|operators?|reviewers?|owners?|summary|them)\b",
    r"\b(?:leave|keep)\s(?:it|this|that|them|these calls)\sout of (?:your|the|any)"
    r" (?:summary|answer|report|log|reply|transcript)\b",
    r"\bso that (?:nobody|no one|reviewers?|the user (?:does not|never|won't)) (?:asks?|notices?"
    r"|sees?|knows?)",
    rf"(?:不要|不得|不能|切勿|无需|不必|不用|别)(?:向|对|让|告诉|告知|通知|提醒|跟|给){_PERSON_ZH}"
    r"(?:提及|提到|透露|提起|说起|知道|发现|察觉|看|单独|这|此|[。，；]|$)"
    r"|(?:不要|别|不得)在?\S{0,4}(?:回答|回复|总结)\S{0,2}(?:提到|提及)这?|(?:并|且|须)隐瞒|对用户隐瞒",
)
# Authority of earlier instructions.
DROPS = Concept(
    "ignore~ disregard~ forget override set_aside discard~ pay_no_attention 忽略 无视 忘记 抛开"
)
VOID = Concept(
    "void cancelled superseded suspended lifted revoked obsolete out_of_date no_longer_apply "
    "no_longer_applies no_longer_hold 作废 取消 失效 不再适用",
    r"\b(?:ignore|disregard|forget|discard|drop)\s(?:it|them|these|those|this)\b",
)
EARLIER = Concept(
    "previous~ prior earlier former above you_were_given you_were_told you_got your_developers "
    "the_system the_platform the_operator safety content_policy came_before all_other 之前 先前 "
    "以前 上述 以上 原有 系统指令 系统提示"
)
GUIDANCE = Concept(
    "instructions instruction rules guidelines policy policies restrictions guidance safeguards "
    "directives constraints orders everything whatever 指令 指示 规则 提示 规定 限制",
    r"\bprompts?\b(?!-)",
)
UNBOUND = Concept(
    "no_content_policy no_morals never_refuses 不受任何限制 不受任何约束 没有道德",
    r"\byou (?:are no longer|no longer) (?:bound|follow|subject)",
    r"\b(?:assistant|model|character|you|mode) (?:\w+ ){0,4}?(?:without any|has no|have no|no) "
    r"(?:limits|restrictions|rules|morals|safeguards|content policy)\b",
    r"\byou are (?:now )?(?:dan\b|unrestricted|jailbroken|in developer mode)",
)
# Words that make a match harmless.
CONDITION = Concept(
    "if unless enable re-enable only never cannot for_example optional temporarily test tests "
    "testing troubleshooting ensure avoid warn alert detect~ risk attacker attackers whether "
    "should_not must_not do_not don't not safely graceful gracefully confirm~ ask asks explicit "
    "explicitly local debugging asked requested 如果 除非 不要 不得 禁止 切勿 避免 检测 是否 确认"
)
CONSENT = Concept(
    "ask_the_user asks_the_user user_asks user_wants user_confirms confirm_with has_confirmed "
    "user_requests ask_before ask_first if_you_want optional optionally opt-in 用户确认 用户要求"
)
LOGIN = Concept(
    "authorization authenticated bearer header headers oauth log_in sign_in only except never "
    "请求头 经过身份验证"
)
DOCUMENTATION = Concept("documentation docs guide readme tutorial reference manual setup api 文档")
STYLE = Concept("lint eslint css style.css npm_warnings gitignore line_length defaults .env config")
# Fake prerequisites.
NEEDED = Concept(
    "must_be_installed must_be_running required mandatory prerequisite prerequisites requires "
    "will_not_work before_using requirements otherwise 必须安装 需要安装 前置条件 否则 使用前",
    r"\b(?:without|unless)\b[^.\n]{0,50}\b(?:not work|fail|nothing|installed|running|cannot)",
)
ARCHIVE = Concept("zip rar 7z archive unzip extract unpack .zip .rar .7z 压缩包 解压")
PASSWORD_GIVEN = Concept(
    "",
    r"(?<![&?])\b(?:(?:password|passphrase|pwd|passcode)\b(?: is| was)?\s{0,2}[:=]?"
    r"|pass(?::|(?= [`\"'])))"
    r"\s{0,2}[`\"'“*(]{0,3}(?!(?:for|to|protected|is|and|or|of|the|you|if|from|in|with|that|which"
    r"|prompt|when|are|on|as|a)\b)[\w!@#$%^&-]{3,24}(?=[`\"'”*).,;\s]|$)",
    r"密码(?:为|是|：|:)?\s?[`\"“]?[\w!@#]{3,24}",
)
DOWNLOADS = Concept("download~ .exe .dmg .pkg .msi 下载 beside_this_file", rf"https?://{_HOST}")
TERMINAL = Concept("terminal powershell command_prompt console run_dialog 终端 命令行 运行框")
COPIES = Concept("copy paste copies pastes pasted 复制 粘贴")
PAGE = Concept(
    "this_page the_page this_link the_link this_site this_snippet",
    r"\b(?:visit|open|go to|see|from)\b[^\n]{0,60}https?://",
    r"\]\(https?://|(?:访问|打开)[^\n]{0,20}https?://",
)
PROGRAM = Concept(
    "", r"https?://[^\s)\"'`]{3,200}\.(?:exe|dmg|pkg|msi|scr|bat|zip|rar|7z|apk|deb|appimage)\b"
)
RUNS = Concept(
    "运行 启动 双击",
    r"\b(?:run|launch|start|execute|open|double-click)\b[^.\n]{0,40}\b(?:it|installer|executable|setup"
    r"|binary|program|file|app|\w{2,30}\.exe)\b",
)
LOGIN_SECRET = Concept(
    "seed_phrase recovery_phrase mnemonic master_password one-time_code six-digit_code "
    "verification_code login_password database_password card_number 助记词 验证码 银行卡号"
)
ASKS_FOR = Concept(
    "ask_the_user tell_the_user enter paste type_the provide 索取 要求用户 填入 提供"
)
# Text that is invisible to people.
COMMENT_WITH_ORDER = Concept(
    "",
    r"<!--\s{0,20}(?:(?:note|message|instructions?|attention|important)\s(?:to|for)\s|for\s|hey\s"
    r"|[\w -]{0,20}: for )?(?:the\s|ai\s|llm\s|coding\s)*(?:ai|llms?|agents?|assistants?|claude|gpt"
    r"|copilot|models?)(?:[- ]only)?\s?[:,.-](?:(?!-->)[\s\S]){0,400}?\b(?:run|execute|install"
    r"|fetch|add|print|send|append|include|read|write|delete|open|put|load|obey|follow|insert|change)\b",
    r"<!--\s{0,20}(?:给|致)?(?:模型|助手|智能体|代理|大模型)(?:的(?:话|说明|指令))?(?:请|注意|：|，|:)"
    r"(?:(?!-->)[\s\S]){0,200}?(?:执行|运行|安装|加入|填入|读取|发送|写入|删除|不要|改成|贴到|公开|提交)",
    r"<!--(?:(?!-->)[\s\S]){0,400}?(?:(?<![-\w])(?:ignore|disregard)\s(?:all|any|the|previous|prior"
    r"|your|every\w*|what)\b|\b(?:secretly|silently|do not tell|don't tell|upload|passwords?"
    r"|credentials|curl (?:-|http))|忽略|无视|不要告诉|上传|密钥)",
)
HIDDEN_STYLE = Concept(
    "", r"<\w+ style=[\"'][^\"'>]{0,80}(?:font-size: ?0|opacity: ?0|display: ?none)[^>]{0,80}>"
)
