"""Quality: labels by one click, evaluations and their comparison, and why a skill is not chosen."""

from __future__ import annotations

import json
import re
from collections.abc import Callable

from playwright.sync_api import Page, expect

from tests.console.conftest import (
    TASK,
    Served,
    Trouble,
    ask,
    is_use,
    make_evaluations,
)

Open = Callable[..., Page]


def find_row(page: Page, path: str, text: str) -> None:
    """Load a page until a row with a text is there: outcomes are stored by a task."""
    page.goto(path)
    while page.get_by_role("row").filter(has_text=text).count() == 0:
        page.reload()


def test_a_label_is_set_by_one_click_measured_and_withdrawn(
    served: Served, open_page: Open
) -> None:
    task = "glaze and fire the stoneware of the summer class"
    whole = task + " of stoneware" * 200
    page = open_page("read")
    ask(page, whole)
    page.get_by_role("button", name="This is the right skill: crafts:bread-baking").click()
    expect(page.get_by_role("status")).to_contain_text("by one place at most")
    expect(page.get_by_role("status")).to_contain_text("An admin can add its name, read")
    find_row(page, "/console/quality/labels", task)
    expect(page.get_by_role("row").filter(has_text=task)).to_contain_text("crafts:bread-baking")
    ask(page, task)
    page.goto("/console/ask")
    earlier = page.get_by_role("region", name="Your earlier answers")
    expect(earlier.get_by_role("link", name=task)).to_have_count(2)
    served.skillbus("eval", "outcomes")
    admin = open_page("admin")
    admin.goto("/console/quality")
    admin.get_by_role("link", name="outcomes of labelled prompts").first.click()
    row = admin.get_by_role("row").filter(has_text=task)
    expect(row).to_contain_text("kiln-firing")
    expect(admin.get_by_role("img", name=re.compile("How often the first skill"))).to_be_visible()
    page.goto("/console/quality/labels")
    row = page.get_by_role("row").filter(has_text=task)
    row.get_by_role("link", name=task).click()
    expect(page.get_by_label("Task")).to_have_value(whole)
    page.go_back()
    row.get_by_text("Withdraw…").click()
    row.get_by_role("button", name="Withdraw").click()
    expect(page.get_by_role("status")).to_contain_text("Withdrawn")
    expect(page.get_by_role("row").filter(has_text=task)).to_have_count(0)
    records = served.skillbus("audit", "--json").data
    assert "outcomes.forget" in {one["action"] for one in records}


def test_an_admin_reads_how_own_labels_come_to_count(open_page: Open) -> None:
    page = open_page("admin")
    ask(page)
    page.get_by_role("button", name="This is the right skill: crafts:kiln-firing").first.click()
    setting = 'learning.trusted_owners = ["admin"]'
    expect(page.get_by_role("status")).to_contain_text(setting)


def test_a_skill_that_is_no_candidate_is_labelled_and_explained(
    served: Served, open_page: Open, trouble: Trouble
) -> None:
    page = open_page("write")
    ask(page)
    why = page.get_by_role("region", name="Why was a skill not chosen?")
    # It follows the bundle, before all that explains the other candidates.
    headings = page.locator("main h2").all_inner_texts()
    assert headings[:2] == ["Bundle", "Why was a skill not chosen?"]
    page.get_by_role("link", name="Why was a skill not chosen?").click()
    expect(why.get_by_role("textbox")).to_be_in_viewport()
    why.get_by_role("textbox").fill("crafts:kiln-firing")
    why.get_by_role("button", name="Look up").click()
    expect(why.get_by_role("row").last).to_contain_text("candidate 1")
    why.get_by_role("button", name="Why? crafts:kiln-firing").click()
    explained = why.locator("article")
    expect(explained).to_contain_text("in the bundle")
    expect(explained.get_by_text("Rank after each stage:")).to_be_visible()
    assert not is_use(served, page)
    expect(explained).to_be_in_viewport()
    why.get_by_role("textbox").fill("crafts:none")
    why.get_by_role("button", name="Look up").click()
    why.get_by_role("button", name="Why? crafts:none").click()
    expect(explained).to_contain_text("the library has no such skill")
    page.goto("/console/skills/crafts:kiln-firing")
    page.get_by_role("link", name="Why is it not chosen for a task?").click()
    page.get_by_label("Task").fill(TASK)
    page.get_by_text("Limits, filters and stages").click()
    page.get_by_label("Sources").fill("hostile")
    page.get_by_role("button", name="Ask").click()
    expect(explained).to_contain_text("the filter source leaves it out")


def test_two_evaluations_are_compared(served: Served, open_page: Open) -> None:
    make_evaluations(served)
    page = open_page("admin", viewport={"width": 360, "height": 800})
    page.goto("/console/quality")
    # The newest two that can be compared are chosen, whatever was evaluated after them.
    page.get_by_role("button", name="Compare").click()
    expect(page.get_by_role("heading", name="Two evaluations")).to_be_visible()
    expect(page.get_by_role("row").filter(has_text="without")).to_contain_text("bigrams")
    expect(page.get_by_role("row").filter(has_text="MRR@10")).to_be_visible()
    compared = page.url
    page.goto("/console/quality")
    page.get_by_role("link", name="routing of tasks.jsonl").first.click()
    expect(page.get_by_role("row").filter(has_text="not found").first).to_be_visible()
    for url in (page.url, compared):
        page.goto(url)
        assert page.evaluate("window.hit") is None
        assert page.locator("main *:is(script, iframe, base, style, img, object)").count() == 0


def test_an_evaluation_is_removed(served: Served, open_page: Open) -> None:
    tasks = served.root.parent / "passing.jsonl"
    row = {"task_id": "kiln", "instruction": TASK, "gt_skill_ids": ["crafts:kiln-firing"]}
    tasks.write_text(json.dumps(row), encoding="utf-8")
    served.skillbus("eval", "routing", str(tasks))
    page = open_page("admin")
    page.goto("/console/quality")
    page.get_by_role("link", name="routing of passing.jsonl").click()
    page.get_by_text("Remove…").click()
    page.get_by_role("button", name="Remove this run").click()
    expect(page.get_by_role("heading", name="Quality")).to_be_visible()
    expect(page.get_by_role("link", name="routing of passing.jsonl")).to_have_count(0)


def test_evaluations_are_read_over_http(served: Served) -> None:
    make_evaluations(served)
    listed = served.request("read", "GET", "/v1/evaluations").json()["evaluations"]
    assert len(listed) > 1
    assert served.request("write", "DELETE", "/v1/evaluations/none").status_code == 403
    assert served.request("admin", "DELETE", "/v1/evaluations/none").status_code == 404
    for one in listed:
        path = f"/v1/evaluations/{one['evaluation_id']}"
        assert served.request("read", "GET", path).json()["measures"] == one["measures"]
        same = {"before": one["evaluation_id"]}
        changes = served.request("read", "GET", f"{path}/changes", params=same).json()
        assert changes["better"] == changes["worse"] == []
    assert served.request("read", "GET", "/v1/labelled-prompts").status_code == 200
