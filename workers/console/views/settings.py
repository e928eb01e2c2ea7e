"""Settings: health of the deployment, tokens, and the settings in force; for admins."""

from __future__ import annotations

from collections import defaultdict
from dataclasses import dataclass

from fastapi import APIRouter, Response
from starlette.datastructures import FormData

from config.errors import UsageError
from workers.console.forms import SentForm, get_text, validate
from workers.console.pages import PREFIX, redirect
from workers.console.view import CurrentView, View
from workers.http.authentication import NEEDS_ADMIN
from workers.http.problems import describe_error
from workers.http.routes.operations.settings import SettingData, list_checks, list_settings
from workers.http.routes.operations.tokens import NewToken, add_token, list_tokens
from workers.http.tokens import TokenScope

PATH = f"{PREFIX}/settings"
LIFETIMES = {"": "unlimited", "1": "1 day", "7": "7 days", "30": "30 days", "90": "90 days"}
"""Choices of the form for the lifetime of a token, by days."""

_DAY_SECONDS = 86_400


@dataclass(frozen=True, slots=True)
class NewTokenForm:
    """The fields of the form that adds a token. days: its lifetime, a key of `LIFETIMES`."""

    name: str = ""
    scope: str = "read"
    groups: str = ""
    days: str = ""

    @classmethod
    def of(cls, form: FormData) -> NewTokenForm:
        """Return the fields of a form; raises UsageError if one is too long."""
        return cls(
            get_text(form, "name").strip(),
            *(get_text(form, name) for name in ("scope", "groups", "days")),
        )

    def to_new_token(self) -> NewToken:
        """Return the token to add; raises UsageError if a field is invalid."""
        if self.days not in LIFETIMES:
            raise UsageError("expires: choose a value from the list")
        values = {
            "name": self.name,
            "scope": self.scope,
            "groups": tuple(self.groups.split()),
            "expires_in_seconds": int(self.days) * _DAY_SECONDS if self.days else None,
        }
        return validate(NewToken, values)


router = APIRouter()


def _render_settings(view: View, given: NewTokenForm, problem: str = "") -> Response:
    found = list_settings(view.backend)
    groups: dict[str, list[SettingData]] = defaultdict(list)
    for one in found.settings:
        group, _, _ = one.name.rpartition(".")
        groups[group].append(one)
    return view.render(
        "settings/settings.html",
        400 if problem else 200,
        section="Settings",
        checks=list_checks(view.services.checks),
        tokens=list_tokens(view.services.tokens).tokens,
        scopes=[scope.name.lower() for scope in TokenScope],
        lifetimes=LIFETIMES,
        found=found,
        changed=[one for one in found.settings if one.origin != "default" or one.is_changed],
        groups=groups,
        given=given,
        problem=problem,
    )


@router.get("/settings", dependencies=NEEDS_ADMIN)
def show_settings(view: CurrentView) -> Response:
    """Show checks, tokens and settings."""
    return _render_settings(view, NewTokenForm())


@router.post("/actions/tokens/add")
def add(view: CurrentView, form: SentForm) -> Response:
    """Add a token and show its secret; show a form with an error again."""
    given = NewTokenForm.of(form)
    view.admit_change(TokenScope.ADMIN, given.name)
    try:
        new = given.to_new_token()
        added = add_token(view.services.tokens, new, view.request)
    except UsageError as error:
        return _render_settings(view, given, describe_error(error, view.caller))
    return view.render(
        "settings/added.html",
        section="Settings",
        added=added,
        scope=new.scope,
        lifetime=LIFETIMES[given.days] if given.days else "",
    )


@router.post("/actions/tokens/revoke")
def revoke(view: CurrentView, form: SentForm) -> Response:
    """Revoke a token."""
    name = get_text(form, "name")
    view.admit_change(TokenScope.ADMIN, name)
    view.services.tokens.revoke(name)
    return redirect(f"{PATH}#tokens")
