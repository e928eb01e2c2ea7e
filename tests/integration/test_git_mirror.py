"""Mirrors against servers that are wrong, slow, large or hostile; and what is read of them."""

from __future__ import annotations

import base64
import os
import shutil
import socket
import subprocess
import threading
import time
from collections.abc import Iterable, Iterator
from contextlib import contextmanager
from dataclasses import replace
from http.server import BaseHTTPRequestHandler, ThreadingHTTPServer
from pathlib import Path
from typing import Any

import pytest

from config.errors import PermanentError, SetupError, TransientError, UsageError
from config.settings import Settings
from graph.protocol import Source
from tasks.folders import SkillGoneError, read_folder, scan
from tasks.git.mirror import Mirror, check_source, folder_of
from tasks.git.program import size_of
from tasks.git.reader import GitReader, open_git_reader
from tests.support.git_remote import PushedRepository, served_over_http

SECRET = "hunter2-of-the-test"


def settings(home: Path, **git: Any) -> Settings:
    allowed = {"protocols": ["http"], "allow_private": True, "allow_local": True, "seconds": 20}
    return Settings(git=allowed | git).model_copy(update={"home": home})  # type: ignore[arg-type]


@pytest.fixture
def remote(tmp_path: Path) -> PushedRepository:
    made = PushedRepository(tmp_path / "remotes")
    (made.tree / "kiln").mkdir()
    (made.tree / "kiln/SKILL.md").write_text("---\nname: kiln\n---\nFire.\n")
    made.push()
    return made


@pytest.fixture
def source(remote: PushedRepository) -> Source:
    return Source("team", "git", f"file://{remote.bare}")


@contextmanager
def reading(source: Source, known: Settings) -> Iterator[GitReader]:
    commit = Mirror(source, known).fetch()
    with open_git_reader(replace(source, commit=commit), known) as reader:
        yield reader


@contextmanager
def answering(status: int, **headers: str) -> Iterator[tuple[str, list[dict[str, str]]]]:
    """A server that answers everything alike; its address, and the headers it was sent."""
    asked: list[dict[str, str]] = []

    class Handler(BaseHTTPRequestHandler):
        def do_GET(self) -> None:
            asked.append(dict(self.headers.items()))
            self.send_response(status)
            for name, value in headers.items():
                self.send_header(name.replace("_", "-"), value)
            self.send_header("Content-Length", "0")
            self.end_headers()

        def log_message(self, format: str, *args: object) -> None:
            """Say nothing."""

    server = ThreadingHTTPServer(("127.0.0.1", 0), Handler)
    thread = threading.Thread(target=server.serve_forever, daemon=True)
    thread.start()
    try:
        yield f"http://127.0.0.1:{server.server_address[1]}/x.git", asked
    finally:
        server.shutdown()
        server.server_close()
        thread.join()


# -- what is read


def test_a_commit_reads_like_a_directory(
    tmp_path: Path, remote: PushedRepository, source: Source
) -> None:
    tree, known = remote.tree, settings(tmp_path / "home")
    for name in ("a/SKILL.md", "a/scripts/run.sh", "a/b/SKILL.md", "a/b/data.bin", "ä/SKILL.md"):
        (tree / name).parent.mkdir(parents=True, exist_ok=True)
        (tree / name).write_bytes(os.urandom(50) + b"\nText\n")
    for name in ("a/node_modules/x/SKILL.md", "a/env/pyvenv.cfg", "a/env/SKILL.md", "README.md"):
        (tree / name).parent.mkdir(parents=True, exist_ok=True)
        (tree / name).write_text("x")
    (tree / "big").mkdir()
    (tree / "big/SKILL.md").write_bytes(b"x" * (known.limits.skill_bytes + 1))
    remote.push()
    there = scan(tree, "", known.limits)
    with reading(source, known) as reader:
        found = reader.scan("")
        assert set(found.signatures) == set(there.signatures) == {"kiln", "a", "a/b", "ä", "big"}
        assert found.sizes == there.sizes
        assert found.refused == {}
        for path in set(found.signatures) - {"big"}:
            assert reader.read(path) == read_folder(tree, path, known.limits)
        assert set(reader.scan("a").signatures) == {"a", "a/b"}
        assert reader.owning_skill("a/scripts/run.sh") == "a"
        assert reader.owning_skill("elsewhere") is None
        with pytest.raises(PermanentError, match=r"limits\.skill_bytes"):
            reader.read("big")
        with pytest.raises(SkillGoneError):
            reader.read("gone")


def test_links_and_submodules_are_not_followed(
    tmp_path: Path, remote: PushedRepository, source: Source
) -> None:
    (remote.tree / "kiln/passwd").symlink_to("/etc/passwd")
    (remote.tree / "linked").mkdir()
    (remote.tree / "linked/SKILL.md").symlink_to("/etc/passwd")
    (remote.tree / "outside").symlink_to("/etc")
    commit = remote.push()
    remote.git("update-index", "--add", "--cacheinfo", f"160000,{commit},vendored")
    remote.git("commit", "-q", "-m", "submodule")
    remote.git("push", "-q", "origin", "HEAD:main")
    with reading(source, settings(tmp_path / "home")) as reader:
        found = reader.scan("")
        assert set(found.signatures) == {"kiln"}
        assert set(found.refused) == {"linked", "vendored"}
        assert reader.read("kiln").files == ()


@pytest.mark.parametrize("name", ["..", ".git", ".", "a/b"])
def test_names_that_lead_out_are_refused_by_git(
    tmp_path: Path, remote: PushedRepository, source: Source, name: str
) -> None:
    blob = remote.git("rev-parse", "HEAD:kiln/SKILL.md")
    entry = f"100644 {name}".encode() + b"\0" + bytes.fromhex(blob)
    tree = subprocess.run(
        ["git", "hash-object", "-t", "tree", "-w", "--literally", "--stdin"],
        input=entry,
        cwd=remote.bare,
        capture_output=True,
        check=True,
    ).stdout.decode()
    commit = remote.git("-C", str(remote.bare), "commit-tree", "-m", "x", tree.strip())
    remote.git("-C", str(remote.bare), "update-ref", "refs/heads/main", commit)
    known = settings(tmp_path / "home")
    with pytest.raises(PermanentError, match="git refuses"):
        Mirror(source, known).fetch()


def made_tree(remote: PushedRepository, entries: Iterable[str]) -> str:
    """A tree of these entries, as `git ls-tree` writes them; its id."""
    made = subprocess.run(
        ["git", "mktree"],
        input="\n".join(entries).encode(),
        cwd=remote.bare,
        capture_output=True,
        check=False,
        env={**os.environ, "GIT_ALTERNATE_OBJECT_DIRECTORIES": str(remote.tree / ".git/objects")},
    )
    assert made.returncode == 0, made.stderr
    return made.stdout.decode().strip()


def publish_tree(remote: PushedRepository, tree: str) -> None:
    commit = remote.git("-C", str(remote.bare), "commit-tree", "-m", "x", tree)
    remote.git("-C", str(remote.bare), "update-ref", "refs/heads/main", commit)


def test_few_objects_that_stand_for_many_files(
    tmp_path: Path, remote: PushedRepository, source: Source
) -> None:
    tree = remote.git("rev-parse", "HEAD^{tree}")
    for _ in range(8):
        tree = made_tree(remote, (f"040000 tree {tree}\td{number}" for number in range(10)))
    publish_tree(remote, tree)
    started = time.monotonic()
    with (
        pytest.raises(PermanentError, match=r"git\.files"),
        reading(source, settings(tmp_path / "home", files=10_000)),
    ):
        pass
    assert time.monotonic() - started < 10


def test_few_objects_that_stand_for_many_folders_or_endless_paths(
    tmp_path: Path, remote: PushedRepository, source: Source
) -> None:
    skills = remote.git("rev-parse", "HEAD^{tree}")
    many = made_tree(remote, (f"040000 tree {skills}\td{number}" for number in range(300)))
    deep = skills
    for _ in range(50):
        deep = made_tree(remote, [f"040000 tree {deep}\t{'d' * 200}"])
    for tree, match in ((many, r"git\.files"), (deep, "more than 4096 bytes")):
        publish_tree(remote, tree)
        known = settings(tmp_path / "home", files=700)
        with pytest.raises(PermanentError, match=match), reading(source, known):
            pass


def test_nothing_that_a_repository_brings_is_run(
    tmp_path: Path, remote: PushedRepository, source: Source
) -> None:
    mark = tmp_path / "mark"
    (remote.tree / ".gitattributes").write_text("* filter=evil\n")
    (remote.tree / ".gitmodules").write_text(
        '[submodule "x"]\n\tpath = x\n\turl = https://example.invalid/x\n'
    )
    (remote.tree / "kiln/run.sh").write_text(f"#!/bin/sh\ntouch {mark}\n")
    remote.push()
    hooks = remote.bare / "hooks"
    shutil.rmtree(hooks, ignore_errors=True)
    with reading(source, settings(tmp_path / "home")) as reader:
        assert [file.path for file in reader.read("kiln").files] == ["run.sh"]
    assert not mark.exists()
    mirror = folder_of("team", settings(tmp_path / "home"))
    assert not (mirror / "hooks").exists()
    assert not list(tmp_path.joinpath("home").rglob("SKILL.md"))


# -- what is refused, and when it ends


def test_more_than_the_limit_is_not_fetched(
    tmp_path: Path, remote: PushedRepository, source: Source
) -> None:
    (remote.tree / "large.bin").write_bytes(os.urandom(30_000_000))
    remote.push()
    known = settings(tmp_path / "home", megabytes=2)
    with pytest.raises(PermanentError, match=r"git\.megabytes"):
        Mirror(source, known).fetch()
    assert size_of(folder_of("team", known)) < 1_000_000


def test_a_silent_server_ends_in_time(tmp_path: Path, source: Source) -> None:
    with socket.create_server(("127.0.0.1", 0)) as silent:
        slow = replace(source, root=f"http://127.0.0.1:{silent.getsockname()[1]}/x.git")
        started = time.monotonic()
        with pytest.raises(TransientError, match="not fetched within 1 s"):
            Mirror(slow, settings(tmp_path / "home", seconds=1)).fetch()
        assert time.monotonic() - started < 4
        with pytest.raises(TransientError, match="stopped"):
            Mirror(slow, settings(tmp_path / "home")).fetch(lambda: True)


def test_a_redirect_is_not_followed(tmp_path: Path, source: Source) -> None:
    with answering(200) as (inside, asked), answering(302, Location=inside) as (address, _):
        mirror = Mirror(replace(source, root=address), settings(tmp_path / "home"))
        with pytest.raises(PermanentError, match="redirect"):
            mirror.fetch()
        assert asked == []


def test_nobody_listens(tmp_path: Path, source: Source) -> None:
    with socket.create_server(("127.0.0.1", 0)) as taken:
        port = taken.getsockname()[1]
    away = replace(source, root=f"http://127.0.0.1:{port}/x.git")
    with pytest.raises(TransientError, match="connect"):
        Mirror(away, settings(tmp_path / "home")).fetch()


def test_private_addresses_are_refused_before_anything_is_sent(
    tmp_path: Path, source: Source
) -> None:
    with answering(200) as (address, asked):
        known = settings(tmp_path / "home", allow_private=False)
        with pytest.raises(UsageError, match="no public address"):
            Mirror(replace(source, root=address), known).fetch()
        assert asked == []


@pytest.mark.parametrize("line", [f"{SECRET}\n", f"ana:{SECRET}\n"])
def test_a_credential_is_sent_and_never_told(
    tmp_path: Path, source: Source, line: str, caplog: pytest.LogCaptureFixture
) -> None:
    known = settings(tmp_path / "home")
    folder = tmp_path / "home/credentials"
    folder.mkdir(parents=True)
    (folder / "team").write_text(line)
    with answering(401, WWW_Authenticate='Basic realm="x"') as (address, asked):
        private = replace(source, root=address, credential_file="team")
        with pytest.raises(UsageError, match="credential is refused") as caught:
            Mirror(private, known).fetch()
        with pytest.raises(UsageError, match="a login is asked for"):
            Mirror(replace(private, credential_file=""), known).fetch()
    sent = [one["Authorization"] for one in asked if "Authorization" in one]
    user = "ana" if ":" in line else "x-access-token"
    assert base64.b64decode(sent[0].removeprefix("Basic ")).decode() == f"{user}:{SECRET}"
    assert SECRET not in str(caught.value) + caplog.text
    kept = [file for file in (tmp_path / "home/git").rglob("*") if file.is_file()]
    assert not any(SECRET.encode() in file.read_bytes() for file in kept)
    assert not list((tmp_path / "home/git").glob(".ask-*"))


def test_credentials_come_from_their_folder_alone(tmp_path: Path, source: Source) -> None:
    known = settings(tmp_path / "home")
    (tmp_path / "home/credentials").mkdir(parents=True)
    (tmp_path / "home/credentials/two").write_text("a\nb\n")
    (tmp_path / "home/credentials/out").symlink_to("/etc/hostname")
    for name in ("/etc/hostname", "../secret", "out"):
        with pytest.raises(UsageError, match=r"git\.credentials"):
            check_source(replace(source, credential_file=name), known)
    for name in ("absent", "two"):
        with pytest.raises(SetupError):
            check_source(replace(source, credential_file=name), known)


def test_gits_own_protocol(tmp_path: Path, remote: PushedRepository, source: Source) -> None:
    with socket.create_server(("127.0.0.1", 0)) as probe:
        port = probe.getsockname()[1]
    daemon = subprocess.Popen(
        [
            *("git", "daemon", "--reuseaddr", "--listen=127.0.0.1", f"--port={port}"),
            *("--export-all", f"--base-path={remote.bare.parent}"),
        ],
        stderr=subprocess.DEVNULL,
        start_new_session=True,
    )
    try:
        known = settings(tmp_path / "home")
        near = replace(source, root=f"git://127.0.0.1:{port}/skills.git")
        end = time.monotonic() + 10
        while True:
            try:
                commit = Mirror(near, known).fetch()
                break
            except TransientError:
                assert time.monotonic() < end
                time.sleep(0.05)
        assert commit == remote.git("rev-parse", "HEAD")
        absent = replace(near, root=f"git://127.0.0.1:{port}/absent.git")
        with pytest.raises(PermanentError, match="no repository"):
            Mirror(absent, known).fetch()
    finally:
        os.killpg(daemon.pid, 15)
        daemon.wait()


def test_a_mirror_is_tidied_and_read_meanwhile(tmp_path: Path, remote: PushedRepository) -> None:
    known = settings(tmp_path / "home")
    with served_over_http(remote.bare.parent) as root:
        source = Source("team", "git", f"{root}/skills.git")
        mirror = Mirror(source, known)
        first = mirror.fetch()
        with open_git_reader(replace(source, commit=first), known) as reader:
            for number in range(18):
                (remote.tree / "kiln/SKILL.md").write_text(f"Number {number}\n")
                remote.push()
                mirror.fetch()
            assert b"Fire." in reader.read("kiln").content
    assert len(list((mirror.folder / "objects/pack").glob("*.pack"))) < 16
