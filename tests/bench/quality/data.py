"""The data folder of `make quality`: libraries, labels and predictions of cross-validation."""

from __future__ import annotations

import hashlib
import json
from collections.abc import Mapping, Sequence
from functools import cached_property
from pathlib import Path
from typing import Any

from config.errors import UsageError
from workers.evaluation.predictions import read_jsonl

Row = Mapping[str, Any]

FOLDERS = {"dev": "dev", "left_out": "left-out"}
PREDICTIONS = "cross-validated"
MISSES = (0.02, 0.05, 0.1, 0.15, 0.2, 0.25, 0.3, 0.4, 0.5)
"""Values of `passages.miss` that are measured, and that passages.json has predictions for."""


class QualityData:
    """Reads the folder that docs/how-to/measure-your-own-library.md describes.

    sample: at most so many rows of each label file, evenly spaced, for a trial run.
    """

    def __init__(self, root: Path, sample: int | None = None) -> None:
        if not (root / "library").is_dir():
            raise UsageError(f"{root} holds no folder `library` with a folder of skills per source")
        self.root = root
        self._sample = sample

    @cached_property
    def sources(self) -> dict[str, Path]:
        """The folder of each source by its id."""
        folders = sorted(path for path in (self.root / "library").iterdir() if path.is_dir())
        return {path.name: path for path in folders}

    @cached_property
    def skill_ids(self) -> list[str]:
        """The ids of all skills, sorted."""
        return sorted(
            f"{source}:{path.parent.relative_to(folder).as_posix()}"
            for source, folder in self.sources.items()
            for path in folder.rglob("SKILL.md")
        )

    def digest(self, skill_ids: Sequence[str]) -> str:
        """A digest of the ids and texts of skills."""
        found = hashlib.sha256()
        for skill_id in sorted(skill_ids):
            source, _, path = skill_id.partition(":")
            text = (self.sources[source] / path / "SKILL.md").read_bytes()
            found.update(skill_id.encode() + hashlib.sha256(text).digest())
        return found.hexdigest()

    @cached_property
    def _repositories(self) -> dict[str, str]:
        found = {}
        for source, folder in self.sources.items():
            for row in _read_jsonl(folder / "index.jsonl"):
                skill_id = f"{source}:{row['dir']}" if "dir" in row else row["id"]
                found[skill_id] = row["repo"]
        return found

    @cached_property
    def _collections(self) -> dict[str, str]:
        path = self.root / "collections.json"
        return json.loads(path.read_text(encoding="utf-8")) if path.exists() else {}

    def repository(self, skill_id: str) -> str:
        """The repository of a skill, the skill itself if the index does not say."""
        return self._repositories.get(skill_id, skill_id)

    def collection(self, skill_id: str) -> str:
        """The name of the collection of a skill's source, by default the id of the source."""
        source = skill_id.partition(":")[0]
        return self._collections.get(source, source)

    def labels(self, column: str, name: str) -> list[Row]:
        """The rows of a label file of a column, none if there is no such file."""
        rows = _read_jsonl(self.root / FOLDERS[column] / name)
        return rows if self._sample is None else spaced(rows, self._sample)

    def roles(self, column: str) -> dict[str, list[tuple[int, int, str]]]:
        """(first line, last line, role) of the labelled skills of a column."""
        path = self.root / FOLDERS[column] / "roles.json"
        if not path.exists():
            return {}
        found = json.loads(path.read_text(encoding="utf-8"))
        return dict(list(found.items())[: self._sample])

    def predictions(self, name: str) -> Any:
        """A file of cross-validated predictions on the labels of dev, None if there is none."""
        path = self.root / PREDICTIONS / name
        return json.loads(path.read_text(encoding="utf-8")) if path.exists() else None

    def all_labels(self, name: str) -> list[Row]:
        """The rows of a label file of both columns."""
        return [row for column in FOLDERS for row in self.labels(column, name)]


def _read_jsonl(path: Path) -> list[Row]:
    return list(read_jsonl(path, ())) if path.exists() else []


def spaced(rows: Sequence[Row], count: int) -> list[Row]:
    """At most `count` rows, evenly spaced."""
    step = max(len(rows) / count, 1.0)
    return [rows[int(place * step)] for place in range(min(len(rows), count))]


def with_skills(rows: Sequence[Row]) -> list[Row]:
    """The tasks that need a skill."""
    return [row for row in rows if row.get("gt_skill_ids")]


def needed_sources(rows: Sequence[Row]) -> set[str]:
    """The sources of the skills that some tasks need."""
    return {name.partition(":")[0] for row in rows for name in row.get("gt_skill_ids", ())}
