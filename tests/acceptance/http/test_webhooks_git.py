"""From a push to the answer: a git remote on loopback, its webhook, and a served library."""

from __future__ import annotations

import shutil
from collections.abc import Callable, Iterator
from pathlib import Path

import httpx
import pytest

from deploy.stack.ports import free_port
from tests.support.program.program import ROOT, ForkServer, Skillbus, wait_for
from tests.support.program.secrecy import made_up
from tests.support.samples.library import write_skill
from tests.support.servers.git_remote import PushedRepository, served_over_http
from tests.support.servers.webhooks import NONE, github, github_push

SECRET = made_up("of the host")
TASK = "fire stoneware in an electric kiln"
SETTINGS = """\
[git]
protocols = ["https", "http"]
allow_private = true
poll_seconds = 3600

[webhooks]
github = ["{secret}"]
"""

Deliver = Callable[..., httpx.Response]


@pytest.fixture(scope="module")
def repository(tmp_path_factory: pytest.TempPathFactory) -> PushedRepository:
    made = PushedRepository(tmp_path_factory.mktemp("remote"))
    for name in ("kiln-firing", "tide-tables", "bread-baking"):
        write_skill(made.tree, name)
    made.push()
    return made


@pytest.fixture(scope="module")
def served(
    fork_server: ForkServer,
    tmp_path_factory: pytest.TempPathFactory,
    repository: PushedRepository,
) -> Iterator[tuple[Skillbus, Deliver]]:
    base = tmp_path_factory.mktemp("pushed")
    skillbus = Skillbus(fork_server, base / "home")
    skillbus.home.mkdir()
    (base / "secret").write_text(SECRET)
    text = SETTINGS.format(secret=base / "secret")
    (skillbus.home / "skillbus.toml").write_text(text)
    port = free_port()
    with (
        served_over_http(repository.bare.parent) as remote,
        skillbus.serving("--listen", f"127.0.0.1:{port}") as process,
    ):
        address = f"{remote}/{repository.bare.name}"
        skillbus("sources", "add", address, "--source", "pushed", "--branch", "main")
        wait_for(lambda: states(skillbus) == {"published"})
        variables = {"address": address, "secret": str(base / "secret")}
        variables["webhook"] = f"http://127.0.0.1:{port}/v1/webhooks/github"
        for name, value in variables.items():
            repository.git("-C", str(repository.bare), "config", f"skillbus.{name}", value)

        def deliver(**values: object) -> httpx.Response:
            delivery = github(github_push(address, **values), SECRET)
            return httpx.post(
                f"http://127.0.0.1:{port}/v1/webhooks/github",
                content=delivery.body,
                headers=dict(delivery.headers),
                timeout=60,
            )

        yield skillbus, deliver
    assert SECRET not in process.text("out") + process.text("err")


def states(skillbus: Skillbus) -> set[str]:
    return {row["state"] for row in skillbus.skills().values()}


def names(skillbus: Skillbus) -> set[str]:
    found = skillbus.skills().values()
    return {row["skill_id"] for row in found if row["state"] == "published"}


def test_an_edit_is_found_after_its_delivery(
    served: tuple[Skillbus, Deliver], repository: PushedRepository
) -> None:
    skillbus, deliver = served
    assert skillbus.chosen(TASK)[0] == "pushed:kiln-firing"
    described = "Fire stoneware in an electric kiln with a quillon cone"
    write_skill(repository.tree, "kiln-firing", described)
    answer = deliver(after=repository.push())
    assert answer.status_code == 202, answer.text
    wait_for(lambda: skillbus.skills()["pushed:kiln-firing"]["description"] == described)
    assert skillbus.chosen("kiln with a quillon cone")[0] == "pushed:kiln-firing"


def test_a_push_to_another_branch_changes_nothing(
    served: tuple[Skillbus, Deliver], repository: PushedRepository
) -> None:
    skillbus, deliver = served
    before = names(skillbus)
    write_skill(repository.tree, "violin-setup")
    commit = repository.push(branch="draft")
    answer = deliver(after=commit, ref="refs/heads/draft")
    assert (answer.status_code, answer.json()["state"]) == (200, "ignored")
    assert names(skillbus) == before


def test_the_hook_for_bare_repositories_tells_of_pushes(
    served: tuple[Skillbus, Deliver], repository: PushedRepository
) -> None:
    skillbus, _ = served
    hook = shutil.copy(ROOT / "examples" / "hooks" / "post-receive", repository.bare / "hooks")
    write_skill(repository.tree, "harbour-pilot")
    repository.push()
    Path(hook).unlink()
    wait_for(lambda: "pushed:harbour-pilot" in names(skillbus))


def test_a_branch_that_is_deleted_removes_nothing_and_is_reported(
    served: tuple[Skillbus, Deliver], repository: PushedRepository
) -> None:
    skillbus, deliver = served
    before = names(skillbus)
    repository.git("-C", str(repository.bare), "update-ref", "-d", "refs/heads/main")
    answer = deliver(after=NONE, deleted=True)
    assert answer.status_code == 202
    (event_id,) = answer.json()["ids"]
    with skillbus.client() as client:
        path = f"/v1/events/{event_id}"
        wait_for(lambda: client.get(path).json()["state"] != "accepted")
        state = client.get(path).json()
    assert state["state"] == "failed"
    assert "the branch is gone" in state["reason"]
    assert names(skillbus) == before
