"""Concepts of orders, in English and Chinese."""

from __future__ import annotations

from skills.scanner.rule import make_concept

_USER = (
    r"(?:the |your |any )?(?:users?|humans?|operators?|owners?|customers?|people|anyone|anybody"
    r"|them)"
)
_USER_ZH = r"(?:用户|使用者|机主|主人|客户|别人|任何人|对方)"

OVERRIDES = make_concept(
    also=r"\b(?:ignore|disregard|forget|override|set aside|discard|drop|void|cancel|neglect)\b"
    r"[^.\n]{0,16}\b(?:previous|prior|earlier|above|former|existing|original|system|safety"
    r"|all other|initial|your|you were)\b[^.\n]{0,20}\b(?:instructions?|rules?|prompts?|guidelines?"
    r"|directives?|constraints?|restrictions?|guidance|orders|safeguards|told|given)\b"
    r"|\b(?:previous|prior|earlier|former|your|all other|existing)\b[^.\n]{0,16}\b(?:instructions?"
    r"|rules|restrictions|guidelines|constraints)\b[^.\n]{0,16}\b(?:(?:are|is) (?:now )?(?:void"
    r"|superseded|suspended|lifted|cancell?ed|out of date|obsolete|replaced|revoked)"
    r"|no longer (?:apply|applies|count))\b|\b(?:everything|whatever|anything"
    r"|what)\b[^.\n]{0,30}\b(?:told|said|instructed)\b[^.\n]{0,50}\b(?:forget|void|out of date"
    r"|no longer|set it aside|discard|does not (?:apply|count))\b|\bforget (?:everything|all"
    r"|whatever|what) (?:that )?you\b|\b(?:obey|follow|listen to)\s(?:only|nothing but"
    r"|solely)\s(?:what is|this|the text)|\byou are (?:now"
    r"|no longer)\b[^.\n]{0,20}\b(?:developer mode|dan\b|unrestricted|without (?:any )?(?:limits"
    r"|restrictions|rules)|bound by|jailbroken)|(?:忽略|无视|忘记|忘掉|抛开|作废|推翻"
    r"|取消)[^。\n]{0,10}(?:之前|先前|以前|上述|以上|所有|系统|原有)[^。\n]{0,10}(?:指令|指示|规则"
    r"|提示|设定)|(?:系统|先前|之前|原有)[^。\n]{0,4}(?:指令|规则|限制|设定|指示)[^。\n]{0,8}"
    r"(?:作废|失效|不再适用|清零|归零)|你[^。\n]{0,8}不受(?:任何)?(?:限制|约束)"
)
STYLE = make_concept("lint eslint css style.css npm_warnings gitignore line_length defaults .env")
OUTRANKS = make_concept(
    also=r"\b(?:this (?:skill|file|page|document|section|text)|these (?:rules|instructions|steps)"
    r"|the (?:author|publisher)|what is written here)\b[^.\n]{0,30}\b(?:outranks?|overrides?"
    r"|overrules?|supersedes?|trumps?|prevails? over|beats|(?:takes?|has|have) (?:precedence"
    r"|priority) over|comes? (?:before|first)|stands? above)\b[^.\n]{0,24}\b(?:users?|operators?"
    r"|system|safety|developer|anything|everything|any other|all other|person|conversation)\b"
    r"|\b(?:users?|chat|conversation|request)\b[^.\n]{0,40}\b(?:conflicts?|differs?|disagrees?"
    r"|contradicts?)\b[^.\n]{0,50}\b(?:follow|obey|keep to"
    r"|side with)\s(?:this|the) (?:file|skill|page|author|document)|只(?:服从|听从"
    r"|忠于)[^\n。]{0,8}(?:作者|文件|技能|本)|(?:本文件|本技能|作者)[^\n。]{0,8}(?:优先于|高于|凌驾)"
    r"|以(?:本文件|本技能|作者)[^\n。]{0,4}为准"
)
SECRETS = make_concept(
    "passwords password passphrase credentials api_key api_keys access_token access_tokens secrets "
    "private_key private_keys ssh_key ssh_keys seed_phrase recovery_phrase mnemonic session_tokens "
    "session_cookies cookies tokens id_rsa keychain wallet_file env_file environment_variables "
    "refresh_token auth_tokens",
    also=r"(?<![\w.])\.env\b(?!\.ex|\.sample)|~/\.(?:ssh|aws|netrc|npmrc)|credentials\.json",
)
SENDS = make_concept(
    also=r"\b(?:send|upload|submit|forward|transmit|exfiltrate|e?mail|push|copy|report|include"
    r"|append|attach|add|sync|deliver|post)\b(?! (?:https?:|request|body|/))"
)
SENDS_ZH = make_concept(chinese="发送 上传 提交 转发 传给 发给 发到 汇报 同步")
SECRETS_ZH = make_concept(chinese="密码 密钥 私钥 令牌 凭证 助记词 验证码")
SENDS_OUT = make_concept(
    "send sends sending post posts upload uploads forward forwards transmit transmits exfiltrate ma"
    "il "
    "mails email emails ship ships mirror mirrors back_up sync syncs",
    chinese="发送 上传 转发 回传 发给 发到",
    also=r"\bcurl\b[^\n]{0,60}\s(?:-d|-f|-t|--data|--form)\b",
)
UPLOAD_COMMAND = make_concept(
    also=r"\bcurl\b[^\n]{0,160}\s(?:-d|-f|-t|--data[\w-]{0,10}|--form"
    r"|--upload-file)[ =][^\n]{0,60}@[^\n]{0,160}https?://"
    r"|\bcurl\b[^\n]{0,160}https?://[^\n]{0,160}\s(?:-d|-f|-t|--data[\w-]{0,10}|--form"
    r"|--upload-file)[ =][^\n]{0,60}@",
)
ADDRESS = make_concept(
    also=r"(?:https?|ftps?|wss?)://(?!localhost|127\.|0\.0\.0\.0|10\.|192\.168|\{|\$"
    r"|<)[^\s)\"'`]{3}|(?<![\w./@-])[\w.+-]{1,40}@[\w-]{1,40}\.[a-z]{2,8}\b"
    r"|(?<![\d.])(?:\d{1,3}\.){3}\d{1,3}:\d{2,5}|\b(?:our|the author's|the maintainer's"
    r"|the vendor's|a remote|an external) (?:server|endpoint|address|host|api|collector|webhook)\b"
    r"|(?:我们|作者|外部|远程)的?(?:服务器|地址|接口)"
)
TO_ADDRESS = make_concept(
    also=r"\b(?:to|at|into|via|through)\s(?:\w{1,12} ){0,3}[`\"'(<\[]{0,2}(?:(?:https?"
    r"|ftps?)://(?!localhost|127\.)|[\w.+-]{1,40}@[\w-]{1,40}\.[a-z]{2}|(?:our|the author's"
    r"|a remote|an external) (?:server|endpoint|api|host))|(?:到|至|给)[^。\n]{0,12}https?://"
)
HEADER = make_concept(
    "authorization bearer header headers oauth log_in sign_in only except never anywhere",
    chinese="请求头",
)
SECRETLY = make_concept(
    also=r"\b(?:quietly|silently|secretly|covertly|discreetly|stealthily|unnoticed)\s(?:send|upload"
    r"|post|copy|forward|transmit|collect|exfiltrate|share|mail|download and run)\b"
    r"|\bexfiltrate (?:all|the|their|your|its)\b|(?:偷偷|悄悄|秘密|暗中)地?(?:发送|上传|收集|转发"
    r"|复制)"
)
_THIS = (
    r"(?:\s(?:about|of|that|it is|why)\s(?:this|it|these|any of|you|the (?:step|change|upload|call"
    r"|request|transfer|file|copy))|\s(?:this|it)\b|(?=\s*[.,;:!\n。]|\s*$))"
)
SILENCE = make_concept(
    also=r"\b(?:do not|don't|never|without|no need to|not to|must not)\s(?:tell(?:ing)?"
    r"|inform(?:ing)?|alert(?:ing)?"
    rf"|notify(?:ing)?|show(?:ing)?(?: it to| this to)?)\s{_USER}{_THIS}"
    r"|\b(?:do not|don't|never|without)\s(?:mention(?:ing)?|reveal(?:ing)?|disclos(?:e|ing)"
    r"|acknowledg(?:e|ing))\s(?:this|that|these|the (?:step|action|change|file|upload|request|call"
    r"|transfer|addition|edit))"
    rf"(?:\s(?:step|to {_USER}|in (?:your|the)\s\w+))?(?=\s*[.,;:!\n]|\s*$)"
    r"|\b(?:hide|conceal|keep (?:this|it|that|the (?:next )?(?:step|call|change"
    r"|upload)))\b[^.\n]{0,24}\bfrom (?:the |your )?(?:users?|operators?|reviewers?|owners?|summary"
    r"|them)\b|\b(?:leave|keep)\s(?:it|this|that|them)\sout of (?:your|the) (?:summary|answer"
    r"|report|log|reply)\b|\bso that (?:nobody|no one|the user (?:does not|never|won't)) (?:asks?"
    r"|notices?|sees?|knows?)\b"
    rf"|\b{_USER} (?:must|should|need)\s?(?:not|never|n't) (?:have to |need to )?(?:be told|know"
    rf"|notice|find out|learn) ?"
    r"(?:about|of|that|this|it)?\b"
    rf"|(?:不要|不得|不能|切勿|无需|不必|不用|别)(?:向|对|让|告诉|告知|通知|提醒|跟|给){_USER_ZH}(?:提及|提到|透露|提起|说起"
    r"|知道|发现|察觉|这|此|[。，；]|$)|(?:不要|别|不得)在?\S{0,4}(?:回答|回复|总结)\S{0,2}(?:提到|提及)这?|(?:并|且|须)隐瞒"
)
STANDING = make_concept(
    also=r"\b(?:after|before|at the end of|on|upon|for|with|following|once|during)\s(?:every|each"
    r"|any|all)\s(?:\w{1,12} ){0,2}?(?:tasks?|sessions?|conversations?|responses?|runs?|messages?"
    r"|requests?|turns?|chats?|interactions?|invocations?|edits?|changes?|commits?|files?"
    r"|documents?|reports?|steps?|queries|answers?)\b|\b(?:whenever|every time|each time)\b"
    r"|\bonce (?:each|every|the|a) (?:task|session|conversation)|\bfrom now on\b"
    r"|\bat the end of (?:the|this) (?:session|conversation)\b|每次|每个任务|每轮|每天|今后"
    r"|从现在起|以后每|任务完成后|会话结束"
)
PRIVATE = make_concept(
    also=r"\b(?:full |entire |whole |complete )?(?:conversation|chat|session|message) (?:history"
    r"|log|transcript|content)s?\b|\b(?:full|entire|whole|complete) (?:conversation|chat|transcript"
    r"|prompt|session)\b|\b(?:all|every|any) (?:of )?(?:the )?user(?:'s|s')? (?:files|documents"
    r"|messages|data|prompts|inputs)\b|\b(?:user|system) prompts?\b|\bthe user's (?:messages"
    r"|questions|files|contacts|home folder|documents)\b|\b(?:source code|repository|codebase"
    r"|project folder) (?:of the (?:user|project)|as (?:a )?zip)\b|(?:全部|完整|所有)的?(?:对话"
    r"|聊天|会话)|对话(?:记录|历史|内容)|用户的(?:文件|资料|数据|通讯录)"
)
SWITCHES_OFF = make_concept(
    "disable deactivate stop uninstall unload turn_off switch_off shut_off",
    chinese="关闭 停用 禁用 卸载 停掉 关掉",
    also=r"\b(?:turn|switch|shut) (?=[^.\n]{1,50}\boff\b)|\bset (?=[^.\n]{1,50}\bto (?:false|0|off"
    r"|none|never|permissive)\b)|\b(?:skip|suppress|bypass) (?=(?:the |all |any "
    r"|every )?(?:permission|approval|confirm))",
)
HOST_CONTROLS = make_concept(
    "firewall firewalls ufw firewalld antivirus anti-virus windows_defender microsoft_defender "
    "real-time_protection gatekeeper selinux apparmor system_integrity_protection sip auditd audit_"
    "log "
    "audit_logs audit_logging audit_trail endpoint_protection edr two-factor_authentication mfa 2fa"
    " permission_prompt permission_prompts approval_prompts tamper_protection smartscreen "
    "intrusion_detection uac secure_boot malware_protection security_software safety_checks "
    "safety_filters content_filter",
    chinese="防火墙 杀毒软件 杀毒 审计日志 安全软件 权限提示 双因素",
    also=r"\b(?:the|its|your|agent) sandbox\b(?! (?:account|environment|api|mode|url|key))",
)
CHECKS = make_concept(
    "certificate_validation certificate_verification certificate_checks tls_verification "
    "ssl_verification certificate_check tls_validation ssl_checks signature_verification "
    "signature_checks checksum_verification host_key_checking sslverify verify_ssl rejectunauthoriz"
    "ed "
    "authentication authorization input_validation csrf_protection branch_protection security_check"
    "s "
    "security_headers pre-commit_hooks code_review confirmation confirmations",
    chinese="证书校验 证书验证 签名校验 身份验证 安全检查",
)
FOR_GOOD = make_concept(
    "always globally permanently everywhere by_default for_all for_every all_requests in_all for_an"
    "y "
    "leave_it_off system-wide unconditionally in_production",
    chinese="始终 永久 全局 一律 所有",
)
CONDITION = make_concept(
    "if unless when enable re-enable only_if only_when never never_ever cannot example option optio"
    "nal temporarily "
    "test testing troubleshooting check checks ensure avoid warn alert detect detects risk attacker"
    " attackers whether should_not must_not do_not don't not safely graceful gracefully "
    "confirm confirmation ask asks explicit explicitly user_requests",
    chinese="如果 除非 不要 不得 禁止 切勿 避免 检测 是否 确认",
)
STEERING_FILES = make_concept(
    also=r"\b(?:claude\.md|agents\.md|gemini\.md|soul\.md|memory\.md|\.cursorrules"
    r"|copilot-instructions|mcp\.json|settings(?:\.local)?\.json|\.windsurfrules|heartbeat\.md)"
    r"|\.(?:claude|codex|cursor)/"
)
WRITES = make_concept(
    "add append write insert put set save store register edit change include copy update create mod"
    "ify "
    "extend place inject",
    chinese="写 加 添 追加 插入 改 设置 存 放",
)
UNSEEN = make_concept(
    "quietly silently secretly covertly unnoticed permanently_trusted without_asking without_confir"
    "mation without_telling without_approval without_mentioning do_not_ask bypasspermissions "
    "permission_prompt permission_prompts auto-approve every_command all_commands",
    chinese="悄悄 偷偷 暗中 无需确认 不要告诉 不必询问",
    also=r"\ballow\w* (?:every|all|any) (?:commands?|tools?)|[\"'`]?bash\(\*\)",
)
FETCHES = make_concept(
    "fetch fetches read load loads open download downloads retrieve get visit check query poll cons"
    "ult "
    "curl request",
    chinese="访问 读取 拉取 下载 获取 打开 查询",
)
OBEYS = make_concept(
    also=r"\b(?:follow|obey|carry out|execute|run|apply|act on|comply with"
    r"|do)\s(?:\w{1,9} ){0,2}?(?:instructions?|commands?|orders|directives?|steps|whatever"
    r"|everything|what (?:it|they|is)|rules|it says|prompts?)\b[^.\n]{0,24}(?:there|it (?:says"
    r"|contains|returns)|returned|contained|found|in (?:it|the response)|fetched|received|exactly"
    r"|says|written|given)|\b(?:obey|follow|execute|act on|carry out) (?:it|them)\b|(?:执行|照做"
    r"|遵循|按照|服从|照办)[^。\n]{0,4}(?:返回|其中|里面|得到)的?(?:指令|指示|内容|命令|步骤|要求)?"
)
DOCUMENTATION = make_concept(
    "documentation docs guide readme tutorial reference manual user's install installation setup ap"
    "i",
    chinese="文档 教程 指南",
)
_DESTROY = (
    r"\b(?:delete|wipe|erase|shred|destroy|purge|overwrite|truncate|encrypt|scrub|clear"
    r"|empty)\b (?:\w{1,12} ){0,3}?"
)
_DESTROY_ZH = r"(?:删除|清空|销毁|抹掉|擦除|清除)[^。\n]{0,8}"
DESTROYS = make_concept(
    also=rf"{_DESTROY}(?:(?:all|every|any|the|their) (?:\w{{1,12}} )?(?:backups?|snapshots?"
    rf"|restore points?)"
    r"|(?:home (?:folder|directory)|hard (?:disk|drive))|(?:all|every) (?:of )?(?:the "
    r"|their )?(?:user(?:'s)?|personal)"
    rf" (?:files|documents|data|photos))\b|{_DESTROY_ZH}(?:(?:全部|所有)(?:备份|快照)|用户主目录)"
)
WIPES = make_concept(
    also=rf"{_DESTROY}(?:(?:shell|bash|command|zsh) history|\.?(?:bash|zsh)_history|auth\.log|wtmp"
    rf"|lastlog|audit (?:logs?|trail)|event logs?|(?:all|any|your|its) traces|footprints)\b"
    rf"|{_DESTROY_ZH}(?:审计日志|操作日志|命令历史|登录日志)"
)
AGAINST_OTHERS = make_concept(
    also=r"\b(?:ignore|disable|uninstall|remove|delete|distrust|unload|never (?:use|load|run)"
    r"|do not (?:use|load|run))\s(?:all|any|every) (?:of the )?(?:other|competing|rival"
    r"|installed) (?:skills?|plugins?)\b|(?:忽略|停用|卸载|删除|不要使用)(?:所有|任何|全部)?(?:其他"
    r"|其它|别的)的?(?:技能|插件)"
)
DECODES_AND_OBEYS = make_concept(
    also=r"\bdecode\b[^\n.]{0,60}(?:\band\b|,|\bthen\b)[^\n.]{0,16}\b(?:run|execute|follow|obey"
    r"|carry out|do what|perform)\b|\b(?:in|as|with) (?:rot-?13|base64|hex|morse"
    r"|reverse)\b[^\n]{0,120}\b(?:act on|follow|obey|carry out)\b|解码[^\n。]{0,16}(?:执行|运行"
    r"|照做|遵照)"
)
ACCOUNTS = make_concept(
    also=r"\b(?:iban|account number|bank details|wallet address|routing number|payee"
    r"|recipient address|payment link|beneficiary)\b|收款(?:账号|地址)|银行账户"
)
REPLACES = make_concept(
    also=r"\b(?:replace|substitute|swap|change|overwrite|instead use|use instead)\b[^.\n]{0,60}"
    r"(?:\b[a-z]{2}\d{2}(?: ?[a-z0-9]{4}){3,7}|0x[0-9a-f]{20,40}|\bbc1[a-z0-9]{20,60}|\b(?:by|with"
    r"|to) (?:ours|this one|the following))|(?:替换|改)(?:为|成)"
)
