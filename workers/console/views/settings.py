"""Settings: health of the deployment, tokens, and the settings in force; for admins."""

from __future__ import annotations

from collections import defaultdict
from dataclasses import dataclass

from fastapi import APIRouter, Request, Response
from starlette.datastructures import FormData

from config.errors import UsageError
from workers.audit.requests import note_object
from workers.console.forms import SentForm, get_text, validate
from workers.console.pages import PREFIX, Pages, redirect
from workers.http.authentication import CurrentCaller, check_scope
from workers.http.problems import describe_error
from workers.http.routes.operations.settings import SettingData, SettingsService
from workers.http.routes.operations.tokens import NewToken, TokenService, describe_new
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
            raise UsageError("expires: choose one in the list")
        values = {
            "name": self.name,
            "scope": self.scope,
            "groups": tuple(self.groups.split()),
            "expires_in_seconds": int(self.days) * _DAY_SECONDS if self.days else None,
        }
        return validate(NewToken, values)


def settings_views(
    pages: Pages, settings_service: SettingsService, token_service: TokenService
) -> APIRouter:
    """Return the routes of settings and tokens."""
    router = APIRouter()

    def render_settings(request: Request, given: NewTokenForm, problem: str = "") -> Response:
        found = settings_service.list_settings()
        groups: dict[str, list[SettingData]] = defaultdict(list)
        for one in found.settings:
            group, _, _ = one.name.rpartition(".")
            groups[group].append(one)
        return pages.render(
            request,
            "settings/settings.html",
            400 if problem else 200,
            section="Settings",
            checks=settings_service.list_checks(),
            tokens=token_service.list_tokens(),
            scopes=[scope.name.lower() for scope in TokenScope],
            lifetimes=LIFETIMES,
            found=found,
            changed=[one for one in found.settings if one.origin != "default" or one.is_changed],
            groups=groups,
            given=given,
            problem=problem,
        )

    @router.get("/settings")
    def show_settings(request: Request, caller: CurrentCaller) -> Response:
        check_scope(caller, TokenScope.ADMIN)
        return render_settings(request, NewTokenForm())

    @router.post("/actions/tokens/add")
    def add_token(request: Request, caller: CurrentCaller, form: SentForm) -> Response:
        given = NewTokenForm.of(form)
        note_object(request, given.name)
        check_scope(caller, TokenScope.ADMIN)
        try:
            new = given.to_new_token()
            note_object(request, describe_new(new))
            added = token_service.add(new)
        except UsageError as error:
            return render_settings(request, given, describe_error(error, caller))
        return pages.render(
            request,
            "settings/added.html",
            section="Settings",
            added=added,
            scope=new.scope,
            lifetime=LIFETIMES[given.days] if given.days else "",
        )

    @router.post("/actions/tokens/revoke")
    def revoke_token(request: Request, caller: CurrentCaller, form: SentForm) -> Response:
        name = get_text(form, "name")
        note_object(request, name)
        check_scope(caller, TokenScope.ADMIN)
        token_service.revoke(name)
        return redirect(f"{PATH}#tokens")

    return router
