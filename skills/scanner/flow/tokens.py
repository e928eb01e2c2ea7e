"""Splits programs into names, texts and brackets, without a grammar; programs may be incorrect."""

from __future__ import annotations

import re
from typing import NamedTuple

from skills.scanner.data_files import word_set

MAX_DEPTH = 60
"""Maximum nesting in one tree of tokens; deeper brackets begin a new tree, as walks recurse."""
KEYWORDS = word_set(
    "if elif else for while switch case return yield in of not and or is await async new try catch "
    "except finally with as const let var def function lambda class typeof throw raise del export "
    "default from import do pass static public private readonly self cls this"
)
_COMMON = r"""
    (?P<text>[rbfuRBFU]{0,2}(?: "{3}(?:[^"\\]|\\.|"(?!""))*+(?:"{3}|\Z)
        | '{3}(?:[^'\\]|\\.|'(?!''))*+(?:'{3}|\Z)
        | (?<=[fF])"(?:\{[^{}\n]*\}|[^"\\\n]|\\.)*+"?
        | (?<=[fF])'(?:\{[^{}\n]*\}|[^'\\\n]|\\.)*+'?
        | "(?:[^"\\\n]|\\.)*+"? | '(?:[^'\\\n]|\\.)*+'? | `(?:[^`\\]|\\.)*+`? ))
    | (?P<member>(?:\s|\\\n){0,80}\??\.(?:\s|\\\n){0,80}[^\W\d][\w$]*)
    | (?P<name>(?:[^\W\d]|\$)[\w$]*)
    | (?P<number>\d[\w.]*)
    | (?P<line>\n)
    | (?P<open>[(\[{]) | (?P<close>[)\]}])
    | (?P<mark>=>|[=!<>]==?|[:+|]=|[=:;,/+<>]) | [ \t]+ | . """
_SCRIPT = r"""
    (?P<skip>\.{3} | //[^\n]* | /\*(?:[^*]|\*(?!/))*+ | <[\w\[\],.| ]{1,60}>(?=\()
        | (?<![^(,=:!&|?;{}\s])/(?![/*\s])(?:[^/\\\n\[]|\\.|\[(?:[^\]\\\n]|\\.)*\])+/ ) |"""
_PATTERNS = {
    "python": re.compile(rf"(?P<skip>\#[^\n]*|\\\n) | {_COMMON}", re.VERBOSE | re.DOTALL),
    "javascript": re.compile(_SCRIPT + _COMMON, re.VERBOSE | re.DOTALL),
}
_PLACEHOLDER = re.compile(r"\$\{((?:[^{}]|\{[^{}]*\})*)\}|\{([^{}]+)\}")


class Token(NamedTuple):
    """A token of a program.

    kind: name of its group in the patterns; `open` for a bracket. text: for a member, without the
    dot. start: its offset. inner: the tokens inside a bracket.
    """

    kind: str
    text: str
    start: int
    inner: list[Token]


def split_tokens(text: str, language: str) -> list[list[Token]]:
    """Split a program into trees of tokens: the whole program, and brackets nested too deeply."""
    roots: list[list[Token]] = [[]]
    stack = [roots[0]]
    for found in _PATTERNS[language].finditer(text):
        kind = found.lastgroup
        if kind is None or kind == "skip":
            continue
        if kind == "close":
            if len(stack) > 1:
                stack.pop()
            continue
        token = Token(
            kind,
            found[0].lstrip("?. \n\t\r\\") if kind == "member" else found[0],
            found.start(),
            [],
        )
        if kind == "open" and len(stack) % MAX_DEPTH == 0:
            roots.append([token])
        else:
            stack[-1].append(token)
        if kind == "open":
            stack.append(token.inner)
    return roots


def split_at(tokens: list[Token], *marks: str) -> list[list[Token]]:
    """Split tokens at these marks; empty parts are left out."""
    parts: list[list[Token]] = [[]]
    for token in tokens:
        if token.text in marks and token.kind in ("mark", "line"):
            parts.append([])
        else:
            parts[-1].append(token)
    return [part for part in parts if part]


def get_content(token: Token) -> str:
    """Return the content of a text, without quotes and prefix."""
    return token.text.lstrip("rbfuRBFU").strip("\"'`")


def find_placeholders(token: Token, language: str) -> list[tuple[str, list[Token]]]:
    """Return (placeholder, its tokens) of the values in a text."""
    quote = token.text.lstrip("rbfuRBFU")[:1]
    if quote != "`" if language == "javascript" else "f" not in token.text[:2].lower():
        return []
    return [
        (found[0], [one._replace(start=token.start) for one in part])
        for found in _PLACEHOLDER.finditer(token.text)
        for part in split_tokens(found[1] or found[2], language)
    ]


def put_loop_first(tokens: list[Token]) -> list[Token]:
    """Return a comprehension with its loop, which declares its variables, before its value."""
    start = next((at for at, one in enumerate(tokens) if one.text == "for"), 0)
    if not start:
        return tokens
    return [*tokens[start:], Token("mark", ",", tokens[0].start, []), *tokens[:start]]


def is_body(tokens: list[Token]) -> bool:
    """Return whether the tokens after parameters are a body, with or without a type before it."""
    end = next((at for at, one in enumerate(tokens) if one.text == "{"), -1)
    is_type = end > 1 and tokens[0].text == ":"
    return end == 0 or (is_type and all(one.text not in (",", ";", "(") for one in tokens[1:end]))


def list_texts(tokens: list[Token]) -> list[str]:
    """Return the contents of all texts, including those in brackets."""
    found = []
    for token in tokens:
        if token.kind == "text":
            found.append(get_content(token)[:300])
        elif token.inner:
            found += list_texts(token.inner)
    return found


def list_names(tokens: list[Token]) -> list[str]:
    """Return the names among the tokens, including those in brackets; members are left out."""
    found = []
    for token in tokens:
        if token.kind == "name" and token.text not in KEYWORDS:
            found.append(token.text)
        elif token.inner:
            found += list_names(token.inner)
    return found
