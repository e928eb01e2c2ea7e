"""Labels of values in code: where a value comes from, and where it goes.

Readers of programs and of shell commands give the names of variables and files the labels of what
is assigned to them. The value of a name is a reference to it, so that labels pass on whatever the
order of the statements.
"""

from __future__ import annotations

from collections.abc import Callable, Iterator
from typing import Literal, NamedTuple

Labels = frozenset[str]
"""Where a value comes from. `secret path`, `settings path`, `home path`: a path; `secret`: keys,
wallets, credentials of clouds and browsers; `settings`: files such as .env, of which one value at a
time is used rightly; `environment`: all of it; `argument`, `file`: what a program is given;
`download`, `known download`, `bare download`: from any host, a known installer, a bare address;
`decoded`; `connection`: an object that sends. A NUL, a name, and NULs with operations: the value of
a name after these."""
Sink = Literal["network", "execute", "mark", "delete"]
"""Where a value goes. mark: a file is made executable."""
NONE: Labels = frozenset()
_READ = {"secret path": "secret", "settings path": "settings", "argument": "file"}
_MANY = frozenset({"settings", "environment"})
_ROUNDS = 4
"""Labels pass on over this many names out of order at least."""


class Use(NamedTuple):
    """Labels that reach a sink in a line (1-based)."""

    line: int
    sink: Sink
    labels: Labels


def join(*values: Labels) -> Labels:
    """The labels of a value that is made of several."""
    return NONE.union(*values)


def read(path: Labels) -> Labels:
    """The labels of what is read from a path, and of the path."""
    found = {_READ[label] for label in path & _READ.keys()}
    return path | found | {f"{one}\0read" for one in path if one[0] == "\0"}


def pick(labels: Labels) -> Labels:
    """The labels of one value out of many, such as one variable of the environment."""
    return frozenset(f"{one}\0pick" if one[0] == "\0" else one for one in labels - _MANY)


def below(folder: Labels) -> Labels:
    """The labels of a path in a folder."""
    kept = folder - {"home path"}
    return frozenset(f"{one}\0below" if one[0] == "\0" else one for one in kept)


_OPERATIONS: dict[str, Callable[[Labels], Labels]] = {"read": read, "pick": pick, "below": below}


class Store:
    """The labels of the names in some code, and the uses of labelled values."""

    def __init__(self) -> None:
        self._labels: dict[str, Labels] = {}
        self._uses: list[tuple[Use, Labels | None]] = []

    def get(self, name: str) -> Labels:
        """The value of a name."""
        return frozenset((f"\0{name.replace(chr(0), '')}",))

    def assign(self, name: str, labels: Labels) -> None:
        """A name takes a value; what it had before stays possible."""
        if labels and name:
            self._labels[name] = self._labels.get(name, NONE) | labels

    def keep(self, labels: Labels) -> str:
        """A new name for a value."""
        name = f"value_{len(self._labels)}"
        self._labels[name] = labels
        return name

    def use(self, line: int, sink: Sink, labels: Labels, owner: Labels | None = None) -> None:
        """A value reaches a sink. owner: of a method that sends if its object is a connection."""
        if labels:
            self._uses.append((Use(line, sink, labels), owner))

    def follow(self) -> Iterator[Use]:
        """The uses with the labels that reach them."""
        known: dict[str, Labels] = {}
        for _ in range(_ROUNDS):
            before = dict(known)
            for name, labels in self._labels.items():
                known[name] = _resolve(labels, known)
            if known == before:
                break
        for use, owner in self._uses:
            if owner is None or "connection" in _resolve(owner, known):
                yield use._replace(labels=_resolve(use.labels, known))


def _resolve(labels: Labels, known: dict[str, Labels]) -> Labels:
    """Labels with those of names in place of the references to them."""
    found: set[str] = set()
    for one in labels:
        if one[0] != "\0":
            found.add(one)
            continue
        _, name, *operations = one.split("\0")
        value = known.get(name, NONE)
        for operation in operations:
            value = _OPERATIONS[operation](value)
        found |= value
    return frozenset(found)
