"""Passwords come from files and stay out of what is shown."""

from __future__ import annotations

from pathlib import Path

import pytest

from config.errors import MisconfiguredError
from config.secrets import add_password, read_secret, strip_password, strip_passwords


def test_the_only_line_is_the_secret(tmp_path: Path) -> None:
    file = tmp_path / "secret"
    file.write_text("s3:cr/et@x \n")
    assert read_secret(file, "servers.redis_password_file") == "s3:cr/et@x"
    assert read_secret(None, "servers.redis_password_file") is None


@pytest.mark.parametrize("content", [None, b"", b" \n", b"\xff\xfe"])
def test_a_file_that_holds_no_secret_is_refused(tmp_path: Path, content: bytes | None) -> None:
    file = tmp_path / "secret"
    if content is not None:
        file.write_bytes(content)
    with pytest.raises(MisconfiguredError, match=r"servers\.broker_password_file: .*secret"):
        read_secret(file, "servers.broker_password_file")


@pytest.mark.parametrize(
    ("url", "whole"),
    [
        ("redis://host:6379/1", "redis://:p%40s%2Fs@host:6379/1"),
        ("amqp://bus@host/vhost", "amqp://bus:p%40s%2Fs@host/vhost"),
        ("redis://[::1]:6379", "redis://:p%40s%2Fs@[::1]:6379"),
    ],
)
def test_a_password_goes_into_a_url_and_out_again(url: str, whole: str) -> None:
    assert add_password(url, "p@s/s") == whole
    assert "p%40s" not in strip_password(whole)
    assert add_password(url, None) == url == strip_password(url)
    assert add_password(whole, "p@s/s") == whole, "in place of the one that it has"


@pytest.mark.parametrize(
    ("urls", "shown"),
    [
        ("redis://:se,cret@host/0", ["redis://@host/0"]),
        ("redis://:se/cr#et?@host/0", ["redis://@host/0"]),
        ("amqp://bus:se@cret@[::1", ["amqp://bus@[::1"]),
        ("amqp://bus:a@one/, amqp://bus:b@two/", ["amqp://bus@one/", "amqp://bus@two/"]),
        ("http://one:9200,http://two:9200", ["http://one:9200", "http://two:9200"]),
        ("", [""]),
    ],
)
def test_urls_are_shown_without_passwords_that_have_commas(urls: str, shown: list[str]) -> None:
    assert strip_passwords(urls) == shown
