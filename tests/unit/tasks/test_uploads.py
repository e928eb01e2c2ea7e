"""Unpacking of uploads: what is taken, what is refused and why, and at what cost."""

from __future__ import annotations

import bz2
import contextlib
import gc
import gzip
import hashlib
import io
import lzma
import os
import stat
import struct
import tarfile
import tracemalloc
import zipfile
import zlib
from collections.abc import Callable, Iterator
from concurrent.futures import ThreadPoolExecutor
from functools import partial
from pathlib import Path
from threading import Barrier
from typing import Any

import pytest
from hypothesis import given
from hypothesis import settings as examples
from hypothesis import strategies as st

from config.errors import PermanentError, TransientError, UsageError
from config.inbound_settings import UploadSettings
from config.settings import Settings
from tasks.sources.protocol import SkillGoneError
from tasks.sources.skill_folder import read_skill_folder
from tasks.sources.uploads.archive import detect_archive_kind
from tasks.sources.uploads.limits import ArchiveError, UploadMeter, UploadTooLargeError
from tasks.sources.uploads.member_names import MemberNames, clean_path
from tasks.sources.uploads.reader import UploadReader
from tasks.sources.uploads.staging import StagedUpload, check_source_id, stage_upload
from tasks.sources.uploads.store import (
    UploadStore,
    copy_uploads,
    open_upload_store,
    safe_file_name,
)
from tasks.sources.uploads.tar_archive import iter_tar_members

LFS_POINTER = b"version https://git-lfs.github.com/spec/v1\noid sha256:00\nsize 9\n"
SKILL = b"---\nname: trips\ndescription: Clean trips.\n---\n# Trips\n\nDrop doubles.\n"


@pytest.fixture
def settings(tmp_path: Path) -> Settings:
    bounds = UploadSettings(megabytes=2, unpacked_megabytes=8, files=200, skills=20, seconds=30)
    return Settings(home=tmp_path / "home", uploads=bounds)


def upload(settings: Settings, body: bytes, path: str = "", *, to: str = "team") -> StagedUpload:
    store = open_upload_store(settings)
    with store.staging() as place:
        (place / "body").write_bytes(body)
        return stage_upload(settings, store, place, place / "body", to, path)


def put(settings: Settings, body: bytes, path: str = "") -> UploadStore:
    taken = upload(settings, body, path)
    store = open_upload_store(settings)
    store.install_package("team", taken.event.id)
    return store


def refused(settings: Settings, body: bytes, message: str, path: str = "") -> None:
    """It is refused with this message, and leaves nothing behind."""
    before = packages(settings)
    with pytest.raises(ArchiveError, match=message):
        upload(settings, body, path)
    assert packages(settings) == before
    assert not list((settings.home / "uploads" / "staging").iterdir())


def packages(settings: Settings) -> set[str]:
    folder = settings.home / "uploads" / "packages"
    return {one.name for one in folder.iterdir()} if folder.exists() else set()


def zipped(
    members: dict[str, bytes], change: Callable[[zipfile.ZipInfo], None] | None = None
) -> bytes:
    target = io.BytesIO()
    with zipfile.ZipFile(target, "w", zipfile.ZIP_DEFLATED) as archive:
        for name, content in members.items():
            entry = zipfile.ZipInfo("x")
            entry.filename = entry.orig_filename = name
            entry.compress_type = zipfile.ZIP_DEFLATED
            if change:
                change(entry)
            archive.writestr(entry, content)
    return target.getvalue()


def tarred(members: dict[str, bytes], *more: tarfile.TarInfo, mode: str = "w") -> bytes:
    target = io.BytesIO()
    with tarfile.open(fileobj=target, mode=mode) as archive:  # type: ignore[call-overload]  # a str
        for name, content in members.items():
            entry = tarfile.TarInfo(name)
            entry.size = len(content)
            entry.mode = 0o4777
            archive.addfile(entry, io.BytesIO(content))
        for entry in more:
            archive.addfile(entry)
    return target.getvalue()


def special(kind: bytes, name: str = "trips/x", target: str = "") -> tarfile.TarInfo:
    entry = tarfile.TarInfo(name)
    entry.type, entry.linkname = kind, target
    return entry


GOOD = {"trips/SKILL.md": SKILL, "trips/scripts/run.py": b"print(1)\n", "README.md": b"all\n"}


# -- what is taken


@pytest.mark.parametrize(
    "body",
    [
        zipped(GOOD),
        tarred(GOOD),
        tarred(GOOD, mode="w:gz"),
        tarred(GOOD, mode="w:bz2"),
        tarred(GOOD, mode="w:xz"),
        gzip.compress(tarred(GOOD)[:3000]) + gzip.compress(tarred(GOOD)[3000:]),
        tarred({f"./{name}": content for name, content in GOOD.items()}, mode="w:gz"),
    ],
    ids=["zip", "tar", "gz", "bz2", "xz", "two gz streams", "./ names"],
)
def test_archives_of_each_kind_hold_the_same_skill(settings: Settings, body: bytes) -> None:
    taken = upload(settings, body)
    assert taken.skill_ids == ("team:trips",)
    assert taken.left_out == 1
    store = open_upload_store(settings)
    store.install_package("team", taken.event.id)
    folder = store.read("team", "trips", 10_000)
    assert folder.content == SKILL
    assert [(file.path, file.size) for file in folder.files] == [("scripts/run.py", 9)]


def test_an_upload_hashes_as_the_folder_does(settings: Settings, tmp_path: Path) -> None:
    for name, content in GOOD.items():
        (tmp_path / "in" / name).parent.mkdir(parents=True, exist_ok=True)
        (tmp_path / "in" / name).write_bytes(content)
    store = put(settings, zipped(GOOD))
    by_value = store.read("team", "trips", 10_000)
    on_disk = read_skill_folder((tmp_path / "in").resolve(), "trips", settings.limits)
    assert by_value == on_disk


def test_a_folder_gives_the_same_as_its_archive(settings: Settings, tmp_path: Path) -> None:
    (tmp_path / "trips").mkdir()
    (tmp_path / "trips" / "SKILL.md").write_bytes(SKILL)
    store = open_upload_store(settings)
    with store.staging() as place:
        assert stage_upload(settings, store, place, tmp_path / "trips", "team").skill_ids == (
            "team:trips",
        )
    (tmp_path / "trips" / "passwords").symlink_to("/etc/passwd")
    with store.staging() as place, pytest.raises(ArchiveError, match=r"passwords.*link"):
        stage_upload(settings, store, place, tmp_path / "trips", "team")


def test_folders_of_tools_in_a_folder_are_not_read(settings: Settings, tmp_path: Path) -> None:
    names = ("SKILL.md", ".git/config", "node_modules/x/index.js", "env/pyvenv.cfg", "env/lib/x.py")
    for name in names:
        (tmp_path / "trips" / name).parent.mkdir(parents=True, exist_ok=True)
        (tmp_path / "trips" / name).write_bytes(SKILL)
    for name in ("node_modules/.bin", "env/bin"):
        (tmp_path / "trips" / name).mkdir()
        (tmp_path / "trips" / name / "run").symlink_to("/usr/bin/env")
    store = open_upload_store(settings)
    with store.staging() as place:
        staged = stage_upload(settings, store, place, tmp_path / "trips", "team")
    store.install_package("team", staged.event.id)
    on_disk = read_skill_folder(tmp_path.resolve(), "trips", settings.limits)
    assert [file.path for file in on_disk.files] == ["env/pyvenv.cfg"]
    assert store.read("team", "trips", 10_000) == on_disk


def to_a_link(file: Path) -> None:
    file.unlink()
    file.symlink_to(file.parents[1] / "secret")


def to_a_pipe(file: Path) -> None:
    file.unlink()
    os.mkfifo(file)


@pytest.mark.parametrize(
    ("change", "said"),
    [
        (to_a_link, r"notes\.md.*only regular files"),
        (to_a_pipe, r"notes\.md.*only regular files"),
        (Path.unlink, r"notes\.md.* cannot be read: No such file"),
    ],
)
def test_a_file_that_changes_after_its_folder_was_listed_is_refused(
    settings: Settings,
    tmp_path: Path,
    monkeypatch: pytest.MonkeyPatch,
    change: Callable[[Path], None],
    said: str,
) -> None:
    (tmp_path / "secret").write_text("of another user")
    folder = tmp_path / "trips"
    folder.mkdir()
    (folder / "SKILL.md").write_bytes(SKILL)
    (folder / "notes.md").write_text("plain")
    opened = os.open

    def change_and_open(path: Any, *arguments: Any, **options: Any) -> int:
        if path == "notes.md":
            change(folder / "notes.md")
        return opened(path, *arguments, **options)

    store = open_upload_store(settings)
    with monkeypatch.context() as patched, store.staging() as place:
        patched.setattr(os, "open", change_and_open)
        with pytest.raises(UsageError, match=said):
            stage_upload(settings, store, place, folder, "team")


def test_one_skill_file_needs_a_path(settings: Settings) -> None:
    assert upload(settings, SKILL, "trips").skill_ids == ("team:trips",)
    refused(settings, SKILL, "give the path of the skill's folder as")


@pytest.mark.parametrize(
    ("names", "path", "expected"),
    [
        (["a/SKILL.md", "b/SKILL.md", "a/in/SKILL.md"], "", ["a", "a/in", "b"]),
        (["repo-main/SKILL.md"], "trips", ["trips"]),
        (["skills/a/SKILL.md", "skills/b/SKILL.md"], "x/y", ["x/y/a", "x/y/b"]),
        (["a/SKILL.md", "b/SKILL.md"], "x", ["x/a", "x/b"]),
        (["SKILL.md", "notes.md"], "x", ["x"]),
        (["a/SKILL.md", "a/node_modules/b/SKILL.md", "__MACOSX/a/._SKILL.md"], "x", ["x"]),
        (["a/SKILL.md", "a/env/pyvenv.cfg", "a/env/lib/x/SKILL.md"], "", ["a"]),
    ],
)
def test_paths_of_uploaded_skills(
    settings: Settings, names: list[str], path: str, expected: list[str]
) -> None:
    taken = upload(settings, zipped(dict.fromkeys(names, SKILL)), path)
    assert taken.skill_ids == tuple(f"team:{one}" for one in expected)


def test_only_the_configuration_of_a_virtual_environment_is_kept(settings: Settings) -> None:
    names = (
        "run.sh",
        "venv/run.sh",
        "env/pyvenv.cfg",
        "env/run.sh",
        "env/SKILL.md",
        "env/in/pyvenv.cfg",
    )
    store = put(
        settings, zipped(dict.fromkeys(("trips/SKILL.md", *(f"trips/{n}" for n in names)), SKILL))
    )
    listed = [file.path for file in store.read("team", "trips", 10_000).files]
    assert listed == ["env/pyvenv.cfg", "run.sh", "venv/run.sh"]


def test_nested_archives_stay_files(settings: Settings) -> None:
    inner = zipped({"../../evil/SKILL.md": SKILL})
    store = put(settings, zipped({"trips/SKILL.md": SKILL, "trips/more.zip": inner}))
    assert [file.path for file in store.read("team", "trips", 10_000).files] == ["more.zip"]


def test_packages_are_not_executable_and_not_named_by_the_archive(settings: Settings) -> None:
    put(settings, tarred(GOOD, mode="w:gz"))
    files = [one for one in (settings.home / "uploads").rglob("*") if one.is_file()]
    assert len(files) == 1
    assert files[0].name == safe_file_name("trips") + ".zip"
    assert not files[0].stat().st_mode & (stat.S_IXUSR | stat.S_IXGRP | stat.S_IXOTH)


# -- names


@pytest.mark.parametrize(
    ("name", "message"),
    [
        ("../SKILL.md", "an empty part, . or .."),
        ("trips/../../SKILL.md", "an empty part, . or .."),
        ("trips//SKILL.md", "an empty part, . or .."),
        ("trips/./SKILL.md", "an empty part, . or .."),
        ("/etc/SKILL.md", "absolute"),
        ("C:/SKILL.md", "absolute"),
        ("C:SKILL.md", "absolute"),
        ("\\\\host\\share", "backslash"),
        ("trips\\..\\SKILL.md", "backslash"),
        ("trips/a\nb", "control characters"),
        ("trips/\x1b[2J", "control characters"),
        ("trips/\u202egpj.exe", "control characters"),
        ("trips/" + "x" * 256, "longer than 255"),
        ("/".join(["trips"] + ["x" * 250] * 5), "longer than 1024"),
        ("/".join(["d"] * 40), "more than 16 folders"),
        ("trips/cafe\u0301.md", "NFC"),
    ],
)
def test_names_that_are_refused_everywhere(settings: Settings, name: str, message: str) -> None:
    members = {"trips/SKILL.md": SKILL, name: b"x"}
    refused(settings, zipped(members), message)
    refused(settings, tarred(members, mode="w:gz"), message)
    with pytest.raises(ArchiveError, match=message):
        upload(settings, SKILL, name)


def test_names_with_a_nul_or_invalid_bytes(settings: Settings) -> None:
    body = zipped({"trips/SKILL.md": SKILL, "trips/aXb": b"x"})
    refused(settings, body.replace(b"aXb", b"a\0b"), "control characters")
    refused(settings, body.replace(b"aXb", b"a\xffb"), "not UTF-8")
    body = tarred({"trips/SKILL.md": SKILL, "trips/aXb": b"x"})
    refused(settings, _with_checksums(body.replace(b"aXb", b"a\xffb")), "not UTF-8")


def _with_checksums(tar: bytes) -> bytes:
    """The tar with the checksum of each header put right."""
    blocks = [bytearray(tar[at : at + 512]) for at in range(0, len(tar), 512)]
    for block in blocks:
        if block[257:262] == b"ustar":
            block[148:156] = b" " * 8
            block[148:156] = b"%06o\0 " % sum(block)
    return b"".join(blocks)


@pytest.mark.parametrize(
    ("first", "second", "message"),
    [
        ("trips/a", "trips/a", "twice"),
        ("trips/a", "trips/A", "only in case"),
        ("trips/straße", "trips/STRASSE", "only in case"),
        ("trips/Docs/a", "trips/docs/b", "only in case"),
        ("trips/a", "trips/a/b", "both a file and a folder"),
        ("trips/a/b", "trips/a", "both a file and a folder"),
    ],
)
def test_names_that_collide(settings: Settings, first: str, second: str, message: str) -> None:
    names = MemberNames(16)
    names.add(first)
    with pytest.raises(ArchiveError, match=message):
        names.add(second)
    if first != second:
        refused(settings, zipped({"trips/SKILL.md": SKILL, first: b"", second: b""}), message)


@given(st.text(max_size=60))
@examples(max_examples=300, deadline=None)
def test_a_clean_path_stays_inside(name: str) -> None:
    try:
        path = clean_path(name, 16)
    except ArchiveError:
        return
    assert not path.startswith("/")
    assert not {"..", "."} & set(path.split("/"))
    assert all(ord(one) >= 32 for one in path)


@given(st.lists(st.text(max_size=12), max_size=12))
@examples(max_examples=200, deadline=None)
def test_names_that_are_taken_are_all_different_without_case(names: list[str]) -> None:
    seen, taken = MemberNames(16), []
    for name in names:
        try:
            taken.append(seen.add(name))
        except ArchiveError:
            continue
    assert len({path.casefold() for path in taken}) == len(taken)


# -- kinds of members


@pytest.mark.parametrize(
    ("entry", "message"),
    [
        (special(tarfile.SYMTYPE, target="/etc/passwd"), "symbolic link"),
        (special(tarfile.LNKTYPE, target="trips/SKILL.md"), "hard link"),
        (special(tarfile.CHRTYPE), "device"),
        (special(tarfile.BLKTYPE), "device"),
        (special(tarfile.FIFOTYPE), "named pipe"),
        (special(b"Z"), "special kind"),
    ],
)
def test_special_members_of_a_tar(settings: Settings, entry: tarfile.TarInfo, message: str) -> None:
    refused(settings, tarred({"trips/SKILL.md": SKILL}, entry, mode="w:gz"), message)


def test_a_sparse_file(settings: Settings) -> None:
    entry = tarfile.TarInfo("trips/SKILL.md")
    entry.size = 0
    entry.pax_headers = {
        "GNU.sparse.major": "0",
        "GNU.sparse.minor": "1",
        "GNU.sparse.map": "0,0",
        "GNU.sparse.size": "9000000000",
    }
    refused(settings, tarred({}, entry), "sparse")


@pytest.mark.parametrize(
    ("mode", "message"),
    [(stat.S_IFLNK, "symbolic link"), (stat.S_IFCHR, "special"), (stat.S_IFIFO, "special")],
)
def test_special_members_of_a_zip(settings: Settings, mode: int, message: str) -> None:
    def change(entry: zipfile.ZipInfo) -> None:
        entry.create_system, entry.external_attr = 3, (mode | 0o777) << 16

    refused(settings, zipped({"trips/SKILL.md": b"/etc/passwd"}, change), message)


def test_an_encrypted_member(settings: Settings) -> None:
    body = bytearray(zipped({"trips/SKILL.md": SKILL}))
    body[6] |= 1
    body[body.index(b"PK\1\2") + 8] |= 1
    refused(settings, bytes(body), "encrypted")


def test_an_unusual_compression(settings: Settings) -> None:
    target = io.BytesIO()
    with zipfile.ZipFile(target, "w", zipfile.ZIP_LZMA) as archive:
        archive.writestr("trips/SKILL.md", SKILL)
    refused(settings, target.getvalue(), "use deflate")


# -- what costs too much


def test_bombs_are_refused_while_they_are_read(settings: Settings) -> None:
    zeros = bytes(16_000_000)
    tar = tarred({"trips/SKILL.md": SKILL, "trips/zeros": zeros})
    for body in (
        zipped({"trips/SKILL.md": SKILL, "trips/zeros": zeros}),
        gzip.compress(tar, 9),
        bz2.compress(tar),
        lzma.compress(tar),
    ):
        tracemalloc.start()
        refused(settings, body, r"uploads\.(ratio|unpacked_megabytes)")
        peak = tracemalloc.get_traced_memory()[1]
        tracemalloc.stop()
        assert peak < 12_000_000


def test_unpacked_bytes_are_limited(settings: Settings) -> None:
    bounds = UploadSettings(unpacked_megabytes=0.5)
    small = settings.model_copy(update={"uploads": bounds})
    noise = b"".join(
        hashlib.sha256(bytes([one % 256, one // 256])).digest() for one in range(20_000)
    )
    refused(small, zipped({"trips/SKILL.md": SKILL, "trips/x": noise}), "unpacked_megabytes")
    refused(small, tarred({"trips/SKILL.md": SKILL, "trips/x": noise}), "unpacked_megabytes")
    small = settings.model_copy(update={"uploads": UploadSettings(megabytes=0.1)})
    refused(small, zipped({"trips/SKILL.md": SKILL, "trips/x": noise}), "uploads.megabytes")


def test_a_hundred_thousand_files(settings: Settings) -> None:
    thousand = b"".join(tarfile.TarInfo(f"trips/{number}").tobuf() for number in range(1_000))
    tar = thousand * 100 + bytes(2 * tarfile.BLOCKSIZE)
    refused(settings, gzip.compress(tar, 1), r"more than 200 files|uploads\.ratio")
    target = io.BytesIO()
    with zipfile.ZipFile(target, "w") as zip_archive:
        zip_archive.writestr(zipfile.ZipInfo("0"), b"")
        zip_archive.filelist *= 100_000
    wide = settings.model_copy(update={"uploads": UploadSettings(files=200, megabytes=50)})
    tracemalloc.start()
    refused(wide, target.getvalue(), "uploads.files")
    peak = tracemalloc.get_traced_memory()[1]
    tracemalloc.stop()
    assert peak < 20_000_000


def test_overlapping_members(settings: Settings) -> None:
    target = io.BytesIO()
    with zipfile.ZipFile(target, "w") as archive:
        archive.writestr("trips/SKILL.md", SKILL)
        archive.writestr("trips/a", bytes(1000))
        archive.filelist[1].header_offset = archive.filelist[0].header_offset + 2
    refused(settings, target.getvalue(), "overlaps another")


def test_more_skills_or_files_of_one_than_allowed(settings: Settings) -> None:
    many = {f"s{number}/SKILL.md": SKILL for number in range(21)}
    refused(settings, zipped(many), "uploads.skills")
    limits = settings.limits.model_copy(update={"folder_files": 3, "skill_bytes": 1_000})
    small = settings.model_copy(update={"limits": limits})
    refused(small, zipped({f"a/{one}": b"" for one in "1234"} | {"a/SKILL.md": SKILL}), "folder_f")
    refused(small, zipped({"a/SKILL.md": SKILL * 20}), "skill_bytes")


def test_time_is_bounded() -> None:
    meter = UploadMeter(UploadSettings(seconds=1e-9), 100)
    with pytest.raises(UploadTooLargeError, match=r"uploads\.seconds"):
        meter.count_member("x")


# -- what is broken


def test_a_zip_that_unpacks_to_itself_is_a_file_in_itself(settings: Settings) -> None:
    inner = zipped(GOOD)
    store = put(settings, zipped({"trips/SKILL.md": SKILL, "trips/r.zip": inner + inner}))
    assert store.read("team", "trips", 10_000).files[0].size == 2 * len(inner)
    refused(settings, gzip.compress(gzip.compress(tarred(GOOD))), "tar archive|end is missing")


@pytest.mark.parametrize(
    "body",
    [zipped(GOOD), tarred(GOOD), tarred(GOOD, mode="w:gz"), tarred(GOOD, mode="w:xz")],
    ids=["zip", "tar", "gz", "xz"],
)
def test_a_truncated_archive(settings: Settings, body: bytes) -> None:
    for share in (0.3, 0.6, 0.9):
        cut = body[: max(int(min(len(body), 2600) * share), 20)]
        with pytest.raises(UsageError):
            upload(settings, cut)
    assert not packages(settings)


def test_wrong_sizes(settings: Settings) -> None:
    body = zipped({"trips/SKILL.md": SKILL, "trips/x": b"0123456789" * 10})
    table = body.rindex(b"PK\1\2")
    for size in (10, 5_000, 0xFFFFFFFE):
        lying = body[: table + 24] + struct.pack("<L", size) + body[table + 28 :]
        refused(settings, lying, "zip archive|the size")


def test_a_wrong_data_descriptor(settings: Settings) -> None:
    class Unseekable(io.BytesIO):
        def seekable(self) -> bool:
            return False

        def seek(self, *_: int) -> int:
            raise io.UnsupportedOperation

        def tell(self) -> int:
            raise io.UnsupportedOperation

    target = Unseekable()
    with zipfile.ZipFile(target, "w", zipfile.ZIP_DEFLATED) as archive:
        archive.writestr("trips/SKILL.md", SKILL)
    body = target.getvalue()
    assert upload(settings, body).skill_ids == ("team:trips",)
    # The checksum is that of other content, in the descriptor and in the table.
    right, wrong = struct.pack("<L", zlib.crc32(SKILL)), struct.pack("<L", 7)
    with pytest.raises(ArchiveError, match="CRC"):
        upload(settings, body.replace(right, wrong))


def test_content_that_is_no_archive(settings: Settings) -> None:
    refused(settings, b"", "the upload is empty", "x")
    refused(settings, b"\x7fELF\0\0\0", "not a zip", "x")
    refused(settings, zipped({}), "no SKILL.md")
    refused(settings, gzip.compress(tarred({})), "no SKILL.md")
    refused(settings, zipped({"README.md": b"x"}), "no SKILL.md")
    refused(settings, b"PK\3\4" + bytes(600), "zip archive")
    refused(settings, b"\x1f\x8b" + bytes(600), "tar archive")
    refused(settings, b"BZh9" + bytes(600), "tar archive")


def test_data_after_the_end(settings: Settings) -> None:
    refused(settings, tarred(GOOD) + tarred({"../x": b""}), "after its end")
    body = tarred(GOOD)
    broken = bytearray(body)
    broken[512 * 2 + 150] ^= 0xFF  # the second header's checksum
    with pytest.raises(ArchiveError, match=r"end is missing|wrong"):
        upload(settings, bytes(broken))


def test_endless_headers(settings: Settings) -> None:
    chain = tarred({"trips/SKILL.md": SKILL})[:1024]
    refused(settings, chain + _long_names(1_500), "archive")
    huge = tarfile.TarInfo("././@LongLink")
    huge.type, huge.size = tarfile.GNUTYPE_LONGNAME, 1 << 33
    refused(settings, chain + huge.tobuf(tarfile.GNU_FORMAT), "larger than any name")


def test_slow_headers(settings: Settings) -> None:
    """CVE-2024-6232: digits that may begin a name; and a map with more holes than a file has."""
    begun = tarred({"trips/SKILL.md": SKILL})[:1024]
    refused(settings, begun + _extended(b"1" * 40_000), "larger than any name")
    ended = b"19 path=trips/other\n"
    many = _extended(ended) * 1_000
    refused(settings, begun + many, "larger than any name")
    wanted = b"22 GNU.sparse.major=1\n22 GNU.sparse.minor=0\n25 GNU.sparse.realsize=5\n"
    places = b"10000\n" + b"0\n" * 20_000
    holes = tarfile.TarInfo("trips/holes")
    holes.size = len(places)
    body = begun + _extended(wanted) + holes.tobuf(tarfile.USTAR_FORMAT) + places
    refused(settings, body, "larger than any name")


def test_many_headers(settings: Settings) -> None:
    """tarfile copies the global ones for each member, and keeps all members."""
    records = b"".join(b"12 k%05d=x\n" % number for number in range(101))
    one = _extended(b"19 comment=0123456\n", tarfile.XGLTYPE)
    assert upload(settings, one + tarred(GOOD)).skill_ids == ("team:trips",)
    body = _extended(records, tarfile.XGLTYPE) + tarred(GOOD)
    refused(settings, body, "more global headers")
    many = tarred({f"trips/{number}": b"" for number in range(20)})
    kept = []
    members = iter_tar_members(io.BytesIO(many), "", UploadMeter(settings.uploads, len(many)))
    for number, member in enumerate(members):
        assert list(member.content or [b"a folder"]) == []
        if number in (0, 19):
            kept.append(sum(isinstance(one, tarfile.TarInfo) for one in gc.get_objects()))
    assert kept[1] <= kept[0]


def _extended(records: bytes, kind: bytes = tarfile.XHDTYPE) -> bytes:
    """A pax header of these records."""
    header = tarfile.TarInfo("header")
    header.type, header.size = kind, len(records)
    return header.tobuf(tarfile.USTAR_FORMAT) + records + bytes(-len(records) % 512)


def _long_names(count: int) -> bytes:
    header = tarfile.TarInfo("././@LongLink")
    header.type, header.size = tarfile.GNUTYPE_LONGNAME, 6
    return (header.tobuf(tarfile.GNU_FORMAT) + b"trips/".ljust(512, b"\0")) * count


UNDAMAGED = [zipped(GOOD), tarred(GOOD), tarred(GOOD, mode="w:gz"), tarred(GOOD, mode="w:xz")]


@pytest.fixture(scope="module")
def one_home(tmp_path_factory: pytest.TempPathFactory) -> Settings:
    """For all examples of a test: each upload has a package of its own."""
    bounds = UploadSettings(megabytes=2, unpacked_megabytes=8, files=200, seconds=30)
    return Settings(home=tmp_path_factory.mktemp("home"), uploads=bounds)


@given(data=st.data())
@examples(max_examples=100, deadline=None)
def test_damaged_archives_end_in_an_error_or_in_skills(
    one_home: Settings, data: st.DataObject
) -> None:
    body = bytearray(data.draw(st.sampled_from(UNDAMAGED)))
    for _ in range(data.draw(st.integers(1, 6))):
        body[data.draw(st.integers(4, min(len(body) - 1, 3_000)))] = data.draw(st.integers(0, 255))
    with contextlib.suppress(UsageError):
        assert upload(one_home, bytes(body)).skill_ids


# -- the store


@pytest.mark.parametrize("source_id", ["..", "a/../b", "a:b", "a b", "", "x" * 300, "a\nb"])
def test_invalid_source_ids(source_id: str) -> None:
    with pytest.raises(UsageError):
        check_source_id(source_id)


@given(st.text(min_size=1, max_size=300))
def test_file_names_are_plain_and_unique(text: str) -> None:
    try:
        name = safe_file_name(text)
    except UnicodeEncodeError:
        return
    assert name.isascii()
    assert len(name) < 250
    assert "/" not in name
    assert name not in (".", "..")
    assert safe_file_name(text.swapcase()).lower() != name.lower() or text.swapcase() == text


def test_a_package_can_be_installed_twice(settings: Settings) -> None:
    store = open_upload_store(settings)
    first = upload(settings, SKILL, "trips").event.id
    second = upload(settings, SKILL + b"More.\n", "trips").event.id
    store.install_package("team", first)
    assert store.read("team", "trips", 10_000).content == SKILL
    store.install_package("team", second)
    store.install_package("team", first)
    assert store.read("team", "trips", 10_000).content.endswith(b"More.\n")
    store.remove_skills("team", ["trips", "never"])
    with pytest.raises(SkillGoneError):
        store.read("team", "trips", 10_000)


def test_one_of_several_that_send_a_package_at_once_submits_it(settings: Settings) -> None:
    store = open_upload_store(settings)

    def submit(name: str, together: Barrier) -> str:
        with store.staging() as place:
            (place / "skills").mkdir()
            (place / "skills" / "trips.zip").write_bytes(b"")
            together.wait()
            try:
                store.submit_package(name, "team", place / "skills")
            except TransientError as error:
                return str(error)
        return ""

    for number in range(20):
        with ThreadPoolExecutor(8) as pool:
            submits = partial(submit, f"upload-{number}", Barrier(8))
            ends = sorted(one.result() for one in [pool.submit(submits) for _ in range(8)])
        assert ends == ["", *["this upload is being processed; send it again later"] * 7]


def test_a_folder_that_is_not_shared_is_transient(settings: Settings) -> None:
    away = Settings(home=settings.home / "elsewhere")
    package = upload(settings, SKILL, "trips").event.id
    for call in (
        lambda: open_upload_store(away).install_package("team", package),
        lambda: UploadReader("team", away).scan(""),
        lambda: UploadReader("team", away).read("trips"),
    ):
        with pytest.raises(TransientError, match=r"share one folder"):
            call()


def test_long_paths_are_found_again(settings: Settings) -> None:
    paths = ["/".join(["long" * 20] * 4), "plain", "Übung/日本"]
    for path in paths:
        put(settings, SKILL, path)
    reader = UploadReader("team", settings)
    assert sorted(reader.scan("").signatures) == sorted(paths)
    assert list(reader.scan("Übung").signatures) == ["Übung/日本"]
    assert reader.find_owning_skill("plain/scripts/run.py") == "plain"
    assert reader.find_owning_skill("other") is None


def test_a_damaged_package_is_read_or_refused(settings: Settings) -> None:
    put(settings, SKILL, "trips")
    (file,) = (settings.home / "uploads" / "sources").glob("*/*.zip")
    whole = file.read_bytes()
    refusals = 0
    for place in range(len(whole)):
        file.write_bytes(whole[:place] + bytes([whole[place] ^ 0x41]) + whole[place + 1 :])
        reader = UploadReader("team", settings)
        found = reader.scan("")
        assert {*found.signatures, *found.refused} == {"trips"}
        try:
            reader.read("trips")
        except PermanentError:
            refusals += 1
    assert refusals > len(whole) // 4


def test_a_pointer_to_large_file_storage_is_no_skill(settings: Settings) -> None:
    put(settings, LFS_POINTER, "trips")
    with pytest.raises(PermanentError, match=r"team:trips/SKILL.md is a pointer to large-file"):
        UploadReader("team", settings).read("trips")


def test_expired_packages_are_deleted(settings: Settings) -> None:
    store = open_upload_store(settings)
    done, waiting, unknown, fresh = (upload(settings, SKILL, "trips").event.id for _ in range(4))
    packages = settings.home / "uploads" / "packages"
    left = settings.home / "uploads" / "staging" / "left"
    left.mkdir()
    for old in (packages / unknown, packages / waiting, left):
        os.utime(old, (1, 1))
    assert store.delete_expired(lambda ids: {done: True, waiting: False}) == 3
    assert {one.name for one in packages.iterdir()} == {waiting, fresh}
    assert not left.exists()


def test_the_kind_is_detected_by_content() -> None:
    assert detect_archive_kind(zipped(GOOD)) == "zip"
    assert detect_archive_kind(tarred(GOOD)) == "tar"
    assert detect_archive_kind(tarred(GOOD, mode="w:gz")) == "tar.gz"
    assert detect_archive_kind(SKILL) == "text"


class Listed:
    """The entries of a folder as `os.scandir` gives them, read at once."""

    def __init__(self, entries: list[os.DirEntry[str]]) -> None:
        self._entries = iter(entries)

    def __enter__(self) -> Listed:
        return self

    def __exit__(self, *_: object) -> None:
        return None

    def __iter__(self) -> Iterator[os.DirEntry[str]]:
        return self._entries

    def __next__(self) -> os.DirEntry[str]:
        return next(self._entries)


@pytest.mark.parametrize("first", ["packages", "sources"])
def test_a_copy_has_what_is_installed_meanwhile(
    settings: Settings, tmp_path: Path, monkeypatch: pytest.MonkeyPatch, first: str
) -> None:
    """The package is installed when one of the two folders has been listed first."""
    taken = upload(settings, zipped({"a/SKILL.md": SKILL, "b/SKILL.md": SKILL}))
    store, folder, scandir = open_upload_store(settings), settings.home / "uploads", os.scandir
    installed: list[str] = []

    def scan(path: str | Path) -> Listed:
        with scandir(path) as found:
            entries = sorted(found, key=lambda one: one.name, reverse=first == "sources")
        if not installed and Path(path).parent == folder / first:
            installed.append(taken.event.id)
            store.install_package("team", taken.event.id)
        return Listed(entries)

    with monkeypatch.context() as patched:
        patched.setattr(os, "scandir", scan)
        copy_uploads(folder, tmp_path / "copy")
    assert installed
    names = {one.name for one in (tmp_path / "copy").rglob("*.zip")}
    assert names == {safe_file_name(name) + ".zip" for name in ("a", "b")}
