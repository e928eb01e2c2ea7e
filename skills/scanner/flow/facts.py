"""What a statement does with its values: names that it assigns, functions that it calls."""

from __future__ import annotations

import re
from bisect import bisect_left, bisect_right
from collections import defaultdict
from collections.abc import Iterator, Sequence
from functools import cached_property
from itertools import islice

from skills.scanner.data_files import word_set
from skills.scanner.flow.meanings import read_meanings
from skills.scanner.flow.statements import Function, Span, Statements

Target = tuple[str, Span]
"""A name, and the span of the code in which it has the assigned value.

`self.NAME` is a member of an object, `NAME()` the result of a function, `path:NAME` a file.
"""
_LEFT = re.compile(r"((?:[\w$.,\s*()]|\[[^\]\n]*\])*|\{[^{}]*\}\s*)(?::[^=;]*)?[+|:?&]?$")
"""Targets of an assignment, before their type."""
_MAX_LEFT = 200
"""Characters before `=` that are searched for targets."""
_NAME = re.compile(r"(?<![\w.$])(?:(?:self|this)\.)?[a-z_$][\w$]*")
_KEYWORDS = word_set("const let var in of not async await export return if else for self this")
_MAX_OPENED = 20
"""Places where an object is opened that are searched for the names of files."""
_IN_NAME = re.compile(r"[\w.$\]]")
_RETURN = re.compile(r"\b(?:return|yield)\b")
LITERAL = re.compile(r"[\"'`]([^\"'`\n]{1,200})[\"'`]")
_ARGUMENTS = re.compile(r"[,(\[{]|\"(?:[^\"\\\n]|\\.)*\"|'(?:[^'\\\n]|\\.)*'")
_KEYWORD = re.compile(r"\s*(\w+)\s*=(?!=)")
_DECLARES = re.compile(r"\b(?:const|let|var|global|nonlocal)\b([^=;\n]*)")
_FILE = re.compile(r"(?!-)[\w$~/.{}@+-]*\w[\w$~/.{}@+-]*")
_MAX_BRACKETS = 100
"""Brackets before a place that are searched for the bracket around it."""


class Facts:
    """What the statements of some code do."""

    def __init__(self, code: Statements) -> None:
        self._code, self._text, self._is_shell = code, code.text, code.language == "shell"
        self._patterns = read_meanings(code.language).others
        self._functions = {one.name: one for one in reversed(code.functions)}
        self._opened_files: dict[tuple[str, Span], list[Target]] = {}
        self._openings = sorted(code.closings)
        self._opened = {closing: opening for opening, closing in code.closings.items()}

    @cached_property
    def _call(self) -> re.Pattern[str]:
        if self._is_shell:
            return re.compile(r"(?<![\w$./-])([\w-]+)(?=\s)")
        owners = "|".join(map(re.escape, sorted({"self", "this", *self._code.modules})))
        return re.compile(
            rf"(?<![\w$.])(?<!def )(?<!function )(?:(?:\w+\.)*(?:{owners})\.)?(\w+)(?=[(,)])"
        )

    def find_targets(self, start: int, end: int) -> Iterator[Target]:
        """Yield what a part of a statement assigns."""
        text, whole = self._text, (0, len(self._text))
        for match in self._patterns["targets"].finditer(text, start, end):
            for name in _NAME.findall(match[match.lastindex or 0]):
                yield name, self._scope(name, match.start())
        for match in self._patterns["parameters"].finditer(text, start, end):
            for name in _NAME.findall(match[match.lastindex or 0]):
                yield name, self._around(match.end(), (start, end))
        for match in self._patterns["writes"].finditer(text, start, end):
            listed = match[match.lastindex or 0]
            files = listed.split() if self._is_shell else LITERAL.findall(text, start, end)
            yield from ((name, whole) for file in files for name in name_files(file))
        places = self._code.assignments
        for place in places[bisect_left(places, start) : bisect_left(places, end)]:
            left = _LEFT.search(text, max(start, place - _MAX_LEFT), place)
            for name in _NAME.findall(left[1] if left else ""):
                yield name, self._scope(name, place)
        result = None if self._is_shell else _RETURN.search(text, start, end)
        function = next(self._code.functions_at(result.start()), None) if result else None
        if function:
            yield f"{function.name}()", whole

    def _scope(self, name: str, place: int) -> Span:
        """Return the span in which a name that is assigned at a place is declared."""
        if name in _KEYWORDS:
            return 0, 0
        if name.startswith(("self.", "this.")):
            return 0, len(self._text)
        is_python = self._code.language == "python"
        for function in self._code.functions_at(place):
            start, end = function.body
            is_declared = any(start <= at < end for at in self._declared.get(name, ()))
            if name in function.parameters or is_declared != is_python:
                return function.body
        return self._code.code_span(place)

    @cached_property
    def _declared(self) -> dict[str, list[int]]:
        """Name -> offsets of declarations: variables of JavaScript, globals of Python."""
        found: dict[str, list[int]] = defaultdict(list)
        for match in _DECLARES.finditer(self._text):
            for name in _NAME.findall(match[1]):
                found[name].append(match.start())
        return found

    def _around(self, place: int, part: Span) -> Span:
        """Return the span of the bracket around a place; `part` where there is none."""
        first = bisect_right(self._openings, place)
        for opening in reversed(self._openings[max(0, first - _MAX_BRACKETS) : first]):
            if self._code.closings[opening] > place:
                return opening, self._code.closings[opening]
        return part

    def find_calls(self, start: int, end: int) -> Iterator[tuple[Function, Span]]:
        """Yield the functions of this code that are called, with the spans of their arguments.

        A function that is itself an argument receives the other arguments.
        """
        for match in self._call.finditer(self._text, start, end) if self._functions else ():
            function, opening = self._functions.get(match[1]), match.end()
            if function is None:
                continue
            if self._is_shell:
                yield function, (opening, end)
            elif self._text[opening] == "(":
                yield function, (opening, self._code.closings.get(opening, end))
            else:
                yield function, (start, end)

    def find_changed(self, start: int, end: int) -> Iterator[tuple[Target, Span]]:
        """Yield objects whose methods keep their arguments, with the spans of the arguments.

        An object that is written to stands for the files that are named where it is opened.
        """
        for match in (
            () if self._is_shell else self._patterns["keeps"].finditer(self._text, start, end)
        ):
            name, opening = match[1], match.end() - 1
            arguments = opening, self._code.closings.get(opening, end)
            scope = self._scope(name, opening)
            yield (name, scope), arguments
            if "write" in match[0]:
                yield from ((file, arguments) for file in self._find_opened(name, scope))

    def _find_opened(self, name: str, scope: Span) -> Sequence[Target]:
        """Return the files that are named where an object is opened."""
        if (name, scope) not in self._opened_files:
            found = self._opened_files[name, scope] = []
            opened = re.compile(rf"(?<![\w.]){re.escape(name)} ?=|\bas {re.escape(name)}\b")
            for match in islice(opened.finditer(self._text, *scope), _MAX_OPENED):
                for part in self._code.parts(self._code.number_at(match.start())):
                    found += self._find_files(*part)
        return self._opened_files[name, scope]

    def _find_files(self, start: int, end: int) -> Iterator[Target]:
        for literal in LITERAL.findall(self._text, start, end):
            yield from ((name, (0, len(self._text))) for name in name_files(literal))

    def find_reads(self, start: int, end: int) -> Iterator[Span]:
        """Yield the spans of calls that read files, each with the object of the method."""
        for match in self._patterns["reads"].finditer(self._text, start, end):
            if self._is_shell:
                yield match.span()
                continue
            first, opening = match.start(), match.end() - 1
            while first > start and _IN_NAME.match(self._text, first - 1):
                first -= 1
                if self._text[first - 1] == ")":
                    first = self._opened.get(first - 1, first)
            yield first, self._code.closings.get(opening, end)

    def find_parameter(self, function: Function, span: Span, place: int) -> str:
        """Return the parameter that receives the argument at a place, "" for none."""
        if self._is_shell:
            return str(len(self._text[span[0] : place].split()) or 1)
        if not function.parameters:
            return ""
        number, at, begin = 0, span[0] + 1, span[0] + 1
        while (mark := _ARGUMENTS.search(self._text, at, place)) is not None:
            at = max(mark.end(), self._code.closings.get(mark.start(), -1) + 1)
            if mark[0] == ",":
                number, begin = number + 1, at
        key = _KEYWORD.match(self._text, begin)
        if key and key[1] in function.parameters:
            return key[1]
        return function.parameters[min(number, len(function.parameters) - 1)]


def name_files(path: str) -> list[str]:
    """Return the name of a file for a word that may be its path, or the end of its address."""
    bare = re.sub("[\"']", "", path).removeprefix("./")
    if "://" in bare:
        bare = bare.rstrip("/").rpartition("/")[2].partition("?")[0]
    return [f"path:{bare}"] if _FILE.fullmatch(bare) else []


_USES = {
    "file": (re.compile(r"(?:^|[^\w./-])(?:\./)?$"), re.compile(r"(?![\w./-])")),
    "result": (
        re.compile(r"(?<![\w$])(?<!def )(?<!function )$"),
        re.compile(r"\((?:[^()]*\))?|(?=[,)])"),
    ),
    "member": (re.compile(r"\b(?:self|this)\.$"), re.compile(r"\b(?!\s*=(?!=))")),
    "shell": (re.compile(r"\$\{?$"), re.compile(r"(?!\w)")),
    "name": (
        re.compile(r"(?:^|[^\w$.])$"),
        re.compile(r"(?![\w$]|\s*=(?![=>])|\s*:(?=[^\n]*[,}]))"),
    ),
}
"""Kind of name -> patterns of the text before and after a use of it."""
_MAX_BEFORE = 10


def find_uses(text: str, name: str, span: Span, language: str) -> Iterator[Span]:
    """Yield the places in a span where a name is used."""
    kind, bare = "shell" if language == "shell" else "name", name
    if name.startswith("path:"):
        kind, bare = "file", name.removeprefix("path:")
    elif name.endswith("()"):
        kind, bare = "result", name.removesuffix("()")
    elif name.startswith(("self.", "this.")):
        kind, bare = "member", name.partition(".")[2]
    before, after = _USES[kind]
    at = text.find(bare, *span)
    while at >= 0:
        end = at + len(bare)
        following = after.match(text, end)
        if following and before.search(text, max(0, at - _MAX_BEFORE), at):
            yield at, following.end()
        at = text.find(bare, end, span[1])
