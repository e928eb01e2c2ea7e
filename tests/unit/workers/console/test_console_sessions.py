"""Sessions in cookies, their keys and CSRF tokens."""

from __future__ import annotations

import stat
from pathlib import Path

import pytest
from cryptography.fernet import Fernet

from config.errors import MisconfiguredError, UsageError
from config.settings import Settings
from workers.console import sessions as module
from workers.console.sessions import (
    IDLE_SECONDS,
    MAX_SECONDS,
    MAX_TOKEN_BYTES,
    RENEW_SECONDS,
    ConsoleSessions,
    Session,
    open_console_sessions,
)


class Clock:
    """A clock that stands still until it is moved."""

    def __init__(self) -> None:
        self.now = 1_800_000_000.0

    def time(self) -> float:
        return self.now


@pytest.fixture
def clock(monkeypatch: pytest.MonkeyPatch) -> Clock:
    clock = Clock()
    monkeypatch.setattr(module, "time", clock)
    return clock


@pytest.fixture
def sessions() -> ConsoleSessions:
    return ConsoleSessions(Fernet.generate_key())


def headers(sessions: ConsoleSessions, session: Session) -> dict[str, str]:
    return {"cookie": f"other=1; {sessions.cookie_name}={sessions.seal(session)}"}


def test_a_cookie_gives_its_session_back(clock: Clock, sessions: ConsoleSessions) -> None:
    session = sessions.begin("skb_secret")
    assert sessions.open(headers(sessions, session)) == session
    assert "skb_secret" not in sessions.seal(session)


@pytest.mark.parametrize("other", ['{"a":1}', "a b", '"x', "é", "[1]"])
@pytest.mark.parametrize("name", ["other", "an,other", "[other]", ""])
def test_cookies_of_other_programs_do_no_harm(
    sessions: ConsoleSessions, name: str, other: str
) -> None:
    """Browsers send the cookies of all programs on a host, whatever their port."""
    cookie = headers(sessions, sessions.begin("x"))["cookie"]
    for sent in (f"{name}={other}; {cookie}", f"{cookie}; {name}={other}", f"{other}; {cookie}"):
        assert sessions.open({"cookie": sent}) is not None


@pytest.mark.parametrize("cookie", ["", "a=b", "{name}=", "{name}=gAAAA", "{name}=ü", ";;=;"])
def test_any_other_cookie_gives_none(sessions: ConsoleSessions, cookie: str) -> None:
    assert sessions.open({"cookie": cookie.replace("{name}", sessions.cookie_name)}) is None
    assert sessions.open({}) is None


def test_a_cookie_of_another_key_gives_none(sessions: ConsoleSessions) -> None:
    other = ConsoleSessions(Fernet.generate_key())
    assert other.cookie_name != sessions.cookie_name
    cookie = f"{sessions.cookie_name}={other.seal(other.begin('x'))}"
    assert sessions.open({"cookie": cookie}) is None


def test_a_session_ends_when_it_is_not_used(clock: Clock, sessions: ConsoleSessions) -> None:
    sent = headers(sessions, sessions.begin("x"))
    clock.now += IDLE_SECONDS - 1
    assert sessions.open(sent) is not None
    clock.now += 2
    assert sessions.open(sent) is None


def test_a_used_session_is_renewed_until_its_end(clock: Clock, sessions: ConsoleSessions) -> None:
    session = sessions.begin("x")
    assert sessions.renew(session) is None
    begun = clock.now
    while clock.now + IDLE_SECONDS / 2 < begun + MAX_SECONDS:
        clock.now += IDLE_SECONDS / 2
        opened = sessions.open(headers(sessions, session))
        assert opened is not None
        renewed = sessions.renew(opened)
        assert renewed is not None
        assert (renewed.id, renewed.begun) == (session.id, session.begun)
        session = renewed
    clock.now = begun + MAX_SECONDS + 1
    assert sessions.open(headers(sessions, session)) is None
    assert RENEW_SECONDS < IDLE_SECONDS


def test_a_token_that_is_too_long_is_refused(sessions: ConsoleSessions) -> None:
    sealed = sessions.seal(sessions.begin("x" * MAX_TOKEN_BYTES))
    assert len(sessions.cookie_name) + len(sealed) < 4_000
    with pytest.raises(UsageError, match="more than 2600 bytes"):
        sessions.begin("x" * (MAX_TOKEN_BYTES + 1))


def test_csrf_tokens_are_of_one_session_and_never_the_same(sessions: ConsoleSessions) -> None:
    session, other = sessions.begin("x"), sessions.begin("x")
    tokens = {sessions.create_csrf_token(session) for _ in range(5)}
    assert len(tokens) == 5
    assert all(sessions.is_csrf_token(session, token) for token in tokens)
    token = tokens.pop()
    assert not sessions.is_csrf_token(other, token)
    for wrong in ("", token[:-1], token[:-1] + "ü", token[1:], "0" * len(token)):
        assert not sessions.is_csrf_token(session, wrong)


def test_the_key_is_made_once_for_its_user_alone(tmp_path: Path) -> None:
    settings = Settings(home=tmp_path)
    first, second = open_console_sessions(settings), open_console_sessions(settings)
    assert second.open(headers(first, first.begin("x"))) is not None
    file = tmp_path / "console.key"
    assert stat.S_IMODE(file.stat().st_mode) == 0o600
    assert [one.name for one in tmp_path.iterdir()] == ["console.key"]


def test_a_home_that_cannot_be_written_has_sessions_of_the_process(tmp_path: Path) -> None:
    sessions = open_console_sessions(Settings(home=tmp_path / "missing"))
    assert sessions.open(headers(sessions, sessions.begin("x"))) is not None


def test_gateways_that_share_tokens_share_the_key(tmp_path: Path) -> None:
    shared = {"tokens_file": tmp_path / "tokens" / "tokens.json"}
    (tmp_path / "tokens").mkdir()
    one, other = (
        open_console_sessions(Settings(home=tmp_path / name, gateway=shared)) for name in "ab"
    )
    assert other.open(headers(one, one.begin("x"))) is not None


@pytest.mark.parametrize("content", [None, b"", b"too short", b"\xff" * 44])
def test_a_key_file_that_is_no_key_is_refused(tmp_path: Path, content: bytes | None) -> None:
    file = tmp_path / "key"
    if content is not None:
        file.write_bytes(content)
    settings = Settings(home=tmp_path, gateway={"console_key_file": file})
    with pytest.raises(MisconfiguredError, match=r"gateway\.console_key_file: .*key"):
        open_console_sessions(settings)
