"""Finds code with its language: whole scripts, and code blocks and commands in Markdown."""

from __future__ import annotations

import re
from bisect import bisect_left, bisect_right
from collections.abc import Iterator, Sequence
from functools import cached_property
from typing import Literal, NamedTuple

Language = Literal["python", "javascript", "shell"]
LANGUAGES: dict[Language, str] = {
    "python": "python python3 py pyw ipython",
    "javascript": "javascript js mjs cjs node nodejs typescript ts mts cts jsx tsx deno bun",
    "shell": "bash sh shell zsh console terminal ksh shell-session command",
}
_LANGUAGES = {name: language for language, names in LANGUAGES.items() for name in names.split()}
"""Name -> language, for names in fences, file endings and first lines of scripts."""
PROGRAM_ENDINGS = tuple(f".{name}" for name, one in _LANGUAGES.items() if one != "shell")
_FENCE = re.compile(r"\s*(?:(?:[-*+]|\d{1,9}[.)])\s+)?(`{3,}(?!.*`)|~{3,})\s*\{?\.?([\w+-]*)")
_PROMPT = re.compile(r"(?m)^(\s*)(?:[$%>] |>>> |\.\.\. |[\w.-]{1,60}@[\w.-]{1,60}:\S{0,80}[$#%] )")
_COMMANDS = (
    "curl wget bash sh sudo cat env printenv tar zip echo eval nc scp rsync base64 chmod python3 "
    "git security dig crontab"
)
_MARK = r"\s*(?:(?:[-*+>$%]|\d{1,3}[.)]|RUN|(?:run|script|command):)\s+)*@?"
"""Marks of lists, quotes and prompts, and words before commands in build files."""
_COMMAND = re.compile(rf"{_MARK}\(?(?:\w+=\S*(?:\s|$)|(?:{_COMMANDS.replace(' ', '|')})\s)")
_LEAD = re.compile(_MARK)
_SPAN = re.compile(r"`([^`\n]{8,4000})`|<code>([^<\n]{8,4000})</code>")
_RUNS_OR_SENDS = ("curl", "wget", "nc ", "/dev/tcp", "scp", "rsync", "eval", "base64", "<(")
_EMBEDDED = [
    re.compile(r"\b(python3?|node)\b[^\n]{0,80}?" + mark)
    for mark in (r"<<-?\s*['\"]?(\w+)", r"\s-[ce]\s+(['\"])")
]
_EMBEDDED_END = re.compile(r"\n[^\S\n]*(\w+)|(['\"])(?=[\s|;&)]|$)")
_JSON_TEXT = re.compile(r'"((?:\\.|[^"\\\n]){8,4000})"')
_STRING = re.compile(r"\"((?:\\.|[^\"\\\n])*+)\"|'((?:\\.|[^'\\\n])*+)'|`((?:\\.|[^`\\])*+)`")
"""Literal texts in code."""
_SENDS = re.compile(r"\b(?:curl|wget|nc|scp|rsync)\s")
_SENDERS = ("curl", "wget", "nc ", "nc\t", "scp", "rsync")


class Code(NamedTuple):
    """Code, with its first line (1-based) in the file.

    module: name by which other scripts import this script.
    """

    language: Language
    text: str
    first_line: int
    module: str = ""


class Lines:
    """Finds the lines of offsets in code. first_line: its first line in the file."""

    def __init__(self, code: str, first_line: int) -> None:
        self._code, self._first = code, first_line

    @cached_property
    def _starts(self) -> list[int]:
        return [0, *(end.end() for end in re.finditer("\n", self._code))]

    def find(self, offset: int) -> int:
        """Return the line of an offset, in the file."""
        return bisect_right(self._starts, offset) - 1 + self._first


def find_language(path: str, lines: Sequence[str]) -> Language | None:
    """Return the language of a script by its ending or its first line, None for other files."""
    ending = path.rpartition("/")[2].rpartition(".")[2].lower() if "." in path else ""
    programs = [ending]
    if ending not in _LANGUAGES and lines and lines[0].startswith("#!"):
        programs += (one.rstrip("0123456789.") for one in lines[0].replace("/", " ").split())
    return next((_LANGUAGES[one] for one in programs if one in _LANGUAGES), None)


def find_script(path: str, lines: Sequence[str]) -> Iterator[Code]:
    """Yield the code of a script, or the commands in a JSON file."""
    language = find_language(path, lines)
    if path.lower().endswith(".json"):
        yield from _find_json_commands("\n".join(lines), 1)
    elif language:
        yield from _with_embedded(Code(language, "\n".join(lines), 1, name_module(path)))


def name_module(path: str) -> str:
    """Return the name by which other scripts import a script."""
    return path.rpartition("/")[2].partition(".")[0]


def _find_json_commands(text: str, first_line: int) -> Iterator[Code]:
    """Yield commands in JSON, such as scripts of npm and hooks of agents."""
    lines = Lines(text, first_line)
    for found in _JSON_TEXT.finditer(text):
        if any(word in found[1] for word in _RUNS_OR_SENDS):
            command = found[1].replace('\\"', '"').replace("\\n", "\n")
            yield from _with_embedded(Code("shell", command, lines.find(found.start())))


def find_blocks(lines: Sequence[str], fenced: Sequence[bool]) -> Iterator[Code]:
    """Yield fenced code blocks in known languages, and shell commands in lines and code spans."""
    start = 0
    while start < len(lines):
        if not fenced[start]:
            end = next((at for at in range(start, len(lines)) if fenced[at]), len(lines))
            yield from _find_commands(lines, start, end)
            start = end
            continue
        fence = _FENCE.match(lines[start])
        mark, name = (fence[1], fence[2].lower() or "sh") if fence else ("", "")
        language = _LANGUAGES.get(name)
        end = start + 1
        # A block of another language, such as Markdown, may contain blocks of code.
        while end < len(lines) and fenced[end] and not _is_fence(lines[end], mark, bool(language)):
            end += 1
        text = "\n".join(lines[start + 1 : end])
        if language:
            yield from _with_embedded(Code(language, _PROMPT.sub(r"\1", text), start + 2))
        elif name in ("json", "jsonc", "json5"):
            yield from _find_json_commands(text, start + 2)
        else:
            yield from _find_commands(lines, start + 1, end)
        start = end + (end < len(lines) and _is_fence(lines[end], mark, bare=True))


def _is_fence(line: str, mark: str, bare: bool) -> bool:
    """Return whether a line begins with a fence's mark. bare: without the name of a language."""
    fence = _FENCE.match(line) if line.lstrip().startswith(mark) else None
    return bool(fence and not (bare and fence[2]))


def _find_commands(lines: Sequence[str], start: int, end: int) -> Iterator[Code]:
    """Yield commands at the start of lines, and in code spans."""
    while start < end:
        after = start + 1
        while lines[after - 1].endswith("\\") and after < end:
            after += 1
        line = "\n".join(lines[start:after])
        if _COMMAND.match(line):
            yield Code("shell", _LEAD.sub("", line, count=1), start + 1)
        if any(word in line for word in _RUNS_OR_SENDS):
            for span in _SPAN.finditer(line):
                yield Code("shell", span[1] or span[2], start + 1)
        start = after


def _with_embedded(code: Code) -> Iterator[Code]:
    """Yield the code, and the programs inside its shell commands."""
    yield code
    lines = Lines(code.text, code.first_line)
    may_send = any(word in code.text for word in _SENDERS)  # much faster than the pattern
    for text in _STRING.finditer(code.text) if may_send and _SENDS.search(code.text) else ():
        command = text[text.lastindex or 0]
        if _SENDS.search(command):
            yield Code("shell", command.replace("\\n", "\n"), lines.find(text.start()))
    if code.language != "shell":
        return
    ends: dict[str, list[int]] = {}
    for end in _EMBEDDED_END.finditer(code.text):
        ends.setdefault(end[1] or end[2], []).append(end.start())
    for pattern in _EMBEDDED:
        at = 0
        while found := pattern.search(code.text, at):
            at, places = found.end(), ends.get(found[2], [])
            start = at if found[2] in "'\"" else code.text.find("\n", at)
            ended = bisect_left(places, start)
            if start < 0 or ended == len(places):
                continue
            at = max(at, places[ended])
            language: Language = "javascript" if found[1] == "node" else "python"
            yield Code(language, code.text[start : places[ended]], lines.find(start))
