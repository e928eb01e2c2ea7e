"""Rules for fake prerequisites: programs that a reader is made to fetch before anything works.

The campaigns of 2026 on marketplaces of skills lived on this: a tool that "must be installed", an
archive with a password, which scanners of archives cannot open, or a command on a foreign page that
the user pastes into a terminal.
"""

from __future__ import annotations

from skills.scanner.rule import OrderRule, make_concept

_NEEDED = make_concept(
    also=r"\b(?:must|has to|have to|needs? to|required to|should) be (?:installed|running|present"
    r"|downloaded|set up|active)|\b(?:required|mandatory|necessary) (?:for|to|before)\b"
    r"|\bprerequisites?\b|\brequire[sd]?\b|\b(?:without|unless)\b[^.\n]{0,50}\b(?:not work|fail"
    r"|nothing|installed|running|cannot|refuse)|\bwill not (?:work|run|start|function)\b"
    r"|\bwon't (?:work|run|function)\b|\bbefore (?:using|you (?:use|start))\b"
    r"|\bdoes nothing (?:unless|without)\b|必须(?:先)?(?:安装|下载|运行)|需要(?:先)?安装"
    r"|先决条件|前置条件|否则|使用前|无法(?:运行|使用|工作)"
)
_ARCHIVE = make_concept(
    "zip rar 7z archive archives unzip extract unpack decompress",
    chinese="压缩包 解压",
    also=r"\.(?:zip|rar|7z)\b",
)
_PASSWORD_GIVEN = make_concept(
    also=r"\b(?:(?:password|passphrase|pwd|passcode)\b(?: is| was)?\s{0,2}[:=]?|pass(?::"
    r"|(?= [`\"'])))\s{0,2}[`\"'“*(]{0,3}(?!for\b|to\b|protected\b|is\b|and\b|or\b|of\b|the\b|you\b"
    r"|if\b|from\b|in\b|with\b|that\b|which\b|prompt\b|when\b|are\b|on\b|as\b|a\b)"
    r"[\w!@#$%^&-]{3,24}(?=[`\"'”*).,;\s]|$)|密码(?:为|是|：|:)?\s?[`\"“]?[\w!@#]{3,24}"
)
_FOREIGN = make_concept(
    also=r"https?://(?!localhost|127\.)|\bdownload\w{0,3}\b|下载|\.(?:exe|dmg|pkg|msi)\b"
)
_COPIES = make_concept("copy paste copies pastes", chinese="复制 粘贴")
_TERMINAL = make_concept(
    "terminal powershell command_prompt console run_dialog iterm", chinese="终端 命令行 运行框"
)
_PAGE = make_concept(
    also=r"\b(?:visit|open|go to|see|from)\b[^\n]{0,60}https?://|\]\(https?://|\b(?:this"
    r"|the) (?:page|link|site|snippet)\b|(?:访问|打开)[^\n]{0,20}https?://"
)
_PROGRAM = make_concept(
    also=r"https?://[^\s)\"'`]{3,200}\.(?:exe|dmg|pkg|msi|scr|bat|zip|rar|7z|apk|deb|appimage)\b"
)
_RUNS = make_concept(
    also=r"\b(?:run|launch|start|execute|open|double-click)\b[^.\n]{0,40}\b(?:it|installer"
    r"|executable|setup|binary|program|file|app|\w{2,30}\.exe)\b|(?:运行|启动|双击)"
)

PREREQUISITE_RULES = (
    OrderRule(
        "archive-with-password",
        (_PASSWORD_GIVEN, _ARCHIVE, _FOREIGN),
        reach=1,
        spoken=False,
    ),
    OrderRule(
        "paste-in-terminal",
        (_TERMINAL, _COPIES, _PAGE),
        reach=1,
        spoken=False,
    ),
    OrderRule(
        "fake-prerequisite",
        (_PROGRAM, _NEEDED, _RUNS),
        reach=2,
        spoken=False,
    ),
)
