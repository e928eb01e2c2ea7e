"""Labels of values in code, which name the origin of a value, and sinks, which receive values.

Readers of programs and shell commands assign labels to the names of variables and files. The value
of a name is a reference to it, so labels propagate regardless of the order of statements.
"""

from __future__ import annotations

from collections.abc import Callable, Iterable, Iterator
from typing import Literal, NamedTuple

Labels = frozenset[str]
"""Origins of a value.

`secret path`, `settings path`, `home path`: paths. `secret`: keys, wallets, credentials of clouds
and browsers. `settings`: contents of files such as .env, where the use of a single value is
legitimate. `environment`: all environment variables. `argument`, `file`: an argument of the
program, and the content of a file that it names. `download`, `known download`, `bare download`:
downloads from any host, a known installer, a numeric address. `decoded`: decoded text.
`connection`: an object that sends. A NUL and a name, then NULs with operations: the value of the
name after these operations.
"""
Sink = Literal["network", "execute", "mark", "delete"]
"""Kinds of sinks, which receive values. mark: a file is made executable."""
NONE: Labels = frozenset()
_READ = {"secret path": "secret", "settings path": "settings", "argument": "file"}
_MANY = frozenset({"settings", "environment"})
_ROUNDS = 4
"""Passes over all names; labels propagate over at least so many names in any order."""
_MAX_OPERATIONS = 4
"""Operations on the value of a name that count; more are found only in hostile code."""
_MAX_LABELS = 32


class Use(NamedTuple):
    """The labels that reach a sink in a line (1-based)."""

    line: int
    sink: Sink
    labels: Labels


def join(*values: Iterable[str]) -> Labels:
    """Return the labels of a value that is composed of several values."""
    return NONE.union(*values)


def read(path: Labels) -> Labels:
    """Return the labels of a path and of the content read from it."""
    return path | {_READ[label] for label in path & _READ.keys()} | _defer("read", path)


def pick(labels: Labels) -> Labels:
    """Return the labels of one value out of many, such as one environment variable."""
    return _defer("pick", labels - _MANY)


def below(folder: Labels) -> Labels:
    """Return the labels of a path inside a folder."""
    return _defer("below", folder - {"home path"})


def _defer(operation: str, labels: Labels) -> Labels:
    """Return labels whose references have one operation more, for when they are resolved."""
    found = set()
    for one in labels:
        operations = one.split("\0")[2:]
        is_new = operations[-1:] != [operation] and len(operations) < _MAX_OPERATIONS
        found.add(f"{one}\0{operation}" if one[0] == "\0" and is_new else one)
    return frozenset(found)


def list_files(labels: Labels) -> Iterator[str]:
    """Yield the names of the files that a value refers to."""
    return (one.split("\0")[1] for one in labels if one.startswith("\0path:"))


_OPERATIONS: dict[str, Callable[[Labels], Labels]] = {"read": read, "pick": pick, "below": below}


class Store:
    """Labels of the names in some code, and uses of labelled values."""

    def __init__(self) -> None:
        self._labels: dict[str, set[str]] = {}
        self._uses: list[tuple[Use, Labels | None]] = []

    def get(self, name: str) -> Labels:
        """Return the value of a name, as a reference to it."""
        return frozenset((f"\0{name.replace(chr(0), '')}",))

    def assign(self, name: str, labels: Labels) -> None:
        """Add the labels of a value to a name; its earlier labels stay, as either may apply."""
        if labels and name:
            self._labels.setdefault(name, set()).update(labels)

    def keep(self, labels: Labels) -> str:
        """Store a value under a new name, and return the name."""
        name = f"value_{len(self._labels)}"
        self._labels[name] = {*labels}
        return name

    def shorten(self, labels: Labels) -> Labels:
        """Return the labels as one reference if they are many, which keeps joins short."""
        return self.get(self.keep(labels)) if len(labels) > _MAX_LABELS else labels

    def use(self, line: int, sink: Sink, labels: Labels, owner: Labels | None = None) -> None:
        """Record that a value reaches a sink.

        owner: labels of the object of a method, which sends only if the object is a connection.
        """
        if labels:
            self._uses.append((Use(line, sink, labels), owner))

    def follow(self) -> Iterator[Use]:
        """Yield the uses with the labels that reach them, after resolving all names."""
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


def _resolve(labels: Iterable[str], known: dict[str, Labels]) -> Labels:
    """Replace references to names by the labels of these names."""
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
