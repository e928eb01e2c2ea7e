"""Which addresses, branches and folders of repositories are taken."""

from __future__ import annotations

import ipaddress
import socket
from typing import Any

import pytest

from config.errors import TransientError, UsageError
from config.inbound_settings import GitSettings
from tasks.sources.git.address import (
    check_branch,
    check_subfolder,
    check_url,
    is_public,
    resolve_remote,
)

OPEN = GitSettings(protocols=("https", "http"), allow_local=True, allow_private=True)


@pytest.mark.parametrize(
    "url",
    [
        *("--upload-pack=touch /tmp/x", "-https://example.org/x", "ext::sh -c id", ""),
        *("https::https://example.org/x", "file://host/x", "file://relative", "ssh://host/x"),
        *("user@host:path", "/srv/x.git", "../x", "https://", "https:///x", "https://-host/x"),
        *("https://a:b@example.org/x", "https://example.org/x?y", "https://example.org/x#y"),
        *("https://example.org/x\n", "https://example.org/\x00", "https://example.org/a b"),
        *("https://example.org:0/x", "https://example.org:99999/x", "https://[::1/x", "ftp://h/x"),
        *("https://exämple.org/x",),
    ],
)
def test_invalid_addresses_are_refused(url: str) -> None:
    with pytest.raises(UsageError):
        check_url(url, OPEN)


@pytest.mark.parametrize(
    "url",
    [
        *("git@example.org:team/skills.git", "ana@example.org:x", "ssh://git@example.org/x"),
        *("ssh://example.org/x", "git+ssh://example.org/x", "SSH://-oProxyCommand=touch/x"),
    ],
)
def test_ssh_is_refused_with_advice(url: str) -> None:
    for settings in (OPEN, GitSettings()):
        with pytest.raises(UsageError, match="https://host/path, with a token in a file"):
            check_url(url, settings)


@pytest.mark.parametrize(
    "host",
    [
        *("127.1", "2130706433", "0x7f.1", "0177.0.0.1", "0x7f000001", "08.8.8.8", "1.2.3.4.5"),
        *("ex%61mple.org", "127%2e0%2e0%2e1", "localhost.", "a..b", "[fe80::1%25eth0]", "a_b."),
        *("good.org\\127.0.0.1", "good.org;x", "[::ffff:7f.1]"),
    ],
)
def test_ambiguous_hosts_are_refused(host: str) -> None:
    with pytest.raises(UsageError):
        check_url(f"https://{host}/x.git", OPEN)


@pytest.mark.parametrize("url", ["/srv/skills", "./skills", "my skills", "~/skills", "h/x.git", ""])
def test_a_folder_is_refused_with_advice(url: str) -> None:
    for settings in (OPEN, GitSettings()):
        with pytest.raises(UsageError, match=r"https://host/path, or .* `skillbus sync FOLDER`"):
            check_url(url, settings)


@pytest.mark.parametrize("url", ["http://h/x", "git://h/x", "file:///srv/x"])
def test_only_https_by_default(url: str) -> None:
    with pytest.raises(UsageError, match="only https"):
        check_url(url, GitSettings())


def test_no_password_is_repeated() -> None:
    for url in ("https://ana:hunter2@example.org/x", "foo://ana:hunter2@h", "-x://a:hunter2@h"):
        with pytest.raises(UsageError) as caught:
            check_url(url, GitSettings())
        assert "hunter2" not in str(caught.value)


@pytest.mark.parametrize(
    "host",
    [
        *("127.0.0.1", "localhost", "LOCALHOST", "[::1]", "[0:0:0:0:0:0:0:1]", "0.0.0.0", "[::]"),
        *("10.1.2.3", "192.168.0.1", "172.16.0.1", "169.254.169.254", "100.64.0.1", "[fe80::1]"),
        *("[::ffff:127.0.0.1]", "[64:ff9b::7f00:1]", "[2002:7f00:1::]", "[fd00::1]", "224.0.0.1"),
    ],
)
def test_private_addresses_are_refused(host: str) -> None:
    with pytest.raises(UsageError, match="not a public address"):
        resolve_remote(f"https://{host}/x.git", GitSettings())


def test_one_private_address_among_others_is_refused(monkeypatch: pytest.MonkeyPatch) -> None:
    found = [(socket.AF_INET, 1, 6, "", (one, 443)) for one in ("8.8.8.8", "10.0.0.1")]
    monkeypatch.setattr(socket, "getaddrinfo", lambda *_, **__: found)
    with pytest.raises(UsageError, match=r"10\.0\.0\.1"):
        resolve_remote("https://example.org/x", GitSettings())


def test_a_host_name_is_pinned_to_the_checked_addresses(monkeypatch: pytest.MonkeyPatch) -> None:
    ends = ("8.8.8.8", "2001:4860:4860::8888")
    found = [(socket.AF_INET, 1, 6, "", (one, 443)) for one in ends]
    monkeypatch.setattr(socket, "getaddrinfo", lambda *_, **__: found)
    remote = resolve_remote("https://example.org/x", GitSettings())
    pin = "http.curloptResolve=example.org:443:8.8.8.8,[2001:4860:4860::8888]"
    assert (remote.url, remote.git_options) == ("https://example.org/x", (pin,))
    assert resolve_remote("git://example.org/x", OPEN).url == "git://8.8.8.8:9418/x"


def test_an_ip_address_needs_no_pin() -> None:
    for url in ("https://8.8.8.8/x", "https://[2001:4860:4860::8888]/x"):
        assert resolve_remote(url, GitSettings()).git_options == ()


def test_capitals_in_the_protocol_are_small_for_git() -> None:
    assert resolve_remote("HTTPS://8.8.8.8/X", GitSettings()).url == "https://8.8.8.8/X"
    assert resolve_remote("File:///srv/X", OPEN).url == "file:///srv/X"


def test_an_unknown_host_is_transient(monkeypatch: pytest.MonkeyPatch) -> None:
    def unknown(*_: Any, **__: Any) -> None:
        raise socket.gaierror(-2, "Name or service not known")

    monkeypatch.setattr(socket, "getaddrinfo", unknown)
    with pytest.raises(TransientError, match="not known"):
        resolve_remote("https://example.org/x", GitSettings())


def test_public_addresses() -> None:
    assert is_public(ipaddress.ip_address("8.8.8.8"))
    assert is_public(ipaddress.ip_address("2001:4860:4860::8888"))
    assert is_public(ipaddress.ip_address("64:ff9b::808:808"))
    for inside in ("fec0::1", "::7f00:1", "::ffff:0:7f00:1", "64:ff9b:1::7f00:1", "4000::1"):
        assert not is_public(ipaddress.ip_address(inside))


@pytest.mark.parametrize("branch", ["", "main", "feature/x", "v1.2", "ä", "a-b"])
def test_valid_branch_names(branch: str) -> None:
    check_branch(branch)


@pytest.mark.parametrize(
    "branch",
    [
        *("-x", "--upload-pack=x", "a..b", "a:b", "a b", "a~1", "a^", "*", "a\\b", "a.lock", "x/"),
        *("/x", ".x", "a/.b", "a//b", "@{1}", "a\nb", "a\x00", "a?", "a[", "a.", "+a:refs/x"),
    ],
)
def test_invalid_branch_names(branch: str) -> None:
    with pytest.raises(UsageError):
        check_branch(branch)


def test_folders() -> None:
    for path in ("", "skills", "a/b c/ä"):
        check_subfolder(path)
    for path in ("../x", "/x", "a//b", "a/", ".", "a/../b", ".git/hooks", "a/.GIT", "a\x00"):
        with pytest.raises(UsageError):
            check_subfolder(path)
