"""Splits code into statements, without a grammar, since it may be broken or hostile."""

from __future__ import annotations

import re
import textwrap
from bisect import bisect_right
from collections import defaultdict
from collections.abc import Iterator, Sequence
from functools import cached_property
from itertools import pairwise

from skills.scanner.code_blocks import Code, Language
from skills.scanner.flow.names import expand_commands, expand_names

_BRACKETS = r"(?P<open>[(\[{])|(?P<close>[)\]}])"
_PYTHON = r"""[^"'\#\\()\[\]{}\n;=]*+(?:
    (?P<comment>\#[^\n]*|\\\n) | (?P<end>[\n;]) | (?P<assign>(?<![=!<>])=(?!=))
    | (?P<text>"{3}(?:[^"\\]|\\.|"(?!""))*+(?:"{3}|\Z) | '{3}(?:[^'\\]|\\.|'(?!''))*+(?:'{3}|\Z)
        | "(?:[^"\\\n]|\\.)*+"? | '(?:[^'\\\n]|\\.)*+'? ) | """
_JAVASCRIPT = r"""[^"'`/()\[\]{}\n;=]*+(?:
    (?P<comment>//[^\n]*|/\*(?:[^*]|\*(?!/))*+(?:\*/)?)
    | (?P<end>;|\n(?!\s*(?:\??\.(?!\.)|[)\]|&?:+]))) | (?P<assign>(?<![=!<>])=(?![=>]))
    | (?P<text>"(?:[^"\\\n]|\\.)*+"? | '(?:[^'\\\n]|\\.)*+'? | `(?:[^`\\]|\\.)*+`?
        | (?<![^(,=:!&|?;{}\s])/(?![/*\s])(?:[^/\\\n\[]|\\.|\[(?:[^\]\\\n]|\\.)*\])+/ ) | """
_SHELL = r"""(?:
    (?P<comment>(?<![^\s;&|(])\#[^\n]*|\\\n) | \|&?(?:\s|\#[^\n]*\n)*+ | \$\{[^}\n]*\}
    | (?P<end>\n|;;?|&&|\|\||(?<![<>])&(?![>&\d])) | (?P<text>
        \b(?:curl|wget|nc)\b[^\n;|&]*<<-?\s?["']?(?P<tag>\w+)[^\n]*\n
            (?:.{0,4000}?\n)??\s*(?P=tag)\b
        | '[^']*+' | "(?:[^"\\]|\\.)*+" | \\.)
    | (?P<group>(?<![^\s;&|()])(?:if|for|while|until|case|select|\{)(?=\s))
    | (?P<ended>(?<![^\s;])(?:fi|done|esac|\})(?=[\s;&|<>)]|\Z)) | """
_TOKEN = {
    "python": re.compile(_PYTHON + _BRACKETS + "| . )", re.VERBOSE | re.DOTALL),
    "javascript": re.compile(_JAVASCRIPT + _BRACKETS + "| . )", re.VERBOSE | re.DOTALL),
    "shell": re.compile(_SHELL + r"(?P<open>\()|(?P<close>\)))", re.VERBOSE | re.DOTALL),
}
_IN_OBJECT = re.compile(r"(?:[(,:\[?&|+]|(?<![=<>!])=|\breturn)\s*$")
"""Text before a brace of JavaScript that begins an object; other braces begin statements."""
_REDIRECTED = re.compile(r"\s*[|<>]")
"""Text after a group of commands that share their input or output."""
_LISTED = r"((?:[^()]|\([^()]{0,80}\)){0,300})"
_FUNCTION = {
    "python": rf"(?m)^(?P<indent>[ \t]*)(?:async )?def (\w+)[ \t]?\({_LISTED}\)"
    r"|\b(\w+) = lambda ([\w, ]{0,100}):",
    "javascript": rf"\bfunction\*? (\w+)[ \t]?\({_LISTED}\)"
    r"|\b(\w+)(?:: [\w<>]{1,40})? = (?:async )?\(?([\w\s,:?]{0,200})\)?(?:: ?[\w<>]{1,40})? =>"
    r"|(?m:^)[ \t]{1,20}(?:(?:async|static|public|private) ){0,3}"
    r"(?!(?:if|for|while|switch|catch)\b)(\w+)\(([^()]{0,200})\)(?:: ?[\w<>]{1,40})? \{",
    "shell": r"(?m)^[^\S\n]*(?:function\s+)?([\w-]{1,80})()\s*(?:\(\)\s*)?(?=\{\s)",
}
"""Patterns of definitions of functions, with their names and parameters."""
_PARAMETER = re.compile(r"(?:^|,)[\s*.]*(\w+)")
_TYPES = re.compile(r"\([^()]*\)|\[[^][]*\]|\{[^{}]*\}|<[^<>]*>")
_BRACE = re.compile(r"[>){]?\s*(?::[^{}=\n]{1,60})?\{|\{")
"""Text from the last character of a definition to the brace of its body."""
Span = tuple[int, int]


class Function:
    """A function of a program, with the span of its body."""

    def __init__(self, name: str, parameters: Sequence[str], body: Span) -> None:
        self.name, self.parameters, self.body = name, parameters, body


class Statements:
    """Code of one language as one text in lower case, without comments, and its statements.

    A block of JavaScript, or of commands, within a statement consists of statements of its own.
    closings: offsets of opening brackets -> those of their closings. assignments: offsets of `=`.
    """

    def __init__(self, codes: Sequence[Code]) -> None:
        """codes: code of one language."""
        self.language: Language = codes[0].language
        self._codes, self._code_starts, texts = codes, [0], []
        self.modules = {code.module.lower() for code in codes if code.module}
        for code in codes:
            text = textwrap.dedent(code.text).replace("\u0130", "i").lower()
            expand = expand_commands if self.language == "shell" else expand_names
            texts.append(f"{expand(text)}\n")
            self._code_starts.append(self._code_starts[-1] + len(texts[-1]))
        self.text = self._source = "".join(texts)
        self.closings: dict[int, int] = {}
        self.assignments: list[int] = []
        self._starts, self._numbers = [0], [0]
        self._split()

    def _split(self) -> None:
        kept: list[str] = []
        for begin, end in pairwise(self._code_starts):
            self._begin(begin)
            at = begin
            for start, stop in self._split_code(begin, end):
                kept += [self.text[at:start], " " * (stop - start)]
                at = stop
            kept.append(self.text[at:end])
        self.text = "".join(kept)

    def _split_code(self, begin: int, end: int) -> Iterator[Span]:
        """Find the statements and brackets of a code; yield the spans of its comments."""
        text, is_shell = self.text, self.language == "shell"
        number = self._numbers[-1]
        open_: list[tuple[int, int, str]] = []  # (offset, its statement, bracket or "block")
        for token in _TOKEN[self.language].finditer(text, begin, end):
            kind, stop = token.lastgroup, token.end()
            if kind is None or kind == "text":
                continue
            start = token.start(kind)
            in_block = not open_ or open_[-1][2] == "block"
            if kind == "comment":
                yield start, stop
            elif kind == "assign":
                if in_block or self.language == "javascript":
                    self.assignments.append(start)
            elif kind == "end":
                number = self._begin(stop) if in_block else number
            elif kind in ("open", "group"):
                is_block = kind == "group" or (
                    self.language == "javascript"
                    and text[start] == "{"
                    and not _IN_OBJECT.search(text, max(begin, start - 20), start)
                )
                open_.append((start, number, "block" if is_block else text[start]))
                number = self._begin(stop) if is_block and not is_shell else number
            elif open_ and (kind == "ended") == (is_shell and in_block):
                opening, outer, bracket = open_.pop()
                self.closings[opening] = start
                if bracket == "block" and not is_shell:
                    number = self._begin(stop, outer)
                elif bracket == "block" and _REDIRECTED.match(text, stop, end):
                    first = bisect_right(self._starts, opening) - 1
                    self._numbers[first:] = [number] * (len(self._numbers) - first)

    def _begin(self, start: int, number: int = -1) -> int:
        """Begin a statement, or go on with the statement `number`; return its number."""
        number = number if number >= 0 else len(self._starts)
        self._starts.append(start)
        self._numbers.append(number)
        return number

    def find_line(self, offset: int) -> int:
        """Return the line of an offset in the file of its code."""
        place = bisect_right(self._code_starts, offset) - 1
        start = self._code_starts[place]
        return self._codes[place].first_line + self._source.count("\n", start, offset)

    def number_at(self, offset: int) -> int:
        """Return the number of the statement at an offset."""
        return self._numbers[bisect_right(self._starts, offset) - 1]

    @cached_property
    def _parts(self) -> dict[int, list[Span]]:
        parts = defaultdict(list)
        for start, end, number in zip(
            self._starts, [*self._starts[1:], len(self.text)], self._numbers, strict=True
        ):
            parts[number].append((start, end))
        return parts

    def parts(self, number: int) -> list[Span]:
        """Return the spans of a statement, without the blocks within it."""
        return self._parts[number]

    def code_span(self, offset: int) -> Span:
        """Return the span of the code at an offset; all shell commands are one code."""
        if self.language == "shell":
            return 0, len(self.text)
        place = bisect_right(self._code_starts, offset) - 1
        return self._code_starts[place], self._code_starts[place + 1]

    @cached_property
    def functions(self) -> list[Function]:
        """All functions, the innermost of those that contain a place last."""
        found = []
        for match in re.finditer(_FUNCTION[self.language], self.text):
            names = [one for one in match.groups() if one is not None]
            name, listed = names[-2:]
            while listed != (listed := _TYPES.sub("", listed)):
                pass
            found.append(Function(name, _PARAMETER.findall(listed), self._body(match)))
        return found

    def _body(self, match: re.Match[str]) -> Span:
        end = match.end()
        if match.groupdict().get("indent") is not None:
            starts = self._starts
            for at in range(bisect_right(starts, end), len(starts)):
                row = self.text[starts[at] : starts[at] + 200]
                if row.strip() and len(row) - len(row.lstrip()) <= len(match["indent"]):
                    return end, starts[at]
            return end, self.code_span(end)[1]
        brace = _BRACE.match(self.text, end - 1)
        if brace and brace.end() - 1 in self.closings:
            return end, self.closings[brace.end() - 1]
        return end, self.parts(self.number_at(match.start()))[-1][1]

    def functions_at(self, offset: int) -> Iterator[Function]:
        """Yield the functions that contain an offset, the innermost first."""
        for function in reversed(self.functions):
            if function.body[0] <= offset < function.body[1]:
                yield function
