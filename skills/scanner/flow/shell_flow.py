"""Reads the data flow of shell commands."""

from __future__ import annotations

import re
from collections.abc import Callable, Iterator, Sequence
from functools import cache

from tree_sitter import Language, Node, Parser

from skills.scanner.data_files import word_set
from skills.scanner.flow import sources
from skills.scanner.flow.values import EMPTY, Flow, Value, join, of_label

_MAX_DEPTH = 60
_MAX_PARSED = 4_096
"""Characters that are parsed at once: the time of the parser is quadratic in broken commands. Lines
that are longer are left out."""
_SHELLS = word_set("sh bash zsh dash ksh")
_INTERPRETERS = _SHELLS | word_set("python python3 node perl ruby osascript php pwsh")
_PREFIXES = word_set("sudo env nohup command exec time doas then do else -E -n")
_SENDERS = word_set("curl wget nc ncat netcat socat telnet http https xh ftp sftp mail")
_LOOKUPS = word_set("dig nslookup host drill ping")
_HEADERS = word_set("-H --header -u --user --oauth2-bearer -b --cookie -A --user-agent")
_IGNORED = word_set("-i -o --output --key --cert -E -K -O --config -F. --cacert -P -p")
_UPLOADS = word_set("-T --upload-file --post-file --body-file")
_VAULTS = {
    "security": ("find-generic-password", "find-internet-password", "dump-keychain"),
    "secret-tool": ("lookup",),
    "git": ("credential",),
    "gpg": ("--export-secret-keys",),
}
_DECODERS = {
    "base64": ("-d", "-D", "--decode", "-di"),
    "base32": ("-d", "--decode"),
    "xxd": ("-r", "-rp"),
    "openssl": ("-d",),
    "uudecode": ("",),
}
_VARIABLE = re.compile(r"\$\{?(\w+)")
_SUBSTITUTIONS = frozenset({"command_substitution", "process_substitution"})


@cache
def _parser() -> Parser:
    import tree_sitter_bash

    return Parser(Language(tree_sitter_bash.language()))


def read_shell(
    text: str, first_line: int = 1, qualify: Callable[[str], str] = lambda name: name
) -> Flow:
    """The data flow of commands; what cannot be parsed is left out.

    qualify: gives the name in a program of which these commands are a part.
    """
    flow, lines, start = Flow(), text.split("\n"), 0
    while start < len(lines):
        end, size = start, 0
        while end < len(lines) and (end == start or size + len(lines[end]) < _MAX_PARSED):
            size += len(lines[end])
            end += 1
        if size <= _MAX_PARSED:
            reader = _Reader(flow, first_line + start, qualify)
            part = "\n".join(lines[start:end]).encode("utf-8", "replace")
            reader.read(_parser().parse(part).root_node)
        start = end
    return flow


class _Reader:
    """Files are variables too: what is written to one, later commands read."""

    def __init__(self, flow: Flow, first_line: int, qualify: Callable[[str], str]) -> None:
        self.flow = flow
        self._first = first_line
        self._qualify = qualify

    def read(self, node: Node, stdin: Value = EMPTY, depth: int = 0) -> Value:
        """Record what a statement assigns and uses; returns its output."""
        if depth > _MAX_DEPTH:
            return EMPTY
        match node.type:
            case "command":
                return self._command(node, stdin, depth)
            case "pipeline":
                for stage in node.named_children:
                    stdin = self.read(stage, stdin, depth + 1)
                return stdin
            case "redirected_statement":
                return self._redirected(node, stdin, depth)
            case "variable_assignment":
                name, value = node.child_by_field_name("name"), node.child_by_field_name("value")
                if name and value:
                    self.flow.assign(self._qualify(_text(name)), self._word(value, depth))
                return EMPTY
            case "for_statement":
                values = [self._word(one, depth) for one in node.children_by_field_name("value")]
                name = node.child_by_field_name("variable")
                self.flow.assign(_text(name) if name else "", join(values))
        return join(self.read(child, stdin, depth + 1) for child in node.named_children)

    def _redirected(self, node: Node, stdin: Value, depth: int) -> Value:
        body = node.child_by_field_name("body")
        targets = []
        for redirect in node.children_by_field_name("redirect"):
            operator = redirect.children[0].type if redirect.children else ""
            words = redirect.named_children
            if operator in ("<", "<<<", "<<", "<<-"):
                stdin |= join(self._word(word, depth) for word in words).after("read")
            elif words:
                targets.append(_unquote(_text(words[-1])))
        output = self.read(body, stdin, depth + 1) if body else stdin
        for target in targets:
            self.flow.assign(_file(target), output)
            if target.startswith("/dev/tcp/"):
                self.flow.use(self._line(node), "network", output)
        return output

    def _command(self, node: Node, stdin: Value, depth: int) -> Value:
        for child in node.named_children:
            if child.type == "variable_assignment":
                self.read(child, EMPTY, depth + 1)
        words = [child for child in node.named_children if child.type != "variable_assignment"]
        words = [word for word in words if "redirect" not in word.type]
        for word in node.named_children:
            if "redirect" in word.type:
                stdin |= join(self._word(one, depth) for one in word.named_children).after("read")
        texts = [_unquote(_text(word)) for word in words]
        while len(texts) > 1 and (texts[0] in _PREFIXES or "=" in texts[0]):
            words, texts = words[1:], texts[1:]
        if not texts:
            return EMPTY
        program = texts[0].rpartition("/")[2]
        values = [self._word(word, depth) for word in words]
        line = self._line(node)
        self._execute(line, program, texts, values, stdin)
        if program in _SENDERS or program in _LOOKUPS:
            return self._send(line, program, texts, values, stdin)
        if program in ("scp", "rsync"):
            self._copy_away(line, texts, values)
        return self._output(program, texts, values, stdin)

    def _output(
        self, program: str, texts: Sequence[str], values: Sequence[Value], stdin: Value
    ) -> Value:
        """What a command that sends nothing prints, and the files that it writes."""
        arguments = texts[1:]
        if program in ("env", "printenv", "set", "declare", "export") and not (
            [one for one in arguments if not one.startswith("-")] or arguments[:1] == ["-e"]
        ):
            bare = program in ("env", "printenv", "set") and not arguments
            return of_label("environment") if bare or arguments == ["-p"] else EMPTY
        if program in ("grep", "awk", "cut", "jq", "sed", "source", ".", "ls", "test", "["):
            kept = join(values[1:]).after("read").after("pick") | stdin
            return kept.after("pick") if program in ("grep", "jq", "awk") else kept
        output = join(values[1:]).after("read") | stdin
        if any(mark in _VAULTS.get(program, ()) for mark in arguments):
            output |= of_label("secret")
        if any(mark in _DECODERS.get(program, ()) for mark in [*arguments, ""]):
            output |= of_label("decoded")
        if program in ("tar", "zip", "cp", "mv", "gzip", "tee", "install", "7z", "gpg"):
            for text in arguments:
                if not text.startswith("-"):
                    self.flow.assign(_file(text), output)
        return output

    def _send(
        self, line: int, program: str, texts: Sequence[str], values: Sequence[Value], stdin: Value
    ) -> Value:
        """A command of the network: what it sends, and what it fetches."""
        sent, headers, target = stdin if program not in ("wget", *_LOOKUPS) else EMPTY, EMPTY, ""
        previous = ""
        for text, value in zip(texts[1:], values[1:], strict=True):
            flag = text.partition("=")[0]
            if previous in _HEADERS or flag in _HEADERS:
                headers |= value
            elif (
                previous in ("-o", "--output")
                or (program == "wget" and previous == "-O")
                or (
                    previous.startswith("-") and previous.endswith("o") and not text.startswith("-")
                )
            ):
                target = text
            elif previous in _UPLOADS or flag in _UPLOADS or "@" in text:
                sent |= value.after("read")
            elif previous not in _IGNORED:
                sent |= value
            previous = text
        address = next((text for text in texts[1:] if "://" in text), "")
        if not sources.is_local(address):
            self.flow.use(line, "network", sent)
            self.flow.use(line, "header", headers)
        if program not in ("curl", "wget"):
            return EMPTY
        fetched = sources.label_download(address)
        saves = program == "wget" or any(re.match(r"-\w*O|--remote-name", one) for one in texts)
        if not target and saves:
            target = address.rstrip("/").rpartition("/")[2].partition("?")[0]
        if target and target != "-":
            self.flow.assign(_file(target), fetched)
        return fetched

    def _copy_away(self, line: int, texts: Sequence[str], values: Sequence[Value]) -> None:
        if ":" not in texts[-1]:
            return
        previous = ""
        for text, value in zip(texts[1:-1], values[1:-1], strict=True):
            if previous not in _IGNORED:
                self.flow.use(line, "network", value.after("read"))
            previous = text

    def _execute(
        self, line: int, program: str, texts: Sequence[str], values: Sequence[Value], stdin: Value
    ) -> None:
        """A command that runs what it is given: a file, a text or its input."""
        if program in ("eval", "source", "."):
            self.flow.use(line, "execute", join(values[1:]))
        elif program == "chmod":
            self.flow.use(line, "mark", join(values[1:]))
        elif program in _INTERPRETERS:
            scripts = [at for at, text in enumerate(texts) if at and not text.startswith("-")]
            self.flow.use(line, "execute", values[scripts[0]] if scripts else EMPTY)
            if not scripts or (program in _SHELLS and "-s" in texts):
                self.flow.use(line, "execute", stdin)
            if scripts and "-c" in texts and program in _SHELLS:
                self.flow.add(read_shell(texts[scripts[0]], line, self._qualify))
        elif "/" in texts[0]:
            self.flow.use(line, "execute", Value(names=frozenset({_file(texts[0])})))

    def _word(self, node: Node, depth: int) -> Value:
        """The value of a word: its path or file, its variables, and the commands within it."""
        text = _unquote(_text(node))
        value = sources.label_path(text.lstrip("@").partition("=@")[2] or text.lstrip("@"))
        names = {self._qualify(name) for name in _VARIABLE.findall(text)}
        for part in re.split(r"[=@;]", text):
            names.add(_file(part))
        inner = [self.read(one, EMPTY, depth + 1) for one in _find_substitutions(node)]
        if any(mark in text for mark in ("$1", "$@", "$*", "${1")):
            value |= of_label("argument")
        return value | Value(names=frozenset(names)) | join(inner)

    def _line(self, node: Node) -> int:
        return self._first + node.start_point[0]


def _find_substitutions(node: Node, depth: int = 0) -> Iterator[Node]:
    if node.type in _SUBSTITUTIONS:
        yield from node.named_children
    elif depth < _MAX_DEPTH:
        for child in node.named_children:
            yield from _find_substitutions(child, depth + 1)


def _file(text: str) -> str:
    """The name of a file as a variable; `./a` and `a` are the same."""
    return f"path:{_unquote(text).removeprefix('./')[:200]}"


def _text(node: Node) -> str:
    return (node.text or b"").decode("utf-8", "replace")


def _unquote(text: str) -> str:
    return text.strip("\"'")
