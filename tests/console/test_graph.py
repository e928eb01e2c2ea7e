"""The graph in a browser: a neighbourhood, its types of links, and the walk of an answer."""

from __future__ import annotations

import re
from collections.abc import Callable, Iterator
from urllib.parse import parse_qs, urlsplit

import pytest
from playwright.sync_api import Page, expect

from tests.console.conftest import Served, ask, find_violations
from tests.support.samples.library import write_skill

Open = Callable[..., Page]

SKILL = "/console/graph?skill=crafts:kiln-firing"


def read_query(page: Page) -> dict[str, list[str]]:
    return parse_qs(urlsplit(page.url).query)


@pytest.fixture(scope="module")
def twin(served: Served, tmp_path_factory: pytest.TempPathFactory) -> Iterator[None]:
    """A source with a copy of a skill, which both skills link to."""
    root = tmp_path_factory.mktemp("twin") / "gardens"
    write_skill(root, "garden-frost")
    served.skillbus("sync", str(root))
    yield
    served.skillbus("sources", "remove", "gardens")


def test_it_is_reached_from_a_skill_and_leads_on(open_page: Open) -> None:
    page = open_page("read")
    page.goto("/console/skills/crafts:kiln-firing?tab=links")
    page.get_by_role("link", name="See the graph").click()
    expect(page.get_by_role("heading", level=1)).to_have_text("Graph of kiln-firing")
    page.locator(".graph").get_by_role("link", name=re.compile("^bread-baking")).click()
    expect(page.get_by_role("heading", level=1)).to_have_text("Graph of bread-baking")
    page.go_back()
    expect(page.get_by_role("heading", level=1)).to_have_text("Graph of kiln-firing")
    page.go_forward()
    expect(page.get_by_role("heading", level=1)).to_have_text("Graph of bread-baking")
    page.get_by_role("link", name="Open the skill").first.click()
    expect(page.get_by_role("heading", level=1)).to_have_text("bread-baking")


def test_evidence_is_shown_on_focus_and_under_the_pointer(open_page: Open) -> None:
    page = open_page("read")
    page.goto(SKILL)
    details = page.get_by_role("status", name="Evidence")
    page.locator(".node").first.focus()
    expect(details).to_contain_text("declared: bread-baking")
    page.keyboard.press("ArrowRight")
    expect(page.locator(".node").nth(1)).to_be_focused()
    page.keyboard.press("Home")
    expect(page.locator(".node").first).to_be_focused()
    expect(details.get_by_role("heading")).to_have_text("kiln-firing")
    page.locator(".link .hit").first.dispatch_event("pointerover", {"bubbles": True})
    expect(details.get_by_role("heading")).to_have_text("Link")


def test_types_of_links_are_switched_off_and_on(open_page: Open) -> None:
    page = open_page("read")
    page.goto(SKILL)
    page.evaluate("window.isSamePage = true")
    rows = page.locator("#graph-links tbody tr")
    expect(rows.filter(has_text="declared: bread-baking")).to_have_count(1)
    before = rows.count()
    page.get_by_role("checkbox", name="dependency").uncheck()
    expect(rows.filter(has_text="declared: bread-baking")).to_have_count(0)
    expect(page.get_by_role("checkbox", name="dependency")).to_be_focused()
    assert page.evaluate("window.isSamePage")
    assert "dependency" not in read_query(page)["type"]
    page.reload()
    expect(page.get_by_role("checkbox", name="dependency")).not_to_be_checked()
    page.go_back()
    expect(rows).to_have_count(before)
    expect(page.get_by_role("checkbox", name="dependency")).to_be_checked()


def test_a_walk_is_stepped_and_played(open_page: Open) -> None:
    page = open_page("read")
    ask(page)
    page.get_by_role("link", name="Graph", exact=True).last.click()
    page.get_by_role("link", name="Walk of the ranking").click()
    controls = page.locator(".walk-controls")
    expect(controls).to_contain_text("Move 0 of")
    circle = page.locator(".node circle").first
    before = circle.get_attribute("r")
    controls.get_by_role("link", name="Forward").focus()
    page.keyboard.press("Enter")
    expect(controls).to_contain_text("Move 1 of")
    assert circle.get_attribute("r") != before
    expect(page.locator(".walk td.present").first).to_be_visible()
    assert read_query(page)["move"] == ["1"]
    page.reload()
    expect(controls).to_contain_text("Move 1 of")
    controls.get_by_role("link", name="First").click()
    expect(circle).to_have_attribute("r", str(before))
    controls.get_by_role("button", name="Play").click()
    expect(controls).to_contain_text("Move 2 of")
    controls.get_by_role("button", name="Pause").click()
    expect(controls.get_by_role("button", name="Play")).to_be_visible()
    controls.get_by_role("link", name="Last").click()
    expect(controls.get_by_role("button", name="Play")).to_be_visible()
    assert find_violations(page) == []
    count = page.locator(".node").count()
    page.goto(f"{page.url}&limit=2")
    expect(page.locator(".node")).to_have_count(2)
    last = page.locator(".walk tbody tr").last
    expect(last).to_contain_text(re.compile(rf"^\s*{count - 2} skills? that"))
    page.get_by_role("link", name=f"Show all {count} skills").click()
    expect(page.locator(".node")).to_have_count(count)
    expect(last).to_contain_text("elsewhere")


def test_it_is_read_without_scripts(open_page: Open) -> None:
    page = open_page("read", java_script_enabled=False)
    page.goto(SKILL)
    page.get_by_role("checkbox", name="semantic").uncheck()
    page.get_by_role("button", name="Show").click()
    expect(page.locator("#graph-links")).to_contain_text("declared: bread-baking")
    assert "semantic" not in read_query(page)["type"]
    ask(page)
    page.get_by_role("link", name="Graph", exact=True).last.click()
    page.get_by_role("link", name="Walk of the ranking").click()
    page.get_by_role("link", name="Forward").click()
    expect(page.locator(".walk-controls")).to_contain_text("Move 1 of")
    expect(page.locator(".walk th.present")).to_have_text("1")
    expect(page.locator(".walk tbody")).to_contain_text("elsewhere")


def test_nothing_asked_says_what_to_do(open_page: Open) -> None:
    page = open_page("read")
    page.goto("/console/graph")
    page.get_by_role("searchbox").fill("zzzzzz")
    page.get_by_role("button", name="Search").click()
    expect(page.locator(".empty")).to_contain_text("Use fewer or other words")
    page.get_by_role("searchbox").fill("stoneware")
    page.get_by_role("button", name="Search").click()
    page.get_by_role("link", name="crafts:kiln-firing").click()
    expect(page.get_by_role("heading", level=1)).to_have_text("Graph of kiln-firing")


def test_a_hidden_neighbour_is_not_shown(served: Served, open_page: Open) -> None:
    path = "/console/graph?skill=hostile:hostile-0"
    page = open_page("read")
    page.goto(path)
    # What the policy withholds is shown to admins alone.
    expect(page.locator(".node")).to_have_count(1)
    expect(page.get_by_text("1 skill, 0 links")).to_be_visible()
    page = open_page("admin")
    page.goto(path)
    expect(page.locator(".node").nth(2)).to_be_attached()


@pytest.mark.usefixtures("twin")
def test_skills_of_the_same_name_are_told_apart(open_page: Open) -> None:
    page = open_page("read")
    page.goto("/console/graph?skill=crafts:garden-frost&type=alternative")
    expect(page.get_by_role("heading", level=1)).to_have_text("Graph of crafts:garden-frost")
    both = ["crafts:garden-frost", "gardens:garden-frost"]
    expect(page.locator(".node text")).to_have_text(both)
    assert page.locator(".node title").all_text_contents() == both
    row = page.locator("#graph-links tbody tr")
    expect(row).to_have_count(1)
    for name in both:
        expect(row).to_contain_text(name)
    page.locator(".node").first.focus()
    details = page.get_by_role("status", name="Evidence")
    expect(details.get_by_role("heading")).to_have_text("crafts:garden-frost")
    for name in both:
        expect(details.get_by_role("listitem")).to_contain_text(name)


@pytest.mark.usefixtures("twin")
def test_a_link_that_both_skills_own_is_one(open_page: Open) -> None:
    page = open_page("admin")
    page.goto("/console/skills/crafts:garden-frost?tab=links")
    rows = page.get_by_role("row", name=re.compile("gardens:garden-frost")).filter(
        has_text="alternative"
    )
    expect(rows).to_have_count(1)
    listed = page.locator("table.links tbody tr").count()
    expect(page.get_by_role("link", name=re.compile("^Links"))).to_contain_text(str(listed))
    rows.get_by_text("Dismiss…").click()
    rows.get_by_label("Reason").fill("another garden")
    rows.get_by_role("button", name="Dismiss the link").click()
    dismissed = page.get_by_role("row", name=re.compile("another garden"))
    expect(dismissed).to_have_count(1)
    expect(page.locator("table.links tbody tr")).to_have_count(listed - 1)
    dismissed.get_by_role("button", name="Restore").click()
    expect(dismissed).to_have_count(0)


def test_links_of_the_skill_stand_out(open_page: Open) -> None:
    page = open_page("admin")
    page.goto("/console/graph?skill=hostile:hostile-1")
    aside, own = page.locator(".link-aside"), page.locator(".link:not(.link-aside)")
    expect(own.first).to_be_attached()
    ends = page.locator(".link").evaluate_all(
        "all => all.map(one => [one.dataset.ends.split(' ').includes('0'), "
        "+getComputedStyle(one.querySelector('.line')).opacity, +one.dataset.link])"
    )
    assert aside.count() > 0
    assert max(n for is_own, _, n in ends if is_own) < min(n for is_own, _, n in ends if not is_own)
    assert min(o for is_own, o, _ in ends if is_own) > max(o for is_own, o, _ in ends if not is_own)
