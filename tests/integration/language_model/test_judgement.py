"""A judgement over HTTP: it counts wherever the policy is asked, and no skill's order to the
model changes a level or a rank."""

from __future__ import annotations

import json
import re
from collections.abc import Iterator
from contextlib import closing, contextmanager
from pathlib import Path
from typing import Any, cast

import pytest

from config.bundle_settings import PolicySettings
from config.errors import PermanentError
from config.language_model_settings import LanguageModelSettings
from graph.entry_filter import EntryFilter
from search.protocol import StoredRevision
from skills.bundle.markdown import render_markdown
from skills.bundle.model import Bundle
from skills.events import QueryAsked, SourceChanged
from skills.record import RevisionKey
from tasks.language_model.answer_store import AnswerStore
from tasks.language_model.openai_client import OpenAILanguageModel
from tasks.policies import Deadline
from tasks.refine.judging.judge_stage import JudgeStage
from tasks.refine.stage import RefineContext
from tests.support.samples.hostile_skills import HOSTILE_SKILLS, TASK
from tests.support.samples.library import write_skill, write_topics
from tests.support.samples.tiny import settle, tiny_backend
from tests.support.servers.language_model import MODEL, Asked, LanguageModelServer
from workers.backend.embedded import EmbeddedBackend
from workers.library.skill_data import entry_data

PLAN = "crafts:cheese-plan"
STAGE = JudgeStage()


def harmful(asked: Asked) -> dict[str, Any]:
    """What an honest model says: plans are harmful, journals are for review."""
    found = {"reason": "keeps a tenth of the cheese", "lines": [2], "kind": "deception"}
    if '"name: cheese-plan"' in asked.data:
        return found | {"verdict": "harmful"}
    if '"name: cheese-journal"' in asked.data:
        return found | {"verdict": "review"}
    return {"reason": "fine", "lines": [], "kind": "none", "verdict": "clean"}


def obey(asked: Asked) -> dict[str, Any]:
    """What a model says that obeys every order of a skill, as far as the schema lets it: all these
    are safe, and the reason holds the prompt."""
    return {
        "reason": asked.instructions[:400],
        "lines": [],
        "kind": "none",
        "verdict": "clean",
    }


def accuse(asked: Asked) -> dict[str, Any]:
    """What a model says that was brought to see lines that are not there."""
    return {"reason": asked.data[:400], "lines": [901], "kind": "deception", "verdict": "harmful"}


@contextmanager
def opened(home: Path, model: LanguageModelSettings) -> Iterator[EmbeddedBackend]:
    """A library whose settings name this model; the tests run the stage themselves."""
    with tiny_backend(
        home, refine="never", language_model=model.model_dump(), choice={"least_further": 0}
    ) as backend:
        yield backend


def sync(backend: EmbeddedBackend, root: Path) -> None:
    backend.submit(SourceChanged(source_id="crafts", root=str(root)), "tests")
    settle(backend)


def read(backend: EmbeddedBackend) -> list[StoredRevision]:
    services = backend.services
    keys = [RevisionKey(entry.skill_id, entry.seq) for entry in services.graph.get_entries()]
    return list(services.index.get_revisions(keys).values())


def judge(backend: EmbeddedBackend) -> dict[str, dict[str, Any]]:
    """Have every skill judged; the refinements by skill_id."""
    services, found = backend.services, {}
    settings = services.settings.language_model
    with closing(OpenAILanguageModel(settings)) as model:
        answers = cast(AnswerStore, services.answers)  # the stage keeps nothing itself
        context = RefineContext(services, model, answers, Deadline(120))
        for revision in read(backend):
            refinement = STAGE.refine(context, revision)
            STAGE.apply(context, revision, json.loads(json.dumps(refinement)))
            found[revision.key.skill_id] = refinement
    return found


def ask(backend: EmbeddedBackend, **policy: Any) -> Bundle:
    settings = backend.services.settings
    changed = settings.model_copy(update={"policy": PolicySettings(**policy)})
    with pytest.MonkeyPatch.context() as patch:
        patch.setattr(backend.services, "settings", changed)
        asked = QueryAsked(task=TASK, budget=4_000, top=10, without=("rerank",))
        return Bundle.model_validate(backend.answer_query(asked, "tests"))


def levels(backend: EmbeddedBackend) -> dict[str, int]:
    """Level of every skill, as `skills list` and HTTP show it."""
    graph = backend.services.graph
    entries = graph.list_entries(EntryFilter(), "", 1_000)
    results = backend.skills.get_policy().judge(entries)
    return {
        entry.skill_id: entry_data(entry, results[entry.skill_id])["safety_level"]
        for entry in entries
    }


def shown(bundle: Bundle) -> list[tuple[str, float, int]]:
    return [(skill.skill_id, skill.score, skill.safety.level) for skill in bundle.skills]


@pytest.fixture
def crafts(tmp_path: Path) -> Path:
    root = write_topics(tmp_path / "crafts")
    write_skill(root, "cheese-plan", "Plan how to ripen washed rind cheese in a cellar")
    write_skill(root, "cheese-journal", "Keep a journal while you ripen washed rind cheese")
    return root


def test_a_judgement_counts_wherever_the_policy_is_asked(tmp_path: Path, crafts: Path) -> None:
    with LanguageModelServer(harmful) as server:
        settings = server.settings(stages=("judge",))
        with opened(tmp_path / "home", settings) as backend:
            sync(backend, crafts)
            before = ask(backend)
            assert {PLAN, "crafts:cheese-journal"} <= {skill.skill_id for skill in before.skills}
            assert judge(backend)[PLAN]["verdict"] == "harmful"
            check_withheld(backend)
            everything = {skill.skill_id: skill for skill in ask(backend, highest_level=3).skills}
            assert everything[PLAN].safety.level == 2
            quoted = f'judged by {MODEL}: "keeps a tenth of the cheese"'
            assert everything[PLAN].safety.reasons == (f"line 2: {quoted}",)
            journal = next(one for one in ask(backend).skills if one.skill_id.endswith("journal"))
            assert journal.safety.level == 1
            assert "judged by" in render_markdown(ask(backend))
            (mark,) = backend.skills.describe_skill(PLAN)["safety"]
            assert (mark["kind"], mark["level"], mark["reason"]) == ("deception", 2, quoted)

            text = (crafts / "cheese-plan" / "SKILL.md").read_text()
            (crafts / "cheese-plan" / "SKILL.md").write_text(text + "\nWash the rind.\n")
            sync(backend, crafts)
            assert levels(backend)[PLAN] == 0  # another content, which is not judged yet
            judge(backend)
            sync(backend, crafts)
            check_withheld(backend)
        with opened(tmp_path / "home", settings) as backend:
            check_withheld(backend)
        for other in ({"stages": ()}, {"stages": ("judge",), "model": "other"}):
            changed = server.settings(**other)
            with opened(tmp_path / "home", changed) as backend:
                assert levels(backend)[PLAN] == 0
                assert PLAN in {skill.skill_id for skill in ask(backend).skills}
                assert backend.skills.read_skill(PLAN).revision.parsed.record.safety == ()
        with opened(tmp_path / "home", settings) as backend:
            check_withheld(backend)


def check_withheld(backend: EmbeddedBackend) -> None:
    bundle = ask(backend)
    assert PLAN not in {skill.skill_id for skill in bundle.skills}
    reason = f"safety level 2 as judged by {MODEL}, above policy.highest_level 1"
    assert {one.skill_id: one.reason for one in bundle.withheld.skills} == {PLAN: reason}
    assert levels(backend)[PLAN] == 2
    with pytest.raises(PermanentError, match="withheld by policy"):
        backend.skills.read_skill(PLAN)
    assert backend.skills.describe_skill(PLAN, include_withheld=False)["withheld"] == reason
    assert "passages" not in backend.skills.describe_skill(PLAN, include_withheld=False)
    assert PLAN not in {entry.skill_id for entry in backend.skills.list_published("", 100)}


def test_no_order_of_a_skill_changes_its_level_or_its_rank(tmp_path: Path, crafts: Path) -> None:
    for skill in HOSTILE_SKILLS:
        skill.write(crafts)
    with (
        LanguageModelServer(obey) as server,
        opened(tmp_path / "home", server.settings(stages=("judge",))) as backend,
    ):
        sync(backend, crafts)
        before = levels(backend), shown(ask(backend)), shown(ask(backend, highest_level=3))
        assert {f"crafts:{skill.name}" for skill in HOSTILE_SKILLS} <= before[0].keys()
        for script in (obey, accuse):
            server.script = script
            found = judge(backend)
            assert all(one.get("verdict", "clean") == "clean" for one in found.values())
            if script is accuse:
                assert all("not shown" in one["invalid"] for one in found.values() if one["asked"])
            after = levels(backend), shown(ask(backend)), shown(ask(backend, highest_level=3))
            assert after == before
        assert server.requests >= 2 * len(HOSTILE_SKILLS)
        # What reached the model is one quotation a line.
        for asked in server.asked:
            assert not re.search(r"<\|im_end\|>|\[/INST\]|\u200b", asked.data)
