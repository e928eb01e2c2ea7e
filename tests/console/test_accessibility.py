"""Every page for everybody: WCAG 2.2 AA as axe checks it, keyboard, widths, no scripts."""

from __future__ import annotations

from collections.abc import Callable
from itertools import pairwise

import pytest
from playwright.sync_api import BrowserContext, Page, expect

from tests.console.conftest import TASK, WIDTHS, Served, Trouble, find_overflow, find_violations

VIEWS = (
    "/console/ask",
    "/console/library",
    "/console/graph",
    "/console/review",
    "/console/use",
    "/console/work",
    "/console/sources",
    "/console/settings",
)
PAGES = (
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
    "/console/graph?skill=crafts:kiln-firing",
    "/console/graph?skill=hostile:hostile-0&depth=2",
    "/console/skills/crafts:kiln-firing?tab=use",
    "/console/review",
    "/console/use",
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


@pytest.mark.parametrize(("theme", "width"), [("light", 1280), ("dark", 360)])
def test_axe_finds_no_violation(
    served: Served, open_page: Callable[..., Page], trouble: Trouble, theme: str, width: int
) -> None:
    trouble.expected.append("404")
    page = open_page("admin", color_scheme=theme, viewport={"width": width, "height": 900})
    found: dict[str, list[str]] = {}
    for path in (*PAGES, ask(page)):
        page.goto(path)
        found[path] = find_violations(page)
    page.get_by_role("button", name="Log out").click()
    found["login"] = find_violations(page)
    assert not {place: one for place, one in found.items() if one}


def ask(page: Page) -> str:
    """The path of an answer, with all that is folded opened."""
    page.goto("/console/ask")
    page.get_by_label("Task").fill(TASK)
    page.get_by_role("button", name="Ask").click()
    page.get_by_role("heading", name="Bundle", exact=True).wait_for()
    return page.url


@pytest.mark.parametrize("width", WIDTHS)
def test_no_page_is_wider_than_its_window(
    served: Served, open_page: Callable[..., Page], trouble: Trouble, width: int
) -> None:
    trouble.expected.append("404")
    page = open_page("admin", viewport={"width": width, "height": 900})
    wide = []
    for path in (*PAGES, ask(page)):
        page.goto(path)
        page.evaluate("for (const one of document.querySelectorAll('details')) one.open = true")
        if find_overflow(page):
            wide.append(path)
    assert not wide


def test_every_page_has_one_heading_and_a_title_of_its_own(
    served: Served, open_page: Callable[..., Page], trouble: Trouble
) -> None:
    trouble.expected.append("404")
    page = open_page("admin")
    titles = set()
    for path in VIEWS:
        page.goto(path)
        expect(page.get_by_role("heading", level=1)).to_have_count(1)
        expect(page.get_by_role("main")).to_have_count(1)
        titles.add(page.title())
        levels = page.locator("h1, h2, h3").evaluate_all("all => all.map(one => +one.tagName[1])")
        assert all(after - before <= 1 for before, after in pairwise(levels))
    assert len(titles) == len(VIEWS)


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


def test_pages_are_read_without_scripts(
    served: Served, open_page: Callable[..., Page], open_context: Callable[..., BrowserContext]
) -> None:
    page = open_page("admin", java_script_enabled=False)
    for path in PAGES[:-1]:
        page.goto(path)
        expect(page.get_by_role("heading", level=1)).to_be_visible()
    page.get_by_label("Theme").select_option("dark")
    page.get_by_role("button", name="Set").click()
    expect(page.locator("html[data-theme=dark]")).to_have_count(1)
