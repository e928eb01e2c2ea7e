"""Who may see the console and change something in it; what its responses say to browsers."""

from __future__ import annotations

import gzip
import json
import re
from collections.abc import Callable, Iterator
from pathlib import Path

import httpx
import pytest
from playwright.sync_api import Browser, BrowserContext, Page, expect

from deploy.stack.ports import free_port
from tests.console.conftest import Served, Trouble, log_in
from tests.support.program.program import ForkServer, Skillbus
from tests.support.samples.library import write_topics

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


class Visitor:
    """A browser without its window: keeps cookies, sends forms with the token of their page."""

    def __init__(self, url: str) -> None:
        self.url = url
        self.client = httpx.Client(base_url=url, timeout=60)

    def read_csrf_token(self, path: str) -> str:
        """The CSRF token of a page."""
        found = re.search(r'name="csrf_token" value="(\w+)"', self.client.get(path).text)
        assert found is not None
        return found[1]

    def send(self, path: str, page: str = "/console/login", **fields: str) -> httpx.Response:
        """Send a form of a page."""
        fields = {"csrf_token": self.read_csrf_token(page), **fields}
        return self.client.post(path, data=fields, headers={"Origin": self.url})

    def log_in(self, secret: str) -> httpx.Response:
        """Log in."""
        return self.send("/console/login", token=secret)


@pytest.fixture
def visitor(served: Served) -> Iterator[Visitor]:
    visitor = Visitor(served.url)
    yield visitor
    visitor.client.close()


class TestSessions:
    def test_a_log_in_leads_back_to_the_page_that_was_wanted(
        self, served: Served, open_context: Callable[..., BrowserContext]
    ) -> None:
        page = open_context().new_page()
        log_in(page, served.secrets["read"], "/console/library?q=kiln")
        assert page.url == f"{served.url}/console/library?q=kiln"
        expect(page.locator(".caller")).to_contain_text("read")
        page.get_by_role("button", name="Log out").click()
        page.goto("/console/library")
        expect(page.get_by_role("heading", level=1)).to_have_text("Log in")

    def test_a_revoked_token_ends_its_sessions(
        self, served: Served, open_context: Callable[..., BrowserContext]
    ) -> None:
        name, secret = served.add_token("read")
        page = open_context().new_page()
        log_in(page, secret)
        served.skillbus("tokens", "revoke", name)
        page.reload()
        expect(page.get_by_role("heading", level=1)).to_have_text("Log in")

    def test_an_expired_token_ends_its_sessions(self, served: Served, visitor: Visitor) -> None:
        name, secret = served.add_token("read", "--expires", "30m")
        assert visitor.log_in(secret).status_code == 303
        assert visitor.client.get("/console/library").status_code == 200
        file = served.skillbus.home / "tokens.json"
        tokens = json.loads(file.read_text())
        for one in tokens:
            one["expires"] = 1.0 if one["name"] == name else one["expires"]
        replacement = file.with_suffix(".new")
        replacement.write_text(json.dumps(tokens))
        replacement.chmod(0o600)
        replacement.replace(file)
        assert visitor.client.get("/console/library").status_code == 303

    def test_an_unknown_token_is_refused(self, visitor: Visitor) -> None:
        refused = visitor.log_in("skb_unknown")
        assert refused.status_code == 403
        assert "This token is unknown or expired" in refused.text
        assert "skb_unknown" not in refused.text
        assert visitor.client.get("/console/library").status_code == 303

    def test_its_cookie_is_of_no_use_elsewhere(self, served: Served, visitor: Visitor) -> None:
        response = visitor.log_in(served.secrets["admin"])
        [cookie] = [one for one in response.headers.get_list("set-cookie") if "skillbus" in one]
        assert {"HttpOnly", "Path=/console", "SameSite=strict"} <= set(cookie.split("; "))
        assert served.secrets["admin"] not in cookie
        value = cookie.partition(";")[0]
        assert httpx.get(f"{served.url}/v1/skills", headers={"Cookie": value}).status_code == 401
        forged = httpx.get(f"{served.url}/console/work", headers={"Cookie": value[:-6] + "AAAA=="})
        assert forged.status_code == 303

    def test_a_log_out_ends_copies_of_the_cookie(self, served: Served, visitor: Visitor) -> None:
        visitor.log_in(served.secrets["read"])
        copied = dict(visitor.client.cookies)
        visitor.send("/console/logout", "/console/library")
        kept = httpx.get(f"{served.url}/console/library", cookies=copied)
        assert kept.status_code == 303

    def test_no_other_page_takes_a_reader_along(self, visitor: Visitor) -> None:
        for target in (
            "//elsewhere.invalid",
            "https://elsewhere.invalid",
            "/v1/skills",
            "/console\\x",
        ):
            page = visitor.client.get("/console/login", params={"next": target}).text
            assert 'name="next" value="/console"' in page

    def test_a_link_from_elsewhere_keeps_the_session(
        self, served: Served, open_context: Callable[..., BrowserContext], trouble: Trouble
    ) -> None:
        trouble.expected.append("request to http://localhost")
        page = open_context().new_page()
        log_in(page, served.secrets["read"])
        # localhost is another site than 127.0.0.1.
        other = served.url.replace("127.0.0.1", "localhost")
        page.route(
            f"{other}/**",
            lambda route: route.fulfill(
                body=f'<a href="{served.url}/console/library?q=kiln">see</a>',
                content_type="text/html",
            ),
        )
        page.goto(f"{other}/mail")
        page.get_by_role("link", name="see").click()
        page.wait_for_url(f"{served.url}/console/library?q=kiln")
        expect(page.locator(".caller")).to_contain_text("read")


class TestForms:
    def test_a_form_without_its_token_changes_nothing(
        self, served: Served, visitor: Visitor
    ) -> None:
        visitor.log_in(served.secrets["admin"])
        other = Visitor(served.url)
        other.log_in(served.secrets["admin"])
        foreign = other.read_csrf_token("/console/ask")
        other.client.close()
        for token in ("", "0" * 96, foreign):
            refused = visitor.send(
                "/console/actions/skills/remove",
                "/console/ask",
                skill_id="crafts:star-charts",
                csrf_token=token,
            )
            assert refused.status_code == 403
            assert "load the page again" in refused.text
        assert served.skillbus.skills()["crafts:star-charts"]["state"] == "published"

    @pytest.mark.parametrize(
        "headers",
        [
            {"Origin": "https://elsewhere.invalid"},
            {"Origin": "null"},
            {"Sec-Fetch-Site": "cross-site"},
        ],
    )
    def test_a_form_of_another_origin_changes_nothing(
        self, served: Served, visitor: Visitor, headers: dict[str, str]
    ) -> None:
        visitor.log_in(served.secrets["admin"])
        token = visitor.read_csrf_token("/console/ask")
        fields = {"csrf_token": token, "skill_id": "crafts:star-charts"}
        path = "/console/actions/skills/remove"
        assert visitor.client.post(path, data=fields, headers=headers).status_code == 403

    @pytest.mark.parametrize(
        ("scope", "path", "fields"),
        [
            ("read", "skills/remove", {"skill_id": "crafts:star-charts"}),
            ("read", "pins/add", {"skill_id": "crafts:star-charts", "reason": "x"}),
            ("read", "pins/remove", {"skill_id": "hostile:hostile-1"}),
            ("read", "sources/refresh", {"source_id": "crafts"}),
            ("write", "links/dismiss", {"source": "a:b", "target": "a:c", "type": "conflict"}),
            ("write", "links/restore", {"source": "a:b", "target": "a:c", "type": "conflict"}),
            ("write", "waivers/add", {"skill_id": "a:b", "rule": "x", "reason": "x"}),
            ("write", "waivers/remove", {"skill_id": "a:b", "rule": "x"}),
            ("write", "review/decide", {"skill_id": "a:b", "decision": "release"}),
            ("write", "review/reopen", {"skill_id": "a:b"}),
            ("write", "letters/retry", {"letter_id": "x"}),
            ("write", "letters/discard", {"letter_id": "x"}),
            ("write", "tokens/add", {"name": "mine", "scope": "admin"}),
            ("write", "tokens/revoke", {"name": "admin"}),
        ],
    )
    def test_a_scope_that_is_too_small_is_refused_and_recorded(
        self, served: Served, visitor: Visitor, scope: str, path: str, fields: dict[str, str]
    ) -> None:
        visitor.log_in(served.secrets[scope])
        before = len(served.skillbus("audit", "--json").data)
        refused = visitor.send(f"/console/actions/{path}", "/console/ask", **fields)
        assert refused.status_code == 403
        assert f"and yours is for {scope}" in refused.text
        [record] = served.skillbus("audit", "--json").data[before:]
        assert (record["principal"], record["outcome"]) == (scope, "refused")

    @pytest.mark.parametrize(
        ("path", "fields", "status"),
        [
            ("skills/remove", {"skill_id": "crafts:none"}, 404),
            ("pins/add", {"skill_id": "crafts:none", "reason": "x"}, 404),
            ("pins/add", {"skill_id": "crafts:star-charts", "reason": ""}, 400),
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
        ],
    )
    def test_what_cannot_be_done_is_explained(
        self, served: Served, visitor: Visitor, path: str, fields: dict[str, str], status: int
    ) -> None:
        visitor.log_in(served.secrets["admin"])
        refused = visitor.send(f"/console/actions/{path}", "/console/ask", **fields)
        assert refused.status_code == status
        assert 'role="alert"' in refused.text


class TestResponses:
    def test_pages_allow_browsers_nothing_else(self, served: Served, visitor: Visitor) -> None:
        visitor.log_in(served.secrets["read"])
        for path in (*VIEWS, "/console/skills/crafts:star-charts", "/console/none"):
            headers = visitor.client.get(path).headers
            policy = headers["content-security-policy"]
            assert policy.startswith("default-src 'self';")
            assert "unsafe" not in policy
            assert headers["x-frame-options"] == "DENY"
            assert headers["x-content-type-options"] == "nosniff"
            assert headers["referrer-policy"] == "same-origin"
            assert headers["cache-control"] == "no-store"

    def test_static_files_are_kept_for_good(self, served: Served, visitor: Visitor) -> None:
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

    @pytest.mark.parametrize("path", [*VIEWS, "/console/skills/crafts:kiln-firing"])
    def test_a_first_visit_is_small(self, served: Served, visitor: Visitor, path: str) -> None:
        visitor.log_in(served.secrets["admin"])
        page = visitor.client.get(path)
        total = len(gzip.compress(page.content))
        for one in re.findall(r'(?:href|src)="(/console/static/[^"]+)"', page.text):
            total += len(gzip.compress(visitor.client.get(one).content))
        assert total <= FIRST_PAGE_BYTES

    def test_refusals_are_pages(self, served: Served, visitor: Visitor) -> None:
        visitor.log_in(served.secrets["read"])
        wrong_host = visitor.client.get("/console/ask", headers={"Host": "elsewhere.invalid"})
        assert wrong_host.status_code == 421
        assert "<h1>Wrong address</h1>" in wrong_host.text
        missing = visitor.client.get("/console/none")
        assert missing.status_code == 404
        assert "<h1>Not found</h1>" in missing.text
        long = visitor.client.get("/console/skills/crafts:none")
        assert "No skill" in long.text


@pytest.fixture(scope="module")
def open_url(fork_server: ForkServer, tmp_path_factory: pytest.TempPathFactory) -> Iterator[str]:
    """A library without tokens."""
    base = tmp_path_factory.mktemp("open")
    skillbus = Skillbus(fork_server, base / "home")
    skillbus("sync", str(write_topics(base / "crafts")))
    port = free_port()
    with skillbus.serving("--listen", f"127.0.0.1:{port}"):
        yield f"http://127.0.0.1:{port}"


class TestWithoutTokens:
    """On loopback without tokens everybody of the machine reads, and changes nothing."""

    def test_it_is_read_and_asked(self, open_url: str, browser: Browser) -> None:
        page: Page = browser.new_page(base_url=open_url)
        page.goto("/console")
        page.get_by_label("Task").fill("bake sourdough bread")
        page.get_by_role("button", name="Ask").click()
        expect(page.locator("article.result").first).to_contain_text("bread-baking")
        page.goto("/console/skills/crafts:bread-baking")
        expect(page.get_by_text("Remove…")).to_have_count(0)
        page.context.close()

    def test_a_link_from_elsewhere_leads_to_a_form_that_can_be_sent(
        self, open_url: str, browser: Browser
    ) -> None:
        page: Page = browser.new_page()
        other = open_url.replace("127.0.0.1", "localhost")
        link = f'<a href="{open_url}/console/ask?task=bake+sourdough+bread">see</a>'
        page.route(f"{other}/**", lambda route: route.fulfill(body=link, content_type="text/html"))
        page.goto(f"{other}/mail")
        page.get_by_role("link", name="see").click()
        page.get_by_role("button", name="Ask").click()
        expect(page.locator("article.result").first).to_contain_text("bread-baking")
        page.context.close()

    def test_nothing_is_changed(self, open_url: str) -> None:
        visitor = Visitor(open_url)
        refused = visitor.send(
            "/console/actions/skills/remove", "/console/ask", skill_id="crafts:star-charts"
        )
        visitor.client.close()
        assert refused.status_code == 403
        assert "needs a token of scope write" in refused.text


def test_a_console_that_is_switched_off_is_not_there(
    fork_server: ForkServer, tmp_path: Path
) -> None:
    skillbus = Skillbus(fork_server, tmp_path / "home", SKILLBUS_GATEWAY__CONSOLE="false")
    port = free_port()
    with skillbus.serving("--listen", f"127.0.0.1:{port}"):
        response = httpx.get(f"http://127.0.0.1:{port}/console/login")
        assert response.status_code == 404
        assert response.headers["content-type"] == "application/problem+json"
    assert not (tmp_path / "home" / "console.key").exists()
