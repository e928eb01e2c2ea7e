"""Reads the data flow of Python, JavaScript and TypeScript programs from their tokens."""

from __future__ import annotations

import re
import textwrap
from bisect import bisect_right
from collections.abc import Iterator, Sequence
from itertools import accumulate

from skills.scanner.code_blocks import Code
from skills.scanner.data_files import word_set
from skills.scanner.flow import meanings
from skills.scanner.flow.labels import NONE, Labels, Store, below, join, pick, read
from skills.scanner.flow.shell import PIPED, read_shell
from skills.scanner.flow.tokens import (
    KEYWORDS,
    Token,
    find_placeholders,
    get_content,
    list_names,
    list_texts,
    split_at,
    split_tokens,
)

_USED = word_set("headers auth cookies env proxies")
"""Arguments that take single values for a login, or that are not sent."""
_ASSIGNS = word_set("= := += |=")
_FUNCTIONS = word_set("def function lambda")
_DECLARED = {
    "python": re.compile(
        r"\bdef[ \t]{1,3}(\w{1,80})[ \t]?\(([^()]{0,300})\)|\b(\w{1,80}) = lambda ([\w, ]{0,100}):"
    ),
    "javascript": re.compile(
        r"\bfunction[ \t]{1,3}(\w{1,80})[ \t]?\(([^()]{0,300})\)"
        r"|\b(\w{1,80})(?:: [\w<>]{1,40})? = (?:async )?\(?([\w\s,:]{0,200})\)?"
        r"(?:: ?[\w<>]{1,40})? =>"
        r"|(?m:^)[ \t]{1,20}(?:async )?(\w{1,80})\(([^()]{0,200})\) \{"
    ),
}
"""Patterns of function definitions, with name and parameters."""
_PARAMETER = re.compile(r"(?:^|,)[\s*]*(\w+)")


class ProgramReader:
    """Reads the programs of a skill in one language; they share their functions.

    Names are qualified by the function that declares them, and by the program, so that equal names
    elsewhere are distinguished.
    """

    def __init__(self, programs: Sequence[Code], store: Store) -> None:
        """programs: programs of one language. store: receives their assignments and uses."""
        self._programs, self._language, self._store = programs, programs[0].language, store
        self._own = {"", "self", "this", *(one.module for one in programs)}
        self._declared: dict[str, set[str]] = {}
        self._functions: dict[str, list[str]] = {}
        self._modules: set[str] = set()
        for program in programs:
            for found in _DECLARED[self._language].finditer(program.text):
                name, listed = (one for one in found.groups() if one is not None)
                parameters = [one for one in _PARAMETER.findall(listed) if one not in KEYWORDS]
                if name not in KEYWORDS:
                    self._functions.setdefault(name, parameters)
                    self._declared.setdefault(name, set()).update(parameters)

    def read(self) -> None:
        """Record the assignments and uses of all programs."""
        for program in self._programs:
            text = textwrap.dedent(program.text)
            self._starts = [*accumulate((len(one) + 1 for one in text.split("\n")), initial=0)]
            self._first = program.first_line
            for root in split_tokens(text, self._language):
                self._scopes = [f"{self._first}:"]
                self._lines(root)

    def _line(self, token: Token) -> int:
        return bisect_right(self._starts, token.start) - 1 + self._first

    def _lines(self, tokens: list[Token]) -> None:
        """Read statements; the body of a Python function is the lines that are indented more."""
        outer, indents = len(self._scopes), [-1]
        for statement in split_at(tokens, "\n", ";"):
            first = statement[0]
            indent = first.start - self._starts[bisect_right(self._starts, first.start) - 1]
            while len(indents) > 1 and indent <= indents[-1]:
                indents.pop()
                self._scopes.pop()
            if self._language == "python" and "def" in (one.text for one in statement[:2]):
                at = 1 + (first.text != "def")
                indents.append(indent)
                self._scopes.append(statement[at].text if at < len(statement) else "")
                statement = statement[at + 1 :]
            self._statement(statement)
        del self._scopes[outer:]

    def _statement(self, tokens: list[Token]) -> Labels:
        """Record the assignments and uses of a statement; return the labels of its value."""
        if not tokens:
            return NONE
        if tokens[0].text in ("import", "from"):
            self._modules.update(list_names(tokens))
            return NONE
        if tokens[0].text in ("return", "yield"):
            labels = self._statement(tokens[1:])
            self._store.assign(f"{self._scopes[-1]}()", labels)
            return labels
        marks = (at for at, one in enumerate(tokens) if one.kind == "mark" and one.text in _ASSIGNS)
        at = next(marks, 0)
        if not at or any(one.text in _FUNCTIONS or one.text == "=>" for one in tokens[:at]):
            return self._expression(tokens)
        return self._assign(tokens[:at], tokens[at + 1 :])

    def _assign(self, left: list[Token], right: list[Token]) -> Labels:
        if right and right[0].text == "require":
            self._modules.update(list_names(left))
            return NONE
        name = next((one.text for one in left if one.text not in KEYWORDS), "")
        is_function = name in self._functions and any(
            one.text in _FUNCTIONS or one.text == "=>" for one in right
        )
        if is_function:
            self._scopes.append(name)
        labels = self._statement(right)
        if is_function:
            self._scopes.pop()
            self._store.assign(f"{name}()", labels)
            return NONE
        if any(one.text == "{" for one in left):
            labels = pick(labels)
        self._take(left, labels)
        return labels

    def _take(self, targets: list[Token], labels: Labels) -> None:
        """Assign a value to the names in a target."""
        if len(targets) > 1 and targets[0].text in ("self", "this"):
            self._store.assign(f"self.{targets[1].text}", labels)
            return
        for name in list_names(targets):
            if self._language == "python" or targets[0].text in ("const", "let", "var"):
                self._declared.setdefault(self._scopes[-1], set()).add(name)
            self._store.assign("" if name in self._modules else self._qualify(name), labels)

    def _qualify(self, name: str) -> str:
        for scope in reversed(self._scopes):
            if name in self._declared.get(scope, ()):
                return f"{scope}.{name}"
        return name

    def _expression(self, tokens: list[Token]) -> Labels:
        """Return the labels of all values in an expression."""
        labels, at, loop = NONE, 0, -1
        while at < len(tokens):
            token = tokens[at]
            if token.text in ("for", "const", "let", "var"):
                loop = at
            elif token.text in ("in", "of") and loop >= 0:
                value, end = self._value(tokens, at + 1)
                self._take(tokens[loop:at], value)
                labels, at, loop = labels | value, end, -1
                continue
            elif token.text == "as" and at + 1 < len(tokens):
                self._take(tokens[at + 1 : at + 2], labels)
                at += 1
            elif token.text == "=>" and at + 1 < len(tokens) and tokens[at + 1].text == "{":
                self._lines(tokens[at + 1].inner)
                at += 1
            elif token.text == "function":
                at = self._function(tokens, at + 1)
                continue
            elif token.kind in ("name", "text", "open") and (
                token.text not in KEYWORDS or token.text in ("self", "this")
            ):
                value, at = self._value(tokens, at)
                labels |= value
                continue
            at += 1
        texts = [get_content(one) for one in tokens if one.kind == "text"]
        marks = {one.text for one in tokens if one.kind == "mark"} if texts else ()
        if "/" in marks:
            labels = below(labels)
        if len(texts) > 1 and ("/" in marks or "+" in marks):
            labels |= meanings.label_path("/".join(texts).replace("//", "/"))
        return labels

    def _function(self, tokens: list[Token], at: int) -> int:
        """Read a function of JavaScript, starting at its name; return the index after its body."""
        end = next((n for n in range(at, len(tokens)) if tokens[n].text == "{"), len(tokens) - 1)
        named = at < len(tokens) and tokens[at].kind == "name"
        self._scopes.append(tokens[at].text if named else self._scopes[-1])
        self._lines(tokens[end].inner)
        self._scopes.pop()
        return end + 1

    def _value(self, tokens: list[Token], at: int) -> tuple[Labels, int]:
        """Return the labels of a value, and the index after it.

        A value is a name, text or bracket with the members, calls and subscripts after it.
        """
        if at >= len(tokens):
            return NONE, at
        token, name, held = tokens[at], "", NONE
        if token.kind == "name":
            name = token.text
        else:
            held = self._text(token) if token.kind == "text" else self._bracket(token)
        at += 1
        while at < len(tokens):
            after = tokens[at]
            if after.kind == "member":
                name = f"{name}.{after.text}"
            elif after.text == "(" and after.kind == "open":
                body = tokens[at + 1] if at + 1 < len(tokens) else after
                if body.text == "{" and name in self._functions:
                    return held, self._function(tokens, at - 1)
                held = self._call(name, held, after)
                name = "child_process" if "child_process" in list_texts(after.inner)[:1] else ""
            elif after.text == "[" and after.kind == "open":
                held, name = self._subscript(self._named(name, held), name, after), ""
            else:
                break
            at += 1
        return self._named(name, held), at

    def _named(self, name: str, held: Labels) -> Labels:
        """Return the value of a name, or of a member of the value `held`."""
        if name[:1] in ("", ".") or held or name.startswith("process.env."):
            return held
        if name in meanings.VARIABLES:
            return meanings.VARIABLES[name]
        root, _, rest = name.partition(".")
        if root in ("self", "this"):
            return self._store.get(f"self.{rest.partition('.')[0]}")
        owner = name.rpartition(".")[0]
        return (
            self._named(owner, held)
            if owner in meanings.VARIABLES
            else self._store.get(self._qualify(root)) | self._store.get(f"{root}()")
        )

    def _text(self, token: Token) -> Labels:
        text = get_content(token)
        if PIPED.search(text):
            read_shell(self._store, text.replace("\\n", "\n"), self._line(token))
        labels = meanings.label_path(text) | self._store.get(f"path:{text[:200]}")
        values = find_placeholders(token, self._language)
        return labels.union(*(self._expression(inner) for _, inner in values))

    def _bracket(self, token: Token) -> Labels:
        """Return the labels of the contents of brackets: values, pairs or statements."""
        marks = (",", ";", "\n") if token.text == "{" else (",", ";")
        return join(*[self._pair(part)[1] for part in split_at(token.inner, *marks)])

    def _pair(self, tokens: list[Token]) -> tuple[str, Labels]:
        """Return the name of an argument or entry, "" without one, and the labels of its value."""
        tokens = [one for one in tokens if one.kind != "line"]
        if len(tokens) < 3 or tokens[1].text not in ("=", ":") or tokens[1].kind != "mark":
            return "", self._statement(tokens)
        key, labels = get_content(tokens[0]), self._statement(tokens[2:])
        return key, pick(labels) if key in _USED else labels

    def _subscript(self, held: Labels, name: str, bracket: Token) -> Labels:
        if meanings.VARIABLES.get(name) == meanings.ENVIRONMENT:
            return NONE
        key = bracket.inner
        labels = held | self._expression(key)
        is_one = len(key) == 1 and (key[0].kind == "text" or key[0].text.isdigit())
        return pick(labels) if is_one else labels

    def _call(self, name: str, held: Labels, bracket: Token) -> Labels:
        """Record the uses of a call; return the labels of its result.

        held: labels of its object.
        """
        owner, _, last = name.rpartition(".")
        line, parts = self._line(bracket), split_at(bracket.inner, ",")
        pairs = [self._pair(part) for part in parts]
        arguments = [labels for _, labels in pairs]
        alone = self._language == "python" or owner in ("", "child_process")
        if parts and (name if self._language == "python" else last * alone) in meanings.RUNNING:
            return self._run(parts, arguments, line)
        parameters = self._functions.get(last)
        if parameters is not None and owner in self._own and not held:
            for place, (key, labels) in enumerate(pairs):
                at = parameters[place] if place < len(parameters) else ""
                self._store.assign(f"{last}.{key or at}", labels)
            return self._store.get(f"{last}()")
        held = self._named(owner, held)
        text = " ".join(list_texts(bracket.inner))
        self._call_back(parts, held | meanings.label_result(name, text), line)
        result = self._library(line, name, held, join(*arguments), text)
        if owner and owner not in self._modules:
            root, _, rest = owner.partition(".")
            changed = f"self.{rest}" if root in ("self", "this") else self._qualify(owner)
            self._store.assign(changed, result)
        if last in meanings.COPYING:
            for target in self._targets(bracket.inner):
                self._store.assign(target, result)
        return result

    def _call_back(self, parts: list[list[Token]], held: Labels, line: int) -> None:
        """Assign the values of a call's object and result to the parameters of its callbacks."""
        for part in parts:
            arrow = next((at for at, one in enumerate(part) if one.text == "=>"), 0)
            if part[0].text in ("lambda", "function", "async") or arrow:
                parameters = part[:arrow] if arrow else part[1:2]
                for name in list_names(parameters):
                    self._store.assign(self._qualify(name), held)
            elif len(part) == 1 and part[0].text in meanings.EXECUTING:
                self._store.use(line, "execute", held)
            elif len(part) == 1 and self._functions.get(part[0].text):
                first = self._functions[part[0].text][0]
                self._store.assign(f"{part[0].text}.{first}", held)

    def _library(self, line: int, name: str, held: Labels, sent: Labels, text: str) -> Labels:
        """Record the uses of a library function; return the labels of its result.

        held: labels of its object. sent: labels of its arguments. text: texts in its arguments.
        """
        last = name.rpartition(".")[2]
        network = meanings.is_network(name)
        if network and not meanings.is_local(text):
            self._store.use(line, "network", sent)
        elif last in meanings.SENDING_METHODS:
            self._store.use(line, "network", sent, held)
        if name in meanings.EXECUTING:
            self._store.use(line, "execute", sent)
        elif last in meanings.DELETING:
            self._store.use(line, "delete", sent)
        elif last == "chmod":
            self._store.use(line, "mark", sent)
        if last == "getenv" or (last == "get" and "environ" in name):
            return NONE
        if last in ("get", "pop") and text and not network and "://" not in text:
            return pick(held)
        if last in ("join", "joinpath") and text:
            sent = below(sent)
        result = meanings.label_result(name, text) | (NONE if network else held | sent)
        result |= meanings.label_path("/".join(text.split()).replace("//", "/"))
        return read(result) if last in meanings.READING else result

    def _run(self, parts: list[list[Token]], arguments: Sequence[Labels], line: int) -> Labels:
        """Read a command that the program runs, text or list; return the labels of its output."""
        words = [parts[0]]
        for part in parts[:2]:
            if part[0].text == "[":
                words = [*words[: part is not parts[0]], *split_at(part[0].inner, ",")]
        if all(one.kind != "text" for one in words[0]):
            self._store.use(line, "execute", self._expression(words[0]))
        command = " ".join(self._as_shell(word) for word in words)
        return join(read_shell(self._store, command, line, self._qualify), *arguments)

    def _as_shell(self, tokens: list[Token]) -> str:
        """Return the text of a command, with shell variables for its values."""
        command = ""
        for at, token in enumerate(tokens):
            alone = at + 1 == len(tokens) or tokens[at + 1].kind == "mark"
            if token.kind == "text":
                text = get_content(token)
                for placeholder, inner in find_placeholders(token, self._language):
                    text = text.replace(placeholder, self._as_shell(inner))
                command += text
            elif token.kind == "name" and alone:
                command += f"${{{token.text}}}"
            elif token.text == "sys" and token.kind == "name":
                return "python"
            elif token.kind in ("name", "open"):
                return command + f"${{{self._store.keep(self._value(tokens, at)[0])}}}"
        return command

    def _targets(self, tokens: list[Token]) -> Iterator[str]:
        """Yield the names of variables and files in the arguments of a call."""
        yield from (f"path:{text}" for text in list_texts(tokens))
        yield from (self._qualify(name) for name in list_names(tokens))
