"""Reads the data flow of Python, JavaScript and TypeScript programs from their tokens."""

from __future__ import annotations

import textwrap
from collections.abc import Sequence

from skills.scanner.code_blocks import Code, Lines
from skills.scanner.data_files import word_set
from skills.scanner.flow import meanings
from skills.scanner.flow.labels import NONE, Labels, Store, below, join, list_files, pick, read
from skills.scanner.flow.names import Names
from skills.scanner.flow.shell import PIPED, quote, read_shell
from skills.scanner.flow.tokens import (
    KEYWORDS,
    Token,
    find_placeholders,
    get_content,
    is_body,
    list_names,
    list_texts,
    put_loop_first,
    split_at,
    split_tokens,
)

_USED = word_set("headers auth cookies env proxies")
"""Arguments that take single values for a login, or that are not sent."""
_ASSIGNS = word_set("= := += |=")
_FUNCTIONS = word_set("def function lambda =>")
_HEADS = word_set("if elif else for while try except finally with def class")
"""First words of Python statements whose body may follow a colon in the same line."""


class ProgramReader:
    """Reads the programs of a skill in one language; they share their functions.

    Names are qualified by the function that declares them, and by the program, so that equal names
    elsewhere are distinguished.
    """

    def __init__(self, programs: Sequence[Code], store: Store) -> None:
        """programs: programs of one language. store: receives their assignments and uses."""
        self._programs, self._language, self._store = programs, programs[0].language, store
        self._names = Names(programs)
        self._literals: dict[str, list[Token]] = {}
        """Variable -> its value, a text or list that may be run as a command."""
        self._values: dict[str, Labels] = {}
        """Variable -> labels of the value that it was given last."""
        self._results: dict[int, tuple[Token, Labels]] = {}
        """Id of a call's bracket -> bracket, result; nested commands would read it many times."""

    def read(self) -> None:
        """Record the assignments and uses of all programs."""
        for program in self._programs:
            text = textwrap.dedent(program.text)
            self._rows = Lines(text, program.first_line)
            for root in split_tokens(text, self._language):
                self._names.scopes[:] = [f"{program.first_line}:"]
                self._lines(root)

    def _lines(self, tokens: list[Token]) -> None:
        """Read statements; the body of a Python function is the lines that are indented more."""
        scopes = self._names.scopes
        outer, indents = len(scopes), [-1]
        for statement in split_at(tokens, "\n", ";"):
            first = statement[0]
            indent = self._rows.find_column(first.start)
            while len(indents) > 1 and indent <= indents[-1]:
                indents.pop()
                scopes.pop()
            if self._language == "python":
                statement = statement[first.text == "async" :]
                words = [one.text for one in statement]
                if words[:1] == ["def"]:
                    indents.append(indent)
                    scopes.append(words[1] if len(words) > 1 else "")
                    statement, words = statement[2:], ["def", *words[2:]]
                if words[:1] and words[0] in _HEADS and ":" in words:
                    at = words.index(":") + 1 - (len(words) - len(statement))
                    self._statement(statement[:at])
                    statement = statement[at:]
            self._statement(statement)
        del scopes[outer:]

    def _statement(self, tokens: list[Token]) -> Labels:
        """Record the assignments and uses of a statement; return the labels of its value."""
        first = tokens[0].text if tokens else ""
        if first in ("import", "from"):
            self._names.bind_import(tokens)
            return NONE
        if first in ("global", "nonlocal"):
            self._names.declare_global(tokens[1:])
            return NONE
        targets, start = [], 0
        for at, one in enumerate(tokens):
            if one.text in _FUNCTIONS:
                break
            if one.kind == "mark" and one.text in _ASSIGNS and at > start:
                targets.append(tokens[start:at])
                start = at + 1
        labels = self._assign(targets, tokens[start:]) if targets else self._expression(tokens)
        if first in ("return", "yield"):
            self._store.assign(f"{self._names.scopes[-1]}()", labels)
        return labels

    def _assign(self, targets: list[list[Token]], right: list[Token]) -> Labels:
        if any(one.text in ("require", "import") for one in right[:2]):
            self._names.bind_require(targets, right)
            if sum(one.text == "(" for one in right) < 2:  # else it calls a function of the module
                return NONE
        names = [
            next((one.text for one in left if one.text not in KEYWORDS), "") for left in targets
        ]
        is_function = any(one.text in _FUNCTIONS for one in right)
        functions = [name for name in names if is_function and name in self._names.functions]
        self._names.scopes += functions
        labels = self._expression(right)
        del self._names.scopes[len(self._names.scopes) - len(functions) :]
        called = self._names.find_function(right)
        for name, left in zip(names, targets, strict=True):
            if name in functions:
                self._store.assign(f"{name}()", labels)
                continue
            if len(left) == 1 or left[0].text in ("const", "let", "var"):
                self._names.bind(name, called)
            self._take(left, pick(labels) if any(one.text == "{" for one in left) else labels)
            if right and (right[0].kind == "text" or right[0].text == "["):
                self._literals[self._names.qualify(name)] = right
        return NONE if functions else labels

    def _take(self, targets: list[Token], labels: Labels) -> None:
        """Assign a value to the names in a target."""
        if len(targets) > 1 and targets[0].text in ("self", "this"):
            self._store.assign(f"self.{targets[1].text}", labels)
            return
        for name in list_names(targets):
            if self._language == "python" or targets[0].text in ("const", "let", "var"):
                self._names.declare(name)
            name = self._names.qualify(name)
            self._store.assign(name, labels)
            self._values[name] = labels

    def _expression(self, tokens: list[Token]) -> Labels:
        """Return the labels of all values in an expression."""
        labels: set[str] = set()
        at, loop = 0, -1
        tokens = put_loop_first(tokens) if self._language == "python" else tokens
        while at < len(tokens):
            token = tokens[at]
            if token.text in ("for", "const", "let", "var"):
                loop = at
            elif token.text in ("in", "of") and loop >= 0:
                value, end = self._value(tokens, at + 1)
                self._take(tokens[loop:at], value)
                labels |= value
                at, loop = end, -1
                continue
            elif token.text == "as" and at + 1 < len(tokens):
                labels = {*(value := self._store.shorten(frozenset(labels)))}
                self._take(tokens[at + 1 : at + 2], value)
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
            labels = {*below(frozenset(labels))}
        if len(texts) > 1 and ("/" in marks or "+" in marks):
            labels |= meanings.label_path("/".join(texts).replace("//", "/"))
        return self._store.shorten(frozenset(labels))

    def _function(self, tokens: list[Token], at: int) -> int:
        """Read a function of JavaScript, starting at its name; return the index after its body."""
        end = next((n for n in range(at, len(tokens)) if tokens[n].text == "{"), len(tokens) - 1)
        named = at < len(tokens) and tokens[at].kind == "name"
        self._names.scopes.append(tokens[at].text if named else self._names.scopes[-1])
        self._lines(tokens[end].inner)
        self._names.scopes.pop()
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
                if name in self._names.functions and is_body(tokens[at + 1 : at + 9]):
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
        full = self._names.get_full(name)
        if full in meanings.VARIABLES:
            return meanings.VARIABLES[full]
        root, _, rest = name.partition(".")
        if root in ("self", "this"):
            return self._store.get(f"self.{rest.partition('.')[0]}")
        owner = name.rpartition(".")[0]
        return (
            self._named(owner, held)
            if self._names.get_full(owner) in meanings.VARIABLES
            else self._store.get(self._names.qualify(root)) | self._store.get(f"{root}()")
        )

    def _text(self, token: Token) -> Labels:
        text = get_content(token)
        if PIPED.search(text):
            read_shell(self._store, text.replace("\\n", "\n"), self._rows.find(token.start))
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
        if meanings.VARIABLES.get(self._names.get_full(name)) == meanings.ENVIRONMENT:
            return NONE
        key = bracket.inner
        labels = held | self._expression(key)
        is_one = len(key) == 1 and (key[0].kind == "text" or key[0].text.isdigit())
        return pick(labels) if is_one else labels

    def _call(self, name: str, held: Labels, bracket: Token) -> Labels:
        """Record the uses of a call, once; return the labels of its result.

        held: labels of its object.
        """
        if id(bracket) not in self._results:
            self._results[id(bracket)] = bracket, self._read_call(name, held, bracket)
        return self._results[id(bracket)][1]

    def _read_call(self, name: str, held: Labels, bracket: Token) -> Labels:
        owner, full = name.rpartition(".")[0], self._names.get_full(name)
        last = full.rpartition(".")[2]
        line = self._rows.find(bracket.start)
        parts = split_at([one for one in bracket.inner if one.kind != "line"], ",")
        pairs = [self._pair(part) for part in parts]
        sent = self._store.shorten(join(*(labels for _, labels in pairs)))
        if parts and meanings.is_running(full, self._language):
            return self._run(parts, pairs, line)
        parameters = self._names.find_parameters(full)
        if parameters is not None and not held:
            for place, (key, labels) in enumerate(pairs):
                at = parameters[min(place, len(parameters) - 1)] if parameters else ""
                self._store.assign(f"{last}.{key if key in parameters else at}", labels)
            return self._store.get(f"{last}()")
        held = self._named(owner, held)
        text = " ".join(list_texts(bracket.inner))
        self._call_back(parts, held | sent | meanings.label_result(full, text), line)
        result = self._store.shorten(self._library(line, full, held, sent, text))
        if owner and owner not in self._names.modules:
            root, _, rest = owner.partition(".")
            changed = f"self.{rest}" if root in ("self", "this") else self._names.qualify(owner)
            self._store.assign(changed, result)
        if last in meanings.WRITING:
            for file in list_files(held | self._values.get(self._names.qualify(owner), NONE)):
                self._store.assign(file, sent)
        if last in meanings.COPYING:
            names = map(self._names.qualify, list_names(bracket.inner))
            for target in (*names, *(f"path:{one}" for one in list_texts(bracket.inner))):
                self._store.assign(target, result)
        return result

    def _call_back(self, parts: list[list[Token]], held: Labels, line: int) -> None:
        """Assign the values of a call to the parameters of the functions among its arguments.

        held: labels of the call's object, arguments and result.
        """
        for part in parts:
            arrow = next((at for at, one in enumerate(part) if one.text == "=>"), 0)
            if part[0].text in ("lambda", "function", "async") or arrow:
                parameters = part[:arrow] if arrow else part[1:2]
                for name in list_names(parameters):
                    self._store.assign(self._names.qualify(name), held)
                continue
            name = part[-1].text
            if len(part) > 1 and part[-2].text != "=":
                continue
            if name in meanings.EXECUTING:
                self._store.use(line, "execute", held)
            elif self._names.functions.get(name):
                self._store.assign(f"{name}.{self._names.functions[name][0]}", held)

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

    def _run(
        self, parts: list[list[Token]], pairs: Sequence[tuple[str, Labels]], line: int
    ) -> Labels:
        """Read a command that the program runs, text or list; return the labels of its output."""
        words: list[list[Token]] = []
        for part, (key, _) in list(zip(parts, pairs, strict=True))[:2]:
            value = part[2:] if key else part
            if len(value) > 1 and value[-2].text == "split":
                value = value[-1].inner or value[:-2]
            if len(value) == 1:
                value = self._literals.get(self._names.qualify(value[0].text), value)
            if value[0].text == "[":
                words += split_at(value[0].inner, ",")
            elif not words and key in ("", "args", "cmd"):
                words.append(value)
        given = join(*(labels for key, labels in pairs if key in ("input", "stdin")))
        if words and all(one.kind != "text" for one in words[0]):
            self._store.use(line, "execute", self._expression(words[0]))
        listed = [self._as_shell(word) for word in words]
        command = listed[0] if len(listed) == 1 else " ".join(map(quote, listed))
        if given:
            command = f"cat ${{{self._store.keep(given)}}} | {command}"
        labels = (labels for _, labels in pairs)
        return join(read_shell(self._store, command, line, self._names.qualify), *labels)

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
