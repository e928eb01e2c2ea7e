"""Tokens of an issuer at the gateway: a real issuer on loopback whose keys `serve` fetches."""

from __future__ import annotations

import json
import time
from collections.abc import Iterator
from dataclasses import dataclass

import httpx
import pytest

from deploy.stack.ports import free_port
from tests.support.program.program import ForkServer, Skillbus, wait_for
from tests.support.samples.library import write_topics
from tests.support.servers.issuer import AUDIENCE, Issuer, issuing

TASK = "fire stoneware in an electric kiln"


@dataclass
class Gateway:
    """A served library whose settings name an issuer."""

    skillbus: Skillbus
    issuer: Issuer
    client: httpx.Client

    def get(self, token: str, path: str = "/v1/skills") -> httpx.Response:
        return self.client.get(path, headers={"Authorization": f"Bearer {token}"})


@pytest.fixture(scope="module")
def gateway(fork_server: ForkServer, tmp_path_factory: pytest.TempPathFactory) -> Iterator[Gateway]:
    base = tmp_path_factory.mktemp("oidc")
    with issuing() as issuer:
        skillbus = Skillbus(
            fork_server,
            base / "home",
            SKILLBUS_OIDC__ISSUER=issuer.address,
            SKILLBUS_OIDC__AUDIENCE=AUDIENCE,
            SKILLBUS_OIDC__SCOPES='{"readers": "read", "team-a": "write", "admins": "admin"}',
            SKILLBUS_OIDC__SOURCES='{"team-a": ["a"]}',
            SKILLBUS_GATEWAY__BURST="100000",
        )
        skillbus("sync", str(write_topics(base / "crafts")))
        port = free_port()
        with (
            skillbus.serving("--listen", f"127.0.0.1:{port}"),
            httpx.Client(base_url=f"http://127.0.0.1:{port}", timeout=120) as client,
        ):
            wait_for(lambda: client.get("/healthz").is_success)
            yield Gateway(skillbus, issuer, client)


def test_the_values_of_a_token_are_its_scope(gateway: Gateway) -> None:
    read = {"Authorization": f"Bearer {gateway.issuer.token()}", "Prefer": "wait=60"}
    answer = gateway.client.post("/v1/queries", json={"task": TASK}, headers=read)
    assert answer.json()["bundle"]["status"] == "SKILL_HIT"
    place = f"/v1/queries/{answer.json()['id']}"
    assert gateway.get(gateway.issuer.token(), place).status_code == 200
    other = gateway.issuer.token(sub="bob")
    assert gateway.get(other, place).status_code == 404
    assert gateway.get(gateway.issuer.token(groups=["admins"]), "/v1/letters").status_code == 200
    assert gateway.get(gateway.issuer.token(), "/v1/letters").status_code == 403
    nothing = gateway.get(gateway.issuer.token(groups=["others"]))
    assert nothing.status_code == 403
    assert "grants a scope" in nothing.json()["detail"]


def test_a_value_may_be_limited_to_sources(gateway: Gateway) -> None:
    headers = {"Authorization": f"Bearer {gateway.issuer.token(groups=['team-a'])}"}
    skill = "---\nname: glaze-test\ndescription: Test a glaze on tiles\n---\n# Glaze\n\n1. Dip.\n"

    def upload(source: str) -> int:
        return gateway.client.post(
            "/v1/skills",
            params={"source": source, "path": "glaze-test"},
            content=skill,
            headers={**headers, "Content-Type": "text/markdown"},
        ).status_code

    assert upload("a") == 202
    assert upload("b") == 403
    event = {
        "specversion": "1.0",
        "type": "skillbus.source.removed.v1",
        "source": "x",
        "id": "1",
        "data": {"source_id": "crafts"},
    }
    for method, path, content in (
        ("DELETE", "/v1/sources/crafts", None),
        ("POST", "/v1/sources/crafts", None),
        ("DELETE", "/v1/skills/crafts:kiln-firing", None),
        ("POST", "/v1/events", json.dumps(event)),
    ):
        answer = gateway.client.request(
            method, path, content=content, headers={**headers, "Content-Type": "application/json"}
        )
        assert answer.status_code == 403, (path, answer.text)
        assert "may not change the source 'crafts'" in answer.json()["detail"]
    assert gateway.get(gateway.issuer.token(), "/v1/sources/crafts").status_code == 200


def test_what_is_not_valid_gets_no_detail(gateway: Gateway) -> None:
    issuer = gateway.issuer
    details = set()
    for token in (
        issuer.token(exp=time.time() - 60),
        issuer.token(aud="other"),
        issuer.token(headers={"kid": "unknown"}),
        "skb_unknown",
    ):
        answer = gateway.get(token)
        assert answer.status_code == 401
        assert answer.headers["WWW-Authenticate"] == 'Bearer realm="skillbus"'
        details.add(answer.json()["detail"])
    assert details == {"this token is unknown or expired"}
    assert gateway.client.get("/v1/skills").status_code == 401


def test_an_outage_stops_no_known_key_and_doctor_says_so(gateway: Gateway) -> None:
    assert gateway.get(gateway.issuer.token()).status_code == 200
    found = {row["check"]: row for row in gateway.skillbus("doctor", "--json").data}
    assert found["oidc"]["detail"] == f"1 key of {gateway.issuer.address}"
    gateway.issuer.is_down = True
    try:
        assert gateway.get(gateway.issuer.token()).status_code == 200
        found = {row["check"]: row for row in gateway.skillbus("doctor", "--json", code=1).data}
        assert found["oidc"]["state"] == "failed"
        assert "status 500" in found["oidc"]["detail"]
    finally:
        gateway.issuer.is_down = False


def test_tokens_of_skillbus_work_as_before(gateway: Gateway) -> None:
    own = gateway.skillbus("tokens", "add", "ci").out.strip()
    assert gateway.get(own).status_code == 200
    assert gateway.get(gateway.issuer.token()).status_code == 200
