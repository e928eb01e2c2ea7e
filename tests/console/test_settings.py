"""Settings: tokens are added, used and revoked; where settings come from; health."""

from __future__ import annotations

import re
from collections.abc import Callable

from playwright.sync_api import BrowserContext, Page, expect

from tests.console.conftest import Served, Trouble, log_in

Open = Callable[..., Page]


def add_token(page: Page, name: str) -> None:
    """Send the form that adds a token."""
    page.goto("/console/settings")
    page.get_by_text("Add a token…").click()
    page.get_by_label("Name").fill(name)
    page.get_by_label("Groups").fill("masons carpenters")
    page.get_by_label("Scope").select_option("write")
    page.get_by_label("Lifetime").select_option("7 days")
    page.get_by_role("button", name="Add the token").click()


def test_a_button_that_copies_keeps_its_words_when_pressed_twice(open_page: Open) -> None:
    page = open_page("admin")
    page.clock.install()
    add_token(page, "twice")
    button = page.locator("[data-copy=token]")
    expect(button).to_have_text("Copy")
    for _ in range(2):
        button.click()
        expect(button).not_to_have_text("Copy")
    page.clock.run_for(4_500)
    expect(button).to_have_text("Copy")


def test_a_token_is_added_used_and_revoked(
    served: Served, open_page: Open, open_context: Callable[..., BrowserContext]
) -> None:
    page = open_page("admin")
    add_token(page, "guild")
    secret = page.locator("#token").inner_text()
    assert secret.startswith("skb_")
    assert secret not in page.url
    expect(page.get_by_role("main")).to_contain_text("Its scope is write; it expires in 7 days.")
    page.get_by_role("link", name="Back to the tokens").click()
    row = page.get_by_role("row", name=re.compile("^guild"))
    expect(row).to_contain_text("carpenters, masons")
    expect(row).to_contain_text("write")
    expect(row).to_contain_text("not since this process started")
    assert secret not in page.content()

    other = open_context().new_page()
    log_in(other, secret)
    expect(other.locator(".caller")).to_contain_text("guild")
    page.reload()
    expect(row).not_to_contain_text("not since this process started")

    row.get_by_text("Revoke…").click()
    expect(row).to_contain_text("its sessions end")
    row.get_by_role("button", name="Revoke the token").click()
    expect(row).to_have_count(0)
    other.reload()
    expect(other.get_by_role("heading", level=1)).to_have_text("Log in")
    records = served.skillbus("audit", "--json").data
    [added, revoked] = [one for one in records if one["object"].startswith("guild")]
    assert {added["action"], revoked["action"]} == {"tokens.add", "tokens.revoke"}
    assert all(one["principal"] == "admin" for one in (added, revoked))
    assert secret not in str(records)


def test_a_secret_is_on_no_page_that_is_kept(served: Served) -> None:
    added = served.request("admin", "POST", "/v1/tokens", json={"name": "brief"})
    try:
        assert added.status_code == 201
        assert added.headers["cache-control"] == "no-store"
        secret = added.json()["token"]
        listed = served.request("admin", "GET", "/v1/tokens").text
        assert secret not in listed
        assert '"brief"' in listed
        again = served.request("admin", "POST", "/v1/tokens", json={"name": "brief"})
        assert again.status_code == 400
        assert "exists already" in again.json()["detail"]
    finally:
        assert served.request("admin", "DELETE", "/v1/tokens/brief").status_code == 204
    assert served.request("admin", "DELETE", "/v1/tokens/brief").status_code == 404


def test_a_token_that_cannot_be_added_is_explained_at_its_form(
    open_page: Open, trouble: Trouble
) -> None:
    trouble.expected.append("400")
    page = open_page("admin")
    add_token(page, "read")
    form = page.locator("details[open]", has=page.get_by_label("Lifetime"))
    expect(form.get_by_role("alert")).to_contain_text("exists already")
    expect(form.get_by_label("Name")).to_have_value("read")
    expect(form.get_by_label("Groups")).to_have_value("masons carpenters")
    expect(form.get_by_label("Scope")).to_have_value("write")
    expect(form.get_by_label("Lifetime")).to_have_value("7")
    expect(page.get_by_role("row", name=re.compile("^admin"))).to_be_visible()
    assert "skb_" not in page.content()


def test_settings_say_where_they_come_from(served: Served, open_page: Open) -> None:
    page = open_page("admin")
    page.goto("/console/settings")
    row = page.get_by_role("row", name=re.compile("^gateway.burst")).first
    expect(row).to_contain_text("100000")
    expect(row).to_contain_text("environment, SKILLBUS_GATEWAY__BURST")
    path = served.skillbus.home / "skillbus.toml"
    assert served.request("admin", "GET", "/v1/settings").json()["file_exists"] is path.exists()
    expect(page.get_by_text("There is no settings file")).to_have_count(0 if path.exists() else 1)
    page.get_by_text("All settings").click()
    budget = page.get_by_role("row", name=re.compile("^choice.budget"))
    expect(budget).to_contain_text("8000")
    expect(budget).to_contain_text("default")


def test_health_is_shown_with_what_to_do(served: Served, open_page: Open) -> None:
    page = open_page("admin")
    page.goto("/console/settings")
    health = page.get_by_role("table", name="Checks of the deployment")
    health.wait_for()
    expect(health.get_by_role("row", name=re.compile("^catalog"))).to_contain_text("published")
    expect(health.get_by_role("row", name=re.compile("^disk"))).to_contain_text("ok")
    reviews = health.get_by_role("row", name=re.compile("^reviews"))
    expect(reviews.locator("code")).to_have_text("skillbus review list")
    reviews.get_by_role("link", name="Review").click()
    expect(page.get_by_role("heading", level=1)).to_have_text("Review")
