"""The main path of each view, as somebody at a browser takes it."""

from __future__ import annotations

import json
import re
import time
from collections.abc import Callable
from pathlib import Path
from urllib.parse import parse_qs, urlsplit

from playwright.sync_api import BrowserContext, Page, Route, expect

from tests.console.conftest import TASK, Served, ask, is_use, log_in
from tests.support.samples.library import write_skill

Open = Callable[..., Page]
OpenContext = Callable[..., BrowserContext]


def read_query(page: Page) -> dict[str, list[str]]:
    return parse_qs(urlsplit(page.url).query)


class TestLibrary:
    def test_it_is_searched_while_words_are_typed(self, open_page: Open) -> None:
        page = open_page("read")
        page.goto("/console/library?source=crafts")
        expect(page.get_by_role("status")).to_contain_text("10 skills, by id")
        page.evaluate("window.isSamePage = true")
        page.keyboard.press("/")
        page.keyboard.type("constell")
        rows = page.locator("#results tbody tr")
        expect(rows).to_have_count(1)
        expect(rows).to_contain_text("star-charts")
        assert page.evaluate("window.isSamePage")
        expect(page.get_by_role("searchbox")).to_be_focused()
        # A part of the word finds the same row earlier.
        expect(page).to_have_url(re.compile("q=constell"))
        assert read_query(page) == {"q": ["constell"], "source": ["crafts"]}
        page.reload()
        expect(rows).to_have_count(1)
        expect(page.get_by_role("searchbox")).to_have_value("constell")

    def test_words_typed_before_the_scripts_are_loaded_are_searched(self, open_page: Open) -> None:
        page = open_page("read")
        waiting: list[Route] = []
        page.route("**/htmx.min.*", lambda route: waiting.append(route))
        page.goto("/console/library?source=crafts", wait_until="commit")
        page.get_by_role("searchbox").fill("constell")
        rows = page.locator("#results tbody tr")
        expect(rows).to_have_count(10)
        page.evaluate("window.isSamePage = true")
        while not waiting:
            page.wait_for_timeout(20)
        waiting[0].continue_()
        expect(rows).to_have_count(1)
        assert page.evaluate("window.isSamePage")
        assert read_query(page) == {"q": ["constell"], "source": ["crafts"]}

    def test_filters_are_links_that_can_be_sent(self, open_page: Open) -> None:
        page = open_page("read")
        page.goto("/console/library?source=crafts")
        page.get_by_role("link", name=re.compile(r"^failed")).click()
        expect(page.locator("#results tbody tr")).to_have_count(1)
        expect(page.locator("#results tbody tr")).to_contain_text("the file has no text")
        assert read_query(page) == {"source": ["crafts"], "state": ["failed"]}
        page.go_back()
        expect(page.locator("#results tbody tr")).to_have_count(10)
        page.go_forward()
        expect(page.locator("#results tbody tr")).to_have_count(1)
        page.get_by_role("link", name="clear").click()
        assert read_query(page) == {}

    def test_skills_with_scripts_and_with_embedded_sections(self, open_page: Open) -> None:
        page = open_page("read")
        page.goto("/console/library?source=crafts")
        page.get_by_role("link", name=re.compile(r"^without")).click()
        rows = page.locator("#results tbody tr")
        expect(rows).to_have_count(10)
        expect(page.get_by_role("link", name=re.compile(r"^without"))).to_have_attribute(
            "aria-current", "true"
        )
        page.get_by_role("link", name=re.compile(r"^embedded")).click()
        assert read_query(page) == {
            "source": ["crafts"],
            "has_scripts": ["false"],
            "embedded": ["true"],
        }
        expect(rows).to_have_count(10)

    def test_it_is_read_without_scripts(self, open_page: Open) -> None:
        page = open_page("read", java_script_enabled=False)
        page.goto("/console/library")
        page.get_by_role("searchbox").fill("sourdough")
        page.get_by_role("button", name="Search").click()
        row = page.locator("#results tbody tr").first
        expect(row).to_contain_text("bread-baking")
        row.get_by_role("link").click()
        expect(page.get_by_role("heading", level=1)).to_have_text("bread-baking")

    def test_nothing_found_says_what_to_do(self, open_page: Open) -> None:
        page = open_page("read")
        page.goto("/console/library?q=zzzzzz")
        expect(page.locator(".empty")).to_contain_text("Use fewer or other words")


class TestSkill:
    def test_its_text_has_lines_roles_and_findings(self, open_page: Open) -> None:
        page = open_page("admin")
        page.goto("/console/skills/crafts:kiln-firing")
        line = page.locator("#L11")
        expect(line).to_have_class(re.compile("role-"))
        expect(page.locator(".legend")).to_contain_text("step")
        page.get_by_role("link", name="11", exact=True).click()
        assert page.url.endswith("#L11")
        page.goto("/console/skills/hostile:hostile-0?tab=findings")
        page.get_by_role("link", name=re.compile("SKILL.md line")).first.click()
        marked = page.locator("tr:target")
        expect(marked).to_have_class(re.compile("marked"))

    def test_its_links_lead_to_the_other_skill(self, open_page: Open) -> None:
        page = open_page("read")
        page.goto("/console/skills/crafts:kiln-firing?tab=links")
        row = page.get_by_role("row", name=re.compile("declared: bread-baking"))
        row.get_by_role("link").click()
        expect(page.get_by_role("heading", level=1)).to_have_text("bread-baking")
        page.get_by_role("link", name=re.compile("^Links")).click()
        expect(page.get_by_role("heading", name="From other skills")).to_be_visible()

    def test_revisions_are_compared(self, served: Served, open_page: Open) -> None:
        write_skill(served.root, "tide-tables", body="## Steps\n\n1. Look at the moon.\n")
        page = open_page("read")
        page.goto("/console/skills/crafts:tide-tables?tab=revisions")
        while page.get_by_role("button", name="Compare").count() == 0:
            page.reload()
        page.get_by_role("button", name="Compare").click()
        expect(page.locator("tr.added")).to_contain_text(["1. Look at the moon."])
        expect(page.locator("tr.removed").first).to_contain_text("Prepare the tide tables")
        page.get_by_role("row", name=re.compile("superseded")).get_by_role("link").click()
        expect(page.locator(".notice")).to_contain_text("queries do not read it")
        expect(page.locator("table.source")).to_contain_text("Prepare the tide tables")

    def test_a_failed_skill_says_why(self, open_page: Open) -> None:
        page = open_page("read")
        page.goto("/console/skills/crafts:broken")
        expect(page.locator(".notice.bad")).to_contain_text("broken/SKILL.md:1: the file has no")
        page.get_by_role("link", name="Findings").click()
        expect(page.get_by_text("without a warning")).to_have_count(0)
        page.get_by_role("link", name="History").click()
        expect(page.get_by_role("row", name=re.compile("the file has no"))).to_be_visible()
        expect(page.get_by_role("columnheader", name="Trace")).to_have_count(0)

    def test_warnings_of_the_parser_are_no_findings(self, served: Served, open_page: Open) -> None:
        write_skill(served.root, "chair-caning", "Cane a chair", license="MIT\nlicense: MIT")
        served.skillbus("sync", str(served.root), "--until", "words")
        page = open_page("read")
        page.goto("/console/skills/crafts:chair-caning")
        expect(page.locator(".head .badge.level-0")).to_have_text("clean")
        tab = page.get_by_role("link", name=re.compile("^Findings"))
        expect(tab).to_have_text(re.compile(r"^Findings \d warnings?$"))

    def test_it_is_pinned_and_unpinned(self, served: Served, open_page: Open) -> None:
        page = open_page("write")
        page.goto("/console/skills/crafts:violin-setup")
        page.get_by_text("Pin…").click()
        page.get_by_label("Reason").fill("until the luthier has read it")
        page.get_by_role("button", name=re.compile("Pin to revision")).click()
        expect(page.locator("dl.facts")).to_contain_text("until the luthier has read it")
        [pin] = [
            one
            for one in served.skillbus("pins", "list", "--json").data
            if one["skill_id"] == "crafts:violin-setup"
        ]
        assert pin["reason"] == "until the luthier has read it"
        page.get_by_text("Unpin…").click()
        page.get_by_role("button", name="Unpin").click()
        expect(page.locator("dl.facts")).not_to_contain_text("luthier")

    def test_it_is_removed_and_recorded(self, served: Served, open_page: Open) -> None:
        write_skill(served.root, "rope-splicing", "Splice a three-strand rope")
        page = open_page("write")
        while served.request("write", "GET", "/v1/skills/crafts:rope-splicing").status_code == 404:
            time.sleep(0.1)
        page.goto("/console/skills/crafts:rope-splicing")
        page.get_by_text("Remove…").click()
        page.get_by_role("button", name="Remove this skill").click()
        expect(page.locator(".head .badge.state-done")).to_be_visible()
        page.get_by_role("link", name="crafts:rope-splicing").click()
        expect(page.locator(".badge.state-removed")).to_be_visible()
        records = served.skillbus("audit", "--json").data
        [record] = [one for one in records if one["object"] == "crafts:rope-splicing"]
        assert record["action"] == "skills.remove"
        assert record["principal"] == "write"

    def test_a_link_is_dismissed_and_restored(self, open_page: Open) -> None:
        page = open_page("admin")
        page.goto("/console/skills/crafts:kiln-firing?tab=links")
        row = page.get_by_role("row", name=re.compile("declared: bread-baking"))
        row.get_by_text("Dismiss…").click()
        row.get_by_label("Reason").fill("no bread in the kiln")
        row.get_by_role("button", name="Dismiss the link").click()
        expect(row).to_have_count(0)
        dismissed = page.get_by_role("row", name=re.compile("no bread in the kiln"))
        dismissed.get_by_role("button", name="Restore").click()
        expect(dismissed).to_have_count(0)

    def test_a_reader_is_offered_no_change(self, open_page: Open) -> None:
        page = open_page("read")
        page.goto("/console/skills/crafts:violin-setup")
        expect(page.get_by_text("Remove…")).to_have_count(0)
        expect(page.get_by_text("Pin…")).to_have_count(0)


class TestAsk:
    def test_an_answer_shows_what_was_sent_and_why(self, served: Served, open_page: Open) -> None:
        page = open_page("read")
        ask(page)
        first = page.locator("article.result").first
        expect(first).to_contain_text("kiln-firing")
        expect(first).to_contain_text("Probability")
        expect(first.locator("tr.sent").first).to_be_visible()
        candidates = page.get_by_role("region", name="Candidates")
        best = candidates.locator("tbody tr").first
        expect(best).to_contain_text("crafts:kiln-firing")
        expect(best).to_contain_text("its text matches the task")
        sent = served.skillbus("query", TASK, "--format", "markdown").out
        assert page.locator("#copy-markdown").text_content() is not None
        shown = page.locator("#copy-markdown").inner_text()
        assert shown.split()[:-1] == sent.split()[:-1]  # all but the id of the query
        url = page.url
        page.goto("/console/library")
        page.goto(url)
        expect(first).to_contain_text("kiln-firing")

    def test_a_prerequisite_has_the_probability_of_what_needs_it(self, open_page: Open) -> None:
        page = open_page("read")
        ask(page)
        facts = page.locator("article.result", has_text="declared dependency").locator("dl")
        own = page.locator("article.result").first.locator("dl").inner_text()
        found = re.search(r"Probability\s+(\S+)", own)
        assert found is not None
        expect(facts).to_contain_text(f"{found[1]} that of the skill that needs it")
        candidates = page.locator("section", has=page.locator("#candidates"))
        expect(candidates).to_contain_text("The probability is that of the skill itself")
        expect(candidates).to_contain_text("The order is the final one")

    def test_a_skill_is_looked_up_by_its_id_or_name_alone(self, open_page: Open) -> None:
        # An admin also sees the hostile skills, which have the same words.
        page = open_page("admin")
        ask(page)
        rows = page.locator("section", has=page.locator("#why")).locator("tbody tr")
        for find in ("crafts:cheese-ripening", "cheese-ripening"):
            page.get_by_label("its id or words").fill(find)
            page.get_by_role("button", name="Look up").click()
            expect(page.get_by_label("its id or words")).to_have_value(find)
            expect(rows).to_have_count(1)
            expect(rows).to_contain_text("crafts:cheese-ripening")

    def test_it_is_asked_again_without_a_stage(self, served: Served, open_page: Open) -> None:
        page = open_page("read")
        ask(page)
        page.get_by_text("Limits, filters and stages").click()
        page.get_by_label("Maximum skills").fill("1")
        page.get_by_label("diffusion").check()
        page.get_by_role("button", name="Ask again").click()
        change = page.locator(".notice", has_text="Compared with")
        expect(change).to_be_visible()
        expect(page.get_by_label("diffusion")).to_be_checked()
        expect(page.get_by_label("Task")).to_have_value(TASK)
        assert not is_use(served, page)
        assert "record_use" not in page.locator("#copy-curl").inner_text()
        page.get_by_label("Task").fill(f"{TASK} of 60 litres")
        page.get_by_role("button", name="Ask again").click()
        expect(page.get_by_label("Task")).to_have_value(f"{TASK} of 60 litres")
        assert is_use(served, page)

    def test_an_outcome_is_reported(self, served: Served, open_page: Open) -> None:
        page = open_page("write")
        ask(page, "fire a stoneware vase in the electric kiln")
        query_id = urlsplit(page.url).path.rpartition("/")[2]
        page.get_by_label("Skill", exact=True).select_option("crafts:kiln-firing")
        page.get_by_label("Outcome", exact=True).select_option("helped")
        page.get_by_role("button", name="Report").click()
        expect(page.get_by_role("status")).to_contain_text("Reported")
        listed = page.get_by_role("listitem").filter(has_text="helped by person")
        while listed.count() == 0:
            page.reload()
        expect(listed).to_contain_text("crafts:kiln-firing")
        page.get_by_label("Outcome", exact=True).select_option("rejected:wrong_step")
        page.get_by_label("Skill", exact=True).select_option("crafts:kiln-firing")
        page.get_by_role("button", name="Report").click()
        records = served.skillbus("audit", "--json").data
        assert [one["action"] for one in records if one["object"] == query_id] == [
            *("outcomes.report", "outcomes.report")
        ]

    def test_no_skill_says_how_sure_that_is(self, open_page: Open) -> None:
        page = open_page("read")
        ask(page, "negotiate the salary of a goalkeeper")
        expect(page.locator(".notice.warn").first).to_contain_text("No skill")
        expect(page.locator("#candidates")).to_be_visible()

    def test_it_is_asked_without_scripts(self, open_page: Open) -> None:
        page = open_page("read", java_script_enabled=False)
        ask(page)
        expect(page.locator("article.result").first).to_contain_text("kiln-firing")


class TestUse:
    def test_it_shows_queries_and_unanswered_ones(self, served: Served, open_page: Open) -> None:
        served.skillbus("query", TASK)
        served.skillbus("query", "negotiate the salary of a goalkeeper", code=3)
        page = open_page("admin")
        page.goto("/console/use")
        tile = page.locator(".tile", has_text="Without a skill").locator("dd")
        expect(tile).not_to_have_text("0")
        expect(page.get_by_role("img", name="Queries over time")).to_be_visible()
        row = page.get_by_role("row", name=re.compile("^crafts:kiln-firing"))
        expect(row).to_be_visible()
        page.get_by_role("link", name="Queries", exact=True).click()
        asked = page.locator("table.grouped tr")
        expect(asked.filter(has_text="goalkeeper").first).to_contain_text("no skill")
        page.get_by_label("Answer").select_option("with a skill")
        page.wait_for_url(lambda url: "outcome=hit" in url)
        expect(asked.filter(has_text="goalkeeper")).to_have_count(0)
        expect(asked.nth(1)).to_contain_text("crafts:kiln-firing")
        asked.filter(has_text="answer kept").get_by_role("link", name=TASK).first.click()
        expect(page.get_by_role("heading", name="Bundle", exact=True)).to_be_visible()
        page.goto("/console/use")
        page.get_by_role("link", name="Unanswered").click()
        expect(page.get_by_role("main")).not_to_contain_text(re.compile(r"\b1 queries"))
        page.get_by_role("link", name="negotiate the salary").click()
        expect(page.get_by_label("Task")).to_have_value("negotiate the salary of a goalkeeper")

    def test_what_nobody_needs_is_listed_and_exported(self, open_page: Open) -> None:
        page = open_page("read")
        page.goto("/console/use?tab=unused&source=crafts")
        expect(page.get_by_role("link", name="map-projection")).to_be_visible()
        page.get_by_label("Range").select_option("7 days")
        page.wait_for_url(lambda url: "days=7" in url)
        assert read_query(page) == {"tab": ["unused"], "days": ["7"], "source": ["crafts"]}
        with page.expect_download() as download:
            page.get_by_role("link", name="Export as JSON").click()
        exported = json.loads(Path(download.value.path()).read_text(encoding="utf-8"))
        assert "crafts:map-projection" in {one["skill_id"] for one in exported["skills"]}


class TestWorkAndSources:
    def test_a_source_is_synced(self, open_page: Open) -> None:
        page = open_page("write")
        page.goto("/console/sources")
        row = page.get_by_role("row", name=re.compile("^crafts"))
        expect(row).to_contain_text("directory")
        page.get_by_role("button", name="Sync now crafts").click()
        expect(page.locator(".head .badge.state-done")).to_be_visible()
        page.goto("/console/work")
        expect(page.get_by_role("row").filter(has=page.locator("time")).first).to_contain_text(
            "source changed"
        )
        expect(page.get_by_role("row").filter(has=page.locator("time")).first).to_contain_text(
            "write"
        )


def test_two_tabs_and_two_tokens_do_not_meet(served: Served, open_context: OpenContext) -> None:
    one, other = open_context(), open_context()
    log_in(one.new_page(), served.secrets["read"])
    log_in(other.new_page(), served.secrets["admin"])
    first, second, third = one.new_page(), one.new_page(), other.new_page()
    for page, name in ((first, "read"), (second, "read"), (third, "admin")):
        page.goto("/console/library")
        expect(page.locator(".caller")).to_contain_text(name)
    first.get_by_role("button", name="Log out").click()
    second.reload()
    assert "/console/login" in second.url
    third.reload()
    expect(third.locator(".caller")).to_contain_text("admin")
