"""A log-in and links of other sites, as browsers treat the cookies of a session."""

from __future__ import annotations

from collections.abc import Callable, Iterator

import pytest
from playwright.sync_api import Browser, BrowserContext, Page, expect

from deploy.stack.ports import free_port
from tests.console.conftest import Served, Trouble, log_in
from tests.support.program.program import ForkServer, Skillbus
from tests.support.samples.library import write_topics


def open_link(page: Page, url: str, path: str) -> None:
    """Follow a link to a page of the console on another site: localhost, instead of 127.0.0.1."""
    other = url.replace("127.0.0.1", "localhost")
    link = f'<a href="{url}{path}">see</a>'
    page.route(f"{other}/**", lambda route: route.fulfill(body=link, content_type="text/html"))
    page.goto(f"{other}/mail")
    page.get_by_role("link", name="see").click()


def test_a_log_in_leads_back_to_the_page_that_was_wanted(
    served: Served, open_context: Callable[..., BrowserContext]
) -> None:
    page = open_context().new_page()
    log_in(page, served.secrets["read"], "/console/library?q=kiln")
    assert page.url == f"{served.url}/console/library?q=kiln"
    expect(page.locator(".caller")).to_contain_text("read")
    page.get_by_role("button", name="Log out").click()
    page.goto("/console/library")
    expect(page.get_by_role("heading", level=1)).to_have_text("Log in")


def test_a_link_of_another_site_keeps_the_session(
    served: Served, open_context: Callable[..., BrowserContext], trouble: Trouble
) -> None:
    trouble.expected.append("request to http://localhost")
    page = open_context().new_page()
    log_in(page, served.secrets["read"])
    open_link(page, served.url, "/console/library?q=kiln")
    page.wait_for_url(f"{served.url}/console/library?q=kiln")
    expect(page.locator(".caller")).to_contain_text("read")


@pytest.fixture
def open_url(fork_server: ForkServer, tmp_path_factory: pytest.TempPathFactory) -> Iterator[str]:
    """A library without tokens."""
    base = tmp_path_factory.mktemp("open")
    skillbus = Skillbus(fork_server, base / "home")
    skillbus("sync", str(write_topics(base / "crafts")), "--until", "words")
    port = free_port()
    with skillbus.serving("--listen", f"127.0.0.1:{port}"):
        yield f"http://127.0.0.1:{port}"


def test_without_tokens_a_link_of_another_site_leads_to_a_form_that_can_be_sent(
    open_url: str, browser: Browser
) -> None:
    page = browser.new_page()
    open_link(page, open_url, "/console/ask?task=bake+sourdough+bread")
    page.get_by_role("button", name="Ask").click()
    expect(page.locator("article.result").first).to_contain_text("bread-baking")
    page.goto(f"{open_url}/console/skills/crafts:bread-baking")
    expect(page.get_by_text("Remove…")).to_have_count(0)
    page.context.close()
