"""Pages that are open all day: they show what goes on, and keep nothing of what they showed."""

from __future__ import annotations

import threading
from collections.abc import Callable, Iterator
from dataclasses import dataclass

import pytest
from playwright.sync_api import Page, expect

from deploy.stack.ports import free_port
from tests.console.conftest import Served, add_tokens
from tests.support.program.program import ForkServer, Skillbus
from tests.support.samples.hostile_pages import Places
from tests.support.samples.library import write_topics
from tests.support.samples.refining import model_environment
from tests.support.servers.language_model import Asked, LanguageModelServer

Open = Callable[..., Page]

RENEWALS = 10
ANSWERS = 4
PERIOD_MILLISECONDS = 3_000
ALLOWED_SHARE = 0.2
"""Nodes that may be more, as a share of the page: its rows and the ticks of its charts move on."""


@dataclass(frozen=True)
class Kept:
    """What a browser keeps of a page, with the documents, nodes and listeners of former ones."""

    documents: int
    nodes: int
    listeners: int


class Browser:
    """Counts what the browser of a page keeps."""

    def __init__(self, page: Page) -> None:
        self._session = page.context.new_cdp_session(page)
        self._session.send("Performance.enable")

    def count(self) -> Kept:
        """The counts after garbage is collected."""
        for _ in range(3):
            self._session.send("HeapProfiler.collectGarbage")
        found = self._session.send("Performance.getMetrics")["metrics"]
        values = {one["name"]: int(one["value"]) for one in found}
        return Kept(values["Documents"], values["Nodes"], values["JSEventListeners"])


def assert_nothing_is_left(before: Kept, after: Kept) -> None:
    assert after.documents <= before.documents
    assert after.listeners <= before.listeners
    assert after.nodes <= before.nodes * (1 + ALLOWED_SHARE)


def renew(page: Page, times: int) -> None:
    """Let the clock of the page run until its part was loaded and shown so many times more."""
    for _ in range(times):
        page.evaluate("document.querySelector('#work').dataset.seen = '1'")
        with page.expect_response("**/console/work*"):
            page.clock.run_for(PERIOD_MILLISECONDS)
        page.clock.run_for(100)
        expect(page.locator("#work:not([data-seen])")).to_be_attached()


def test_a_page_of_work_keeps_nothing_of_what_it_renewed(served: Served, open_page: Open) -> None:
    page = open_page("admin")
    page.clock.install()
    page.goto("/console/work")
    browser = Browser(page)
    renew(page, 3)
    before = browser.count()
    renew(page, RENEWALS)
    assert_nothing_is_left(before, browser.count())


class HeldModel:
    """A language model that answers once it is released."""

    def __init__(self) -> None:
        self.released = threading.Event()

    def __call__(self, asked: Asked) -> str:
        assert self.released.wait(60)
        return "{}"


@pytest.fixture(scope="module")
def held() -> HeldModel:
    return HeldModel()


@pytest.fixture(scope="module")
def slow(
    fork_server: ForkServer,
    tmp_path_factory: pytest.TempPathFactory,
    held: HeldModel,
) -> Iterator[Served]:
    """A library whose queries wait for a language model."""
    base = tmp_path_factory.mktemp("slow")
    with LanguageModelServer(held) as server:
        skillbus = Skillbus(
            fork_server,
            base / "home",
            SKILLBUS_LOG_LEVEL="error",
            SKILLBUS_GATEWAY__BURST="100000",
            **model_environment(server.url, '["select"]'),
        )
        skillbus("sync", str(write_topics(base / "crafts")), "--until", "embedded")
        secrets = add_tokens(skillbus)
        port = free_port()
        with skillbus.serving("--listen", f"127.0.0.1:{port}"):
            yield Served(skillbus, f"http://127.0.0.1:{port}", secrets, base, Places())


class TestStages:
    @pytest.fixture
    def served(self, slow: Served) -> Served:
        return slow

    def ask(self, page: Page, task: str) -> None:
        page.goto("/console/ask")
        page.get_by_label("Task").fill(task)
        page.get_by_role("button", name="Ask").click()

    def test_they_appear_while_a_query_runs(self, open_page: Open, held: HeldModel) -> None:
        page = open_page("read")
        self.ask(page, "fire a kiln to stoneware heat")
        stages = page.locator("ul.stages li")
        expect(stages.filter(has_text="retrieve").first).to_be_visible()
        expect(stages.filter(has_text="select").first).to_be_visible()
        with page.expect_response("**/events"):
            page.reload()
        page.wait_for_timeout(500)  # the stream begins with the stages that are listed
        names = stages.all_inner_texts()
        assert names == list(dict.fromkeys(names))
        expect(page.get_by_role("button", name="Cancel")).to_be_visible()
        held.released.set()
        expect(page.get_by_role("heading", name="Bundle", exact=True)).to_be_visible()

    def test_their_stream_leaves_nothing(self, open_page: Open, held: HeldModel) -> None:
        page = open_page("read")
        browser = Browser(page)

        def ask_and_wait(number: int) -> None:
            held.released.clear()
            self.ask(page, f"fire kiln number {number} to stoneware heat")
            expect(page.locator("ul.stages li").first).to_be_visible()
            held.released.set()
            page.get_by_role("heading", name="Bundle", exact=True).wait_for()

        for number in range(2):
            ask_and_wait(number)
        before = browser.count()
        for number in range(2, 2 + ANSWERS):
            ask_and_wait(number)
        assert_nothing_is_left(before, browser.count())
