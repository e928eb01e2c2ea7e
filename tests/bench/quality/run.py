"""One run of `make quality`: the data, the libraries that it is measured on, and what was asked."""

from __future__ import annotations

import json
import random
import shutil
import sys
import time
from collections.abc import Iterator, Sequence
from contextlib import contextmanager
from dataclasses import dataclass
from pathlib import Path

from config.errors import UsageError
from config.load_settings import load_settings
from skills.events import QueryAsked
from tasks.query.context import QueryContext
from tasks.query.pipeline import rank_skills
from tasks.services import Services
from tests.bench.quality.data import QualityData, Row
from workers.backend.factory import open_backend
from workers.backend.protocol import Backend, EmbedMode
from workers.cli.evaluation.options import open_library
from workers.cli.library.sync import EMBEDDED, SEARCHABLE, make_source_event, run_sync
from workers.evaluation.predictions import MAX_RANKED

WHOLE = "whole"
SEED = 7
SIZES = (1_000, 4_000)
LINK_SECONDS = 1_800


@dataclass(frozen=True, slots=True)
class Ranked:
    """The best ids of a task, best first, and the probabilities that the ranking gives.

    first: that the first skill is right. library: that the library has a right one. None for an
    empty ranking.
    """

    ids: tuple[str, ...]
    first: float | None
    library: float | None


class Run:
    """Opens libraries, made where they are not there yet, and keeps rankings of the whole one.

    cache: folder of the libraries that are made. whole: home of the whole library, if it exists
    already; it is read only. sizes: skills of the random parts that long tasks are asked of.
    """

    def __init__(
        self,
        data: QualityData,
        cache: Path,
        whole: Path | None = None,
        sizes: Sequence[int] = SIZES,
    ) -> None:
        self.data = data
        self.sizes = sizes
        self._cache = cache
        self._whole = whole
        self._ranked: dict[str, Ranked] = {}
        self.settings = load_settings(whole or cache / WHOLE)

    @contextmanager
    def open_whole(self) -> Iterator[Services]:
        """The library of all skills, searchable."""
        home = self._whole or self._make_home(WHOLE, self.data.skill_ids, SEARCHABLE)
        with open_library(load_settings(home), wait=False) as services:
            yield services

    @contextmanager
    def open_part(self, name: str, skill_ids: Sequence[str], embedded: bool) -> Iterator[Services]:
        """A library of some skills."""
        home = self._make_home(name, sorted(skill_ids), EMBEDDED if embedded else SEARCHABLE)
        with open_library(load_settings(home), wait=False) as services:
            yield services

    def draw(self, kept: set[str], size: int) -> list[str]:
        """All skills of the sources `kept`, and random others up to `size`."""
        ids = self.data.skill_ids
        mine = [one for one in ids if one.partition(":")[0] in kept]
        others = [one for one in ids if one.partition(":")[0] not in kept]
        wanted = min(max(size - len(mine), 0), len(others))
        return mine + random.Random(SEED).sample(others, wanted)

    def rank(self, services: Services, rows: Sequence[Row]) -> dict[str, Ranked]:
        """Rankings of the whole library, which `services` must be, by task id."""
        for text in dict.fromkeys(row["instruction"] for row in rows):
            if text not in self._ranked:
                self._ranked[text] = rank_task(services, text)
        return {row["task_id"]: self._ranked[row["instruction"]] for row in rows}

    @staticmethod
    def rank_all(services: Services, rows: Sequence[Row]) -> dict[str, Ranked]:
        """Rankings of any library by task id; nothing is kept."""
        return {row["task_id"]: rank_task(services, row["instruction"]) for row in rows}

    def _make_home(self, name: str, skill_ids: Sequence[str], until: str) -> Path:
        """The home of some skills; an unfinished one is completed, one of other skills replaced."""
        home, marker = self._cache / name, self._cache / f"{name}.json"
        model = load_settings(home).encoder.model
        identity = {"skills": self.data.digest(skill_ids), "until": until, "encoder": model}
        known = json.loads(marker.read_text(encoding="utf-8")) if marker.exists() else {}
        if known == identity | {"complete": True}:
            return home
        if known != identity:
            shutil.rmtree(home, ignore_errors=True)
        self._cache.mkdir(parents=True, exist_ok=True)
        marker.write_text(json.dumps(identity), encoding="utf-8")
        print(f"making the library {name} of {len(skill_ids)} skills", file=sys.stderr, flush=True)
        settings = load_settings(home)
        for source, folder in self._make_folders(name, skill_ids).items():
            embeds: EmbedMode = "sections" if until == EMBEDDED else "skills"
            with open_backend(settings, writable=True, embeds=embeds) as backend:
                run_sync(backend, make_source_event(folder, source), until)
                _wait_for_links(backend)
        marker.write_text(json.dumps(identity | {"complete": True}), encoding="utf-8")
        return home

    def _make_folders(self, name: str, skill_ids: Sequence[str]) -> dict[str, Path]:
        """A folder per source that holds exactly these skills: its own, or one of copies."""
        by_source: dict[str, list[str]] = {}
        for skill_id in skill_ids:
            source, _, path = skill_id.partition(":")
            by_source.setdefault(source, []).append(path)
        folders = {}
        for source, paths in by_source.items():
            folders[source] = origin = self.data.sources[source]
            if len(paths) == sum(one.startswith(f"{source}:") for one in self.data.skill_ids):
                continue
            folders[source] = copies = self._cache / "folders" / name / source
            shutil.rmtree(copies, ignore_errors=True)
            for path in paths:
                shutil.copytree(origin / path, copies / path, dirs_exist_ok=True)
        return folders


def rank_task(services: Services, text: str, without: tuple[str, ...] = ()) -> Ranked:
    """The ranking of a task before skills are chosen."""
    context = QueryContext.create(services, QueryAsked(task=text, without=without), degrade=False)
    ranking = rank_skills(context)
    ids = tuple(hit.key.skill_id for hit in ranking.hits[:MAX_RANKED])
    if not ranking.hits:
        return Ranked(ids, None, None)
    return Ranked(ids, ranking.hits[0].probability, ranking.probability)


def _wait_for_links(backend: Backend) -> None:
    """Wait until every searchable skill has its links, on which diffusion depends."""
    deadline = time.monotonic() + LINK_SECONDS
    while backend.graph.get_counts()["unlinked"]:
        if time.monotonic() > deadline:
            raise UsageError("some skills have no links yet; start again to continue")
        time.sleep(0.2)


def embedded_share(services: Services) -> float:
    """The share of the skills of a library whose sections have vectors."""
    counts = services.graph.get_counts()
    return counts["embedded"] / max(counts["published"], 1)
