"""Routes of the console: what changes something is recorded, and needs the token of a form."""

from __future__ import annotations

from tests.support.program.console_routes import list_console_routes
from workers.audit.requests import CONSOLE_FORMS
from workers.console.forms import read_form
from workers.console.pages import PREFIX

UNCHANGING = {"/login", "/logout", "/theme", "/ask", "/ask/{query_id}/cancel"}
"""Forms that change nothing of the library."""


def test_each_form_is_recorded_or_changes_nothing() -> None:
    routes = list_console_routes()
    posts = {one.path for one in routes if "POST" in (one.methods or ())}
    assert len(posts) > 10
    recorded = {path.removeprefix(PREFIX) for path in CONSOLE_FORMS}
    assert posts == recorded | UNCHANGING
    assert {method for one in routes for method in one.methods or ()} == {"GET", "POST"}


def test_each_form_needs_its_token() -> None:
    for one in list_console_routes():
        if "POST" in (one.methods or ()):
            needed = {dependency.call for dependency in one.dependant.dependencies}
            assert read_form in needed, one.path
