"""Links that a model on loopback confirms: asked once, applied, taken back, and asked again."""

from __future__ import annotations

import json
import re
import time
from collections.abc import Callable, Iterator, Sequence
from pathlib import Path
from typing import Any

import pytest

from config.errors import TransientError
from graph.links.linker import is_from_verdict
from graph.records import Link
from skills.bundle.rejection import RejectionReason
from skills.events import SourceChanged
from tasks.ingest.maintain import maintain
from tasks.ingest.next_tasks import send_refine
from tasks.language_model.answer_store import RefinementKind
from tasks.language_model.skill_pairs.protocol import find_compared_pairs
from tasks.policies import Deadline
from tasks.refine.linking.link_stage import LinkStage
from tasks.refine.linking.rejected import MIN_QUERIES, find_unasked_pairs
from tests.support.samples.library import write_skill
from tests.support.samples.tiny import settle, tiny_backend
from tests.support.servers.language_model import Asked, LanguageModelServer
from workers.backend.embedded import EmbeddedBackend

BODIES = {
    "hull-finder": "Walks along the scan of the slipway and writes hulls.json, one entry a hull.",
    "hull-fitting": "Bends planks to the frames.\n\n- `--hulls`: hulls.json (from hull-finder)",
    "hull-report": "Reads hulls.json and prints the length of every hull on the slipway.",
    "plank-saw": "Saws planks of oak for the frames on the slipway.",
}
RELATIONS = {
    ("hull-fitting", "hull-finder"): "needs",
    ("hull-finder", "hull-fitting"): "needed_by",
    ("hull-report", "hull-finder"): "after",
    ("hull-finder", "hull-report"): "before",
}
DEPENDENCY = ("boats:hull-fitting", "boats:hull-finder", "dependency")
WORKFLOW = ("boats:hull-finder", "boats:hull-report", "workflow")


def read_prompt(data: str) -> list[tuple[str, dict[int, str]]]:
    """The names in a prompt, the skill's first, each with its lines by number."""
    found = []
    for block in re.split(r"^(?:skill|candidate \d+)\n", data, flags=re.MULTILINE)[1:]:
        name, *lines = block.strip().splitlines()
        numbered = (re.match(r'(\d+) (?:description: )?(".*")$', line) for line in lines)
        shown = {int(match[1]): json.loads(match[2]) for match in numbered if match}
        found.append((json.loads(name.removeprefix("name: ")), shown))
    return found


def answer_links(asked: Asked) -> dict[str, Any]:
    """The relations of the boats, with the lines about hulls."""
    (skill, lines), *candidates = read_prompt(asked.data)
    relations = []
    for number, (name, shown) in enumerate(candidates, 1):
        relation = RELATIONS.get((skill, name))
        if "tasks:" in asked.data:
            relation = "conflict"
        if relation:
            relations.append(
                {
                    "candidate": number,
                    "relation": relation,
                    "skill_lines": [one for one, text in lines.items() if "hull" in text][:4],
                    "candidate_lines": [one for one, text in shown.items() if "hull" in text][:4],
                }
            )
    return {"relations": relations}


@pytest.fixture
def server() -> Iterator[LanguageModelServer]:
    with LanguageModelServer(answer_links) as started:
        yield started


Open = Callable[..., Any]


@pytest.fixture
def open_library(tmp_path: Path, server: LanguageModelServer) -> Open:
    for name, body in BODIES.items():
        write_skill(tmp_path / "boats", name, f"Work on the slipway: {name}", body)

    def open_with(*stages: str) -> Any:
        settings = server.settings(stages=stages)
        return tiny_backend(tmp_path / "home", language_model=settings.model_dump())

    with open_with("select") as backend:
        sync(backend, tmp_path)
    return open_with


def sync(backend: EmbeddedBackend, tmp_path: Path) -> None:
    event = SourceChanged(source_id="boats", root=str(tmp_path / "boats"))
    backend.submit(event, "tests")
    settle(backend)


def refined(backend: EmbeddedBackend) -> bool:
    services = backend.services
    assert services.answers is not None
    hashes = {one.content_hash for one in services.graph.get_entries() if one.seq}
    kind = RefinementKind("links", services.settings.language_model.model, LinkStage().version)
    return services.answers.get_refinements(kind, sorted(hashes)).keys() == hashes


def wait_until(backend: EmbeddedBackend, done: Callable[[], bool]) -> None:
    end = time.monotonic() + 120
    while not done():
        assert time.monotonic() < end
        maintain(backend.services, Deadline(60))
        time.sleep(0.05)
    settle(backend)


def model_links(backend: EmbeddedBackend) -> dict[tuple[str, str, str], Link]:
    graph = backend.services.graph
    found = graph.get_owned_links([one.skill_id for one in graph.get_entries()])
    links = [one for owned in found.values() for one in owned if is_from_verdict(one)]
    return {(one.source, one.target, one.type.value): one for one in links}


def asked_pairs(server: LanguageModelServer, since: int = 0) -> list[frozenset[str]]:
    pairs = []
    for asked in server.asked[since:]:
        skill, *others = (name for name, _ in read_prompt(asked.data))
        pairs += [frozenset((skill, other)) for other in others]
    return pairs


def test_confirmed_links_come_and_go_with_the_setting(
    open_library: Open, server: LanguageModelServer
) -> None:
    with open_library("links") as backend:
        wait_until(backend, lambda: refined(backend))
        found = model_links(backend)
        assert found.keys() == {DEPENDENCY, WORKFLOW}
        assert found[DEPENDENCY].owner == "boats:hull-fitting"
        assert "(from hull-finder)" in found[DEPENDENCY].evidence
        pairs = asked_pairs(server)
        assert len(pairs) == len(set(pairs)) > 2
        calls = server.requests
    with open_library("select") as backend:
        wait_until(backend, lambda: not model_links(backend))
    with open_library("links") as backend:
        wait_until(backend, lambda: model_links(backend).keys() == {DEPENDENCY, WORKFLOW})
        assert server.requests == calls


def test_an_edit_asks_again_only_about_what_it_changed(
    open_library: Open, server: LanguageModelServer, tmp_path: Path
) -> None:
    with open_library("links") as backend:
        wait_until(backend, lambda: refined(backend))
        before = len(server.asked)
        body = BODIES["hull-report"] + "\n\nPrints the width too.\n"
        write_skill(tmp_path / "boats", "hull-report", "Work on the slipway: hull-report", body)
        sync(backend, tmp_path)
        assert DEPENDENCY in model_links(backend)
        wait_until(backend, lambda: refined(backend))
        assert model_links(backend).keys() == {DEPENDENCY, WORKFLOW}
        pairs = asked_pairs(server, before)
        assert pairs
        assert all("hull-report" in pair for pair in pairs)


def test_a_pair_that_queries_compare_is_asked_about_and_linked(
    open_library: Open, server: LanguageModelServer, monkeypatch: pytest.MonkeyPatch
) -> None:
    """Also where the catalog fails once."""
    with open_library("links") as backend:
        wait_until(backend, lambda: refined(backend))
        graph, calls = backend.services.graph, server.requests
        mark, failed = graph.mark_for_linking, list[Sequence[str]]()

        def mark_or_fail(skill_ids: Sequence[str]) -> None:
            of_pair = set(skill_ids) == {"boats:hull-fitting", "boats:hull-report"}
            if of_pair and not failed:
                failed.append(skill_ids)
                raise TransientError("the catalog does not answer")
            mark(skill_ids)

        monkeypatch.setattr(graph, "mark_for_linking", mark_or_fail)
        pairs = backend.services.skill_pairs
        assert pairs is not None
        rejected = {"boats:hull-report": RejectionReason.INCOMPATIBLE}
        compared = [("boats:hull-report", "boats:hull-fitting", RejectionReason.INCOMPATIBLE)]
        for number in range(MIN_QUERIES):
            pairs.record(f"query {number}", find_compared_pairs(rejected, compared))
        conflict = ("boats:hull-report", "boats:hull-fitting", "conflict")
        [found] = find_unasked_pairs(backend.services)
        assert {one.name for one in found.texts} == {"hull-report", "hull-fitting"}
        send_refine(backend.services.coordinator, backend.services.send_task, ["boats:plank-saw"])
        wait_until(backend, lambda: conflict in model_links(backend))
        assert "queries (incompatible 3)" in model_links(backend)[conflict].evidence
        assert find_unasked_pairs(backend.services) == []
        assert len(failed) == 1
        assert server.requests == calls + 1


def test_frequent_pairs_of_removed_skills_do_not_hide_others(open_library: Open) -> None:
    with open_library("links") as backend:
        wait_until(backend, lambda: refined(backend))
        pairs = backend.services.skill_pairs
        assert pairs is not None
        reason = RejectionReason.INCOMPATIBLE
        removed = [("boats:a", f"boats:gone-{number}", reason) for number in range(250)]
        compared = [("boats:hull-report", "boats:hull-fitting", reason)]
        for number in range(MIN_QUERIES + 1):
            for first in range(0, len(removed), 100):
                some = find_compared_pairs({}, removed[first : first + 100])
                pairs.record(f"{first} {number}", some)
        for number in range(MIN_QUERIES):
            pairs.record(f"query {number}", find_compared_pairs({}, compared))
        [found] = find_unasked_pairs(backend.services)
        assert {one.name for one in found.texts} == {"hull-report", "hull-fitting"}
