"""Who may see the console and change something in it; what its responses say to browsers."""

from __future__ import annotations

import gzip
import re
from collections.abc import Iterator
from pathlib import Path
from urllib.parse import urlencode

import httpx2
import pytest
from fastapi.testclient import TestClient
from starlette.types import ASGIApp

from skills.events import SourceChanged, new_event
from tests.support.samples.hostile_pages import ATTACKS
from tests.support.samples.library import write_skill
from tests.support.samples.tiny import settle, tiny_backend
from workers.audit.log import AuditLog
from workers.backend.embedded import EmbeddedBackend
from workers.http.access import AccessRules
from workers.http.app import create_gateway
from workers.http.tokens import TokenScope, TokenStore

URL = "http://skillbus"
CHARTS = "crafts:star-charts"
FIRST_PAGE_BYTES = 40_000
VIEWS = (
    "/console/ask",
    "/console/library",
    "/console/graph",
    "/console/review",
    "/console/use",
    "/console/quality",
    "/console/quality/labels",
    "/console/work",
    "/console/sources",
    "/console/settings",
)
LONG_PAGE = f"/console/ask?task={'kiln+' * 2_000}"


class Visitor:
    """A browser without its window: keeps cookies, sends forms with the token of their page."""

    def __init__(self, gateway: ASGIApp) -> None:
        self.client = TestClient(gateway, URL, False, follow_redirects=False)

    def read_csrf_token(self, path: str) -> str:
        """The CSRF token of a page."""
        found = re.search(r'name="csrf_token" value="(\w+)"', self.client.get(path).text)
        assert found is not None
        return found[1]

    def send(self, path: str, page: str = "/console/login", **fields: str) -> httpx2.Response:
        """Send a form of a page."""
        fields = {"csrf_token": self.read_csrf_token(page), **fields}
        return self.client.post(path, data=fields, headers={"Origin": URL})

    def log_in(self, secret: str) -> httpx2.Response:
        """Log in."""
        return self.send("/console/login", token=secret)


@pytest.fixture(scope="module")
def backend(tmp_path_factory: pytest.TempPathFactory) -> Iterator[EmbeddedBackend]:
    base = tmp_path_factory.mktemp("access")
    for name in ("star-charts", "kiln-firing"):
        write_skill(base / "crafts", name)
    with tiny_backend(base / "home", gateway={"burst": 100_000}) as backend:
        source = SourceChanged(source_id="crafts", root=str(base / "crafts"))
        backend.accept(new_event(source, "tests"))
        settle(backend)
        yield backend


@pytest.fixture(scope="module")
def tokens(backend: EmbeddedBackend) -> TokenStore:
    return TokenStore(backend.settings.home / "tokens.json")


@pytest.fixture(scope="module")
def secrets(tokens: TokenStore) -> dict[str, str]:
    """A token for each scope."""
    return {one.name.lower(): tokens.add(one.name.lower(), one) for one in TokenScope}


@pytest.fixture(scope="module")
def gateway(backend: EmbeddedBackend, tokens: TokenStore) -> ASGIApp:
    return create_gateway(backend, AccessRules(tokens, hosts=["skillbus"]))


@pytest.fixture
def visitor(gateway: ASGIApp) -> Visitor:
    return Visitor(gateway)


class TestSessions:
    def test_a_revoked_token_ends_its_sessions(self, tokens: TokenStore, visitor: Visitor) -> None:
        assert visitor.log_in(tokens.add("passing", TokenScope.READ)).status_code == 303
        assert visitor.client.get("/console/library").status_code == 200
        tokens.revoke("passing")
        assert visitor.client.get("/console/library").status_code == 303

    def test_an_unknown_token_is_refused(self, visitor: Visitor) -> None:
        refused = visitor.log_in("skb_unknown")
        assert refused.status_code == 403
        assert "This token is unknown or expired" in refused.text
        assert "skb_unknown" not in refused.text
        assert visitor.client.get("/console/library").status_code == 303

    def test_tokens_that_cannot_be_checked_are_not_called_unknown(
        self, backend: EmbeddedBackend, tmp_path: Path
    ) -> None:
        (tmp_path / "tokens.json").mkdir()
        store = TokenStore(tmp_path / "tokens.json")
        refused = Visitor(create_gateway(backend, AccessRules(store))).log_in("skb_x")
        assert refused.status_code == 503
        assert "Tokens cannot be checked now" in refused.text

    def test_its_cookie_is_of_no_use_elsewhere(
        self, secrets: dict[str, str], gateway: ASGIApp, visitor: Visitor
    ) -> None:
        response = visitor.log_in(secrets["admin"])
        [cookie] = [one for one in response.headers.get_list("set-cookie") if "skillbus" in one]
        assert {"HttpOnly", "Path=/console", "SameSite=strict"} <= set(cookie.split("; "))
        assert secrets["admin"] not in cookie
        value = cookie.partition(";")[0]
        other = Visitor(gateway).client
        assert other.get("/v1/skills", headers={"Cookie": value}).status_code == 401
        forged = other.get("/console/work", headers={"Cookie": value[:-6] + "AAAA=="})
        assert forged.status_code == 303

    def test_a_log_out_ends_copies_of_the_cookie(
        self, secrets: dict[str, str], gateway: ASGIApp, visitor: Visitor
    ) -> None:
        visitor.log_in(secrets["read"])
        other = Visitor(gateway)
        other.client.cookies = visitor.client.cookies
        assert other.client.get("/console/library").status_code == 200
        copied = "; ".join(f"{name}={value}" for name, value in visitor.client.cookies.items())
        visitor.send("/console/logout", "/console/library")
        kept = Visitor(gateway).client.get("/console/library", headers={"Cookie": copied})
        assert kept.status_code == 303

    @pytest.mark.parametrize(
        "target", ["//elsewhere.invalid", "https://elsewhere.invalid", "/v1/skills", "/console\\x"]
    )
    def test_no_other_page_takes_a_reader_along(self, visitor: Visitor, target: str) -> None:
        page = visitor.client.get("/console/login", params={"next": target}).text
        assert 'name="next" value="/console"' in page

    def test_a_long_task_in_a_url_is_kept_over_the_log_in(
        self, secrets: dict[str, str], visitor: Visitor
    ) -> None:
        wanted = visitor.client.get(LONG_PAGE)
        assert wanted.headers["location"] == f"/console/login?{urlencode({'next': LONG_PAGE})}"
        sent = visitor.send("/console/login", token=secrets["read"], next=LONG_PAGE)
        assert (sent.status_code, sent.headers.get("location")) == (303, LONG_PAGE)

    def test_the_theme_is_chosen_before_the_log_in(self, visitor: Visitor) -> None:
        sent = visitor.send("/console/theme", theme="dark", next="/console/login")
        assert (sent.status_code, sent.headers.get("location")) == (303, "/console/login")
        assert 'data-theme="dark"' in visitor.client.get("/console/login").text


class TestForms:
    def test_a_form_without_its_token_changes_nothing(
        self, backend: EmbeddedBackend, secrets: dict[str, str], gateway: ASGIApp, visitor: Visitor
    ) -> None:
        visitor.log_in(secrets["admin"])
        other = Visitor(gateway)
        other.log_in(secrets["admin"])
        for token in ("", "0" * 96, other.read_csrf_token("/console/ask")):
            refused = visitor.send(
                "/console/actions/skills/remove",
                "/console/ask",
                skill_id=CHARTS,
                csrf_token=token,
            )
            assert refused.status_code == 403
            assert "reload the page" in refused.text
        [entry] = backend.graph.get_entries([CHARTS])
        assert entry.state == "published"

    @pytest.mark.parametrize(
        "headers",
        [
            {"Origin": "https://elsewhere.invalid"},
            {"Origin": "null"},
            {"Sec-Fetch-Site": "cross-site"},
        ],
    )
    def test_a_form_of_another_origin_changes_nothing(
        self, secrets: dict[str, str], visitor: Visitor, headers: dict[str, str]
    ) -> None:
        visitor.log_in(secrets["admin"])
        token = visitor.read_csrf_token("/console/ask")
        fields = {"csrf_token": token, "skill_id": CHARTS}
        path = "/console/actions/skills/remove"
        assert visitor.client.post(path, data=fields, headers=headers).status_code == 403

    @pytest.mark.parametrize(
        ("scope", "path", "fields"),
        [
            ("read", "skills/remove", {"skill_id": CHARTS}),
            ("read", "pins/add", {"skill_id": CHARTS, "reason": "x"}),
            ("read", "pins/remove", {"skill_id": CHARTS}),
            ("read", "sources/refresh", {"source_id": "crafts"}),
            ("write", "links/dismiss", {"source": "a:b", "target": "a:c", "type": "conflict"}),
            ("write", "links/restore", {"source": "a:b", "target": "a:c", "type": "conflict"}),
            ("write", "waivers/add", {"skill_id": "a:b", "rule": "x", "reason": "x"}),
            ("write", "waivers/remove", {"skill_id": "a:b", "rule": "x"}),
            ("write", "review/decide", {"skill_id": "a:b", "decision": "release"}),
            ("write", "review/reopen", {"skill_id": "a:b"}),
            ("write", "letters/retry", {"letter_id": "x"}),
            ("write", "letters/discard", {"letter_id": "x"}),
            ("write", "evaluations/remove", {"evaluation_id": "x"}),
            ("write", "tokens/add", {"name": "mine", "scope": "admin"}),
            ("write", "tokens/revoke", {"name": "admin"}),
        ],
    )
    def test_a_scope_that_is_too_small_is_refused_and_recorded(
        self,
        backend: EmbeddedBackend,
        secrets: dict[str, str],
        visitor: Visitor,
        scope: str,
        path: str,
        fields: dict[str, str],
    ) -> None:
        visitor.log_in(secrets[scope])
        before = len(list(AuditLog(backend.settings).read()))
        refused = visitor.send(f"/console/actions/{path}", "/console/ask", **fields)
        assert refused.status_code == 403
        assert f"and yours has scope {scope}" in refused.text
        [record] = list(AuditLog(backend.settings).read())[before:]
        assert (record.principal, record.outcome) == (scope, "refused")

    @pytest.mark.parametrize(
        ("path", "fields", "status"),
        [
            ("skills/remove", {"skill_id": "crafts:none"}, 404),
            ("pins/add", {"skill_id": "crafts:none", "reason": "x"}, 404),
            ("pins/add", {"skill_id": CHARTS, "reason": ""}, 400),
            ("sources/refresh", {"source_id": "none"}, 404),
            ("links/dismiss", {"source": "a:b", "target": "a:c", "type": "friends"}, 400),
            (
                "links/dismiss",
                {"source": "a:b", "target": "a:c", "type": "conflict", "reason": "x"},
                404,
            ),
            ("letters/retry", {"letter_id": "none"}, 404),
            ("letters/discard", {"letter_id": "none"}, 404),
            ("tokens/revoke", {"name": "none"}, 404),
            ("tokens/add", {"name": "other", "scope": "root"}, 400),
            *(("tokens/add", {"name": one, "scope": "read"}, 400) for one in ATTACKS[:6]),
            *(("tokens/add", {"name": one, "scope": "read"}, 400) for one in ("a b", "anonymous")),
        ],
    )
    def test_what_cannot_be_done_is_explained(
        self,
        secrets: dict[str, str],
        visitor: Visitor,
        path: str,
        fields: dict[str, str],
        status: int,
    ) -> None:
        visitor.log_in(secrets["admin"])
        refused = visitor.send(f"/console/actions/{path}", "/console/ask", **fields)
        assert refused.status_code == status
        assert 'role="alert"' in refused.text
        assert not [one for one in ATTACKS[:6] if one in refused.text]


class TestErrors:
    @pytest.mark.parametrize(
        ("path", "status", "words"),
        [
            ("library?state=lost", 400, "State: Input should be"),
            ("use?days=12", 400, "Days: choose one of 7, 30, 90, 365"),
            ("work?hours=0", 400, "Hours: choose one of 1, 6, 24"),
            ("work?hours=25", 400, "Hours: choose one of 1, 6, 24"),
            ("review?rule=download-runs", 400, "did you mean download-run"),
            ("work/events/none", 404, "No event with id"),
            ("ask/none", 404, "No query with id"),
        ],
    )
    def test_a_page_that_cannot_be_shown_is_explained(
        self, secrets: dict[str, str], visitor: Visitor, path: str, status: int, words: str
    ) -> None:
        visitor.log_in(secrets["admin"])
        refused = visitor.client.get(f"/console/{path}")
        assert refused.status_code == status
        assert words in refused.text

    @pytest.mark.parametrize(
        ("path", "fields", "words"),
        [
            ("ask", {"task": "fire a kiln", "budget": "many"}, "Budget: write a whole number"),
            (
                "actions/outcomes/report",
                {"query_id": "x", "outcome": "helped", "skill_id": ""},
                "Choose the skill that the outcome is about",
            ),
        ],
    )
    def test_a_wrong_form_of_a_reader_is_explained(
        self,
        secrets: dict[str, str],
        visitor: Visitor,
        path: str,
        fields: dict[str, str],
        words: str,
    ) -> None:
        visitor.log_in(secrets["read"])
        refused = visitor.send(f"/console/{path}", "/console/ask", **fields)
        assert refused.status_code == 400
        assert words in refused.text

    @pytest.mark.parametrize(("scope", "status"), [("read", 200), ("write", 404), ("admin", 200)])
    def test_an_answer_is_of_its_asker_and_of_admins(
        self, secrets: dict[str, str], gateway: ASGIApp, visitor: Visitor, scope: str, status: int
    ) -> None:
        asker = Visitor(gateway)
        asker.log_in(secrets["read"])
        answer = asker.send("/console/ask", "/console/ask", task="fire a kiln").headers["location"]
        visitor.log_in(secrets[scope])
        assert visitor.client.get(answer).status_code == status

    @pytest.mark.parametrize("scope", ["read", "write"])
    def test_settings_are_for_admins(
        self, secrets: dict[str, str], visitor: Visitor, scope: str
    ) -> None:
        visitor.log_in(secrets[scope])
        assert "/console/settings" not in visitor.client.get("/console/library").text
        assert visitor.client.get("/console/settings").status_code == 403


class TestResponses:
    def test_pages_allow_browsers_nothing_else(
        self, secrets: dict[str, str], visitor: Visitor
    ) -> None:
        visitor.log_in(secrets["read"])
        for path in (*VIEWS, f"/console/skills/{CHARTS}", "/console/none"):
            headers = visitor.client.get(path).headers
            policy = headers["content-security-policy"]
            assert policy.startswith("default-src 'self';")
            assert "unsafe" not in policy
            assert headers["x-frame-options"] == "DENY"
            assert headers["x-content-type-options"] == "nosniff"
            assert headers["referrer-policy"] == "same-origin"
            assert headers["cache-control"] == "no-store"

    def test_static_files_are_kept_for_good(self, visitor: Visitor) -> None:
        page = visitor.client.get("/console/login").text
        found = re.findall(r'(?:href|src)="(/console/static/[^"]+)"', page)
        assert len(found) >= 3
        for path in found:
            response = visitor.client.get(path)
            assert response.status_code == 200
            assert "immutable" in response.headers["cache-control"]
            plain = visitor.client.get(path, headers={"Accept-Encoding": "identity"})
            assert plain.content == response.content
        other = re.sub("static/.{12}", "static/000000000000", found[0])
        assert visitor.client.get(other).status_code == 404
        assert visitor.client.get("/console/static/x/../console.css").status_code in (303, 404)

    def test_a_first_visit_is_small(self, secrets: dict[str, str], visitor: Visitor) -> None:
        visitor.log_in(secrets["admin"])
        for path in (*VIEWS, "/console/skills/crafts:kiln-firing"):
            page = visitor.client.get(path)
            total = len(gzip.compress(page.content))
            for one in re.findall(r'(?:href|src)="(/console/static/[^"]+)"', page.text):
                total += len(gzip.compress(visitor.client.get(one).content))
            assert total <= FIRST_PAGE_BYTES, path

    def test_refusals_are_pages(self, secrets: dict[str, str], visitor: Visitor) -> None:
        visitor.log_in(secrets["read"])
        wrong_host = visitor.client.get("/console/ask", headers={"Host": "elsewhere.invalid"})
        assert wrong_host.status_code == 421
        assert "<h1>Wrong address</h1>" in wrong_host.text
        missing = visitor.client.get("/console/none")
        assert missing.status_code == 404
        assert "<h1>Not found</h1>" in missing.text
        assert "No skill" in visitor.client.get("/console/skills/crafts:none").text

    def test_a_long_link_of_another_site_is_opened_whole(self, visitor: Visitor) -> None:
        page = visitor.client.get(LONG_PAGE, headers={"Sec-Fetch-Site": "cross-site"})
        assert f'href="{LONG_PAGE}"' in page.text


def test_without_tokens_nothing_is_changed(backend: EmbeddedBackend, tmp_path: Path) -> None:
    """On loopback all users of the machine read."""
    access = AccessRules(TokenStore(tmp_path / "none.json"), allow_anonymous=True)
    visitor = Visitor(create_gateway(backend, access))
    path = "/console/actions/skills/remove"
    refused = visitor.send(path, f"/console/skills/{CHARTS}", skill_id=CHARTS)
    assert refused.status_code == 403
    assert "needs a token of scope write" in refused.text


def test_a_console_that_is_switched_off_is_not_there(tmp_path: Path) -> None:
    with tiny_backend(tmp_path, gateway={"console": False}) as backend:
        access = AccessRules(TokenStore(tmp_path / "tokens.json"), allow_anonymous=True)
        response = Visitor(create_gateway(backend, access)).client.get("/console/login")
    assert response.status_code == 404
    assert response.headers["content-type"] == "application/problem+json"
    assert not (tmp_path / "console.key").exists()
