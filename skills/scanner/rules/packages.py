"""Finds packages that are installed from numeric addresses or unknown indexes."""

from __future__ import annotations

import re
from collections.abc import Iterator

from skills.scanner.addresses import ADDRESS, is_bare, is_known, is_local
from skills.scanner.normalised_text import NormalisedText
from skills.scanner.words import Concept, Places

INSTALLS = Concept(
    "",
    r"\b(?:(?:pipx|poetry|npm|pnpm|yarn|bun|gem|cargo|uv\spip|uv)\s|pip[\d.]{0,4}\s)"
    r"(?:-\S{1,40}\s){0,4}(?:install|add|i|tool\sinstall|config\sset\sregistry)\s[^\n;&|#]{1,400}",
)
_PROSE = re.compile(r"`|\s(?:or|and|from|see|then|with|at|to|for)\s|[。，（(]|\.\s")
_PLACEHOLDER = re.compile(r"[\w.-]*(?:your|\{|\$)")
_LISTS = {
    "requirements.txt": re.compile(r"(?m)^[^#\n]{3,200}"),
    "package.json": re.compile(
        r'"[@\w./-]{1,80}"\s*:\s*"(?:git\+)?(?:https?|git)://[^"\s]{3,200}\.(?:tgz|tar\.gz|zip)"'
    ),
}
"""Name of a file that lists packages -> pattern of a package in it."""


def is_package_list(path: str) -> bool:
    """Return whether a file is a list of packages, by its name."""
    return _find_list(path) is not None


def _find_list(path: str) -> re.Pattern[str] | None:
    name = path.rpartition("/")[2].lower()
    return _LISTS.get(re.sub(r"^requirements[\w.-]*\.txt$", "requirements.txt", name))


def find_packages(
    text: NormalisedText, places: Places, path: str
) -> Iterator[tuple[str, int, str]]:
    """Yield (rule, offset, address) of suspicious packages.

    Searches install commands in the text and, if the file lists packages, the list.
    """
    spans = []
    for start, end in places.of_concept(INSTALLS):
        prose = _PROSE.search(text.folded, start, end)
        spans.append((start, prose.start() if prose else end))
    lines = _find_list(path)
    if lines is not None:
        spans += [line.span() for line in lines.finditer(text.folded)]
    for start, end in spans:
        for address in ADDRESS.finditer(text.folded, start, end):
            rule = _judge(address)
            if rule:
                yield rule, address.start(), address[0]


def _judge(address: re.Match[str]) -> str:
    scheme, is_index = address["scheme"], is_known(address, "indexes")
    if is_local(address) or _PLACEHOLDER.match(address["host"]):
        return ""
    if is_bare(address) or (scheme == "http" and not is_index):
        return "package-from-bare-address"
    return "" if is_index or scheme in ("ssh", "git") else "foreign-package"
