"""Every page for everybody: WCAG 2.2 AA as axe checks it, keyboard, widths, no scripts."""

from __future__ import annotations

import time
from collections.abc import Callable
from itertools import pairwise
from typing import Literal
from urllib.parse import urlsplit

import pytest
from playwright.sync_api import Page, expect

from tests.console.conftest import (
    TASK,
    Served,
    Trouble,
    find_overflow,
    find_violations,
    make_evaluations,
)
from tests.support.program.console_routes import list_console_routes

PAGES = (
    "/console/login",
    "/console/ask",
    "/console/library",
    "/console/library?q=kiln",
    "/console/library?q=zzzzzz",
    "/console/skills/crafts:kiln-firing",
    "/console/skills/crafts:kiln-firing?tab=record",
    "/console/skills/hostile:hostile-0?tab=findings",
    "/console/skills/hostile:hostile-0?tab=files",
    "/console/skills/crafts:kiln-firing?tab=links",
    "/console/skills/hostile:hostile-0?tab=revisions",
    "/console/skills/crafts:kiln-firing?tab=history",
    "/console/skills/crafts:broken",
    "/console/graph",
    "/console/graph?find=kiln",
    "/console/graph?skill=crafts:kiln-firing",
    "/console/graph?skill=hostile:hostile-0&depth=2",
    "/console/skills/crafts:kiln-firing?tab=use",
    "/console/review",
    "/console/review/hostile:hostile-0",
    "/console/use",
    "/console/use?tab=queries",
    "/console/use?tab=unanswered",
    "/console/use?tab=unused",
    "/console/use?tab=copies",
    "/console/quality",
    "/console/quality/labels",
    "/console/work",
    "/console/sources",
    "/console/settings",
    "/console/none",
)
LOOKS: tuple[tuple[Literal["light", "dark"], int], ...] = (
    ("light", 1280),
    ("dark", 360),
    ("dark", 2560),
)
"""Themes and widths."""

PARTS = 4
"""Number of tests over which the pages are spread: all pages at once take minutes."""

NO_PAGES = {"/", "/ask/{query_id}/events", "/use/export", "/static/{digest}/{name}"}
"""Routes that redirect, stream, or return a file."""


@pytest.fixture(scope="module")
def pages(served: Served) -> tuple[str, ...]:
    """The paths of all pages: `PAGES`, and those of an answer that explains a skill, an event and
    evaluations."""
    body = {"task": TASK, "explain": True, "explain_skills": ["crafts:map-projection"]}
    asked = served.request("admin", "POST", "/v1/queries", json=body)
    answer = asked.json()["id"]
    before, after = make_evaluations(served)
    while served.request("admin", "GET", "/v1/checks").json()["at"] is None:
        time.sleep(0.1)  # until then the page of settings is loaded again every two seconds
    event = served.request("admin", "GET", "/v1/events").json()["events"][0]["id"]
    return (
        *PAGES,
        f"/console/ask/{answer}",
        f"/console/graph?query={answer}",
        f"/console/graph?query={answer}&show=walk",
        f"/console/work/events/{event}",
        f"/console/quality/runs/{after}",
        f"/console/quality/compare?before={before}&after={after}",
    )


def test_no_page_of_the_router_is_forgotten(pages: tuple[str, ...]) -> None:
    paths = [urlsplit(one).path.removeprefix("/console") for one in pages]
    forgotten = [
        route.path
        for route in list_console_routes()
        if "GET" in (route.methods or ())
        and route.path not in NO_PAGES
        and not any(route.path_regex.fullmatch(path) for path in paths)
    ]
    assert not forgotten


@pytest.fixture(scope="module")
def titles() -> dict[str, str]:
    """The titles of the pages that were looked at, by path."""
    return {}


@pytest.mark.parametrize("part", range(PARTS))
def test_every_page_is_for_everybody(
    pages: tuple[str, ...],
    titles: dict[str, str],
    open_page: Callable[..., Page],
    trouble: Trouble,
    part: int,
) -> None:
    trouble.expected.append("404")
    page = open_page("admin")
    wrong: dict[object, object] = {}
    for path in pages[part::PARTS]:
        response = page.goto(path)
        assert response is not None
        assert response.status == (404 if path == "/console/none" else 200), path
        if page.locator("main").count() != 1 or not has_ordered_headings(page):
            wrong[path] = "headings"
        titles.setdefault(urlsplit(path).path, page.title())
        for theme, width in LOOKS:
            page.emulate_media(color_scheme=theme)
            page.set_viewport_size({"width": width, "height": 900})
            if width < 2_560 and (found := find_violations(page)):
                wrong[path, width] = found
            if overflow := find_overflow(page):
                wrong[path, width] = f"{overflow} px too wide"
    assert not wrong
    assert len(set(titles.values())) == len(titles)


def has_ordered_headings(page: Page) -> bool:
    """Whether a page has one heading of the first level, and leaves out no level."""
    levels = page.locator("h1, h2, h3").evaluate_all("all => all.map(one => +one.tagName[1])")
    return levels.count(1) == 1 and all(after - before <= 1 for before, after in pairwise(levels))


def test_a_task_is_asked_with_the_keyboard_alone(
    served: Served, open_page: Callable[..., Page]
) -> None:
    page = open_page("read")
    page.goto("/console/library")
    page.keyboard.press("Tab")
    expect(page.get_by_role("link", name="Skip to content")).to_be_focused()
    page.keyboard.press("Enter")
    expect(page.locator("main")).to_be_focused()
    page.keyboard.press("Tab")
    expect(page.get_by_role("searchbox")).to_be_focused()
    page.goto("/console/ask")
    page.keyboard.type(TASK)
    press_until_focused(page, "button", "Ask")
    outline = page.evaluate("getComputedStyle(document.activeElement).outlineStyle")
    assert outline == "solid"
    page.keyboard.press("Enter")
    page.get_by_role("heading", name="Bundle", exact=True).wait_for()
    press_until_focused(page, "link", "kiln-firing")
    page.keyboard.press("Enter")
    expect(page.get_by_role("heading", level=1)).to_have_text("kiln-firing")


def press_until_focused(page: Page, role: str, name: str) -> None:
    """Press Tab until an element has the focus."""
    wanted = page.get_by_role(role, name=name, exact=True).first  # type: ignore[arg-type]
    for _ in range(60):
        if wanted.evaluate("one => one === document.activeElement"):
            return
        page.keyboard.press("Tab")
    raise AssertionError(f"Tab does not reach the {role} {name!r}")


def test_a_theme_is_kept(served: Served, open_page: Callable[..., Page]) -> None:
    page = open_page("read", color_scheme="light")
    page.goto("/console/library")
    light = page.evaluate("getComputedStyle(document.body).backgroundColor")
    page.get_by_label("Theme").select_option("dark")
    page.wait_for_selector("html[data-theme=dark]")
    page.goto("/console/sources")
    assert page.evaluate("getComputedStyle(document.body).backgroundColor") != light


def test_a_theme_is_set_without_scripts(open_page: Callable[..., Page]) -> None:
    page = open_page("read", java_script_enabled=False)
    page.goto("/console/sources")
    page.get_by_label("Theme").select_option("dark")
    page.get_by_role("button", name="Set").click()
    expect(page.locator("html[data-theme=dark]")).to_have_count(1)
