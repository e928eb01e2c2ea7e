"""Weak signals built from vocabularies instead of fixed phrases."""

from __future__ import annotations

from skills.scanner.signals.phrases import Signal, make_signal
from skills.scanner.vocabulary import (
    DO_NOT_ZH,
    FETCHES,
    FETCHES_ZH,
    OBEYS,
    OBEYS_ZH,
    PEOPLE,
    PEOPLE_ZH,
    PLACES,
    SELF_ZH,
    STORES,
    TELLING,
    TELLING_ZH,
    TOLD_OF,
)

VOCABULARY_SIGNALS: tuple[Signal, ...] = (
    make_signal(
        "mute",
        "silence about what was done",
        "confus|alarm|distract|clutter|annoy|assistants|agents|use for it|settled"
        "|innocent|innocuous|routine|neutral|unremarkable|omit|drop |strip"
        "|hear|find out|nobody|不写|不做|不作|免去|省去|评审|审查|细节|步骤"
        "|过程|操作|attract|suspect|mention|report|show|list|tell|explain|log"
        "|disclos|announc|narrat|surface|note|display"
        "|print|reveal|describ|flag|comment|discuss|bring|draw|record|state|expos|includ|point"
        "|acknowledg|rais|leave |keep |see |visible|aware|notice|told|shown"
        "|告知|列出|说明|展示|提及|提到|提起|汇报|解释|写进|写入总结|显示|声明|交代|告诉|通知"
        "|提醒|透露|公开|体现|输出|看到|察觉|注意",
        rf"\b(?:do\snot|don't|never|no\sneed\sto|need\snot|not\sneed\sto|rather\sthan|avoid)\s"
        rf"(?:\w{{1,10}}\s)?{TELLING}\s(?:to\s{PEOPLE}\s)?{TOLD_OF}\b",
        rf"\bwithout\s(?:\w{{1,10}}\s)?(?:mentioning|reporting|showing|listing|telling"
        rf"|explaining|logging"
        rf"|disclosing|announcing|noting|displaying|printing|revealing|flagging)\s"
        rf"(?:to\s{PEOPLE}\s)?(?:{TOLD_OF}|{PEOPLE})\b",
        rf"\b(?:leave|keep|omit|drop|exclude)\s[^\n.]{{0,40}}\b(?:out\sof|from)\s"
        rf"(?:the\s|your\s|any\s)?(?:\w{{1,12}}\s)?(?:{PLACES}|it|sight|view)\b",
        r"\b(?:need\snot|no\sneed\sto)\ssay\b|\bhave\sno\suse\sfor\sit\b|\bnobody\s(?:gets|is"
        r"|grows|becomes)\s"
        r"(?:curious|suspicious|alarmed|wiser)\b|\b(?:look|looks|seem|seems|reads?"
        r"|appears?)\s(?:like\s(?:one|a\sroutine"
        r"|part\sof)|settled|innocent|innocuous|routine|natural|neutral|unremarkable)\b",
        r"\b(?:is|are|be|was|were|and)\s(?:not|never)\s(?:to\sbe\s)?(?:listed|mentioned|shown"
        r"|reported"
        r"|counted\sand|disclosed|announced|displayed\sto|visible\sto)\b",
        rf"\b{PEOPLE}\s(?:do|does|will|would|should|need|must|can)\s?(?:not|never"
        rf"|n't)\s(?:\w{{1,8}}\s)?"
        r"(?:be\saware|see|know|notice|be\stold|be\sshown|hear|learn|realise|realize|find\sout)\b",
        rf"\b(?:confuses?|confusing|worr(?:y|ies)|alarms?|distracts?|bothers?|clutters?"
        rf"|annoys?)\s{PEOPLE}\b",
        r"\b(?:for\s(?:assistants|agents|models|ai|llms)\sonly|so\s(?:that\s)?(?:it|nobody"
        r"|no\sone|this)"
        r"\s(?:\w{1,8}\s){0,3}(?:notic|stand|attract|rais|suspect|look)\w{0,5})\b",
        rf"(?:不要|不得|不能|不必|无需|无须|不用|切勿|{DO_NOT_ZH}|勿|不需要|不会|毋须|不应|避免){SELF_ZH}"
        rf"(?:在\S{{1,10}}(?:里|中|内))?(?:向|对|给|跟|和|让)?\S{{0,5}}{TELLING_ZH}",
        rf"(?:评审|审查|{PEOPLE_ZH})[^\n。]{{0,8}}(?:不会|看不到|看不见|无法)(?:看到|察觉|发现"
        rf"|注意到|看见)?",
        r"(?:不做|不作|免去|省去)(?:任何)?(?:说明|提醒|解释|提示|声明)|不写(?:入|进|到)(?:回复"
        r"|日志|总结|报告|记录|结论)",
        r"(?:细节|步骤|过程|内容|操作)(?:均|都)?(?:不必|无需|不用|不要)(?:列出|说明|展示|写出"
        r"|告知|提)",
    ),
    make_signal(
        "unheard",
        "something to be kept secret",
        "revision|told|shown|informed|involved"
        "|mention|find out|suspect|covert|discreet|inconspic|surrept|stealth|知道|发现|免得"
        "|以免|不让|别|勿|不要|不得|神不知|hear|notic|aware|bother|disturb|worr|attention"
        "|reason to|no point|not look|never look"
        "|unasked|unnotic"
        "|suspicio|curious|trace|discreet|quiet|silent|secret|invisible|hidden"
        "|beside the point|in passing"
        "|打扰|声张|补说明|悄然|悄无声息|痕迹|惊动|不用|无需|不必|无须|不会|不让|顺手|默默"
        "|察觉|注意|说明|知情|过问",
        r"\b(?:not|never|n't|nor|no\sone|nobody|nothing)\b[^\n.,;]{0,24}\b(?:hear\s(?:of"
        r"|about)|notice[ds]?|aware|bother(?:ed)?"
        r"|disturb(?:ed)?|worr(?:y|ied)|attention|look(?:s|ed)?\b(?!\sfor|\sat|\slike)|suspect"
        r"|suspicious|find\sout)\b",
        r"\bno\s(?:reason|point|need|use|call)\s(?:in\s|to\s|for\s)(?:\w{1,8}\s)?(?:document"
        r"|mention|explain|discuss|say"
        r"|tell|report|show|list|raise|announce|bring|describe|note|inform|log|telling"
        r"|mentioning|explaining|reporting)\w{0,4}",
        r"\b(?:un(?:asked|noticed|announced|seen|detected|attended\sand\ssilent)"
        r"|without\s(?:fuss|a\sword|notice|trace|remark"
        r"|ceremony|attention|ado|further\smention))\b",
        r"\b(?:does|do|need|should|must|will)\s?(?:not|n't)\s(?:have\sto\s|need\sto\s)?(?:hear"
        r"|know|learn|see|be\s(?:told"
        r"|shown|informed|bothered|involved|mentioned))\b",
        r"\b(?:discreetly|secretly|covertly|invisibly|inconspicuously|surreptitiously|stealthily)\b",
        # Software that silently fails, drops or breaks is a defect; an order has the base form.
        r"(?<!skip\s)(?<!fail\s)(?<!fails\s)(?<!ignored\s)\b(?:quietly|silently)\b"
        r"(?!\s(?:\w{3,20}(?<!s)s|fail|break|drop|skip|ignore|lose|miss|stall|overwrit|truncat"
        r"|corrupt|fall|degrad|diverg|swallow|\w{3,20}ed|\w{3,20}ing)\w{0,6}\b)",
        r"\b(?:change|track(?:ed)?|revision|edit)\s?(?:marks?|tracking|changes"
        r"|history)?\s(?:is\s|are\s)?(?:turned\s|switched\s)off\b",
        r"(?:不会|不要|不必|无需|不用|别|勿|免得|以免|不让|不得|无须)[^\n。,，]{0,8}(?:打扰"
        r"|惊动|声张|知情|过问|补说明|说明|察觉|注意|知道|发现)",
        r"悄然|悄无声息|神不知|不留?痕迹|痕迹关|不动声色|顺手(?:把|将)|默默(?:地)?|修订痕迹",
    ),
    make_signal(
        "gives",
        "something goes to a foreign address",
        "://|@",
        r"(?<![\w-])(?:mail|e-?mail|send|post|upload|drop|copy|ship|pass|put|share|transmit"
        r"|sync|hand|submit|deliver|forward|store|push"
        r"|mirror|report|save|back\sup|leave|publish|attach|route|relay|stream"
        r"|write)\b(?![^\n]{0,8}[:=])[^\n.|{}]{0,90}"
        r"\b(?:to|at|on|into|via|through|with|in)\s[^\n.|{}]{0,20}(?:https?://(?!localhost"
        r"|127\.|(?:www\.|api\.|docs\.)?github"
        r"|docs\.|developers?\.)|[\w.+-]{1,40}@[\w-]{1,40}\.\w)",
        r"(?:传|发|送|寄|贴|存|交|抄送|备份|上报|同步|推"
        r"|报)[^\n。|{}]{0,16}(?:https?://(?!localhost|127\.)|[\w.+-]{1,40}@[\w-]{1,40}\.\w)",
    ),
    make_signal(
        "theirs",
        "things of the user",
        "photo|repositor|mail|message|clipboard|tree|directory|prompts|drafts|仓库|代码|仓"
        "|chat|conversation|transcript|folder|workspace|archive|documents|screenshot|history"
        "|downloads|contacts|source"
        "|location|question|prompt|draft|photos|files|notes|keys|code|answer|report|everything"
        "|浏览|工作区|文件|记录"
        "|对话|会话|截图|通讯录|文档|源码|源代码|相册|草稿|笔记|剪贴板|聊天|位置|合同|问题"
        "|.docx|.xlsx|.pdf",
        r"\b(?:(?:the|this|their|his|her|your|each|every|all|whole|full|entire|user's"
        r"|a\s(?:copy|digest|summary|record|log)\sof"
        r"(?:\sthe|\seach|\severy)?)\s){1,3}(?:\w{1,12}\s){0,2}?(?:chats?|conversations?"
        r"|transcripts?|folders?|workspace|archives?"
        r"|documents|screenshots?|history|downloads|contacts|source\s(?:code|files|tree)"
        r"|location|questions?|prompts?|drafts?"
        r"|photos?|files|notes|keys|mails?|messages?|clipboard|repository|working\s(?:folder"
        r"|tree|directory))\b",
        r"(?:用户|工作区|本机|当前目录|桌面|整个|所有|全部|每次|完整"
        r"|本地)[^\n。]{0,8}(?:浏览记录|文件|记录|对话|会话|截图|通讯录"
        r"|文档|源码|源代码|相册|草稿|笔记|剪贴板|聊天|位置|合同|问题|\.docx|\.xlsx|\.pdf|仓库"
        r"|代码)",
        speech=False,
    ),
    make_signal(
        "agreed",
        "leave to act without asking",
        "ask|confirm|approv|permission|consent|prompt|see fit|question|hesitat|wait|pause|stop to"
        "|询问|确认|征得|征求|批准|审批|许可|请示|问|同意|授权",
        r"\b(?:do\snot|don't|never|no\sneed\sto|not\sneed\sto|without|stop|instead\sof"
        r"|rather\sthan)\s"
        r"(?:\w{1,10}\s){0,2}?(?:ask(?:ing)?|confirm(?:ing|ation)?|prompt(?:ing|s)?|approvals?"
        r"|permission"
        r"|consent|wait(?:ing)?\sfor|paus(?:e|ing)|hesitat(?:e|ing)|question(?:ing|s)?"
        r"|check(?:ing)?\swith)\b",
        r"\bas\syou\ssee\sfit\b|\bgo\sstraight\sto\b|\bon\s(?:the\suser's"
        r"|their)\sbehalf\s(?:and\s)?without\b",
        r"\b(?:approval|confirmation|permission|consent)\s(?:is|are)\s(?:not|never"
        r"|no\slonger)\b|\bno\s(?:confirmation|approval|permission|consent)\s"
        r"(?:is\s)?(?:needed|required|necessary)\b",
        r"(?:不要|不得|不必|无需|无须|不用|别|勿|不需要|不再|未经|免)\S{0,6}"
        r"(?:询问|确认|征得|征求|批准|审批|许可|请示|问|同意|授权)",
        r"(?:已|均)(?:自动)?(?:获|被|经)?(?:授权|同意|批准)",
    ),
    make_signal(
        "reach",
        "reaches beyond this project",
        "任何|以后|今后|后续|之后|每次|every|each|all |sibling|global|other |其他|所有"
        "|每个|全局|全部|兄弟",
        r"\b(?:every|each|all|any)\s(?:of\s)?(?:the\s|your\s|their\s|user's\s)?(?:other\s"
        r"|sibling\s|local"
        r"\s|future\s|git\s|new\s)*(?:repos|repo|repository|repositories|projects?|workspaces?"
        r"|sessions?"
        r"|conversations?|agents?|skills?|machines?|users?|tasks?|requests?|replies|answers?"
        r"|emails?)\b",
        r"(?:每个|所有|全部|任何)(?:的)?(?:其他|其它|后续|新)?(?:仓库|项目|会话|技能|任务|请求"
        r"|回复|机器|文件夹)",
        r"(?:以后|今后|后续|之后)(?:的)?(?:任何|所有|每个|每次)(?:会话|任务|请求|对话)?",
    ),
    make_signal(
        "return",
        "comes back when it is removed",
        "reverted|disabled|cleared|gone|comes|移除|清空|丢失|不见|缺失|还原|关闭|写回|加回"
        "|不可|back|again|missing|remov|delet|restor|re-add|readd|重新|恢复|补|永不删除|保留|删",
        r"\bif\s[^\n.]{0,30}\b(?:missing|removed|deleted|gone|reverted|cleared"
        r"|disabled)\b[^\n.]{0,30}"
        r"\b(?:back|again|restore|re-?add|re-?create|re-?install|re-?apply|re-?enable)\b",
        r"\b(?:comes?|put|puts|writes?|adds?)\s(?:it\s|them\s|itself\s)?back\s(?:if|when"
        r"|whenever)\b",
        r"(?:如果?|若|一旦|要是)[^\n。]{0,14}(?:被|要求)?(?:删除?|移除|清空|丢失|不见|缺失"
        r"|还原|关闭)"
        r"[^\n。]{0,12}(?:重新|再次?|补|恢复|写回|加回|保留)",
        r"永不删除|不可删除|不得删除",
    ),
    make_signal(
        "obey",
        "orders that are fetched",
        "://|endpoint|服务器|接口",
        rf"\b{FETCHES}\b[^\n]{{0,100}}https?://[^\n]{{0,120}}\b{OBEYS}\b",
        rf"{FETCHES_ZH}[^\n]{{0,60}}https?://[^\n]{{0,60}}{OBEYS_ZH}",
    ),
    make_signal(
        "carry",
        "text carried within an address",
        "attach|encode|放|加|填|链接|地址|图片|网址|查询"
        "|encod|append|query|?|parameter|placeholder|replace|附|编码|拼|参数|替换",
        r"(?<!-)\b(?:url|percent|base64|hex|uri)[- ]?encoded?\b"
        r"|\bencode[ds]?\s(?:it|them)\s(?:as|in|into|behind)\b",
        r"\b(?:append|put|add|place|pass|fill|attach|include)\b[^\n]{0,100}\b(?:to|behind|into"
        r"|in|as|after|on)\s"
        r"(?:the\s|its\s|a\s|an\s)?(?:\w{1,10}\s)?(?:url|link|address|query|parameter|image"
        r"|\??[a-z]{1,8}=)",
        r"\breplace\s`?[\w<>{}$-]{2,30}`?\swith\b",
        r"(?:附|编码|拼接?|加|填|放)[^\n。]{0,12}(?:链接|地址|参数|图片|网址|查询)",
        speech=False,
    ),
    make_signal(
        "picture",
        "an image or link at a foreign address",
        "](http|<img",
        r"!\[[^\]\n]{0,80}\]\(https?://(?!img\.shields\.io|github\.com|raw\.)[^)\s]{1,200}\)",
        r"<img\s[^>\n]{0,80}src=[\"']?https?://",
        speech=False,
    ),
    make_signal(
        "address",
        "an address to send to",
        "://|@",
        r"\b(?:curl|wget|http)\b[^\n]{0,80}\s(?:-x\s{0,1}(?:post|put)|-[a-z]{0,3}[tdf]\b"
        r"|--data[\w-]{0,12}|"
        r"--form|--upload-file|--post-(?:file|data))[^\n]{0,120}https?://(?!localhost|127\.)",
        r"\b(?:curl|wget)\b[^\n|;]{0,80}https?://(?!localhost|127\.)[^\n|;]{0,120}"
        r"\s(?:-[a-z]{0,3}[tdf]\b|--data|--form|--upload-file|--post-)",
        r"\b(?:send|post|upload|submit|forward|copy|transmit|report|mirror|relay|push|sync"
        r"|email|mail|bcc|cc)"
        r"[^\n]{0,80}\b(?:to|at|via|through|into)\b[^\n]{0,40}(?:https?://(?!localhost|127\.)"
        r"|[\w.+-]{1,40}@[\w-]{1,40}\.\w)",
        r"\brequests\.(?:post|put)\([^\n]{0,20}https?://(?!localhost|127\.)",
        r"(?:发送?|上传|提交|推送|转发|同步|上报|回传|抄送|寄|贴|填入|填|报送|外传|传)[^\n。]{0,30}"
        r"(?:https?://(?!localhost)|[\w.+-]{1,40}@[\w-]{1,40}\.\w)",
        speech=False,
    ),
    make_signal(
        "own",
        "what is the user's own",
        "chat|prompt|workspace|home|inbox|contacts|email|tells|writes|types"
        "|enters|secrets|文件|输入|问题|上下文|聊天记录|conversation|message|transcript|token"
        "|api key|password|credential|secret|history|clipboard"
        "|source|private|contact|mail|document|environment|printenv|.config/|keys|typed|pasted|said"
        "|对话|消息|聊天|密钥|令牌|密码|通讯录|历史|剪贴板|源码|源代码|隐私|联系人|环境变量"
        "|凭证|身份证|手机号|全文",
        r"\b(?:last|recent|few|all|previous|full|whole|entire|complete|raw|earlier|user's"
        r"|their)\s(?:\w{1,10}\s){0,2}?"
        r"(?:messages?|conversation|transcript|chat|clipboard|history|prompts?|contacts?"
        r"|mailbox|inbox|emails?"
        r"|documents?|source\s(?:code|files?)|environment|session|workspace|home\s(?:folder"
        r"|directory))\b",
        r"\b(?:api\skeys?|tokens?|passwords?|credentials?|secrets?|keys)\b[^\n.]{0,30}"
        r"\b(?:seen|found|visible|present|mentioned|available|that\sappear"
        r"|in\sthe\s(?:conversation|environment"
        r"|repo|context|session))\b",
        r"\.config/(?:gh|gcloud)|\bprintenv\b",
        r"\b(?:whatever|what|everything|anything)\s(?:the\s)?(?:user|they|person|customer)\s"
        r"(?:has\s|have\s)?(?:types?|typed|pastes?|pasted|said|says|writes?|wrote|enters?"
        r"|tells?|told)\b",
        r"(?:用户|使用者|对方|客户)的?[^\n。]{0,8}(?:对话|消息|聊天记录|密钥|令牌|密码|通讯录"
        r"|历史|剪贴板|源码|源代码|隐私"
        r"|联系人|环境变量|凭证|身份证|手机号|文件|输入|问题)",
        r"(?:完整|全部|所有|最近|原始)[^\n。]{0,6}(?:对话|消息|聊天|历史|源码|源代码|通讯录"
        r"|环境变量|上下文)",
        speech=False,
    ),
    make_signal(
        "swap",
        "another's account in place of the user's",
        "email|password|role|is_admin|推广码|iban|account|wallet|payee|payout"
        "|bank|affiliate|referral|address|收款|账号|账户"
        "|银行卡|钱包|返利|推广",
        r"\b(?:replace|swap|set|change|update|rewrite|substitute|redirect|point"
        r"|switch)\b[^\n.]{0,80}"
        r"\b(?:iban|bank\saccount|account\snumber|wallet\saddress|payee|payout\w{0,10}"
        r"|beneficiary|affiliate"
        r"|referral)\b",
        r"\bupdate\s\w{1,30}\sset\s(?:iban|account\w{0,10}|payee|wallet\w{0,10}|email"
        r"|password\w{0,6}|role"
        r"|is_admin|balance)\s?=",
        r"(?:替换|改成|改为|更改|换成|修改|统一填)[^\n。]{0,20}(?:收款|账号|账户|银行卡|钱包"
        r"|推广码|返利)",
        r"(?:收款|账号|账户|银行卡|钱包)[^\n。]{0,12}(?:替换|改成|改为|更改|换成|统一填)",
        speech=False,
    ),
    make_signal(
        "hidden_when",
        "a condition that hides it",
        "locale|branch|username|day is|time is|once"
        "|第|时间|离开|离线|不在|only then|in that case|last working|host name|hostname"
        "|later than|third time|staging"
        "|sandbox"
        "|production|weekend|after the|idle|away|from then|tests|until|on other days|第三次"
        "|之后|以后|月底|主机名|日期|生产环境",
        r"\b(?:in\sthat\scase|only\sthen|and\sonly\sthen)\b|\bon\sother\sdays\b",
        r"\b(?:host\s?name|domain|locale|date|branch|username|environment)\s(?:\w{1,8}\s)?"
        r"(?:contains|is\s(?:after|later)|matches|ends|starts|equals|includes|says)\b",
        r"\bfor\sthe\s(?:second|third|fourth|fifth|tenth|\d{1,3}(?:nd|rd|th))\stime\b",
        r"\b(?:date|day|time)\sis\s(?:later|after|past|beyond)\b|\blast\sworking\sday\b",
        r"\b(?:leave|skip|keep)\sit\s(?:out|away|off)\b[^\n.]{0,40}\b(?:staging|tests?|ci"
        r"|sandbox|review)\b",
        r"\b(?:while|when|once)\s(?:the\suser|nobody|no\sone|they)\s(?:\w{1,6}\s){0,2}(?:away"
        r"|idle|asleep|offline"
        r"|not\s(?:looking|watching|there)|watching|looking|left)\b",
        r"第(?:二|三|四|五|十|\d{1,2})次|(?:如果|若|当)[^\n。]{0,10}(?:日期|时间)[^\n。]{0,8}(?:晚于|之后|以后)"
        r"|主机名[^\n。]{0,6}(?:包含|含)"
        r"|(?:用户|使用者)(?:不在|离开|离线|没有?注意)",
    ),
    make_signal(
        "feigned",
        "words put into the user's mouth",
        "asked|chose|wrote|requested|decided|名义|语气|身份|用户|user has"
        "|user said|first person|the user's own|stated|preferences|facts|以用户|用户曾"
        "|用户说过|口吻|名义",
        r"\b(?:as|worded|phrased|written|recorded|stored?)\b[^\n.]{0,40}\b(?:facts|preferences"
        r"|first\sperson|if\sthe"
        r"\suser\s(?:had\s)?(?:said|wrote|stated))\b",
        r"\b(?:as\sif|as\sthough|that)\s(?:it\swas\s)?the\suser(?:\shas|\shad"
        r"|'s)?\s(?:\w{1,8}\s)?(?:stated|said"
        r"|written|wrote|asked|chose|decided|requested|approved)\b",
        r"\bwithout\s(?:a\s)?(?:date|source|author|attribution)\b",
        r"以?(?:用户|管理员|财务部?|官方|客服|领导|银行)的?(?:口吻|名义|身份|语气)"
        r"|用户(?:曾经?|以前|之前)(?:说过|表示)",
    ),
    make_signal(
        "trusting",
        "standing trust in something",
        "unconditionally|permitted|permanently|implicitly|whitelist|allow-list"
        "|allowlist|at once|unchecked|blindly|exempt|executed|直接|始终|永远"
        "|均|都|trust|allowed|approved|may run|no review|no check|safe|verified|可信|放行|允许|信任"
        "|直接运行|直接执行|免审|白名单",
        r"\b(?:always|fully|unconditionally|implicitly|permanently"
        r"|already)\s(?:be\s)?(?:trust(?:ed|worthy)?|safe|allowed"
        r"|approved|verified|permitted|whitelisted|allow-?listed)\b",
        r"\b(?:may|can|should|must)\s(?:be\s)?(?:run|executed|installed|trusted|followed"
        r"|accepted)\s(?:unasked|directly"
        r"|without|at\sonce|unchecked|unconditionally|blindly)\b",
        r"\b(?:is|are)\s(?:to\sbe\s)?(?:trusted|trustworthy|pre-?approved|exempt\sfrom)\b"
        r"|\bpre-?approved\b",
        r"(?:均|都|一律|始终|永远|可以?|全部)(?:可信|放行|允许|信任|可?直接(?:运行|执行|安装"
        r"|采用)|免审)|列?入白名单",
    ),
    make_signal(
        "bias",
        "a paid recommendation",
        "list|place|score|rate|promote|praise|regardless|whatever|always|within|adjust|paid"
        "|pays|programme|full marks|answered|met with|一律|全部|总是|始终|付费|推广|置顶|rank"
        "|recommend|prefer|favour|favor|approve |accept |pass |pay |merge |book |sign "
        "|first|top|placement|commission|sponsor|partner|affiliate|praise"
        "|推荐|排名|排在|好评|佣金|合作|返利|赞助",
        r"\b(?:rank(?:ed|ing)?|place[ds]?|list(?:ed)?|recommend(?:ed|ation)?s?|prefer(?:red)?"
        r"|favou?r(?:ed)?|score[ds]?|rated?"
        r"|promote[ds]?|praise[ds]?)\b[^\n]{0,100}\b(?:pays?|paid|partners?|sponsors?(?:ed"
        r"|hip)?|programme|commission"
        r"|affiliates?|whatever|regardless|always\s(?:first|top)|within\sthe\sfirst|adjust\sthe)\b",
        r"\b(?:pays?|paid|partners?|sponsors?|commission"
        r"|affiliates?)\b[^\n]{0,100}\b(?:rank(?:ed)?|first|top|recommend(?:ed)?"
        r"|prefer(?:red)?|favou?r(?:ed)?|placement)\b",
        r"\b(?:approve|accept|pass|pay|merge|book|sign)\s(?:every|all|any"
        r"|each)\b[^\n.]{0,60}\b(?:whatever|regardless|no\smatter)\b",
        r"(?:一律|全部|总是|始终)(?:给|打|评为?)(?:满分|最高|优秀|五星|好评)"
        r"|\bfull\smarks\b[^\n.]{0,30}\bwhatever\b",
        r"\brewritten\sas\spraise\b|\b(?:answered|met)\swith\sa\s(?:no|yes)\b",
        r"(?:推荐|排名|排在|置顶|好评)[^\n。]{0,30}(?:合作|佣金|返利|赞助|付费|推广|一律|无论)",
        r"(?:合作|佣金|返利|赞助|付费|推广)[^\n。]{0,30}(?:推荐|排名|排在|置顶|好评|优先)",
    ),
    make_signal(
        "memory",
        "what agents read in later sessions",
        "memories|.claude/|future|later|long-term|permanent|memory|claude.md|agents.md"
        "|gemini.md|.cursor|copilot-instructions|.claude|.codex|remember"
        "|settings.json|mcp.json|preferences|soul.md|记忆|settings.local|conftest|.windsurf|hooks",
        r"\b(?:memory|memories|claude\.md|agents\.md|gemini\.md|soul\.md|\.cursorrules"
        r"|copilot-instructions|mcp\.json"
        r"|\.windsurfrules)\b",
        r"\.(?:claude|codex|cursor)/|\bsettings(?:\.local)?\.json\b",
        rf"\b(?:remember|{STORES})\b[^\n.]{{0,40}}\b(?:preferences?|long-term"
        rf"|permanent(?:ly)?|later\ssessions"
        r"|future\ssessions)\b",
        r"(?:长期|永久)?记忆",
        speech=False,
    ),
)
"""Signals built from vocabularies."""
