"""`doctor`: how checks are run, and what they make of what servers say."""

from __future__ import annotations

import threading
import time

import pytest

from config.errors import SkillbusError, TransientError, UsageError
from config.settings import ServerSettings
from tasks import redis
from workers import supervisor
from workers.checks import carry_out, carry_out_side_by_side
from workers.scrape import unready
from workers.server_checks import _check_clock, _check_version


def refuse() -> str:
    raise UsageError("refused:\n  read the manual")


def test_a_failing_check_hides_no_other() -> None:
    assert carry_out({"one": refuse, "two": lambda: "fine"}) == [
        {"check": "one", "state": "wrong", "detail": "refused: read the manual"},
        {"check": "two", "state": "good", "detail": "fine"},
    ]


def test_servers_are_asked_at_once_and_none_for_long() -> None:
    gate = threading.Event()

    def hang() -> str:
        gate.wait(30)
        return "late"

    started = time.monotonic()
    rows = carry_out_side_by_side({"slow": hang, "quick": lambda: "fine", "other": hang}, 0.2)
    assert time.monotonic() - started < 5
    assert [row["state"] for row in rows] == ["wrong", "good", "wrong"]
    assert rows[0]["detail"] == "slow did not answer within 0.2 s"
    gate.set()


@pytest.mark.parametrize("version", ["3.10.8", "3.11", "4.0.1", "10.0.0"])
def test_versions_that_will_do(version: str) -> None:
    _check_version("RabbitMQ", version, (3, 10))


@pytest.mark.parametrize("version", ["3.9.27", "2.0", ""])
def test_versions_that_are_too_old(version: str) -> None:
    with pytest.raises(SkillbusError, match=r"3\.10 or later is needed"):
        _check_version("RabbitMQ", version, (3, 10))


def test_clocks_may_be_some_seconds_apart(monkeypatch: pytest.MonkeyPatch) -> None:
    servers = ServerSettings()
    for ahead, told in ((-4.9, "4.9 s ahead of Redis"), (4.9, "4.9 s behind Redis")):
        monkeypatch.setattr(redis, "clock_ahead", lambda _, ahead=ahead: ahead)
        assert told in _check_clock(servers)
    for ahead in (-5.1, 5.1, 86_400.0):
        monkeypatch.setattr(redis, "clock_ahead", lambda _, ahead=ahead: ahead)
        with pytest.raises(SkillbusError, match="same time service"):
            _check_clock(servers)


def test_a_worker_is_ready_when_servers_answer_and_a_child_has_loaded() -> None:
    up = {"up": True, "problem": ""}
    away = {"up": False, "problem": str(TransientError("Redis does not answer"))}
    assert unready({"servers": [up, up]}, 1) == []
    assert unready({"servers": [up, away]}, 2) == ["Redis does not answer"]
    assert len(unready({"servers": [away]}, 0)) == 2


def test_every_worker_needs_a_port() -> None:
    with pytest.raises(UsageError, match="leaves no port"):
        supervisor.supervise([], 1, 65_533)
