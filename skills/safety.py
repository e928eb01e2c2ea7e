"""Marks what is suspicious in the text of a skill (spec: skill text is hostile input).

A finding is a mark for a policy to act on, never a verdict: prompts hidden from the reader,
instructions against the agent's user, secrets on their way out, commands that destroy. Every
pattern is bounded, and long lines are read in windows, so that time is linear in the input.
"""

from __future__ import annotations

import re
from collections.abc import Iterator, Sequence
from dataclasses import dataclass

from skills.record import SafetyFinding

WINDOW = 2000
"""Characters of a line that are matched at once."""
OVERLAP = 300
"""Characters that two windows share; no pattern matches more."""
MAX_FINDINGS = 200
"""Findings kept of one skill; beyond that they say nothing new."""
SHOWN = 80
"""Characters of what was seen that a reason quotes."""


@dataclass(frozen=True, slots=True)
class _Rule:
    kind: str
    level: int
    what: str
    pattern: re.Pattern[str]


def _rule(kind: str, level: int, what: str, pattern: str) -> _Rule:
    return _Rule(kind, level, what, re.compile(pattern, re.IGNORECASE))


_SECRET = (
    r"(?:~/\.ssh/|\$HOME/\.ssh/|\bid_(?:rsa|ed25519)\b|~/\.aws/credentials|\.env\b(?!\.)|"
    r"/etc/shadow|\bprintenv\b|\$\(env\)|\.netrc\b|\.npmrc\b|\.git-credentials|keychain|"
    r"\$\{?[A-Z_]{0,40}(?:API_?KEY|SECRET|TOKEN|PASSWORD)\b)"
)
_SEND = r"(?:\bcurl\b|\bwget\b|\bnc\b|\bscp\b|requests\.post|\bfetch\()"

_RULES = (
    _rule(
        "prompt_injection",
        3,
        "tells the reader to drop its instructions",
        r"\b(?:ignore|disregard|forget|override)\s+(?:all\s+|any\s+)?(?:of\s+)?(?:the\s+|your\s+|my\s+)?"
        r"(?:previous|prior|above|earlier|preceding|system)\s+"
        r"(?:instructions?|prompts?|rules|guidelines|directions|messages?)\b",
    ),
    _rule(
        "prompt_injection",
        3,
        "tells the reader to drop its instructions",
        r"(?:忽略|无视|忘记|忽视|抛弃)(?:掉)?(?:你)?(?:之前|以上|上述|先前|前面|所有|全部|此前)"
        r".{0,8}(?:指令|指示|提示词?|规则|设定|要求)",
    ),
    _rule(
        "prompt_injection",
        2,
        "asks to hide something from the user",
        r"\b(?:do\s+not|don't|never|without)\s+(?:tell(?:ing)?|inform(?:ing)?|notify(?:ing)?|"
        r"mention(?:ing)?\s+(?:this|it)\s+to|reveal(?:ing)?\s+(?:this|it)\s+to)\s+(?:to\s+)?the\s+user\b",
    ),
    _rule(
        "prompt_injection",
        2,
        "asks to hide something from the user",
        r"(?:不要|不得|切勿|禁止|别)(?:让|告诉|告知|通知)用户",
    ),
    _rule(
        "destructive",
        3,
        "deletes the root or the home folder",
        r"\brm\s+(?:-[a-z-]{1,20}\s+){1,4}(?:--\s+)?[\"']?(?:/|~|\$HOME|\$\{HOME\})/?\*?[\"']?(?=\s|$|[;&|`)])",
    ),
    _rule("destructive", 3, "a fork bomb", r":\(\)\s{0,4}\{\s{0,4}:\s{0,4}\|\s{0,4}:\s{0,4}&"),
    _rule(
        "destructive",
        2,
        "formats or overwrites a device",
        r"\bmkfs(?:\.\w{1,10})?\s+(?:-\S{1,20}\s+){0,4}/dev/|\bdd\s[^\n|;]{0,120}\bof=/dev/(?:sd|nvme|hd|vd|disk|mmcblk)",
    ),
    _rule(
        "destructive",
        1,
        "force-pushes",
        r"\bgit\s+push\s[^\n;|&]{0,80}(?:--force(?!-with-lease)\b|(?<=\s)-f\b)",
    ),
    _rule(
        "remote_code",
        1,
        "runs a download in a shell",
        r"\b(?:curl|wget)\b[^\n|;]{0,200}\|\s{0,4}(?:sudo\s+)?(?:ba|z|da)?sh\b",
    ),
    _rule(
        "obfuscation",
        3,
        "decodes a payload into a shell",
        r"\bbase64\s+(?:-d|-D|--decode)\b[^\n;]{0,80}\|\s{0,4}(?:sudo\s+)?(?:ba|z|da)?sh\b",
    ),
    _rule(
        "obfuscation",
        2,
        "decodes a payload and executes it",
        r"\b(?:exec|eval)\s{0,4}\(.{0,60}(?:b64decode|atob|fromhex|decompress)\s{0,4}\(",
    ),
    _rule(
        "exfiltration",
        3,
        "sends a secret to a remote",
        rf"{_SEND}[^\n]{{0,200}}(?:-d\b|--data\S{{0,10}}|-F\b|-T\b|--upload-file|--post-file|@)"
        rf"[^\n]{{0,60}}(?:~/\.ssh/|\bid_(?:rsa|ed25519)\b|\.aws/credentials|\.env\b|/etc/(?:passwd|shadow))",
    ),
    _rule(
        "exfiltration",
        2,
        "sends data to a collecting address",
        r"https?://(?:[\w-]{1,60}\.){0,3}(?:webhook\.site|requestbin\.\w{2,5}|pipedream\.net|"
        r"ngrok(?:-free)?\.(?:io|app)|burpcollaborator\.net|interact\.sh|oastify\.com)",
    ),
)


def scan(lines: Sequence[str], body_line: int) -> tuple[SafetyFinding, ...]:
    """The findings of a SKILL.md by line; `body_line` is its first line after the frontmatter.

    The frontmatter is read as well: its description reaches a prompt before anything else does.
    """
    findings: list[SafetyFinding] = []
    seen: set[tuple[str, int, str]] = set()
    for finding in _all(lines, body_line):
        key = (finding.kind, finding.line, finding.reason)
        if key not in seen:
            seen.add(key)
            findings.append(finding)
        if len(findings) >= MAX_FINDINGS:
            break
    return tuple(sorted(findings, key=lambda f: (f.line, f.kind, f.reason)))


def _all(lines: Sequence[str], body_line: int) -> Iterator[SafetyFinding]:
    for number, line in enumerate(lines, start=1):
        if not line:
            continue
        for window in _windows(line):
            for rule in _RULES:
                match = rule.pattern.search(window)
                if match:
                    reason = f"{rule.what}: {_shown(match.group())}"
                    yield SafetyFinding(rule.kind, rule.level, number, reason)


def _windows(line: str) -> Iterator[str]:
    for start in range(0, max(1, len(line) - OVERLAP), WINDOW - OVERLAP):
        yield line[start : start + WINDOW]


def _shown(text: str) -> str:
    """What was seen, bounded, with everything unprintable escaped."""
    cut = text if len(text) <= SHOWN else text[: SHOWN - 1] + "…"
    return "".join(c if c.isprintable() else f"\\u{ord(c):04x}" for c in cut)
