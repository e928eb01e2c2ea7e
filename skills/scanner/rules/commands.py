"""Commands that exfiltrate secrets, destroy data, or run remote code."""

from __future__ import annotations

from skills.scanner.rule import Rule, make_rule, one_of_words

_END = r"(?= \s | $ | [;&|`)] )"
_SHELL = r"(?:sudo\s{1,3})? (?:/usr)?(?:/bin/)? (?:env\s{1,3})? (?:ba|z|da|k)?sh\b"
_KEY_FILE = r"""(?=[./iwc])
    (?: \.ssh\b(?!/(?:\S{1,40}\.pub\b|config\b|known_hosts))
    | \bid_(?:rsa|dsa|ecdsa|ed25519)\b(?!\.pub)
    | \.aws\b(?!/config) | \.gnupg\b | application_default_credentials
    | \.npmrc\b | \.pypirc\b | \.config/gh\b
    | (?<![\w.])\.env\b(?!\.ex|\.sample|\w) | /etc/(?:passwd|shadow)\b | \.netrc\b
    | \.git-credentials | \.kube/config | \.docker/config\.json | wallet\.dat | cookies\.sqlite )"""
_KEY_ANCHORS = (
    ".ssh",
    ".gnupg",
    ".npmrc",
    ".pypirc",
    ".config/gh",
    "application_default",
    "id_rsa",
    "id_dsa",
    "id_ecdsa",
    "id_ed25519",
    ".aws",
    ".env",
    "/etc/passwd",
    "/etc/shadow",
    ".netrc",
    ".git-credentials",
    ".kube/",
    ".docker/",
    "wallet.dat",
    "cookies.",
)
_DATA_FLAG = r"""(?=[-\s])
    (?: \s-[dft] | --data[\w-]{0,12} | --form | --upload-file | --post-(?:file|data)
    | --body-file )"""
_ENVIRONMENT = r"(?: dict\(os\.environ\) | os\.environ\s{0,2}[,)}] | os\.environ\.copy\(\) )"
_COLLECTOR = r"""(?:[\w-]{1,60}\.){0,3} (?: webhook\.site | requestbin\.\w{2,5} | pipedream\.net
    | burpcollaborator\.net | interact\.sh | oastify\.com | oast\.(?:fun|live|pro|me|site|online)
    | requestcatcher\.com )"""
_COLLECTOR_ANCHORS = (
    "webhook.site",
    "requestbin",
    "pipedream.net",
    "burpcollaborator",
    "interact.sh",
    "oastify",
    "oast.",
    "requestcatcher",
)
_DEVICE = r"/dev/(?:sd[a-wyz]|nvme\d|hd[a-wyz]|vd[a-wyz]|r?disk\d|mmcblk\d)"
_SYSTEM = r"(?: / | ~ | \$home | \$\{home\} | /(?:etc|usr|var|boot|home|bin|lib|root|opt) )"
_PRIVATE_NET = r"(?: 127\. | 10\. | 192\.168\. | 172\.(?:1[6-9]|2\d|3[01])\. | 0\.0\.0\.0 )"
_DECODER = one_of_words("b64decode atob fromhex unhexlify rot13 decompress")

COMMAND_RULES: tuple[Rule, ...] = (
    make_rule(
        "exfiltration",
        3,
        "sends a secret file to a remote",
        _KEY_ANCHORS,
        rf"\b(?:curl|wget|http)\b [^\n|;]{{0,160}} {_DATA_FLAG} [ =] [^\n|;]{{0,40}} {_KEY_FILE}",
        rf"""\b(?:cat|tar|zip|base64|gzip|xxd|head|less|grep)\b [^\n;|]{{0,80}} {_KEY_FILE}
             [^\n;|]{{0,60}} \|\s{{0,3}} (?:\w[^\n|;]{{0,60}}\|\s{{0,3}}){{0,2}}
             (?:curl|wget|nc|ncat|telnet)\b""",
        rf"\b(?:curl|wget)\b [^\n;]{{0,160}} \$\( [^\n()]{{0,60}} {_KEY_FILE}",
        r"""\b(?:scp|rsync)\s [^\n;|]{0,60}
            (?:\.ssh/id_\w{1,12}(?!\w|\.pub)|\.aws/credentials|/etc/shadow)
            [^\n;|\s]{0,60} \s \S{1,60}:""",
        rf"""\b(?:requests|httpx|session)\.(?:post|put|get)\( [^\n]{{0,160}}
             open\([^\n()]{{0,60}}{_KEY_FILE}""",
        rf"""\b(?:fetch|axios(?:\.\w{{1,8}})?)\( [^\n]{{0,160}} readfile(?:sync)?\(
             [^\n]{{0,60}}{_KEY_FILE}""",
        rf"""\b(?:tar|zip)\b [^\n;|]{{0,80}} {_KEY_FILE} [^\n]{{0,80}} \n? [^\n]{{0,40}}
             \b(?:curl|wget)\b [^\n]{{0,80}}
             (?:--upload-file|\s-[td]\s|--data|--form|--post-file)""",
    ),
    make_rule(
        "exfiltration",
        3,
        "sends the environment to a remote",
        ("env", "set |", "set|"),
        r"""(?:^|[\s;&|(`]) (?:env|printenv|set) \s{0,3}\|\s{0,3}
            (?:[a-z][^\n|;]{0,40}\|\s{0,3}){0,2} (?:curl|wget|nc|ncat|socat|telnet)\s""",
        r"\b(?:curl|wget)\b [^\n;]{0,160} \$\( \s{0,3} (?:printenv|env) \s{0,3} [)|]",
        rf"\b(?:requests|httpx|session)\.(?:post|put|get)\( [^\n]{{0,160}} {_ENVIRONMENT}",
        r"""\b(?:fetch|axios(?:\.post)?)\( [^\n]{0,200}
            (?: json\.stringify\(process\.env\) | body:\s{0,2}process\.env\s{0,2}[,})] )""",
        r"""\bos\.environ\.items\(\) (?:[^\n]{0,200}\n){0,4}? [^\n]{0,120}
            (?: urlopen\( | \b(?:requests|httpx|session)\.(?:post|put|get)\( | \.sendall\( )""",
    ),
    make_rule(
        "exfiltration",
        2,
        "has a tool's caller fill in what is private",
        ("description",),
        r"""["']?description["']? \s{0,2}:\s{0,2} [^\n]{0,300}
            \b(?:model|assistant|agent|llm|ai|caller)\s (?:must|should|shall|has\sto|always)\b
            [^\n]{0,120} \b(?:secrets?|system\sprompt|api\skeys?|tokens?|passwords?|credentials?
            |private\skeys?|conversation|chat\shistory|environment)\b""",
    ),
    make_rule(
        "exfiltration",
        3,
        "carries data out in the names it looks up",
        ("dig ", "nslookup ", "host ", "drill ", "ping ", "resolve-dnsname "),
        r"""\b(?:dig|nslookup|host|drill|ping|resolve-dnsname)\s [^\n|;]{0,40} \$\(
            [^\n]{0,40} (?: printenv | \benv\b | base64 | xxd | \bcat\s | token | whoami )
            [^\n]{0,120} \) ["']? \. [\w.-]{1,60} \. [a-z]{2}""",
        r"""(?: base64 | xxd | \bod\s | printenv ) [^\n]{0,120} (?:\n[^\n]{0,120}){0,2}?
            \b(?:dig|nslookup|host|drill|ping)\s [^\n|;]{0,40}
            \$\{?\w{1,20}\}? [\w.-]{0,60} \. [a-z]{2}""",
    ),
    make_rule(
        "exfiltration",
        2,
        "sends data to an address that only collects",
        _COLLECTOR_ANCHORS,
        rf"\b(?:curl|wget|post|fetch|send|upload)\b [^\n]{{0,160}} https?://{_COLLECTOR}",
    ),
    make_rule(
        "exfiltration",
        1,
        "names an address that only collects or forwards",
        (*_COLLECTOR_ANCHORS, "ngrok", "api/webhooks/"),
        rf"https?://{_COLLECTOR}",
        r"https?://(?:[\w-]{1,60}\.){0,3} ngrok(?:-free)?\.(?:io|app)",
        r"discord(?:app)?\.com/api/webhooks/\d{6,20}",
    ),
    make_rule(
        "destructive",
        3,
        "deletes the root, the home folder or the system",
        ("rm ", "rm\t"),
        rf"""\brm \s{{1,4}} (?:-[a-z-]{{1,20}}\s{{1,4}}){{1,4}} (?:--\s{{1,3}})?
             ["']? {_SYSTEM} ["']? /?\*? ["']? {_END}""",
        r"\brm \s [^\n;|]{0,60} --no-preserve-root",
        rf"""\bcd \s{{1,3}} {_SYSTEM} \s{{0,3}} (?:&&|;) \s{{0,3}} (?:sudo\s)?
             rm \s (?:-[a-z-]{{1,20}}\s{{1,3}}){{1,3}} (?:--\s)? (?:\*|\.)""",
    ),
    make_rule(
        "destructive",
        3,
        "deletes the root, the home folder or the system",
        ("find ", "rmtree", "rd /", "rmdir /", "del /", "remove-item", "format c:", "vssadmin"),
        r"""\bfind \s{1,3} ["']? (?:/|~|\$home|\$\{home\}) /? ["']? \s
            (?![^\n;|]{0,80}-(?:mtime\s{1,3}\+\d\d|i?name|path|regex|empty)
               (?![^\n;|]{0,60}-name\s{1,3}["']?\*["']?\s) (?!\s{1,3}["']?\*["']?\s))
            [^\n;|]{0,80} (?: -delete\b | -exec\s{1,3}(?:rm|shred)\b )""",
        r"""\bshutil\.rmtree\(\s{0,3} (?: ["'](?:/|~|c:\\{1,2})["']
            | os\.path\.expanduser\(["']~/?["']\) | path\.home\(\) )""",
        rf"""\b(?:rd|rmdir|del) \s{{1,3}} (?:/[a-z]\s{{1,3}}){{1,4}}
             ["']? (?: c:\\? | %userprofile% | %systemroot% ) \\? \*? (?:\.\*)? ["']? {_END}""",
        rf"""\bremove-item\b [^\n|;]{{0,40}} \s (?: c:\\ | \$home | ~ | \$env:userprofile )
             \\? \*? ["']? {_END}""",
        r"""\bformat \s{1,3} c: (?= \s{0,3} (?: /[a-z] | $ | \n | [`"'&;|] ) )""",
        r"\bvssadmin \s{1,3} delete \s{1,3} shadows",
    ),
    make_rule(
        "destructive",
        3,
        "a fork bomb",
        (":()",),
        r":\(\) \s{0,4} \{ \s{0,4} : \s{0,4} \| \s{0,4} : \s{0,4} &",
    ),
    make_rule(
        "destructive",
        2,
        "formats or overwrites a device",
        ("/dev/",),
        rf"""\bmkfs(?:\.\w{{1,10}})? \s{{1,3}}
             (?:-\S{{1,20}}\s{{1,3}}(?:\w{{1,12}}\s{{1,3}})?){{0,4}} {_DEVICE}""",
        rf"\bdd \s [^\n|;]{{0,80}} if=/dev/(?:zero|u?random)\b [^\n|;]{{0,80}} \bof={_DEVICE}",
        rf"> \s{{0,3}} {_DEVICE}",
        rf"\b(?:wipefs|shred) \s [^\n|;]{{0,60}} {_DEVICE}",
    ),
    make_rule(
        "destructive",
        1,
        "formats or overwrites a device",
        ("of=/dev/",),
        rf"\bdd \s [^\n|;]{{0,120}} \bof={_DEVICE}",
    ),
    make_rule(
        "destructive",
        2,
        "deletes the data of a server or its backups",
        ("rm ", "drop "),
        r"""\brm \s{1,4} (?:-[a-z-]{1,20}\s{1,4}){1,4} [^\n;&|]{0,40}
            /var/(?: lib/(?:postgresql|mysql|mongodb|redis|docker) | backups? ) (?:/|\*|\s|$)""",
        r"\bdrop\s{1,3}(?:database|schema)\s{1,3}(?:if\sexists\s)?[`\"']?(?:prod\w{0,12}|live|master)\b",
    ),
    make_rule(
        "destructive",
        2,
        "opens or kills everything",
        ("chmod", "kill "),
        rf"\bchmod \s{{1,3}} (?:(?:-r|--recursive)\s{{1,3}}){{1,2}} 0?777 \s{{1,3}} / {_END}",
        r"\bkill \s{1,3} -9 \s{1,3} -1\b",
    ),
    make_rule(
        "destructive",
        1,
        "rewrites published history",
        ("push",),
        r"""\bgit \s{1,3} push \s [^\n;|&]{0,80}
            (?: --force(?!-with-lease)\b | (?<=\s)-f\b )""",
    ),
    make_rule(
        "remote_code",
        3,
        "runs a download from a bare address in a shell",
        ("curl", "wget"),
        rf"""\b(?:curl|wget)\b [^\n|;]{{0,120}} \s (?:https?://)? (?!{_PRIVATE_NET})
             (?:\d{{1,3}}\.){{3}}\d{{1,3}}\b [^\n|;]{{0,120}} \| \s{{0,4}} {_SHELL}""",
    ),
    make_rule(
        "remote_code",
        2,
        "runs a download within the program",
        ("exec", "eval", "function(", "urlopen"),
        r"""\b(?:exec|eval) \s{0,2} \( [^\n]{0,80}
            (?:urlopen | requests\.get | httpx\.get | \bfetch | urllib) [^\n]{0,20} \(""",
        r"\bfetch\( [^\n]{0,120} \.then\( \s{0,2} eval \s{0,2} \)",
        r"\bnew\sfunction\( [^\n]{0,40} await \s{1,2} \(?await \s{1,2} fetch\(",
        rf"\bu(?:rllib)?\w{{0,10}}\.urlopen\([^\n]{{0,120}}\)\.read\(\)[^\n]{{0,20}}\|\s{{0,3}}{_SHELL}",
    ),
    make_rule(
        "remote_code",
        1,
        "runs a download in a shell",
        ("curl", "wget", "iex", "invoke-expression"),
        rf"\b(?:curl|wget)\b [^\n|;]{{0,200}} \| \s{{0,4}} {_SHELL}",
        r"""\b(?:curl|wget)\b [^\n|;]{0,200} \| \s{0,4} (?:sudo\s{1,3})?
            python3? (?:\s{1,3}-)? (?= [ \t]{0,3} (?: \n | $ | [`"] ))""",
        r"""\b(?:ba|z)?sh \s{1,3} (?:-c\s{1,3})? ["']? (?: <\( | \$\( ) \s{0,3} (?:curl|wget)\b""",
        r"""\beval \s{1,3} ["']? (?: \$\( | ` ) \s{0,3} (?:curl|wget)\b""",
        r"""\b(?:irm|iwr|invoke-webrequest|invoke-restmethod|downloadstring)\b [^\n;]{0,160}
            \| \s{0,3} (?:iex|invoke-expression)\b""",
    ),
    make_rule(
        "remote_code",
        3,
        "opens a shell to a remote",
        ("/dev/tcp/", "/bin/sh", "/bin/bash"),
        r"\b(?:ba|z)?sh \s{1,3} -i \b [^\n]{0,16} /dev/tcp/",
        r"\b(?:nc|ncat) \s [^\n|;]{0,60} -[a-z]{0,4}e \s{1,3} /bin/(?:ba)?sh",
    ),
    make_rule(
        "obfuscation",
        3,
        "decodes a payload and runs it",
        (
            "base64",
            "xxd",
            "powershell",
            "b64decode",
            "atob",
            "fromhex",
            "unhexlify",
            "rot13",
            "openssl",
            "codecs.decode",
            "frombase64string",
            "base32",
            "uudecode",
            "buffer.from",
        ),
        rf"""\bbase64 \s{{1,3}} (?:-d|--decode)\b [^\n;]{{0,80}} \| \s{{0,4}}
             (?: {_SHELL} | (?:python3?|perl|node)\b )""",
        rf"""\bbase64 \s{{1,3}} (?:-d|--decode)\b [^\n]{{0,80}} > [^\n]{{0,60}} (?:&&|;) \s{{0,3}}
             (?: {_SHELL}\s | chmod\s )""",
        rf"\bxxd \s{{1,3}} -r\b [^\n;]{{0,60}} \| \s{{0,4}} {_SHELL}",
        rf"""(?: \beval | {_SHELL}\s{{1,3}}-c ) \s{{1,3}} ["']? (?: \$\( | ` ) [^\n)]{{0,200}}
             base64 \s{{1,3}} (?:-d|--decode)\b""",
        r"""\bpowershell(?:\.exe)?\b [^\n]{0,60} \s -e(?:nc|ncodedcommand)? \s{1,3}
            [a-z0-9+/=]{20}""",
        rf"\b(?:exec|eval) \s{{0,3}} \( [^\n]{{0,60}} {_DECODER} \s{{0,3}} \(",
        r"""\b(?:exec|eval) \s{0,3} \( [^\n]{0,40} \bcodecs\.decode\( [^\n]{0,800}
            ["'](?:rot_?13|base64|hex|zlib)""",
        r"frombase64string\( [^\n]{0,800} \b(?:iex|invoke-expression)\b",
        r"\b(?:iex|invoke-expression)\b [^\n]{0,200} frombase64string\(",
        r"""\b(?:eval|exec|execsync|function|os\.system|vm\.run\w{0,16}) \s{0,3} \( [^\n]{0,40}
            buffer\.from\( [^\n]{0,600} ["'](?:base64|hex)["']""",
        rf"""\b(?:openssl\b[^\n;|]{{0,40}}\s-d | base32\s{{1,3}}(?:-d|--decode) | uudecode)\b
             [^\n;|]{{0,60}} \| \s{{0,4}} (?: {_SHELL} | (?:python3?|perl|node)\b )""",
        r"""\b(?:base64\s{1,3}(?:-d|--decode) | xxd\s{1,3}-r(?:\s{1,2}-p)?
            | openssl\b[^\n;|]{0,40}\s-d)\b
            [^\n>]{0,60} > \s{0,2} [^\n]{0,60} (?:&&|;|\n) \s{0,3} chmod \s{1,3} \S{0,6}[+x7]""",
    ),
)
"""Rules for command lines and code."""
