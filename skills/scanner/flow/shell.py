"""Reads the data flow of shell commands."""

from __future__ import annotations

import re
from collections import deque
from collections.abc import Callable, Sequence
from itertools import chain, takewhile

from skills.scanner.code_blocks import Lines
from skills.scanner.data_files import word_set
from skills.scanner.flow import meanings
from skills.scanner.flow.labels import NONE, Labels, Store, join, pick, read

_TOKEN = re.compile(
    r"""(?P<skip> (?: (?<![^\s;&|])\#[^\n]* | \\\n | [^\S\n] )+ )
    | (?P<end> \n | ;;? | && | \|\| | &(?!>) )
    | (?P<pipe> \|&? (?: \s | \#[^\n]*\n )*+ )
    | (?P<here> <<-?\s{0,3}["'\\]?(?P<tag>\w+)["']? )
    | (?P<redirect> \d?(?: <<<|<&?|>\||(?:&?>>?&?) ) )
    | (?P<word> (?: [^\s"'`|&;<>\\] | \\. | '[^']*' | "(?:[^"\\]|\\.)*" | ["'`\\] )++ )""",
    re.VERBOSE | re.DOTALL,
)
_INNER = re.compile(r"(?P<mark>[$<>=\w]?)\((?P<inner>[^()]*)\)|`(?P<tick>[^`\n]*)`")
"""Innermost commands within commands: substitutions and subshells."""
_MAX_DEPTH = 60
_SHELLS = word_set("sh bash zsh dash ksh ash")
_INTERPRETERS = _SHELLS | word_set("python node perl ruby osascript php pwsh")
_VERSIONED = re.compile(r"(python|node|perl|ruby|php)[\d.]+")
_WRAPPERS = word_set(
    "sudo doas env nohup command builtin exec time timeout nice ionice setsid stdbuf busybox xargs"
)
"""Commands that run the command in their arguments."""
_PREFIXES = _WRAPPERS | word_set("then do else if while until ! { export local readonly declare")
_WITH_VALUE = word_set("-u -g -C -I -U -D -a -d -o")
"""Options of these that take a value other than a number."""
_WITH_COMMAND = ("-S", "--split-string")
_FOR_EACH = word_set("-exec -execdir -ok -okdir")
"""Options of `find` before a command that it runs."""
_BEFORE = re.compile(r"\w+=|[\d*/,-]+$|[^()]*\)$")
"""Words before a command: assignments of variables, times of cron, and patterns of `case`."""
_OPTION = re.compile(r"-|\d+(?:\.\d+)?[smhd]?$")
_OPENING, _CLOSING = word_set("{ if for while until case"), word_set("} fi done esac")
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
_SHORT_OPTIONS = re.compile(r"(-[a-zA-Z#]*?)([THubAeFdoxXmwKE])(.*)", re.DOTALL)
"""Short options of curl up to the first that takes a value, and the value."""
_FUNCTION = re.compile(r"(?m)^[^\S\n]*(?:function\s+)?([\w-]{1,80})\s*(?:\(\)\s*)?\{")
_MAX_HERE = 4_000
_FILTERS = word_set("grep awk cut jq sed source . ls")
_SILENT = word_set("test [ [[")
_FILE_WRITERS = word_set("tar zip cp mv gzip tee install 7z gpg")
PIPED = re.compile(r"\b(?:curl|wget)\s[^|]{4,200}\|\s*(?:sudo\s+)?(?:ba|z)?sh\b")
"""A download piped to a shell, in a text that may be run as a command."""
_VARIABLE = re.compile(r"\$\{?(\w+)")
_ARGUMENT = re.compile(r"\$\{?([\d@*])")


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
        self._functions: set[str] = set()
        self._function = ""
        """The function whose body is read."""
        self._sockets: set[str] = set()
        """Numbers of files that are connections."""
        self._texts: dict[str, str] = {}
        """Values of variables and aliases."""

    def read(self, text: str, line: int) -> Labels:
        """Read commands, inner commands first; their output is a variable of the outer command."""

        def inner(found: re.Match[str]) -> str:
            command = found["tick"] if found["inner"] is None else found["inner"]
            mark = found["mark"] or ""
            if not command.strip() or mark.isalnum():  # a function, or a call in other code
                return f"{mark} {command} "
            at = lines.find(found.start())
            value = f"${{{self._store.keep(self._commands(command, at))}}}"
            if found["inner"] is not None and not mark:
                value = f" : {value} "
            return mark.strip("$<>") + value + "\\\n" * command.count("\n")

        self._functions.update(_FUNCTION.findall(text))
        for _ in range(_MAX_DEPTH):
            lines = Lines(text, line)
            text, count = _INNER.subn(inner, text)
            if not count:
                break
        return self._commands(text, line)

    def _commands(self, text: str, line: int) -> Labels:
        """Read commands that contain no other commands."""
        stdin, start, lines = NONE, 0, Lines(text, line)
        outputs: list[set[str]] = [set()]  # of the whole, and of the open groups
        words: list[str] = []
        targets: list[tuple[str, str]] = []
        redirect = ""
        for token in chain(_TOKEN.finditer(text), (None,)):
            kind = token.lastgroup if token else "end"
            if kind == "redirect" and token:
                redirect += token[0]
            elif kind == "here" and token:
                stdin = self._read_here(text, token, words)  # in place of a pipe
            elif kind == "word" and token:
                start = start if words or targets else token.start()
                if not redirect:
                    words.append(token[0])
                elif "<" in redirect and ">" not in redirect:
                    stdin |= read(self._word(token[0]))
                else:
                    targets.append((redirect.strip("<>&|"), _unquote(token[0])))
                redirect = ""
            elif kind in ("pipe", "end"):
                self._line = at = lines.find(start)
                first = words[0] if words else ""
                value = self._store.shorten(self._command(words, stdin, at) if words else stdin)
                if first in _OPENING:
                    outputs.append(set())
                elif first in _CLOSING:
                    self._store.assign("read", stdin)
                    if len(outputs) > 1:
                        value |= self._store.shorten(frozenset(outputs.pop()))
                    else:
                        self._function = ""
                for number, target in targets:
                    self._write(number, target, value, at)
                stdin = value if kind == "pipe" else NONE
                outputs[-1] |= value if kind == "end" else NONE
                words, targets, redirect = [], [], ""
        return join(*outputs)

    def _read_here(self, text: str, mark: re.Match[str], words: Sequence[str]) -> Labels:
        """Return the labels of the variables in a here-document; a program is read by itself."""
        if words and _get_program(words[0]) in _INTERPRETERS - _SHELLS:
            return NONE
        end = re.compile(rf"\n[^\S\n]*{mark['tag']}\b").search(
            text, mark.end(), mark.end() + _MAX_HERE
        )
        body = text[mark.end() : end.start() if end else mark.end()]
        return join(*(self._store.get(self._qualify(name)) for name in _VARIABLE.findall(body)))

    def _write(self, number: str, target: str, value: Labels, line: int) -> None:
        """Record what is written to a file, of which later commands may use the number."""
        is_socket = target.startswith(("/dev/tcp/", "/dev/udp/"))
        if is_socket:
            self._sockets.add(number)
        if is_socket or target in self._sockets:
            self._store.use(line, "network", value)
        elif not target.isdigit():
            self._store.assign(_file(target), value)

    def _strip(self, words: Sequence[str], stdin: Labels) -> tuple[list[str], Labels]:
        """Record the assignments before a command; return the command, and its input.

        The wrapper `env` remains without a command.
        """
        rest, wrapper, is_expanded = deque(words), "", False
        if words[0] == "case" and "in" in words:
            rest = deque(words[words.index("in") + 1 :])
        elif "{" in words[1:3]:
            self._function = words[words.index("{") - 1]
            rest = deque(words[words.index("{") :])
        while rest:
            word = rest.popleft()
            name, is_variable, value = word.partition("=")
            known = "" if is_expanded else self._texts.get(re.sub('[{}"]', "", word))
            if known:
                rest.extendleft(reversed([one[0] for one in _TOKEN.finditer(known) if one["word"]]))
                is_expanded = True
            elif wrapper and _OPTION.match(word):
                if word in _WITH_VALUE and rest:
                    rest.popleft()
                elif word in _WITH_COMMAND and rest:
                    rest.extendleft(reversed(_unquote(rest.popleft()).split()))
            elif word == "find" and not _FOR_EACH.isdisjoint(rest):
                paths = takewhile(lambda one: one not in _FOR_EACH, iter(rest.popleft, None))
                stdin = read(join(*map(self._word, paths)))
            elif word in _PREFIXES or _BEFORE.match(word):
                if is_variable:
                    self._store.assign(self._qualify(name), self._word(value))
                    self._texts[f"${name}"] = _unquote(value)
                wrapper = name if name in _WRAPPERS else wrapper
                stdin = read(stdin) if name == "xargs" else stdin
            else:
                rest.appendleft(word)
                break
        if not rest:
            return (["env"] if wrapper == "env" else []), stdin
        is_curl = _unquote(rest[0]).endswith("curl")
        return [*(chain(*map(_split_options, rest)) if is_curl else rest)], stdin

    def _define(
        self, program: str, texts: Sequence[str], values: Sequence[Labels], stdin: Labels
    ) -> None:
        """Record the names that a command gives values to: aliases, arguments, variables."""
        if program == "alias":
            self._texts.update(one.partition("=")[::2] for one in texts)
        elif program in ("read", "mapfile", "readarray"):
            for name in texts:
                self._store.assign(self._qualify(name), stdin | self._store.get("read"))
        elif program in self._functions:
            for mark, value in enumerate(values, 1):
                self._store.assign(f"{mark} of {program}", value)
            self._store.assign(f"@ of {program}", join(*values))

    def _command(self, words: list[str], stdin: Labels, line: int) -> Labels:
        if words[0] == "for" and len(words) > 3:
            self._store.assign(words[1], join(*map(self._word, words[3:])))
            return NONE
        words, stdin = self._strip(words, stdin)
        words = [
            word
            for word, before in zip(words, ["", *words], strict=False)
            if not word.startswith("--exclude") and before != "--exclude"
        ]
        if not words:
            return NONE
        texts, values = [*map(_unquote, words)], [*map(self._word, words)]
        program = _get_program(words[0])
        self._define(program, texts[1:], values[1:], stdin)
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
        if program in _SILENT:
            return NONE
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
            if program == "wget":
                role = "output" if re.fullmatch("-[a-z]*O", flag) else role
            if role == "output":
                target = text
            if role == "header":
                sent |= pick(value)
            elif role == "file" or "@" in text or "=<" in text:
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
            for mark in _ARGUMENT.findall(text.replace("*", "@")):
                labels.append(self._store.get(f"{mark} of {self._function}"))
                labels.append(frozenset({"argument"} if mark in "1@" else ()))
        return join(*labels)


def _file(text: str) -> str:
    """Return the variable name of a file; `./a` and `a` are the same."""
    return f"path:{_unquote(text).removeprefix('./')[:200]}"


def _unquote(text: str) -> str:
    """Return a word without quotes; a backslash outside of them belongs to a path of Windows."""
    return re.sub("[\"']", "", text)


def _get_program(word: str) -> str:
    """Return the name of the program that a word calls, without folder and version."""
    name = _unquote(word).rpartition("/")[2].replace("\\", "")
    versioned = _VERSIONED.fullmatch(name)
    return versioned[1] if versioned else name


def _split_options(word: str) -> list[str]:
    """Split short options of curl, of which the last may have its value attached."""
    found = _SHORT_OPTIONS.fullmatch(word)
    return [word] if not found else [one for one in (found[1], f"-{found[2]}", found[3]) if one]


def quote(word: str) -> str:
    """Return a word of a command, in quotes if it has spaces."""
    mark = '"' if "'" in word else "'"
    return f"{mark}{word}{mark}" if " " in word.strip() else word
