"""Settings: health of the deployment, tokens, and the settings in force; for admins."""

from __future__ import annotations

from collections import defaultdict

from fastapi import APIRouter, Request, Response
from pydantic import ValidationError

from config.errors import UsageError
from skills.events import describe_validation_error
from workers.audit.requests import note_object
from workers.console.forms import SentForm, get_text
from workers.console.pages import PREFIX, Pages, redirect
from workers.http.authentication import CurrentCaller, check_scope
from workers.http.routes.operations.settings import SettingData, SettingsService
from workers.http.routes.operations.tokens import NewToken, TokenService, describe_new
from workers.http.tokens import TokenScope

PATH = f"{PREFIX}/settings"
LIFETIMES = {"": "unlimited", "1": "1 day", "7": "7 days", "30": "30 days", "90": "90 days"}
"""By days: the choices of the form."""

_DAY_SECONDS = 86_400


def settings_views(
    pages: Pages, settings_service: SettingsService, token_service: TokenService
) -> APIRouter:
    """Return the routes of settings and tokens."""
    router = APIRouter()

    @router.get("/settings")
    def show_settings(request: Request, caller: CurrentCaller) -> Response:
        check_scope(caller, TokenScope.ADMIN)
        found = settings_service.list_settings()
        groups: dict[str, list[SettingData]] = defaultdict(list)
        for one in found.settings:
            group, _, _ = one.name.rpartition(".")
            groups[group].append(one)
        return pages.render(
            request,
            "settings/settings.html",
            section="Settings",
            checks=settings_service.list_checks(),
            tokens=token_service.list_tokens(),
            scopes=[scope.name.lower() for scope in TokenScope],
            lifetimes=LIFETIMES,
            found=found,
            changed=[one for one in found.settings if one.origin != "default" or one.is_changed],
            groups=groups,
        )

    @router.post("/actions/tokens/add")
    def add_token(request: Request, caller: CurrentCaller, form: SentForm) -> Response:
        name = get_text(form, "name").strip()
        note_object(request, name)
        check_scope(caller, TokenScope.ADMIN)
        days = get_text(form, "days")
        if days not in LIFETIMES:
            raise UsageError("expires: choose one in the list")
        try:
            new = NewToken(
                name=name,
                scope=get_text(form, "scope"),
                groups=tuple(get_text(form, "groups").split()),
                expires_in_seconds=int(days) * _DAY_SECONDS if days else None,
            )
        except ValidationError as error:
            raise UsageError(describe_validation_error(error)) from None
        note_object(request, describe_new(new))
        added = token_service.add(new)
        return pages.render(
            request, "settings/added.html", section="Settings", added=added, scope=new.scope
        )

    @router.post("/actions/tokens/revoke")
    def revoke_token(request: Request, caller: CurrentCaller, form: SentForm) -> Response:
        name = get_text(form, "name")
        note_object(request, name)
        check_scope(caller, TokenScope.ADMIN)
        token_service.revoke(name)
        return redirect(f"{PATH}#tokens")

    return router
