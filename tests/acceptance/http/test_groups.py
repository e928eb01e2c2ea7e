"""Who sees what: every route and method, walked as readers who may not see some sources."""

from __future__ import annotations

from collections.abc import Iterator

import httpx
import pytest

from deploy.stack.ports import free_port
from tests.support.program.program import ForkServer, Skillbus, wait_for
from tests.support.servers.hidden_skills import (
    MARK,
    Walked,
    fill,
    walk_http,
    walk_mcp,
)
from tests.support.servers.id_forms import walk_id_forms, walk_uri_forms
from tests.support.servers.open_streams import check_lists_follow_groups

MARKDOWN = {"Content-Type": "text/markdown"}


@pytest.fixture(scope="module")
def walked(fork_server: ForkServer, tmp_path_factory: pytest.TempPathFactory) -> Iterator[Walked]:
    """`skillbus serve --listen` over a library with hidden sources, one of them made public."""
    base = tmp_path_factory.mktemp("groups")
    program = Skillbus(
        fork_server,
        base / "home",
        SKILLBUS_GATEWAY__BURST="100000",
        SKILLBUS_GATEWAY__WAIT_SECONDS="60",
        SKILLBUS_POLICY__PUBLIC=f'["crafts", "{MARK}vault"]',
    )
    fill(program, base, lambda: None)
    secrets = {
        name: program("tokens", "add", name, *options).out.strip()
        for name, options in (
            ("reader", ()),
            ("writer", ("--scope", "write", "--group", "hr")),
            ("insider", ("--group", "finance")),
            ("root", ("--scope", "admin")),
        )
    }
    port = free_port()
    headers = {"Authorization": f"Bearer {secrets['root']}"}
    with (
        program.serving("--listen", f"127.0.0.1:{port}"),
        httpx.Client(base_url=f"http://127.0.0.1:{port}", headers=headers, timeout=120) as admin,
    ):
        wait_for(lambda: admin.get("/healthz").is_success)
        yield Walked(f"http://127.0.0.1:{port}", secrets, admin, program, base)


def test_no_route_leaks(walked: Walked) -> None:
    walk_http(walked)
    assert len(walked.seen) > 300
    assert not walked.leaks, "\n".join(walked.leaks)


def test_no_tool_or_method_leaks(walked: Walked) -> None:
    walk_mcp(walked)
    assert not walked.leaks, "\n".join(walked.leaks)


def test_groups_are_set_shown_and_taken_back(walked: Walked) -> None:
    program, admin = walked.program, walked.admin
    assert program("sources", "groups", "annex").out == "annex: audit finance\n"
    listed = {row["source_id"]: row["groups"] for row in program("sources", "list", "--json").data}
    assert listed == {"crafts": [], "annex": ["audit", "finance"], f"{MARK}vault": ["finance"]}
    tokens = {row["name"]: row["groups"] for row in program("tokens", "list", "--json").data}
    assert tokens == {"reader": [], "writer": ["hr"], "insider": ["finance"], "root": []}
    with walked.client("reader") as reader:
        assert reader.get("/v1/sources/annex").status_code == 404
        shown = program("sources", "groups", "annex", "everyone", "--json").data
        assert shown == {"source_id": "annex", "groups": ["everyone"], "default": False}
        assert "groups" not in reader.get("/v1/sources/annex").json()
        put = admin.put("/v1/sources/annex/groups", json={"groups": ["hr"]})
        assert put.json() == {"groups": ["hr"]}
        assert admin.get("/v1/sources/annex").json()["groups"] == ["hr"]
        assert reader.get("/v1/sources/annex").status_code == 404
        with walked.client("writer") as writer:
            assert writer.get("/v1/sources/annex").status_code == 200
        program("sources", "groups", "annex", "--default")
        assert reader.get("/v1/sources/annex").status_code == 200
    assert "(access.default_groups)" in program("sources", "groups", "annex").out
    record = program("audit", "--action", "sources.groups", "--json").data
    assert {one["object"] for one in record} >= {"annex everyone", "annex hr", "annex --reset"}
    program("sources", "groups", "annex", "audit", "finance")


def test_what_cannot_be_a_group_is_refused(walked: Walked) -> None:
    assert "is not a group name" in walked.program("sources", "groups", "x", "a b", code=2).err
    assert "is not a group name" in walked.program("tokens", "add", "x", "--group", "*", code=2).err
    assert (
        "either groups or" in walked.program("sources", "groups", "x", "a", "--default", code=2).err
    )
    body = {"groups": ["a b"]}
    assert walked.admin.put("/v1/sources/x/groups", json=body).status_code == 422
    assert walked.admin.put("/v1/sources/x/groups", json={}).status_code == 422


def test_groups_of_a_source_that_is_not_there_are_said_to_protect_nothing(walked: Walked) -> None:
    program = walked.program
    for written in ("Annex", "anne\u0078\u0301"):
        said = program("sources", "groups", written, "finance").err
        assert f"no source {written!a} yet" in said
        assert "did you mean 'annex'?" in said
        assert program("sources", "groups", written, "--default").err == ""
        assert f"no source {written!a} yet" in program("sources", "groups", written).err
    assert program("sources", "groups", "annex", "audit", "finance").err == ""


def test_a_writer_reads_what_it_changes(walked: Walked) -> None:
    """A token may add sources, and change those that it sees; groups are given by admins."""
    skill = "---\nname: a\ndescription: A skill\n---\n# A\n"
    with walked.client("writer") as writer:
        where = {"source": f"{MARK}vault", "path": "a"}
        assert (
            writer.post("/v1/skills", params=where, content=skill, headers=MARKDOWN).status_code
            == 404
        )
        assert walked.admin.put("/v1/sources/team/groups", json={"groups": ["hr"]}).is_success
        where = {"source": "team", "path": "a"}
        accepted = writer.post("/v1/skills", params=where, content=skill, headers=MARKDOWN)
        assert accepted.status_code == 202
        place = accepted.headers["location"]
        wait_for(lambda: writer.get(place).json()["state"] == "done")
        assert writer.get("/v1/skills/team:a").status_code == 200
        new = {"source_id": "t2", "root": "/nowhere", "groups": ["hr"]}
        assert writer.post("/v1/sources", json=new).status_code == 403
    with walked.client("reader") as reader:
        assert reader.get("/v1/skills/team:a").status_code == 404


def test_no_form_of_an_id_or_uri_leaks(walked: Walked) -> None:
    walk_id_forms(walked)
    walk_uri_forms(walked)
    assert len(walked.seen) > 600
    assert not walked.leaks, "\n".join(walked.leaks)


def test_subscriptions_follow_groups(walked: Walked) -> None:
    check_lists_follow_groups(walked)
