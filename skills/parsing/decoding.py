"""Decodes the bytes of a SKILL.md, in any common encoding, into lines."""

from __future__ import annotations

import codecs
import re
from collections.abc import Sequence

from config.errors import PermanentError
from skills.record import ParseWarning

# UTF-32 first: its little-endian byte order mark begins with that of UTF-16.
_WIDE_MARKS = (
    (codecs.BOM_UTF32_LE, "utf-32"),
    (codecs.BOM_UTF32_BE, "utf-32"),
    (codecs.BOM_UTF16_LE, "utf-16"),
    (codecs.BOM_UTF16_BE, "utf-16"),
)
_CONTROL = re.compile(r"[\x00-\x08\x0e-\x1a\x1c-\x1f\x7f]")
_WIDE_PROBE = 4096
_WIDE_SHARE = 0.3
"""First bytes that are searched for ASCII characters next to a NUL, and the share of these from
which a file is UTF-16."""
_ASCII = frozenset({*b"\t\n\r", *range(0x20, 0x7F)})

_BINARY_SHARE = 0.05
"""Share of control characters from which a file is binary."""

_BROKEN_SHARE = 0.2
"""Share of replacement characters from which a file is of an unknown encoding."""

_ALLOWED, _ALLOWED_SHARE = 8, 1 / 8
"""Control and replacement characters allowed beyond these shares, up to an eighth of a file."""

_HAN = re.compile(r"[\u4e00-\u9fff]")
_CONFLICT = re.compile(r"<{7}(?: .*)?|={7}|>{7}(?: .*)?|\|{7}(?: .*)?")


DECODING_WARNINGS = frozenset(
    {"wide_encoding", "bom", "legacy_encoding", "invalid_utf8", "nul", "lone_cr", "cr_cr_lf"}
)
"""Codes of the warnings of `decode_lines`."""


class ParseError(PermanentError):
    """A SKILL.md that cannot be read. `line` is 0 when the whole file is at fault."""

    def __init__(self, path: str, line: int, reason: str, advice: str) -> None:
        file = f"{path}/SKILL.md" if path else "SKILL.md"
        super().__init__(f"{file}:{max(line, 1)}: {reason}; {advice}")
        self.path = path
        self.line = line
        self.reason = reason


def decode_lines(path: str, content: bytes) -> tuple[tuple[str, ...], list[ParseWarning]]:
    """Decode a file and split it at line feeds; carriage returns at line ends are dropped.

    Line n is `lines[n - 1]`, as in `text.split("\\n")` of the decoded file; only a file without
    any line feed is split at its carriage returns. Undecodable bytes and NUL become U+FFFD.
    Raises ParseError for a binary file.
    """
    warnings: list[ParseWarning] = []
    # Files with a mark that were joined begin with two.
    text = _decode(content, warnings).lstrip("\ufeff")
    _refuse_binary(path, text)
    if "\0" in text:
        line = text.count("\n", 0, text.index("\0")) + 1
        warnings.append(ParseWarning("nul", line, "NUL characters were replaced by U+FFFD"))
        text = text.replace("\0", "\ufffd")
    if "\n" not in text.rstrip("\r\n") and "\r" in text.strip("\r\n"):
        warnings.append(ParseWarning("lone_cr", 0, "lines end in carriage returns alone"))
        text = text.rstrip("\r\n").replace("\r", "\n")
    if "\r\r\n" in text:
        line = text.count("\n", 0, text.index("\r\r\n")) + 1
        warnings.append(ParseWarning("cr_cr_lf", line, "lines end in CR CR LF"))
    lines = text.split("\n")
    if "\r" in text:
        lines = [line.rstrip("\r") for line in lines]
    return tuple(lines), warnings


def find_conflict_markers(lines: Sequence[str]) -> list[int]:
    """Return the numbers (1-based) of lines with conflict markers of git.

    Without an opening marker the list is empty.
    """
    marks = [
        number
        for number, line in enumerate(lines, 1)
        if line[:7] in ("<<<<<<<", "=======", ">>>>>>>", "|||||||") and _CONFLICT.fullmatch(line)
    ]
    if any(lines[number - 1].startswith("<") for number in marks):
        return marks
    return []


def _decode(content: bytes, warnings: list[ParseWarning]) -> str:
    for mark, encoding in _WIDE_MARKS:
        if content.startswith(mark):
            warnings.append(ParseWarning("wide_encoding", 1, f"the file is {encoding}, not UTF-8"))
            return content.decode(encoding, "replace")
    if content.startswith(codecs.BOM_UTF8):
        warnings.append(ParseWarning("bom", 1, "the file begins with a byte order mark"))
        content = content[len(codecs.BOM_UTF8) :]
    wide = _unmarked_utf16(content)
    if wide:
        warnings.append(ParseWarning("wide_encoding", 1, f"the file is {wide}, not UTF-8"))
        return content.decode(wide, "replace")
    try:
        return content.decode("utf-8")
    except UnicodeDecodeError as error:
        line = content.count(b"\n", 0, error.start) + 1
    text = _gb18030(content)
    if text is not None:
        warnings.append(ParseWarning("legacy_encoding", line, "the file is GB18030, not UTF-8"))
        return text
    warnings.append(ParseWarning("invalid_utf8", line, "invalid UTF-8 was replaced by U+FFFD"))
    return content.decode("utf-8", "replace")


def _unmarked_utf16(content: bytes) -> str:
    """Return `utf-16-le` or `utf-16-be` if many pairs of bytes are an ASCII character, else ""."""
    probe = content[:_WIDE_PROBE]
    if len(probe) < 4 or b"\0" not in probe:
        return ""
    even, odd = probe[::2], probe[1::2]
    for encoding, low, high in (("utf-16-le", even, odd), ("utf-16-be", odd, even)):
        characters = sum(not one and other in _ASCII for one, other in zip(high, low, strict=False))
        if characters > _WIDE_SHARE * len(probe) / 2 and low.count(0) < characters / 8:
            return encoding
    return ""


def _gb18030(content: bytes) -> str | None:
    """Return the text if the bytes are valid GB18030 and the text is mostly Chinese, else None."""
    try:
        text = content.decode("gb18030")
    except UnicodeDecodeError:
        return None
    foreign = sum(1 for char in text if char > "\x7f")
    return text if foreign >= 8 and len(_HAN.findall(text)) > 0.6 * foreign else None


def _refuse_binary(path: str, text: str) -> None:
    size = len(text)
    allowed = min(_ALLOWED, _ALLOWED_SHARE * size)
    is_plain = text.replace("\n", "").replace("\t", "").isprintable()
    if not is_plain and len(_CONTROL.findall(text)) > _BINARY_SHARE * size + allowed:
        raise ParseError(path, 0, "the file is binary", "replace it by a Markdown text in UTF-8")
    if text.count("\ufffd") > _BROKEN_SHARE * size + allowed:
        raise ParseError(path, 0, "the file is not text in a known encoding", "save it as UTF-8")
