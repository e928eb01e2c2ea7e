"""Deliveries of repository hosts: who sent one, and what it says."""

from __future__ import annotations

import json
import time
from dataclasses import replace
from pathlib import Path
from typing import Any

import pytest
from hypothesis import given, settings
from hypothesis import strategies as st

from config.errors import MisconfiguredError
from config.inbound_settings import WebhookSettings
from graph.records import Source
from tests.support.servers.webhooks import (
    NEW,
    NONE,
    OLD,
    SECRET,
    SENDERS,
    SIGNING,
    Sender,
    gitea,
    gitea_push,
    github,
    github_push,
    gitlab,
    gitlab_push,
)
from workers.webhooks.delivery import Delivery, DeliveryError
from workers.webhooks.payloads import parse_payload
from workers.webhooks.repository_urls import normalise_url
from workers.webhooks.secrets import Secret, check_secrets, read_secrets
from workers.webhooks.signatures import verify_signature
from workers.webhooks.sources import find_followers, follows_branch


@pytest.fixture(params=list(SENDERS))
def signed(request: pytest.FixtureRequest) -> tuple[Delivery, str]:
    """A push of each host, and its secret."""
    send, push, secret = SENDERS[request.param]
    return send(push(), secret), secret


def refused(status: int, delivery: Delivery, *secrets: str) -> str:
    with pytest.raises(DeliveryError) as caught:
        verify_signature(delivery, [Secret(secret) for secret in secrets])
    assert caught.value.status == status
    return str(caught.value)


def changed(delivery: Delivery, **headers: str | None) -> Delivery:
    """With headers replaced, or without those that are None."""
    named = {name.replace("_", "-"): value for name, value in headers.items()}
    kept = {**delivery.headers, **named}
    return replace(delivery, headers={k: v for k, v in kept.items() if v is not None})


# -- signatures


def test_the_example_that_github_documents() -> None:
    signature = "sha256=757107ea0eb2509fc211221cce984b8a37570b6d7586c22c46f4379c8b043e17"
    delivery = Delivery("github", {"x-hub-signature-256": signature}, b"Hello, World!")
    assert verify_signature(delivery, [Secret("It's a Secret to Everybody")]).sources is None
    refused(401, delivery, "It's a secret to everybody")


def test_the_example_of_standard_webhooks() -> None:
    delivery = Delivery(
        "gitlab",
        {
            "webhook-id": "msg_p5jXN8AQM9LWM0D4loKWxJek",
            "webhook-timestamp": "1614265330",
            "webhook-signature": "v1,g0hM9SsE+OTPJTGt/tmIKtSyZlE3uFJELVlNIOLJ1OE=",
        },
        b'{"test": 2432232314}',
    )
    verification = verify_signature(delivery, [Secret("whsec_MfKQ9r8GKYqrTwjUPD8ILPZIo2LaLaSw")])
    assert verification.sent_at == 1614265330
    other = changed(delivery, webhook_timestamp="1614265331")
    refused(401, other, "whsec_MfKQ9r8GKYqrTwjUPD8ILPZIo2LaLaSw")


def test_the_second_test_case_of_rfc_4231() -> None:
    """HMAC-SHA-256 itself, as Gitea sends it."""
    signature = "5bdcc146bf60754e6a042426089575c75a003f089d2739839dec58b964ec3843"
    body = b"what do ya want for nothing?"
    for header in ("x-gitea-signature", "x-forgejo-signature"):
        assert verify_signature(Delivery("gitea", {header: signature}, body), [Secret("Jefe")])


def test_a_secret_that_is_known_is_enough(signed: tuple[Delivery, str]) -> None:
    delivery, secret = signed
    for secrets in ([secret], ["older", secret], [secret, "newer"]):
        assert verify_signature(delivery, [Secret(one) for one in secrets]).sources is None


def test_another_secret_another_body_or_no_signature_is_refused(
    signed: tuple[Delivery, str],
) -> None:
    delivery, secret = signed
    refused(401, delivery, "other", "whsec_b3RoZXI=", secret + "x" if len(secret) < 9 else "x")
    refused(401, delivery)
    if "x-gitlab-token" not in delivery.headers:  # a token signs nothing
        refused(401, replace(delivery, body=delivery.body + b" "), secret)
        refused(401, replace(delivery, body=delivery.body.replace(b"main", b"Main")), secret)
    for name in ("x-hub-signature-256", "x-gitea-signature", "x-gitlab-token", "webhook-signature"):
        if name in delivery.headers:
            for value in (None, "", "sha256=", "v1,", "\xff\xfe", "a" * 10_000, "密"):
                refused(401, changed(delivery, **{name: value}), secret)


def test_a_weaker_or_unprefixed_signature_of_github_is_refused() -> None:
    delivery = github(github_push(), SECRET)
    bare = delivery.headers["x-hub-signature-256"].removeprefix("sha256=")
    for value in (bare, f"sha1={bare}", f"SHA256={bare}", f"sha256={bare.upper()}"):
        refused(401, changed(delivery, x_hub_signature_256=value), SECRET)


def test_a_bad_signature_of_forgejo_is_not_made_good_by_the_other_header() -> None:
    delivery = gitea(gitea_push(), SECRET, brand="forgejo")
    good = delivery.headers["x-forgejo-signature"]
    assert verify_signature(delivery, [Secret(SECRET)])
    worse = changed(delivery, x_forgejo_signature="0" * 64, x_gitea_signature=good)
    refused(401, worse, SECRET)


def test_what_comes_again_has_the_same_identity_whatever_is_unsigned() -> None:
    for send, push in ((github, github_push), (gitea, gitea_push)):
        first = send(push(), SECRET)
        again = replace(first, headers={**first.headers, "x-github-delivery": "other"})
        other = send(push(after="3d" * 20), SECRET)
        identities = [
            verify_signature(one, [Secret(SECRET)]).replay_key for one in (first, again, other)
        ]
        assert identities[0] == identities[1] != identities[2]


def test_a_retry_of_gitlab_has_the_same_identity() -> None:
    for secret in (SECRET, SIGNING):
        now = int(time.time())
        times = [{"webhook_timestamp": str(now + late)} for late in (0, 9)]
        keys = {"idempotency_key": "key-1"}
        sent: list[dict[str, Any]] = [keys | (when if secret is SIGNING else {}) for when in times]
        retries = [gitlab(gitlab_push(), secret, **headers) for headers in sent]
        assert len({verify_signature(one, [Secret(secret)]).replay_key for one in retries}) == 1


def test_gitlab_without_an_id_is_refused() -> None:
    delivery = changed(gitlab(gitlab_push(), SECRET), idempotency_key=None)
    assert "Idempotency-Key" in refused(400, delivery, SECRET)
    older = changed(delivery, x_gitlab_event_uuid="0a1b")
    newest = replace(older, body=older.body + b" ")
    identities = {
        verify_signature(one, [Secret(SECRET)]).replay_key for one in (older, older, newest)
    }
    assert len(identities) == 2


def test_a_signing_token_is_never_taken_as_a_plain_one() -> None:
    delivery = gitlab(gitlab_push(), SECRET, x_gitlab_token=SIGNING)
    refused(401, delivery, SIGNING)


def test_a_signature_is_asked_for_where_both_are_known() -> None:
    """A hook that has both sends both: then the stronger counts."""
    delivery = gitlab(gitlab_push(), SIGNING, x_gitlab_token=SECRET)
    assert verify_signature(delivery, [Secret(SECRET), Secret(SIGNING)]).sent_at is not None
    forged = replace(delivery, body=b"{}")
    refused(401, forged, SECRET, SIGNING)


def test_a_secret_counts_for_its_source_alone() -> None:
    delivery = github(github_push(), "of-team")
    secrets = [Secret("of-all"), Secret("of-team", "team"), Secret("of-team", "guild")]
    assert verify_signature(delivery, secrets).sources == frozenset({"team", "guild"})


def test_secrets_are_read_from_files_and_never_shown(tmp_path: Path) -> None:
    for name in ("one", "two"):
        (tmp_path / name).write_text(f"the-{name}\n")
    named = WebhookSettings(github=(tmp_path / "one",), sources={"team": (tmp_path / "two",)})
    found = read_secrets(named, "github")
    assert [(one.text, one.source_id) for one in found] == [("the-one", ""), ("the-two", "team")]
    assert "the-" not in repr(found)
    assert [one.source_id for one in read_secrets(named, "gitea")] == ["team"]
    (tmp_path / "one").write_text(" \n")
    with pytest.raises(MisconfiguredError, match=r"webhooks\.github: .*empty"):
        read_secrets(named, "github")
    (tmp_path / "two").unlink()
    with pytest.raises(MisconfiguredError, match=r"webhooks\.sources\.team: "):
        read_secrets(named, "gitlab")


@pytest.mark.parametrize("token", ["whsec_not base64!", "whsec_"])
def test_a_signing_token_that_is_none_is_the_operators_mistake(tmp_path: Path, token: str) -> None:
    (tmp_path / "token").write_text(token)
    with pytest.raises(MisconfiguredError, match="base64"):
        check_secrets(WebhookSettings(gitlab=(tmp_path / "token",)))
    with pytest.raises(MisconfiguredError, match="base64"):
        verify_signature(gitlab(gitlab_push(), SIGNING), [Secret(token)])


# -- content


def test_a_push_is_read_alike_from_every_host(signed: tuple[Delivery, str]) -> None:
    payload = parse_payload(signed[0])
    assert payload.event == "push"
    assert payload.repositories == {"git.example/crafts/skills"}
    assert payload.default_branch == "main"
    push = payload.push
    assert push is not None
    assert (push.ref, push.branch, push.before, push.after) == ("refs/heads/main", "main", OLD, NEW)
    assert (push.pushed_at is None) == (signed[0].host != "github")


@pytest.mark.parametrize(("send", "push"), [(github, github_push), (gitea, gitea_push)])
def test_a_push_in_a_form(send: Sender, push: Any) -> None:
    content = push(ref="refs/heads/größer & mehr=1")
    payload = parse_payload(send(content, SECRET, form=True))
    assert payload.push is not None
    assert payload.push.branch == "größer & mehr=1"


@pytest.mark.parametrize("name", list(SENDERS))
def test_branches_that_come_and_go_and_tags(name: str) -> None:
    send, push, secret = SENDERS[name]
    gone = parse_payload(send(push(after=NONE, deleted=True), secret)).push
    made = parse_payload(send(push(before=NONE, created=True), secret)).push
    tag = parse_payload(send(push(ref="refs/tags/v1"), secret)).push
    assert gone is not None
    assert made is not None
    assert tag is not None
    assert gone.after == ""
    assert (made.before, made.after) == ("", NEW)
    assert tag.branch == ""


def test_other_events_are_no_push() -> None:
    for delivery in (
        github({"zen": "less", "repository": {}}, "s", event="ping"),
        github(github_push(), "s", event="delete"),
        gitlab(gitlab_push(), "s", event="Tag Push Hook"),
        gitea({}, "s", event="issues"),
    ):
        assert parse_payload(delivery).push is None


@pytest.mark.parametrize(
    ("status", "body", "headers"),
    [
        (400, b"{}", {"x-github-event": None}),
        (400, b"{}", {"x-github-event": "a\nb"}),
        (415, b"{}", {"content-type": None}),
        (415, b"{}", {"content-type": "text/plain"}),
        (422, b"{}", {"content-type": "application/x-www-form-urlencoded"}),
        (422, b"payload=1&payload=2", {"content-type": "application/x-www-form-urlencoded"}),
        (422, b"payload=%ff", {"content-type": "application/x-www-form-urlencoded"}),
        (422, b"\xff", {"content-type": "application/x-www-form-urlencoded"}),
        (422, b"a=1&" * 100, {"content-type": "application/x-www-form-urlencoded"}),
        (422, b"", {}),
        (422, b"{", {}),
        (422, b"[]", {}),
        (422, b"null", {}),
        (422, b"\xff\xfe", {}),
        (422, b'{"a":' * 100_000, {}),
        (422, b"9" * 10_000, {}),
        (422, b"{}", {}),
        (422, b'{"repository": []}', {}),
        (422, b'{"repository": {}, "ref": 1, "after": {}}', {}),
        (422, b'{"repository": {}, "ref": "refs/heads/main"}', {}),
        (422, b'{"repository": {}, "ref": "refs/heads/main", "after": "HEAD\\n"}', {}),
    ],
)
def test_what_cannot_be_read(status: int, body: bytes, headers: dict[str, str | None]) -> None:
    delivery = replace(changed(github(github_push(), "s"), **headers), body=body)
    with pytest.raises(DeliveryError) as caught:
        parse_payload(delivery)
    assert caught.value.status == status


def test_ids_that_could_not_be_shown_are_none() -> None:
    delivery = github(github_push(), "s")
    assert delivery.id == delivery.headers["x-github-delivery"]
    for value in ("", "a b", "a\nb", "x" * 101, "\x1b[31m"):
        assert changed(delivery, x_github_delivery=value).id == ""


# -- repositories and sources


@pytest.mark.parametrize(
    "address",
    [
        "https://git.example/Crafts/Skills",
        "https://git.example/crafts/skills.git",
        "https://Git.Example./crafts/skills.git/",
        "https://git.example:443/crafts/skills",
        "https://ana:token@git.example/crafts/skills.git",
        "http://git.example:80//crafts/skills.git",
        "ssh://git@git.example/crafts/skills.git",
        "ssh://git@git.example:22/crafts/skills",
        "git@git.example:crafts/skills.git",
        "git@git.example:/crafts/skills.git",
        "git.example:crafts/skills",
        "git://git.example:9418/crafts/skills.git",
        "https://git.example/crafts/%73kills.git",
    ],
)
def test_one_repository_however_it_is_written(address: str) -> None:
    assert normalise_url(address) == "git.example/crafts/skills"


@pytest.mark.parametrize(
    ("address", "form"),
    [
        ("https://git.example:8443/a.git", "git.example:8443/a"),
        ("http://[::1]:3000/a/b.git", "[::1]:3000/a/b"),
        ("http://127.0.0.1:3000/a", "127.0.0.1:3000/a"),
        ("https://git.example/", ""),
        ("https:///a", ""),
        ("file:///srv/a.git", ""),
        ("ext::sh -c true", ""),
        ("--upload-pack=true", ""),
        ("https://git.example:nine/a", ""),
        ("https://[::1/a", ""),
        ("/srv/a", ""),
        ("", ""),
        ("https://git.example/" + "a" * 3000, ""),
    ],
)
def test_other_repositories_and_what_is_none(address: str, form: str) -> None:
    assert normalise_url(address) == form


def sources(*addresses: str, kind: str = "git") -> list[Source]:
    return [Source(f"s{number}", kind, root) for number, root in enumerate(addresses)]


def test_sources_are_found_by_any_address_of_the_repository() -> None:
    payload = parse_payload(github(github_push(), "s"))
    known = sources(
        "https://git.example/crafts/skills",
        "git@git.example:crafts/skills.git",
        "https://git.example/crafts/others",
        "https://elsewhere.example/crafts/skills",
    )
    found = find_followers(known, WebhookSettings(), None, payload)
    assert [one.source_id for one in found] == ["s0", "s1"]
    assert (
        find_followers(sources("/srv/skills", kind="directory"), WebhookSettings(), None, payload)
        == []
    )
    assert [
        one.source_id
        for one in find_followers(known, WebhookSettings(), frozenset({"s1"}), payload)
    ] == ["s1"]


@pytest.mark.parametrize(
    ("follows", "pushed", "default", "taken"),
    [
        ("main", "refs/heads/main", "main", True),
        ("main", "refs/heads/draft", "main", False),
        ("draft", "refs/heads/draft", "main", True),
        ("", "refs/heads/main", "main", True),
        ("", "refs/heads/draft", "main", False),
        ("", "refs/heads/draft", None, True),
        ("main", "refs/tags/main", "main", False),
        ("main", "refs/heads/Main", "main", False),
        ("a/b", "refs/heads/a/b", "main", True),
    ],
)
def test_branches_that_a_source_follows(
    follows: str, pushed: str, default: str | None, taken: bool
) -> None:
    content = github_push(ref=pushed, repository={"default_branch": default})
    payload = parse_payload(github(content, "s"))
    source = Source("s", "git", "https://git.example/crafts/skills", branch=follows)
    (found,) = find_followers([source], WebhookSettings(), None, payload)
    assert follows_branch(found, payload) == taken


def test_settings_can_keep_to_some_repositories() -> None:
    payload = parse_payload(github(github_push(), "s"))
    known = sources("https://git.example/crafts/skills")
    for addresses, count in (
        (("git@git.example:Crafts/skills",), 1),
        (("https://git.example/crafts/other", "not an address"), 0),
        (("not an address",), 0),
    ):
        assert (
            len(find_followers(known, WebhookSettings(repositories=addresses), None, payload))
            == count
        )


# -- properties

bodies = st.binary() | st.recursive(
    st.none() | st.booleans() | st.integers() | st.text(),
    lambda inner: st.dictionaries(
        st.sampled_from(["ref", "after", "before", "repository", "project", "clone_url"])
        | st.text(),
        inner,
        max_size=4,
    ),
    max_leaves=9,
).map(lambda value: json.dumps(value).encode())


@given(st.sampled_from(["github", "gitea", "gitlab"]), bodies, st.booleans())
@settings(max_examples=200, deadline=None)
def test_any_content_is_read_or_refused(host: str, body: bytes, form: bool) -> None:
    headers = {
        "content-type": "application/x-www-form-urlencoded" if form else "application/json",
        "x-github-event": "push",
        "x-gitea-event": "push",
        "x-gitlab-event": "Push Hook",
    }
    status = 200
    try:
        assert parse_payload(Delivery(host, headers, body)).push is not None
    except DeliveryError as error:
        status = error.status
        str(error).encode()
    assert status in (200, 415, 422)


@given(st.text())
@settings(max_examples=300, deadline=None)
def test_any_text_has_a_form(text: str) -> None:
    for address in (text, f"https://{text}", f"ssh://git@host/{text}", f"git@host:{text}"):
        assert isinstance(normalise_url(address), str)
