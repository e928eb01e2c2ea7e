"""Replaces names that programs import or assign by the full names of what they stand for."""

from __future__ import annotations

import re
from collections.abc import Iterator

_MODULES = "requests|httpx|axios|os|subprocess|child_process|urllib[.]request"
_BINDS = re.compile(
    rf"""(?m)^[ \t]*(?:
    from[ \t]+(?P<of>[\w.]+)[ \t]+import[ \t]+(?P<parts>\([\w\s,.]+\)|[\w \t,*]+)
    | import[ \t]+(?P<modules>[\w. ,]+)$
    | import[ \t]+(?P<taken>[^"'\n;]{{1,300}}?)\s+from\s*["'](?P<source>[^"'\n]+)
    | (?:const|let|var)\s+(?P<required>\{{[^}}]*\}}|\w+)\s*=\s*(?:await\s+)?(?:require|import)
        \(\s*["'](?P<path>[^"'\n]+)["']\s*\)(?P<member>(?:\.\w+)*)
    | (?:(?:const|let|var)\s+)?(?P<name>\w+)\s*=\s*(?P<function>(?:{_MODULES})\.\w+)[ \t]*;?$)""",
    re.VERBOSE,
)
_BOUND = re.compile(r"([\w.]+)(?:\s+as\s+|\s*:\s*)?(\w+)?")


_COMMANDS = re.compile(
    r"(?m)(?:^|[;&|]|\balias)[ \t]*(?P<name>\w+)=(?P<quote>[\"']?)"
    r"(?P<text>(?:curl|wget|nc|ncat|sudo|(?:ba|z)?sh)\b[^\"'\n;]{0,80})(?P=quote)"
)
_IGNORED = re.compile(r"(?:''(?<=[a-z]'')|\"\"(?<=[a-z]\"\")|\\(?<=[a-z]\\)(?![nt]))(?=[a-z])")
"""Characters that a shell ignores within a word."""


_INTERPRETER = r"\b(?:python[\d.]*|node|ruby|perl|php)\b"
_PROGRAM = re.compile(
    rf"(?m)^([^\n]*{_INTERPRETER}[^\n<]*<<-?\s?[\"']?(\w+)[^\n]*)"
    r"((?:\n[^\n]*){0,400}?)(?=\n[ \t]*\2\b)"
    rf"|({_INTERPRETER}[^\n]{{0,80}}?\s-[ce]\s+)(\"(?:[^\"\\]|\\.)*+\"|'[^']*')"
)
"""A command with a program as its input, which is read as a program."""


def hides_words(text: str) -> bool:
    """Return whether words of a text contain characters that a shell ignores."""
    return any(mark in text for mark in ("\\", "''", '""')) and bool(_IGNORED.search(text))


def expand_commands(text: str) -> str:
    """Return shell commands with the commands that aliases and variables stand for."""
    text = _PROGRAM.sub(_leave_out, _IGNORED.sub("", text))
    full = {match["name"]: match["text"] for match in _COMMANDS.finditer(text)}
    if not full:
        return text
    names = "|".join(full)
    return re.sub(
        rf"(?m)(?:\$\{{?({names})\b\}}?|(?:(?<=^)|(?<=[;&|] ))({names})(?=\s))",
        lambda match: full[match[1] or match[2]],
        text,
    )


def _leave_out(match: re.Match[str]) -> str:
    return (match[1] or match[4]) + "\n" * (match[3] or match[5]).count("\n")


def expand_names(text: str) -> str:
    """Return a program with full names of functions and modules where they are used."""
    full = {name: path for name, path in _list_names(text) if name not in (path, "*", "from")}
    if not full:
        return text
    names = "|".join(map(re.escape, full))
    return re.sub(rf"(?<![\w.$\"'])({names})(?=\s*[.(])", lambda match: full[match[1]], text)


def _list_names(text: str) -> Iterator[tuple[str, str]]:
    """Yield (name, what it stands for) of all statements that bind names."""
    for match in _BINDS.finditer(text):
        if match["name"]:
            yield match["name"], match["function"]
        elif match["modules"]:
            yield from ((name or path, path) for path, name in _BOUND.findall(match["modules"]))
        else:
            path = match["of"] or match["source"] or match["path"]
            module = path.removeprefix("node:").rpartition("/")[2] + (match["member"] or "")
            names = match["parts"] or match["taken"] or match["required"]
            is_whole = not match["parts"] and "{" not in names
            for part, name in _BOUND.findall(names.replace("* as", "")):
                yield name or part, module if is_whole else f"{module}.{part}"
