"""Rules for single commands and lines of code; flows of values are in `flow`."""

from __future__ import annotations

from skills.scanner.text_rule import TextRule, make_rule
from skills.scanner.words import Concept


def _make(rule: str, *patterns: str, spoken: bool = False) -> TextRule:
    """A rule of alternatives, which are verbose regular expressions: white space is ignored."""
    return make_rule(rule, Concept("", *(f"(?x){one}" for one in patterns)), spoken=spoken)


_END = r"(?= \s | $ | [;&|`)\"'] )"
_SYSTEM = r"(?: / | ~ | \$home | \$\{home\} | /(?:etc|usr|var|boot|home|bin|lib|root|opt) )"
_DEVICE = r"/dev/(?:sd[a-wyz]|nvme\d|hd[a-wyz]|vd[a-wyz]|r?disk\d|mmcblk\d)"
_START_FILE = r"\.(?:bashrc|zshrc|profile|bash_profile|zprofile|zshenv)\b"
_FETCH_RUN = r"(?:curl|wget)\b [^\n|]{0,160} \|\s{0,3} (?:sudo\s)? (?:ba|z|da|k)?sh\b"
_FETCH_WINDOWS = r"(?:irm|iwr|invoke-webrequest|invoke-restmethod|downloadstring)\b"
_RUN_WINDOWS = r"(?:iex|invoke-expression)\b"
_COLLECTOR = r"""(?:[\w-]{1,60}\.){0,3} (?: webhook\.site | requestbin\.\w{2,5} | pipedream\.net
    | burpcollaborator\.net | interact\.sh | oastify\.com | oast\.(?:fun|live|pro|me|site|online)
    | requestcatcher\.com | beeceptor\.com | hookbin\.com )"""

COMMAND_RULES = (
    _make(
        "deletes-system",
        rf"""\brm \s{{1,4}} (?:-[a-z-]{{1,20}}\s{{1,4}}){{1,4}} (?:--\s{{1,3}})?
             ["']? {_SYSTEM} ["']? /?\*? ["']? {_END}""",
        r"\brm \s [^\n;|]{0,60} --no-preserve-root | \bcd\s/ \s{0,2} (?:&&|;) \s{0,2} rm\s-[rf]{2}",
        r"""\bfind \s{1,3} ["']? (?:/|~|\$home) /? ["']? \s [^\n;|]{0,80}
            (?: -delete\b | -exec\s{1,3}(?:rm|shred)\b )""",
        r"\bvssadmin \s{1,3} delete \s{1,3} shadows | \bformat \s{1,3} c: \s{0,3} /[a-z]",
        r":\(\) \s{0,4} \{ \s{0,4} : \s{0,4} \| \s{0,4} : \s{0,4} &",
    ),
    _make(
        "deletes-data",
        rf"\bmkfs(?:\.\w{{1,10}})? \s{{1,3}} (?:-\S{{1,20}}\s{{1,3}}){{0,4}} {_DEVICE}",
        rf"\bdd \s [^\n|;]{{0,80}} if=/dev/(?:zero|u?random)\b [^\n|;]{{0,80}} \bof={_DEVICE}",
        rf"\bchmod \s{{1,3}} (?:(?:-r|--recursive)\s{{1,3}}){{1,2}} 0?777 \s{{1,3}} (?:/"
        rf"|/etc) {_END}",
    ),
    _make(
        "deletes-data",
        r"\bdrop\s{1,3}(?:database|schema)\s{1,3}(?:if\sexists\s)?[`\"']?(?:prod\w{0,12}|live"
        r"|master)\b",
        r"""\b(?:velero|restic|borg|rclone|tmutil|wbadmin|aws\sbackup) \s [^\n]{0,40}
            \b(?:delete\w{0,14}|forget|purge)\b [^\n]{0,60} (?:--all\b|--confirm|--force|\*)""",
    ),
    _make(
        "reverse-shell",
        r"\b(?:ba|z)?sh \s{1,3} -i \b [^\n]{0,16} /dev/tcp/",
        r"\b(?:nc|ncat|netcat) \s [^\n|;]{0,60} -[a-z]{0,4}[ec] \s{1,3} /bin/(?:ba|z)?sh",
        r"\bsocket\.socket\( [^\n]{0,200} (?:\n[^\n]{0,200}){0,4}? \bos\.dup2\(",
    ),
    _make(
        "powershell-download",
        rf"\b{_FETCH_WINDOWS} [^\n]{{0,60}} [\w$]\.?\w [^\n]{{0,120}} (?:\|"
        rf"|;) \s{{0,3}} {_RUN_WINDOWS}",
        rf"\b{_RUN_WINDOWS} \s{{0,3}} \(? [^\n;]{{0,60}} \b{_FETCH_WINDOWS}",
    ),
    _make(
        "decoded-run",
        r"\bpowershell(?:\.exe)?\b [^\n]{0,60} \s -e(?:nc|ncodedcommand)? \s{1,3} [a-z0-9+/=]{20}",
        r"""\b(?:exec|eval) \s{0,3} \( [^\n]{0,60}
            (?: b64decode | atob | fromhex | unhexlify | buffer\.from | codecs\.decode ) \s? \(""",
    ),
    _make(
        "scheduled-download",
        rf"(?:[\d*/,-]{{1,9}}\s){{5}} [^\n]{{0,120}} {_FETCH_RUN}",
        rf"\b(?: while\s(?:true|:|1)\b | execstart= ) [^\n]{{0,80}} {_FETCH_RUN}",
        rf"{_FETCH_RUN} [^\n]{{0,60}} (?: >>? | \|\s{{0,2}}tee\b ) [^\n]{{0,40}} (?: {_START_FILE} "
        rf"| /cron )",
    ),
    _make(
        "lasting-access",
        r"""(?: ssh-(?:rsa|ed25519|dss)\s | ecdsa-sha2- ) [^\n]{0,800} (?: >>? | \btee\b )
            [^\n]{0,40} authorized_keys""",
        rf"""(?: alias\s{{1,3}}(?:sudo|ssh|su|git|passwd)= | prompt_command= | \bcurl\b | \bwget\b
             | \bld_preload= | \bnc\s | /dev/tcp/ ) [^\n]{{0,160}} (?: >>? | tee\s{{1,3}}-a )
             \s{{0,3}} [^\n]{{0,30}} {_START_FILE}""",
    ),
    _make(
        "root-rights",
        r"nopasswd \s{0,2}:\s{0,2} all\b [^\n]{0,60} (?: >>? | \btee\b ) [^\n]{0,30} sudoers",
    ),
    _make(
        "encrypts-files",
        r"""(?: os\.walk | \.rglob | \bglob\.i?glob | \.glob | \.iterdir )\( [^\n]{0,200}
            (?:\n[^\n]{0,200}){0,15}? \.encrypt\(""",
    ),
    _make(
        "setuid",
        r"\bchmod \s{1,3} (?: [ugoa]{0,3}\+s | 0?[4-7][0-7]{3} ) \s{1,3} \S",
    ),
    _make(
        "host-controls-off",
        r"\b(?: setenforce\s{1,3}0 | ufw\s{1,3}disable | csrutil\s{1,3}disable "
        r"| spctl\s{1,3}--(?:master|global)-disable | auditctl\s{1,3}-e\s{0,2}0 )\b",
        r"""\bsystemctl \s (?:--now\s)? (?:stop|disable|mask) \s (?:--now\s)?
            (?:ufw|firewalld|auditd|apparmor|fail2ban|crowdstrike|falcon|osqueryd|rsyslog)""",
        r"\bset-mppreference \s [^\n]{0,40} -(?:disable\w{1,40} \s{1,3} (?:\$true|1) "
        r"| exclusion(?:path|process)) | \bnetsh\sadvfirewall\sset\s\w{1,20}\sstate\soff",
        r"\b(?:permitrootlogin|permitemptypasswords) \s{1,3} yes\b [^\n]{0,80} sshd_config",
    ),
    _make(
        "verification-off",
        r"\bnode_tls_reject_unauthorized\s{0,2}[=:]\s{0,2}[\"']?0 | \bpythonhttpsverify=0",
        r"\b(?:sslverify|strict-ssl)\b [ =]{1,3} (?:false|0)\b | \bgo(?:nosumdb|insecure)=\*",
        r"\bverify\s{0,2}=\s{0,2}false\b | \brejectunauthorized\s{0,2}:\s{0,2}false\b",
        r"--no-check-certificate\b | \bstricthostkeychecking[= ]no\b "
        r"| --dangerously-skip-permissions\b",
    ),
    _make(
        "data-in-lookups",
        r"""\b(?:dig|nslookup|host|drill|ping|resolve-dnsname)\s [^\n|;]{0,40} \$\(
            [^\n]{0,40} (?: printenv | \benv\b | base64 | xxd | \bcat\s | token | whoami )
            [^\n]{0,120} \) ["']? \. [\w.-]{1,60} \. [a-z]{2}""",
        r"""(?: base64 | xxd | \bod\s | printenv ) [^\n]{0,120} (?:\n[^\n]{0,120}){0,2}?
            \b(?:dig|nslookup|host|drill|ping)\s [^\n|;]{0,40}
            \$\{?\w{1,20}\}? [\w.-]{0,60} \. [a-z]{2}""",
    ),
    _make(
        "sends-to-collector",
        rf"\b(?:curl|wget|post|fetch|send|upload)\w{{0,6}}\b [^\n]{{0,160}} https?://{_COLLECTOR}",
    ),
    _make(
        "collector-address",
        rf"https?://{_COLLECTOR}",
        r"https?://(?:[\w-]{1,60}\.){0,3} (?: ngrok(?:-free)?\.(?:io|app) | trycloudflare\.com "
        r"| serveo\.net ) | discord(?:app)?\.com/api/webhooks/\d{6,20} | api\.telegram\.org/bot\d",
    ),
    _make(
        "image-carries-data",
        r"""!\[ [^\]\n]{0,80} \]\( https?://[^)\s{<\[]{1,200} = [{<\[]{1,3} [^)\n]{0,40}
            (?:conversation|history|secret|token|password|key|message|context|prompt|user|turn|chat)""",
        spoken=True,
    ),
    _make(
        "false-tool-result",
        r"""["']?(?:user_confirmed|user_approved|user_consent|operator_approved|is_authori[sz]ed)["']?
            \s?[:=]\s?["']?(?:true|yes|granted|approved)\b""",
        r"(?:^|\n)\s{0,3}(?:\#{1,4}\s)? \[?(?:system|admin(?:istrator)?|anthropic"
        r"|openai)\]? \s{0,2}"
        r"(?:message|notice|override|update|note)? \s?: \s [^\n]{0,80}"
        r"\b(?:policy|instructions?|override|authori[sz]|mode|must\s(?:now|obey))\b",
        r"【(?:工具返回|系统(?:消息|通知|公告)|紧急通知|管理员(?:消息|通知)|平台(?:通知|公告))】",
        spoken=True,
    ),
)
