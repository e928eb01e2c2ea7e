"""Labels of values in code: where a value comes from, and what is done with it.

Readers of programs and of shell commands give names of variables and files the labels of what is
assigned to them. They read code again as long as it uses a name before the name has its labels.
"""

from __future__ import annotations

from typing import Literal, NamedTuple

Labels = frozenset[str]
"""Where a value comes from. `secret path`, `settings path`, `home path`: a path; `secret`: keys,
wallets, credentials of clouds and browsers; `settings`: files such as .env, of which one value at a
time is used rightly; `environment`: all of it; `key of NAME`: the variable of a well-known service;
`argument`, `file`: what a program is given; `download`, `known download`, `bare download`: from any
host, a known installer, a bare address; `decoded`; `connection`: an object that sends."""
Sink = Literal["network", "execute", "mark", "delete"]
"""Where a value goes. mark: a file is made executable."""
NONE: Labels = frozenset()
_READ = {"secret path": "secret", "settings path": "settings", "argument": "file"}
_SOME = frozenset({"settings", "environment"})


class Use(NamedTuple):
    """Labels that reach a sink in a line (1-based). address: the literal texts of the call."""

    line: int
    sink: Sink
    labels: Labels
    address: str


class Store:
    """The labels of the names in some code, and the uses of labelled values."""

    def __init__(self) -> None:
        self.uses: set[Use] = set()
        self._labels: dict[str, Labels] = {}
        self._asked: dict[str, Labels] = {}

    def get(self, name: str) -> Labels:
        """The labels of a name."""
        labels = self._labels.get(name, NONE)
        self._asked.setdefault(name, labels)
        return labels

    def assign(self, name: str, labels: Labels) -> None:
        """A name takes a value; what it had before stays possible."""
        if labels and name:
            self._labels[name] = self._labels.get(name, NONE) | labels

    def use(self, line: int, sink: Sink, labels: Labels, address: str = "") -> None:
        """A value reaches a sink."""
        if labels:
            self.uses.add(Use(line, sink, labels, address))

    def is_settled(self) -> bool:
        """Whether no name has got labels since it was asked for; begins anew otherwise."""
        settled = all(self._labels.get(name, NONE) == had for name, had in self._asked.items())
        self._asked.clear()
        return settled


def join(*values: Labels) -> Labels:
    """The labels of a value that is made of several."""
    return NONE.union(*values)


def read(path: Labels) -> Labels:
    """The labels of what is read from a path, and of the path."""
    return path | {_READ[label] for label in path & _READ.keys()}


def pick(labels: Labels) -> Labels:
    """The labels of one value out of many, such as one variable of the environment."""
    return frozenset(one for one in labels - _SOME if not one.startswith("key of "))
