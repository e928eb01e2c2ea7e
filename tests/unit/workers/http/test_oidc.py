"""Tokens of an issuer: which keys and which tokens are accepted, and the callers they stand for."""

from __future__ import annotations

import asyncio
import base64
import json
import string
import threading
import time
from collections.abc import Iterator
from pathlib import Path
from typing import Any

import jwt
import pytest
from hypothesis import given
from hypothesis import strategies as st
from starlette.exceptions import HTTPException

from config.errors import MisconfiguredError, TransientError
from config.inbound_settings import OidcSettings
from skills.access import UNRESTRICTED, Reader
from tests.support.servers.issuer import AUDIENCE, Issuer, issuing, make_key, public_jwk, public_pem
from workers.http.authentication import Caller
from workers.http.oidc.keys import KeyCache, VerificationKey, load_keys, parse_keys
from workers.http.oidc.verifier import OidcVerifier, make_caller, make_name, read_values
from workers.http.tokens import TokenScope

ASCII = string.ascii_letters + string.digits + "-_="
SCOPES: Any = {"readers": "read", "writers": "write", "team-a": "write", "admins": "admin"}


@pytest.fixture(scope="module")
def running() -> Iterator[Issuer]:
    with issuing() as issuer:
        for algorithm in ("ES256", "ES384", "EdDSA"):
            issuer.add_key(algorithm, algorithm)
        yield issuer


def make_settings(issuer: Issuer, **more: Any) -> OidcSettings:
    return OidcSettings(
        issuer=issuer.address,
        audience=AUDIENCE,
        scopes=SCOPES,
        sources={"team-a": ("a", "a2")},
        **more,
    )


def authenticate(settings: OidcSettings, *tokens: str) -> list[Caller | None]:
    async def run() -> list[Caller | None]:
        verifier = OidcVerifier(settings)
        return [await verifier.authenticate(token) for token in tokens]

    return asyncio.run(run())


@pytest.mark.parametrize(
    ("key_id", "algorithm"),
    [
        ("one", "RS256"),
        ("one", "RS512"),
        ("one", "PS256"),
        ("ES256", "ES256"),
        ("ES384", "ES384"),
        ("EdDSA", "EdDSA"),
    ],
)
def test_a_valid_token_is_its_subject(running: Issuer, key_id: str, algorithm: str) -> None:
    token = running.token(key_id, algorithm, groups=["writers", "other"], aud=["x", AUDIENCE])
    assert authenticate(make_settings(running), token) == [
        Caller("oidc:ana@example.org", TokenScope.WRITE, groups=frozenset({"writers", "other"}))
    ]


def encode(value: Any) -> str:
    data = value if isinstance(value, bytes) else json.dumps(value).encode()
    return base64.urlsafe_b64encode(data).rstrip(b"=").decode()


def refused_tokens(issuer: Issuer) -> dict[str, str]:
    now = time.time()
    valid = issuer.token()
    header, body, signature = valid.split(".")
    other = make_key("RS256")
    head = {"typ": "JWT", "kid": "one"}
    nothing = encode({**head, "alg": "none"})
    twice = b'{"alg": "none", "alg": "RS256", "kid": "one"}'
    return {
        "empty": "",
        "no token": "skb_not-a-token",
        "three empty parts": "..",
        "alg none": f"{nothing}.{body}.",
        "alg None": f"{encode({**head, 'alg': 'None'})}.{body}.{signature}",
        "alg none with a signature": f"{nothing}.{body}.{signature}",
        "alg missing": f"{encode(head)}.{body}.{signature}",
        "alg of another type": f"{encode({**head, 'alg': ['RS256']})}.{body}.{signature}",
        "HS256 with the public key": sign_with_secret(issuer, public_pem(issuer.keys["one"])),
        "HS256 with the key set": sign_with_secret(issuer, json.dumps(issuer.jwks[0]).encode()),
        "another key": issuer.token(key=other),
        "key of another id": issuer.token("ES256", "RS256", key=issuer.keys["one"]),
        "unknown id": issuer.token("one", headers={"kid": "two"}),
        "id of another type": f"{encode({**head, 'alg': 'RS256', 'kid': 1})}.{body}.{signature}",
        "key in the header": issuer.token(key=other, headers={"jwk": public_jwk("one", other)}),
        "key address in the header": issuer.token(key=other, headers={"jku": issuer.address}),
        "certificate in the header": issuer.token(key=other, headers={"x5c": ["MIIB"]}),
        "certificate address": issuer.token(key=other, headers={"x5u": issuer.address}),
        "id that is a path": sign_with_secret(issuer, b"", "../../../../dev/null"),
        "id that is a statement": sign_with_secret(issuer, b"x", "' UNION SELECT 'x"),
        "id with a null": issuer.token(headers={"kid": "one\0"}),
        "id in another case": issuer.token(headers={"kid": "ONE"}),
        "alg twice": f"{encode(twice)}.{body}.{signature}",
        "unencoded payload": issuer.token(headers={"b64": False, "crit": ["b64"]}),
        "JSON form": json.dumps({"payload": body, "protected": header, "signature": signature}),
        "critical header": issuer.token(headers={"crit": ["exp"]}),
        "another audience": issuer.token(aud="other"),
        "longer audience": issuer.token(aud=f"{AUDIENCE}.evil.example"),
        "audience in another case": issuer.token(aud=AUDIENCE.swapcase()),
        "audience of another type": issuer.token(aud={"x": AUDIENCE}),
        "no audience": issuer.token(aud=None),
        "another issuer": issuer.token(iss="https://other.example"),
        "issuer with a slash": issuer.token(iss=f"{issuer.address}/"),
        "no issuer": issuer.token(iss=None),
        "expired": issuer.token(exp=now - 60),
        "no expiry": issuer.token(exp=None),
        "expiry of another type": issuer.token(exp="soon"),
        "infinite expiry": issuer.token(exp=float("inf")),
        "not yet valid": issuer.token(nbf=now + 600),
        "from the future": issuer.token(iat=now + 600),
        "no subject": issuer.token(sub=None),
        "empty subject": issuer.token(sub=""),
        "changed body": f"{header}.{encode(issuer.claims(groups=['admins']))}.{signature}",
        "changed signature": f"{header}.{body}.{encode(b'x' * 256)}",
        "no signature": f"{header}.{body}.",
        "body is no object": jwt.api_jws.encode(b"[]", issuer.keys["one"], "RS256", {"kid": "one"}),
        "not base64": f"{header}.%%%.{signature}",
        "not ASCII": f"{valid}é",
        "nested deeply": f"{encode(b'[' * 10_000)}.{body}.{signature}",
        "huge": issuer.token(pad="x" * 20_000),
        "four parts": f"{valid}.x",
    }


def sign_with_secret(issuer: Issuer, secret: bytes, key_id: str = "one") -> str:
    """A token signed with what is public; PyJWT itself refuses to make one with a PEM."""
    import hashlib
    import hmac

    head = encode({"alg": "HS256", "typ": "JWT", "kid": key_id})
    signed = f"{head}.{encode(issuer.claims())}"
    return f"{signed}.{encode(hmac.new(secret, signed.encode(), hashlib.sha256).digest())}"


def test_every_other_token_is_refused(running: Issuer) -> None:
    tokens = refused_tokens(running)
    callers = authenticate(make_settings(running), running.token(), *tokens.values())
    assert callers.pop(0) is not None
    accepted = [name for name, caller in zip(tokens, callers, strict=True) if caller is not None]
    assert accepted == []


def test_any_text_is_refused() -> None:
    key = VerificationKey("one", None, frozenset({"RS256"}))
    cache = KeyCache(lambda: [key], 3600)
    cache.refresh("one", "RS256")
    settings = OidcSettings(issuer="https://x.example", audience="a", scopes=SCOPES)
    verifier = OidcVerifier(settings, cache)

    @given(
        st.text(max_size=200)
        | st.lists(st.text(ASCII, max_size=40), min_size=3, max_size=3).map(".".join)
    )
    def check(text: str) -> None:
        assert runner.run(verifier.authenticate(text)) is None

    with asyncio.Runner() as runner:
        check()


def test_an_unknown_id_leads_to_one_fetch_and_a_new_key_is_found() -> None:
    now = [1_000.0]
    fetched: list[list[VerificationKey]] = []
    published = [VerificationKey("old", 1, frozenset({"RS256"}))]

    def load() -> list[VerificationKey]:
        fetched.append(list(published))
        return published

    def ask(key_id: str) -> VerificationKey | None:
        if cache.is_due(key_id, "RS256"):
            cache.refresh(key_id, "RS256")
        return cache.find(key_id, "RS256")

    cache = KeyCache(load, 3600, lambda: now[0])
    assert ask("old") == published[0]
    for number in range(100):
        assert ask(f"unknown {number}") is None
    assert len(fetched) == 1
    published.append(VerificationKey("new", 2, frozenset({"RS256"})))
    now[0] += 31
    assert ask("new") == published[1]
    assert ask("old") == published[0]
    assert len(fetched) == 2
    del published[0]
    now[0] += 3601
    assert ask("old") is None
    assert ask("new") == published[0]
    assert len(fetched) == 3


def test_an_outage_does_not_stop_known_keys() -> None:
    now, is_down = [1_000.0], [False]
    key = VerificationKey("one", 1, frozenset({"RS256"}))
    tried = []

    def load() -> list[VerificationKey]:
        tried.append(now[0])
        if is_down[0]:
            raise TransientError("does not answer")
        return [key]

    cache = KeyCache(load, 100, lambda: now[0])
    cache.refresh("one", "RS256")
    is_down[0] = True
    for _ in range(10):
        now[0] += 101
        assert cache.is_due("one", "RS256")
        cache.refresh("one", "RS256")
        assert cache.find("one", "RS256") == key
        assert not cache.is_due("one", "RS256")
        assert not cache.is_due("unknown", "RS256")
    assert len(tried) == 11


def test_many_requests_at_the_start_wait_for_one_fetch() -> None:
    key = VerificationKey("one", 1, frozenset({"RS256"}))
    tried, may_end = [], threading.Event()

    def load() -> list[VerificationKey]:
        tried.append(1)
        may_end.wait(60)
        return [key]

    cache = KeyCache(load, 100)
    found: list[VerificationKey | None] = []

    def ask() -> None:
        cache.refresh("one", "RS256")
        found.append(cache.find("one", "RS256"))

    threads = [threading.Thread(target=ask) for _ in range(8)]
    for thread in threads:
        thread.start()
    may_end.set()
    for thread in threads:
        thread.join()
    assert found == [key] * 8
    assert len(tried) == 1


def test_a_request_with_a_new_key_waits_for_the_fetch_that_brings_it() -> None:
    """Also if another request has begun the fetch, and other keys are known."""
    old, new = (VerificationKey(one, 1, frozenset({"RS256"})) for one in ("old", "new"))
    now, may_end, began = [1_000.0], threading.Event(), threading.Event()

    def load() -> list[VerificationKey]:
        if now[0] == 1_000:
            return [old]
        began.set()
        assert may_end.wait(60)
        return [old, new]

    cache = KeyCache(load, 3600, lambda: now[0])
    cache.refresh("old", "RS256")
    now[0] += 31
    fetching = threading.Thread(target=cache.refresh, args=("new", "RS256"))
    fetching.start()
    assert began.wait(60)
    assert cache.is_due("new", "RS256")
    assert not cache.is_due("old", "RS256")
    may_end.set()
    cache.refresh("new", "RS256")
    assert cache.find("new", "RS256") == new
    fetching.join()
    assert not cache.is_due("unknown", "RS256")


@pytest.mark.parametrize("jwks", ["/nowhere/keys.json", "~no-such-user/keys.json", "\0"])
def test_without_any_key_tokens_cannot_be_checked(running: Issuer, jwks: str) -> None:
    settings = make_settings(running, jwks=jwks)
    with pytest.raises(HTTPException) as refused:
        authenticate(settings, running.token())
    assert refused.value.status_code == 503


def test_a_key_without_an_id_is_used_if_it_is_the_only_one() -> None:
    key, other = make_key("ES256"), make_key("ES256")
    row = {name: value for name, value in public_jwk("", key).items() if name != "kid"}
    cache = KeyCache(lambda: parse_keys({"keys": [row]}), 60)
    cache.refresh("", "ES256")
    assert cache.find("", "ES256") is not None
    assert cache.find("named", "ES256") is None
    both = KeyCache(lambda: parse_keys({"keys": [row, public_jwk("x", other)]}), 60)
    both.refresh("", "ES256")
    assert both.find("", "ES256") is None


def test_keys_that_are_not_for_tokens_are_left_out() -> None:
    key = make_key("RS256")
    rows: list[Any] = [
        public_jwk("encryption", key) | {"use": "enc"},
        public_jwk("signing only", key) | {"key_ops": ["sign"]},
        public_jwk("short", make_key("RS256", 1024)),
        public_jwk("symmetric algorithm", key) | {"alg": "HS256"},
        public_jwk("another kind", key) | {"alg": "ES256"},
        {"kty": "oct", "k": "c2VjcmV0", "kid": "secret"},
        {"kty": "EC", "crv": "secp256k1", "x": "AA", "y": "AA", "kid": "curve"},
        {"kty": "RSA", "n": "!", "e": "AQAB", "kid": "broken"},
        {"kty": "RSA", "kid": 7},
        "text",
        None,
    ]
    with pytest.raises(MisconfiguredError, match="no public key"):
        parse_keys({"keys": rows})
    kept = parse_keys({"keys": [*rows, public_jwk("good", key, alg="RS256")]})
    assert [(one.key_id, one.algorithms) for one in kept] == [("good", frozenset({"RS256"}))]
    wrongs: tuple[object, ...] = ({}, [], None, {"keys": {}}, "text")
    for wrong in wrongs:
        with pytest.raises(MisconfiguredError, match="not a JSON Web Key Set"):
            parse_keys(wrong)


JSON = st.recursive(
    st.none() | st.booleans() | st.integers() | st.text(max_size=8),
    lambda inner: (
        st.lists(inner, max_size=3) | st.dictionaries(st.text(max_size=4), inner, max_size=3)
    ),
    max_leaves=6,
)
MEMBERS = ("kty", "kid", "use", "alg", "key_ops", "crv", "n", "e", "x", "y")
KINDS = st.sampled_from(["RSA", "EC", "OKP", "oct", "P-256", "Ed25519", "AQAB", "sig", "RS256"])


@given(st.lists(st.dictionaries(st.sampled_from(MEMBERS), KINDS | JSON), max_size=4))
def test_any_key_set_is_read_or_refused(rows: list[Any]) -> None:
    try:
        keys = parse_keys({"keys": rows})
    except MisconfiguredError:
        return
    assert all(key.algorithms for key in keys)


def test_keys_come_from_discovery_an_address_or_a_file(running: Issuer, tmp_path: Path) -> None:
    file = tmp_path / "keys.json"
    file.write_text(json.dumps({"keys": running.jwks}))
    for place in ("", f"{running.address}/keys", str(file)):
        assert len(load_keys(make_settings(running, jwks=place))) == 4
    file.write_text("{")
    with pytest.raises(MisconfiguredError, match="is not JSON"):
        load_keys(make_settings(running, jwks=str(file)))
    with pytest.raises(TransientError, match="status 404"):
        load_keys(make_settings(running, jwks=f"{running.address}/other"))
    with pytest.raises(TransientError, match="does not answer"):
        load_keys(make_settings(running, jwks="http://127.0.0.1:1/keys"))
    wrong = make_settings(running).model_copy(update={"issuer": f"{running.address}/"})
    with pytest.raises(MisconfiguredError, match=r"is not oidc\.issuer"):
        load_keys(wrong)


@pytest.mark.parametrize(
    ("groups", "scope", "sources"),
    [
        (["readers"], TokenScope.READ, None),
        (["team-a"], TokenScope.WRITE, {"a", "a2"}),
        (["readers", "team-a"], TokenScope.WRITE, {"a", "a2"}),
        (["team-a", "writers"], TokenScope.WRITE, None),
        (["team-a", "admins"], TokenScope.ADMIN, None),
        ("openid readers", TokenScope.READ, None),
    ],
)
def test_values_of_the_claim_grant_scopes_and_sources(
    running: Issuer, groups: Any, scope: TokenScope, sources: set[str] | None
) -> None:
    caller = make_caller(make_settings(running), {"sub": "x", "groups": groups})
    limited = None if sources is None else frozenset(sources)
    own = frozenset(groups.split() if isinstance(groups, str) else groups)
    assert caller == Caller("oidc:x", scope, limited, own)


def test_all_values_that_can_be_groups_are_those_with_which_a_token_reads(running: Issuer) -> None:
    claims = {"sub": "x", "groups": ["readers", "finance", "not a group", "*", "", "x" * 101]}
    caller = make_caller(make_settings(running), claims)
    assert caller.reader == Reader.of(["readers", "finance"])
    admin = make_caller(make_settings(running), {"sub": "x", "groups": ["admins"]})
    assert admin.reader == UNRESTRICTED


def test_a_token_without_a_known_value_grants_nothing(running: Issuer) -> None:
    for groups in ([], ["other"], None, 7, {"readers": True}, [["readers"]]):
        with pytest.raises(HTTPException) as refused:
            make_caller(make_settings(running), {"sub": "x", "groups": groups})
        assert refused.value.status_code == 403


def test_a_claim_may_be_in_another_one() -> None:
    claims = {"realm_access": {"roles": ["a"]}, "https://x.example/groups": ["b"], "scope": "c d"}
    assert read_values(claims, "realm_access.roles") == ["a"]
    assert read_values(claims, "https://x.example/groups") == ["b"]
    assert read_values(claims, "scope") == ["c", "d"]
    assert read_values(claims, "scope.x") == []


@given(st.text(min_size=1, max_size=300))
def test_a_name_can_own_events_and_is_no_name_of_a_token(subject: str) -> None:
    from skills.events import GATEWAY_SOURCE, QueryAsked, new_event, replace_origin

    name = make_name(subject)
    event = replace_origin(new_event(QueryAsked(task="x"), GATEWAY_SOURCE), name, UNRESTRICTED)
    assert event.owner == name
    assert ":" in name  # tokens have none in theirs


@pytest.mark.parametrize(
    "values",
    [
        {"issuer": "http://issuer.example", "audience": "a", "scopes": {"x": "read"}},
        {"issuer": "issuer", "audience": "a", "scopes": {"x": "read"}},
        {"issuer": "https://x.example", "scopes": {"x": "read"}},
        {"issuer": "https://x.example", "audience": "a"},
        {"issuer": "https://x.example", "audience": "a", "scopes": {"x": "root"}},
        {
            "issuer": "https://x.example",
            "audience": "a",
            "scopes": {"x": "admin"},
            "sources": {"x": ["s"]},
        },
        {"jwks": "ftp://x.example/keys"},
        {"jwks": "http://[::1/keys"},
    ],
)
def test_settings_that_are_not_complete_or_not_safe_are_refused(values: dict[str, Any]) -> None:
    with pytest.raises(ValueError, match=r"issuer|https|audience|scopes|sources|read"):
        OidcSettings.model_validate(values)
