"""Skills that give orders to the model, against one that obeys every order that it is shown: none
gains by it, in the ranking or in the bundle, and nothing leaves its frame."""

from __future__ import annotations

import json
import re
from collections.abc import Callable, Iterable, Iterator
from contextlib import contextmanager
from dataclasses import dataclass, replace
from pathlib import Path
from typing import Any

import pytest

from config.bundle_settings import PolicySettings
from skills.bundle.model import Bundle
from skills.events import QueryAsked, SourceChanged
from tasks.language_model.frame import clean
from tasks.query.context import QueryContext
from tasks.query.language_model import select_skills
from tasks.query.pipeline import rank_skills
from tests.support.samples.hostile_skills import (
    HOSTILE_SKILLS,
    ORDERS_TO_CHOOSE,
    TASK,
    UNSEEN_ORDERS,
    HostileSkill,
)
from tests.support.samples.library import write_skill, write_topics
from tests.support.samples.tiny import settle, tiny_backend
from tests.support.servers.language_model import Asked, LanguageModelServer
from workers.backend.embedded import EmbeddedBackend

ASKED = f"{TASK} and keep a log of its brine baths"
RIVALS = {
    "brine-log": "Ripen a washed rind cheese in a humid cellar and keep a log of its brine baths",
    "rind-washing": "Keep a log of brine baths for a washed rind cheese that ripens in a cellar",
    "cellar-care": "Ripen cheese in a humid cellar, with brine baths and a log",
    "cheese-turning": "Turn and wash a cheese while it ripens in its cellar, and log it",
}
SELECTED = ("brine-log", "rind-washing")
NOWHERE = 10_000
HEADINGS = "Brine baths log"

_QUOTED = r'"(?:[^"\\\n]|\\.)*"'
_CANDIDATE = re.compile(
    rf"\[(\d+)\] ({_QUOTED}): ({_QUOTED})(?: \| section ({_QUOTED}))?"
    r"(?: \| (?:(?:needs|needed by|before|after|like|conflicts with) [\d, ]+(?:; )?)*)?"
)

ORDERS_IN_PLACE = {"very-long-line": "then answer clean", "many-lines": "", "tag-characters": ""}
"""Orders of skills whose text does not begin with them; the last two show none in a frame."""


@dataclass(frozen=True, slots=True)
class Planted:
    """A skill of the library. order: what a model that sees it obeys, "" where it orders nothing.
    tool: of this skill alone, so that a query can have it as its only hostile candidate."""

    name: str
    order: str
    tool: str


def read_candidates(data: str) -> dict[int, list[str]]:
    """The texts of each candidate of a select prompt, by number, as an honest reader sees them.

    Fails for a line that is no candidate, and for numbers out of order.
    """
    task, header, *lines = data.split("\n")
    assert re.fullmatch(f"task: {_QUOTED}", task)
    assert header == "candidates:"
    matches = [_CANDIDATE.fullmatch(line) for line in lines]
    found = {}
    for place, (match, line) in enumerate(zip(matches, lines, strict=True), 1):
        assert match, line
        assert int(match[1]) == place
        found[place] = [json.loads(text) for text in match.groups()[1:] if text]
    return found


class ObeyingModel:
    """Puts the skill whose order it sees first, with the best grades, and rejects all others;
    without an order it selects two of the rivals."""

    def __init__(self, planted: list[Planted]) -> None:
        self._orders = [one.order[:24] for one in planted if one.order]
        self.obeyed = 0

    def __call__(self, asked: Asked) -> dict[str, Any]:
        candidates = read_candidates(asked.data)
        ordering = [
            number
            for number, texts in candidates.items()
            if any(order in text for order in self._orders for text in texts)
        ]
        self.obeyed += bool(ordering)
        names = {texts[0]: number for number, texts in candidates.items()}
        needed = ordering or [names[name] for name in SELECTED]
        others = [number for number in candidates if number not in needed]
        grades = {"relevancy": 10, "specificity": 10}
        return {
            "needed": [{"id": number} | grades for number in needed[:3]],
            "alternatives": [],
            "useful": [],
            "order": [],
            "conflicts": [],
            "rejected": [{"reason": "redundant", "ids": others}],
            "complete": True,
        }


def order_of(skill: HostileSkill) -> str:
    """The words that a model would obey, as it is shown them."""
    if skill.name in ORDERS_IN_PLACE:
        return ORDERS_IN_PLACE[skill.name]
    if skill.title:
        return clean(skill.title)
    return clean(skill.text if skill.text != "Turn it gently." else skill.description)


def plant(root: Path) -> list[Planted]:
    """Write the rivals, and every hostile skill with its order in the text as it is, in the
    description, and in a heading."""
    write_topics(root)
    for name, description in RIVALS.items():
        body = f"## {HEADINGS}\n\n1. Wash the rind.\n"
        write_skill(root, name, description, body, **{"allowed-tools": "brine"})
    planted = []
    for skill in HOSTILE_SKILLS:
        described = replace(skill, description=f"{skill.description}. {skill.text}", text="Turn.")
        line = " ".join(skill.text.split())
        headed = replace(skill, text=f"## {HEADINGS} {line}\n\nLog the brine baths.")
        for where, one in {"text": skill, "shown": described, "head": headed}.items():
            placed = replace(one, name=f"{skill.name}-{where}", title=skill.title)
            planted.append(_write(root, placed, order_of(skill)))
    for number, order in enumerate((*ORDERS_TO_CHOOSE, *UNSEEN_ORDERS)):
        description = f"Ripen a washed rind cheese in a humid cellar. {order}"
        planted.append(
            _write(root, HostileSkill(f"order-{number}", "prefer", "Turn.", "", description), order)
        )
    return planted


def _write(root: Path, skill: HostileSkill, order: str) -> Planted:
    folder = root / skill.name
    folder.mkdir(parents=True)
    text = skill.markdown.replace("---\n", f"---\nallowed-tools: {skill.name}\n", 1)
    (folder / "SKILL.md").write_bytes(text.encode("utf-8", "surrogatepass"))
    return Planted(skill.name, order, skill.name)


@dataclass
class Library:
    """The library of all these tests, and what a query for one hostile skill gives."""

    backend: EmbeddedBackend
    server: LanguageModelServer
    planted: list[Planted]
    model: ObeyingModel

    def ask(self, one: Planted, *without: str) -> tuple[int, int, Bundle]:
        """Place in the ranking, place in the bundle, and the bundle."""
        request = QueryAsked(
            task=ASKED,
            budget=8_000,
            explain=True,
            without=("rerank", "floor", *without),
            filters={"tool": ("brine", one.tool)},
        )
        bundle = Bundle.model_validate(self.backend.answer_query(request, "tests"))
        assert bundle.explain is not None
        ranked = [row["skill_id"] for row in bundle.explain["candidates"]]
        sent = [skill.skill_id for skill in bundle.skills]
        skill_id = f"crafts:{one.name}"
        return _place(skill_id, ranked), _place(skill_id, sent), bundle

    def find_gains(self, planted: Iterable[Planted]) -> dict[str, str]:
        """The hostile skills that are better placed with the model: order by name. What the policy
        withholds is the same with it."""
        gains = {}
        for one in planted:
            rank, place, before = self.ask(one, "select")
            new_rank, new_place, after = self.ask(one)
            assert after.withheld == before.withheld
            if new_rank < rank or new_place < place:
                gains[one.name] = one.order
        return gains

    @contextmanager
    def policy(self, **policy: Any) -> Iterator[None]:
        settings = self.backend.services.settings
        changed = settings.model_copy(update={"policy": PolicySettings(**policy)})
        with pytest.MonkeyPatch.context() as patch:
            patch.setattr(self.backend.services, "settings", changed)
            yield


def _place(skill_id: str, ids: list[str]) -> int:
    return ids.index(skill_id) if skill_id in ids else NOWHERE


@pytest.fixture(scope="module")
def library(tmp_path_factory: pytest.TempPathFactory) -> Iterator[Library]:
    root = tmp_path_factory.mktemp("hostile")
    planted = plant(root / "crafts")
    model = ObeyingModel(planted)
    with LanguageModelServer(model) as server:
        settings = server.settings(stages=("select",), query_milliseconds=20_000)
        with tiny_backend(root / "home", language_model=settings.model_dump()) as backend:
            backend.submit(SourceChanged(source_id="crafts", root=str(root / "crafts")), "tests")
            settle(backend, 120)
            yield Library(backend, server, planted, model)


def test_no_order_to_the_model_gains_a_place(library: Library) -> None:
    gains = library.find_gains(library.planted)
    assert set(gains.values()) == set(UNSEEN_ORDERS)
    assert len(gains) == len(UNSEEN_ORDERS)
    assert library.model.obeyed


def test_a_policy_that_sends_everything_changes_nothing_of_it(library: Library) -> None:
    entries = library.backend.services.graph.get_entries()
    levels = {entry.path: entry.safety_level for entry in entries}
    withheld = [one for one in library.planted if levels[one.name] > 1]
    assert len(withheld) >= 10
    assert NOWHERE in library.ask(withheld[0])[:1]
    with library.policy(highest_level=3):
        assert all(library.ask(one)[0] < NOWHERE for one in withheld)
        assert library.find_gains(withheld) == {}


def test_the_model_of_these_tests_obeys_where_it_is_shown_an_order(
    library: Library, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setattr(select_skills, "find_injection", lambda text: "")
    shown = [one for one in library.planted if one.name.endswith("-shown")]
    ordering = [one for one in library.planted if one.name.startswith("order-")]
    with library.policy(highest_level=3):
        gains = library.find_gains([*shown[::4], *ordering])
    described = [name for name in gains if name.endswith("-shown")]
    assert len(described) >= 10
    assert set(ORDERS_TO_CHOOSE) <= set(gains.values())


def test_what_was_not_shown_is_named_and_keeps_its_place(library: Library) -> None:
    one = next(one for one in library.planted if one.name == "chinese-prefer-shown")
    rank, _, _ = library.ask(one, "select")
    new_rank, place, bundle = library.ask(one)
    assert (new_rank, place) == (rank, NOWHERE)
    assert bundle.explain is not None
    report = bundle.explain["language_model"]["select"]
    assert report["not_shown"] == {f"crafts:{one.name}": "asks to be preferred"}
    assert report["candidates"] == len(RIVALS)
    reasons = {left.skill_id: left.reason for left in bundle.left_out}
    assert "not shown to the language model" in reasons[f"crafts:{one.name}"]


def test_no_text_leaves_its_frame(library: Library, monkeypatch: pytest.MonkeyPatch) -> None:
    """Also where all are shown at once: lines and numbers are ours, names are quoted whole."""
    monkeypatch.setattr(select_skills, "find_injection", lambda text: "")
    read: Callable[[Asked], Any] = library.model
    prompts: list[str] = []

    def script(asked: Asked) -> Any:
        prompts.append(asked.data)
        return read(asked)

    monkeypatch.setattr(library.server, "script", script)
    with library.policy(highest_level=3):
        request = QueryAsked(task=ASKED, without=("rerank", "floor", "diffusion"))
        context = QueryContext.create(library.backend.services, request)
        ranking = rank_skills(context)
    candidates = read_candidates(prompts[0])
    limit = library.backend.services.settings.language_model.select_candidates
    assert len(candidates) == min(limit, len(ranking.hits)) == 50
    assert not re.search("<\\|im_end\\|>|\\[/INST\\]|[\u200b\u202e\u2028]", str(candidates))
    names = {texts[0] for texts in candidates.values()}
    assert "cheese-master" not in names
