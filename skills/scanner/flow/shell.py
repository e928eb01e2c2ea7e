"""Reads the data flow of shell commands."""

from __future__ import annotations

import re
from collections.abc import Callable, Iterator, Sequence
from functools import cache

from tree_sitter import Language, Node, Parser

from skills.scanner.data_files import word_set
from skills.scanner.flow import sources
from skills.scanner.flow.labels import NONE, Labels, Store, join, pick, read

_MAX_DEPTH = 60
_MAX_PARSED = 4_096
"""Characters of lines that are parsed at once: the time of the parser is quadratic in broken
commands."""
_MAX_LINE = 16_384
"""Characters of a line that are parsed at once; of a longer command the first are."""
_SEPARATOR = re.compile(r"[;\n]")
_SHELLS = word_set("sh bash zsh dash ksh")
_INTERPRETERS = _SHELLS | word_set("python python3 node perl ruby osascript php pwsh")
_PREFIXES = word_set("sudo env nohup command exec time doas then do else xargs -E -n")
_SENDERS = word_set("curl wget nc ncat netcat socat telnet http https xh ftp sftp mail")
_LOOKUPS = word_set("dig nslookup host drill ping")
_FLAGS = {
    "header": "-H --header -u --user --oauth2-bearer -b --cookie -A --user-agent",
    "ignored": "-i --key --cert -E -K --config -F. --cacert -P -p",
    "output": "-o --output -O",
    "file": "-T --upload-file --post-file --body-file",
}
_ROLE_OF = {flag: role for role, flags in _FLAGS.items() for flag in flags.split()}
_PRINTS = (
    ("security", "settings", "find-generic-password find-internet-password dump-keychain"),
    ("secret-tool", "settings", "lookup"),
    ("kubectl", "settings", "secrets secret"),
    ("git", "settings", "credential"),
    ("gpg", "secret", "--export-secret-keys"),
    ("git", "file", "archive bundle diff format-patch"),
    ("base64", "decoded", "-d -D --decode -di"),
    ("base32", "decoded", "-d --decode"),
    ("xxd", "decoded", "-r -rp"),
    ("openssl", "decoded", "-d"),
)
"""Programs, and the label of what they print if they have one of these arguments."""
_FILTERS = word_set("grep awk cut jq sed source . ls test [")
_FILE_WRITERS = word_set("tar zip cp mv gzip tee install 7z gpg")
_VARIABLE = re.compile(r"\$\{?(\w+)")
_ARGUMENT = re.compile(r"\$[1@*]|\$\{1")
_SUBSTITUTIONS = frozenset({"command_substitution", "process_substitution"})


@cache
def _parser() -> Parser:
    import tree_sitter_bash

    return Parser(Language(tree_sitter_bash.language()))


def read_shell(
    store: Store, text: str, first_line: int = 1, qualify: Callable[[str], str] = lambda name: name
) -> Labels:
    """Record what commands assign and use; returns the labels of what they print.

    What cannot be parsed is left out. qualify: gives the name in a program of which these commands
    are a part.
    """
    lines, start, output = text.split("\n"), 0, NONE
    while start < len(lines):
        end, size = start, 0
        while end < len(lines) and (end == start or size + len(lines[end]) < _MAX_PARSED):
            size += len(lines[end])
            end += 1
        part = lines[start:end]
        root = _parse("\n".join(part)) if size <= _MAX_LINE else None
        if root is not None:
            output |= _Reader(store, first_line + start, qualify).read_whole(root)
        if root is None or (root.has_error and len(text) > _MAX_PARSED):
            # Where a quotation was cut, all after it is read inside out.
            for number, line in enumerate(part, start=first_line + start):
                for command in _SEPARATOR.split(line):
                    single = _parse(command[:_MAX_LINE])
                    output |= _Reader(store, number, qualify).read_whole(single)
        start = end
    return output


def _parse(text: str) -> Node:
    return _parser().parse(text.encode("utf-8", "replace")).root_node


class _Reader:
    """Files are variables too: what is written to one, later commands read."""

    def __init__(self, store: Store, first_line: int, qualify: Callable[[str], str]) -> None:
        self._store = store
        self._first = first_line
        self._qualify = qualify
        self._deep: list[Node] = []

    def read_whole(self, root: Node) -> Labels:
        """Record what a program assigns and uses; returns its output.

        What nests too deep is read by itself: its output is known, but not who takes it.
        """
        output = self.read(root)
        while self._deep:
            output |= self.read(self._deep.pop())
        return output

    def read(self, node: Node, stdin: Labels = NONE, depth: int = 0) -> Labels:
        """Record what a statement assigns and uses; returns its output."""
        if depth > _MAX_DEPTH:
            self._deep.append(node)
            return NONE
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
                    self._store.assign(self._qualify(_text(name)), self._word(value, depth))
                return NONE
            case "for_statement":
                values = [self._word(one, depth) for one in node.children_by_field_name("value")]
                name = node.child_by_field_name("variable")
                self._store.assign(_text(name) if name else "", join(*values))
        return join(*[self.read(child, stdin, depth + 1) for child in node.named_children])

    def _redirected(self, node: Node, stdin: Labels, depth: int) -> Labels:
        body = node.child_by_field_name("body")
        targets = []
        for redirect in node.children_by_field_name("redirect"):
            words = redirect.named_children
            if redirect.children and redirect.children[0].type in ("<", "<<<", "<<", "<<-"):
                stdin |= read(join(*[self._word(word, depth) for word in words]))
            elif words:
                targets.append(_unquote(_text(words[-1])))
        output = self.read(body, stdin, depth + 1) if body else stdin
        for target in targets:
            self._store.assign(_file(target), output)
            if target.startswith("/dev/tcp/"):
                self._store.use(self._first + node.start_point[0], "network", output)
        return output

    def _command(self, node: Node, stdin: Labels, depth: int) -> Labels:
        words = []
        for child in node.named_children:
            if child.type == "variable_assignment":
                self.read(child, NONE, depth + 1)
            elif "redirect" in child.type:
                listed = [self._word(one, depth) for one in child.named_children]
                stdin |= read(join(*listed))
            else:
                words.append(child)
        texts = [_unquote(_text(word)) for word in words]
        while len(texts) > 1 and (texts[0] in _PREFIXES or "=" in texts[0]):
            if texts[0] == "xargs":
                stdin = read(stdin)
            words, texts = words[1:], texts[1:]
        if not texts:
            return NONE
        program = texts[0].rpartition("/")[2]
        values = [self._word(word, depth) for word in words]
        line = self._first + node.start_point[0]
        self._execute(line, program, texts, values, stdin)
        if program in _SENDERS or program in _LOOKUPS:
            return self._send(line, program, texts, values, stdin)
        if program in ("scp", "rsync") and ":" in texts[-1]:
            sent = [
                v for v, flag in zip(values[1:-1], texts, strict=False) if flag not in ("-i", "-e")
            ]
            self._store.use(line, "network", read(join(*sent)))
        return self._output(program, texts[1:], values[1:], stdin)

    def _output(
        self, program: str, arguments: Sequence[str], values: Sequence[Labels], stdin: Labels
    ) -> Labels:
        """What a command that sends nothing prints, and the files that it writes."""
        if program in ("env", "printenv", "set", "declare", "export") and not (
            [one for one in arguments if not one.startswith("-")] or arguments[:1] == ["-e"]
        ):
            bare = program in ("env", "printenv", "set") and not arguments
            return frozenset({"environment"}) if bare or list(arguments) == ["-p"] else NONE
        if program == "history":
            return frozenset({"secret"})
        if program in _FILTERS:
            kept = pick(read(join(*values))) | stdin
            names_one = program in ("jq", "awk") or any(mark in "".join(arguments) for mark in "_=")
            return pick(kept) if names_one and program != "sed" else kept
        output = read(join(*values)) | stdin
        output |= {
            label
            for name, label, marks in _PRINTS
            if name == program and not set(marks.split()).isdisjoint(arguments)
        }
        if program in _FILE_WRITERS:
            for text in arguments:
                self._store.assign("" if text.startswith("-") else _file(text), output)
        return output

    def _send(
        self, line: int, program: str, texts: Sequence[str], values: Sequence[Labels], stdin: Labels
    ) -> Labels:
        """A command of the network: what it sends, and what it fetches."""
        sent, target = NONE if program in ("wget", *_LOOKUPS) else stdin, ""
        previous = ""
        for text, value in zip(texts[1:], values[1:], strict=True):
            role = _ROLE_OF.get(previous) or _ROLE_OF.get(text.partition("=")[0])
            combined = previous[:1] == "-" and previous[1:2] != "-" and previous.endswith("o")
            if program in ("curl", "wget") and (role == "output" or combined):
                is_flag = text.startswith("-") or (previous == "-O" and program == "curl")
                target = target if is_flag else text
                role = role if is_flag else "output"
            if role == "header":
                sent |= pick(value)
            elif role == "file" or "@" in text:
                sent |= read(value)
            elif role is None:
                sent |= value
            previous = text
        address = next((text for text in texts[1:] if "://" in text), "")
        if not address and program in ("curl", "wget"):
            address = next((text for text in texts[1:] if "$" in text or sources.is_host(text)), "")
        if not sources.is_local(address):
            self._store.use(line, "network", sent)
        if program not in ("curl", "wget") or not address:
            return NONE
        fetched = sources.label_download(address)
        saves = program == "wget" or any(re.match(r"-\w*O|--remote-name", one) for one in texts)
        if not target and saves:
            target = address.rstrip("/").rpartition("/")[2].partition("?")[0]
        self._store.assign(_file(target) if target not in ("", "-") else "", fetched)
        return fetched

    def _execute(
        self, line: int, program: str, texts: Sequence[str], values: Sequence[Labels], stdin: Labels
    ) -> None:
        """A command that runs what it is given: a file, a text or its input."""
        if program in ("eval", "source", "."):
            self._store.use(line, "execute", join(*values[1:]))
        elif program == "chmod":
            self._store.use(line, "mark", join(*values[1:]))
        elif program in _INTERPRETERS:
            scripts = [at for at, text in enumerate(texts) if at and not text.startswith("-")]
            is_text = "-c" in texts or "-e" in texts
            if not scripts or (program in _SHELLS and "-s" in texts):
                self._store.use(line, "execute", stdin)
            elif not is_text or program in _SHELLS or _VARIABLE.fullmatch(texts[scripts[0]]):
                self._store.use(line, "execute", values[scripts[0]])
            if scripts and is_text and program in _SHELLS:
                read_shell(self._store, texts[scripts[0]], line, self._qualify)
        elif "/" in texts[0]:
            self._store.use(line, "execute", self._store.get(_file(texts[0])))

    def _word(self, node: Node, depth: int) -> Labels:
        """The labels of a word: of its path or file, its variables, and the commands within it."""
        text = _unquote(_text(node))
        bare = text.lstrip("@")
        labels = [sources.label_path(bare.partition("=@")[2] or bare)]
        labels += [self._store.get(_file(part)) for part in re.split(r"[=@;]", text)]
        if "$" in text:
            labels += [self._store.get(self._qualify(name)) for name in _VARIABLE.findall(text)]
            if _ARGUMENT.search(text):
                labels.append(frozenset({"argument"}))
        if "(" in text or "`" in text:
            labels += [self.read(one, NONE, depth + 1) for one in _find_substitutions(node)]
        return join(*labels)


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
