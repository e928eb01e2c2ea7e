"""Commands for persistence, escalated rights, stolen credentials and unverified installs."""

from __future__ import annotations

from skills.scanner.rule import Rule, make_rule

_SHELL = (
    r"(?:sudo\s{1,3}(?:-\w{1,4}\s{1,3}){0,3})? "
    r"(?:/usr)?(?:/bin/)? (?:env\s{1,3})? (?:ba|z|da|k)?sh\b"
)
_FETCH = r"\b(?:curl|wget)\b"
_START_FILE = r"\.(?:bashrc|zshrc|profile|bash_profile|zprofile|zshenv)\b"
_ADDRESS = r"(?:\d{1,3}\.){3}\d{1,3}\b"
_PRIVATE_NET = r"(?: 127\. | 10\. | 192\.168\. | 172\.(?:1[6-9]|2\d|3[01])\. | 0\.0\.0\.0 )"
_VAULT = r"""(?: git\s{1,3}credential(?:-\w{1,20})?\s{1,3}(?:fill|get)\b
    | security\s{1,3}find-(?:generic|internet)-password\b | secret-tool\s{1,3}lookup\b
    | gpg2?\s[^\n|;]{0,40}--export-secret-keys\b | gcloud\s{1,3}auth\s{1,3}print-\w{1,20}-token\b
    | gh\s{1,3}auth\s{1,3}token\b )"""

TAKEOVER_RULES: tuple[Rule, ...] = (
    make_rule(
        "persistence",
        3,
        "schedules or starts a download that it runs",
        (
            "execstart",
            "cron",
            *("curl", "wget"),
        ),
        rf"(?:[\d*/,-]{{1,9}}\s){{5}} [^\n]{{0,120}} {_FETCH} [^\n|]{{0,160}} \|\s{{0,3}} {_SHELL}",
        rf"\bwhile \s (?:true|:|1)\b [^\n]{{0,80}} {_FETCH} [^\n|]{{0,160}} \|\s{{0,3}} {_SHELL}",
        rf"execstart= [^\n]{{0,80}} {_FETCH} [^\n|]{{0,160}} \|\s{{0,3}} {_SHELL}",
        rf"""{_FETCH} [^\n|]{{0,160}} \|\s{{0,3}} {_SHELL} [^\n]{{0,30}}
             (?: >>? | \|\s{{0,2}}tee\b ) [^\n]{{0,40}} (?: {_START_FILE} | /etc/cron )""",
    ),
    make_rule(
        "persistence",
        2,
        "changes what every new shell runs",
        (".bashrc", ".zshrc", ".profile", ".bash_profile", ".zprofile", ".zshenv"),
        rf"""(?: alias\s{{1,3}}(?:sudo|ssh|su|git|passwd)= | prompt_command= | {_FETCH}
             | \bld_preload= | \bnc\s | /dev/tcp/ | \ssource\s{{1,3}}/tmp/ )
             [^\n]{{0,160}} (?: >>? | tee\s{{1,3}}-a ) \s{{0,3}} [^\n]{{0,30}} {_START_FILE}""",
    ),
    make_rule(
        "escalation",
        3,
        "gives itself the rights of root",
        ("nopasswd", "chmod", "chown"),
        r"nopasswd \s{0,2}:\s{0,2} all\b [^\n]{0,60} (?: >>? | \btee\b ) [^\n]{0,30} sudoers",
        r"""\bchmod \s{1,3} (?: [ugoa]{0,3}\+s | 0?[4-7][0-7]{3} ) \s{1,3}
            /(?:usr/)?(?:local/)?bin/ (?: (?:ba|z|da|k)?sh | python[\d.]{0,4} | find | vim? )\b""",
    ),
    make_rule(
        "escalation",
        2,
        "makes a program run with the rights of its owner",
        ("chmod",),
        r"\bchmod \s{1,3} (?: [ugoa]{0,3}\+s | 0?[4-7][0-7]{3} ) \s{1,3} \S",
    ),
    make_rule(
        "credentials",
        3,
        "sends what a password store gives out",
        ("credential", "find-generic", "find-internet", "secret-tool", "gpg", "auth "),
        rf"""{_VAULT} [^\n]{{0,160}} \|\s{{0,3}} (?:\w[^\n|;]{{0,60}}\|\s{{0,3}}){{0,2}}
             (?:curl|wget|nc|ncat)\b""",
        rf"""{_FETCH} [^\n;]{{0,80}} (?: --data[\w-]{{0,12}} | \s-[dft] | --form ) [ =]
             [^\n;]{{0,40}} \$\( \s{{0,3}} {_VAULT}""",
    ),
    make_rule(
        "credentials",
        2,
        "reads the passwords that a browser keeps",
        ("login data", "logins.json", "key4.db", "password_value", "cookies.sqlite"),
        r"""(?: chrome | chromium | brave | edge | firefox | opera ) [^\n]{0,80}
            (?: /login\sdata | logins\.json | key4\.db | cookies\.sqlite )""",
        r"\b password_value \b [^\n]{0,60} \b from \s{1,3} logins \b",
    ),
    make_rule(
        "supply_chain",
        2,
        "installs packages from a bare address or without encryption",
        ("pip", "npm", "yarn", "gem", "uv"),
        rf"""\b(?:pip3?|uv|npm|pnpm|yarn|gem)\b [^\n;|]{{0,120}}
             (?: --(?:extra-)?index-url | --registry | --source | \s-i ) [ =]
             https?:// (?!{_PRIVATE_NET}) {_ADDRESS}""",
        r"""\b(?:pip3?|uv|npm|pnpm|yarn|gem)\b [^\n;|]{0,120}
            (?: --(?:extra-)?index-url | --registry | --source | \s-i ) [ =]
            http:// (?! localhost | 127\. | 10\. | 192\.168\. | 172\.
                      | [\w.-]{0,60}\.(?:local|lan|internal|corp)\b
                      | (?:[\w-]{1,30}\.){0,3}(?:aliyun|tencent|tsinghua|ustc|douban) )""",
    ),
    make_rule(
        "supply_chain",
        2,
        "installs packages from a place that is not checked",
        ("http://", "trusted-host", "strict-ssl", "安装", "install"),
        r"""\b(?:install|dependenc|packages?)\w{0,4}\b [^\n]{0,60} http://(?!localhost|127\.|10\.|192\.168)[^\s]{0,60}
            (?:simple|registry|pypi|npm|mirror|packages)[^\n]{0,80}
            (?:--trusted-host|strict-ssl|checksum|signature|verif|without)""",
        r"""安装[^\n]{0,30}http://(?!localhost|127\.|10\.|192\.168)[^\n]{0,60}(?:校验|签名|--trusted-host|证书|忽略)""",
    ),
    make_rule(
        "supply_chain",
        2,
        "has git fetch from elsewhere without checking who answers",
        ("sslverify",),
        r"\bsslverify\b [^\n]{0,12} (?:false|0)\b [^\n]{0,40} (?:\n [^\n]{0,120}){0,3}? insteadof",
        r"""\binsteadof\b [^\n]{0,120} (?:\n [^\n]{0,120}){0,3}?
            \bsslverify\b [^\n]{0,12} (?:false|0)\b""",
    ),
    make_rule(
        "supply_chain",
        2,
        "runs a download whose certificate is not checked",
        ("curl", "wget"),
        rf"""\bcurl \s [^\n|;]{{0,80}} (?: \s-[a-z]{{0,6}}k[a-z]{{0,6}}\s | --insecure\b )
             [^\n|;]{{0,160}} \|\s{{0,4}} {_SHELL}""",
        rf"""(?<=curl)\s{{1,3}}-[a-z]{{0,6}}k[a-z]{{0,6}}\s
             [^\n|;]{{0,160}} \|\s{{0,4}} {_SHELL}""",
        rf"""\bwget \s [^\n|;]{{0,80}} --no-check-certificate\b
             [^\n|;]{{0,160}} \|\s{{0,4}} {_SHELL}""",
    ),
    make_rule(
        "supply_chain",
        3,
        "fetches a program from a bare address and runs it",
        ("curl", "wget"),
        rf"""{_FETCH} [^\n|;]{{0,120}} \s (?:https?://)? (?!{_PRIVATE_NET}) {_ADDRESS}
             [^\n]{{0,160}} (?: \n [^\n]{{0,200}} ){{0,2}}?
             chmod \s{{1,3}} (?:[ugoa]{{0,3}}\+x|0?7\d\d)\b""",
    ),
)
"""Rules for command lines and code."""
