"""`skillbus refine` with a model on loopback: roles come, are shown, and go with the setting."""

from __future__ import annotations

import signal
from collections.abc import Iterator
from pathlib import Path
from typing import Any

import pytest

from tests.support.program.program import ForkServer, Skillbus, wait_for
from tests.support.samples.refining import give_roles, model_environment, write_skill
from tests.support.servers.language_model import LanguageModelServer, stalling

NAMES = ("capstan", "windlass", "bollard")


@pytest.fixture
def server() -> Iterator[LanguageModelServer]:
    with LanguageModelServer(give_roles("precondition")) as started:
        yield started


def sync_made(skillbus: Skillbus, root: Path) -> None:
    skillbus("sync", str(root), "--source", "made", "--until", "searchable")


@pytest.fixture(scope="module")
def synced(fork_server: ForkServer, tmp_path_factory: pytest.TempPathFactory) -> Skillbus:
    """A synced library of three skills."""
    base = tmp_path_factory.mktemp("synced")
    for name in NAMES:
        write_skill(base / "skills", name, steps=30)
    skillbus = Skillbus(fork_server, base / "home")
    sync_made(skillbus, base / "skills")
    return skillbus


@pytest.fixture
def library(synced: Skillbus, tmp_path: Path, server: LanguageModelServer) -> Skillbus:
    """A copy of it, with the stage `roles` on."""
    return synced.copy(tmp_path / "home", **model_environment(server.url))


def roles_of(skillbus: Skillbus, skill_id: str) -> set[str]:
    shown = skillbus("skills", "show", skill_id, "--json").data
    return {passage["role"] for passage in shown["passages"]}


def calls_of(skillbus: Skillbus) -> int:
    """How many answers of the language model are stored."""
    usage = skillbus("status", "--json").data["language_model"]["usage"]
    return usage["roles"]["calls"] if "roles" in usage else 0


def bundle_roles(skillbus: Skillbus) -> set[str]:
    found = skillbus("query", "turn the capstan in the harbour", "--format", "json").data
    assert found["skills"]
    return {
        role
        for skill in found["skills"]
        for passage in skill["passages"]
        for role in passage["roles"]
    }


def test_skills_are_searchable_before_any_model_has_seen_them(
    library: Skillbus, synced: Skillbus, server: LanguageModelServer
) -> None:
    sync_made(library, synced.home.parent / "skills")
    assert library.chosen("turn the capstan in the harbour")[0] == "made:capstan"
    assert server.requests == 0
    stages = library("status", "--json").data["language_model"]["refinement"]["stages"]
    assert stages == {"roles": {"refined": 0, "waiting": 3, "invalid": 0}}


def test_an_estimate_is_what_is_asked_then(library: Skillbus, server: LanguageModelServer) -> None:
    estimate = library("refine", "--estimate", "--json").data["stages"]["roles"]
    assert server.requests == 0
    assert estimate["skills"] == 3
    report = library("refine", "--json").data
    assert report["stages"] == {"roles": {"refined": 3, "waiting": 0, "invalid": 0}}
    usage = library("status", "--json").data["language_model"]["usage"]["roles"]
    assert estimate["calls"] == server.requests == usage["calls"] == 6
    assert estimate["prompt_tokens"] == usage["prompt_tokens"]
    assert estimate["answer_tokens"] >= usage["completion_tokens"]
    assert library("refine", "--estimate", "--json").data["stages"]["roles"]["calls"] == 0


def test_roles_of_the_model_are_shown_and_go_with_the_setting(
    library: Skillbus, server: LanguageModelServer
) -> None:
    local = roles_of(library, "made:capstan")
    assert "step" in local
    library("refine")
    assert roles_of(library, "made:capstan") == {"precondition"}
    assert bundle_roles(library) == {"precondition"}
    library.env["SKILLBUS_LANGUAGE_MODEL__STAGES"] = '["prompts"]'
    assert roles_of(library, "made:capstan") == local
    assert "precondition" not in bundle_roles(library)
    library.env["SKILLBUS_LANGUAGE_MODEL__STAGES"] = '["roles"]'
    library.env["SKILLBUS_LANGUAGE_MODEL__MODEL"] = "another-model"
    assert roles_of(library, "made:capstan") == local
    assert server.requests == 6


def test_an_evaluation_scores_the_roles_of_the_model(library: Skillbus, tmp_path: Path) -> None:
    library("refine")
    out = tmp_path / "roles.json"
    library("eval", "roles", "--skills", "made:capstan", "--out", str(out))
    assert '"precondition"' in out.read_text(encoding="utf-8")
    assert '"step"' not in out.read_text(encoding="utf-8")


def test_only_what_changed_is_asked_again(
    fork_server: ForkServer, server: LanguageModelServer, tmp_path: Path
) -> None:
    library = Skillbus(fork_server, tmp_path / "home", **model_environment(server.url))
    write_skill(tmp_path / "skills", "capstan", steps=30)
    sync_made(library, tmp_path / "skills")
    library("refine")
    asked = server.requests
    assert library("refine").out.startswith("roles: 1 skill refined")
    assert server.requests == asked
    write_skill(tmp_path / "skills", "capstan", steps=31)
    sync_made(library, tmp_path / "skills")
    library("refine")
    assert server.requests == asked + 1  # the first batch of the skill is as it was


def test_a_source_is_refined_alone(
    library: Skillbus, server: LanguageModelServer, tmp_path: Path
) -> None:
    write_skill(tmp_path / "other", "halyard")
    library("sync", str(tmp_path / "other"), "--until", "searchable")
    library("refine", "--source", "other")
    assert server.requests == 1
    assert roles_of(library, "other:halyard") == {"precondition"}
    for more in ((), ("--estimate",)):
        assert "no source 'none'" in library("refine", "--source", "none", *more, code=2).err


def test_invalid_answers_leave_the_local_roles_and_are_listed(
    library: Skillbus, server: LanguageModelServer
) -> None:
    server.script = lambda asked: (
        {"roles": []} if '"bollard"' in asked.data else give_roles("param")(asked)
    )
    done = library("refine", "--json").data["stages"]["roles"]
    assert done["refined"] == 3
    assert "step" in roles_of(library, "made:bollard")
    assert roles_of(library, "made:capstan") == {"param"}
    rows = library("failures", "--refinement", "--json").data
    assert {row["skill_id"] for row in rows} == {"made:bollard"}
    assert "no role for numbers" in rows[0]["reason"]
    assert "no failures" in library("failures").out


def test_spent_tokens_stop_the_work_and_say_so(
    library: Skillbus, server: LanguageModelServer
) -> None:
    library.env["SKILLBUS_LANGUAGE_MODEL__DAILY_TOKENS"] = "4000"
    result = library("refine", code=1)
    assert "today's tokens are spent" in result.err
    assert "daily_tokens" in result.err
    asked = server.requests
    assert 0 < asked < 6
    library("refine", code=1)
    assert server.requests == asked
    library.env["SKILLBUS_LANGUAGE_MODEL__DAILY_TOKENS"] = "0"
    library("refine")
    assert server.requests == 6


def test_a_wrong_key_is_a_usage_error(
    library: Skillbus, server: LanguageModelServer, tmp_path: Path
) -> None:
    server.key = "right"
    assert library("refine", code=2).err.count("skills wait") == 1
    library.env["SKILLBUS_LANGUAGE_MODEL__API_KEY_FILE"] = str(server.write_key(tmp_path / "key"))
    library("refine")
    assert roles_of(library, "made:capstan") == {"precondition"}


def test_an_interrupt_ends_soon_and_loses_nothing_that_was_paid_for(
    library: Skillbus, server: LanguageModelServer
) -> None:
    script = server.script
    server.script = lambda asked: stalling(250) if asked.number > 2 else script(asked)
    library.env["SKILLBUS_LANGUAGE_MODEL__TIMEOUT_SECONDS"] = "250"
    running = library.start("refine")
    wait_for(lambda: server.requests > 2, 60)
    wait_for(lambda: calls_of(library) == 2, 60)  # both answers are stored
    running.send(signal.SIGINT)
    assert running.wait().code == 130
    server.settle()
    server.script = script
    delivered = server.delivered
    library("refine")
    assert server.delivered == delivered + 4
    assert roles_of(library, "made:bollard") == {"precondition"}


def test_serve_refines_by_itself(library: Skillbus, server: LanguageModelServer) -> None:
    with library.serving():
        library("refine")
        status: Any = library("status", "--json").data["language_model"]["refinement"]
    assert status == {
        "stages": {"roles": {"refined": 3, "waiting": 0, "invalid": 0}},
        "running": False,
        "paused": None,
    }
    assert server.requests == 6


@pytest.mark.parametrize(
    "served", [{"BASE_URL": "", "MODEL": ""}, {"MODEL": "other"}, {"STAGES": '["select"]'}]
)
def test_serve_with_other_settings_is_not_waited_for(
    library: Skillbus, served: dict[str, str]
) -> None:
    asked = dict(library.env)
    library.env.update({f"SKILLBUS_LANGUAGE_MODEL__{name}": one for name, one in served.items()})
    with library.serving():
        library.env.update(asked)
        assert "restart it" in library("refine", code=2).err
