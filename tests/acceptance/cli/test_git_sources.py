"""`skillbus sources add`: a repository in, and kept in step."""

from __future__ import annotations

from collections.abc import Iterator
from contextlib import closing
from pathlib import Path

import pytest

from graph.local.store import SqliteSkillGraph
from tests.support.program.program import Skillbus
from tests.support.program.secrecy import made_up
from tests.support.program.traces import find_traces
from tests.support.samples.library import write_skill
from tests.support.servers.git_remote import PushedRepository, served_over_http

PRIVATE = '[git]\nprotocols = ["http"]\nallow_private = true\n'


@pytest.fixture
def remote(tmp_path: Path) -> PushedRepository:
    made = PushedRepository(tmp_path / "remotes", "crafts")
    write_skill(made.tree / "skills", "kiln-firing", "Glaze and fire stoneware in a kiln")
    write_skill(made.tree / "skills", "tide-tables", "Read tide tables for a harbour")
    made.push()
    return made


@pytest.fixture
def address(remote: PushedRepository, skillbus: Skillbus) -> Iterator[str]:
    skillbus.home.mkdir(exist_ok=True)
    (skillbus.home / "skillbus.toml").write_text(PRIVATE)
    with served_over_http(remote.bare.parent) as root:
        yield f"{root}/crafts.git"


def test_a_repository_is_followed(
    skillbus: Skillbus, remote: PushedRepository, address: str
) -> None:
    login = skillbus.home / "credentials" / "team"
    login.parent.mkdir()
    login.write_text(made_up("token"))
    add = ("sources", "add", address, "--path", "skills", "--credential-file", str(login))
    added = skillbus(*add, "--json").data
    assert (added["source"], added["found"], added["changed"]) == ("crafts", 2, 2)
    assert skillbus.chosen("glaze stoneware in a kiln")[0] == "crafts:kiln-firing"
    (listed,) = skillbus("sources", "list", "--json").data
    assert (listed["kind"], listed["path"], listed["published"]) == ("git", "skills", 2)
    assert listed["commit"] == remote.git("rev-parse", "HEAD")
    assert listed["lag_seconds"] < 60
    with closing(SqliteSkillGraph(skillbus.home / "graph.db", writable=False)) as graph:
        assert graph.list_sources()[0].credential_file == "team"
    assert address in skillbus("sources", "list").out
    remote.git("mv", "skills/tide-tables", "skills/tides")
    remote.push()
    again = skillbus("sources", "refresh", "crafts", "--json").data
    assert (again["found"], again["changed"], again["removed"]) == (2, 1, 1)
    assert set(skillbus.skills()) >= {"crafts:tides", "crafts:kiln-firing"}
    assert "last synced" in skillbus("status").out
    remote.bare.rename(remote.bare.parent / "away.git")
    assert "no repository" in skillbus("sources", "refresh", "crafts", code=1).err
    assert "no repository" in skillbus("status").out
    assert "no repository" in skillbus("sources", "list").out
    assert skillbus.chosen("glaze stoneware in a kiln")[0] == "crafts:kiln-firing"


@pytest.mark.parametrize(
    ("url", "said"),
    [
        ("--upload-pack=touch", "No such option"),
        ("git@example.org:team/skills.git", "SSH is not supported"),
        (f"https://user:{made_up('x')}@example.org/x.git", "must not hold a name or password"),
    ],
)
def test_addresses_that_are_refused(skillbus: Skillbus, url: str, said: str) -> None:
    error = skillbus("sources", "add", url, code=2).err
    assert said in error
    assert made_up("x") not in error


def test_a_purge_needs_the_repository_without_the_skill(
    skillbus: Skillbus, remote: PushedRepository, address: str
) -> None:
    write_skill(remote.tree / "skills", "tide-tables", "Read the quixzotter tables")
    remote.push()
    skillbus("sources", "add", address, "--path", "skills")
    refused = skillbus("skills", "purge", "crafts:tide-tables", "--yes", code=2)
    assert "still has tide-tables" in refused.err
    assert skillbus.skills()["crafts:tide-tables"]["state"] == "published"
    remote.git("rm", "-r", "-q", "skills/tide-tables")
    remote.push()
    skillbus("sources", "refresh", "crafts")
    assert find_traces(skillbus.home, ["quixzotter"])
    report = skillbus("skills", "purge", "crafts:tide-tables", "--yes", "--json").data
    assert report["comes_back"] == ""
    assert find_traces(skillbus.home, ["quixzotter"]) == []
    skillbus("sources", "refresh", "crafts")
    assert find_traces(skillbus.home, ["quixzotter"]) == []
    assert skillbus.chosen("glaze stoneware in a kiln")[0] == "crafts:kiln-firing"
