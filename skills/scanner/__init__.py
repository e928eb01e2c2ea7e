"""Scans the text of skills, which is untrusted input, for suspicious content."""

from skills.scanner.scan import (
    MAX_EXCERPT_CHARACTERS,
    MAX_FINDINGS,
    MAX_PER_RULE,
    SCANNER_VERSION,
    rescan,
    scan_lines,
)

__all__ = [
    "MAX_EXCERPT_CHARACTERS",
    "MAX_FINDINGS",
    "MAX_PER_RULE",
    "SCANNER_VERSION",
    "rescan",
    "scan_lines",
]
