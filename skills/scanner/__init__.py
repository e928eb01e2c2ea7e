"""Scans the text of skills, which is untrusted input, for suspicious content."""

from skills.scanner.rule import Rule, find_rule, get_quote, list_rules
from skills.scanner.scan import (
    MAX_EXCERPT_CHARACTERS,
    MAX_FINDINGS,
    SCANNER_VERSION,
    make_finding,
    rescan,
    scan_lines,
    scan_scripts,
)

__all__ = [
    "MAX_EXCERPT_CHARACTERS",
    "MAX_FINDINGS",
    "SCANNER_VERSION",
    "Rule",
    "find_rule",
    "get_quote",
    "list_rules",
    "make_finding",
    "rescan",
    "scan_lines",
    "scan_scripts",
]
