"""Finds packages from raw addresses and foreign indexes, and names that imitate well-known ones."""

from __future__ import annotations

import re
from collections.abc import Iterator, Mapping, Sequence
from functools import cache
from typing import NamedTuple

from skills.scanner.data_files import matches_host, read_list
from skills.scanner.normalised_text import NormalisedText
from skills.scanner.words import Concept, Places

FOREIGN_PACKAGE = "foreign-package"
UNSAFE_PACKAGE = "package-from-bare-address"
TYPOSQUAT = "imitated-package"

_TOOL = r"(?:python3?\s-m\s)?(?:pip3?|uv\spip|uv|pipx|poetry|npm|pnpm|yarn|bun|gem|cargo)"
_VERB = r"(?:install|add|i|tool\sinstall|config\sset\sregistry)"
INSTALLS = Concept("", rf"\b{_TOOL}\s{_VERB}\s[^\n;&|#]{{1,400}}")
_COMMAND = re.compile(rf"{_TOOL}\s{_VERB}\s")
_ADDRESS = re.compile(
    r"(?:git\+)?(https?|ssh|git)://(?:[^\s@/]{1,80}@)?([^\s/\"'`<>)]{3,100})(/[^\s\"'`<>)]{0,200})?"
)
_PRIVATE = re.compile(
    r"localhost|127\.|10\.|192\.168\.|172\.(?:1[6-9]|2\d|3[01])\.|0\.0\.0\.0|\[::1\]"
    r"|[\w.-]+\.(?:local|lan|internal|corp|test)(?::|$)|[\w-]+(?::\d+)?$|[\w.-]*(?:your|\{|\$)"
)
_BARE = re.compile(r"(?:\d{1,3}\.){3}\d{1,3}(?::\d+)?$")
_NAME = re.compile(r"(?<!\S)[\"']?(?!-)(?:@[\w.-]{1,40}/)?([a-z][a-z0-9._-]{3,40})")
_PROSE = re.compile(r"`|\s(?:or|and|from|see|then|with|at|to|for)\s|[。，（(]|\.\s")
_LISTS = {
    "requirements.txt": re.compile(r"(?m)^([^#\n]{3,200})"),
    "package.json": re.compile(
        r'"[@\w./-]{1,80}"\s*:\s*"((?:git\+)?(?:https?|git)://[^"\s]{3,200}\.(?:tgz|tar\.gz|zip))"'
    ),
}
"""Files that list packages, and each of these in them."""
_MIN_NAME_LENGTH = 5
_LONG = 7


class FoundPackage(NamedTuple):
    """A rule with the offsets of what it is about, and what that is."""

    rule: str
    start: int
    quote: str


def find_packages(text: NormalisedText, places: Places, path: str = "") -> Iterator[FoundPackage]:
    """Packages in install commands of a raw address, a foreign index, or an imitated name.

    path: of the file, which may be a list of packages.
    """
    for start, arguments in _find_lists(text, places, path):
        for address in _ADDRESS.finditer(arguments):
            rule = _judge_address(address[1], address[2], address[3] or "/")
            if rule is not None:
                yield FoundPackage(rule, start + address.start(), address[0])
        for name in _NAME.finditer(arguments):
            meant = _find_intended_name(name[1].rstrip(".,"))
            if meant:
                yield FoundPackage(TYPOSQUAT, start + name.start(1), f"{name[1]} for {meant}")


def is_package_list(path: str) -> bool:
    """Whether a file lists packages, and nothing else."""
    return path.rpartition("/")[2].lower() in _LISTS


def _find_lists(text: NormalisedText, places: Places, path: str) -> Iterator[tuple[int, str]]:
    """Offset and text of what is installed: arguments of commands, lines of lists of packages."""
    for start, end in places.of_concept(INSTALLS):
        arguments = text.folded[start:end]
        skipped = _COMMAND.match(arguments)
        if skipped:
            yield start + skipped.end(), _PROSE.split(arguments[skipped.end() :], 1)[0]
    lines = _LISTS.get(path.rpartition("/")[2].lower())
    if lines is not None:
        yield from ((line.start(1), line[1]) for line in lines.finditer(text.folded))


def _judge_address(scheme: str, host: str, path: str) -> str | None:
    if _PRIVATE.match(host):
        return None
    if _BARE.match(host) or (
        scheme == "http" and not matches_host(host, path, read_list("hosts.json", "indexes"))
    ):
        return UNSAFE_PACKAGE
    known = matches_host(host, path, read_list("hosts.json", "indexes"))
    return None if known or scheme in ("ssh", "git") else FOREIGN_PACKAGE


def _find_intended_name(name: str) -> str:
    """The known name that is one letter away from `name`, "" for none."""
    known = read_list("packages.json", "known")
    pieces = {name, *re.split(r"[-_]", name)}
    if not pieces.isdisjoint(known):
        return ""
    suspects = sorted(pieces.difference(read_list("packages.json", "legitimate")))
    meant = (
        one
        for piece in suspects
        for end in _ends(piece)
        for one in _known_by_end().get(end, ())
        if _is_typo_of(piece, one, piece == name)
    )
    return max(meant, key=lambda one: (len(one), one), default="")


@cache
def _known_by_end() -> Mapping[str, Sequence[str]]:
    """Known names by their ends: one typo changes only one of the two."""
    names: dict[str, list[str]] = {}
    for name in sorted(read_list("packages.json", "known")):
        for end in _ends(name):
            names.setdefault(end, []).append(name)
    return names


def _ends(name: str) -> tuple[str, str]:
    return f"{name[:2]}-", f"-{name[-2:]}"


def _is_typo_of(name: str, known: str, is_whole: bool) -> bool:
    """Whether `name` is `known` with two letters swapped or, if both are long, one letter changed,
    added or left out."""
    if min(len(name), len(known)) < _MIN_NAME_LENGTH or abs(len(name) - len(known)) > 1:
        return False
    start = _count_shared(name, known)
    rest, other = name[start:], known[start:]
    end = _count_shared(rest[::-1], other[::-1])
    rest, other = rest[: len(rest) - end], other[: len(other) - end]
    is_long = is_whole and len(known) >= _LONG
    return (
        rest == other[::-1] if len(rest) == len(other) == 2 else is_long and len(rest + other) <= 2
    )


def _count_shared(one: str, other: str) -> int:
    """How many characters at the start of two texts are the same."""
    pairs = enumerate(zip(one, other, strict=False))
    return next((at for at, (a, b) in pairs if a != b), min(len(one), len(other)))
