"""The library of a soak: a cut of an embedded one, its folders on disk, and their changes."""

from __future__ import annotations

import os
import random
import shutil
from collections import Counter
from collections.abc import Iterator
from dataclasses import dataclass
from pathlib import Path

from config.settings import EncoderSettings
from graph.local.store import SqliteSkillGraph
from graph.records import CatalogEntry, SkillState, Source
from search.local.index import LocalSearchIndex
from search.models.load_models import encoder_identity
from search.skill_analysis import skill_texts
from skills.parsing.parse_skill import parse_skill
from skills.record import RevisionKey
from tests.bench.edit import draw_skills, list_published, make_library

SKILL_FILE = "SKILL.md"

ACTIONS = {"edit": 0.9, "describe": 0.04, "add": 0.02, "remove": 0.02, "rename": 0.02}
"""Shares of the updates. `edit` replaces a line of the body or adds one, `describe` changes the
description; people edit bodies far more often than they change what a skill is for."""

_SAMPLE = 300
_WORDS = 9


@dataclass(frozen=True)
class Change:
    """What one update changed: paths in a source."""

    source_id: str
    paths: tuple[str, ...]


def prepare_library(home: Path, made: Path, skills: int) -> dict[str, object]:
    """Make an embedded library of `skills` skills of `home`, with a folder for each source.

    Every skill is linked anew, so that the links are those of this library. Nothing is encoded.
    Returns counts.
    """
    sources = _list_sources(home)
    size = min(skills or len(list_published(home)), len(list_published(home)))
    linked = make_library(home, made, size, draw_skills([home]))
    entries = _list_entries(made)
    rewritten = 0
    for source in sources.values():
        own = [entry for entry in entries if entry.source_id == source.source_id]
        (made / "text" / source.source_id).mkdir(parents=True, exist_ok=True)
        if source.kind == "directory" and Path(source.root).is_dir():
            _copy_folders(Path(source.root), made / "text" / source.source_id, own)
        else:
            rewritten += _write_texts(made, own)
    return {**linked, "sources": len(sources), "written_from_the_index": rewritten}


def _list_sources(home: Path) -> dict[str, Source]:
    graph = SqliteSkillGraph(home / "graph.db", writable=False)
    try:
        return {source.source_id: source for source in graph.list_sources()}
    finally:
        graph.close()


def _list_entries(home: Path) -> list[CatalogEntry]:
    graph = SqliteSkillGraph(home / "graph.db", writable=False)
    try:
        wanted = (SkillState.PUBLISHED, SkillState.FAILED)
        return [entry for entry in graph.get_entries() if entry.state in wanted]
    finally:
        graph.close()


def _copy_folders(root: Path, target: Path, entries: list[CatalogEntry]) -> None:
    """Copy the folders of these skills with their times; skills below them only if named."""
    for entry in entries:
        source, copy = root / entry.path, target / entry.path

        def other_skills(folder: str, names: list[str], top: Path = source) -> set[str]:
            return {name for name in names if (Path(folder) / name / SKILL_FILE).exists()} | (
                {SKILL_FILE} if Path(folder) != top and SKILL_FILE in names else set()
            )

        if source.is_dir():
            shutil.copytree(source, copy, symlinks=True, ignore=other_skills, dirs_exist_ok=True)


def _write_texts(made: Path, entries: list[CatalogEntry]) -> int:
    """Write the texts that the index has; returns how many."""
    identity = encoder_identity(EncoderSettings())
    index = LocalSearchIndex(made / "index", identity.model, identity.dimension, writable=False)
    written = 0
    try:
        for entry in entries:
            key = RevisionKey(entry.skill_id, entry.seq)
            found = index.get_revisions([key])
            if key in found:
                folder = made / "text" / entry.source_id / entry.path
                folder.mkdir(parents=True, exist_ok=True)
                text = "\n".join(found[key].parsed.lines) + "\n"
                (folder / SKILL_FILE).write_text(text, encoding="utf-8")
                written += 1
    finally:
        index.close()
    return written


class Folders:
    """The folders of all sources, which change at random; for one thread.

    The number of skills stays about the same: as many are added as removed.
    """

    def __init__(self, text: Path, seed: int) -> None:
        self.text = text
        self.changes: Counter[str] = Counter()
        self._random = random.Random(seed)
        self._skills = sorted(_find_skills(text))
        self._seed = seed

    @property
    def sources(self) -> list[str]:
        """Ids of the sources."""
        return sorted({source_id for source_id, _ in self._skills})

    def __len__(self) -> int:
        """The number of skills now."""
        return len(self._skills)

    def change(self) -> Change:
        """Change one skill."""
        (action,) = self._random.choices(list(ACTIONS), list(ACTIONS.values()))
        self.changes[action] += 1
        place = self._random.randrange(len(self._skills))
        source_id, path = self._skills[place]
        if action == "add":
            return self._copy(source_id, path)
        if action in ("remove", "rename") and len(self._skills) > 1:
            return self._take_away(place, rename=action == "rename")
        file = self.text / source_id / path / SKILL_FILE
        text = file.read_text(encoding="utf-8", errors="surrogateescape")
        change = _describe if action == "describe" else _edit
        text = change(text, self._random)
        file.write_text(text, encoding="utf-8", errors="surrogateescape")
        return Change(source_id, (f"{path}/{SKILL_FILE}",))

    def _copy(self, source_id: str, path: str) -> Change:
        """Add a skill: a skill's text under another path, with a line changed."""
        added = self._new_path(path)
        folder = self.text / source_id / added
        folder.mkdir(parents=True)
        file = self.text / source_id / path / SKILL_FILE
        text = file.read_text(encoding="utf-8", errors="surrogateescape")
        text = _edit(text, self._random)
        (folder / SKILL_FILE).write_text(text, encoding="utf-8", errors="surrogateescape")
        self._skills.append((source_id, added))
        return Change(source_id, (added,))

    def _take_away(self, place: int, *, rename: bool) -> Change:
        source_id, path = self._skills[place]
        self._skills[place] = self._skills[-1]
        self._skills.pop()
        folder = self.text / source_id / path
        if not rename:
            shutil.rmtree(folder)
            return Change(source_id, (path,))
        renamed = self._new_path(path)
        (self.text / source_id / renamed).parent.mkdir(parents=True, exist_ok=True)
        folder.rename(self.text / source_id / renamed)
        self._skills.append((source_id, renamed))
        return Change(source_id, (path, renamed))

    def _new_path(self, path: str) -> str:
        base = path.rpartition("-soak")[0] or path
        return f"{base}-soak{self.changes.total()}"

    def measure_share_of_new_texts(self) -> float:
        """The share of edits that change a text of which a skill's vectors are made, in a sample
        of edits that are not written."""
        chance = random.Random(self._seed)
        changed = tried = 0
        for source_id, path in chance.sample(self._skills, min(_SAMPLE, len(self._skills))):
            text = (self.text / source_id / path / SKILL_FILE).read_bytes()
            edited = _edit(text.decode("utf-8", "surrogateescape"), chance)
            after = edited.encode("utf-8", "surrogateescape")
            try:
                texts = [skill_texts(parse_skill(path, each, ())) for each in (text, after)]
            except Exception:  # a skill that cannot be read has no such text
                continue
            tried += 1
            changed += texts[0] != texts[1]
        return round(changed / max(tried, 1), 3)


def _find_skills(text: Path) -> Iterator[tuple[str, str]]:
    """Source id and path of every skill that no other skill contains, and that contains none."""
    for root in text.iterdir():
        found = {
            Path(folder).relative_to(root)
            for folder, _, files in os.walk(root)
            if SKILL_FILE in files
        }
        above = {parent for path in found for parent in path.parents if parent in found}
        for path in found - above:
            if not above.intersection(path.parents):
                yield root.name, path.as_posix()


def _edit(text: str, chance: random.Random) -> str:
    """Replace a line of the body, or add one: words of the text in another order."""
    lines = text.split("\n")
    start = _body_start(lines)
    place = chance.randint(start, len(lines))
    words = [word for line in lines[start:] for word in line.split() if word.isalpha()] or ["step"]
    added = f"{' '.join(chance.choices(words, k=_WORDS))} {chance.randrange(10**6)}."
    is_text = place < len(lines) and lines[place].strip() and lines[place][0].isalpha()
    lines[place : place + (1 if is_text else 0)] = [added]
    return "\n".join(lines)


def _describe(text: str, chance: random.Random) -> str:
    """Add a word to a description that is one line; any other text is edited."""
    lines = text.split("\n")
    for place, line in enumerate(lines[: _body_start(lines)]):
        rest = line.removeprefix("description:").strip()
        if rest != line.strip() and rest and rest[0].isalpha():
            lines[place] = f"{line.rstrip()} {chance.randrange(10**4)}"
            return "\n".join(lines)
    return _edit(text, chance)


def _body_start(lines: list[str]) -> int:
    if lines and lines[0].strip() == "---":
        for place, line in enumerate(lines[1:], 1):
            if line.strip() == "---":
                return place + 1
    return 0
