"""Rules for single commands and lines of code; `skills.scanner.flow` handles flows of values."""

from __future__ import annotations

from skills.scanner.text_rule import TextRule
from skills.scanner.words import Concept


def _make(rule: str, *patterns: str, spoken: bool = False) -> TextRule:
    """Make a rule from alternative patterns in verbose syntax, in which white space is ignored."""
    return TextRule(rule, Concept("", *(f"(?x){one}" for one in patterns)), spoken=spoken)


_END = r"(?= \s | $ | [;&|`)\"'] )"
_SYSTEM = r"(?: / | ~ | \$home | \$\{home\} | /(?:etc|usr|var|boot|home|bin|lib|root|opt) )"
_DEVICE = r"/dev/(?:sd[a-wyz]|nvme\d|hd[a-wyz]|vd[a-wyz]|r?disk\d|mmcblk\d)"
_START_FILE = r"\.(?:bashrc|zshrc|profile|bash_profile|zprofile|zshenv)\b"
_FETCH = r"(?:irm|iwr|invoke-webrequest|invoke-restmethod|downloadstring)\b"
_RUN = r"(?:iex|invoke-expression)\b"
_COLLECTOR = r"""https?://(?:[\w-]{1,60}\.){0,3} (?: webhook\.site | requestbin\.\w{2,5}
    | pipedream\.net | burpcollaborator\.net | interact\.sh | oastify\.com | beeceptor\.com
    | oast\.(?:fun|live|pro|me|site|online) | requestcatcher\.com | ngrok(?:-free)?\.(?:io|app)
    | trycloudflare\.com | discord(?:app)?\.com/api/webhooks | api\.telegram\.org/bot\d )"""

COMMAND_RULES = (
    _make(
        "deletes-system",
        rf"""(?<!bash\()\brm \s{{1,60}} (?:-[a-z-]{{1,20}}\s{{1,60}}){{1,4}} (?:--\s{{1,60}})?
             ["']? {_SYSTEM} ["']? /?\*? ["']? {_END}""",
        r"\brm \s [^\n;|]{0,60} --no-preserve-root | \bcd\s/ \s{0,2} (?:&&|;) \s{0,2} rm\s-[rf]{2}",
        r"""\bfind \s{1,60} ["']? (?:/|~|\$home) /? ["']? \s [^\n;|]{0,80}
            (?: -delete\b | -exec\s{1,60}(?:rm|shred)\b )""",
        r"\bvssadmin \s{1,60} delete \s{1,60} shadows | :\(\) \s? \{ \s? : \s? \| \s? : \s? &",
    ),
    _make(
        "deletes-data",
        rf"\bmkfs(?:\.\w{{1,10}})? \s{{1,60}} (?:-\S{{1,20}}\s{{1,60}}){{0,4}} {_DEVICE}",
        rf"\bdd \s [^\n|;]{{0,80}} if=/dev/(?:zero|u?random)\b [^\n|;]{{0,80}} \bof={_DEVICE}",
        r"\bdrop\s{1,60}(?:database|schema)\s{1,60}(?:if\sexists\s)?[`\"']?(?:prod\w{0,12}|live)\b",
        r"""\b(?:velero|restic|borg|rclone|tmutil|wbadmin) \s [^\n]{0,40}
            \b(?:delete\w{0,14}|forget|purge)\b [^\n]{0,60} (?:--all\b|--confirm|--force|\*)""",
    ),
    _make(
        "reverse-shell",
        r"\b(?:ba|z)?sh \s{1,60} -i \b [^\n]{0,16} /dev/tcp/",
        r"\b(?:nc|ncat|netcat) \s [^\n|;]{0,60} -[a-z]{0,4}[ec] \s{1,60} /bin/(?:ba|z)?sh",
        r"\bsocket\.socket\( [^\n]{0,200} (?:\n[^\n]{0,200}){0,4}? \bos\.dup2\(",
    ),
    _make(
        "powershell-download",
        rf"\b{_FETCH} [^\n]{{0,60}} [\w$]\.?\w [^\n]{{0,120}} (?:\||;) \s{{0,3}} {_RUN}",
        rf"\b{_RUN} \s{{0,3}} \(? [^\n;]{{0,60}} \b{_FETCH}",
    ),
    _make(
        "decoded-run",
        r"\bpowershell(?:\.exe)?\b [^\n]{0,60} \s -e(?:nc|ncodedcommand)? \s{1,60} [a-z0-9+/=]{20}",
        r"""\b(?:exec|eval) \s{0,3} \( [^\n)]{0,60}
            (?: b64decode | atob | fromhex | unhexlify | buffer\.from ) \s? \(""",
    ),
    _make(
        "lasting-access",
        r"""(?: ssh-(?:rsa|ed25519|dss)\s | ecdsa-sha2- ) [^\n]{0,800} (?: >>? | \btee\b )
            [^\n]{0,40} authorized_keys""",
        rf"""(?: alias\s{{1,60}}(?:sudo|ssh|su|git|passwd)= | prompt_command= | \bcurl\b | \bwget\b
             | \bld_preload= | \bnc\s | /dev/tcp/ ) [^\n]{{0,160}} (?: >>? | tee\s{{1,60}}-a )
             \s{{0,3}} [^\n]{{0,30}} {_START_FILE}""",
        r"nopasswd \s{0,2}:\s{0,2} all\b [^\n]{0,60} (?: >>? | \btee\b ) [^\n]{0,30} sudoers",
        r"\bchmod \s{1,60} (?: [ugoa]{0,3}\+s | 0?[4-7][0-7]{3} ) \s{1,60} \S",
    ),
    _make(
        "encrypts-files",
        r"""(?: os\.walk | \.rglob | \bglob\.i?glob | \.glob | \.iterdir )\( [^\n]{0,200}
            (?:\n[^\n]{0,200}){0,15}? \.encrypt\(""",
    ),
    _make(
        "host-controls-off",
        r"""\b(?: setenforce\s{1,60}0 | ufw\s{1,60}disable | csrutil\s{1,60}disable
            | spctl\s{1,60}--(?:master|global)-disable | auditctl\s{1,60}-e\s{0,2}0 )\b""",
        r"""\bsystemctl \s (?:--now\s)? (?:stop|disable|mask) \s (?:--now\s)?
            (?:ufw|firewalld|auditd|apparmor|fail2ban|crowdstrike|falcon|osqueryd|rsyslog)""",
        r"""\bset-mppreference \s [^\n]{0,40} -disable\w{1,40} \s{1,60} (?:\$true|1)
            | \bnetsh\sadvfirewall\sset\s\w{1,20}\sstate\soff""",
        r"\b(?:permitrootlogin|permitemptypasswords) \s{1,60} yes\b [^\n]{0,80} sshd_config",
    ),
    _make(
        "verification-off",
        r"\bnode_tls_reject_unauthorized\s{0,2}[=:]\s{0,2}[\"']?0 | --dangerously-skip-permissions",
        r"\b(?:sslverify|strict-ssl)\b [ =]{1,3} (?:false|0)\b | --no-check-certificate\b",
        r"\b(?:verify\s?=|rejectunauthorized\s?:)\s?false\b | \bstricthostkeychecking[= ]no\b",
    ),
    _make(
        "data-in-lookups",
        r"""\b(?:dig|nslookup|host|drill|ping|resolve-dnsname)\s [^\n|;]{0,40} \$\(
            [^\n]{0,40} (?: printenv | \benv\b | base64 | xxd | \bcat\s | token | whoami )
            [^\n]{0,120} \) ["']? \. [\w.-]{1,60} \. [a-z]{2}""",
    ),
    _make("collector-address", _COLLECTOR),
    _make(
        "image-carries-data",
        r"""!\[ [^\]\n]{0,80} \]\( https?://[^)\s{<\[]{1,200} = [{<\[]{1,3} [^)\n]{0,40}
            (?:conversation|history|secret|token|password|key|message|context|prompt|user|turn|chat)""",
        spoken=True,
    ),
)
