"""The common form of programs and shell commands for data flow, and its evaluation.

A reader of a language turns code into assignments and uses of values. Labels say where a value
comes from; they pass on from names to what is made of them, whatever the order of the statements.
"""

from __future__ import annotations

from collections import defaultdict
from collections.abc import Callable, Iterable, Iterator
from dataclasses import dataclass, field
from functools import reduce
from typing import Literal, NamedTuple

Label = str
"""Where a value comes from. `secret path`, `settings path`, `home path`: a path; `secret`: keys, wallets,
credentials of clouds and browsers; `settings`: files such as .env, of which one value at a time is used
rightly; `environment`: all of it; `key of NAME`: the variable of a well-known service; `argument`, `file`:
what a program is given; `download`, `known download`, `bare download`: from any host, a known installer, a
bare address; `decoded`; `connection`: an object that sends."""
Labels = frozenset[Label]
Sink = Literal["network", "execute", "mark", "delete", "method"]
"""Where a value goes. mark: a file is made executable. method: a method of an object, which is a
use of the network only if the object is a connection."""
Operation = Literal["read", "pick", "below"]

_ROUNDS = 6
"""Passes over the assignments: values reach a use over this many out of order at least."""
_NONE: Labels = frozenset()


@dataclass(frozen=True, slots=True)
class Value:
    """What a value is made of: labels of its own, names of variables, and operations on values."""

    labels: Labels = _NONE
    names: frozenset[str] = frozenset()
    inner: tuple[tuple[Operation, Value], ...] = ()

    def __or__(self, other: Value) -> Value:
        if other is EMPTY:
            return self
        if self is EMPTY:
            return other
        return Value(self.labels | other.labels, self.names | other.names, self.inner + other.inner)

    def after(self, operation: Operation) -> Value:
        """The value that an operation on this one gives."""
        return self if self is EMPTY else Value(inner=((operation, self),))


EMPTY = Value()


def of_label(*labels: Label) -> Value:
    """A value with labels of its own."""
    return Value(frozenset(labels))


def of_name(name: str) -> Value:
    """The value of a variable."""
    return Value(names=frozenset((name,)))


def join(values: Iterable[Value]) -> Value:
    """A value made of several."""
    return reduce(Value.__or__, values, EMPTY)


class Use(NamedTuple):
    """A value reaches a sink in a line (1-based). address: the literal texts of the call. receiver: of a
    method, else EMPTY."""

    line: int
    sink: Sink
    value: Value
    address: str = ""
    receiver: Value = EMPTY


class Reached(NamedTuple):
    """A use with the labels that reach it."""

    line: int
    sink: Sink
    labels: Labels
    address: str


_READ = {"secret path": "secret", "settings path": "settings", "argument": "file"}
_OPERATIONS: dict[Operation, Callable[[Labels], Labels]] = {
    "read": lambda labels: labels | {_READ[label] for label in labels & _READ.keys()},
    "pick": lambda labels: frozenset(
        one for one in labels - {"settings", "environment"} if not one.startswith("key of ")
    ),
    "below": lambda labels: labels - {"home path"},
}


@dataclass(slots=True)
class Flow:
    """The assignments and uses of a file."""

    assignments: list[tuple[str, Value]] = field(default_factory=list)
    uses: list[Use] = field(default_factory=list)

    def assign(self, name: str, value: Value) -> None:
        """Record that a name takes a value; what it had before stays possible."""
        if value is not EMPTY and name:
            self.assignments.append((name, value))

    def use(
        self, line: int, sink: Sink, value: Value, address: str = "", receiver: Value = EMPTY
    ) -> None:
        """Record that a value reaches a sink."""
        if value is not EMPTY:
            self.uses.append(Use(line, sink, value, address, receiver))

    def evaluate(self) -> Iterator[Reached]:
        """The uses that any label reaches, in order."""
        known: dict[str, Labels] = defaultdict(frozenset)
        for _ in range(_ROUNDS):
            before = dict(known)
            for name, value in self.assignments:
                known[name] |= _evaluate(value, known)
            if known == before:
                break
        for line, sink, value, address, receiver in self.uses:
            if sink == "method":
                if "connection" not in _evaluate(receiver, known):
                    continue
                sink = "network"
            labels = _evaluate(value, known)
            if labels:
                yield Reached(line, sink, labels, address)


def _evaluate(value: Value, known: dict[str, Labels]) -> Labels:
    labels = value.labels
    for name in value.names:
        labels |= known.get(name, _NONE)
    for operation, inner in value.inner:
        labels |= _OPERATIONS[operation](_evaluate(inner, known))
    return labels
