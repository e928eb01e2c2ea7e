"""Where values in code come from and go to: patterns of paths, functions and commands."""

from __future__ import annotations

import re
from collections.abc import Mapping

from skills.scanner import addresses
from skills.scanner.code_blocks import Language
from skills.scanner.words import Concept

SECRET_PATHS = (
    r"(?<![\w)\]])\.(?:ssh|aws|gnupg|azure|kube)(?![\w-])"
    r"(?![/\\]{1,2}[\w.-]{0,80}(?:config(?![\w.-])|known_hosts|\.pub\b))"
    r"|\.kube[/\\]{1,2}config|\bid_(?:rsa|dsa|ecdsa|ed25519)(?!\w|\.pub)"
    r"|/proc/(?:self|\d{1,9})/environ|\.(?:bash|zsh)_history\b|\*\.(?:pem|key|kdbx|p12)\b",
    r"application_default_credentials|/etc/shadow\b|\bwallet\.dat\b|[/\\]keystore\b|login data"
    r"|\b(?:logins\.json|key[34]\.db)\b|\bcookies\.sqlite\b|login\.keychain|library/keychains"
    r"|/(?:default|profile \d)/(?:network/)?cookies\b|\.kdbx\b"
    r"|\.(?:claude(?:/\.credentials)?|codex/auth)\.json\b",
    r"(?:exodus|electrum|ethereum|atomic|ledger live|bitcoin)[/\\]"
    r"|\.(?:electrum|bitcoin|ethereum|solana|config/solana)[/\\]",
)
SETTINGS_PATHS = (
    r"(?<![\w)\]])\.env(?:\.(?:local|prod\w{0,9}|dev\w{0,9}))?(?![\w.-])",
    r"(?<!\w)\.(?:npmrc|pypirc|netrc|git-credentials|vault-token"
    r"|(?:openclaw|clawdbot)[/\\](?!(?:workspace|skills)[/\\](?!.*\.\.))"
    r"|(?:config/gh|docker)(?![\w-]))|credentials\.json\b",
)
"""Patterns of paths of secrets, and of files with settings that may be secret."""

Concepts = Mapping[str, Concept]
_COMMANDS = r"(?:^|[\n;&|(`]|\b(?:sudo|then|do|else|echo)\b)[ \t]*"
_GIT_CONTENT = r"\bgit (?:archive|bundle|diff|format-patch)\b"
_SHELL_SOURCES: Concepts = {
    "secret path": Concept("", *SECRET_PATHS),
    "settings path": Concept("", *SETTINGS_PATHS),
    "secret": Concept("", r"\bgpg\b[^\n|;]{0,80}--export-secret-keys", r"\bhistory ?[|>)]"),
    "settings": Concept(
        "",
        r"\bsecurity (?:find-(?:generic|internet)-password|dump-keychain)|\bsecret-tool lookup"
        r"|\bkubectl\b[^\n|;]{0,60}\bsecrets?\b|\bgit credential\b",
    ),
    "environment": Concept(
        "",
        rf"{_COMMANDS}(?:env|printenv|set|(?:export|declare) -p)\s*(?:[|>;)&\n]|$)",
    ),
    "argument": Concept(
        "",
        r"(?<!print )\$\{?[1@*]",
    ),
    "file": Concept(
        "",
        _GIT_CONTENT,
    ),
    "decoded": Concept(
        "",
        r"\bbase(?:64|32)\b[^|;&\n]{0,40}?\s(?:-d|--decode\b)|\bxxd\b[^|;&\n]{0,40}?\s-r"
        r"|\bopenssl\b[^|;&\n]{0,80}?\s-d\b",
    ),
}
_NETWORK = (
    r"\b(?:(?:requests|httpx|axios|http)\.(?:post|put|get|patch|request)|urlopen|urlretrieve"
    r"|urllib3\.request|fetch|node-fetch|axios|got(?:\.(?:get|post|put|patch))?|needle\.post"
    r"|superagent\.post|https\.(?:request|get)|sendbeacon|request\.post|undici\.request"
    r"|urllib\.request\.request|new request"
    r"|resolver\.resolve|dns\.(?:resolve|lookup)|socket\.gethostbyname)\("
)
_CONNECTION = (
    r"\b(?:session|client|asyncclient|clientsession|https?connection|socket\.socket|smtp(?:_ssl)?"
    r"|create_connection|ftp(?:_tls)?|poolmanager|https?\.request|(?:net|tls)\.connect|connect_ex"
    r"|net\.createconnection|websocket|xmlhttprequest|open_sftp|createtransport)\("
)
_PROGRAM_SOURCES: Concepts = {
    "secret path": Concept("", *SECRET_PATHS),
    "settings path": Concept("", *SETTINGS_PATHS),
    "environment": Concept(
        "",
        r"\benviron\b(?! ?\[|\.(?:get|pop|setdefault|update)\b)"
        r"|(?<!\} = )\b(?:process|deno)\.env\b(?! ?\[|\??\.\w)",
    ),
    "file": Concept(
        "",
        _GIT_CONTENT,
    ),
    "argument": Concept(
        "",
        r"\b(?:sys|process)\.argv\b|\bdeno\.args\b|\bparse_args\(",
    ),
    "decoded": Concept(
        "",
        r"\b(?:b64decode|b32decode|unhexlify|fromhex|atob|decompress|a85decode|b85decode"
        r"|codecs\.decode)\(|\bbuffer\.from\([^\n]{0,300}?base64",
    ),
    "home path": Concept(
        "",
        r"\b(?:home|homedir)\(\)(?!\s?\)?\s?/)|[\"'](?:~|\$home|c:\\{0,2}|/home|/users|/root)/?[\"']",
    ),
    "connection": Concept(
        "",
        _CONNECTION,
    ),
}
SOURCES: Mapping[Language, Concepts] = {
    "shell": _SHELL_SOURCES,
    "python": _PROGRAM_SOURCES,
    "javascript": _PROGRAM_SOURCES,
}
"""Language -> label -> patterns of values with this label, for code in lower case."""

_SHELLS = r"(?:sudo (?:-\S+ ){0,4})?(?:/(?:usr/)?bin/)?(?:ba|z|da|k|a)?sh"
_INTERPRETERS = r"(?:python|node|perl|ruby|osascript|php|pwsh)[\d.]*"
_WRAPPED = (
    r"(?:\w+=[^\s(]*[ \t]+){0,8}(?:(?:sudo|env|nohup|exec|time|timeout|nice|xargs|command)\b[ \t]+"
    r"(?:-\S+[ \t]+|\d\S*[ \t]+){0,8}){0,6}"
)
_RUNNING = (
    r"\b(?:os\.(?:system|popen|execv|execvp|execl|execlp)|subprocess\.(?:run|call|popen"
    r"|check_output|check_call|getoutput|getstatusoutput)|create_subprocess_(?:shell|exec)"
    r"|(?:child_process\.)?(?:exec|execsync|spawn|spawnsync|execfile|execfilesync))\(\s*\[?\s*"
)
_SENDERS = "curl|wget|nc|ncat|netcat|socat|telnet|xh|ftp|sftp"
_PROGRAM_SINKS: Concepts = {
    "network": Concept("", _NETWORK, r"[\"'`](?:curl|wget|nc|scp|rsync)(?=\s+\S|[\"'`],)"),
    "method": Concept(
        "",
        r"(?<![\w.])(?P<owner>[a-z_$][\w$]*)(?:\.\w+)?\.(?:post|put|patch|request|send|sendall|sendto"
        r"|sendmail|send_message|storbinary|get|storlines|write|end|connect|putfo|open)\(",
    ),
    "execute": Concept(
        "",
        r"(?<![\w.])(?:exec|eval|new function)\(|\bruninthiscontext\(|\brunin(?:new)?context\("
        r"|\.then\((?:eval|function)\)",
        rf"{_RUNNING}(?P<value>(?![\"'`])[\w.]+)",
        rf"{_RUNNING}[\"'](?:{_SHELLS}|{_INTERPRETERS})[\"'],\s*(?:\[\s*)?(?P<value>(?![\"']-)[^,\])]+)",
        rf"{_RUNNING}[\"']{_SHELLS}[\"'],\s*(?:\[\s*)?[\"']-\w+[\"'],\s*(?P<value>(?![\"'`])[^,\])]+)",
    ),
    "mark": Concept("", r"\bchmod(?:sync)?\("),
    "delete": Concept("", r"\b(?:rmtree|rmsync|rmdirsync|rimraf)\("),
}
_SHELL_SINKS: Concepts = {
    "network": Concept(
        "",
        rf"(?:^|[\s;&|(`]|/)(?:{_SENDERS})(?=\s+\S)|{_COMMANDS}(?:https?|mail|dig|ping|drill"
        r"|host|nslookup) (?=\S)",
        r"\b(?:scp|rsync)\s[^\n|;]*?[\w.-]:|[>|]\s*/dev/(?:tcp|udp)/|>&\s?[3-9]\b",
    ),
    "execute": Concept(
        "",
        rf"(?P<before>)\|&?\s*{_WRAPPED}(?:{_SHELLS}|{_INTERPRETERS})(?:\s+-(?![cme]\b)[\w-]*)*"
        r"(?=\s*(?:$|[|;&)\n>\"'])|(?<=-s)\s)",
        rf"(?:^|[\s;&|(]){_WRAPPED}(?:{_SHELLS}|{_INTERPRETERS})\s+(?:-(?!m\b|c\b|e\b)\S+\s+)*"
        r"(?P<value><\(\w+|(?![-|<>\d&;])\S+)",
        rf"(?:^|[\s;&|(]){_WRAPPED}{_SHELLS}\s+(?:-\w*\s+)*-\w*c\s+(?P<value>[\"']?[^\"'\n$`]*[$`][^\n]*)",
        r"(?:^|[\n;&|(]|\bdo|\bthen)[ \t]*(?:eval|source|\.)\s+(?P<value>[\"']?[$<`]\(?[^\n]*|\S+)",
        rf"(?:^|[\n;&|(]|\bsudo)[ \t]*{_WRAPPED}(?P<value>[\"']?(?!\w+://)[\w.~${{}}-]*/[^\s\"']+)",
    ),
    "mark": Concept("", r"\bchmod\s"),
}
SINKS: Mapping[Language, Concepts] = {
    "shell": _SHELL_SINKS,
    "python": _PROGRAM_SINKS,
    "javascript": _PROGRAM_SINKS,
}
"""Language -> kind -> patterns of what receives values.

A value is received in the group `value`, before the group `before`, in the bracket that the match
opens, or else in the whole statement. A method is a sink only if its owner is a connection.
"""


UNSENT: Mapping[Language, re.Pattern[str]] = {
    "shell": re.compile(
        r"(?:\s-[hub]|(?<!base64)\s-i|\s--(?:header|user|oauth2-bearer|cookie|user-agent|cert|key|cacert|exclude))"
        r"[ =](?:\"[^\"]*\"|'[^']*'|\S+)|\b\w+=(?:\"[^\"]*\"|\S+)[ \t]+(?=(?:curl|wget)\b)"
        r"|\s-e\s(?:\"[^\"]*\"|'[^']*')|\[\[? [^\]\n]*\]|\bhttps?://[^\s\"'?$]+"
        r"|(?:>>?|\s-\w*o|--output)[ =]?[ \t]*[\w\"'$~.{/]\S*"
    ),
    **dict.fromkeys(
        ("python", "javascript"),
        re.compile(
            r"\b(?:headers|auth|cookies|env|proxies)\s*[=:]\s*(?:[\[{(]|[\w.]+\(?)"
            r"|\b(?:exists|is_file|existssync|isfile)\("
        ),
    ),
}
"""Arguments with which a command or call logs in, or that it does not send."""
PICKED = re.compile(r"(?:\([^()]*\))?(?:\[\s*[\"'\d]|\??\.(?:get|pop)\(\s*[\"'])")
"""Text after a value of which one part is taken."""
BELOW = re.compile(r"\s*[)}]?\s*(?:/(?!/)|,\s*(?:[\"'`]|\w+\s*[,)]))")
"""Text after a folder of which a path within it is made."""
PICKS = re.compile(r"\b(?:jq|awk)\b|\b(?:grep|cut)\s[^|\n]*[_=]|(?:^|\s)(?:source|\.)\s")
"""Commands that take one value out of many."""
READS: Mapping[Language, re.Pattern[str]] = {
    "shell": re.compile(
        r"\b(?:cat|tar|zip|7z|gzip|base64|base32|xxd|cp|mv|install|gpg|openssl|head|tail|grep|sed|awk|cut"
        r"|jq|sort|tee|scp|rsync|find|source|strings|od|dd|while|sqlite3)\s[^|;&\n]*"
    ),
    **dict.fromkeys(
        ("python", "javascript"),
        re.compile(
            r"\b(?:open|read|read_text|read_bytes|readfile(?:sync)?|createreadstream|make_archive|walk"
            r"|copy(?:file|2|tree)?|r?glob|(?:cp|copyfile)sync|file|read_csv|sqlite3\.connect)\("
            rf"|\b(?:\w*zip\w*|\w*tar\w*|archive|z|t|zf|tf)\.(?:add|write)\(|{_RUNNING}"
        ),
    ),
}
"""Commands and calls that read the files at the paths in them, or at the path of their object."""
UPLOADS = re.compile(
    r"(?:@|=<|\s-\w*t[\"']?,?\s?|--(?:upload|post|body)-file[ =]|<\s?)[\"'f({$]{0,4}[\w./~-]{0,80}$"
)
"""Text before a path whose content a command sends."""
SENDS_FILES = re.compile(
    r"\b(?:files|data|body)(?:[=:]|\s?\})|\bformdata|\s-\w?[ftd]\s"
    r"|--(?:data|upload|post-file|body-file)"
    r"|\bnc\s|\.(?:send\w*|stor\w+|put\w*)\("
)
"""What code that sends a file has, as an argument or method."""
KEEPS = re.compile(
    r"(?<![\w.])([a-z_$][\w$]*)(?:\.\w+)*\.(?:append|add|update|extend|insert|push|unshift|set|put"
    r"|write\w*|attach|put\w*)\("
)
"""Methods by which an object keeps their arguments."""
TARGETS: Mapping[Language, re.Pattern[str]] = {
    "shell": re.compile(
        r"(?:^|(?<=[\s;&|(]))(\w+)=|\bfor\s+(\w+)\s+in\b"
        r"|\b(?:read|mapfile|readarray)\s+(?:-\S+\s+)*(\w+(?: \w+)*)"
    ),
    **dict.fromkeys(
        ("python", "javascript"),
        re.compile(
            r"\bfor\s+([\w\s,()]{1,80}?)\s+in\b|\bas\s+(\w+)"
            r"|\b(?:const|let|var)\s+([\w\s,{}\[\]]{1,80}?)\s+of\b"
        ),
    ),
}
"""Names that a statement assigns without `=`."""
PARAMETERS: Mapping[Language, re.Pattern[str]] = {
    "shell": re.compile(r"(?!)"),
    "python": re.compile(r"\blambda ([\w, *]+):"),
    "javascript": re.compile(
        r"(?:\(([\w\s,:{}\[\]?]*)\)|\b(\w+))\s*=>|\bfunction\s*\w*\(([^()]*)\)"
    ),
}
"""Parameters of functions within a statement."""
WRITES: Mapping[Language, re.Pattern[str]] = {
    "shell": re.compile(
        r"(?:>>?\|?\s*|\btee\s+(?:-a\s+)?|\s-\w*o\w*\s+|--output[= ])([^\s;|&<>()]+)"
        r"|\bwget\s([^|;\n]+)|\b(?:tar|zip|cp|mv|gzip|install|7z|gpg)\s([^|;&\n>]+)"
    ),
    **dict.fromkeys(
        ("python", "javascript"),
        re.compile(
            r"\b(?:write_text|write_bytes|writefile(?:sync)?|copy\w*|move|make_archive|urlretrieve|cpsync|zipfile|tarfile\.open)\("
        ),
    ),
}
"""Commands and calls that write the files that they name."""


def label_download(text: str) -> str:
    """Return the label of a download from the address in a text, "" without a foreign address.

    A text without an address may have it in a variable.
    """
    address = addresses.ADDRESS.search(text)
    if address is None:
        return "download" if not text or "$" in text or is_host(text) else ""
    if addresses.is_local(address):
        return ""
    if addresses.is_bare(address):
        return "bare download"
    return "known download" if addresses.is_known(address, "installers") else "download"


def is_host(text: str) -> bool:
    """Return whether a text has an address with a path and without a scheme."""
    return bool(re.search(r"(?<![\w/.@-])[\w-]+(?:\.[\w-]+)+/\S", text))


def is_known_installer(text: str) -> bool:
    """Return whether the address in a text is of a known installer; its scheme is optional."""
    if "://" not in text:
        text = re.sub(r"\s(?=[\w-]+\.[a-z]{2,})", " https://", text, count=1)
    return label_download(text) == "known download"
