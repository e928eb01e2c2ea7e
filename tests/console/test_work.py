"""Work: the queue drains while one looks on, and an event's way through its tasks."""

from __future__ import annotations

import re
import time
from collections.abc import Callable
from contextlib import closing

import pytest
from playwright.sync_api import BrowserContext, Page, expect

from deploy.stack.ports import free_port
from tasks.journal.protocol import DeadLetter, new_dead_letter_id
from tasks.journal.sqlite import SqliteJournal
from tasks.journal.work_records import TaskRun, duration_bucket
from tasks.policies import INGEST, LINK
from tests.console.conftest import Served, Trouble, add_tokens, find_overflow, log_in
from tests.support.program.program import ForkServer, Skillbus
from tests.support.samples.library import write_skill, write_topics

Open = Callable[..., Page]


def test_an_event_is_followed_through_its_tasks(served: Served, open_page: Open) -> None:
    page = open_page("admin")
    page.goto("/console/work")
    newest = page.locator("#work").get_by_role("table").get_by_role("link").first
    before = newest.get_attribute("href") if newest.count() else ""
    write_skill(served.root, "hedge-laying", "Lay a hedge of hawthorn")
    expect(newest).not_to_have_attribute("href", before or "", timeout=30_000)
    newest.click()
    rows = page.get_by_role("region", name="Tasks of the event").locator("tbody tr")
    while not rows.filter(has_text="ingest").count():
        page.reload()
    expect(rows.first).to_contain_text("plan")
    event_id = page.url.rpartition("/")[2]
    event = served.request("admin", "GET", f"/v1/events/{event_id}").json()
    assert event["trace_id"] in page.locator("dl.facts").inner_text()
    assert {"skillbus.plan", "skillbus.ingest"} <= {one["task"] for one in event["tasks"]}
    assert all(event["accepted"] <= one["ended"] for one in event["tasks"])
    assert served.request("read", "GET", f"/v1/events/{event_id}").status_code == 404


def fail_a_task(served: Served, trace_id: str) -> None:
    """Record a failed run of a trace as a worker does, with its dead letter, and a retried one."""
    now = time.time()
    failed = TaskRun(LINK.name, now - 2, now - 1, "failed", 1, 1, "ZeroDivisionError", "by zero")
    retried = TaskRun(INGEST.name, now - 3, now - 2, "done", 1, 2, "TransientError", "was busy")
    letter = DeadLetter(
        *(
            new_dead_letter_id(now),
            LINK.name,
            (),
            "ZeroDivisionError: by zero",
            1,
            trace_id,
            "",
            now,
        )
    )
    with closing(SqliteJournal(served.skillbus.home / "journal.db")) as journal:
        for run in (retried, failed):
            journal.add_task_run(run, [trace_id])
        journal.add_dead_letter(letter)


def test_a_failed_task_says_why_and_is_retried(served: Served, open_page: Open) -> None:
    event_id = served.request("admin", "POST", "/v1/sources/crafts").json()["id"]
    event = served.request("admin", "GET", f"/v1/events/{event_id}").json()
    fail_a_task(served, event["trace_id"])
    page = open_page("admin")
    page.goto("/console/work")
    letter = page.locator("article", has_text="by zero")
    letter.get_by_role("link", name="Its event and tasks").click()
    rows = page.get_by_role("region", name="Tasks of the event").locator("tbody tr")
    expect(rows.filter(has_text="failed")).to_contain_text("ZeroDivisionError by zero")
    expect(rows.filter(has_text="after 2 attempts")).to_contain_text("TransientError was busy")
    assert not find_overflow(page)
    page.get_by_role("link", name="Dead letter").click()
    expect(page.locator("article:target")).to_contain_text("ZeroDivisionError: by zero")
    page.get_by_role("button", name="Retry").click()
    page.wait_for_url(f"**/work/events/{event_id}")
    expect(page.locator("article", has_text="by zero")).to_have_count(0)
    done = rows.filter(has=page.get_by_role("rowheader", name="link")).filter(has_text="done")
    while not done.count():
        page.reload()
    tasks = served.request("admin", "GET", f"/v1/events/{event_id}").json()["tasks"]
    assert {(one["error"], one["reason"]) for one in tasks} >= {("ZeroDivisionError", "by zero")}


def test_queues_and_workers_are_shown_while_work_is_done(served: Served, open_page: Open) -> None:
    page = open_page("admin")
    page.goto("/console/work?hours=1")
    page.evaluate("window.isSamePage = true")
    for number in range(12):
        write_skill(served.root, f"stone-{number}", f"Dress stone number {number}")
    newest = page.locator("#work").get_by_role("row", name=re.compile("crafts")).first
    expect(newest).to_contain_text("done", timeout=30_000)
    tile = page.locator(".tile", has_text="Events open").locator("dd")
    expect(tile).to_have_text("0", timeout=30_000)
    queue = page.get_by_role("table").filter(has_text="Messages waiting").get_by_role("row")
    expect(queue.filter(has_text=re.compile("^ingest")).locator("td").first).to_have_text("0")
    expect(page.get_by_role("row", name=re.compile(r"^query \(2 threads\)"))).to_be_visible()
    expect(page.get_by_role("img", name="Time from event to searchable")).to_be_visible()
    expect(page.get_by_text("half of the skills were found within")).to_be_visible()
    assert page.evaluate("window.isSamePage")
    report = served.request("admin", "GET", "/v1/work", params={"hours": 1}).json()
    assert {one["queue"] for one in report["queues"]} >= {"skillbus.plan", "skillbus.query"}
    assert sum(point["skills"] for point in report["points"]) >= 12
    assert 0 < report["p50"] <= report["p95"]
    assert report["point_seconds"] == 60


COUNT_LINES = """name => {
    const counts = [], walker = document.createTreeWalker(document.body, NodeFilter.SHOW_TEXT);
    while (walker.nextNode()) {
        const at = walker.currentNode.data.indexOf(name);
        if (at < 0) continue;
        const range = document.createRange();
        range.setStart(walker.currentNode, at);
        range.setEnd(walker.currentNode, at + name.length);
        counts.push(range.getClientRects().length);
    }
    return counts;
}"""
"""The lines on which each occurrence of a name is."""


def test_no_name_of_a_queue_is_broken(open_page: Open) -> None:
    page = open_page("admin")
    page.goto("/console/work")
    page.evaluate("for (const one of document.querySelectorAll('table')) one.style.width = '1px'")
    lines = page.evaluate(COUNT_LINES, "embed_sections")
    assert len(lines) > 1
    assert set(lines) == {1}


def test_the_time_to_searchable_is_that_of_the_chosen_hours(
    served: Served, open_page: Open, monkeypatch: pytest.MonkeyPatch
) -> None:
    earlier = time.time() - 3 * 3_600
    journal = SqliteJournal(served.skillbus.home / "journal.db")
    with closing(journal), monkeypatch.context() as patched:
        patched.setattr(time, "time", lambda: earlier)
        journal.count_work({("searchable", str(duration_bucket(3_600.0))): 100_000})
    p50 = [
        served.request("admin", "GET", "/v1/work", params={"hours": hours}).json()["p50"]
        for hours in (1, 6)
    ]
    assert (p50[0] or 0) < 1_800 < p50[1]
    page = open_page("admin")
    page.goto("/console/work?hours=6")
    expect(page.get_by_text("In the last 6 hours, half of the skills")).to_be_visible()
    event_id = served.request("admin", "POST", "/v1/sources/crafts").json()["id"]
    page.reload()
    row = page.get_by_role("row").filter(has=page.locator(f"a[href$='{event_id}']"))
    row.get_by_role("link", name="source").click()
    page.wait_for_url(f"**/work/events/{event_id}")


def test_work_is_not_for_those_who_may_not_see_all_sources(
    served: Served, open_context: Callable[..., BrowserContext]
) -> None:
    served.skillbus("sources", "groups", "hostile", "wary")
    try:
        page = open_context().new_page()
        log_in(page, served.secrets["read"])
        page.goto("/console/work")
        expect(page.get_by_text("Counts of all work are shown to tokens")).to_be_visible()
        expect(page.get_by_role("heading", name="Queues")).to_have_count(0)
        assert served.request("read", "GET", "/v1/work").status_code == 403
    finally:
        served.skillbus("sources", "groups", "hostile", "--default")


def test_a_lost_server_and_its_return_are_shown(
    fork_server: ForkServer,
    open_context: Callable[..., BrowserContext],
    trouble: Trouble,
    tmp_path_factory: pytest.TempPathFactory,
) -> None:
    trouble.expected += ["request to", "Failed to load resource", "htmx"]
    base = tmp_path_factory.mktemp("lost")
    skillbus = Skillbus(fork_server, base / "home", SKILLBUS_LOG_LEVEL="warning")
    root = write_topics(base / "crafts")
    skillbus("sync", str(root), "--until", "words")
    secret = add_tokens(skillbus)["admin"]
    port = free_port()
    page = open_context().new_page()
    lost = page.locator("#connection")
    with skillbus.serving("--listen", f"127.0.0.1:{port}"):
        log_in(page, secret, f"http://127.0.0.1:{port}/console/work")
        expect(lost).to_be_hidden()
    expect(lost).to_be_visible(timeout=30_000)
    expect(page.get_by_role("heading", name="Queues")).to_be_visible()
    with skillbus.serving("--listen", f"127.0.0.1:{port}"):
        expect(lost).to_be_hidden(timeout=30_000)
        write_skill(root, "kerb-laying", "Lay a kerb of granite")
        row = page.locator("#work").get_by_role("row", name=re.compile("crafts")).first
        expect(row).to_contain_text("done", timeout=30_000)
