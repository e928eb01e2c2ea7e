"""Reads the data flow of shell commands."""

from __future__ import annotations

import re
from collections.abc import Callable, Sequence
from itertools import chain

from skills.scanner.data_files import word_set
from skills.scanner.flow import meanings
from skills.scanner.flow.labels import NONE, Labels, Store, join, pick, read

_TOKEN = re.compile(
    r"""(?P<skip> (?: (?<![^\s;&|])\#[^\n]* | \\\n | [^\S\n] )+ )
    | (?P<end> \n | ;;? | && | \|\| | &(?!>) )
    | (?P<pipe> \|&? )
    | (?P<redirect> \d?(?: <<<|<&?|>\||(?:&?>>?&?) ) )
    | (?P<word> (?: [^\s"'`|&;<>\\] | \\. | '[^']*' | "(?:[^"\\]|\\.)*" | ["'`\\] )++ )""",
    re.VERBOSE | re.DOTALL,
)
_INNER = re.compile(r"(?P<mark>[$<>=\w]?)\((?P<inner>[^()]*)\)|`(?P<tick>[^`\n]*)`")
"""Innermost commands within commands: substitutions and subshells."""
_MAX_DEPTH = 60
_SHELLS = word_set("sh bash zsh dash ksh")
_INTERPRETERS = _SHELLS | word_set("python python3 node perl ruby osascript php pwsh")
_PREFIXES = word_set(
    "sudo env nohup command exec time doas then do else if while until ! { xargs export local "
    "readonly declare -E -n"
)
_BEFORE = re.compile(r"\w+=|[\d*/,-]+$")
"""Words before a command: assignments of variables, and times of cron."""
_SENDERS = word_set(
    "curl wget nc ncat netcat socat telnet http https xh ftp sftp mail dig nslookup host drill ping"
)
_FLAGS = {
    "header": "-H --header -u --user --oauth2-bearer -b --cookie -A --user-agent",
    "output": "-o --output",
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
"""(program, label of its output, arguments); the label applies with any of the arguments."""
_PRINT_ENVIRONMENT = ("env", "printenv", "set", "-p")
"""Whole commands that print the environment; `-p` is `export -p` or `declare -p` without prefix."""
_FILTERS = word_set("grep awk cut jq sed source . ls test [")
_FILE_WRITERS = word_set("tar zip cp mv gzip tee install 7z gpg")
PIPED = re.compile(r"\b(?:curl|wget)\s[^|]{4,200}\|\s*(?:sudo\s+)?(?:ba|z)?sh\b")
"""A download piped to a shell, in a text that may be run as a command."""
_VARIABLE = re.compile(r"\$\{?(\w+)")
_ARGUMENT = re.compile(r"\$[1@*]|\$\{1")


def read_shell(
    store: Store, text: str, first_line: int = 1, qualify: Callable[[str], str] = lambda name: name
) -> Labels:
    """Record the assignments and uses of commands; return the labels of their output.

    qualify: maps a shell variable to a name in the program that contains the commands.
    """
    return _Reader(store, qualify).read(text, first_line)


class _Reader:
    """Reads shell commands; files are treated as variables that later commands read."""

    def __init__(self, store: Store, qualify: Callable[[str], str]) -> None:
        self._store, self._qualify, self._line = store, qualify, 1

    def read(self, text: str, line: int) -> Labels:
        """Read commands, inner commands first; their output is a variable of the outer command."""

        def inner(found: re.Match[str]) -> str:
            command = found["tick"] if found["inner"] is None else found["inner"]
            mark = found["mark"] or ""
            if not command.strip() or mark.isalnum():  # a function, or a call in other code
                return f"{mark} {command} "
            at = line + found.string.count("\n", 0, found.start())
            value = f"${{{self._store.keep(self._commands(command, at))}}}"
            if found["inner"] is not None and not mark:
                value = f" : {value} "
            return mark.strip("$<>") + value + "\\\n" * command.count("\n")

        for _ in range(_MAX_DEPTH):
            text, count = _INNER.subn(inner, text)
            if not count:
                break
        return self._commands(text, line)

    def _commands(self, text: str, line: int) -> Labels:
        """Read commands that contain no other commands."""
        output, stdin, start = NONE, NONE, 0
        words: list[str] = []
        targets: list[str] = []
        redirect = ""
        for token in chain(_TOKEN.finditer(text), (None,)):
            kind = token.lastgroup if token else "end"
            if kind == "redirect" and token:
                redirect = token[0]
            elif kind == "word" and token:
                start = start if words or targets else token.start()
                if not redirect:
                    words.append(token[0])
                elif "<" in redirect:
                    stdin |= read(self._word(token[0]))
                else:
                    targets.append(_unquote(token[0]))
                redirect = ""
            elif kind in ("pipe", "end"):
                self._line = at = line + text.count("\n", 0, start)
                value = self._command(words, stdin, at) if words else stdin
                for target in targets:
                    self._store.assign(_file(target), value)
                    if target.startswith("/dev/tcp/"):
                        self._store.use(at, "network", value)
                stdin = value if kind == "pipe" else NONE
                output |= value if kind == "end" else NONE
                words, targets, redirect = [], [], ""
        return output

    def _command(self, words: list[str], stdin: Labels, line: int) -> Labels:
        if words[0] == "for" and len(words) > 3:
            self._store.assign(words[1], join(*map(self._word, words[3:])))
            return NONE
        while words and (words[0] in _PREFIXES or _BEFORE.match(words[0])):
            name, is_variable, value = words[0].partition("=")
            if is_variable:
                self._store.assign(self._qualify(name), self._word(value))
            if words[0] == "xargs":
                stdin = read(stdin)
            if words[0] == "env" and len(words) == 1:
                break
            words = words[1:]
        if not words:
            return NONE
        texts, values = [*map(_unquote, words)], [*map(self._word, words)]
        program = texts[0].rpartition("/")[2]
        self._execute(line, program, texts, values, stdin)
        if program in _SENDERS:
            return self._send(line, program, texts, values, stdin)
        if program in ("scp", "rsync") and ":" in texts[-1]:
            listed = zip(values[1:-1], texts, strict=False)
            sent = [value for value, flag in listed if flag not in ("-i", "-e")]
            self._store.use(line, "network", read(join(*sent)))
        return self._output(program, texts[1:], values[1:], stdin)

    def _output(
        self, program: str, arguments: Sequence[str], values: Sequence[Labels], stdin: Labels
    ) -> Labels:
        """Return the labels of the output of a command without network, and record its files."""
        if " ".join((program, *arguments)) in _PRINT_ENVIRONMENT:
            return frozenset({"environment"})
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
        """Record the values that a network command sends; return the labels of its download."""
        sent, target = NONE if program == "wget" else stdin, ""
        for flag, text, value in zip(texts, texts[1:], values[1:], strict=False):
            role = _ROLE_OF.get(flag) or _ROLE_OF.get(text.partition("=")[0])
            if re.fullmatch("-[a-zA-Z]*o|--output" if program == "curl" else "-[a-z]*O", flag):
                target, role = text, "output"
            if role == "header":
                sent |= pick(value)
            elif role == "file" or "@" in text:
                sent |= read(value)
            elif role is None:
                sent |= value
        address = next((text for text in texts[1:] if "://" in text), "")
        if not address and program in ("curl", "wget"):
            address = next(
                (text for text in texts[1:] if "$" in text or meanings.is_host(text)), ""
            )
        if not meanings.is_local(address):
            self._store.use(line, "network", sent)
        if program not in ("curl", "wget") or not address:
            return NONE
        fetched = meanings.label_download(address)
        saves = program == "wget" or any(re.match(r"-\w*O|--remote-name", one) for one in texts)
        if not target and saves:
            target = address.rstrip("/").rpartition("/")[2].partition("?")[0]
        self._store.assign(_file(target) if target not in ("", "-") else "", fetched)
        return fetched

    def _execute(
        self, line: int, program: str, texts: Sequence[str], values: Sequence[Labels], stdin: Labels
    ) -> None:
        """Record the values that a command runs or makes executable: a file, text or its input."""
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
                self._commands(texts[scripts[0]], line)
        elif "/" in texts[0]:
            self._store.use(line, "execute", values[0])

    def _word(self, word: str) -> Labels:
        """Return the labels of a word: those of its path or file, and of its variables."""
        text = _unquote(word)
        if text != word and PIPED.search(text):
            self._commands(text, self._line)
        bare = text.lstrip("@")
        labels = [meanings.label_path(bare.partition("=@")[2] or bare)]
        labels += [self._store.get(_file(part)) for part in re.split(r"[=@;]", text)]
        if "$" in text:
            labels += [self._store.get(self._qualify(name)) for name in _VARIABLE.findall(text)]
            if _ARGUMENT.search(text):
                labels.append(frozenset({"argument"}))
        return join(*labels)


def _file(text: str) -> str:
    """Return the variable name of a file; `./a` and `a` are the same."""
    return f"path:{_unquote(text).removeprefix('./')[:200]}"


def _unquote(text: str) -> str:
    return text.strip("\"'")


def quote(word: str) -> str:
    """Return a word of a command, in quotes if it has spaces."""
    mark = '"' if "'" in word else "'"
    return f"{mark}{word}{mark}" if " " in word.strip() else word
