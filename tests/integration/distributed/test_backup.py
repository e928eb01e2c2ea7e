"""`skillbus backup` and `restore` on real servers: everything comes back, and work goes on."""

from __future__ import annotations

import shutil
import threading
from pathlib import Path
from typing import Any

import pytest

from graph.neo4j.catalog_backup import NODE_KEYS
from skills.events import SkillRemoved
from tasks.journal.protocol import DeadLetter
from tests.support.program.program import ForkServer, Skillbus, wait_for
from tests.support.program.snapshot import NOTHING_LEFT, differences, leftovers
from tests.support.samples.catalog import run_cypher
from tests.support.samples.library import TOPICS, Folder, write_skill, write_topics
from tests.support.servers.distributed import REST, Deployments, Distributed, deployments
from tests.support.servers.faults import change_of
from tests.support.servers.stored import differing, make_new, stored
from workers.cli.exit_codes import EXIT_NO_SKILL_HIT

__all__ = ["deployments"]

BEST = "crafts:bicycle-repair"
TASK = TOPICS["bicycle-repair"]
LETTER = DeadLetter("0-letter", "skillbus.link", ("crafts:gone",), "a bug", 3, "trace", "", 1.0)
UPLOAD = "---\nname: sundial\ndescription: Set up a sundial.\n---\n# Sundial\n\nPoint it north.\n"
REASON = "not needed"
SHORT = {"SKILLBUS_WORKERS__KEEP_SECONDS": "0", "SKILLBUS_WORKERS__SWEEP_SECONDS": "0.5"}
SEED = 31
INSTALLED = "## Steps\n\n```sh\ncurl -LsSf https://astral.sh/uv/install.sh | sh\n```\n"
"""Text with a finding."""


@pytest.fixture(scope="module")
def base(tmp_path_factory: pytest.TempPathFactory) -> Path:
    return tmp_path_factory.mktemp("backup")


@pytest.fixture(scope="module")
def library(deployments: Deployments, base: Path) -> Distributed:
    """Crafts, one with a finding, one removed; an upload, an outcome, a dismissed link, groups, and
    a dead letter."""
    made = deployments(
        SKILLBUS_UPLOADS__FOLDER=str(base / "uploads"),
        SKILLBUS_SERVERS__NEO4J_PASSAGES="true",
        **SHORT,
    )
    made.start()
    root = write_topics(base / "crafts")
    write_skill(root, "kiln-firing", TOPICS["kiln-firing"], depends="bread-baking")
    write_skill(root, "star-charts", TOPICS["star-charts"], INSTALLED, depends="tide-tables")
    made.skillbus("sync", str(root))
    sent = base / "sundial" / "SKILL.md"
    sent.parent.mkdir()
    sent.write_text(UPLOAD, encoding="utf-8")
    made.skillbus("upload", str(sent.parent), "--source", "sent")
    asked = made.skillbus("query", TASK, "--format", "json").data
    made.skillbus("outcome", asked["query_id"], BEST, "helped")
    with made.backend() as backend:
        backend.submit(SkillRemoved(skill_id="crafts:map-projection"), "tests")
        backend.journal.add_dead_letter(LETTER)
    link = ("crafts:kiln-firing", "crafts:bread-baking", "dependency")
    made.skillbus("links", "dismiss", *link, "--reason", REASON)
    made.skillbus("sources", "groups", "sent", "makers")
    made.wait_done()
    wait_for(lambda: leftovers(made.settings) == NOTHING_LEFT)
    return made


def answer(deployment: Distributed, task: str) -> list[tuple[Any, ...]]:
    """Skills with probability and passages; none where no skill fits."""
    result = deployment.skillbus.start("query", task, "--format", "json").wait()
    assert result.code in (0, EXIT_NO_SKILL_HIT), result.err
    found = result.data
    assert found["degraded"] == []
    return [(one["skill_id"], one["probability"], one["passages"]) for one in found["skills"]]


def test_everything_is_restored_to_new_servers(library: Distributed, base: Path) -> None:
    tasks = [TOPICS[name] for name in ("kiln-firing", "map-projection", "star-charts")]
    answers = {task: answer(library, task) for task in tasks}
    folder = base / "monday"
    library.stop()
    before = stored(library)
    labels = run_cypher(library.settings.servers, "MATCH (n) RETURN DISTINCT labels(n)[0]")
    assert {label for (label,) in labels} == set(NODE_KEYS)
    library_backup(library, folder)
    assert "is not empty" in refused(library, folder)
    assert differing(stored(library), before) == []

    make_new(library)
    shutil.rmtree(base / "uploads")
    damaged = Path(shutil.copytree(folder, base / "damaged"))
    (damaged / "catalog.jsonl.gz").write_bytes(b"")
    assert "is damaged: catalog.jsonl.gz has changed" in refused(library, damaged)
    assert run_cypher(library.settings.servers, "MATCH (n) RETURN count(n)") == [[0]]

    assert "10 skills restored" in library.skillbus("restore", str(folder)).out
    assert differing(stored(library), before) == []
    library.start()
    assert "stop every worker" in refused(library, folder)
    assert {task: answer(library, task) for task in tasks} == answers
    assert answer(library, "set up a sundial")[0][0] == "sent:sundial"
    goes_on(library, base / "crafts")


def library_backup(library: Distributed, folder: Path) -> Path:
    """Back up; nothing may be missing in it."""
    report = library.skillbus("backup", str(folder), "--json").data
    assert (report["skills"], report["missing"]) == (10, 0)
    return folder


def refused(library: Distributed, folder: Path) -> str:
    return library.skillbus("restore", str(folder), code=2).err


def goes_on(library: Distributed, root: Path) -> None:
    """Changes are ingested, and what was removed or dismissed stays so."""
    write_skill(root, "tide-tables", "Read the moon instead")
    library.skillbus("sync", str(root))
    library.wait_done()
    with library.backend() as backend:
        [entry] = backend.graph.get_entries(["crafts:tide-tables"])
        assert entry.description == "Read the moon instead"
        assert [one.reason for one in backend.graph.list_dismissed_links()] == [REASON]
        assert backend.journal.list_dead_letters() == [LETTER]
    wait_for(lambda: leftovers(library.settings) == NOTHING_LEFT)


def test_a_backup_made_under_load_becomes_the_library_of_the_folder(
    deployments: Deployments, fork_server: ForkServer, base: Path
) -> None:
    """Skills change, and superseded revisions are deleted at once, while the backup is made."""
    library = deployments(**SHORT)
    library.start("ingest", REST)
    changing = Folder(base / "lib", SEED, size=20)
    library.skillbus("sync", str(changing.root), "--until", "searchable")
    stopping = threading.Event()

    def change() -> None:
        with library.backend() as backend:
            while not stopping.wait(0.1):
                changing.change(2)
                backend.submit(change_of(changing.root), "tests")

    thread = threading.Thread(target=change)
    thread.start()
    try:
        library.skillbus("backup", str(base / "tuesday"))
    finally:
        stopping.set()
        thread.join()
    library.stop()
    make_new(library)
    library.skillbus("restore", str(base / "tuesday"))
    library.start("ingest", REST)
    result = library.skillbus.start("sync", str(changing.root)).wait()
    embedded = Skillbus(fork_server, base / "embedded")
    assert embedded.start("sync", str(changing.root)).wait().code == result.code
    library.wait_done()
    assert not differences(library.settings, embedded.home)
    assert leftovers(library.settings)["missing"] == []
