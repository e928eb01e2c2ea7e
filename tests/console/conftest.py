"""A browser, and a served library that it looks at."""

from __future__ import annotations

import json
import os
import shutil
from collections.abc import Callable, Iterator
from contextlib import closing
from dataclasses import dataclass, field
from pathlib import Path
from typing import Any
from urllib.parse import urlsplit

import httpx
import pytest
from playwright.sync_api import (
    Browser,
    BrowserContext,
    ConsoleMessage,
    Page,
    expect,
    sync_playwright,
)

from config.settings import Settings
from deploy.stack.ports import free_port
from skills.events import QueryAsked
from tasks.journal.sqlite import SqliteJournal
from tests.support.program.program import NO_TLS, ForkServer, Skillbus
from tests.support.samples.hostile_pages import (
    ATTACKS,
    Places,
    change_hostile_library,
    write_hostile_library,
)
from tests.support.samples.library import write_skill, write_topics
from workers.console.pages import PREFIX
from workers.console.sessions import open_console_sessions
from workers.http.tokens import TokenScope, TokenStore

AXE = Path(__file__).parent / "axe" / "axe.min.js"
TASK = "fire stoneware in an electric kiln"
_AXE_TAGS = ["wcag2a", "wcag2aa", "wcag21a", "wcag21aa", "wcag22aa"]
PATIENCE_MILLISECONDS = 60_000.0
"""Of every expectation, also where the machine is busy."""


# Not for the whole session: while it is there, `asyncio.run` fails in this process.
@pytest.fixture(scope="module")
def browser() -> Iterator[Browser]:
    """Debian's Chromium; tests are skipped without it, and fail with `CI=true`."""
    path = shutil.which("chromium")
    if path is None:
        reason = "chromium is not installed"
        if os.environ.get("CI") == "true":
            pytest.fail(reason, pytrace=False)
        pytest.skip(reason)
    expect.set_options(timeout=PATIENCE_MILLISECONDS)
    with sync_playwright() as playwright:
        browser = playwright.chromium.launch(executable_path=path, args=["--no-sandbox"])
        yield browser
        browser.close()


def log_in(page: Page, secret: str, path: str = "/console/login") -> None:
    """Log in on the page that a path leads to."""
    page.goto(path)
    page.get_by_label("Token").fill(secret)
    page.get_by_role("main").get_by_role("button", name="Log in").click()
    page.wait_for_url(lambda url: "/login" not in url)


def ask(page: Page, task: str = TASK) -> None:
    """Ask a task and wait for its answer."""
    page.goto("/console/ask")
    page.get_by_label("Task").fill(task)
    page.get_by_role("button", name="Ask").click()
    page.get_by_role("heading", name="Bundle", exact=True).wait_for()


def find_overflow(page: Page) -> int:
    """Pixels by which a page is wider than its window."""
    width: int = page.evaluate(
        "document.documentElement.scrollWidth - document.documentElement.clientWidth"
    )
    return width


@dataclass
class Served:
    """A served library. secrets: by scope, a token. places: of its hostile skills."""

    skillbus: Skillbus
    url: str
    secrets: dict[str, str]
    root: Path
    places: Places

    def request(self, scope: str, method: str, path: str, **options: Any) -> httpx.Response:
        """The response to a request of the HTTP API with a token of a scope."""
        headers = {"Authorization": f"Bearer {self.secrets[scope]}", "Prefer": "wait=30"}
        url = f"{self.url}{path}"
        return httpx.request(method, url, headers=headers, timeout=60, verify=NO_TLS, **options)


def is_use(served: Served, page: Page) -> bool:
    """Whether usage counts the query that a page shows."""
    with closing(SqliteJournal(served.skillbus.home / "journal.db")) as journal:
        request = journal.get_job(urlsplit(page.url).path.rpartition("/")[2]).event.parse_data()
    assert isinstance(request, QueryAsked)
    return request.record_use


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
    secrets = add_tokens(skillbus)
    port = free_port()
    with skillbus.serving("--listen", f"127.0.0.1:{port}"):
        yield Served(skillbus, f"http://127.0.0.1:{port}", secrets, root, places)


def add_tokens(skillbus: Skillbus) -> dict[str, str]:
    """The secrets of new tokens, by scope."""
    store = TokenStore(skillbus.home / "tokens.json")
    return {one.name.lower(): store.add(one.name.lower(), one) for one in TokenScope}


def make_evaluations(served: Served) -> tuple[str, str]:
    """The ids of two evaluations of tasks that attack, the older one first."""
    tasks = served.root.parent / "tasks.jsonl"
    if not tasks.exists():
        rows = [{"task_id": "kiln", "instruction": TASK, "gt_skill_ids": ["crafts:kiln-firing"]}]
        rows += [
            {"task_id": f"h{n}", "instruction": f"{attack} {n}", "gt_skill_ids": [f"x:{attack}"]}
            for n, attack in enumerate(ATTACKS)
        ]
        tasks.write_text("\n".join(map(json.dumps, rows)), encoding="utf-8")
        for options in ((), ("--without", "bigrams")):
            served.skillbus("eval", "routing", str(tasks), *options)
    found = served.request("admin", "GET", "/v1/evaluations").json()["evaluations"]
    after, before = [one["evaluation_id"] for one in found if one["name"] == tasks.name][:2]
    return before, after


def dismiss_a_link(skillbus: Skillbus, reason: str) -> None:
    """Dismiss the first link of a hostile skill."""
    link = skillbus("skills", "show", "hostile:hostile-0", "--json").data["links"][0]
    skillbus(
        *("links", "dismiss", link["source"], link["target"], link["type"]),
        *("--reason", reason),
    )


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
    """Opens a page in a session with a token of a scope, as a log-in begins it."""
    sessions = open_console_sessions(Settings(home=served.skillbus.home))

    def open_one(scope: str, **options: object) -> Page:
        context = open_context(**options)
        cookie = sessions.seal(sessions.begin(served.secrets[scope]))
        context.add_cookies(
            [
                {
                    "name": sessions.cookie_name,
                    "value": cookie,
                    "domain": str(urlsplit(served.url).hostname),
                    "path": PREFIX,
                    "httpOnly": True,
                    "sameSite": "Strict",
                }
            ]
        )
        return context.new_page()

    return open_one


def find_violations(page: Page) -> list[str]:
    """What axe finds of WCAG 2.2 AA: rule, and where. What is folded is opened before."""
    page.evaluate("for (const one of document.querySelectorAll('details')) one.open = true")
    if not page.evaluate("'axe' in window"):
        page.evaluate(AXE.read_text(encoding="utf-8"))
    found = page.evaluate(
        "tags => axe.run(document, {runOnly: tags, resultTypes: ['violations']})", _AXE_TAGS
    )
    return [
        f"{one['id']}: {node['target']} {node['failureSummary']}"
        for one in found["violations"]
        for node in one["nodes"][:3]
    ]
