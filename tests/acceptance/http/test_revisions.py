"""Revisions of skills over HTTP."""

from __future__ import annotations

from collections.abc import Iterator

import httpx
import pytest

from tests.support.program.program import ForkServer, Skillbus, wait_for
from tests.support.samples.library import write_skill, write_topics

KILN = "/v1/skills/crafts:kiln-firing"


@pytest.fixture(scope="module")
def skillbus(fork_server: ForkServer, tmp_path_factory: pytest.TempPathFactory) -> Skillbus:
    return Skillbus(fork_server, tmp_path_factory.mktemp("revisions") / "home")


@pytest.fixture(scope="module")
def client(skillbus: Skillbus) -> Iterator[httpx.Client]:
    base = skillbus.home.parent
    root = write_topics(base / "crafts")
    with skillbus.serving(), skillbus.client() as opened:
        for number in range(4):
            body = "# Kiln\n\n" + "\n".join(f"Line {n} of {number}." for n in range(30))
            write_skill(root, "kiln-firing", body=body)
            skillbus("sync", str(root), "--until", "words")
        write_skill(base / "tools", "notes")
        write_skill(base / "tools", "notes/revisions")
        (base / "tools" / "broken").mkdir()
        (base / "tools" / "broken" / "SKILL.md").write_bytes(b"")
        skillbus("sync", str(base / "tools"), "--until", "words", code=4)
        yield opened


def test_revisions_are_listed_in_pages(client: httpx.Client) -> None:
    everything = client.get(f"{KILN}/revisions").json()
    assert everything["next"] is None
    assert [one["state"] for one in everything["revisions"]] == ["published", *["superseded"] * 3]
    paged, path = [], f"{KILN}/revisions?limit=3"
    while path:
        page = client.get(path).json()
        paged += page["revisions"]
        path = page["next"]
    assert paged == everything["revisions"]


def test_a_revision_has_its_text(client: httpx.Client) -> None:
    oldest = client.get(f"{KILN}/revisions").json()["revisions"][-1]
    detail = client.get(f"{KILN}/revisions/{oldest['seq']}").json()
    assert "Line 7 of 0." in detail["text"]
    assert detail["safety"] == []
    assert detail.items() >= oldest.items()


def test_a_diff_comes_in_pages(client: httpx.Client) -> None:
    revisions = client.get(f"{KILN}/revisions").json()["revisions"]
    seqs = [one["seq"] for one in revisions]
    whole = client.get(f"{KILN}/revisions/diff").json()
    assert (whole["from"], whole["to"], whole["next"]) == (seqs[1], seqs[0], None)
    assert (whole["added_lines"], whole["removed_lines"]) == (30, 30)
    lines, path = [], f"{KILN}/revisions/diff?limit=25"
    while path:
        page = client.get(path).json()
        assert len(page["diff"]) <= 25
        lines += page["diff"]
        path = page["next"]
    assert lines == whole["diff"]
    first = client.get(f"{KILN}/revisions/diff", params={"from": seqs[3], "to": seqs[2]}).json()
    assert "-Line 0 of 0." in first["diff"]


@pytest.mark.parametrize(
    ("path", "status"),
    [
        ("/v1/skills/crafts:none/revisions", 404),
        (f"{KILN}/revisions/999999", 404),
        (f"{KILN}/revisions/diff?from=999999", 404),
        ("/v1/skills/crafts:tide-tables/revisions/diff", 400),
        ("/v1/skills/tools:broken/revisions/diff", 400),
        ("/v1/review/tools:broken", 400),
    ],
)
def test_what_is_not_there_is_refused(client: httpx.Client, path: str, status: int) -> None:
    response = client.get(path)
    assert response.status_code == status
    assert response.headers["content-type"] == "application/problem+json"


def test_a_skill_of_that_id_is_shown(client: httpx.Client) -> None:
    skill = client.get("/v1/skills/tools:notes/revisions").json()
    assert (skill["skill_id"], skill["name"]) == ("tools:notes/revisions", "revisions")
    assert len(client.get("/v1/skills/tools:notes/revisions/revisions").json()["revisions"]) == 1


def test_a_skill_of_that_id_is_removed_and_no_other_one_purged(
    client: httpx.Client, skillbus: Skillbus
) -> None:
    refused = skillbus("skills", "purge", "tools:notes", "--yes", code=2)
    assert "'tools:notes/revisions' is a skill" in refused.err
    assert client.get("/v1/skills/tools:notes/revisions").json()["state"] == "published"
    accepted = client.delete("/v1/skills/tools:notes/revisions")
    assert accepted.status_code == 202
    location = accepted.headers["Location"]
    wait_for(lambda: client.get(location).json()["state"] == "done")
    assert client.get("/v1/skills/tools:notes/revisions").json()["state"] == "removed"
    assert client.get("/v1/skills/tools:notes").json()["state"] == "published"
    audit = ("audit", "--object", "tools:notes/revisions", "--outcome", "done", "--json")
    assert [one["action"] for one in skillbus(*audit).data] == ["skills.remove"]
    # Not exactly 1: `sync` and the watcher of its folder may publish the same content at once.
    assert client.delete("/v1/skills/tools:notes/revisions/revisions").json()["revisions"] >= 1
