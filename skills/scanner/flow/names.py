"""Names in programs: functions with their parameters, scopes, and what imported names stand for."""

from __future__ import annotations

import re
from collections.abc import Iterator, Sequence

from skills.scanner.code_blocks import Code
from skills.scanner.flow import meanings
from skills.scanner.flow.tokens import KEYWORDS, Token, get_content, list_names, split_at

_LISTED = r"((?:[^()]|\([^()]{0,80}\)){0,300})"
_DECLARED = {
    "python": re.compile(
        rf"\bdef[ \t]{{1,3}}(\w{{1,80}})[ \t]?\({_LISTED}\)"
        r"|\b(\w{1,80}) = lambda ([\w, ]{0,100}):"
    ),
    "javascript": re.compile(
        rf"\bfunction[ \t]{{1,3}}(\w{{1,80}})[ \t]?\({_LISTED}\)"
        r"|\b(\w{1,80})(?:: [\w<>]{1,40})? = (?:async )?\(?([\w\s,:]{0,200})\)?"
        r"(?:: ?[\w<>]{1,40})? =>"
        r"|(?m:^)[ \t]{1,20}(?:(?:async|static|public|private) ){0,3}(\w{1,80})"
        r"\(([^()]{0,200})\)(?:: ?[\w<>]{1,40})? \{"
    ),
}
"""Patterns of function definitions, with name and parameters."""
_BRACKETS = re.compile(r"\([^()]*\)|\[[^][]*\]|\{[^{}]*\}|<[^<>]*>")
"""Types and default values of parameters."""
_PARAMETER = re.compile(r"(?:^|,)[\s*.]*(\w+)")


class Names:
    """Names of the programs of a skill in one language, which share their functions.

    functions: name -> parameters. modules: imported names. scopes: the functions around the
    statement that is read, by which names are qualified; the first is the program.
    """

    def __init__(self, programs: Sequence[Code]) -> None:
        self.functions: dict[str, list[str]] = {}
        self.modules: set[str] = set()
        self.scopes: list[str] = []
        self._own = {"", "self", "this", *(one.module for one in programs)}
        self._declared: dict[str, set[str]] = {}
        self._globals: set[str] = set()
        self._full: dict[str, str] = {}
        for program in programs:
            for found in _DECLARED[program.language].finditer(program.text):
                name, listed = (one for one in found.groups() if one is not None)
                while listed != (listed := _BRACKETS.sub("", listed)):
                    pass
                parameters = [one for one in _PARAMETER.findall(listed) if one not in KEYWORDS]
                if name not in KEYWORDS:
                    self.functions.setdefault(name, parameters)
                    self._declared.setdefault(name, set()).update(parameters)

    def find_parameters(self, full: str) -> list[str] | None:
        """Return the parameters of a function of the programs, None for any other function."""
        owner, _, last = full.rpartition(".")
        return self.functions.get(last) if owner.rpartition(".")[2] in self._own else None

    def declare(self, name: str) -> None:
        """Declare a variable of the innermost scope."""
        scope = self.scopes[0 if name in self._globals else -1]
        self._declared.setdefault(scope, set()).add(name)

    def declare_global(self, tokens: list[Token]) -> None:
        """Declare names as variables of the whole program."""
        self._globals.update(list_names(tokens))

    def qualify(self, name: str) -> str:
        """Return a name with the scope that declares it."""
        for scope in reversed(self.scopes):
            if name in self._declared.get(scope, ()):
                return f"{scope}.{name}"
        return name

    def get_full(self, name: str) -> str:
        """Return a name with its root replaced by what it stands for."""
        root, dot, rest = name.partition(".")
        return f"{self._full.get(root, root)}{dot}{rest}"

    def find_function(self, tokens: list[Token]) -> str:
        """Return the full name of the library function that tokens name, "" without one."""
        if all(one.kind in ("name", "member") for one in tokens):
            full = self.get_full(".".join(one.text for one in tokens))
            if meanings.is_network(full) or full in meanings.RUNNING | meanings.EXECUTING:
                return full
        return ""

    def bind(self, name: str, full: str) -> None:
        """Record that a name stands for a function with this full name; "" records nothing."""
        if full:
            self._full[name] = full

    def bind_require(self, targets: list[list[Token]], right: list[Token]) -> None:
        """Record the names that take a module of JavaScript, or parts of it."""
        texts = (get_content(one) for call in right for one in call.inner if one.kind == "text")
        members = (f".{one.text}" for one in right if one.kind == "member")
        module = "".join((next(texts, ""), *members))
        for left in targets:
            self._bind(module, left)

    def bind_import(self, tokens: list[Token]) -> None:
        """Record the names of an import statement."""
        texts = [one.text for one in tokens]
        at = texts.index("import") if "import" in texts else 0
        names = tokens[at + 1 :]
        if at:  # from MODULE import NAMES
            self._bind(".".join(texts[1:at]), names, is_inner=True)
        elif names and names[-1].kind == "text":  # import NAMES from "MODULE"
            self._bind(get_content(names[-1]), names[:-2])
        else:
            self._bind("", names)

    def _bind(self, module: str, names: list[Token], *, is_inner: bool = False) -> None:
        self.modules.update(list_names(names))
        module = module.removeprefix("node:").rpartition("/")[2]
        prefix = f"{module}." if self._own.isdisjoint(module.split(".")) else ""
        for part, inner in _list_parts(names, is_inner):
            listed = [one.text for one in part if one.kind in ("name", "member")]
            renamed = "as" in listed
            if not listed or (not renamed and any(one.kind == "member" for one in part)):
                continue  # `import a.b` declares no name but `a`
            path = ".".join(listed[: listed.index("as")] if renamed else listed[:1])
            self._full[listed[-1]] = f"{prefix}{path}" if inner else module or path


def _list_parts(names: list[Token], is_inner: bool) -> Iterator[tuple[list[Token], bool]]:
    """Yield (tokens of an imported name, whether it is a part of the module)."""
    for part in split_at(names, ",", "\n"):
        brackets = [one for one in part if one.kind == "open"]
        for bracket in brackets:
            yield from ((one, True) for one in split_at(bracket.inner, ",", "\n"))
        if not brackets:
            yield part, is_inner
