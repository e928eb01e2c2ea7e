"""A library of attacks: nothing of it is executed, fetched, or breaks a page."""

from __future__ import annotations

import itertools
from collections.abc import Callable, Iterator
from urllib.parse import quote, urlencode

from playwright.sync_api import Page

from tests.console.conftest import Served, Trouble, find_overflow
from tests.support.samples.hostile_pages import ATTACKS

LOOK = """() => ({
    overflow: document.documentElement.scrollWidth - document.documentElement.clientWidth,
    hit: window.hit ?? null,
    isVisible: document.querySelector("main").checkVisibility(),
    elements: document.querySelectorAll(
        "main :is(script, iframe, base, style, img, object)").length,
    text: document.body.innerText,
})"""
"""What is looked at on a page, in one call."""

TABS = ("text", "record", "findings", "files", "links", "use", "revisions", "history")


def list_pages(served: Served) -> Iterator[str]:
    """The URLs of every view of every hostile skill, and of all else that shows its words."""
    skills = [one for one in served.skillbus.skills() if one.startswith("hostile:")]
    for skill_id in skills:
        for tab in TABS:
            yield f"/console/skills/{quote(skill_id, safe='/:')}?tab={tab}"
        yield f"/console/graph?{urlencode({'skill': skill_id, 'depth': 2})}"
    revisions = served.skillbus("skills", "history", "hostile:hostile-0", "--json").data
    after, before = (one["seq"] for one in revisions)
    compared = urlencode({"tab": "revisions", "before": before, "after": after})
    yield f"/console/skills/hostile:hostile-0?{compared}"
    for state in ("", "any", "failed"):
        yield f"/console/library?{urlencode({'source': 'hostile', 'state': state})}"
    fields = itertools.cycle(
        [
            ("library", ("q",)),
            ("library", ("source", "licence")),
            ("ask", ("task", "why")),
            ("graph", ("find",)),
        ]
    )
    for attack, (view, names) in zip(ATTACKS, fields, strict=False):
        # Values of fields are attributes: each page also gets the attacks that would end one.
        text = f"{ATTACKS[2]} {ATTACKS[3]} {attack[:200]}"
        yield f"/console/{view}?{urlencode(dict.fromkeys(names, text))}"
    for tab in ("overview", "queries", "unanswered", "unused", "copies"):
        yield f"/console/use?tab={tab}"
    yield f"/console/use?{urlencode({'source': ATTACKS[0]})}"
    yield "/console/quality"
    yield "/console/quality/labels"
    yield "/console/review?state=any"
    yield "/console/sources"
    yield "/console/work"
    yield "/console/settings"


def test_no_attack_of_a_library_reaches_its_reader(
    served: Served, open_page: Callable[..., Page]
) -> None:
    page = open_page("admin", viewport={"width": 360, "height": 800})
    text, wide = "", []
    for url in list_pages(served):
        response = page.goto(url)
        assert response is not None
        assert response.status == 200, url
        found = page.evaluate(LOOK)
        if found["overflow"]:
            wide.append(url)
        assert found["hit"] is None, url
        assert found["isVisible"], url
        assert not found["elements"], url
        text += found["text"]
    assert not wide
    missing = [mark for mark in served.places.marks if mark not in text]
    assert len(served.places.marks) >= 60
    assert not missing, f"places that no page shows: {missing}"
    for hidden in ("\u202e", "\u2066", "\u200b", "\u2060", "\U000e0041"):
        assert hidden not in text
    assert "U+202E" in text


def test_no_attack_in_a_query_reaches_its_reader(
    served: Served, open_page: Callable[..., Page], trouble: Trouble
) -> None:
    page = open_page("admin", viewport={"width": 360, "height": 800})
    for attack in ATTACKS:
        task = f"{attack} ripen a washed rind cheese in a humid cellar"
        asked = served.request("admin", "POST", "/v1/queries", json={"task": task}).json()
        page.goto(f"/console/ask/{asked['id']}")
        page.get_by_role("heading", name="Bundle", exact=True).wait_for()
        assert page.evaluate("window.hit") is None
        assert not find_overflow(page), attack
        assert page.locator("main *:is(script, iframe, base, style, img, object)").count() == 0
    for url in ("/console/use", "/console/use?tab=queries", "/console/use?tab=unanswered"):
        page.goto(url)
        assert not find_overflow(page)
        assert page.evaluate("window.hit") is None


def test_a_skill_with_half_a_character_is_shown(
    served: Served, open_page: Callable[..., Page], trouble: Trouble
) -> None:
    trouble.expected.append("404")
    page = open_page("read")
    response = page.goto("/console/skills/hostile:%ED%A0%80")
    assert response is not None
    assert response.status == 404
