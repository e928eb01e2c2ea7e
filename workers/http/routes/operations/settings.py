"""The settings in force, and checks of the deployment; for admins."""

from __future__ import annotations

from dataclasses import asdict
from typing import Any, Literal

from fastapi import APIRouter
from pydantic import BaseModel, ConfigDict

from config.load_settings import get_config_path
from workers.backend.store_backend import StoreBackend
from workers.monitoring.doctor import check_deployment
from workers.monitoring.recent_value import RecentValue
from workers.monitoring.setting_origins import list_settings_in_force

_FRESH_SECONDS = 15.0
_WAIT_SECONDS = 0.05


class SettingData(BaseModel):
    """A setting in force. name: `group.key`. value: addresses without passwords; secrets are in
    files, of which the path is shown. variable: the environment variable that sets it. is_changed:
    whether file or environment have another value now, which a restart would apply."""

    model_config = ConfigDict(frozen=True)

    name: str
    value: Any
    origin: Literal["default", "file", "environment"]
    variable: str
    is_changed: bool


class SettingList(BaseModel):
    """Every setting that this gateway was started with. file: path of the settings file.
    file_exists: whether it is there now. problem: why it cannot be read now, "" if it can."""

    model_config = ConfigDict(frozen=True)

    file: str
    file_exists: bool
    problem: str
    settings: list[SettingData]


class CheckData(BaseModel):
    """A check. state: `ok` or `failed`; detail: the result, or the problem and its remedy."""

    model_config = ConfigDict(frozen=True)

    check: str
    state: Literal["ok", "failed"]
    detail: str


class CheckList(BaseModel):
    """Checks, and when they were run, in seconds since the epoch; None while they run for the first
    time: ask again."""

    model_config = ConfigDict(frozen=True)

    at: float | None
    checks: list[CheckData]


class SettingsService:
    """The settings of a deployment, and its checks, which run in the background."""

    def __init__(self, backend: StoreBackend) -> None:
        self._settings = backend.settings
        self._checks = RecentValue(
            lambda: check_deployment(backend.settings, quick=True),
            fresh_seconds=_FRESH_SECONDS,
            wait_seconds=_WAIT_SECONDS,
        )

    def list_settings(self) -> SettingList:
        """Return the settings in force."""
        found, problem = list_settings_in_force(self._settings)
        path = get_config_path(self._settings.home)
        return SettingList(
            file=str(path),
            file_exists=path.exists(),
            problem=problem,
            settings=[SettingData(**asdict(one)) for one in found],
        )

    def list_checks(self) -> CheckList:
        """Return the results of the last checks; old results start a new run."""
        found = self._checks.get()
        if found is None:
            return CheckList(at=None, checks=[])
        return CheckList(at=found.at, checks=[CheckData(**one) for one in found.value])


def settings_routes(service: SettingsService) -> APIRouter:
    """Return the routes of settings and checks."""
    router = APIRouter(tags=["settings"])

    @router.get("/v1/settings")
    def list_settings() -> SettingList:
        """List the settings in force and where each comes from."""
        return service.list_settings()

    @router.get("/v1/checks")
    def list_checks() -> CheckList:
        """List the checks of stores, servers, workers and sources that take little time. They run
        in the background, at most every 15 seconds; `skillbus doctor` checks more."""
        return service.list_checks()

    return router
