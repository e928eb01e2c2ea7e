"""The settings in force, and checks of the deployment; for admins."""

from __future__ import annotations

from dataclasses import asdict
from typing import Annotated, Any, Literal

from fastapi import APIRouter

from config.load_settings import get_config_path
from workers.backend.store_backend import StoreBackend
from workers.http.dependencies import CurrentBackend, from_state
from workers.http.models import ResponseModel
from workers.monitoring.doctor import check_deployment
from workers.monitoring.recent_value import RecentValue
from workers.monitoring.setting_origins import list_settings_in_force

_FRESH_SECONDS = 15.0
_WAIT_SECONDS = 0.05


class SettingData(ResponseModel):
    """A setting in force. name: `group.key`. value: addresses without passwords; secrets are in
    files, of which the path is shown. variable: the environment variable that sets it. is_changed:
    whether file or environment have another value now, which a restart would apply."""

    name: str
    value: Any
    origin: Literal["default", "file", "environment"]
    variable: str
    is_changed: bool


class SettingList(ResponseModel):
    """Every setting that this gateway was started with. file: path of the settings file.
    file_exists: whether it is there now. problem: why it cannot be read now, "" if it can."""

    file: str
    file_exists: bool
    problem: str
    settings: list[SettingData]


class CheckData(ResponseModel):
    """A check. state: `ok` or `failed`; detail: the result, or the problem and its remedy."""

    check: str
    state: Literal["ok", "failed"]
    detail: str


class CheckList(ResponseModel):
    """Checks, and when they were run, in seconds since the epoch; None while they run for the first
    time: ask again."""

    at: float | None
    checks: list[CheckData]


RecentChecks = RecentValue[list[dict[str, Any]]]
CurrentChecks = Annotated[RecentChecks, from_state("checks")]


def open_checks(backend: StoreBackend) -> RecentChecks:
    """Return the checks of a deployment, which run in the background."""
    return RecentValue(
        lambda: check_deployment(backend.settings, quick=True),
        fresh_seconds=_FRESH_SECONDS,
        wait_seconds=_WAIT_SECONDS,
    )


router = APIRouter(tags=["settings"])


@router.get("/v1/settings")
def list_settings(backend: CurrentBackend) -> SettingList:
    """List the settings in force and where each comes from."""
    found, problem = list_settings_in_force(backend.settings)
    path = get_config_path(backend.settings.home)
    return SettingList(
        file=str(path),
        file_exists=path.exists(),
        problem=problem,
        settings=[SettingData(**asdict(one)) for one in found],
    )


@router.get("/v1/checks")
def list_checks(checks: CurrentChecks) -> CheckList:
    """List the checks of stores, servers, workers and sources that take little time. They run
    in the background, at most every 15 seconds; `skillbus doctor` checks more."""
    found = checks.get()
    if found is None:
        return CheckList(at=None, checks=[])
    return CheckList(at=found.at, checks=[CheckData(**one) for one in found.value])
