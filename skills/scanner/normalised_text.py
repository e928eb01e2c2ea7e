"""Text normalised for matching, with its lines, sentences and blocks of code."""

from __future__ import annotations

import html
import re
import unicodedata
from bisect import bisect_right
from collections.abc import Iterator, Sequence
from functools import cached_property, lru_cache
from itertools import accumulate

from skills.parsing.markdown import find_fenced_lines
from skills.scanner.hidden_characters import HOMOGLYPHS, fold_homoglyphs, strip_invisible

_SPELT_OUT = re.compile(r"(?<!\S)(?:[^\W\d_] ){3,}[^\W\d_](?!\S)")
_MAYBE_SPELT_OUT = re.compile(r" [^\W\d_] [^\W\d_] [^\W\d_](?!\S)")
_SPACES = re.compile(r"(?<=\S)[^\S\n]+")
_SPACES_OF_ASCII = "\t\n\v\f\r\x1c\x1d\x1e\x1f"
_OWN_LINE = re.compile(
    r"\s*(?:$|[-*+](?:\s|$)|[|><]|[-*_]{3}|#{1,6}\s|\d{1,9}[.)]\s|`{3}|~{3}|[\w-]{1,40}:\s)"
)
_QUOTE = re.compile(r"\s{0,3}>\s?")
_REFERENCE = re.compile(r"&(?:#[xX][0-9a-fA-F]{1,6}|#\d{1,7}|[a-zA-Z][a-zA-Z0-9]{1,31});")
_EMPHASIS = re.compile(r"\*(?<=[^\W\d_]\*)\*{0,2}(?=[^\W\d_])")
"""Marks of emphasis inside a word."""
_ACCENTS = re.compile("[\u0300-\u036f]+")
_HEADING = re.compile(r"\s{0,3}#{1,6}\s")
SENTENCE_END = re.compile(r"[.!?;]\s|[。！？；]|\n")
_SENTENCE = re.compile(rf"{SENTENCE_END.pattern}|\s\|\s")


class NormalisedText:
    """A whole file as one string, normalised for matching, in three forms of equal length.

    `display` is for excerpts, `folded` is in lower case for matching, and `spaced` is `folded` with
    spaces for all white space. Invisible characters are removed, wide forms and homoglyphs are
    replaced, words spelt letter by letter are joined, white space is collapsed, and the lines of a
    paragraph, or of a shell command continued by a backslash, are joined to one line.
    `lines`: the lines before they are joined.
    """

    def __init__(self, lines: Sequence[str], body_line: int, *, is_code: bool = False) -> None:
        """is_code: whether the file is a script, whose lines do not form paragraphs."""
        self.is_code = is_code
        whole = "\n".join(map(str.lstrip, lines) if is_code else lines)
        if not is_code:
            whole = _EMPHASIS.sub("", _REFERENCE.sub(_resolve, whole))
        if not whole.isascii():
            whole = _replace_characters(whole)
        if is_code:
            whole = _collapse(whole)
            self.lines = plain = whole.split("\n")
            self.fenced = [True] * len(plain)
        else:
            if _MAYBE_SPELT_OUT.search(whole):
                whole = _SPELT_OUT.sub(lambda word: word[0].replace(" ", ""), whole)
            # White space other than spaces is not printable.
            plain = [
                line if line.isprintable() and "  " not in line.lstrip() else _SPACES.sub(" ", line)
                for line in whole.split("\n")
            ]
            self.lines = plain = [*_strip_quotes(plain)] if "\n>" in whole else plain
            has_fences = "```" in whole or "~~~" in whole
            self.fenced = (
                find_fenced_lines(lines, body_line) if has_fences else [False] * len(plain)
            )
            """For each line, whether it is in a fenced block; the fences are included."""
            whole = "".join(_join_lines(plain, self.fenced, body_line))
        self.display = whole.replace("\\\n", "  ")
        # U+0130 is the only character that grows when lowered.
        self.folded = self.display.replace("\u0130", "I").lower()
        self.spaced = self.folded
        for space in _SPACES_OF_ASCII:
            self.spaced = self.spaced.replace(space, " ")

    @cached_property
    def _starts(self) -> list[int]:
        """Offsets of all lines, and of the end."""
        return [0, *accumulate(len(line) + 1 for line in self.lines)]

    def line_at(self, offset: int) -> int:
        """Return the line (1-based) of an offset."""
        return bisect_right(self._starts, offset)

    def offset_of(self, line: int) -> int:
        """Return the offset of the first non-blank character of a line (1-based)."""
        start, end = self._starts[line - 1 : line + 1]
        row = self.folded[start:end]
        return start + len(row) - len(row.lstrip())

    def in_code(self, offset: int) -> bool:
        """Return whether an offset is in a fenced block."""
        return self.fenced[self.line_at(offset) - 1]

    @cached_property
    def sentences(self) -> list[int]:
        """Offsets of all sentences and cells of tables; of a script, offsets of all lines."""
        if self.is_code:
            return self._starts[:-1]
        return [0, *(end.end() for end in _SENTENCE.finditer(self.folded))]


def _collapse(text: str) -> str:
    """Replace runs of blanks by one space."""
    text = text.replace("\t", " ")
    while "  " in text:
        text = text.replace("  ", " ")
    return text


def _replace_characters(text: str) -> str:
    foreign = {*"".join(line for line in text.split("\n") if not line.isascii())}
    shown = {ord(character): _replace_character(character) for character in foreign}
    if any(chr(code) != plain for code, plain in shown.items()):
        text = text.translate(shown)
    return text if HOMOGLYPHS.isdisjoint("".join(shown.values())) else fold_homoglyphs(text)


@lru_cache(maxsize=4096)
def _replace_character(character: str) -> str:
    """Return the normal form of a character without accents, "" for an invisible one."""
    bare = _ACCENTS.sub("", unicodedata.normalize("NFKD", strip_invisible(character)))
    shown = unicodedata.normalize("NFKC", bare).replace("’", "'")
    return " " if shown.isspace() else shown


def _resolve(reference: re.Match[str]) -> str:
    """Return the characters of a reference, a space for white space."""
    shown = html.unescape(reference[0])
    return " " if shown.isspace() else shown


def _strip_quotes(lines: Sequence[str]) -> Iterator[str]:
    """Yield the lines, without the mark of a quotation where they go on with its paragraph."""
    before = None
    for line in lines:
        mark = _QUOTE.match(line)
        goes_on = mark and before and not _OWN_LINE.match(line, mark.end())
        yield line[mark.end() :] if mark and goes_on else line
        before = mark and line[mark.end() :]


def _join_lines(lines: Sequence[str], fenced: Sequence[bool], body_line: int) -> Iterator[str]:
    """Yield each line with its separator: a space within a paragraph, else a line feed."""
    for number, line in enumerate(lines[:-1], start=1):
        following = lines[number]
        if number + 1 < body_line:
            may_go_on = following[:1] == " "
        else:
            may_go_on = bool(line and following) and number >= body_line
            may_go_on = may_go_on and not (fenced[number - 1] or fenced[number])
            may_go_on = may_go_on and not _HEADING.match(line)
        goes_on = may_go_on and not _OWN_LINE.match(following)
        yield line + (" " if goes_on else "\n")
    yield from lines[-1:]
