"""Routes of the console: what changes something is recorded, and needs the token of a form."""

from __future__ import annotations

from tests.support.program.console_routes import list_console_routes
from workers.audit.requests import CONSOLE_FORMS, UNCHANGING_ROUTES
from workers.console.forms import read_form
from workers.console.pages import PREFIX


def test_each_form_is_recorded_or_changes_nothing() -> None:
    routes = list_console_routes()
    posts = {one.path for one in routes if "POST" in (one.methods or ())}
    assert len(posts) > 10
    known = {*CONSOLE_FORMS, *(path for _, path in UNCHANGING_ROUTES)}
    assert posts == {path.removeprefix(PREFIX) for path in known if path.startswith(PREFIX)}
    assert {method for one in routes for method in one.methods or ()} == {"GET", "POST"}


def test_each_form_needs_its_token() -> None:
    for one in list_console_routes():
        if "POST" in (one.methods or ()):
            needed = {dependency.call for dependency in one.dependant.dependencies}
            assert read_form in needed, one.path
