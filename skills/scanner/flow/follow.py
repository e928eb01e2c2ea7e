"""Follows labelled values in code, from where they come to what receives them.

A value reaches what its statement assigns, and all places of the names that it is assigned to. The
order of statements is ignored, and so are their inner structure and conditions.
"""

from __future__ import annotations

import re
from bisect import bisect_left
from collections import defaultdict, deque
from collections.abc import Iterable, Iterator
from typing import NamedTuple

from skills.filtered_pattern import FilteredPattern
from skills.scanner import addresses
from skills.scanner.flow.facts import LITERAL, Facts, Target, find_uses
from skills.scanner.flow.meanings import label_download, read_meanings
from skills.scanner.flow.statements import Function, Span, Statements

_MAX_PLACES = 20_000
"""Maximum places that labels reach; only hostile code has more, which is a finding."""
_LESSER = frozenset({"argument", "file"})
"""Labels that are followed last, so that decoys do not use up the places of secrets."""
READ = {"secret path": "secret", "settings path": "settings", "argument": "file"}
"""Label of a path -> label of its content."""
_MANY = frozenset({"settings", "environment"})
"""Labels of many values, of which the use of a single one is legitimate."""
_CONTENTS = _MANY | {"secret", "file"}
_PRIVATE = _CONTENTS | READ.keys()
"""Labels that the result of a network call does not have."""
HARM = {
    ("network", "secret"): "secret-sent",
    ("network", "settings"): "secret-sent",
    ("network", "environment"): "environment-sent",
    ("network", "file"): "file-sent",
    ("delete", "home path"): "deletes-system",
    ("mark", "decoded"): "decoded-run",
    ("execute", "decoded"): "decoded-run",
    ("execute", "bare download"): "bare-download-run",
    ("execute", "download"): "download-run",
    ("execute", "known download"): "known-download-run",
}
"""(kind of sink, label that must not reach it) -> rule."""
_REACH = 100
"""Characters before a path that are searched for an option that sends its file."""
_MARGIN = " \t\n;&|(`"
"""Characters that patterns match before a command."""


class _Sink(NamedTuple):
    """What receives the values in a span. owner: place of the object of a method, else -1."""

    kind: str
    span: Span
    line: int
    owner: int


class _Statement(NamedTuple):
    reads: list[Span]
    picks: bool
    targets: list[Target]
    calls: list[tuple[Function, Span]]
    changed: list[tuple[Target, Span]]


class Follower:
    """Follows the values in code of one language."""

    def __init__(self, code: Statements) -> None:
        self._code, self._text, self._language = code, code.text, code.language
        self._is_shell = code.language == "shell"
        self._meanings = read_meanings(code.language)
        self._facts = Facts(code)
        self._statements: dict[int, _Statement] = {}
        self._sinks: dict[int, list[_Sink]] = defaultdict(list)
        self._known: set[tuple[str, Span]] = set()
        self._queue: deque[tuple[Iterator[Span], str]] = deque()
        self._later: deque[tuple[Iterator[Span], str]] = deque()
        self._reached: set[tuple[int, str]] = set()
        self._assigned: set[tuple[Target | int, str]] = set()
        self._unsent = sorted(
            (match.start(), code.closings.get(match.end() - 1, match.end()))
            for match in self._meanings.others["unsent"].finditer(code.text)
        )

    def find_harm(self) -> set[tuple[int, str]]:
        """Return (line, rule) of the sinks that values reach which must not reach them."""
        sources = self._meanings.sources
        for kind, patterns in self._meanings.sinks.items():
            if kind == "method" and next(self._find(sources["connection"]), None) is None:
                continue
            for match in self._find(patterns):
                self._add_sink(kind, match)
        kinds = {sink.kind for sinks in self._sinks.values() for sink in sinks}
        harmful = {label for kind, label in HARM if kind in kinds}
        self._queue = deque(one for one in self._queue if one[1] in harmful)  # downloads
        for label, patterns in sources.items():
            if harmful.isdisjoint((label, READ.get(label, ""))) and label != "connection":
                continue
            if label == "argument" and not self._meanings.others["sends_files"].search(self._text):
                continue  # it takes the most steps, as it reaches most values of a program
            for match in self._find(patterns):
                start = match.end() - len(match[0].lstrip(_MARGIN))
                self._add_places([(start, match.end())], label)
        harm: set[tuple[_Sink, str]] = set()
        unread = set()
        while queue := self._queue or self._later:
            places, label = queue.popleft()
            place = next(places, None)
            if place is None:
                continue
            if len(self._reached) == _MAX_PLACES:
                unread.add((self._code.find_line(place[0]), "unread"))
                break
            queue.append((places, label))
            harm |= self._reach(place, label)
        return unread.union(
            (sink.line, rule)
            for sink, rule in harm
            if sink.owner < 0 or (sink.owner, "connection") in self._reached
        )

    def _find(self, patterns: Iterable[FilteredPattern]) -> Iterator[re.Match[str]]:
        for pattern in patterns:
            yield from pattern.finditer(self._text)

    def _add_places(self, places: Iterable[Span], label: str) -> None:
        """Queue places; each name has its turn, so that one with many places delays no other."""
        (self._later if label in _LESSER else self._queue).append((iter(places), label))

    def _add_sink(self, kind: str, match: re.Match[str]) -> None:
        start = match.end() - len(match[0].lstrip(_MARGIN))
        number = self._code.number_at(start)
        parts = self._code.parts(number)
        span = parts[0][0], parts[-1][1]
        groups, opening = match.groupdict(), match.end() - 1
        if groups.get("value"):
            ends = (last for first, last in parts if first <= start < last)
            span = match.start("value"), min(match.end("value"), *ends)
        elif "before" in groups:
            span = span[0], match.start()
        elif opening in self._code.closings and not self._is_shell:
            span = opening, self._code.closings[opening]
        is_fetch = not self._is_shell or match[0].rstrip().endswith(("curl", "wget"))
        if (kind, span) in self._known and not is_fetch:
            return  # many senders in one statement
        self._known.add((kind, span))
        if kind == "network":
            received = self._text[slice(*span)]
            address = addresses.ADDRESS.search(received)
            if address and addresses.is_local(address):
                return
            received = (
                self._text[start : span[1]]
                if self._is_shell
                else " ".join(LITERAL.findall(received))
            )
            label = label_download(received) if is_fetch else ""
            if label:
                self._add_places([(start, match.end())], label)
        owner = match.start("owner") if kind == "method" else -1
        kind = "network" if kind == "method" else kind
        self._sinks[number].append(_Sink(kind, span, self._code.find_line(start), owner))

    def _reach(self, place: Span, label: str) -> set[tuple[_Sink, str]]:
        """Pass on a label that a value at a place has; return the harm that it does there."""
        start, number = place[0], self._code.number_at(place[0])
        statement = self._statement(number)
        if label in READ and self._is_read(start, statement.reads):
            label = READ[label]
        if (start, label) in self._reached or self._is_exempt(place, label, statement):
            return set()
        self._reached.add((start, label))
        sinks = [one for one in self._sinks[number] if one.span[0] <= start < one.span[1]]
        for function, span in statement.calls:
            if span[0] <= start < span[1]:
                name = self._facts.find_parameter(function, span, start)
                self._assign((name, function.body), label)
        is_sent = any(one.kind == "network" and one.owner < 0 for one in sinks)
        if not is_sent or label not in (_CONTENTS if self._is_shell else _PRIVATE):
            for target, span in statement.changed:
                if span[0] <= start < span[1]:
                    self._assign(target, label)
            if (number, label) not in self._assigned:
                self._assigned.add((number, label))
                for target in statement.targets:
                    self._assign(target, label)
        return {(one, HARM[one.kind, label]) for one in sinks if (one.kind, label) in HARM}

    def _is_exempt(self, place: Span, label: str, statement: _Statement) -> bool:
        """Return whether a value is not sent, or only a harmless part of it is used."""
        start, end = place
        at = bisect_left(self._unsent, (start + 1, 0)) - 1
        if at >= 0 and start < self._unsent[at][1] and (self._is_shell or label in _MANY):
            return True
        if label in _MANY:
            return statement.picks or bool(self._meanings.others["picked"].match(self._text, end))
        return label == "home path" and bool(self._meanings.others["below"].match(self._text, end))

    def _is_read(self, start: int, reads: list[Span]) -> bool:
        """Return whether the statement reads the file of the path at a place."""
        if self._meanings.others["uploads"].search(self._text, max(0, start - _REACH), start):
            return True
        return any(first <= start < last for first, last in reads)

    def _assign(self, target: Target, label: str) -> None:
        """Give a label to all places of a name in its span."""
        if target[0] and (target, label) not in self._assigned:
            self._assigned.add((target, label))
            self._add_places(find_uses(self._text, *target, self._language), label)

    def _statement(self, number: int) -> _Statement:
        if number not in self._statements:
            facts, parts = self._facts, self._code.parts(number)
            text = "".join(self._text[slice(*part)] for part in parts)
            self._statements[number] = _Statement(
                [one for part in parts for one in facts.find_reads(*part)],
                self._is_shell and bool(self._meanings.others["picks"].search(text)),
                [one for part in parts for one in facts.find_targets(*part)],
                [one for part in parts for one in facts.find_calls(*part)],
                [one for part in parts for one in facts.find_changed(*part)],
            )
        return self._statements[number]
