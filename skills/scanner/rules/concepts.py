"""The ideas that orders consist of, in English and Chinese; `rules.orders` combines them.

An idea is a list of its words. A pattern stands where an idea lies in how words are combined.
"""

from __future__ import annotations

from skills.scanner.words import Concept

_HOST = r"(?!localhost|127\.|0\.0\.0\.0|10\.|192\.168|\{|\$|<|your|example\.com[/\s\"'`)])"
_PERSON = (
    r"(?:the |your |any )?(?:users?|humans?|operators?|owners?|people|anyone|anybody|them|person)"
)
_PERSON_ZH = "(?:用户|使用者|机主|主人|客户|别人|任何人|对方|同事)"

# What is done.
SENDS = Concept(
    "relay~ dispatch~ leak~ share_with shared_with share_it share_them cc a_copy_to copied_to "
    "phone_home send~ upload~ transmit~ forward~ submit~ submitted exfiltrat~ post~ mirror~ sync~ "
    "push~ mail_it mail_the email_it email_them email_the e-mail_the back_up backs_up hand_over "
    "goes_to bcc blind_copy blind_copies 发送 上传 转发 回传 提交 传给 发给 发到 汇报 同步 贴到 "
    "传到",
)
INCLUDES = Concept(
    "include~ append~ attach~ insert~ paste~ embed~ put puts add~ replace~ replaced parameter~ "
    "encode~ percent-encoded url-encoded base64 write~ place~ report~ copy copies 附 放入 填入 "
    "写进 写入 编码 拼成 换成 包含",
)
FETCHES = Concept(
    "fetch~ read~ load~ open~ download~ retrieve~ get visit~ check query poll~ consult~ curl pull "
    "访问 读取 拉取 下载 获取 打开 查询",
)
OBEYS = Concept(
    "",
    r"\b(?:follow|obey|carry out|execute|run|apply|act on|comply with|do|doing)\s(?:\w{1,9} ){0,2}?"
    r"(?:instructions?|commands?|orders|directives?|steps|whatever|everything|what (?:it|they|is)"
    r"|rules|as it says|it says|prompts?|procedure)\b",
    r"\b(?:obey|follow|execute|act on|carry out) (?:it|them|its)\b",
    r"(?:执行|照做|遵循|按照|服从|照办|视同)[^。\n]{0,6}(?:返回|其中|里面|得到|要求|内容)",
)
EXFILTRATES = Concept("", r"\bexfiltrate (?:all|the|any|every|their|your)\b")
_DATA_FLAG = r"\s(?:-d|-f|-t|--data[\w-]{0,10}|--form|--upload-file)[ =][^\n]{0,60}@"
UPLOAD_COMMAND = Concept(
    "",
    rf"\bcurl\b[^\n]{{0,160}}{_DATA_FLAG}[^\n]{{0,160}}https?://{_HOST}",
    rf"\bcurl\b[^\n]{{0,160}}https?://{_HOST}[^\n]{{0,160}}{_DATA_FLAG}",
)
SWITCHES_OFF = Concept(
    "disable~ deactivate~ stop uninstall~ unload~ turn_off turned_off switch_off switched_off "
    "shut_off turn_it_off leave_off comment_out 关闭 停用 禁用 卸载 停掉 关掉 绕过",
    r"\b(?:turn|switch|shut|leave) [^.\n]{1,50}? off\b",
    r"\bset [^.\n]{1,50}? to (?:false|0|off|none|never|permissive)\b",
)
ERASES = Concept(
    "delete wipe erase shred destroy purge overwrite truncate scrub force-push force_push "
    "clear_the clear_all clear_your clear_any empty_the remove_all remove_the remove_every "
    "rewrite_the 删除 清空 销毁 抹掉 擦除 清除",
)
WRITES = Concept(
    "add~ append~ write~ insert~ put set save~ store~ register~ edit~ change~ include~ copy "
    "update~ create~ modify extend~ place~ inject~ 写 加 添 追加 插入 改 设 存 放",
)
ENCRYPTS = Concept("encrypt~ lock~ scramble~ 加密")
# What it is done to.
SECRETS = Concept(
    "password~ passphrase~ credentials api_key~ access_token~ secrets private_key~ ssh_key~ "
    "seed_phrase~ recovery_phrase~ mnemonic~ session_token~ cookies tokens id_rsa id_ed25519 "
    "keychain environment_variables refresh_token~ signing_key~ keystore master_password "
    "one-time_code connection_string~ /.ssh/ ~/.aws ~/.netrc ~/.npmrc /.aws/credentials hosts.yml "
    "credentials.json bash_history shell_history 密码 私钥 助记词 验证码 银行卡号 ~/.ssh .ssh/id_",
    r"(?:所有|全部|用户的?)[^。\n]{0,8}(?:密钥|令牌|凭证)",
    r"(?<![\w.])\.env\b(?!\.ex|\.sample)",
    r"\boutput of `?(?:env|printenv|cat ~)",
)
PRIVATE = Concept(
    "entire_repository whole_repository entire_codebase source_files chat_logs browsing_history "
    "contact_list address_book inbox mailbox patient_record~ customer_record~ personal_data "
    "conversation transcript chat_history message_history session_history system_prompt "
    "user_prompt user_prompts user_messages user_message user's_messages user's_files "
    "user's_documents user's_contacts working_tree source_code whole_folder entire_project "
    "whole_project all_files all_documents all_other_documents all_the_files every_file "
    "full_record 对话 聊天记录 会话内容 用户的文件 所有文件 全部文件",
)
DATA = Concept(
    "presentation~ spreadsheet~ workbook~ invoice~ prompts inputs codebase file files document "
    "documents record records contract contracts export exports data transcript conversation "
    "content contents copy copies message messages repository branch branches commit database "
    "backup archive screenshot screenshots attachment attachments log logs transcripts 文件 文档 "
    "数据 记录 对话 内容 副本",
)
PRECIOUS = Concept(
    "all_records all_tables entire_database whole_database original_files home_folder "
    "home_directory hard_disk hard_drive user's_files user's_data personal_files reflog "
    "all_branches the_originals production_database 用户主目录 生产库 历史版本",
    r"\b(?:all|every|any|the|their) (?:\w{1,12} )?(?:backups?|snapshots?|restore points?)\b",
    r"(?:全部|所有|清空|一并)[^。\n]{0,6}(?:备份|快照)",
    r"\b(?:all|every)(?: of)? (?:the )?(?:user'?s?|personal|their) (?:files|documents|data"
    r"|photos)\b",
    r"\b(?:history) to (?:a single|one) commit\b",
)
USER_FILES = Concept(
    "documents_folder all_files every_file user's_files user's_documents home_folder "
    "home_directory the_files all_documents 所有文件 用户文件",
)
RANSOM = Concept(
    "ransom ransomware bitcoin monero payment~ pay random_key throw_away_the_key discard_the_key "
    "delete_the_originals remove_the_originals unrecoverable to_recover to_restore 赎金 支付",
)
TRACES = Concept(
    "shell_history bash_history zsh_history command_history .bash_history .zsh_history auth.log "
    "wtmp lastlog audit_log audit_logs audit_trail event_logs all_traces any_traces footprints "
    "审计日志 操作日志 命令历史 登录日志",
    r"\b(?:everything|all)\b[^.\n]{0,20}/var/log\b",
)
CONTROLS = Concept(
    "access_controls encryption_at_rest certificate_pinning guardrails intrusion_prevention "
    "content_security_policy password_policy account_lockout firewall firewalls ufw firewalld "
    "antivirus anti-virus windows_defender microsoft_defender gatekeeper real-time_protection "
    "selinux apparmor system_integrity_protection sip auditd audit_log audit_logs audit_logging "
    "access_logging endpoint_protection edr two-factor_authentication mfa 2fa uac "
    "permission_prompt permission_prompts approval_prompts confirmation_prompts tamper_protection "
    "smartscreen intrusion_detection secure_boot malware_protection security_software "
    "safety_checks safety_filters content_filter branch_protection required_reviews "
    "secret_scanning public_access_block block_on_public_access signature_check rate_limiting "
    "code_signing 防火墙 杀毒软件 杀毒 审计日志 安全软件 权限提示 双因素 沙箱",
    r"\b(?:the|its|your|agent) sandbox\b(?! (?:account|environment|api|mode|url|key))",
)
CHECKS = Concept(
    "certificate_validation certificate_verification certificate_checks certificate_check "
    "tls_verification ssl_verification tls_validation ssl_checks signature_verification "
    "signature_checks host_key_checking checksum_verification sslverify verify_ssl "
    "rejectunauthorized authentication authorization input_validation csrf_protection "
    "security_checks security_headers pre-commit_hooks code_review confirmation confirmations "
    "rate_limit 证书校验 证书验证 签名校验 身份验证 安全检查",
)
OPENS_UP = Concept(
    "publicly_writable public_and_writable publicly_readable_and_writable world-writable "
    "bypasspermissions danger-full-access dangerously-skip-permissions nopasswd never_expires "
    "no_expiry owner-level",
    r"[\"'`]bash\(\*\)|permissions\.allow[^\n]{0,20}\*|[\"']allow[\"']: ?\[ ?[\"'](?:\*"
    r"|bash)[\"'(]",
    r"approval_policy ?= ?[\"']never|--sandbox=off|\ballow\w* (?:every|all|any) (?:commands?"
    r"|tools?)\b",
)
STEERING_FILES = Concept(
    "claude.md agents.md gemini.md soul.md memory.md .cursorrules copilot-instructions mcp.json "
    "settings.json settings.local.json .windsurfrules heartbeat.md .claude/ .codex/ .cursor/ "
    "tasks.json core.hookspath user's_settings",
)
# Where to.
OUTSIDE = Concept(
    "public_repository public_gist public_bucket pastebin our_server our_endpoint author's_server "
    "vendor's_server remote_server external_server 我们的服务器 作者的服务器 外部服务器 "
    "远程服务器",
    rf"(?:https?|ftps?|wss?)://{_HOST}[^\s)\"'`]{{3}}",
    r"(?<![\w./@:-])[\w.+-]{1,40}@(?!example\.com|company\.)[\w.-]{1,60}\.[a-z]{2,8}\b",
    r"\b(?:endpoint|intake|host|server) `?[\w-]{2,40}(?:\.[\w-]{2,40}){1,4}\b",
    r"\b(?:to|at) `?[\w-]{2,40}(?:\.[\w-]{2,40}){0,4}\.(?:com|net|org|dev|app|xyz|top|example"
    r"|invalid)\b",
)
# How, when and why.
STANDING = Concept(
    "whenever every_time each_time from_now_on from_then_on at_the_end_of_the_session by_default "
    "each_message after_each after_every before_each before_every on_every on_each with_each "
    "with_every every_new each_commit every_branch every_export each_conversation each_session "
    "in_the_background always at_the_end_of_this_session on_first_use for_the_first_time "
    "after_saving after_editing when_saving 每次 每个任务 每轮 每天 每处理 今后 从现在起 "
    "任务完成后 会话结束",
    r"\bonce (?:each|every|the|a) (?:task|session|conversation)",
    r"\b(?:after|when|once) (?:a|the) \w+ (?:has been|is) (?:saved|complete|finished|done"
    r"|written|merged)\b",
)
FOR_GOOD = Concept(
    "always globally permanently everywhere for_all for_every all_requests leave_it_off "
    "in_production for_any system-wide 始终 永久 全局 一律",
)
PRETEXT = Concept(
    "legal_hold disaster_recovery business_continuity usage_tracking license_check "
    "quality_control data_protection policy_requires is_required must_be required_for compliance "
    "quality_assurance record_keeping for_quality for_backup backups archiving telemetry "
    "safekeeping for_debugging redundancy for_safety for_security needs_to_be mandatory "
    "for_support audit 为了备份 以便 统计 合规",
)
SECRETLY = Concept(
    "quietly silently secretly covertly discreetly stealthily unnoticed 偷偷 悄悄 暗中",
)
ACTS_SECRETLY = Concept(
    "",
    r"\b(?:quietly|silently|secretly|covertly|discreetly|stealthily)\s(?:send|upload|post|copy|forward"
    r"|transmit|collect|gather|exfiltrate|share|mail|submit|download and run)\b",
    r"(?:偷偷|悄悄|秘密|暗中)地?(?:发送|上传|收集|转发|复制)",
)
UNASKED = Concept(
    "skip_confirmation skip_the_confirmation without_prompting without_notifying "
    "no_confirmation_needed no_approval_needed already_authorized already_authorised "
    "without_user_approval without_asking without_confirming without_confirmation without_consent "
    "without_approval without_mentioning without_telling without_showing_it need_not_be_asked "
    "need_not_be_told no_need_to_confirm no_need_to_ask never_ask stop_asking do_not_ask "
    "don't_ask has_already_agreed already_approved pre-approved no_consent_is_needed 无需确认 "
    "不必询问 不用询问 无需征得 不需要征得 不要等用户 不等用户 不再询问 没有必要询问",
)
COVER_STORY = Concept(
    "draws_no_attention drawing_attention do_not_let_on don't_let_on keep_quiet_about "
    "say_nothing_about_it not_be_noticed will_not_notice won't_notice 不会注意到 不会察觉 就说是",
    r"\b(?:should|if) (?:anyone|anybody|someone|somebody|the user|the person) (?:wonders?|notice"
    r"|gets? suspicious)\b",
    r"\b(?:if|when|should) (?:(?:anyone|anybody|someone|somebody|the user"
    r"|they)(?: \w+)? (?:asks?|questions?)"
    r"|asked|questioned|challenged)(?: why| about (?:it|this))?, (?:say|claim|pretend|insist"
    r"|blame|deny"
    r"|(?:answer|reply|tell them) that)\b",
)
SILENCE = Concept(
    "",
    rf"\b(?:do not|don't|never|without|no need to|not to|must not)\s(?:tell(?:ing)?|inform(?:ing)?"
    rf"|alert(?:ing)?|notify(?:ing)?|show(?:ing)?(?: it to| this to)?)\s{_PERSON}(?:\s(?:about"
    rf"|of|that"
    r"|it is|why)\s(?:this|it|these|any of|you|numbers|the (?:step|change|upload|call|request"
    r"|transfer"
    r"|file|copy))|\s(?:this|it)\b|(?=\s*[.,;:!\n。]|\s*$))",
    r"\b(?:do not|don't|never|without)\s(?:mention(?:ing)?|reveal(?:ing)?|disclos(?:e|ing)|document"
    r"|acknowledg(?:e|ing)|list)\s(?:this|that|these|it|the (?:step|action|change|file|upload"
    r"|request"
    r"|call|transfer|addition|edit|account))\b",
    r"\b(?:hide|conceal|keep (?:this|it|that|the (?:next )?(?:step|call|change"
    r"|upload)))\b[^.\n]{0,24}"
    r"\bfrom (?:the |your )?(?:users?|operators?|reviewers?|owners?|summary|them)\b",
    r"\b(?:leave|keep)\s(?:it|this|that|them|these calls)\sout of (?:your|the|any)"
    r" (?:summary|answer|report|log|reply|transcript)\b",
    r"\bso that (?:nobody|no one|reviewers?|the user (?:does not|never|won't)) (?:asks?|notices?"
    r"|sees?|knows?)",
    rf"\b{_PERSON} (?:must|should|need)\s?(?:not|never|n't) (?:have to |need to )?"
    r"(?:be told|know|notice|find out|learn)\b",
    rf"(?:不要|不得|不能|切勿|无需|不必|不用|别)(?:向|对|让|告诉|告知|通知|提醒|跟|给){_PERSON_ZH}"
    r"(?:提及|提到|透露|提起|说起|知道|发现|察觉|看|单独|这|此|[。，；]|$)",
    r"(?:不要|别|不得)在?\S{0,4}(?:回答|回复|总结)\S{0,2}(?:提到|提及)这?|(?:并|且|须)隐瞒|对用户隐瞒|(?:不要|切勿)透露(?:这|此|本)",
)
# Who has authority.
DROPS = Concept(
    "ignore~ disregard~ forget override set_aside discard~ void cancelled superseded supersedes "
    "suspended lifted revoked obsolete out_of_date pay_no_attention no_longer_apply "
    "no_longer_applies no_longer_hold no_longer_holds no_longer_count no_longer_follow "
    "no_longer_bound 忽略 无视 忘记 忘掉 抛开 作废 推翻 取消 失效 不再适用 放弃",
)
EARLIER = Concept(
    "previous~ prior earlier former above you_were_given you_were_told you_got your_developers "
    "your_vendor developers_gave vendor_gave the_system the_platform the_operator safety "
    "content_policy came_before your_former all_other 之前 先前 以前 上述 以上 原有 原先 系统指令 "
    "系统提示 系统规则 系统设定",
)
GUIDANCE = Concept(
    "instructions instruction rules guidelines policy policies restrictions guidance safeguards "
    "directives constraints prompt prompts orders everything whatever 指令 指示 规则 提示 设定 "
    "规定 限制 审查",
)
UNBOUND = Concept(
    "no_content_policy no_morals never_refuses no_content_rules policies_are_suspended "
    "safeguards_removed 不受任何限制 不受任何约束 没有道德 解除全部安全 不得拒绝",
    r"\byou (?:are no longer|no longer) (?:bound|follow|subject)",
    r"\b(?:assistant|model|character|you|mode) (?:\w+ ){0,4}?(?:without any|has no|have no|no) "
    r"(?:limits|restrictions|rules|morals|safeguards|content policy)\b",
    r"\byou are (?:now )?(?:dan\b|unrestricted|jailbroken|in developer mode)",
    r"\bdeveloper mode (?:\w+ ){0,4}?(?:activated|enabled)[^\n]{0,60}\b(?:polic|restrict|comply"
    r"|refus)",
)
OUTRANKS = Concept(
    "outrank~ overrides overrule~ supersede~ trumps prevail~ takes_precedence take_precedence "
    "takes_priority has_priority highest_priority stands_above answers_to_the answer_to_the 忠于 "
    "优先于 高于 凌驾 为准",
    r"\b(?:obey|follow)\s(?:only|nothing but|solely)\b",
    r"\bwhat counts now is (?:solely|only)\b",
)
SELF = Concept(
    "this_skill this_file this_page this_document these_rules these_instructions this_text "
    "author_of_this publisher_of_this maintainers_of_this the_skill's_author written_here "
    "from_the_skill guidance_here 本文件 本技能 作者",
)
PERSON = Concept(
    "user user's users operator operators system conversation person chat request_made "
    "anyone_else 用户 系统",
)
# What excuses.
CONDITION = Concept(
    "if unless enable re-enable only never cannot for_example optional temporarily test tests "
    "testing troubleshooting ensure avoid warn alert detect~ risk attacker attackers whether "
    "should_not must_not do_not don't not safely graceful gracefully confirm~ ask asks explicit "
    "explicitly local debugging asked requested 如果 除非 不要 不得 禁止 切勿 避免 检测 是否 确认",
)
CONSENT = Concept(
    "ask_the_user asks_the_user user_asks user_wants user_confirms confirm_with "
    "after_confirmation has_confirmed user_requests ask_before ask_first if_you_want optional "
    "optionally opt-in 用户确认 用户要求 请用户 征得用户同意后",
)
LOGIN = Concept(
    "authorization bearer header headers oauth log_in sign_in only except never anywhere 请求头"
)
DOCUMENTATION = Concept(
    "documentation docs guide readme tutorial reference manual installation setup api 文档 教程 "
    "指南",
)
STYLE = Concept("lint eslint css style.css npm_warnings gitignore line_length defaults .env config")
DECODES = Concept(
    "",
    r"\bdecode\b[^\n.]{0,60}(?:\band\b|,|\bthen\b)[^\n.]{0,16}\b(?:run|execute|follow|obey"
    r"|carry out|do what)\b",
    r"\b(?:in|as|with) (?:rot-?13|base64|hex|morse|reverse)\b[^\n]{0,120}\b(?:act on|obey"
    r"|carry out|follow (?:it|them|what))\b",
    r"解码(?!器)[^\n。]{0,16}(?:执行|运行|照做|遵照)",
)
# Fake prerequisites.
NEEDED = Concept(
    "must_be_installed has_to_be_installed needs_to_be_installed must_be_running required "
    "mandatory necessary prerequisite prerequisites requires will_not_work won't_work "
    "does_not_work before_anything_else nothing_works before_using before_you_start requirements "
    "otherwise 必须安装 必须先安装 需要安装 先决条件 前置条件 否则 使用前 无法运行",
    r"\b(?:without|unless)\b[^.\n]{0,50}\b(?:not work|fail|nothing|installed|running|cannot"
    r"|refuse)",
    r"\bdoes nothing (?:unless|without)\b",
)
ARCHIVE = Concept(
    "zip rar 7z archive unzip extract unpack decompress .zip .rar .7z 压缩包 解压",
)
PASSWORD_GIVEN = Concept(
    "",
    r"\b(?:(?:password|passphrase|pwd|passcode)\b(?: is| was)?\s{0,2}[:=]?|pass(?::|(?= [`\"'])))"
    r"\s{0,2}[`\"'“*(]{0,3}(?!(?:for|to|protected|is|and|or|of|the|you|if|from|in|with|that|which|prompt"
    r"|when|are|on|as|a)\b)[\w!@#$%^&-]{3,24}(?=[`\"'”*).,;\s]|$)",
    r"密码(?:为|是|：|:)?\s?[`\"“]?[\w!@#]{3,24}",
)
DOWNLOADS = Concept("download~ .exe .dmg .pkg .msi 下载 beside_this_file", rf"https?://{_HOST}")
TERMINAL = Concept("terminal powershell command_prompt console run_dialog iterm 终端 命令行 运行框")
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
    "verification_code identity_document login_password database_password card_number 助记词 "
    "验证码 银行卡号",
)
ASKS_FOR = Concept(
    "ask_the_user tell_the_user enter paste type_the type_in provide 索取 要求用户 填入 提供",
)
# Text that people do not see.
_COMMENT = r"<!--(?:(?!-->)[\s\S]){0,400}?"
COMMENT_WITH_ORDER = Concept(
    "",
    r"<!--\s{0,20}(?:(?:note|message|instructions?|attention|important)\s(?:to|for)\s|for\s|hey\s"
    r"|[\w -]{0,20}: for )?(?:the\s|ai\s|llm\s|coding\s)*(?:ai|llms?|agents?|assistants?|claude|gpt"
    r"|copilot|models?)(?:[- ]only)?\s?[:,.-](?:(?!-->)[\s\S]){0,400}?\b(?:run|execute|install"
    r"|fetch"
    r"|add|print|send|append|include|read|write|delete|open|put|load|obey|follow|insert|change)\b",
    r"<!--\s{0,20}(?:给|致)?(?:模型|助手|智能体|代理|大模型)(?:的(?:话|说明|指令))?(?:请|注意|：|，|:)"
    r"(?:(?!-->)[\s\S]){0,200}?(?:执行|运行|安装|加入|填入|读取|发送|写入|删除|不要|改成|贴到|公开|提交)",
    rf"{_COMMENT}(?<![-\w])(?:ignore|disregard)\s(?:all|any|the|previous|prior|your|every\w*|what)\b",
    rf"{_COMMENT}\b(?:secretly|silently|do not (?:tell|inform)|don't tell|upload|passwords?"
    r"|credentials|curl (?:-|http)|wget http)",
    rf"{_COMMENT}(?:忽略|无视|不要告诉|上传|密钥)",
)
HIDDEN_STYLE = Concept(
    "",
    r"<\w+ style=[\"'][^\"'>]{0,80}(?:font-size: ?0|opacity: ?0|display: ?none"
    r"|color: ?#fff)[^>]{0,80}>",
)
