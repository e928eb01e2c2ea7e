"""A browser, and a served library that it looks at."""

from __future__ import annotations

import os
import shutil
from collections.abc import Callable, Iterator
from dataclasses import dataclass, field
from pathlib import Path
from urllib.parse import urlsplit

import pytest
from playwright.sync_api import Browser, BrowserContext, ConsoleMessage, Page, sync_playwright

from deploy.stack.ports import free_port
from tests.support.program.program import ForkServer, Skillbus
from tests.support.samples.hostile_pages import (
    Places,
    change_hostile_library,
    write_hostile_library,
)
from tests.support.samples.library import write_skill, write_topics

AXE = Path(__file__).parent / "axe" / "axe.min.js"
TASK = "fire stoneware in an electric kiln"
WIDTHS = (360, 1280, 2560)

_AXE_TAGS = ["wcag2a", "wcag2aa", "wcag21a", "wcag21aa", "wcag22aa"]


@dataclass
class Served:
    """A served library. secrets: by scope, a token. places: of its hostile skills."""

    skillbus: Skillbus
    url: str
    secrets: dict[str, str]
    root: Path
    places: Places
    _revoked: int = field(default=0)

    def add_token(self, scope: str, *options: str) -> tuple[str, str]:
        """The name and secret of another token."""
        self._revoked += 1
        name = f"passing-{self._revoked}"
        added = self.skillbus("tokens", "add", name, "--scope", scope, *options)
        return name, added.out.strip()


@pytest.fixture(scope="session")
def served(fork_server: ForkServer, tmp_path_factory: pytest.TempPathFactory) -> Iterator[Served]:
    """Ten crafts, a broken skill, and a source of hostile skills, with a token for each scope."""
    base = tmp_path_factory.mktemp("console")
    root = write_topics(base / "crafts")
    write_skill(root, "kiln-firing", license="MIT", depends="bread-baking")
    (root / "broken").mkdir()
    (root / "broken" / "SKILL.md").write_bytes(b"")
    places = write_hostile_library(base / "hostile")
    skillbus = Skillbus(
        fork_server, base / "home", SKILLBUS_GATEWAY__BURST="100000", SKILLBUS_LOG_LEVEL="warning"
    )
    skillbus("sync", str(root), code=4)
    skillbus("sync", str(base / "hostile"), code=4)
    change_hostile_library(base / "hostile", places)
    skillbus("sync", str(base / "hostile"))
    for skill_id in ("hostile:hostile-1", "hostile:hostile-2"):
        skillbus("pins", "add", skill_id, "--reason", places.fill_reason())
    dismiss_a_link(skillbus, places.fill_reason())
    secrets = {
        scope: skillbus("tokens", "add", scope, "--scope", scope).out.strip()
        for scope in ("read", "write", "admin")
    }
    port = free_port()
    with skillbus.serving("--listen", f"127.0.0.1:{port}"):
        yield Served(skillbus, f"http://127.0.0.1:{port}", secrets, root, places)


def dismiss_a_link(skillbus: Skillbus, reason: str) -> None:
    """Dismiss the first link of a hostile skill."""
    link = skillbus("skills", "show", "hostile:hostile-0", "--json").data["links"][0]
    skillbus(
        *("links", "dismiss", link["source"], link["target"], link["type"]),
        *("--reason", reason),
    )


@pytest.fixture(scope="module")
def browser() -> Iterator[Browser]:
    """Debian's Chromium; tests are skipped without it, and fail with `CI=true`."""
    path = shutil.which("chromium")
    if path is None:
        reason = "chromium is not installed"
        if os.environ.get("CI") == "true":
            pytest.fail(reason, pytrace=False)
        pytest.skip(reason)
    with sync_playwright() as playwright:
        browser = playwright.chromium.launch(executable_path=path, args=["--no-sandbox"])
        yield browser
        browser.close()


@dataclass
class Trouble:
    """What no page may do; `expected` are parts of messages that a test provokes."""

    messages: list[str] = field(default_factory=list)
    expected: list[str] = field(default_factory=list)

    def check(self) -> None:
        """Fail the test for what was not expected."""
        left = [one for one in self.messages if not any(part in one for part in self.expected)]
        assert not left, left


@pytest.fixture
def trouble() -> Trouble:
    """Errors of scripts, messages of the console, dialogs and requests to elsewhere."""
    return Trouble()


@pytest.fixture
def open_context(
    browser: Browser, served: Served, trouble: Trouble
) -> Iterator[Callable[..., BrowserContext]]:
    """Opens windows of a browser that remembers nothing; checked at the end."""
    host = urlsplit(served.url).netloc
    opened: list[BrowserContext] = []

    def note(message: ConsoleMessage) -> None:
        if message.type in ("error", "warning"):
            trouble.messages.append(f"{message.type}: {message.text}")

    def watch(page: Page) -> None:
        page.on("pageerror", lambda error: trouble.messages.append(f"error: {error}"))
        page.on("console", note)
        page.on("dialog", lambda dialog: trouble.messages.append(f"dialog: {dialog.message}"))

    def check_request(url: str) -> None:
        if urlsplit(url).netloc != host:
            trouble.messages.append(f"request to {url}")

    def open_one(**options: object) -> BrowserContext:
        context = browser.new_context(base_url=served.url, **options)  # type: ignore[arg-type]
        context.set_default_timeout(20_000)
        context.on("page", watch)
        context.on("request", lambda request: check_request(request.url))
        opened.append(context)
        return context

    yield open_one
    for context in opened:
        context.close()
    trouble.check()


@pytest.fixture
def open_page(open_context: Callable[..., BrowserContext], served: Served) -> Callable[..., Page]:
    """Opens a page, logged in with a token of a scope."""

    def open_one(scope: str, **options: object) -> Page:
        page = open_context(**options).new_page()
        log_in(page, served.secrets[scope])
        return page

    return open_one


def log_in(page: Page, secret: str, path: str = "/console/login") -> None:
    """Log in on the page that a path leads to."""
    page.goto(path)
    page.get_by_label("Token").fill(secret)
    page.get_by_role("main").get_by_role("button", name="Log in").click()
    page.wait_for_url(lambda url: "/login" not in url)


def find_overflow(page: Page) -> int:
    """Pixels by which a page is wider than its window."""
    width: int = page.evaluate(
        "document.documentElement.scrollWidth - document.documentElement.clientWidth"
    )
    return width


def find_violations(page: Page) -> list[str]:
    """What axe finds of WCAG 2.2 AA: rule, and where."""
    if not page.evaluate("'axe' in window"):
        page.evaluate(AXE.read_text(encoding="utf-8"))
    found = page.evaluate("tags => axe.run(document, {runOnly: tags})", _AXE_TAGS)
    return [
        f"{one['id']}: {node['target']} {node['failureSummary']}"
        for one in found["violations"]
        for node in one["nodes"][:3]
    ]
