"""The console on real servers: all views, and what two gateways know of each other's sessions."""

from __future__ import annotations

from collections.abc import Iterator
from typing import Any

import pytest
from playwright.sync_api import Browser, expect

from tests.support.program.browser import Walk, browser
from tests.support.servers.distributed import Deployments, Distributed, deployments

__all__ = ["browser", "deployments"]


@pytest.fixture(scope="module")
def library(
    deployments: Deployments, tmp_path_factory: pytest.TempPathFactory
) -> Iterator[Distributed]:
    """A library to walk through, with all workers."""
    root = Walk.write_library(tmp_path_factory.mktemp("console") / "crafts")
    made = deployments()
    made.start()
    made.skillbus("sync", str(root))
    yield made
    made.stop()


def test_all_views_are_walked_through_on_two_gateways(
    library: Distributed, browser: Browser
) -> None:
    with library.gateway() as (first, _), library.gateway() as (second, _):
        addresses = [str(one.base_url).rstrip("/") for one in (first, second)]
        secret = library.skillbus("tokens", "add", "ana", "--scope", "admin").out.strip()
        context = browser.new_context(
            base_url=addresses[0], viewport={"width": 1280, "height": 900}
        )
        Walk(context.new_page(), secret).take_all()

        # Browsers send the cookie of a host to all of its ports.
        copied: list[Any] = [*context.cookies()]
        other = context.new_page()
        other.goto(f"{addresses[1]}/console/ask")
        expect(other.get_by_role("link", name=Walk.TASK).first).to_be_visible()
        other.get_by_role("button", name="Log out").click()
        expect(other.get_by_role("heading", level=1)).to_have_text("Log in")
        context.clear_cookies()
        context.add_cookies(copied)
        for address in addresses:
            other.goto(f"{address}/console/ask")
            expect(other.get_by_role("heading", level=1)).to_have_text("Log in")

        page = browser.new_context(base_url=addresses[0]).new_page()
        Walk(page, secret).open("Ask")
        library.skillbus("tokens", "revoke", "ana")
        page.goto(f"{addresses[1]}/console/ask")
        expect(page.get_by_role("heading", level=1)).to_have_text("Log in")
