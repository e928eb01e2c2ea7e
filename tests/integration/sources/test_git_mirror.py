"""Mirrors against servers that are wrong, slow, large or hostile; and what is read of them."""

from __future__ import annotations

import base64
import multiprocessing
import os
import shutil
import socket
import subprocess
import threading
import time
from collections.abc import Iterable, Iterator
from contextlib import contextmanager
from dataclasses import replace
from http.server import BaseHTTPRequestHandler
from pathlib import Path
from typing import Any

import pytest

from config.errors import MisconfiguredError, PermanentError, TransientError, UsageError
from config.settings import LimitSettings, Settings
from deploy.stack.ports import free_port
from graph.records import Source
from tasks.sources.directory import DirectoryReader, scan
from tasks.sources.git.fetch import fetch_ref, folder_size
from tasks.sources.git.mirror import (
    Mirror,
    check_git_source,
    delete_orphaned_mirrors,
    mirror_folder,
)
from tasks.sources.git.objects import ObjectReader
from tasks.sources.git.reader import GitReader, open_git_reader
from tasks.sources.git.tree import Blob
from tasks.sources.protocol import SkillGoneError, SourceMissingError
from tasks.sources.skill_folder import read_skill_folder
from tests.support.program.secrecy import made_up
from tests.support.servers.git_remote import PushedRepository, served_over_http
from tests.support.servers.loopback import serving

SECRET = made_up("of-the-remote")


def settings(home: Path, **git: Any) -> Settings:
    allowed = {"protocols": ["http"], "allow_private": True, "allow_local": True, "seconds": 120}
    return Settings(git=allowed | git).model_copy(update={"home": home})


@pytest.fixture(scope="module")
def first_push(tmp_path_factory: pytest.TempPathFactory) -> PushedRepository:
    made = PushedRepository(tmp_path_factory.mktemp("pushed"))
    (made.tree / "kiln").mkdir()
    (made.tree / "kiln/SKILL.md").write_text("---\nname: kiln\n---\nFire.\n")
    made.push()
    return made


@pytest.fixture
def remote(first_push: PushedRepository, tmp_path: Path) -> PushedRepository:
    return first_push.copied(tmp_path / "remotes")


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

    with serving(Handler) as root:
        yield f"{root}/x.git", asked


@contextmanager
def answering_files(alternate: str) -> Iterator[str]:
    """A server of plain files: a branch, and another repository that has its objects."""
    files = {
        "/x.git/info/refs": b"1" * 40 + b"\trefs/heads/main\n",
        "/x.git/HEAD": b"ref: refs/heads/main\n",
        "/x.git/objects/info/http-alternates": f"{alternate}/objects/\n".encode(),
        "/x.git/objects/info/alternates": f"{alternate}/objects/\n".encode(),
    }

    class Handler(BaseHTTPRequestHandler):
        def do_GET(self) -> None:
            content = files.get(self.path.partition("?")[0])
            self.send_response(404 if content is None else 200)
            self.send_header("Content-Length", str(len(content or b"")))
            self.end_headers()
            self.wfile.write(content or b"")

        def log_message(self, format: str, *args: object) -> None:
            """Say nothing."""

    with serving(Handler) as root:
        yield f"{root}/x.git"


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
    deep = "/".join(["d"] * (known.limits.depth + 1))
    (tree / deep).mkdir(parents=True)
    (tree / deep / "SKILL.md").write_text("x")
    remote.push()
    there = scan(tree, "", known.limits)
    with reading(source, known) as reader:
        found = reader.scan("")
        assert set(found.signatures) == set(there.signatures) == {"kiln", "a", "a/b", "ä", "big"}
        assert found.sizes == there.sizes
        assert found.refused == there.refused
        assert list(found.refused) == [deep]
        for path in ("a", "a/env", "a/env/bin", deep, f"{deep}/x"):
            below, there_below = reader.scan(path), scan(tree, path, known.limits)
            assert set(below.signatures) == set(there_below.signatures)
            assert below.refused == there_below.refused
            owner = DirectoryReader(tree, known.limits).find_owning_skill(path)
            assert reader.find_owning_skill(path) == owner
        for path in set(found.signatures) - {"big"}:
            assert reader.read(path) == read_skill_folder(tree, path, known.limits)
        assert set(reader.scan("a").signatures) == {"a", "a/b"}
        assert reader.find_owning_skill("a/scripts/run.sh") == "a"
        assert reader.find_owning_skill("elsewhere") is None
        with pytest.raises(PermanentError, match=r"limits\.skill_bytes"):
            reader.read("big")
        with pytest.raises(SkillGoneError):
            reader.read("gone")


def test_two_files_with_the_same_escaped_name_are_refused(
    tmp_path: Path, remote: PushedRepository, source: Source
) -> None:
    (remote.tree / "a").mkdir()
    for name in ("SKILL.md", "run\udce9.sh", "run\\xe9.sh"):
        (remote.tree / "a" / name).write_text(f"echo {len(name)}\n")
    remote.push()
    with (
        reading(source, settings(tmp_path / "home")) as reader,
        pytest.raises(PermanentError, match=r"a: two files are named run\\xe9.sh .* rename one"),
    ):
        reader.read("a")


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


def test_links_and_submodules_in_folders_that_are_not_entered_are_not_named(
    tmp_path: Path, remote: PushedRepository, source: Source
) -> None:
    for folder in ("venv/lib", "deep/" * 24 + "deep"):
        (remote.tree / folder).mkdir(parents=True)
        (remote.tree / folder / "SKILL.md").symlink_to("/etc/passwd")
    (remote.tree / "venv/pyvenv.cfg").touch()
    commit = remote.push()
    remote.git("update-index", "--add", "--cacheinfo", f"160000,{commit},venv/vendored")
    remote.git("commit", "-q", "-m", "submodule")
    remote.git("push", "-q", "origin", "HEAD:main")
    with reading(source, settings(tmp_path / "home")) as reader:
        found = reader.scan("")
    directory = scan(remote.tree.resolve(), "", LimitSettings())
    assert found.refused == directory.refused
    assert list(found.refused) == ["deep/" * 23 + "deep/deep"]


def made(remote: PushedRepository, content: bytes, kind: str) -> str:
    """Write an object of any kind and content into the bare repository; its id."""
    run = subprocess.run(
        ["git", "hash-object", "-t", kind, "-w", "--literally", "--stdin"],
        input=content,
        cwd=remote.bare,
        capture_output=True,
        check=True,
    )
    return run.stdout.decode().strip()


def point_to(remote: PushedRepository, tree: str) -> None:
    """Have the branch lead to a tree."""
    commit = remote.git("-C", str(remote.bare), "commit-tree", "-m", "x", tree)
    remote.git("-C", str(remote.bare), "update-ref", "refs/heads/main", commit)


def entry(name: bytes, object_id: str, mode: str = "100644") -> bytes:
    return mode.encode() + b" " + name + b"\0" + bytes.fromhex(object_id)


@pytest.mark.parametrize("name", [b"..", b".git", b".", b"a/b", b".GIT"])
def test_names_that_lead_out_are_refused_by_git(
    tmp_path: Path, remote: PushedRepository, source: Source, name: bytes
) -> None:
    blob = remote.git("rev-parse", "HEAD:kiln/SKILL.md")
    point_to(remote, made(remote, entry(name, blob), "tree"))
    known = settings(tmp_path / "home")
    with pytest.raises(PermanentError, match="git refuses"):
        Mirror(source, known).fetch()


def test_names_that_no_file_system_would_take_alike(
    tmp_path: Path, remote: PushedRepository, source: Source
) -> None:
    """A newline, bytes that are not UTF-8, and two names that differ in case alone."""
    folder = remote.git("rev-parse", "HEAD:kiln")
    names = sorted([b"Kiln", b"kiln", b"new\nline", b"not-\xff", "\u4e2d".encode()])
    point_to(remote, made(remote, b"".join(entry(one, folder, "40000") for one in names), "tree"))
    with reading(source, settings(tmp_path / "home")) as reader:
        found = reader.scan("")
        assert set(found.signatures) == {"Kiln", "kiln", "new\nline", "\u4e2d"}
        assert found.refused == {"not-\\xff": "the folder's name is not UTF-8; rename it"}
        assert reader.read("Kiln") == reader.read("kiln") == reader.read("new\nline")


def test_a_folder_of_a_hundred_thousand_files(
    tmp_path: Path, remote: PushedRepository, source: Source
) -> None:
    blob, kiln = (remote.git("rev-parse", f"HEAD:kiln{one}") for one in ("/SKILL.md", ""))
    many = b"".join(entry(b"f%06d" % number, blob) for number in range(100_000))
    inner = made(remote, entry(b"SKILL.md", blob) + many, "tree")
    outer = [entry(b"kiln", kiln, "40000"), entry(b"many", inner, "40000")]
    point_to(remote, made(remote, b"".join(outer), "tree"))
    started = time.monotonic()
    with reading(source, settings(tmp_path / "home")) as reader:
        assert set(reader.scan("").signatures) == {"kiln", "many"}
        assert reader.read("kiln").files == ()
        with pytest.raises(PermanentError, match=r"limits\.folder_files"):
            reader.read("many")
    assert time.monotonic() - started < 100  # each by itself takes minutes


def test_few_bytes_that_stand_for_many(
    tmp_path: Path, remote: PushedRepository, source: Source
) -> None:
    """Files of zeros are known by their size alone, and not read."""
    known = settings(tmp_path / "home")
    limits = known.limits.model_copy(update={"folder_bytes": 1_000_000})
    (remote.tree / "kiln/zeros").write_bytes(bytes(20_000_000))
    (remote.tree / "large").mkdir()
    (remote.tree / "large/SKILL.md").write_bytes(bytes(20_000_000))
    remote.push()
    with reading(source, known.model_copy(update={"limits": limits})) as reader:
        with pytest.raises(PermanentError, match=r"limits\.folder_bytes"):
            reader.read("kiln")
        with pytest.raises(PermanentError, match=r"limits\.skill_bytes"):
            reader.read("large")


def test_an_object_that_would_fill_the_memory(
    tmp_path: Path, remote: PushedRepository, monkeypatch: pytest.MonkeyPatch
) -> None:
    """Whole files are not held in memory, but what is said of a commit is."""
    monkeypatch.setattr("tasks.sources.git.fetch._MAX_MEMORY_KIB", 50_000)
    with served_over_http(remote.bare.parent) as root:
        mirror = Mirror(Source("team", "git", f"{root}/skills.git"), settings(tmp_path / "home"))
        mirror.fetch()
        head = remote.git("cat-file", "commit", "HEAD").encode() + b"\n"
        remote.git("-C", str(remote.bare), "config", "core.compression", "1")
        commit = made(remote, head + b"x" * 35_000_000, "commit")
        remote.git("-C", str(remote.bare), "update-ref", "refs/heads/main", commit)
        with pytest.raises(PermanentError, match="too large"):
            mirror.fetch()


def test_a_pointer_to_large_file_storage_is_no_skill(
    tmp_path: Path, remote: PushedRepository, source: Source
) -> None:
    pointer = "version https://git-lfs.github.com/spec/v1\noid sha256:" + "0" * 64 + "\nsize 9\n"
    (remote.tree / "kiln/data.bin").write_text(pointer)
    (remote.tree / "stored").mkdir()
    (remote.tree / "stored/SKILL.md").write_text(pointer)
    (remote.tree / ".gitattributes").write_text("* filter=lfs diff=lfs merge=lfs -text\n")
    remote.push()
    with reading(source, settings(tmp_path / "home")) as reader:
        assert set(reader.scan("").signatures) == {"kiln", "stored"}
        assert reader.read("kiln").files[0].size == len(pointer)
        with pytest.raises(PermanentError, match="large-file storage"):
            reader.read("stored")


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


def test_few_objects_that_stand_for_many_files_or_folders(
    tmp_path: Path, remote: PushedRepository, source: Source
) -> None:
    tree = remote.git("rev-parse", "HEAD^{tree}")
    empty = made_tree(remote, [])
    for _ in range(9):
        tree, empty = (
            made_tree(remote, (f"040000 tree {one}\td{number}" for number in range(10)))
            for one in (tree, empty)
        )
    skills = remote.git("rev-parse", "HEAD:kiln")
    empty = made_tree(remote, [f"040000 tree {skills}\ta", f"040000 tree {empty}\tz"])
    started = time.monotonic()
    for one in (tree, empty):
        point_to(remote, one)
        known = settings(tmp_path / "home", files=10_000)
        with pytest.raises(PermanentError, match=r"git\.files"), reading(source, known):
            pass
    assert time.monotonic() - started < 100  # each by itself takes minutes


def test_few_objects_that_stand_for_endless_paths(
    tmp_path: Path, remote: PushedRepository, source: Source
) -> None:
    deep = remote.git("rev-parse", "HEAD^{tree}")
    for _ in range(50):
        deep = made_tree(remote, [f"040000 tree {deep}\t{'d' * 200}"])
    point_to(remote, deep)
    known = settings(tmp_path / "home")
    with pytest.raises(PermanentError, match="more than 4096 bytes"), reading(source, known):
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
    mirror = mirror_folder("team", settings(tmp_path / "home"))
    assert not (mirror / "hooks").exists()
    assert not list(tmp_path.joinpath("home").rglob("SKILL.md"))


# -- what is refused, and when it ends


def test_more_than_the_limit_is_not_fetched(
    tmp_path: Path, remote: PushedRepository, source: Source
) -> None:
    (remote.tree / "large.bin").write_bytes(os.urandom(12_000_000))
    for folder in (remote.tree, remote.bare):
        remote.git("-C", str(folder), "config", "core.compression", "0")
    remote.push()
    known = settings(tmp_path / "home", megabytes=1)
    with pytest.raises(PermanentError, match=r"git\.megabytes"):
        Mirror(source, known).fetch()
    assert folder_size(mirror_folder("team", known)) < 1_000_000


@pytest.mark.parametrize("has_earlier", [False, True])
def test_a_fetch_that_is_stopped_when_its_pack_is_complete_leaves_nothing(
    tmp_path: Path,
    remote: PushedRepository,
    source: Source,
    monkeypatch: pytest.MonkeyPatch,
    has_earlier: bool,
) -> None:
    known = settings(tmp_path / "home")
    mirror = Mirror(source, known)
    earlier = mirror.fetch() if has_earlier else ""
    (remote.tree / "large.bin").write_bytes(os.urandom(100_000))
    newer = remote.push()

    def fetch_and_stop(*arguments: object, **options: object) -> None:
        fetch_ref(*arguments, **options)  # type: ignore[arg-type]
        raise TransientError("stopped while fetching")

    with monkeypatch.context() as patched:
        patched.setattr("tasks.sources.git.mirror.fetch_ref", fetch_and_stop)
        with pytest.raises(TransientError, match="stopped"):
            mirror.fetch()
    assert not mirror.has_commit(newer)
    assert folder_size(mirror_folder("team", known)) < 100_000
    assert not has_earlier or mirror.has_commit(earlier)
    assert mirror.fetch() == newer


def test_a_silent_server_ends_in_time(tmp_path: Path, source: Source) -> None:
    with socket.create_server(("127.0.0.1", 0)) as silent:
        slow = replace(source, root=f"http://127.0.0.1:{silent.getsockname()[1]}/x.git")
        with pytest.raises(TransientError, match="not fetched within 1 s"):
            Mirror(slow, settings(tmp_path / "home", seconds=1)).fetch()
        with pytest.raises(TransientError, match="stopped"):
            Mirror(slow, settings(tmp_path / "home")).fetch(lambda: True)


def test_a_redirect_is_not_followed(tmp_path: Path, source: Source) -> None:
    with answering(200) as (inside, asked), answering(302, Location=inside) as (address, _):
        mirror = Mirror(replace(source, root=address), settings(tmp_path / "home"))
        with pytest.raises(PermanentError, match="redirect"):
            mirror.fetch()
        assert asked == []


@pytest.mark.parametrize("name", ["x", "redirects", "fsck"])
def test_no_server_listens(tmp_path: Path, source: Source, name: str) -> None:
    """Git quotes the address, whose words are not the reason."""
    with socket.create_server(("127.0.0.1", 0)) as taken:
        port = taken.getsockname()[1]
    away = replace(source, root=f"http://127.0.0.1:{port}/{name}.git")
    with pytest.raises(TransientError, match="connect"):
        Mirror(away, settings(tmp_path / "home")).fetch()


def test_object_ids_of_another_length_are_refused(
    tmp_path: Path, remote: PushedRepository, source: Source
) -> None:
    bare = str(tmp_path / "long.git")
    remote.git("init", "-q", "--bare", "-b", "main", "--object-format=sha256", bare)
    tree = remote.git("-C", bare, "hash-object", "-t", "tree", "-w", os.devnull)
    commit = remote.git("-C", bare, "commit-tree", "-m", "x", tree)
    remote.git("-C", bare, "update-ref", "refs/heads/main", commit)
    with pytest.raises(PermanentError, match="only SHA-1 is supported"):
        Mirror(replace(source, root=f"file://{bare}"), settings(tmp_path / "home")).fetch()


def test_private_addresses_are_refused_before_anything_is_sent(
    tmp_path: Path, source: Source
) -> None:
    with answering(200) as (address, asked):
        known = settings(tmp_path / "home", allow_private=False)
        with pytest.raises(UsageError, match="not a public address"):
            Mirror(replace(source, root=address), known).fetch()
        assert asked == []


def test_a_credential_is_sent_and_never_shown(
    tmp_path: Path, source: Source, caplog: pytest.LogCaptureFixture
) -> None:
    known = settings(tmp_path / "home")
    folder = tmp_path / "home/credentials"
    folder.mkdir(parents=True)
    said = ""
    with answering(401, WWW_Authenticate='Basic realm="x"') as (address, asked):
        private = replace(source, root=address, credential_file="team")
        for line in (f"{SECRET}\n", f"{SECRET}\r\n", SECRET, f"\n ana:{SECRET} \n\n"):
            (folder / "team").write_text(line)
            asked.clear()
            with pytest.raises(UsageError, match="credential is refused") as caught:
                Mirror(private, known).fetch()
            said += str(caught.value)
            sent = [one["Authorization"] for one in asked if "Authorization" in one]
            user = "ana" if ":" in line else "x-access-token"
            assert base64.b64decode(sent[0].removeprefix("Basic ")).decode() == f"{user}:{SECRET}"
        with pytest.raises(UsageError, match="a login is required"):
            Mirror(replace(private, credential_file=""), known).fetch()
    assert SECRET not in said + caplog.text
    kept = [file for file in (tmp_path / "home/git").rglob("*") if file.is_file()]
    assert not any(SECRET.encode() in file.read_bytes() for file in kept)
    assert not list((tmp_path / "home/git").rglob(".ask-*"))


def test_credentials_come_from_their_folder_alone(tmp_path: Path, source: Source) -> None:
    known = settings(tmp_path / "home")
    (tmp_path / "home/credentials").mkdir(parents=True)
    (tmp_path / "home/credentials/two").write_text("a\nb\n")
    (tmp_path / "home/credentials/out").symlink_to("/etc/hostname")
    for name in ("/etc/hostname", "../secret", "out"):
        with pytest.raises(UsageError, match=r"git\.credentials"):
            check_git_source(replace(source, credential_file=name), known)
    for name in ("absent", "two"):
        with pytest.raises(MisconfiguredError):
            check_git_source(replace(source, credential_file=name), known)
    (tmp_path / "home/credentials/one").write_text("a\n")
    public = settings(tmp_path / "home", allow_private=False)
    with pytest.raises(UsageError, match="not sent over http"):
        check_git_source(replace(source, root="HTTP://h/x", credential_file="one"), public)


def test_gits_own_protocol(tmp_path: Path, remote: PushedRepository, source: Source) -> None:
    port = free_port()
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
        end = time.monotonic() + 60
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


def test_a_mirror_is_tidied_and_read_meanwhile(
    tmp_path: Path, remote: PushedRepository, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setattr("tasks.sources.git.mirror._MAX_PACKS", 3)
    known = settings(tmp_path / "home")
    with served_over_http(remote.bare.parent) as root:
        source = Source("team", "git", f"{root}/skills.git")
        mirror = Mirror(source, known)
        first = mirror.fetch()
        with open_git_reader(replace(source, commit=first), known) as reader:
            for number in range(4):
                (remote.tree / "kiln/SKILL.md").write_text(f"Number {number}\n")
                remote.push()
                mirror.fetch()
            assert b"Fire." in reader.read("kiln").content
    assert len(list((mirror.folder / "objects/pack").glob("*.pack"))) < 4


def test_a_mirror_that_cannot_be_tidied_is_made_anew(
    tmp_path: Path, remote: PushedRepository, source: Source, monkeypatch: pytest.MonkeyPatch
) -> None:
    known = settings(tmp_path / "home")
    mirror = Mirror(source, known)
    mirror.fetch()
    former = set((mirror.folder / "objects/pack").glob("*.pack"))
    (remote.tree / "kiln/SKILL.md").write_text("Anew.\n")
    newer = remote.push()
    mirror.fetch()
    for pack in former:
        pack.chmod(0o600)
        pack.write_bytes(pack.read_bytes()[:12] + bytes(300))
    monkeypatch.setattr("tasks.sources.git.mirror._MAX_PACKS", 1)
    assert mirror.fetch() == newer
    with open_git_reader(replace(source, commit=newer), known) as reader:
        assert reader.read("kiln").content == b"Anew.\n"


# -- many processes, and what they leave


def test_one_process_at_a_time_changes_a_mirror(
    tmp_path: Path, remote: PushedRepository, source: Source
) -> None:
    known = settings(tmp_path / "home")
    commit = Mirror(source, known).fetch()
    Mirror(source, known).drop()
    assert list((tmp_path / "home/git").iterdir()) == []
    errors: list[Exception] = []

    def ensure() -> None:
        try:
            Mirror(source, known).ensure_commit(commit)
        except Exception as error:  # raised in the thread that looks
            errors.append(error)

    threads = [threading.Thread(target=ensure) for _ in range(6)]
    for thread in threads:
        thread.start()
    for thread in threads:
        thread.join()
    assert errors == []
    assert len(list((mirror_folder("team", known) / "objects/pack").glob("*.pack"))) == 1


def test_waiting_for_a_mirror_ends_in_time(tmp_path: Path, source: Source) -> None:
    with socket.create_server(("127.0.0.1", 0)) as silent:
        slow = replace(source, root=f"http://127.0.0.1:{silent.getsockname()[1]}/x.git")
        known = settings(tmp_path / "home")
        stopped = threading.Event()

        def fetch() -> None:
            with pytest.raises(TransientError):
                Mirror(slow, known).fetch(stopped.is_set)

        first = threading.Thread(target=fetch)
        first.start()
        while not mirror_folder("team", known).exists():
            time.sleep(0.01)
        with pytest.raises(TransientError, match="another process"):
            Mirror(slow, known).fetch(lambda: True)
        Mirror(slow, known).drop()
        assert mirror_folder("team", known).exists()
        stopped.set()
        first.join()


@pytest.mark.parametrize(
    "harm", ["killed", "begun", "object", "meanwhile", "ref", "empty ref", "config"]
)
def test_a_mirror_that_was_left_damaged_is_mended(
    tmp_path: Path, remote: PushedRepository, source: Source, harm: str
) -> None:
    known = settings(tmp_path / "home")
    commit = Mirror(source, known).fetch()
    folder = mirror_folder("team", known)
    if harm == "killed":
        for name in ("shallow.lock", "config.lock", "refs/skillbus/head.lock"):
            (folder / name).touch()
        (folder / "objects/pack/tmp_pack_x").write_bytes(b"PACK")
        (folder / ".ask-x").mkdir()
    elif harm == "begun":  # by a `git init` that was killed
        shutil.rmtree(folder)
        folder.mkdir()
        (folder / "HEAD").write_text("ref: refs/heads/main\n")
    elif harm == "object":
        (pack,) = (folder / "objects/pack").glob("*.pack")
        pack.chmod(0o600)
        pack.write_bytes(pack.read_bytes()[:12] + bytes(300))
        with open_git_reader(replace(source, commit=commit), known) as reader:
            assert reader.read("kiln").content.endswith(b"Fire.\n")
    elif harm == "meanwhile":
        with open_git_reader(replace(source, commit=commit), known) as reader:
            shutil.rmtree(folder / "objects")
            with pytest.raises(TransientError, match="fetched again"):
                reader.read("kiln")
    elif harm == "ref":
        (folder / "refs/skillbus/head").write_text("0" * 39 + "1\n")
    elif harm == "empty ref":
        (folder / "refs/skillbus/head").write_text("")
    else:
        (folder / "HEAD").write_text("")
    (remote.tree / "kiln/SKILL.md").write_text("Anew.\n")
    newer = remote.push()
    assert Mirror(source, known).fetch() == newer
    assert not list(folder.glob(".ask-*"))
    with open_git_reader(replace(source, commit=newer), known) as reader:
        assert reader.read("kiln").content == b"Anew.\n"


@pytest.mark.parametrize("lost", ["kiln", "kiln/SKILL.md"])
def test_a_mirror_that_has_lost_an_object_is_fetched_again(
    tmp_path: Path, remote: PushedRepository, source: Source, lost: str
) -> None:
    known = settings(tmp_path / "home")
    mirror = Mirror(source, known)
    commit = mirror.fetch()

    def lose() -> None:
        (pack,) = mirror.folder.glob("objects/pack/*.pack")
        packed = pack.rename(tmp_path / "pack").read_bytes()
        git = ["git", "--git-dir", str(mirror.folder)]
        subprocess.run([*git, "unpack-objects", "-q"], input=packed, check=True)
        name = remote.git("rev-parse", f"{commit}:{lost}")
        (mirror.folder / "objects" / name[:2] / name[2:]).unlink()

    lose()
    at_commit = replace(source, commit=commit)
    with pytest.raises(SourceMissingError, match="lost objects"), open_git_reader(at_commit, known):
        pass
    with open_git_reader(at_commit, known) as reader:
        assert reader.read("kiln").content.endswith(b"Fire.\n")
    lose()
    (remote.tree / "other").write_text("The next commit still has the lost object.\n")
    newer = remote.push()
    with pytest.raises(TransientError, match=r"necessary objects|expected object"):
        mirror.fetch()
    assert mirror.fetch() == newer
    assert mirror.is_complete(newer)


def test_objects_are_closed_after_their_process_has_ended(tmp_path: Path, source: Source) -> None:
    known = settings(tmp_path / "home")
    mirror = Mirror(source, known)
    mirror.fetch()
    objects = ObjectReader(mirror.folder)
    objects._process.kill()
    objects._process.wait()
    with pytest.raises(TransientError, match="git cat-file ended"):
        objects.read(Blob("0" * 40, 1))
    objects.close()
    assert objects._process.stdin is not None
    assert objects._process.stdin.closed


def test_a_commit_that_is_not_given_any_more(
    tmp_path: Path, remote: PushedRepository, source: Source
) -> None:
    """Another machine has fetched it, then the branch was pushed by force and the host tidied."""
    (remote.tree / "kiln/SKILL.md").write_text("Anew.\n")
    remote.git("add", "--all")
    remote.git("commit", "-q", "--amend", "-m", "anew")
    gone = remote.git("rev-parse", "origin/main")
    remote.publish()
    remote.git("-C", str(remote.bare), "reflog", "expire", "--expire=all", "--all")
    remote.git("-C", str(remote.bare), "gc", "-q", "--prune=all")
    with (
        pytest.raises(
            TransientError, match=r"is not available: commit .* cannot be fetched any more"
        ),
        open_git_reader(replace(source, commit=gone), settings(tmp_path / "home")),
    ):
        pass


def test_git_ends_with_who_started_it(tmp_path: Path, source: Source) -> None:
    with socket.create_server(("127.0.0.1", 0)) as silent:
        silent.settimeout(120)
        address = f"http://127.0.0.1:{silent.getsockname()[1]}/x.git"
        mirror = Mirror(replace(source, root=address), settings(tmp_path / "home"))
        started = multiprocessing.get_context("fork").Process(target=mirror.fetch)
        started.start()
        connection, _ = silent.accept()
        with connection:
            connection.settimeout(60)
            connection.recv(4096)
            started.kill()
            started.join()
            assert connection.recv(4096) == b""  # the other end is closed


def test_mirrors_of_sources_that_are_gone_are_dropped(tmp_path: Path) -> None:
    known = settings(tmp_path / "home")
    for name in ("kept", "gone", "new"):
        mirror_folder(name, known).mkdir(parents=True)
    long_ago = time.time() - 10_000
    for name in ("kept", "gone"):
        os.utime(mirror_folder(name, known), (long_ago, long_ago))
    # As one that another process deletes at this moment.
    (tmp_path / "home/git/vanished.git").symlink_to("nowhere")
    delete_orphaned_mirrors(["kept"], known)
    (tmp_path / "home/git/vanished.git").unlink()
    assert {one.name for one in (tmp_path / "home/git").iterdir()} == {"kept.git", "new.git"}


# -- where names lead


def test_git_connects_to_what_was_checked_and_nowhere_else(
    tmp_path: Path, remote: PushedRepository, monkeypatch: pytest.MonkeyPatch
) -> None:
    """Git's own look-up would find no such name, or another place for it."""
    looked_up = {"skills.invalid": "127.0.0.1", "localhost": "127.9.9.9"}

    def found(host: str, port: int, **_: object) -> list[tuple[Any, ...]]:
        return [(socket.AF_INET, socket.SOCK_STREAM, 6, "", (looked_up[host], port))]

    monkeypatch.setattr(socket, "getaddrinfo", found)
    known = settings(tmp_path / "home")
    with served_over_http(remote.bare.parent) as root:
        port = root.rpartition(":")[2]
        near = Source("team", "git", f"http://skills.invalid:{port}/skills.git")
        assert Mirror(near, known).fetch() == remote.git("rev-parse", "HEAD")
        rebound = Source("other", "git", f"http://localhost:{port}/skills.git")
        with pytest.raises(TransientError, match="connect"):
            Mirror(rebound, known).fetch()


def test_a_server_without_gits_protocol_leads_nowhere_else(tmp_path: Path, source: Source) -> None:
    """Plain files over HTTP can name other repositories to take objects from."""
    with answering(200) as (inside, asked), answering_files(inside) as address:
        mirror = Mirror(replace(source, root=address), settings(tmp_path / "home"))
        with pytest.raises((PermanentError, TransientError)):
            mirror.fetch()
        assert asked == []
