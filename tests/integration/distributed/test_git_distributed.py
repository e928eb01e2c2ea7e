"""Git sources on real servers, where the worker that fetches and the one that reads what was
fetched are on machines without a common disk."""

from __future__ import annotations

from collections.abc import Iterator
from contextlib import suppress
from pathlib import Path
from typing import Any

import pytest

from config.inbound_settings import WebhookSettings
from skills.events import GitFetchOptions, SkillRemoved, SkillUpserted, SourceChanged
from tests.support.program.program import wait_for
from tests.support.samples.library import write_skill
from tests.support.servers.distributed import Deployments, Distributed, deployments
from tests.support.servers.git_remote import Gate, PushedRepository, served_over_http
from tests.support.servers.webhooks import github, github_push
from workers.backend.distributed import DistributedBackend
from workers.webhooks.handler import handle_delivery

__all__ = ["deployments"]

ORIGIN = "skillbus/test"
SECRET = "correct horse battery staple"
SETTINGS = """\
[git]
protocols = ["http"]
allow_private = true

[workers]
reconcile_seconds = 1
"""


@pytest.fixture(scope="module")
def repository(tmp_path_factory: pytest.TempPathFactory) -> PushedRepository:
    made = PushedRepository(tmp_path_factory.mktemp("remote"))
    for name in ("kiln-firing", "tide-tables"):
        write_skill(made.tree, name)
    made.push()
    return made


@pytest.fixture(scope="module")
def gate() -> Gate:
    return Gate()


@pytest.fixture(scope="module")
def address(repository: PushedRepository, gate: Gate) -> Iterator[str]:
    with served_over_http(repository.bare.parent, gate) as root:
        yield f"{root}/{repository.bare.name}"


@pytest.fixture(scope="module")
def machines(deployments: Deployments, tmp_path_factory: pytest.TempPathFactory) -> Distributed:
    """Workers, those that fetch and those that ingest with mirrors of their own."""
    made = deployments()
    home = made.folder / "home"
    home.mkdir(exist_ok=True)
    (home / "skillbus.toml").write_text(SETTINGS)
    for name in ("fetch", "ingest", "link"):
        made.launch(name, SKILLBUS_GIT__MIRRORS=str(mirrors(made, name)))
    made.wait_ready()
    return made


@pytest.fixture(scope="module")
def remote(machines: Distributed) -> Iterator[DistributedBackend]:
    with machines.backend() as opened:
        yield opened


def mirrors(machines: Distributed, name: str) -> Path:
    """The folder of mirrors of one machine."""
    return machines.folder / f"mirrors-of-{name}"


def published(remote: DistributedBackend) -> dict[str, str]:
    entries = remote.graph.get_entries_under("pushed", "")
    return {one.path: one.description for one in entries if one.state == "published"}


def is_done(remote: DistributedBackend, event_id: str) -> bool:
    job = remote.journal.get_job(event_id)
    assert job.state != "failed", job.reason
    return job.state == "done"


def deliver(remote: DistributedBackend, tmp_path: Path, address: str, commit: str) -> str:
    """Take in the delivery of a push; the id of its event."""
    file = tmp_path / "secret"
    file.write_text(SECRET)
    webhooks = WebhookSettings(github=(file,))
    before, remote.settings = (
        remote.settings,
        remote.settings.model_copy(update={"webhooks": webhooks}),
    )
    try:
        receipt = handle_delivery(remote, github(github_push(address, after=commit), SECRET))
    finally:
        remote.settings = before
    (event_id,) = receipt.ids
    return event_id


def added(remote: DistributedBackend, address: str, poll_seconds: float) -> dict[str, Any]:
    """What became of the event by which `sources add` adds a repository."""
    origin = GitFetchOptions(poll_seconds=poll_seconds)
    content = SourceChanged(source_id="pushed", root=address, git=origin)
    event_id = remote.submit(content, ORIGIN)
    wait_for(lambda: is_done(remote, event_id), 120)
    outcome = remote.journal.get_job(event_id).outcome
    assert outcome is not None
    return outcome


def test_what_one_machine_fetches_another_one_reads(
    machines: Distributed, remote: DistributedBackend, repository: PushedRepository, address: str
) -> None:
    outcome = added(remote, address, 3.0)
    assert (outcome["found"], outcome["changed"]) == (2, 2)
    wait_for(lambda: set(published(remote)) == {"kiln-firing", "tide-tables"}, 60)
    for name in ("fetch", "ingest"):
        assert (mirrors(machines, name) / "pushed.git/HEAD").is_file()
    assert not mirrors(machines, "link").exists()
    # It is polled from then on.
    write_skill(repository.tree, "bee-keeping")
    repository.push()
    wait_for(lambda: "bee-keeping" in published(remote))
    added(remote, address, 3600.0)


def test_a_push_is_announced_before_it_is_served(
    machines: Distributed,
    remote: DistributedBackend,
    repository: PushedRepository,
    address: str,
    tmp_path: Path,
) -> None:
    wording = "Fire stoneware with a quillon cone"
    write_skill(repository.tree, "kiln-firing", wording)
    event_id = deliver(remote, tmp_path, address, repository.commit())
    wait_for(lambda: any(line.get("event") == "source fetched" for line in machines.log("fetch")))
    assert remote.journal.get_job(event_id).state == "accepted"
    repository.publish()
    wait_for(lambda: is_done(remote, event_id))
    wait_for(lambda: published(remote)["kiln-firing"] == wording)


def test_a_skill_that_was_withdrawn_comes_back_at_the_same_commit(
    machines: Distributed, remote: DistributedBackend
) -> None:
    removal = remote.submit(SkillRemoved(skill_id="pushed:kiln-firing"), ORIGIN)
    wait_for(lambda: is_done(remote, removal))
    assert "kiln-firing" not in published(remote)
    return_id = remote.submit(SkillUpserted(skill_id="pushed:kiln-firing"), ORIGIN)
    wait_for(lambda: is_done(remote, return_id))
    wait_for(lambda: "kiln-firing" in published(remote))


def test_a_worker_that_is_killed_while_it_fetches(
    machines: Distributed,
    remote: DistributedBackend,
    repository: PushedRepository,
    address: str,
    gate: Gate,
    tmp_path: Path,
) -> None:
    """Git ends with it, and another machine, which has fetched nothing yet, takes over."""
    write_skill(repository.tree, "star-charts")
    commit = repository.push()
    gate.shut()
    event_id = deliver(remote, tmp_path, address, commit)
    wait_for(lambda: gate.waiting)
    assert gits(mirrors(machines, "fetch"))
    machines.kill("fetch")
    wait_for(lambda: not gits(mirrors(machines, "fetch")))
    gate.open()
    machines.launch("fetch", SKILLBUS_GIT__MIRRORS=str(mirrors(machines, "another")))
    wait_for(lambda: is_done(remote, event_id), 150)
    wait_for(lambda: "star-charts" in published(remote))
    assert remote.graph.list_sources()[0].commit == commit
    assert (mirrors(machines, "another") / "pushed.git/HEAD").is_file()


def gits(folder: Path) -> list[Path]:
    """Processes of git at mirrors below a folder."""
    found = []
    for file in Path("/proc").glob("[0-9]*/cmdline"):
        with suppress(FileNotFoundError, ProcessLookupError):
            if str(folder).encode() in file.read_bytes():
                found.append(file)
    return found
