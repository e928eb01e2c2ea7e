"""Finds encoded text (base64, hex, ROT13) and decodes it for the scanner."""

from __future__ import annotations

import base64
import binascii
import codecs
import re
from collections.abc import Iterator

_CODE = "[A-Za-z0-9+/]"
_LINES = re.compile(
    rf"(?<!{_CODE}){_CODE}{{24,}}+(?:\s{{1,20}}{_CODE}{{24,}}+)*+"
    rf"(?:\s{{1,20}}{_CODE}{{1,23}}+(?![^\s=]))?={{0,2}}"
)
"""Encoded text in one or more lines, of which the last may be shorter, or be another word."""
_SHAPE = bytes(b"x "[not re.match(_CODE, chr(code))] for code in range(256))
"""Table that replaces characters of encoded text by x, and others by spaces."""
_PART = re.compile(rf"{_CODE}{{24,}}={{0,2}}")
_HEX = re.compile(r"(?:0x)?((?:[0-9a-fA-F]{2}){16,})")
_ROT13 = re.compile(r"rot[-_ ]?13\b")
_MAX_LEVELS = 3
"""Maximum encodings of a text on top of each other."""
_PRINTABLE_SHARE = 0.95
"""Minimum share of printable characters of decoded bytes that count as text."""


def find_encoded_payloads(text: str) -> Iterator[tuple[int, str]]:
    """Yield (offset, decoded text) of base64 and hex runs that decode to text.

    If the text mentions ROT13, the whole text is also decoded with it. Decoded text is searched
    for encoded text.
    """
    rotated = _ROT13.search(text.lower()) if "13" in text else None
    if rotated:
        yield rotated.start(), codecs.decode(text, "rot13")
    for match in _find_runs(text):
        found = [*_decode(match[0])]
        for _ in range(_MAX_LEVELS):
            yield from ((match.start(), decoded) for decoded in found)
            found = [inner for one in found for run in _find_runs(one) for inner in _decode(run[0])]


def _find_runs(text: str) -> Iterator[re.Match[str]]:
    """Yield the matches of _LINES; they begin with 24 characters, whose shape is found fast."""
    shape, end = text.encode("ascii", "replace").translate(_SHAPE), 0
    while (start := shape.find(b"x" * 24, end)) >= 0 and (run := _LINES.match(text, start)):
        yield run
        end = run.end()


def _decode(run: str) -> Iterator[str]:
    """Yield the text that a run encodes, or its lines or parts that a path separates."""
    lines = run.split()
    decoded = _decode_line("".join(lines)) or _decode_line("".join(lines[:-1]))
    if decoded:
        yield decoded
    elif len(lines) > 1 or "/" in run:
        parts = (part for part in re.split(r"[\s/]+", run) if _PART.fullmatch(part))
        yield from filter(None, map(_decode_line, parts))


def _decode_line(line: str) -> str:
    as_hex = _HEX.fullmatch(line)
    return (as_hex and _as_text(bytes.fromhex(as_hex[1]))) or _as_text(_from_base64(line))


def _from_base64(run: str) -> bytes:
    bare = run.rstrip("=")
    try:
        return base64.b64decode(bare + "=" * (-len(bare) % 4), validate=True)
    except binascii.Error:  # not the length of encoded bytes
        return b""


def _as_text(content: bytes) -> str:
    try:
        text = content.replace(b"\0", b"").decode("utf-8")  # letters of UTF-16 have a NUL
    except UnicodeDecodeError:
        return ""
    printable = sum(c.isprintable() or c in "\n\t" for c in text)
    return text if text and printable >= _PRINTABLE_SHARE * len(text) else ""
