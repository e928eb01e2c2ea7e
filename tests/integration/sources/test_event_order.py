"""Any order of events ends in the same library, and readers see skills whole during writes."""

from __future__ import annotations

import re
import shutil
import tempfile
import threading
import time
from pathlib import Path
from typing import Any

from hypothesis import HealthCheck, given, settings
from hypothesis import strategies as st

from graph.records import SkillState
from skills.events import QueryAsked, SourceChanged, new_event
from skills.record import RevisionKey
from tests.support.samples.library import write_skill
from tests.support.samples.tiny import settle, tiny_backend
from workers.backend.embedded import EmbeddedBackend

NAMES = ("kiln-firing", "kiln-firing/glazes", "tide-tables", "bread-baking", "star-charts")

names = st.sampled_from(NAMES)
edits = st.tuples(st.just("write"), names, st.integers(0, 3))
removals = st.tuples(st.just("remove"), names, st.just(0))
renames = st.tuples(st.just("rename"), names, st.integers(0, len(NAMES) - 1))
events = st.tuples(st.just("event"), names, st.integers(0, 3))
whole = st.tuples(st.just("whole"), st.just(""), st.just(0))
again = st.tuples(st.just("again"), st.just(""), st.integers(0, 9))
waits = st.tuples(st.just("wait"), st.just(""), st.integers(0, 30))
histories = st.lists(
    st.one_of(edits, edits, removals, renames, events, events, whole, again, waits), max_size=14
)


def _write(root: Path, name: str, version: int) -> None:
    other = NAMES[(NAMES.index(name) + version) % len(NAMES)].rpartition("/")[2]
    body = f"Run the `{other}` skill first.\n\n## Steps\n\n1. Do it {version} times.\n"
    write_skill(root, name, f"Version {version} of {name}", body, depends=other)


def _carry_out(backend: EmbeddedBackend, root: Path, history: list[tuple[str, str, int]]) -> None:
    """Files change, and events about them come at other times, out of order and repeated."""
    sent: list[Any] = []
    for kind, name, number in history:
        if kind == "write":
            _write(root, name, number)
        elif kind == "remove":
            shutil.rmtree(root / name, ignore_errors=True)
        elif kind == "rename":
            target = root / NAMES[number]
            if (
                (root / name).exists()
                and not target.exists()
                and not target.is_relative_to(root / name)
            ):
                target.parent.mkdir(parents=True, exist_ok=True)
                (root / name).rename(target)
        elif kind == "wait":
            time.sleep(number / 1000)
        elif kind == "again" and sent:
            backend.accept(sent[number % len(sent)])
        else:
            paths = {"event": (name, f"{name}/SKILL.md", f"{name}/x.txt", ""), "whole": ("",)}
            path = paths.get(kind, ("",))[number % 4 if kind == "event" else 0]
            content = SourceChanged(source_id="s", root=str(root), paths=(path,) if path else ())
            event = new_event(content, "tests")
            sent.append(event)
            backend.accept(event)


def _state(backend: EmbeddedBackend) -> dict[str, Any]:
    graph, index = backend.services.graph, backend.services.index
    found = {}
    for entry in graph.get_entries():
        if entry.state is SkillState.REMOVED:
            continue
        key = RevisionKey(entry.skill_id, entry.seq)
        revision = index.get_revisions([key])[key]
        links = [
            (link.owner, link.source, link.target, link.type, round(link.weight, 6), link.evidence)
            for link in graph.get_links([entry.skill_id])[entry.skill_id]
        ]
        found[entry.skill_id] = (
            entry.state,
            entry.content_hash,
            revision.parsed,
            len(index.get_section_vectors([key])[key]),
            sorted(links),
        )
    return found


@settings(max_examples=8, deadline=None, suppress_health_check=[HealthCheck.too_slow])
@given(histories)
def test_any_order_of_events_ends_in_the_same_library(history: list[tuple[str, str, int]]) -> None:
    with tempfile.TemporaryDirectory() as base:
        root = Path(base, "root")
        for name in NAMES[:3]:
            _write(root, name, 0)
        with tiny_backend(Path(base, "home"), workers={"keep_seconds": 0}) as backend:
            backend.submit(SourceChanged(source_id="s", root=str(root)), "tests")
            _carry_out(backend, root, history)
            backend.submit(SourceChanged(source_id="s", root=str(root)), "tests")
            settle(backend)
            after = _state(backend)
            backend.maintain_now()
            pointers = backend.services.graph.get_changes_since(0).pointers
            published = {RevisionKey(name, seq) for name, seq in pointers.items() if seq}
            stored = backend.services.index.list_keys()
            assert sorted(stored) == sorted(published)
        with tiny_backend(Path(base, "fresh")) as backend:
            backend.submit(SourceChanged(source_id="s", root=str(root)), "tests")
            settle(backend)
            assert _state(backend) == after
        assert len(after) == len(list(root.rglob("SKILL.md")))


TASK = "cabbage"
STEADY = {
    "cabbage-crock": "salt shred press ferment jar brine cellar lid weigh bubble",
    "cabbage-dye": "simmer wool mordant alum purple skein rinse dry shade vinegar",
    "cabbage-moth": "net seedlings larvae hand-pick row garden bacillus spray dusk leaf",
    "cabbage-indicator": "acid base pipette titrate colour litmus beaker chart drop pH",
}


def _version(root: Path, name: str, version: int) -> None:
    words = STEADY[name].split()
    steps = [f"{at}. {word} the {name} at version-{version}." for at, word in enumerate(words, 1)]
    described = f"Cabbage to {words[0]} and {words[3]} at version-{version}"
    write_skill(root, name, described, "## Steps\n\n" + "\n".join(steps) + "\n")


def test_readers_during_writes_see_skills_whole(tmp_path: Path) -> None:
    threads = 3
    root = tmp_path / "root"
    steady = list(STEADY)
    for name in steady:
        _version(root, name, 0)
    seen: list[dict[str, Any]] = []
    problems: list[BaseException] = []
    stop = threading.Event()

    def read(backend: EmbeddedBackend) -> None:
        asked = QueryAsked(task=TASK, budget=20_000, without=("diffusion", "floor"))
        try:
            while not stop.is_set():
                seen.append(backend.answer_query(asked, "tests"))
        except BaseException as error:
            problems.append(error)

    workers = {"query_threads": threads, "keep_seconds": 600}
    with tiny_backend(tmp_path / "home", workers=workers, choice={"least_further": 0}) as backend:
        backend.submit(SourceChanged(source_id="s", root=str(root)), "tests")
        settle(backend)
        readers = [threading.Thread(target=read, args=(backend,)) for _ in range(threads)]
        for reader in readers:
            reader.start()
        version = 0
        while not problems and (version < 24 or len(seen) <= 20):
            version += 1
            name = steady[version % len(steady)]
            _version(root, name, version)
            paths = (f"{name}/SKILL.md",)
            backend.submit(SourceChanged(source_id="s", root=str(root), paths=paths), "tests")
            time.sleep(0.1)
        settle(backend)
        stop.set()
        for reader in readers:
            reader.join()
    assert not problems
    for bundle in seen:
        chosen = {skill["name"]: skill for skill in bundle["skills"]}
        assert set(chosen) == set(steady)
        for skill in chosen.values():
            text = " ".join([skill["description"], *(p["text"] for p in skill["passages"])])
            versions = set(re.findall(r"version-\d+", text))
            assert len(versions) == 1, versions
